//! What goes into the act on data, and what comes out.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Attempt, BlobId, By, Did, Payload};
use crate::etag::ObjectCondition;
use crate::lock::{LockId, OperationId};
use crate::mutants::{self, Mutant};
use crate::names::{ObjectKey, ResourceName};
use crate::rule::Refusal;
use crate::token::Token;

/// Whose idempotency keys they are. Keys of one space never meet those of another, and callers cannot choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySpace {
    /// Those that callers name.
    Native,
    /// The ids that the libraries of S3 give each call, whatever they send for it.
    Sdk,
    /// The ids of uploads in parts, which are completed once.
    Upload,
}

/// What no key has that a caller names.
const APART: char = '\u{1}';

impl KeySpace {
    /// The word in the ledgers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Sdk => "sdk",
            Self::Upload => "upload",
        }
    }

    /// A key of this space, as the ledgers know it.
    pub fn key(self, key: &str) -> String {
        match self {
            _ if mutants::is(Mutant::KeySpacesMeet) => key.to_owned(),
            Self::Native => key.to_owned(),
            Self::Sdk | Self::Upload => format!("{}{APART}{key}", self.word()),
        }
    }

    /// Which space a key is of that the ledgers know, and what it is there.
    pub fn of(key: &str) -> (Self, &str) {
        match key.split_once(APART) {
            Some(("sdk", key)) => (Self::Sdk, key),
            Some(("upload", key)) => (Self::Upload, key),
            _ => (Self::Native, key),
        }
    }
}

/// An idempotency key and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, as [`KeySpace::key`] has it; its scope is the resource.
    pub key: String,
    /// A digest of method, object key, content type and body: not of token, sequence or
    /// conditions, so that a worker that takes over can redeliver.
    pub fingerprint: [u8; 32],
    /// How long it is remembered from when it took effect; `None`: as long as the settings say. A retry does not
    /// change it.
    pub kept: Option<Duration>,
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
        /// Its bytes, or the blob that they were uploaded as.
        payload: Payload,
        /// Its number of bytes.
        size: i64,
        /// The SHA-256 of its bytes; of an object in parts that of its parts' digests.
        sha256: [u8; 32],
        /// What S3 tells of it, beside its content type, as JSON.
        about: Option<Arc<str>>,
        /// Of an object in parts: the blobs of them all, in their order. The payload is the upload then.
        parts: Option<Arc<[BlobId]>>,
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
    /// The blob that it makes an object's, if it does.
    pub fn blob(&self) -> Option<BlobId> {
        match self {
            Self::Put { payload, .. } => payload.blob(),
            Self::Delete { .. } | Self::DeleteAll => None,
        }
    }

    /// The blobs of its parts, if it puts an object in parts.
    pub fn parts(&self) -> Option<&[BlobId]> {
        match self {
            Self::Put { parts, .. } => parts.as_deref(),
            Self::Delete { .. } | Self::DeleteAll => None,
        }
    }

    /// The SHA-256 of the bytes that it puts, if that is known of them as a whole.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        match self {
            Self::Put { sha256, parts: None, .. } => Some(*sha256),
            _ => None,
        }
    }

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
    /// The ledger's own time when the gateway took it, or an earlier one.
    pub taken_at: Timestamp,
    /// Who writes, and under which rules that was allowed.
    pub by: By,
}

/// A write that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its operation.
    pub operation: OperationId,
    /// The resource.
    pub resource: ResourceName,
    /// `put`, `delete`, `delete_all` or `commit`.
    pub kind: String,
    /// The object, unless it was about all of them or several.
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
    /// Of a commit: what each of its steps on this resource did, in their order.
    pub did: Vec<Did>,
}

impl Applied {
    /// The number of bytes stored, if it stored an object.
    pub fn stored(&self) -> Option<i64> {
        (self.kind == "put").then_some(self.size)
    }
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
    /// Of an item that was taken so long ago the ledger has let go of what it knew: whether it took effect stays unknown,
    /// and it takes none from now on.
    Forgotten,
    /// The blob has no intent (any more): the upload took too long and is garbage. No effect.
    UploadExpired,
    /// The upload has not all of these parts, or has not any more. No effect.
    PartsDiffer,
    /// The rules have changed since it was allowed; nothing was decided. What was sent before took effect by now, or
    /// never will: the rules changed only once all acts under way had ended.
    RulesMoved,
    /// The fence row is locked by somebody else; nothing was decided.
    Busy,
}
