//! The records of a job, as they are stored: `docs/jobs.md` describes them. What a newer version has written beside is kept.

use std::time::Duration;

use fencegate_wire::Word;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::jobs::Slot;

/// The form of the records.
pub(crate) const FORM: u32 = 1;

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It has begun. Whether it is under way is said by its lock.
    Started,
    /// It did what it was to do.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// It was told to end.
    Cancelled,
    /// It ran for longer than it may.
    TimedOut,
    /// Its lock ended before it did: what became of it is not known here.
    Abandoned,
    /// It was too late to begin.
    Skipped,
}

impl RunStatus {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Abandoned => "abandoned",
            Self::Skipped => "skipped",
        }
    }

    /// Whether it counts as a failure of the job.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::Abandoned)
    }
}

impl From<RunStatus> for &'static str {
    fn from(status: RunStatus) -> Self {
        status.as_str()
    }
}

/// Why a run was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Its slot had come.
    Schedule,
    /// Its slot had been missed.
    CatchUp,
    /// Somebody called it, without a slot.
    Manual,
    /// Somebody asked for it.
    Request,
    /// The attempt before it failed.
    Retry,
}

impl From<Trigger> for &'static str {
    fn from(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Schedule => "schedule",
            Trigger::CatchUp => "catch_up",
            Trigger::Manual => "manual",
            Trigger::Request => "request",
            Trigger::Retry => "retry",
        }
    }
}

/// What is known of the output of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// How many bytes it had.
    pub bytes: u64,
    /// Whether the log has not all of them.
    pub truncated: bool,
    /// The SHA-256 of all of it, in hexadecimal; absent if not all of it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The form of the record.
    pub v: u32,
    /// Its id.
    pub run: Uuid,
    /// The job.
    pub job: String,
    /// Which part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// How many parts there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Its slot.
    pub slot: Slot,
    /// Which run of that slot, from 1.
    pub attempt: u32,
    /// What became of it.
    pub status: Word<RunStatus>,
    /// The owner of its lock.
    pub owner: String,
    /// On which host it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The process that held its lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The program, without its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Why it was begun.
    pub trigger: Word<Trigger>,
    /// When its lock was granted, as the gateway says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<Timestamp>,
    /// How long the lock had been held then, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_age_ms: Option<u64>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The exit code of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// The signal that its command died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it ended so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is known of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The run whose checkpoint it found, as in the names of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// The request for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Uuid>,
    /// Its fence token, once it is no secret any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// What a newer version has written beside.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Run {
    /// `SLOT.ATTEMPT`: what its objects are called.
    pub fn stem(&self) -> String {
        format!("{}.{}", self.slot, self.attempt)
    }

    /// The object of its record.
    pub fn object(&self) -> String {
        format!("{}{}.json", super::name::RUNS, self.stem())
    }

    /// The object of its log.
    pub fn log_object(&self) -> String {
        format!("{}{}.log", super::name::RUNS, self.stem())
    }

    /// What the state keeps of it.
    pub fn summary(&self) -> Summary {
        Summary {
            run: self.run,
            slot: self.slot.clone(),
            attempt: self.attempt,
            status: self.status.clone(),
            started_at: self.started_at,
            finished_at: self.finished_at,
            duration_ms: self.duration_ms,
            reason: self.reason.clone(),
        }
    }
}

/// What the state keeps of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its id.
    pub run: Uuid,
    /// Its slot.
    pub slot: Slot,
    /// Which run of that slot.
    pub attempt: u32,
    /// What became of it.
    pub status: Word<RunStatus>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why it ended so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Summary {
    /// `SLOT.ATTEMPT`.
    pub fn stem(&self) -> String {
        format!("{}.{}", self.slot, self.attempt)
    }

    /// Says whether its slot is done with it.
    pub(crate) fn is_over(&self) -> bool {
        self.status == RunStatus::Succeeded || self.status == RunStatus::Skipped
    }
}

/// What is expected of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// How often it runs, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// How long after the next slot has begun it is overdue, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_after_ms: Option<u64>,
    /// How long a run may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_ms: Option<u64>,
}

impl Expect {
    /// In whole milliseconds. Without a word, a job is overdue once it has missed one whole interval.
    pub(crate) fn new(
        every: Option<Duration>,
        overdue_after: Option<Duration>,
        max_runtime: Option<Duration>,
    ) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            every_ms: every.map(ms),
            overdue_after_ms: every.and(overdue_after.or(every)).map(ms),
            max_runtime_ms: max_runtime.map(ms),
        }
    }
}

/// That a slot is done, or a request was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The form of the record.
    pub v: u32,
    /// The run that did it, or claimed it.
    pub run: Uuid,
    /// The object of its record.
    pub object: String,
    /// What the run was when this was written.
    pub status: Word<RunStatus>,
}

/// A request for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The form of the record.
    pub v: u32,
    /// Its id.
    pub request: Uuid,
    /// The job.
    pub job: String,
    /// The slot to run; without it, one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// Whether to go on with a checkpoint.
    #[serde(default)]
    pub resume: bool,
    /// Why.
    pub reason: String,
    /// Who asks.
    pub by: String,
    /// When.
    pub requested_at: Timestamp,
}
