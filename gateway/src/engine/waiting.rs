//! Waiting for a lock: join the queue, wait for the turn, seal.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    Attempt, JoinItem, JoinVerdict, Ledger, LedgerError, Patience, Runtime, SealItem, SealVerdict,
};
use fence_core::{LockEnd, LockId, ResourceName};
use tokio::sync::{Semaphore, oneshot};

use super::acquired::{Acquired, acquired, seal};
use super::batcher::{Act, Batcher, Failure};
use super::error::EngineError;
use super::granting::{Granting, Pending};
use super::line::{Line, Seat};
use super::locks::Release;
use super::metrics;

/// How often, and how fast, a waiter that gives up tries to leave the queue.
const LEAVE_TRIES: u32 = 20;
const LEAVE_PAUSE: Duration = Duration::from_millis(500);
/// How long to find out a waiter's place, and to keep it, when its time is up.
const PARTING: Duration = Duration::from_secs(1);
/// How long a waiter waits before it asks for a number again.
const NO_NUMBER_PAUSE: Duration = Duration::from_millis(200);
/// How long a waiter whose turn has come waits before it tries again what the gateway had no room for.
const DOOR_PAUSE: Duration = Duration::from_millis(100);
/// How often a waiter asks whether its lock is in force, whatever else happens.
const DRAIN_POLL: Duration = Duration::from_secs(1);

