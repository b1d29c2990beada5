//! What operators do to resources besides breaking locks, and the record of it: marks and the audit.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::By;
use super::records::Span;
use crate::lock::{GrantEnd, LockId};
use crate::names::ResourceName;
use crate::token::Token;
use crate::wire::REASON_BYTES_MAX;

/// What an operator does to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Stops all writers and grants. Renewals and releases go on.
    Freeze,
    /// Lets writers and grants go on.
    Unfreeze,
    /// Forbids deleting the resource as a whole.
    Protect,
    /// Allows it again.
    Unprotect,
}

impl Mark {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Freeze, Self::Unfreeze, Self::Protect, Self::Unprotect];

    /// As the audit calls it.
    pub fn action(self) -> AuditAction {
        match self {
            Self::Freeze => AuditAction::Freeze,
            Self::Unfreeze => AuditAction::Unfreeze,
            Self::Protect => AuditAction::Protect,
            Self::Unprotect => AuditAction::Unprotect,
        }
    }

    /// The word in paths, ledgers and metrics.
    pub fn as_str(self) -> &'static str {
        self.action().as_str()
    }
}

/// One resource to mark.
#[derive(Debug, Clone)]
pub struct MarkItem {
    /// The resource.
    pub resource: ResourceName,
    /// What to do to it.
    pub mark: Mark,
    /// Why; shown to everybody while it is frozen or protected.
    pub reason: String,
    /// The request that asks for it, for the record.
    pub request_id: String,
    /// Who asks, and under which rules that was allowed.
    pub by: By,
}

/// What became of one mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkVerdict {
    /// The resource is as was asked for. `changed` says whether it was not before, or for another
    /// reason.
    Marked {
        /// Whether anything changed.
        changed: bool,
    },
    /// Nobody ever held it.
    NoFence,
    /// The rules have changed since it was allowed; nothing was decided.
    RulesMoved,
    /// The row is locked by somebody else; nothing was decided.
    Busy,
}

pub use fencegate_wire::AuditAction;

/// One entry of the audit. It is written by the act itself, and never changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub action: AuditAction,
    /// To which resource, unless it was to the whole ledger.
    pub resource: Option<ResourceName>,
    /// Whose lock was granted or broken.
    pub owner: Option<String>,
    /// Whose lock a grant put an end to, if that had been neither released nor broken.
    pub previous_owner: Option<String>,
    /// How the grant before it on the resource ended; none if there was none, or if it is not known.
    pub previous_end: Option<GrantEnd>,
    /// When; none if it is not known.
    pub previous_ended_at: Option<Timestamp>,
    /// The token of the lock. For operators only.
    pub token: Option<Token>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// The request that asked for it.
    pub request_id: Option<String>,
    /// Who asked for it, and how: [`super::Asked`] as JSON. None for what the gateway did by itself.
    pub asked: Option<String>,
    /// What else a grant is.
    pub grant: Option<GrantEntry>,
}

/// What the audit says of a grant beyond other entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantEntry {
    /// The first 16 bytes of the SHA-256 of the lock's id, in hex: the id itself is its holder's key to it.
    pub lock: String,
    /// 1 for the first grant of the resource, 2 for the next.
    pub ordinal: i64,
    /// Whether the resource is the first of its lock.
    pub leads: bool,
    /// Whose the lock is; none where no rules were in force.
    pub principal: Option<String>,
    /// Who else may write under it, with a space between them.
    pub writers: Option<String>,
}

impl GrantEntry {
    /// The digest of a lock's id.
    pub fn digest_of(lock: LockId) -> String {
        hex::encode(&Sha256::digest(lock.0.as_bytes())[..16])
    }
}

impl AuditEntry {
    /// An entry about a resource; who, why and the like are added where they are known.
    pub fn about(resource: &ResourceName, action: AuditAction, at: Timestamp) -> Self {
        Self { resource: Some(resource.clone()), ..Self::of_ledger(action, at) }
    }

    /// An entry about the whole ledger.
    pub fn of_ledger(action: AuditAction, at: Timestamp) -> Self {
        Self {
            at,
            action,
            resource: None,
            owner: None,
            previous_owner: None,
            previous_end: None,
            previous_ended_at: None,
            token: None,
            reason: None,
            request_id: None,
            asked: None,
            grant: None,
        }
    }
}

impl AuditEntry {
    /// An entry about the whole ledger, with its reason. One that is too long is cut.
    pub fn because(action: AuditAction, at: Timestamp, why: &str) -> Self {
        let end = why.floor_char_boundary(REASON_BYTES_MAX);
        let reason = Some(why[..end].to_owned()).filter(|reason| !reason.is_empty());
        Self { reason, ..Self::of_ledger(action, at) }
    }
}

/// Which entries of the audit to list, newest first unless they are followed.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only about this resource.
    pub resource: Option<ResourceName>,
    /// Only this action.
    pub action: Option<AuditAction>,
    /// Only numbers below this.
    pub before: Option<i64>,
    /// Only numbers in this span, oldest first.
    pub between: Option<Span>,
    /// At most this many.
    pub limit: i64,
}
