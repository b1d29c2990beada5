//! Renew, release and break. No mint: with it down, holders renew and release as ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    BreakItem, BreakVerdict, Grant, Ledger, LedgerError, Patience, ReleaseItem, ReleaseVerdict,
    RenewItem, RenewVerdict,
};
use fence_core::{LockEnd, LockId, ResourceName, Ttl};

use super::batcher::{Act, Batcher, Failure};
use super::burials::Burials;
use super::error::EngineError;
use super::freed::Freed;
use super::line::Line;
use super::metrics::{self, record_hold};
use super::traces::Traces;

/// A lock that was renewed.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// The lock.
    pub grant: Grant,
    /// For how long it had been expired, if it had.
    pub lapsed_ms: Option<i64>,
}

/// What a release came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lock has ended, now or before, or its id has left the line. With the resources that were given
    /// back, or waited for, by this call.
    Ended(Vec<ResourceName>),
    /// No lock has this id, and none ever will.
    Buried,
}

/// Renewals, as the act of a batcher. Run twice, it renews twice: no harm.
pub(super) struct Renew {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Renew {
    type Item = RenewItem;
    type Verdict = RenewVerdict;
    type Lane = LockId;

    const NAME: &'static str = "renew";

    fn lane(item: &RenewItem) -> LockId {
        item.lock
    }

    async fn run(
        &self,
        items: Arc<[RenewItem]>,
        patience: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        self.ledger.renew(items, patience).await
    }

    fn is_busy(verdict: &RenewVerdict) -> bool {
        matches!(verdict, RenewVerdict::Busy)
    }
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
}

/// Breaks, as the act of a batcher. Each names the token it means, so a late one hits nobody else.
pub(super) struct Break {
    pub(super) ledger: Arc<dyn Ledger>,
    /// Hears what is free now.
    pub(super) line: Arc<Line>,
}

#[async_trait]
impl Act for Break {
    /// With it, whether an answer to it was lost.
    type Item = (BreakItem, bool);
    type Verdict = BreakVerdict;
    type Lane = ResourceName;

    const NAME: &'static str = "break";

    fn lane((item, _): &(BreakItem, bool)) -> ResourceName {
        item.resource.clone()
    }

    async fn run(
        &self,
        items: Arc<[(BreakItem, bool)]>,
        patience: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        let breaks = items.iter().map(|(item, _)| item.clone()).collect();
        let verdicts = self.ledger.break_locks(breaks, patience).await?;
        let is_broken = |verdict: &BreakVerdict| matches!(verdict, BreakVerdict::Broken { .. });
        let broken = verdicts.iter().zip(items.iter()).filter(|(verdict, _)| is_broken(verdict));
        let freed: Vec<_> = broken.map(|(_, (item, _))| item.resource.clone()).collect();
        if !freed.is_empty() {
            self.line.wake(freed);
        }
        // Somebody else holds by now: perhaps because the first sending broke what it meant.
        let is_open = |(verdict, sent): (&BreakVerdict, &(BreakItem, bool))| {
            sent.1 && *verdict == BreakVerdict::NotHeld
        };
        if verdicts.iter().zip(items.iter()).any(is_open) {
            return Err(LedgerError::Unreadable("the lock has changed hands since".into()));
        }
        Ok(verdicts)
    }

    fn is_busy(verdict: &BreakVerdict) -> bool {
        matches!(verdict, BreakVerdict::Busy)
    }

    fn rerun((_, lost): &mut (BreakItem, bool), _: bool) {
        *lost = true;
    }
}

/// The queues for locks that exist.
pub(super) struct Locks {
    pub(super) renewals: Batcher<Renew>,
    pub(super) releases: Arc<Batcher<Release>>,
    pub(super) breaks: Batcher<Break>,
    pub(super) traces: Traces,
    pub(super) burials: Burials,
}

impl Locks {
    /// Starts the ttl of a lock again.
    pub(super) async fn renew(&self, id: LockId, ttl: Option<Ttl>) -> Result<Renewed, EngineError> {
        let verdict = self.renewals.submit(RenewItem { lock: id, ttl }).await;
        let outcome = match verdict {
            Ok(RenewVerdict::Renewed { grant, lapsed_ms }) => Ok(Renewed { grant, lapsed_ms }),
            Ok(RenewVerdict::Ended(how)) => Err(EngineError::LockEnded(how)),
            Ok(RenewVerdict::Breaking) => Err(EngineError::LockBreaking),
            Ok(RenewVerdict::Draining) => Err(EngineError::Draining(None)),
            Ok(RenewVerdict::HoldExceeded) => Err(EngineError::HoldExceeded),
            Ok(RenewVerdict::NotFound) => Err(EngineError::LockNotFound),
            Ok(RenewVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        };
        let word = match &outcome {
            Ok(renewed) if renewed.lapsed_ms.is_some() => "revived",
            Ok(_) => "renewed",
            Err(error) => {
                let reason = error.code().as_str();
                ::metrics::counter!(metrics::RENEW_FAILURES, "reason" => reason).increment(1);
                "failed"
            }
        };
        ::metrics::counter!(metrics::RENEWALS, "outcome" => word).increment(1);
        outcome
    }

    /// Gives a lock back. Doing it again succeeds as well. An id that was never heard of is buried, as
    /// far as there is room for that: rows that anybody can make must not come without end.
    pub(super) async fn release(&self, id: LockId) -> Result<Released, EngineError> {
        let room = self.burials.take();
        let item = ReleaseItem { may_bury: room, ..id.into() };
        let verdict = self.releases.submit(item).await;
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
            Ok(ReleaseVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        }
    }

    /// Breaks the lock of a resource that carries this token. Says whether it did, or will; if not,
    /// that token's lock had ended.
    pub(super) async fn break_lock(&self, item: BreakItem) -> Result<bool, EngineError> {
        let (resource, after) = (item.resource.clone(), item.after);
        tracing::info!(%resource, reason = item.reason, ?after, "an operator breaks a lock");
        match self.breaks.submit((item, false)).await {
            Ok(BreakVerdict::Broken { held_ms, ended }) => {
                if let Some(held_ms) = held_ms {
                    count_break(held_ms, after);
                }
                self.traces.add(ended);
                Ok(true)
            }
            Ok(BreakVerdict::Breaking { .. }) => Ok(true),
            Ok(BreakVerdict::NotHeld) => Ok(false),
            Ok(BreakVerdict::NoFence) => Err(EngineError::ResourceNotFound),
            Ok(BreakVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        }
    }
}

fn count_break(held_ms: i64, after: Duration) {
    let kind = if after.is_zero() { "at_once" } else { "after" };
    ::metrics::counter!(metrics::BREAKS, "kind" => kind).increment(1);
    record_hold(held_ms, LockEnd::Broken);
}
