//! What all acts of the ledger share: how often they may have been sent, how long they wait, and why they
//! could not decide.

use std::time::Duration;

/// Why a ledger or a mint takes nothing new, although it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// No room is left, or as much is stored as its quota allows.
    #[error("it is full")]
    Full,
    /// Set to take reads alone.
    #[error("it is read-only")]
    ReadOnly,
    /// The gateway's user may only read.
    #[error("the gateway's user may not write")]
    Forbidden,
    /// Its server was started anew, and it is not known yet whether it lost anything.
    #[error("its server was started anew, and no gateway has looked yet whether it lost anything")]
    Restarted,
}

/// Why an act could not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Definitely not applied; the same batch may be sent again.
    #[error("the ledger does not answer: {0}")]
    Unavailable(String),
    /// Definitely not applied: it took longer than a call may. The same batch would take as long again.
    #[error("the ledger took too long: {0}")]
    Slow(String),
    /// Definitely not applied, and nothing else is. Where it does not pass by itself, an operator has to see to it.
    #[error("the ledger does not take that: {0}")]
    Unwritable(Unwritable),
    /// The answer was lost: applied or not. Only a rerun under the same ids can tell.
    #[error("the ledger's answer was lost: {0}")]
    Unknown(String),
    /// The guard noticed that the ledger may have lost acknowledged commits. Definitely not
    /// applied.
    #[error("the ledger must be re-fenced before it takes writes: {0}")]
    RefenceRequired(String),
    /// The epoch moved on since the caller read it. Definitely not applied.
    #[error("the epoch of the mint has changed")]
    EpochMoved,
    /// The rules of access have changed since it was allowed. Definitely not applied.
    #[error("the rules of access have changed")]
    RulesMoved,
    /// The ledger answered what this binary cannot read. Applied or not, and asking again will not
    /// tell.
    #[error("the ledger's answer cannot be read: {0}")]
    Unreadable(String),
    /// A defect on either side. Definitely not applied, and trying again will not help.
    #[error("the ledger refused the act: {0}")]
    Defect(String),
}

impl LedgerError {
    /// Tells an error that passes by itself in a moment: a gateway sends the same batch again meanwhile.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unwritable(Unwritable::Restarted))
    }
}

/// How often an id may have been sent before.
///
/// After a lost connection, *absent* does not mean *not applied*: the first sending may still be
/// waiting for its row lock. So a rerun that is refused buries its id, and whoever finds a buried
/// id applies nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Never sent before.
    First,
    /// Sent before with an unknown outcome: find it, or apply it now, or bury it.
    Rerun,
    /// Sent before with an unknown outcome, and no longer wanted: find it, or bury it.
    Bury,
}

/// How long an act waits for fence rows that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: such items come back as busy, the others go through.
    Skip,
    /// Up to this long; for a batch of one, on a lane of its own.
    Wait(Duration),
}
