//! Waiting for a lock: join the queue, wait for the turn, seal.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ResourceName;
use fence_core::ports::{
    JoinItem, JoinVerdict, Ledger, LedgerError, Patience, Runtime, SealVerdict,
};
use tokio::sync::oneshot;

use super::batcher::{Act, Batcher};
use super::error::EngineError;
use super::granting::{Granting, Pending};
use super::grants::{Acquired, acquired, seal};
use super::line::{Line, Seat};
use super::locks::Release;

/// How often, and how fast, a waiter that gives up tries to leave the queue.
const LEAVE_TRIES: u32 = 20;
const LEAVE_PAUSE: Duration = Duration::from_millis(500);

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

/// The way through the queue.
pub(super) struct Waiting {
    pub(super) joins: Batcher<Join>,
    pub(super) line: Arc<Line>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) releases: Arc<Batcher<Release>>,
    pub(super) runtime: Runtime,
    pub(super) request_timeout: Duration,
    /// How many may wait for one resource.
    pub(super) waiters_max: usize,
}

/// What a try to join came to.
enum Joined {
    Waiting,
    Acquired(Acquired),
    /// Free, and taken by somebody else before it could be sealed.
    Overtaken,
}

impl Waiting {
    /// Waits for a lock, at most `wait`.
    ///
    /// 1. A seat here first, so that no call is missed, and a heartbeat, so that the waiter is present.
    /// 2. Join. What turns out to be free, or granted before under this id, is sealed at once.
    /// 3. Called: seal. Held after all, or somebody else's turn: wait on. No number to be had: others
    ///    go first, and it waits on.
    /// 4. Time is up: `WaitElapsed`, or why no number could be had. Under an id that the caller chose
    ///    the place is kept for a while; else it is given up. The same if the caller hangs up.
    pub(super) async fn acquire(
        &self,
        grants: &Batcher<Granting>,
        pending: Pending,
        wait: Duration,
    ) -> Result<Acquired, EngineError> {
        let until = self.runtime.clock.elapsed() + wait;
        let place = self.take_place(pending);
        if !self.line.is_heard(self.request_timeout).await {
            return place.end(Err(EngineError::LedgerUnavailable("no heartbeat".into())));
        }
        loop {
            match self.join(&place, grants).await {
                Ok(Joined::Waiting) => break,
                Ok(Joined::Acquired(acquired)) => return place.end(Ok(acquired)),
                Ok(Joined::Overtaken) if self.runtime.clock.elapsed() < until => {}
                Ok(Joined::Overtaken) => {
                    return place.end(Err(EngineError::WaitElapsed { position: None }));
                }
                // It may have joined.
                Err(error) if error.code().status() >= 500 => return Err(error),
                Err(error) => return place.end(Err(error)),
            }
        }
        place.look_now();
        self.turn(place, grants, until).await
    }

    fn take_place(&self, pending: Pending) -> Place {
        Place {
            seat: Some(self.line.sit(pending.item.lock, &pending.item.resources)),
            line: Arc::clone(&self.line),
            releases: Arc::clone(&self.releases),
            runtime: self.runtime.clone(),
            pending,
        }
    }

    /// Step 2.
    async fn join(&self, place: &Place, grants: &Batcher<Granting>) -> Result<Joined, EngineError> {
        let item = &place.pending.item;
        let verdict = self.joins.submit(JoinItem {
            lock: item.lock,
            resources: item.resources.clone(),
            owner: item.owner.clone(),
            gateway: self.line.gateway,
            waiters_max: self.waiters_max,
        });
        match verdict.await.map_err(|failure| EngineError::unsent(failure, "locks"))? {
            JoinVerdict::Waiting => Ok(Joined::Waiting),
            JoinVerdict::Free | JoinVerdict::Known => {
                match seal(grants, place.pending.clone()).await? {
                    SealVerdict::Held(_) | SealVerdict::Queued | SealVerdict::Frozen(_) => {
                        Ok(Joined::Overtaken)
                    }
                    verdict => acquired(verdict).map(Joined::Acquired),
                }
            }
            JoinVerdict::Ended(how) => Err(EngineError::LockEnded(how)),
            JoinVerdict::Conflict => Err(EngineError::LockConflict),
            JoinVerdict::Full => Err(EngineError::QueueFull),
            JoinVerdict::Busy => Err(EngineError::locked_out()),
        }
    }

    /// Steps 3 and 4.
    async fn turn(
        &self,
        place: Place,
        grants: &Batcher<Granting>,
        until: Duration,
    ) -> Result<Acquired, EngineError> {
        let mut no_number = None;
        loop {
            let left = until.saturating_sub(self.runtime.clock.elapsed());
            if self.runtime.within(left, place.called()).await.is_none() {
                break;
            }
            match seal(grants, place.pending.clone()).await {
                Ok(SealVerdict::Held(_) | SealVerdict::Queued | SealVerdict::Frozen(_)) => {}
                Ok(verdict) => return place.end(acquired(verdict)),
                Err(error @ (EngineError::MintUnavailable(_) | EngineError::MintRegressed(_))) => {
                    self.line.unable();
                    no_number = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let ledger = Arc::clone(&self.ledger);
        let lock = place.pending.item.lock;
        let position =
            self.run("position", async move { ledger.position(lock).await.ok().flatten() });
        let position = position.await.flatten();
        if place.pending.proposed {
            place.keep(self).await;
        }
        Err(no_number.unwrap_or(EngineError::WaitElapsed { position }))
    }

    /// Runs a call to the ledger in a task of its own, so that a caller that hangs up interrupts
    /// nothing; `None` if it takes too long.
    async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (send, answer) = oneshot::channel();
        let task = async move { drop(send.send(call.await)) };
        self.runtime.spawn.spawn(name, Box::pin(task));
        self.runtime.within(self.request_timeout, answer).await?.ok()
    }
}

/// A waiter, as long as its caller waits. Dropped in between, it keeps or gives up its place.
struct Place {
    seat: Option<Seat>,
    line: Arc<Line>,
    releases: Arc<Batcher<Release>>,
    runtime: Runtime,
    pending: Pending,
}

impl Place {
    fn look_now(&self) {
        self.seat.iter().for_each(Seat::look_now);
    }

    async fn called(&self) {
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
    async fn keep(mut self, waiting: &Waiting) {
        let is_taken = self.seat.as_ref().is_none_or(Seat::is_taken);
        self.seat = None;
        if !is_taken {
            let (line, lock) = (Arc::clone(&self.line), self.pending.item.lock);
            waiting.run("keep-place", async move { line.keep_place(lock).await }).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let (is_taken, lock) = (seat.is_taken(), self.pending.item.lock);
        drop(seat);
        let (line, releases) = (Arc::clone(&self.line), Arc::clone(&self.releases));
        let clock = Arc::clone(&self.runtime.clock);
        let proposed = self.pending.proposed;
        let leave = async move {
            if proposed {
                return line.keep_place(lock).await;
            }
            // A waiter that stays although nobody waits holds up others for a while: worth some tries.
            for _ in 0..LEAVE_TRIES {
                if releases.submit(lock).await.is_ok() {
                    return;
                }
                clock.sleep(LEAVE_PAUSE).await;
            }
        };
        if !is_taken {
            self.runtime.spawn.spawn("leave-queue", Box::pin(leave));
        }
    }
}
