//! Deletes blobs that nothing points at, by the rules of `fence_core::ports::Uploads`.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{BlobTimes, Blobs, Garbage, Ledger, Runtime};
use futures::StreamExt as _;
use futures::stream;
use tokio_util::sync::CancellationToken;

use crate::engine::{EngineError, metrics};

/// Deletions under way at a time.
const DELETIONS_MAX: usize = 8;
/// Blobs handed out at a time.
const BATCH: i64 = 100;
/// Batches in one pass.
const BATCHES_MAX: usize = 20;

/// The collector of one gateway. Several may collect at once: garbage is handed out to one of them.
pub struct Collector {
    pub ledger: Arc<dyn Ledger>,
    pub blobs: Arc<dyn Blobs>,
    pub times: BlobTimes,
}

impl Collector {
    /// Collects now and then.
    pub fn start(self, runtime: &Runtime, interval: Duration, closing: CancellationToken) {
        let clock = Arc::clone(&runtime.clock);
        let task = async move {
            loop {
                tokio::select! {
                    () = clock.sleep(interval) => {}
                    () = closing.cancelled() => return,
                }
                tokio::select! {
                    passed = self.pass() => if let Err(error) = passed {
                        tracing::warn!(%error, "collecting garbage failed; the next pass goes on");
                    },
                    () = closing.cancelled() => return,
                }
            }
        };
        runtime.spawn.spawn("collector", Box::pin(task));
    }

    /// One pass, bounded.
    ///
    /// 1. The ledger gives up uploads, forgets versions and hands out garbage (rules 2, 4, 5).
    /// 2. The garbage is deleted in the store; what cannot be is handed out again later.
    /// 3. The ledger notes it: garbage is deleted a second time after a while (rule 3).
    pub async fn pass(&self) -> Result<(), EngineError> {
        for _ in 0..BATCHES_MAX {
            let tidied = self.ledger.tidy_blobs(self.times, BATCH).await?;
            ::metrics::counter!(metrics::UPLOADS_GIVEN_UP).increment(tidied.uploads);
            let handed_out = tidied.garbage.len();
            let deleted: Vec<Garbage> = stream::iter(tidied.garbage)
                .map(|garbage| self.delete(garbage))
                .buffer_unordered(DELETIONS_MAX)
                .filter_map(|deleted| async move { deleted })
                .collect()
                .await;
            if !deleted.is_empty() {
                self.ledger.blobs_deleted(&deleted, self.times).await?;
                ::metrics::counter!(metrics::BLOBS_DELETED).increment(deleted.len() as u64);
                tracing::debug!(deleted = deleted.len(), handed_out, "collected garbage");
            }
            if handed_out < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                break;
            }
        }
        Ok(())
    }

    async fn delete(&self, garbage: Garbage) -> Option<Garbage> {
        match self.blobs.delete(garbage.blob, garbage.handle.as_deref()).await {
            Ok(()) => Some(garbage),
            Err(error) => {
                ::metrics::counter!(metrics::BLOB_DELETIONS_FAILED).increment(1);
                tracing::warn!(%error, blob = %garbage.blob, "garbage could not be deleted yet");
                None
            }
        }
    }
}
