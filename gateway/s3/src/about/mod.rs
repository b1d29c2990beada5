//! What an object says of itself besides its bytes: metadata and headers that are kept with it and sent with it.

mod checksum;
mod headers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::code::{S3Code, S3Error};

pub use checksum::{ChecksumAlgorithm, ChecksumKind, StoredChecksum};
pub use headers::{CONTENT_TYPE_BYTES_MAX, CONTENT_TYPE_DEFAULT, Description};

/// The most that S3 allows in the names and values of a user's own metadata, in bytes.
pub const USER_BYTES_MAX: usize = 2048;
/// The longest [`About`], in bytes of JSON.
pub const ABOUT_BYTES_MAX: usize = 8192;

/// What is kept with an object for S3, apart from its `Content-Type`.
///
/// Whatever replaces an object replaces this with it, if only by nothing: else old metadata would cling to new bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// `x-amz-meta-*`: names in lower case and without that beginning, values to the byte as they were sent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// `Cache-Control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// `Content-Disposition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// `Content-Encoding`, without `aws-chunked`, which is how the body travelled and not what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Expires`, as it was sent: S3 does not ask that it is a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The checksum that was checked when the bytes came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<StoredChecksum>,
}

impl About {
    /// As JSON, as the ledgers keep it; `None` if there is nothing to keep.
    ///
    /// # Errors
    /// `MetadataTooLarge` above [`ABOUT_BYTES_MAX`].
    pub fn to_json(&self) -> Result<Option<String>, S3Error> {
        if *self == Self::default() {
            return Ok(None);
        }
        // INVARIANT: strings always serialize.
        let json = serde_json::to_string(self).expect("strings are JSON");
        match json.len() {
            ..=ABOUT_BYTES_MAX => Ok(Some(json)),
            bytes => Err(too_large(bytes, ABOUT_BYTES_MAX)),
        }
    }

    /// Read back from a ledger.
    ///
    /// # Errors
    /// What is no JSON of this form, which no gateway of this version wrote.
    pub fn from_json(json: Option<&str>) -> Result<Self, serde_json::Error> {
        json.map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }
}

fn too_large(bytes: usize, most: usize) -> S3Error {
    S3Error::from(S3Code::MetadataTooLarge)
        .with("Size", bytes.to_string())
        .with("MaxSizeAllowed", most.to_string())
}
