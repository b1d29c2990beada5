//! Grants: look, mint, seal, answer.
//!
//! The look refuses a held resource, or sends the caller to the queue, without touching the mint; it is left out
//! for a resource that was released here a moment ago. The mint numbers all grants that are waiting in one call,
//! and one ledger act seals them. An answer goes out only once the ledger holds the token (I5).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    Attempt, Holder, Ledger, LedgerError, LockRecord, MINT_RESOURCES_MAX, Patience, Runtime,
    SealItem, SealKind, SealVerdict, Standing,
};
use fence_core::{LockId, MaxHold, Metadata, PrincipalName, ResourceName, Ttl, WriterName};

use super::freed::Freed;
use super::queue::Waiting;
use super::seal::{Acquired, Granting, Pending, acquired, seal};
use crate::engine::access::Permit;
use crate::engine::batch::{Act, Batcher};
use crate::engine::{EngineError, metrics};

/// A lock that is asked for.
#[derive(Debug, Clone)]
pub struct Acquire {
    /// The resources, sorted and distinct: all or none.
    pub resources: Vec<ResourceName>,
    /// The caller's name for itself.
    pub owner: String,
    /// How long the lock lasts without renewal, if the caller says.
    pub ttl: Option<Ttl>,
    /// How long it may be held in all, however often it is renewed.
    pub max_hold: Option<MaxHold>,
    /// What the caller notes on the lock.
    pub metadata: Metadata,
    /// Whether to refuse resources that were never locked before.
    pub only_if_exists: bool,
    /// The caller's own choice of an id, with which it can repeat the call.
    pub id: Option<LockId>,
    /// How long to wait if it is held; zero: not at all.
    pub wait: Duration,
    /// Who else may write under its token.
    pub writers: Vec<WriterName>,
    /// What allows it.
    pub permit: Permit,
}

/// A fence without a lock that is asked for.
#[derive(Debug, Clone)]
pub struct Fence {
    /// The resource.
    pub resource: ResourceName,
    /// The caller's choice of an id, with which it can repeat the call.
    pub id: LockId,
    /// The caller's name for itself.
    pub owner: String,
    /// The number that somebody else's lock gave to the caller.
    pub order: Option<i64>,
    /// Whether to fence off the holder of a live lock.
    pub force: bool,
    /// What allows it.
    pub permit: Permit,
}

/// A lock that is to be handed over.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The lock.
    pub from: LockId,
    /// The successor's name for itself.
    pub owner: String,
    /// The id that the successor's lock is to have, with which the call can be repeated.
    pub to: Option<LockId>,
    /// The principal whose it will be; the caller's own without one.
    pub principal: Option<PrincipalName>,
    /// What allows it.
    pub permit: Permit,
}

/// What a look at the resources of a lock finds.
pub(super) enum Found {
    /// Nothing in the way.
    Free,
    /// The holder of one of them.
    Held(Holder),
    /// Others in line for one of them.
    Queued,
}

/// The look: who holds one of these resources, as the act of a batcher.
pub(super) struct Look {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Look {
    type Item = Vec<ResourceName>;
    type Verdict = Found;
    type Lane = ();

    const NAME: &'static str = "look";
    const DROPS_ABANDONED: bool = true;

    fn lane(_: &Vec<ResourceName>) {}

