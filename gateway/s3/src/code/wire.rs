//! The native error codes as S3 tells them.

use std::borrow::Cow;

use fencegate_wire::ErrorCode;

use super::{S3Code, S3Error};

impl S3Code {
    /// What S3 is told of a native error.
    ///
    /// Two native codes depend on what was asked, and the caller decides them: `version-mismatch` is `PreconditionFailed`,
    /// but a write with `If-Match` on an object that does not exist is `NoSuchKey`; `upload-expired` is `NoSuchUpload`, but
    /// for an object in one piece it is `RequestTimeout`, which clients repeat.
    pub fn of(code: ErrorCode) -> Self {
        use ErrorCode as E;
        match code {
            E::FenceTokenMissing => Self::FenceTokenMissing,
            E::FenceTokenMalformed => Self::FenceTokenMalformed,
            E::FenceTokenUnknown => Self::FenceTokenUnknown,
            E::LockIdMissing => Self::LockIdMissing,
            E::LockIdMismatch | E::LockIdConflict => Self::LockIdMismatch,
            E::SequenceOutOfOrder => Self::SequenceOutOfOrder,

            // A lock that has ended is told as the token that went with it.
            E::FenceTokenStale | E::FenceOrderStale | E::LockSuperseded => Self::FenceTokenStale,
            E::FenceTokenReleased | E::LockReleased | E::LockHoldExceeded => {
                Self::FenceTokenReleased
            }
            E::FenceTokenBroken | E::LockBroken | E::LockBreaking => Self::FenceTokenBroken,
            E::FenceTokenVoid | E::LockVoid => Self::FenceTokenVoid,
            // The key of a lock that was forgotten is nobody's.
            E::LockNotFound | E::Unauthenticated => Self::InvalidAccessKeyId,

            // An expired credential is denied, and not called expired: the client would take another.
            E::CredentialExpired
            | E::PermissionDenied
            | E::QuotaExhausted
            | E::OriginForbidden
            | E::ResourceProtected
            | E::TooManyObjects => Self::AccessDenied,
            E::HostNotServed => Self::HostNotServed,

            E::VersionMismatch => Self::PreconditionFailed,
            E::IdempotencyKeyReused => Self::IdempotencyKeyReused,
            E::ObjectNotFound | E::ResourceNotFound => Self::NoSuchKey,
            E::VersionNotRetained => Self::NoSuchVersion,
            E::BucketNotFound => Self::NoSuchBucket,
            E::BucketNotEmpty => Self::BucketNotEmpty,
            E::BucketDepthDiffers => Self::BucketAlreadyExists,
            E::UploadExpired => Self::NoSuchUpload,
            E::RangeNotSatisfiable => Self::InvalidRange,
            E::DigestMismatch => Self::BadDigest,
            E::PayloadTooLarge => Self::EntityTooLarge,
            E::HeadersTooLarge => Self::RequestHeaderSectionTooLarge,
            E::RequestTimeout => Self::RequestTimeout,
            E::UriTooLong => Self::InvalidUri,
            E::MethodNotAllowed => Self::MethodNotAllowed,
            E::ResourceNameInvalid | E::ObjectKeyInvalid | E::QueryMalformed => {
                Self::InvalidArgument
            }
            E::CredentialsConflict
            | E::RequestMalformed
            | E::BodyMalformed
            | E::UnsupportedMediaType
            | E::EventsCursorVoid
            | E::OperationNotFound
            | E::RouteNotFound
            | E::UpstreamNotFound
            | E::UpstreamPathInvalid => Self::InvalidRequest,

            // Somebody is in the way for now: clients repeat it, ever more slowly.
            E::ResourceFrozen
            | E::ResourceDraining
            | E::ResourceBusy
            | E::IdempotencyInProgress
            | E::LockHeld
            | E::LockWaitElapsed
            | E::QueueFull
            | E::Overloaded
            | E::RateLimited => Self::SlowDown,
            // Something is away, or the outcome is not known: clients repeat it with the same id.
            E::LedgerUnavailable
            | E::AccessUnavailable
            | E::BlobsUnavailable
            | E::MintUnavailable
            | E::MintRegressed
            | E::RefenceRequired
            | E::OutcomeUnknown
            | E::UpstreamUnreachable
            | E::UpstreamFailed
            | E::UpstreamTimeout
            | E::ShuttingDown => Self::ServiceUnavailable,
            E::Internal | E::BlobMissing => Self::InternalError,
        }
    }
}

