//! The slots of those who wait at this gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fence_core::{LockId, ResourceName};
use tokio::sync::Notify;

use super::Line;
use crate::engine::metrics;

/// Who waits here.
#[derive(Default)]
pub(super) struct Slots {
    /// One notifier per call: the same id may wait more than once.
    pub(super) by_lock: BTreeMap<LockId, Vec<Arc<Notifier>>>,
    pub(super) lines: BTreeMap<ResourceName, Watched>,
    /// When to make sure that they are in line, too.
    pub(super) reconcile_at: Duration,
    /// Until when places may be kept that were given up here.
    pub(super) lingers: Duration,
}

/// How a waiter is told that something is to be done.
#[derive(Default)]
pub(super) struct Notifier {
    pub(super) called: Notify,
    /// Whether it has joined the queue.
    pub(super) has_joined: AtomicBool,
    /// Whether it is not in line any more, although it has joined.
    pub(super) is_lost: AtomicBool,
    /// Whether it is known to have left the line.
    pub(super) has_left: AtomicBool,
}

/// A resource that somebody waits for here.
pub(super) struct Watched {
    /// How many do.
    pub(super) slots: usize,
    /// When to look at it next.
    pub(super) due: Duration,
}

/// A waiter's place at this gateway.
pub(super) struct Slot {
    pub(super) line: Arc<Line>,
    pub(super) lock: LockId,
    pub(super) resources: Vec<ResourceName>,
    pub(super) notifier: Arc<Notifier>,
}

impl Slot {
    /// Waits until it may be this waiter's turn. Says whether it is in line at all; if not, it has to
    /// join again.
    pub(super) async fn called(&self) -> bool {
        self.notifier.called.notified().await;
        !self.notifier.is_lost.swap(false, Ordering::AcqRel)
    }

    /// It has joined: perhaps it is its turn already.
    pub(super) fn joined(&self) {
        self.notifier.has_joined.store(true, Ordering::Release);
        let now = self.line.runtime.clock.elapsed();
        let mut slots = self.line.slots.lock();
        for name in &self.resources {
            if let Some(watched) = slots.lines.get_mut(name) {
                watched.due = now;
            }
        }
        drop(slots);
        self.line.bell.notify_one();
    }

    /// Whether it has joined.
    pub(super) fn has_joined(&self) -> bool {
        self.notifier.has_joined.load(Ordering::Acquire)
    }

    /// It has left the line; there is no place to keep.
    pub(super) fn left(&self) {
        self.notifier.has_left.store(true, Ordering::Release);
    }

    /// Whether it is known to have left the line.
    pub(super) fn has_left(&self) -> bool {
        self.notifier.has_left.load(Ordering::Acquire)
    }

    /// Whether another call under the same id waits here, too.
    pub(super) fn is_shared(&self) -> bool {
        self.line.slots.lock().by_lock.get(&self.lock).is_some_and(|notifiers| notifiers.len() > 1)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.line.slots.lock();
        if let Some(notifiers) = slots.by_lock.get_mut(&self.lock) {
            notifiers.retain(|notifier| !Arc::ptr_eq(notifier, &self.notifier));
            if notifiers.is_empty() {
                slots.by_lock.remove(&self.lock);
            }
        }
        for name in &self.resources {
            if let Some(watched) = slots.lines.get_mut(name) {
                watched.slots -= 1;
                if watched.slots == 0 {
                    slots.lines.remove(name);
                }
            }
        }
        ::metrics::gauge!(metrics::WAITERS).set(slots.by_lock.len() as f64);
    }
}
