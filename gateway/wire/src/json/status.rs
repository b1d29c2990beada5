//! What a gateway says of itself, as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the API: it rises when a client of the one before would not understand the new one.
pub const API_VERSION: u32 = 1;

/// The answer to `GET /status`. A newer gateway may say more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// The version of the gateway, as in `Fencegate-Version`.
    pub version: String,
    /// The version of the API: rises when a client of the one before would not understand the new one.
    pub api: u32,
    /// The gateway: another id after each start.
    pub gateway: Uuid,
    /// When it was started.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub started_at: Timestamp,
    /// What keeps the ledger: `postgres`, `sqlite`, or `memory` in tests.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::LedgerKind))]
    pub ledger: String,
    /// What numbers grants: `etcd`, `embedded`, or `memory` in tests.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::MintKind))]
    pub mint: String,
    /// What keeps large payloads: `folder`, `s3`, `azure`, `none`, or `memory` in tests.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::BlobsKind))]
    pub blobs: String,
    /// Rises whenever the mint has lost its place; absent while the ledger does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Rises with each re-fence, which voids all tokens; absent while the ledger does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// How many committed writes have a number in the feed, of this generation and all before; absent while the ledger
    /// does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<i64>,
    /// Whether a write without `X-Lock-Id` is refused.
    pub requires_lock_id: bool,
    /// Whether the gateway is shutting down.
    pub draining: bool,
    /// How long a call stands in line for the ledger or the mint and then for its answer, at most, in milliseconds:
    /// whoever gives up earlier may miss a definite answer. What a call waits for on purpose, and its body, come on
    /// top.
    pub answer_within_ms: i64,
    /// How long an `Idempotency-Key` is remembered, in milliseconds, and the most that `X-Fence-Key-Kept` may ask
    /// for.
    pub keys_kept_ms: i64,
    /// Lag of the time by which the ledger forgets behind its clock, in milliseconds: what is kept for a while is kept for
    /// so much longer. As of the last look of this gateway, every few seconds; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_time_behind_ms: Option<i64>,
    /// Where it speaks S3, as callers are told; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<String>,
    /// What goes on at this gateway.
    pub counts: StatusCounts,
    /// The settings as `fencegate check-config` prints them, without secrets. Only where nobody but this machine itself
    /// reaches the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
}

/// What goes on at one gateway.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusCounts {
    /// Locks that callers wait for here.
    pub waiters: u64,
    /// Calls that watch a lock.
    pub watchers: u64,
    /// Calls that read events.
    pub event_readers: u64,
    /// Writes on their way to upstreams.
    pub forwards: u64,
}
