//! The rule: is a write with this token admitted on this resource?
//!
//! A pure function of rows that were read under the fence's lock. No clock, ttl, watch or read of
//! the mint is part of it (I14).

use jiff::Timestamp;

use crate::code::ErrorCode;
use crate::lock::{LockId, Supersession};
use crate::mutants::{self, Mutant};
use crate::token::Token;

/// The most objects that the deletion of a resource removes: all acts of others would wait for more.
pub const DELETE_OBJECTS_MAX: i64 = 10_000;

/// Why a write was refused. Nothing changed, and no refusal discloses the current token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Issued before the ledger was re-fenced.
    Void,
    /// Never sealed on this resource.
    Unknown,
    /// Sealed on this resource, and to somebody else, who has not named this writer. It is told as `Unknown` is.
    Foreign,
    /// A newer token was sealed.
    Stale {
        /// What superseded it, if that is still on record.
        by: Option<Supersession>,
        /// When.
        at: Option<Timestamp>,
        /// How many grants ago.
        grants_behind: Option<i64>,
        /// Whose token it was.
        owner: Option<String>,
    },
    /// Its lock was given back.
    Released,
    /// Its lock was ended by an operator.
    Broken,
    /// The lock id sent along is not this lock's.
    LockIdMismatch,
    /// An operator has stopped all writers.
    Frozen,
    /// Its lock waits for what older tokens may still do to an upstream.
    Draining,
    /// An operator forbids deleting this resource.
    Protected,
    /// The resource has more objects than one act removes ([`DELETE_OBJECTS_MAX`]).
    TooManyObjects,
    /// The sequence number does not rise above the last one under this token.
    SequenceOutOfOrder,
    /// The object or the resource is not at the version that the writer expects.
    VersionMismatch,
}

/// The reason on record for [`Refusal::Foreign`].
pub const FOREIGN: &str = "fence-token-foreign";

impl Refusal {
    /// The error code users see.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Void => ErrorCode::FenceTokenVoid,
            Self::Unknown | Self::Foreign => ErrorCode::FenceTokenUnknown,
            Self::Stale { .. } => ErrorCode::FenceTokenStale,
            Self::Released => ErrorCode::FenceTokenReleased,
            Self::Broken => ErrorCode::FenceTokenBroken,
            Self::LockIdMismatch => ErrorCode::LockIdMismatch,
            Self::Frozen => ErrorCode::ResourceFrozen,
            Self::Draining => ErrorCode::ResourceDraining,
            Self::Protected => ErrorCode::ResourceProtected,
            Self::TooManyObjects => ErrorCode::TooManyObjects,
            Self::SequenceOutOfOrder => ErrorCode::SequenceOutOfOrder,
            Self::VersionMismatch => ErrorCode::VersionMismatch,
        }
    }

    /// The reason in the operators' record of refused writes: the code, but for what only operators are told.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Foreign => FOREIGN,
            other => other.code().as_str(),
        }
    }
}

/// How the lock of the token sealed last stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// In force, or expired with nobody having taken over: its holder is admitted.
    Held,
    /// Sealed, so that older tokens are stale, but not in force before nothing of theirs is under way.
    Draining,
    /// Given back.
    Released,
    /// Ended by an operator, or its break has come due.
    Broken,
}

impl Hold {
    /// Whether it stands: neither given back nor ended by an operator.
    pub fn stands(self) -> bool {
        matches!(self, Self::Held | Self::Draining)
    }
}

/// The fence as the rule sees it.
#[derive(Debug, Clone, Copy)]
pub struct FenceFacts {
    /// The token sealed last: G.
    pub token: Token,
    /// Its lock.
    pub lock: LockId,
    /// How that lock stands.
    pub hold: Hold,
    /// Whether an operator has frozen the resource.
    pub frozen: bool,
    /// The highest sequence number seen under G; 0 for none.
    pub last_sequence: i64,
    /// Whether it was sealed to whoever presents it: to that principal, or with it among its writers.
    pub is_yours: bool,
}

/// A grant of an older token; of one that history has let go nothing is known.
#[derive(Debug, Clone)]
pub struct OldGrant {
    /// What superseded it.
    pub by: Option<Supersession>,
    /// When.
    pub at: Option<Timestamp>,
    /// How many grants ago.
    pub grants_behind: Option<i64>,
    /// Whose it was.
    pub owner: Option<String>,
    /// Whether it was sealed to whoever presents it; also if nothing is known of it.
    pub is_yours: bool,
}

impl OldGrant {
    /// One that history has let go, if it was one.
    pub const LET_GO: Self =
        Self { by: None, at: None, grants_behind: None, owner: None, is_yours: true };
}

/// What a writer presents.
#[derive(Debug, Clone, Copy)]
pub struct Presented {
    /// The token: T.
    pub token: Token,
    /// The lock id, if sent.
    pub lock: Option<LockId>,
    /// The sequence number, if sent.
    pub sequence: Option<i64>,
}

