//! Bodies on their way to an upstream: a first part that is read before anything is decided, then a stream.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use fence_core::ErrorCode;
use futures::stream::{self, Stream, StreamExt as _};
use tokio::sync::Semaphore;

use crate::http::extract::{self, Gathered, too_large};
use crate::http::problem::Problem;
use crate::http::state::Limits;

/// So much of a body is read before the ledger is asked. A body that ends within it is whole by then: a
/// caller that stalls or hangs up in its middle leaves nothing behind at the upstream or in the ledger.
const AHEAD: usize = 64 * 1024;

/// A body that is coming in.
pub struct Incoming {
    ahead: Bytes,
    rest: Option<Rest>,
    length: Option<u64>,
    trouble: Trouble,
}

/// Why a body that was being forwarded did not arrive whole, if it did not.
#[derive(Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<Problem>>>);

impl Trouble {
    fn store(&self, problem: Problem) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    pub(super) fn take(&self) -> Option<Problem> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What is still to be read.
struct Rest {
    body: extract::Incoming,
    read: u64,
    max: u64,
}

impl Rest {
    /// The next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let part = self.body.next().await.map_err(|problem| broken_off(problem.code()))?;
        self.read += part.as_ref().map_or(0, |part| part.len() as u64);
        if self.read > self.max { Err(too_large(self.max).and_close()) } else { Ok(part) }
    }
}

fn broken_off(code: ErrorCode) -> Problem {
    Problem::new(code, "the body did not arrive whole, or not in time").and_close()
}

/// Reads the first part of a body, within `budget`, the bytes that all bodies together may take.
///
/// # Errors
/// It is too large, too slow, or wrongly framed; nothing was forwarded.
pub async fn read_ahead(
    body: Body,
    max: u64,
    limits: &Limits,
    budget: &Arc<Semaphore>,
) -> Result<Incoming, Problem> {
    let hint = body.size_hint();
    if hint.lower() > max {
        return Err(too_large(max).and_close());
    }
    let mut body = extract::Incoming::new(body, limits, limits.body_timeout);
    let (ahead, more) = match body.gather(AHEAD, budget).await? {
        Gathered::Whole(bytes) => (bytes, false),
        Gathered::More(bytes) => (bytes, true),
    };
    let read = ahead.len() as u64;
    if read > max {
        return Err(too_large(max).and_close());
    }
    let length = if more { hint.exact() } else { Some(read) };
    let rest = more.then_some(Rest { body, read, max });
    Ok(Incoming { ahead, rest, length, trouble: Trouble::default() })
}

impl Incoming {
    /// Where to look for what went wrong with it.
    pub(super) fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// How long it is, if that is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The body as the client takes it. Its length is to be told in a header.
    pub(super) fn into_body(self) -> reqwest::Body {
        match self.rest {
            None => self.ahead.into(),
            Some(rest) => {
                let ahead = stream::iter([Ok(self.ahead)]);
                reqwest::Body::wrap_stream(ahead.chain(streamed(rest, self.trouble)))
            }
        }
    }
}

fn streamed(
    rest: Rest,
    trouble: Trouble,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    stream::unfold(Some((rest, trouble)), |state| async move {
        let (mut rest, trouble) = state?;
        match rest.next().await {
            Ok(part) => Some((Ok(part?), Some((rest, trouble)))),
            Err(problem) => {
                trouble.store(problem);
                let cut = std::io::Error::other("the caller's body did not arrive whole");
                Some((Err(cut), None))
            }
        }
    })
}
