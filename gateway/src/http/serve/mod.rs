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
use axum::body::{Body, HttpBody as _};
use axum::http::header::Entry;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use fence_core::ErrorCode;
use fencegate_access::Quota;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::budget::Budget;
use super::peers::{Held, Peer, Proxies, Shares};
use super::state::Limits;
use super::tap::{Heads, Patience, Shared, Tap, lone_answer};

mod closed;
mod listen;
mod seat;
mod tls;
mod tracked;

pub(super) use closed::{Reason, count_closed};
pub use listen::{Listen, listen_on};
use listen::{Opened, Opening};
pub use seat::Seat;
pub use tls::{ClientFiles, Secured, Tls, TlsFiles};
use tracked::tracked;

/// Tells the recorder what the metrics of connections mean.
pub fn describe() {
    closed::describe();
    tls::describe();
}

/// The ends of the connection that a request came on, as far as it tells.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Who sent it.
    pub peer: Option<SocketAddr>,
    /// To which of this machine's addresses.
    pub local: Option<IpAddr>,
    /// Against whose shares it counts; `None` for this machine itself and for proxies that the settings name.
    pub counted: Option<Peer>,
    /// Whether it is such a proxy, which is believed what it says of where a request came from.
    pub is_trusted: bool,
    /// Whether the connection is by TLS.
    pub is_secured: bool,
}

impl Ends {
    /// Those of a connection from a peer, if it has an address, to an address.
    pub fn of(peer: Option<SocketAddr>, local: Option<IpAddr>, proxies: &Proxies) -> Self {
        let is_trusted = peer.is_some_and(|peer| proxies.have(peer.ip()));
        let counted = peer.filter(|_| !is_trusted).and_then(|peer| Peer::of(peer.ip()));
        Self { peer, local, counted, is_trusted, is_secured: false }
    }
}

/// How many bytes of unfinished heads there are for each connection beyond those that each has for nothing, all
/// connections together: few requests have more.
const HEAD_BYTES_EACH: usize = 4 * 1024;
/// The part of the connections that one principal or peer may have.
const PEER_SHARE: usize = 4;

/// With less room for connections than this part of all, each is closed after its answer: one that waits for its
/// next request would keep somebody out.
const SCARCE_SHARE: usize = 10;
/// How long to wait after an accept that failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a caller may go on sending after an answer that came before its request was read:
/// closing at once would make the system drop the answer.
const LINGER: Duration = Duration::from_secs(1);

/// What is served, and how many connections share it, whichever listeners they come from.
pub struct Door {
    app: Router,
    limits: Limits,
    room: Arc<Semaphore>,
    /// Room for connections that are refused, where they wait to hear so.
    outside: Arc<Semaphore>,
    shares: Shares,
    heads: Budget,
    proxies: Proxies,
    /// Whether connections are secured by those proxies: then nobody else is served, whose keys would come in the clear.
    only_proxies: bool,
}

impl Door {
    /// A door with room for as many connections as the limits say, a quarter of them for each principal or peer.
    pub fn new(app: Router, limits: Limits, proxies: Proxies, only_proxies: bool) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(limits.connections_max));
        let shares = Shares::of(Quota::Connections, (limits.connections_max / PEER_SHARE).max(1));
        let one = head_bytes_max(&limits);
        let heads = (limits.connections_max * HEAD_BYTES_EACH).max(one);
        let heads = Budget::new(heads, (heads / PEER_SHARE).max(one));
        let outside = Arc::new(Semaphore::new(limits.refused_max));
        Arc::new(Self { app, limits, room, outside, shares, heads, proxies, only_proxies })
    }

    /// Another door to the same room: connections through either share it.
    pub fn beside(&self, app: Router) -> Arc<Self> {
        Arc::new(Self {
            app,
            limits: self.limits,
            room: Arc::clone(&self.room),
            outside: Arc::clone(&self.outside),
            shares: self.shares.clone(),
            heads: self.heads.clone(),
            proxies: self.proxies.clone(),
            only_proxies: self.only_proxies,
        })
    }

    /// Whether requests are taken on a connection with these ends. From this machine itself nothing crosses a network.
    fn serves(&self, ends: &Ends) -> bool {
        let is_local = ends.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback());
        !self.only_proxies || ends.is_trusted || is_local
    }

    /// Hardly any room is left.
    fn is_scarce(&self) -> bool {
        self.room.available_permits() < self.limits.connections_max / SCARCE_SHARE
    }
}

