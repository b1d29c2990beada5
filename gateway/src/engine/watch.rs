//! The watch hub: one task per gateway reads all locks that somebody watches, and tells each watcher
//! what changed.
//!
//! It polls, about every 400 ms and only while somebody watches: that reaches every gateway, whatever
//! was done through whichever other one and whatever connections were cut in between. What this very
//! gateway does to a watched lock pokes the hub, which then reads that lock at once. While the ledger
//! does not answer watchers hear nothing, and the hub goes on trying.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::{Grant, Ledger, LedgerError, LockRecord, Runtime};
use fence_core::{LockId, LockState, ResourceName};
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::agreement::Agreement;
use super::error::EngineError;

/// The most watchers of one gateway; more are turned away.
pub const WATCHERS_MAX: usize = 10_000;
/// How often every watched lock is read.
const INTERVAL: Duration = Duration::from_millis(400);
/// How long to wait after a read that failed.
const PAUSE: Duration = Duration::from_millis(150);
/// Locks in one query.
const BATCH_MAX: usize = 500;
/// How far beyond the time at which something is due a watcher looks: clocks are not that fine.
const MARGIN: Duration = Duration::from_millis(10);
/// How soon a watcher looks again for something that is due and has not come.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a watcher sees: `None` until the first read, or if the ledger does not know the lock.
type Sight = Option<Arc<LockRecord>>;

/// The hub; cheap to clone.
#[derive(Clone)]
pub(super) struct Watches {
    hub: Arc<Hub>,
}

struct Hub {
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    agreement: Arc<Agreement>,
    closing: CancellationToken,
    poked: Notify,
    /// The number of watched locks, so that an act that concerns nobody costs nothing.
    watched: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watchers: usize,
    locks: BTreeMap<LockId, Watched>,
    /// Which watched locks are on a resource.
    on: BTreeMap<ResourceName, BTreeSet<LockId>>,
    /// To be read at once.
    urgent: BTreeSet<LockId>,
    running: bool,
}

struct Watched {
    watchers: usize,
    changes: watch::Sender<Sight>,
    /// Watchers that wait for a read that began after they came.
    newcomers: Vec<oneshot::Sender<Sight>>,
    resources: Vec<ResourceName>,
}

/// What to read in one go.
struct Pass {
    ids: Vec<LockId>,
    newcomers: BTreeMap<LockId, Vec<oneshot::Sender<Sight>>>,
}

impl Watches {
    pub(super) fn new(
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        agreement: Arc<Agreement>,
        closing: CancellationToken,
    ) -> Self {
        let hub = Hub {
            ledger,
            runtime: runtime.clone(),
            agreement,
            closing,
            poked: Notify::new(),
            watched: AtomicUsize::new(0),
            state: Mutex::default(),
        };
        Self { hub: Arc::new(hub) }
    }

    /// How many watch a lock.
    pub(super) fn watchers(&self) -> usize {
        self.hub.state().watchers
    }

    /// Begins to watch a lock, and resolves once it was read: to `None` if it is unknown.
    pub(super) fn watch(
        &self,
        id: LockId,
    ) -> Result<impl Future<Output = Option<Watcher>> + use<>, EngineError> {
        let (first, sight) = oneshot::channel();
        let mut state = self.hub.state();
        if state.watchers >= WATCHERS_MAX {
            return Err(EngineError::Overloaded("watches"));
        }
        state.watchers += 1;
        let watched = state.locks.entry(id).or_insert_with(Watched::new);
        watched.watchers += 1;
        watched.newcomers.push(first);
        let changes = watched.changes.subscribe();
        self.hub.watched.store(state.locks.len(), Ordering::Release);
        state.urgent.insert(id);
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        let place = Place { hub: Arc::clone(&self.hub), id };
        if start {
            let hub = Arc::clone(&self.hub);
            self.hub.runtime.spawn.spawn_lasting("watch", Box::pin(hub.run()));
        }
        self.hub.poked.notify_one();
        Ok(async move {
            let record = sight.await.ok().flatten()?;
            Some(Watcher { read: place.hub.runtime.clock.elapsed(), place, changes, record })
        })
    }

