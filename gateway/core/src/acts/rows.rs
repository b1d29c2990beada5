//! The rows that the acts work on, and a journal of what they changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use uuid::Uuid;

use super::forwards::{ForwardRow, UpstreamRow};
pub use super::now::{Now, millis_between};
use crate::etag::EntityTag;
use crate::lock::{LockEnd, LockId, LockState, OperationId, Supersession, Ttl};
use crate::metadata::Metadata;
use crate::mutants::{self, Mutant};
use crate::names::{ObjectKey, ResourceName};
use crate::ports::{
    Applied, AuditAction, AuditEntry, BlobId, BreakDue, By, Epoch, Grant, Holder, LockRecord,
    Object, Place, ResourceView,
};
use crate::principal::{PrincipalName, WriterName};
use crate::queue::Queue;
use crate::rule::{FenceFacts, Hold, OldGrant};
use crate::token::Token;

/// Rules may be put in force 2^20 times between two re-fences; then their generations only count on.
const RULES_PER_REFENCE_BITS: u32 = 20;

/// What guards the acts against a ledger or a mint that lost its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Rises with each new incarnation of the mint.
    pub epoch: i64,
    /// What the mint must carry.
    pub nonce: Uuid,
    /// Whether the mint has been seen to carry it.
    pub open: bool,
    /// Added to each number of the mint.
    pub base: i64,
    /// Tokens up to this one are void.
    pub floor: i64,
    /// Rises with each re-fence.
    pub generation: i64,
    /// Which ledger this is.
    pub ledger: Uuid,
    /// The generation of the rules of access: 0 while there are none.
    pub rules: i64,
}

impl Guard {
    /// How the ledger and the mint belong together.
    pub fn as_epoch(&self) -> Epoch {
        Epoch {
            number: self.epoch,
            nonce: self.nonce,
            base: self.base,
            open: self.open,
            ledger: self.ledger,
        }
    }

    /// The generation of rules that are put in force now. After a re-fence it is higher than any that the ledger had
    /// before it went back, so that no two rules share one.
    pub fn next_rules(&self) -> i64 {
        (self.rules + 1).max(self.generation << RULES_PER_REFENCE_BITS)
    }

    /// A resource as everybody may see it: a lock that a re-fence voided keeps nobody out.
    pub fn view(
        &self,
        resource: &ResourceName,
        fence: &FenceRow,
        waiting: usize,
        now: Now,
    ) -> ResourceView {
        let view = fence.view(resource, waiting, now);
        let live =
            matches!(view.state, LockState::Leased | LockState::Breaking | LockState::Draining);
        match live && fence.token.get() <= self.floor {
            true => ResourceView { state: LockState::Expired, breaks_in_ms: None, ..view },
            false => view,
        }
    }

    /// Where a ledger of one process stands.
    pub fn place(&self, highest: i64) -> Place {
        Place {
            epoch: self.as_epoch(),
            generation: self.generation,
            adoptions: 0,
            adopted_at: 0,
            floor: self.floor,
            highest,
            system_id: 0,
            timeline: String::new(),
            known_timeline: String::new(),
            inserted: 0,
            flushed: 0,
            called_for: None,
            agreed: BTreeMap::new(),
        }
    }
}

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
            acquired_at: self.acquired_at,
            renewed_at: self.renewed_at,
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
    pub(super) fn rules_moved(&self, by: &By) -> bool {
        let moved = by.rules.is_some_and(|allowed| allowed != self.guard.rules);
        moved && !mutants::is(Mutant::StaleRulesAdmitted)
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
            self.replaced.push(ReplacedRow { resource: resource.clone(), object, at: now.wall });
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
        })
    }

    /// Stores a break of this resource that has come due, so that no clock step un-breaks it.
    pub(super) fn settle(&mut self, resource: &ResourceName, now: Now) {
        let Some(fence) = self.fences.get_mut(resource) else { return };
        if fence.hold.stands() && fence.hold_at(now) == Hold::Broken {
            fence.hold = Hold::Broken;
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
        if let Some(row) = self.locks.get_mut(&id)
            && row.ended.is_none()
        {
            row.ended = Some((how, now.wall));
            self.journal.insert(Change::Lock(id));
        }
    }

    /// Records what an act did, for good.
    pub(super) fn audit(&mut self, entry: AuditEntry) {
        self.audited.push(entry);
    }

    /// Makes sure that an id never takes effect.
    pub(super) fn bury(&mut self, id: Buried, now: Now) {
        self.buried.insert(id, now.wall);
        self.journal.insert(Change::Buried(id));
    }
}
