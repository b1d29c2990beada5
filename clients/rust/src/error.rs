//! Errors by what the caller does about them: match on the variant, not on codes.

use std::fmt;
use std::time::Duration;

use fencegate_wire::json::Problem;
use fencegate_wire::{ErrorCode, Supersession, Word};
use jiff::Timestamp;

use crate::class::{Class, LossReason};
use crate::transport::unreached::Unreached;
use crate::write::OutcomeUnknown;

/// What came of a call that did not end as wished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Stop, forget, take the lock again, read again.
    #[error("the lock is lost: {0}")]
    LockLost(LockLost),
    /// Come back later; nothing is wrong.
    #[error("{0}")]
    Busy(Busy),
    /// Read again, redo, send again; the token is good. For a commit, [`Details::index`] says which operation.
    #[error("{0}")]
    Changed(Box<Details>),
    /// It is not there.
    #[error("{0}")]
    NotFound(Box<Details>),
    /// The gateway could not be asked until the call's deadline. Nothing was applied, and nothing is on its
    /// way.
    #[error("{0}")]
    Unavailable(Box<Details>),
    /// It may have taken effect or not. [`OutcomeUnknown::resolve`] finds out.
    #[error("{0}")]
    OutcomeUnknown(Box<OutcomeUnknown>),
    /// The call is wrong; sent again it fails again.
    #[error("{0}")]
    Misuse(Box<Details>),
    /// Something between here and the ledger does what it should not: tell the operator.
    #[error("{0}")]
    GatewayFault(Box<Details>),
    /// The place in the feed is void: begin behind the other, and check what was built since.
    #[error("the place in the feed is void; begin after {begin_after:?}")]
    CursorVoid {
        /// Where to begin again.
        begin_after: Option<String>,
    },
    /// No right to do this.
    #[error("{0}")]
    Denied(Box<Details>),
}

impl Error {
    /// What the caller does about it.
    pub fn class(&self) -> Class {
        match self {
            Self::LockLost(_) => Class::LockLost,
            Self::Busy(_) => Class::Busy,
            Self::Changed(_) => Class::Changed,
            Self::NotFound(_) => Class::NotFound,
            Self::Unavailable(_) => Class::Unavailable,
            Self::OutcomeUnknown(_) => Class::OutcomeUnknown,
            Self::Misuse(_) => Class::Misuse,
            Self::GatewayFault(_) => Class::GatewayFault,
            Self::CursorVoid { .. } => Class::CursorVoid,
            Self::Denied(_) => Class::Denied,
        }
    }

    /// What the gateway said, if it did.
    pub fn details(&self) -> Option<&Details> {
        match self {
            Self::LockLost(lost) => lost.details.as_deref(),
            Self::Busy(busy) => Some(&busy.details),
            Self::OutcomeUnknown(unknown) => Some(unknown.details()),
            Self::Changed(details)
            | Self::NotFound(details)
            | Self::Unavailable(details)
            | Self::Misuse(details)
            | Self::GatewayFault(details)
            | Self::Denied(details) => Some(details),
            Self::CursorVoid { .. } => None,
        }
    }

    /// The error code of the gateway, if it gave one.
    pub fn code(&self) -> Option<&str> {
        self.details().and_then(|details| details.code.as_deref())
    }

    /// The same once more, for whoever asks again. An unknown outcome is not told twice: it is asked for anew.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::LockLost(lost) => Self::LockLost(lost.clone()),
            Self::Busy(busy) => Self::Busy(busy.clone()),
            Self::Changed(details) => Self::Changed(details.clone()),
            Self::NotFound(details) => Self::NotFound(details.clone()),
            Self::Unavailable(details) => Self::Unavailable(details.clone()),
            Self::OutcomeUnknown(unknown) => Self::Unavailable(Box::new(unknown.details().clone())),
            Self::Misuse(details) => Self::Misuse(details.clone()),
            Self::GatewayFault(details) => Self::GatewayFault(details.clone()),
            Self::CursorVoid { begin_after } => {
                Self::CursorVoid { begin_after: begin_after.clone() }
            }
            Self::Denied(details) => Self::Denied(details.clone()),
        }
    }

    /// Refused before anything was sent.
    pub(crate) fn misuse(text: impl fmt::Display) -> Self {
        Self::Misuse(Details::local(text))
    }

    pub(crate) fn lost(reason: LossReason) -> Self {
        Self::LockLost(LockLost::local(reason, None))
    }

    /// The error of a problem document. Not for writes, whose unknown outcomes can be resolved.
    pub(crate) fn of_problem(problem: &Problem, attempts: u32) -> Self {
        let unknown = problem.outcome.as_deref() == Some("unknown");
        let class = Class::of_answer(&problem.code, problem.status, problem.retryable, unknown);
        let details = Details::of_problem(problem, attempts);
        match class {
            Class::LockLost => Self::LockLost(LockLost {
                reason: LossReason::of(&problem.code).unwrap_or(LossReason::Broken),
                superseded_by: problem.superseded_by.clone(),
                superseded_at: problem.superseded_at,
                operator_reason: problem.reason.clone(),
                details: Some(details),
            }),
            Class::Busy => Self::Busy(Busy::of_problem(problem, details)),
            Class::Changed => Self::Changed(details),
            Class::NotFound => Self::NotFound(details),
            // A call that is no write can be made again: what is not known of it is not available.
            Class::Unavailable | Class::OutcomeUnknown => Self::Unavailable(details),
            Class::Misuse => Self::Misuse(details),
            Class::GatewayFault => Self::GatewayFault(details),
            Class::CursorVoid => Self::CursorVoid { begin_after: problem.begin_after.clone() },
            Class::Denied => Self::Denied(details),
        }
    }
}

