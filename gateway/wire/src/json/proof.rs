//! What shows that nobody has changed the audit, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many leaves of the tree are kept together: pages of an export begin with a multiple of it.
pub const AUDIT_TILE: i64 = 256;

/// What the tree keeps of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditLeaf {
    /// Its place in the tree, from 0.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub index: i64,
    /// The number of the entry.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub number: i64,
    /// Whether it is a grant: nothing else is ever let go.
    pub is_grant: bool,
    /// The SHA-256 of its fields, in hex.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$"))]
    pub digest: String,
}

/// `GET /audit/proof`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditProof {
    /// The leaf that is proven to be in the tree; absent if it is about two trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<AuditLeaf>,
    /// The hashes of the proof, in hex, as RFC 9162 orders them.
    pub hashes: Vec<String>,
    /// The note whose tree the leaf is in; absent if it is about two trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// An entry, and what the tree keeps of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditLine {
    /// The number of the entry.
    pub number: i64,
    /// Whether it is a grant.
    pub is_grant: bool,
    /// The SHA-256 of its fields in the tree, in hex; `null` if it has no leaf among those beside it: nobody but somebody
    /// who tampers leaves that behind.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub digest: Option<String>,
    /// Its fields as they are hashed; `null` if there is no such entry any more.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub entry: Option<BTreeMap<String, String>>,
}

/// `GET /audit/export`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditExport {
    /// The checkpoint of the ledger, a signed note. Lines beyond its size may follow.
    pub checkpoint: String,
    /// The newest checkpoint that an outside witness has signed, too; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<String>,
    /// The key that this gateway signs with, as `NAME+HASH+BASE64`; `null` if it has none.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub key: Option<String>,
    /// Grants up to this number may have been let go as history.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub let_go: i64,
    /// Entries in the order of their numbers.
    pub lines: Vec<AuditLine>,
    /// Pass it as `from` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}
