//! Why the engine did not do what was asked. The HTTP side turns each reason into one error code.

use fence_core::ports::{BlobError, EventCursor, Holder, LedgerError, MintError, Unwritable};
use fence_core::{ErrorCode, LockEnd, OperationId, PrincipalName, Refusal, ResourceName};
use fencegate_access::Action;

use super::batch::Failure;

/// Why a call failed. Unless it says otherwise, nothing was applied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The rule refused a write.
    #[error("{}", .0.code().title())]
    Refused(Refusal),
    /// The idempotency key stands for another payload.
    #[error("the key was used by operation {first} for another payload")]
    KeyReused {
        /// The operation that used it first.
        first: OperationId,
    },
    /// The first request with this idempotency key did not end before the deadline.
    #[error("the first request with this key is still being decided")]
    KeyInProgress,
    /// Another lock holds the resource.
    #[error("{} is locked", .0.resource)]
    Held(Holder),
    /// Nobody holds the resources, but others are in line for them.
    #[error("others are in line for it; send `wait` to join them")]
    Queued,
    /// The wait for a lock was over before it was this waiter's turn.
    #[error("{}", elapsed(*.position))]
    WaitElapsed {
        /// How many were ahead, and itself; `None` if that is not known.
        position: Option<i64>,
    },
    /// Too many wait for one of the resources.
    #[error("too many are in line for this lock")]
    QueueFull,
    /// The lock has ended.
    #[error("the lock has ended: {}", .0.as_str())]
    LockEnded(LockEnd),
    /// The lock is being broken.
    #[error("an operator is breaking this lock; it is not extended")]
    LockBreaking,
    /// The lock has been held for as long as it may be.
    #[error("the lock has been held for as long as its max_hold allows; it is not extended")]
    HoldExceeded,
    /// The order of a fence without a lock is not above the last one.
    #[error("a fence with this order, or a higher one, was set on {0} before")]
    OrderStale(ResourceName),
    /// The id belongs to a lock on other resources or of another owner.
    #[error("this id was used for other resources, by another owner, or for another kind of call")]
    LockConflict,
    /// No lock has this id.
    #[error("no lock has this id, or it ended more than `ended_locks_kept` ago")]
    LockNotFound,
    /// The id has no lock yet: it waits for one.
    #[error("no lock has this id yet; it waits in line")]
    LockWaiting {
        /// How many are ahead, and itself.
        position: Option<i64>,
    },
    /// The resource was never locked.
    #[error("this resource was never locked")]
    ResourceNotFound,
    /// The resource has no such object.
    #[error("the resource has no object with this key")]
    ObjectNotFound,
    /// This version did not write the object, or is kept no longer.
    #[error("this version did not write the object, or is kept no longer")]
    VersionNotRetained,
    /// The upload took so long that it was given up.
    #[error("the upload took too long and was given up; nothing was applied")]
    UploadExpired,
    /// An upload in parts has not all the parts that it is to consist of. Nothing was applied.
    #[error("the upload has not all of these parts, or not any more")]
    PartsDiffer,
    /// The blob store cannot be reached, or is not this ledger's.
    #[error("{0}")]
    BlobsUnavailable(String),
    /// The ledger points at a blob that the store does not have.
    #[error("the bytes of this object are missing from the blob store")]
    BlobMissing,
    /// This one of several resources was never locked.
    #[error("{0} was never locked; nothing was granted")]
    NeverLocked(ResourceName),
    /// The ledger was re-fenced since the place in the feed was given out, or events behind it were let go.
    #[error("this place in the feed is void; begin again behind {begin}, where events may differ")]
    EventsVoid {
        /// Up to here nothing has changed, or nothing is kept.
        begin: EventCursor,
    },
    /// Effects of older tokens are under way, or may be, at an upstream.
    #[error("effects of older tokens are still under way at an upstream; nothing was granted yet")]
    Draining(Option<ResourceName>),
    /// No intent of this id is open.
    #[error("no intent of this operation is open")]
    OperationNotFound,
    /// No upstream of this name was ever drained.
    #[error("no upstream named {0:?} was ever drained")]
    UpstreamNotFound(String),
    /// There is no such bucket.
    #[error("there is no bucket of this name")]
    BucketNotFound,
    /// A bucket has objects.
    #[error("the bucket has objects: delete them before it")]
    BucketNotEmpty,
    /// There are as many buckets as there may be.
    #[error("a ledger has at most {} buckets", fence_core::wire::BUCKETS_MAX)]
    TooManyBuckets,
    /// A bucket has another depth, or had when it was deleted.
    #[error(
        "the depth of this bucket is {depth}, for ever: with another, its objects would be under other locks"
    )]
    BucketDepthDiffers {
        /// The one that it has.
        depth: u8,
    },
    /// An operator has frozen the resource.
    #[error("{0} is frozen: no lock is granted")]
    Frozen(ResourceName),
    /// A queue is full, or so slow that there would be no answer in time. Nothing was sent.
    #[error("the queue for {0} is full, or too slow for an answer in time; nothing was done")]
    Overloaded(&'static str),
    /// Too many ids were released lately that no lock has.
    #[error("no lock has this id, and too many such ids were released lately; nothing was done")]
    TooManyBurials,
    /// The gateway is shutting down.
    #[error("the gateway is shutting down; another one, or this one in a moment, can do it")]
    ShuttingDown,
    /// No credential, or none that is good.
    #[error("no credential, or none that this gateway takes")]
    Unauthenticated,
    /// The credential was good, and has expired.
    #[error("the credential has expired")]
    CredentialExpired,
    /// The rules of access do not allow it.
    #[error("{principal} may not {action} {on}{}", allowed(.scopes))]
    PermissionDenied {
        /// Who asks.
        principal: PrincipalName,
        /// For what.
        action: Action,
        /// To what, as the caller has sent it.
        on: String,
        /// Of a list: where the caller may do that.
        scopes: Vec<String>,
    },
    /// The principal has as much in the ledger as its roles allow.
    #[error("{principal} has {has} of at most {most}: `{quota}`")]
    QuotaExhausted {
        /// Who asks.
        principal: PrincipalName,
        /// The quota.
        quota: &'static str,
        /// How much it is.
        most: u64,
        /// How much of that it had when it was counted last.
        has: i64,
    },
    /// The rules of access are not known.
    #[error("the rules of access cannot be loaded: nothing is allowed meanwhile")]
    AccessUnavailable,
    /// What was to be put in force is no text of rules, or wrong.
    #[error("these rules cannot be put in force: {0}")]
    RulesInvalid(String),
    /// Others were put in force in between.
    #[error("rules of generation {0} are in force by now: nothing changed")]
    RulesOvertaken(i64),
    /// The ledger cannot be reached.
    #[error("{0}")]
    LedgerUnavailable(String),
    /// The ledger answers, and takes no writes.
    #[error("the ledger does not take that: {0}; nothing was applied")]
    LedgerUnwritable(Unwritable),
    /// A row stayed locked by somebody else's transaction.
    #[error("another transaction on the ledger uses the resource; nothing was applied")]
    Busy,
    /// Whether it was admitted nobody knows; it was not forwarded, and will not be.
    #[error("the ledger's answer was lost; nothing was forwarded")]
    NotForwarded,
    /// The mint cannot be reached.
    #[error("{0}")]
    MintUnavailable(String),
    /// The mint answers, and takes nothing new.
    #[error("the mint takes nothing new: {0}; no lock was granted, and existing locks stay usable")]
    MintUnwritable(Unwritable),
    /// The mint is not the one that the ledger knows, or its numbers do not rise.
    #[error("{0}")]
    MintRegressed(String),
    /// The ledger may have lost acknowledged commits.
    #[error("{0}")]
    RefenceRequired(String),
    /// It may have taken effect or not.
    #[error("the answer was lost; it may have taken effect or not")]
    OutcomeUnknown {
        /// The operation to ask about, if it was a write.
        operation: Option<OperationId>,
    },
    /// A defect of the gateway.
    #[error("{0}")]
    Defect(String),
}

