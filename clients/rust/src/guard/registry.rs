//! The guards of a client, for renewals in batches and for its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fencegate_wire::{LockId, ResourceName};

use super::held::Held;
use crate::class::LossReason;
use crate::machine::lease::{Input, State};

/// Guards that are renewed, by the ids of their locks.
#[derive(Default)]
pub(crate) struct Registry {
    guards: Mutex<HashMap<LockId, Weak<Held>>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<LockId, Weak<Held>>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, held: &Arc<Held>) {
        self.lock().insert(held.id, Arc::downgrade(held));
    }

    /// Only this very guard: another may be under the same id by now.
    pub(crate) fn remove(&self, held: &Held) {
        let mut guards = self.lock();
        if guards.get(&held.id).is_some_and(|known| std::ptr::eq(known.as_ptr(), held)) {
            guards.remove(&held.id);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Whether the task that asks took a lock on one of these, and has it still (CC19a).
    pub(crate) fn is_held_here(&self, resources: &[ResourceName]) -> bool {
        let here = tokio::task::try_id();
        here.is_some()
            && self.all().iter().any(|held| {
                held.task == here
                    && held.resources.iter().any(|resource| resources.contains(resource))
                    && matches!(held.state(), State::Held | State::Uncertain)
            })
    }

    /// All guards end.
    pub(crate) fn close(&self) {
        for held in self.all() {
            held.learn(Input::Lost(LossReason::Closed));
        }
    }
}
