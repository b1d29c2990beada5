//! What a session writes: alone and in batches, in blobs, and over several resources.

use std::sync::Arc;

use fence_core::OperationId;
use fence_core::etag::EntityTag;
use fence_core::ports::{
    Applied, Attempt, BlobId, By, CommitItem, CommitVerdict, Commits as _, Ledger as _, Patience,
    UploadItem, UploadVerdict, Uploads as _, WriteItem, WriteVerdict,
};
use fence_history::{Answer, Asked, Seen};
use futures::FutureExt as _;

use super::session::{End, Sending, Session, failed, only, refused};
use super::stage::{Known, Lost};
use super::wishes::Wanted;

pub(super) fn is_busy(verdict: &WriteVerdict) -> bool {
    *verdict == WriteVerdict::Busy
}

fn written(applied: &[Applied], replayed: bool) -> Answer {
    let version = |one: &Applied| (one.resource.to_string(), one.version);
    Answer::Written {
        operation: applied.first().map_or_else(uuid::Uuid::nil, |one| one.operation.0),
        versions: applied.iter().map(version).collect(),
        generation: applied.first().map_or(0, |one| one.generation),
        replayed,
    }
}

/// What the caller of a write is told. The record does not have what a write demands of its object, so a refusal for
/// that has a word of its own.
pub(super) fn told_of(item: &WriteItem, end: &End<WriteVerdict>) -> Answer {
    match end {
        End::Decided(WriteVerdict::Applied { applied, replayed }) => {
            written(std::slice::from_ref(applied), *replayed)
        }
        End::Decided(WriteVerdict::Refused(refusal)) => match refusal.code().as_str() {
            "version-mismatch" if item.object_condition.is_some() => refused("object-mismatch"),
            code => refused(code),
        },
        End::Decided(WriteVerdict::KeyReused { .. }) => refused("idempotency-key-reused"),
        End::Decided(WriteVerdict::UploadExpired | WriteVerdict::PartsDiffer) => {
            refused("upload-expired")
        }
        End::Decided(WriteVerdict::Buried) => failed("given-up"),
        End::Decided(WriteVerdict::RulesMoved | WriteVerdict::Busy) | End::Undone => {
            failed("undone")
        }
        End::Decided(WriteVerdict::Forgotten) | End::Unknown => {
            Answer::Unknown { operation: Some(item.operation.0) }
        }
    }
}

pub(super) fn told_of_commit(id: OperationId, end: &End<CommitVerdict>) -> Answer {
    match end {
        End::Decided(CommitVerdict::Applied { applied, replayed }) => written(applied, *replayed),
        End::Decided(CommitVerdict::Refused { refusal, .. }) => refused(refusal.code().as_str()),
        End::Decided(CommitVerdict::KeyReused { .. }) => refused("idempotency-key-reused"),
        End::Decided(CommitVerdict::UploadExpired { .. }) => refused("upload-expired"),
        End::Decided(CommitVerdict::Buried) => failed("given-up"),
        End::Decided(CommitVerdict::RulesMoved | CommitVerdict::Busy) | End::Undone => {
            failed("undone")
        }
        End::Decided(CommitVerdict::Forgotten) | End::Unknown => {
            Answer::Unknown { operation: Some(id.0) }
        }
    }
}

impl Session {
    pub(super) fn sending_write(item: &WriteItem) -> Sending<WriteVerdict> {
        let item = item.clone();
        Box::new(move |ledger, attempt, patience| {
            let item = WriteItem { attempt, ..item.clone() };
            async move { only(ledger.commit([item].into(), patience).await) }.boxed()
        })
    }

    pub(super) fn sending_commit(item: &CommitItem) -> Sending<CommitVerdict> {
        let item = item.clone();
        Box::new(move |ledger, attempt, patience| {
            let item = CommitItem { attempt, ..item.clone() };
            async move { ledger.commit_many(item, patience).await }.boxed()
        })
    }

    async fn settle_write(&mut self, first: Attempt, call: u64, item: WriteItem) -> Answer {
        let end = self.settle(first, &Self::sending_write(&item), is_busy).await;
        let answer = told_of(&item, &end);
        self.stage.answer(call, answer.clone());
        if matches!(end, End::Unknown) {
            self.stage.lose(Lost::Write(item));
        }
        answer
    }

    /// Writes under this lock: one alone, or some in one act.
    pub async fn write_under(&mut self, known: &Known) {
        match self.draw(0, 100) {
            0..60 => {
                let Some(wanted) = self.write_wanted(known) else { return };
                let call = self.begin(0, wanted.asked);
                self.settle_write(Attempt::First, call, wanted.item).await;
            }
            60..70 => self.write_blob(known).await,
            70..80 => self.read_and_replace(known).await,
            _ => self.write_some(std::slice::from_ref(known)).await,
        }
    }

