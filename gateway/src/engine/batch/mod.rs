//! Group commit: callers queue, and whatever gathered while the last batch was in flight is the next
//! batch. No timer, so a lone caller waits for nothing.
//!
//! What happens to an item, whatever happens to its batch:
//! 1. It is turned away at the door, or before it is sent, because it would not come back in time. Or its
//!    caller's time is up before it was sent, or it comes back without effect after that time: then it is taken
//!    back. In all these cases it was definitely not applied.
//! 2. Its batch was rolled back: sent again as it was.
//! 3. Its row is locked by somebody else, its batch was rolled back again and again, or the answer to its batch
//!    was lost: it moves to a lane, and later items of that lane queue behind it. Other items go on, so that no
//!    item holds up unrelated ones.
//! 4. Once its answer was lost, it is sent again as a rerun until the ledger decides, even if the caller has long
//!    been told that the outcome is unknown.

mod entry;
mod lanes;
mod pace;
mod queue;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{LedgerError, Patience, Runtime};
use fence_core::{PrincipalName, ResourceName};
use futures::FutureExt as _;
use futures::future::join;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::engine::trials::Trials;
use crate::spans::{self, Span};

use entry::{Entry, Fate, QUEUED, Way, take_back, way};

use lanes::{LANE_WAIT, Lanes, Slots, join_lane, open_lane};
use pace::Pace;
use queue::Queue;

/// What a batcher does with its batches.
#[async_trait]
pub(super) trait Act: Send + Sync + 'static {
    /// What callers hand in.
    type Item: Clone + Send + Sync + 'static;
    /// What they get.
    type Verdict: Send + 'static;

    /// For logs and metrics.
    const NAME: &'static str;

    /// What keeps items in order among themselves: their resource, or their lock.
    type Lane: Clone + Eq + Hash + Send + Sync + 'static;

    /// Whether those who were answered go on before the next batch is sent, and with them whoever asks at the
    /// same time: batches become larger, and the ledger waits meanwhile. For an act that costs the gateway more
    /// than the ledger.
    const GATHERS: bool = false;

    /// Whether an item whose caller has left is not sent any more. Only where it is worth nothing to anybody else, or
    /// would have to be undone.
    const DROPS_ABANDONED: bool = false;

    /// The lane that an item moves to when its row is locked by somebody else.
    fn lane(item: &Self::Item) -> Self::Lane;

    /// On whose behalf it is, if that is known: each principal has its turn.
    fn principal(_item: &Self::Item) -> Option<&PrincipalName> {
        None
    }

    /// What it must not share with another item of its batch.
    fn exclusive(_item: &Self::Item) -> &[ResourceName] {
        &[]
    }

    /// Its share of a batch's size in items.
    fn weight(_item: &Self::Item) -> usize {
        1
    }

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

    /// Whether nothing was decided because the rules of access have moved.
    fn rules_moved(_verdict: &Self::Verdict) -> bool {
        false
    }

    /// Whether the ledger has let go of what became of an earlier sending.
    fn is_forgotten(_verdict: &Self::Verdict) -> bool {
        false
    }

    /// Prepares an item to be found, or never to take effect: its answer was lost, and the rules that allowed it are in
    /// force no more. Says whether that can be: otherwise its outcome stays unknown.
    fn ask_after(_item: &mut Self::Item) -> bool {
        false
    }

    /// Prepares an item to be sent again after its answer was lost. `wanted` says whether its
    /// caller is still waiting.
    fn rerun(_item: &mut Self::Item, _wanted: bool) {}
}

/// Why a caller got no verdict.
#[derive(Debug)]
pub(super) enum Failure {
    /// The queue is full, or so slow that there would be no answer in time; nothing was sent.
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
    /// How long a caller waits in line. What is under way by then is waited for longer: it is back in a moment, or
    /// lost.
    pub timeout: Duration,
}

