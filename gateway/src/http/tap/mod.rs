//! A TCP stream as hyper gets it, with two things hyper does not do.
//!
//! It watches where requests begin and end, because hyper drops `Content-Length` when
//! `Transfer-Encoding` comes with it, a second line of either, and what follows a `#` in a request
//! line, and takes lines without a carriage return; the service cannot see that they were there. And it puts a problem document in place of the empty answer
//! that hyper writes by itself to a request that it cannot parse.

mod watcher;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::IntoResponse;
use fence_core::ErrorCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::middleware::{Framing, RequestId, note};
use super::problem::{PROBLEM_JSON, Problem};
use super::receipt::Receipt;
use watcher::Watcher;

/// What the stream, the service and the loop that drives the connection tell each other. All three
/// run in one task, so the order of memory does not matter.
#[derive(Default)]
pub(super) struct Shared {
    /// Requests whose answers hyper has not taken over completely.
    in_flight: AtomicUsize,
    /// Requests that the service was called for.
    served: AtomicU64,
    /// The number of the request whose length is unclear; 0 for none.
    unclear_length: AtomicU64,
    /// The number of the request that came with a fragment; 0 for none.
    fragment: AtomicU64,
    /// The number of the request that came with a line that ended in a bare line feed; 0 for none.
    bare_newline: AtomicU64,
    /// It is not known any more where requests begin.
    lost: AtomicBool,
    /// How many heads have ended.
    heads: AtomicU64,
    /// Bytes of an answer are on their way.
    answering: AtomicBool,
    /// Inside a request line or its headers.
    in_head: AtomicBool,
    /// Inside a request line.
    in_line: AtomicBool,
    /// Inside a body.
    in_body: AtomicBool,
    /// Of answers that hyper has taken over completely and not written out yet.
    receipts: Mutex<Vec<Receipt>>,
}

impl Shared {
    /// Counts a request in, and tells what its headers no longer show. The guard counts it out.
    pub(super) fn begin(self: &Arc<Self>) -> (Framing, InFlight) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let number = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let framing = Framing {
            unclear_length: self.unclear_length.load(Ordering::Relaxed) == number,
            fragment: self.fragment.load(Ordering::Relaxed) == number,
            bare_newline: self.bare_newline.load(Ordering::Relaxed) == number,
            lost: self.lost.load(Ordering::Relaxed) || self.heads.load(Ordering::Relaxed) < number,
        };
        (framing, InFlight(Arc::clone(self)))
    }

    /// A head has begun to arrive, and nothing else is going on.
    pub(super) fn waits_for_head(&self) -> bool {
        self.in_head.load(Ordering::Relaxed)
            && self.idle()
            && !self.answering.load(Ordering::Relaxed)
    }

    /// Bytes of a request were left unread, or are still to come.
    pub(super) fn amid_request(&self) -> bool {
        self.in_head.load(Ordering::Relaxed) || self.in_body.load(Ordering::Relaxed)
    }

    /// The answer of this receipt is delivered once hyper flushes the stream.
    pub(super) fn deliver_at_flush(&self, receipt: Receipt) {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).push(receipt);
    }

    /// The receipts of answers that are not written out.
    pub(super) fn take_receipts(&self) -> Vec<Receipt> {
        std::mem::take(&mut *self.receipts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
    }

    fn publish(&self, watcher: &Watcher) {
        self.unclear_length.store(watcher.unclear_length(), Ordering::Relaxed);
        self.fragment.store(watcher.fragment(), Ordering::Relaxed);
        self.bare_newline.store(watcher.bare_newline(), Ordering::Relaxed);
        self.lost.store(watcher.lost(), Ordering::Relaxed);
        self.heads.store(watcher.heads(), Ordering::Relaxed);
        self.in_head.store(watcher.in_head(), Ordering::Relaxed);
        self.in_line.store(watcher.in_line(), Ordering::Relaxed);
        self.in_body.store(watcher.in_body(), Ordering::Relaxed);
    }
}

/// What is remembered of a stream of requests, for `tests/fuzz`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    pub heads: u64,
    pub unclear_length: u64,
    pub fragment: u64,
    pub bare_newline: u64,
    pub lost: bool,
}

/// Watches a stream that comes in these pieces, for `tests/fuzz`.
#[doc(hidden)]
pub fn watched<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Watched {
    let mut watcher = Watcher::default();
    pieces.for_each(|piece| watcher.feed(piece));
    Watched {
        heads: watcher.heads(),
        unclear_length: watcher.unclear_length(),
        fragment: watcher.fragment(),
        bare_newline: watcher.bare_newline(),
        lost: watcher.lost(),
    }
}

