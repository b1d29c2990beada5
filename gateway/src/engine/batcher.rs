//! Group commit: callers queue, and whatever gathered while the last batch was in flight is the next
//! batch. No timer, so a lone caller waits for nothing.
//!
//! What happens to an item, whatever happens to its batch:
//! 1. Not sent yet when its caller's time is up: taken back, definitely not applied.
//! 2. Its batch was rolled back: sent again as it was, until the caller's time is up.
//! 3. The answer to its batch was lost: sent again as a rerun until the ledger decides, also when
//!    the caller has long been told that the outcome is unknown.
//! 4. Its row is locked by somebody else: it moves to a lane of its own, where items go one by one
//!    and wait for the row; later items of that lane queue behind it. Others go on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{LedgerError, Patience, Runtime};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// What a batcher does with its batches.
#[async_trait]
pub(super) trait Act: Send + Sync + 'static {
    /// What callers hand in.
    type Item: Clone + Send + Sync + 'static;
    /// What they get.
    type Verdict: Send + 'static;

    /// For logs and metrics.
    const NAME: &'static str;
    /// Whether items of one lane must not be in one batch.
    const DISTINCT: bool = false;

    /// What keeps items in order among themselves: their resource, or their lock.
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;

    /// The lane that an item moves to when its row is locked by somebody else.
    fn lane(item: &Self::Item) -> Self::Lane;

    /// Its share of a batch's size in bytes.
    fn bytes(_item: &Self::Item) -> usize {
        0
    }

    /// Runs a batch: one verdict per item, in order.
    async fn run(
        &self,
        items: Arc<[Self::Item]>,
        patience: Patience,
    ) -> Result<Vec<Self::Verdict>, LedgerError>;

    /// Whether nothing was decided because the row is locked by somebody else.
    fn is_busy(_verdict: &Self::Verdict) -> bool {
        false
    }

    /// Prepares an item to be sent again after its answer was lost. `wanted` says whether its
    /// caller is still waiting.
    fn rerun(_item: &mut Self::Item, _wanted: bool) {}

    /// Whether no earlier sending of the item may still take effect.
    fn is_first(_item: &Self::Item) -> bool {
        true
    }

    /// Takes a verdict whose caller has gone.
    fn undelivered(&self, _item: Self::Item, _verdict: Self::Verdict) {}
}

/// Why a caller got no verdict.
#[derive(Debug)]
pub(super) enum Failure {
    /// The queue is full; nothing was sent.
    Full,
    /// The gateway is shutting down; nothing was sent.
    Closed,
    /// Definitely not applied.
    NotApplied(LedgerError),
    /// Its row stayed locked by somebody else; definitely not applied.
    Busy,
    /// It may have been applied or not.
    Unknown,
}

/// Limits of a batcher.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// Items that may wait.
    pub queue_max: usize,
    /// Items in a batch.
    pub batch_max: usize,
    /// Bytes in a batch.
    pub batch_bytes_max: usize,
    /// How long a caller waits.
    pub timeout: Duration,
}

/// How long one statement on a lane waits for its row.
const LANE_WAIT: Duration = Duration::from_millis(500);

/// Not in any statement that could take effect: the caller may take it back.
const QUEUED: u8 = 0;
/// In a statement, or was, with an unknown outcome.
const SENT: u8 = 1;
/// Queued again because its row was locked.
const WAITING: u8 = 2;
/// Taken back by the caller.
const TAKEN_BACK: u8 = 3;

struct Entry<A: Act> {
    item: A::Item,
    state: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<A::Verdict, Failure>>,
}

impl<A: Act> Entry<A> {
    /// Marks the entry as sent, unless its caller has taken it back.
    fn send(&self) -> bool {
        let claimed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state != TAKEN_BACK).then_some(SENT)
        });
        claimed.is_ok()
    }

    /// Marks the entry as definitely not applied, so that its caller may take it back.
    fn unsend(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }

    fn deliver(self, act: &A, verdict: A::Verdict) {
        if let Err(Ok(verdict)) = self.answer.send(Ok(verdict)) {
            act.undelivered(self.item, verdict);
        }
    }
}

type Lanes<A> = HashMap<<A as Act>::Lane, VecDeque<Entry<A>>>;

struct Shared<A: Act> {
    act: A,
    runtime: Runtime,
    limits: Limits,
    lanes: Mutex<Lanes<A>>,
    /// How many lanes may use the ledger at once.
    lane_permits: Arc<Semaphore>,
}

