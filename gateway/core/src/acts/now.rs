//! The time of an act.

use jiff::{SignedDuration, Timestamp};

/// The time of an act. Deadlines go by `elapsed_ms`, which no clock step moves; the wall clock is
/// for people and for breaks, which are stored once they have come due.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The wall clock.
    pub wall: Timestamp,
    /// Milliseconds on a clock that never goes back, since some point in this process.
    pub elapsed_ms: i64,
}

/// Milliseconds from one time to another; 0 if the clock went back between them.
pub fn millis_between(from: Timestamp, to: Timestamp) -> i64 {
    (to.as_millisecond() - from.as_millisecond()).max(0)
}

/// A time so much later.
pub(super) fn later(at: Timestamp, ms: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_millis(ms)).unwrap_or(Timestamp::MAX)
}