impl S3Error {
    /// A native error, with its native text.
    pub fn of(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(S3Code::of(code), detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Native code, S3's code, status.
    const TABLE: &[(&str, &str, u16)] = &[
        ("fence-token-missing", "FenceTokenMissing", 403),
        ("fence-token-malformed", "FenceTokenMalformed", 403),
        ("fence-token-void", "FenceTokenVoid", 403),
        ("fence-token-unknown", "FenceTokenUnknown", 403),
        ("fence-token-stale", "FenceTokenStale", 403),
        ("fence-token-released", "FenceTokenReleased", 403),
        ("fence-token-broken", "FenceTokenBroken", 403),
        ("fence-order-stale", "FenceTokenStale", 403),
        ("lock-id-mismatch", "LockIdMismatch", 403),
        ("lock-id-missing", "LockIdMissing", 403),
        ("resource-frozen", "SlowDown", 503),
        ("resource-draining", "SlowDown", 503),
        ("resource-protected", "AccessDenied", 403),
        ("too-many-objects", "AccessDenied", 403),
        ("sequence-out-of-order", "SequenceOutOfOrder", 403),
        ("version-mismatch", "PreconditionFailed", 412),
        ("idempotency-key-reused", "IdempotencyKeyReused", 400),
        ("idempotency-in-progress", "SlowDown", 503),
        ("lock-held", "SlowDown", 503),
        ("lock-wait-elapsed", "SlowDown", 503),
        ("queue-full", "SlowDown", 503),
        ("lock-superseded", "FenceTokenStale", 403),
        ("lock-released", "FenceTokenReleased", 403),
        ("lock-broken", "FenceTokenBroken", 403),
        ("lock-void", "FenceTokenVoid", 403),
        ("lock-breaking", "FenceTokenBroken", 403),
        ("lock-hold-exceeded", "FenceTokenReleased", 403),
        ("lock-id-conflict", "LockIdMismatch", 403),
        ("lock-not-found", "InvalidAccessKeyId", 403),
        ("resource-not-found", "NoSuchKey", 404),
        ("object-not-found", "NoSuchKey", 404),
        ("version-not-retained", "NoSuchVersion", 404),
        ("operation-not-found", "InvalidRequest", 400),
        ("upstream-not-found", "InvalidRequest", 400),
        ("upstream-path-invalid", "InvalidRequest", 400),
        ("bucket-not-found", "NoSuchBucket", 404),
        ("bucket-not-empty", "BucketNotEmpty", 409),
        ("bucket-depth-differs", "BucketAlreadyExists", 409),
        ("events-cursor-void", "InvalidRequest", 400),
        ("request-malformed", "InvalidRequest", 400),
        ("host-not-served", "HostNotServed", 421),
        ("origin-forbidden", "AccessDenied", 403),
        ("unauthenticated", "InvalidAccessKeyId", 403),
        ("credential-expired", "AccessDenied", 403),
        ("credentials-conflict", "InvalidRequest", 400),
        ("permission-denied", "AccessDenied", 403),
        ("quota-exhausted", "AccessDenied", 403),
        ("body-malformed", "InvalidRequest", 400),
        ("query-malformed", "InvalidArgument", 400),
        ("digest-mismatch", "BadDigest", 400),
        ("resource-name-invalid", "InvalidArgument", 400),
        ("object-key-invalid", "InvalidArgument", 400),
        ("route-not-found", "InvalidRequest", 400),
        ("method-not-allowed", "MethodNotAllowed", 405),
        ("request-timeout", "RequestTimeout", 400),
        ("payload-too-large", "EntityTooLarge", 400),
        ("uri-too-long", "InvalidURI", 400),
        ("rate-limited", "SlowDown", 503),
        ("unsupported-media-type", "InvalidRequest", 400),
        ("range-not-satisfiable", "InvalidRange", 416),
        ("headers-too-large", "RequestHeaderSectionTooLarge", 400),
        ("internal", "InternalError", 500),
        ("blob-missing", "InternalError", 500),
        ("overloaded", "SlowDown", 503),
        ("ledger-unavailable", "ServiceUnavailable", 503),
        ("access-unavailable", "ServiceUnavailable", 503),
        ("resource-busy", "SlowDown", 503),
        ("blobs-unavailable", "ServiceUnavailable", 503),
        ("upload-expired", "NoSuchUpload", 404),
        ("mint-unavailable", "ServiceUnavailable", 503),
        ("mint-regressed", "ServiceUnavailable", 503),
        ("refence-required", "ServiceUnavailable", 503),
        ("outcome-unknown", "ServiceUnavailable", 503),
        ("upstream-unreachable", "ServiceUnavailable", 503),
        ("upstream-failed", "ServiceUnavailable", 503),
        ("upstream-timeout", "ServiceUnavailable", 503),
        ("shutting-down", "ServiceUnavailable", 503),
    ];

    #[test]
    fn each_native_code_has_its_place_in_the_table() {
        let row = |code: &ErrorCode| {
            let told = S3Code::of(*code);
            (code.as_str(), told.as_str(), told.status().as_u16())
        };
        assert_eq!(ErrorCode::ALL.iter().map(row).collect::<Vec<_>>(), TABLE);
    }

    #[test]
    fn what_the_native_side_calls_lost_is_final_here_and_no_conflict() {
        for code in ErrorCode::ALL {
            let lost = code.as_str().starts_with("fence-") || code.as_str().starts_with("lock-id");
            if lost {
                assert_eq!(S3Code::of(*code).status(), 403, "{code}");
            }
            // What clients may repeat natively, they may repeat here; or S3 has a code of its own that they do not.
            let repeated = S3Code::of(*code).status().is_server_error();
            let own = [
                "digest-mismatch",
                "request-timeout",
                "upload-expired",
                "internal",
                "blob-missing",
            ];
            assert!(repeated == code.retryable() || own.contains(&code.as_str()), "{code}");
        }
    }

    #[test]
    fn the_native_text_is_told() {
        let error = S3Error::of(ErrorCode::FenceTokenStale, "token 5 was superseded by 7");
        assert_eq!(error.to_string(), "FenceTokenStale: token 5 was superseded by 7");
    }
}
