//! What the head of a request says of a body in chunks.

use http::HeaderMap;

use super::ChunkError;
use crate::sign::header::only;

/// How many trailers may be announced.
const TRAILERS_MAX: usize = 8;
/// The longest payload, in bytes: 5 GiB, the longest that S3 takes in one request.
const LENGTH_MAX: u64 = 5 << 30;

/// What the head of a request says of its body in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// `x-amz-decoded-content-length`: how long the payload is, in bytes.
    pub length: u64,
    /// The names in `x-amz-trailer`, in lower case. Each comes behind the last chunk.
    pub trailers: Vec<String>,
}

impl Announced {
    /// Reads the two headers. `trailer`: whether there may be trailers, as [`crate::sign::PayloadHash`] says.
    ///
    /// # Errors
    /// The length is missing, is no number, or is above 5 GiB; trailers are announced where none may be, or are none that
    /// S3 knows.
    pub fn of(headers: &HeaderMap, trailer: bool) -> Result<Self, ChunkError> {
        let length = only(headers, "x-amz-decoded-content-length").ok().flatten();
        let length = length
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .filter(|length| *length <= LENGTH_MAX)
            .ok_or(ChunkError::NoLength)?;
        let text = only(headers, "x-amz-trailer").map_err(|_| ChunkError::BadAnnouncement)?;
        let names =
            text.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
        let mut trailers: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        trailers.sort_unstable();
        let twice = trailers.windows(2).any(|pair| pair[0] == pair[1]);
        let known = trailers.iter().all(|name| is_checksum(name));
        if twice || !known || trailers.len() > TRAILERS_MAX || (!trailer && !trailers.is_empty()) {
            return Err(ChunkError::BadAnnouncement);
        }
        Ok(Self { length, trailers })
    }
}

/// S3 takes nothing else in trailers. Nothing else may come in there: a trailer is not in `SignedHeaders`.
fn is_checksum(name: &str) -> bool {
    crate::checksum::Algorithm::of_header(name).is_some()
}
