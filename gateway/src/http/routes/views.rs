//! How the engine's values look as JSON.

use fence_core::ports::{
    Applied, Asked, AuditEntry, Bucket, Doubt, ForwardEnd, ForwardRecord, Grant, Intent, IntentEnd,
    LockRecord, Object, OperationRecord, Rejection, ResourceView,
};
use fence_core::{ErrorCode, LockState, MaxHold, OperationId, wire};
use sha2::{Digest as _, Sha256};

use crate::engine::access::{Applied as RulesApplied, Explained, Lost};

/// Time left for people: none for what lies further ahead than any lock may that expires.
pub(super) fn left(remaining_ms: i64) -> Option<i64> {
    (u128::from(remaining_ms.max(0).unsigned_abs()) <= MaxHold::MAX.as_millis())
        .then_some(remaining_ms.max(0))
}

impl From<Lost> for wire::LostLock {
    fn from(lost: Lost) -> Self {
        let Lost { resource, owner, principal, is_revoked, is_broken, .. } = lost;
        Self { resource, owner, principal, revoked: is_revoked, broken: is_broken }
    }
}

impl From<RulesApplied> for wire::AccessApplied {
    fn from(applied: RulesApplied) -> Self {
        let RulesApplied { generation, lost } = applied;
        let count =
            |is: fn(&Lost) -> bool| lost.iter().flatten().filter(|one| is(one)).count() as u64;
        let lost_count = count(|_| true);
        let broken_count = count(|one| one.is_broken);
        let unbroken_count = count(is_unbroken);
        let named = lost.map(|mut lost| {
            lost.sort_by_key(|one| !is_unbroken(one));
            lost.into_iter().take(wire::LOST_MAX).map(Into::into).collect()
        });
        Self { generation, lost: named, lost_count, broken_count, unbroken_count }
    }
}

/// One that is to be broken, and is not.
fn is_unbroken(lost: &Lost) -> bool {
    lost.is_doomed && !lost.is_broken
}

impl From<Explained> for wire::Explanation {
    fn from(explained: Explained) -> Self {
        let Explained { generation, is_allowed, by, why } = explained;
        let (role, pattern) = by.unzip();
        Self { allowed: is_allowed, role, pattern, why, generation }
    }
}

pub(super) fn lock(grant: Grant) -> wire::Lock {
    wire::Lock {
        id: grant.lock,
        resources: grant.resources,
        token: grant.token,
        owner: grant.owner,
        principal: grant.principal.map(String::from),
        writers: grant.writers.into_iter().map(String::from).collect(),
        state: grant.state.into(),
        metadata: grant.metadata,
        ttl_ms: (!grant.ttl.is_infinite()).then(|| grant.ttl.as_ms()),
        expires_in_ms: left(grant.remaining_ms),
        confirm_within_ms: (grant.unconfirmed && grant.state == LockState::Leased)
            .then(|| grant.remaining_ms.max(0)),
        hold_until: grant.hold_until,
        acquired_at: grant.acquired_at,
        versions: grant.versions,
        frozen: None,
        reason: None,
        lapsed_ms: None,
        ended: None,
        ended_at: None,
        s3: None,
    }
}

fn lock_record(record: LockRecord) -> wire::Lock {
    let lock = wire::Lock { frozen: record.frozen, ..lock(record.grant) };
    match record.ended {
        None => lock,
        Some((end, at)) => {
            let (ended, ended_at) = (Some(end.into()), Some(at));
            wire::Lock { expires_in_ms: Some(0), frozen: None, ended, ended_at, ..lock }
        }
    }
}

/// What `since` is compared with.
pub(super) fn state_tag(view: &ResourceView) -> String {
    let digest = Sha256::digest(format!("{:?}", view.face()));
    hex::encode(&digest[..8])
}

