//! Keeps a guard: one task for each, in the runtime that took the lock (CC38), which gives the signal in
//! time and has the guard renewed.

use std::sync::{Arc, Weak};

use super::held::Held;
use super::{renewing, watching};
use crate::clock::{now_ms, sleep_until_ms};
use crate::machine::lease::State;

/// How long a lock is held before its events are followed: short sections never pay for it (CC39).
const WATCHED_AFTER_MS: u64 = 5_000;

/// Begins to keep the guard. Ends with it.
pub(crate) fn keep(held: &Arc<Held>, is_watched: bool) {
    let guard = Arc::downgrade(held);
    let watched_ms = is_watched.then(|| held.granted_ms + WATCHED_AFTER_MS);
    tokio::spawn(run(guard, watched_ms));
}

async fn run(guard: Weak<Held>, mut watched_ms: Option<u64>) {
    while let Some(held) = guard.upgrade() {
        // 1. The clock first: a process that was stopped learns it before anything else happens (CC37).
        if !matches!(held.state(), State::Held | State::Uncertain) {
            return;
        }
        let now = now_ms();
        // 2. What is due.
        if held.with_lease(|lease| lease.due_ms()).is_some_and(|due_ms| due_ms <= now) {
            renewing::begin(&held);
        }
        if watched_ms.is_some_and(|at_ms| at_ms <= now) {
            watched_ms = None;
            tokio::spawn(watching::follow(guard.clone(), held.signal.clone()));
        }
        // 3. Until the next moment that matters. The guard itself is not held meanwhile: who drops it, ends it.
        let wake_ms = held.with_lease(|lease| lease.wake_ms());
        let wake_ms = [wake_ms, watched_ms].into_iter().flatten().min();
        let changed = held.changed.clone();
        drop(held);
        tokio::select! {
            () = changed.notified() => {}
            () = sleep_until_ms(wake_ms.unwrap_or(u64::MAX)) => {}
        }
    }
}
