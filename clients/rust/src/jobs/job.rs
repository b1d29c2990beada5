//! A job as its runner describes it, and what is due of it.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::name::{JobName, STATE, request_mark_key, slot_key};
use super::record::{Expect, Mark, Trigger};
use super::slot::{checked, to_catch_up};
use super::state::State;
use crate::acquire::{LockBuilder, Wait};
use crate::client::Client;
use crate::error::{Details, Error};
use crate::jobs::Slot;

/// The longest reason.
pub(crate) const REASON_CHARS_MAX: usize = 500;
/// The most runs whose records are kept.
const KEEP_MAX: u32 = 100_000;

/// How often a slot is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OncePolicy {
    /// Until a run succeeds: at least once.
    #[default]
    Done,
    /// One run, whatever becomes of it: at most once.
    Claimed,
}

/// What becomes of slots that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// Nothing; and the slot of now is skipped, too, if it is later than `overdue_after`.
    None,
    /// Nothing: the slot of now counts.
    #[default]
    Last,
    /// Each is run, oldest first, since the last one that was begun, and that one too if it is not done; at most 100 at a time.
    All,
}

/// What becomes of a run while another is under way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It is not begun.
    #[default]
    Skip,
    /// It waits.
    Wait,
    /// It ends the other, for this reason, which has that long to end by itself.
    Replace {
        /// Why: the other is told it, and the audit keeps it.
        reason: String,
        /// How long the other has.
        grace: Duration,
    },
}

/// One run that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Of which slot; `None`: of one of its own.
    pub slot: Option<Slot>,
    /// Why.
    pub trigger: Trigger,
    /// Whether it is too late, and is recorded as skipped.
    pub is_too_late: bool,
}

/// A job, described; made by [`Client::job`]. [`Job::run`] runs it.
#[must_use = "a job does nothing before it is run"]
#[derive(Debug, Clone)]
pub struct Job {
    pub(crate) client: Client,
    pub(crate) name: Result<JobName, String>,
    pub(crate) every: Option<Duration>,
    pub(crate) slot: Option<Slot>,
    pub(crate) overdue_after: Option<Duration>,
    pub(crate) max_runtime: Option<Duration>,
    pub(crate) once: OncePolicy,
    pub(crate) catch_up: CatchUp,
    pub(crate) overlap: Overlap,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) keep: u32,
    pub(crate) resumes: bool,
    pub(crate) retries: u32,
    pub(crate) backoff: Duration,
    pub(crate) program: Option<String>,
    pub(crate) request: Option<Uuid>,
}

impl Client {
    /// A job: something that is run once for each slot of a schedule, by one of many hosts. `docs/jobs.md` has what is
    /// promised of it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// use std::time::Duration;
    /// use fencegate_client::Error;
    /// use fencegate_client::jobs::JobEnd;
    ///
    /// let job = client.job("close-books").every(Duration::from_secs(86_400));
    /// for turn in 1..=2 {
    ///     let end = job.run(async |run| {
    ///         println!("slot {}, attempt {}", run.slot(), run.attempt());
    ///         Ok::<_, Error>(())
    ///     });
    ///     // The second call finds the slot done.
    ///     assert_eq!(matches!(end.await?, JobEnd::Done(_)), turn == 2);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn job(&self, name: &str) -> Job {
        Job {
            client: self.clone(),
            name: JobName::new(name).map_err(|error| error.to_string()),
            every: None,
            slot: None,
            overdue_after: None,
            max_runtime: None,
            once: OncePolicy::default(),
            catch_up: CatchUp::default(),
            overlap: Overlap::default(),
            ttl: Duration::from_secs(30),
            wait: None,
            keep: 200,
            resumes: false,
            retries: 0,
            backoff: Duration::from_secs(10),
            program: None,
            request: None,
        }
    }
}

impl Job {
    /// Once in each such interval, counted from 1970: whole seconds, up to 366 days.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// For this slot, and not for that of now.
    pub fn slot(mut self, slot: Slot) -> Self {
        self.slot = Some(slot);
        self
    }

    /// One part of it.
    pub fn part(mut self, index: u32, count: u32) -> Self {
        self.name =
            self.name.and_then(|name| name.part(index, count).map_err(|error| error.to_string()));
        self
    }

    /// How long after the next slot has begun the job is overdue; by default as long as the interval.
    pub fn overdue_after(mut self, after: Duration) -> Self {
        self.overdue_after = Some(after);
        self
    }

    /// How long a run may take before it counts as stuck. Whoever runs the job ends it then.
    pub fn max_runtime(mut self, most: Duration) -> Self {
        self.max_runtime = Some(most);
        self
    }

    /// How often a slot is tried.
    pub fn once(mut self, once: OncePolicy) -> Self {
        self.once = once;
        self
    }

    /// What becomes of slots that were missed.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// What happens if another run is under way.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// How long the lock lasts without renewal; by default 30 s. A run that dies blocks the next for so long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for another run to end, where it is waited for; by default for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Of how many runs the records are kept; by default 200.
    pub fn keep(mut self, runs: u32) -> Self {
        self.keep = runs;
        self
    }