/// Judges a token; the first row that applies decides (I3, I6, I16).
///
/// 1. T at or below the floor: [`Refusal::Void`].
/// 2. No fence, or T never sealed here, above or below G: [`Refusal::Unknown`].
/// 3. T sealed here, but not to whoever presents it: [`Refusal::Foreign`]. T below G: [`Refusal::Stale`].
/// 4. T = G, but given back or broken: [`Refusal::Released`], [`Refusal::Broken`].
/// 5. A lock id that is not this lock's: [`Refusal::LockIdMismatch`].
/// 6. Frozen: [`Refusal::Frozen`]. Not in force yet: [`Refusal::Draining`].
/// 7. A sequence number that does not rise: [`Refusal::SequenceOutOfOrder`].
///
/// `old` is the grant of (resource, T), needed only if T is not G. The caller has looked for the
/// idempotency key before, and looks at versions after.
pub fn judge(
    floor: i64,
    fence: Option<&FenceFacts>,
    old: Option<&OldGrant>,
    presented: &Presented,
) -> Result<(), Refusal> {
    if presented.token.get() <= floor && !mutants::is(Mutant::NoFloor) {
        return Err(Refusal::Void);
    }
    let Some(fence) = fence else {
        return Err(Refusal::Unknown);
    };
    let beside = mutants::is(Mutant::TokenAtLeast) && presented.token > fence.token;
    if presented.token != fence.token && !beside {
        return Err(match old {
            Some(old) if presented.token < fence.token && !is_yours(old.is_yours) => {
                Refusal::Foreign
            }
            Some(old) if presented.token < fence.token => Refusal::Stale {
                by: old.by,
                at: old.at,
                grants_behind: old.grants_behind,
                owner: old.owner.clone(),
            },
            _ => Refusal::Unknown,
        });
    }
    if !is_yours(fence.is_yours) {
        return Err(Refusal::Foreign);
    }
    match fence.hold {
        Hold::Held | Hold::Draining => {}
        _ if mutants::is(Mutant::EndedLockWrites) => {}
        Hold::Released => return Err(Refusal::Released),
        Hold::Broken => return Err(Refusal::Broken),
    }
    if presented.lock.is_some_and(|lock| lock != fence.lock) {
        return Err(Refusal::LockIdMismatch);
    }
    if fence.frozen {
        return Err(Refusal::Frozen);
    }
    if fence.hold == Hold::Draining {
        return Err(Refusal::Draining);
    }
    let repeats = presented.sequence.is_some_and(|sequence| sequence <= fence.last_sequence);
    if repeats && !mutants::is(Mutant::NoSequence) {
        return Err(Refusal::SequenceOutOfOrder);
    }
    Ok(())
}

fn is_yours(is_yours: bool) -> bool {
    is_yours || mutants::is(Mutant::NoPrincipal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn token(number: i64) -> Token {
        Token::new(number).unwrap()
    }

    prop_compose! {
        fn fences()(
            number in 1..50i64,
            lock in 0..3u128,
            hold in prop_oneof![
                Just(Hold::Held), Just(Hold::Draining), Just(Hold::Released), Just(Hold::Broken),
            ],
            frozen in any::<bool>(),
            last_sequence in 0..5i64,
            is_yours in any::<bool>(),
        ) -> FenceFacts {
            FenceFacts {
                token: token(number),
                lock: LockId(Uuid::from_u128(lock)),
                hold,
                frozen,
                last_sequence,
                is_yours,
            }
        }
    }

    prop_compose! {
        fn presentations()(
            number in 1..60i64,
            lock in proptest::option::of(0..3u128),
            sequence in proptest::option::of(0..8i64),
        ) -> Presented {
            Presented { token: token(number), lock: lock.map(|l| LockId(Uuid::from_u128(l))), sequence }
        }
    }

    fn an_old_grant() -> OldGrant {
        OldGrant { grants_behind: Some(1), owner: Some("a".into()), ..OldGrant::LET_GO }
    }

    proptest! {
        #[test]
        fn only_the_token_sealed_last_is_ever_admitted(
            floor in 0..60i64, fence in fences(), presented in presentations(), sealed in any::<bool>(),
        ) {
            let old = an_old_grant();
            let verdict = judge(floor, Some(&fence), sealed.then_some(&old), &presented);
            if verdict.is_ok() {
                prop_assert_eq!(presented.token, fence.token);
                prop_assert!(presented.token.get() > floor);
                prop_assert_eq!(fence.hold, Hold::Held);
                prop_assert!(fence.is_yours);
                prop_assert!(!fence.frozen);
            }
        }

        #[test]
        fn a_token_never_sealed_is_unknown_on_either_side_of_the_fence(
            fence in fences(), presented in presentations(),
        ) {
            prop_assume!(presented.token != fence.token);
            prop_assert_eq!(judge(0, Some(&fence), None, &presented), Err(Refusal::Unknown));
        }

        #[test]
        fn a_superseded_token_is_stale_whatever_else_is_wrong(
            fence in fences(), presented in presentations(),
        ) {
            prop_assume!(presented.token < fence.token);
            let stale = matches!(
                judge(0, Some(&fence), Some(&an_old_grant()), &presented),
                Err(Refusal::Stale { .. })
            );
            prop_assert!(stale);
        }

        #[test]
        fn what_was_sealed_to_somebody_else_tells_nothing_else(
            fence in fences(), presented in presentations(),
        ) {
            prop_assume!(presented.token <= fence.token);
            let fence = FenceFacts { is_yours: false, ..fence };
            let old = OldGrant { is_yours: false, ..an_old_grant() };
            let verdict = judge(0, Some(&fence), Some(&old), &presented);
            prop_assert_eq!(verdict, Err(Refusal::Foreign));
        }

        #[test]
        fn without_a_fence_nothing_is_admitted(presented in presentations()) {
            prop_assert_eq!(judge(0, None, None, &presented), Err(Refusal::Unknown));
        }

        #[test]
        fn raising_the_fence_only_ever_refuses_more(
            fence in fences(), by in 1..9i64, presented in presentations(),
        ) {
            let raised = FenceFacts { token: token(fence.token.get() + by), ..fence };
            if presented.token <= fence.token {
                let old = an_old_grant();
                prop_assert!(judge(0, Some(&raised), Some(&old), &presented).is_err());
            }
        }
    }
}
