//! Fences without a lock, for those whose lock is elsewhere.

use std::sync::Arc;

use fence_core::ports::{
    Attempt, Ledger, Patience, ReleaseVerdict, RenewVerdict, SealItem, SealKind, SealVerdict,
};
use fence_core::{LockEnd, LockState, Refusal, Supersession};

use super::build::*;
use crate::conformance::{Operator, reopened_sqlite_ledger};

async fn state(ledger: &dyn Ledger, resource: &str) -> LockState {
    ledger.resource(&name(resource)).await.expect("read").expect("fenced").state
}

/// Its token admits writes like any other; every earlier one is stale.
pub async fn a_fence_admits_its_token_alone(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "ann")).await;
    let bob = granted(ledger, fence("r", 20, None, false)).await;
    assert_eq!(
        (bob.token.get(), bob.state, bob.versions.as_slice()),
        (20, LockState::Expired, &[1][..])
    );
    let late = refusal(ledger, put(&ann, "k", "late")).await;
    let Refusal::Stale { by, .. } = late else { panic!("{late:?}") };
    assert_eq!(by, Some(Supersession::Fence));
    apply(ledger, put(&bob, "k", "bob")).await;
    let record = ledger.lock(ann.lock).await.expect("read").expect("known");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Superseded));

    let carl = granted(ledger, fence("r", 30, None, false)).await;
    let late = refusal(ledger, put(&bob, "k", "late")).await;
    assert!(matches!(late, Refusal::Stale { by: Some(Supersession::Fence), .. }), "{late:?}");
    apply(ledger, put(&carl, "k", "carl")).await;
}

/// It keeps nobody out: it shows as expired at once, and the next lock takes over.
pub async fn a_fence_keeps_nobody_out(ledger: &dyn Ledger) {
    let fenced = granted(ledger, fence("r", 10, None, false)).await;
    assert_eq!(state(ledger, "r").await, LockState::Expired);
    let record = ledger.lock(fenced.lock).await.expect("read").expect("known");
    assert_eq!((record.grant.state, record.ended), (LockState::Expired, None));
    assert!(record.grant.remaining_ms <= 0);

    let SealVerdict::Sealed(ann, taken) = seal_one(ledger, seal(["r"], 20)).await else {
        panic!("not sealed")
    };
    assert_eq!(taken, [], "no lock was taken over");
    let late = refusal(ledger, put(&fenced, "k", "late")).await;
    assert!(matches!(late, Refusal::Stale { by: Some(Supersession::Grant), .. }), "{late:?}");
    apply(ledger, put(&ann, "k", "ann")).await;
}

/// A live lock of ours is in the way, unless by force.
pub async fn a_live_lock_is_fenced_off_by_force_only(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let refused = seal_one(ledger, fence("r", 20, None, false)).await;
    assert!(
        matches!(refused, SealVerdict::Held(ref holder) if holder.owner == "ann"),
        "{refused:?}"
    );
    break_one(ledger, &ann, 60_000).await;
    let refused = seal_one(ledger, fence("r", 20, None, false)).await;
    assert!(matches!(refused, SealVerdict::Held(_)), "{refused:?}");
    apply(ledger, put(&ann, "k", "still mine")).await;

    let forced = granted(ledger, fence("r", 20, None, true)).await;
    assert!(matches!(refusal(ledger, put(&ann, "k", "late")).await, Refusal::Stale { .. }));
    let ended = RenewVerdict::Ended(LockEnd::Superseded);
    assert_eq!(renew_one(ledger, ann.lock).await, ended);
    apply(ledger, put(&forced, "k", "forced")).await;
}

/// What was released or broken is in nobody's way.
pub async fn an_ended_lock_is_fenced_off_without_force(ledger: &dyn Ledger) {
    let released = held(ledger, "a", 10).await;
    release_one(ledger, released.lock).await;
    granted(ledger, fence("a", 20, None, false)).await;
    let broken = held(ledger, "b", 11).await;
    break_one(ledger, &broken, 0).await;
    granted(ledger, fence("b", 21, None, false)).await;
}

