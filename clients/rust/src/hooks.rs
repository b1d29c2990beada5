//! What happens inside, for metrics and logs: one function that is told of each event.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::ResourceName;

use crate::class::{Class, LossReason};

/// Something that happened in the client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A lock was granted.
    Acquired {
        /// What it covers.
        resources: Vec<ResourceName>,
        /// From the call to the grant.
        waited: Duration,
    },
    /// A guard ended.
    Ended {
        /// What it covered.
        resources: Vec<ResourceName>,
        /// Why.
        reason: LossReason,
        /// From the grant to the end.
        held: Duration,
    },
    /// A renewal was answered.
    Renewed {
        /// How much time was left.
        headroom: Duration,
        /// How late the renewal began: a sign of a busy loop.
        lateness: Duration,
    },
    /// A renewal was not answered, or not as wished; it goes on until the deadline.
    RenewFailed {
        /// What the lock covers.
        resources: Vec<ResourceName>,
        /// What came instead.
        detail: String,
    },
    /// Half of the time after which a lock should have been renewed has passed since, without an answer.
    Expiring {
        /// What it covers.
        resources: Vec<ResourceName>,
        /// What is left of it.
        left: Duration,
    },
    /// An operator is about to break the lock.
    Breaking {
        /// What it covers.
        resources: Vec<ResourceName>,
        /// What is left of it.
        left: Duration,
    },
    /// A guard that holds on was confirmed after its deadline.
    Revived {
        /// What it covers.
        resources: Vec<ResourceName>,
        /// How long it was uncertain.
        lapsed: Duration,
    },
    /// An attempt of a call failed, and another follows.
    Retry {
        /// The call, such as `put`.
        call: &'static str,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// What came of it.
        detail: String,
    },
    /// A call ended.
    Called {
        /// The call, such as `put`.
        call: &'static str,
        /// How it ended; `None`: well.
        class: Option<Class>,
        /// How many attempts it took.
        attempts: u32,
        /// How long it took in all.
        took: Duration,
    },
    /// A write bounced, since the lock was no longer ours: the fence did its work.
    StaleWrite {
        /// Where.
        resource: ResourceName,
        /// Why.
        reason: LossReason,
    },
    /// A release was not answered; it goes on in the background.
    ReleaseFailed {
        /// What the lock covered.
        resources: Vec<ResourceName>,
        /// What came instead.
        detail: String,
    },
}

/// A function that is told of each event. It should be quick; if it panics, that is logged and ignored.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Option<Arc<Hook>>);

type Hook = dyn Fn(&Event) + Send + Sync;

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({})", self.0.is_some())
    }
}

impl Hooks {
    pub(crate) fn new(hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(crate) fn tell(&self, event: &Event) {
        tracing::debug!(target: "fencegate", ?event);
        if let Some(hook) = &self.0 {
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| hook(event)));
            if told.is_err() {
                tracing::error!(target: "fencegate", "a hook panicked");
            }
        }
    }
}
