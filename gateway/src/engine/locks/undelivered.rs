//! Grants whose answers did not reach their callers: a lock that nobody was told of is not to stay held.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{By, Grant, ReleaseItem, ReleaseVerdict, Runtime};
use fence_core::{LockEnd, LockId, PrincipalName};
use tokio_util::sync::CancellationToken;

use super::release::Release;
use super::traces::Traces;
use crate::engine::batch::{Batcher, Failure};
use crate::engine::metrics::{self, record_hold};

/// How long a lock whose id the caller chose waits for the same call.
const KEPT_FOR_ITS_CALLER: Duration = Duration::from_secs(10);
/// How often a release is tried while the ledger does not answer; then the lock has to expire.
const TRIES_MAX: u32 = 12;
/// The first and the longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Gives locks back that their callers never heard of; cheap to clone.
#[derive(Clone)]
pub(super) struct GiveBack {
    pub(super) releases: Arc<Batcher<Release>>,
    pub(super) traces: Traces,
    pub(super) runtime: Runtime,
    pub(super) closing: CancellationToken,
}

impl GiveBack {
    /// The answer to this fresh grant could not be written out.
    ///
    /// An id that the gateway made is known to nobody: the lock is released at once. For an id that
    /// the caller `proposed` it waits for the same call, and is released then unless it was renewed or
    /// re-entered meanwhile, through whichever gateway: the ledger decides that in the act. A gateway
    /// that stops before the time is up leaves the lock to its ttl, because its caller may be on its way
    /// to another gateway.
    pub(super) fn undelivered(&self, grant: &Grant, proposed: bool) {
        let item = ReleaseItem {
            lock: grant.lock,
            unless_renewed_since: proposed.then_some(grant.acquired_at),
            may_bury: true,
            by: By::gateway_for(grant.principal.clone()),
        };
        let this = self.clone();
        let task = async move {
            let pause = this.runtime.clock.sleep(KEPT_FOR_ITS_CALLER);
            if proposed && this.closing.run_until_cancelled(pause).await.is_none() {
                return;
            }
            this.release(item).await;
        };
        self.runtime.spawn.spawn("release-undelivered", Box::pin(task));
    }

    /// Nobody waits for this lock any more, whose id nobody was told.
    pub(super) fn given_up(&self, lock: LockId, principal: Option<PrincipalName>) {
        let this = self.clone();
        let item = ReleaseItem { by: By::gateway_for(principal), ..lock.into() };
        let task = async move { this.release(item).await };
        self.runtime.spawn.spawn("release-undelivered", Box::pin(task));
    }

    async fn release(&self, item: ReleaseItem) {
        let mut pause = PAUSE_MIN;
        for _ in 0..TRIES_MAX {
            match self.releases.submit(item.clone()).await {
                Ok(verdict) => return self.released(verdict),
                // The queue goes on with it until the ledger has decided.
                Err(Failure::Unknown) => return,
                Err(Failure::Closed) => break,
                Err(Failure::Full | Failure::Busy | Failure::NotApplied(_)) => {}
            }
            if self.closing.run_until_cancelled(self.runtime.clock.sleep(pause)).await.is_none() {
                break;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tracing::warn!("an undelivered lock could not be released; it will expire");
        count("expires");
    }

    fn released(&self, verdict: ReleaseVerdict) {
        match verdict {
            ReleaseVerdict::Released { held_ms, ended, .. } => {
                record_hold(held_ms, LockEnd::Released);
                self.traces.add(ended);
                count("released");
            }
            ReleaseVerdict::Kept => count("taken_up"),
            ReleaseVerdict::AlreadyEnded
            | ReleaseVerdict::Left(_)
            | ReleaseVerdict::Buried
            | ReleaseVerdict::Unknown
            | ReleaseVerdict::NotFound
            | ReleaseVerdict::RulesMoved
            | ReleaseVerdict::Busy => count("ended"),
        }
    }
}

fn count(outcome: &'static str) {
    ::metrics::counter!(metrics::UNDELIVERED, "outcome" => outcome).increment(1);
}
