//! Deletes blobs that nothing points at, by the rules of `fence_core::ports::Uploads`.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{BlobTimes, Blobs, Garbage, Ledger, Runtime};
use futures::StreamExt as _;
use futures::stream;
use tokio_util::sync::CancellationToken;

use super::store::Store;
use crate::engine::agreement::Agreement;
use crate::engine::{EngineError, metrics};

/// Deletions under way at a time.
const DELETIONS_MAX: usize = 8;
/// Rows of each kind in one batch.
const BATCH: u64 = 100;
/// Batches in one pass; then others have their turn.
const BATCHES_MAX: usize = 100;

/// The collector of one gateway. Several may collect at once: garbage is handed out to one of them.
pub struct Collector {
    pub ledger: Arc<dyn Ledger>,
    pub store: Arc<Store>,
    pub agreement: Arc<Agreement>,
}

impl Collector {
    /// Collects now and then.
    ///
    /// At the end no call of the ledger is dropped in the middle, which could leave a transaction open
    /// on its connection; only deletions in the store are, which are handed out again.
    pub fn start(self, runtime: &Runtime, interval: Duration, closing: CancellationToken) {
        let clock = Arc::clone(&runtime.clock);
        let task = async move {
            loop {
                if closing.run_until_cancelled(clock.sleep(interval)).await.is_none() {
                    return;
                }
                if let Err(error) = self.pass(&closing).await {
                    tracing::warn!(%error, "collecting garbage failed; the next pass goes on");
                }
            }
        };
        runtime.spawn.spawn_lasting("collector", Box::pin(task));
    }

    /// One pass, bounded.
    ///
    /// 1. The ledger gives up uploads, forgets versions, and hands out garbage if this gateway's store is
    ///    the one that has it (rules 2, 4, 5).
    /// 2. The garbage is deleted in the store; what cannot be is handed out again later.
    /// 3. The ledger notes it: garbage is deleted a second time after a while (rule 3).
    async fn pass(&self, closing: &CancellationToken) -> Result<(), EngineError> {
        let ours = self.store.ours().await.ok();
        let times = self.agreement.blob_times();
        for _ in 0..BATCHES_MAX {
            if closing.is_cancelled() {
                break;
            }
            let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
            let tidied = self.ledger.tidy_blobs(times, limit, ours.is_some()).await?;
            ::metrics::counter!(metrics::UPLOADS_GIVEN_UP).increment(tidied.uploads);
            let handed_out = tidied.garbage.len() as u64;
            if let Some(blobs) = ours {
                self.collect(blobs, tidied.garbage, times, closing).await?;
            }
            if handed_out < BATCH && tidied.uploads < BATCH && tidied.versions < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Steps 2 and 3.
    async fn collect(
        &self,
        blobs: &Arc<dyn Blobs>,
        garbage: Vec<Garbage>,
        times: BlobTimes,
        closing: &CancellationToken,
    ) -> Result<(), EngineError> {
        let deleted: Vec<Garbage> = stream::iter(garbage)
            .map(|garbage| delete(blobs, garbage))
            .buffer_unordered(DELETIONS_MAX)
            .take_until(closing.cancelled())
            .filter_map(|deleted| async move { deleted })
            .collect()
            .await;
        if !deleted.is_empty() {
            self.ledger.blobs_deleted(&deleted, times).await?;
            ::metrics::counter!(metrics::BLOBS_DELETED).increment(deleted.len() as u64);
            tracing::debug!(deleted = deleted.len(), "collected garbage");
        }
        Ok(())
    }
}

async fn delete(blobs: &Arc<dyn Blobs>, garbage: Garbage) -> Option<Garbage> {
    match blobs.delete(garbage.blob, garbage.handle.as_deref()).await {
        Ok(()) => Some(garbage),
        Err(error) => {
            ::metrics::counter!(metrics::BLOB_DELETIONS_FAILED).increment(1);
            tracing::warn!(%error, blob = %garbage.blob, "garbage could not be deleted yet");
            None
        }
    }
}
