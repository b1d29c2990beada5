//! The rows that the acts work on, and a journal of what they changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use uuid::Uuid;

pub use super::fences::{FenceRow, GrantRow, LockRow};
use super::forwards::{ForwardRow, UpstreamRow};
pub use super::guard::Guard;
pub use super::now::{Now, millis_between};
use crate::etag::EntityTag;
use crate::lock::{LockEnd, LockId, LockState, OperationId};
use crate::names::{ObjectKey, ResourceName};
use crate::ports::{
    Applied, AuditAction, AuditEntry, BlobId, BreakDue, By, Grant, LockRecord, Multipart, Object,
    Part,
};
use crate::principal::PrincipalName;
use crate::queue::Queue;
use crate::rule::{Hold, OldGrant};
use crate::token::Token;

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// The object; without its bytes where an act only needs its tag.
    pub object: Object,
    /// Who put it.
    pub principal: Option<PrincipalName>,
}

/// The intent of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentRow {
    /// When it was stored.
    pub begun_at: Timestamp,
    /// The store's handle of the unfinished upload.
    pub handle: Option<String>,
    /// What it becomes, if it comes in parts.
    pub upload: Option<Multipart>,
}

/// A version of an object that is no longer the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedRow {
    /// The resource.
    pub resource: ResourceName,
    /// The object as it was.
    pub object: Object,
    /// When it was replaced or deleted.
    pub at: Timestamp,
}

/// An idempotency key that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The digest of the payload.
    pub fingerprint: [u8; 32],
    /// The operation that used it.
    pub operation: OperationId,
    /// When.
    pub at: Timestamp,
    /// Until when it is remembered, if its writer said how long.
    pub kept_until: Option<Timestamp>,
}

/// An id that must never take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buried {
    /// Of a lock that was given up before it was granted.
    Lock(LockId),
    /// Of a write that was given up after its answer had been lost.
    Operation(OperationId),
}

impl Buried {
    /// The word in the ledgers.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Lock(_) => "lock",
            Self::Operation(_) => "operation",
        }
    }

    /// The id itself.
    pub fn id(self) -> Uuid {
        match self {
            Self::Lock(LockId(id)) | Self::Operation(OperationId(id)) => id,
        }
    }
}

/// A row that an act has changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// All objects of a resource were removed; later changes may have put some again.
    Wiped(ResourceName),
    /// A lock.
    Lock(LockId),
    /// A grant.
    Grant(ResourceName, Token),
    /// An id of a lock or an operation was buried.
    Buried(Buried),
    /// An operation, on all its resources.
    Operation(OperationId),
    /// An idempotency key.
    Key(ResourceName, String),
    /// The intent of a blob was stored or consumed.
    Intent(BlobId),
    /// A part of an upload came, took the place of another, or went.
    Part(BlobId, i32),
    /// An object was put, or removed if it is not there now.
    Object(ResourceName, ObjectKey),
    /// A fence.
    Fence(ResourceName),
    /// An intent of an upstream was opened or closed.
    Forward(OperationId),
    /// An upstream was registered, or its doubt changed.
    Upstream(String, String),
}

