//! Lanes: items that cannot go with a batch wait here, so that none of them holds up unrelated items. All items
//! of a lane are about the same row, or the same lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fence_core::PrincipalName;
use fence_core::ports::{LedgerError, Patience};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::entry::{Entry, Fate, QUEUED};
use super::queue::share;
use super::{Act, Failure, PAUSE_MAX, PAUSE_MIN, Running, run};

/// How long one statement on a lane waits for its row.
pub(super) const LANE_WAIT: Duration = Duration::from_millis(250);
/// The wait of the first statement of a lane that waits at all.
const SHORT_WAIT: Duration = Duration::from_millis(50);
/// Statements of a lane that do not wait for its row, before one does: most rows are free again in a moment.
const GLANCES: u32 = 2;
/// Lanes of an act that may use the ledger at once, of either kind.
const LANES_MAX: usize = 4;

/// Slots that one principal has at a time: a principal that blocks many rows leaves one to others.
const OWN_MAX: usize = LANES_MAX - 1;

/// The connection slots of the lanes of an act. Each act has its own: a grant that waits for the mint in a lane holds up no
/// write.
///
/// Lanes whose row somebody keeps for long share a few slots among themselves. So however many resources are blocked, a
/// lane whose row is only busy now and then does not stand behind them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// For glances and short waits.
    short: Kind,
    /// For lanes that have come to nothing before.
    long: Kind,
}

/// Slots of one kind. A lane stands behind those of its own principal first, however many these are, and then with the few
/// that each principal may have there.
#[derive(Debug)]
struct Kind {
    all: Semaphore,
    of: Mutex<HashMap<PrincipalName, Arc<Semaphore>>>,
}

/// A slot, until it is dropped.
struct Slot<'a> {
    _all: SemaphorePermit<'a>,
    _own: Option<OwnedSemaphorePermit>,
}

impl Default for Kind {
    fn default() -> Self {
        Self { all: Semaphore::new(LANES_MAX), of: Mutex::default() }
    }
}

impl Kind {
    /// A slot; they are never closed.
    async fn take(&self, principal: Option<&PrincipalName>) -> Option<Slot<'_>> {
        let own = match principal {
            Some(principal) => Some(self.own(principal).acquire_owned().await.ok()?),
            None => None,
        };
        Some(Slot { _all: self.all.acquire().await.ok()?, _own: own })
    }

    fn own(&self, principal: &PrincipalName) -> Arc<Semaphore> {
        let mut of = self.of.lock();
        if let Some(own) = of.get(principal) {
            return Arc::clone(own);
        }
        // What nobody has or waits for.
        of.retain(|_, own| Arc::strong_count(own) > 1);
        let own = Arc::new(Semaphore::new(OWN_MAX));
        of.insert(principal.clone(), Arc::clone(&own));
        own
    }
}

impl Slots {
    /// A slot for a lane of a principal that has come to nothing so often, and how long its statement waits.
    async fn take(
        &self,
        principal: Option<&PrincipalName>,
        barren: u32,
    ) -> (Option<Slot<'_>>, Patience) {
        let (slots, patience) = match barren {
            ..GLANCES => (&self.short, Patience::Skip),
            GLANCES => (&self.short, Patience::Wait(SHORT_WAIT)),
            _ => (&self.long, Patience::Wait(LANE_WAIT)),
        };
        (slots.take(principal).await, patience)
    }
}

/// Queues of the lanes, and the load of all of them with the items under way.
pub(super) struct Lanes<A: Act> {
    lanes: HashMap<A::Lane, VecDeque<Entry<A>>>,
    load: Load,
}

impl<A: Act> Default for Lanes<A> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), load: Load::default() }
    }
}

/// Numbers of items on all lanes, those under way among them, in all and by principal: a principal that blocks many rows
/// fills its own part of this, and no more.
#[derive(Debug, Default)]
struct Load {
    all: usize,
    of: HashMap<PrincipalName, usize>,
}

impl Load {
    fn add(&mut self, principal: Option<&PrincipalName>) {
        self.all += 1;
        if let Some(principal) = principal {
            *self.of.entry(principal.clone()).or_default() += 1;
        }
    }

    fn take(&mut self, principal: Option<&PrincipalName>) {
        self.all -= 1;
        if let Some(principal) = principal
            && let Some(own) = self.of.get_mut(principal)
        {
            *own -= 1;
            if *own == 0 {
                self.of.remove(principal);
            }
        }
    }

    /// Tells whether a principal has its share of so many.
    fn is_share(&self, principal: Option<&PrincipalName>, max: usize) -> bool {
        let own = principal.and_then(|principal| self.of.get(principal));
        own.is_some_and(|own| *own >= share(max))
    }
}

/// Puts an entry behind the work of its lane, if there is any. All lanes together hold as much as the queue does, and one
/// principal has as large a share of it; only an entry whose outcome must be found is taken beyond that.
pub(super) fn join_lane<A: Act>(shared: &Running<A>, entry: Entry<A>) -> Option<Entry<A>> {
    let mut lanes = shared.lanes.lock();
    if lanes.lanes.is_empty() {
        return Some(entry);
    }
    let (principal, max) = (A::principal(&entry.item).cloned(), shared.limits.queue_max);
    let is_full = lanes.load.all >= max || lanes.load.is_share(principal.as_ref(), max);
    let is_full = is_full && !entry.is_owed();
    let Some(lane) = lanes.lanes.get_mut(&A::lane(&entry.item)) else { return Some(entry) };
    if is_full {
        let _ = entry.answer.send(Err(Failure::Full));
    } else {
        lane.push_back(entry);
        lanes.load.add(principal.as_ref());
    }
    None
}

