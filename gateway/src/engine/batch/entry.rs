//! An item on its way: whose it is, and what is known of its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use fence_core::mutants::{self, Mutant};
use fence_core::ports::LedgerError;
use tokio::sync::oneshot;

use super::{Act, Failure};
use crate::spans::Place;

/// Not in any statement that could take effect: the caller may take it back.
pub(super) const QUEUED: u8 = 0;
/// In a statement, or was, with an unknown outcome.
const SENT: u8 = 1;
/// Queued again because its row was locked.
pub(super) const WAITING: u8 = 2;
/// Taken back by the caller.
const TAKEN_BACK: u8 = 3;
/// Its caller was told that the outcome is unknown; it must become known.
const OWED: u8 = 4;
/// In a statement whose answer was lost, or sent again since.
const LOST: u8 = 5;

/// Where an item is, as far as its caller is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In no statement, or decided by now.
    Taken,
    /// In a statement.
    Sent,
    /// In one whose answer was lost.
    Lost,
}

/// What becomes of an item after a verdict.
pub(super) enum Fate {
    /// That is its verdict.
    Decided,
    /// It is sent again.
    Open,
    /// It may have taken effect when its answer was lost, and cannot be asked after, or not any more.
    Unknown,
}

/// An item, and where its caller waits for the verdict.
pub(super) struct Entry<A: Act> {
    pub(super) item: A::Item,
    pub(super) state: Arc<AtomicU8>,
    pub(super) answer: oneshot::Sender<Result<A::Verdict, Failure>>,
    /// Until when its caller waits in line, on the clock of this process.
    pub(super) until: Duration,
    /// Whether the answer to an earlier sending was lost. From then on nothing but the ledger's
    /// verdict makes its outcome known.
    pub(super) lost: bool,
    /// The span that it was handed in under. Nothing is decided by it.
    pub(super) asked: Option<Place>,
}

impl<A: Act> Entry<A> {
    /// Marks the entry as sent, unless its caller has taken it back. One whose outcome is owed is
    /// prepared to be found or buried, as if its answer had been lost.
    pub(super) fn send(&mut self) -> bool {
        let claimed =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
                TAKEN_BACK => None,
                OWED => Some(OWED),
                LOST => Some(LOST),
                _ => Some(SENT),
            });
        if claimed == Ok(OWED) && !self.lost {
            self.lose();
        }
        claimed.is_ok()
    }

    /// The answer to this sending was lost.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        let _ = self.state.compare_exchange(SENT, LOST, Ordering::AcqRel, Ordering::Acquire);
        self.rerun();
    }

    /// After a sending that definitely had no effect: the caller may take the entry back, unless an
    /// earlier sending is still unaccounted for.
    pub(super) fn unsend(&self, state: u8) {
        if !self.lost {
            let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now != OWED).then_some(state)
            });
        }
    }

    /// After a sending whose answer was lost, or that came to nothing since.
    ///
    /// A caller that is gone does not come back, so what was sent to be buried is never wanted again: a
    /// burial on its way must not meet an intent that is being forwarded (I13).
    pub(super) fn rerun(&mut self) {
        A::rerun(&mut self.item, !self.answer.is_closed());
    }

    /// What becomes of it after this verdict.
    ///
    /// If the answer to an earlier sending was lost and this one was not decided, because the rules that allowed it are
    /// in force no more, it is only asked after. What cannot be may have taken effect then.
    pub(super) fn fate(&mut self, verdict: &A::Verdict) -> Fate {
        if A::is_forgotten(verdict) {
            return Fate::Unknown;
        }
        if self.lost && A::rules_moved(verdict) {
            return if A::ask_after(&mut self.item) { Fate::Open } else { Fate::Unknown };
        }
        if A::is_busy(verdict) {
            self.unsend(WAITING);
            return Fate::Open;
        }
        Fate::Decided
    }

    /// Nothing will tell whether it has taken effect.
    pub(super) fn stays_unknown(self) {
        let _ = self.answer.send(Err(Failure::Unknown));
    }

    /// It stands behind one whose row is locked by somebody else, and nothing of it is under way.
    pub(super) fn wait(&self) {
        let _ = self.state.compare_exchange(QUEUED, WAITING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether its row was locked by somebody else when it was sent last.
    pub(super) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) == WAITING
    }

    /// Whether its outcome must be found, whatever it takes.
    pub(super) fn is_owed(&self) -> bool {
        self.lost || self.state.load(Ordering::Acquire) == OWED
    }

    /// Nobody waits for it and nothing of it is under way: there is no reason to send it.
    pub(super) fn is_moot(&self) -> bool {
        self.answer.is_closed() && !self.is_owed()
    }

    /// Nobody waits for it, and it is not worth sending for anybody else.
    pub(super) fn is_abandoned(&self) -> bool {
        A::DROPS_ABANDONED && self.is_moot()
    }

    /// The ledger will not decide.
    pub(super) fn give_up(self, error: &LedgerError) {
        let unknown = self.lost || matches!(error, LedgerError::Unreadable(_));
        let failure = match unknown {
            true => Failure::Unknown,
            false => Failure::NotApplied(error.clone()),
        };
        let _ = self.answer.send(Err(failure));
    }
}

/// Whether a statement is under way that may take effect.
pub(super) fn way(state: &AtomicU8) -> Way {
    match state.load(Ordering::Acquire) {
        SENT => Way::Sent,
        LOST => Way::Lost,
        _ => Way::Taken,
    }
}

/// The caller's time is up: is the item still ours to take back?
pub(super) fn take_back(state: &AtomicU8) -> Failure {
    let was = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        Some(if matches!(state, SENT | LOST) { OWED } else { TAKEN_BACK })
    });
    match was {
        Ok(SENT | LOST) if mutants::is(Mutant::TakeBackWhatIsSent) => Failure::Busy,
        Ok(SENT | LOST) | Err(_) => Failure::Unknown,
        Ok(WAITING) => Failure::Busy,
        Ok(_) => Failure::NotApplied(LedgerError::Unavailable("no answer in time".into())),
    }
}