/// The tables, or the part of them that an act needs.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The guard.
    pub guard: Guard,
    /// Fences by resource.
    pub fences: BTreeMap<ResourceName, FenceRow>,
    /// Grants by resource and token.
    pub grants: BTreeMap<(ResourceName, Token), GrantRow>,
    /// Tokens that name a grant, on whatever resource (I15).
    pub granted: HashSet<Token>,
    /// The highest token whose grant history has let go; 0 for none.
    pub let_go: i64,
    /// Locks by id.
    pub locks: HashMap<LockId, LockRow>,
    /// Ids that must never take effect.
    pub buried: HashMap<Buried, Timestamp>,
    /// Objects by resource and key.
    pub objects: BTreeMap<(ResourceName, ObjectKey), ObjectRow>,
    /// Operations by id: one of a plain write; of a commit one per resource, in the order of names.
    pub operations: HashMap<OperationId, Vec<Applied>>,
    /// Idempotency keys by resource.
    pub keys: BTreeMap<(ResourceName, String), KeyRow>,
    /// Blobs that are on their way.
    pub intents: BTreeMap<BlobId, IntentRow>,
    /// Parts of uploads, of those that go on and of those that are objects or were: by upload and number.
    pub parts: BTreeMap<(BlobId, i32), Part>,
    /// Blobs and uploads that are nobody's any more by what an act did. An older copy of the ledger may have them in an
    /// upload that goes on, which anybody may complete: they stay for the rollback horizon.
    pub discarded: Vec<BlobId>,
    /// Versions of objects that were replaced or deleted, as far as they are kept.
    pub replaced: Vec<ReplacedRow>,
    /// Whether replaced versions with their bytes in the ledger are kept; blobs always are, for a while.
    pub keeps_versions: bool,
    /// Intents of drained upstreams, by operation.
    pub forwards: BTreeMap<OperationId, ForwardRow>,
    /// Registered upstreams by name and prefix.
    pub upstreams: BTreeMap<(String, String), UpstreamRow>,
    /// How many resources each principal was the first to lock.
    pub first_locked: BTreeMap<PrincipalName, i64>,
    /// The audit, oldest first.
    pub audited: Vec<AuditEntry>,
    /// The writes that have a version, in the order in which they were made.
    pub written: Vec<(OperationId, ResourceName)>,
    /// Who waits. Not in the journal: it lives as long as the callers' connections do.
    pub queue: Queue,
    /// What changed since the journal was last taken.
    pub journal: BTreeSet<Change>,
}

impl Rows {
    /// Empty tables under this guard.
    pub fn new(guard: Guard) -> Self {
        Self {
            guard,
            fences: BTreeMap::new(),
            grants: BTreeMap::new(),
            granted: HashSet::new(),
            let_go: 0,
            locks: HashMap::new(),
            buried: HashMap::new(),
            objects: BTreeMap::new(),
            operations: HashMap::new(),
            keys: BTreeMap::new(),
            intents: BTreeMap::new(),
            parts: BTreeMap::new(),
            discarded: Vec::new(),
            replaced: Vec::new(),
            keeps_versions: false,
            forwards: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            first_locked: BTreeMap::new(),
            audited: Vec::new(),
            written: Vec::new(),
            queue: Queue::default(),
            journal: BTreeSet::new(),
        }
    }

    /// The tag of an object.
    pub fn tag(&self, resource: &ResourceName, key: &ObjectKey) -> Option<EntityTag> {
        self.objects.get(&(resource.clone(), key.clone())).map(|row| row.object.tag)
    }

    /// Whether the rules are others than those under which this was allowed: then nothing is decided (I17).
    pub(crate) fn rules_moved(&self, by: &By) -> bool {
        self.guard.rules_moved(by)
    }

    /// The grant of a token that is not the one sealed last, for whoever presents it. Of those that history may have let go nobody knows which
    /// were sealed: all are taken for grants, of which nothing more is known.
    pub fn old_grant(&self, resource: &ResourceName, token: Token, by: &By) -> Option<OldGrant> {
        if let Some(grant) = self.grants.get(&(resource.clone(), token)) {
            let grants = self.fences.get(resource).map_or(0, |fence| fence.grants);
            return Some(grant.old(grants, by));
        }
        let ((name, oldest), grant) =
            self.grants.range((resource.clone(), Token::LEAST)..).next()?;
        let was_let_go =
            name == resource && token < *oldest && grant.ordinal > 1 && token.get() <= self.let_go;
        was_let_go.then_some(OldGrant::LET_GO)
    }

    /// An operation on this resource, if it is there; else wherever it is.
    pub fn operation(&self, id: OperationId, resource: &ResourceName) -> Option<&Applied> {
        let all = self.operations.get(&id)?;
        all.iter().find(|applied| applied.resource == *resource).or_else(|| all.first())
    }

    /// Keeps a version that is no longer the current one, if it is to be kept.
    pub(super) fn replaced(&mut self, resource: &ResourceName, object: Object, now: Now) {
        if self.keeps_versions || object.payload.blob().is_some() {
            let at = self.guard.time.stamp(now);
            self.replaced.push(ReplacedRow { resource: resource.clone(), object, at });
        }
    }

