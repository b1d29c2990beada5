//! What the headers of a part say about its bytes, checked against what arrived.

use axum::http::{HeaderMap, header};
use fence_core::ErrorCode;

use super::digest::Digests;
use super::headers::{is_content_type, not_encoded, single};
use crate::http::problem::Problem;

const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// What is said of a part.
pub struct Described {
    /// Its digests.
    pub digests: Digests,
    /// `Content-Length`
    length: Option<u64>,
    /// `Content-Type`
    content_type: Option<String>,
}

impl Described {
    /// Reads the headers of a part.
    ///
    /// # Errors
    /// `unsupported-media-type` if the bytes are encoded; `request-malformed`.
    pub fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        not_encoded(headers)?;
        if let Some(coding) = single(headers, "content-transfer-encoding")?
            && ![b"7bit".as_slice(), b"8bit", b"binary"]
                .iter()
                .any(|plain| coding.eq_ignore_ascii_case(plain))
        {
            let why = "send the bytes of a part as they are, without Content-Transfer-Encoding";
            return Err(Problem::new(ErrorCode::UnsupportedMediaType, why));
        }
        let length = single(headers, header::CONTENT_LENGTH.as_str())?.map(|value| {
            let digits = value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().filter(|_| digits);
            number.and_then(|text| text.parse().ok())
        });
        let length = length.map(|length| {
            length.ok_or_else(|| Problem::malformed("the Content-Length of a part is no number"))
        });
        let content_type = single(headers, header::CONTENT_TYPE.as_str())?.map(|value| {
            let text = std::str::from_utf8(value).ok().filter(|text| is_content_type(text));
            text.map(str::to_owned).ok_or_else(|| {
                Problem::malformed("a Content-Type has 1 to 255 visible ASCII characters")
            })
        });
        Ok(Self {
            digests: Digests::parse(headers)?,
            length: length.transpose()?,
            content_type: content_type.transpose()?,
        })
    }

    /// The content type of the bytes, of which the list may say the same, too.
    ///
    /// # Errors
    /// `body-malformed` if it says something else.
    pub fn content_type(&mut self, listed: Option<String>) -> Result<String, Problem> {
        match (listed, self.content_type.take()) {
            (Some(listed), Some(sent)) if listed != sent => Err(Problem::new(
                ErrorCode::BodyMalformed,
                "the list and the part give different content types; nothing was applied",
            )),
            (listed, sent) => Ok(listed.or(sent).unwrap_or_else(|| CONTENT_TYPE_DEFAULT.into())),
        }
    }

    /// Checks how many bytes arrived.
    ///
    /// # Errors
    /// `body-malformed`
    pub fn check_length(&self, bytes: u64) -> Result<(), Problem> {
        match self.length.is_none_or(|length| length == bytes) {
            true => Ok(()),
            false => Err(Problem::new(
                ErrorCode::BodyMalformed,
                "a part does not have as many bytes as its Content-Length says; nothing was applied",
            )),
        }
    }

    /// Checks bytes that are all here.
    ///
    /// # Errors
    /// `body-malformed`; `digest-mismatch`
    pub fn check_whole(self, bytes: &[u8]) -> Result<(), Problem> {
        self.check_length(bytes.len() as u64)?;
        self.digests.check_whole(bytes)
    }
}
