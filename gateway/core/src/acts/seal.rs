//! Seal: raise fences to a newly minted token and record the holder, in one act.

use super::extend::{Extension, NotRenewable, renewable, restart};
use super::mutated;
use super::queue::{is_ahead, is_other_waiter};
use super::rows::{Buried, Change, FenceRow, GrantRow, LockRow, Now, Rows};
use super::upstreams::{complete, drains};
use crate::lock::{LockEnd, LockId, Supersession, Ttl};
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{
    Attempt, AuditAction, AuditEntry, GrantEntry, SealItem, SealKind, SealVerdict, TakenOver,
    writers_text,
};
use crate::rule::Hold;
use crate::token::Token;

/// Seals one lock on all of its resources, or on none (I2, I5).
///
/// The caller holds the fences' locks and has checked the epoch. Breaks that have come due are stored
/// first, whatever the verdict.
/// 0. The rules are others than those under which it was allowed: nothing is decided, unless all that is asked is
///    what became of it (I17). The id of a lock of which the caller is not told is in use: `Conflict` (I16).
/// 1. A buried id was given up: `Ended(Released)`.
/// 2. A known id, unless it is of a fence that a re-fence voided, is this caller's retry or re-entry:
///    `Again`, `Ended`, `Conflict`, `Breaking` or `HoldExceeded`; `Drains` or `Draining` if it is not in
///    force yet. Its ttl becomes what the caller says, or stays, and starts again. One that is unknown
///    and no longer wanted is buried.
/// 3. A lock that is to hand over: unknown, of somebody else, on other resources, ended, being broken, not in force yet,
///    or held for as long as it may be.
/// 4. For each resource: frozen, held by another (unless by force), the order not above the last one,
///    somebody ahead in the queue (of a lock), number not above the fence or another grant's already
///    (I15), something of older tokens under way at an upstream unless the caller waits. The first that
///    applies decides, and nothing is sealed.
/// 5. For each resource: what held it before is superseded; the fence rises; the grant is recorded. With
///    something of older tokens under way on any of them, the lock is in force on none.
///
/// A rerun that is refused in step 3 or 4 buries its id: the first sending may still be waiting for its
/// row lock, and must find that. Not while the id waits in the queue: a grant is still wanted then.
pub fn seal(rows: &mut Rows, item: &SealItem, now: Now) -> SealVerdict {
    if item.attempt != Attempt::Bury && rows.rules_moved(&item.by) {
        return SealVerdict::RulesMoved;
    }
    for resource in &item.resources {
        rows.settle(resource, now);
    }
    if rows.locks.get(&item.lock).is_some_and(|row| !is_told_of(rows, item, row)) {
        return SealVerdict::Conflict;
    }
    if rows.buried.contains_key(&Buried::Lock(item.lock)) {
        return SealVerdict::Ended(LockEnd::Released);
    }
    if rows.locks.contains_key(&item.lock) && !is_void_fence(rows, item) {
        return reenter(rows, item, now);
    }
    if is_other_waiter(rows, item) {
        return SealVerdict::Conflict;
    }
    if item.attempt == Attempt::Bury {
        rows.queue.leave(item.lock);
        rows.bury(Buried::Lock(item.lock), now);
        return SealVerdict::Ended(LockEnd::Released);
    }
    if let Some(refused) = item.from().and_then(|from| not_handed_over(rows, item, from, now)) {
        if item.attempt != Attempt::First {
            rows.bury(Buried::Lock(item.lock), now);
        }
        return refused;
    }
    let token = item.number.and_then(|number| Token::new(rows.guard.base.checked_add(number)?));
    if let Some(refused) = obstacle(rows, item, token, now) {
        if refused != SealVerdict::NumberTooLow {
            rows.queue.came(item.lock);
        }
        if item.attempt != Attempt::First && rows.queue.get(item.lock).is_none() {
            rows.bury(Buried::Lock(item.lock), now);
        }
        return refused;
    }
    let Some(token) = token else { return SealVerdict::NumberTooLow };
    let drains = drains(rows, &item.resources, now);
    let hold = if drains.is_some() { Hold::Draining } else { Hold::Held };
    let lock = new_lock(rows, item, token, now);
    let taken_over = item
        .resources
        .iter()
        .filter_map(|resource| raise(rows, item, resource, &lock, hold, now))
        .collect();
    rows.locks.insert(item.lock, lock);
    rows.journal.insert(Change::Lock(item.lock));
    rows.queue.leave(item.lock);
    if let Some(resource) = drains {
        return SealVerdict::Drains { resource, taken_over };
    }
    match rows.lock_record(item.lock, now) {
        Some(record) => SealVerdict::Sealed(record.grant, taken_over),
        None => SealVerdict::Busy,
    }
}

