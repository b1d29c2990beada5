//! Compares the ledger with the blob store.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{BlobId, Blobs, Clock, Ledger, Listed, Mint, Pointer, StoredBlob};
use futures::TryStreamExt as _;
use jiff::SignedDuration;

use super::digests::digest_of;
use crate::engine::EngineError;

/// Blobs asked about at a time.
const BATCH: usize = 500;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blobs in the store.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pointers in the ledger.
    pub pointers: u64,
    /// Blobs that the ledger knows nothing of.
    pub orphans: Vec<StoredBlob>,
    /// Of these, how many were deleted.
    pub deleted: u64,
    /// Of these, how many are so young that they may be all that is left of writes that a failover or a
    /// restore has undone.
    pub kept: u64,
    /// Of these, how many stay since the ledger was re-fenced a short while ago: what it knows of blobs
    /// may be older than they are.
    pub held: u64,
    /// Pointers whose blob is missing.
    pub dangling: Vec<Pointer>,
    /// Pointers whose blob has another size, and that size.
    pub wrong_size: Vec<(Pointer, u64)>,
    /// Pointers whose blob has other bytes than were stored. Looked at only by a deep scrub.
    pub damaged: Vec<Pointer>,
    /// What is not named like a blob.
    pub strangers: Vec<String>,
}

