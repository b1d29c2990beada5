//! How jobs are doing, as whoever may read them sees it.

use std::collections::BTreeMap;

use fencegate_wire::Word;
use fencegate_wire::json::Resource;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use uuid::Uuid;

use super::name::{JobName, PREFIX, RUNS, run_key, run_of_key};
use super::record::{Run, RunStatus};
use super::state::State;
use crate::client::Client;
use crate::error::Error;
use crate::jobs::Slot;

/// So many jobs are looked at at a time.
const AT_ONCE: usize = 8;

/// How a job is doing, in one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobStatus {
    /// A run is under way.
    Running,
    /// A run has begun, and its lock has ended without a word: what became of it is not known.
    Lost,
    /// It has never run.
    Never,
    /// What became of the run that ended last.
    Ended(Word<RunStatus>),
}

impl JobStatus {
    /// The word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Lost => "lost",
            Self::Never => "never",
            Self::Ended(status) => status.as_str(),
        }
    }
}

/// A job, or one part of it, as it was at one moment.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Which.
    pub name: JobName,
    /// What is recorded of it.
    pub state: State,
    /// Its resource and lock, as they were.
    pub resource: Option<Resource>,
    /// When that was, by the gateway's clock.
    pub at: Timestamp,
}

impl JobView {
    /// How it is doing.
    pub fn status(&self) -> JobStatus {
        match (&self.state.running, &self.state.last) {
            (Some(run), _) if self.is_held_by(run) => JobStatus::Running,
            (Some(_), _) => JobStatus::Lost,
            (None, Some(last)) => JobStatus::Ended(last.status.clone()),
            (None, None) => JobStatus::Never,
        }
    }

    /// Whether this run has the lock.
    fn is_held_by(&self, run: &Run) -> bool {
        let Some(resource) = &self.resource else { return false };
        is_held(resource) && run.acquired_at.is_none_or(|at| at == resource.acquired_at)
    }

    /// For how long a run has been under way, in milliseconds.
    pub fn running_ms(&self) -> Option<u64> {
        let run = self.state.running.as_ref().filter(|_| self.status() == JobStatus::Running)?;
        let age_ms = u64::try_from(self.resource.as_ref()?.age_ms).ok()?;
        // The lock may have been had for an attempt before.
        Some(age_ms.saturating_sub(run.lock_age_ms.unwrap_or(0)))
    }

    /// Whether it has missed its time.
    pub fn is_overdue(&self) -> bool {
        self.state.overdue_at().is_some_and(|at| self.at > at)
    }

    /// Whether a run takes longer than it may.
    pub fn is_stuck(&self) -> bool {
        match (self.running_ms(), self.state.stuck_after_ms()) {
            (Some(running_ms), Some(most_ms)) => running_ms > most_ms,
            _ => false,
        }
    }
}

/// Whether somebody has the lock of a resource.
pub fn is_held(resource: &Resource) -> bool {
    ["leased", "breaking"].contains(&resource.state.as_str())
}

impl Client {
    /// How a job is doing; `None`: it has never run.
    ///
    /// # Errors
    /// The gateway cannot be asked, or the records are none.
    pub async fn job_view(&self, name: &JobName) -> Result<Option<JobView>, Error> {
        let at = self.gateway_time().await?;
        self.view(name, at).await
    }

    /// All jobs whose names begin with this, and all their parts, in the order of their names. A resource whose state
    /// is not that of a job is left out.
    pub fn jobs(&self, prefix: &str) -> impl Stream<Item = Result<JobView, Error>> + Send + use<> {
        let (client, resources) =
            (self.clone(), self.resources().prefix(&format!("{PREFIX}{prefix}")));
        let views = async move {
            let at = client.gateway_time().await?;
            let names = resources
                .stream()
                .try_filter_map(async |found| Ok(JobName::of_resource(found.resource.as_str())));
            let views = names.map_ok(move |name| {
                let client = client.clone();
                async move {
                    match client.view(&name, at).await {
                        // What somebody else has put there is no job, and hides none.
                        Err(error @ Error::Misuse(_)) => {
                            tracing::warn!(job = %name, %error, "the state of a job is none");
                            Ok(None)
                        }
                        view => view,
                    }
                }
            });
            Ok(views.try_buffered(AT_ONCE).try_filter_map(async |view| Ok(view)))
        };
        futures::stream::once(views).try_flatten()
    }

