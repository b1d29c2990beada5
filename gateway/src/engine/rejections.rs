//! The operator's record of refused writes, kept off the hot path.
//!
//! A storm of stale writes must not slow good ones: refusals go into a bounded queue, a task stores
//! them in batches at its own pace, and what does not fit is counted and dropped.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Ledger, Rejection, Runtime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::metrics::REJECTIONS_DROPPED;

/// Refusals that may wait to be stored.
const QUEUE_MAX: usize = 1024;
/// Refusals stored in one statement.
const BATCH_MAX: usize = 256;
/// How long the task rests between statements, so that a storm costs the ledger little.
const REST: Duration = Duration::from_millis(200);

/// Takes refusals without ever waiting.
#[derive(Clone)]
pub(super) struct Rejections(mpsc::Sender<Rejection>);

impl Rejections {
    /// Starts the task that stores them.
    pub(super) fn start(
        ledger: Arc<dyn Ledger>,
        runtime: &Runtime,
        closing: CancellationToken,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let task = store(ledger, runtime.clone(), waiting, closing);
        runtime.spawn.spawn_lasting("rejections", Box::pin(task));
        Self(queue)
    }

    /// Keeps a refusal, if there is room.
    pub(super) fn keep(&self, rejection: Rejection) {
        if self.0.try_send(rejection).is_err() {
            ::metrics::counter!(REJECTIONS_DROPPED).increment(1);
        }
    }
}

async fn store(
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    mut waiting: mpsc::Receiver<Rejection>,
    closing: CancellationToken,
) {
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            count = waiting.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
            () = closing.cancelled() => {
                waiting.close();
                if waiting.recv_many(&mut batch, BATCH_MAX).await == 0 {
                    return;
                }
            }
        }
        let count = batch.len();
        if let Err(error) = ledger.record_rejections(batch.into()).await {
            tracing::warn!(%error, count, "refused writes could not be recorded");
            ::metrics::counter!(REJECTIONS_DROPPED).increment(count as u64);
        }
        if !closing.is_cancelled() {
            runtime.clock.sleep(REST).await;
        }
    }
}