/// An order that does not rise changes nothing; without an order the last caller wins.
pub async fn an_order_must_rise(ledger: &dyn Ledger) {
    let five = granted(ledger, fence("r", 10, Some(5), false)).await;
    for order in [5, 4, 1] {
        let stale = seal_one(ledger, fence("r", 20, Some(order), false)).await;
        assert_eq!(stale, SealVerdict::OrderStale(name("r")), "{order}");
        let forced = seal_one(ledger, fence("r", 20, Some(order), true)).await;
        assert_eq!(forced, SealVerdict::OrderStale(name("r")), "{order}");
    }
    apply(ledger, put(&five, "k", "still the last")).await;
    let nine = granted(ledger, fence("r", 20, Some(9), false)).await;
    assert!(matches!(refusal(ledger, put(&five, "k", "late")).await, Refusal::Stale { .. }));

    // The order outlives fences without one, and locks.
    granted(ledger, fence("r", 30, None, false)).await;
    let lock = held(ledger, "r", 40).await;
    release_one(ledger, lock.lock).await;
    let stale = seal_one(ledger, fence("r", 50, Some(9), false)).await;
    assert_eq!(stale, SealVerdict::OrderStale(name("r")));
    granted(ledger, fence("r", 50, Some(i64::MAX), false)).await;
    let stale = seal_one(ledger, fence("r", 60, Some(i64::MAX), false)).await;
    assert_eq!(stale, SealVerdict::OrderStale(name("r")));
    assert!(matches!(refusal(ledger, put(&nine, "k", "late")).await, Refusal::Stale { .. }));
    // It is the resource's own.
    granted(ledger, fence("s", 60, Some(1), false)).await;
}

/// A stale order is no reason to mint again: it is refused whatever the number.
pub async fn a_stale_order_needs_no_number(ledger: &dyn Ledger) {
    granted(ledger, fence("r", 10, Some(5), false)).await;
    for number in [None, Some(5), Some(20)] {
        let item = SealItem { number, ..fence("r", 0, Some(5), false) };
        assert_eq!(seal_one(ledger, item).await, SealVerdict::OrderStale(name("r")));
    }
    let rising = SealItem { number: Some(10), ..fence("r", 0, Some(6), false) };
    assert_eq!(seal_one(ledger, rising).await, SealVerdict::NumberTooLow);
}

/// The same id gets the same answer while it is the last, and nothing moves.
pub async fn a_fence_repeated_is_the_same_fence(ledger: &dyn Ledger) {
    let item = fence("r", 10, Some(5), false);
    let first = granted(ledger, item.clone()).await;
    apply(ledger, put(&first, "k", "a")).await;
    for (attempt, order) in [(Attempt::First, Some(5)), (Attempt::Rerun, None)] {
        let kind = SealKind::Fence { order, force: false };
        let again = SealItem { kind, attempt, number: Some(20), ..item.clone() };
        let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
        assert_eq!((grant.lock, grant.token, grant.state), (first.lock, first.token, first.state));
        assert_eq!(grant.versions, [1]);
    }
    assert_eq!(state(ledger, "r").await, LockState::Expired);
    granted(ledger, fence("r", 30, Some(6), false)).await;
    let again = SealItem { number: Some(40), ..item };
    assert_eq!(seal_one(ledger, again).await, SealVerdict::Ended(LockEnd::Superseded));
}

/// An id names one fence for ever, on one resource, and never a lock.
pub async fn the_id_of_a_fence_is_of_nothing_else(ledger: &dyn Ledger) {
    let item = fence("r", 10, None, false);
    granted(ledger, item.clone()).await;
    for other in [
        SealItem { resources: vec![name("s")], ..item.clone() },
        SealItem { owner: "bob".into(), ..item.clone() },
        SealItem { kind: SealKind::Lock, ..item.clone() },
    ] {
        let refused = seal_one(ledger, SealItem { number: Some(20), ..other }).await;
        assert_eq!(refused, SealVerdict::Conflict);
    }
    let lock = seal(["s"], 20);
    granted(ledger, lock.clone()).await;
    let kind = SealKind::Fence { order: None, force: true };
    let refused = seal_one(ledger, SealItem { kind, number: Some(30), ..lock }).await;
    assert_eq!(refused, SealVerdict::Conflict);
}

/// There is no lock to renew or to hand over, before and after its end.
pub async fn a_fence_is_neither_renewed_nor_handed_over(ledger: &dyn Ledger) {
    let fenced = granted(ledger, fence("r", 10, None, false)).await;
    let heir = || SealItem { kind: SealKind::Transfer { from: fenced.lock }, ..seal(["r"], 20) };
    assert_eq!(renew_for(ledger, fenced.lock, Some(long())).await, RenewVerdict::NotFound);
    assert_eq!(seal_one(ledger, heir()).await, SealVerdict::NotFound);
    assert_eq!(state(ledger, "r").await, LockState::Expired);
    release_one(ledger, fenced.lock).await;
    assert_eq!(renew_one(ledger, fenced.lock).await, RenewVerdict::NotFound);
    assert_eq!(seal_one(ledger, heir()).await, SealVerdict::NotFound);
}

