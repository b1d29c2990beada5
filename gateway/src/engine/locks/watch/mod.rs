//! Watch hubs, one for locks and one for resources: a task reads all that somebody watches, and tells each watcher
//! what changed.
//!
//! It polls, about every 400 ms and only while somebody watches. So every gateway notices a change, whichever
//! gateway made it and whatever connections were cut. When this very gateway changes something that is watched, it
//! pokes the hub, which then reads that at once. While the ledger does not answer, watchers hear nothing, and the
//! hub goes on trying.

mod subjects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{Ledger, LedgerError, Runtime};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::agreement::Agreement;
use crate::engine::{Base, EngineError};
pub use subjects::{OneLock, OneResource, Subject};

/// The most watchers of one hub; more are turned away.
pub const WATCHERS_MAX: usize = 10_000;
/// How often all that is watched is read.
const INTERVAL: Duration = Duration::from_millis(400);
/// How long to wait after a read that failed.
const PAUSE: Duration = Duration::from_millis(150);
/// Keys in one query.
const BATCH_MAX: usize = 500;
/// How far beyond the time at which something is due a watcher looks: clocks are not that fine.
const MARGIN: Duration = Duration::from_millis(10);
/// How soon a watcher looks again for something that is due and has not come.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a watcher sees: `None` until the first read, or if the ledger does not know it.
type Sight<S> = Option<Arc<<S as Subject>::Record>>;

/// The hub.
pub(super) struct Watches<S: Subject> {
    hub: Arc<Hub<S>>,
}

struct Hub<S: Subject> {
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    agreement: Arc<Agreement>,
    closing: CancellationToken,
    poked: Notify,
    /// How much is watched, so that an act that concerns nobody costs nothing.
    watched: AtomicUsize,
    state: Mutex<Watching<S>>,
}

struct Watching<S: Subject> {
    watchers: usize,
    watched: BTreeMap<S::Key, Watched<S>>,
    /// What is watched on a resource.
    on: BTreeMap<ResourceName, BTreeSet<S::Key>>,
    /// To be read at once.
    urgent: BTreeSet<S::Key>,
    running: bool,
}

struct Watched<S: Subject> {
    watchers: usize,
    changes: watch::Sender<Sight<S>>,
    /// Watchers that wait for a read that began after they came.
    newcomers: Vec<oneshot::Sender<Sight<S>>>,
    resources: Vec<ResourceName>,
}

/// What to read in one go.
struct Pass<S: Subject> {
    keys: Vec<S::Key>,
    newcomers: BTreeMap<S::Key, Vec<oneshot::Sender<Sight<S>>>>,
}

impl<S: Subject> Watches<S> {
    pub(super) fn start(base: &Base, agreement: &Arc<Agreement>) -> Self {
        let hub = Hub {
            ledger: Arc::clone(&base.ledger),
            runtime: base.runtime.clone(),
            agreement: Arc::clone(agreement),
            closing: base.closing.clone(),
            poked: Notify::new(),
            watched: AtomicUsize::new(0),
            state: Mutex::new(Watching {
                watchers: 0,
                watched: BTreeMap::new(),
                on: BTreeMap::new(),
                urgent: BTreeSet::new(),
                running: false,
            }),
        };
        Self { hub: Arc::new(hub) }
    }

    /// How many watch.
    pub(super) fn watchers(&self) -> usize {
        self.hub.state.lock().watchers
    }

    /// Begins to watch, and resolves once it was read: to `None` if it is unknown.
    pub(super) fn watch(
        &self,
        key: S::Key,
    ) -> Result<impl Future<Output = Option<Watcher<S>>> + use<S>, EngineError> {
        let (first, sight) = oneshot::channel();
        let mut state = self.hub.state.lock();
        if state.watchers >= WATCHERS_MAX {
            return Err(EngineError::Overloaded("watches"));
        }
        state.watchers += 1;
        let watched = state.watched.entry(key.clone()).or_insert_with(Watched::new);
        watched.watchers += 1;
        watched.newcomers.push(first);
        let changes = watched.changes.subscribe();
        self.hub.watched.store(state.watched.len(), Ordering::Release);
        state.urgent.insert(key.clone());
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        let place = WatcherPlace { hub: Arc::clone(&self.hub), key };
        if start {
            let hub = Arc::clone(&self.hub);
            self.hub.runtime.spawn.spawn_lasting(S::TASK, Box::pin(hub.run()));
        }
        self.hub.poked.notify_one();
        Ok(async move {
            let record = sight.await.ok().flatten()?;
            Some(Watcher { read: place.hub.runtime.clock.elapsed(), place, changes, record })
        })
    }

    /// This gateway has done something to this.
    pub(super) fn poke(&self, key: &S::Key) {
        self.hub.poke_one(key);
    }

    /// This gateway has done something to these resources, or to whoever held them.
    pub(super) fn poke_on<'a>(&self, resources: impl IntoIterator<Item = &'a ResourceName>) {
        self.hub.poke(|state| {
            let on = resources.into_iter().filter_map(|resource| state.on.get(resource));
            on.flatten().cloned().collect()
        });
    }
}

impl<S: Subject> Watched<S> {
    fn new() -> Self {
        Self {
            watchers: 0,
            changes: watch::Sender::new(None),
            newcomers: Vec::new(),
            resources: Vec::new(),
        }
    }
}

