//! Extending a lock: whether it may be, and starting its time again.

use super::rows::{Change, FenceRow, LockRow, Now, Rows};
use crate::lock::{LockEnd, LockId, Ttl};
use crate::ports::Credential;
use crate::rule::Hold;

/// Why a lock is not extended.
pub(super) enum NotRenewable {
    /// It has ended, or its row is gone.
    Ended(LockEnd),
    /// An operator is breaking it.
    Breaking,
    /// It is not in force yet.
    Draining,
    /// It has been held for as long as it may be.
    HoldExceeded,
}

/// A lock that may be extended: known, not ended, not being broken, its longest hold not over.
pub(super) fn renewable(rows: &mut Rows, id: LockId, now: Now) -> Result<LockRow, NotRenewable> {
    let Some(row) = rows.locks.get(&id).cloned() else {
        return Err(NotRenewable::Ended(LockEnd::Released));
    };
    for name in &row.resources {
        rows.settle(name, now);
    }
    if let Some((how, _)) = rows.lock_record(id, now).and_then(|record| record.ended) {
        return Err(NotRenewable::Ended(how));
    }
    let breaking = |name| rows.fences.get(name).is_some_and(|f: &FenceRow| f.break_due.is_some());
    if row.resources.iter().any(breaking) {
        return Err(NotRenewable::Breaking);
    }
    let drains =
        |name| rows.fences.get(name).is_some_and(|f| f.lock == id && f.hold == Hold::Draining);
    if row.resources.iter().any(drains) {
        return Err(NotRenewable::Draining);
    }
    if row.hold_until.is_some_and(|until| until <= now.wall) {
        return Err(NotRenewable::HoldExceeded);
    }
    Ok(row)
}

/// Terms on which a lock goes on.
pub(super) struct Extension<'a> {
    /// Its ttl from now on.
    pub(super) ttl: Ttl,
    /// Its holder has shown that it knows of the lock: an infinite one has no deadline from now on. Else such a lock lasts
    /// for what an unconfirmed one does, but its deadline is never brought nearer.
    pub(super) confirms: bool,
    /// The credential to which it belongs from now on; none leaves it as it is.
    pub(super) credential: Option<&'a Credential>,
}

/// Starts the ttl of a lock again, on all of its resources.
pub(super) fn restart(rows: &mut Rows, id: LockId, extension: &Extension<'_>, now: Now) {
    let Extension { ttl, confirms, credential } = *extension;
    let Some(lock) = rows.locks.get_mut(&id) else { return };
    lock.ttl = ttl;
    if let Some(credential) = credential {
        lock.credential = Some(credential.clone());
    }
    rows.journal.insert(Change::Lock(id));
    let lock = lock.clone();
    let only_longer = !confirms && ttl.is_infinite();
    let ahead_ms = if only_longer { Ttl::UNCONFIRMED.as_ms() } else { ttl.as_ms() };
    for resource in &lock.resources {
        if let Some(fence) = rows.fences.get_mut(resource)
            && fence.lock == id
        {
            let (least_ms, least_deadline_ms) =
                if only_longer { (fence.ttl.as_ms(), fence.deadline_ms) } else { (0, i64::MIN) };
            fence.ttl = Ttl::from_ms(ahead_ms.max(least_ms));
            fence.deadline_ms = lock.deadline_ms(ahead_ms, now).max(least_deadline_ms);
            fence.renewed_at = now.wall;
            rows.queue.taken(resource);
            rows.journal.insert(Change::Fence(resource.clone()));
        }
    }
}
