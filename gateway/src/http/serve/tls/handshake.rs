//! How a connection is secured: in its turn, and within its time.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fence_core::ErrorCode;
use futures::future::poll_fn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::credential::{Watch, refusal};
use super::metered::Metered;
use super::{Tls, Unsecured};
use crate::http::identify::{Shown, shown_by_certificate};
use crate::http::peers::{Peer, Turns};
use crate::http::serve::listen::{Opened, Opening};
use crate::http::serve::{LINGER, Reason, count_closed, lone_answer};

/// The part of the processors that handshakes may have at a time. A step takes a millisecond, which requests would lack.
const PROCESSORS_SHARE: usize = 2;
/// Bytes that a caller sends until its handshake has ended: a hello, and some certificates.
const HANDSHAKE_BYTES_MAX: usize = 32 * 1024;
/// What every handshake begins with; no request of HTTP does.
const HANDSHAKE: u8 = 22;

/// Whose turn it is to be computed for. Nobody has it who is waited for: a caller that sends nothing holds up nobody.
pub(super) struct Steps {
    /// One of a peer at a time stands in the line of all.
    peers: Turns,
    all: Semaphore,
}

impl Steps {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let all = Semaphore::new((processors / PROCESSORS_SHARE).max(1));
        // Its connections are counted already, and each has a limit of time.
        Self { peers: Turns::in_line(None, 1, usize::MAX, Duration::MAX), all }
    }

    /// The next step of a handshake: ready when that has ended, pending when the network is waited for.
    async fn take(
        &self,
        counted: Option<Peer>,
        handshake: &mut Accept<Metered>,
    ) -> Poll<io::Result<TlsStream<Metered>>> {
        let _peers_turn = self.peers.take(&counted.into()).await;
        // INVARIANT: nobody closes the semaphore.
        let _turn = self.all.acquire().await.expect("the semaphore is open");
        futures::poll!(handshake)
    }
}

impl Opening for Unsecured {
    type Stream = TlsStream<Metered>;

    /// 1. Whoever sends nothing is a probe, and whoever sends something else than a handshake is told so, in the words of
    ///    HTTP.
    /// 2. A handshake has as much time as a head in all.
    /// 3. It is good for as long as the certificate is that was shown in it.
    async fn open(
        self,
        counted: Option<Peer>,
        limit: Duration,
    ) -> Option<Opened<TlsStream<Metered>>> {
        let Self { stream, tls } = self;
        match timeout_at(Instant::now() + limit, secure(stream, &tls, counted)).await {
            Ok(Ok(Some(opened))) => return Some(opened),
            Ok(Ok(None)) => return None,
            Ok(Err(error)) => tracing::debug!(%error, "a connection could not be secured"),
            Err(_) => tracing::debug!("a connection was not secured in time"),
        }
        count_closed(Reason::Handshake);
        None
    }
}

/// Carries out a handshake. `None` if it has not even begun.
async fn secure(
    stream: TcpStream,
    tls: &Arc<Tls>,
    counted: Option<Peer>,
) -> io::Result<Option<Opened<TlsStream<Metered>>>> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        // Load balancers look so whether somebody listens.
        Ok(0) | Err(_) => return Ok(None),
        Ok(_) if first[0] == HANDSHAKE => {}
        Ok(_) => {
            tell(stream).await?;
            return Err(io::Error::other("it is no handshake"));
        }
    }
    // From before the handshake: what changes during it is heard of.
    let mut watch = tls.in_use.subscribe();
    let in_use = Arc::clone(&watch.borrow_and_update());
    let stream = shaken(stream, tls, counted, Arc::clone(&in_use.config)).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let authorities = in_use.callers.as_ref().map(|callers| callers.authorities(chain));
    let authorities = authorities.unwrap_or_default();
    let identity = chain.first().and_then(|own| shown_by_certificate(own, &authorities));
    let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
    let (tls, known) = (Arc::clone(tls), in_use);
    let refused = refusal(chain, Watch { changes: watch, known, authorities, tls });
    let shown = Shown(identity.map(Arc::new));
    Ok(Some(Opened { stream, shown, is_secured: true, refused }))
}

/// Takes one step after the other. Between them the network is waited for, in nobody's turn.
async fn shaken(
    stream: TcpStream,
    tls: &Tls,
    counted: Option<Peer>,
    config: Arc<ServerConfig>,
) -> io::Result<TlsStream<Metered>> {
    let stream = Metered::new(stream, HANDSHAKE_BYTES_MAX);
    let mut handshake = TlsAcceptor::from(config).accept(stream);
    loop {
        if let Poll::Ready(shaken) = tls.steps.take(counted, &mut handshake).await {
            let mut stream = shaken?;
            stream.get_mut().0.free();
            return Ok(stream);
        }
        woken().await;
    }
}

/// Waits until this task is woken: the step before has said by what.
async fn woken() {
    let mut waits = false;
    poll_fn(|_| match std::mem::replace(&mut waits, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    })
    .await;
}

/// Tells whoever does not speak TLS that this is where it is spoken. Not where to go instead: a request that was sent in
/// the clear once would be sent so each time, and nobody would notice.
async fn tell(mut stream: TcpStream) -> io::Result<()> {
    let answer = lone_answer(ErrorCode::RequestMalformed, "TLS is spoken here: use https://");
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // What is not read when the connection is closed makes the system drop the answer.
    let mut unwanted = vec![0; 4096];
    let drained = timeout(LINGER, async {
        while stream.read(&mut unwanted).await? > 0 {}
        Ok(())
    });
    drained.await.unwrap_or(Ok(()))
}
