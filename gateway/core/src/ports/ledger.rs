//! The ledger: fences, locks, versions, small payloads, history. The one truth.
//!
//! Every act takes a batch and gives a verdict per item, in order. Items on one resource in one
//! batch are decided one after the other, each seeing the effects of those before it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::etag::{EntityTag, ObjectCondition};
use crate::lock::{LockEnd, LockId, LockState, OperationId, Ttl};
use crate::names::{ObjectKey, ResourceName};
use crate::rule::Refusal;
use crate::token::Token;

/// Why an act could not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Definitely not applied; the same batch may be sent again.
    #[error("the ledger does not answer: {0}")]
    Unavailable(String),
    /// The answer was lost: applied or not. Only a rerun under the same ids can tell.
    #[error("the ledger's answer was lost: {0}")]
    Unknown(String),
    /// The guard noticed that the ledger may have lost acknowledged commits. Definitely not
    /// applied.
    #[error("the ledger must be re-fenced before it takes writes: {0}")]
    RefenceRequired(String),
    /// The epoch moved on since the caller read it. Definitely not applied.
    #[error("the epoch of the mint has changed")]
    EpochMoved,
    /// A defect on either side. Definitely not applied, and trying again will not help.
    #[error("the ledger refused the act: {0}")]
    Defect(String),
}

/// How often an id may have been sent before.
///
/// After a lost connection, *absent* does not mean *not applied*: the first sending may still be
/// waiting for its row lock. So a rerun that is refused buries its id, and whoever finds a buried
/// id applies nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Never sent before.
    First,
    /// Sent before with an unknown outcome: find it, or apply it now, or bury it.
    Rerun,
    /// Sent before with an unknown outcome, and no longer wanted: find it, or bury it.
    Bury,
}

/// How long an act waits for fence rows that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: such items come back as busy, the others go through.
    Skip,
    /// Up to this long; for a batch of one, on a lane of its own.
    Wait(Duration),
}

/// One lock to seal.
#[derive(Debug, Clone)]
pub struct SealItem {
    /// The lock's id.
    pub lock: LockId,
    /// Its resources, sorted and distinct; sealed all or none.
    pub resources: Vec<ResourceName>,
    /// Who asks.
    pub owner: String,
    /// How long it lasts without renewal.
    pub ttl: Ttl,
    /// The number from the mint; without one only a re-entry under the same id can succeed.
    pub number: Option<i64>,
    /// How often the id may have been sent before.
    pub attempt: Attempt,
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
    /// Leased, breaking or expired.
    pub state: LockState,
    /// How long it lasts without renewal.
    pub ttl: Ttl,
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
    /// Sealed earlier under this id: the same lock and token, its ttl started again.
    Again(Grant),
    /// Another lock holds one of its resources.
    Held(Holder),
    /// The number does not rise above the fence, or there was none: mint again.
    NumberTooLow,
    /// An operator has frozen this resource.
    Frozen(ResourceName),
    /// The id was used before, and has ended.
    Ended(LockEnd),
    /// The id belongs to a lock on other resources or of another owner.
    Conflict,
    /// The id belongs to a lock that is being broken; nothing was extended.
    Breaking,
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
}

/// What became of one renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// No lock has this id, or it ended long ago.
    NotFound,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// What became of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseVerdict {
    /// Released now.
    Released {
        /// From its grant to now.
        held_ms: i64,
        /// Its resources, with the number under which the mint knows them.
        ended: Vec<crate::ports::Ended>,
    },
    /// It had ended before, or is unknown and now buried: the id will never be granted.
    AlreadyEnded,
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
}

/// What became of one break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakVerdict {
    /// The holder is fenced off.
    Broken {
        /// From its grant to now; `None` if it had been broken before.
        held_ms: Option<i64>,
        /// The lock's trace in the mint.
        ended: Option<crate::ports::Ended>,
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
    /// The row is locked by somebody else; nothing was decided.
    Busy,
}

/// An idempotency key and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The caller's key; its scope is the resource.
    pub key: String,
    /// A digest of method, object key, content type and body: not of token, sequence or
    /// conditions, so that a worker that takes over can redeliver.
    pub fingerprint: [u8; 32],
}

/// What a write does.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Stores an object.
    Put {
        /// Its key.
        key: ObjectKey,
        /// Its content type.
        content_type: String,
        /// Its bytes.
        body: Bytes,
        /// The SHA-256 of its bytes.
        sha256: [u8; 32],
    },
    /// Removes an object, if it is there.
    Delete {
        /// Its key.
        key: ObjectKey,
    },
    /// Removes all objects of the resource. Its fence stays.
    DeleteAll,
}

impl Effect {
    /// The object it is about, if it is about one.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => Some(key),
            Self::DeleteAll => None,
        }
    }

    /// The word in the history.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Delete { .. } => "delete",
            Self::DeleteAll => "delete_all",
        }
    }
}

/// One fenced write.
#[derive(Debug, Clone)]
pub struct WriteItem {
    /// Its id.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// The token presented.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// The sequence number presented, if any.
    pub sequence: Option<i64>,
    /// The idempotency key presented, if any.
    pub idempotency: Option<IdempotencyKey>,
    /// What it demands of the object.
    pub object_condition: Option<ObjectCondition>,
    /// The version it demands of the resource.
    pub resource_version: Option<i64>,
    /// What it does.
    pub effect: Effect,
    /// How often the operation may have been sent before.
    pub attempt: Attempt,
}

