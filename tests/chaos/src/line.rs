//! What client processes print, line by line, and the clock by which they do.

use fence_history::{Answered, Call, Intent, Writers};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::s3::Told;

/// One line of a client process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It is about to ask. Printed before anything is sent, so that nothing is done that nobody asked.
    Begun(Call),
    /// The answer to a call arrived.
    Answered {
        /// Its number.
        number: u64,
        /// When, and what it was.
        answered: Answered,
    },
    /// An answer named the operation that a request to an upstream was admitted as.
    Intent(Intent),
    /// A lock is about to be asked for under which others may write, too.
    Writers(Writers),
    /// A call by S3 is over.
    S3(Told),
}

/// Microseconds on a clock that all processes of this machine share and nobody sets.
pub fn moment() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000 + nanos.unwrap_or(0) / 1000
}

/// The generation in an answer that does not tell it: that of a delete.
pub const NOT_TOLD: i64 = -1;