    /// This gateway has done something to this lock.
    pub(super) fn poke(&self, id: LockId) {
        self.hub.poke(|state| if state.locks.contains_key(&id) { vec![id] } else { Vec::new() });
    }

    /// This gateway has done something to whoever held these resources.
    pub(super) fn poke_holders(&self, resources: &[ResourceName]) {
        self.hub.poke(|state| {
            let held = resources.iter().filter_map(|resource| state.on.get(resource));
            held.flatten().copied().collect()
        });
    }
}

impl Watched {
    fn new() -> Self {
        Self {
            watchers: 0,
            changes: watch::Sender::new(None),
            newcomers: Vec::new(),
            resources: Vec::new(),
        }
    }
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poke(&self, concerned: impl FnOnce(&State) -> Vec<LockId>) {
        if self.watched.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state();
        let ids = concerned(&state);
        if !ids.is_empty() {
            state.urgent.extend(ids);
            drop(state);
            self.poked.notify_one();
        }
    }

    /// The task: reads everything now and then, and what is urgent at once. Ends when nobody watches.
    async fn run(self: Arc<Self>) {
        let clock = Arc::clone(&self.runtime.clock);
        let mut next = clock.elapsed();
        loop {
            let everything = clock.elapsed() >= next;
            if everything {
                next = clock.elapsed() + INTERVAL;
            }
            let Some(pass) = self.pass(everything) else { return };
            if let Err(error) = self.read(pass).await {
                tracing::debug!(%error, "watched locks could not be read; trying again");
                next = clock.elapsed() + PAUSE;
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = clock.sleep(next.saturating_sub(clock.elapsed())) => {}
                () = self.poked.notified() => {}
            }
        }
    }

    /// What is to be read now; `None` if nobody watches any more, and then the task is over.
    fn pass(&self, everything: bool) -> Option<Pass> {
        let mut state = self.state();
        let state = &mut *state;
        if state.locks.is_empty() {
            state.running = false;
            return None;
        }
        let urgent = std::mem::take(&mut state.urgent);
        let ids: Vec<LockId> = match everything {
            true => state.locks.keys().copied().collect(),
            false => urgent.into_iter().filter(|id| state.locks.contains_key(id)).collect(),
        };
        let mut newcomers = BTreeMap::new();
        for id in &ids {
            if let Some(watched) = state.locks.get_mut(id)
                && !watched.newcomers.is_empty()
            {
                newcomers.insert(*id, std::mem::take(&mut watched.newcomers));
            }
        }
        Some(Pass { ids, newcomers })
    }

    async fn read(&self, mut pass: Pass) -> Result<(), LedgerError> {
        let mut due = Vec::new();
        for ids in pass.ids.chunks(BATCH_MAX) {
            match self.ledger.locks(ids).await {
                Ok(records) => {
                    for (id, record) in ids.iter().zip(records) {
                        due.extend(record.as_ref().filter(|one| is_due_to_break(one)).map(|_| *id));
                        let newcomers = pass.newcomers.remove(id).unwrap_or_default();
                        self.show(*id, record.map(Arc::new), newcomers);
                    }
                }
                Err(error) => {
                    self.put_back(pass.newcomers);
                    return Err(error);
                }
            }
        }
        // A break shows only once it is stored, and nobody else may come by soon to store it.
        if !due.is_empty() {
            self.ledger.sweep(&self.agreement.retention()).await?;
        }
        for ids in due.chunks(BATCH_MAX) {
            for (id, record) in ids.iter().zip(self.ledger.locks(ids).await?) {
                self.show(*id, record.map(Arc::new), Vec::new());
            }
        }
        Ok(())
    }

    /// Tells the watchers of a lock what was read, if it is news to them.
    fn show(&self, id: LockId, sight: Sight, newcomers: Vec<oneshot::Sender<Sight>>) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(watched) = state.locks.get_mut(&id) else { return };
        if let Some(record) = &sight
            && watched.resources.is_empty()
        {
            watched.resources.clone_from(&record.grant.resources);
            for resource in &watched.resources {
                state.on.entry(resource.clone()).or_default().insert(id);
            }
        }
        for newcomer in newcomers {
            let _ = newcomer.send(sight.clone());
        }
        watched.changes.send_if_modified(|last| {
            let news = last.as_deref().map(face) != sight.as_deref().map(face);
            if news {
                *last = sight;
            }
            news
        });
    }

    fn put_back(&self, newcomers: BTreeMap<LockId, Vec<oneshot::Sender<Sight>>>) {
        let mut state = self.state();
        for (id, waiting) in newcomers {
            if let Some(watched) = state.locks.get_mut(&id) {
                watched.newcomers.extend(waiting);
            }
        }
    }
}