/// Counts a request out when hyper is done with its answer.
pub(super) struct InFlight(Arc<Shared>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The stream.
pub(super) struct Tap<S> {
    stream: S,
    shared: Arc<Shared>,
    watcher: Watcher,
    /// Everything handed to us has been written and no answer is under way: the next write is the
    /// beginning of an answer. Without this, stored bytes that look like hyper's empty answer
    /// could be taken for one.
    clean: bool,
    /// A problem document on its way out.
    pending: Vec<u8>,
    /// How long a client may take nothing of what is written.
    stall_limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Tap<S> {
    pub(super) fn new(stream: S, shared: Arc<Shared>, stall_limit: Duration) -> Self {
        Self {
            stream,
            shared,
            watcher: Watcher::default(),
            clean: true,
            pending: Vec::new(),
            stall_limit,
            stalled: None,
        }
    }

    /// The next write is the beginning of an answer.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }

    fn set_clean(&mut self, clean: bool) {
        self.clean = clean;
        self.shared.answering.store(!clean, Ordering::Relaxed);
    }

    /// Ends a stream whose client takes nothing: it would keep its place for ever.
    #[expect(clippy::disallowed_methods, reason = "real sockets wait in real time")]
    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.stall_limit;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// The code of hyper's own answer, if these bytes are one.
    fn bare(&self, bytes: &[u8]) -> Option<ErrorCode> {
        if !self.clean || !self.shared.idle() || !bytes.ends_with(b"\r\n\r\n") {
            return None;
        }
        let rest = b"\r\nconnection: close\r\ncontent-length: 0\r\n";
        let begins =
            |line: &[u8]| bytes.strip_prefix(line).is_some_and(|after| after.starts_with(rest));
        if begins(b"HTTP/1.1 400 Bad Request") {
            Some(ErrorCode::RequestMalformed)
        } else if begins(b"HTTP/1.1 414 URI Too Long") {
            Some(ErrorCode::UriTooLong)
        } else if begins(b"HTTP/1.1 431 Request Header Fields Too Large") {
            // hyper only knows that the head does not fit into its buffer.
            let line = self.shared.in_line.load(Ordering::Relaxed);
            Some(if line { ErrorCode::UriTooLong } else { ErrorCode::HeadersTooLarge })
        } else {
            None
        }
    }
}

impl<S: AsyncWrite + Unpin> Tap<S> {
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.pending);
            let written = ready!(self.progress(cx, written))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes hyper's own answer for written, and puts a document in its place.
    fn replace(&mut self, bytes: &[u8]) -> Option<usize> {
        let code = self.bare(bytes)?;
        self.set_clean(false);
        self.pending = lone_answer(code, "the request cannot be read as HTTP within its limits");
        Some(bytes.len())
    }
}

/// An answer outside of any request that reached the service; the connection closes after it.
pub(super) fn lone_answer(code: ErrorCode, detail: &str) -> Vec<u8> {
    let id = RequestId::random();
    let problem = Problem::new(code, detail);
    let status = problem.clone().into_response().status();
    note(status, code.as_str(), id.as_str());
    let body = problem.render(id.as_str());
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n\
         connection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\nx-request-id: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len(),
        id.as_str(),
    );
    [head.into_bytes(), body].concat()
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.watcher.feed(&buffer.filled()[before..]);
        this.shared.publish(&this.watcher);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        if let Some(taken) = self.replace(bytes) {
            return Poll::Ready(Ok(taken));
        }
        self.set_clean(false);
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        if let [only] = parts
            && let Some(taken) = self.replace(only)
        {
            return Poll::Ready(Ok(taken));
        }
        self.set_clean(false);
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes the stream only when it has handed over all it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        let idle = self.shared.idle();
        self.set_clean(idle);
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.shared.take_receipts().into_iter().for_each(Receipt::delivered);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const BARE: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn an_answer_is_replaced_only_where_an_answer_can_begin() {
        let shared: Arc<Shared> = Arc::default();
        let (ours, mut theirs) = duplex(64 * 1024);
        let mut tap = Tap::new(ours, Arc::clone(&shared), Duration::from_secs(10));
        let mut read = async |tap: &mut Tap<_>, flush: bool| {
            tap.write_all(BARE).await.unwrap();
            if flush {
                tap.flush().await.unwrap();
            }
            let mut bytes = vec![0; 4096];
            let length = theirs.read(&mut bytes).await.unwrap();
            bytes.truncate(length);
            bytes
        };
        let (_, in_flight) = shared.begin();
        assert_eq!(read(&mut tap, true).await, BARE, "an answer is under way");
        assert_eq!(read(&mut tap, false).await, BARE, "its last bytes");
        drop(in_flight);
        assert_eq!(read(&mut tap, true).await, BARE, "not flushed yet");
        let replaced = String::from_utf8(read(&mut tap, true).await).unwrap();
        assert!(replaced.contains("request-malformed"), "{replaced}");
    }
}
