//! What a signature says of the body: the values of `x-amz-content-sha256`.

use std::fmt;

/// What is signed of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadHash {
    /// The body has this digest, or it is not the one that was signed: whoever reads it must compare.
    Sha256([u8; 32]),
    /// Nothing.
    Unsigned,
    /// The body comes in chunks: [`super::chunked`].
    Chunked {
        /// Each chunk has a signature.
        signed: bool,
        /// Header lines come behind the last chunk, signed if the chunks are.
        trailer: bool,
    },
}

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_CHUNKS_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED_CHUNKS_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

impl PayloadHash {
    /// Reads a value; `None` if there is none like it.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            UNSIGNED => Some(Self::Unsigned),
            SIGNED_CHUNKS => Some(Self::Chunked { signed: true, trailer: false }),
            SIGNED_CHUNKS_TRAILER => Some(Self::Chunked { signed: true, trailer: true }),
            UNSIGNED_CHUNKS_TRAILER => Some(Self::Chunked { signed: false, trailer: true }),
            _ => super::secret::digest_of_hex(text).map(Self::Sha256),
        }
    }
}

impl fmt::Display for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256(digest) => return f.write_str(&hex::encode(digest)),
            Self::Unsigned => UNSIGNED,
            Self::Chunked { signed: true, trailer: false } => SIGNED_CHUNKS,
            Self::Chunked { signed: true, trailer: true } => SIGNED_CHUNKS_TRAILER,
            Self::Chunked { signed: false, .. } => UNSIGNED_CHUNKS_TRAILER,
        })
    }
}
