//! Errors as S3 tells them: a code, its HTTP status, a text, and what clients read beside these.

mod wire;

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident, $code:literal, $status:ident, $message:literal;)+) => {
        /// A code of S3, or one of ours where S3 has none. One code has one status.
        ///
        /// There is no `ExpiredToken`: a client that gets it signs again with other keys and repeats the write. A write
        /// that its fence refuses is 403, never 412 or 409, which clients take for a conflict that they may solve.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum S3Code {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl S3Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code as it stands in XML.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Its HTTP status.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)+ }
            }

            /// What is told where nothing more is known.
            pub fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)+ }
            }
        }
    };
}

codes! {
    /// The token was superseded: somebody else took the lock.
    FenceTokenStale, "FenceTokenStale", FORBIDDEN, "The lock of this access key has been superseded.";
    /// The lock was given back.
    FenceTokenReleased, "FenceTokenReleased", FORBIDDEN, "The lock of this access key was released.";
    /// An operator broke the lock.
    FenceTokenBroken, "FenceTokenBroken", FORBIDDEN, "The lock of this access key was broken.";
    /// The token was issued before a re-fence.
    FenceTokenVoid, "FenceTokenVoid", FORBIDDEN, "The lock of this access key was voided by a re-fence.";
    /// The lock does not cover the resource that the key lies in.
    FenceTokenUnknown, "FenceTokenUnknown", FORBIDDEN, "The lock of this access key does not cover this object.";
    /// A write by a key that is no lock, without a token.
    FenceTokenMissing, "FenceTokenMissing", FORBIDDEN, "A write needs the access key of a lock.";
    /// `X-Fence-Token` is not exactly one token.
    FenceTokenMalformed, "FenceTokenMalformed", FORBIDDEN, "The fence token is malformed.";
    /// `X-Lock-Id` names another lock than the token.
    LockIdMismatch, "LockIdMismatch", FORBIDDEN, "The lock id does not belong to this fence token.";
    /// A token without the id of its lock, where that is required.
    LockIdMissing, "LockIdMissing", FORBIDDEN, "A write needs the id of its lock beside the fence token.";
    /// `X-Fence-Seq` does not rise.
    SequenceOutOfOrder, "SequenceOutOfOrder", FORBIDDEN, "The sequence number does not rise.";
    /// The id of this call stands for another request.
    IdempotencyKeyReused, "IdempotencyKeyReused", BAD_REQUEST, "The id of this call was used for another request.";
    /// The caller may not do this.
    AccessDenied, "AccessDenied", FORBIDDEN, "Access Denied";
    /// No lock and no principal has this access key.
    InvalidAccessKeyId, "InvalidAccessKeyId", FORBIDDEN, "The access key id that you gave does not exist.";
    /// The request is not the one that was signed, or the secret is another.
    SignatureDoesNotMatch, "SignatureDoesNotMatch", FORBIDDEN, "The signature that you gave does not match the one calculated here. Check your secret access key and signing method.";
    /// The caller's clock differs too much from the gateway's.
    RequestTimeTooSkewed, "RequestTimeTooSkewed", FORBIDDEN, "The difference between the time of the request and the gateway's time is too large.";
    /// `Authorization` is not what it should be.
    AuthorizationHeaderMalformed, "AuthorizationHeaderMalformed", BAD_REQUEST, "The authorization header is malformed.";
    /// The query of a presigned URL is not what it should be.
    AuthorizationQueryParametersError, "AuthorizationQueryParametersError", BAD_REQUEST, "The parameters of the signature in the query are malformed.";
    /// A header that authentication needs is missing.
    MissingSecurityHeader, "MissingSecurityHeader", BAD_REQUEST, "Your request is missing a required header.";
    /// The body does not have the checksum that it was sent with.
    BadDigest, "BadDigest", BAD_REQUEST, "The checksum that you gave does not match the body that was received.";
    /// A digest or checksum is not well formed.
    InvalidDigest, "InvalidDigest", BAD_REQUEST, "The Content-MD5 or checksum that you gave is not valid.";
    /// The body is not the one that was signed.
    XAmzContentSha256Mismatch, "XAmzContentSHA256Mismatch", BAD_REQUEST, "The x-amz-content-sha256 that you gave does not match the body that was received.";
    /// The body has fewer bytes than were announced.
    IncompleteBody, "IncompleteBody", BAD_REQUEST, "You did not send the number of bytes that the headers announce.";
    /// The trailer of a body in chunks is not what it should be.
    MalformedTrailerError, "MalformedTrailerError", BAD_REQUEST, "The trailer of the body is malformed.";
    /// No length where one is needed.
    MissingContentLength, "MissingContentLength", LENGTH_REQUIRED, "You must give the Content-Length header.";
    /// The request has no body where one is needed.
    MissingRequestBodyError, "MissingRequestBodyError", BAD_REQUEST, "The request has no body.";
    /// The body did not arrive in time.
    RequestTimeout, "RequestTimeout", BAD_REQUEST, "The request did not arrive within the time allowed.";
    /// The headers are larger or more than allowed.
    RequestHeaderSectionTooLarge, "RequestHeaderSectionTooLarge", BAD_REQUEST, "The headers of the request are too large.";
    /// The request breaks a rule that has no code of its own.
    InvalidRequest, "InvalidRequest", BAD_REQUEST, "The request is not valid.";
    /// A parameter or header has a bad value.
    InvalidArgument, "InvalidArgument", BAD_REQUEST, "Invalid argument.";
    /// The path cannot be read.
    InvalidUri, "InvalidURI", BAD_REQUEST, "The URI cannot be parsed.";
    /// The key has more than 1,024 bytes.
    KeyTooLongError, "KeyTooLongError", BAD_REQUEST, "Your key is too long.";
    /// The bucket's name breaks the rules.
    InvalidBucketName, "InvalidBucketName", BAD_REQUEST, "The bucket name is not valid.";
    /// The metadata is larger than allowed.
    MetadataTooLarge, "MetadataTooLarge", BAD_REQUEST, "Your metadata headers exceed the maximum allowed size.";
    /// The object or part is larger than allowed.
    EntityTooLarge, "EntityTooLarge", BAD_REQUEST, "Your upload exceeds the maximum allowed size.";
    /// A part that is not the last is too small.
    EntityTooSmall, "EntityTooSmall", BAD_REQUEST, "A part of your upload is smaller than the minimum allowed size.";
    /// A part was not found, or has another tag.
    InvalidPart, "InvalidPart", BAD_REQUEST, "One or more of the parts could not be found, or has another entity tag.";
    /// The parts are not listed in rising order.
    InvalidPartOrder, "InvalidPartOrder", BAD_REQUEST, "The list of parts was not in ascending order.";
    /// The object has no part of this number.
    InvalidPartNumber, "InvalidPartNumber", RANGE_NOT_SATISFIABLE, "The requested part number is not satisfiable.";
    /// The range lies outside the object.
    InvalidRange, "InvalidRange", RANGE_NOT_SATISFIABLE, "The requested range is not satisfiable.";
    /// The body is not the XML that the call takes.
    MalformedXml, "MalformedXML", BAD_REQUEST, "The XML you provided was not well-formed or did not validate against the schema.";
    /// The body of a call that takes XML is larger than allowed.
    MaxMessageLengthExceeded, "MaxMessageLengthExceeded", BAD_REQUEST, "Your request was too big.";
    /// The bucket cannot be made at this location.
    InvalidLocationConstraint, "InvalidLocationConstraint", BAD_REQUEST, "The location constraint that you gave is not valid.";
    /// A condition on the object failed.
    PreconditionFailed, "PreconditionFailed", PRECONDITION_FAILED, "At least one of the preconditions you specified did not hold.";
    /// The caller has the object already. Such an answer has no body.
    NotModified, "NotModified", NOT_MODIFIED, "Not Modified";
    /// There is no such bucket.
    NoSuchBucket, "NoSuchBucket", NOT_FOUND, "The specified bucket does not exist.";
    /// There is no such object.
    NoSuchKey, "NoSuchKey", NOT_FOUND, "The specified key does not exist.";
    /// There is no such version of the object.
    NoSuchVersion, "NoSuchVersion", NOT_FOUND, "The specified version does not exist.";
    /// There is no such multipart upload, or it is over.
    NoSuchUpload, "NoSuchUpload", NOT_FOUND, "The specified upload does not exist. The upload id may not be valid, or the upload may have been aborted or completed.";
    /// The bucket exists, made otherwise.
    BucketAlreadyExists, "BucketAlreadyExists", CONFLICT, "The requested bucket name is not available.";
    /// The bucket has objects.
    BucketNotEmpty, "BucketNotEmpty", CONFLICT, "The bucket you tried to delete is not empty.";
    /// The method is not allowed here.
    MethodNotAllowed, "MethodNotAllowed", METHOD_NOT_ALLOWED, "The specified method is not allowed against this resource.";
    /// `Host` names something else than this gateway.
    HostNotServed, "HostNotServed", MISDIRECTED_REQUEST, "The gateway is not reached under this name.";
    /// Something of S3 that the gateway does not have.
    NotImplemented, "NotImplemented", NOT_IMPLEMENTED, "What you asked for is not implemented.";
    /// A defect of the gateway.
    InternalError, "InternalError", INTERNAL_SERVER_ERROR, "We encountered an internal error. Please try again.";
    /// Ask again, more slowly.
    SlowDown, "SlowDown", SERVICE_UNAVAILABLE, "Please reduce your request rate.";
    /// Ask again: something that the gateway needs is away, or the outcome is not known.
    ServiceUnavailable, "ServiceUnavailable", SERVICE_UNAVAILABLE, "Service is unable to handle the request. Please try again.";
}