impl ScrubReport {
    /// Whether readers get everything that the ledger promises them.
    pub fn is_whole(&self) -> bool {
        !self
            .dangling
            .iter()
            .chain(self.wrong_size.iter().map(|(pointer, _)| pointer))
            .chain(&self.damaged)
            .any(|p| p.current)
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubProgress {
    /// So many blobs of the store were looked up in the ledger.
    Listed(u64),
    /// So many pointers of the ledger were looked up in the store.
    Followed(u64),
}

/// A comparison.
pub struct Scrub {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The store.
    pub blobs: Arc<dyn Blobs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What remembers how far the ledger has been, if the ledger can go back without knowing it.
    pub witness: Option<Arc<dyn Mint>>,
    /// Orphans younger than this stay, also with `fix`; so do all for so long after a re-fence.
    pub rollback_horizon: Duration,
    /// Whether to read every blob and compare its digest.
    pub deep: bool,
    /// Whether to delete orphans.
    pub fix: bool,
}

impl Scrub {
    /// Runs it, beside gateways that go on.
    ///
    /// 1. What the store lists is looked up in the ledger *afterwards*. An intent comes before its
    ///    upload, and stays known until its blob is an object's or has been deleted twice; so a blob that
    ///    is unknown then is an orphan, and stays one.
    /// 2. Orphans are deleted only by a ledger that has not gone back: what it has forgotten would look
    ///    like one. That is asked after what is unknown was, each time.
    /// 3. What the ledger points at is looked up in the store; what is missing, again in the ledger,
    ///    which may have moved on. A deep one also reads what is there, and compares digests.
    ///
    /// # Errors
    /// With `fix`, `RefenceRequired` or whatever keeps it from knowing that the ledger has not gone back;
    /// what does not answer.
    pub async fn run(
        &self,
        mut progress: impl FnMut(ScrubProgress) + Send,
    ) -> Result<ScrubReport, EngineError> {
        let mut report = ScrubReport::default();
        if self.fix {
            // What is refused is refused before anything else is done.
            self.may_delete().await?;
        }
        let mut listed = self.blobs.list().try_chunks(BATCH);
        while let Some(chunk) = listed.try_next().await.map_err(|error| error.1)? {
            self.look_up(chunk, &mut report).await?;
            progress(ScrubProgress::Listed(report.blobs));
        }
        let mut after = None;
        loop {
            let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
            let pointers = self.ledger.pointers(after, limit).await?;
            let Some(last) = pointers.last() else { return Ok(report) };
            after = Some(last.blob);
            for pointer in pointers {
                self.follow(pointer, &mut report).await?;
                progress(ScrubProgress::Followed(report.pointers));
            }
        }
    }

    /// Step 1, for some.
    async fn look_up(
        &self,
        listed: Vec<Listed>,
        report: &mut ScrubReport,
    ) -> Result<(), EngineError> {
        let mut found = Vec::with_capacity(listed.len());
        for one in listed {
            match one {
                Listed::Blob(blob) => found.push(blob),
                Listed::Stranger(name) => report.strangers.push(name),
            }
        }
        report.blobs += found.len() as u64;
        report.bytes += found.iter().map(|blob| blob.size).sum::<u64>();
        let ids: Vec<BlobId> = found.iter().map(|blob| blob.blob).collect();
        let known = self.ledger.known_blobs(&ids).await?;
        let unknown = found.into_iter().zip(known).filter(|(_, known)| !known);
        let orphans: Vec<StoredBlob> = unknown.map(|(orphan, _)| orphan).collect();
        if self.fix && !orphans.is_empty() {
            let settled = self.may_delete().await?;
            for orphan in &orphans {
                match settled {
                    true => self.delete(orphan, report).await?,
                    false => report.held += 1,
                }
            }
        }
        report.orphans.extend(orphans);
        Ok(())
    }

    /// Step 2: whether what the ledger does not know of may go, if it has not gone back.
    ///
    /// The mint first: what it has seen of the ledger, the ledger must have.
    async fn may_delete(&self) -> Result<bool, EngineError> {
        let head = match &self.witness {
            Some(mint) => Some(mint.head().await?),
            None => None,
        };
        let place = self.ledger.place(None).await?;
        if let Some(why) = &place.called_for {
            return Err(EngineError::RefenceRequired(why.clone()));
        }
        if let Some(head) = head {
            head.check_owner(place.epoch.ledger)?;
            if head.ledger.is_none() {
                let why = "the mint remembers no ledger; start a gateway, and ask for a lock";
                return Err(EngineError::MintRegressed(why.into()));
            }
            // Only a ledger of a second's age has none yet.
            if let Some(why) = head.witness.and_then(|witness| witness.lost(&place)) {
                return Err(EngineError::RefenceRequired(why));
            }
        }
        Ok(self.ledger.may_delete(self.rollback_horizon).await?)
    }

    async fn delete(
        &self,
        orphan: &StoredBlob,
        report: &mut ScrubReport,
    ) -> Result<(), EngineError> {
        let horizon =
            SignedDuration::try_from(self.rollback_horizon).unwrap_or(SignedDuration::MAX);
        if self.clock.now().duration_since(orphan.stored_at) < horizon {
            report.kept += 1;
            return Ok(());
        }
        self.blobs.delete(orphan.blob, None).await?;
        report.deleted += 1;
        Ok(())
    }

    /// Step 3, for one.
    async fn follow(&self, pointer: Pointer, report: &mut ScrubReport) -> Result<(), EngineError> {
        report.pointers += 1;
        let size = self.blobs.size(pointer.blob).await?;
        let right_size = size == u64::try_from(pointer.size).ok();
        let digest = match right_size && self.deep {
            true => Some(self.digest(&pointer).await),
            false => None,
        };
        let right_bytes = matches!(&digest, None | Some(Ok(Some(true))));
        if right_size && right_bytes || !self.still_points(&pointer).await? {
            return Ok(());
        }
        match size {
            // A blob that vanished while it was read is missing like any other.
            Some(_) if right_size => match digest.transpose()?.flatten() {
                Some(_) => report.damaged.push(pointer),
                None => report.dangling.push(pointer),
            },
            None => report.dangling.push(pointer),
            Some(size) => report.wrong_size.push((pointer, size)),
        }
        Ok(())
    }

    /// Whether the bytes of a blob are those that were stored; `None` if it is gone.
    async fn digest(&self, pointer: &Pointer) -> Result<Option<bool>, EngineError> {
        let range = 0..pointer.size.unsigned_abs();
        match self.blobs.read(pointer.blob, range).await? {
            None => Ok(None),
            Some(stream) => Ok(Some(digest_of(stream).await? == pointer.sha256)),
        }
    }

    async fn still_points(&self, pointer: &Pointer) -> Result<bool, EngineError> {
        let before = BlobId(uuid::Uuid::from_u128(pointer.blob.0.as_u128().wrapping_sub(1)));
        let now = self.ledger.pointers(Some(before), 1).await?;
        Ok(now.first().is_some_and(|now| now.blob == pointer.blob))
    }
}
