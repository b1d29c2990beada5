//! What can be wrong with a body in chunks.

/// Why a body in chunks is no good. Nothing of it may take effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It is not framed as it should be: 400 `IncompleteBody`, as S3 has no code for it.
    #[error("the body is not in chunks as aws-chunked has them: {0}")]
    Malformed(&'static str),
    /// The request does not say how long the payload is: 411 `MissingContentLength`.
    #[error("a body in chunks needs x-amz-decoded-content-length: a number of bytes, up to 5 GiB")]
    NoLength,
    /// The payload is longer or shorter than the request says: 400 `IncompleteBody`.
    #[error("x-amz-decoded-content-length says {declared} bytes, and the chunks have {got}")]
    WrongLength {
        /// What the request says.
        declared: u64,
        /// What came, or would have with the chunk that is too long.
        got: u64,
    },
    /// A chunk or the trailers are not what was signed: 403 `SignatureDoesNotMatch`.
    #[error("the signature of {0} is not the one that it has under this key")]
    DoesNotMatch(&'static str),
    /// The body ended too early: 400 `IncompleteBody`.
    #[error("the body ended before its last chunk and what follows it")]
    Unfinished,
    /// Something follows the end: 400 `IncompleteBody`.
    #[error("the body goes on after its end")]
    AfterEnd,
    /// The header `x-amz-trailer` cannot be heeded: 400 `InvalidRequest`.
    #[error(
        "x-amz-trailer names up to 8 checksums, such as x-amz-checksum-crc32c, each once, where trailers are sent at all"
    )]
    BadAnnouncement,
    /// The trailers are not those that were announced: 400 `MalformedTrailerError`.
    #[error("trailers: {0}")]
    Trailers(&'static str),
}
