//! This gateway's part of the queue: whose callers wait here, and who has to be called when.
//!
//! Calls come from three sides: from the act that frees something, on this gateway or by way of the
//! ledger on another; from a timer, since an expiry has no event; and from a slow poll, which takes over
//! when the others fail. A call grants nothing: whoever is called goes and seals.

mod draining;
mod place;
mod slots;
mod wait;
mod wakes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fence_core::ports::{Ledger, LedgerError, Mint, Runtime};
use fence_core::{LockId, ResourceName};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::metrics;
pub(in crate::engine) use draining::Drains;
use slots::Slot;
use slots::{Notifier, Slots, Watched};
pub(super) use wait::{Join, Keep, Waiting};
use wakes::Wakes;

/// How often each resource that is waited for is looked at, whatever else happens: more often than a turn
/// is long. The heartbeat of this gateway goes with it.
const POLL: Duration = Duration::from_millis(800);
/// How often the waiters at this gateway are compared with those in line.
const RECONCILE_EVERY: Duration = Duration::from_secs(2);
/// How long this gateway goes on when nobody waits here any more: for as long as places are kept.
const LINGER: Duration = Duration::from_secs(12);
/// How long to wait before a connection that hears calls is opened again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// The shortest time between two looks at a resource.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Resources in one call to the ledger.
const CALL_MAX: usize = 256;
/// How long the mint has to show that it works again.
const PROBE: Duration = Duration::from_secs(2);

/// The waiters of this gateway.
pub(super) struct Line {
    /// What the ledger knows this gateway by.
    pub(super) gateway: Uuid,
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    slots: Mutex<Slots>,
    wakes: Wakes,
    /// Rung when something is due at once.
    bell: Notify,
    /// Rung when the first waiter comes.
    opened: Notify,
    /// Whether this gateway can have numbers minted, as far as it knows.
    able: AtomicBool,
    /// When the ledger last heard from this gateway.
    beaten: watch::Sender<Option<Duration>>,
}

impl Line {
    /// Starts the tasks of the line. They end when `closing` is cancelled.
    pub(super) fn start(
        ledger: Arc<dyn Ledger>,
        mint: Arc<dyn Mint>,
        runtime: &Runtime,
        closing: &CancellationToken,
    ) -> Arc<Self> {
        let line = Arc::new(Self {
            gateway: runtime.ids.uuid(),
            ledger,
            mint,
            runtime: runtime.clone(),
            slots: Mutex::default(),
            wakes: Wakes::default(),
            bell: Notify::new(),
            opened: Notify::new(),
            able: AtomicBool::new(true),
            beaten: watch::Sender::new(None),
        });
        let attend = Arc::clone(&line).attend(closing.clone());
        runtime.spawn.spawn_lasting("line", Box::pin(attend));
        let listen = Arc::clone(&line).listen(closing.clone());
        runtime.spawn.spawn_lasting("listen", Box::pin(listen));
        line
    }

    /// Takes a slot for a waiter, before it joins the queue, so that no call is missed.
    fn take_slot(self: &Arc<Self>, lock: LockId, resources: &[ResourceName]) -> Slot {
        let notifier = Arc::new(Notifier::default());
        let now = self.runtime.clock.elapsed();
        let mut slots = self.slots.lock();
        slots.by_lock.entry(lock).or_default().push(Arc::clone(&notifier));
        for name in resources {
            let watched = slots.lines.entry(name.clone());
            let watched = watched.or_insert(Watched { slots: 0, due: now });
            watched.slots += 1;
            watched.due = now;
        }
        ::metrics::gauge!(metrics::WAITERS).set(slots.by_lock.len() as f64);
        drop(slots);
        self.opened.notify_one();
        self.bell.notify_one();
        Slot { line: Arc::clone(self), lock, resources: resources.to_vec(), notifier }
    }