    async fn run(
        &self,
        items: Arc<[Vec<ResourceName>]>,
        _: Patience,
    ) -> Result<Vec<Found>, LedgerError> {
        let mut wanted: Vec<ResourceName> = items.iter().flatten().cloned().collect();
        wanted.sort();
        wanted.dedup();
        let standings = self.ledger.look(&wanted).await?;
        let standings: HashMap<&ResourceName, Standing> = wanted.iter().zip(standings).collect();
        let found = |names: &Vec<ResourceName>| {
            let standings = || names.iter().filter_map(|name| standings.get(name));
            match standings().find_map(|standing| standing.holder.clone()) {
                Some(holder) => Found::Held(holder),
                None if standings().any(|standing| standing.queued) => Found::Queued,
                None => Found::Free,
            }
        };
        Ok(items.iter().map(found).collect())
    }
}

/// The queues that an acquisition goes through.
pub(super) struct Grants {
    pub(super) looks: Batcher<Look>,
    pub(super) freed: Arc<Freed>,
    pub(super) reentries: Arc<Batcher<Granting>>,
    pub(super) grants: Batcher<Granting>,
    pub(super) waiting: Waiting,
    pub(super) runtime: Runtime,
}

impl Grants {
    /// Acquires a lock, waits in line for it as long as the request says, or says who holds it.
    pub(super) async fn acquire(&self, request: Acquire) -> Result<Acquired, EngineError> {
        let began = self.runtime.clock.elapsed();
        let outcome = self.look_and_seal(request).await;
        let word = match &outcome {
            Ok(acquired) if acquired.again => "again",
            Ok(_) => "granted",
            Err(EngineError::Held(_) | EngineError::Queued) => "held",
            Err(error) => error.code().as_str(),
        };
        ::metrics::counter!(metrics::ACQUISITIONS, "outcome" => word).increment(1);
        let took = self.runtime.clock.elapsed().saturating_sub(began);
        ::metrics::histogram!(metrics::ACQUIRE_SECONDS).record(took);
        outcome
    }

    /// Hands a lock over to a successor, who gets a new id and token; the old ones are stale in the
    /// same act. The old id with the same new id gets the same answer again.
    pub(super) async fn transfer(
        &self,
        request: Transfer,
        from: LockRecord,
    ) -> Result<Acquired, EngineError> {
        let pending = Pending {
            proposed: request.to.is_some(),
            // A lock that has ended hands nothing over: only a repetition can come to something.
            reentry: request.to.is_some() && from.ended.is_some(),
            item: SealItem {
                kind: SealKind::Transfer { from: request.from },
                lock: request.to.unwrap_or_else(|| LockId(self.runtime.ids.uuid())),
                resources: from.grant.resources,
                owner: request.owner,
                ttl: None,
                max_hold: None,
                metadata: Metadata::default(),
                number: None,
                attempt: Attempt::First,
                waits: None,
                principal: request.principal.or_else(|| request.permit.principal()),
                by: request.permit.by(),
                writers: Vec::new(),
            },
            permit: request.permit,
        };
        acquired(seal(&self.grants, pending).await?)
    }

    /// Raises the fence of a resource without a lock of ours. A repetition of a `known` id needs no
    /// number.
    pub(super) async fn fence(&self, request: Fence, known: bool) -> Result<Acquired, EngineError> {
        let mut pending = Pending {
            proposed: true,
            reentry: known,
            item: SealItem {
                kind: SealKind::Fence { order: request.order, force: request.force },
                lock: request.id,
                resources: vec![request.resource],
                owner: request.owner,
                ttl: None,
                max_hold: None,
                metadata: Metadata::default(),
                number: None,
                attempt: Attempt::First,
                waits: None,
                principal: request.permit.principal(),
                by: request.permit.by(),
                writers: Vec::new(),
            },
            permit: request.permit,
        };
        let mut outcome = Err(EngineError::Busy);
        if known {
            outcome = seal(&self.reentries, pending.clone()).await;
            pending.reentry = false;
        }
        if !known || matches!(outcome, Ok(SealVerdict::NumberTooLow)) {
            outcome = seal(&self.grants, pending).await;
        }
        let outcome = outcome.and_then(acquired);
        let word = match &outcome {
            Ok(acquired) if acquired.again => "again",
            Ok(_) => "fenced",
            Err(error) => error.code().as_str(),
        };
        ::metrics::counter!(metrics::FENCES, "outcome" => word).increment(1);
        outcome
    }