/// Whether a lock that there is already is told to whoever asks: to its principal, and to whoever handed a lock of its own
/// over to that (I16). Anybody can name a principal as a successor, and an id that stands in some log.
fn is_told_of(rows: &Rows, item: &SealItem, known: &LockRow) -> bool {
    if known.principal != item.principal {
        return false;
    }
    if item.principal.as_ref() == item.by.principal() {
        return true;
    }
    let former = item.from().and_then(|from| rows.locks.get(&from));
    let former = former.filter(|row| row.principal.as_ref() == item.by.principal());
    former.is_some_and(|former| {
        let first = former.resources.first().map(|name| (name.clone(), former.token));
        let grant = first.and_then(|at| rows.grants.get(&at));
        former.resources == known.resources
            && grant.is_some_and(|grant| {
                grant.by == Some(Supersession::Transfer) && grant.at == Some(known.acquired_at)
            })
    })
}

/// A fence of this id was voided by a re-fence. The lock elsewhere that it stands for is held still, so
/// the same call sets the fence anew.
fn is_void_fence(rows: &Rows, item: &SealItem) -> bool {
    item.is_fence()
        && rows.locks.get(&item.lock).is_some_and(|row| {
            row.fence
                && row.token.get() <= rows.guard.floor
                && row.ended.is_none()
                && row.resources == item.resources
                && row.owner == item.owner
        })
}

/// The lock that is sealed. A successor is bound by what its predecessor was.
fn new_lock(rows: &Rows, item: &SealItem, token: Token, now: Now) -> LockRow {
    let from = item.from().and_then(|from| rows.locks.get(&from));
    let (hold_until, metadata) = match from {
        Some(from) => (from.hold_until, from.metadata.clone()),
        None => (item.max_hold.map(|hold| hold.after(now.wall)), item.metadata.clone()),
    };
    let ttl = item.asked_ttl().or(from.map(|from| from.ttl)).unwrap_or(Ttl::DEFAULT);
    LockRow {
        resources: item.resources.clone(),
        token,
        owner: item.owner.clone(),
        principal: item.principal.clone(),
        writers: item.writers.clone(),
        credential: item.credential().cloned(),
        ttl,
        acquired_at: now.wall,
        hold_until,
        metadata,
        fence: item.is_fence(),
        ended: None,
    }
}

/// How far ahead the deadline of a lock lies whose answer may be lost.
fn unconfirmed(ttl: Ttl) -> Ttl {
    if ttl.is_infinite() { Ttl::UNCONFIRMED } else { ttl }
}

/// Step 2: the id names one grant for ever.
fn reenter(rows: &mut Rows, item: &SealItem, now: Now) -> SealVerdict {
    if let Some((how, _)) = rows.lock_record(item.lock, now).and_then(|record| record.ended) {
        return SealVerdict::Ended(how);
    }
    let other = |row: &LockRow| {
        row.resources != item.resources || row.owner != item.owner || row.fence != item.is_fence()
    };
    if rows.locks.get(&item.lock).is_some_and(other) {
        return SealVerdict::Conflict;
    }
    match renewable(rows, item.lock, now) {
        Err(NotRenewable::Ended(how)) => return SealVerdict::Ended(how),
        Err(NotRenewable::Breaking) => return SealVerdict::Breaking,
        Err(NotRenewable::HoldExceeded) => return SealVerdict::HoldExceeded,
        Err(NotRenewable::Draining) if item.attempt == Attempt::Bury => {
            let resource = drains(rows, &item.resources, now);
            let resource = resource.or_else(|| item.resources.first().cloned());
            return resource.map_or(SealVerdict::Busy, SealVerdict::Draining);
        }
        Err(NotRenewable::Draining) => {
            if let Some(verdict) = still_draining(rows, item, now) {
                return verdict;
            }
            // Its token was told to nobody yet.
            restart(rows, item.lock, &extension(rows, item, false), now);
        }
        Ok(row) if row.fence => {}
        Ok(_) => {
            // What comes with a number was sent to be granted, perhaps long ago by the very call that was, and
            // a rerun without one as well: it proves nothing, and changes nothing of a lock that has not lapsed.
            let repeats = item.attempt == Attempt::First && item.number.is_none();
            let left_ms =
                rows.lock_record(item.lock, now).map_or(0, |record| record.grant.remaining_ms);
            // What only asks what became of it is held to no rules, and gives nobody a lock back (I17).
            let revives = left_ms <= 0 && item.attempt != Attempt::Bury;
            if repeats || revives {
                restart(rows, item.lock, &extension(rows, item, repeats), now);
            }
        }
    }
    match rows.lock_record(item.lock, now) {
        Some(record) => SealVerdict::Again(record.grant),
        None => SealVerdict::Busy,
    }
}

