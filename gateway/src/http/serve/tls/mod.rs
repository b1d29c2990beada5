//! TLS on the gateway's own listeners: with which certificate, and for whom.

mod callers;
mod credential;
mod files;
mod handshake;
mod metered;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::UnixTime;

use callers::Callers;
pub use callers::ClientFiles;
pub use files::TlsFiles;
use files::{Found, Loaded, Seen};
use handshake::Steps;

use super::listen::Listen;

/// How often the files are looked at: certificates are renewed by putting others in their place.
const LOOK: Duration = Duration::from_secs(5);

/// When the certificate ends.
const EXPIRES: &str = "fencegate_tls_certificate_expires_seconds";
/// When the lists of revoked certificates lapse.
const LISTS_EXPIRE: &str = "fencegate_tls_crl_expires_seconds";
/// Files that could not be used.
const RELOAD_FAILURES: &str = "fencegate_tls_reload_failures_total";

/// Tells the recorder what the metrics mean.
pub fn describe() {
    metrics::describe_gauge!(
        EXPIRES,
        "When the gateway's own certificate ends, in seconds since 1970"
    );
    metrics::describe_gauge!(
        LISTS_EXPIRE,
        "When the first of the lists of revoked certificates should have been replaced by a newer one, in seconds since 1970"
    );
    metrics::describe_counter!(
        RELOAD_FAILURES,
        "Files of certificates that were changed and could not be used; the ones before are still in use"
    );
}

/// What connections are secured with; changes with the files.
pub struct Tls {
    files: Arc<TlsFiles>,
    /// What they were before they were read first.
    begun: Seen,
    in_use: watch::Sender<Arc<InUse>>,
    steps: Steps,
    /// Open connections whose certificates are looked at again.
    looks: Semaphore,
}

/// What new connections are secured with, and whose certificates are taken.
struct InUse {
    config: Arc<ServerConfig>,
    callers: Option<Callers>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub fn new(files: TlsFiles) -> anyhow::Result<Arc<Self>> {
        let begun = files.seen();
        let in_use = watch::Sender::new(taken(files.load()?));
        let (files, steps, looks) = (Arc::new(files), Steps::new(), Semaphore::new(1));
        Ok(Arc::new(Self { files, begun, in_use, steps, looks }))
    }

    /// Looks at the files every five seconds, and at once on SIGHUP, and uses them if they have changed and are good.
    /// Connections that are open stay as they are, but those whose certificates are not taken any more. Never ends.
    pub async fn keep_fresh(&self) {
        let hangup = signal(SignalKind::hangup());
        let mut hangup =
            hangup.inspect_err(|error| tracing::warn!(%error, "SIGHUP cannot be heard")).ok();
        let mut looked = Looked { seen: self.begun.clone(), failure: None };
        loop {
            let is_told = told(&mut hangup).await;
            looked = self.look(looked, is_told).await;
        }
    }

    /// Uses what has changed since, if it is good. What could not be used is tried again each time: it may be that it was
    /// not to be read yet.
    async fn look(&self, before: Looked, is_told: bool) -> Looked {
        let must = is_told || before.failure.is_some();
        let (files, seen) = (Arc::clone(&self.files), before.seen.clone());
        // The disk may be slow, and this is the task that accepts connections.
        let found = spawn_blocking(move || files.look(&seen, must)).await;
        let (seen, loaded) = match found {
            Ok(Found::Same) => return before,
            Ok(Found::Changing) => return Looked { seen: Seen::new(), ..before },
            Ok(Found::Read(seen, loaded)) => (seen, loaded),
            Err(error) => (Seen::new(), Err(error.into())),
        };
        let failure = match loaded {
            Ok(loaded) => {
                self.in_use.send_replace(taken(*loaded));
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

/// Waits until the files are to be looked at, and says whether somebody has said so.
#[expect(clippy::disallowed_methods, reason = "files change in real time")]
async fn told(hangup: &mut Option<Signal>) -> bool {
    let heard = async {
        match hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = heard => true,
        () = sleep(LOOK) => false,
    }
}

/// Tells when what was read ends. A list that has lapsed is used all the same: without it what it revokes would be let in.
fn taken(loaded: Loaded) -> Arc<InUse> {
    let Loaded { config, callers, expires, .. } = loaded;
    metrics::gauge!(EXPIRES).set(expires as f64);
    if let Some(lapse) = callers.as_ref().and_then(Callers::lapse) {
        metrics::gauge!(LISTS_EXPIRE).set(lapse as f64);
        if u64::try_from(lapse).unwrap_or_default() < UnixTime::now().as_secs() {
            tracing::warn!(
                "a list of revoked certificates should have been replaced by a newer one: it is used all the same"
            );
        }
    }
    Arc::new(InUse { config, callers })
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
