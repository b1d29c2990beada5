//! The queue of the SQLite ledger, which lives in memory beside it.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use fence_core::ResourceName;
use fence_core::acts::{self, Rows};
use fence_core::ports::{Call, LedgerError, Standing};
use fence_core::queue::Queue;
use uuid::Uuid;

use super::SqliteLedger;

impl SqliteLedger {
    pub(super) fn waiting(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the queue to an act.
    pub(super) fn with_waiting<T>(&self, rows: &mut Rows, act: impl FnOnce(&mut Rows) -> T) -> T {
        let mut waiting = self.waiting();
        std::mem::swap(&mut rows.queue, &mut waiting);
        let result = act(rows);
        std::mem::swap(&mut rows.queue, &mut waiting);
        result
    }

    pub(super) async fn read_standings(
        &self,
        names: &[ResourceName],
    ) -> Result<Vec<Standing>, LedgerError> {
        let absent = self.waiting().wanted_by_absent(names.iter());
        let mut rows = self.fences(names.iter().cloned().chain(absent).collect()).await?;
        let (now, floor) = (self.now(), rows.guard.floor);
        let standing = |rows: &mut Rows, name: &ResourceName| {
            let fence = rows.fences.get(name);
            let live = fence.filter(|fence| fence.is_held(now) && fence.token.get() > floor);
            Standing {
                holder: live.map(|fence| fence.holder(name, now)),
                queued: acts::is_ahead(rows, std::slice::from_ref(name), None, now),
            }
        };
        Ok(self.with_waiting(&mut rows, |rows| {
            names.iter().map(|name| standing(rows, name)).collect()
        }))
    }

    /// Reads the fences that the next in line wait for, then calls. No act is under way meanwhile: it
    /// would show what it did to the queue before what it did to the fences.
    pub(super) async fn call_waiters(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        names: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError> {
        let _no_act = self.writer.lock().await;
        let now = self.now();
        if let Some(able) = able {
            self.waiting().beat(gateway, able, now.elapsed_ms);
        }
        let wanted = self.waited_for(names, now.elapsed_ms);
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = self.fences(wanted.clone()).await?;
        // A place that was kept or given up meanwhile may have brought others to the front.
        let mut names = names.to_vec();
        names.retain(|name| {
            self.waited_for(std::slice::from_ref(name), now.elapsed_ms).is_subset(&wanted)
        });
        Ok(self.with_waiting(&mut rows, |rows| acts::call_next(rows, &names, now)))
    }

    /// What those wait for who are next for these resources.
    fn waited_for(&self, names: &[ResourceName], now_ms: i64) -> BTreeSet<ResourceName> {
        let waiting = self.waiting();
        let mut wanted = BTreeSet::new();
        for name in names {
            let (gone, next) = waiting.next(name, now_ms, |_| true);
            let resources = gone.into_iter().chain(next).flat_map(|waiter| &waiter.resources);
            wanted.extend(resources.cloned());
        }
        wanted
    }
}