/// Opens a lane for the entry, or puts it on the one there is. Only the task of the batcher opens
/// lanes, so none is opened twice. However much waits on others, a principal that has not its share of it has its lane.
pub(super) fn open_lane<A: Act>(shared: &Arc<Running<A>>, entry: Entry<A>) {
    let lane = A::lane(&entry.item);
    let Some(entry) = join_lane(shared, entry) else { return };
    {
        let mut lanes = shared.lanes.lock();
        let principal = A::principal(&entry.item);
        if lanes.load.is_share(principal, shared.limits.queue_max) && !entry.is_owed() {
            let _ = entry.answer.send(Err(Failure::Full));
            return;
        }
        lanes.load.add(principal);
        lanes.lanes.insert(lane.clone(), VecDeque::from([entry]));
    }
    let task = drive_lane(Arc::clone(shared), lane);
    shared.runtime.spawn.spawn_lasting("lane", Box::pin(task));
}

/// Works off a lane, in order, until it is empty.
///
/// What waits goes together, like in a batch: the lane of a busy row must not become slower than the
/// row. After a sending that came to nothing, one item goes by itself; so does one whose outcome must
/// be found.
async fn drive_lane<A: Act>(shared: Arc<Running<A>>, lane: A::Lane) {
    let mut pause = PAUSE_MIN;
    let mut together = shared.limits.batch_max;
    let mut barren = 0;
    while let Some(batch) = next(&shared, &lane, together) {
        let of = |entry: &Entry<A>| A::principal(&entry.item).cloned();
        let taken: Vec<_> = batch.iter().map(of).collect();
        let left = send(&shared, batch, barren).await;
        {
            let load = &mut shared.lanes.lock().load;
            taken.iter().for_each(|principal| load.take(principal.as_ref()));
            left.iter().for_each(|entry| load.add(A::principal(&entry.item)));
        }
        if left.is_empty() {
            (pause, together, barren) = (PAUSE_MIN, shared.limits.batch_max, 0);
            continue;
        }
        if left.len() == taken.len() {
            together = 1;
            barren += 1;
        }
        {
            let mut lanes = shared.lanes.lock();
            let waiting = lanes.lanes.entry(lane.clone()).or_default();
            if left.iter().any(Entry::is_waiting) {
                waiting.iter().for_each(Entry::wait);
            }
            left.into_iter().rev().for_each(|entry| waiting.push_front(entry));
        }
        shared.runtime.clock.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The next items of a lane, in order; `None`, and no lane any more, when there are none.
fn next<A: Act>(shared: &Running<A>, lane: &A::Lane, together: usize) -> Option<Vec<Entry<A>>> {
    let mut lanes = shared.lanes.lock();
    let waiting = lanes.lanes.get_mut(lane)?;
    let mut batch = Vec::new();
    while let Some(entry) = waiting.front() {
        // Items that must not share a resource go one by one, and all on a lane share one.
        let alone = entry.is_owed() || !A::exclusive(&entry.item).is_empty();
        if batch.len() >= together || (alone && !batch.is_empty()) {
            break;
        }
        batch.extend(waiting.pop_front());
        if alone {
            break;
        }
    }
    if batch.is_empty() {
        lanes.lanes.remove(lane);
        return None;
    }
    Some(batch)
}

/// Sends items once, for a lane that has come to nothing so often. Returns those that are still open, in order. The slot is
/// given back between tries, so that rows that stay locked leave room for others.
async fn send<A: Act>(shared: &Running<A>, mut batch: Vec<Entry<A>>, barren: u32) -> Vec<Entry<A>> {
    let principal = batch.first().and_then(|entry| A::principal(&entry.item)).cloned();
    let (slot, patience) = shared.slots.take(principal.as_ref(), barren).await;
    // Marked as sent only now: until here nothing of it was under way.
    batch.retain_mut(|entry| !entry.is_moot() && entry.send());
    if batch.is_empty() {
        return batch;
    }
    let answer = run(shared, &batch, patience).await;
    drop(slot);
    match answer {
        Ok(verdicts) => {
            let mut left = Vec::new();
            for (mut entry, verdict) in batch.into_iter().zip(verdicts) {
                match entry.fate(&verdict) {
                    Fate::Decided => drop(entry.answer.send(Ok(verdict))),
                    Fate::Open => left.push(entry),
                    Fate::Unknown => entry.stays_unknown(),
                }
            }
            return left;
        }
        Err(error) if error.passes() => batch.iter().for_each(|entry| entry.unsend(QUEUED)),
        Err(LedgerError::Unknown(_)) => batch.iter_mut().for_each(Entry::lose),
        // One item that the ledger cannot take, or not in time, must not fail those beside it.
        Err(LedgerError::Defect(_) | LedgerError::Slow(_)) if batch.len() > 1 => {
            batch.iter().for_each(|entry| entry.unsend(QUEUED));
        }
        // None of these says anything about a sending whose outcome must be found.
        Err(LedgerError::EpochMoved | LedgerError::Slow(_) | LedgerError::Unwritable(_))
            if batch.iter().any(Entry::is_owed) => {}
        Err(error) => {
            tracing::error!(act = A::NAME, %error, "not decided");
            batch.into_iter().for_each(|entry| entry.give_up(&error));
            return Vec::new();
        }
    }
    batch.iter_mut().filter(|entry| entry.lost).for_each(Entry::rerun);
    batch
}