    /// Waits until the ledger has heard from this gateway lately: without, its waiters would be taken
    /// for those of a dead one. Says whether it has within `limit`.
    pub(super) async fn is_heard(&self, limit: Duration) -> bool {
        let clock = Arc::clone(&self.runtime.clock);
        let mut beaten = self.beaten.subscribe();
        let heard = beaten.wait_for(|at| at.is_some_and(|at| at + POLL * 3 > clock.elapsed()));
        matches!(self.runtime.within(limit, heard).await, Some(Ok(_)))
    }

    /// These resources may be free: calls the next in line, in a task of its own.
    pub(super) fn wake(self: &Arc<Self>, resources: Vec<ResourceName>) {
        let mut resources = self.wakes.begin(resources);
        if resources.is_empty() {
            return;
        }
        let line = Arc::clone(self);
        let call = async move {
            while !resources.is_empty() {
                for names in resources.chunks(CALL_MAX) {
                    if let Err(error) = line.call(None, names).await {
                        tracing::debug!(%error, "nobody was called; the poll will");
                    }
                }
                resources = line.wakes.end(resources);
            }
        };
        self.runtime.spawn.spawn("wake", Box::pin(call));
    }

    /// This gateway cannot have numbers minted: others' waiters go first until it can.
    pub(super) fn unable(&self) {
        if self.able.swap(false, Ordering::AcqRel) {
            tracing::warn!("no numbers can be minted; waiters of other gateways go first");
            self.look_at_all();
        }
    }

    /// Looks at everything at once.
    fn look_at_all(&self) {
        let now = self.runtime.clock.elapsed();
        self.slots.lock().lines.values_mut().for_each(|watched| watched.due = now);
        self.bell.notify_one();
    }

    /// How many locks are waited for here.
    pub(in crate::engine) fn waiters(&self) -> usize {
        self.slots.lock().by_lock.len()
    }