impl<S: Subject> Hub<S> {
    fn poke(&self, concerned: impl FnOnce(&Watching<S>) -> Vec<S::Key>) {
        if self.watched.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let keys = concerned(&state);
        if !keys.is_empty() {
            state.urgent.extend(keys);
            drop(state);
            self.poked.notify_one();
        }
    }

    fn poke_one(&self, key: &S::Key) {
        self.poke(|state| {
            let known = state.watched.contains_key(key);
            if known { vec![key.clone()] } else { Vec::new() }
        });
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
                tracing::debug!(%error, task = S::TASK, "what is watched could not be read; trying again");
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
    fn pass(&self, everything: bool) -> Option<Pass<S>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.watched.is_empty() {
            state.running = false;
            return None;
        }
        let urgent = std::mem::take(&mut state.urgent);
        let keys: Vec<S::Key> = match everything {
            true => state.watched.keys().cloned().collect(),
            false => urgent.into_iter().filter(|key| state.watched.contains_key(key)).collect(),
        };
        let mut newcomers = BTreeMap::new();
        for key in &keys {
            if let Some(watched) = state.watched.get_mut(key)
                && !watched.newcomers.is_empty()
            {
                newcomers.insert(key.clone(), std::mem::take(&mut watched.newcomers));
            }
        }
        Some(Pass { keys, newcomers })
    }

    async fn read(&self, mut pass: Pass<S>) -> Result<(), LedgerError> {
        let mut due = Vec::new();
        for keys in pass.keys.chunks(BATCH_MAX) {
            match S::read(&*self.ledger, keys).await {
                Ok(records) => {
                    for (key, record) in keys.iter().zip(records) {
                        if record.as_ref().is_some_and(S::is_due_to_break) {
                            due.push(key.clone());
                        }
                        let newcomers = pass.newcomers.remove(key).unwrap_or_default();
                        self.show(key, record.map(Arc::new), newcomers);
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
        for keys in due.chunks(BATCH_MAX) {
            for (key, record) in keys.iter().zip(S::read(&*self.ledger, keys).await?) {
                self.show(key, record.map(Arc::new), Vec::new());
            }
        }
        Ok(())
    }

    /// Tells the watchers what was read, if it is news to them.
    fn show(&self, key: &S::Key, sight: Sight<S>, newcomers: Vec<oneshot::Sender<Sight<S>>>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(watched) = state.watched.get_mut(key) else { return };
        if let Some(record) = &sight
            && watched.resources.is_empty()
        {
            watched.resources = S::resources(record).to_vec();
            for resource in &watched.resources {
                state.on.entry(resource.clone()).or_default().insert(key.clone());
            }
        }
        for newcomer in newcomers {
            let _ = newcomer.send(sight.clone());
        }
        watched.changes.send_if_modified(|last| {
            let news = match (last.as_deref(), sight.as_deref()) {
                (Some(last), Some(sight)) => S::is_news(last, sight),
                (last, sight) => last.is_some() != sight.is_some(),
            };
            if news {
                *last = sight;
            }
            news
        });
    }

    fn put_back(&self, newcomers: BTreeMap<S::Key, Vec<oneshot::Sender<Sight<S>>>>) {
        let mut state = self.state.lock();
        for (key, waiting) in newcomers {
            if let Some(watched) = state.watched.get_mut(&key) {
                watched.newcomers.extend(waiting);
            }
        }
    }
}

/// A watcher's place at the hub, given up when this is dropped.
struct WatcherPlace<S: Subject> {
    hub: Arc<Hub<S>>,
    key: S::Key,
}

impl<S: Subject> Drop for WatcherPlace<S> {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        let state = &mut *state;
        state.watchers -= 1;
        let Some(watched) = state.watched.get_mut(&self.key) else { return };
        watched.watchers -= 1;
        if watched.watchers > 0 {
            return;
        }
        for resource in std::mem::take(&mut watched.resources) {
            if let Some(keys) = state.on.get_mut(&resource) {
                keys.remove(&self.key);
                if keys.is_empty() {
                    state.on.remove(&resource);
                }
            }
        }
        state.watched.remove(&self.key);
        self.hub.watched.store(state.watched.len(), Ordering::Release);
    }
}

/// Watches one lock, or one resource.
pub struct Watcher<S: Subject> {
    place: WatcherPlace<S>,
    changes: watch::Receiver<Sight<S>>,
    record: Arc<S::Record>,
    /// When the record was received, on the clock of this process.
    read: Duration,
}

impl<S: Subject> Watcher<S> {
    /// It as it was last seen.
    pub fn record(&self) -> &S::Record {
        &self.record
    }

    /// Waits until it changes, in what [`Subject::is_news`] says. `None` if the ledger does not know it any more.
    /// May be dropped at any await.
    pub async fn changed(&mut self) -> Option<&S::Record> {
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
                    self.place.hub.poke_one(&self.place.key);
                }
            }
        }
    }

    /// Waits for the next time at which it changes by itself.
    fn due(&self) -> impl Future<Output = ()> + use<S> {
        let clock = Arc::clone(&self.place.hub.runtime.clock);
        let since = clock.elapsed().saturating_sub(self.read);
        let wait = S::next_change_ms(&self.record).map(|next_ms| {
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
}
