//! The header `Content-MD5`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use super::ChecksumError;

/// What `Content-MD5` says the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentMd5([u8; 16]);

impl ContentMd5 {
    /// Reads the header; `None` if there is none.
    ///
    /// # Errors
    /// It is there twice, or is no base64 of 16 bytes.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, ChecksumError> {
        let mut values = headers.get_all("content-md5").iter();
        let Some(value) = values.next() else { return Ok(None) };
        let bytes = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let only = bytes.filter(|_| values.next().is_none());
        only.map(|bytes| Some(Self(bytes))).ok_or(ChecksumError::MalformedMd5)
    }

    /// Whether the body is what it says, from the MD5 of what came.
    pub fn matches(&self, of_body: &[u8; 16]) -> bool {
        self.0 == *of_body
    }
}
