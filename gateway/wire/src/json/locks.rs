//! Locks and fences as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::optional_duration;
use crate::lock::{LockEnd, LockId, LockState, MaxHold, Supersession, Ttl};
use crate::metadata::Metadata;
use crate::names::ResourceName;
use crate::principal::{PrincipalName, WriterName};
use crate::token::Token;
use crate::word::Word;

/// `POST /locks`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// The resource to lock; or else `resources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceName>,
    /// The resources to lock, all or none, in any order; 1 to 32, each once.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<ResourceName>>, min_items = 1, max_items = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceName>>,
    /// How long the lock lasts without renewal: `1s` to `24h`, or `infinite`: until it is released or
    /// broken. A new lock gets `30s` if it is left out, and one that was granted before under this `id`
    /// keeps the ttl it has. A new infinite lock expires after 60 s unless it is renewed, or this call is
    /// sent again with its `id`, before that: see `confirm_within_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// How long it may be held in all, however often it is renewed: `1s` to `30d`. It is set by the call
    /// that is granted; the same call again changes nothing about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<MaxHold>,
    /// A few words on the lock, shown to its holder: at most 16 strings, 4096 bytes of JSON in all,
    /// keys of 1 to 64 bytes, values of at most 1024. They are those of the call that is granted; the
    /// same call again changes nothing about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Whether to refuse resources that were never locked before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(default)]
    pub only_if_exists: bool,
    /// A name for the holder, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Owner))]
    #[serde(default)]
    pub owner: String,
    /// A random UUID of the caller's choice. With it the call can be repeated: the same id gets
    /// the same lock and token. A `ttl` in the repetition takes the place of the lock's own at once, also
    /// from or to `infinite`; without one its own starts again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<LockId>,
    /// How long to wait in line if it is held: up to `50s`; by default not at all. With an `id` the
    /// place in line is kept for 10 s after that, and the same call takes it up again.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Wait>))]
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub wait: Option<std::time::Duration>,
    /// Who else may write under the token, each with a credential of their own: principals, and roles as `role:NAME`; at
    /// most 16. They cannot renew, release or hand over. Only where rules of access are in force, and by whoever may
    /// `delegate`; they are those of the call that is granted.
    #[cfg_attr(feature = "openapi", schema(max_items = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<WriterName>,
}

/// A lock as its holder sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lock {
    /// The lock's id: the holder's key to it. Keep it to yourself.
    pub id: LockId,
    /// What it covers.
    pub resources: Vec<ResourceName>,
    /// The fence token: send it as `X-Fence-Token` with every write. Absent while the lock is draining:
    /// it is not in force yet.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub token: Token,
    /// The holder's name for itself.
    pub owner: String,
    /// The principal whose it is, where rules of access are in force: the token is good for it and its `writers` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Who else may write under the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<String>,
    /// What it is doing.
    #[cfg_attr(feature = "openapi", schema(value_type = LockState))]
    pub state: Word<LockState>,
    /// What the holder noted on it.
    #[serde(default)]
    pub metadata: Metadata,
    /// How long it lasts without renewal, in milliseconds; `null` for ever.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub ttl_ms: Option<i64>,
    /// Time left, in milliseconds; 0 once expired or ended; `null` if it does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_in_ms: Option<i64>,
    /// Of an infinite lock that is new: in this time, in milliseconds, it expires, unless it is renewed or
    /// its call is sent again with its `id`. Then it has no deadline any more, and this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within_ms: Option<i64>,
    /// When it must have ended, however often it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub hold_until: Option<Timestamp>,
    /// When it was granted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub acquired_at: Timestamp,
    /// The version of each resource, in the order of `resources`.
    pub versions: Vec<i64>,
    /// Why an operator has frozen one of its resources, if one has: no write is admitted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// Why an operator breaks it, or broke it, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For how long it had been expired when this renewal revived it, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lapsed_ms: Option<i64>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<LockEnd>))]
    pub ended: Option<Word<LockEnd>>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended_at: Option<Timestamp>,
    /// What S3 tools write with under this lock: only in the answer that grants it, and only if one of its resources lies
    /// in a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<super::S3Access>,
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
    #[cfg_attr(feature = "openapi", schema(value_type = LockWord))]
    pub state: String,
    /// Time left, in milliseconds; 0 once expired or ended.
    pub expires_in_ms: Option<i64>,
    /// When the operator's break takes effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub due: Option<Timestamp>,
    /// What put a newer token in its place, if it was superseded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Supersession>))]
    pub superseded_by: Option<Word<Supersession>>,
    /// Why, in the words of the operator who broke the lock, or is about to, or froze a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to the release of an id that no lock has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotReleased {
    /// `false`: there was nothing to release. Look for a mistake in the id.
    pub released: bool,
    /// `true`: a lock that is still on its way under this id will not be granted.
    pub buried: bool,
}

/// `POST /locks/{id}/renew`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// A new ttl, or `infinite`; without one the old is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// `POST /locks/renew`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewManyRequest {
    /// The locks; at most 1000, each once.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub ids: Vec<LockId>,
    /// A new ttl for all of them; without one each keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
}

/// `POST /locks/{id}/transfer`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// A name for the successor, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Owner))]
    pub owner: String,
    /// The id of the successor's lock, a random UUID. With it the call can be repeated: the same
    /// id gets the same answer again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<LockId>,
    /// The principal whose the successor's lock will be; the caller's own if it is left out. Another one needs the right
    /// to `delegate`, and then the caller cannot use the answer itself. Only where rules of access are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalName>,
}

/// What became of one lock in a renewal of many.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewOutcome {
    /// The lock.
    pub id: LockId,
    /// The lock as it stands, if it was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// The error code, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::ErrorCode>))]
    pub code: Option<String>,
    /// Why, in the operator's words, if one broke it or is about to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to `POST /locks/renew`: one outcome per id, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewManyAnswer {
    /// The outcomes.
    pub items: Vec<RenewOutcome>,
}

/// `POST /resources/{resource}/fence`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FenceRequest {
    /// A random UUID of the caller's choice, with which the call can be repeated.
    pub id: LockId,
    /// The number that your own lock gave you, growing with each holder: digits as a string, or an
    /// integer; 1 to 2^63-1. Not above the last one: nothing changes. Without it the last caller
    /// wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Whether to fence off the holder of a live lock of this gateway.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(default)]
    pub force: bool,
    /// A name for the caller, shown to everybody; at most 256 bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Owner))]
    #[serde(default)]
    pub owner: String,
}

/// The number of a lock that is not ours: 1 to 2^63-1, as digits or as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order(pub i64);

impl Serialize for Order {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

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
    pub resource: ResourceName,
    /// The fence token: send it as `X-Fence-Token` with every write.
    pub token: Token,
    /// The version of the resource: the number of its last committed write.
    pub version: i64,
    /// What S3 tools write with under this fence: only if the resource lies in a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<super::S3Access>,
}
