//! What a job is called, and where its records are.

use std::fmt;

use crate::error::Error;
use crate::holding::shard_name;
use crate::jobs::Slot;

/// The longest name.
const NAME_CHARS_MAX: usize = 200;
/// What the resources of jobs begin with.
pub(crate) const PREFIX: &str = "job:";
/// Where requests for runs are put.
const INBOX: &str = "job-inbox:";
/// What whoever waits for requests has the lock of.
const AGENT: &str = "job-agent:";
/// The most parts of a job.
const SHARDS_MAX: u32 = 10_000;

/// One part of a job that is done in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Which one, from 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

/// A job, or one part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    name: String,
    part: Option<Part>,
}

impl JobName {
    /// The job with this name: 1 to 200 of `A-Z a-z 0-9 . _ ~ -`.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is no such name.
    pub fn new(name: &str) -> Result<Self, Error> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
        if !(1..=NAME_CHARS_MAX).contains(&name.len()) || !name.bytes().all(is_good) {
            let text = "the name of a job has 1 to 200 letters, digits, dots, dashes, _ and ~";
            return Err(Error::misuse(format!("{text}: {name:?}")));
        }
        Ok(Self { name: name.to_owned(), part: None })
    }

    /// One part of it.
    ///
    /// # Errors
    /// [`Error::Misuse`]: there are 1 to 10,000 parts, the first is 0.
    pub fn part(&self, index: u32, count: u32) -> Result<Self, Error> {
        if !(1..=SHARDS_MAX).contains(&count) || index >= count {
            let text = format!("there are 1 to {SHARDS_MAX} shards, the first is 0");
            return Err(Error::misuse(text));
        }
        Ok(Self { name: self.name.clone(), part: Some(Part { index, count }) })
    }

    /// That of a resource, if it is one of a job.
    pub fn of_resource(resource: &str) -> Option<Self> {
        let rest = resource.strip_prefix(PREFIX)?;
        let Some((name, part)) = rest.split_once('@') else { return Self::new(rest).ok() };
        let (index, count) = part.split_once('.')?;
        let found = Self::new(name).ok()?.part(index.parse().ok()?, count.parse().ok()?).ok()?;
        (found.resource() == resource).then_some(found)
    }

    /// Its name, without the part.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which part of it this is.
    pub fn which(&self) -> Option<Part> {
        self.part
    }

    /// The resource that has its lock and its records.
    pub fn resource(&self) -> String {
        let whole = format!("{PREFIX}{}", self.name);
        match self.part {
            Some(Part { index, count }) => shard_name(&whole, index, count),
            None => whole,
        }
    }

    /// The resource where requests for runs are put.
    pub fn inbox(&self) -> String {
        format!("{INBOX}{}", self.name)
    }

    /// The resource whose lock an agent has, who waits for requests.
    pub fn agent(&self) -> String {
        format!("{AGENT}{}", self.name)
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(Part { index, count }) => f.write_str(&shard_name(&self.name, index, count)),
            None => f.write_str(&self.name),
        }
    }
}

/// The state of the job as a whole.
pub(crate) const STATE: &str = "state.json";
/// What the records and logs of runs begin with.
pub(crate) const RUNS: &str = "runs/";

/// The run that an object is of: `runs/SLOT.ATTEMPT.json` and the like.
pub(crate) fn run_of_key(key: &str) -> Option<(Slot, u32)> {
    let stem = key.strip_prefix(RUNS)?.rsplit_once('.')?.0;
    let (slot, attempt) = stem.rsplit_once('.')?;
    Some((Slot::of_record(slot).ok()?, attempt.parse().ok()?))
}

/// The record of a run.
pub(crate) fn run_key(slot: &Slot, attempt: u32) -> String {
    format!("{RUNS}{slot}.{attempt}.json")
}

/// That a slot is done.
pub(crate) fn slot_key(slot: &Slot) -> String {
    format!("slots/{slot}.json")
}

/// That a request was taken.
pub(crate) fn request_mark_key(request: uuid::Uuid) -> String {
    format!("slots/req-{request}.json")
}

/// What the command of a slot has saved.
pub fn checkpoint_key(slot: &Slot) -> String {
    format!("checkpoints/{slot}")
}
