//! Closing intents: what was forwarded is over, and the ledger has to know.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::OperationId;
use fence_core::ports::{CloseItem, ForwardEnd, Ledger, LedgerError, Patience, Runtime};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Base;
use crate::engine::batch::{Act, Batcher, Failure};
use crate::engine::locks::Drains;

/// The first and the longest pause between two tries to close an intent.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Closing intents, as the act of a batcher. Run twice, the second finds nothing.
struct CloseIntents {
    ledger: Arc<dyn Ledger>,
    drains: Drains,
}

#[async_trait]
impl Act for CloseIntents {
    type Item = CloseItem;
    type Verdict = ();
    type Lane = OperationId;

    const NAME: &'static str = "close_intents";

    fn lane(item: &CloseItem) -> OperationId {
        item.operation
    }

    async fn run(&self, items: Arc<[CloseItem]>, _: Patience) -> Result<Vec<()>, LedgerError> {
        let waiting = self.ledger.close_intents(&items).await?;
        if !waiting.is_empty() {
            self.drains.complete(Some(waiting));
        }
        Ok(items.iter().map(|_| ()).collect())
    }
}

/// Closes intents until the ledger knows; cheap to clone.
#[derive(Clone)]
pub(super) struct Closing {
    closes: Arc<Batcher<CloseIntents>>,
    pub(super) runtime: Runtime,
    pub(super) timeout: Duration,
    ended: CancellationToken,
    /// What is being forwarded or closed here, so that the gateway does not stop before.
    pub(super) forwards: TaskTracker,
    /// The intents that are in flight here.
    in_flight: Arc<Mutex<HashSet<OperationId>>>,
}

impl Closing {
    pub(super) fn start(base: &Base, drains: Drains) -> Self {
        let close = CloseIntents { ledger: Arc::clone(&base.ledger), drains };
        Self {
            closes: Arc::new(base.batcher(close)),
            runtime: base.runtime.clone(),
            timeout: base.settings.request_timeout,
            ended: base.closing.clone(),
            forwards: TaskTracker::new(),
            in_flight: Arc::default(),
        }
    }

    pub(super) fn here(&self) -> MutexGuard<'_, HashSet<OperationId>> {
        self.in_flight.lock()
    }

    /// Closes an intent in a task of its own, and resolves when that is done.
    pub(super) fn close(&self, operation: OperationId, end: ForwardEnd) -> oneshot::Receiver<()> {
        let (send, done) = oneshot::channel();
        let (this, token) = (self.clone(), self.forwards.token());
        let task = async move {
            let _token = token;
            this.try_to_close(CloseItem { operation, end }).await;
            let _ = send.send(());
        };
        self.runtime.spawn.spawn("close-intent", Box::pin(task));
        done
    }

    async fn try_to_close(&self, item: CloseItem) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.closes.submit(item).await {
                Ok(()) => return,
                Err(Failure::Closed) => break,
                Err(Failure::Full | Failure::Busy | Failure::NotApplied(_) | Failure::Unknown) => {}
            }
            if self.ended.run_until_cancelled(self.runtime.clock.sleep(pause)).await.is_none() {
                break;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        let operation = item.operation;
        tracing::warn!(%operation, "an intent could not be closed; an operator has to resolve it");
    }
}
