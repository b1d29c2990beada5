//! Renew, release and break: what happens to a lock after its grant.

use jiff::SignedDuration;

use super::extend::{Extension, NotRenewable, renewable, restart};
use super::rows::{Buried, Change, LockRow, Now, Rows};
use crate::lock::{LockEnd, LockId};
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{
    AuditAction, AuditEntry, BreakItem, BreakVerdict, Ended, ReleaseItem, ReleaseVerdict,
    RenewItem, RenewVerdict,
};
use crate::rule::Hold;

/// Starts the ttl of a lock again.
///
/// 0. The rules are others than those under which it was allowed: nothing is decided (I17).
/// 1. An id that is buried or unknown, of somebody else (I16), or of a fence without a lock: `Ended(Released)`,
///    `NotFound`.
/// 2. Ended, being broken, not in force yet, or held for as long as it may be: nothing is extended.
/// 3. Else the deadline starts again, also if it had passed: nobody took over, so exclusivity was
///    never broken. That of an infinite lock goes away.
pub fn renew(rows: &mut Rows, item: &RenewItem, now: Now) -> RenewVerdict {
    if rows.rules_moved(&item.by) {
        return RenewVerdict::RulesMoved;
    }
    if rows.buried.contains_key(&Buried::Lock(item.lock)) {
        return RenewVerdict::Ended(LockEnd::Released);
    }
    let is_foreign = |row: &LockRow| match mutants::is(Mutant::WritersMayRenew) {
        false => row.principal.as_ref() != item.by.principal(),
        true => !item.by.is_it_or_writer(row.principal.as_ref(), &row.writers),
    };
    if rows.locks.get(&item.lock).is_none_or(|row| row.fence || is_foreign(row)) {
        return RenewVerdict::NotFound;
    }
    let row = match renewable(rows, item.lock, now) {
        Ok(row) => row,
        Err(NotRenewable::Breaking) => return RenewVerdict::Breaking,
        Err(NotRenewable::Draining) => return RenewVerdict::Draining,
        Err(NotRenewable::HoldExceeded) => return RenewVerdict::HoldExceeded,
        Err(NotRenewable::Ended(how)) => return RenewVerdict::Ended(how),
    };
    let left = rows.lock_record(item.lock, now).map_or(0, |record| record.grant.remaining_ms);
    let credential = item.by.credential();
    let ttl = item.ttl.unwrap_or(row.ttl);
    restart(rows, item.lock, &Extension { ttl, confirms: true, credential }, now);
    match rows.lock_record(item.lock, now) {
        Some(record) => {
            RenewVerdict::Renewed { grant: record.grant, lapsed_ms: (left <= 0).then_some(-left) }
        }
        None => RenewVerdict::NotFound,
    }
}

/// Ends a lock at its holder's wish, on all of its resources.
///
/// 0. The rules are others than those under which it was allowed: nothing is decided (I17). To others than its
///    principal an id is not known (I16).
/// 1. An id that waits in the queue leaves it, and is buried. An unknown one is buried, so that a grant on
///    its way under it can never be sealed, unless it must not be: `Unknown` then.
/// 2. A lock that has ended stays as it is; if it ended on some of its resources only, it is given back
///    on the others.
/// 3. One that was renewed since stays too, if that was the condition. Compared for being the same
///    time, not a later one: a clock that was set back between makes no renewal older than its grant.
/// 4. Else its token is refused from now on, also while it was being broken or had expired.
pub fn release(rows: &mut Rows, item: &ReleaseItem, now: Now) -> ReleaseVerdict {
    if rows.rules_moved(&item.by) {
        return ReleaseVerdict::RulesMoved;
    }
    let id = item.lock;
    let of_lock = rows.locks.get(&id).map(|row| &row.principal);
    let whose = of_lock.or_else(|| rows.queue.get(id).map(|waiter| &waiter.principal));
    if whose.is_some_and(|principal| principal.as_ref() != item.by.principal()) {
        return ReleaseVerdict::NotFound;
    }
    let Some(row) = rows.locks.get(&id).cloned() else {
        let left = rows.queue.leave(id).map(|waiter| waiter.resources);
        let is_known = left.is_some() || rows.buried.contains_key(&Buried::Lock(id));
        if !is_known && !item.may_bury {
            return ReleaseVerdict::Unknown;
        }
        rows.bury(Buried::Lock(id), now);
        return left.map_or(ReleaseVerdict::Buried, ReleaseVerdict::Left);
    };
    for resource in &row.resources {
        rows.settle(resource, now);
    }
    match rows.lock_record(id, now) {
        Some(record) if record.ended.is_none() => {
            if item.unless_renewed_since.is_some_and(|since| record.renewed_at != since) {
                return ReleaseVerdict::Kept;
            }
            rows.end_lock(id, LockEnd::Released, now);
        }
        // Ended on one of its resources; on the others its token is still good.
        Some(record)
            if matches!(record.ended, Some((LockEnd::Superseded | LockEnd::Broken, _)))
                && row.resources.iter().any(|name| is_held_by(rows, name, id)) => {}
        _ => return ReleaseVerdict::AlreadyEnded,
    }
    let number = row.token.get() - rows.guard.base;
    let mut held_ms = 0;
    let mut traces = Vec::new();
    let waited_for = row.resources.iter().any(|name| rows.queue.length(name) > 0);
    for resource in row.resources {
        let Some(fence) = rows.fences.get_mut(&resource) else { continue };
        if fence.lock == id && fence.hold.stands() {
            fence.hold = Hold::Released;
            fence.break_due = None;
            fence.ended_at = Some(now.wall);
            held_ms = fence.held_ms(now);
            rows.journal.insert(Change::Fence(resource.clone()));
            traces.push(Ended { resource, number });
        }
    }
    ReleaseVerdict::Released { held_ms, ended: traces, waited_for }
}

