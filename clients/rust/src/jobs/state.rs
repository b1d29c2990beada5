//! The state of a job as a whole, and how the start and the end of a run change it. No I/O, no clock.

use fencegate_wire::Word;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::name::JobName;
use super::record::{Expect, FORM, Run, RunStatus, Summary};
use crate::error::Error;
use crate::jobs::Slot;
use crate::reading::Object;

/// How many runs the state has a line of.
const RECENT: usize = 50;
/// Nothing is stuck before that.
const LEAST_MS: u64 = 60_000;
/// So many successes tell how long a run takes.
const ENOUGH: usize = 3;

/// The state of a job, or of one part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The form of the record.
    pub v: u32,
    /// The job.
    pub job: String,
    /// Which part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// How many parts there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// What is expected of it.
    #[serde(default)]
    pub expect: Expect,
    /// The highest slot of the schedule of which a run has begun, or that was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<Slot>,
    /// Of slots up to this one nobody knows any more whether they were done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten_through: Option<Slot>,
    /// The run that has begun and has not ended, as far as the record goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Run>,
    /// The run that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Summary>,
    /// The success of the highest slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Summary>,
    /// How many runs have failed since.
    #[serde(default)]
    pub failures_in_row: u32,
    /// The runs that have ended, the newest first.
    #[serde(default)]
    pub recent: Vec<Summary>,
    /// What a newer version has written beside.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl State {
    /// Reads it. One of a newer form is left alone.
    pub(crate) fn read(object: &Object) -> Result<Self, Error> {
        let state: Self = object.json()?;
        if state.v != FORM {
            return Err(Error::misuse(format!(
                "the state of {} is that of a newer client",
                object.resource
            )));
        }
        Ok(state)
    }

    /// Of a job that has never run.
    pub(crate) fn new(name: &JobName) -> Self {
        Self {
            v: FORM,
            job: name.name().to_owned(),
            shard: name.which().map(|part| part.index),
            shards: name.which().map(|part| part.count),
            expect: Expect::default(),
            last_slot: None,
            forgotten_through: None,
            running: None,
            last: None,
            last_success: None,
            failures_in_row: 0,
            recent: Vec::new(),
            other: Map::new(),
        }
    }

    /// Under the lock of a run that begins, whoever is still said to be running is not: its lock has ended, or ours would
    /// not have been granted. Gives its record, as it is now.
    pub(crate) fn abandon(&mut self, status: RunStatus, why: &str) -> Option<Run> {
        let mut left = self.running.take()?;
        left.status = status.into();
        left.reason = Some(why.to_owned());
        self.ended(&left);
        Some(left)
    }

    /// What is expected of it. A run that somebody calls for by hand does not end what is expected of the schedule.
    pub(crate) fn expect(&mut self, expect: Expect) {
        let kept = std::mem::take(&mut self.expect);
        self.expect = match expect.every_ms {
            Some(_) => expect,
            None => {
                Expect { max_runtime_ms: expect.max_runtime_ms.or(kept.max_runtime_ms), ..kept }
            }
        };
    }

    /// A run has begun.
    pub(crate) fn begun(&mut self, run: &Run, expect: Expect) {
        self.expect(expect);
        self.note_slot(&run.slot);
        self.running = Some(run.clone());
    }

    /// A run has ended, or was skipped.
    pub(crate) fn ended(&mut self, run: &Run) {
        if self.running.as_ref().is_some_and(|running| running.run == run.run) {
            self.running = None;
        }
        self.note_slot(&run.slot);
        let summary = run.summary();
        let status = match &run.status {
            Word::Known(status) => Some(*status),
            Word::Other(_) => None,
        };
        match status {
            Some(RunStatus::Succeeded) => {
                self.failures_in_row = 0;
                // An old slot that is made up for later is not news of the schedule.
                if self.last_success.as_ref().is_none_or(|last| last.slot <= summary.slot) {
                    self.last_success = Some(summary.clone());
                }
            }
            Some(status) if status.is_failure() => {
                self.failures_in_row = self.failures_in_row.saturating_add(1);
            }
            _ => {}
        }
        self.last = Some(summary.clone());
        self.recent.insert(0, summary);
        self.recent.truncate(RECENT);
    }

    fn note_slot(&mut self, slot: &Slot) {
        if slot.is_scheduled() && self.last_slot.as_ref().is_none_or(|last| last < slot) {
            self.last_slot = Some(slot.clone());
        }
    }

    /// Slots up to this one are forgotten.
    pub(crate) fn forget(&mut self, slot: &Slot) {
        if slot.is_scheduled() && self.forgotten_through.as_ref().is_none_or(|last| last < slot) {
            self.forgotten_through = Some(slot.clone());
        }
    }

    /// When the next slot begins.
    pub fn next_slot_at(&self) -> Option<Timestamp> {
        let every_ms = i64::try_from(self.expect.every_ms?).ok()?;
        let last = self.last_slot.as_ref()?;
        let next_ms = last.time().as_millisecond().checked_add(every_ms)?;
        Timestamp::from_millisecond(next_ms).ok()
    }

    /// Since when it is overdue, or from when on it will be: the slot after the last success has begun, and some time
    /// has passed since (CC64). Without a success nothing is known.
    pub fn overdue_at(&self) -> Option<Timestamp> {
        let every_ms = self.expect.every_ms?;
        let after_ms = every_ms.checked_add(self.expect.overdue_after_ms.unwrap_or(every_ms))?;
        let from = self.last_success.as_ref()?.slot.time();
        let at_ms = from.as_millisecond().checked_add(i64::try_from(after_ms).ok()?)?;
        Timestamp::from_millisecond(at_ms).ok()
    }

    /// How long a run may take before it is stuck, in milliseconds: what was said, or three times the median of the
    /// successes that are known, if there are three of them, and a minute at least.
    pub fn stuck_after_ms(&self) -> Option<u64> {
        if let Some(most) = self.expect.max_runtime_ms {
            return Some(most);
        }
        let successes = self.recent.iter().filter(|it| it.status == RunStatus::Succeeded);
        let mut took: Vec<u64> = successes.filter_map(|it| it.duration_ms).collect();
        took.sort_unstable();
        let count = took.len();
        let middle = took.get(count.saturating_sub(1) / 2..=count / 2)?;
        // Three times the mean of the two in the middle, of which an odd number has one.
        let thrice = middle.iter().fold(0_u64, |sum, ms| sum.saturating_add(*ms)).saturating_mul(3);
        let most = (thrice / middle.len().max(1) as u64).max(LEAST_MS);
        Some(most).filter(|_| count >= ENOUGH)
    }
}