    async fn look_and_seal(&self, request: Acquire) -> Result<Acquired, EngineError> {
        let until = self.runtime.clock.elapsed() + request.wait;
        let was_freed = self.freed.take(&request.resources);
        let pending = Pending {
            proposed: request.id.is_some(),
            reentry: false,
            item: SealItem {
                kind: SealKind::Lock,
                lock: request.id.unwrap_or_else(|| LockId(self.runtime.ids.uuid())),
                resources: request.resources,
                owner: request.owner,
                ttl: request.ttl,
                max_hold: request.max_hold,
                metadata: request.metadata,
                number: None,
                attempt: Attempt::First,
                waits: (!request.wait.is_zero()).then_some(self.waiting.line.gateway),
                principal: request.permit.principal(),
                by: request.permit.by(),
                writers: request.writers,
            },
            permit: request.permit,
        };
        let mut no_number = None;
        if was_freed {
            match seal(&self.grants, pending.clone()).await {
                Ok(SealVerdict::Held(_) | SealVerdict::Queued) => {}
                // The hint was old, and this is a re-entry: it goes again without a number, which restarts its ttl. Or
                // this very call sealed the lock and the answer was lost. So no failure from here on may say that
                // nothing was done.
                Ok(SealVerdict::Again(grant)) if pending.proposed && !grant.unconfirmed => {
                    return self.look(pending, None, until).await.map_err(unknown);
                }
                Err(error) if error.is_of_mint() => no_number = Some(error),
                verdict => return self.sealed(pending, verdict?, until).await,
            }
        }
        self.look(pending, no_number, until).await
    }

    /// Looks first; `no_number` says why the mint gave none a moment ago.
    async fn look(
        &self,
        mut pending: Pending,
        no_number: Option<EngineError>,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        let (waits, proposed) = (pending.item.waits.is_some(), pending.proposed);
        let found = self.looks.submit(pending.item.resources.clone()).await;
        let found = found.map_err(|failure| EngineError::unread(failure, "locks"))?;
        let in_the_way = match found {
            Found::Free => None,
            Found::Held(holder) => Some(EngineError::Held(holder)),
            Found::Queued => Some(EngineError::Queued),
        };
        if let Some(error) = in_the_way {
            if !waits && !proposed {
                return Err(error);
            }
            if waits {
                return self.wait(pending, None, until).await;
            }
            // Held, but perhaps by this very id; or free by now, and then it needs a number.
            pending.reentry = true;
            match seal(&self.reentries, pending.clone()).await? {
                SealVerdict::NumberTooLow => pending.reentry = false,
                verdict => return acquired(verdict),
            }
        }
        // Free, and the mint has been asked: not a second time.
        if let Some(error) = no_number {
            return Err(error);
        }
        let verdict = seal(&self.grants, pending.clone()).await?;
        self.sealed(pending, verdict, until).await
    }

    /// Waits in line. Boxed, so that the future of a caller who does not wait stays small.
    async fn wait(
        &self,
        pending: Pending,
        refused: Option<SealVerdict>,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        Box::pin(self.waiting.acquire(&self.grants, pending, refused, until)).await
    }

    /// What the verdict on a grant that was numbered means for its caller.
    async fn sealed(
        &self,
        pending: Pending,
        verdict: SealVerdict,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        match verdict {
            refused @ (SealVerdict::Held(_) | SealVerdict::Queued | SealVerdict::Frozen(_))
                if pending.item.waits.is_some() =>
            {
                self.wait(pending, Some(refused), until).await
            }
            SealVerdict::Drains { resource, .. } => {
                Box::pin(self.waiting.drained(pending, resource, until)).await
            }
            verdict => acquired(verdict),
        }
    }
}

/// What a caller is told whose lock may have been sealed by this very call: a failure does not tell whether it was.
fn unknown(error: EngineError) -> EngineError {
    match error.code().status() {
        500.. => EngineError::OutcomeUnknown { operation: None },
        _ => error,
    }
}

/// The most resources that one mint numbers.
pub(super) const BATCH_MAX: usize = MINT_RESOURCES_MAX;
