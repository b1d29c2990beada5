//! What goes into the acts on locks, and what comes out.

use std::time::Duration;

use jiff::Timestamp;

use uuid::Uuid;

use super::{Attempt, By, Credential, Ended};
use crate::lock::{LockEnd, LockId, LockState, MaxHold, Ttl};
use crate::metadata::Metadata;
use crate::names::ResourceName;
use crate::principal::{PrincipalName, WriterName};
use crate::token::Token;

/// What is to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealKind {
    /// A lock on resources that must be free.
    Lock,
    /// A lock in the place of another, on the same resources. It takes over that lock's longest hold
    /// and metadata.
    Transfer {
        /// The lock that hands over. It is that of whoever asks.
        from: LockId,
    },
    /// A fence without a lock: its token admits writes, and it keeps nobody out.
    Fence {
        /// The number that somebody else's lock gave to this caller. Not above the last one of the
        /// resource: nothing is sealed. Without one the last caller wins.
        order: Option<i64>,
        /// Whether to seal over a live lock.
        force: bool,
    },
}

/// One lock to seal.
#[derive(Debug, Clone)]
pub struct SealItem {
    /// Whether it is a lock of its own, a successor, or a fence without a lock.
    pub kind: SealKind,
    /// The lock's id.
    pub lock: LockId,
    /// Its resources, sorted and distinct; sealed all or none.
    pub resources: Vec<ResourceName>,
    /// Who asks.
    pub owner: String,
    /// How long it lasts without renewal, if the caller says. Else a new lock gets the default, a
    /// successor what its predecessor has, and a lock that is there already keeps its own.
    pub ttl: Option<Ttl>,
    /// How long it may be held in all; a successor's comes from its predecessor.
    pub max_hold: Option<MaxHold>,
    /// What its holder notes on it; a successor's comes from its predecessor.
    pub metadata: Metadata,
    /// The number from the mint; without one only a re-entry under the same id can succeed.
    pub number: Option<i64>,
    /// How often the id may have been sent before.
    pub attempt: Attempt,
    /// The gateway at which its caller waits. Only for such a caller a resource is sealed while effects
    /// of older tokens are under way.
    pub waits: Option<Uuid>,
    /// Who asks, and under which rules that was allowed.
    pub by: By,
    /// Whose it will be; of a transfer perhaps not that of whoever asks.
    pub principal: Option<PrincipalName>,
    /// Who else may write under its token, at most [`super::WRITERS_MAX`].
    pub writers: Vec<WriterName>,
}

impl SealItem {
    /// The lock that hands over to this one.
    pub fn from(&self) -> Option<LockId> {
        match self.kind {
            SealKind::Transfer { from } => Some(from),
            SealKind::Lock | SealKind::Fence { .. } => None,
        }
    }

    /// Whether it is a fence without a lock.
    pub fn is_fence(&self) -> bool {
        matches!(self.kind, SealKind::Fence { .. })
    }

    /// The credential to which the lock will belong: the caller's, unless it will be another principal's.
    pub fn credential(&self) -> Option<&Credential> {
        let is_own = self.by.principal() == self.principal.as_ref();
        self.by.credential().filter(|_| is_own)
    }

    /// The ttl that is asked for: none for a fence without a lock.
    pub fn asked_ttl(&self) -> Option<Ttl> {
        if self.is_fence() { Some(Ttl::NONE) } else { self.ttl }
    }
}

/// A lock as its holder sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lock's id.
    pub lock: LockId,
    /// Its resources, sorted.
    pub resources: Vec<ResourceName>,
    /// Its token.
    pub token: Token,
    /// Its owner.
    pub owner: String,
    /// The principal whose it is; none where no rules were in force.
    pub principal: Option<PrincipalName>,
    /// Who else may write under its token.
    pub writers: Vec<WriterName>,
    /// What its holder noted on it.
    pub metadata: Metadata,
    /// Leased, breaking or expired.
    pub state: LockState,
    /// How long it lasts without renewal.
    pub ttl: Ttl,
    /// Whether it is infinite, but ends within [`Ttl::UNCONFIRMED`] unless its holder shows that it knows
    /// of it.
    pub unconfirmed: bool,
    /// When it must have ended, however often it is renewed.
    pub hold_until: Option<Timestamp>,
    /// Time left on the ledger's clock; negative once expired.
    pub remaining_ms: i64,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// The version of each resource, in the order of `resources`.
    pub versions: Vec<i64>,
}

/// Who holds a resource, as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The resource.
    pub resource: ResourceName,
    /// The holder's name for itself.
    pub owner: String,
    /// Leased or breaking.
    pub state: LockState,
    /// How long it has held.
    pub age_ms: i64,
    /// How long until it expires, if it does not renew.
    pub remaining_ms: i64,
}

/// A lock that a seal put an end to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The resource that was taken over.
    pub resource: ResourceName,
    /// From its grant to now.
    pub held_ms: i64,
}

