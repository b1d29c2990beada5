//! The ledger's own time, as gateways pass it on.

use std::time::Duration;

use jiff::Timestamp;

/// The boot of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Its id: another one after each start of the machine.
    pub id: String,
    /// The time since then, suspension included.
    pub up: Duration,
}

/// The time that has passed, as a gateway knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The number of the pass that it knows as the last one.
    pub pass: i64,
    /// The time for which it has known that, suspension included.
    pub since: Duration,
    /// The boot of its machine; none where the machine does not tell.
    pub boot: Option<Boot>,
}

impl Passed {
    /// Report of a gateway that knows of no pass yet.
    pub const NOTHING: Self = Self { pass: -1, since: Duration::ZERO, boot: None };
}

/// The last pass of the ledger's own time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Its number.
    pub number: i64,
    /// The own time since then.
    pub at: Timestamp,
    /// Lag of that behind the ledger's clock; zero where it is ahead.
    pub behind: Duration,
}

/// Verdict on an operator's word that the ledger's clock is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClockTrusted {
    /// The own time was set by the clock.
    Set {
        /// The own time before.
        from: Timestamp,
        /// The own time since then: that of the clock.
        to: Timestamp,
    },
    /// The clock is not ahead of the own time, which never falls: nothing changed.
    NotAhead {
        /// The own time.
        own: Timestamp,
        /// The time of the clock.
        clock: Timestamp,
    },
}

impl ClockTrusted {
    /// The verdict on a clock at this own time.
    pub fn of(own: Timestamp, clock: Timestamp) -> Self {
        match clock > own {
            true => Self::Set { from: own, to: clock },
            false => Self::NotAhead { own, clock },
        }
    }
}
