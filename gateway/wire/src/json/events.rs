//! The history of a resource and the feed of committed writes as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A committed write in the history of its resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    /// The version that it became.
    pub version: i64,
    /// The id of the operation.
    pub operation: crate::lock::OperationId,
    /// `put`, `delete`, `delete_all`, or `commit` (many puts and deletes at once).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Kind))]
    pub kind: String,
    /// The object; absent if it was about all of them, or was a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of bytes stored; absent for a deletion and a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The SHA-256 of the bytes stored, in hexadecimal; absent for a deletion and a commit.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The owner of the lock it was made under.
    pub owner: String,
    /// When it was committed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub committed_at: Timestamp,
}

/// A page of the history of a resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionList {
    /// The versions, newest first.
    pub items: Vec<Version>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A committed write in the feed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteEvent {
    /// Its place in the feed: pass it as `after` to go on behind it.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::EventPlace))]
    pub event: String,
    /// The resource.
    pub resource: String,
    /// The version that the write became.
    pub version: i64,
    /// The id of the operation.
    pub operation: crate::lock::OperationId,
    /// `put`, `delete`, `delete_all`, or `commit` (many puts and deletes at once).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Kind))]
    pub kind: String,
    /// The object; absent if it was about all of them, or was a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of bytes stored; absent for a deletion and a commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The owner of the lock it was made under.
    pub owner: String,
    /// When it was committed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub committed_at: Timestamp,
}

/// A page of the feed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventList {
    /// The events, in the order of their numbers; none if nothing came in time.
    pub items: Vec<WriteEvent>,
    /// Pass it as `after` to go on; always there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::EventPlace))]
    pub next_cursor: String,
}
