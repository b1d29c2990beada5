//! Requests and answers as JSON, shared by server and clients.
//!
//! Durations are strings in requests (`30s`) and integers of milliseconds in answers; times are
//! RFC 3339; tokens are decimal strings. Unknown fields are refused.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lock::{LockEnd, LockId, LockState, MaxHold, OperationId, Supersession, Ttl};
use crate::metadata::Metadata;
use crate::names::ResourceName;
use crate::token::Token;

/// The longest owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 256;
/// The longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
/// The most resources of one lock.
pub const LOCK_RESOURCES_MAX: usize = 32;
/// The longest wait of one call: proxies give up after a minute.
pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(50);
/// The most ids in one renewal of many.
pub const RENEW_IDS_MAX: usize = 1000;

/// `POST /locks`
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// The resource to lock; or else `resources`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, min_length = 1, max_length = 256))]
    pub resource: Option<ResourceName>,
    /// The resources to lock, all or none, in any order; 1 to 32, each once.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 32))]
    pub resources: Option<Vec<ResourceName>>,
    /// How long the lock lasts without renewal: `1s` to `24h`, or `infinite`: until it is released or
    /// broken. An infinite lock still expires after 60 s if its answer could not be written out.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, default = "30s"))]
    pub ttl: Option<Ttl>,
    /// How long it may be held in all, however often it is renewed: `1s` to `30d`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub max_hold: Option<MaxHold>,
    /// A few words on the lock, shown to its holder: at most 16 strings, 4096 bytes of JSON in all,
    /// keys of 1 to 64 bytes, values of at most 1024.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<std::collections::HashMap<String, String>>))]
    pub metadata: Option<Metadata>,
    /// Whether to refuse resources that were never locked before.
    #[serde(default)]
    pub only_if_exists: bool,
    /// A name for the holder, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    #[serde(default)]
    pub owner: String,
    /// A random UUID of the caller's choice. With it the call can be repeated: the same id gets
    /// the same lock and token.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Uuid>))]
    pub id: Option<LockId>,
    /// How long to wait in line if it is held: up to `50s`; by default not at all. With an `id` the
    /// place in line is kept for 10 s after that, and the same call takes it up again.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, default = "0s"))]
    #[serde(default, deserialize_with = "optional_duration")]
    pub wait: Option<std::time::Duration>,
}

/// A lock as its holder sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lock {
    /// The lock's id: the holder's key to it. Keep it to yourself.
    #[cfg_attr(feature = "openapi", schema(value_type = Uuid))]
    pub id: LockId,
    /// What it covers.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub resources: Vec<ResourceName>,
    /// The fence token: send it as `X-Fence-Token` with every write.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "4711"))]
    pub token: Token,
    /// The holder's name for itself.
    pub owner: String,
    /// What it is doing.
    pub state: LockState,
    /// What the holder noted on it.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, String>))]
    #[serde(default)]
    pub metadata: Metadata,
    /// How long it lasts without renewal, in milliseconds; `null` for ever.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub ttl_ms: Option<i64>,
    /// Time left, in milliseconds; 0 once expired or ended; `null` if it does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_in_ms: Option<i64>,
    /// When it must have ended, however often it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub hold_until: Option<Timestamp>,
    /// When it was granted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub acquired_at: Timestamp,
    /// The version of each resource, in the order of `resources`.
    pub versions: Vec<i64>,
    /// For how long it had been expired when this renewal revived it, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed_ms: Option<i64>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<LockEnd>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended_at: Option<Timestamp>,
}

/// What can be said of a lock in one word: how it ended, or else its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockWord {
    /// Held, and its deadline lies ahead.
    Leased,
    /// Held, but an operator's break is due soon.
    Breaking,
    /// Its deadline has passed, and nobody has taken over.
    Expired,
    /// Held, and waiting for the effects of older tokens.
    Draining,
    /// A newer token was sealed on its resource.
    Superseded,
    /// Its holder gave it back.
    Released,
    /// An operator broke it.
    Broken,
    /// It was issued before the ledger was re-fenced.
    Void,
}

