//! What a grant comes to for whoever asked for it.

use fence_core::LockEnd;
use fence_core::ports::{Grant, SealVerdict};

use super::batcher::Batcher;
use super::error::EngineError;
use super::granting::{GrantVerdict, Granting, Pending};
use super::metrics::record_hold;

/// A lock that was acquired.
#[derive(Debug, Clone)]
pub struct Acquired {
    /// The lock.
    pub grant: Grant,
    /// Whether it had been granted before under the same id.
    pub again: bool,
}

/// Queues a grant and takes delivery of the verdict.
pub(super) async fn seal(
    queue: &Batcher<Granting>,
    pending: Pending,
) -> Result<SealVerdict, EngineError> {
    match queue.submit(pending).await {
        Ok(GrantVerdict::Sealed(sealed)) => sealed.take().ok_or(EngineError::Busy),
        Ok(GrantVerdict::NoNumber(error)) => Err(error),
        Err(failure) => Err(EngineError::unsent(failure, "locks")),
    }
}

/// What a seal's verdict means to the one who asked for the lock; counts what it took over.
pub(super) fn acquired(verdict: SealVerdict) -> Result<Acquired, EngineError> {
    match verdict {
        SealVerdict::Sealed(grant, taken_over) => {
            for taken in taken_over {
                record_hold(taken.held_ms, LockEnd::Superseded);
            }
            Ok(Acquired { grant, again: false })
        }
        SealVerdict::Again(grant) => Ok(Acquired { grant, again: true }),
        SealVerdict::Held(holder) => Err(EngineError::Held(holder)),
        SealVerdict::Queued => Err(EngineError::Queued),
        SealVerdict::Drains { resource, .. } | SealVerdict::Draining(resource) => {
            Err(EngineError::Draining(Some(resource)))
        }
        SealVerdict::Frozen(resource) => Err(EngineError::Frozen(resource)),
        SealVerdict::Ended(how) => Err(EngineError::LockEnded(how)),
        SealVerdict::OrderStale(resource) => Err(EngineError::OrderStale(resource)),
        SealVerdict::HoldExceeded => Err(EngineError::HoldExceeded),
        SealVerdict::Conflict => Err(EngineError::LockConflict),
        SealVerdict::Breaking => Err(EngineError::LockBreaking),
        SealVerdict::NotFound => Err(EngineError::LockNotFound),
        SealVerdict::NumberTooLow => Err(EngineError::LedgerUnavailable(
            "other grants were faster; nothing was granted".into(),
        )),
        SealVerdict::Busy => Err(EngineError::Busy),
    }
}
