//! Commits of many puts and deletes over all resources of a lock: all or nothing, one version each.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::act::{Attempt, LedgerError, Patience};
use super::by::By;
use super::writes::{Applied, Effect, IdempotencyKey};
use crate::etag::ObjectCondition;
use crate::lock::{LockId, OperationId};
use crate::names::{ObjectKey, ResourceName};
use crate::rule::Refusal;
use crate::token::Token;

/// The kind of a commit's operations in the history.
pub const COMMIT_KIND: &str = "commit";

/// One put or delete of a commit.
#[derive(Debug, Clone)]
pub struct CommitStep {
    /// Its resource.
    pub resource: ResourceName,
    /// What it demands of the object, as it is before the commit.
    pub object_condition: Option<ObjectCondition>,
    /// A put or a delete of one object; no object comes twice in a commit.
    pub effect: Effect,
}

impl CommitStep {
    /// The object it is about.
    pub fn key(&self) -> Option<&ObjectKey> {
        self.effect.key()
    }
}

/// A resource of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitResource {
    /// Its name.
    pub resource: ResourceName,
    /// The version it must be at.
    pub version: Option<i64>,
}

/// One fenced commit.
#[derive(Debug, Clone)]
pub struct CommitItem {
    /// Its id: one operation on each resource, all with this id.
    pub operation: OperationId,
    /// All its resources in the order of their names: those of its steps, and those of which it only
    /// demands a version.
    pub resources: Arc<[CommitResource]>,
    /// The token presented; it must be good on each resource.
    pub token: Token,
    /// The lock id presented, if any.
    pub lock: Option<LockId>,
    /// The sequence number presented, if any.
    pub sequence: Option<i64>,
    /// The idempotency key presented, if any; it is kept on each resource.
    pub idempotency: Option<IdempotencyKey>,
    /// What it does, in the caller's order.
    pub steps: Arc<[CommitStep]>,
    /// How often the operation may have been sent before.
    pub attempt: Attempt,
    /// The ledger's own time when the gateway took it, or an earlier one.
    pub taken_at: Timestamp,
    /// Who writes, and under which rules that was allowed.
    pub by: By,
}

/// What a step of a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// Put a new object.
    Created,
    /// Put an object in place of an older one.
    Replaced,
    /// Deleted an object.
    Deleted,
    /// Found nothing to delete.
    Nothing,
}

impl Did {
    /// The letter in the ledgers.
    pub fn letter(self) -> char {
        match self {
            Self::Created => 'c',
            Self::Replaced => 'r',
            Self::Deleted => 'd',
            Self::Nothing => 'n',
        }
    }

    /// Reads letters back; `None` if one is none of ours.
    pub fn parse(letters: &str) -> Option<Vec<Self>> {
        let did = |letter| match letter {
            'c' => Some(Self::Created),
            'r' => Some(Self::Replaced),
            'd' => Some(Self::Deleted),
            'n' => Some(Self::Nothing),
            _ => None,
        };
        letters.chars().map(did).collect()
    }

    /// Several, as they stand in the ledgers.
    pub fn letters(all: &[Self]) -> String {
        all.iter().map(|did| did.letter()).collect()
    }
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitVerdict {
    /// It took effect now, or, with `replayed`, earlier under the same idempotency key.
    Applied {
        /// Its operation on each resource, in the order of their names.
        applied: Vec<Applied>,
        /// Whether it was an earlier one.
        replayed: bool,
    },
    /// The rule refused it; nothing changed anywhere.
    Refused {
        /// Why.
        refusal: Refusal,
        /// The first resource in name order on which the token, the sequence or the version is refused;
        /// else that of the first step whose condition does not hold.
        resource: ResourceName,
        /// The position of that step, from 0.
        step: Option<usize>,
    },
    /// The idempotency key stands for another payload on this resource.
    KeyReused {
        /// The operation that used the key first.
        first: OperationId,
        /// The resource.
        resource: ResourceName,
    },
    /// The operation is buried: it took no effect and never will.
    Buried,
    /// The ledger has let go of what it knew, as with [`super::WriteVerdict::Forgotten`].
    Forgotten,
    /// The blob of this step has no intent (any more). No effect; the other intents stay.
    UploadExpired {
        /// The position of the step, from 0.
        step: usize,
    },
    /// The rules have changed since it was allowed; nothing was decided, as with [`super::WriteVerdict::RulesMoved`].
    RulesMoved,
    /// A row is locked by somebody else; nothing was decided.
    Busy,
}

/// The side of the ledger that takes commits.
#[async_trait]
pub trait Commits: Send + Sync {
    /// Decides a commit and applies all of it or nothing, in one act.
    async fn commit_many(
        &self,
        item: CommitItem,
        patience: Patience,
    ) -> Result<CommitVerdict, LedgerError>;
}