impl LockWord {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leased => "leased",
            Self::Breaking => "breaking",
            Self::Expired => "expired",
            Self::Draining => "draining",
            Self::Superseded => "superseded",
            Self::Released => "released",
            Self::Broken => "broken",
            Self::Void => "void",
        }
    }
}

/// The data of an event of `GET /locks/{id}/events`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockEvent {
    /// How the lock ended (`superseded`, `released`, `broken`, `void`), or else its state.
    pub state: String,
    /// Time left, in milliseconds; 0 once expired or ended.
    pub expires_in_ms: i64,
    /// When the operator's break takes effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub due: Option<Timestamp>,
    /// What put a newer token in its place, if it was superseded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Supersession>,
}

/// `POST /locks/{id}/renew`
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// A new ttl, or `infinite`; without one the old is kept.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub ttl: Option<Ttl>,
}

/// `POST /locks/renew`
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewManyRequest {
    /// The locks; at most 1000, each once.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Uuid>, max_items = 1000))]
    pub ids: Vec<LockId>,
    /// A new ttl for all of them; without one each keeps its own.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub ttl: Option<Ttl>,
}

/// `POST /locks/{id}/transfer`
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// A name for the successor, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub owner: String,
    /// The id of the successor's lock, a random UUID. With it the call can be repeated: the same
    /// id gets the same answer again.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Uuid>))]
    pub id: Option<LockId>,
}

/// What became of one lock in a renewal of many.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewOutcome {
    /// The lock.
    #[cfg_attr(feature = "openapi", schema(value_type = Uuid))]
    pub id: LockId,
    /// The lock as it stands, if it was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// The error code, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The answer to `POST /locks/renew`: one outcome per id, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewManyAnswer {
    /// The outcomes.
    pub items: Vec<RenewOutcome>,
}

/// `POST /resources/{resource}/fence`
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FenceRequest {
    /// A random UUID of the caller's choice, with which the call can be repeated.
    #[cfg_attr(feature = "openapi", schema(value_type = Uuid))]
    pub id: LockId,
    /// The number that your own lock gave you, growing with each holder: digits as a string, or an
    /// integer; 1 to 2^63-1. Not above the last one: nothing changes. Without it the last caller
    /// wins.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "42"))]
    pub order: Option<Order>,
    /// Whether to fence off the holder of a live lock of this gateway.
    #[serde(default)]
    pub force: bool,
    /// A name for the caller, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    #[serde(default)]
    pub owner: String,
}

/// The number of a lock that is not ours: 1 to 2^63-1, as digits or as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order(pub i64);

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(i64),
            Text(String),
        }
        let number = match Form::deserialize(deserializer) {
            Ok(Form::Number(number)) => Token::new(number),
            Ok(Form::Text(digits)) => Token::parse(digits.as_bytes()).ok(),
            Err(_) => None,
        };
        let malformed = || serde::de::Error::custom("an order is a number from 1 to 2^63-1");
        number.map(|number| Self(number.get())).ok_or_else(malformed)
    }
}

/// A fence without a lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fence {
    /// The resource.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub resource: ResourceName,
    /// The fence token: send it as `X-Fence-Token` with every write.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "4711"))]
    pub token: Token,
    /// The version of the resource: the number of its last committed write.
    pub version: i64,
}

/// `POST /resources/{resource}/break`
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BreakRequest {
    /// Break at the latest in this time, or when the lock expires if that is sooner; now by
    /// default. At most `24h`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, deserialize_with = "optional_duration")]
    pub after: Option<std::time::Duration>,
    /// Why, for the record; 1 to 1024 bytes.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub reason: String,
}

/// `POST /resources/{resource}/freeze` and the like
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MarkRequest {
    /// Why, shown to everybody and kept for ever; 1 to 1024 bytes, no control characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub reason: String,
}