/// A queue and the task that empties it.
pub(super) struct Batcher<A: Act> {
    queue: mpsc::Sender<Entry<A>>,
    runtime: Runtime,
    timeout: Duration,
}

impl<A: Act> Batcher<A> {
    /// Starts the task. It ends when `closing` is cancelled and the queue is empty.
    pub(super) fn start(
        act: A,
        runtime: &Runtime,
        limits: Limits,
        lane_permits: Arc<Semaphore>,
        closing: CancellationToken,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(limits.queue_max);
        let timeout = limits.timeout;
        let shared = Arc::new(Shared {
            act,
            runtime: runtime.clone(),
            limits,
            lanes: Mutex::default(),
            lane_permits,
        });
        runtime.spawn.spawn(A::NAME, Box::pin(empty(shared, waiting, closing)));
        Self { queue, runtime: runtime.clone(), timeout }
    }

    /// Hands in an item and waits for its verdict. May be dropped at any await: the item goes its
    /// way regardless.
    pub(super) async fn submit(&self, item: A::Item) -> Result<A::Verdict, Failure> {
        let state = Arc::new(AtomicU8::new(QUEUED));
        let (answer, verdict) = oneshot::channel();
        let entry = Entry { item, state: Arc::clone(&state), answer };
        self.queue.try_send(entry).map_err(|refused| match refused {
            TrySendError::Full(_) => Failure::Full,
            TrySendError::Closed(_) => Failure::Closed,
        })?;
        match self.runtime.within(self.timeout, verdict).await {
            Some(Ok(verdict)) => verdict,
            // The task has ended without an answer: it was shut down.
            Some(Err(_)) => Err(Failure::Unknown),
            None => Err(take_back(&state)),
        }
    }
}

/// The caller's time is up: is the item still ours to take back?
fn take_back(state: &AtomicU8) -> Failure {
    let taken = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        (state != SENT).then_some(TAKEN_BACK)
    });
    match taken {
        Ok(WAITING) => Failure::Busy,
        Ok(_) => Failure::NotApplied(LedgerError::Unavailable("no answer in time".into())),
        Err(_) => Failure::Unknown,
    }
}

/// The task: forms batches and runs them, one at a time.
async fn empty<A: Act>(
    shared: Arc<Shared<A>>,
    mut waiting: mpsc::Receiver<Entry<A>>,
    closing: CancellationToken,
) {
    let mut held_back = VecDeque::new();
    loop {
        if held_back.is_empty() {
            let next = tokio::select! {
                biased;
                entry = waiting.recv() => entry,
                () = closing.cancelled() => {
                    waiting.close();
                    waiting.recv().await
                }
            };
            match next {
                Some(entry) => held_back.push_back(entry),
                None => return,
            }
        }
        let batch = gather(&shared, &mut held_back, &mut waiting);
        resolve(&shared, batch, Patience::Skip).await;
    }
}

/// Takes what has gathered, up to the limits. An item whose resource has lane work joins the lane;
/// one whose resource must not appear twice is held back, and so are those behind it on the same
/// resource, which keeps their order.
fn gather<A: Act>(
    shared: &Arc<Shared<A>>,
    held_back: &mut VecDeque<Entry<A>>,
    waiting: &mut mpsc::Receiver<Entry<A>>,
) -> Vec<Entry<A>> {
    let mut batch: Vec<Entry<A>> = Vec::new();
    let mut bytes = 0;
    let mut seen = HashSet::new();
    let mut later = VecDeque::new();
    while batch.len() < shared.limits.batch_max && bytes < shared.limits.batch_bytes_max {
        let Some(entry) = held_back.pop_front().or_else(|| waiting.try_recv().ok()) else { break };
        let Some(entry) = join_lane(shared, entry) else { continue };
        if A::DISTINCT && !seen.insert(A::lane(&entry.item)) {
            later.push_back(entry);
            if later.len() >= shared.limits.batch_max {
                break;
            }
            continue;
        }
        bytes += A::bytes(&entry.item);
        batch.push(entry);
    }
    later.append(held_back);
    *held_back = later;
    batch
}

