//! Upstreams: who was let through to a drained one, and when the next lock may be in force.

use jiff::Timestamp;

use super::extend::{Extension, NotRenewable, renewable, restart};
use super::forwards::{ForwardRow, UpstreamRow};
use super::now::later;
use super::rows::{Buried, Change, Now, Rows};
use crate::lock::{LockId, OperationId};
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{
    Attempt, AuditAction, AuditEntry, CloseItem, Doubt, DrainedUpstream, ForwardEnd, IntentEnd,
    IntentItem, IntentVerdict, LedgerError, Resolution, Resolved,
};
use crate::rule::{Hold, Presented, Refusal, judge};

/// Records an upstream. One that is new to a ledger which was ever re-fenced is in doubt: an earlier
/// record of it, and its intents, may have been lost.
pub fn register(rows: &mut Rows, upstream: &DrainedUpstream, now: Now) {
    let at = (upstream.name.clone(), upstream.resource_prefix.clone());
    let floor = rows.guard.floor;
    let doubt = (rows.guard.generation > 0).then_some((floor, now.wall));
    let row = rows
        .upstreams
        .entry(at.clone())
        .or_insert(UpstreamRow { max_effect_delay_ms: None, doubt });
    let delay = upstream.max_effect_delay;
    row.max_effect_delay_ms =
        delay.map(|delay| i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
    rows.journal.insert(Change::Upstream(at.0, at.1));
}

/// A re-fence has raised the floor to this: intents of every upstream may have been lost.
pub fn doubt<'a>(upstreams: impl Iterator<Item = &'a mut UpstreamRow>, floor: i64, at: Timestamp) {
    if mutants::is(Mutant::NoDoubts) {
        return;
    }
    upstreams.for_each(|row| row.doubt = Some((floor, at)));
}

/// Decides whether a request may be forwarded; of a drained upstream the intent is stored (I13).
///
/// The caller holds the fence's lock. A break that has come due is stored first, whatever the verdict.
/// First that applies:
/// 0. The rules are others than those under which it was allowed: nothing is decided, unless all that is asked is
///    what became of it (I17).
/// 1. The intent is there: it was admitted earlier, the answer was lost. `Attempt::Bury`: closed as not
///    sent, since only an answer that arrived is forwarded. Counts as closed: closed as such, since a
///    later sending than this one may have been forwarded. Closed: `Buried`.
/// 2. The operation is buried: `Buried`.
/// 3. `Attempt::Bury`: the id is buried.
/// 4. The rule, then the version of the resource: refused; a rerun also buries its id. Of one that leaves
///    no intent, a sequence number that is used up may have been so by its first sending: `Buried`.
/// 5. The intent and the sequence number are stored. No version, no operation.
///
/// Of one that leaves no intent no id is buried: a sending that comes late would bury what a later one
/// has forwarded.
pub fn open_intent(rows: &mut Rows, item: &IntentItem, now: Now) -> IntentVerdict {
    rows.settle(&item.resource, now);
    if item.attempt != Attempt::Bury && rows.rules_moved(&item.by) {
        return IntentVerdict::RulesMoved;
    }
    let buried = Buried::Operation(item.operation);
    let own = rows.guard.time.at;
    if let Some(intent) = rows.forwards.get_mut(&item.operation) {
        if item.attempt != Attempt::Bury && intent.is_open(now) {
            return IntentVerdict::Admitted;
        }
        match item.attempt {
            Attempt::Bury => intent.close_known(ForwardEnd::Unsent, own, now),
            Attempt::First | Attempt::Rerun => {
                intent.close_unseen(IntentEnd::Elapsed, own, now);
            }
        }
        rows.journal.insert(Change::Forward(item.operation));
        return IntentVerdict::Buried;
    }
    if rows.buried.contains_key(&buried) {
        return IntentVerdict::Buried;
    }
    if item.attempt == Attempt::Bury {
        if item.drained {
            rows.bury(buried, now);
        }
        return IntentVerdict::Buried;
    }
    if let Err(refusal) = admit(rows, item, now) {
        if item.attempt != Attempt::First && item.drained {
            rows.bury(buried, now);
        }
        return match refusal {
            Refusal::SequenceOutOfOrder if item.attempt != Attempt::First && !item.drained => {
                IntentVerdict::Buried
            }
            refusal => IntentVerdict::Refused(refusal),
        };
    }
    let Some(fence) = rows.fences.get_mut(&item.resource) else {
        return IntentVerdict::Refused(Refusal::Unknown);
    };
    if let Some(sequence) = item.sequence {
        fence.last_sequence = sequence;
        rows.journal.insert(Change::Fence(item.resource.clone()));
    }
    if item.drained {
        let intent = ForwardRow {
            resource: item.resource.clone(),
            token: item.token,
            owner: fence.owner.clone(),
            upstream: item.upstream.clone(),
            method: item.method.clone(),
            path: item.path.clone(),
            gateway: item.gateway,
            opened_at: now.wall,
            closes_at: item
                .max_effect_delay
                .map(|delay| later(now.wall, i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))),
            closed: None,
        };
        rows.forwards.insert(item.operation, intent);
        rows.journal.insert(Change::Forward(item.operation));
    }
    IntentVerdict::Admitted
}

