//! Commit: decide a write and apply it, in one act.

use std::sync::Arc;

use super::mutated;
use super::rows::{Buried, Change, KeyRow, Now, ObjectRow, Rows};
use crate::etag::{EntityTag, ObjectCondition};
use crate::lock::LockId;
use crate::mutants::{self, Mutant};
use crate::names::{ObjectKey, ResourceName};
use crate::ports::{
    Applied, Attempt, BlobId, By, Effect, IdempotencyKey, Object, WriteItem, WriteVerdict,
};
use crate::rule::{DELETE_OBJECTS_MAX, Presented, Refusal, judge};
use crate::token::Token;

/// Decides one write and applies it if it is admitted (I3, I4, I6, I7, I8, I16).
///
/// The caller holds the fence's lock. First that applies:
/// 0. The rules are others than those under which it was allowed: nothing is decided, unless all that is asked is
///    what became of it (I17).
/// 1. The operation is known: it took effect earlier, the answer was lost.
/// 2. The idempotency key is known: its original answer, whatever became of the token since, or
///    `KeyReused` for another payload; a rerun also buries its id, since another operation took effect. Before a burial:
///    of a key that had its effect no caller is told that there was none.
/// 3. The operation is buried: `Buried`.
/// 4. A rerun of what was taken before the time up to which the ledger has let go of operations and burials: `Forgotten`, for
///    it may have taken effect. Else `Attempt::Bury`: the id is buried.
/// 5. The rule, then preconditions: refused; a rerun also buries its id.
/// 6. A blob whose intent is gone: `UploadExpired`; an upload that has not all the parts that it is to have: `PartsDiffer`;
///    a rerun also buries its id. Else the intent is consumed. The sweeper takes intents by the same row, so the blob is
///    not garbage, nor ever will be while an object points at it; nor are its parts (I19), but for those not named.
/// 7. The effect, the operation and the key are stored, and the version rises by one. A delete of
///    nothing takes no version, but stores its operation and key: else its retry would delete the
///    successor's object.
pub fn commit(rows: &mut Rows, item: &WriteItem, now: Now) -> WriteVerdict {
    if item.attempt != Attempt::Bury && rows.rules_moved(&item.by) {
        return WriteVerdict::RulesMoved;
    }
    if let Some(applied) = rows.operation(item.operation, &item.resource) {
        return WriteVerdict::Applied { applied: applied.clone(), replayed: false };
    }
    let buried = rows.buried.contains_key(&Buried::Operation(item.operation));
    if let Some(replay) = known_key(rows, item) {
        if item.attempt != Attempt::First && !buried {
            rows.bury(Buried::Operation(item.operation), now);
        }
        return replay;
    }
    if buried && !mutants::is(Mutant::NoBurial) {
        return WriteVerdict::Buried;
    }
    if item.attempt != Attempt::First && rows.guard.time.has_let_go(item.taken_at) {
        return WriteVerdict::Forgotten;
    }
    if let Some(instead) = mutated::instead_of_commit(rows, item) {
        return instead;
    }
    if item.attempt == Attempt::Bury {
        rows.bury(Buried::Operation(item.operation), now);
        return WriteVerdict::Buried;
    }
    rows.settle(&item.resource, now);
    let judged = match item.effect.parts().is_some() && mutants::is(Mutant::CompleteUnjudged) {
        true => Ok(()),
        false => admit(rows, item, now),
    };
    if let Err(refusal) = judged {
        if item.attempt == Attempt::Rerun {
            rows.bury(Buried::Operation(item.operation), now);
        }
        mutated::refused(item, &refusal);
        return WriteVerdict::Refused(refusal);
    }
    if let Some(blob) = item.effect.blob()
        && let Some(lost) = take_upload(rows, blob, item.effect.parts())
    {
        if item.attempt == Attempt::Rerun {
            rows.bury(Buried::Operation(item.operation), now);
        }
        return lost;
    }
    WriteVerdict::Applied { applied: apply(rows, item, now), replayed: false }
}