/// Its holder can give it back: no write is admitted until the next.
pub async fn a_fence_is_released_like_a_lock(ledger: &dyn Ledger) {
    let item = fence("r", 10, Some(5), false);
    let fenced = granted(ledger, item.clone()).await;
    assert!(matches!(release_one(ledger, fenced.lock).await, ReleaseVerdict::Released { .. }));
    assert_eq!(refusal(ledger, put(&fenced, "k", "late")).await, Refusal::Released);
    assert_eq!(state(ledger, "r").await, LockState::Released);
    let again = SealItem { number: Some(20), ..item };
    assert_eq!(seal_one(ledger, again).await, SealVerdict::Ended(LockEnd::Released));
    // An id that was released before it was set is never set.
    let never = fence("r", 20, Some(6), false);
    release_one(ledger, never.lock).await;
    assert_eq!(seal_one(ledger, never).await, SealVerdict::Ended(LockEnd::Released));
    granted(ledger, fence("r", 20, Some(6), false)).await;
}

/// An operator can break it, at once: it has no deadline to wait for.
pub async fn a_fence_is_broken_at_once(ledger: &dyn Ledger) {
    let fenced = granted(ledger, fence("r", 10, None, false)).await;
    break_one(ledger, &fenced, 60_000).await;
    assert_eq!(refusal(ledger, put(&fenced, "k", "late")).await, Refusal::Broken);
    granted(ledger, fence("r", 20, None, false)).await;
}

/// A fence that is refused after its first answer was lost is buried.
pub async fn a_refused_rerun_of_a_fence_is_buried(ledger: &dyn Ledger) {
    granted(ledger, fence("r", 10, Some(5), false)).await;
    let item = fence("r", 20, Some(4), false);
    let rerun = SealItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(seal_one(ledger, rerun).await, SealVerdict::OrderStale(name("r")));
    let kind = SealKind::Fence { order: Some(6), force: false };
    let ghost = SealItem { kind, ..item };
    assert_eq!(seal_one(ledger, ghost).await, SealVerdict::Ended(LockEnd::Released));
}

/// Fences and locks in one batch, each with its own verdict.
pub async fn fences_and_locks_are_sealed_in_one_batch(ledger: &dyn Ledger) {
    held(ledger, "a", 10).await;
    granted(ledger, fence("b", 11, Some(5), false)).await;
    let items = [
        fence("a", 20, None, false),
        fence("b", 21, Some(5), false),
        seal(["c", "d"], 22),
        fence("e", 23, Some(1), true),
    ];
    let epoch = ledger.epoch().await.expect("an epoch").number;
    let verdicts = ledger.seal(epoch, Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(
        matches!(
            verdicts.as_slice(),
            [
                SealVerdict::Held(_),
                SealVerdict::OrderStale(_),
                SealVerdict::Sealed(..),
                SealVerdict::Sealed(..)
            ]
        ),
        "{verdicts:?}"
    );
}

/// Nobody is let in while an operator has frozen the resource, not even by force.
pub async fn a_frozen_resource_takes_no_fence(ledger: &dyn Ledger, operator: &Operator) {
    let fenced = granted(ledger, fence("r", 10, Some(5), false)).await;
    operator.execute("UPDATE fences SET frozen = 'audit'").await;
    for order in [Some(4), Some(6), None] {
        let refused = seal_one(ledger, fence("r", 20, order, true)).await;
        assert_eq!(refused, SealVerdict::Frozen(name("r")));
    }
    operator.execute("UPDATE fences SET frozen = NULL").await;
    apply(ledger, put(&fenced, "k", "still the last")).await;
    granted(ledger, fence("r", 20, Some(6), false)).await;
}

/// A process that starts gives a lock its ttl again, and a fence nothing.
pub async fn a_restart_makes_no_lock_of_a_fence(ledger: &dyn Ledger, operator: &Operator) {
    let Operator::Sqlite(path) = operator else { panic!("only SQLite counts its own time") };
    let fenced = granted(ledger, fence("r", 10, Some(5), false)).await;
    let reopened = reopened_sqlite_ledger(path).await;
    assert_eq!(state(&reopened, "r").await, LockState::Expired);
    apply(&reopened, put(&fenced, "k", "still the last")).await;
    let stale = seal_one(&reopened, fence("r", 20, Some(5), false)).await;
    assert_eq!(stale, SealVerdict::OrderStale(name("r")));
    held(&reopened, "r", 20).await;
}