    /// The same under a lock that anybody was given, perhaps long ago.
    pub async fn write_as_anybody(&mut self) {
        let Some(known) = self.anybody() else { return };
        match (self.chance(0.2), self.anybody()) {
            (true, Some(other)) => self.write_some(&[known, other]).await,
            _ => self.write_under(&known).await,
        }
    }

    /// Puts an object that nothing is demanded of. Whether that took effect.
    pub async fn put_plainly(&mut self, known: &Known) -> bool {
        let Some((resource, _)) = self.one_of(&known.versions) else { return false };
        let object = self.object();
        let Wanted { asked, item } = self.replacement(known, None, (&resource, &object));
        let call = self.begin(0, asked);
        matches!(self.settle_write(Attempt::First, call, item).await, Answer::Written { .. })
    }

    /// Writes in one act. What is busy, or was lost, goes on alone, as a gateway does it.
    async fn write_some(&mut self, grants: &[Known]) {
        let mut writes = Vec::new();
        for caller in 0..u32::try_from(self.draw(2, 6)).unwrap_or(2) {
            let Some(known) = self.one_of(grants) else { return };
            let Some(Wanted { asked, item }) = self.write_wanted(&known) else { continue };
            writes.push((self.begin(caller, asked), item));
        }
        let items: Arc<[WriteItem]> = writes.iter().map(|(_, item)| item.clone()).collect();
        let (_, ledger) = self.gateway();
        match ledger.commit(items, Patience::Skip).await {
            Ok(verdicts) => {
                for ((call, item), verdict) in writes.into_iter().zip(verdicts) {
                    if is_busy(&verdict) {
                        self.settle_write(Attempt::First, call, item).await;
                    } else {
                        let answer = told_of(&item, &End::Decided(verdict));
                        self.stage.answer(call, answer);
                    }
                }
            }
            Err(error) if self.stage.leaves_unknown(&error) => {
                for (call, item) in writes {
                    self.settle_write(Attempt::Rerun, call, item).await;
                }
            }
            Err(_) => {
                for (call, item) in writes {
                    self.stage.answer(call, told_of(&item, &End::Undone));
                }
            }
        }
    }

    /// Uploads a blob, and makes it an object's.
    async fn write_blob(&mut self, known: &Known) {
        let Some(mut wanted) = self.write_wanted(known) else { return };
        let blob = BlobId(self.id());
        let Some(value) = self.in_blob(&mut wanted, blob) else { return };
        let upload = UploadItem {
            blob: Some(blob),
            resource: wanted.item.resource.clone(),
            token: wanted.item.token,
            lock: wanted.item.lock,
            key: None,
            by: By::default(),
        };
        let (_, ledger) = self.gateway();
        if !matches!(ledger.begin_upload(upload).await, Ok(UploadVerdict::Begun)) {
            return;
        }
        self.stage.store(blob, value);
        match self.chance(0.3) {
            true => self.pause(100, 900).await,
            false => self.pause(0, 5).await,
        }
        let call = self.begin(0, wanted.asked);
        self.settle_write(Attempt::First, call, wanted.item).await;
    }

    /// Reads an object, and puts another in its place if it is still there.
    async fn read_and_replace(&mut self, known: &Known) {
        let Some((resource, _)) = self.one_of(&known.versions) else { return };
        let object = self.object();
        let Some(Seen { generation, version, .. }) = self.read(&resource, &object).await else {
            return;
        };
        let tag = EntityTag { generation, version };
        let Wanted { asked, item } = self.replacement(known, Some(tag), (&resource, &object));
        let call = self.begin(0, asked);
        self.settle_write(Attempt::First, call, item).await;
    }

    /// Commits under this lock; with a key perhaps once more, as a caller who tries again.
    pub async fn commit(&mut self, known: &Known) {
        let Some(Wanted { asked, item }) = self.commit_wanted(known) else { return };
        let call = self.begin(0, asked.clone());
        self.settle_commit(call, item.clone()).await;
        if item.idempotency.is_some() && self.chance(0.3) {
            let again = CommitItem { operation: OperationId(self.id()), ..item };
            if let Asked::Commit { steps, .. } = &asked {
                self.stage.plan(again.operation.0, steps.clone());
            }
            let call = self.begin(0, asked);
            self.settle_commit(call, again).await;
        }
    }

    /// The same under a lock that anybody was given.
    pub async fn commit_as_anybody(&mut self) {
        if let Some(known) = self.anybody() {
            self.commit(&known).await;
        }
    }

    async fn settle_commit(&mut self, call: u64, item: CommitItem) {
        let busy = |verdict: &CommitVerdict| *verdict == CommitVerdict::Busy;
        let end = self.settle(Attempt::First, &Self::sending_commit(&item), busy).await;
        self.stage.answer(call, told_of_commit(item.operation, &end));
        if matches!(end, End::Unknown) {
            self.stage.lose(Lost::Commit(item));
        }
    }
}
