//! The text of the rules, as it is written in `access.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use fencegate_wire::lock::duration_text;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::action::Action;
use crate::key::KeyDigest;
use crate::quotas::{Quota, Quotas};

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) revoked: Vec<String>,
    #[serde(default)]
    pub(super) issuers: Vec<Issuer>,
    #[serde(default)]
    pub(super) roles: Vec<Role>,
    #[serde(default)]
    pub(super) principals: Vec<Principal>,
}

/// Who signs tokens, and how they are checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// What rules and the audit call it.
    pub name: String,
    /// What stands in the token as `iss`, byte for byte.
    pub issuer: String,
    /// What the token's `aud` must have.
    pub audience: String,
    /// Where its keys are: a file of this machine.
    pub jwks_file: Option<String>,
    /// Where its keys are: an https URL.
    pub jwks_url: Option<String>,
    /// What it may sign with.
    pub algorithms: Vec<Algorithm>,
}

/// How a token may be signed. Only with key pairs: whoever can check a token cannot make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Algorithm {
    /// RSA, PKCS #1 v1.5, SHA-256.
    RS256,
    /// RSA, PSS, SHA-256.
    PS256,
    /// ECDSA on P-256.
    ES256,
    /// ECDSA on P-384.
    ES384,
    /// Ed25519.
    EdDSA,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) allow: Vec<Action>,
    #[serde(default)]
    pub(super) resources: Vec<String>,
    #[serde(default)]
    pub(super) upstreams: Vec<String>,
    #[serde(default)]
    pub(super) deny: Vec<Deny>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) ttl_max: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) hold_max: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    pub(super) wait_max: Option<Duration>,
    pub(super) infinite: Option<bool>,
    rate: Option<u64>,
    burst: Option<u64>,
    connections: Option<u64>,
    streams: Option<u64>,
    uploads: Option<u64>,
    queries: Option<u64>,
    body_bytes: Option<u64>,
    line_places: Option<u64>,
    locks: Option<u64>,
    new_resources: Option<u64>,
    keys: Option<u64>,
    bytes: Option<u64>,
}

impl Role {
    /// What it says of quotas.
    pub(super) fn quotas(&self) -> Result<Quotas, String> {
        Quotas::stated(Quota::ALL.map(|quota| {
            let stated = match quota {
                Quota::Rate => self.rate,
                Quota::Burst => self.burst,
                Quota::Connections => self.connections,
                Quota::Streams => self.streams,
                Quota::Uploads => self.uploads,
                Quota::Queries => self.queries,
                Quota::BodyBytes => self.body_bytes,
                Quota::LinePlaces => self.line_places,
                Quota::Locks => self.locks,
                Quota::NewResources => self.new_resources,
                Quota::Keys => self.keys,
                Quota::Bytes => self.bytes,
            };
            (quota, stated)
        }))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deny {
    pub(super) actions: Vec<Action>,
    pub(super) resources: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Principal {
    pub(super) name: String,
    pub(super) roles: Vec<String>,
    #[serde(default)]
    pub(super) keys: Vec<Key>,
    /// The ids of its keys of S3. Their secrets follow from the id and the gateways' root: there is nothing to keep.
    #[serde(default)]
    pub(super) s3_keys: Vec<String>,
    /// Which roles of the database this principal is to `guard()`.
    #[serde(default)]
    pub(super) postgres_roles: Vec<String>,
    #[serde(default, rename = "match")]
    pub(super) matches: Match,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) sha256: KeyDigest,
    #[serde(deserialize_with = "instant")]
    pub(super) expires: Timestamp,
}

/// Who is this principal without a key of it. Each kind (token, certificate, socket) is enough by itself; within a kind
/// all that is said must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    pub(super) issuer: Option<String>,
    pub(super) sub: Option<String>,
    #[serde(default)]
    pub(super) claims: BTreeMap<String, String>,
    pub(super) spiffe: Option<String>,
    pub(super) dns: Option<String>,
    /// The authorities whose certificates count, by the SHA-256 of their own; any that the gateway takes, if none is named.
    #[serde(default)]
    pub(super) authorities: Vec<String>,
    pub(super) unix_uid: Option<u32>,
    pub(super) unix_gid: Option<u32>,
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration_text(from).map(Some)
}

/// A time of TOML's own kind, or a text as RFC 3339 has it.
fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Time {
        Own(toml::value::Datetime),
        Text(String),
    }
    let text = match Time::deserialize(from)? {
        Time::Own(time) => time.to_string(),
        Time::Text(text) => text,
    };
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!("{text:?} is not a time such as 2027-02-01T00:00:00Z"))
    })
}