/// A write that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its operation.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// `put`, `delete` or `delete_all`.
    pub kind: String,
    /// The object, unless it was about all of them.
    pub key: Option<ObjectKey>,
    /// The version it took; a delete of nothing takes none.
    pub version: Option<i64>,
    /// The ledger's generation at the time.
    pub generation: i64,
    /// Whether a put made a new object.
    pub created: bool,
    /// The number of bytes stored.
    pub size: i64,
    /// The SHA-256 of the bytes stored.
    pub sha256: Option<[u8; 32]>,
    /// The owner of the lock it was made under.
    pub owner: String,
    /// When.
    pub committed_at: Timestamp,
}

/// What became of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteVerdict {
    /// It took effect now, or, with `replayed`, earlier under the same idempotency key.
    Applied {
        /// The write that took effect.
        applied: Applied,
        /// Whether it was an earlier one.
        replayed: bool,
    },
    /// The rule refused it; nothing changed.
    Refused(Refusal),
    /// The idempotency key stands for another payload.
    KeyReused {
        /// The operation that used the key first.
        first: OperationId,
    },
    /// The operation is buried: it took no effect and never will.
    Buried,
    /// The fence row is locked by somebody else; nothing was decided.
    Busy,
}

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
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// When it was written.
    pub written_at: Timestamp,
    /// Its bytes; empty in lists.
    pub body: Bytes,
}

/// One object to read.
#[derive(Debug, Clone)]
pub struct ReadItem {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
}

/// An object and the version of its resource, from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVerdict {
    /// The object, if it is there.
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
    /// Since when.
    pub acquired_at: Timestamp,
    /// When it was last renewed.
    pub renewed_at: Timestamp,
    /// How long ago it was granted.
    pub age_ms: i64,
    /// How long until it expires; negative once it has.
    pub remaining_ms: i64,
    /// The version of the resource.
    pub version: i64,
    /// How many objects it has.
    pub objects: i64,
    /// The highest token; only for the operator's metrics.
    pub token: Token,
}

/// A lock, while it lives and for 24 h after it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// The lock as it stands, or stood.
    pub grant: Grant,
    /// How and when it ended.
    pub ended: Option<(LockEnd, Timestamp)>,
}

/// What became of a write, or what the ledger knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationRecord {
    /// It took effect.
    Applied(Applied),
    /// It took no effect and never will.
    Buried,
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
}

/// Which rejections to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RejectionFilter {
    /// Only of this resource.
    pub resource: Option<ResourceName>,
    /// Only with this error code.
    pub reason: Option<String>,
    /// Only numbers below this.
    pub before: Option<i64>,
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

/// How the ledger and the mint belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Rises with each new incarnation of the mint.
    pub number: i64,
    /// What the mint must carry.
    pub nonce: Uuid,
    /// Added to each number of the mint.
    pub base: i64,
    /// Whether the mint has been seen to carry the nonce.
    pub open: bool,
}

/// How much to keep, and how much to tidy in one pass.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Idempotency keys.
    pub keys: Duration,
    /// Locks that have ended, and buried ids.
    pub ended_locks: Duration,
    /// The number of rejections.
    pub rejections_max: i64,
    /// Rows removed in one pass, of each kind.
    pub rows_per_pass: i64,
}

/// The ledger. See the module for what a batch means.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Raises fences to newly minted tokens and records their holders, for each lock on all of its
    /// resources or on none. A resource appears at most once in a batch.
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        patience: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError>;

    /// Starts the ttl of locks again.
    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        patience: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError>;

    /// Ends locks at their holders' wish. An unknown id is buried, so that a grant still on its
    /// way under that id can never be sealed.
    async fn release(
        &self,
        items: Arc<[LockId]>,
        patience: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError>;

    /// Ends locks at an operator's wish.
    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        patience: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError>;

    /// Decides and applies writes.
    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        patience: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError>;

    /// Reads objects, all from one snapshot that begins after the call.
    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError>;

    /// The live holder of each resource, if it has one that is neither expired nor due to be
    /// broken.
    async fn holders(&self, resources: &[ResourceName])
    -> Result<Vec<Option<Holder>>, LedgerError>;

    /// A lock by its id.
    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError>;

    /// A resource by its name; `None` if it was never locked.
    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError>;

    /// Resources in byte order; with `held` only those whose lock has not been released.
    async fn resources(&self, page: Page, held: bool) -> Result<Vec<ResourceView>, LedgerError>;

    /// Objects of a resource in byte order, without their bytes.
    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError>;

    /// What became of a write; `None` if the ledger holds no trace of it.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError>;

    /// The write that used an idempotency key.
    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError>;

    /// Keeps refused writes for the operator.
    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError>;

    /// Refused writes, newest first, each with its number.
    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError>;

    /// The current epoch.
    async fn epoch(&self) -> Result<Epoch, LedgerError>;

    /// Records that the mint carries `nonce`, in place of the nonce of an epoch that was not open
    /// yet and under which nothing was sealed. Returns the epoch as it stands then.
    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError>;

    /// Removes what has been kept long enough and stores breaks that have come due. Returns the
    /// number of rows touched.
    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError>;
}
