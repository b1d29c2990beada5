//! Which records of a job are not kept any more: the oldest runs, with all that belongs to them.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use super::begin::{put, settled};
use super::name::{
    JobName, RUNS, STATE, checkpoint_key, request_mark_key, run_key, run_of_key, slot_key,
};
use super::record::Run;
use super::state::State;
use crate::acquire::Wait;
use crate::client::Client;
use crate::error::Error;
use crate::guard::Lock;
use crate::jobs::Slot;

/// So many runs are removed in one commit. Each has five objects at most, and a commit 1,000 of them.
const RUNS_REMOVED_MAX: usize = 180;
/// So many records are read at a time.
const AT_ONCE: usize = 8;

/// What is not kept any more.
#[derive(Debug, Default)]
pub(crate) struct Old {
    /// The objects.
    pub(crate) objects: Vec<String>,
    /// The highest slot whose runs are all among them.
    pub(crate) forgotten_through: Option<Slot>,
    /// How many runs that are.
    pub(crate) runs: usize,
}

/// The runs of a resource, in order, and which objects each has.
pub(crate) type Runs = BTreeMap<(Slot, u32), Vec<String>>;

/// The runs whose records are kept.
pub(crate) async fn runs(client: &Client, name: &JobName) -> Result<Runs, Error> {
    let mut runs = Runs::new();
    let mut objects = client.list(&name.resource()).prefix(RUNS).stream();
    while let Some(object) = objects.try_next().await? {
        if let Some(run) = run_of_key(&object.key) {
            runs.entry(run).or_default().push(object.key);
        }
    }
    Ok(runs)
}

/// What lies beyond the newest `keep` runs. The run that is under way is among those that are kept, and so are those of the
/// newest slot of the schedule: it may be called for still.
pub(crate) async fn beyond(
    client: &Client,
    name: &JobName,
    keep: u32,
    current: Option<&Run>,
) -> Result<Old, Error> {
    let runs = runs(client, name).await?;
    let excess = runs.len().saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
    // Slots of one run alone have no order within a second: the run of now may look like the oldest.
    let is_current =
        |run: &&(Slot, u32)| current.is_some_and(|it| (&it.slot, it.attempt) == (&run.0, run.1));
    let newest = runs.keys().map(|(slot, _)| slot).filter(|slot| slot.is_scheduled()).max();
    let may_go = |run: &&(Slot, u32)| !is_current(run) && newest != Some(&run.0);
    let oldest = runs.keys().filter(may_go).take(excess).cloned().collect();
    old(client, name, &runs, oldest, current).await
}

/// What began before this moment.
async fn before(client: &Client, name: &JobName, moment: Timestamp) -> Result<Old, Error> {
    let runs = runs(client, name).await?;
    let oldest = runs.keys().filter(|(slot, _)| slot.time() < moment).cloned().collect();
    old(client, name, &runs, oldest, None).await
}

async fn old(
    client: &Client,
    name: &JobName,
    runs: &Runs,
    mut leaving: BTreeSet<(Slot, u32)>,
    current: Option<&Run>,
) -> Result<Old, Error> {
    if let Some(current) = current {
        // What is younger in the schedule stays: the slot of now would count as forgotten otherwise.
        leaving.retain(|(slot, _)| !slot.is_scheduled() || *slot <= current.slot);
    }
    // 1. A request that was taken is forgotten with its run, unless it lies in the inbox still: it would be run again.
    let leaving: BTreeSet<(Slot, u32)> = leaving.into_iter().take(RUNS_REMOVED_MAX).collect();
    let (resource, inbox) = (&name.resource(), &name.inbox());
    let read =
        stream::iter(leaving.iter().cloned().collect::<Vec<_>>()).map(async |(slot, attempt)| {
            let found = client.get(resource, &run_key(&slot, attempt)).optional().await?;
            let request = found.and_then(|it| it.json::<Run>().ok()).and_then(|run| run.request);
            let Some(request) = request else { return Ok::<_, Error>(None) };
            let waits = match client.head(inbox, &super::inbox::key(request)).optional().await {
                Err(Error::NotFound(_)) => false,
                waits => waits?.is_some(),
            };
            Ok(Some(request).filter(|_| !waits))
        });
    let requests: Vec<_> = read.buffered(AT_ONCE).try_collect().await?;
    // 2. The objects of each run, and of its slot, once no run of that is left.
    let mut found = Old::default();
    for ((slot, attempt), request) in leaving.iter().zip(requests) {
        let objects = runs.get(&(slot.clone(), *attempt)).into_iter().flatten().cloned();
        found.objects.extend(objects);
        found.objects.extend(request.map(request_mark_key));
        let mut of_slot =
            runs.range((slot.clone(), 0)..=(slot.clone(), u32::MAX)).map(|(run, _)| run);
        if of_slot.all(|run| leaving.contains(run)) && current.is_none_or(|it| it.slot != *slot) {
            found.objects.extend([slot_key(slot), checkpoint_key(slot)]);
            // Slots of one run alone are never called for again.
            if slot.is_scheduled() {
                found.forgotten_through = found.forgotten_through.take().max(Some(slot.clone()));
            }
        }
        found.runs += 1;
    }
    found.objects.sort();
    found.objects.dedup();
    Ok(found)
}

/// Which runs to forget.
#[derive(Debug, Clone, Copy)]
pub enum Forget {
    /// All but so many, the newest.
    AllBut(u32),
    /// Those whose slot was before this moment.
    Before(Timestamp),
}

impl Client {
    /// Forgets old runs of a job, under its lock, which is waited for. Says how many.
    ///
    /// # Errors
    /// The lock is not had, or the gateway refuses.
    pub async fn forget_runs(
        &self,
        name: &JobName,
        which: Forget,
        wait: Wait,
    ) -> Result<usize, Error> {
        let lock =
            self.lock(name.resource()).only_if_exists().wait(wait).unnumbered().acquire().await?;
        let mut forgotten = 0;
        let ended = loop {
            match self.forget_some(name, which, &lock).await {
                Ok(0) => break Ok(forgotten),
                Ok(runs) => forgotten += runs,
                Err(error) => break Err(error),
            }
        };
        lock.release().await;
        ended
    }

    async fn forget_some(
        &self,
        name: &JobName,
        which: Forget,
        lock: &Lock,
    ) -> Result<usize, Error> {
        let found = match which {
            Forget::AllBut(keep) => beyond(self, name, keep, None).await?,
            Forget::Before(moment) => before(self, name, moment).await?,
        };
        if found.runs == 0 {
            return Ok(0);
        }
        let resource = name.resource();
        let mut commit = lock.commit();
        for key in &found.objects {
            commit = commit.delete(&resource, key);
        }
        if let Some(slot) = &found.forgotten_through
            && let Some(object) = self.get(&resource, STATE).optional().await?
        {
            let mut state = State::read(&object)?;
            state.forget(slot);
            commit = put(commit, &resource, STATE, &state)?.if_match(&object.etag);
        }
        settled(commit).await?;
        Ok(found.runs)
    }
}
