//! Resources, objects and operations as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::optional_duration;
use crate::lock::{LockState, OperationId};
use crate::names::ResourceName;
use crate::word::Word;

/// `POST /resources/{resource}/break`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BreakRequest {
    /// Break at the latest in this time, or when the lock expires if that is sooner; now by
    /// default. At most `24h`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Delay>))]
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub after: Option<std::time::Duration>,
    /// Why, for the record; 1 to 1024 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Reason))]
    pub reason: String,
}

/// `POST /resources/{resource}/freeze` and the like
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// Why, shown to everybody and kept for ever; 1 to 1024 bytes, no control characters.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Reason))]
    pub reason: String,
}

/// A resource and its lock, as everybody may see them: no ids, no tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resource {
    /// Its name.
    pub resource: ResourceName,
    /// What its lock is doing.
    #[cfg_attr(feature = "openapi", schema(value_type = LockState))]
    pub state: Word<LockState>,
    /// The owner of the lock granted last.
    pub owner: String,
    /// Its principal, where rules of access are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// When that lock was granted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub acquired_at: Timestamp,
    /// When it was released or broken, as `state` says; absent while it stands, also past its deadline: then it may come
    /// back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended_at: Option<Timestamp>,
    /// How long ago it was granted, in milliseconds.
    pub age_ms: i64,
    /// How long ago it was granted or last renewed, in milliseconds.
    pub renewed_ms_ago: i64,
    /// How long it lasts from a renewal, in milliseconds; `null` if it does not expire. Of an infinite lock that
    /// is not confirmed yet, the time it has for that; 0 for a fence without a lock.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub ttl_ms: Option<i64>,
    /// Time left, in milliseconds; 0 once expired or ended; `null` if it does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_in_ms: Option<i64>,
    /// In how many milliseconds an operator's break comes due; absent while none is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaks_in_ms: Option<i64>,
    /// The version of the resource: the number of its last committed write.
    pub version: i64,
    /// How many objects it has.
    pub objects: i64,
    /// Why an operator has stopped all writers and grants, in the operator's words; absent if none
    /// has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// Why an operator forbids deleting it, in the operator's words; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected: Option<String>,
    /// How many wait in line for its lock.
    pub queue_length: i64,
    /// Changes whenever the grant of its lock, the `state`, the `version`, or what an operator has marked does, and
    /// with nothing else: for `since`. Its form means nothing and may change.
    pub state_tag: String,
}

/// Somebody who waits in line for a lock, as everybody may see it: no ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiter {
    /// Who waits.
    pub owner: String,
    /// Since when.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: Timestamp,
    /// Its place in the line of this resource, from 1. One that waits for several resources at once is told the
    /// place that it has for all of them, which may be further back.
    pub position: i64,
    /// Whether its call is waiting now. If not, its place is only kept for a while: the call has ended, or the
    /// gateway that served it has not been heard of for 5 seconds.
    pub present: bool,
}

/// A page of a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaiterList {
    /// Who waits, first come first.
    pub items: Vec<Waiter>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An object in a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectEntry {
    /// Its key.
    pub key: String,
    /// The version of the resource that wrote it.
    pub version: i64,
    /// Its `ETag`.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::EntityTag))]
    pub etag: String,
    /// Its number of bytes.
    pub size: i64,
    /// The SHA-256 of its bytes, in hexadecimal; `null` if the gateway does not know it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>, required))]
    pub sha256: Option<String>,
    /// Of an object that was uploaded in parts: the SHA-256 of the SHA-256 digests of its parts, one behind the other.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256_parts: Option<String>,
    /// Its content type.
    pub content_type: String,
    /// When it was written.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub written_at: Timestamp,
}

/// A page of resources.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceList {
    /// The resources, in byte order.
    pub items: Vec<Resource>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A page of objects.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectList {
    /// The objects, in byte order of their keys.
    pub items: Vec<ObjectEntry>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The answer to a put.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Written {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: String,
    /// The version of the resource that this write became.
    pub version: i64,
    /// The number of bytes stored.
    pub size: i64,
    /// The SHA-256 of the bytes stored, in hexadecimal; `null` if the gateway does not know it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>, required))]
    pub sha256: Option<String>,
    /// The id of the operation.
    pub operation: OperationId,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationOutcome {
    /// It took effect.
    Applied,
    /// It took no effect and never will. If it had an `Idempotency-Key`, another request with the same key
    /// may have taken effect: look that up on the resource.
    NotApplied,
    /// It was forwarded to an upstream, or is about to be, and whether it took effect is not known: see
    /// `forward`. Never told of a write to the gateway's own storage.
    Unknown,
}

/// An operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operation {
    /// Its id.
    pub operation: OperationId,
    /// What became of it.
    #[cfg_attr(feature = "openapi", schema(value_type = OperationOutcome))]
    pub outcome: Word<OperationOutcome>,
    /// `put`, `delete`, `delete_all` or `commit`; `forward` if it went to an upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Kind>))]
    pub kind: Option<String>,
    /// The resource; of a commit that is looked up by its id, see `resources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The object; absent if it was about all of them, or was a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The version it became; absent for a delete of nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Of a commit that is looked up by its id: all its resources, and the versions it became there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<super::CommittedResource>>,
    /// Its number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The SHA-256 of its bytes, in hexadecimal; absent if it stored none, or the gateway does not know it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The owner of the lock it was made under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub committed_at: Option<Timestamp>,
    /// Of a request to an upstream: what the gateways know of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<super::ForwardRecord>,
}

/// The answer to a search for operations.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationList {
    /// At most one: the operation that used the key.
    pub items: Vec<Operation>,
}
