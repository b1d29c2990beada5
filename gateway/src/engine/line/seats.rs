//! The seats of those who wait at this gateway.

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
pub(super) struct Seats {
    /// One sign per call: the same id may wait more than once.
    pub(super) by_lock: BTreeMap<LockId, Vec<Arc<Sign>>>,
    pub(super) lines: BTreeMap<ResourceName, Watched>,
    /// When to make sure that they are in line, too.
    pub(super) roll_call: Duration,
    /// Until when places may be kept that were given up here.
    pub(super) lingers: Duration,
}

/// How a waiter is told that something is to be done.
#[derive(Default)]
pub(super) struct Sign {
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
    pub(super) seats: usize,
    /// When to look at it next.
    pub(super) due: Duration,
}

/// A waiter's place at this gateway.
pub(in crate::engine) struct Seat {
    pub(super) line: Arc<Line>,
    pub(super) lock: LockId,
    pub(super) resources: Vec<ResourceName>,
    pub(super) sign: Arc<Sign>,
}

impl Seat {
    /// Waits until it may be this waiter's turn. Says whether it is in line at all; if not, it has to
    /// join again.
    pub(in crate::engine) async fn called(&self) -> bool {
        self.sign.called.notified().await;
        !self.sign.is_lost.swap(false, Ordering::AcqRel)
    }

    /// It has joined: perhaps it is its turn already.
    pub(in crate::engine) fn joined(&self) {
        self.sign.has_joined.store(true, Ordering::Release);
        let now = self.line.runtime.clock.elapsed();
        let mut seats = self.line.seats();
        for name in &self.resources {
            if let Some(watched) = seats.lines.get_mut(name) {
                watched.due = now;
            }
        }
        drop(seats);
        self.line.bell.notify_one();
    }

    /// Whether it has joined.
    pub(in crate::engine) fn has_joined(&self) -> bool {
        self.sign.has_joined.load(Ordering::Acquire)
    }

    /// It has left the line; there is no place to keep.
    pub(in crate::engine) fn left(&self) {
        self.sign.has_left.store(true, Ordering::Release);
    }

    /// Whether it is known to have left the line.
    pub(in crate::engine) fn has_left(&self) -> bool {
        self.sign.has_left.load(Ordering::Acquire)
    }

    /// Whether another call under the same id waits here, too.
    pub(in crate::engine) fn is_shared(&self) -> bool {
        self.line.seats().by_lock.get(&self.lock).is_some_and(|signs| signs.len() > 1)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.line.seats();
        if let Some(signs) = seats.by_lock.get_mut(&self.lock) {
            signs.retain(|sign| !Arc::ptr_eq(sign, &self.sign));
            if signs.is_empty() {
                seats.by_lock.remove(&self.lock);
            }
        }
        for name in &self.resources {
            if let Some(watched) = seats.lines.get_mut(name) {
                watched.seats -= 1;
                if watched.seats == 0 {
                    seats.lines.remove(name);
                }
            }
        }
        ::metrics::gauge!(metrics::WAITERS).set(seats.by_lock.len() as f64);
    }
}
