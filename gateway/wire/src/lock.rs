//! The words for locks: ids, ttl, states and how a lock ends.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{Uuid, Variant};

/// The id of a lock: a random UUID, the holder's key to it, shown to nobody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LockId(pub Uuid);

/// An id is not written as a UUID, or not of a kind that cannot be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the id of a lock is a random UUID, version 4 or 7, such as 67e55044-10b1-426f-9247-bb680e5fe0c8"
)]
pub struct LockIdError;

impl LockId {
    /// Reads an id in the one usual form, with hyphens. Other versions than 4 and 7 are refused: times, names
    /// and counters can be guessed, and whoever knows the id of a lock can release it.
    ///
    /// # Errors
    /// It is not such an id.
    pub fn parse(text: &str) -> Result<Self, LockIdError> {
        let id = Uuid::try_parse(text).ok().filter(|_| text.len() == 36).ok_or(LockIdError)?;
        let random = [4, 7].contains(&id.get_version_num()) && id.get_variant() == Variant::RFC4122;
        random.then_some(Self(id)).ok_or(LockIdError)
    }
}

impl<'de> Deserialize<'de> for LockId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The id of one write, given by the gateway; `GET /operations/{id}` says what became of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub Uuid);

macro_rules! id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
id!(LockId);
id!(OperationId);

/// How long a lock lasts without renewal; perhaps for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl(Duration);

/// A ttl is missing its unit or outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a ttl is a duration from 1s to 24h, such as 30s or 5m, or infinite")]
pub struct TtlError;

impl Ttl {
    /// The shortest ttl.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest ttl.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// The ttl of a lock whose caller names none.
    pub const DEFAULT: Self = Self(Duration::from_secs(30));
    /// The ttl of a lock that lasts until it is released or broken. In the ledgers it is this
    /// number, 100 years, like any other.
    pub const INFINITE: Self = Self(Duration::from_secs(100 * 365 * 24 * 60 * 60));
    /// How long an infinite lock lasts until its holder shows that it knows of it, by a renewal or by
    /// the same call again: a lost answer must not lock a resource for ever.
    pub const UNCONFIRMED: Self = Self(Duration::from_secs(60));
    /// The ttl of a fence without a lock, which keeps nobody out.
    pub const NONE: Self = Self(Duration::ZERO);

    /// A ttl within its bounds.
    pub fn new(duration: Duration) -> Result<Self, TtlError> {
        if (Self::MIN..=Self::MAX).contains(&duration) { Ok(Self(duration)) } else { Err(TtlError) }
    }

    /// Milliseconds, as the ledgers keep it.
    pub fn as_ms(self) -> i64 {
        // INVARIANT: a ttl is at most 24 h, far below 2^63 ms.
        i64::try_from(self.0.as_millis()).expect("a ttl fits")
    }

    /// A ttl read back from a ledger, which only holds checked ones.
    pub fn from_ms(ms: i64) -> Self {
        Self(Duration::from_millis(ms.unsigned_abs()))
    }

    /// Whether the lock lasts until it is released or broken.
    pub fn is_infinite(self) -> bool {
        self == Self::INFINITE
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.is_infinite() {
            true => serializer.serialize_str("infinite"),
            false => serializer.collect_str(&DurationText(self.0)),
        }
    }
}

impl FromStr for Ttl {
    type Err = TtlError;

    /// Reads `infinite`, or a whole number and a unit, as requests have it.
    fn from_str(text: &str) -> Result<Self, TtlError> {
        match text {
            "infinite" => Ok(Self::INFINITE),
            _ => whole(text).map_err(|_| TtlError).and_then(Self::new),
        }
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "infinite" {
            return Ok(Self::INFINITE);
        }
        let duration = whole(&text).map_err(serde::de::Error::custom)?;
        Self::new(duration).map_err(serde::de::Error::custom)
    }
}

/// How long a lock may be held in all, however often it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxHold(Duration);

/// A longest hold is missing its unit or outside its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("max_hold is a duration such as 30s, 2h or 7d, from 1s to 30d")]
pub struct MaxHoldError;

impl MaxHold {
    /// The shortest.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest.
    pub const MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

    /// A longest hold within its bounds.
    pub fn new(duration: Duration) -> Result<Self, MaxHoldError> {
        let good = (Self::MIN..=Self::MAX).contains(&duration);
        good.then_some(Self(duration)).ok_or(MaxHoldError)
    }

    /// One from milliseconds, unchecked.
    pub fn from_ms(ms: i64) -> Self {
        Self(Duration::from_millis(ms.unsigned_abs()))
    }

    /// Milliseconds.
    pub fn as_ms(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }

    /// When a lock granted at this time must have ended.
    pub fn after(self, granted_at: Timestamp) -> Timestamp {
        let hold = SignedDuration::from_millis(self.as_ms());
        granted_at.checked_add(hold).unwrap_or(Timestamp::MAX)
    }
}

