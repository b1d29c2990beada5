//! Fences without a lock, and locks with a longest hold, that wait for one fence row in a forced order:
//! what decides is what stands once the row is locked.

use fence_core::ports::{
    By, Ledger as _, RenewItem, RenewVerdict, SealItem, SealKind, SealVerdict,
};
use fence_core::{LockEnd, MaxHold, Refusal, Supersession, Ttl};

use crate::schedules::forced::{Ground, R, WAIT, applied, put, refused, seal, sealing};

fn fencing(number: i64, order: Option<i64>) -> SealItem {
    SealItem { kind: SealKind::Fence { order, force: false }, ..sealing(R, number) }
}

#[tokio::test]
pub async fn of_two_fences_the_lower_order_is_refused_if_it_comes_second() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let higher = ground.seal_later(fencing(2, Some(8)));
    ground.waiting(1).await;
    let lower = ground.seal_later(fencing(3, Some(7)));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(higher.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let stale = lower.await.unwrap();
    assert!(matches!(stale, Ok(SealVerdict::OrderStale(_))), "{stale:?}");
    assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 2);
    assert_eq!(ground.number("SELECT fence_order FROM fencegate.fences").await, 8);
}

#[tokio::test]
async fn a_write_behind_a_fence_is_refused_and_one_before_it_is_not() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let before = ground.commit_later(put(R, 1, "before"));
    ground.waiting(1).await;
    let fence = ground.seal_later(fencing(2, None));
    ground.waiting(2).await;
    held.let_go().await;
    assert_eq!(applied(before.await.unwrap()).version, Some(1));
    let Ok(SealVerdict::Sealed(grant, _)) = fence.await.unwrap() else { panic!("not sealed") };
    assert_eq!(grant.versions, [1]);

    // Two wait at a time: among those behind one that changes the row, Postgres keeps no order.
    let held = ground.hold_fence(R).await;
    let fence = ground.seal_later(fencing(3, None));
    ground.waiting(1).await;
    let after = ground.commit_later(put(R, 2, "after"));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(fence.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let late = refused(after.await.unwrap());
    assert!(matches!(late, Refusal::Stale { by: Some(Supersession::Fence), .. }), "{late:?}");
}

#[tokio::test]
async fn a_fence_behind_a_grant_is_held_off() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let grant = ground.seal_later(SealItem { ttl: Some(Ttl::DEFAULT), ..sealing(R, 2) });
    ground.waiting(1).await;
    let fence = ground.seal_later(fencing(3, Some(1)));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(grant.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let Ok(SealVerdict::Held(holder)) = fence.await.unwrap() else { panic!("not held") };
    assert_eq!(holder.owner, "owner-2");
}

#[tokio::test]
pub async fn a_fence_sent_twice_at_once_is_one_fence() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let item = fencing(2, Some(5));
    let held = ground.hold_fence(R).await;
    let first = ground.seal_later(item.clone());
    ground.waiting(1).await;
    let second = ground.seal_later(SealItem { number: Some(3), ..item });
    ground.waiting(2).await;
    held.let_go().await;
    let Ok(SealVerdict::Sealed(one, _)) = first.await.unwrap() else { panic!("not sealed") };
    let Ok(SealVerdict::Again(two)) = second.await.unwrap() else { panic!("not again") };
    assert_eq!((one.token.get(), two.token), (2, one.token));
}

#[tokio::test]
pub async fn a_renewal_behind_a_forced_fence_comes_too_late() {
    let ground = Ground::new().await;
    let item = SealItem { ttl: Some(Ttl::INFINITE), ..sealing(R, 1) };
    let Ok(SealVerdict::Sealed(lock, _)) = seal(&ground.ledger, item).await else {
        panic!("not sealed")
    };
    let held = ground.hold_fence(R).await;
    let kind = SealKind::Fence { order: None, force: true };
    let fence = ground.seal_later(SealItem { kind, ..sealing(R, 2) });
    ground.waiting(1).await;
    let ledger = ground.other_ledger();
    let renewal = RenewItem { lock: lock.lock, ttl: None, by: By::default() };
    let renewal = async { ledger.renew([renewal].into(), WAIT).await.unwrap() };
    let letting_go = async {
        ground.waiting(2).await;
        held.let_go().await;
    };
    let (renewal, ()) = tokio::join!(renewal, letting_go);
    assert!(matches!(fence.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    assert_eq!(renewal, [RenewVerdict::Ended(LockEnd::Superseded)]);
    // The fence did not become a lock that lasts.
    let next = seal(&ground.ledger, sealing(R, 3)).await;
    assert!(matches!(next, Ok(SealVerdict::Sealed(..))), "{next:?}");
}

#[tokio::test]
pub async fn a_hold_that_ends_while_a_renewal_waits_is_not_extended() {
    let ground = Ground::new().await;
    let ledger = ground.other_ledger();
    // Long enough that the renewal waits before the hold ends, on a busy machine too.
    let hold = MaxHold::from_ms(3000);
    let item = SealItem { max_hold: Some(hold), ttl: Some(Ttl::DEFAULT), ..sealing(R, 1) };
    let Ok(SealVerdict::Sealed(lock, _)) = seal(&ground.ledger, item).await else {
        panic!("not sealed")
    };
    let held = ground.hold_fence(R).await;
    let renewal = RenewItem { lock: lock.lock, ttl: Some(Ttl::INFINITE), by: By::default() };
    let renewal = async { ledger.renew([renewal].into(), WAIT).await.unwrap() };
    let letting_go = async {
        ground.waiting(1).await;
        fence_tests::conformance::pause(3050).await;
        held.let_go().await;
    };
    let (renewal, ()) = tokio::join!(renewal, letting_go);
    assert_eq!(renewal, [RenewVerdict::HoldExceeded]);
}