fn optional_duration<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<std::time::Duration>, D::Error> {
    crate::lock::duration_text(deserializer).map(Some)
}

/// A resource and its lock, as everybody may see them: no ids, no tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resource {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub resource: ResourceName,
    /// What its lock is doing.
    pub state: LockState,
    /// The owner of the lock granted last.
    pub owner: String,
    /// When that lock was granted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub acquired_at: Timestamp,
    /// How long ago that was, in milliseconds.
    pub age_ms: i64,
    /// Time left, in milliseconds; 0 once expired or ended; `null` if it does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_in_ms: Option<i64>,
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
    pub etag: String,
    /// Its number of bytes.
    pub size: i64,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
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
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub resource: ResourceName,
    /// The object.
    pub key: String,
    /// The version of the resource that this write became.
    pub version: i64,
    /// The number of bytes stored.
    pub size: i64,
    /// The SHA-256 of the bytes stored, in hexadecimal.
    pub sha256: String,
    /// The id of the operation.
    #[cfg_attr(feature = "openapi", schema(value_type = Uuid))]
    pub operation: OperationId,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationOutcome {
    /// It took effect.
    Applied,
    /// It took no effect and never will.
    NotApplied,
}

/// An operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Operation {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = Uuid))]
    pub operation: OperationId,
    /// What became of it.
    pub outcome: OperationOutcome,
    /// `put`, `delete` or `delete_all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The version it became; absent for a delete of nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Its number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The SHA-256 of its bytes, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The owner of the lock it was made under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub committed_at: Option<Timestamp>,
}

/// The answer to a search for operations.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationList {
    /// At most one: the operation that used the key.
    pub items: Vec<Operation>,
}

/// A write that was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RejectionEntry {
    /// When.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// The resource.
    pub resource: String,
    /// The object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The error code that the writer got.
    pub reason: String,
    /// The token that the writer presented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presented_token: Option<String>,
    /// How many grants behind it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants_behind: Option<i64>,
    /// How long it had been superseded, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_ms: Option<i64>,
    /// The owner of the lock that the token belonged to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The request, as in `X-Request-Id` and the log.
    pub request_id: String,
}

/// A page of rejections, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RejectionList {
    /// The rejections.
    pub items: Vec<RejectionEntry>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Something that was done to a lock, a resource or the whole ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// When.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// `grant`, `transfer`, `break`, `broken` (a break came due), `freeze`, `unfreeze`, `protect`,
    /// `unprotect`, `fence`, `refence` or `epoch`.
    pub action: String,
    /// The resource; absent if it was done to the whole ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The owner of the lock that was granted or broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner of the lock that a grant put an end to; absent if that had been released or broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_owner: Option<String>,
    /// Why, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The request of the operator, as in `X-Request-Id` and the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A page of the audit, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditList {
    /// The entries.
    pub items: Vec<AuditEntry>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The state of one part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartState {
    /// `ledger`, `mint` or `gateway`.
    pub part: String,
    /// Whether it works.
    pub ready: bool,
    /// What is wrong, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The answer to `GET /readyz`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// Whether requests should be sent here.
    pub ready: bool,
    /// The parts.
    pub parts: Vec<PartState>,
}

/// An error, as in RFC 9457.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// One line, the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// The error code.
    pub code: String,
    /// Whether the same request may succeed when it is sent again later.
    pub retryable: bool,
    /// The request, as in `X-Request-Id` and the log.
    pub request_id: String,
    /// The resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The token that was presented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presented_token: Option<String>,
    /// What superseded the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Supersession>,
    /// When the token was superseded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub superseded_at: Option<Timestamp>,
    /// When to try again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
    /// The owner of the lock that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The place in line for the lock, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<i64>,
    /// How long that lock has been held, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_age_ms: Option<i64>,
    /// The operation, where it helps: the one whose outcome is unknown, or the one that used the
    /// idempotency key first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Uuid>))]
    pub operation: Option<OperationId>,
    /// `unknown` if the request may have taken effect or not; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}
