//! Runs a function as a job: takes the lock, records the start, runs it while the lock is held, records the end.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;

use super::begin::Begun;
use super::job::{Due, Job};
use super::record::{Mark, Run, RunStatus};
use super::running::{JobRun, RunEnd};
use super::slot::CATCH_UP_MAX;
use crate::error::Error;
use crate::guard::Lock;
use crate::jobs::Slot;
use crate::transport::body::Body;

/// How a job ended.
#[derive(Debug)]
pub enum JobEnd<T> {
    /// It ran, and succeeded: with its record, and what the function gave. If several slots were due, of the last.
    Ran(Box<Run>, T),
    /// The slot was done before.
    Done(Mark),
    /// It was too late to begin.
    Skipped(Box<Run>),
}

/// A run, for the function that it is of.
#[derive(Debug)]
pub struct Running {
    run: Arc<JobRun>,
    lock: Arc<Lock>,
}

impl Running {
    /// Its record, as of its start.
    pub fn record(&self) -> &Run {
        self.run.record()
    }

    /// Its slot.
    pub fn slot(&self) -> &Slot {
        self.run.slot()
    }

    /// Which run of its slot it is, from 1.
    pub fn attempt(&self) -> u32 {
        self.run.attempt()
    }

    /// Whether there is a checkpoint to go on with.
    pub fn is_resumed(&self) -> bool {
        self.run.is_resumed()
    }

    /// The lock that it runs under, to write with.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Saves what a later run of the slot needs to go on.
    ///
    /// # Errors
    /// [`Error::LockLost`]: a later run has begun; it does not see this. And what any write gives.
    pub async fn save(&self, checkpoint: impl Into<Body>) -> Result<(), Error> {
        self.lock.put(&self.run.checkpoint(), checkpoint).await.map(drop)
    }

    /// What was saved of this slot, by this run or the one it goes on from.
    ///
    /// # Errors
    /// What any read gives.
    pub async fn load(&self) -> Result<Option<bytes::Bytes>, Error> {
        let job = self.run.resource();
        let client = crate::client::Client { inner: self.lock.held.inner.clone() };
        let found = client.get(&job, &self.run.checkpoint()).optional().await?;
        Ok(found.map(|it| it.bytes))
    }
}

impl Job {
    /// Runs a function once for each slot that is due. A slot that is done is not run again; a function that fails is
    /// recorded so, and run again as [`Job::retries`] says. When the lock is lost, the function is dropped where it waits.
    ///
    /// # Errors
    /// The function's own; [`Error::Busy`]: another run is under way; [`Error::LockLost`]: the run has lost its lock, and
    /// nothing is recorded of its end; [`Error::OutcomeUnknown`]; or the gateway cannot be asked.
    pub async fn run<T, E, F, R>(&self, body: F) -> Result<JobEnd<T>, E>
    where
        F: Fn(Running) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error> + std::fmt::Display,
    {
        let mut last = None;
        let mut left = VecDeque::from(self.due().await?);
        for _ in 0..CATCH_UP_MAX {
            let Some(due) = left.pop_front() else { break };
            // A slot that is done costs no lock.
            if let Some(mark) = self.look(&due).await? {
                last = last.or(Some(JobEnd::Done(mark)));
                continue;
            }
            let replaced = self.replace(&due).await?;
            let lock = Arc::new(self.lock()?.acquire().await?);
            let ended = self.attempts(&lock, due, replaced, &mut left, &body).await;
            lock.release().await;
            last = Some(ended?);
        }
        last.ok_or_else(|| Error::misuse("nothing was due").into())
    }

    /// The run of a slot, and again if it fails, under one lock.
    async fn attempts<T, E, F, R>(
        &self,
        lock: &Arc<Lock>,
        mut due: Due,
        mut replaced: Option<Timestamp>,
        others: &mut VecDeque<Due>,
        body: &F,
    ) -> Result<JobEnd<T>, E>
    where
        F: Fn(Running) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<Error> + std::fmt::Display,
    {
        let mut left = self.retries;
        loop {
            let run = match self.begin(lock, &due, replaced).await? {
                Begun::Instead(first, behind) => {
                    (due, *others) = (first, behind);
                    continue;
                }
                Begun::Run(run) => Arc::new(*run),
                Begun::Done(mark) => return Ok(JobEnd::Done(mark)),
                Begun::Skipped(run) => return Ok(JobEnd::Skipped(run)),
            };
            let running = Running { run: run.clone(), lock: lock.clone() };
            let result = tokio::select! {
                biased;
                lost = lock.lost() => return Err(Error::LockLost(lost).into()),
                result = body(running) => result,
            };
            let end = match &result {
                Ok(_) => RunEnd::new(RunStatus::Succeeded),
                Err(error) => {
                    RunEnd { reason: Some(error.to_string()), ..RunEnd::new(RunStatus::Failed) }
                }
            };
            let end = RunEnd { goes_on: result.is_err() && left > 0, ..end };
            // Whoever keeps what it was given of the run keeps a copy: the end is written once.
            let run = Arc::try_unwrap(run).unwrap_or_else(|kept| kept.copy());
            let slot = run.slot().clone();
            let recorded = run.finish(lock, end).await?;
            match result {
                Ok(value) => return Ok(JobEnd::Ran(Box::new(recorded), value)),
                Err(error) if left == 0 => return Err(error),
                Err(_) => left -= 1,
            }
            tokio::time::sleep(self.backoff).await;
            (due, replaced) = (due.again(&slot), None);
        }
    }
}