/// What a watcher is told about: when any of it changes.
fn face(record: &LockRecord) -> impl PartialEq + '_ {
    let ended = record.ended.map(|(how, _)| how);
    let due = record.break_due.map(|due| due.at);
    let Grant { state, ttl, .. } = &record.grant;
    (ended, *state, *ttl, record.renewed_at, due, record.is_late(), &record.frozen)
}

fn is_due_to_break(record: &LockRecord) -> bool {
    record.ended.is_none() && record.break_due.is_some_and(|due| due.in_ms <= 0)
}

/// A watcher's place at the hub, given up when this is dropped.
struct Place {
    hub: Arc<Hub>,
    id: LockId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        let state = &mut *state;
        state.watchers -= 1;
        let Some(watched) = state.locks.get_mut(&self.id) else { return };
        watched.watchers -= 1;
        if watched.watchers > 0 {
            return;
        }
        for resource in std::mem::take(&mut watched.resources) {
            if let Some(locks) = state.on.get_mut(&resource) {
                locks.remove(&self.id);
                if locks.is_empty() {
                    state.on.remove(&resource);
                }
            }
        }
        state.locks.remove(&self.id);
        self.hub.watched.store(state.locks.len(), Ordering::Release);
    }
}

/// Watches one lock.
pub struct Watcher {
    place: Place,
    changes: watch::Receiver<Sight>,
    record: Arc<LockRecord>,
    /// When the record was received, on the clock of this process.
    read: Duration,
}

impl Watcher {
    /// The lock as it was last seen.
    pub fn record(&self) -> &LockRecord {
        &self.record
    }

    /// Waits until the lock changes: its state, its break, its end, a renewal, that two thirds of its ttl
    /// have gone, or that one of its resources is frozen or not any more. `None` if the ledger does not know it any more. May be dropped at any await.
    pub async fn changed(&mut self) -> Option<&LockRecord> {
        loop {
            let due = self.due();
            tokio::select! {
                biased;
                changed = self.changes.changed() => {
                    // The sender lives as long as our place.
                    changed.ok()?;
                    let hub = &self.place.hub;
                    self.read = hub.runtime.clock.elapsed();
                    self.record = self.changes.borrow_and_update().clone()?;
                    return Some(&self.record);
                }
                () = due => {
                    // Not told from here: it may have been renewed through another gateway.
                    let id = self.place.id;
                    self.place.hub.poke(|_| vec![id]);
                }
            }
        }
    }

    /// Waits for the next time at which the lock changes by itself.
    fn due(&self) -> impl Future<Output = ()> + use<> {
        let clock = Arc::clone(&self.place.hub.runtime.clock);
        let since = clock.elapsed().saturating_sub(self.read);
        let wait = self.next_change_ms().map(|next_ms| {
            let left_ms = next_ms - i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            match u64::try_from(left_ms) {
                Ok(left_ms) => Duration::from_millis(left_ms) + MARGIN,
                // It was looked for when it was due.
                Err(_) => LOOK_AGAIN,
            }
        });
        async move {
            match wait {
                Some(wait) => clock.sleep(wait).await,
                None => std::future::pending().await,
            }
        }
    }

    /// In how long from the last sight the lock changes by itself, if it does.
    fn next_change_ms(&self) -> Option<i64> {
        let grant = &self.record.grant;
        if self.record.ended.is_some() {
            return None;
        }
        let late =
            (!self.record.is_late()).then(|| grant.remaining_ms - self.record.last_third_ms());
        let expired = (grant.state != LockState::Expired).then_some(grant.remaining_ms);
        let broken = self.record.break_due.map(|due| due.in_ms);
        [late, expired, broken].into_iter().flatten().min()
    }
}