/// Step 4.
fn admit(rows: &Rows, item: &IntentItem, now: Now) -> Result<(), Refusal> {
    let fence = rows.fences.get(&item.resource);
    let facts = fence.map(|fence| fence.facts(&item.by, now));
    let old = rows.old_grant(&item.resource, item.token, &item.by);
    let presented = Presented { token: item.token, lock: item.lock, sequence: item.sequence };
    judge(rows.guard.floor, facts.as_ref(), old.as_ref(), &presented)?;
    let version = fence.map(|fence| fence.version);
    if item.resource_version.is_some_and(|expected| version != Some(expected)) {
        return Err(Refusal::VersionMismatch);
    }
    Ok(())
}

/// Closes an intent and keeps what came of it; so a sending that comes late does not open it anew. Returns
/// its resource if a lock waits for that.
pub fn close_intent(rows: &mut Rows, item: &CloseItem, now: Now) -> Option<ResourceName> {
    let own = rows.guard.time.at;
    let intent = rows.forwards.get_mut(&item.operation)?;
    intent.close_known(item.end, own, now);
    rows.journal.insert(Change::Forward(item.operation));
    let waits = rows.fences.get(&intent.resource).is_some_and(|f| f.hold == Hold::Draining);
    waits.then(|| intent.resource.clone())
}

/// The first of these resources on which something of older tokens is under way, or may be: all open
/// intents there are of older tokens, since none is opened under one that is not in force.
pub(super) fn drains(rows: &Rows, names: &[ResourceName], now: Now) -> Option<ResourceName> {
    if mutants::is(Mutant::NoDraining) {
        return None;
    }
    let doubts: Vec<Doubt> = rows
        .upstreams
        .iter()
        .filter_map(|((name, prefix), row)| row.show(name, prefix, now))
        .collect();
    let drains = |name: &&ResourceName| {
        let live = rows.fences.get(name).map_or(0, |fence| fence.live_token);
        let in_doubt = doubts
            .iter()
            .any(|one| name.as_str().starts_with(&one.resource_prefix) && live <= one.floor);
        in_doubt || rows.forwards.values().any(|row| row.resource == **name && row.is_open(now))
    };
    names.iter().find(drains).cloned()
}

/// Puts a lock in force that was sealed as draining: its time begins now.
pub(super) fn complete(rows: &mut Rows, id: LockId, now: Now) {
    let Some(lock) = rows.locks.get_mut(&id) else { return };
    // Its longest hold begins now, too.
    let waited = now.wall.duration_since(lock.acquired_at);
    lock.hold_until = lock.hold_until.map(|at| at.checked_add(waited).unwrap_or(Timestamp::MAX));
    lock.acquired_at = now.wall;
    let (resources, ttl) = (lock.resources.clone(), lock.ttl);
    for resource in &resources {
        if let Some(fence) = rows.fences.get_mut(resource)
            && fence.lock == id
            && fence.hold == Hold::Draining
        {
            fence.hold = Hold::Held;
            fence.live_token = fence.token.get();
            fence.acquired_at = now.wall;
        }
    }
    restart(rows, id, &Extension { ttl, confirms: false, credential: None }, now);
}

