//! What came back from an attempt to take a lock.

use fencegate_wire::json::Lock;
use fencegate_wire::{LockState, Token, Word};
use serde::Deserialize;

use crate::error::{Busy, BusyKind, Details, Error};
use crate::guard::renewing;
use crate::machine::acquiring::Said;
use crate::transport::answer::{Foreign, Reply, class_of};

/// A lock as an acquire needs it: without a token while it is draining.
#[derive(Deserialize)]
struct Granted {
    token: Option<Token>,
    state: Option<Word<LockState>>,
}

/// What came of an attempt.
pub(super) enum Heard {
    Granted(Box<Lock>),
    /// The lock is ours, but its token is not in force yet.
    Draining,
    /// Anything else.
    Reply(Box<Reply>),
}

impl Heard {
    pub(super) async fn of(reply: Reply) -> Self {
        let Reply::Done(answer) = reply else { return Self::Reply(Box::new(reply)) };
        let value: serde_json::Value = match answer.json().await {
            Ok(value) => value,
            Err(reply) => return Self::Reply(Box::new(reply)),
        };
        let read = || {
            let seen: Granted = serde_json::from_value(value.clone())?;
            if seen.token.is_none() || seen.state.is_some_and(|state| state == LockState::Draining)
            {
                return Ok(Self::Draining);
            }
            serde_json::from_value(value).map(|lock| Self::Granted(Box::new(lock)))
        };
        read().unwrap_or_else(|error: serde_json::Error| {
            let detail = format!("no lock in the answer: {error}");
            // As a gateway in between that answers nonsense: again, elsewhere perhaps.
            let foreign = Foreign { status: 502, detail, retry_after_ms: None };
            Self::Reply(Box::new(Reply::Foreign(foreign)))
        })
    }

    pub(super) fn said(&self) -> Said<'_> {
        let reply = match self {
            Self::Granted(_) => return Said::Granted,
            Self::Draining => return Said::Draining,
            Self::Reply(reply) => reply,
        };
        match &**reply {
            Reply::Problem(problem) => Said::Problem {
                code: &problem.code,
                class: class_of(problem),
                retry_after_ms: problem.retry_after_ms.map(|ms| ms.max(0).unsigned_abs()),
            },
            Reply::Foreign(foreign) => Said::Foreign { status: foreign.status },
            Reply::Nothing(nothing) if !nothing.was_sent => Said::Unsent,
            Reply::Nothing(_) | Reply::Done(_) => Said::Unanswered,
            Reply::Unsendable(_) => Said::Unsendable,
        }
    }

    pub(super) fn summary(&self) -> String {
        match self {
            Self::Granted(_) => renewing::TOO_LATE.to_owned(),
            Self::Draining => DRAINING.to_owned(),
            Self::Reply(reply) => reply.summary(),
        }
    }

    pub(super) fn error(self, attempts: u32) -> Error {
        match self {
            Self::Draining => Error::Busy(Busy::local(BusyKind::Draining, DRAINING)),
            Self::Reply(reply) => reply.error(attempts),
            Self::Granted(_) => {
                let mut details = Details::local(renewing::TOO_LATE);
                details.attempts = attempts;
                Error::Unavailable(details)
            }
        }
    }
}

const DRAINING: &str = "the lock is not in force yet: effects of older tokens are under way";