/// Terms on which a lock that is there already goes on: with the ttl that is asked for, or else its own.
fn extension<'a>(rows: &Rows, item: &'a SealItem, confirms: bool) -> Extension<'a> {
    let kept = rows.locks.get(&item.lock).map(|row| row.ttl);
    let ttl = item.ttl.or(kept).unwrap_or(Ttl::DEFAULT);
    Extension { ttl, confirms, credential: item.credential() }
}

/// Step 2 for a lock that is not in force yet: now it is, if nothing of older tokens is under way any
/// more. Else a caller that waits keeps it.
fn still_draining(rows: &mut Rows, item: &SealItem, now: Now) -> Option<SealVerdict> {
    match drains(rows, &item.resources, now) {
        None => {
            complete(rows, item.lock, now);
            None
        }
        Some(resource) if item.waits.is_none() => Some(SealVerdict::Draining(resource)),
        Some(resource) => {
            restart(rows, item.lock, &extension(rows, item, false), now);
            Some(SealVerdict::Drains { resource, taken_over: Vec::new() })
        }
    }
}

/// Step 3: why a lock does not hand over, if it does not.
fn not_handed_over(
    rows: &mut Rows,
    item: &SealItem,
    from: LockId,
    now: Now,
) -> Option<SealVerdict> {
    match rows.locks.get(&from) {
        None => return Some(SealVerdict::NotFound),
        Some(row) if row.fence || row.principal.as_ref() != item.by.principal() => {
            return Some(SealVerdict::NotFound);
        }
        Some(row) if row.resources != item.resources => return Some(SealVerdict::Conflict),
        Some(_) => {}
    }
    match renewable(rows, from, now) {
        Err(NotRenewable::Ended(how)) => Some(SealVerdict::Ended(how)),
        Err(NotRenewable::Breaking) => Some(SealVerdict::Breaking),
        Err(NotRenewable::Draining) => item.resources.first().cloned().map(SealVerdict::Draining),
        Err(NotRenewable::HoldExceeded) => Some(SealVerdict::HoldExceeded),
        Ok(_) => None,
    }
}

/// Step 4: what stands in the way, if anything.
fn obstacle(rows: &Rows, item: &SealItem, token: Option<Token>, now: Now) -> Option<SealVerdict> {
    let floor = rows.guard.floor;
    let (order, force) = match item.kind {
        SealKind::Fence { order, force } => (order, force),
        SealKind::Lock | SealKind::Transfer { .. } => (None, false),
    };
    for resource in &item.resources {
        let Some(fence) = rows.fences.get(resource) else { continue };
        if fence.frozen.is_some() {
            return Some(SealVerdict::Frozen(resource.clone()));
        }
        let handed_over = item.from() == Some(fence.lock);
        let beside = mutants::is(Mutant::SealWhatIsFree) && item.resources.len() > 1;
        if fence.is_held(now) && fence.token.get() > floor && !handed_over && !force && !beside {
            return Some(SealVerdict::Held(fence.holder(resource, now)));
        }
        // The order of a fence that a re-fence voided may come once more.
        let void = fence.token.get() <= floor;
        let is_stale = |last: i64, order: i64| if void { last > order } else { last >= order };
        if order.is_some_and(|order| fence.order.is_some_and(|last| is_stale(last, order))) {
            return Some(SealVerdict::OrderStale(resource.clone()));
        }
    }
    let ticket = rows.queue.get(item.lock).map(|waiter| waiter.ticket);
    if item.kind == SealKind::Lock && is_ahead(rows, &item.resources, ticket, now) {
        return Some(SealVerdict::Queued);
    }
    let rises = |token: Token| {
        token.get() > floor
            && !names_another(rows, token)
            && item
                .resources
                .iter()
                .all(|name| rows.fences.get(name).is_none_or(|fence| is_above(token, fence.token)))
    };
    if !token.is_some_and(rises) {
        return Some(SealVerdict::NumberTooLow);
    }
    match item.waits {
        Some(_) => None,
        None => drains(rows, &item.resources, now).map(SealVerdict::Draining),
    }
}

/// Whether a token names a grant already.
fn names_another(rows: &Rows, token: Token) -> bool {
    let taken = [Mutant::OneNumberForAll, Mutant::SealEqualToken].into_iter().any(mutants::is);
    !taken && rows.granted.contains(&token)
}

