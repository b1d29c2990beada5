//! Why a request is not taken for what it says it is.

/// Why the signature of a request is no good. Each is a 4xx at S3; which one, stands beside it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The header `Authorization` cannot be read: 400 `AuthorizationHeaderMalformed`.
    #[error("the Authorization header cannot be read: {0}")]
    MalformedHeader(&'static str),
    /// The parameters of a presigned URL cannot be read: 400 `AuthorizationQueryParametersError`.
    #[error("the query of this presigned URL cannot be read: {0}")]
    MalformedQuery(&'static str),
    /// Something that is signed has two meanings: 400 `InvalidRequest`.
    #[error("{0}")]
    Ambiguous(&'static str),
    /// A header that is signed is there twice: 400 `InvalidRequest`.
    #[error("the header {0} is signed and may be there only once")]
    Twice(String),
    /// A header that says when or what is signed is missing or wrong: 400 `InvalidRequest`.
    #[error("{0}")]
    BadHeader(&'static str),
    /// Signed in a way that is not served here: 400 `InvalidRequest`.
    #[error("{0}")]
    NotSupported(&'static str),
    /// A header changes what the request means, and the signature does not cover it: 403 `AccessDenied`.
    #[error("the header {0} must be signed: name it in SignedHeaders, or leave it out")]
    NotSigned(String),
    /// `SignedHeaders` names a header that did not arrive: 403 `SignatureDoesNotMatch`.
    #[error("the header {0} is named in SignedHeaders, and the request does not have it")]
    NotThere(String),
    /// The signature is that of another request, or by another secret: 403 `SignatureDoesNotMatch`.
    #[error(
        "the signature is not the one that this request has under this key: check the secret, and whether something on the way changed the path, the query or a signed header"
    )]
    DoesNotMatch,
    /// The request was signed too long before or after now: 403 `RequestTimeTooSkewed`.
    #[error(
        "the request was signed at {signed_at}, and here it is {now}: the difference may be 15 minutes"
    )]
    TooSkewed {
        /// When it says it was signed.
        signed_at: jiff::Timestamp,
        /// What time it is here.
        now: jiff::Timestamp,
    },
    /// The presigned URL was good until then: 403 `AccessDenied`.
    #[error("this presigned URL was good until {until}")]
    Expired {
        /// When it ended.
        until: jiff::Timestamp,
    },
}
