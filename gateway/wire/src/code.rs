//! The closed list of error codes. One code has one status.

use std::fmt;

/// Hands all codes to a macro, each as its description, variant, text, HTTP status, whether the same request may succeed
/// later, what a caller does about it (a class of rule CC58 of the clients), which calls may answer it (a group of
/// `gateway/src/http/spec.rs`; `Named`: those that name it), and a title.
#[macro_export]
macro_rules! each_code {
    ($macro:ident) => {
        $macro! {
            /// No `X-Fence-Token` header.
            FenceTokenMissing, "fence-token-missing", 428, false, Misuse, Write, "A write needs a fence token";
            /// Not exactly one well-formed token.
            FenceTokenMalformed, "fence-token-malformed", 400, false, Misuse, Write, "The fence token is malformed";
            /// Issued before the ledger was re-fenced.
            FenceTokenVoid, "fence-token-void", 412, false, LockLost, Write, "The fence token was voided by a re-fence";
            /// Never sealed on this resource.
            FenceTokenUnknown, "fence-token-unknown", 403, false, Misuse, Write, "The fence token was never granted for this resource";
            /// A newer token was sealed.
            FenceTokenStale, "fence-token-stale", 412, false, LockLost, Write, "The fence token has been superseded";
            /// Its lock was given back.
            FenceTokenReleased, "fence-token-released", 412, false, LockLost, Write, "The lock of this fence token was released";
            /// Its lock was broken by an operator.
            FenceTokenBroken, "fence-token-broken", 412, false, LockLost, Write, "The lock of this fence token was broken";
            /// The order of a fence without a lock does not rise.
            FenceOrderStale, "fence-order-stale", 412, false, LockLost, Named, "The order of the fence does not rise";
            /// `X-Lock-Id` names another lock.
            LockIdMismatch, "lock-id-mismatch", 403, false, Misuse, Write, "The lock id does not belong to this fence token";
            /// No `X-Lock-Id`, where that is required.
            LockIdMissing, "lock-id-missing", 428, false, Misuse, Write, "A write needs the id of its lock";
            /// An operator has stopped all writers.
            ResourceFrozen, "resource-frozen", 423, true, Busy, Write, "The resource is frozen";
            /// What older tokens may still do to an upstream is under way.
            ResourceDraining, "resource-draining", 409, true, Busy, Write, "Effects of older tokens are still under way";
            /// An operator forbids deleting the resource.
            ResourceProtected, "resource-protected", 409, false, Misuse, Write, "The resource is protected from deletion";
            /// The resource has more objects than one act removes.
            TooManyObjects, "too-many-objects", 409, false, Misuse, Write, "The resource has too many objects to be deleted at once";
            /// `X-Fence-Seq` does not rise.
            SequenceOutOfOrder, "sequence-out-of-order", 409, false, Changed, Write, "The sequence number does not rise";
            /// A precondition on the object or the resource failed.
            VersionMismatch, "version-mismatch", 412, false, Changed, Write, "The version is not the expected one";
            /// The key stands for another payload.
            IdempotencyKeyReused, "idempotency-key-reused", 422, false, Misuse, Write, "The idempotency key was used for another payload";
            /// The first request with this key is still under way.
            IdempotencyInProgress, "idempotency-in-progress", 409, true, Busy, Write, "A request with this idempotency key is in progress";

            /// Another lock holds the resource.
            LockHeld, "lock-held", 409, true, Busy, Named, "The resource is locked";
            /// The wait was over before it was this waiter's turn.
            LockWaitElapsed, "lock-wait-elapsed", 409, true, Busy, Named, "The wait for the lock is over";
            /// Too many wait for the lock.
            QueueFull, "queue-full", 429, true, Busy, Named, "The line for this lock is full";
            /// The lock ended when a newer token was sealed.
            LockSuperseded, "lock-superseded", 409, false, LockLost, Ended, "The lock has been superseded";
            /// The lock ended when it was released.
            LockReleased, "lock-released", 409, false, LockLost, Ended, "The lock has been released";
            /// The lock ended when an operator broke it.
            LockBroken, "lock-broken", 409, false, LockLost, Ended, "The lock has been broken";
            /// The lock ended when the ledger was re-fenced.
            LockVoid, "lock-void", 409, false, LockLost, Ended, "The lock was voided by a re-fence";
            /// An operator is about to break the lock.
            LockBreaking, "lock-breaking", 409, false, LockLost, Ended, "The lock is being broken";
            /// The lock has been held for as long as it may be.
            LockHoldExceeded, "lock-hold-exceeded", 409, false, LockLost, Ended, "The lock has been held for as long as it may be";
            /// The id belongs to a lock on other resources or of another owner.
            LockIdConflict, "lock-id-conflict", 409, false, Misuse, Named, "The lock id belongs to another lock";
            /// No lock has this id.
            LockNotFound, "lock-not-found", 404, false, NotFound, Named, "There is no such lock";

            /// The resource was never locked.
            ResourceNotFound, "resource-not-found", 404, false, NotFound, Named, "There is no such resource";
            /// There is no such object.
            ObjectNotFound, "object-not-found", 404, false, NotFound, Named, "There is no such object";
            /// This version did not write the object, or is kept no longer.
            VersionNotRetained, "version-not-retained", 404, false, NotFound, Named, "There is no such version of the object";
            /// The ledger holds no trace of this operation.
            OperationNotFound, "operation-not-found", 404, false, NotFound, Named, "There is no record of this operation";

            /// No upstream has this name.
            UpstreamNotFound, "upstream-not-found", 404, false, NotFound, Upstream, "There is no such upstream";
            /// The path is ambiguous, or names no resource of the upstream.
            UpstreamPathInvalid, "upstream-path-invalid", 400, false, Misuse, Upstream, "The path is not allowed for this upstream";

            /// No bucket of S3 has this name.
            BucketNotFound, "bucket-not-found", 404, false, NotFound, Named, "There is no such bucket";
            /// The bucket has objects.
            BucketNotEmpty, "bucket-not-empty", 409, false, Misuse, Named, "The bucket is not empty";
            /// The bucket has another depth, for ever.
            BucketDepthDiffers, "bucket-depth-differs", 409, false, Misuse, Named, "The bucket has another depth";

            /// The ledger was re-fenced since the cursor was given out.
            EventsCursorVoid, "events-cursor-void", 410, false, CursorVoid, Named, "The place in the feed of events is void";

            /// The request breaks a rule of HTTP or of this API.
            RequestMalformed, "request-malformed", 400, false, Misuse, Everywhere, "The request is malformed";
            /// `Host` names something else than this gateway.
            HostNotServed, "host-not-served", 421, false, Misuse, Everywhere, "The gateway is not reached under this name";
            /// A page of another origin sent it.
            OriginForbidden, "origin-forbidden", 403, false, Misuse, Everywhere, "Pages of this origin may not call the gateway";
            /// No credential, or none that is good.
            Unauthenticated, "unauthenticated", 401, false, Denied, Everywhere, "The caller is not known";
            /// The credential was good, and has expired.
            CredentialExpired, "credential-expired", 401, false, Denied, Everywhere, "The credential has expired";
            /// More than one credential, or one where none belongs.
            CredentialsConflict, "credentials-conflict", 400, false, Misuse, Everywhere, "The request has more than one credential";
            /// The rules of access do not allow it.
            PermissionDenied, "permission-denied", 403, false, Denied, Everywhere, "The rules of access do not allow this";
            /// The principal has as much in the ledger as it may.
            QuotaExhausted, "quota-exhausted", 403, false, Denied, Named, "The caller has as much as it may have";
            /// The body is not the JSON that the call takes.
            BodyMalformed, "body-malformed", 400, false, Misuse, Json, "The body is not what this call takes";
            /// A query parameter is unknown or has a bad value.
            QueryMalformed, "query-malformed", 400, false, Misuse, Everywhere, "The query is not what this call takes";
            /// The body is not what its digest says.
            DigestMismatch, "digest-mismatch", 400, true, Unavailable, Json, "The body does not match its digest";
            /// The resource name breaks the grammar.
            ResourceNameInvalid, "resource-name-invalid", 400, false, Misuse, Name, "The resource name is not allowed";
            /// The object key breaks the grammar.
            ObjectKeyInvalid, "object-key-invalid", 400, false, Misuse, Name, "The object key is not allowed";
            /// No route has this path.
            RouteNotFound, "route-not-found", 404, false, Misuse, Named, "There is nothing at this path";
            /// The path exists, but not for this method.
            MethodNotAllowed, "method-not-allowed", 405, false, Misuse, Named, "The method is not allowed here";
            /// The request did not arrive in time.
            RequestTimeout, "request-timeout", 408, true, Unavailable, Everywhere, "The request did not arrive in time";
            /// The body is larger than allowed.
            PayloadTooLarge, "payload-too-large", 413, false, Misuse, Json, "The body is too large";
            /// The path and query are longer than allowed.
            UriTooLong, "uri-too-long", 414, false, Misuse, Everywhere, "The path and query are too long";
            /// The caller has its share of something already.
            RateLimited, "rate-limited", 429, true, Unavailable, Everywhere, "The caller has used up its share";
            /// The body is not of a content type that the call takes.
            UnsupportedMediaType, "unsupported-media-type", 415, false, Misuse, Json, "The content type is not supported here";
            /// The range lies outside the object.
            RangeNotSatisfiable, "range-not-satisfiable", 416, false, Misuse, Named, "The range lies outside the object";
            /// The headers are larger or more than allowed.
            HeadersTooLarge, "headers-too-large", 431, false, Misuse, Everywhere, "The headers are too large";

            /// A defect of the gateway.
            Internal, "internal", 500, false, GatewayFault, Everywhere, "The gateway failed";
            /// The ledger points at a blob that the store does not have.
            BlobMissing, "blob-missing", 500, false, GatewayFault, Named, "The bytes of the object are missing";
            /// A queue is full.
            Overloaded, "overloaded", 503, true, Unavailable, Ledger, "The gateway is overloaded";
            /// The ledger cannot be reached; nothing was applied.
            LedgerUnavailable, "ledger-unavailable", 503, true, Unavailable, Ledger, "The ledger cannot be reached";
            /// The rules of access are not known, so nothing is allowed.
            AccessUnavailable, "access-unavailable", 503, true, Unavailable, Everywhere, "The rules of access cannot be loaded";
            /// A row of the ledger stayed locked by another transaction; nothing was applied.
            ResourceBusy, "resource-busy", 503, true, Unavailable, Ledger, "Another transaction uses the resource";
            /// The blob store cannot be reached; nothing was applied.
            BlobsUnavailable, "blobs-unavailable", 503, true, Unavailable, Named, "The blob store cannot be reached";
            /// The upload took so long that it was given up.
            UploadExpired, "upload-expired", 503, true, Unavailable, Named, "The upload took too long";
            /// The mint cannot be reached; nothing was granted.
            MintUnavailable, "mint-unavailable", 503, true, Unavailable, Named, "No new tokens can be minted";
            /// The mint is not the one that the ledger knows, or its numbers do not rise.
            MintRegressed, "mint-regressed", 503, true, Unavailable, Named, "The mint has lost its place";
            /// The ledger may have lost acknowledged commits.
            RefenceRequired, "refence-required", 503, true, Unavailable, Ledger, "The ledger must be re-fenced";
            /// It may have taken effect or not.
            OutcomeUnknown, "outcome-unknown", 503, true, OutcomeUnknown, Ledger, "The outcome is unknown";
            /// No connection to the upstream; nothing was forwarded.
            UpstreamUnreachable, "upstream-unreachable", 502, true, Unavailable, Upstream, "The upstream cannot be reached";
            /// The upstream gave no whole answer; it may have acted or not.
            UpstreamFailed, "upstream-failed", 502, true, OutcomeUnknown, Upstream, "The upstream gave no whole answer";
            /// The upstream's answer did not come in time; it may have acted or not.
            UpstreamTimeout, "upstream-timeout", 504, true, OutcomeUnknown, Upstream, "The upstream did not answer in time";
            /// The gateway is shutting down.
            ShuttingDown, "shutting-down", 503, true, Unavailable, Ledger, "The gateway is shutting down";
        }
    };
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident, $code:literal, $status:literal, $retryable:literal, $class:ident, $calls:ident, $title:literal;)+) => {
        /// An error code, as it stands in the `code` member of a problem document.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code from its text; `None` for one that a newer gateway has.
            pub fn parse(code: &str) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Its HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// Whether the same request may succeed when it is sent again later.
            pub fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)+ }
            }

            /// One line for people, the same for every occurrence.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

each_code!(codes);

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_and_are_errors() {
        let distinct: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(distinct.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!((400..600).contains(&code.status()), "{code}");
        }
    }
}
