//! Waiting: joining the queue, and whose turn it is.

use super::rows::{Buried, FenceRow, Now, Rows};
use crate::lock::LockEnd;
use crate::names::ResourceName;
use crate::ports::{Call, JoinItem, JoinVerdict, SealItem};
use crate::queue::{TURN_MS, Waiter};

/// Puts a caller into the queue for all of its resources, unless it could have them now.
///
/// The caller of this holds the fences' locks, so that whoever frees one of them afterwards sees the
/// waiter: no wake-up is lost.
/// 0. The rules are others than those under which it was allowed: nothing is decided (I17).
/// 1. A buried id was given up: `Ended(Released)`. A lock that exists: `Known`; only a seal can say
///    what it is to this caller.
/// 2. An id that waits already: the same call, taken up again; or `Conflict`.
/// 3. Nothing in the way and nobody ahead: `Free`.
/// 4. A line that is full: `Full`.
/// 5. Else it gets one ticket for all of its resources.
pub fn join(rows: &mut Rows, item: &JoinItem, now: Now) -> JoinVerdict {
    if rows.rules_moved(&item.by) {
        return JoinVerdict::RulesMoved;
    }
    for resource in &item.resources {
        rows.settle(resource, now);
    }
    if rows.buried.contains_key(&Buried::Lock(item.lock)) {
        return JoinVerdict::Ended(LockEnd::Released);
    }
    if rows.locks.contains_key(&item.lock) {
        return JoinVerdict::Known;
    }
    if let Some(waiter) = rows.queue.get(item.lock) {
        let is_same = waiter.resources == item.resources && waiter.owner == item.owner;
        if !is_same || waiter.principal.as_ref() != item.by.principal() {
            return JoinVerdict::Conflict;
        }
        rows.queue.rejoin(item.lock, item.gateway);
        return JoinVerdict::Waiting;
    }
    let free = item.resources.iter().all(|name| is_free(rows, name, now));
    if free && !is_ahead(rows, &item.resources, None, now) {
        return JoinVerdict::Free;
    }
    if item.resources.iter().any(|name| rows.queue.length(name) >= item.waiters_max) {
        return JoinVerdict::Full;
    }
    rows.queue.join(Waiter {
        lock: item.lock,
        ticket: 0,
        resources: item.resources.clone(),
        owner: item.owner.clone(),
        principal: item.by.principal().cloned(),
        since: now.wall,
        gateway: item.gateway,
        kept_until_ms: None,
        called_at_ms: None,
    });
    JoinVerdict::Waiting
}

/// Tells the first in line for each resource that it is its turn, if all it waits for is free and
/// nobody is ahead of it for the rest.
///
/// One answer per resource that somebody who is there waits for.
pub fn call_next(rows: &mut Rows, resources: &[ResourceName], now: Now) -> Vec<Call> {
    let mut calls = Vec::new();
    for resource in resources {
        let (gone, next) =
            rows.queue.next(resource, now.elapsed_ms, |name| is_free(rows, name, now));
        let gone: Vec<i64> = gone.into_iter().map(|waiter| waiter.ticket).collect();
        let next = next.cloned();
        for ticket in gone {
            rows.queue.call(ticket, now.elapsed_ms);
        }
        calls.extend(next.map(|next| call(rows, resource, &next, now)));
    }
    calls
}

/// The call of one waiter, or when to look again.
fn call(rows: &mut Rows, resource: &ResourceName, next: &Waiter, now: Now) -> Call {
    let answer = |called, next_ms| Call {
        resource: resource.clone(),
        called,
        gateway: next.gateway,
        next_ms,
    };
    let in_the_way: Vec<&ResourceName> =
        next.resources.iter().filter(|name| !is_free(rows, name, now)).collect();
    if !in_the_way.is_empty() {
        return answer(
            None,
            in_the_way.iter().filter_map(|name| frees_itself_in(rows, name, now)).min(),
        );
    }
    if is_ahead(rows, &next.resources, Some(next.ticket), now) {
        return answer(None, None);
    }
    rows.queue.call(next.ticket, now.elapsed_ms);
    let called_at_ms = rows.queue.get(next.lock).and_then(|waiter| waiter.called_at_ms);
    let left_ms = called_at_ms.map(|called| called + TURN_MS - now.elapsed_ms);
    answer(Some(next.lock), left_ms)
}

/// Whether somebody in line before this ticket keeps one of these resources from those behind.
pub fn is_ahead(rows: &Rows, resources: &[ResourceName], before: Option<i64>, now: Now) -> bool {
    rows.queue.is_ahead(resources, before, now.elapsed_ms, |name| is_free(rows, name, now))
}

/// Whether a lock could be granted on this resource now, the queue aside.
fn is_free(rows: &Rows, resource: &ResourceName, now: Now) -> bool {
    rows.fences.get(resource).is_none_or(|fence| {
        let held = fence.is_held(now) && fence.token.get() > rows.guard.floor;
        !held && fence.frozen.is_none()
    })
}

/// In how many milliseconds the lock of a resource ends by itself, if it will.
fn frees_itself_in(rows: &Rows, resource: &ResourceName, now: Now) -> Option<i64> {
    let fence: &FenceRow = rows.fences.get(resource)?;
    let left = fence.left_ms(now);
    (fence.frozen.is_none() && left > 0).then_some(left)
}

/// Whether the waiter of this id waits for something else than a lock with these attributes.
pub(super) fn is_other_waiter(rows: &Rows, item: &SealItem) -> bool {
    rows.queue.get(item.lock).is_some_and(|waiter| {
        let is_same = waiter.resources == item.resources && waiter.owner == item.owner;
        !is_same || waiter.principal != item.principal || item.is_fence()
    })
}
