//! Rows that both ledgers read alike.

use fence_core::ports::{
    AuditEntry, Bucket, ForwardEnd, ForwardRecord, GrantEntry, Intent, IntentEnd, LedgerError,
    Rejection, Stock, TreeLeaf, roots_from,
};
use fence_core::{LockId, OperationId, PrincipalName};
use uuid::Uuid;

use super::{audit_action, grant_end, object_key, principal, resource_name, time, token};

row! {
    /// An entry of the audit, its time in microseconds since 1970.
    pub(super) struct AuditRow {
        number: i64,
        at_us: i64,
        action: String,
        resource: Option<String>,
        owner: Option<String>,
        previous_owner: Option<String>,
        previous_end: Option<String>,
        previous_ended_us: Option<i64>,
        token: Option<i64>,
        reason: Option<String>,
        request_id: Option<String>,
        asked: Option<String>,
        lock_id: Option<Uuid>,
        lock: Option<String>,
        ordinal: Option<i64>,
        leads: Option<bool>,
        principal: Option<String>,
        writers: Option<String>,
    }
}

impl AuditRow {
    /// What else a grant is: Postgres has it in the grant's own row, with the id of the lock.
    fn grant(&self) -> Option<GrantEntry> {
        let digest = self.lock_id.map(|id| GrantEntry::digest_of(LockId(id)));
        Some(GrantEntry {
            lock: digest.or_else(|| self.lock.clone())?,
            ordinal: self.ordinal.unwrap_or(0),
            leads: self.leads.unwrap_or(false),
            principal: self.principal.clone(),
            writers: self.writers.clone(),
        })
    }

    pub(super) fn entry(self) -> Result<(i64, AuditEntry), LedgerError> {
        let entry = AuditEntry {
            grant: self.grant(),
            asked: self.asked,
            at: time(self.at_us),
            action: audit_action(&self.action)?,
            resource: self.resource.map(resource_name).transpose()?,
            owner: self.owner,
            previous_owner: self.previous_owner,
            previous_end: self.previous_end.as_deref().map(grant_end).transpose()?,
            previous_ended_at: self.previous_ended_us.map(time),
            token: self.token.map(token).transpose()?,
            reason: self.reason,
            request_id: self.request_id,
        };
        Ok((self.number, entry))
    }
}

row! {
    /// What a principal has.
    pub(super) struct StockRow {
        principal: String,
        locks: i64,
        resources: i64,
        keys: i64,
        bytes: i64,
    }
}

impl StockRow {
    pub(super) fn stock(self) -> Result<(PrincipalName, Stock), LedgerError> {
        let Self { locks, resources, keys, bytes, .. } = self;
        Ok((principal(&self.principal)?, Stock { locks, resources, keys, bytes }))
    }
}

/// What the tree of the audit keeps of entries beside each other.
pub(super) fn leaves(
    numbers: &[i64],
    grants: &[bool],
    digests: &[u8],
) -> Result<Vec<TreeLeaf>, LedgerError> {
    let digests = roots_from(digests)?;
    if numbers.len() != grants.len() || numbers.len() != digests.len() {
        return Err(LedgerError::Defect("a tile of the audit is not whole".into()));
    }
    let all = numbers.iter().zip(grants).zip(digests);
    Ok(all.map(|((&number, &is_grant), digest)| TreeLeaf { number, is_grant, digest }).collect())
}

row! {
    /// A refused write, its time in microseconds since 1970.
    pub(super) struct RejectionRow {
        number: i64,
        at_us: i64,
        resource: String,
        key: Option<String>,
        reason: String,
        token: Option<i64>,
        grants_behind: Option<i64>,
        superseded_ms: Option<i64>,
        owner: Option<String>,
        request_id: String,
        times: i64,
    }
}

impl RejectionRow {
    pub(super) fn rejection(self) -> Result<(i64, Rejection), LedgerError> {
        let rejection = Rejection {
            at: time(self.at_us),
            resource: resource_name(self.resource)?,
            key: self.key.map(object_key).transpose()?,
            reason: self.reason,
            token: self.token.map(token).transpose()?,
            grants_behind: self.grants_behind,
            superseded_ms: self.superseded_ms,
            owner: self.owner,
            request_id: self.request_id,
            times: self.times,
        };
        Ok((self.number, rejection))
    }
}

row! {
    /// An open intent, its times in microseconds since 1970.
    pub(super) struct IntentRow {
        operation: Uuid,
        resource: String,
        token: i64,
        owner: String,
        upstream: String,
        method: String,
        path: String,
        gateway: Uuid,
        opened_us: i64,
        age_ms: i64,
        closes_us: Option<i64>,
    }
}

impl IntentRow {
    pub(super) fn intent(self) -> Result<Intent, LedgerError> {
        Ok(Intent {
            operation: OperationId(self.operation),
            resource: resource_name(self.resource)?,
            token: token(self.token)?,
            owner: self.owner,
            upstream: self.upstream,
            method: self.method,
            path: self.path,
            gateway: self.gateway,
            opened_at: time(self.opened_us),
            age_ms: self.age_ms.max(0),
            closes_at: self.closes_us.map(time),
        })
    }
}

/// How an intent was closed, as the columns of its row say it.
pub(super) fn intent_end(
    closed: &str,
    status: Option<i32>,
    reason: Option<String>,
) -> Result<IntentEnd, LedgerError> {
    let status = status.and_then(|status| u16::try_from(status).ok());
    match (closed, status) {
        ("answered", Some(status)) => Ok(IntentEnd::Known(ForwardEnd::Answered(status))),
        ("unsent", None) => Ok(IntentEnd::Known(ForwardEnd::Unsent)),
        ("resolved", None) => Ok(IntentEnd::Resolved(reason.unwrap_or_default())),
        ("elapsed", None) => Ok(IntentEnd::Elapsed),
        _ => Err(LedgerError::Defect(format!("an intent that was closed as {closed}"))),
    }
}

row! {
    /// An intent, open or closed, its times in microseconds since 1970. What counts as closed is closed.
    pub(super) struct ForwardedRow {
        operation: Uuid,
        resource: String,
        owner: String,
        upstream: String,
        opened_us: i64,
        closed: Option<String>,
        closed_us: Option<i64>,
        status: Option<i32>,
        reason: Option<String>,
    }
}

impl ForwardedRow {
    pub(super) fn record(self) -> Result<ForwardRecord, LedgerError> {
        let closed = match self.closed.zip(self.closed_us) {
            Some((closed, at)) => Some((intent_end(&closed, self.status, self.reason)?, time(at))),
            None => None,
        };
        Ok(ForwardRecord {
            operation: OperationId(self.operation),
            resource: resource_name(self.resource)?,
            owner: self.owner,
            upstream: self.upstream,
            opened_at: time(self.opened_us),
            closed,
        })
    }
}

row! {
    /// A bucket of S3, its time in microseconds since 1970.
    pub(super) struct BucketRow {
        name: String,
        depth: i32,
        created_us: i64,
    }
}

impl BucketRow {
    pub(super) fn bucket(self) -> Result<Bucket, LedgerError> {
        let defect = |_| LedgerError::Defect(format!("a bucket of depth {}", self.depth));
        let depth = u8::try_from(self.depth).map_err(defect)?;
        Ok(Bucket { name: self.name, depth, created_at: time(self.created_us) })
    }
}
