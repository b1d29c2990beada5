//! The place in line of one caller: kept or given up when the caller has gone.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{By, ReleaseItem, Runtime};

use super::Slot;
use super::wait::{Keep, PARTING};
use crate::engine::EngineError;
use crate::engine::batch::{Batcher, Failure};
use crate::engine::locks::release::Release;
use crate::engine::locks::seal::Pending;

/// How often, and how fast, a waiter that gives up tries to leave the queue.
const LEAVE_TRIES: u32 = 20;
const LEAVE_PAUSE: Duration = Duration::from_millis(500);

/// A waiter, as long as its caller waits. Dropped in between, it keeps or gives up its place.
pub(super) struct WaiterPlace {
    pub(super) slot: Option<Slot>,
    pub(super) keeps: Arc<Batcher<Keep>>,
    pub(super) leaves: Arc<Batcher<Release>>,
    pub(super) runtime: Runtime,
    pub(super) pending: Pending,
}

impl WaiterPlace {
    pub(super) fn joined(&self) {
        self.slot.iter().for_each(Slot::joined);
    }

    pub(super) fn has_joined(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::has_joined)
    }

    pub(super) fn left(&self) {
        self.slot.iter().for_each(Slot::left);
    }

    pub(super) async fn called(&self) -> bool {
        match &self.slot {
            Some(slot) => slot.called().await,
            None => std::future::pending().await,
        }
    }

    /// It waits no more, and the ledger knows.
    pub(super) fn end<T>(mut self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        self.slot = None;
        result
    }

    /// Keeps the place before the caller is told that its time is up: it may be back at once.
    pub(super) async fn keep(mut self, runtime: &Runtime) {
        let is_shared = self.slot.as_ref().is_none_or(Slot::is_shared);
        self.slot = None;
        if !is_shared {
            let _ = runtime.within(PARTING, self.keeps.submit(self.pending.item.lock)).await;
        }
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let (is_done, lock) = (slot.is_shared() || slot.has_left(), self.pending.item.lock);
        let by = By::gateway_for(self.pending.item.principal.clone());
        drop(slot);
        let (keeps, leaves) = (Arc::clone(&self.keeps), Arc::clone(&self.leaves));
        let clock = Arc::clone(&self.runtime.clock);
        let proposed = self.pending.proposed;
        let leave = async move {
            // A waiter that stays although nobody waits is found by the reconciliation.
            for _ in 0..LEAVE_TRIES {
                let failure = match proposed {
                    true => keeps.submit(lock).await.err(),
                    false => {
                        leaves.submit(ReleaseItem { by: by.clone(), ..lock.into() }).await.err()
                    }
                };
                if failure.is_none_or(|failure| matches!(failure, Failure::Closed)) {
                    return;
                }
                clock.sleep(LEAVE_PAUSE).await;
            }
        };
        if !is_done {
            self.runtime.spawn.spawn("leave-queue", Box::pin(leave));
        }
    }
}
