//! Acts that wait for one fence row, in a forced order: what decides is read after the row was
//! locked, so the second sees what the first did.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::time::Duration;

use fence_core::ports::{
    BreakItem, BreakVerdict, By, Ledger, ReleaseVerdict, RenewItem, RenewVerdict, SealVerdict,
    WriteItem, WriteVerdict,
};
use fence_core::{LockEnd, Refusal, Supersession};

use crate::schedules::forced::{
    Ground, R, WAIT, applied, commit, if_absent, if_match, keyed, put, refused, release, replayed,
    sealing,
};

/// Runs two writes that wait for the same row, in this order; their verdicts.
async fn in_turn(ground: &Ground, first: WriteItem, second: WriteItem) -> [WriteVerdict; 2] {
    let held = ground.hold_fence(R).await;
    let first = ground.commit_later(first);
    ground.waiting(1).await;
    let second = ground.commit_later(second);
    ground.waiting(2).await;
    held.let_go().await;
    [first.await.unwrap(), second.await.unwrap()]
}

#[tokio::test]
pub async fn of_two_writes_with_one_token_and_one_if_match_one_wins() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    ground.written(put(R, 1, "old")).await;
    let (first, second) = (if_match(1, put(R, 1, "a")), if_match(1, put(R, 1, "b")));
    let [first, second] = in_turn(&ground, first, second).await;
    assert_eq!(applied(first).version, Some(2));
    assert_eq!(refused(second), Refusal::VersionMismatch);
}

#[tokio::test]
pub async fn of_two_writes_that_want_no_object_there_one_wins() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let (first, second) = (if_absent(put(R, 1, "a")), if_absent(put(R, 1, "b")));
    let [first, second] = in_turn(&ground, first, second).await;
    assert!(applied(first).created);
    assert_eq!(refused(second), Refusal::VersionMismatch);
}

#[tokio::test]
pub async fn of_two_writes_for_one_resource_version_one_wins() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let at_0 = |body| WriteItem { resource_version: Some(0), ..put(R, 1, body) };
    let [first, second] = in_turn(&ground, at_0("a"), at_0("b")).await;
    assert_eq!(applied(first).version, Some(1));
    assert_eq!(refused(second), Refusal::VersionMismatch);
}

#[tokio::test]
pub async fn of_two_writes_with_one_sequence_number_one_wins() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let fifth = |body| WriteItem { sequence: Some(5), ..put(R, 1, body) };
    let [first, second] = in_turn(&ground, fifth("a"), fifth("b")).await;
    assert_eq!(applied(first).version, Some(1));
    assert_eq!(refused(second), Refusal::SequenceOutOfOrder);
}

#[tokio::test]
pub async fn of_two_writes_with_one_key_one_takes_effect_and_the_other_replays_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let (first, second) = (keyed("once", put(R, 1, "x")), keyed("once", put(R, 1, "x")));
    let operation = first.operation;
    let [first, second] = in_turn(&ground, first, second).await;
    assert_eq!(applied(first).operation, operation);
    let second = replayed(second);
    assert_eq!((second.operation, second.version), (operation, Some(1)));
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.operations").await, 1);
}

#[tokio::test]
pub async fn a_keyed_retry_behind_a_seal_replays_although_its_token_is_stale() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let original = ground.written(keyed("once", put(R, 1, "x"))).await;

    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let retry = ground.commit_later(keyed("once", put(R, 1, "x")));
    let plain = put(R, 1, "y");
    ground.waiting(2).await;
    held.let_go().await;

    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    assert_eq!(replayed(retry.await.unwrap()), original);
    assert!(matches!(refused(commit(&ground.ledger, plain).await), Refusal::Stale { .. }));
}

#[tokio::test]
pub async fn a_write_with_the_old_token_behind_a_seal_is_stale() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let write = ground.commit_later(put(R, 1, "late"));
    ground.waiting(2).await;
    held.let_go().await;

    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let Refusal::Stale { by, at, grants_behind, owner } = refused(write.await.unwrap()) else {
        panic!("not stale");
    };
    assert_eq!((by, grants_behind), (Some(Supersession::Grant), Some(1)));
    assert!(at.is_some());
    assert_eq!(owner.as_deref(), Some("owner-1"));
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 0);
}

