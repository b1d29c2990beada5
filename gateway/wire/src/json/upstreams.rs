//! Intents and doubts as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lock::OperationId;
use crate::word::Word;

/// How far a request to a drained upstream got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ForwardState {
    /// It is under way, or nobody knows whether it is.
    Open,
    /// The upstream has answered. A 2xx, but for 202 and 207, is its word that the request took effect. What
    /// it did before it gave any other answer, the gateway does not know.
    Answered,
    /// Nothing was sent, nor ever will be.
    Unsent,
    /// An operator has closed it: it has no effect any more, whatever came of it.
    Resolved,
    /// The upstream's `max_effect_delay` has passed: it has no effect any more, whatever came of it.
    Elapsed,
}

/// What is known of a request to a drained upstream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForwardRecord {
    /// The upstream.
    pub upstream: String,
    /// How far it got.
    #[cfg_attr(feature = "openapi", schema(value_type = ForwardState))]
    pub state: Word<ForwardState>,
    /// When it was admitted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub opened_at: Timestamp,
    /// When it was closed; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub closed_at: Option<Timestamp>,
    /// The status of the upstream's answer, if it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 999))]
    pub status: Option<u16>,
    /// Why the operator has closed it. The audit has the request that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What was forwarded to a drained upstream and has no known end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntentEntry {
    /// Its operation.
    pub operation: OperationId,
    /// The resource.
    pub resource: String,
    /// The owner of the lock under which it was forwarded.
    pub owner: String,
    /// The upstream.
    pub upstream: String,
    /// The method.
    pub method: String,
    /// The path at the upstream.
    pub path: String,
    /// When it was admitted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub opened_at: Timestamp,
    /// How long ago that was, in milliseconds.
    pub age_ms: i64,
    /// The gateway that forwarded it, as an id that changes with each start.
    pub gateway: uuid::Uuid,
    /// Whether it is still in flight, if it is this gateway that forwarded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<bool>,
    /// When it counts as closed, by the upstream's `max_effect_delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub closes_at: Option<Timestamp>,
}

/// An upstream of which intents may have been lost when the ledger was re-fenced: its resources are not
/// locked before somebody says that nothing is under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoubtEntry {
    /// The upstream.
    pub upstream: String,
    /// What the names of its resources begin with.
    pub resource_prefix: String,
    /// Since when.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: Timestamp,
    /// When it ends by itself, by the upstream's `max_effect_delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ends_at: Option<Timestamp>,
}

/// A page of open intents, oldest first, and all doubts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IntentList {
    /// The intents.
    pub items: Vec<IntentEntry>,
    /// The doubts.
    pub doubts: Vec<DoubtEntry>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `POST /admin/intents/resolve`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResolveDoubtsRequest {
    /// The upstream.
    pub upstream: String,
    /// Why, for the audit; 1 to 1024 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Reason))]
    pub reason: String,
}

/// The answer to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoubtsResolved {
    /// How many doubts there were.
    pub resolved: i64,
}
