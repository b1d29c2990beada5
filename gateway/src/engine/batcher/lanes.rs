//! Lanes: where items go one by one, so that none holds up those it has nothing to do with.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::{LedgerError, Patience};

use super::entry::{Entry, QUEUED, WAITING};
use super::{Act, Failure, PAUSE_MAX, PAUSE_MIN, Shared, run};

/// How long one statement on a lane waits for its row.
const LANE_WAIT: Duration = Duration::from_millis(250);

/// What waits on each lane, besides the item under way.
pub(super) type Lanes<A> = HashMap<<A as Act>::Lane, VecDeque<Entry<A>>>;

fn lanes<A: Act>(shared: &Shared<A>) -> MutexGuard<'_, Lanes<A>> {
    shared.lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts an entry behind the work of its lane, if there is any. All lanes together hold as much as
/// the queue does; only an entry whose outcome must be found is taken beyond that.
pub(super) fn join_lane<A: Act>(shared: &Shared<A>, entry: Entry<A>) -> Option<Entry<A>> {
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
pub(super) fn open_lane<A: Act>(shared: &Arc<Shared<A>>, entry: Entry<A>) {
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
