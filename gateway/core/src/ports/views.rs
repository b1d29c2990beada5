//! What the ledger shows: objects, resources, locks, operations, refused writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Applied, BlobId, COMMIT_KIND, Credential, ForwardRecord, Grant, Span};
use crate::code::ErrorCode;
use crate::etag::EntityTag;
use crate::lock::{LockEnd, LockId, LockState, Supersession, Ttl};
use crate::names::{ObjectKey, ResourceName};
use crate::principal::PrincipalName;
use crate::token::Token;

/// An object, with or without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: ObjectKey,
    /// Its tag.
    pub tag: EntityTag,
    /// Its content type.
    pub content_type: String,
    /// Its number of bytes.
    pub size: i64,
    /// The SHA-256 of its bytes; of an object in parts that of its parts' digests.
    pub sha256: [u8; 32],
    /// When it was written.
    pub written_at: Timestamp,
    /// What S3 tells of it, beside its content type, as JSON.
    pub about: Option<Arc<str>>,
    /// Of how many parts it consists, if it was uploaded in parts. Its blob is the upload then, which has them.
    pub parts: Option<i32>,
    /// Its bytes, or where they are; nothing in lists.
    pub payload: Payload,
}

impl Object {
    /// The SHA-256 of its bytes, which nobody knows of an object in parts.
    pub fn whole_sha256(&self) -> Option<[u8; 32]> {
        self.parts.is_none().then_some(self.sha256)
    }
}

/// The bytes of an object, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Here, in the ledger.
    Inline(Bytes),
    /// In the blob store.
    Blob(BlobId),
}

impl Payload {
    /// No bytes, where they are not asked for.
    pub const NONE: Self = Self::Inline(Bytes::new());

    /// The blob, if it is one.
    pub fn blob(&self) -> Option<BlobId> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(blob) => Some(*blob),
        }
    }
}

/// One object to read.
#[derive(Debug, Clone)]
pub struct ReadItem {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
    /// The version that wrote it, if another than the current one may be meant.
    pub version: Option<i64>,
}

/// An object and the version of its resource, from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVerdict {
    /// The object, if it is there, or this version of it, if it is still kept.
    pub object: Option<Object>,
    /// The version of the resource; `None` if it was never locked.
    pub resource_version: Option<i64>,
}

/// A resource as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub resource: ResourceName,
    /// What its lock is doing.
    pub state: LockState,
    /// The owner of the lock sealed last.
    pub owner: String,
    /// Its principal; none where no rules are in force.
    pub principal: Option<PrincipalName>,
    /// The id of that lock; shown to nobody.
    pub lock: LockId,
    /// Since when.
    pub acquired_at: Timestamp,
    /// When it was last renewed.
    pub renewed_at: Timestamp,
    /// When it was released or broken; none while it stands, or if it is not known.
    pub ended_at: Option<Timestamp>,
    /// How long ago it was granted.
    pub age_ms: i64,
    /// How long ago it was granted or last renewed.
    pub renewed_ms: i64,
    /// How far ahead its deadline was set then, unless it may be held for less; of an infinite lock that is not
    /// confirmed yet what it has until then.
    pub ttl: Ttl,
    /// How long until it expires; negative once it has.
    pub remaining_ms: i64,
    /// How long until an operator's break comes due, while it is being broken; 0 or less once that only has to be
    /// stored.
    pub breaks_in_ms: Option<i64>,
    /// The version of the resource.
    pub version: i64,
    /// How many objects it has.
    pub objects: i64,
    /// Why an operator has stopped all writers, if one has.
    pub frozen: Option<String>,
    /// Why an operator forbids deleting it, if one does.
    pub protected: Option<String>,
    /// How many wait for its lock.
    pub waiting: i64,
    /// How often its lock was granted.
    pub grants: i64,
    /// The highest token; shown to nobody.
    pub token: Token,
}

/// The resources that a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All that were ever locked.
    All,
    /// Resources whose lock was not released: held, expired or broken, with nobody who took over.
    Taken,
    /// Resources whose lock keeps others out: [`LockState::is_held`].
    Held,
}

impl Which {
    /// Tells if the list has a resource in this state.
    pub fn has(self, state: LockState) -> bool {
        match self {
            Self::All => true,
            Self::Taken => state != LockState::Released,
            Self::Held => state.is_held(),
        }
    }
}

impl ResourceView {
    /// What of it is news to whoever watches it: the grant of its lock, what that is doing, its version, and an
    /// operator's marks. Not renewals, nor who waits.
    pub fn face(&self) -> impl PartialEq + std::fmt::Debug + '_ {
        let grant = (self.grants, self.acquired_at);
        (grant, self.state, self.version, &self.frozen, &self.protected)
    }
}

/// How much of something there is in the whole ledger, at one moment of its clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Locks that keep others out of a resource, each counted once however many it covers: held, draining or to be broken
    /// later. Not those that have expired, whether somebody has taken over or not, nor fences without a lock.
    pub locks_held: i64,
    /// Resources that operators have frozen.
    pub frozen_resources: i64,
}

