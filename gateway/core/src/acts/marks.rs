//! Marks: freeze and protect a resource, or lift that, at an operator's wish.

use super::rows::{Change, Now, Rows};
use crate::ports::{AuditEntry, Mark, MarkItem, MarkVerdict};

/// Marks a resource. Its lock stays what it is, so a holder may renew and release while frozen.
/// A break that has come due is stored first, whatever the verdict.
///
/// 0. The rules are others than those under which it was allowed: nothing is decided (I17).
/// 1. No fence: nothing to mark.
/// 2. It is marked so already, for the same reason: nothing changes.
/// 3. Else the latest reason counts, and the audit keeps it.
pub fn mark(rows: &mut Rows, item: &MarkItem, now: Now) -> MarkVerdict {
    rows.settle(&item.resource, now);
    if rows.rules_moved(&item.by) {
        return MarkVerdict::RulesMoved;
    }
    let Some(fence) = rows.fences.get_mut(&item.resource) else {
        return MarkVerdict::NoFence;
    };
    let (place, wanted) = match item.mark {
        Mark::Freeze => (&mut fence.frozen, Some(item.reason.clone())),
        Mark::Unfreeze => (&mut fence.frozen, None),
        Mark::Protect => (&mut fence.protected, Some(item.reason.clone())),
        Mark::Unprotect => (&mut fence.protected, None),
    };
    if *place == wanted {
        return MarkVerdict::Marked { changed: false };
    }
    *place = wanted;
    rows.journal.insert(Change::Fence(item.resource.clone()));
    rows.audit(AuditEntry {
        reason: Some(item.reason.clone()),
        request_id: Some(item.request_id.clone()),
        asked: item.by.asked(),
        ..AuditEntry::about(&item.resource, item.mark.action(), now.wall)
    });
    MarkVerdict::Marked { changed: true }
}
