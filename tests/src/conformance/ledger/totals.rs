//! Totals: how many locks are held, and how many resources are frozen, in the whole ledger.

use fence_core::LockState;
use fence_core::ports::{Grant, Ledger, Mark, Totals};
use uuid::Uuid;

use super::build::*;
use super::disasters::forced;
use super::drains::{close, drains_on, intent, open, waiting as draining};
use super::marks::mark_one;
use crate::conformance::pause;

async fn totals(ledger: &dyn Ledger) -> (i64, i64) {
    let Totals { locks_held, frozen_resources } = ledger.totals().await.expect("counted");
    (locks_held, frozen_resources)
}

async fn locks_held(ledger: &dyn Ledger) -> i64 {
    totals(ledger).await.0
}

/// A lock counts once, however many resources it covers, until it is released, transferred to another or taken over.
pub async fn each_lock_that_is_held_counts_once(ledger: &dyn Ledger) {
    assert_eq!(totals(ledger).await, (0, 0));
    let ann = held(ledger, "r", 10).await;
    let both = granted(ledger, seal(["s", "t"], 20)).await;
    assert_eq!(locks_held(ledger).await, 2);
    renew_one(ledger, ann.lock).await;
    apply(ledger, put(&both, "k", "a")).await;
    assert_eq!(locks_held(ledger).await, 2);
    release_one(ledger, both.lock).await;
    assert_eq!(locks_held(ledger).await, 1);
    held(ledger, "s", 30).await;
    held(ledger, "t", 31).await;
    assert_eq!(locks_held(ledger).await, 3);
    release_one(ledger, ann.lock).await;
    release_one(ledger, ann.lock).await;
    assert_eq!(locks_held(ledger).await, 2);
}

/// By the clock of the ledger, whether anybody has noticed or not. One that is renewed late counts again.
pub async fn an_expired_lock_does_not_count(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    held(ledger, "s", 20).await;
    assert_eq!(locks_held(ledger).await, 1);
    renew_for(ledger, ann.lock, Some(long())).await;
    assert_eq!(locks_held(ledger).await, 2);
    renew_for(ledger, ann.lock, Some(short())).await;
    expire().await;
    assert_eq!(locks_held(ledger).await, 1);
    held(ledger, "r", 30).await;
    assert_eq!(locks_held(ledger).await, 2);
}

/// It keeps nobody out.
pub async fn a_fence_without_a_lock_does_not_count(ledger: &dyn Ledger) {
    granted(ledger, fence("r", 10, Some(1), false)).await;
    assert_eq!(totals(ledger).await, (0, 0));
}

/// While it keeps others out of one of its resources.
pub async fn a_lock_that_is_broken_on_some_of_its_resources_counts(ledger: &dyn Ledger) {
    let both = granted(ledger, seal(["r", "s"], 10)).await;
    break_one(ledger, &both, 0).await;
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!((view.state, locks_held(ledger).await), (LockState::Broken, 1));
    let rest = Grant { resources: vec![name("s")], ..both };
    break_one(ledger, &rest, 0).await;
    assert_eq!(locks_held(ledger).await, 0);
}

/// Until the break comes due, whether it is stored by then or not.
pub async fn a_lock_that_is_to_be_broken_counts_until_then(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let bob = held(ledger, "s", 20).await;
    break_one(ledger, &ann, 60_000).await;
    break_one(ledger, &bob, 20).await;
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!(view.state, LockState::Breaking);
    pause(40).await;
    assert_eq!(locks_held(ledger).await, 1);
    break_one(ledger, &ann, 0).await;
    assert_eq!(locks_held(ledger).await, 0);
}

/// Its token is not in force yet, but nobody else gets the lock.
pub async fn a_draining_lock_counts(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let request = intent("r", 10);
    let operation = request.operation;
    open(ledger, request).await;
    release_one(ledger, ann.lock).await;
    assert_eq!(locks_held(ledger).await, 0);
    let bob = draining(["q", "r"], 20);
    assert_eq!(drains_on(&seal_one(ledger, bob.clone()).await), Some("r"));
    assert_eq!(locks_held(ledger).await, 1);
    assert_eq!(close(ledger, operation).await, [name("r")]);
    assert_eq!(ledger.complete_drains(GATEWAY, None).await, Ok(vec![bob.lock]));
    assert_eq!(locks_held(ledger).await, 1);
}

/// A re-fence voids every lock. Marks outlive it.
pub async fn void_locks_do_not_count(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    mark_one(ledger, "r", Mark::Freeze, "audit").await;
    assert_eq!(totals(ledger).await, (1, 1));
    ledger.refence(forced(Uuid::new_v4())).await.expect("done");
    assert_eq!(totals(ledger).await, (0, 1));
}

/// Each resource once, whoever holds it or not.
pub async fn frozen_resources_are_counted(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let both = granted(ledger, seal(["s", "t"], 20)).await;
    for resource in ["r", "s", "s", "never"] {
        mark_one(ledger, resource, Mark::Freeze, "audit").await;
    }
    mark_one(ledger, "t", Mark::Protect, "precious").await;
    assert_eq!(totals(ledger).await, (2, 2));
    release_one(ledger, ann.lock).await;
    release_one(ledger, both.lock).await;
    mark_one(ledger, "r", Mark::Freeze, "another reason").await;
    assert_eq!(totals(ledger).await, (0, 2));
    mark_one(ledger, "r", Mark::Unfreeze, "done").await;
    assert_eq!(totals(ledger).await, (0, 1));
}