/// Joining the queue, as the act of a batcher. Run twice, it joins once.
pub(super) struct Join {
    pub(super) ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Join {
    type Item = JoinItem;
    type Verdict = JoinVerdict;
    type Lane = Option<ResourceName>;

    const NAME: &'static str = "join";

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
pub(super) struct Keep {
    pub(super) line: Arc<Line>,
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
pub(super) struct Waiting {
    pub(super) keeps: Arc<Batcher<Keep>>,
    pub(super) joins: Batcher<Join>,
    /// Where a lock is asked for that has its number.
    pub(super) reentries: Arc<Batcher<Granting>>,
    pub(super) line: Arc<Line>,
    pub(super) ledger: Arc<dyn Ledger>,
    /// Where those leave the line who will not come back.
    pub(super) leaves: Arc<Batcher<Release>>,
    pub(super) runtime: Runtime,
    pub(super) request_timeout: Duration,
    /// Room for looks at single locks, outside the queues.
    pub(super) calls: Arc<Semaphore>,
    /// How many may wait for one resource.
    pub(super) waiters_max: usize,
}

/// What a try to join, or a turn, came to.
enum Step {
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
    /// 1. A seat here first, so that no call is missed, and a heartbeat, so that the waiter is present.
    /// 2. Join. What turns out to be free, or granted before under this id, is sealed at once.
    /// 3. Called: seal. Held after all, or somebody else's turn: wait on. No number to be had: others
    ///    go first, and it waits on. No room for it here: again in a moment. Not in line any more: join again.
    /// 4. Sealed, but effects of older tokens are under way: wait until it is in force.
    /// 5. Time is up: `WaitElapsed`, or why no number could be had. Under an id that the caller chose
    ///    the place is kept for a while; else it is given up. The same if the caller hangs up.
    ///
    /// `refused` says how a seal was refused that led here. If that was a rerun its id is buried: an id that
    /// nobody has heard of is replaced, and under one that the caller chose the refusal is the answer.
    pub(super) async fn acquire(
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
        let position = self.position(place.pending.item.lock).await;
        if place.pending.proposed {
            place.keep(&self.runtime).await;
        }
        Err(no_number.unwrap_or(EngineError::WaitElapsed { position }))
    }

    /// Waits until a lock is in force that was sealed for this caller just now.
    pub(super) async fn drained(
        &self,
        pending: Pending,
        resource: ResourceName,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        let place = self.take_place(pending);
        match self.drain(&place, resource, until).await {
            Ok(Step::Acquired(acquired)) => place.end(Ok(acquired)),
            Ok(Step::Elapsed(Some(why))) | Err(why) => Err(why),
            Ok(_) => Err(EngineError::WaitElapsed { position: None }),
        }
    }

    /// Step 4: asks again whenever somebody says that something is over, and now and then. Whoever asks
    /// puts the lock in force, if nothing keeps it any more. An id that nobody was told is given up with
    /// the place; one that the caller chose goes on draining until its ttl ends.
    async fn drain(
        &self,
        place: &Place,
        resource: ResourceName,
        until: Duration,
    ) -> Result<Step, EngineError> {
        let clock = &self.runtime.clock;
        let began = clock.elapsed();
        // Each asking is a rerun of the one call, which shows nothing about its caller.
        let item = SealItem { attempt: Attempt::Rerun, ..place.pending.item.clone() };
        let pending = Pending { reentry: true, item, proposed: place.pending.proposed };
        let mut kept_by = resource;
        loop {
            match seal(&self.reentries, pending.clone()).await {
                Ok(SealVerdict::Again(grant)) => {
                    let took = clock.elapsed().saturating_sub(began);
                    ::metrics::histogram!(metrics::DRAIN_SECONDS).record(took);
                    return Ok(Step::Acquired(Acquired { grant, again: false }));
                }
                Ok(SealVerdict::Drains { resource, .. }) => kept_by = resource,
                Ok(verdict) => return acquired(verdict).map(Step::Acquired),
                // The lock stands in the ledger: asking again will tell.
                Err(error) if error.code().status() >= 500 => {
                    tracing::debug!(%error, "a draining lock could not be asked for");
                }
                Err(error) => return Err(error),
            }
            let left = until.saturating_sub(clock.elapsed());
            if left.is_zero() {
                return Ok(Step::Elapsed(Some(EngineError::Draining(Some(kept_by)))));
            }
            // That it is not in line any more is no news.
            let _ = self.runtime.within(left.min(DRAIN_POLL), place.called()).await;
        }
    }

    fn take_place(&self, pending: Pending) -> Place {
        Place {
            seat: Some(self.line.sit(pending.item.lock, &pending.item.resources)),
            keeps: Arc::clone(&self.keeps),
            leaves: Arc::clone(&self.leaves),
            runtime: self.runtime.clone(),
            pending,
        }
    }

    /// The same wait under another id: nobody has heard of the one before, so nobody released it.
    fn under_new_id(&self, place: Place) -> Place {
        let mut pending = place.pending.clone();
        pending.item.lock = self.runtime.ids.lock();
        let _ = place.end(Ok(()));
        self.take_place(pending)
    }

    /// Step 2.
    async fn join(&self, place: &Place, grants: &Batcher<Granting>) -> Result<Step, EngineError> {
        let item = &place.pending.item;
        let verdict = self.joins.submit(JoinItem {
            lock: item.lock,
            resources: item.resources.clone(),
            owner: item.owner.clone(),
            gateway: self.line.gateway,
            waiters_max: self.waiters_max,
        });
        match verdict.await.map_err(|failure| EngineError::unsent(failure, "locks"))? {
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
            JoinVerdict::Busy => Err(EngineError::Busy),
        }
    }

    /// Step 3, until something else is to be done.
    async fn turn(
        &self,
        place: &Place,
        grants: &Batcher<Granting>,
        until: Duration,
    ) -> Result<Step, EngineError> {
        let clock = &self.runtime.clock;
        let mut no_number = None;
        loop {
            let left = until.saturating_sub(clock.elapsed());
            match self.runtime.within(left, place.called()).await {
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
                Err(error @ (EngineError::MintUnavailable(_) | EngineError::MintRegressed(_))) => {
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
        place: &Place,
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
    async fn position(&self, lock: LockId) -> Option<i64> {
        let (ledger, calls) = (Arc::clone(&self.ledger), Arc::clone(&self.calls));
        let (send, answer) = oneshot::channel();
        let task = async move {
            let _permit = calls.acquire_owned().await.ok();
            if !send.is_closed() {
                let _ = send.send(ledger.position(lock).await.ok().flatten());
            }
        };
        self.runtime.spawn.spawn("position", Box::pin(task));
        self.runtime.within(PARTING, answer).await?.ok().flatten()
    }
}

/// A waiter, as long as its caller waits. Dropped in between, it keeps or gives up its place.
struct Place {
    seat: Option<Seat>,
    keeps: Arc<Batcher<Keep>>,
    leaves: Arc<Batcher<Release>>,
    runtime: Runtime,
    pending: Pending,
}

impl Place {
    fn joined(&self) {
        self.seat.iter().for_each(Seat::joined);
    }

    fn has_joined(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::has_joined)
    }

    fn left(&self) {
        self.seat.iter().for_each(Seat::left);
    }

    async fn called(&self) -> bool {
        match &self.seat {
            Some(seat) => seat.called().await,
            None => std::future::pending().await,
        }
    }

    /// It waits no more, and the ledger knows.
    fn end<T>(mut self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        self.seat = None;
        result
    }

    /// Keeps the place before the caller is told that its time is up: it may be back at once.
    async fn keep(mut self, runtime: &Runtime) {
        let is_shared = self.seat.as_ref().is_none_or(Seat::is_shared);
        self.seat = None;
        if !is_shared {
            let _ = runtime.within(PARTING, self.keeps.submit(self.pending.item.lock)).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let (is_done, lock) = (seat.is_shared() || seat.has_left(), self.pending.item.lock);
        drop(seat);
        let (keeps, leaves) = (Arc::clone(&self.keeps), Arc::clone(&self.leaves));
        let clock = Arc::clone(&self.runtime.clock);
        let proposed = self.pending.proposed;
        let leave = async move {
            // A waiter that stays although nobody waits is found by the roll call.
            for _ in 0..LEAVE_TRIES {
                let failure = match proposed {
                    true => keeps.submit(lock).await.err(),
                    false => leaves.submit(lock.into()).await.err(),
                };
                if failure.is_none_or(|failure| matches!(failure, Failure::Closed)) {
                    return;
                }
                clock.sleep(LEAVE_PAUSE).await;
            }
        };
        if !is_done {
            self.runtime.spawn.spawn("leave-queue", Box::pin(leave));
        }
    }
}