pub(super) fn resource(view: ResourceView) -> wire::Resource {
    let state_tag = state_tag(&view);
    let over = matches!(view.state, LockState::Released | LockState::Broken);
    wire::Resource {
        resource: view.resource,
        state: view.state.into(),
        owner: view.owner,
        principal: view.principal.map(String::from),
        acquired_at: view.acquired_at,
        ended_at: view.ended_at.filter(|_| over),
        age_ms: view.age_ms,
        renewed_ms_ago: view.renewed_ms,
        ttl_ms: (!view.ttl.is_infinite()).then(|| view.ttl.as_ms()),
        breaks_in_ms: view.breaks_in_ms.map(|left_ms| left_ms.max(0)),
        expires_in_ms: if over { Some(0) } else { left(view.remaining_ms) },
        version: view.version,
        objects: view.objects,
        frozen: view.frozen,
        protected: view.protected,
        queue_length: view.waiting,
        state_tag,
    }
}

pub(super) fn bucket(bucket: Bucket) -> wire::Bucket {
    let Bucket { name, depth, created_at } = bucket;
    wire::Bucket { name, depth, created_at }
}

pub(super) fn object(object: Object) -> wire::ObjectEntry {
    wire::ObjectEntry {
        key: object.key.to_string(),
        version: object.tag.version,
        etag: object.tag.to_string(),
        size: object.size,
        sha256: object.whole_sha256().map(hex::encode),
        sha256_parts: object.parts.map(|_| hex::encode(object.sha256)),
        content_type: object.content_type,
        written_at: object.written_at,
    }
}

pub(super) fn applied(applied: Applied) -> wire::Operation {
    let size = applied.stored();
    wire::Operation {
        operation: applied.operation,
        outcome: wire::OperationOutcome::Applied.into(),
        kind: Some(applied.kind),
        resource: Some(applied.resource.to_string()),
        key: applied.key.map(|key| key.to_string()),
        version: applied.version,
        resources: None,
        size,
        sha256: applied.sha256.map(hex::encode),
        owner: Some(applied.owner),
        committed_at: Some(applied.committed_at),
        forward: None,
    }
}

/// A commit, on all its resources.
fn committed(id: OperationId, rows: Vec<Applied>) -> wire::Operation {
    let first = rows.first();
    wire::Operation {
        operation: id,
        outcome: wire::OperationOutcome::Applied.into(),
        kind: first.map(|applied| applied.kind.clone()),
        resource: None,
        key: None,
        version: None,
        size: None,
        sha256: None,
        owner: first.map(|applied| applied.owner.clone()),
        committed_at: first.map(|applied| applied.committed_at),
        resources: Some(rows.iter().map(committed_resource).collect()),
        forward: None,
    }
}

/// What a commit did to a resource.
pub(super) fn committed_resource(applied: &Applied) -> wire::CommittedResource {
    wire::CommittedResource { resource: applied.resource.to_string(), version: applied.version }
}

pub(super) fn operation(id: OperationId, record: OperationRecord) -> wire::Operation {
    match record {
        OperationRecord::Applied(found) => applied(found),
        OperationRecord::Forwarded(record) => forwarded(record),
        OperationRecord::Committed(rows) => committed(id, rows),
        OperationRecord::Buried => bare(id, wire::OperationOutcome::NotApplied),
    }
}

/// An operation of which no more is known than what became of it.
fn bare(operation: OperationId, outcome: wire::OperationOutcome) -> wire::Operation {
    wire::Operation {
        operation,
        outcome: outcome.into(),
        kind: None,
        resource: None,
        key: None,
        version: None,
        resources: None,
        size: None,
        sha256: None,
        owner: None,
        committed_at: None,
        forward: None,
    }
}

