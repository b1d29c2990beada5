//! What came back: an answer of a gateway, of somebody in between, or none.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fencegate_wire::ErrorCode;
use fencegate_wire::json::Problem;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;

use crate::class::Class;
use crate::error::{Details, Error};
use crate::transport::nothing;
use crate::transport::unreached::Unreached;

/// The longest answer that is read whole, unless a call says otherwise.
pub(crate) const JSON_BYTES_MAX: usize = 16 << 20;

/// What became of one attempt.
pub(crate) enum Reply {
    /// A gateway did what was asked.
    Done(Answer),
    /// A gateway refused, or could not.
    Problem(Box<Problem>),
    /// Something answered that is no gateway, or not as one should.
    Foreign(Foreign),
    /// Nothing came back.
    Nothing(Nothing),
    /// Nothing was sent, and another attempt would fail in the same way.
    Unsendable(Error),
}

/// A good answer whose body is yet to be read.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) response: reqwest::Response,
    /// The longest pause between two pieces of the body.
    pub(crate) idle: Duration,
}

/// An answer that no gateway gave.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) status: u16,
    pub(crate) detail: String,
    pub(crate) retry_after_ms: Option<u64>,
}

/// No answer.
#[derive(Debug, Clone)]
pub(crate) struct Nothing {
    /// Whether any of it may have reached a gateway.
    pub(crate) was_sent: bool,
    /// Whether it was the time for an answer that ran out.
    pub(crate) timed_out: bool,
    /// Why no gateway was reached, if that is known.
    pub(crate) unreached: Option<Unreached>,
    pub(crate) detail: String,
}

impl Reply {
    /// The error, for calls that may simply be made again. `Done` has none.
    pub(crate) fn error(self, attempts: u32) -> Error {
        match self {
            Self::Done(_) => Error::GatewayFault(Details::local("an unexpected answer")),
            Self::Problem(problem) => Error::of_problem(&problem, attempts),
            Self::Foreign(foreign) => foreign.error(attempts),
            Self::Nothing(nothing) => nothing.error(attempts),
            Self::Unsendable(error) => error,
        }
    }

    /// Whether a call without effects, or with the same effect each time, is made again.
    pub(crate) fn is_retried(&self) -> bool {
        match self {
            Self::Done(_) | Self::Unsendable(_) => false,
            Self::Problem(problem) => {
                matches!(class_of(problem), Class::Unavailable | Class::OutcomeUnknown)
            }
            Self::Foreign(foreign) => foreign.is_retried(),
            Self::Nothing(_) => true,
        }
    }

    /// Whether a gateway gave this code.
    pub(crate) fn is_problem(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Problem(problem) if ErrorCode::parse(&problem.code) == Some(code))
    }

    /// When the gateway asks to be left alone until.
    pub(crate) fn floor_ms(&self) -> Option<u64> {
        match self {
            Self::Problem(problem) => problem.retry_after_ms.map(|ms| ms.max(0).unsigned_abs()),
            Self::Foreign(foreign) => foreign.retry_after_ms,
            _ => None,
        }
    }

    /// In a few words, for logs and hooks.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Done(answer) => answer.status.to_string(),
            Self::Problem(problem) => problem.code.clone(),
            Self::Foreign(foreign) => foreign.detail.clone(),
            Self::Nothing(nothing) => nothing.detail.clone(),
            Self::Unsendable(error) => error.to_string(),
        }
    }
}

/// What a caller does about a problem.
pub(crate) fn class_of(problem: &Problem) -> Class {
    let unknown = problem.outcome.as_deref() == Some("unknown");
    Class::of_answer(&problem.code, problem.status, problem.retryable, unknown)
}

impl Nothing {
    pub(crate) fn error(self, attempts: u32) -> Error {
        Error::Unavailable(Box::new(Details {
            attempts,
            retryable: !self.unreached.is_some_and(Unreached::lasts),
            unreached: self.unreached,
            ..*Details::local(self.detail)
        }))
    }
}

impl Foreign {
    fn is_retried(&self) -> bool {
        self.status >= 500 || self.status == 429
    }

    pub(crate) fn error(self, attempts: u32) -> Error {
        let details = Box::new(Details {
            attempts,
            status: Some(self.status),
            retryable: self.is_retried(),
            ..*Details::local(&self.detail)
        });
        match self.status {
            401 | 403 | 407 => Error::Denied(details),
            _ if self.is_retried() => Error::Unavailable(details),
            _ => Error::GatewayFault(details),
        }
    }
}

impl Answer {
    /// The body, whole.
    ///
    /// # Errors
    /// It broke off, is longer than that, or stood still for too long.
    pub(crate) async fn bytes(mut self, limit: usize) -> Result<Bytes, Nothing> {
        let broken = |detail: String, timed_out| nothing(true, timed_out, detail);
        let mut whole = BytesMut::new();
        loop {
            let piece = tokio::time::timeout(self.idle, self.response.chunk()).await;
            match piece {
                Ok(Ok(Some(piece))) if whole.len() + piece.len() > limit => {
                    return Err(broken(format!("the answer is longer than {limit} bytes"), false));
                }
                Ok(Ok(Some(piece))) => whole.extend_from_slice(&piece),
                Ok(Ok(None)) => return Ok(whole.freeze()),
                Ok(Err(error)) => {
                    return Err(broken(
                        format!("the answer broke off: {}", causes(&error.without_url())),
                        false,
                    ));
                }
                Err(_) => return Err(broken("the answer stood still".to_owned(), true)),
            }
        }
    }

    /// The body, as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T, Reply> {
        let status = self.status.as_u16();
        let bytes = self.bytes(JSON_BYTES_MAX).await.map_err(Reply::Nothing)?;
        serde_json::from_slice(&bytes).map_err(|error| no_json(status, &error))
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A good answer that is not the JSON that a gateway gives.
pub(crate) fn no_json(status: u16, error: &serde_json::Error) -> Reply {
    let detail = format!("an answer that is not the gateway's: {error}");
    Reply::Foreign(Foreign { status, detail, retry_after_ms: None })
}

/// An error and what caused it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