/// Step 6: why the upload is not the object's, or nothing.
fn take_upload(rows: &mut Rows, blob: BlobId, named: Option<&[BlobId]>) -> Option<WriteVerdict> {
    let is_there = rows.intents.contains_key(&blob);
    if !is_there && !mutants::is(Mutant::CommitWithoutIntent) {
        return Some(WriteVerdict::UploadExpired);
    }
    if let Some(named) = named
        && !rows.complete(blob, named)
    {
        return Some(WriteVerdict::PartsDiffer);
    }
    if named.is_none() || !mutants::is(Mutant::UploadNotConsumed) {
        rows.intents.remove(&blob);
    }
    rows.journal.insert(Change::Intent(blob));
    None
}

/// Step 2.
fn known_key(rows: &Rows, item: &WriteItem) -> Option<WriteVerdict> {
    let wanted = item.idempotency.as_ref()?;
    let known = rows.keys.get(&(item.resource.clone(), wanted.key.clone()))?;
    if mutants::is(Mutant::NoReplay) {
        return None;
    }
    if known.fingerprint != wanted.fingerprint && !mutants::is(Mutant::AnyPayload) {
        return Some(WriteVerdict::KeyReused { first: known.operation });
    }
    let applied = rows.operation(known.operation, &item.resource)?.clone();
    Some(WriteVerdict::Applied { applied, replayed: true })
}

/// Step 5.
fn admit(rows: &Rows, item: &WriteItem, now: Now) -> Result<(), Refusal> {
    let claim = Claim {
        resource: &item.resource,
        token: item.token,
        lock: item.lock,
        sequence: item.sequence,
        version: item.resource_version,
        by: &item.by,
    };
    judge_on(rows, &claim, now)?;
    meets(rows, &item.resource, &item.effect, item.object_condition.as_ref())
}

/// What a writer presents and demands of a resource.
pub(super) struct Claim<'a> {
    pub(super) resource: &'a ResourceName,
    pub(super) token: Token,
    pub(super) lock: Option<LockId>,
    pub(super) sequence: Option<i64>,
    pub(super) version: Option<i64>,
    pub(super) by: &'a By,
}

/// The rule, then the version of the resource.
pub(super) fn judge_on(rows: &Rows, claim: &Claim<'_>, now: Now) -> Result<(), Refusal> {
    let fence = rows.fences.get(claim.resource);
    let facts = fence.map(|fence| fence.facts(claim.by, now));
    let old = rows.old_grant(claim.resource, claim.token, claim.by);
    let presented = Presented { token: claim.token, lock: claim.lock, sequence: claim.sequence };
    judge(rows.guard.floor, facts.as_ref(), old.as_ref(), &presented)?;
    let Some(fence) = fence else { return Err(Refusal::Unknown) };
    let differs = claim.version.is_some_and(|expected| expected != fence.version);
    match differs && !mutants::is(Mutant::NoPrecondition) {
        true => Err(Refusal::VersionMismatch),
        false => Ok(()),
    }
}

/// What an effect demands of what it changes.
pub(super) fn meets(
    rows: &Rows,
    resource: &ResourceName,
    effect: &Effect,
    condition: Option<&ObjectCondition>,
) -> Result<(), Refusal> {
    if let (Some(condition), Some(key)) = (condition, effect.key())
        && !condition.holds(rows.tag(resource, key))
    {
        return Err(Refusal::VersionMismatch);
    }
    match (effect, rows.fences.get(resource)) {
        (Effect::DeleteAll, Some(fence)) if fence.protected.is_some() => Err(Refusal::Protected),
        (Effect::DeleteAll, Some(fence)) if fence.objects > DELETE_OBJECTS_MAX => {
            Err(Refusal::TooManyObjects)
        }
        _ => Ok(()),
    }
}

