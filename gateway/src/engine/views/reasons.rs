//! Details of a refusal: why an operator did what is in the way, and what is there instead of what was
//! expected. They are read after the refusal, so they show what is there by then; nothing depends on them.

use std::sync::Arc;

use fence_core::ports::{AuditAction, AuditEntry, AuditFilter, LockRecord, ReadItem};
use fence_core::{EntityTag, LockEnd, LockId, ObjectKey, Refusal, ResourceName, Token};

use crate::engine::access::Permit;
use crate::engine::{Engine, EngineError};

/// Breaks of one resource that are looked through for those of one lock.
const BREAKS_MAX: i64 = 16;

/// What is known beside a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings {
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// The version of the resource.
    pub version: Option<i64>,
    /// The tag of the object; `None` if it is not there.
    pub tag: Option<EntityTag>,
}

impl Engine {
    /// What is known beside the refusal of a write of `key` under `token`.
    pub async fn beside_write(
        &self,
        error: &EngineError,
        resource: &ResourceName,
        key: Option<&ObjectKey>,
        token: Token,
    ) -> Standings {
        let EngineError::Refused(refusal) = error else { return Standings::default() };
        match refusal {
            Refusal::Broken => {
                Standings { reason: self.why_broken(resource, token).await, ..Standings::default() }
            }
            Refusal::Frozen => {
                Standings { reason: self.why_frozen(resource).await, ..Standings::default() }
            }
            Refusal::VersionMismatch => self.versions_now(resource, key).await,
            _ => Standings::default(),
        }
    }

    /// Why a call about a lock was refused, if an operator is behind it.
    pub async fn beside_lock(
        &self,
        error: &EngineError,
        id: Option<LockId>,
        permit: &Permit,
    ) -> Option<String> {
        match (error, id) {
            (EngineError::LockBreaking | EngineError::LockEnded(LockEnd::Broken), Some(id)) => {
                self.why_ending(&self.lock(id, permit).await.ok()?).await
            }
            (EngineError::Frozen(resource), _) => self.why_frozen(resource).await,
            _ => None,
        }
    }

    /// Why an operator breaks, or broke, a lock; `None` if nobody does.
    pub async fn why_ending(&self, record: &LockRecord) -> Option<String> {
        let broken = matches!(record.ended, Some((LockEnd::Broken, _)));
        if !broken && record.break_due.is_none() {
            return None;
        }
        for resource in &record.grant.resources {
            let filter = breaks_of(resource);
            let ledger = Arc::clone(&self.inner.ledger);
            let breaks = self.call(async move { ledger.audit(filter).await }).await.ok()?;
            let reason = reason_of(breaks, record.grant.token);
            if reason.is_some() {
                return reason;
            }
        }
        None
    }

    /// The reason of the last break of this token's lock.
    async fn why_broken(&self, resource: &ResourceName, token: Token) -> Option<String> {
        // With the lists: refusals come in crowds.
        reason_of(self.audit(breaks_of(resource)).await.ok()?, token)
    }

    async fn why_frozen(&self, resource: &ResourceName) -> Option<String> {
        self.resource(resource.clone()).await.ok()?.frozen
    }

    async fn versions_now(&self, resource: &ResourceName, key: Option<&ObjectKey>) -> Standings {
        let Some(key) = key else {
            let view = self.resource(resource.clone()).await.ok();
            return Standings { version: view.map(|view| view.version), ..Standings::default() };
        };
        let item = ReadItem { resource: resource.clone(), key: key.clone(), version: None };
        // With the reads, in batches: refusals of writers who race come in crowds.
        match self.inner.reads.submit(item).await {
            Ok(found) => Standings {
                version: found.resource_version,
                tag: found.object.map(|object| object.tag),
                reason: None,
            },
            Err(_) => Standings::default(),
        }
    }
}

/// The last breaks of locks on a resource.
fn breaks_of(resource: &ResourceName) -> AuditFilter {
    AuditFilter {
        resource: Some(resource.clone()),
        action: Some(AuditAction::Break),
        before: None,
        between: None,
        limit: BREAKS_MAX,
    }
}

/// Why the lock of this token was broken, if one of these did.
fn reason_of(breaks: Vec<(i64, AuditEntry)>, token: Token) -> Option<String> {
    let mut breaks = breaks.into_iter().map(|(_, entry)| entry);
    breaks.find(|entry| entry.token == Some(token))?.reason
}
