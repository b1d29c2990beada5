//! Bodies on their way to an upstream: a first part that is read before anything is decided, then a stream.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use fence_core::ErrorCode;
use futures::stream::{self, Stream};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http::budget::Purse;
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
        *self.0.lock() = Some(problem);
    }

    pub(super) fn take(&self) -> Option<Problem> {
        self.0.lock().take()
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

/// Reads the first part of a body, within `purse`.
///
/// # Errors
/// It is too large, too slow, or wrongly framed; nothing was forwarded.
pub async fn read_ahead(
    body: Body,
    max: u64,
    limits: &Limits,
    purse: Purse<'_>,
) -> Result<Incoming, Problem> {
    let hint = body.size_hint();
    if hint.lower() > max {
        return Err(too_large(max).and_close());
    }
    let mut body = extract::Incoming::new(body, limits, limits.body_timeout);
    let (ahead, more) = match body.gather(AHEAD, purse).await? {
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

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.length == Some(0)
    }

    /// The body as the client takes it, whose length is to be told in a header; and the means to end it,
    /// if it is streamed.
    pub(super) fn into_body(self) -> (reqwest::Body, Option<Sending>) {
        let Some(rest) = self.rest else { return (self.ahead.into(), None) };
        let sending = Sending { cut: CancellationToken::new(), let_go: CancellationToken::new() };
        let streaming = Streaming {
            ahead: Some(self.ahead),
            rest,
            trouble: self.trouble,
            cut: sending.cut.clone(),
            _let_go: sending.let_go.clone().drop_guard(),
        };
        (reqwest::Body::wrap_stream(streamed(streaming)), Some(sending))
    }
}

/// A body that is being sent. Once this is dropped, no more of it is.
pub(super) struct Sending {
    cut: CancellationToken,
    let_go: CancellationToken,
}

impl Sending {
    /// Sends no more of it. Resolves once the connection holds it no longer: it had all of it, or it
    /// breaks off in the middle of it. One that is blocked may go on holding it.
    pub(super) async fn end(&self) {
        self.cut.cancel();
        self.let_go.cancelled().await;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.cut.cancel();
    }
}

/// The other end of it, in the hands of the connection.
struct Streaming {
    ahead: Option<Bytes>,
    rest: Rest,
    trouble: Trouble,
    cut: CancellationToken,
    _let_go: DropGuard,
}

impl Streaming {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.ahead.take() {
            Some(ahead) => Ok(Some(ahead)),
            None => self.rest.next().await,
        }
    }
}

fn streamed(body: Streaming) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    stream::unfold(Some(body), |body| async move {
        let mut body = body?;
        let cut = body.cut.clone();
        let part = tokio::select! {
            biased;
            () = cut.cancelled() => Err("the answer has ended before the body"),
            part = body.next() => part.map_err(|problem| {
                body.trouble.store(problem);
                "the caller's body did not arrive whole"
            }),
        };
        match part {
            Ok(part) => Some((Ok(part?), Some(body))),
            Err(why) => Some((Err(std::io::Error::other(why)), None)),
        }
    })
}