fn elapsed(position: Option<i64>) -> String {
    match position {
        Some(position) => format!("the wait is over; the place in line was {position}"),
        None => "the wait is over".into(),
    }
}

impl EngineError {
    /// Why the queue for `what` gave no verdict.
    pub(super) fn unsent(failure: Failure, what: &'static str) -> Self {
        match failure {
            Failure::Full => Self::Overloaded(what),
            Failure::Closed => Self::ShuttingDown,
            Failure::NotApplied(error) => error.into(),
            Failure::Busy => Self::Busy,
            Failure::Unknown => Self::OutcomeUnknown { operation: None },
        }
    }

    /// Why the queue for `what` gave no verdict on something that has no effect to be unsure about.
    pub(super) fn unread(failure: Failure, what: &'static str) -> Self {
        match failure {
            Failure::Busy | Failure::Unknown => Self::LedgerUnavailable("no answer in time".into()),
            failure => Self::unsent(failure, what),
        }
    }

    /// Buried by a rerun whose caller had gone.
    pub(super) fn given_up() -> Self {
        Self::LedgerUnavailable(
            "the write was given up after its answer was lost; it took no effect".into(),
        )
    }

    /// Tells errors of the mint: all but grants goes on.
    pub(super) fn is_of_mint(&self) -> bool {
        matches!(self, Self::MintUnavailable(_) | Self::MintUnwritable(_) | Self::MintRegressed(_))
    }

