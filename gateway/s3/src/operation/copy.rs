//! `x-amz-copy-source` and what goes with it.

use fencegate_wire::EntityTag;
use http::HeaderMap;

use super::values::{digits, header, version_id};
use super::{Conditions, ObjectAddress};
use crate::address::{check_key, decode};
use crate::bucket::BucketName;
use crate::code::S3Error;

const SOURCE: &str = "x-amz-copy-source";
const SOURCE_RANGE: &str = "x-amz-copy-source-range";

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySource {
    /// The object.
    pub object: ObjectAddress,
    /// The write that it is from; `None`: the newest.
    pub version: Option<EntityTag>,
    /// What is demanded of it. Whatever does not hold is 412 for a copy, never 304.
    pub conditions: Conditions,
}

/// The bytes of a source that become a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopySourceRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, included.
    pub last: u64,
}

/// Where the metadata of a copy comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataDirective {
    /// From the source.
    Copy,
    /// From the headers of the request.
    Replace,
}

impl CopySource {
    /// Reads the headers; `None` without a source.
    ///
    /// # Errors
    /// `InvalidArgument`, `InvalidBucketName`, and those of keys and conditions; `NotImplemented` for an access point.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        let Some(text) = header(headers, SOURCE)? else { return Ok(None) };
        let (path, version) = match text.rsplit_once("?versionId=") {
            Some((path, version)) => (path, Some(decode(version)?)),
            None => (text, None),
        };
        // Decoded before it is taken apart: some callers encode the slash between bucket and key, too. A bucket has no
        // slash in its name, so this can be read in one way only.
        let path = decode(path)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        if path.starts_with("arn:") {
            return Err(S3Error::not_implemented("access points as the source of a copy")
                .with("Header", SOURCE));
        }
        let Some((bucket, key)) = path.split_once('/').filter(|(_, key)| !key.is_empty()) else {
            let why = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey";
            return Err(S3Error::argument(SOURCE, text, why));
        };
        check_key(key)?;
        let object = ObjectAddress { bucket: BucketName::new(bucket)?, key: key.to_owned() };
        let version = version_id(version.as_deref())?;
        Ok(Some(Self { object, version, conditions: Conditions::of_copy_source(headers)? }))
    }
}

impl CopySourceRange {
    /// `bytes=first-last`, both given.
    pub(super) fn read(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        let Some(text) = header(headers, SOURCE_RANGE)? else { return Ok(None) };
        let read = || {
            let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
            let range = Self { first: digits(first)?, last: digits(last)? };
            (range.first <= range.last).then_some(range)
        };
        let why = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
                   zero-based offsets of the first and last bytes to copy";
        read().map(Some).ok_or_else(|| S3Error::argument(SOURCE_RANGE, text, why))
    }
}

impl MetadataDirective {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, S3Error> {
        directive(headers, "x-amz-metadata-directive")
    }
}

/// `x-amz-tagging-directive` is read and then plays no part: no object has tags, and a request cannot bring any.
pub(super) fn check_tagging_directive(headers: &HeaderMap) -> Result<(), S3Error> {
    directive(headers, "x-amz-tagging-directive").map(|_| ())
}

fn directive(headers: &HeaderMap, name: &'static str) -> Result<MetadataDirective, S3Error> {
    match header(headers, name)? {
        None | Some("COPY") => Ok(MetadataDirective::Copy),
        Some("REPLACE") => Ok(MetadataDirective::Replace),
        Some(other) => Err(S3Error::argument(name, other, "This is COPY or REPLACE.")),
    }
}