    async fn view(&self, name: &JobName, at: Timestamp) -> Result<Option<JobView>, Error> {
        let Some(mut state) = self.job_state(name).await? else { return Ok(None) };
        loop {
            let resource = match self.resource(&name.resource()).await {
                Ok(resource) => Some(resource),
                Err(Error::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            let view = JobView { name: name.clone(), state, resource, at };
            if view.status() != JobStatus::Lost {
                return Ok(Some(view));
            }
            // It may have ended between the two readings. Lost is only who was there before and after its lock was seen
            // free.
            let Some(after) = self.job_state(name).await? else { return Ok(None) };
            if after.running.as_ref().map(|run| run.run)
                == view.state.running.as_ref().map(|run| run.run)
            {
                return Ok(Some(view));
            }
            state = after;
        }
    }

    /// The records of the runs of a job that are kept, the newest first, at most so many.
    ///
    /// # Errors
    /// [`Error::NotFound`]: there is no such job. Or the gateway cannot be asked.
    pub async fn job_runs(&self, name: &JobName, most: usize) -> Result<Vec<Run>, Error> {
        let resource = name.resource();
        let mut newest: Vec<_> = super::prune::runs(self, name).await?.into_keys().rev().collect();
        // Those of one second stand there in any order: all of them are read, or none.
        let last = newest.get(most.saturating_sub(1)).map(|(slot, _)| slot.time());
        newest.truncate(
            newest.iter().take_while(|(slot, _)| last.is_none_or(|it| slot.time() >= it)).count(),
        );
        let read = futures::stream::iter(newest).map(async |(slot, attempt)| {
            let found = self.get(&resource, &run_key(&slot, attempt)).optional().await?;
            found.map(|it| it.json::<Run>()).transpose()
        });
        let runs: Vec<Option<Run>> = read.buffered(AT_ONCE).try_collect().await?;
        let mut runs = newest_first(runs.into_iter().flatten().collect());
        runs.truncate(most);
        Ok(runs)
    }

    /// One run of a job: by `SLOT.ATTEMPT`, by its id, by its slot (the last attempt), or the one that began last.
    ///
    /// # Errors
    /// [`Error::NotFound`]: there is none.
    pub async fn job_run(&self, name: &JobName, which: Option<&str>) -> Result<Run, Error> {
        let resource = name.resource();
        let which = match which {
            Some(which) => which.to_owned(),
            None => {
                let state = State::read(&self.get(&resource, super::name::STATE).await?)?;
                let last =
                    state.running.map(|run| run.stem()).or(state.last.map(|last| last.stem()));
                last.ok_or_else(|| Error::misuse("the job has no run"))?
            }
        };
        if let Ok(id) = which.parse::<Uuid>() {
            let runs = self.job_runs(name, usize::MAX).await?;
            let found = runs.into_iter().find(|run| run.run == id);
            return found.ok_or_else(|| not_found(&which));
        }
        let (slot, attempt) = match which.rsplit_once('.') {
            Some((slot, attempt)) => {
                let attempt = attempt.parse::<u32>();
                let none = |_| Error::misuse(format!("{which:?} is no run: it is SLOT.ATTEMPT"));
                (Slot::of_record(slot)?, Some(attempt.map_err(none)?))
            }
            None => (which.parse::<Slot>().or_else(|_| Slot::of_record(&which))?, None),
        };
        let runs = self.list(&resource).prefix(&format!("{RUNS}{slot}.")).all().await?;
        let attempts = runs.iter().filter_map(|it| run_of_key(&it.key)).map(|(_, attempt)| attempt);
        let newest = attempt.or_else(|| attempts.max()).ok_or_else(|| not_found(&which))?;
        self.get(&resource, &run_key(&slot, newest)).await?.json()
    }
}

/// By slot and attempt; slots of one second by when their first runs were made, which their ids tell.
fn newest_first(mut runs: Vec<Run>) -> Vec<Run> {
    let mut firsts: BTreeMap<Slot, Uuid> = BTreeMap::new();
    for run in &runs {
        let first = firsts.entry(run.slot.clone()).or_insert(run.run);
        *first = run.run.min(*first);
    }
    let place = |run: &Run| {
        (run.slot.time(), firsts.get(&run.slot).copied(), run.slot.clone(), run.attempt)
    };
    runs.sort_by_cached_key(|run| std::cmp::Reverse(place(run)));
    runs
}

fn not_found(which: &str) -> Error {
    Error::NotFound(crate::error::Details::local(format!("there is no run {which}")))
}