    /// The error code users see.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::KeyReused { .. } => ErrorCode::IdempotencyKeyReused,
            Self::KeyInProgress => ErrorCode::IdempotencyInProgress,
            Self::Held(_) | Self::Queued => ErrorCode::LockHeld,
            Self::WaitElapsed { .. } => ErrorCode::LockWaitElapsed,
            Self::QueueFull => ErrorCode::QueueFull,
            Self::LockEnded(LockEnd::Superseded) => ErrorCode::LockSuperseded,
            Self::LockEnded(LockEnd::Released) => ErrorCode::LockReleased,
            Self::LockEnded(LockEnd::Broken) => ErrorCode::LockBroken,
            Self::LockEnded(LockEnd::Void) => ErrorCode::LockVoid,
            Self::LockBreaking => ErrorCode::LockBreaking,
            Self::HoldExceeded => ErrorCode::LockHoldExceeded,
            Self::OrderStale(_) => ErrorCode::FenceOrderStale,
            Self::LockConflict => ErrorCode::LockIdConflict,
            Self::LockNotFound | Self::LockWaiting { .. } => ErrorCode::LockNotFound,
            Self::ResourceNotFound | Self::NeverLocked(_) => ErrorCode::ResourceNotFound,
            Self::ObjectNotFound => ErrorCode::ObjectNotFound,
            Self::VersionNotRetained => ErrorCode::VersionNotRetained,
            Self::UploadExpired | Self::PartsDiffer => ErrorCode::UploadExpired,
            Self::BlobsUnavailable(_) => ErrorCode::BlobsUnavailable,
            Self::BlobMissing => ErrorCode::BlobMissing,
            Self::EventsVoid { .. } => ErrorCode::EventsCursorVoid,
            Self::Draining(_) => ErrorCode::ResourceDraining,
            Self::OperationNotFound => ErrorCode::OperationNotFound,
            Self::UpstreamNotFound(_) => ErrorCode::UpstreamNotFound,
            Self::BucketNotFound => ErrorCode::BucketNotFound,
            Self::BucketNotEmpty => ErrorCode::BucketNotEmpty,
            Self::BucketDepthDiffers { .. } => ErrorCode::BucketDepthDiffers,
            Self::Frozen(_) => ErrorCode::ResourceFrozen,
            Self::Overloaded(_) | Self::TooManyBurials => ErrorCode::Overloaded,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
            Self::Unauthenticated => ErrorCode::Unauthenticated,
            Self::CredentialExpired => ErrorCode::CredentialExpired,
            Self::PermissionDenied { .. } => ErrorCode::PermissionDenied,
            Self::QuotaExhausted { .. } | Self::TooManyBuckets => ErrorCode::QuotaExhausted,
            Self::AccessUnavailable => ErrorCode::AccessUnavailable,
            Self::RulesInvalid(_) => ErrorCode::BodyMalformed,
            Self::RulesOvertaken(_) => ErrorCode::VersionMismatch,
            Self::LedgerUnavailable(_) | Self::LedgerUnwritable(_) | Self::NotForwarded => {
                ErrorCode::LedgerUnavailable
            }
            Self::Busy => ErrorCode::ResourceBusy,
            Self::MintUnavailable(_) | Self::MintUnwritable(_) => ErrorCode::MintUnavailable,
            Self::MintRegressed(_) => ErrorCode::MintRegressed,
            Self::RefenceRequired(_) => ErrorCode::RefenceRequired,
            Self::OutcomeUnknown { .. } => ErrorCode::OutcomeUnknown,
            Self::Defect(_) => ErrorCode::Internal,
        }
    }
}

impl From<LedgerError> for EngineError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Unavailable(why) | LedgerError::Slow(why) => Self::LedgerUnavailable(why),
            LedgerError::Unwritable(why) => Self::LedgerUnwritable(why),
            LedgerError::Unknown(_) | LedgerError::Unreadable(_) => {
                Self::OutcomeUnknown { operation: None }
            }
            LedgerError::RefenceRequired(why) => Self::RefenceRequired(why),
            LedgerError::EpochMoved => {
                Self::MintUnavailable("the epoch of the mint is changing".into())
            }
            LedgerError::RulesMoved => Self::AccessUnavailable,
            LedgerError::Defect(why) => Self::Defect(why),
        }
    }
}

impl From<BlobError> for EngineError {
    fn from(error: BlobError) -> Self {
        Self::BlobsUnavailable(error.0)
    }
}

impl From<MintError> for EngineError {
    fn from(error: MintError) -> Self {
        match error {
            MintError::Unavailable(why) => Self::MintUnavailable(why),
            MintError::Unwritable(why) => Self::MintUnwritable(why),
            MintError::OtherIncarnation { .. } | MintError::OtherLedger { .. } => {
                Self::MintRegressed(error.to_string())
            }
        }
    }
}

/// Where a caller may list, if it may anywhere.
fn allowed(scopes: &[String]) -> String {
    match scopes {
        [] => String::new(),
        some => format!("; it may within {}", some.join(", ")),
    }
}
