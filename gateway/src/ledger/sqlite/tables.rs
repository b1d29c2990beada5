//! How the rows that acts change most are stored.

use fence_core::acts::{FenceRow, GrantRow, KeyRow, LockRow, ObjectRow};
use fence_core::ports::{Applied, COMMIT_KIND, Did};
use fence_core::rule::Hold;
use fence_core::{LockId, ObjectKey, PrincipalName, ResourceName, Token, WriterName};
use jiff::Timestamp;

use super::bulk::{Bulk, Script};
use super::load::json;
use super::versions::body;

/// Writers as a list; nothing for none.
fn writers(writers: &[WriterName]) -> Option<String> {
    (!writers.is_empty()).then(|| json(writers))
}

pub(super) const LOCKS: Bulk = Bulk {
    into: "locks (id, resources, token, owner, ttl_ms, acquired_at, ended, ended_at, hold_until,
                  metadata, fence, principal, writers, credential, credential_ends)",
    columns: 15,
    conflict: "ON CONFLICT (id) DO UPDATE
               SET token = excluded.token, ttl_ms = excluded.ttl_ms,
                   acquired_at = excluded.acquired_at, ended = excluded.ended,
                   ended_at = excluded.ended_at, hold_until = excluded.hold_until,
                   credential = excluded.credential, credential_ends = excluded.credential_ends",
};

pub(super) fn lock(script: &mut Script, (id, lock): &(&LockId, &LockRow)) {
    script
        .bind(id.to_string())
        .bind(serde_json::to_string(&lock.resources).unwrap_or_default())
        .bind(lock.token.get())
        .bind(&lock.owner)
        .bind(lock.ttl.as_ms())
        .bind(lock.acquired_at.as_microsecond())
        .bind(lock.ended.map(|(how, _)| how.as_str()))
        .bind(lock.ended.map(|(_, at)| at.as_microsecond()))
        .bind(lock.hold_until.map(|until| until.as_microsecond()))
        .bind(lock.metadata.to_json())
        .bind(lock.fence)
        .bind(lock.principal.as_ref().map(PrincipalName::as_str))
        .bind(writers(&lock.writers))
        .bind(lock.credential.as_ref().map(|it| it.name.as_str()))
        .bind(lock.credential.as_ref().and_then(|it| it.ends).map(Timestamp::as_microsecond));
}

pub(super) const GRANTS: Bulk = Bulk {
    into:
        "grants (resource, token, lock_id, owner, ordinal, superseded_by, superseded_at, principal,
                   writers)",
    columns: 9,
    conflict: "ON CONFLICT (resource, token) DO UPDATE
               SET superseded_by = excluded.superseded_by, superseded_at = excluded.superseded_at",
};

pub(super) fn grant(
    script: &mut Script,
    ((resource, token), grant): &(&(ResourceName, Token), &GrantRow),
) {
    script
        .bind(resource.as_str())
        .bind(token.get())
        .bind(grant.lock.to_string())
        .bind(&grant.owner)
        .bind(grant.ordinal)
        .bind(grant.by.map(|by| by.as_str()))
        .bind(grant.at.map(|at| at.as_microsecond()))
        .bind(grant.principal.as_ref().map(PrincipalName::as_str))
        .bind(writers(&grant.writers));
}

pub(super) const OPERATIONS: Bulk = Bulk {
    into: "operations (id, resource, version, kind, key, generation, created, size, sha256, owner,
                       committed_at, did)",
    columns: 12,
    conflict: "",
};

pub(super) fn operation(script: &mut Script, applied: &&Applied) {
    script
        .bind(applied.operation.to_string())
        .bind(applied.resource.as_str())
        .bind(applied.version)
        .bind(&applied.kind)
        .bind(applied.key.as_ref().map(ObjectKey::as_str))
        .bind(applied.generation)
        .bind(applied.created)
        .bind(applied.size)
        .bind(applied.sha256.as_ref().map(|digest| digest.as_slice()))
        .bind(&applied.owner)
        .bind(applied.committed_at.as_microsecond())
        .bind((applied.kind == COMMIT_KIND).then(|| Did::letters(&applied.did)));
}

