//! The fence of a resource, the grants on it, and the locks that they belong to.

use jiff::Timestamp;

use super::now::{Now, millis_between};
use crate::lock::{GrantEnd, LockEnd, LockId, LockState, Supersession, Ttl};
use crate::metadata::Metadata;
use crate::names::ResourceName;
use crate::ports::{By, Credential, Holder, ResourceView, SealKind};
use crate::principal::{PrincipalName, WriterName};
use crate::rule::{FenceFacts, Hold, OldGrant};
use crate::token::Token;

/// The fence of a resource. It outlives everything: it is never removed and never falls (I2, I10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceRow {
    /// The token sealed last.
    pub token: Token,
    /// Its lock.
    pub lock: LockId,
    /// The lock's owner.
    pub owner: String,
    /// The lock's principal.
    pub principal: Option<PrincipalName>,
    /// Who else may write under its token.
    pub writers: Vec<WriterName>,
    /// How the lock stands, as far as that is stored.
    pub hold: Hold,
    /// How far ahead the deadline was set last: the lock's ttl, or less for an infinite lock that was
    /// not renewed yet.
    pub ttl: Ttl,
    /// When it expires, on the clock of [`Now::elapsed_ms`].
    pub deadline_ms: i64,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// When it was last renewed.
    pub renewed_at: Timestamp,
    /// When an operator's break comes due.
    pub break_due: Option<Timestamp>,
    /// When it was released or broken; none if it was before that was kept.
    pub ended_at: Option<Timestamp>,
    /// Why all writers are stopped, if they are.
    pub frozen: Option<String>,
    /// Why the resource must not be deleted, if it must not.
    pub protected: Option<String>,
    /// The number of the last committed write.
    pub version: i64,
    /// The highest sequence number under this token.
    pub last_sequence: i64,
    /// How many objects there are.
    pub objects: i64,
    /// How many grants there have been.
    pub grants: i64,
    /// The highest order of a fence without a lock.
    pub order: Option<i64>,
    /// The highest token that was ever in force; 0 for none. Those above it only ever drained.
    pub live_token: i64,
}

impl FenceRow {
    /// How the lock stands now: a break that has come due counts although it is not stored yet.
    pub fn hold_at(&self, now: Now) -> Hold {
        match self.break_due {
            Some(due) if self.hold.stands() && due <= now.wall => Hold::Broken,
            _ => self.hold,
        }
    }

    /// How and when the lock ended, once another is sealed as this kind: it was given back or broken; or it stood until
    /// then, void, handed over, past its deadline, or in the way of a fence that was set by force. When a void lock ended,
    /// only the re-fence tells.
    pub fn end(
        &self,
        next: SealKind,
        floor: i64,
        now: Now,
    ) -> (Option<GrantEnd>, Option<Timestamp>) {
        let standing = match (self.hold, next) {
            (Hold::Released, _) => return (Some(GrantEnd::Released), self.ended_at),
            (Hold::Broken, _) => return (Some(GrantEnd::Broken), self.ended_at),
            _ if self.token.get() <= floor => return (Some(GrantEnd::Void), None),
            (_, SealKind::Transfer { from }) if from == self.lock => Some(GrantEnd::Transferred),
            _ if self.deadline_ms <= now.elapsed_ms => Some(GrantEnd::Lapsed),
            (_, SealKind::Fence { force: true, .. }) => Some(GrantEnd::Fenced),
            _ => None,
        };
        (standing, standing.map(|_| now.wall))
    }

    /// Whether the lock keeps others out.
    pub fn is_held(&self, now: Now) -> bool {
        self.hold_at(now).stands() && self.deadline_ms > now.elapsed_ms
    }

    /// What the lock is doing, for people. A break shows only once it is stored, so that no clock
    /// step un-breaks it.
    pub fn state(&self, now: Now) -> LockState {
        match self.hold {
            Hold::Released => LockState::Released,
            Hold::Broken => LockState::Broken,
            _ if self.deadline_ms <= now.elapsed_ms => LockState::Expired,
            _ if self.break_due.is_some() => LockState::Breaking,
            Hold::Draining => LockState::Draining,
            Hold::Held => LockState::Leased,
        }
    }

    /// Time since the grant.
    pub fn held_ms(&self, now: Now) -> i64 {
        millis_between(self.acquired_at, now.wall)
    }

    /// Time left.
    pub fn remaining_ms(&self, now: Now) -> i64 {
        self.deadline_ms - now.elapsed_ms
    }

