//! Uploads in parts (I19): whoever takes the intent of an upload decides over its parts.

use std::collections::BTreeMap;

use super::commit::{Claim, judge_on};
use super::rows::{Change, Now, Rows};
use crate::mutants::{self, Mutant};
use crate::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Multipart, Part, PartItem, PartVerdict,
    UploadItem, UploadVerdict,
};

/// Begins an upload in parts, unless a write would be refused for good: as [`begin_upload`](super::begin_upload) does.
pub fn begin_multipart(
    rows: &mut Rows,
    item: &UploadItem,
    multipart: &Multipart,
    now: Now,
) -> UploadVerdict {
    let verdict = super::begin_upload(rows, item, now);
    if let Some(intent) = item.blob.and_then(|upload| rows.intents.get_mut(&upload)) {
        intent.upload = Some(multipart.clone());
    }
    verdict
}

/// Makes a blob a part of an upload that goes on. The caller holds the fence's lock. First that applies:
/// 1. It is a part already: a sending whose answer was lost.
/// 2. The rules are others than those under which it was allowed: nothing is decided (I17).
/// 3. The upload does not go on, or is for another resource: it was completed, aborted or given up.
/// 4. The rule, as for a write: whoever's lock has passed on changes nothing of what its successor may complete (I3, I16).
///    A void token is among these: a ledger that went back may have the intent of a blob that was deleted since.
/// 5. The part's own intent is gone: it took too long, and is garbage. Else that intent is consumed.
/// 6. Of two under one number the one counts that was begun last, whichever comes last: the other is garbage. So a
///    statement that was on its way for long does not take away what was stored since.
///
/// # Errors
/// `RulesMoved`
pub fn put_part(rows: &mut Rows, item: &PartItem, now: Now) -> Result<PartVerdict, LedgerError> {
    let at = (item.upload, item.number);
    if rows.parts.get(&at).is_some_and(|part| part.blob == item.blob) {
        return Ok(PartVerdict::Stored);
    }
    if rows.rules_moved(&item.by) {
        return Err(LedgerError::RulesMoved);
    }
    let upload = rows.intents.get(&item.upload).and_then(|intent| intent.upload.as_ref());
    let goes_on = upload.is_some_and(|upload| upload.resource == item.resource);
    if !goes_on && !mutants::is(Mutant::PartAfterTheEnd) {
        return Ok(PartVerdict::NoUpload);
    }
    rows.settle(&item.resource, now);
    let claim = Claim {
        resource: &item.resource,
        token: item.token,
        lock: item.lock,
        sequence: None,
        version: None,
        by: &item.by,
    };
    if let Err(refusal) = judge_on(rows, &claim, now)
        && !mutants::is(Mutant::PartUnjudged)
    {
        return Ok(PartVerdict::Refused(refusal));
    }
    let Some(intent) = rows.intents.remove(&item.blob) else {
        return Ok(PartVerdict::Expired);
    };
    rows.journal.insert(Change::Intent(item.blob));
    if let Some(old) = rows.parts.get(&at) {
        let newer = old.begun_at > intent.begun_at && !mutants::is(Mutant::EarlierPartCounts);
        rows.discarded.push(if newer { item.blob } else { old.blob });
        if newer {
            return Ok(PartVerdict::Overtaken);
        }
    }
    let part = Part {
        blob: item.blob,
        size: item.size,
        sha256: item.sha256,
        checksum: item.checksum.clone(),
        begun_at: intent.begun_at,
        stored_at: now.wall,
    };
    rows.parts.insert(at, part);
    rows.journal.insert(Change::Part(item.upload, item.number));
    Ok(PartVerdict::Stored)
}

/// Ends an upload in parts. The caller holds the fence's lock. First that applies:
/// 1. It does not go on, or is for another resource.
/// 2. The rule, as for a write: whoever's lock has passed on takes nothing from its successor (I3, I16).
/// 3. Its intent is consumed: it is garbage, and so are its parts (I19).
pub fn abort_multipart(rows: &mut Rows, item: &AbortItem, now: Now) -> AbortVerdict {
    let upload = rows.intents.get(&item.upload).and_then(|intent| intent.upload.as_ref());
    if upload.is_none_or(|upload| upload.resource != item.resource) {
        return AbortVerdict::NoUpload;
    }
    rows.settle(&item.resource, now);
    let claim = Claim {
        resource: &item.resource,
        token: item.token,
        lock: item.lock,
        sequence: None,
        version: None,
        by: &item.by,
    };
    if let Err(refusal) = judge_on(rows, &claim, now)
        && !mutants::is(Mutant::AbortUnjudged)
    {
        return AbortVerdict::Refused(refusal);
    }
    rows.intents.remove(&item.upload);
    rows.journal.insert(Change::Intent(item.upload));
    rows.discarded.push(item.upload);
    AbortVerdict::Aborted
}

impl Rows {
    /// Whether an upload has all of these parts; those that are not named are garbage then.
    pub(super) fn complete(&mut self, upload: BlobId, named: &[BlobId]) -> bool {
        let of_it = (upload, i32::MIN)..=(upload, i32::MAX);
        let mut others: BTreeMap<_, _> =
            self.parts.range(of_it).map(|((_, number), part)| (part.blob, *number)).collect();
        if !named.iter().all(|blob| others.remove(blob).is_some()) {
            return false;
        }
        if mutants::is(Mutant::UnnamedPartsKept) {
            return true;
        }
        if mutants::is(Mutant::PartsGoEarly) {
            self.discarded.extend(named);
        }
        for (blob, number) in others {
            self.parts.remove(&(upload, number));
            self.journal.insert(Change::Part(upload, number));
            self.discarded.push(blob);
        }
        true
    }
}
