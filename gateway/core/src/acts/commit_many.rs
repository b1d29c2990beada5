//! Commit of many: decide puts and deletes over several resources and apply them all, in one act.

use std::collections::BTreeMap;

use super::commit::{Claim, carry_out, judge_on, meets, store};
use super::rows::{Buried, Change, Now, Rows};
use crate::etag::EntityTag;
use crate::names::ResourceName;
use crate::ports::{Applied, Attempt, COMMIT_KIND, CommitItem, CommitVerdict, Did};

/// Decides a commit and applies all of it, or nothing (I3, I4, I6, I7, I8, I16).
///
/// The caller holds the locks of all fences. First that applies:
/// 0. The rules are others than those under which it was allowed: nothing is decided, unless all that is asked is
///    what became of it (I17).
/// 1. The operation is known: it took effect earlier, the answer was lost.
/// 2. The idempotency key is known on a resource; the first in name order decides: the original answer,
///    whatever became of the token since, or `KeyReused` for another payload; a rerun also buries its id,
///    since another operation took effect. Before a burial, as of a plain write.
/// 3. The operation is buried: `Buried`.
/// 4. A rerun of what may have been let go: `Forgotten`, as of a plain write. Else `Attempt::Bury`: the id is buried.
/// 5. On each resource in name order the rule, then its version; then in the order of the steps what
///    they demand of their objects: refused; a rerun also buries its id. All must be of one lock,
///    as the token of one lock is of no other (I15).
/// 6. A blob whose intent is gone: `UploadExpired`; a rerun also buries its id. Else all intents are
///    consumed.
/// 7. The effects of all steps. A resource on which anything changed takes one version, whatever the
///    number of steps; each resource gets an operation and the key.
pub fn commit_many(rows: &mut Rows, item: &CommitItem, now: Now) -> CommitVerdict {
    if item.attempt != Attempt::Bury && rows.rules_moved(&item.by) {
        return CommitVerdict::RulesMoved;
    }
    if let Some(applied) = rows.operations.get(&item.operation) {
        return CommitVerdict::Applied { applied: applied.clone(), replayed: false };
    }
    let is_buried = rows.buried.contains_key(&Buried::Operation(item.operation));
    if let Some(replay) = known_key(rows, item) {
        if item.attempt != Attempt::First && !is_buried {
            rows.bury(Buried::Operation(item.operation), now);
        }
        return replay;
    }
    if is_buried {
        return CommitVerdict::Buried;
    }
    if item.attempt != Attempt::First && rows.guard.time.has_let_go(item.taken_at) {
        return CommitVerdict::Forgotten;
    }
    if item.attempt == Attempt::Bury {
        rows.bury(Buried::Operation(item.operation), now);
        return CommitVerdict::Buried;
    }
    item.resources.iter().for_each(|at| rows.settle(&at.resource, now));
    if let Some(refused) = refused(rows, item, now) {
        if item.attempt == Attempt::Rerun {
            rows.bury(Buried::Operation(item.operation), now);
        }
        return refused;
    }
    for blob in item.steps.iter().filter_map(|step| step.effect.blob()) {
        rows.intents.remove(&blob);
        rows.journal.insert(Change::Intent(blob));
    }
    CommitVerdict::Applied { applied: apply(rows, item, now), replayed: false }
}

/// Step 2.
fn known_key(rows: &Rows, item: &CommitItem) -> Option<CommitVerdict> {
    let wanted = item.idempotency.as_ref()?;
    let known = |name: &ResourceName| rows.keys.get(&(name.clone(), wanted.key.clone()));
    let mut names = item.resources.iter().map(|at| &at.resource);
    let (resource, known) = names.find_map(|name| Some((name, known(name)?)))?;
    if known.fingerprint != wanted.fingerprint {
        let (first, resource) = (known.operation, resource.clone());
        return Some(CommitVerdict::KeyReused { first, resource });
    }
    let applied = rows.operations.get(&known.operation)?.clone();
    Some(CommitVerdict::Applied { applied, replayed: true })
}

/// Steps 5 and 6.
fn refused(rows: &Rows, item: &CommitItem, now: Now) -> Option<CommitVerdict> {
    // The first is judged without it; once it is admitted, its fence has the lock of this token.
    let mut lock = item.lock;
    for at in item.resources.iter() {
        let claim = Claim {
            resource: &at.resource,
            token: item.token,
            lock,
            sequence: item.sequence,
            version: at.version,
            by: &item.by,
        };
        if let Err(refusal) = judge_on(rows, &claim, now) {
            let resource = at.resource.clone();
            return Some(CommitVerdict::Refused { refusal, resource, step: None });
        }
        lock = lock.or_else(|| rows.fences.get(&at.resource).map(|fence| fence.lock));
    }
    for (step, it) in item.steps.iter().enumerate() {
        if let Err(refusal) = meets(rows, &it.resource, &it.effect, it.object_condition.as_ref()) {
            let resource = it.resource.clone();
            return Some(CommitVerdict::Refused { refusal, resource, step: Some(step) });
        }
    }
    let gone = |blob| !rows.intents.contains_key(&blob);
    let step = item.steps.iter().position(|step| step.effect.blob().is_some_and(gone))?;
    Some(CommitVerdict::UploadExpired { step })
}

/// What a commit does to one resource.
struct Part {
    tag: EntityTag,
    objects: i64,
    did: Vec<Did>,
}

/// Step 7.
fn apply(rows: &mut Rows, item: &CommitItem, now: Now) -> Vec<Applied> {
    let generation = rows.guard.generation;
    let part = |rows: &Rows, name: &ResourceName| {
        let (version, objects) = rows.fences.get(name).map_or((0, 0), |f| (f.version, f.objects));
        let tag = EntityTag { generation, version: version + 1 };
        (name.clone(), Part { tag, objects, did: Vec::new() })
    };
    let mut parts: BTreeMap<ResourceName, Part> =
        item.resources.iter().map(|at| part(rows, &at.resource)).collect();
    for step in item.steps.iter() {
        let Some(part) = parts.get_mut(&step.resource) else { continue };
        let done =
            carry_out(rows, &step.resource, &step.effect, (part.tag, &item.by), part.objects, now);
        part.objects = done.objects;
        part.did.push(match (done.created, step.effect.sha256().is_some(), done.changed) {
            (true, ..) => Did::Created,
            (_, true, _) => Did::Replaced,
            (_, _, true) => Did::Deleted,
            _ => Did::Nothing,
        });
    }
    let mut all = Vec::new();
    for (resource, part) in parts {
        let changed = part.did.iter().any(|did| *did != Did::Nothing);
        let mut owner = String::new();
        if let Some(fence) = rows.fences.get_mut(&resource) {
            owner.clone_from(&fence.owner);
            fence.objects = part.objects;
            fence.version = if changed { part.tag.version } else { fence.version };
            fence.last_sequence = item.sequence.unwrap_or(fence.last_sequence);
            rows.journal.insert(Change::Fence(resource.clone()));
        }
        let applied = Applied {
            operation: item.operation,
            resource,
            kind: COMMIT_KIND.to_owned(),
            key: None,
            version: changed.then_some(part.tag.version),
            generation,
            created: false,
            size: 0,
            sha256: None,
            owner,
            committed_at: rows.guard.time.stamp(now),
            did: part.did,
        };
        store(rows, &applied, item.idempotency.as_ref(), now);
        all.push(applied);
    }
    all
}