/// Serves until `soft` is cancelled and all requests under way are answered, or until `hard` is.
///
/// 1. Accept, while there is room for another connection. What a peer has beyond its share is closed at once.
/// 2. On `soft`, close the listener; connections end after the request that they are at.
/// 3. Return when the last has ended; on `hard`, cut those that have not.
pub async fn serve<L: Listen>(
    mut listener: L,
    door: Arc<Door>,
    soft: CancellationToken,
    hard: CancellationToken,
) -> io::Result<()> {
    let connections = TaskTracker::new();
    while let Some((accepted, ends, (place, held))) = next(&mut listener, &door, &soft, &hard).await
    {
        let (door, soft, hard) = (Arc::clone(&door), soft.clone(), hard.clone());
        connections.spawn(async move {
            let _held = held;
            let seat = Seat::among(door.shares.clone(), place, Arc::clone(&door.outside));
            // Its place is taken until the last byte has gone, which is after all that is served.
            let _seat = seat.clone();
            let opened = tokio::select! {
                biased;
                opened = accepted.open(ends.counted, door.limits.head_timeout) => opened,
                // It has no request yet.
                () = soft.cancelled() => None,
            };
            let Some(opened) = opened else { return };
            tokio::select! {
                () = Connection { opened, ends, seat, door }.run(soft) => {}
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
async fn next<L: Listen>(
    listener: &mut L,
    door: &Door,
    soft: &CancellationToken,
    hard: &CancellationToken,
) -> Option<(L::Accepted, Ends, (OwnedSemaphorePermit, Held))> {
    let accept = async {
        // INVARIANT: nobody closes the semaphore.
        let permit = Arc::clone(&door.room).acquire_owned().await.expect("the semaphore is open");
        loop {
            match listener.accept().await {
                Ok((stream, peer, local)) => {
                    let ends = Ends::of(peer, local, &door.proxies);
                    if !door.serves(&ends) {
                        count_closed(Reason::NotProxied);
                        tracing::debug!(?peer, "closed: it did not come through trusted_proxies");
                        continue;
                    }
                    match door.shares.take(&ends.counted.into(), 1) {
                        Some(held) => return (stream, ends, (permit, held)),
                        None => count_closed(Reason::PeerShare),
                    }
                }
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
struct Connection<S> {
    opened: Opened<S>,
    ends: Ends,
    seat: Seat,
    door: Arc<Door>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection<S> {
    async fn run(self, soft: CancellationToken) {
        let Self { opened, ends, seat, door } = self;
        let Opened { stream, shown, is_secured, mut refused } = opened;
        let ends = Ends { is_secured, ..ends };
        let (shared, limits) = (Arc::<Shared>::default(), door.limits);
        let heads = Heads::new(door.heads.clone(), ends.counted);
        let service = hyper::service::service_fn({
            let shared = Arc::clone(&shared);
            move |mut request: Request<Incoming>| {
                let (framing, in_flight) = shared.begin();
                request.extensions_mut().insert(framing);
                request.extensions_mut().insert(ends);
                request.extensions_mut().insert(shown.clone());
                request.extensions_mut().insert(seat.clone());
                let response = door.app.clone().oneshot(request.map(Body::new));
                let (shared, door) = (Arc::clone(&shared), Arc::clone(&door));
                async move {
                    let mut answer = response.await?;
                    shared.answers(answer.body().size_hint().lower());
                    date(answer.headers_mut());
                    if door.is_scarce() {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(header::CONNECTION, close);
                    }
                    Ok::<_, Infallible>(tracked(answer, in_flight, shared))
                }
            }
        });
        let patience =
            Patience { stall: limits.body_idle_timeout, rate_min: limits.upload_rate_min };
        let io = TokioIo::new(Tap::new(stream, Arc::clone(&shared), patience, heads));
        let mut connection = builder(&limits).serve_connection(io, service);
        let mut soft = std::pin::pin!(soft.cancelled_owned());
        let (mut ending, mut is_refused) = (false, false);
        let mut head = Head::new(limits.head_timeout);
        let end = poll_fn(|cx| {
            if !ending && soft.as_mut().poll(cx).is_ready() {
                ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // The request that is under way is the last; where there is none, not even one that has begun to arrive.
            if !is_refused && refused.as_mut().poll(cx).is_ready() {
                is_refused = true;
                count_closed(Reason::Certificate);
                if shared.is_between() {
                    return Poll::Ready(End::Refused);
                }
                shared.refuse();
                Pin::new(&mut connection).graceful_shutdown();
            }
            if let Poll::Ready(end) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(End::Hyper(end));
            }
            let due = head.poll(cx, shared.is_new() || shared.waits_for_head());
            due.map(|()| if shared.in_head() { End::SlowHead } else { End::NoRequest })
        })
        .await;
        match &end {
            End::Hyper(Ok(())) | End::Refused => {}
            End::Hyper(Err(error)) => tracing::debug!(%error, "a connection ended"),
            End::SlowHead => count_closed(Reason::SlowHead),
            End::NoRequest => count_closed(Reason::NoRequest),
        }
        // What hyper has not written by now it never will.
        drop(shared.take_receipts());
        let stream = connection.into_parts().io.into_inner();
        // What cannot be sent any more has nobody left to read it.
        let _ = finish(stream, matches!(end, End::SlowHead), &shared).await;
    }
}

/// Says when the answer was made, unless a server behind the gateway has said it. Not left to hyper, which keeps the text
/// until its time is over: once the clock was put back, that is a day later, or a year.
fn date(headers: &mut HeaderMap) {
    if let Entry::Vacant(missing) = headers.entry(header::DATE) {
        let now = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now());
        if let Some(now) = now.ok().and_then(|now| HeaderValue::from_maybe_shared(now).ok()) {
            missing.insert(now);
        }
    }
}

/// Why a connection ended.
enum End {
    Hyper(hyper::Result<()>),
    SlowHead,
    /// Its first request did not begin in time.
    NoRequest,
    /// What it was opened with is not good any more.
    Refused,
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .keep_alive(true)
        // hyper counts the idle time before a request into this, so it is the limit for both;
        // `Head` has the shorter one for a head that has begun.
        .header_read_timeout(limits.idle_timeout)
        .max_buf_size(head_bytes_max(limits))
        .max_headers(limits.headers_max + 28);
    builder
}

/// The largest head that is read: a margin above our own limits. Within it the router answers, with a request id and
/// the right code; beyond it hyper does, and the tap puts a document in place of its answer.
fn head_bytes_max(limits: &Limits) -> usize {
    2 * (limits.header_bytes_max + limits.uri_bytes_max) + 8 * 1024
}

/// The time limit of a head that has begun to arrive, and of the first one from the beginning.
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
async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: Tap<S>,
    slow: bool,
    shared: &Shared,
) -> io::Result<()> {
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

#[cfg(test)]
mod receipts;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;
