//! Waiting for a lock: join the queue, wait for the turn, seal.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    Attempt, JoinItem, JoinVerdict, Ledger, LedgerError, Patience, Runtime, SealVerdict,
};
use fence_core::{LockEnd, LockId, PrincipalName, ResourceName};
use tokio::sync::{Semaphore, oneshot};

use super::Line;
use super::place::WaiterPlace;
use crate::engine::EngineError;
use crate::engine::batch::{Act, Batcher};
use crate::engine::locks::release::Release;
use crate::engine::locks::seal::{Acquired, Granting, Pending, acquired, seal};

/// How long to find out a waiter's place, and to keep it, when its time is up.
pub(super) const PARTING: Duration = Duration::from_secs(1);
/// How long a waiter waits before it asks for a number again.
const NO_NUMBER_PAUSE: Duration = Duration::from_millis(200);
/// How long a waiter whose turn has come waits before it tries again what the gateway had no room for.
const DOOR_PAUSE: Duration = Duration::from_millis(100);
/// Joining the queue, as the act of a batcher. Run twice, it joins once.
pub(in crate::engine::locks) struct Join {
    pub(in crate::engine::locks) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Join {
    type Item = JoinItem;
    type Verdict = JoinVerdict;
    type Lane = Option<ResourceName>;

    const NAME: &'static str = "join";

    fn principal(item: &JoinItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &JoinItem) -> Option<ResourceName> {
        item.resources.first().cloned()
    }

    fn weight(item: &JoinItem) -> usize {
        item.resources.len()
    }

    async fn run(
        &self,
        items: Arc<[JoinItem]>,
        patience: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError> {
        self.ledger.join(items, patience).await
    }

    fn is_busy(verdict: &JoinVerdict) -> bool {
        matches!(verdict, JoinVerdict::Busy)
    }
}

/// Keeping places in the queue, as the act of a batcher. Run twice, it keeps them a little longer.
pub(in crate::engine::locks) struct Keep {
    pub(in crate::engine::locks) line: Arc<Line>,
}

#[async_trait]
impl Act for Keep {
    type Item = LockId;
    type Verdict = ();
    type Lane = LockId;

    const NAME: &'static str = "keep-places";

    fn lane(item: &LockId) -> LockId {
        *item
    }

    async fn run(&self, items: Arc<[LockId]>, _: Patience) -> Result<Vec<()>, LedgerError> {
        self.line.keep_places(items.to_vec()).await?;
        Ok(items.iter().map(|_| ()).collect())
    }
}

/// The way through the queue.
pub(in crate::engine::locks) struct Waiting {
    pub(in crate::engine::locks) keeps: Arc<Batcher<Keep>>,
    pub(in crate::engine::locks) joins: Batcher<Join>,
    /// Where a lock is asked for that has its number.
    pub(in crate::engine::locks) reentries: Arc<Batcher<Granting>>,
    pub(in crate::engine::locks) line: Arc<Line>,
    pub(in crate::engine::locks) ledger: Arc<dyn Ledger>,
    /// Where those leave the line who will not come back.
    pub(in crate::engine::locks) leaves: Arc<Batcher<Release>>,
    pub(in crate::engine::locks) runtime: Runtime,
    pub(in crate::engine::locks) request_timeout: Duration,
    /// Room for looks at single locks, outside the queues.
    pub(in crate::engine::locks) calls: Arc<Semaphore>,
    /// How many may wait for one resource.
    pub(in crate::engine::locks) waiters_max: usize,
}

/// What a try to join, or a turn, came to.
pub(super) enum Step {
    /// It stands in line.
    Waiting,
    Acquired(Acquired),
    /// It has to join: what was free was taken by somebody else, or it is not in line any more. With how a
    /// seal of its own was refused just now: a rerun of that has buried the id.
    Join(Option<SealVerdict>),
    /// Its time is up; what kept it, if that was no holder.
    Elapsed(Option<EngineError>),
    /// Sealed, but not in force before nothing of older tokens is under way on this resource.
    Drains(ResourceName),
}

impl Waiting {
    /// Waits for a lock, until a time on the clock of this process.
    ///
    /// 1. A slot here first, so that no call is missed, and a heartbeat, so that the waiter is present.
    /// 2. Join. What turns out to be free, or granted before under this id, is sealed at once.
    /// 3. Called: seal. Held after all, or somebody else's turn: wait on. No number to be had: others
    ///    go first, and it waits on. No room for it here: again in a moment. Not in line any more: join again.
    /// 4. Sealed, but effects of older tokens are under way: wait until it is in force.
    /// 5. Time is up: `WaitElapsed`, or why no number could be had. Under an id that the caller chose
    ///    the place is kept for a while; else it is given up. The same if the caller hangs up.
    ///
    /// `refused` says how a seal was refused that led here. If that was a rerun its id is buried: an id that
    /// nobody has heard of is replaced, and under one that the caller chose the refusal is the answer.
    pub(in crate::engine::locks) async fn acquire(
        &self,
        grants: &Batcher<Granting>,
        pending: Pending,
        refused: Option<SealVerdict>,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        let mut place = self.take_place(pending);
        if !self.line.is_heard(self.request_timeout).await {
            return place.end(Err(EngineError::LedgerUnavailable("no heartbeat".into())));
        }
        let mut step = Step::Join(refused);
        let no_number = loop {
            step = match step {
                Step::Join(_) if self.runtime.clock.elapsed() >= until => break None,
                Step::Join(refused) => match self.join(&place, grants).await {
                    Ok(step) => step,
                    Err(EngineError::LockEnded(LockEnd::Released)) if !place.pending.proposed => {
                        place = self.under_new_id(place);
                        Step::Join(None)
                    }
                    // Turned away at the door: it has not joined, and the id need not be given up.
                    Err(error @ EngineError::Overloaded(_)) if !place.has_joined() => {
                        return place.end(Err(error));
                    }
                    // It may have joined.
                    Err(error) if error.code().status() >= 500 => return Err(error),
                    Err(error) => {
                        return place.end(match (error, refused) {
                            (EngineError::LockEnded(LockEnd::Released), Some(refused)) => {
                                acquired(refused)
                            }
                            (error, _) => Err(error),
                        });
                    }
                },
                Step::Waiting => self.turn(&place, grants, until).await?,
                Step::Drains(resource) => self.drain(&place, resource, until).await?,
                Step::Acquired(acquired) => return place.end(Ok(acquired)),
                Step::Elapsed(no_number) => break no_number,
            };
        };
        let item = &place.pending.item;
        let position = self.position(item.lock, item.principal.clone()).await;
        if place.pending.proposed {
            place.keep(&self.runtime).await;
        }
        Err(no_number.unwrap_or(EngineError::WaitElapsed { position }))
    }

    pub(super) fn take_place(&self, pending: Pending) -> WaiterPlace {
        WaiterPlace {
            slot: Some(self.line.take_slot(pending.item.lock, &pending.item.resources)),
            keeps: Arc::clone(&self.keeps),
            leaves: Arc::clone(&self.leaves),
            runtime: self.runtime.clone(),
            pending,
        }
    }

    /// The same wait under another id: nobody has heard of the one before, so nobody released it.
    fn under_new_id(&self, place: WaiterPlace) -> WaiterPlace {
        let mut pending = place.pending.clone();
        pending.item.lock = LockId(self.runtime.ids.uuid());
        let _ = place.end(Ok(()));
        self.take_place(pending)
    }

    /// Step 2.
    async fn join(
        &self,
        place: &WaiterPlace,
        grants: &Batcher<Granting>,
    ) -> Result<Step, EngineError> {
        let item = &place.pending.item;
        let verdict = loop {
            let verdict = self.joins.submit(JoinItem {
                lock: item.lock,
                resources: item.resources.clone(),
                owner: item.owner.clone(),
                gateway: self.line.gateway,
                waiters_max: self.waiters_max,
                by: place.pending.permit.by(),
            });
            match verdict.await.map_err(|failure| EngineError::unsent(failure, "locks"))? {
                JoinVerdict::RulesMoved => place.pending.permit.renew().await?,
                verdict => break verdict,
            }
        };
        match verdict {
            JoinVerdict::Waiting => {
                place.joined();
                Ok(Step::Waiting)
            }
            verdict @ (JoinVerdict::Free | JoinVerdict::Known) => {
                // The same call again, about a lock that is there: it needs no number.
                let reentry = verdict == JoinVerdict::Known;
                let mut pending = Pending { reentry, ..place.pending.clone() };
                if reentry && place.has_joined() {
                    // Granted to this wait by a seal whose answer was lost: nobody was told of it.
                    pending.item.attempt = Attempt::Rerun;
                }
                match seal(grants, pending).await? {
                    // The lock ended meanwhile.
                    SealVerdict::NumberTooLow if reentry => Ok(Step::Join(None)),
                    refused @ (SealVerdict::Held(_)
                    | SealVerdict::Queued
                    | SealVerdict::Frozen(_)) => Ok(Step::Join((!reentry).then_some(refused))),
                    SealVerdict::Drains { resource, .. } => Ok(Step::Drains(resource)),
                    verdict => acquired(verdict).map(Step::Acquired),
                }
            }
            JoinVerdict::Ended(how) => Err(EngineError::LockEnded(how)),
            JoinVerdict::Conflict => Err(EngineError::LockConflict),
            JoinVerdict::Full => Err(EngineError::QueueFull),
            JoinVerdict::RulesMoved => Err(EngineError::AccessUnavailable),
            JoinVerdict::Busy => Err(EngineError::Busy),
        }
    }

    /// Step 3, until something else is to be done.
    async fn turn(
        &self,
        place: &WaiterPlace,
        grants: &Batcher<Granting>,
        until: Duration,
    ) -> Result<Step, EngineError> {
        let clock = &self.runtime.clock;
        let mut no_number = None;
        loop {
            let left = until.saturating_sub(clock.elapsed());
            let turn = async {
                tokio::select! {
                    biased;
                    // It may not have the lock any more: it need not wait for its turn to hear that.
                    denied = place.pending.permit.lost() => Err(denied),
                    called = place.called() => Ok(called),
                }
            };
            match self.runtime.within(left, turn).await.transpose()? {
                None => return Ok(Step::Elapsed(no_number)),
                Some(false) => return Ok(Step::Join(None)),
                Some(true) => {}
            }
            match self.seal_in_turn(place, grants, until).await {
                Ok(SealVerdict::Held(_) | SealVerdict::Queued | SealVerdict::Frozen(_)) => {}
                Ok(SealVerdict::Drains { resource, .. }) => return Ok(Step::Drains(resource)),
                // Buried by a rerun that was refused: `join` finds the same and goes on under another id.
                Ok(SealVerdict::Ended(LockEnd::Released)) if !place.pending.proposed => {
                    return Ok(Step::Join(None));
                }
                Ok(SealVerdict::Ended(how)) => {
                    // Released by its own id: it has left the line.
                    place.left();
                    return Err(EngineError::LockEnded(how));
                }
                Ok(verdict) => return acquired(verdict).map(Step::Acquired),
                Err(error) if error.is_of_mint() => {
                    self.line.unable();
                    no_number = Some(error);
                    clock.sleep(NO_NUMBER_PAUSE).await;
                }
                Err(error @ EngineError::Overloaded(_)) => return Ok(Step::Elapsed(Some(error))),
                Err(error) => return Err(error),
            }
        }
    }

    /// Seals in this waiter's turn. Turned away for overload, it tries again while it may wait: it stands in line,
    /// and nothing of it was sent.
    async fn seal_in_turn(
        &self,
        place: &WaiterPlace,
        grants: &Batcher<Granting>,
        until: Duration,
    ) -> Result<SealVerdict, EngineError> {
        loop {
            let verdict = seal(grants, place.pending.clone()).await;
            let is_turned_away = matches!(verdict, Err(EngineError::Overloaded(_)));
            if !is_turned_away || self.runtime.clock.elapsed() + DOOR_PAUSE >= until {
                return verdict;
            }
            self.runtime.clock.sleep(DOOR_PAUSE).await;
        }
    }

    /// The place in line of a waiter whose time is up, if that is quickly found.
    async fn position(&self, lock: LockId, principal: Option<PrincipalName>) -> Option<i64> {
        let (ledger, calls) = (Arc::clone(&self.ledger), Arc::clone(&self.calls));
        let (send, answer) = oneshot::channel();
        let task = async move {
            let _permit = calls.acquire_owned().await.ok();
            if !send.is_closed() {
                let _ = send.send(ledger.position(lock, principal.as_ref()).await.ok().flatten());
            }
        };
        self.runtime.spawn.spawn("position", Box::pin(task));
        self.runtime.within(PARTING, answer).await?.ok().flatten()
    }
}