/// The first and the longest pause before something is sent again.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long a caller whose time is up waits for a statement that waits for its row, and for its answer; also after
/// an answer was lost.
const LAST_WORD: Duration = LANE_WAIT.saturating_mul(2);
/// How much longer than in line a caller waits for what is under way, in its time in line.
const UNDER_WAY: u32 = 2;
/// How much of its time in line a caller may have to wait there. The rest is for its batch, and for what makes it
/// slower than the ones before.
const IN_LINE_SHARE: u32 = 2;
/// A batch that took longer than this part of a caller's time in line says nothing of the next one.
const BATCH_SHARE: u32 = 4;
/// How often a batch that was rolled back is sent again as it was.
const BATCH_TRIES: u32 = 3;

/// How long a caller waits for a verdict at most: in line, and then for what is under way.
pub(super) fn answer_within(timeout: Duration) -> Duration {
    timeout + under_way(timeout)
}

/// How long what is under way is waited for once the time in line is up.
fn under_way(timeout: Duration) -> Duration {
    LAST_WORD.max(timeout * UNDER_WAY)
}

struct Running<A: Act> {
    act: A,
    runtime: Runtime,
    limits: Limits,
    pace: Arc<Pace>,
    lanes: Mutex<Lanes<A>>,
    /// How many lanes may use the ledger at once.
    slots: Slots,
}

/// A queue and the task that empties it.
pub(super) struct Batcher<A: Act> {
    queue: Arc<Queue<A>>,
    pace: Arc<Pace>,
    runtime: Runtime,
    timeout: Duration,
    writes: Arc<Trials>,
}

impl<A: Act> Batcher<A> {
    /// Starts the task. It ends when `closing` is cancelled and the queue is empty. What `writes` know is the cause that callers are
    /// told who get no answer in time.
    pub(super) fn start(
        act: A,
        runtime: &Runtime,
        limits: Limits,
        writes: Arc<Trials>,
        closing: CancellationToken,
    ) -> Self {
        let queue = Queue::new(limits.queue_max);
        let (timeout, pace) = (limits.timeout, Arc::<Pace>::default());
        let shared = Arc::new(Running {
            act,
            runtime: runtime.clone(),
            limits,
            pace: Arc::clone(&pace),
            lanes: Mutex::default(),
            slots: Slots::default(),
        });
        runtime.spawn.spawn_lasting(A::NAME, Box::pin(empty(shared, Arc::clone(&queue), closing)));
        Self { queue, pace, runtime: runtime.clone(), timeout, writes }
    }

    /// Hands in an item and waits for its verdict. May be dropped at any await: the item goes its
    /// way regardless.
    pub(super) async fn submit(&self, item: A::Item) -> Result<A::Verdict, Failure> {
        let state = Arc::new(AtomicU8::new(QUEUED));
        let (answer, mut verdict) = oneshot::channel();
        let until = self.runtime.clock.elapsed() + self.timeout;
        let asked = spans::current();
        let entry = Entry { item, state: Arc::clone(&state), answer, until, lost: false, asked };
        let patience = self.timeout / IN_LINE_SHARE;
        self.queue.push(entry, |ahead| self.pace.behind(ahead) > patience)?;
        match self.runtime.within(self.timeout, &mut verdict).await {
            Some(Ok(verdict)) => verdict,
            // The task has ended without an answer: it was shut down.
            Some(Err(_)) => Err(Failure::Unknown),
            None => self.last_word(&state, verdict).await,
        }
    }

    /// The caller's time in line is up. What is under way is back before long, and then it is known what came of
    /// it: that is worth the while, and no other answer is. Not so once an answer was lost.
    async fn last_word(
        &self,
        state: &AtomicU8,
        mut verdict: oneshot::Receiver<Result<A::Verdict, Failure>>,
    ) -> Result<A::Verdict, Failure> {
        let began = self.runtime.clock.elapsed();
        let patience = |way| match way {
            Way::Taken => Duration::ZERO,
            Way::Lost => LAST_WORD,
            Way::Sent => under_way(self.timeout),
        };
        while self.runtime.clock.elapsed().saturating_sub(began) < patience(way(state)) {
            match self.runtime.within(PAUSE_MIN, &mut verdict).await {
                Some(Ok(verdict)) => return verdict,
                Some(Err(_)) => return Err(Failure::Unknown),
                None => {}
            }
        }
        Err(match (take_back(state), self.writes.cause()) {
            (Failure::NotApplied(_) | Failure::Busy, Some(cause)) => {
                Failure::NotApplied(LedgerError::Unwritable(cause))
            }
            (failure, _) => failure,
        })
    }
}

