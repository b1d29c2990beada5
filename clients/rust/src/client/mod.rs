//! The client: whom to ask, as whom, and for how long.

pub(crate) mod builder;
pub(crate) mod calling;
mod environment;
mod first_contact;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fencegate_wire::Ttl;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::builder::ClientBuilder;
use crate::error::Error;
use crate::guard::registry::Registry;
use crate::hooks::Hooks;
use crate::transport::Transport;

/// The most streams of events of one client: a gateway gives no more to one peer.
const STREAMS_MAX: usize = 16;

/// A client of one or more gateways in front of the same ledger. Cheap to clone; all clones share
/// connections and renewals.
///
/// The client itself reads, watches and administers. Writes exist on guards only: see [`Client::lock`] and
/// [`Client::fence`].
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// What all clones and guards share.
pub(crate) struct Inner {
    pub(crate) transport: Transport,
    pub(crate) owner: String,
    pub(crate) ttl: Ttl,
    /// For how long a call goes on.
    pub(crate) call_within: Duration,
    /// For how long a write goes on.
    pub(crate) write_within: Duration,
    pub(crate) retries: bool,
    pub(crate) hooks: Hooks,
    pub(crate) guards: Registry,
    /// Releases that nobody waits for any more.
    pub(crate) background: TaskTracker,
    /// No new locks are taken.
    pub(crate) closing: CancellationToken,
    /// Nobody goes on with anything.
    pub(crate) closed: CancellationToken,
    pub(crate) streams: Semaphore,
    /// For how long gateways keep keys at least; 0: not asked yet.
    pub(crate) keys_kept_ms: AtomicU64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.owner)
    }
}

impl Client {
    /// A client of the gateway at this base URL; with several, separated by commas, of all of them.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }

    /// A client as the environment describes it: `FENCE_URL` (a base URL, or several with commas),
    /// `FENCE_OWNER`, `FENCE_AUTH_TOKEN` or `FENCE_AUTH_TOKEN_FILE`, `FENCE_CA_FILE`, `FENCE_CERT_FILE` and
    /// `FENCE_KEY_FILE`. Each request says `TRACEPARENT`.
    ///
    /// # Errors
    /// `FENCE_URL` is missing, or one of them makes no sense.
    pub fn from_env() -> Result<Self, Error> {
        environment::builder()?.build()
    }

    /// What this client calls itself, unless a lock says otherwise.
    pub fn owner(&self) -> &str {
        &self.inner.owner
    }

    /// Ends all guards, with the reason `closed`, gives their locks back, and waits for that up to `within`. What
    /// is not answered by then is left: those locks run out by themselves.
    pub async fn close(&self, within: Duration) {
        self.inner.closing.cancel();
        self.inner.guards.close();
        self.inner.background.close();
        let _late = tokio::time::timeout(within, self.inner.background.wait()).await;
        self.inner.closed.cancel();
    }
}