/// A lock, while it lives and for 24 h after it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// The lock as it stands, or stood.
    pub grant: Grant,
    /// How and when it ended.
    pub ended: Option<(LockEnd, Timestamp)>,
    /// What put a newer token in its place, if it ended so.
    pub superseded_by: Option<Supersession>,
    /// When its ttl last began: the grant, a renewal or a re-entry.
    pub renewed_at: Timestamp,
    /// The operator's break that is to come, if there is one.
    pub break_due: Option<BreakDue>,
    /// Why an operator has stopped all writes to one of its resources, if one has; the first in name
    /// order.
    pub frozen: Option<String>,
    /// The credential that took it or renewed it last; none where no rules were in force, and of a lock that another
    /// principal has handed over and that was not renewed since.
    pub credential: Option<Credential>,
}

impl LockRecord {
    /// Whether two thirds of its time have gone without a renewal. Never true of a fence without a lock: there
    /// is nothing to renew.
    pub fn is_late(&self) -> bool {
        self.grant.ttl != Ttl::NONE && self.grant.remaining_ms <= self.last_third_ms()
    }

    /// A third of its ttl, or of the time it could be held for at its last renewal if that is less; of
    /// an infinite one a third of what it gets until it is confirmed.
    pub fn last_third_ms(&self) -> i64 {
        let Grant { ttl, hold_until, .. } = &self.grant;
        let hold = hold_until.map(|at| at.as_millisecond() - self.renewed_at.as_millisecond());
        let span = match hold {
            None if ttl.is_infinite() => Ttl::UNCONFIRMED.as_ms(),
            hold => ttl.as_ms().min(hold.unwrap_or(i64::MAX)),
        };
        span / 3
    }
}

/// A break that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakDue {
    /// When, on the ledger's clock.
    pub at: Timestamp,
    /// In this time; 0 or less once it has come due and only has to be stored.
    pub in_ms: i64,
}

/// What became of a write or a commit, as far as the ledger knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationRecord {
    /// It took effect.
    Applied(Applied),
    /// A commit took effect: its operation on each resource, in the order of their names.
    Committed(Vec<Applied>),
    /// It took no effect and never will.
    Buried,
    /// It was admitted to a drained upstream.
    Forwarded(ForwardRecord),
}

impl OperationRecord {
    /// What is known of an operation by its rows, in the order of the names of their resources.
    pub fn of(mut rows: Vec<Applied>) -> Option<Self> {
        match rows.first()?.kind == COMMIT_KIND {
            true => Some(Self::Committed(rows)),
            false => rows.pop().map(Self::Applied),
        }
    }
}

/// One write that was refused, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// When.
    pub at: Timestamp,
    /// The resource.
    pub resource: ResourceName,
    /// The object, unless it was about all of them.
    pub key: Option<ObjectKey>,
    /// The error code of the refusal.
    pub reason: String,
    /// The token that was presented.
    pub token: Option<Token>,
    /// How many grants behind it was.
    pub grants_behind: Option<i64>,
    /// How long it had been superseded.
    pub superseded_ms: Option<i64>,
    /// The owner of the presented token, if it was ever sealed.
    pub owner: Option<String>,
    /// The request.
    pub request_id: String,
    /// How many writes this stands for: of those with unknown tokens, all on one resource in one minute are one
    /// entry, that of the first. 1 for all others.
    pub times: i64,
}

impl Rejection {
    /// The minute that it is counted in, since 1970, if it is not kept by itself: anybody can make up tokens, and
    /// what is made up must not take the place of what a holder did.
    pub fn minute(&self) -> Option<i64> {
        let made_up = self.reason == ErrorCode::FenceTokenUnknown.as_str();
        made_up.then(|| self.at.as_second().div_euclid(60))
    }

    /// Whether both are counted as one.
    pub fn counts_with(&self, other: &Self) -> bool {
        self.minute().is_some()
            && (self.minute(), &self.resource) == (other.minute(), &other.resource)
    }

    /// Those that count as one made one, behind all others, and in the order of their minutes and resources, so that
    /// two who store some at once do not wait for each other in a circle.
    pub fn gathered(rejections: &[Self]) -> Vec<Self> {
        let mut kept: Vec<Self> = Vec::with_capacity(rejections.len());
        let mut counted: BTreeMap<(i64, &ResourceName), Self> = BTreeMap::new();
        for one in rejections {
            match one.minute() {
                None => kept.push(one.clone()),
                Some(minute) => {
                    counted
                        .entry((minute, &one.resource))
                        .and_modify(|first| first.times += one.times)
                        .or_insert_with(|| one.clone());
                }
            }
        }
        kept.extend(counted.into_values());
        kept
    }
}

/// How many entries of unknown tokens are kept, beside so many others.
pub fn unknown_max(rejections_max: i64) -> i64 {
    rejections_max / 10
}

/// Which rejections to list, newest first unless they are followed.
#[derive(Debug, Clone, Default)]
pub struct RejectionFilter {
    /// Only of this resource.
    pub resource: Option<ResourceName>,
    /// Only with this error code.
    pub reason: Option<String>,
    /// Only numbers below this.
    pub before: Option<i64>,
    /// Only numbers in this span, oldest first.
    pub between: Option<Span>,
    /// At most this many.
    pub limit: i64,
}

/// A page of a list in byte order.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Only names that begin with this.
    pub prefix: String,
    /// Only names after this.
    pub after: Option<String>,
    /// At most this many.
    pub limit: i64,
}
