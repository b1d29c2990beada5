//! What settles a write whose attempts went without an answer (CC23, CC24, CC24a).
//!
//! Once an attempt was sent and not answered, a copy of it may still arrive. From then on only an answer
//! that holds for every copy ends the write with a certain result.

use fencegate_wire::ErrorCode;

use crate::class::Class;

/// What the write demands of what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// `If-Match` with tags: they never recur.
    Tags,
    /// That something is not there, or a version: it may be so again later.
    Absence,
}

/// An answer to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// It took effect.
    Done,
    /// A gateway gave this code and class.
    Problem {
        /// The code.
        code: &'a str,
        /// Its class.
        class: Class,
    },
    /// Something that is no gateway answered.
    Foreign {
        /// Its status.
        status: u16,
    },
    /// Nothing was sent.
    Unsent,
    /// Nothing came back.
    Unanswered,
}

/// What else the guard writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    /// Another write was under way at some time since this one began, and the caller was not yet told that
    /// this one's outcome is unknown.
    pub overlapped: bool,
    /// A write with a lower number is under way, or its outcome is unknown.
    pub earlier_is_open: bool,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It took effect, once.
    Done,
    /// It took no effect and never will: the answer is the result.
    Refused,
    /// The same again, after a pause. At the deadline the write is open or not: [`Settling::is_open`].
    Again,
    /// The same under the next number (CC23): it took no effect, but overlapped another write.
    Renumber,
}

/// What is known of one write.
#[derive(Debug, Clone, Copy)]
pub struct Settling {
    is_numbered: bool,
    is_own_key: bool,
    condition: Condition,
    is_open: bool,
}

impl Settling {
    /// A write of which nothing was sent.
    pub fn new(is_numbered: bool, condition: Condition) -> Self {
        Self { is_numbered, is_own_key: false, condition, is_open: false }
    }

    /// A write whose key the client made: nobody else has used it.
    pub fn with_own_key(self, is_own_key: bool) -> Self {
        Self { is_own_key, ..self }
    }

    /// Whether a copy of an attempt may still take effect, or has.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// An attempt of which nobody waits for the answer any more.
    pub fn leave_open(&mut self) {
        self.is_open = true;
    }

    /// Judges the answer to an attempt, beside the other writes of the guard.
    pub fn judge(&mut self, said: Said<'_>, beside: Beside) -> Verdict {
        match said {
            Said::Done => self.settled(Verdict::Done),
            Said::Unsent => Verdict::Again,
            Said::Unanswered => self.open(),
            // A proxy that wants to know who asks has passed nothing on. Of all else that stands in between,
            // nobody knows what it did before it answered.
            Said::Foreign { status: 401 | 407 } if !self.is_open => Verdict::Refused,
            Said::Foreign { .. } => self.open(),
            Said::Problem { class: Class::OutcomeUnknown, .. } => self.open(),
            Said::Problem { code, class } => self.problem(code, class, beside),
        }
    }

    fn problem(&mut self, code: &str, class: Class, beside: Beside) -> Verdict {
        use ErrorCode as C;
        let code = ErrorCode::parse(code);
        match (code, class) {
            // An attempt of ours that we know nothing of is under way: the key is ours alone.
            (Some(C::IdempotencyInProgress), _) => self.open(),
            // The key is looked up before the token is judged, and the token is dead for every copy.
            (_, Class::LockLost) => self.settled(Verdict::Refused),
            // Every copy has that number.
            (Some(C::SequenceOutOfOrder), _) if self.is_numbered => {
                self.is_open = false;
                if beside.overlapped { Verdict::Renumber } else { Verdict::Refused }
            }
            (Some(C::VersionMismatch), _) => match self.condition {
                Condition::Tags => self.settled(Verdict::Refused),
                // A later write of ours that could make it true outnumbers the copy, and another holder's
                // makes it stale. Only an earlier one of ours that is open could still land before the copy.
                Condition::Absence if self.is_numbered && !beside.earlier_is_open => {
                    self.settled(Verdict::Refused)
                }
                Condition::Absence | Condition::None => self.unless_open(),
            },
            // Under a key that is ours alone, the other bytes are of an attempt of ours, which took effect.
            (Some(C::IdempotencyKeyReused), _) if self.is_own_key => self.open(),
            (Some(C::IdempotencyKeyReused), _) => self.settled(Verdict::Refused),
            // The same bytes are malformed in every copy.
            (
                Some(
                    C::FenceTokenMissing
                    | C::FenceTokenMalformed
                    | C::LockIdMismatch
                    | C::BodyMalformed
                    | C::QueryMalformed,
                ),
                _,
            ) => self.settled(Verdict::Refused),
            (_, Class::Unavailable) => Verdict::Again,
            // Limits, names, rights, marks: another gateway, or a later moment, may see it otherwise.
            _ => self.unless_open(),
        }
    }

    /// The answer is the result if it was the only attempt; else it says nothing of the others.
    fn unless_open(&self) -> Verdict {
        if self.is_open { Verdict::Again } else { Verdict::Refused }
    }

    fn settled(&mut self, verdict: Verdict) -> Verdict {
        self.is_open = false;
        verdict
    }

    fn open(&mut self) -> Verdict {
        self.is_open = true;
        Verdict::Again
    }
}
