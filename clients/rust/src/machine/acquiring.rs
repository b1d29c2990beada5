//! What an acquire does after each answer (CC14 to CC19).

use fencegate_wire::ErrorCode;

use crate::class::Class;

/// The longest wait of one call: load balancers cut at 30 s or a minute.
pub const WAIT_MS: u64 = 25_000;

/// So many grants of one acquire may come to nothing.
const WASTED_MAX: u32 = 3;

/// How long a caller waits for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// So many milliseconds.
    UpTo(u64),
    /// For ever.
    Forever,
}

/// An answer to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// The lock is granted.
    Granted,
    /// It is ours, but waits for the effects of older tokens: no token yet.
    Draining,
    /// A gateway gave this code and class.
    Problem {
        /// The code.
        code: &'a str,
        /// Its class.
        class: Class,
        /// When the gateway wants to be asked again.
        retry_after_ms: Option<u64>,
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
    /// It cannot be sent at all.
    Unsendable,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The lock is ours.
    Take,
    /// The same call at once, with the rest of the wait.
    WaitOn,
    /// The same call after a pause.
    Again {
        /// At least so long.
        floor_ms: Option<u64>,
    },
    /// The same under a new id, after a pause: the old one was granted, the answer lost, and it ended.
    Anew,
    /// The line is full: again after 1 to 5 s, with jitter.
    Later,
    /// The answer is the result.
    GiveUp,
}

/// What is known of one acquire.
#[derive(Debug, Clone, Copy)]
pub struct Acquiring {
    patience: Patience,
    may_be_left: bool,
    /// The same, before the attempt that is under way.
    was_left: bool,
    /// How many grants came to nothing.
    wasted: u32,
}

impl Acquiring {
    /// An acquire of which nothing was sent.
    pub fn new(patience: Patience) -> Self {
        Self { patience, may_be_left: false, was_left: false, wasted: 0 }
    }

    /// Whether something of the id may be left at the gateway, so that giving up has to bury it (CC18).
    pub fn may_be_left(&self) -> bool {
        self.may_be_left
    }

    /// What the next call waits, with so much left until the caller's deadline; `None`: it does not.
    pub fn wait_ms(&self, left_ms: u64) -> Option<u64> {
        match self.patience {
            Patience::None => None,
            Patience::UpTo(_) => Some(left_ms.min(WAIT_MS)),
            Patience::Forever => Some(WAIT_MS),
        }
    }

    /// An attempt goes out.
    pub fn sent(&mut self) {
        self.was_left = self.may_be_left;
        self.may_be_left = true;
    }

    /// The id is done with: it was buried, or a guard has it.
    pub fn forget(&mut self) {
        self.may_be_left = false;
    }

    /// A grant came to nothing (CC19): it was over before it was renewed, or too little of it was left. Another one is
    /// asked for, but not for ever: where answers take too long for the ttl, each ends so.
    pub fn wasted(&mut self) -> Next {
        self.wasted += 1;
        if self.wasted < WASTED_MAX { Next::Anew } else { Next::GiveUp }
    }

    /// Judges the answer to an attempt.
    pub fn judge(&mut self, said: Said<'_>) -> Next {
        match said {
            Said::Granted => Next::Take,
            Said::Draining if self.patience == Patience::None => Next::GiveUp,
            Said::Draining => Next::WaitOn,
            Said::Unsent => {
                self.may_be_left = self.was_left;
                Next::Again { floor_ms: None }
            }
            Said::Unanswered => Next::Again { floor_ms: None },
            Said::Unsendable => self.refused(),
            Said::Foreign { status } if status >= 500 || status == 429 => {
                Next::Again { floor_ms: None }
            }
            Said::Foreign { .. } => Next::GiveUp,
            Said::Problem { code, class, retry_after_ms } => {
                self.problem(code, class, retry_after_ms)
            }
        }
    }

    fn problem(&mut self, code: &str, class: Class, floor_ms: Option<u64>) -> Next {
        use ErrorCode as C;
        match (ErrorCode::parse(code), class) {
            // The place in line is kept for a while: giving up frees it.
            (Some(C::LockWaitElapsed), _) => match self.patience {
                Patience::None => Next::GiveUp,
                Patience::UpTo(_) | Patience::Forever => Next::WaitOn,
            },
            (Some(C::QueueFull), _) if self.patience == Patience::Forever => Next::Later,
            // The lock is sealed already, and only waits for the effects of older tokens.
            (Some(C::ResourceDraining), _) => match self.patience {
                Patience::None => Next::GiveUp,
                Patience::UpTo(_) | Patience::Forever => Next::Again { floor_ms },
            },
            (
                Some(
                    C::LockReleased
                    | C::LockSuperseded
                    | C::LockBroken
                    | C::LockVoid
                    | C::LockHoldExceeded
                    | C::LockNotFound,
                ),
                _,
            ) => {
                self.may_be_left = false;
                Next::Anew
            }
            (_, Class::Unavailable | Class::OutcomeUnknown) => Next::Again { floor_ms },
            // It failed somewhere, and nobody says where.
            (_, Class::GatewayFault) => Next::GiveUp,
            _ => self.refused(),
        }
    }

    /// A definite refusal leaves nothing of its own attempt.
    fn refused(&mut self) -> Next {
        self.may_be_left = self.was_left;
        Next::GiveUp
    }
}
