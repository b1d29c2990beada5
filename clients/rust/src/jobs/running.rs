//! A run that has begun, and its end: one commit has its record, its log, its slot, and what is not kept any more.

use fencegate_wire::Token;
use jiff::Timestamp;

use super::begin::{put, settled};
use super::job::{Job, OncePolicy, REASON_CHARS_MAX};
use super::name::{JobName, STATE, checkpoint_key, slot_key};
use super::prune::Old;
use super::record::{FORM, Mark, Output, Run, RunStatus};
use super::state::State;
use crate::clock::now_ms;
use crate::error::{Details, Error};
use crate::guard::Lock;
use crate::jobs::Slot;
use crate::transport::body::Body;

/// A run that has begun.
#[derive(Debug)]
pub struct JobRun {
    job: Job,
    name: JobName,
    run: Run,
    token: Token,
    began_ms: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Default)]
pub struct RunEnd {
    /// So.
    pub status: Option<RunStatus>,
    /// The exit code of its command.
    pub exit: Option<u8>,
    /// The signal that its command died of.
    pub signal: Option<i32>,
    /// Why it ended so, for people. The first 500 characters are kept.
    pub reason: Option<String>,
    /// What is known of its output.
    pub output: Option<Output>,
    /// Whether another run follows under the same lock: then its token is a secret still.
    pub goes_on: bool,
    /// Its log, if it is short. A long one is put before, under the name that [`Run::log_object`] gives.
    pub log: Option<bytes::Bytes>,
}

impl RunEnd {
    /// It ended so.
    pub fn new(status: RunStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }
}

impl JobRun {
    pub(crate) fn new(job: Job, name: JobName, run: Run, lock: &Lock) -> Self {
        Self { job, name, run, token: lock.token(), began_ms: now_ms() }
    }

    /// The same once more.
    pub(crate) fn copy(&self) -> Self {
        Self {
            job: self.job.clone(),
            name: self.name.clone(),
            run: self.run.clone(),
            token: self.token,
            began_ms: self.began_ms,
        }
    }

    /// Its record, as of its start.
    pub fn record(&self) -> &Run {
        &self.run
    }

    /// Its slot.
    pub fn slot(&self) -> &Slot {
        &self.run.slot
    }

    /// Which run of its slot it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Whether there is a checkpoint to go on with.
    pub fn is_resumed(&self) -> bool {
        self.run.resumed_from.is_some()
    }

    /// The resource that it runs under.
    pub fn resource(&self) -> String {
        self.name.resource()
    }

    /// The object that its checkpoint is.
    pub fn checkpoint(&self) -> String {
        checkpoint_key(self.slot())
    }

    /// Records its end. Without an answer that settles it, the outcome is asked for, for up to a minute. Gives the record.
    ///
    /// # Errors
    /// [`Error::LockLost`]: nothing was recorded, and what the run wrote after its lock was lost has no effect, either.
    /// [`Error::OutcomeUnknown`]: nobody can say whether it was recorded. Or the gateway cannot be asked.
    pub async fn finish(self, lock: &Lock, end: RunEnd) -> Result<Run, Error> {
        let Self { job, name, mut run, token, began_ms } = self;
        let resource = name.resource();
        // 1. The record, as it will be.
        let status = end.status.unwrap_or(RunStatus::Failed);
        run.status = status.into();
        run.finished_at = Some(Timestamp::now());
        run.duration_ms = Some(now_ms().saturating_sub(began_ms));
        (run.exit, run.signal, run.output) = (end.exit, end.signal, end.output);
        run.reason = end.reason.map(|reason| reason.chars().take(REASON_CHARS_MAX).collect());
        run.fence = Some(token.to_string()).filter(|_| !end.goes_on);
        // 2. The state is still the one that our own start left, or the lock is not ours any more.
        let found = job.client.get(&resource, STATE).optional().await?;
        let gone = || Error::GatewayFault(Details::local("the state of the job is gone"));
        let found = found.ok_or_else(gone)?;
        let mut state = State::read(&found)?;
        state.ended(&run);
        // 3. What is not kept any more.
        let old = super::prune::beyond(&job.client, &name, job.keep, Some(&run)).await;
        let old = old.unwrap_or_else(|error| {
            // The next run removes it; that this one has ended is worth more.
            tracing::warn!(job = %name, %error, "old runs are not removed");
            Old::default()
        });
        if let Some(slot) = &old.forgotten_through {
            state.forget(slot);
        }
        // 4. All of it at once, or nothing.
        let mut commit = put(lock.commit(), &resource, &run.object(), &run)?;
        commit = put(commit, &resource, STATE, &state)?.if_match(&found.etag);
        if let Some(log) = end.log {
            let body = Body::from(log);
            commit = commit
                .put(&resource, &run.log_object(), body)
                .content_type("text/plain; charset=utf-8");
        }
        if status == RunStatus::Succeeded {
            if job.once == OncePolicy::Done {
                let mark =
                    Mark { v: FORM, run: run.run, object: run.object(), status: status.into() };
                commit = put(commit, &resource, &slot_key(&run.slot), &mark)?.if_absent();
            }
            commit = commit.delete(&resource, &checkpoint_key(&run.slot));
        }
        for key in &old.objects {
            commit = commit.delete(&resource, key);
        }
        settled(commit).await?;
        Ok(run)
    }
}
