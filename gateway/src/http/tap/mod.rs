//! A stream as hyper gets it, with three things hyper does not do.
//!
//! It watches where requests begin and end, because the service cannot see what hyper drops: a `Content-Length` beside
//! `Transfer-Encoding`, a second `Content-Length` that says the same, what follows a `#` in a request line, and that a line
//! ended without a carriage return. hyper 1.12 has no option to refuse any of these. By itself it closes the connection after
//! a request with both lengths, and can bound the size of a head (`max_header_size`).
//!
//! It puts a problem document in place of the empty answer that hyper writes by itself to a request that it cannot parse.
//! And it ends a stream whose client takes nothing of an answer, or takes a large one too slowly.

mod heads;
mod watcher;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::IntoResponse;
use fence_core::ErrorCode;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::middleware::{Framing, RequestId, note};
use super::problem::{PROBLEM_JSON, Problem};
use super::rate::Least;
use super::receipt::Receipt;
use super::routes::VERSION;
use super::serve::{Reason, count_closed};
pub(super) use heads::Heads;
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
    /// The answer that is under way is large.
    large: AtomicBool,
    /// Inside a request line or its headers.
    in_head: AtomicBool,
    /// Inside a request line.
    in_line: AtomicBool,
    /// Inside a body.
    in_body: AtomicBool,
    /// Who is there is not to be served any longer.
    refused: AtomicBool,
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
        self.in_head() && self.is_between()
    }

    /// No request has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.heads.load(Ordering::Relaxed) == 0 && self.served.load(Ordering::Relaxed) == 0
    }

    /// Neither is a request under way, nor its answer; another one may have begun to arrive.
    pub(super) fn is_between(&self) -> bool {
        self.idle() && !self.answering.load(Ordering::Relaxed)
    }

    /// Answers that go on without end are to end now.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether answers that go on without end are to end.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Inside a request line or its headers.
    pub(super) fn in_head(&self) -> bool {
        self.in_head.load(Ordering::Relaxed)
    }

    /// An answer of at least so many bytes begins.
    pub(super) fn answers(&self, bytes: u64) {
        if bytes > LARGE {
            self.large.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes of a request were left unread, or are still to come.
    pub(super) fn amid_request(&self) -> bool {
        self.in_head.load(Ordering::Relaxed) || self.in_body.load(Ordering::Relaxed)
    }

    /// The answer of this receipt is delivered once hyper flushes the stream.
    pub(super) fn deliver_at_flush(&self, receipt: Receipt) {
        self.receipts.lock().push(receipt);
    }

    /// The receipts of answers that are not written out.
    pub(super) fn take_receipts(&self) -> Vec<Receipt> {
        std::mem::take(&mut *self.receipts.lock())
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

/// An answer above this many bytes has to be taken at a rate.
const LARGE: u64 = 1 << 20;

/// How patient the gateway is with who takes an answer.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// How long a client may take nothing of what is written.
    pub stall: Duration,
    /// How many bytes of a large answer it must take in each second, taken over half a minute; 0 for any.
    pub rate_min: u64,
}

/// A write that waits for the client.
struct Stalled {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

/// The stream.
pub(super) struct Tap<S> {
    stream: S,
    shared: Arc<Shared>,
    watcher: Watcher,
    heads: Heads,
    /// Everything handed to us has been written and no answer is under way: the next write is the
    /// beginning of an answer. Without this, stored bytes that look like hyper's empty answer
    /// could be taken for one.
    clean: bool,
    /// A problem document on its way out.
    pending: Vec<u8>,
    patience: Patience,
    stalled: Option<Stalled>,
    /// How many bytes of the answer that is under way have been written.
    written: u64,
    /// At which rate it must be taken if it is large.
    least: Option<Least>,
}

impl<S> Tap<S> {
    pub(super) fn new(stream: S, shared: Arc<Shared>, patience: Patience, heads: Heads) -> Self {
        Self {
            stream,
            shared,
            watcher: Watcher::default(),
            heads,
            clean: true,
            pending: Vec::new(),
            patience,
            stalled: None,
            written: 0,
            least: Least::of(patience.rate_min),
        }
    }

    /// The next write is the beginning of an answer.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }

    fn set_clean(&mut self, clean: bool) {
        self.clean = clean;
        self.shared.answering.store(!clean, Ordering::Relaxed);
        if clean && self.written > 0 {
            self.written = 0;
            self.least = Least::of(self.patience.rate_min);
            self.shared.large.store(false, Ordering::Relaxed);
        }
    }

    /// Ends a stream whose client takes nothing, or a large answer too slowly: it would keep its place, and what
    /// it reads from, for ever. Only while something waits to be taken does time pass, not while the store is slow.
    #[expect(clippy::disallowed_methods, reason = "real sockets wait in real time")]
    fn progress(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            let waited = self.stalled.take().map_or(Duration::ZERO, |one| one.since.elapsed());
            if let (Some(least), Ok(bytes)) = (&mut self.least, &written) {
                least.note(*bytes, waited);
            }
            self.written += written.as_ref().map_or(0, |bytes| *bytes as u64);
            return Poll::Ready(written);
        }
        let large = self.written > LARGE || self.shared.large.load(Ordering::Relaxed);
        let rest = self.least.as_ref().filter(|_| large).map(Least::left);
        let limit = rest.map_or(self.patience.stall, |rest| rest.min(self.patience.stall));
        let stalled = self.stalled.get_or_insert_with(|| Stalled {
            since: Instant::now(),
            timer: Box::pin(sleep(limit)),
        });
        ready!(stalled.timer.as_mut().poll(cx));
        self.stalled = None;
        count_closed(Reason::SlowReader);
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
    let body = problem.render(id.as_str(), None, None);
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n\
         connection: close\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\
         fencegate-version: {VERSION}\r\nx-request-id: {}\r\n\r\n",
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
        let bytes = &buffer.filled()[before..];
        this.watcher.feed(bytes);
        this.shared.publish(&this.watcher);
        if !this.heads.note(bytes.len(), this.watcher.heads(), this.watcher.in_head()) {
            count_closed(Reason::Heads);
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
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
        // TLS takes more bytes than the socket does: what is left waits here, and not in a write.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx).map_ok(|()| 0);
        ready!(self.progress(cx, flushed))?;
        let idle = self.shared.idle();
        self.set_clean(idle);
        self.shared.take_receipts().into_iter().for_each(Receipt::delivered);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx).map_ok(|()| 0);
        self.progress(cx, ended).map_ok(drop)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "pipes wait in real time")]
mod tests {
    use super::*;
    use crate::http::budget::Budget;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const BARE: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn an_answer_is_replaced_only_where_an_answer_can_begin() {
        let shared: Arc<Shared> = Arc::default();
        let (ours, mut theirs) = duplex(64 * 1024);
        let mut tap = Tap::new(ours, Arc::clone(&shared), patience(10, 0), heads());
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

    fn heads() -> Heads {
        Heads::new(Budget::new(0, 0), None)
    }

    fn patience(stall_seconds: u64, rate_min: u64) -> Patience {
        Patience { stall: Duration::from_secs(stall_seconds), rate_min }
    }

    /// A stream with an answer under way, of which the other side has taken nothing yet, and windows of 200 ms in
    /// which 4 KiB are to be taken.
    fn answering(large: bool) -> (Tap<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let shared: Arc<Shared> = Arc::default();
        shared.answers(if large { LARGE + 1 } else { LARGE });
        let (ours, theirs) = duplex(1024);
        let mut tap = Tap::new(ours, shared, patience(60, 1), heads());
        let window = Duration::from_millis(200);
        tap.least = Some(Least::within(4096, window, window));
        (tap, theirs)
    }

    /// Takes a byte now and then, for ever: never nothing for long.
    async fn dawdle(mut theirs: tokio::io::DuplexStream) {
        let mut byte = [0; 1];
        while theirs.read(&mut byte).await.is_ok_and(|read| read > 0) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn who_takes_a_large_answer_too_slowly_is_cut_off() {
        let (mut tap, theirs) = answering(true);
        let reader = tokio::spawn(dawdle(theirs));
        let ended = tokio::time::timeout(Duration::from_secs(20), tap.write_all(&[7; 1 << 20]));
        let error = ended.await.expect("long before it stalls").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        reader.abort();
    }

    #[tokio::test]
    async fn a_small_answer_may_be_taken_slowly() {
        let (mut tap, theirs) = answering(false);
        let reader = tokio::spawn(dawdle(theirs));
        // It would be cut after 400 ms.
        let ended = tokio::time::timeout(Duration::from_secs(2), tap.write_all(&[7; 1 << 20]));
        assert!(ended.await.is_err(), "it goes on");
        reader.abort();
    }

    #[tokio::test]
    async fn an_answer_whose_length_nobody_knew_becomes_large() {
        let (mut tap, mut theirs) = answering(false);
        let reader = tokio::spawn(async move {
            let mut bytes = vec![0; 1 << 20];
            theirs.read_exact(&mut bytes).await.unwrap();
            dawdle(theirs).await;
        });
        let ended = tokio::time::timeout(Duration::from_secs(20), tap.write_all(&[7; 4 << 20]));
        let error = ended.await.expect("long before it stalls").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        reader.abort();
    }

    #[tokio::test]
    async fn a_slow_store_is_not_held_against_the_reader() {
        let (mut tap, mut theirs) = answering(true);
        let reader = tokio::spawn(async move {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).await.unwrap();
            bytes.len()
        });
        for _ in 0..4 {
            tap.write_all(&[7; 512]).await.unwrap();
            // Longer than both windows: only the store is waited for.
            sleep(Duration::from_millis(500)).await;
        }
        drop(tap);
        assert_eq!(reader.await.unwrap(), 2048);
    }

    /// Takes all that is written, as TLS does, and lets nothing out.
    struct Holds;

    impl AsyncRead for Holds {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Holds {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn who_takes_nothing_of_what_tls_holds_is_cut_off() {
        let mut tap = Tap::new(Holds, Arc::default(), patience(1, 0), heads());
        tap.write_all(b"an answer").await.unwrap();
        let limit = Duration::from_secs(20);
        let flushed = tokio::time::timeout(limit, tap.flush()).await.expect("it ends");
        assert_eq!(flushed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let ended = tokio::time::timeout(limit, tap.shutdown()).await.expect("it ends");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