/// What became of one lock in a seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealVerdict {
    /// Sealed now, with the locks that it put an end to: those that had expired, but had been
    /// neither released nor broken.
    Sealed(Grant, Vec<TakenOver>),
    /// Sealed earlier under this id: the same lock and token, its ttl started again, or changed to what
    /// the caller says now. Its longest hold and its metadata stay.
    Again(Grant),
    /// Another lock holds one of its resources.
    Held(Holder),
    /// Nobody holds its resources, but somebody is ahead in the queue for one of them.
    Queued,
    /// The number does not rise above the fence, or there was none: mint again.
    NumberTooLow,
    /// Sealed now, or earlier under this id, but not in force before nothing of older tokens is under
    /// way on this resource. Its caller waits.
    Drains {
        /// The first resource that is waited for.
        resource: ResourceName,
        /// The locks that it put an end to just now.
        taken_over: Vec<TakenOver>,
    },
    /// Something of older tokens is under way on this resource, or may be, and the caller does not
    /// wait; nothing was sealed or extended.
    Draining(ResourceName),
    /// An operator has frozen this resource.
    Frozen(ResourceName),
    /// The id was used before, and has ended; or the lock that was to hand over has.
    Ended(LockEnd),
    /// The order is not above the last one of this resource; nothing was sealed.
    OrderStale(ResourceName),
    /// The id belongs to a lock that has been held for as long as it may be, or the lock that was to
    /// hand over does; nothing was extended.
    HoldExceeded,
    /// The id belongs to a lock on other resources or of another owner, or is one of a fence where a
    /// lock is asked for.
    Conflict,
    /// The id belongs to a lock that is being broken, or the lock that was to hand over is; nothing
    /// was extended.
    Breaking,
    /// The lock that was to hand over is unknown, or is a fence without a lock.
    NotFound,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// One lock to renew.
#[derive(Debug, Clone)]
pub struct RenewItem {
    /// The lock's id.
    pub lock: LockId,
    /// A new ttl; without one the old is kept.
    pub ttl: Option<Ttl>,
    /// Who asks, and under which rules that was allowed. To others than its principal the lock is not known.
    pub by: By,
}

/// What became of one renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
pub enum RenewVerdict {
    /// The deadline starts again. `lapsed_ms` says for how long it had passed, if it had.
    Renewed {
        /// The lock after the renewal.
        grant: Grant,
        /// How long it had been expired.
        lapsed_ms: Option<i64>,
    },
    /// The lock has ended.
    Ended(LockEnd),
    /// The lock is being broken; nothing was extended.
    Breaking,
    /// The lock is not in force yet: effects of older tokens are under way. Nothing was extended.
    Draining,
    /// The lock has been held for as long as it may be; nothing was extended.
    HoldExceeded,
    /// No lock of this principal has this id, or it ended long ago, or it is a fence without a lock.
    NotFound,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// One lock to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseItem {
    /// The lock's id.
    pub lock: LockId,
    /// Only if the lock was last renewed at this time: for a grant whose caller seems to be gone, the
    /// time of the grant. Without it the lock is released in any case.
    pub unless_renewed_since: Option<Timestamp>,
    /// Whether an id that was never heard of is buried. If not, nothing is done about it.
    pub may_bury: bool,
    /// Who asks, and under which rules that was allowed. To others than its principal the lock is not known.
    pub by: By,
}

impl From<LockId> for ReleaseItem {
    /// A release in any case.
    fn from(lock: LockId) -> Self {
        Self { lock, unless_renewed_since: None, may_bury: true, by: By::default() }
    }
}

/// What became of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseVerdict {
    /// Released now.
    Released {
        /// From its grant to now.
        held_ms: i64,
        /// Its resources, with the number under which the mint knows them.
        ended: Vec<Ended>,
        /// Whether somebody waits for one of them.
        waited_for: bool,
    },
    /// It was waiting for these resources in the queue, and has left it; its id is buried.
    Left(Vec<ResourceName>),
    /// It had ended before.
    AlreadyEnded,
    /// No lock has this id, and none ever will: it is buried, now or before.
    Buried,
    /// No lock has this id, and it was not to be buried: nothing was done.
    Unknown,
    /// It is the id of somebody else: nothing was done.
    NotFound,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// It was renewed or re-entered since, and goes on.
    Kept,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// One resource whose holder is to be fenced off.
#[derive(Debug, Clone)]
pub struct BreakItem {
    /// The resource.
    pub resource: ResourceName,
    /// The token whose lock is meant: a break whose answer was lost, and which runs late, must not
    /// hit the next holder.
    pub token: Token,
    /// At the latest in this time; sooner if the lock expires sooner. Zero: now.
    pub after: Duration,
    /// Why, for the record.
    pub reason: String,
    /// The request that asks for it, for the record.
    pub request_id: String,
    /// Who asks, and under which rules that was allowed.
    pub by: By,
}

/// What became of one break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakVerdict {
    /// The holder is fenced off.
    Broken {
        /// From its grant to now; `None` if it had been broken before.
        held_ms: Option<i64>,
        /// The lock's trace in the mint.
        ended: Option<Ended>,
    },
    /// The holder will be fenced off.
    Breaking {
        /// In this time.
        due_ms: i64,
    },
    /// Nobody holds the resource, or somebody else does by now.
    NotHeld,
    /// Nobody ever held it.
    NoFence,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// The row is locked by somebody else; nothing was decided.
    Busy,
}
