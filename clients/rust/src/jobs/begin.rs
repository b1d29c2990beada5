//! Begins a run, under the lock of its job: one commit says that it has begun, and that the one before has not ended
//! well.

use std::collections::VecDeque;
use std::time::Duration;

use fencegate_wire::json::Resource;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Map;
use uuid::Uuid;

use super::job::{CatchUp, Due, Job, OncePolicy};
use super::name::{JobName, RUNS, STATE, checkpoint_key, request_mark_key, run_of_key, slot_key};
use super::record::{FORM, Mark, Run, RunStatus, Trigger};
use super::running::JobRun;
use super::state::State;
use crate::error::Error;
use crate::guard::Lock;
use crate::jobs::Slot;
use crate::transport::body::Body;
use crate::write::{CommitBuilder, Settled};

/// How long the outcome of a commit is asked for.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// What came of beginning a run.
#[derive(Debug)]
pub enum Begun {
    /// It has begun.
    Run(Box<JobRun>),
    /// Its slot is done, or the request for it was taken.
    Done(Mark),
    /// It was too late, and is recorded so.
    Skipped(Box<Run>),
    /// Another slot comes first, and nothing has begun: others have begun slots of a job that catches up with all. The
    /// oldest that is due now, and those behind it.
    Instead(Due, VecDeque<Due>),
}

/// What is found under the lock.
struct Found {
    state: Option<(State, String)>,
    mark: Option<Mark>,
    has_checkpoint: bool,
    /// How often the slot was tried.
    attempts: u32,
    /// Its resource and lock.
    lock: Resource,
}

impl Job {
    /// Begins a run under its lock. Without an answer that settles it, the outcome is asked for, for up to a minute.
    ///
    /// # Errors
    /// [`Error::LockLost`]: nothing was recorded. [`Error::OutcomeUnknown`]: nobody can say whether it was recorded; nothing must
    /// be run. [`Error::Misuse`]: nobody knows any more whether the slot was done. Or the gateway cannot be asked.
    pub async fn begin(
        &self,
        lock: &Lock,
        due: &Due,
        replaced: Option<Timestamp>,
    ) -> Result<Begun, Error> {
        let name = self.check()?;
        let (id, now) = (Uuid::now_v7(), Timestamp::now());
        let slot = match &due.slot {
            Some(slot) => slot.clone(),
            None => Slot::own(self.client.gateway_time().await?, id)?,
        };
        // What is tried again was begun in time, and has taken its request.
        let is_retry = due.trigger == Trigger::Retry;
        let request = self.request.filter(|_| !is_retry);
        // The lock may have been waited for.
        let is_too_late = due.is_too_late
            || self.catch_up == CatchUp::None
                && !is_retry
                && self.is_too_late(&slot, self.client.gateway_time().await?);
        // 1. Look again, under the lock: whoever had it before us may have done the slot, or begun another.
        let found = self.find(&name, &slot, request).await?;
        if let Some(mark) = found.mark {
            return Ok(Begun::Done(mark));
        }
        let (state, tag) = found.state.unzip();
        let mut state = state.unwrap_or_else(|| State::new(&name));
        if let Some((first, others)) = self.instead(&name, due, &state).await? {
            return Ok(Begun::Instead(first, others));
        }
        // 2. Nobody knows whether it was done: then it is not done again.
        if slot.is_scheduled()
            && state.forgotten_through.as_ref().is_some_and(|through| slot <= *through)
        {
            let text = format!(
                "the records of slot {slot} are gone: whether it was done is not known any more"
            );
            return Err(Error::misuse(text));
        }
        // 3. Who had begun and has not ended has lost its lock: we have it.
        let (status, why) = self.left(&state, &found.lock, replaced).await?;
        let abandoned = state.abandon(status, &why);
        // 4. The new run.
        let run = Run {
            v: FORM,
            run: id,
            job: name.name().to_owned(),
            shard: name.which().map(|part| part.index),
            shards: name.which().map(|part| part.count),
            slot: slot.clone(),
            attempt: found.attempts + 1,
            status: if is_too_late { RunStatus::Skipped } else { RunStatus::Started }.into(),
            owner: lock.owner().to_owned(),
            host: Some(host()),
            pid: Some(std::process::id()),
            program: self.program.clone(),
            trigger: due.trigger.into(),
            acquired_at: Some(found.lock.acquired_at),
            lock_age_ms: u64::try_from(found.lock.age_ms).ok(),
            started_at: now,
            finished_at: is_too_late.then_some(now),
            duration_ms: None,
            exit: None,
            signal: None,
            reason: is_too_late.then(|| "it was too late to begin".to_owned()),
            output: None,
            resumed_from: (self.resumes && found.has_checkpoint && found.attempts > 0)
                .then(|| format!("{slot}.{}", found.attempts)),
            request: self.request,
            fence: None,
            other: Map::new(),
        };
        match is_too_late {
            true => {
                state.expect(self.expect());
                state.ended(&run);
            }
            false => state.begun(&run, self.expect()),
        }
        // 5. All of it at once, or nothing.
        let resource = name.resource();
        let mut commit = lock.commit();
        if let Some(abandoned) = &abandoned {
            commit = put(commit, &resource, &abandoned.object(), abandoned)?;
        }
        commit = put(commit, &resource, &run.object(), &run)?.if_absent();
        commit = put(commit, &resource, STATE, &state)?;
        commit = match &tag {
            Some(tag) => commit.if_match(tag),
            None => commit.if_absent(),
        };
        let mark = Mark { v: FORM, run: id, object: run.object(), status: run.status.clone() };
        if is_too_late || self.once == OncePolicy::Claimed {
            commit = put(commit, &resource, &slot_key(&slot), &mark)?.if_absent();
        }
        if let Some(request) = request {
            commit = put(commit, &resource, &request_mark_key(request), &mark)?.if_absent();
        }
        if found.has_checkpoint && !self.resumes {
            commit = commit.delete(&resource, &checkpoint_key(&slot));
        }
        settled(commit).await?;
        if is_too_late {
            return Ok(Begun::Skipped(Box::new(run)));
        }
        Ok(Begun::Run(Box::new(JobRun::new(self.clone(), name, run, lock))))
    }