/// Why a guard is not good any more.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockLost {
    /// In one word.
    pub reason: LossReason,
    /// What put a newer token in its place, if the gateway said so.
    pub superseded_by: Option<Word<Supersession>>,
    /// When.
    pub superseded_at: Option<Timestamp>,
    /// Why, in the words of the operator who broke it.
    pub operator_reason: Option<String>,
    /// What the gateway said, if it did.
    pub details: Option<Box<Details>>,
}

impl LockLost {
    /// A loss that no problem document has told.
    pub(crate) fn local(reason: LossReason, operator_reason: Option<String>) -> Self {
        Self { reason, superseded_by: None, superseded_at: None, operator_reason, details: None }
    }
}

impl fmt::Display for LockLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match (&self.details, &self.operator_reason) {
            // It has the operator's words.
            (Some(details), _) => write!(f, " ({details})"),
            (None, Some(words)) => write!(f, ": {words}"),
            (None, None) => Ok(()),
        }
    }
}

/// What is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusyKind {
    /// Another lock holds the resource.
    LockHeld,
    /// The wait was over before it was our turn.
    WaitElapsed,
    /// Too many wait for the lock.
    QueueFull,
    /// An operator has stopped all writers.
    Frozen,
    /// Effects of older tokens at an upstream are under way.
    Draining,
    /// The first request with this key is under way.
    InProgress,
    /// Something that a newer gateway has a code for.
    Other,
}

/// Come back later; nothing is wrong.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Busy {
    /// What is in the way.
    pub kind: BusyKind,
    /// Who holds the lock, by the name it gave itself.
    pub holder: Option<String>,
    /// For how long already.
    pub holder_age: Option<Duration>,
    /// The place in line that was reached, from 1.
    pub position: Option<i64>,
    /// When it is worth another try.
    pub retry_after: Option<Duration>,
    /// All that the gateway said.
    pub details: Box<Details>,
}

impl Busy {
    fn of_problem(problem: &Problem, details: Box<Details>) -> Self {
        let kind = match ErrorCode::parse(&problem.code) {
            Some(ErrorCode::LockHeld) => BusyKind::LockHeld,
            Some(ErrorCode::LockWaitElapsed) => BusyKind::WaitElapsed,
            Some(ErrorCode::QueueFull) => BusyKind::QueueFull,
            Some(ErrorCode::ResourceFrozen) => BusyKind::Frozen,
            Some(ErrorCode::ResourceDraining) => BusyKind::Draining,
            Some(ErrorCode::IdempotencyInProgress) => BusyKind::InProgress,
            _ => BusyKind::Other,
        };
        let duration =
            |ms: Option<i64>| ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
        Self {
            kind,
            holder: problem.holder.clone(),
            holder_age: duration(problem.holder_age_ms),
            position: problem.position,
            retry_after: duration(problem.retry_after_ms),
            details,
        }
    }

    pub(crate) fn local(kind: BusyKind, text: &str) -> Self {
        let details = Details::local(text);
        Self { kind, holder: None, holder_age: None, position: None, retry_after: None, details }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.details.fmt(f)
    }
}

/// What is known of a call that failed: what the gateway said, or what happened on the way.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Details {
    /// The gateway's error code; absent if no gateway answered, or nothing was sent.
    pub code: Option<String>,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// What happened, for people.
    pub detail: String,
    /// The resource that it is about.
    pub resource: Option<String>,
    /// The request, as in the gateway's log.
    pub request_id: Option<String>,
    /// Whether the gateway says that the same may succeed later.
    pub retryable: bool,
    /// How many attempts were made.
    pub attempts: u32,
    /// When to try again, if the gateway said so.
    pub retry_after: Option<Duration>,
    /// Of a commit: the operation, from 0, that could not be done.
    pub index: Option<usize>,
    /// With a version that is not the expected one: the version of the resource as it is now.
    pub version: Option<i64>,
    /// With that: the tag of the object as it is now.
    pub etag: Option<String>,
    /// An operator's words on why.
    pub reason: Option<String>,
    /// Why no gateway was reached, if none was and that is known.
    pub unreached: Option<Unreached>,
}

impl Details {
    pub(crate) fn local(text: impl fmt::Display) -> Box<Self> {
        Box::new(Self { detail: text.to_string(), ..Self::default() })
    }

    pub(crate) fn of_problem(problem: &Problem, attempts: u32) -> Box<Self> {
        let retry_after = problem.retry_after_ms;
        Box::new(Self {
            code: Some(problem.code.clone()),
            status: Some(problem.status),
            detail: format!("{}: {}", problem.title, problem.detail),
            resource: problem.resource.clone(),
            request_id: Some(problem.request_id.clone()),
            retryable: problem.retryable,
            attempts,
            retry_after: retry_after.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
            index: problem.index,
            version: problem.version,
            etag: problem.etag.clone(),
            reason: problem.reason.clone(),
            unreached: None,
        })
    }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(words) = &self.reason {
            write!(f, ": {words}")?;
        }
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        match self.attempts {
            0 | 1 => Ok(()),
            attempts => write!(f, " after {attempts} attempts"),
        }
    }
}