impl Serialize for MaxHold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&DurationText(self.0))
    }
}

impl FromStr for MaxHold {
    type Err = MaxHoldError;

    /// Reads a whole number and a unit, as requests have it.
    fn from_str(text: &str) -> Result<Self, MaxHoldError> {
        whole(text).map_err(|_| MaxHoldError).and_then(Self::new)
    }
}

impl<'de> Deserialize<'de> for MaxHold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duration = requested_duration(deserializer)?;
        Self::new(duration).map_err(serde::de::Error::custom)
    }
}

/// A duration as requests have it: whole milliseconds and their unit. What is less than a millisecond is cut
/// off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationText(pub Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

/// A text is not a whole number and a unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 500ms, 30s, 5m, 2h or 1d: a whole number and a unit")]
pub struct DurationError(String);

impl FromStr for DurationText {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        whole(text).map(Self)
    }
}

/// Reads a duration such as `500ms`, `30s` or `5m` from JSON or a query.
pub fn duration_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|_| {
        serde::de::Error::custom(format!("{text:?} is not a duration such as 500ms, 30s or 5m"))
    })
}

/// Reads a duration of a request: a whole number and one unit. There is one way to write each, so that
/// the API's description can say which are taken.
pub fn requested_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    whole(&text).map_err(serde::de::Error::custom)
}

fn whole(text: &str) -> Result<Duration, DurationError> {
    let read = || {
        let end = text.find(|letter: char| !letter.is_ascii_digit())?;
        let (digits, unit) = text.split_at(end);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let number: u64 = digits.parse().ok()?;
        let plain = number.to_string() == digits;
        plain.then_some(())?;
        number.checked_mul(unit_ms).map(Duration::from_millis)
    };
    read().ok_or_else(|| DurationError(text.to_owned()))
}

/// What a lock is doing, as everybody may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum LockState {
    /// Held, and its deadline lies ahead.
    Leased,
    /// Held, but an operator's break is due soon.
    Breaking,
    /// Sealed, but it waits for what older tokens may still do to an upstream: its token is given to
    /// nobody yet.
    Draining,
    /// Ended by an operator.
    Broken,
    /// Its deadline has passed; nobody has taken over, so its holder may still write and renew.
    Expired,
    /// Given back by its holder.
    Released,
}

impl LockState {
    /// Whether the lock keeps others out of its resource.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Leased | Self::Breaking | Self::Draining)
    }

    /// The word in JSON and in the ledgers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leased => "leased",
            Self::Breaking => "breaking",
            Self::Draining => "draining",
            Self::Broken => "broken",
            Self::Expired => "expired",
            Self::Released => "released",
        }
    }
}

/// How a lock ended. Its id is granted to nobody else while it is remembered, for `ended_locks_kept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum LockEnd {
    /// A newer token was sealed on its resource.
    Superseded,
    /// Its holder gave it back, or the id was given up before it was granted.
    Released,
    /// An operator broke it.
    Broken,
    /// It was issued before the ledger was re-fenced.
    Void,
}

impl LockEnd {
    /// The word in JSON and in the ledgers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Released => "released",
            Self::Broken => "broken",
            Self::Void => "void",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Superseded, Self::Released, Self::Broken, Self::Void]
            .into_iter()
            .find(|end| end.as_str() == word)
    }
}

/// How a grant ended on a resource. The act that ends it says so: a lock past its deadline may still come back until the next
/// is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum GrantEnd {
    /// Its holder gave the lock back.
    Released,
    /// An operator broke the lock.
    Broken,
    /// Its holder handed the lock to a successor.
    Transferred,
    /// A fence without a lock was set over it by force, within its time.
    Fenced,
    /// Its time was over when the next was granted, and it had not come back.
    Lapsed,
    /// The ledger was re-fenced.
    Void,
}

impl GrantEnd {
    /// The word in JSON and in the ledgers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Broken => "broken",
            Self::Transferred => "transferred",
            Self::Fenced => "fenced",
            Self::Lapsed => "lapsed",
            Self::Void => "void",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Released, Self::Broken, Self::Transferred, Self::Fenced, Self::Lapsed, Self::Void]
            .into_iter()
            .find(|end| end.as_str() == word)
    }
}

/// What put a newer token in a token's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Supersession {
    /// The next lock on the resource.
    Grant,
    /// The holder handed the lock to a successor.
    Transfer,
    /// A new fence without a lock.
    Fence,
}

impl Supersession {
    /// The word in JSON and in the ledgers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Transfer => "transfer",
            Self::Fence => "fence",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Grant, Self::Transfer, Self::Fence].into_iter().find(|by| by.as_str() == word)
    }
}

macro_rules! text {
    ($($word:ident)+) => {$(
        impl From<$word> for &'static str {
            fn from(word: $word) -> Self {
                word.as_str()
            }
        }
    )+};
}
text!(LockState LockEnd GrantEnd Supersession);