/// Step 7.
fn apply(rows: &mut Rows, item: &WriteItem, now: Now) -> Applied {
    let generation = rows.guard.generation;
    let before = rows.fences.get(&item.resource).cloned();
    let (version, objects) = before.as_ref().map_or((0, 0), |f| (f.version, f.objects));
    let owner = before.map(|fence| fence.owner).unwrap_or_default();
    let tag = EntityTag { generation, version: version + 1 };
    let done = carry_out(rows, &item.resource, &item.effect, (tag, &item.by), objects, now);

    if let Some(fence) = rows.fences.get_mut(&item.resource) {
        fence.objects = done.objects;
        fence.version = if done.changed { tag.version } else { version };
        fence.last_sequence = item.sequence.unwrap_or(fence.last_sequence);
        rows.journal.insert(Change::Fence(item.resource.clone()));
    }
    let applied = Applied {
        operation: item.operation,
        resource: item.resource.clone(),
        kind: item.effect.word().to_owned(),
        key: item.effect.key().cloned(),
        version: done.changed.then_some(tag.version),
        generation,
        created: done.created,
        size: done.size,
        sha256: item.effect.sha256(),
        owner,
        committed_at: rows.guard.time.stamp(now),
        did: Vec::new(),
    };
    store(rows, &applied, item.idempotency.as_ref(), now);
    applied
}

/// Stores an operation on its resource, its event and its key.
pub(super) fn store(
    rows: &mut Rows,
    applied: &Applied,
    idempotency: Option<&IdempotencyKey>,
    now: Now,
) {
    let (operation, resource) = (applied.operation, &applied.resource);
    rows.operations.entry(operation).or_default().push(applied.clone());
    if applied.version.is_some() {
        rows.written.push((operation, resource.clone()));
    }
    rows.journal.insert(Change::Operation(operation));
    if let Some(key) = idempotency {
        let at = rows.guard.time.stamp(now);
        // A time beyond all times is as good as none.
        let kept_until = key.kept.and_then(|kept| at.checked_add(kept).ok());
        rows.keys.insert(
            (resource.clone(), key.key.clone()),
            KeyRow { fingerprint: key.fingerprint, operation, at, kept_until },
        );
        rows.journal.insert(Change::Key(resource.clone(), key.key.clone()));
    }
}

/// What an effect did.
pub(super) struct Done {
    pub(super) changed: bool,
    pub(super) created: bool,
    pub(super) objects: i64,
    pub(super) size: i64,
}

/// Changes the objects of a resource that has so many of them; what it puts carries this tag, and is whose it says.
pub(super) fn carry_out(
    rows: &mut Rows,
    resource: &ResourceName,
    effect: &Effect,
    (tag, by): (EntityTag, &By),
    objects: i64,
    now: Now,
) -> Done {
    match effect {
        Effect::Put { key, content_type, payload, size, sha256, about, parts } => {
            let count = |parts: &Arc<[BlobId]>| i32::try_from(parts.len()).unwrap_or(i32::MAX);
            let object = Object {
                key: key.clone(),
                tag,
                content_type: content_type.clone(),
                size: *size,
                sha256: *sha256,
                written_at: rows.guard.time.stamp(now),
                about: about.clone(),
                parts: parts.as_ref().map(count),
                payload: payload.clone(),
            };
            let at = (resource.clone(), key.clone());
            let object = mutated::put(rows, &at, object);
            let before =
                rows.objects.insert(at, ObjectRow { object, principal: by.principal().cloned() });
            let created = before.is_none();
            if let Some(before) = before {
                rows.replaced(resource, before.object, now);
            }
            rows.journal.insert(Change::Object(resource.clone(), key.clone()));
            Done { changed: true, created, objects: objects + i64::from(created), size: *size }
        }
        Effect::Delete { key } => {
            let before = rows.objects.remove(&(resource.clone(), ObjectKey::clone(key)));
            let found = before.is_some();
            if let Some(before) = before {
                rows.replaced(resource, before.object, now);
                rows.journal.insert(Change::Object(resource.clone(), key.clone()));
            }
            gone(found, objects - i64::from(found))
        }
        Effect::DeleteAll => {
            let of_it = |(name, _): &(ResourceName, ObjectKey), _: &mut ObjectRow| name == resource;
            let removed: Vec<_> = rows.objects.extract_if(.., of_it).collect();
            for (_, before) in removed {
                rows.replaced(resource, before.object, now);
            }
            rows.journal.insert(Change::Wiped(resource.clone()));
            gone(objects > 0, 0)
        }
    }
}

fn gone(changed: bool, objects: i64) -> Done {
    Done { changed, created: false, objects, size: 0 }
}
