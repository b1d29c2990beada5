//! Group commit: callers queue, and whatever gathered while the last batch was in flight is the next
//! batch. No timer, so a lone caller waits for nothing.
//!
//! What happens to an item, whatever happens to its batch:
//! 1. Not sent yet when its caller's time is up: taken back, definitely not applied.
//! 2. Its batch was rolled back: sent again as it was.
//! 3. Its row is locked by somebody else, its batch was rolled back again and again, or the answer to
//!    its batch was lost: it moves to a lane, where items go one by one, and later items of that lane
//!    queue behind it. Others go on, so that no item holds up those it has nothing to do with.
//! 4. Once an answer was lost, it is sent again as a rerun until the ledger decides, also when the
//!    caller has long been told that the outcome is unknown.

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
const LANE_WAIT: Duration = Duration::from_millis(250);
/// The first and the longest pause before something is sent again.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often a batch that was rolled back is sent again as it was.
const BATCH_TRIES: u32 = 3;

/// Not in any statement that could take effect: the caller may take it back.
const QUEUED: u8 = 0;
/// In a statement, or was, with an unknown outcome.
const SENT: u8 = 1;
/// Queued again because its row was locked.
const WAITING: u8 = 2;
/// Taken back by the caller.
const TAKEN_BACK: u8 = 3;
/// Its caller was told that the outcome is unknown; it must become known.
const OWED: u8 = 4;

struct Entry<A: Act> {
    item: A::Item,
    state: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<A::Verdict, Failure>>,
    /// Whether the answer to an earlier sending was lost. From then on nothing but the ledger's
    /// verdict makes its outcome known.
    lost: bool,
}

