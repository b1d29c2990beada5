//! What every handler can reach: the engine, the limits and the metrics.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::http::identify::Issuers;
use crate::http::middleware::Doors;
use crate::http::proxy::Upstreams;
use crate::http::room::Room;
use crate::http::routes::{Exported, Ground};
use crate::http::ui::Page;

/// How much of everything a request may bring, and how long it may take to arrive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest payload that is kept in the ledger, in bytes; larger ones become blobs.
    pub inline_bytes_max: usize,
    /// The largest payload of a put, in bytes.
    pub object_bytes_max: u64,
    /// The longest time a body may take that goes to the blob store.
    pub upload_timeout: Duration,
    /// How many bytes of it must come in each second, taken over half a minute; 0 for any.
    pub upload_rate_min: u64,
    /// The largest JSON body, in bytes.
    pub json_bytes_max: usize,
    /// The longest pause in the middle of a body.
    pub body_idle_timeout: Duration,
    /// The longest time a whole body may take.
    pub body_timeout: Duration,
    /// The longest time a request line and its headers may take, from their first byte.
    pub head_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// The most bytes of headers.
    pub header_bytes_max: usize,
    /// The most header lines.
    pub headers_max: usize,
    /// The longest path and query, in bytes.
    pub uri_bytes_max: usize,
    /// The most connections at a time; more wait to be accepted.
    pub connections_max: usize,
    /// Connections beyond those that wait a moment to hear that their principal has too many.
    pub refused_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            inline_bytes_max: 256 * 1024,
            object_bytes_max: 64 << 30,
            upload_timeout: Duration::from_secs(60 * 60),
            upload_rate_min: 16 * 1024,
            json_bytes_max: 64 * 1024,
            body_idle_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            header_bytes_max: 16 * 1024,
            headers_max: 100,
            uri_bytes_max: 8 * 1024,
            connections_max: 10_000,
            refused_max: 10_000,
        }
    }
}

/// What callers are told of S3.
#[derive(Debug, Clone)]
pub struct S3Told {
    /// Where it is spoken, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// In which region that is.
    pub region: String,
}

/// The state of the HTTP layer.
pub struct AppState {
    /// The engine: the only way to the ledger and the mint.
    pub engine: Engine,
    /// The limits.
    pub limits: Limits,
    /// What there is room for.
    pub room: Room,
    /// Renders what the process has measured.
    pub metrics: PrometheusHandle,
    /// Resources that are exported by name.
    pub exported: Exported,
    /// Cancelled when the gateway begins to shut down: `/readyz` says so.
    pub draining: CancellationToken,
    /// What a 2xx promises, for `X-Fence-Guarantee`.
    pub guarantee: &'static str,
    /// What the gateway stands on.
    pub ground: Ground,
    /// Whether a write must name its lock beside the token.
    pub requires_lock_id: bool,
    /// The upstreams that are fronted.
    pub upstreams: Upstreams,
    /// The keys of those who sign tokens.
    pub issuers: Arc<Issuers>,
    /// What callers are told of S3; none where it is off.
    pub s3: Option<S3Told>,
    /// Under which names the gateway is reached, and whose pages may call it.
    pub doors: Arc<Doors>,
    /// The page that operators have here; none where it is not served.
    pub page: Option<Page>,
}

impl AppState {
    /// Whether a write must name its lock beside the token: by this gateway's settings, or as all have agreed since.
    pub fn requires_lock_id(&self) -> bool {
        self.requires_lock_id || self.engine.requires_lock_id()
    }
}

/// The state as handlers get it.
pub type App = Arc<AppState>;
