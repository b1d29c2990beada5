//! Problems, and what operators see, as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lock::{GrantEnd, OperationId, Supersession};
use crate::word::Word;

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
    #[cfg_attr(feature = "openapi", schema(value_type = crate::ErrorCode))]
    pub reason: String,
    /// The token that the writer presented, if it will never be good again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::Token>))]
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
    /// How many writes this stands for. Those with unknown tokens on one resource in one minute are one entry, that
    /// of the first; all others have entries of their own.
    pub times: i64,
}

/// A page of rejections: newest first, or oldest first if they are followed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RejectionList {
    /// The rejections.
    pub items: Vec<RejectionEntry>,
    /// Pass it as `cursor` for the next page; absent on the last. If it is followed, pass it as `after`: always there.
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
    /// `unprotect`, `fence`, `resolve`, `refence` or `epoch`.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::AuditAction))]
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
    /// Of a grant: how the one before it on this resource ended; absent if there was none, or if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<GrantEnd>))]
    pub previous_end: Option<Word<GrantEnd>>,
    /// When it ended; absent if that is not known. One that had lapsed ended when the next was granted: until then it could
    /// have come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub previous_ended_at: Option<Timestamp>,
    /// Why, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The request that asked for it, as in `X-Request-Id` and the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The gateway's own id of it, as in the log; only if the caller named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_request_id: Option<String>,
    /// The principal that asked for it; absent where no rules of access were in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// By which name its credential can be revoked: never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The address that it came from, or `unix` for a socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// A page of the audit: newest first, or oldest first if it is followed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditList {
    /// The entries.
    pub items: Vec<AuditEntry>,
    /// Pass it as `cursor` for the next page; absent on the last. If it is followed, pass it as `after`: always there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The state of one part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PartState {
    /// Which one.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Part))]
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
    /// The parts, each once: `gateway`, `ledger`, `mint`, `blobs`, `settings`, `writes`, `grants`.
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
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// The error code.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::ErrorCode))]
    pub code: String,
    /// Whether the same request may succeed when it is sent again later.
    pub retryable: bool,
    /// The request, as in `X-Request-Id` and the log.
    pub request_id: String,
    /// The gateway's own id of it, as in the log; only if the caller named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_request_id: Option<String>,
    /// The trace that the request is part of, as in the log: that of its `traceparent`, or one that the gateway records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{32}$"))]
    pub trace_id: Option<String>,
    /// The resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Of a commit: the position in its list, from 0, of the operation that could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The token that was presented.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::Token>))]
    pub presented_token: Option<String>,
    /// What superseded the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Supersession>))]
    pub superseded_by: Option<Word<Supersession>>,
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
    pub operation: Option<OperationId>,
    /// Why, in the operator's words, if one broke the lock, is about to, or froze the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// With `version-mismatch`: the version of the resource, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// With `version-mismatch`, if it was about an object that is there: its tag, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Behind which event to begin again, if the cursor is void.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::EventPlace>))]
    pub begin_after: Option<String>,
    /// `unknown` if the request may have taken effect or not; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Unknown>))]
    pub outcome: Option<String>,
}