impl<A: Act> Entry<A> {
    /// Marks the entry as sent, unless its caller has taken it back. One whose outcome is owed is
    /// prepared to be found or buried, as if its answer had been lost.
    fn send(&mut self) -> bool {
        let claimed =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                TAKEN_BACK => None,
                OWED => Some(OWED),
                _ => Some(SENT),
            });
        if claimed == Ok(OWED) && !self.lost {
            self.lose();
        }
        claimed.is_ok()
    }

    /// The answer to this sending was lost.
    fn lose(&mut self) {
        self.lost = true;
        self.rerun();
    }

    /// After a sending that definitely had no effect: the caller may take the entry back, unless an
    /// earlier sending is still unaccounted for.
    fn unsend(&self, state: u8) {
        if !self.lost {
            let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now != OWED).then_some(state)
            });
        }
    }

    /// After a sending whose answer was lost, or that came to nothing since.
    fn rerun(&mut self) {
        A::rerun(&mut self.item, !self.answer.is_closed());
    }

    /// Nobody waits for it and nothing of it is under way: there is no reason to send it.
    fn is_moot(&self) -> bool {
        !self.lost && self.answer.is_closed() && self.state.load(Ordering::Acquire) != OWED
    }

    /// The ledger will not decide.
    fn give_up(self, error: &LedgerError) {
        let unknown = self.lost || matches!(error, LedgerError::Unreadable(_));
        let failure = match unknown {
            true => Failure::Unknown,
            false => Failure::NotApplied(error.clone()),
        };
        let _ = self.answer.send(Err(failure));
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
        let entry = Entry { item, state: Arc::clone(&state), answer, lost: false };
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
    let was = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        Some(if state == SENT { OWED } else { TAKEN_BACK })
    });
    match was {
        Ok(SENT) | Err(_) => Failure::Unknown,
        Ok(WAITING) => Failure::Busy,
        Ok(_) => Failure::NotApplied(LedgerError::Unavailable("no answer in time".into())),
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
        send_batch(&shared, batch).await;
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

/// Sends a batch. Whatever cannot be decided at once moves to lanes.
async fn send_batch<A: Act>(shared: &Arc<Shared<A>>, mut batch: Vec<Entry<A>>) {
    let mut pause = PAUSE_MIN;
    for _ in 0..BATCH_TRIES {
        batch.retain_mut(Entry::send);
        if batch.is_empty() {
            return;
        }
        match run(shared, &batch, Patience::Skip).await {
            Ok(verdicts) => return deliver(shared, batch, verdicts),
            Err(LedgerError::Unavailable(why)) => {
                tracing::warn!(act = A::NAME, items = batch.len(), why, "rolled back");
                batch.iter().for_each(|entry| entry.unsend(QUEUED));
            }
            Err(LedgerError::Unknown(why)) => {
                tracing::warn!(act = A::NAME, items = batch.len(), why, "an answer was lost");
                batch.iter_mut().for_each(Entry::lose);
                break;
            }
            Err(LedgerError::Defect(why)) if batch.len() > 1 => {
                // One item that the ledger cannot take must not fail those beside it.
                tracing::warn!(act = A::NAME, items = batch.len(), why, "sending one by one");
                batch.iter().for_each(|entry| entry.unsend(QUEUED));
                break;
            }
            Err(error) => {
                tracing::error!(act = A::NAME, items = batch.len(), %error, "not decided");
                return batch.into_iter().for_each(|entry| entry.give_up(&error));
            }
        }
        shared.runtime.clock.sleep(pause).await;
        pause *= 2;
    }
    batch.into_iter().for_each(|entry| open_lane(shared, entry));
}

/// Runs the act once.
async fn run<A: Act>(
    shared: &Shared<A>,
    batch: &[Entry<A>],
    patience: Patience,
) -> Result<Vec<A::Verdict>, LedgerError> {
    let items: Arc<[A::Item]> = batch.iter().map(|entry| entry.item.clone()).collect();
    let count = items.len();
    metrics::histogram!(super::metrics::BATCH_ITEMS, "act" => A::NAME).record(count as f64);
    let span = tracing::debug_span!("act", name = A::NAME, items = count);
    shared.act.run(items, patience).instrument(span).await
}

/// Hands out verdicts; items whose row is locked by somebody else move to lanes.
fn deliver<A: Act>(shared: &Arc<Shared<A>>, batch: Vec<Entry<A>>, verdicts: Vec<A::Verdict>) {
    for (entry, verdict) in batch.into_iter().zip(verdicts) {
        if A::is_busy(&verdict) {
            entry.unsend(WAITING);
            open_lane(shared, entry);
        } else {
            let _ = entry.answer.send(Ok(verdict));
        }
    }
}

fn lanes<A: Act>(shared: &Shared<A>) -> MutexGuard<'_, Lanes<A>> {
    shared.lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts an entry behind the work of its lane, if there is any. All lanes together hold as much as
/// the queue does; only an entry whose outcome must be found is taken beyond that.
fn join_lane<A: Act>(shared: &Shared<A>, entry: Entry<A>) -> Option<Entry<A>> {
    let mut lanes = lanes(shared);
    if lanes.is_empty() {
        return Some(entry);
    }
    let waiting: usize = lanes.values().map(VecDeque::len).sum();
    let Some(lane) = lanes.get_mut(&A::lane(&entry.item)) else { return Some(entry) };
    if waiting >= shared.limits.queue_max && !entry.lost {
        let _ = entry.answer.send(Err(Failure::Full));
    } else {
        lane.push_back(entry);
    }
    None
}

/// Opens a lane for the entry, or puts it on the one there is.
fn open_lane<A: Act>(shared: &Arc<Shared<A>>, entry: Entry<A>) {
    let lane = A::lane(&entry.item);
    let Some(entry) = join_lane(shared, entry) else { return };
    lanes(shared).insert(lane.clone(), VecDeque::from([entry]));
    let task = drive_lane(Arc::clone(shared), lane);
    shared.runtime.spawn.spawn("lane", Box::pin(task));
}

/// Works off a lane, one item at a time.
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
        send_alone(&shared, entry).await;
    }
}

/// Sends an item by itself, waiting for its row, until it has a verdict, was taken back, or is moot.
/// The permit is given back between tries, so that rows that stay locked leave room for others.
async fn send_alone<A: Act>(shared: &Shared<A>, entry: Entry<A>) {
    let mut entry = [entry];
    let mut pause = PAUSE_MIN;
    loop {
        if entry[0].is_moot() || !entry[0].send() {
            return;
        }
        let permit = shared.lane_permits.acquire().await;
        let answer = run(shared, &entry, Patience::Wait(LANE_WAIT)).await;
        drop(permit);
        match answer.map(|mut verdicts| verdicts.pop()) {
            Ok(Some(verdict)) if !A::is_busy(&verdict) => {
                let [entry] = entry;
                let _ = entry.answer.send(Ok(verdict));
                return;
            }
            Ok(_) => entry[0].unsend(WAITING),
            Err(LedgerError::Unavailable(_)) => entry[0].unsend(QUEUED),
            Err(LedgerError::Unknown(_)) => entry[0].lose(),
            Err(error) => {
                tracing::error!(act = A::NAME, %error, "not decided");
                let [entry] = entry;
                return entry.give_up(&error);
            }
        }
        if entry[0].lost {
            entry[0].rerun();
        }
        shared.runtime.clock.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
