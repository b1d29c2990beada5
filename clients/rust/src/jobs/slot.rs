//! Slots: the moments of a job's schedule, each of which is done once.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Error;

/// `20261122T020000Z`.
const FORMAT: &str = "%Y%m%dT%H%M%SZ";
/// `2026-11-22T02:00:00Z`.
const RFC_3339: &str = "%Y-%m-%dT%H:%M:%SZ";
/// How many characters the first of them has.
const TIME_CHARS: usize = 16;
/// How many characters of a run's id a slot of its own has.
const OWN_CHARS: usize = 8;
/// The most slots that are caught up at once.
pub const CATCH_UP_MAX: usize = 100;
/// The longest interval of a schedule: a year is enough for anybody.
const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A moment of a schedule, `20261122T020000Z`; or, with a dash and eight characters behind it, the slot of one run
/// alone. Slots sort as their times do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slot(String);

impl Slot {
    /// The slot of a schedule at this time: the last whole multiple of the interval since 1970-01-01T00:00Z.
    ///
    /// # Errors
    /// [`Error::Misuse`]: the interval has no whole seconds, is shorter than one or longer than 366 days, or the time is
    /// before 1970.
    pub fn at(now: Timestamp, every: Duration) -> Result<Self, Error> {
        let every_s = checked(every)?;
        let now_s = now.as_second();
        if now_s < 0 {
            return Err(Error::misuse("a slot is not before 1970"));
        }
        Self::of_second(now_s - now_s % every_s)
    }

    /// A slot that only this run has.
    pub(crate) fn own(now: Timestamp, run: Uuid) -> Result<Self, Error> {
        let id = run.simple().to_string();
        let Slot(time) = Self::of_second(now.as_second())?;
        let tail = id.get(id.len() - OWN_CHARS..).unwrap_or_default();
        Ok(Self(format!("{time}-{tail}")))
    }

    fn of_second(second: i64) -> Result<Self, Error> {
        let time = Timestamp::from_second(second).ok();
        let text = time.map(|time| time.strftime(FORMAT).to_string());
        text.filter(|text| text.len() == TIME_CHARS)
            .map(Self)
            .ok_or_else(|| Error::misuse("a slot is in the years 1970 to 9999"))
    }

    /// Its time.
    pub fn time(&self) -> Timestamp {
        // It was read, or made, so.
        let second = exactly(FORMAT, self.time_text()).unwrap_or_default();
        Timestamp::from_second(second).unwrap_or_default()
    }

    /// Whether it is one of a schedule, and not of one run alone.
    pub fn is_scheduled(&self) -> bool {
        self.0.len() == TIME_CHARS
    }

    /// The one behind it in a schedule.
    ///
    /// # Errors
    /// As [`Slot::at`].
    pub fn next(&self, every: Duration) -> Result<Self, Error> {
        Self::of_second(self.time().as_second().saturating_add(checked(every)?))
    }

    /// As it stands in names of objects.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn time_text(&self) -> &str {
        self.0.get(..TIME_CHARS).unwrap_or_default()
    }
}

/// The slots that a call runs that catches up with all: those since the last one that was begun, and that one too if it
/// is not done; oldest first, and not too many (CC63).
///
/// # Errors
/// As [`Slot::at`].
pub fn to_catch_up(
    every: Duration,
    now: &Slot,
    last: Option<&Slot>,
    last_is_done: bool,
) -> Result<Vec<Slot>, Error> {
    let Some(last) = last.filter(|last| *last <= now) else { return Ok(vec![now.clone()]) };
    let mut slots = Vec::new();
    if !last_is_done {
        slots.push(last.clone());
    }
    // The interval may be another one now: whole multiples of it.
    let mut next = Slot::at(last.time(), every)?.next(every)?;
    while next <= *now && slots.len() < CATCH_UP_MAX {
        let after = next.next(every)?;
        slots.push(std::mem::replace(&mut next, after));
    }
    Ok(if slots.is_empty() { vec![now.clone()] } else { slots })
}

/// Whether a slot is too late to begin, for who makes up for nothing (CC63).
pub fn is_too_late(
    slot: &Slot,
    now: Timestamp,
    every: Option<Duration>,
    overdue_after: Option<Duration>,
) -> bool {
    let late = Duration::try_from(now.duration_since(slot.time())).unwrap_or_default();
    overdue_after.or(every).is_some_and(|after| late > after)
}

/// An interval in seconds.
pub(crate) fn checked(every: Duration) -> Result<i64, Error> {
    let is_good = every.subsec_nanos() == 0 && !every.is_zero() && every <= EVERY_MAX;
    let seconds = i64::try_from(every.as_secs()).ok().filter(|_| is_good);
    seconds.ok_or_else(|| {
        Error::misuse("the interval of a job has whole seconds, at least one and at most 366 days")
    })
}

impl FromStr for Slot {
    type Err = Error;

    /// Reads a slot as a caller names it: `20261122T020000Z` or `2026-11-22T02:00:00Z`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let format = if text.len() == TIME_CHARS { FORMAT } else { RFC_3339 };
        exactly(format, text).ok_or_else(|| none(text)).and_then(Self::of_second)
    }
}

impl Slot {
    /// Reads a slot as it stands in records: also one that a run has alone.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is none.
    pub fn of_record(text: &str) -> Result<Self, Error> {
        let (time, own) = text.split_at_checked(TIME_CHARS).ok_or_else(|| none(text))?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_own = |id: &str| id.len() == OWN_CHARS && id.bytes().all(is_hex);
        let is_good = own.is_empty() || own.strip_prefix('-').is_some_and(is_own);
        match exactly(FORMAT, time) {
            Some(_) if is_good => Ok(Self(text.to_owned())),
            _ => Err(none(text)),
        }
    }
}

/// The second that this text names, in this form and no other.
fn exactly(format: &str, text: &str) -> Option<i64> {
    let time = strtime::parse(format, text)
        .ok()?
        .to_datetime()
        .ok()?
        .to_zoned_datetime(TimeZone::UTC)
        .ok()?
        .timestamp();
    let is_same = time.strftime(format).to_string() == text;
    Some(time.as_second()).filter(|second| is_same && *second >= 0)
}

fn none(text: &str) -> Error {
    Error::misuse(format!("{text:?} is no slot: it is 20261122T020000Z or 2026-11-22T02:00:00Z"))
}

impl TryFrom<String> for Slot {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::of_record(&text)
    }
}

impl From<Slot> for String {
    fn from(slot: Slot) -> Self {
        slot.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
