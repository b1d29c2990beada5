//! What the ledger in memory knows of blobs.

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::MemoryLedger;
use super::state::{GarbageRow, State};
use crate::acts::{self, IntentRow, Now};
use crate::mutants::{self, Mutant};
use crate::ports::{
    BlobId, BlobTimes, Garbage, LedgerError, Part, Pointer, Tidied, UploadItem, UploadVerdict,
    Uploads,
};

fn before(now: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn after(now: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl State {
    pub(super) fn discard(
        &mut self,
        blob: BlobId,
        handle: Option<String>,
        due_at: Timestamp,
        may_return: bool,
    ) {
        let row = GarbageRow { handle, due_at, deleted: false, may_return };
        self.blobs.garbage.insert(blob, row);
    }

    /// Intents that are too old become garbage.
    fn give_up_uploads(&mut self, times: BlobTimes, limit: usize, now: Timestamp) -> u64 {
        let (old, in_parts) = (before(now, times.upload), before(now, times.multipart));
        let is_old = |row: &IntentRow| match &row.upload {
            None => row.begun_at <= old,
            Some(_) => row.begun_at <= in_parts,
        };
        let intents = self.rows.intents.iter().filter(|(_, row)| is_old(row));
        let found: Vec<_> = intents.map(|(blob, _)| *blob).take(limit).collect();
        for blob in &found {
            let kept =
                mutants::is(Mutant::DeleteUploadsUnderWay).then(|| self.rows.intents[blob].clone());
            let row = self.rows.intents.remove(blob);
            self.rows.intents.extend(kept.map(|row| (*blob, row)));
            let in_parts = row.as_ref().is_some_and(|row| row.upload.is_some());
            self.discard(*blob, row.and_then(|row| row.handle), now, in_parts);
        }
        found.len() as u64
    }

    /// Replaced versions that nobody reads or may ask for are forgotten.
    fn forget_versions(&mut self, times: BlobTimes, limit: usize, clock: Now) -> u64 {
        let now = self.rows.guard.time.to_forget_by(clock);
        let times = match mutants::is(Mutant::NoRollbackHorizon) {
            true => BlobTimes { rollback_horizon: Duration::ZERO, ..times },
            false => times,
        };
        let (plain, blob) = (before(now, times.versions), before(now, times.replaced_blobs()));
        let pins = &self.blobs.pins;
        let mut gone = Vec::new();
        self.rows.replaced.retain(|row| {
            let goes = gone.len() < limit
                && match row.object.payload.blob() {
                    None => row.at <= plain,
                    Some(id) => row.at <= blob && pins.get(&id).is_none_or(|until| *until <= now),
                };
            if goes {
                gone.push(row.object.payload.blob());
            }
            !goes
        });
        let due_at = self.rows.guard.time.due(clock, times.forgotten_blobs());
        gone.iter().flatten().for_each(|blob| self.discard(*blob, None, due_at, false));
        gone.len() as u64
    }

    /// What may come back with an older copy of the ledger stays for the rollback horizon.
    fn put_off(&mut self, times: BlobTimes, clock: Now) {
        let due_at = self.rows.guard.time.due(clock, times.rollback_horizon);
        for row in self.blobs.garbage.values_mut().filter(|row| row.may_return) {
            if !mutants::is(Mutant::PartsGoAtOnce) {
                row.due_at = due_at;
            }
            row.may_return = false;
        }
    }
}

#[async_trait]
impl Uploads for MemoryLedger {
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError> {
        let now = self.now();
        Ok(acts::begin_upload(&mut self.state().rows, &item, now))
    }

    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError> {
        let mut state = self.state();
        let row = state.rows.intents.get_mut(&blob);
        Ok(row.map(|row| row.handle = Some(handle.to_owned())).is_some())
    }

    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError> {
        let clock = self.now();
        let limit = usize::try_from(limit).unwrap_or(0);
        let state = &mut *self.state();
        let now = state.rows.guard.time.to_forget_by(clock);
        let uploads = state.give_up_uploads(times, limit, now);
        let versions = state.forget_versions(times, limit, clock);
        state.put_off(times, clock);
        let held = state.refenced_at.is_some_and(|at| at > before(now, times.rollback_horizon));
        let due = state.blobs.garbage.iter_mut().filter(|(_, row)| row.due_at <= now);
        let pins = &state.blobs.pins;
        let pinned = |blob: &BlobId| pins.get(blob).is_some_and(|until| *until > now);
        let due = due.filter(|(blob, _)| hand_out && !held && !pinned(blob));
        let claim = |(blob, row): (&BlobId, &mut GarbageRow)| {
            row.due_at = after(now, times.claim());
            Garbage { blob: *blob, handle: row.handle.clone(), again: row.deleted }
        };
        let garbage: Vec<Garbage> = due.take(limit).map(claim).collect();
        // Parts have the fate of their upload (I19).
        let handed_out = garbage.iter().filter(|_| !mutants::is(Mutant::PartsStay));
        for upload in handed_out.map(|garbage| garbage.blob) {
            let of_it = |(of, _): &(BlobId, i32), _: &mut Part| *of == upload;
            let parts: Vec<_> = state.rows.parts.extract_if(.., of_it).collect();
            parts.into_iter().for_each(|(_, part)| state.discard(part.blob, None, now, false));
        }
        state.blobs.pins.retain(|_, until| *until > now);
        Ok(Tidied { uploads, versions, garbage })
    }

    async fn blobs_deleted(
        &self,
        garbage: &[Garbage],
        times: BlobTimes,
    ) -> Result<(), LedgerError> {
        let clock = self.now();
        let state = &mut *self.state();
        let due_at = state.rows.guard.time.due(clock, times.redelete);
        let rows = &mut state.blobs.garbage;
        for one in garbage {
            match rows.get_mut(&one.blob) {
                Some(row) if row.deleted && one.again => drop(rows.remove(&one.blob)),
                Some(row) if !row.deleted => {
                    row.deleted = true;
                    row.due_at = due_at;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError> {
        let clock = self.now();
        let state = &mut *self.state();
        let until = state.rows.guard.time.due(clock, keep);
        let pins = &mut state.blobs.pins;
        for blob in blobs {
            let pin = pins.entry(*blob).or_insert(until);
            *pin = until.max(*pin);
        }
        Ok(())
    }

    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError> {
        let state = self.state();
        let known = |blob: &BlobId| {
            let of_object =
                state.rows.objects.values().any(|row| row.object.payload.blob() == Some(*blob));
            let of_version =
                state.rows.replaced.iter().any(|row| row.object.payload.blob() == Some(*blob));
            of_object
                || of_version
                || state.rows.intents.contains_key(blob)
                || state.rows.parts.values().any(|part| part.blob == *blob)
                || state.blobs.garbage.contains_key(blob)
        };
        Ok(blobs.iter().map(known).collect())
    }

    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError> {
        let clock = self.now();
        let state = self.state();
        let now = state.rows.guard.time.to_forget_by(clock);
        Ok(horizon.is_zero() || state.refenced_at.is_none_or(|at| at <= before(now, horizon)))
    }

    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError> {
        let state = self.state();
        let current = state.rows.objects.iter();
        let current = current.map(|((resource, _), row)| (resource, &row.object, true));
        let replaced = state.rows.replaced.iter();
        let replaced = replaced.map(|row| (&row.resource, &row.object, false));
        let mut found: Vec<Pointer> = current
            .chain(replaced)
            .flat_map(|(resource, object, current)| {
                let blob = object.payload.blob();
                let whole = blob.filter(|_| object.parts.is_none());
                let whole = whole.map(|blob| (blob, object.size, object.sha256));
                let upload = blob.filter(|_| object.parts.is_some());
                let parts = upload.into_iter().flat_map(|upload| {
                    let parts = state.rows.parts.range((upload, 0)..=(upload, i32::MAX));
                    parts.map(|(_, part)| (part.blob, part.size, part.sha256))
                });
                whole.into_iter().chain(parts).map(move |(blob, size, sha256)| Pointer {
                    blob,
                    resource: resource.clone(),
                    key: object.key.clone(),
                    version: object.tag.version,
                    size,
                    sha256,
                    current,
                })
            })
            .filter(|pointer| after.is_none_or(|after| pointer.blob > after))
            .collect();
        found.sort_by_key(|pointer| pointer.blob);
        found.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(found)
    }

    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError> {
        Ok(self.state().blobs.store)
    }

    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError> {
        Ok(*self.state().blobs.store.get_or_insert(store))
    }
}