    /// A lock as its holder sees it; `None` if the id was never granted.
    pub fn lock_record(&self, id: LockId, now: Now) -> Option<LockRecord> {
        let row = self.locks.get(&id)?;
        let own = |name: &&ResourceName| self.fences.get(name).is_some_and(|f| f.lock == id);
        // The one on which it ends first.
        let fences = row.resources.iter().filter(own).filter_map(|name| self.fences.get(name));
        let fence = fences.min_by_key(|f| (f.break_due.is_none(), f.break_due, f.deadline_ms));
        let version = |name| self.fences.get(name).map_or(0, |fence: &FenceRow| fence.version);
        let void = (row.token.get() <= self.guard.floor).then_some((LockEnd::Void, now.wall));
        let ended = row.ended.or(void);
        Some(LockRecord {
            grant: Grant {
                lock: id,
                resources: row.resources.clone(),
                token: row.token,
                owner: row.owner.clone(),
                principal: row.principal.clone(),
                writers: row.writers.clone(),
                metadata: row.metadata.clone(),
                state: match ended {
                    None => fence.map_or(LockState::Expired, |fence| fence.state(now)),
                    Some((LockEnd::Broken, _)) => LockState::Broken,
                    Some((LockEnd::Released, _)) => LockState::Released,
                    Some((LockEnd::Superseded | LockEnd::Void, _)) => LockState::Expired,
                },
                ttl: row.ttl,
                unconfirmed: row.ttl.is_infinite()
                    && ended.is_none()
                    && fence.is_some_and(|fence| !fence.ttl.is_infinite()),
                hold_until: row.hold_until,
                remaining_ms: match ended {
                    None => fence.map_or(0, |fence| fence.left_ms(now)),
                    Some(_) => 0,
                },
                acquired_at: row.acquired_at,
                versions: row.resources.iter().map(version).collect(),
            },
            ended,
            superseded_by: match ended {
                Some((LockEnd::Superseded, _)) => {
                    let grant = |name: &ResourceName| self.grants.get(&(name.clone(), row.token));
                    let grants = row.resources.iter().filter_map(grant);
                    let first = grants.filter(|grant| grant.by.is_some()).min_by_key(|g| g.at);
                    first.and_then(|grant| grant.by)
                }
                _ => None,
            },
            renewed_at: fence.map_or(row.acquired_at, |fence| fence.renewed_at),
            break_due: fence.filter(|_| ended.is_none()).and_then(|fence| {
                let at = fence.break_due?;
                let in_ms = at.as_millisecond() - now.wall.as_millisecond();
                Some(BreakDue { at, in_ms })
            }),
            frozen: row
                .resources
                .iter()
                .filter_map(|name| self.fences.get(name))
                .find_map(|fence| fence.frozen.clone()),
            credential: row.credential.clone(),
        })
    }

    /// Stores a break of this resource that has come due, so that no clock step un-breaks it.
    pub(super) fn settle(&mut self, resource: &ResourceName, now: Now) {
        let Some(fence) = self.fences.get_mut(resource) else { return };
        if fence.hold.stands() && fence.hold_at(now) == Hold::Broken {
            fence.hold = Hold::Broken;
            fence.ended_at = Some(now.wall);
            let lock = fence.lock;
            let entry = AuditEntry {
                owner: Some(fence.owner.clone()),
                token: Some(fence.token),
                ..AuditEntry::about(resource, AuditAction::Broken, now.wall)
            };
            self.audit(entry);
            self.journal.insert(Change::Fence(resource.clone()));
            self.end_lock(lock, LockEnd::Broken, now);
        }
    }

    /// Records how a lock ended, unless it had ended before.
    pub(super) fn end_lock(&mut self, id: LockId, how: LockEnd, now: Now) {
        let stamp = self.guard.time.stamp(now);
        if let Some(row) = self.locks.get_mut(&id)
            && row.ended.is_none()
        {
            row.ended = Some((how, stamp));
            self.journal.insert(Change::Lock(id));
        }
    }

    /// Records what an act did, for good.
    pub(super) fn audit(&mut self, entry: AuditEntry) {
        self.audited.push(entry);
    }

    /// Makes sure that an id never takes effect.
    pub(super) fn bury(&mut self, id: Buried, now: Now) {
        self.buried.insert(id, self.guard.time.stamp(now));
        self.journal.insert(Change::Buried(id));
    }
}