/// Puts locks on these resources in force for which nothing of older tokens is under way any more.
/// Those that have expired meanwhile are left to their callers, if they still come. Returns them.
pub fn complete_drains(rows: &mut Rows, names: &[ResourceName], now: Now) -> Vec<LockId> {
    let mut locks: Vec<LockId> = Vec::new();
    for name in names {
        let draining = rows.fences.get(name).filter(|fence| fence.hold == Hold::Draining);
        locks.extend(draining.map(|fence| fence.lock));
    }
    locks.sort_unstable();
    locks.dedup();
    locks.retain(|id| {
        let Some(resources) = rows.locks.get(id).map(|row| row.resources.clone()) else {
            return false;
        };
        let stands = matches!(renewable(rows, *id, now), Err(NotRenewable::Draining));
        let expired = resources
            .iter()
            .filter_map(|name| rows.fences.get(name))
            .any(|fence| fence.lock == *id && fence.deadline_ms <= now.elapsed_ms);
        let completes = stands && !expired && drains(rows, &resources, now).is_none();
        if completes {
            complete(rows, *id, now);
        }
        completes
    });
    locks
}

/// Closes intents that count as closed, so that no clock step opens them again. Says how many.
pub fn sweep_intents(rows: &mut Rows, now: Now) -> usize {
    let mut over = 0;
    let own = rows.guard.time.at;
    for (id, row) in &mut rows.forwards {
        if !row.is_open(now) && row.close_unseen(IntentEnd::Elapsed, own, now) {
            rows.journal.insert(Change::Forward(*id));
            over += 1;
        }
    }
    over
}

/// Closes an intent at an operator's wish. What came of it the operator does not know, so nothing is said
/// of that.
pub fn resolve_intent(
    rows: &mut Rows,
    id: OperationId,
    resolution: &Resolution,
    now: Now,
) -> Result<Resolved, LedgerError> {
    if rows.rules_moved(&resolution.by) {
        return Err(LedgerError::RulesMoved);
    }
    let own = rows.guard.time.at;
    let Some(intent) = rows.forwards.get_mut(&id) else {
        return match rows.buried.contains_key(&Buried::Operation(id)) {
            true => Ok(Resolved::Before),
            false => Ok(Resolved::NotFound),
        };
    };
    if !intent.close_unseen(IntentEnd::Resolved(resolution.reason.clone()), own, now) {
        return Ok(Resolved::Before);
    }
    let intent = intent.clone();
    rows.journal.insert(Change::Forward(id));
    rows.audit(AuditEntry {
        owner: Some(intent.owner),
        token: Some(intent.token),
        ..resolved(AuditEntry::about(&intent.resource, AuditAction::Resolve, now.wall), resolution)
    });
    Ok(Resolved::Now(intent.resource))
}

fn resolved(entry: AuditEntry, resolution: &Resolution) -> AuditEntry {
    AuditEntry {
        reason: Some(resolution.reason.clone()),
        request_id: Some(resolution.request_id.clone()),
        asked: resolution.by.asked(),
        ..entry
    }
}

/// Ends the doubts of an upstream at an operator's wish. Returns how many there were; `None` if no
/// upstream of this name was ever registered.
pub fn resolve_doubts(
    rows: &mut Rows,
    upstream: &str,
    resolution: &Resolution,
    now: Now,
) -> Result<Option<i64>, LedgerError> {
    if rows.rules_moved(&resolution.by) {
        return Err(LedgerError::RulesMoved);
    }
    let mut known = false;
    let mut ended = 0;
    for ((name, prefix), row) in rows.upstreams.iter_mut().filter(|((n, _), _)| n == upstream) {
        known = true;
        if row.doubt.take().is_some() {
            ended += 1;
            rows.journal.insert(Change::Upstream(name.clone(), prefix.clone()));
        }
    }
    if ended > 0 {
        rows.audit(resolved(AuditEntry::of_ledger(AuditAction::Resolve, now.wall), resolution));
    }
    Ok(known.then_some(ended))
}
