//! TLS on the gateway's own listeners: with which certificate, and for whom.

mod files;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fence_core::ErrorCode;
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

pub use files::{ClientFiles, TlsFiles};
use files::{Loaded, Seen};

use super::listen::{Listen, Opening};
use super::{LINGER, Reason, count_closed, lone_answer};
use crate::http::identify::{Shown, shown_by_certificate};
use crate::http::peers::{Peer, Turns};

/// How often the files are looked at: certificates are renewed by putting others in their place.
const LOOK: Duration = Duration::from_secs(5);
/// Handshakes at a time. Each takes a millisecond of the processor, which others would lack.
const HANDSHAKES_MAX: usize = 256;
/// Those of one peer; its others wait for them, and not for anybody else's.
const PEER_HANDSHAKES_MAX: usize = HANDSHAKES_MAX / 4;
/// What every handshake begins with; no request of HTTP does.
const HANDSHAKE: u8 = 22;

/// When the certificate ends.
const EXPIRES: &str = "fencegate_tls_certificate_expires_seconds";
/// Files that could not be used.
const RELOAD_FAILURES: &str = "fencegate_tls_reload_failures_total";

/// Tells the recorder what the metrics mean.
pub fn describe() {
    metrics::describe_gauge!(
        EXPIRES,
        "When the gateway's own certificate ends, in seconds since 1970"
    );
    metrics::describe_counter!(
        RELOAD_FAILURES,
        "Files of certificates that were changed and could not be used; the ones before are still in use"
    );
}

/// What connections are secured with; changes with the files.
pub struct Tls {
    files: TlsFiles,
    /// What they were before they were read first.
    begun: Seen,
    in_use: RwLock<Arc<ServerConfig>>,
    handshakes: Semaphore,
    peers: Turns,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub fn new(files: TlsFiles) -> anyhow::Result<Arc<Self>> {
        let begun = files.seen();
        let Loaded { config, expires, .. } = files.load()?;
        metrics::gauge!(EXPIRES).set(expires as f64);
        let handshakes = Semaphore::new(HANDSHAKES_MAX);
        // Its connections are counted already, and each has a limit of time.
        let peers = Turns::in_line(PEER_HANDSHAKES_MAX, usize::MAX, Duration::MAX);
        Ok(Arc::new(Self { files, begun, in_use: RwLock::new(config), handshakes, peers }))
    }

    /// Looks at the files every five seconds, and at once on SIGHUP, and uses them if they have changed and are good.
    /// Connections that are open stay as they are. Never ends.
    pub async fn keep_fresh(&self) {
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => Some(hangup),
            Err(error) => {
                tracing::warn!(%error, "SIGHUP cannot be heard");
                None
            }
        };
        let mut looked = Looked { seen: self.begun.clone(), failure: None };
        loop {
            let told = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let is_told = tokio::select! {
                _ = told => true,
                () = sleep(LOOK) => false,
            };
            looked = self.look(looked, is_told);
        }
    }

    /// Uses what has changed since, if it is good. What could not be used is tried again each time: it may be that it was
    /// not to be read yet.
    fn look(&self, before: Looked, is_told: bool) -> Looked {
        let seen = self.files.seen();
        if seen == before.seen && before.failure.is_none() && !is_told {
            return before;
        }
        let loaded = self.files.load().and_then(|loaded| {
            anyhow::ensure!(loaded.is_in_date, "the certificate is not in date");
            Ok(loaded)
        });
        if self.files.seen() != seen {
            // They are being changed.
            return Looked { seen: Seen::new(), ..before };
        }
        let failure = match loaded {
            Ok(Loaded { config, expires, .. }) => {
                *self.in_use.write() = config;
                metrics::gauge!(EXPIRES).set(expires as f64);
                tracing::info!("the certificate was read again");
                None
            }
            Err(error) => Some(format!("{error:#}")),
        };
        if let Some(why) =
            failure.as_ref().filter(|why| is_told || before.failure.as_ref() != Some(*why))
        {
            metrics::counter!(RELOAD_FAILURES).increment(1);
            tracing::error!(
                why,
                "the changed certificate cannot be used: the one before is still in use"
            );
        }
        Looked { seen, failure }
    }
}

/// What was found when the files were looked at.
struct Looked {
    seen: Seen,
    /// Why they could not be used.
    failure: Option<String>,
}

/// A listener whose connections are secured.
pub struct Secured {
    /// Where they come from.
    pub listener: TcpListener,
    /// What they are secured with.
    pub tls: Arc<Tls>,
}

/// A connection that is not secured yet.
pub struct Unsecured {
    stream: TcpStream,
    tls: Arc<Tls>,
}

impl Listen for Secured {
    type Accepted = Unsecured;

    async fn accept(&mut self) -> io::Result<(Unsecured, Option<SocketAddr>, Option<IpAddr>)> {
        let (stream, peer, local) = Listen::accept(&mut self.listener).await?;
        Ok((Unsecured { stream, tls: Arc::clone(&self.tls) }, peer, local))
    }
}

impl Opening for Unsecured {
    type Stream = TlsStream<TcpStream>;

    /// 1. Whoever sends something else than a handshake is told so, in the words of HTTP.
    /// 2. A handshake has its turn among those of its peer and then among all, and as much time as a head in all.
    async fn open(
        self,
        counted: Option<Peer>,
        limit: Duration,
    ) -> Option<(TlsStream<TcpStream>, Shown)> {
        let Self { stream, tls } = self;
        let until = Instant::now() + limit;
        let opened = timeout_at(until, async {
            let mut first = [0];
            match stream.peek(&mut first).await? {
                0 => return Ok(None),
                _ if first[0] != HANDSHAKE => {
                    tell(stream).await?;
                    return Ok(None);
                }
                _ => {}
            }
            let Some(_peers_turn) = tls.peers.take(counted).await else { return Ok(None) };
            // INVARIANT: nobody closes the semaphore.
            let _turn = tls.handshakes.acquire().await.expect("the semaphore is open");
            let config = Arc::clone(&tls.in_use.read());
            TlsAcceptor::from(config).accept(stream).await.map(Some)
        })
        .await;
        match opened {
            Ok(Ok(Some(stream))) => {
                let certificate =
                    stream.get_ref().1.peer_certificates().and_then(|all| all.first());
                let identity = certificate.and_then(|it| shown_by_certificate(it));
                return Some((stream, Shown(identity.map(Arc::new))));
            }
            // It went, or was told what is wrong.
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection could not be secured"),
            Err(_) => tracing::debug!("a connection was not secured in time"),
        }
        count_closed(Reason::Handshake);
        None
    }
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
