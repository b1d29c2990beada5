//! What can be wrong with what a request says of checksums.

/// What a request says of checksums is no good: 400 `InvalidRequest`, but for [`ChecksumError::MalformedMd5`], which is 400
/// `InvalidDigest`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// No algorithm that is served here.
    #[error("the checksums served here are CRC32, CRC32C, CRC64NVME, SHA1 and SHA256")]
    NotServed,
    /// A value is no checksum of its kind.
    #[error("{0} is not the base64 of a checksum of its kind")]
    Malformed(&'static str),
    /// `Content-MD5` is no MD5.
    #[error("Content-MD5 is the base64 of 16 bytes")]
    MalformedMd5,
    /// Two checksums, or one twice.
    #[error(
        "a request has one checksum: one x-amz-checksum- header, or one such name in x-amz-trailer"
    )]
    Several,
    /// `x-amz-sdk-checksum-algorithm` names one, and another or none is sent.
    #[error(
        "x-amz-sdk-checksum-algorithm names a checksum that is not sent, in a header or by x-amz-trailer"
    )]
    NotSent,
    /// A kind of object's checksum that this algorithm cannot have.
    #[error(
        "x-amz-checksum-type is COMPOSITE or FULL_OBJECT: only CRCs can be FULL_OBJECT, and CRC64NVME cannot be COMPOSITE"
    )]
    Kind,
    /// Parts have no checksum that theirs make together.
    #[error("the checksums of the parts are missing or of different algorithms")]
    Parts,
}