impl fmt::Display for S3Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal, before it is written as XML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct S3Error {
    /// Which code, and so which status.
    pub code: S3Code,
    /// What is wrong, for people.
    pub message: Cow<'static, str>,
    /// More elements of the XML, in this order, by name: `ArgumentName`, `Condition`, `BucketName` ...
    pub details: Vec<(&'static str, String)>,
}

impl S3Error {
    /// A refusal with a text of its own.
    pub fn new(code: S3Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// The same with one more element in the XML.
    #[must_use]
    pub fn with(mut self, element: &'static str, value: impl Into<String>) -> Self {
        self.details.push((element, value.into()));
        self
    }

    /// 400 `InvalidArgument` for the value of a parameter or header, of which at most 1,024 characters are told.
    pub fn argument(name: &str, value: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(S3Code::InvalidArgument, message)
            .with("ArgumentName", name)
            .with("ArgumentValue", value.chars().take(1024).collect::<String>())
    }

    /// 501 `NotImplemented`: the text says what is not there.
    pub fn not_implemented(what: impl fmt::Display) -> Self {
        Self::new(S3Code::NotImplemented, format!("This gateway does not have {what}."))
    }
}

impl From<S3Code> for S3Error {
    /// A refusal with the code's own text.
    fn from(code: S3Code) -> Self {
        Self::new(code, code.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_and_no_successes() {
        let distinct: HashSet<_> = S3Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(distinct.len(), S3Code::ALL.len());
        for code in S3Code::ALL {
            assert!((304..600).contains(&code.status().as_u16()), "{code}");
        }
    }

    #[test]
    fn what_makes_a_client_take_other_keys_is_never_said() {
        for code in S3Code::ALL {
            assert!(!code.as_str().contains("Expired"), "{code}");
        }
    }

    #[test]
    fn what_a_fence_refuses_is_no_conflict() {
        let fenced = |code: &&S3Code| {
            code.as_str().starts_with("Fence") || code.as_str().starts_with("LockId")
        };
        let statuses: Vec<_> =
            S3Code::ALL.iter().filter(fenced).map(|code| code.status()).collect();
        assert_eq!(statuses, [StatusCode::FORBIDDEN; 9]);
    }

    #[test]
    fn an_argument_is_named() {
        let error = S3Error::argument("max-keys", "x", "not a number");
        assert_eq!(
            error.details,
            [("ArgumentName", "max-keys".into()), ("ArgumentValue", "x".into())]
        );
        assert_eq!(error.to_string(), "InvalidArgument: not a number");
    }
}
