//! Connections: limits and timeouts that a plain `axum::serve` does not have, and a clean end.
#![expect(
    clippy::disallowed_methods,
    reason = "sockets live in real time; a simulation calls the router without them"
)]

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Request, Response, header};
use bytes::Bytes;
use fence_core::ErrorCode;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::receipt::Receipt;
use super::state::Limits;
use super::tap::{InFlight, Shared, Tap, lone_answer};

/// The ends of the connection that a request came on, as far as it tells.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Who sent it.
    pub peer: Option<SocketAddr>,
    /// To which of this machine's addresses.
    pub local: Option<IpAddr>,
}

/// With less room for connections than this part of all, each is closed after its answer: one that waits for its
/// next request would keep somebody out.
const SCARCE_SHARE: usize = 10;
/// How long to wait after an accept that failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a caller may go on sending after an answer that came before its request was read:
/// closing at once would make the system drop the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Serves until `soft` is cancelled and all requests under way are answered, or until `hard` is.
///
/// 1. Accept, while there is room for another connection.
/// 2. On `soft`, close the listener; connections end after the request that they are at.
/// 3. Return when the last has ended; on `hard`, cut those that have not.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    soft: CancellationToken,
    hard: CancellationToken,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(limits.connections_max));
    let connections = TaskTracker::new();
    while let Some((stream, permit)) = next(&listener, &room, &soft, &hard).await {
        let connection = Connection::new(stream, app.clone(), limits, Arc::clone(&room));
        let (soft, hard) = (soft.clone(), hard.clone());
        connections.spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = connection.run(soft) => {}
                () = hard.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = hard.cancelled() => {}
    }
    Ok(())
}

/// The next connection; `None` when it is time to end.
async fn next(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    soft: &CancellationToken,
    hard: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accept = async {
        // INVARIANT: nobody closes the semaphore.
        let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is open");
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, permit),
                // The caller gave up while it waited.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = soft.cancelled() => None,
        () = hard.cancelled() => None,
        accepted = accept => Some(accepted),
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    app: Router,
    limits: Limits,
    shared: Arc<Shared>,
    /// Room for further connections.
    room: Arc<Semaphore>,
}

impl Connection {
    fn new(stream: TcpStream, app: Router, limits: Limits, room: Arc<Semaphore>) -> Self {
        Self { stream, app, limits, shared: Arc::default(), room }
    }

    async fn run(self, soft: CancellationToken) {
        // An answer goes out at once, not when the kernel has gathered more.
        if let Err(error) = self.stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let ends = Ends {
            peer: self.stream.peer_addr().ok(),
            local: self.stream.local_addr().ok().map(|to| to.ip().to_canonical()),
        };
        let shared = Arc::clone(&self.shared);
        let (app, room) = (self.app, self.room);
        let scarce = self.limits.connections_max / SCARCE_SHARE;
        let service = hyper::service::service_fn({
            let shared = Arc::clone(&shared);
            move |mut request: Request<Incoming>| {
                let (framing, in_flight) = shared.begin();
                request.extensions_mut().insert(framing);
                request.extensions_mut().insert(ends);
                let response = app.clone().oneshot(request.map(Body::new));
                let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
                async move {
                    let mut answer = response.await?;
                    if room.available_permits() < scarce {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(header::CONNECTION, close);
                    }
                    Ok::<_, Infallible>(tracked(answer, in_flight, shared))
                }
            }
        });
        let io =
            TokioIo::new(Tap::new(self.stream, Arc::clone(&shared), self.limits.body_idle_timeout));
        let mut connection = builder(&self.limits).serve_connection(io, service);
        let mut soft = std::pin::pin!(soft.cancelled_owned());
        let mut ending = false;
        let mut head = Head::new(self.limits.head_timeout);
        let end = poll_fn(|cx| {
            if !ending && soft.as_mut().poll(cx).is_ready() {
                ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            if let Poll::Ready(end) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(End::Hyper(end));
            }
            head.poll(cx, shared.waits_for_head()).map(|()| End::SlowHead)
        })
        .await;
        if let End::Hyper(Err(error)) = &end {
            tracing::debug!(%error, "a connection ended");
        }
        // What hyper has not written by now it never will.
        drop(shared.take_receipts());
        let stream = connection.into_parts().io.into_inner();
        // What cannot be sent any more has nobody left to read it.
        let _ = finish(stream, matches!(end, End::SlowHead), &shared).await;
    }
}

/// Why a connection ended.
enum End {
    Hyper(hyper::Result<()>),
    SlowHead,
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .keep_alive(true)
        // hyper counts the idle time before a request into this, so it is the limit for both;
        // `Head` has the shorter one for a head that has begun.
        .header_read_timeout(limits.idle_timeout)
        // A margin above our own limits: within it the router answers, with a request id and the
        // right code; beyond it hyper does, and the tap puts a document in place of its answer.
        .max_buf_size(2 * (limits.header_bytes_max + limits.uri_bytes_max) + 8 * 1024)
        .max_headers(limits.headers_max + 28);
    builder
}

/// The time limit of a head that has begun to arrive.
struct Head {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Head {
    fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>, begun: bool) -> Poll<()> {
        if !begun {
            self.timer = None;
            return Poll::Pending;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer.as_mut().poll(cx)
    }
}

/// Ends the connection so that the last answer arrives.
async fn finish(mut stream: Tap<TcpStream>, slow: bool, shared: &Shared) -> io::Result<()> {
    // In the middle of an answer another one would become part of it.
    if slow && stream.is_clean() {
        let answer = lone_answer(ErrorCode::RequestTimeout, "the headers did not arrive in time");
        timeout(LINGER, stream.write_all(&answer)).await??;
    }
    timeout(LINGER, stream.shutdown()).await??;
    if shared.amid_request() {
        let until = Instant::now() + LINGER;
        // On the heap: the future of every connection would have room for it otherwise.
        let mut unwanted = vec![0; 4096];
        while tokio::time::timeout_at(until, stream.read(&mut unwanted)).await?? > 0 {}
    }
    Ok(())
}

/// A body that knows when hyper is done with it.
struct Tracked {
    body: Body,
    /// hyper has got everything, and will write it out before it flushes the stream.
    whole: bool,
    receipt: Option<Receipt>,
    shared: Arc<Shared>,
    _in_flight: InFlight,
}

fn tracked(
    mut response: Response<Body>,
    in_flight: InFlight,
    shared: Arc<Shared>,
) -> Response<Tracked> {
    let receipt = response.extensions_mut().remove::<Receipt>();
    response.map(|body| {
        let whole = body.is_end_stream();
        Tracked { body, whole, receipt, shared, _in_flight: in_flight }
    })
}

impl Drop for Tracked {
    /// hyper drops a body as soon as its last bytes are in the write buffer, or because the connection
    /// is over.
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take()
            && self.whole
        {
            self.shared.deliver_at_flush(receipt);
        }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.whole = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod receipts;
#[cfg(test)]
mod tests;