    /// Goes on with what an earlier run of the slot has saved.
    pub fn resume(mut self) -> Self {
        self.resumes = true;
        self
    }

    /// How often a run that fails is followed by another at once, and after what pause.
    pub fn retries(mut self, retries: u32, backoff: Duration) -> Self {
        (self.retries, self.backoff) = (retries, backoff);
        self
    }

    /// What is run, for the record.
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.program = Some(name.into());
        self
    }

    /// The request that is carried out: it is taken once.
    pub fn request(mut self, request: Uuid) -> Self {
        self.request = Some(request);
        self
    }

    /// Checks what was said, without asking anybody, and gives the name.
    ///
    /// # Errors
    /// [`Error::Misuse`]: something that no job can have.
    pub fn check(&self) -> Result<JobName, Error> {
        let name = self.name.clone().map_err(|text| Error::Misuse(Details::local(text)))?;
        self.every.map(checked).transpose()?;
        if self.catch_up == CatchUp::All && self.every.is_none() {
            return Err(Error::misuse(
                "slots are caught up of a schedule: say how often with `every`",
            ));
        }
        if let Overlap::Replace { reason, .. } = &self.overlap
            && (reason.trim().is_empty() || reason.chars().count() > REASON_CHARS_MAX)
        {
            return Err(Error::misuse(format!("a reason has 1 to {REASON_CHARS_MAX} characters")));
        }
        if self.once == OncePolicy::Claimed && self.retries > 0 {
            return Err(Error::misuse(
                "a slot that is tried at most once is not tried again: no retries",
            ));
        }
        if !(1..=KEEP_MAX).contains(&self.keep) {
            return Err(Error::misuse(format!("1 to {KEEP_MAX} runs are kept")));
        }
        self.locked(&name).check()?;
        Ok(name)
    }

    pub(crate) fn expect(&self) -> Expect {
        Expect::new(self.every, self.overdue_after, self.max_runtime)
    }

    /// What is due now, by the gateway's clock: oldest first, one run at least.
    ///
    /// # Errors
    /// [`Error::Misuse`] as [`Job::check`]; or the gateway cannot be asked.
    pub async fn due(&self) -> Result<Vec<Due>, Error> {
        let name = self.check()?;
        let one = |slot, trigger| vec![Due { slot, trigger, is_too_late: false }];
        let by_schedule = if self.request.is_some() { Trigger::Request } else { Trigger::Schedule };
        let by_hand = if self.request.is_some() { Trigger::Request } else { Trigger::Manual };
        if let Some(slot) = &self.slot {
            let is_too_late = match self.catch_up {
                CatchUp::None => self.is_too_late(slot, self.client.gateway_time().await?),
                CatchUp::Last | CatchUp::All => false,
            };
            return Ok(vec![Due { slot: Some(slot.clone()), trigger: by_schedule, is_too_late }]);
        }
        let Some(every) = self.every else {
            let slot = if self.resumes { self.unfinished(&name).await? } else { None };
            return Ok(one(slot, by_hand));
        };
        let now = self.client.gateway_time().await?;
        let slot = Slot::at(now, every)?;
        match self.catch_up {
            CatchUp::Last => Ok(one(Some(slot), by_schedule)),
            CatchUp::None => {
                let is_too_late = self.is_too_late(&slot, now);
                Ok(vec![Due { slot: Some(slot), trigger: by_schedule, is_too_late }])
            }
            CatchUp::All => self.missed(&name, slot, every).await,
        }
    }

    /// Whether a slot is too late to begin now.
    pub(crate) fn is_too_late(&self, slot: &Slot, now: Timestamp) -> bool {
        let skips = self.catch_up == CatchUp::None && slot.is_scheduled();
        skips && super::slot::is_too_late(slot, now, self.every, self.overdue_after)
    }

    /// The slots since the last one that was begun, and that of now.
    async fn missed(&self, name: &JobName, now: Slot, every: Duration) -> Result<Vec<Due>, Error> {
        let state = self.client.job_state(name).await?.unwrap_or_else(|| State::new(name));
        let last_is_done = self.last_is_done(name, &state).await?;
        let slots = to_catch_up(every, &now, state.last_slot.as_ref(), last_is_done)?;
        let due = |slot: Slot| Due {
            trigger: if slot == now { Trigger::Schedule } else { Trigger::CatchUp },
            slot: Some(slot),
            is_too_late: false,
        };
        Ok(slots.into_iter().map(due).collect())
    }

    /// Says whether the last slot is done. Its mark is read only if the state does not tell.
    async fn last_is_done(&self, name: &JobName, state: &State) -> Result<bool, Error> {
        let Some(last) = &state.last_slot else { return Ok(false) };
        // A forgotten slot counts as done: nobody can tell, so it is not begun again.
        let is_forgotten = state.forgotten_through.as_ref().is_some_and(|through| last <= through);
        let is_told = state.last.as_ref().is_some_and(|run| run.slot == *last && run.is_over());
        Ok(is_forgotten || is_told || self.client.job_mark(name, last).await?.is_some())
    }

    /// Says whether a slot that is to be caught up comes next still, by the state under the lock.
    pub(crate) async fn is_next(
        &self,
        name: &JobName,
        due: &Due,
        state: &State,
    ) -> Result<bool, Error> {
        let is_caught_up = self.catch_up == CatchUp::All && self.slot.is_none();
        // A retry is of the slot that the run before it had.
        if !is_caught_up || due.trigger == Trigger::Retry {
            return Ok(true);
        }
        match (self.every, &due.slot, &state.last_slot) {
            (Some(every), Some(slot), Some(last)) if last < slot => {
                let last_is_done = self.last_is_done(name, state).await?;
                Ok(to_catch_up(every, slot, Some(last), last_is_done)?.first() == Some(slot))
            }
            (_, Some(slot), Some(last)) => Ok(slot == last),
            _ => Ok(true),
        }
    }

    /// The slot of the last run, if that did not succeed.
    async fn unfinished(&self, name: &JobName) -> Result<Option<Slot>, Error> {
        let Some(state) = self.client.job_state(name).await? else { return Ok(None) };
        let is_known =
            |slot: &Slot| state.forgotten_through.as_ref().is_none_or(|through| slot > through);
        if let Some(running) = state.running {
            return Ok(Some(running.slot).filter(is_known));
        }
        let last = state.last.filter(|last| !last.is_over());
        Ok(last.map(|last| last.slot).filter(is_known))
    }

    /// Whether this slot is done, and by whom. Costs one read and no lock.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn look(&self, due: &Due) -> Result<Option<Mark>, Error> {
        let name = self.check()?;
        match &due.slot {
            Some(slot) => self.client.job_mark(&name, slot).await,
            None => Ok(None),
        }
    }

    /// The lock that a run is made under.
    ///
    /// # Errors
    /// [`Error::Misuse`] as [`Job::check`].
    pub fn lock(&self) -> Result<LockBuilder, Error> {
        Ok(self.locked(&self.check()?))
    }

    fn locked(&self, name: &JobName) -> LockBuilder {
        let wait = match (&self.overlap, self.wait) {
            (Overlap::Skip, _) => Wait::UpTo(Duration::ZERO),
            (_, Some(wait)) => Wait::UpTo(wait),
            (_, None) => Wait::Forever,
        };
        // What runs may write under the token, too.
        self.client.lock(name.resource()).ttl(self.ttl).wait(wait).unnumbered()
    }

    /// Breaks the lock of a run that is under way, where that is wanted. Says when that lock had been granted.
    ///
    /// # Errors
    /// The gateway refuses, or cannot be asked.
    pub async fn replace(&self, due: &Due) -> Result<Option<Timestamp>, Error> {
        let Overlap::Replace { reason, grace } = &self.overlap else { return Ok(None) };
        if due.is_too_late {
            return Ok(None);
        }
        let resource = self.check()?.resource();
        let found = match self.client.resource(&resource).await {
            Ok(found) if found.state.as_str() == "leased" => found,
            Ok(_) | Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.client.break_lock(&resource, reason).after(*grace).await {
            Ok(_) => Ok(Some(found.acquired_at)),
            // It has ended meanwhile.
            Err(Error::NotFound(_) | Error::Changed(_) | Error::LockLost(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Client {
    /// The gateway's clock, in whole seconds: the one that all hosts agree on.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::GatewayFault`]: its answer does not say when it was.
    pub async fn gateway_time(&self) -> Result<Timestamp, Error> {
        let request = crate::transport::request::Request::get("/healthz");
        let answer = self.inner.call("time", &request, self.inner.call_until_ms()).await?;
        let date = answer.headers.get(reqwest::header::DATE).and_then(|date| date.to_str().ok());
        let read = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        let none = || Error::GatewayFault(Details::local("an answer without a Date"));
        read.map(|time| time.timestamp()).ok_or_else(none)
    }

    /// Which run has taken a request; `None`: none yet.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn job_request_mark(
        &self,
        name: &JobName,
        request: Uuid,
    ) -> Result<Option<Mark>, Error> {
        let found = self.get(&name.resource(), &request_mark_key(request)).optional().await?;
        found.map(|found| found.json()).transpose()
    }

    pub(crate) async fn job_state(&self, name: &JobName) -> Result<Option<State>, Error> {
        let found = self.get(&name.resource(), STATE).optional().await?;
        found.map(|found| State::read(&found)).transpose()
    }

    pub(crate) async fn job_mark(
        &self,
        name: &JobName,
        slot: &Slot,
    ) -> Result<Option<Mark>, Error> {
        let found = self.get(&name.resource(), &slot_key(slot)).optional().await?;
        found.map(|found| found.json()).transpose()
    }
}