/// What is known of a request to a drained upstream. An effect is known from nothing but the upstream's own
/// word for it; that there was none, only from nothing having been sent.
fn forwarded(record: ForwardRecord) -> wire::Operation {
    use wire::{ForwardState as State, OperationOutcome as Outcome};
    let (closed, closed_at) = record.closed.unzip();
    let (outcome, state, status, reason) = match closed {
        None => (Outcome::Unknown, State::Open, None, None),
        Some(IntentEnd::Known(ForwardEnd::Unsent)) => {
            (Outcome::NotApplied, State::Unsent, None, None)
        }
        Some(IntentEnd::Known(ForwardEnd::Answered(status))) => {
            // 202 says that it is still to be done, 207 says it part by part.
            let says_so = (200..300).contains(&status) && ![202, 207].contains(&status);
            let outcome = if says_so { Outcome::Applied } else { Outcome::Unknown };
            (outcome, State::Answered, Some(status), None)
        }
        Some(IntentEnd::Resolved(reason)) => {
            (Outcome::Unknown, State::Resolved, None, Some(reason))
        }
        Some(IntentEnd::Elapsed) => (Outcome::Unknown, State::Elapsed, None, None),
    };
    wire::Operation {
        kind: Some("forward".to_owned()),
        resource: Some(record.resource.to_string()),
        owner: Some(record.owner),
        forward: Some(wire::ForwardRecord {
            upstream: record.upstream,
            state: state.into(),
            opened_at: record.opened_at,
            closed_at,
            status,
            reason,
        }),
        ..bare(record.operation, outcome)
    }
}

/// A token that may still be good, here or elsewhere, is shown to nobody.
pub(super) fn rejection(rejection: Rejection) -> wire::RejectionEntry {
    let worthless = [
        ErrorCode::FenceTokenStale,
        ErrorCode::FenceTokenVoid,
        ErrorCode::FenceTokenReleased,
        ErrorCode::FenceTokenBroken,
    ]
    .iter()
    .any(|code| code.as_str() == rejection.reason);
    wire::RejectionEntry {
        at: rejection.at,
        resource: rejection.resource.to_string(),
        key: rejection.key.map(|key| key.to_string()),
        reason: rejection.reason,
        presented_token: worthless.then_some(rejection.token).flatten().map(|t| t.to_string()),
        grants_behind: rejection.grants_behind,
        superseded_ms: rejection.superseded_ms,
        owner: rejection.owner,
        request_id: rejection.request_id,
        times: rejection.times,
    }
}

/// Without the token: operators will see it once there is access control.
pub(super) fn audit(entry: AuditEntry) -> wire::AuditEntry {
    // What somebody else has put there is not told as if it were ours: the audit's proofs tell that.
    let asked: Asked = entry
        .asked
        .as_deref()
        .and_then(|asked| serde_json::from_str(asked).ok())
        .unwrap_or_default();
    wire::AuditEntry {
        gateway_request_id: asked.gateway_request_id,
        principal: asked.principal,
        credential: asked.credential,
        peer: asked.peer,
        at: entry.at,
        action: entry.action.as_str().to_owned(),
        resource: entry.resource.map(|name| name.to_string()),
        owner: entry.owner,
        previous_owner: entry.previous_owner,
        previous_end: entry.previous_end.map(Into::into),
        previous_ended_at: entry.previous_ended_at,
        reason: entry.reason,
        request_id: entry.request_id.or(asked.request_id),
    }
}

/// A lock as its holder sees it, with the operator's reason; without its token while it is not in force
/// yet.
pub(super) fn own_lock(record: LockRecord, reason: Option<String>) -> serde_json::Value {
    let draining = record.ended.is_none() && record.grant.state == LockState::Draining;
    let lock = wire::Lock { reason, ..lock_record(record) };
    // INVARIANT: a struct of strings, numbers and lists always serializes.
    let mut lock = serde_json::to_value(lock).expect("a lock is JSON");
    if draining && let Some(lock) = lock.as_object_mut() {
        lock.remove("token");
    }
    lock
}

/// Without the token: operators will see it once there is access control.
pub(super) fn intent(intent: Intent, in_flight: Option<bool>) -> wire::IntentEntry {
    wire::IntentEntry {
        operation: intent.operation,
        resource: intent.resource.to_string(),
        owner: intent.owner,
        upstream: intent.upstream,
        method: intent.method,
        path: intent.path,
        opened_at: intent.opened_at,
        age_ms: intent.age_ms,
        gateway: intent.gateway,
        in_flight,
        closes_at: intent.closes_at,
    }
}

pub(super) fn doubt(doubt: Doubt) -> wire::DoubtEntry {
    wire::DoubtEntry {
        upstream: doubt.upstream,
        resource_prefix: doubt.resource_prefix,
        since: doubt.since,
        ends_at: doubt.ends_at,
    }
}