    /// Time left until it expires or is broken, whichever comes first.
    pub fn left_ms(&self, now: Now) -> i64 {
        self.remaining_ms(now).min(self.breaks_in_ms(now).unwrap_or(i64::MAX))
    }

    /// Time left until a break comes due, if there is to be one.
    fn breaks_in_ms(&self, now: Now) -> Option<i64> {
        self.break_due.map(|due| due.as_millisecond() - now.wall.as_millisecond())
    }

    /// The fence as the rule sees it for whoever presents a token.
    pub fn facts(&self, by: &By, now: Now) -> FenceFacts {
        FenceFacts {
            token: self.token,
            lock: self.lock,
            hold: self.hold_at(now),
            frozen: self.frozen.is_some(),
            last_sequence: self.last_sequence,
            is_yours: by.is_it_or_writer(self.principal.as_ref(), &self.writers),
        }
    }

    /// The holder, for whoever found the resource locked.
    pub fn holder(&self, resource: &ResourceName, now: Now) -> Holder {
        Holder {
            resource: resource.clone(),
            owner: self.owner.clone(),
            state: self.state(now),
            age_ms: self.held_ms(now),
            remaining_ms: self.left_ms(now),
        }
    }

    /// The resource, as everybody may see it.
    pub fn view(&self, resource: &ResourceName, waiting: usize, now: Now) -> ResourceView {
        let state = self.state(now);
        ResourceView {
            resource: resource.clone(),
            state,
            owner: self.owner.clone(),
            principal: self.principal.clone(),
            lock: self.lock,
            acquired_at: self.acquired_at,
            renewed_at: self.renewed_at,
            ended_at: self.ended_at,
            age_ms: self.held_ms(now),
            renewed_ms: millis_between(self.renewed_at, now.wall),
            ttl: self.ttl,
            remaining_ms: self.left_ms(now),
            breaks_in_ms: self.breaks_in_ms(now).filter(|_| state == LockState::Breaking),
            version: self.version,
            objects: self.objects,
            frozen: self.frozen.clone(),
            protected: self.protected.clone(),
            waiting: i64::try_from(waiting).unwrap_or(i64::MAX),
            grants: self.grants,
            token: self.token,
        }
    }
}

/// A grant: this token was sealed on this resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its lock.
    pub lock: LockId,
    /// The lock's owner.
    pub owner: String,
    /// The lock's principal.
    pub principal: Option<PrincipalName>,
    /// Who else could write under its token.
    pub writers: Vec<WriterName>,
    /// 1 for the first grant of the resource, 2 for the second ...
    pub ordinal: i64,
    /// What superseded it.
    pub by: Option<Supersession>,
    /// When.
    pub at: Option<Timestamp>,
}

impl GrantRow {
    /// The grant as the rule sees it for whoever presents its token, on a resource with this many grants.
    pub fn old(&self, grants: i64, by: &By) -> OldGrant {
        OldGrant {
            by: self.by,
            at: self.at,
            grants_behind: Some(grants - self.ordinal),
            owner: Some(self.owner.clone()),
            is_yours: by.is_it_or_writer(self.principal.as_ref(), &self.writers),
        }
    }
}

/// A lock, while it lives and for a while after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRow {
    /// Its resources, sorted.
    pub resources: Vec<ResourceName>,
    /// Its token.
    pub token: Token,
    /// Its owner.
    pub owner: String,
    /// The principal whose it is.
    pub principal: Option<PrincipalName>,
    /// Who else may write under its token.
    pub writers: Vec<WriterName>,
    /// The credential that took it or renewed it last.
    pub credential: Option<Credential>,
    /// Its ttl.
    pub ttl: Ttl,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// When it must have ended, however often it is renewed.
    pub hold_until: Option<Timestamp>,
    /// What its holder noted on it.
    pub metadata: Metadata,
    /// Whether it is a fence without a lock, which is neither renewed nor handed over.
    pub fence: bool,
    /// How and when it ended.
    pub ended: Option<(LockEnd, Timestamp)>,
}

impl LockRow {
    /// A deadline this far from now, or where the longest hold ends if that is sooner, on the clock
    /// of [`Now::elapsed_ms`].
    pub(super) fn deadline_ms(&self, ahead_ms: i64, now: Now) -> i64 {
        let left = |until: Timestamp| until.as_millisecond() - now.wall.as_millisecond();
        now.elapsed_ms + self.hold_until.map_or(ahead_ms, |until| ahead_ms.min(left(until)))
    }
}