    /// The task that looks at what is due, and beats the heart.
    async fn attend(self: Arc<Self>, closing: CancellationToken) {
        let clock = Arc::clone(&self.runtime.clock);
        loop {
            let pause = self.next_due().map(|due| due.saturating_sub(clock.elapsed()));
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                () = clock.sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => {}
                () = self.bell.notified() => {}
            }
            let due = self.take_due();
            if due.is_empty() && self.next_due().is_none() {
                continue;
            }
            if !self.able.load(Ordering::Acquire) {
                let probe = self.runtime.within(PROBE, self.mint.incarnation()).await;
                self.able.store(matches!(probe, Some(Ok(_))), Ordering::Release);
            }
            // Without anything due it is the heartbeat alone.
            for names in due.chunks(CALL_MAX).chain(due.is_empty().then_some(&[][..])) {
                let able = self.able.load(Ordering::Acquire);
                match self.call(Some(able), names).await {
                    Ok(()) => drop(self.beaten.send_replace(Some(clock.elapsed()))),
                    Err(error) => tracing::warn!(%error, "the queue could not be looked at"),
                }
            }
            self.reconcile().await;
        }
    }

    /// When to do something next; `None` if nobody waits and no place is kept.
    fn next_due(&self) -> Option<Duration> {
        let now = self.runtime.clock.elapsed();
        let slots = self.slots.lock();
        let lingers = (slots.lingers > now).then(|| now + POLL);
        slots.lines.values().map(|watched| watched.due).min().or(lingers)
    }

    /// What is due now; due again after a poll unless something is known to happen earlier.
    fn take_due(&self) -> Vec<ResourceName> {
        let now = self.runtime.clock.elapsed();
        let mut slots = self.slots.lock();
        let due = slots.lines.iter_mut().filter(|(_, watched)| watched.due <= now);
        due.map(|(name, watched)| {
            watched.due = now + POLL;
            name.clone()
        })
        .collect()
    }

    /// Holds those who wait here against those in line. Whoever is not in line, because this gateway was
    /// silent for too long or somebody else removed it, is told to join again. Whoever is in line but
    /// does not wait here gives its place up in time.
    async fn reconcile(&self) {
        let now = self.runtime.clock.elapsed();
        {
            let mut slots = self.slots.lock();
            if slots.reconcile_at > now {
                return;
            }
            slots.reconcile_at = now + RECONCILE_EVERY;
        }
        let in_line: BTreeSet<LockId> = match self.ledger.roll_call(self.gateway).await {
            Ok(in_line) => in_line.into_iter().collect(),
            Err(error) => return tracing::debug!(%error, "the line could not be reconciled"),
        };
        let gone: Vec<LockId> = {
            let slots = self.slots.lock();
            let lost = slots.by_lock.iter().filter(|(lock, _)| !in_line.contains(lock));
            for notifier in lost.flat_map(|(_, notifiers)| notifiers) {
                if notifier.has_joined.load(Ordering::Acquire) {
                    notifier.is_lost.store(true, Ordering::Release);
                    notifier.called.notify_one();
                }
            }
            in_line.into_iter().filter(|lock| !slots.by_lock.contains_key(lock)).collect()
        };
        if !gone.is_empty()
            && let Err(error) = self.ledger.keep_places(self.gateway, &gone).await
        {
            tracing::debug!(%error, "places of callers that are gone stay for now");
        }
    }

    /// Calls the next in line for each resource: those who wait here, directly.
    async fn call(&self, able: Option<bool>, names: &[ResourceName]) -> Result<(), LedgerError> {
        let calls = self.ledger.call_next(self.gateway, able, names).await?;
        let now = self.runtime.clock.elapsed();
        for call in calls {
            if call.gateway == self.gateway
                && let Some(lock) = call.called
            {
                self.poke(lock);
            }
            let mut slots = self.slots.lock();
            if let (Some(watched), Some(ms)) = (slots.lines.get_mut(&call.resource), call.next_ms) {
                let pause = Duration::from_millis(ms.unsigned_abs() + 1).max(PAUSE_MIN);
                watched.due = watched.due.min(now + pause);
            }
            drop(slots);
        }
        // What was brought forward may be earlier than what the task sleeps for.
        if able.is_none() {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Wakes this waiter: it is its turn, or its wait is over. If no caller waits for it here, the reconciliation
    /// takes care of it.
    pub(super) fn poke(&self, lock: LockId) {
        for notifier in self.slots.lock().by_lock.get(&lock).into_iter().flatten() {
            notifier.called.notify_one();
        }
    }

    /// The callers of these waiters are gone, but may come back for their places, here or elsewhere.
    /// Nothing for those who are back already.
    pub(super) async fn keep_places(&self, mut locks: Vec<LockId>) -> Result<(), LedgerError> {
        let now = self.runtime.clock.elapsed();
        {
            let mut slots = self.slots.lock();
            slots.lingers = now + LINGER;
            locks.retain(|lock| !slots.by_lock.contains_key(lock));
        }
        self.bell.notify_one();
        match locks.is_empty() {
            true => Ok(()),
            false => self.ledger.keep_places(self.gateway, &locks).await,
        }
    }

    /// The task that hears what other gateways call.
    async fn listen(self: Arc<Self>, closing: CancellationToken) {
        if closing.run_until_cancelled(self.opened.notified()).await.is_none() {
            return;
        }
        loop {
            let heard = async {
                let mut listener = self.ledger.listen(self.gateway).await?;
                // What was said before is lost.
                self.look_at_all();
                loop {
                    self.poke(listener.heard().await?);
                }
            };
            let heard: Result<(), LedgerError> = tokio::select! {
                biased;
                () = closing.cancelled() => return,
                heard = heard => heard,
            };
            if let Err(error) = heard {
                tracing::debug!(%error, "not listening; the poll takes over");
            }
            if closing.run_until_cancelled(self.runtime.clock.sleep(LISTEN_AGAIN)).await.is_none() {
                return;
            }
        }
    }
}