    /// The status of the run that had begun and has not ended, if there is one, and why.
    async fn left(
        &self,
        state: &State,
        lock: &Resource,
        replaced: Option<Timestamp>,
    ) -> Result<(RunStatus, String), Error> {
        let unknown = (RunStatus::Abandoned, "its lock ended before it did".to_owned());
        let Some(run) = &state.running else { return Ok(unknown) };
        match &self.overlap {
            super::Overlap::Replace { reason, .. }
                if replaced.is_some() && run.acquired_at == replaced =>
            {
                Ok((RunStatus::Cancelled, format!("replaced: {reason}")))
            }
            _ => {
                let cut = self.client.job_cut(run, lock).await?;
                Ok(cut.map_or(unknown, |cut| (cut.status(), cut.to_string())))
            }
        }
    }

    /// Gives what is due instead, oldest first, if that is another slot: others may have begun slots while the lock was
    /// waited for.
    async fn instead(
        &self,
        name: &JobName,
        due: &Due,
        state: &State,
    ) -> Result<Option<(Due, VecDeque<Due>)>, Error> {
        if self.is_next(name, due, state).await? {
            return Ok(None);
        }
        let mut others = VecDeque::from(self.due().await?);
        let first = others.pop_front().filter(|first| first.slot != due.slot);
        Ok(first.map(|first| (first, others)))
    }

    async fn find(
        &self,
        name: &JobName,
        slot: &Slot,
        request: Option<Uuid>,
    ) -> Result<Found, Error> {
        let (client, resource) = (&self.client, name.resource());
        let state = async {
            let found = client.get(&resource, STATE).optional().await?;
            found.map(|it| Ok::<_, Error>((State::read(&it)?, it.etag.clone()))).transpose()
        };
        let mark = async {
            let mark = client.job_mark(name, slot).await?;
            match (mark, request) {
                (None, Some(request)) => {
                    let taken =
                        client.get(&resource, &request_mark_key(request)).optional().await?;
                    taken.map(|it| it.json()).transpose()
                }
                (mark, _) => Ok(mark),
            }
        };
        let checkpoint =
            async { Ok(client.head(&resource, &checkpoint_key(slot)).optional().await?.is_some()) };
        let attempts = async {
            let begun = client.list(&resource).prefix(&format!("{RUNS}{slot}.")).all().await?;
            let attempts = begun.iter().filter_map(|it| run_of_key(&it.key));
            Ok(attempts.map(|(_, attempt)| attempt).max().unwrap_or(0))
        };
        let lock = client.resource(&resource);
        let found = futures::try_join!(state, mark, checkpoint, attempts, lock)?;
        let (state, mark, has_checkpoint, attempts, lock) = found;
        Ok(Found { state, mark, has_checkpoint, attempts, lock })
    }
}

/// A record, as a put of a commit.
pub(crate) fn put<T: Serialize>(
    commit: CommitBuilder,
    resource: &str,
    key: &str,
    record: &T,
) -> Result<CommitBuilder, Error> {
    Ok(commit.put(resource, key, Body::json(record)?).content_type("application/json"))
}

/// Sends a commit, and asks until it is known what became of it.
pub(crate) async fn settled(commit: CommitBuilder) -> Result<(), Error> {
    match commit.send().await {
        Err(Error::OutcomeUnknown(unknown)) => match unknown.resolve(SETTLED_WITHIN).await? {
            Settled::Applied { .. } => Ok(()),
            Settled::NotApplied(error) => Err(error),
        },
        sent => sent.map(drop),
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Due {
    /// The same once more, since it failed.
    #[must_use]
    pub fn again(&self, slot: &Slot) -> Self {
        Self { slot: Some(slot.clone()), trigger: Trigger::Retry, is_too_late: false }
    }
}