fn is_held_by(rows: &Rows, resource: &ResourceName, id: LockId) -> bool {
    rows.fences.get(resource).is_some_and(|fence| fence.lock == id && fence.hold.stands())
}

/// Ends the lock of a resource at an operator's wish, now or soon. An earlier break that has come due is stored first,
/// whatever the verdict.
///
/// 0. The rules are others than those under which it was allowed: nothing is decided (I17).
/// 1. No fence, nobody holds it, or not under this token any more: nothing to break.
/// 2. Broken before: the same answer again, and an entry in the audit.
/// 3. Due at the earliest of the due time stored before, `after` from now, and the deadline: a
///    second break can shorten, never extend. Not ahead: broken now. Else stored; whoever acts on
///    the row after it, or the sweeper, carries it out. The audit keeps it, unless nothing was
///    shortened: deadlines count in milliseconds, so less than one is nothing.
pub fn break_lock(rows: &mut Rows, item: &BreakItem, now: Now) -> BreakVerdict {
    rows.settle(&item.resource, now);
    if rows.rules_moved(&item.by) {
        return BreakVerdict::RulesMoved;
    }
    let number_base = rows.guard.base;
    let Some(fence) = rows.fences.get_mut(&item.resource) else {
        return BreakVerdict::NoFence;
    };
    if fence.token != item.token {
        return BreakVerdict::NotHeld;
    }
    let entry = AuditEntry {
        owner: Some(fence.owner.clone()),
        token: Some(fence.token),
        reason: Some(item.reason.clone()),
        request_id: Some(item.request_id.clone()),
        asked: item.by.asked(),
        ..AuditEntry::about(&item.resource, AuditAction::Break, now.wall)
    };
    match fence.hold {
        Hold::Released => return BreakVerdict::NotHeld,
        Hold::Broken => {
            rows.audit(entry);
            return BreakVerdict::Broken { held_ms: None, ended: None };
        }
        Hold::Held | Hold::Draining => {}
    }
    let after_ms = i64::try_from(item.after.as_millis()).unwrap_or(i64::MAX);
    let wait_ms = after_ms.min(fence.remaining_ms(now)).max(0);
    let asked = now.wall.checked_add(SignedDuration::from_millis(wait_ms)).unwrap_or(now.wall);
    let due = fence.break_due.map_or(asked, |stored| stored.min(asked));
    let shortened = fence.break_due.is_none_or(|stored| {
        due <= now.wall || stored.duration_since(due) >= SignedDuration::from_millis(1)
    });
    fence.break_due = Some(due);
    let lock = fence.lock;
    let verdict = if due <= now.wall {
        fence.hold = Hold::Broken;
        fence.ended_at = Some(now.wall);
        let trace =
            Ended { resource: item.resource.clone(), number: fence.token.get() - number_base };
        BreakVerdict::Broken { held_ms: Some(fence.held_ms(now)), ended: Some(trace) }
    } else {
        BreakVerdict::Breaking { due_ms: super::rows::millis_between(now.wall, due) }
    };
    rows.journal.insert(Change::Fence(item.resource.clone()));
    if shortened {
        rows.audit(entry);
    }
    if matches!(verdict, BreakVerdict::Broken { .. }) {
        rows.end_lock(lock, LockEnd::Broken, now);
    }
    verdict
}

/// Stores a break that has come due although nobody has acted on the resource since.
pub fn sweep_break(rows: &mut Rows, resource: &ResourceName, now: Now) {
    rows.settle(resource, now);
}
