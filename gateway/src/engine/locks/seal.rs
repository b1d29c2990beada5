//! A grant on its way: how it is queued, minted and sealed with others in one act (I5), and what it comes to
//! for whoever asked for it.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{
    Attempt, Grant, Ledger, LedgerError, Mint, Patience, SealItem, SealVerdict,
};
use fence_core::{LockEnd, LockId, PrincipalName, ResourceName};

use super::traces::Traces;
use super::undelivered::GiveBack;
use crate::engine::EngineError;
use crate::engine::access::Permit;
use crate::engine::batch::{Act, Batcher};
use crate::engine::data::Refusals;
use crate::engine::disasters::Epochs;
use crate::engine::metrics::record_hold;
use crate::engine::trials::Trials;

/// A lock that was acquired.
#[derive(Debug, Clone)]
pub struct Acquired {
    /// The lock.
    pub grant: Grant,
    /// Whether it had been granted before under the same id.
    pub again: bool,
}

/// What became of a grant.
pub(super) enum GrantVerdict {
    /// The ledger decided.
    Sealed(Box<Sealed>),
    /// No number could be had.
    NoNumber(EngineError),
}

/// The ledger's verdict on its way to the caller. A lock that nobody takes is given back: at once, or
/// when its caller has not come back for it.
pub(super) struct Sealed {
    verdict: Option<SealVerdict>,
    lock: LockId,
    principal: Option<PrincipalName>,
    give_back: GiveBack,
    proposed: bool,
}

impl Sealed {
    /// Takes delivery.
    pub(super) fn take(mut self) -> Option<SealVerdict> {
        self.verdict.take()
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        match self.verdict.take() {
            Some(SealVerdict::Sealed(grant, _)) => {
                self.give_back.undelivered(&grant, self.proposed);
            }
            // Found by a rerun: an id of our own that nobody has heard of. Under an id of the caller's
            // it may be a lock that it has held for long.
            Some(SealVerdict::Again(grant)) if !self.proposed => {
                self.give_back.undelivered(&grant, false);
            }
            Some(SealVerdict::Drains { .. }) if !self.proposed => {
                self.give_back.given_up(self.lock, self.principal.take());
            }
            _ => {}
        }
    }
}

/// Mint and seal, as the act of a batcher.
pub(super) struct Granting {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) mint: Arc<dyn Mint>,
    pub(super) traces: Traces,
    pub(super) give_back: GiveBack,
    pub(super) epochs: Arc<Epochs>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) can_write: Arc<Trials>,
    pub(super) can_grant: Arc<Trials>,
}

/// One grant under way.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) item: SealItem,
    /// Whether the caller chose the id, and so can come back for the lock.
    pub(super) proposed: bool,
    /// Whether only a lock that has this id already will do: such a re-entry needs no number, and no
    /// sending of it can grant anything.
    pub(super) reentry: bool,
    /// What allows it.
    pub(super) permit: Permit,
}

impl Pending {
    pub(super) fn wants_number(&self) -> bool {
        !self.reentry && self.item.attempt != Attempt::Bury
    }
}

#[async_trait]
impl Act for Granting {
    type Item = Pending;
    type Verdict = GrantVerdict;
    type Lane = Option<ResourceName>;

    const NAME: &'static str = "seal";
    /// A lock for somebody who has left keeps others out until it is given back.
    const DROPS_ABANDONED: bool = true;

    fn principal(item: &Pending) -> Option<&PrincipalName> {
        item.item.by.principal()
    }

    /// A lock on several resources is kept in order with others by the first of them.
    fn lane(item: &Pending) -> Option<ResourceName> {
        item.item.resources.first().cloned()
    }

    fn exclusive(item: &Pending) -> &[ResourceName] {
        &item.item.resources
    }

    fn weight(item: &Pending) -> usize {
        item.item.resources.len()
    }

    async fn run(
        &self,
        items: Arc<[Pending]>,
        patience: Patience,
    ) -> Result<Vec<GrantVerdict>, LedgerError> {
        let verdicts = self.decide(&items, patience).await?;
        for (verdict, pending) in verdicts.iter().zip(items.iter()) {
            if matches!(verdict, Ok(SealVerdict::Sealed(..) | SealVerdict::Drains { .. })) {
                self.refusals.sealed(&pending.item.resources);
            }
        }
        let parcel = |(verdict, pending): (Result<SealVerdict, _>, &Pending)| match verdict {
            Err(error) => GrantVerdict::NoNumber(error),
            Ok(verdict) => GrantVerdict::Sealed(Box::new(Sealed {
                verdict: Some(verdict),
                lock: pending.item.lock,
                principal: pending.item.principal.clone(),
                give_back: self.give_back.clone(),
                // Whoever re-enters knows the id.
                proposed: pending.proposed || pending.reentry,
            })),
        };
        Ok(verdicts.into_iter().zip(items.iter()).map(parcel).collect())
    }

    fn is_busy(verdict: &GrantVerdict) -> bool {
        matches!(verdict, GrantVerdict::Sealed(one) if one.verdict == Some(SealVerdict::Busy))
    }

    fn rules_moved(verdict: &GrantVerdict) -> bool {
        matches!(verdict, GrantVerdict::Sealed(one) if one.verdict == Some(SealVerdict::RulesMoved))
    }

    fn ask_after(item: &mut Pending) -> bool {
        item.item.attempt = Attempt::Bury;
        true
    }

    fn rerun(item: &mut Pending, wanted: bool) {
        if !item.reentry {
            let wanted = wanted || item.proposed;
            item.item.attempt = if wanted { Attempt::Rerun } else { Attempt::Bury };
        }
    }
}

/// Queues a grant and takes delivery of the verdict; once more if the rules have moved and still allow it.
pub(super) async fn seal(
    queue: &Batcher<Granting>,
    pending: Pending,
) -> Result<SealVerdict, EngineError> {
    loop {
        let by = pending.permit.by();
        let item = SealItem { by, ..pending.item.clone() };
        match sealed_once(queue, Pending { item, ..pending.clone() }).await? {
            SealVerdict::RulesMoved => pending.permit.renew().await?,
            verdict => return Ok(verdict),
        }
    }
}

async fn sealed_once(
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
        SealVerdict::RulesMoved => Err(EngineError::AccessUnavailable),
        SealVerdict::Busy => Err(EngineError::Busy),
    }
}
