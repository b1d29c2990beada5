//! The connections to an upstream: who it must be by TLS, and who the gateway is to it. The files that say so are looked at
//! every few seconds, and what they hold then counts for new connections.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::HeaderValue;
use fence_core::ports::Clock;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Identity};
use tokio::task::spawn_blocking;

use crate::config::{self, Credentials};
use crate::files::{self, CREDENTIAL_BYTES_MAX, FILE_BYTES_MAX};
use crate::seen::Seen;

/// How long a connection may be kept for the next read.
const IDLE: Duration = Duration::from_secs(20);
/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Connections to one upstream.
pub(super) struct Connections {
    settings: config::Upstream,
    current: Mutex<Current>,
}

struct Current {
    clients: Clients,
    seen: Vec<Seen>,
    looked_at: Duration,
}

/// Clients with the same files.
#[derive(Clone)]
pub(super) struct Clients {
    /// For requests whose fate must be known: each has a connection of its own, so that none gets lost on one that the
    /// upstream was just closing.
    pub(super) fresh: Client,
    /// For all others.
    pub(super) pooled: Client,
}

impl Connections {
    /// None is made yet.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else.
    pub(super) fn new(settings: &config::Upstream) -> anyhow::Result<Self> {
        let seen = settings.tls_files().map(Seen::of).collect();
        let clients = clients(settings)
            .with_context(|| format!("TLS of the upstream {:?}", settings.name))?;
        let current = Current { clients, seen, looked_at: Duration::ZERO };
        Ok(Self { settings: settings.clone(), current: Mutex::new(current) })
    }

    /// The clients, with what the files hold now. Files that are no good leave it as it was.
    pub(super) fn clients(&self, clock: &dyn Clock) -> Clients {
        let mut current = self.current.lock();
        let now = clock.elapsed();
        if current.seen.is_empty() || now.saturating_sub(current.looked_at) < LOOK {
            return current.clients.clone();
        }
        current.looked_at = now;
        let seen: Vec<Seen> = self.settings.tls_files().map(Seen::of).collect();
        if seen != current.seen {
            match clients(&self.settings) {
                Ok(clients) => (current.clients, current.seen) = (clients, seen),
                Err(error) => {
                    let (upstream, why) = (&self.settings.name, format!("{error:#}"));
                    tracing::warn!(upstream, why, "files of TLS are no good; the former ones stay");
                }
            }
        }
        current.clients.clone()
    }

    /// What the gateway shows in `Authorization`, if it shows anything; read for each request.
    ///
    /// # Errors
    /// A file that cannot be read, or holds no header.
    pub(super) async fn credential(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Credentials::File(path) = &self.settings.authorization else { return Ok(None) };
        let at = || format!("{}", path.display());
        let place = path.clone();
        let read = spawn_blocking(move || files::read_text(&place, CREDENTIAL_BYTES_MAX));
        let text = read.await?.with_context(at)?;
        let mut value = HeaderValue::from_str(text.trim())
            .with_context(|| format!("{} holds no value of a header", path.display()))?;
        anyhow::ensure!(!value.is_empty(), "{} holds nothing", path.display());
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn clients(settings: &config::Upstream) -> anyhow::Result<Clients> {
    let authorities = match &settings.ca_file {
        Some(path) => Some(read(path).and_then(|pem| {
            let found = Certificate::from_pem_bundle(&pem)?;
            anyhow::ensure!(!found.is_empty(), "{} holds no certificate", path.display());
            Ok(found)
        })?),
        None => None,
    };
    let identity = match (&settings.cert_file, &settings.key_file) {
        (Some(cert), Some(key)) => {
            let pair = [read(cert)?, b"\n".to_vec(), read(key)?].concat();
            let unfit = || format!("{} and {}", cert.display(), key.display());
            Some(Identity::from_pem(&pair).with_context(unfit)?)
        }
        _ => None,
    };
    let client = || {
        let mut client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(settings.connect_timeout())
            .pool_idle_timeout(IDLE);
        if let Some(authorities) = &authorities {
            client = client.tls_certs_only(authorities.iter().cloned());
        }
        if let Some(identity) = &identity {
            client = client.identity(identity.clone());
        }
        client
    };
    Ok(Clients {
        fresh: client().pool_max_idle_per_host(0).build().context("a client")?,
        pooled: client().build().context("a client")?,
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    files::read(path, FILE_BYTES_MAX).with_context(|| format!("{}", path.display()))
}
