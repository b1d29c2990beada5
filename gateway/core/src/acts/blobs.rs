//! Beginning an upload: an intent, unless the write is refused for good anyway.

use super::rows::{Change, IntentRow, Now, Rows};
use crate::ports::{UploadItem, UploadVerdict};
use crate::rule::{FenceFacts, Presented, Refusal, judge};

/// Stores the intent to upload a blob.
///
/// The caller may see one snapshot only and holds no lock. First that applies:
/// 1. The idempotency key is known: `KnownKey`, and no intent. The commit will replay or refuse it.
/// 2. The rule refuses the write for a reason that stays: void, stale, released, broken; or for a token that
///    was never granted here: whoever was given one asks after its seal had committed (I5), and the snapshot is
///    younger. What may still change, and what is admitted, only the commit decides (I6).
/// 3. The intent is stored, if there is a blob.
pub fn begin_upload(rows: &mut Rows, item: &UploadItem, now: Now) -> UploadVerdict {
    if let Some(key) = &item.key
        && rows.keys.contains_key(&(item.resource.clone(), key.clone()))
    {
        return UploadVerdict::KnownKey;
    }
    let fence = rows.fences.get(&item.resource);
    // As stored: a break that has come due is final only once somebody has stored it.
    let facts = fence.map(|fence| FenceFacts { hold: fence.hold, ..fence.facts(&item.by, now) });
    let old = rows.old_grant(&item.resource, item.token, &item.by);
    let presented = Presented { token: item.token, lock: item.lock, sequence: None };
    if let Err(refusal) = judge(rows.guard.floor, facts.as_ref(), old.as_ref(), &presented)
        && is_final(&refusal)
    {
        return UploadVerdict::Refused(refusal);
    }
    if let Some(blob) = item.blob {
        let begun_at = rows.guard.time.stamp(now);
        rows.intents.insert(blob, IntentRow { begun_at, handle: None, upload: None });
        rows.journal.insert(Change::Intent(blob));
    }
    UploadVerdict::Begun
}

/// Whether nothing that may still happen makes the write good of somebody who was given what it presents.
fn is_final(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Void
        | Refusal::Stale { .. }
        | Refusal::Released
        | Refusal::Broken
        | Refusal::Unknown
        | Refusal::Foreign => true,
        Refusal::LockIdMismatch
        | Refusal::Frozen
        | Refusal::Draining
        | Refusal::Protected
        | Refusal::TooManyObjects
        | Refusal::SequenceOutOfOrder
        | Refusal::VersionMismatch => false,
    }
}
