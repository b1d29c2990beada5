//! The guards of a client, for renewals in batches and for its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fencegate_wire::ResourceName;

use super::held::Held;
use crate::class::LossReason;
use crate::machine::lease::{Input, State};

/// All guards, by where they are: several may have the token of one lock.
#[derive(Default)]
pub(crate) struct Registry {
    guards: Mutex<HashMap<usize, Weak<Held>>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Weak<Held>>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, held: &Arc<Held>) {
        self.lock().insert(Arc::as_ptr(held).addr(), Arc::downgrade(held));
    }

    pub(crate) fn remove(&self, held: &Held) {
        self.lock().remove(&std::ptr::from_ref(held).addr());
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