/// Sends a batch until each of its items has a verdict, has moved to a lane, or was taken back.
async fn resolve<A: Act>(shared: &Arc<Shared<A>>, mut batch: Vec<Entry<A>>, patience: Patience) {
    let mut pause = Duration::from_millis(5);
    loop {
        batch.retain(Entry::send);
        if batch.is_empty() {
            return;
        }
        let items: Arc<[A::Item]> = batch.iter().map(|entry| entry.item.clone()).collect();
        metrics::histogram!(super::metrics::BATCH_ITEMS, "act" => A::NAME)
            .record(items.len() as f64);
        let span = tracing::debug_span!("act", name = A::NAME, items = items.len());
        match shared.act.run(items, patience).instrument(span).await {
            Ok(verdicts) => {
                batch = deliver(shared, batch, verdicts, patience);
                if batch.is_empty() {
                    return;
                }
                continue;
            }
            Err(LedgerError::Unknown(why)) => {
                tracing::warn!(
                    act = A::NAME,
                    items = batch.len(),
                    why,
                    "an answer was lost; asking again"
                );
                for entry in &mut batch {
                    A::rerun(&mut entry.item, !entry.answer.is_closed());
                }
            }
            Err(LedgerError::Unavailable(why)) => {
                tracing::warn!(
                    act = A::NAME,
                    items = batch.len(),
                    why,
                    "rolled back; sending again"
                );
                // Items that went out before with an unknown outcome stay unknown.
                batch.retain(|entry| !(A::is_first(&entry.item) && entry.answer.is_closed()));
                for entry in batch.iter().filter(|entry| A::is_first(&entry.item)) {
                    entry.unsend(QUEUED);
                }
            }
            Err(LedgerError::Defect(why)) if batch.len() > 1 => {
                // One item that the ledger cannot take must not fail those beside it.
                tracing::warn!(act = A::NAME, items = batch.len(), why, "sending one by one");
                for entry in batch {
                    Box::pin(resolve(shared, vec![entry], patience)).await;
                }
                return;
            }
            Err(error) => return give_up(batch, &error),
        }
        shared.runtime.clock.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Hands out verdicts. Returns the items whose row is locked and which are on a lane already.
fn deliver<A: Act>(
    shared: &Arc<Shared<A>>,
    batch: Vec<Entry<A>>,
    verdicts: Vec<A::Verdict>,
    patience: Patience,
) -> Vec<Entry<A>> {
    let mut again = Vec::new();
    for (entry, verdict) in batch.into_iter().zip(verdicts) {
        if !A::is_busy(&verdict) {
            entry.deliver(&shared.act, verdict);
            continue;
        }
        if A::is_first(&entry.item) {
            if entry.answer.is_closed() {
                // Nothing was decided and nobody waits: it will never be sent again.
                continue;
            }
            entry.unsend(WAITING);
        }
        match patience {
            Patience::Skip => open_lane(shared, entry),
            Patience::Wait(_) => again.push(entry),
        }
    }
    again
}

/// The ledger will not decide: those never sent before were not applied, of the others nothing is
/// known.
fn give_up<A: Act>(batch: Vec<Entry<A>>, error: &LedgerError) {
    tracing::error!(act = A::NAME, items = batch.len(), %error, "the ledger cannot decide");
    for entry in batch {
        let failure = if A::is_first(&entry.item) {
            Failure::NotApplied(error.clone())
        } else {
            Failure::Unknown
        };
        let _ = entry.answer.send(Err(failure));
    }
}

fn lanes<A: Act>(shared: &Shared<A>) -> MutexGuard<'_, Lanes<A>> {
    shared.lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts an entry behind the work of its lane, if there is any.
fn join_lane<A: Act>(shared: &Arc<Shared<A>>, entry: Entry<A>) -> Option<Entry<A>> {
    match lanes(shared).get_mut(&A::lane(&entry.item)) {
        Some(lane) => {
            lane.push_back(entry);
            None
        }
        None => Some(entry),
    }
}

/// Opens a lane for the entry, or puts it on the one there is.
fn open_lane<A: Act>(shared: &Arc<Shared<A>>, entry: Entry<A>) {
    let lane = A::lane(&entry.item);
    let Some(entry) = join_lane(shared, entry) else { return };
    lanes(shared).insert(lane.clone(), VecDeque::from([entry]));
    let task = drive_lane(Arc::clone(shared), lane);
    shared.runtime.spawn.spawn("lane", Box::pin(task));
}

/// Works off a lane, one item at a time, each waiting for the row.
async fn drive_lane<A: Act>(shared: Arc<Shared<A>>, lane: A::Lane) {
    loop {
        let next = {
            let mut lanes = lanes(&shared);
            let next = lanes.get_mut(&lane).and_then(VecDeque::pop_front);
            if next.is_none() {
                lanes.remove(&lane);
            }
            next
        };
        let Some(entry) = next else { return };
        let permit = shared.lane_permits.acquire().await;
        let patience = Patience::Wait(LANE_WAIT);
        resolve(&shared, vec![entry], patience).await;
        drop(permit);
    }
}
