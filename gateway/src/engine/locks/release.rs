//! Releases, and how many ids that no lock has they may bury. No mint: with it down, holders release as ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{Clock, Ledger, LedgerError, Patience, ReleaseItem, ReleaseVerdict};
use fence_core::{LockEnd, LockId, PrincipalName, ResourceName};
use parking_lot::Mutex;

use super::Locks;
use super::freed::Freed;
use super::queue::Line;
use crate::engine::access::Permit;
use crate::engine::batch::{Act, Failure};
use crate::engine::metrics::record_hold;
use crate::engine::{Engine, EngineError};

/// Burials in one second.
const BURIALS_PER_SECOND: u32 = 200;

/// What a release came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lock has ended, now or before, or its id has left the line. With the resources that were given
    /// back, or waited for, by this call.
    Ended(Vec<ResourceName>),
    /// No lock has this id, and none ever will.
    Buried,
}

/// Releases, as the act of a batcher. Run twice, the second finds the lock ended.
pub(super) struct Release {
    pub(super) ledger: Arc<dyn Ledger>,
    /// Hears what is free now, if somebody waits for it.
    pub(super) line: Arc<Line>,
    /// Hears it if nobody does.
    pub(super) freed: Arc<Freed>,
}

#[async_trait]
impl Act for Release {
    type Item = ReleaseItem;
    type Verdict = ReleaseVerdict;
    type Lane = LockId;

    const NAME: &'static str = "release";

    fn principal(item: &ReleaseItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &ReleaseItem) -> LockId {
        item.lock
    }

    async fn run(
        &self,
        items: Arc<[ReleaseItem]>,
        patience: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError> {
        let verdicts = self.ledger.release(Arc::clone(&items), patience).await?;
        let freed = |verdict: &ReleaseVerdict| match verdict {
            ReleaseVerdict::Released { ended, waited_for: true, .. } => {
                ended.iter().map(|trace| trace.resource.clone()).collect()
            }
            ReleaseVerdict::Left(resources) => resources.clone(),
            _ => Vec::new(),
        };
        for (item, verdict) in items.iter().zip(&verdicts) {
            match verdict {
                ReleaseVerdict::Left(_) => self.line.poke(item.lock),
                ReleaseVerdict::Released { ended, waited_for: false, .. } => {
                    self.freed.note(ended.iter().map(|trace| &trace.resource));
                }
                _ => {}
            }
        }
        let freed: Vec<ResourceName> = verdicts.iter().flat_map(freed).collect();
        if !freed.is_empty() {
            self.line.wake(freed);
        }
        Ok(verdicts)
    }

    fn is_busy(verdict: &ReleaseVerdict) -> bool {
        matches!(verdict, ReleaseVerdict::Busy)
    }

    fn rules_moved(verdict: &ReleaseVerdict) -> bool {
        matches!(verdict, ReleaseVerdict::RulesMoved)
    }
}

impl Engine {
    /// Gives a lock back; its token is refused from now on.
    ///
    /// # Errors
    /// `TooManyBurials` if no lock has this id, and too many such ids were released lately.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn release(&self, id: LockId, permit: Permit) -> Result<Released, EngineError> {
        let released = self.inner.locks.release(id, &permit).await?;
        self.inner.locks.watches.poke(&id);
        if let Released::Ended(resources) = &released {
            self.inner.locks.sights.poke_on(resources);
        }
        Ok(released)
    }
}

impl Locks {
    /// Gives a lock back. Doing it again succeeds as well. An id that was never heard of is buried, as
    /// far as there is room for that: rows that anybody can make must not come without end.
    async fn release(&self, id: LockId, permit: &Permit) -> Result<Released, EngineError> {
        let room = self.burials.take();
        let verdict = loop {
            let item = ReleaseItem { may_bury: room, by: permit.by(), ..id.into() };
            match self.releases.submit(item).await {
                Ok(ReleaseVerdict::RulesMoved) => permit.renew().await?,
                verdict => break verdict,
            }
        };
        if room && !matches!(verdict, Ok(ReleaseVerdict::Buried) | Err(Failure::Unknown)) {
            self.burials.put_back();
        }
        match verdict {
            Ok(ReleaseVerdict::Released { held_ms, ended, .. }) => {
                record_hold(held_ms, LockEnd::Released);
                let resources = ended.iter().map(|trace| trace.resource.clone()).collect();
                self.traces.add(ended);
                Ok(Released::Ended(resources))
            }
            Ok(ReleaseVerdict::Left(resources)) => Ok(Released::Ended(resources)),
            Ok(ReleaseVerdict::AlreadyEnded | ReleaseVerdict::Kept) => {
                Ok(Released::Ended(Vec::new()))
            }
            Ok(ReleaseVerdict::Buried) => Ok(Released::Buried),
            Ok(ReleaseVerdict::Unknown) => Err(EngineError::TooManyBurials),
            Ok(ReleaseVerdict::NotFound) => Err(EngineError::LockNotFound),
            Ok(ReleaseVerdict::RulesMoved) => Err(EngineError::AccessUnavailable),
            Ok(ReleaseVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        }
    }
}

/// How many ids that no lock has may still be buried: a bucket that is filled again as time goes by.
pub(super) struct Burials {
    clock: Arc<dyn Clock>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    left: f64,
    at: Duration,
}

impl Burials {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let bucket = Bucket { left: f64::from(BURIALS_PER_SECOND), at: clock.elapsed() };
        Self { clock, bucket: Mutex::new(bucket) }
    }

    /// Takes room for one, if there is any.
    fn take(&self) -> bool {
        let now = self.clock.elapsed();
        let mut bucket = self.bucket.lock();
        let gone = now.saturating_sub(bucket.at).as_secs_f64();
        let most = f64::from(BURIALS_PER_SECOND);
        bucket.left = (bucket.left + gone * most).min(most);
        bucket.at = now;
        let room = bucket.left >= 1.0;
        if room {
            bucket.left -= 1.0;
        }
        room
    }

    /// Nothing was buried after all.
    fn put_back(&self) {
        let mut bucket = self.bucket.lock();
        bucket.left = (bucket.left + 1.0).min(f64::from(BURIALS_PER_SECOND));
    }
}
