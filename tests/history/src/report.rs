//! What the checkers found: violations, and how much each of them looked at.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Which checker spoke. The invariants (I1, I2 ...) are those of `ARCHITECTURE.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Checker {
    /// Versions are 1, 2, 3 ... (I6).
    C1,
    /// In version order, tokens never fall (I3).
    C2,
    /// Under one token, sequence numbers rise in version order (I4).
    C3,
    /// Sealed before answered: nothing older is written after a grant was answered (I5).
    C4,
    /// What callers were told is so (I8).
    C5,
    /// Reads tell what was written, and never go back in time (I6).
    C6,
    /// Sets that are read, added to and written back under a lock lose nothing.
    C7,
    /// One idempotency key, at most one effect (I7).
    C8,
    /// A pointer to a blob never dangles (I9).
    C9,
    /// Once nothing is broken, everything works again soon (liveness).
    C11,
    /// Tokens in callers' hands are grants of the ledger, of one lock each, and rising (I1, I2, I15).
    C12,
    /// Nothing older acts on a drained upstream after a grant was answered (I13).
    C13,
    /// What was given back admits nothing any more (I6).
    C14,
    /// Nobody is refused without a reason (I8).
    C15,
    /// What is told of requests to drained upstreams is so (I8).
    C16,
    /// A token is its principal's, and what rules deny has no effect once they are in force (I16, I17).
    C17,
}

impl Checker {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::C1,
        Self::C2,
        Self::C3,
        Self::C4,
        Self::C5,
        Self::C6,
        Self::C7,
        Self::C8,
        Self::C9,
        Self::C11,
        Self::C12,
        Self::C13,
        Self::C14,
        Self::C15,
        Self::C16,
        Self::C17,
    ];

    /// What holds if it finds nothing, and what its count counts.
    pub fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::C1 => ("versions are 1, 2, 3 ... without gap or repeat", "versions"),
            Self::C2 => ("tokens never fall in version order", "versions after another"),
            Self::C3 => ("sequence numbers rise under one token", "numbered writes"),
            Self::C4 => {
                ("nothing older is written after a grant was answered", "grants and writes")
            }
            Self::C5 => ("callers were told the truth", "answers and operations"),
            Self::C6 => {
                ("reads tell what was written, and never go back", "values and versions told")
            }
            Self::C7 => ("sets under a lock lose nothing", "adds"),
            Self::C8 => ("one idempotency key, at most one effect", "keyed writes"),
            Self::C9 => ("no pointer to a blob dangles", "reads"),
            Self::C11 => ("healed resources are granted and written soon", "healed resources"),
            Self::C12 => (
                "tokens are grants of the ledger, of one lock each, and rising",
                "grants and writes",
            ),
            Self::C13 => ("nothing older acts upstream after a grant was answered", "effects"),
            Self::C14 => ("what was given back admits nothing any more", "later writes"),
            Self::C15 => ("nobody is refused without a reason", "refusals"),
            Self::C17 => (
                "tokens are their principals', and rules hold once in force",
                "writes and renewals",
            ),
            Self::C16 => ("what is told of requests to upstreams is so", "answers about requests"),
        }
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Who found it.
    pub checker: Checker,
    /// What it is: resource, versions, tokens, numbers of calls.
    pub what: String,
}

/// What came of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Why the history is none. If there is anything here, the checkers were not asked.
    pub malformed: Vec<String>,
    /// What they found.
    pub violations: Vec<Violation>,
    /// How much each of them looked at, in its own measure: one that saw nothing has shown nothing.
    pub looked_at: BTreeMap<Checker, u64>,
}

impl Report {
    /// Whether it is a history, and nothing is wrong with it.
    pub fn is_clean(&self) -> bool {
        self.malformed.is_empty() && self.violations.is_empty()
    }

    pub(crate) fn looked(&mut self, checker: Checker, at: usize) {
        *self.looked_at.entry(checker).or_default() += at as u64;
    }

    pub(crate) fn violation(&mut self, checker: Checker, what: String) {
        self.violations.push(Violation { checker, what });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for why in &self.malformed {
            writeln!(f, "not a history: {why}")?;
        }
        if !self.malformed.is_empty() {
            return Ok(());
        }
        for Violation { checker, what } in &self.violations {
            writeln!(f, "{checker} violated: {what}")?;
        }
        for checker in Checker::ALL {
            let (holds, measure) = checker.about();
            let count = self.looked_at.get(&checker).copied().unwrap_or(0);
            let bad = self.violations.iter().filter(|v| v.checker == checker).count();
            let verdict = match (bad, count) {
                (0, 0) => "saw nothing",
                (0, _) => "holds",
                _ => "VIOLATED",
            };
            writeln!(f, "{checker:<4}{verdict:<13}{holds} ({count} {measure})")?;
        }
        Ok(())
    }
}
