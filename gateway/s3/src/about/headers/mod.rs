//! Metadata as headers: read from a write, sent with a read.

use std::collections::BTreeMap;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{About, USER_BYTES_MAX, too_large};
use crate::code::S3Error;

/// The `Content-Type` of an object that was sent without one.
pub const CONTENT_TYPE_DEFAULT: &str = "binary/octet-stream";
/// The longest `Content-Type`, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;

const META: &str = "x-amz-meta-";

/// What the headers of a write say of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `Content-Type`, or [`CONTENT_TYPE_DEFAULT`].
    pub content_type: String,
    /// The rest, still without a checksum.
    pub about: About,
}

impl Description {
    /// Reads the headers of a write.
    ///
    /// # Errors
    /// `MetadataTooLarge`; `InvalidArgument` for values that are no UTF-8, which could not be sent back as they came.
    pub fn read(headers: &HeaderMap) -> Result<Self, S3Error> {
        let content_type = joined(headers, &CONTENT_TYPE)?.filter(|text| !text.is_empty());
        let content_type = content_type.unwrap_or_else(|| CONTENT_TYPE_DEFAULT.to_owned());
        let visible = content_type.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if content_type.len() > CONTENT_TYPE_BYTES_MAX || !visible {
            return Err(S3Error::argument(
                "Content-Type",
                "",
                "A Content-Type has at most 255 characters, of visible ASCII and spaces.",
            ));
        }
        let about = About {
            meta: meta(headers)?,
            cache_control: joined(headers, &CACHE_CONTROL)?,
            content_disposition: joined(headers, &CONTENT_DISPOSITION)?,
            content_encoding: joined(headers, &CONTENT_ENCODING)?
                .and_then(|coding| coding_of_object(&coding)),
            content_language: joined(headers, &CONTENT_LANGUAGE)?,
            expires: joined(headers, &EXPIRES)?,
            checksum: None,
        };
        // Too large for the ledger is too large here, before any byte of the body is read.
        about.to_json()?;
        Ok(Self { content_type, about })
    }
}

impl About {
    /// Adds what is sent with the object, except its checksum, which a reader asks for.
    pub fn write(&self, headers: &mut HeaderMap) {
        let fixed = [
            (CACHE_CONTROL, &self.cache_control),
            (CONTENT_DISPOSITION, &self.content_disposition),
            (CONTENT_ENCODING, &self.content_encoding),
            (CONTENT_LANGUAGE, &self.content_language),
            (EXPIRES, &self.expires),
        ];
        for (name, value) in fixed {
            let value =
                value.as_ref().and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        for (name, value) in &self.meta {
            let name = HeaderName::from_bytes(format!("{META}{name}").as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.insert(name, value);
            }
        }
    }

    /// Adds the checksum and its type, for a reader that asks for it.
    pub fn write_checksum(&self, headers: &mut HeaderMap) {
        let Some(checksum) = &self.checksum else { return };
        if let Ok(value) = HeaderValue::from_str(&checksum.value) {
            headers.insert(HeaderName::from_static(checksum.algorithm.header()), value);
            let kind = HeaderValue::from_static(checksum.kind.as_str());
            headers.insert(HeaderName::from_static("x-amz-checksum-type"), kind);
        }
    }
}

fn meta(headers: &HeaderMap) -> Result<BTreeMap<String, String>, S3Error> {
    let mut meta = BTreeMap::new();
    let mut bytes = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(META) else { continue };
        if short.is_empty() {
            return Err(S3Error::argument(META, "", "Metadata needs a name after x-amz-meta-."));
        }
        let value = joined(headers, name)?.unwrap_or_default();
        bytes += short.len() + value.len();
        meta.insert(short.to_owned(), value);
    }
    match bytes {
        ..=USER_BYTES_MAX => Ok(meta),
        _ => Err(too_large(bytes, USER_BYTES_MAX)),
    }
}

/// All lines of a header as one, parted by commas, as S3 and HTTP have it.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, S3Error> {
    let mut whole: Option<String> = None;
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes());
        let value = value.map_err(|_| {
            S3Error::argument(name.as_str(), "", "The value of the header is not UTF-8.")
        })?;
        match &mut whole {
            None => whole = Some(value.to_owned()),
            Some(whole) => {
                whole.push(',');
                whole.push_str(value);
            }
        }
    }
    Ok(whole)
}

/// What is left of `Content-Encoding` without the chunks of S3, which are gone once the body was read.
fn coding_of_object(coding: &str) -> Option<String> {
    let is_chunks = |coding: &&str| coding.trim().eq_ignore_ascii_case("aws-chunked");
    if !coding.split(',').any(|coding| is_chunks(&coding)) {
        return (!coding.is_empty()).then(|| coding.to_owned());
    }
    let rest: Vec<_> =
        coding.split(',').filter(|coding| !is_chunks(coding)).map(str::trim).collect();
    let rest = rest.join(",");
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests;
