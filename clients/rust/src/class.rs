//! What a caller does about an error code. Each code that this version knows has one class, which stands
//! beside it in the list of all codes.

use fencegate_wire::ErrorCode;

/// What the caller does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Stop, forget, take the lock again, read again.
    LockLost,
    /// Come back later; nothing is wrong.
    Busy,
    /// Read again, redo, send again; the token is good.
    Changed,
    /// It is not there: decide.
    NotFound,
    /// Send the same again; the client already did, until its deadline.
    Unavailable,
    /// Find out; never assume.
    OutcomeUnknown,
    /// Fix the call.
    Misuse,
    /// Tell the operator.
    GatewayFault,
    /// Begin at another place in the feed, and check what was built since.
    CursorVoid,
    /// Get rights.
    Denied,
}

macro_rules! classes {
    ($($(#[$doc:meta])+ $code:ident, $text:literal, $status:literal, $retryable:literal, $class:ident, $calls:ident, $title:literal;)+) => {
        impl Class {
            /// The class of a code that this version knows.
            pub fn of(code: ErrorCode) -> Self {
                match code { $(ErrorCode::$code => Self::$class,)+ }
            }
        }
    };
}

fencegate_wire::each_code!(classes);

impl Class {
    /// The name of the class, the same in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LockLost => "LockLost",
            Self::Busy => "Busy",
            Self::Changed => "Changed",
            Self::NotFound => "NotFound",
            Self::Unavailable => "Unavailable",
            Self::OutcomeUnknown => "OutcomeUnknown",
            Self::Misuse => "Misuse",
            Self::GatewayFault => "GatewayFault",
            Self::CursorVoid => "CursorVoid",
            Self::Denied => "Denied",
        }
    }

    /// The class of an answer of a gateway (CC7): an unknown outcome before all else, then the code, then,
    /// for a code of a newer gateway, its status.
    pub fn of_answer(code: &str, status: u16, retryable: bool, is_outcome_unknown: bool) -> Self {
        if is_outcome_unknown {
            return Self::OutcomeUnknown;
        }
        if let Some(code) = ErrorCode::parse(code) {
            return Self::of(code);
        }
        match status {
            401 | 403 => Self::Denied,
            404 => Self::NotFound,
            409 | 423 | 429 if retryable => Self::Busy,
            412 if code.starts_with("fence-") => Self::LockLost,
            412 => Self::Changed,
            400..=499 => Self::Misuse,
            500..=599 if retryable => Self::Unavailable,
            _ => Self::GatewayFault,
        }
    }
}

/// Why a guard is no longer good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// A newer token was sealed on one of its resources.
    Superseded,
    /// An operator broke the lock.
    Broken,
    /// The ledger was re-fenced.
    Void,
    /// Somebody else who knows the id gave it back.
    ReleasedElsewhere,
    /// It was held for as long as it may be.
    HoldExceeded,
    /// The gateway does not know the lock any more.
    Gone,
    /// The order of a fence did not rise: a later holder of your own lock was here before.
    OrderStale,
    /// Its deadline passed before a renewal was answered.
    Unconfirmed,
    /// No sign of life came from the work within `stall_after`.
    Stalled,
    /// It was handed to a successor.
    Transferred,
    /// This program gave it back.
    Released,
    /// The client was closed.
    Closed,
}

impl LossReason {
    /// The word, the same in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Broken => "broken",
            Self::Void => "void",
            Self::ReleasedElsewhere => "released_elsewhere",
            Self::HoldExceeded => "hold_exceeded",
            Self::Gone => "gone",
            Self::OrderStale => "order_stale",
            Self::Unconfirmed => "unconfirmed",
            Self::Stalled => "stalled",
            Self::Transferred => "transferred",
            Self::Released => "released",
            Self::Closed => "closed",
        }
    }

    /// Why a guard ended, from the code of an answer to a write or a renewal (CC33). `None`: it has not.
    /// `lock-breaking` is no end yet (CC34).
    pub fn of(code: &str) -> Option<Self> {
        use ErrorCode as C;
        match ErrorCode::parse(code) {
            Some(C::FenceTokenStale | C::LockSuperseded) => Some(Self::Superseded),
            Some(C::FenceTokenReleased | C::LockReleased) => Some(Self::ReleasedElsewhere),
            Some(C::FenceTokenBroken | C::LockBroken) => Some(Self::Broken),
            Some(C::FenceTokenVoid | C::LockVoid) => Some(Self::Void),
            Some(C::FenceOrderStale) => Some(Self::OrderStale),
            Some(C::LockHoldExceeded) => Some(Self::HoldExceeded),
            Some(C::LockNotFound) => Some(Self::Gone),
            Some(_) => None,
            None if code.starts_with("fence-") => Some(Self::Superseded),
            None => None,
        }
    }

    /// Whether the token is dead on all of so many resources. A lock that ended on one of several is still there
    /// on the others, and one that was held for too long still writes, until it is released.
    pub fn is_dead_everywhere(self, resources: usize) -> bool {
        match self {
            Self::Void | Self::ReleasedElsewhere | Self::Transferred => true,
            Self::Superseded | Self::Broken | Self::OrderStale => resources == 1,
            _ => false,
        }
    }
}

impl std::fmt::Display for LossReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Superseded => "somebody else holds it now",
            Self::Broken => "an operator broke it",
            Self::Void => "the ledger was re-fenced",
            Self::ReleasedElsewhere => "it was released elsewhere",
            Self::HoldExceeded => "it was held for as long as it may be",
            Self::Gone => "the gateway does not know it any more",
            Self::OrderStale => "the order of the fence did not rise",
            Self::Unconfirmed => "its deadline passed before a renewal was answered",
            Self::Stalled => "the work gave no sign of life",
            Self::Transferred => "it was handed over",
            Self::Released => "it was released",
            Self::Closed => "the client was closed",
        })
    }
}
