//! Rules of access as JSON: seeing them, putting others in force, and asking what they say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::ResourceName;
use crate::principal::PrincipalName;

/// The most lost locks that one answer names.
pub const LOST_MAX: usize = 1000;

/// `GET /admin/access`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessRules {
    /// Rises with each change; 0 while no rules are in force.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub generation: i64,
    /// Their text, as `access.toml` has it; `null` while there are none, and whoever reaches a gateway may do all.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub rules: Option<String>,
}

/// `GET /access`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnAccess {
    /// Who the caller is; `null` while no rules are in force, and whoever reaches a gateway may do all.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub principal: Option<PrincipalName>,
    /// What the caller may do: to the resource that was asked about, or else to any at all.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::schema::ActionName>))]
    pub may: Vec<String>,
}

/// `PUT /admin/access`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// The rules: TOML, at most 1 MiB.
    pub rules: String,
    /// Why, for the audit; 1 to 1024 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Reason))]
    pub reason: String,
    /// Only if the rules of this generation are in force; those under which the request was allowed by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub follows: Option<i64>,
    /// Break the locks whose holders may not lock or write their resources any more; otherwise these are told only, but
    /// for those of credentials that the rules take back, which are broken always.
    #[serde(default, rename = "break")]
    pub breaks: bool,
    /// Check the rules and tell which locks they would take away; nothing changes.
    #[serde(default)]
    pub dry_run: bool,
}

/// Rules that were put in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessApplied {
    /// Their generation. Nothing takes effect any more that older rules allowed. With `dry_run`, the generation of those
    /// that are in force.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub generation: i64,
    /// Locks whose holders may not lock or write their resources any more, or whose credentials these rules take back, at
    /// most 1000 of them, first those that `unbroken_count` counts; `null` if the ledger did not tell: send the same again.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub lost: Option<Vec<LostLock>>,
    /// Number of lost locks, those that are not named among them.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub lost_count: u64,
    /// Number of all these that are broken.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub broken_count: u64,
    /// Number of all these that are to be broken and could not be in time: send the same again. With `dry_run`, how many these
    /// rules would break.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub unbroken_count: u64,
}

/// A lock whose holder may not have it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LostLock {
    /// Its resource.
    pub resource: ResourceName,
    /// What its holder calls itself.
    pub owner: String,
    /// Its principal; absent for a lock that was taken before there were rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalName>,
    /// Whether the credential that took it or renewed it last is revoked, or gone from the rules.
    pub revoked: bool,
    /// Whether it is broken. One that could not be broken in time can be broken by sending the same again.
    pub broken: bool,
}

/// `POST /admin/access/explain`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Who would ask.
    pub principal: PrincipalName,
    /// For what.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::ActionName))]
    pub action: String,
    /// To what: a resource; with `*` at its end, all whose names begin so; for `forward-read`, `UPSTREAM/PATH`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub resource: String,
}

/// What the rules say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The role that decides; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its pattern that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The same in words.
    pub why: String,
    /// The generation of the rules that say so.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub generation: i64,
}

/// What a principal holds at one gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrincipalUsage {
    /// The principal.
    pub principal: PrincipalName,
    /// How many requests of it have come.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub requests: u64,
    /// How many were refused as `rate-limited`.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub refused: u64,
    /// How much it holds of what, by the names of quotas, such as `connections`; what it holds nothing of is absent.
    pub held: BTreeMap<String, u64>,
}

/// A page of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageList {
    /// In the order of their names.
    pub items: Vec<PrincipalUsage>,
    /// Pass it as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<PrincipalName>,
}