impl<A: Act> Drop for Batcher<A> {
    /// Nobody can hand in anything any more: the task ends.
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The task: forms batches and runs them, one at a time.
///
/// What has gathered meanwhile is sent before a batch is answered, so that the ledger does not wait for that,
/// unless the act gathers more first.
async fn empty<A: Act>(
    shared: Arc<Running<A>>,
    waiting: Arc<Queue<A>>,
    closing: CancellationToken,
) {
    let mut held_back = VecDeque::new();
    let mut decided = Vec::new();
    loop {
        if held_back.is_empty() {
            held_back.extend(waiting.pop());
        }
        if held_back.is_empty() {
            answer(std::mem::take(&mut decided));
            let next = tokio::select! {
                biased;
                entry = waiting.next() => entry,
                () = closing.cancelled() => {
                    waiting.close();
                    waiting.next().await
                }
            };
            match next {
                Some(entry) => held_back.push_back(entry),
                None => return,
            }
        }
        if A::GATHERS {
            answer(std::mem::take(&mut decided));
            tokio::task::yield_now().await;
        }
        let (batch, is_full) = gather(&shared, &mut held_back, &waiting);
        let (items, began) = (batch.len(), shared.runtime.clock.elapsed());
        // Polled in this order.
        let before = std::mem::take(&mut decided);
        (decided, ()) = join(send_batch(&shared, batch), async { answer(before) }).await;
        shared.pace.note(items, shared.runtime.clock.elapsed().saturating_sub(began), is_full);
    }
}

/// Takes what has gathered, up to the limits. An item whose lane has work joins it; one that must not
/// share a resource with another of the batch is held back, and so are those behind it on the same
/// resources, which keeps their order. Also says whether the batch is full: what was held back for its resources
/// does not make it so.
fn gather<A: Act>(
    shared: &Arc<Running<A>>,
    held_back: &mut VecDeque<Entry<A>>,
    waiting: &Queue<A>,
) -> (Vec<Entry<A>>, bool) {
    let mut batch: Vec<Entry<A>> = Vec::new();
    let (mut weight, mut bytes) = (0, 0);
    let mut seen: HashSet<ResourceName> = HashSet::new();
    let mut later = VecDeque::new();
    let (mut is_full, mut overflows) = (true, false);
    let now = shared.runtime.clock.elapsed();
    let needed = shared.pace.batch().min(shared.limits.timeout / BATCH_SHARE);
    while weight < shared.limits.batch_max && bytes < shared.limits.batch_bytes_max {
        let Some(entry) = held_back.pop_front().or_else(|| waiting.pop()) else {
            is_full = overflows;
            break;
        };
        if !entry.is_owed() && (entry.until < now + needed || entry.is_abandoned()) {
            // It would be sent for nobody.
            let _ = entry.answer.send(Err(Failure::Full));
            continue;
        }
        let Some(entry) = join_lane(shared, entry) else { continue };
        let exclusive = A::exclusive(&entry.item);
        let shares = exclusive.iter().any(|resource| seen.contains(resource));
        let fits = batch.is_empty() || weight + A::weight(&entry.item) <= shared.limits.batch_max;
        overflows |= !fits;
        seen.extend(exclusive.iter().cloned());
        if shares || !fits {
            later.push_back(entry);
            if later.len() >= shared.limits.batch_max {
                break;
            }
            continue;
        }
        weight += A::weight(&entry.item);
        bytes += A::bytes(&entry.item);
        batch.push(entry);
    }
    later.append(held_back);
    *held_back = later;
    (batch, is_full)
}

/// An item that was decided.
type Decided<A> = (Entry<A>, <A as Act>::Verdict);

/// Sends a batch. Whatever cannot be decided at once moves to lanes.
async fn send_batch<A: Act>(shared: &Arc<Running<A>>, mut batch: Vec<Entry<A>>) -> Vec<Decided<A>> {
    let mut pause = PAUSE_MIN;
    for _ in 0..BATCH_TRIES {
        batch.retain_mut(Entry::send);
        if batch.is_empty() {
            return Vec::new();
        }
        match run(shared, &batch, Patience::Skip).await {
            Ok(verdicts) => return sort_out(shared, batch, verdicts),
            Err(error) if error.passes() => {
                tracing::warn!(act = A::NAME, items = batch.len(), %error, "rolled back");
                batch.iter().for_each(|entry| entry.unsend(QUEUED));
            }
            Err(LedgerError::Unknown(why)) => {
                tracing::warn!(act = A::NAME, items = batch.len(), why, "an answer was lost");
                batch.iter_mut().for_each(Entry::lose);
                break;
            }
            Err(LedgerError::Defect(why) | LedgerError::Slow(why)) if batch.len() > 1 => {
                // One item that the ledger cannot take, or not in time, must not fail those beside it.
                tracing::warn!(act = A::NAME, items = batch.len(), why, "sending one by one");
                batch.iter().for_each(|entry| entry.unsend(QUEUED));
                break;
            }
            Err(error) => {
                tracing::error!(act = A::NAME, items = batch.len(), %error, "not decided");
                batch.into_iter().for_each(|entry| entry.give_up(&error));
                return Vec::new();
            }
        }
        shared.runtime.clock.sleep(pause).await;
        pause *= 2;
    }
    batch.into_iter().for_each(|entry| open_lane(shared, entry));
    Vec::new()
}

/// Runs the act once.
async fn run<A: Act>(
    shared: &Running<A>,
    batch: &[Entry<A>],
    patience: Patience,
) -> Result<Vec<A::Verdict>, LedgerError> {
    let items: Arc<[A::Item]> = batch.iter().map(|entry| entry.item.clone()).collect();
    let count = items.len();
    metrics::histogram!(crate::engine::metrics::BATCH_ITEMS, "act" => A::NAME).record(count as f64);
    let span = tracing::debug_span!("act", name = A::NAME, items = count);
    let mut recorded = Span::of_batch("engine.batch", batch.iter().map(|entry| entry.asked));
    recorded.says("fencegate.act", A::NAME);
    recorded.counts("fencegate.batch.items", count as u64);
    let act = spans::within(recorded.place(), shared.act.run(items, patience).instrument(span));
    // A panic is a defect, but it must not take the queue with it, and what it left is unknown.
    let done = AssertUnwindSafe(act).catch_unwind().await;
    let done = done.unwrap_or_else(|_| Err(LedgerError::Unknown("a panic".into())));
    if done.is_err() {
        recorded.fails();
    }
    done
}

/// Those that were decided. Items whose row is locked by somebody else move to lanes, before a later item of
/// their lane can be sent.
fn sort_out<A: Act>(
    shared: &Arc<Running<A>>,
    batch: Vec<Entry<A>>,
    verdicts: Vec<A::Verdict>,
) -> Vec<Decided<A>> {
    let mut decided = Vec::with_capacity(batch.len());
    for (mut entry, verdict) in batch.into_iter().zip(verdicts) {
        match entry.fate(&verdict) {
            Fate::Decided => decided.push((entry, verdict)),
            Fate::Open => open_lane(shared, entry),
            Fate::Unknown => entry.stays_unknown(),
        }
    }
    decided
}

/// Hands out verdicts.
fn answer<A: Act>(decided: Vec<Decided<A>>) {
    for (entry, verdict) in decided {
        let _ = entry.answer.send(Ok(verdict));
    }
}