pub(super) const KEYS: Bulk = Bulk {
    into: "idempotency_keys (resource, key, fingerprint, operation, stored_at, kept_until)",
    columns: 6,
    conflict: "",
};

pub(super) fn key(
    script: &mut Script,
    ((resource, key), row): &(&(ResourceName, String), &KeyRow),
) {
    script
        .bind(resource.as_str())
        .bind(key)
        .bind(row.fingerprint.as_slice())
        .bind(row.operation.to_string())
        .bind(row.at.as_microsecond())
        .bind(row.kept_until.map(|until| until.as_microsecond()));
}

pub(super) const OBJECTS: Bulk = Bulk {
    into:
        "objects (resource, key, version, generation, content_type, size, sha256, written_at, body,
                    blob, principal, about, parts)",
    columns: 13,
    conflict: "ON CONFLICT (resource, key) DO UPDATE
               SET version = excluded.version, generation = excluded.generation,
                   content_type = excluded.content_type, size = excluded.size,
                   sha256 = excluded.sha256, written_at = excluded.written_at,
                   body = excluded.body, blob = excluded.blob, principal = excluded.principal,
                   about = excluded.about, parts = excluded.parts",
};

pub(super) fn object(
    script: &mut Script,
    ((resource, key), ObjectRow { object, principal }): &(&(ResourceName, ObjectKey), &ObjectRow),
) {
    script
        .bind(resource.as_str())
        .bind(key.as_str())
        .bind(object.tag.version)
        .bind(object.tag.generation)
        .bind(&object.content_type)
        .bind(object.size)
        .bind(object.sha256.as_slice())
        .bind(object.written_at.as_microsecond())
        .bind(body(&object.payload))
        .bind(object.payload.blob().map(|blob| blob.to_string()))
        .bind(principal.as_ref().map(PrincipalName::as_str))
        .bind(object.about.as_deref())
        .bind(object.parts);
}

pub(super) const FENCES: Bulk = Bulk {
    into: "fences (resource, token, lock_id, owner, hold, ttl_ms, deadline_ms, acquired_at, renewed_at,
                   break_due, frozen, protected, version, last_seq, objects, grants, fence_order,
                   live_token, principal, writers, ended_at)",
    columns: 21,
    conflict: "ON CONFLICT (resource) DO UPDATE
               SET token = excluded.token, lock_id = excluded.lock_id, owner = excluded.owner,
                   hold = excluded.hold, ttl_ms = excluded.ttl_ms,
                   deadline_ms = excluded.deadline_ms, acquired_at = excluded.acquired_at,
                   renewed_at = excluded.renewed_at, break_due = excluded.break_due,
                   frozen = excluded.frozen, protected = excluded.protected,
                   version = excluded.version, last_seq = excluded.last_seq,
                   objects = excluded.objects, grants = excluded.grants,
                   fence_order = excluded.fence_order, live_token = excluded.live_token,
                   principal = excluded.principal, writers = excluded.writers,
                   ended_at = excluded.ended_at",
};

pub(super) fn fence(script: &mut Script, (resource, row): &(&ResourceName, &FenceRow)) {
    script
        .bind(resource.as_str())
        .bind(row.token.get())
        .bind(row.lock.to_string())
        .bind(&row.owner)
        .bind(match row.hold {
            Hold::Held => "held",
            Hold::Draining => "draining",
            Hold::Released => "released",
            Hold::Broken => "broken",
        })
        .bind(row.ttl.as_ms())
        .bind(row.deadline_ms)
        .bind(row.acquired_at.as_microsecond())
        .bind(row.renewed_at.as_microsecond())
        .bind(row.break_due.map(|due| due.as_microsecond()))
        .bind(&row.frozen)
        .bind(&row.protected)
        .bind(row.version)
        .bind(row.last_sequence)
        .bind(row.objects)
        .bind(row.grants)
        .bind(row.order)
        .bind(row.live_token)
        .bind(row.principal.as_ref().map(PrincipalName::as_str))
        .bind(writers(&row.writers))
        .bind(row.ended_at.map(|at| at.as_microsecond()));
}