#[tokio::test]
async fn a_seal_behind_a_write_sees_the_new_version() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let write = ground.commit_later(put(R, 1, "x"));
    ground.waiting(1).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(2).await;
    held.let_go().await;

    assert_eq!(applied(write.await.unwrap()).version, Some(1));
    let Ok(SealVerdict::Sealed(grant, _)) = seal.await.unwrap() else { panic!("not sealed") };
    assert_eq!((grant.token.get(), grant.versions), (2, vec![1]));
}

#[tokio::test]
pub async fn of_two_seals_of_a_free_resource_one_wins() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let lasting = |number| {
        let ttl = Some(fence_core::Ttl::DEFAULT);
        fence_core::ports::SealItem { ttl, ..sealing(R, number) }
    };
    let held = ground.hold_fence(R).await;
    let first = ground.seal_later(lasting(3));
    ground.waiting(1).await;
    let second = ground.seal_later(lasting(2));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(first.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let Ok(SealVerdict::Held(holder)) = second.await.unwrap() else { panic!("not held") };
    assert_eq!(holder.owner, "owner-3");
}

#[tokio::test]
pub async fn a_number_that_was_overtaken_while_it_waited_is_too_low() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let overtaking = ground.seal_later(sealing(R, 3));
    ground.waiting(1).await;
    let overtaken = ground.seal_later(sealing(R, 2));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(overtaking.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    assert_eq!(overtaken.await.unwrap(), Ok(SealVerdict::NumberTooLow));
    assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 3);
}

#[tokio::test]
pub async fn a_write_behind_a_release_is_refused_and_one_before_it_is_not() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let before = ground.commit_later(put(R, 1, "before"));
    ground.waiting(1).await;
    let release = ground.release_later(grant.lock);
    ground.waiting(2).await;
    held.let_go().await;
    assert_eq!(applied(before.await.unwrap()).version, Some(1));
    assert!(matches!(release.await.unwrap(), ReleaseVerdict::Released { .. }));

    // Two wait at a time: among those behind one that changes the row, Postgres keeps no order.
    let grant = ground.sealed(R, 2).await;
    let held = ground.hold_fence(R).await;
    let release = ground.release_later(grant.lock);
    ground.waiting(1).await;
    let after = ground.commit_later(put(R, 2, "after"));
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(release.await.unwrap(), ReleaseVerdict::Released { .. }));
    assert_eq!(refused(after.await.unwrap()), Refusal::Released);
}

#[tokio::test]
async fn a_write_behind_a_break_is_refused() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let breaking = BreakItem {
        resource: grant.resources[0].clone(),
        token: grant.token,
        after: Duration::ZERO,
        reason: "test".to_owned(),
        request_id: "test-request".to_owned(),
        by: By::default(),
    };
    let ledger = ground.other_ledger();
    let breaking = async { ledger.break_locks([breaking].into(), WAIT).await.unwrap() };
    let write = async {
        ground.waiting(1).await;
        let write = ground.commit_later(put(R, 1, "late"));
        ground.waiting(2).await;
        held.let_go().await;
        write.await.unwrap()
    };
    let (broken, write) = tokio::join!(breaking, write);
    assert!(matches!(broken[0], BreakVerdict::Broken { .. }), "{broken:?}");
    assert_eq!(refused(write), Refusal::Broken);
}

#[tokio::test]
pub async fn a_renewal_and_a_release_behind_a_seal_come_too_late() {
    let ground = Ground::new().await;
    let old = ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let ledger = ground.other_ledger();
    let renewal = RenewItem { lock: old.lock, ttl: None, by: By::default() };
    let renewal = async { ledger.renew([renewal].into(), WAIT).await.unwrap() };
    let releasing = async {
        ground.waiting(2).await;
        let releasing = ground.release_later(old.lock);
        ground.waiting(3).await;
        held.let_go().await;
        releasing.await.unwrap()
    };
    let (renewal, released) = tokio::join!(renewal, releasing);
    let Ok(SealVerdict::Sealed(new, _)) = seal.await.unwrap() else { panic!("not sealed") };
    assert_eq!(renewal, [RenewVerdict::Ended(LockEnd::Superseded)]);
    assert_eq!(released, ReleaseVerdict::AlreadyEnded);
    // The new holder was not touched.
    assert_eq!(ground.written(put(R, 2, "new")).await.version, Some(1));
    let released = release(&ground.ledger, new.lock).await;
    assert!(matches!(released, ReleaseVerdict::Released { .. }));
}