/// Above, and not equal.
fn is_above(token: Token, fence: Token) -> bool {
    token > fence || (mutants::is(Mutant::SealEqualToken) && token == fence)
}

fn action(kind: SealKind) -> AuditAction {
    match kind {
        SealKind::Lock => AuditAction::Grant,
        SealKind::Transfer { .. } => AuditAction::Transfer,
        SealKind::Fence { .. } => AuditAction::Fence,
    }
}

/// Step 5 for one resource. Returns what was taken over, if it was a lock and had not been given back
/// before.
fn raise(
    rows: &mut Rows,
    item: &SealItem,
    resource: &ResourceName,
    lock: &LockRow,
    hold: Hold,
    now: Now,
) -> Option<TakenOver> {
    let token = lock.token;
    let before = rows.fences.get(resource).cloned();
    if mutated::stays_down(rows, item, resource, token, now) {
        return None;
    }
    let mut taken_over = None;
    if let Some(before) = &before {
        let old = (resource.clone(), before.token);
        if let Some(grant) = rows.grants.get_mut(&old) {
            grant.by = Some(match item.kind {
                SealKind::Lock => Supersession::Grant,
                SealKind::Transfer { .. } => Supersession::Transfer,
                SealKind::Fence { .. } => Supersession::Fence,
            });
            grant.at = Some(now.wall);
            rows.journal.insert(Change::Grant(old.0, old.1));
        }
        if before.hold.stands() {
            rows.end_lock(before.lock, LockEnd::Superseded, now);
        }
        let was_lock = !rows.locks.get(&before.lock).is_some_and(|row| row.fence);
        taken_over = (before.hold == Hold::Held && was_lock)
            .then(|| TakenOver { resource: resource.clone(), held_ms: before.held_ms(now) });
    }
    let ordinal = before.as_ref().map_or(0, |fence| fence.grants) + 1;
    let ended = before.as_ref().filter(|fence| fence.hold.stands());
    let end = before.as_ref().map(|fence| fence.end(item.kind, rows.guard.floor, now));
    let (previous_end, previous_ended_at) = end.unwrap_or_default();
    rows.audit(AuditEntry {
        owner: Some(item.owner.clone()),
        previous_owner: ended.map(|fence| fence.owner.clone()),
        previous_end,
        previous_ended_at,
        token: Some(token),
        asked: item.by.asked(),
        grant: Some(GrantEntry {
            lock: GrantEntry::digest_of(item.lock),
            ordinal,
            leads: item.resources.first() == Some(resource),
            principal: item.principal.as_ref().map(ToString::to_string),
            writers: writers_text(&item.writers),
        }),
        ..AuditEntry::about(resource, action(item.kind), now.wall)
    });
    rows.grants.insert(
        (resource.clone(), token),
        GrantRow {
            lock: item.lock,
            owner: item.owner.clone(),
            principal: item.principal.clone(),
            writers: item.writers.clone(),
            ordinal,
            by: None,
            at: None,
        },
    );
    rows.journal.insert(Change::Grant(resource.clone(), token));
    rows.granted.insert(token);
    let last = before.as_ref().and_then(|fence| fence.order);
    let order = match item.kind {
        SealKind::Fence { order, .. } => order.or(last),
        SealKind::Lock | SealKind::Transfer { .. } => last,
    };
    let ttl = unconfirmed(lock.ttl);
    if let (None, Some(principal)) = (&before, &item.principal) {
        *rows.first_locked.entry(principal.clone()).or_default() += 1;
    }
    let fence = FenceRow {
        token,
        lock: item.lock,
        owner: item.owner.clone(),
        principal: item.principal.clone(),
        writers: item.writers.clone(),
        hold,
        ttl,
        deadline_ms: lock.deadline_ms(ttl.as_ms(), now),
        acquired_at: now.wall,
        renewed_at: now.wall,
        break_due: None,
        ended_at: None,
        frozen: before.as_ref().and_then(|fence| fence.frozen.clone()),
        protected: before.as_ref().and_then(|fence| fence.protected.clone()),
        version: before.as_ref().map_or(0, |fence| fence.version),
        last_sequence: 0,
        objects: before.as_ref().map_or(0, |fence| fence.objects),
        grants: ordinal,
        order,
        live_token: match hold {
            Hold::Draining => before.as_ref().map_or(0, |fence| fence.live_token),
            _ => token.get(),
        },
    };
    rows.fences.insert(resource.clone(), fence);
    rows.queue.taken(resource);
    rows.journal.insert(Change::Fence(resource.clone()));
    taken_over
}
