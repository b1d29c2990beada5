//! Acts that meet on fence rows in a forced order: the same one sent twice, one on several resources of
//! which one changes, one that comes behind what makes it moot.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Attempt, BreakItem, BreakVerdict, By, CommitItem, CommitStep, CommitVerdict, Effect,
    IdempotencyKey, IntentItem, IntentVerdict, Intents as _, JoinItem, JoinVerdict, Ledger as _,
    Mark, MarkItem, ReleaseVerdict, Resolution, Resolved, SealItem, SealVerdict, WriteItem,
};
use fence_core::{LockId, ObjectKey, Refusal, ResourceName, Token, Ttl};
use fence_tests::conformance::ledger::drains::intent;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::schedules::commits::{item, later, sealed};
use crate::schedules::forced::{Ground, Held, R, WAIT, applied, put, refused, sealing};
use crate::schedules::upstreams::open_later;

fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).unwrap()
}

#[tokio::test]
pub async fn the_same_write_sent_twice_has_one_effect() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let ghost = put(R, 1, "x");
    let held = ground.hold_fence(R).await;
    let first = ground.commit_later(ghost.clone());
    ground.waiting(1).await;
    let again = ground.commit_later(WriteItem { attempt: Attempt::Rerun, ..ghost });
    ground.waiting(2).await;
    held.let_go().await;
    let first = applied(first.await.unwrap());
    assert_eq!(applied(again.await.unwrap()), first);
    assert_eq!(
        ground.number("SELECT coalesce(max(version), 0) FROM fencegate.operations").await,
        1
    );
}

#[tokio::test]
pub async fn the_same_opening_sent_twice_opens_one_intent() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let ghost = IntentItem { sequence: Some(1), ..intent(R, 1) };
    let held = ground.hold_fence(R).await;
    let first = open_later(&ground, ghost.clone());
    ground.waiting(1).await;
    let again = open_later(&ground, IntentItem { attempt: Attempt::Rerun, ..ghost });
    ground.waiting(2).await;
    held.let_go().await;
    assert_eq!(first.await.unwrap(), IntentVerdict::Admitted);
    assert_eq!(again.await.unwrap(), IntentVerdict::Admitted);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.upstream_intents").await, 1);
}

#[tokio::test]
pub async fn of_two_commits_with_one_key_one_takes_effect_and_the_other_replays_it() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let keyed = || {
        let key = IdempotencyKey { key: "once".into(), fingerprint: [9; 32], kept: None };
        CommitItem { idempotency: Some(key), ..item(&["a", "b"], 1) }
    };
    let held = ground.hold_fence("b").await;
    let first = later(&ground, keyed());
    ground.waiting(1).await;
    let second = later(&ground, keyed());
    ground.waiting(2).await;
    held.let_go().await;
    let first = first.await.unwrap();
    let CommitVerdict::Applied { applied, replayed: false } = first else { panic!("{first:?}") };
    let replay = CommitVerdict::Applied { applied, replayed: true };
    assert_eq!(second.await.unwrap(), replay);
    assert_eq!(ground.number("SELECT count(version) FROM fencegate.operations").await, 2);
}

#[tokio::test]
pub async fn a_seal_of_several_behind_a_seal_of_one_seals_none() {
    let ground = Ground::new().await;
    ground.sealed("a", 1).await;
    ground.sealed("b", 2).await;
    let held = ground.hold_fence("b").await;
    let one = ground.seal_later(SealItem { ttl: Some(Ttl::DEFAULT), ..sealing("b", 3) });
    ground.waiting(1).await;
    let both = vec![name("a"), name("b")];
    let several = ground.seal_later(SealItem { resources: both, ..sealing("a", 4) });
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(one.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let several = several.await.unwrap();
    let Ok(SealVerdict::Held(holder)) = several else { panic!("not held: {several:?}") };
    assert_eq!((holder.resource.as_str(), holder.owner.as_str()), ("b", "owner-3"));
    let tokens = "SELECT sum(token)::bigint FROM fencegate.fences";
    assert_eq!(ground.number(tokens).await, 1 + 3);
}

#[tokio::test]
pub async fn a_break_behind_a_seal_spares_the_next_holder() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let breaking = BreakItem {
        resource: name(R),
        token: Token::new(1).unwrap(),
        after: Duration::ZERO,
        reason: "test".to_owned(),
        request_id: "test-request".to_owned(),
        by: By::default(),
    };
    let ledger = ground.other_ledger();
    let breaking = tokio::spawn(async move { ledger.break_locks([breaking].into(), WAIT).await });
    ground.waiting(2).await;
    held.let_go().await;
    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    assert_eq!(breaking.await.unwrap(), Ok(vec![BreakVerdict::NotHeld]));
    assert_eq!(ground.written(put(R, 2, "x")).await.version, Some(1));
}

/// Else it would wait for somebody to free what is free already.
#[tokio::test]
pub async fn who_joins_behind_a_release_does_not_wait() {
    let ground = Ground::new().await;
    let lasting = SealItem { ttl: Some(Ttl::DEFAULT), ..sealing(R, 1) };
    let lock = lasting.lock;
    assert!(matches!(ground.seal_later(lasting).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let held = ground.hold_fence(R).await;
    let release = ground.release_later(lock);
    ground.waiting(1).await;
    let joining = JoinItem {
        lock: LockId(Uuid::new_v4()),
        resources: vec![name(R)],
        owner: "next".into(),
        gateway: Uuid::new_v4(),
        waiters_max: 10,
        by: By::default(),
    };
    let ledger = ground.other_ledger();
    let joining = tokio::spawn(async move { ledger.join([joining].into(), WAIT).await });
    ground.ended_or_waiting(&joining, 2).await;
    held.let_go().await;
    assert!(matches!(release.await.unwrap(), ReleaseVerdict::Released { .. }));
    assert_eq!(joining.await.unwrap(), Ok(vec![JoinVerdict::Free]));
}

/// No act that holds the fence finds the intent open and gone at once.
#[tokio::test]
pub async fn a_resolution_waits_for_an_act_under_way() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let opening = intent(R, 1);
    let operation = opening.operation;
    assert_eq!(open_later(&ground, opening).await.unwrap(), IntentVerdict::Admitted);
    let held = ground.hold_fence(R).await;
    let ledger = Arc::clone(&ground.ledger);
    let resolving = tokio::spawn(async move {
        let resolution =
            Resolution { reason: "x".into(), request_id: "r".into(), by: By::default() };
        ledger.resolve_intent(operation, resolution).await
    });
    ground.kept_waiting(&resolving, 1).await;
    held.let_go().await;
    let resolved = resolving.await.unwrap();
    assert!(matches!(resolved, Ok(Resolved::Now(_))), "{resolved:?}");
}

/// The first sending reaches the row after it was given up.
#[tokio::test]
pub async fn a_commit_that_was_given_up_has_no_effect_when_it_comes_late() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let late = item(&["a", "b"], 1);
    let held = ground.hold_fence("b").await;
    let unwanted = later(&ground, CommitItem { attempt: Attempt::Bury, ..late.clone() });
    ground.waiting(1).await;
    let late = later(&ground, late);
    ground.waiting(2).await;
    held.let_go().await;
    assert_eq!(unwanted.await.unwrap(), CommitVerdict::Buried);
    assert_eq!(late.await.unwrap(), CommitVerdict::Buried);
    assert_eq!(ground.number("SELECT count(version) FROM fencegate.operations").await, 0);
}

/// Why a commit on `a` and `b` is refused that waits behind this act on `b`.
async fn refused_behind<T>(ground: &Ground, held: Held, act: JoinHandle<T>) -> Refusal {
    ground.waiting(1).await;
    let late = later(ground, item(&["a", "b"], 1));
    ground.waiting(2).await;
    held.let_go().await;
    act.await.unwrap();
    match late.await.unwrap() {
        CommitVerdict::Refused { refusal, .. } => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
pub async fn a_commit_behind_a_release_is_refused_on_all() {
    let ground = Ground::new().await;
    let both = SealItem { resources: vec![name("a"), name("b")], ..sealing("a", 1) };
    let lock = both.lock;
    assert!(matches!(ground.seal_later(both).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let held = ground.hold_fence("b").await;
    let release = ground.release_later(lock);
    assert_eq!(refused_behind(&ground, held, release).await, Refusal::Released);
}

#[tokio::test]
pub async fn a_commit_behind_a_freeze_is_refused_on_all() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let held = ground.hold_fence("b").await;
    let freeze = MarkItem {
        resource: name("b"),
        mark: Mark::Freeze,
        reason: "test".into(),
        request_id: "test-request".into(),
        by: By::default(),
    };
    let ledger = ground.other_ledger();
    let freeze = tokio::spawn(async move { ledger.mark([freeze].into(), WAIT).await.unwrap() });
    assert_eq!(refused_behind(&ground, held, freeze).await, Refusal::Frozen);
}

/// It was given to nobody yet.
#[tokio::test]
pub async fn a_token_that_is_not_in_force_is_good_for_nothing() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let open = open_later(&ground, intent(R, 1)).await.unwrap();
    assert_eq!(open, IntentVerdict::Admitted);
    let waits =
        SealItem { waits: Some(Uuid::from_u128(7)), ttl: Some(Ttl::DEFAULT), ..sealing(R, 2) };
    let seal = ground.seal_later(waits).await.unwrap();
    assert!(matches!(seal, Ok(SealVerdict::Drains { .. })), "{seal:?}");
    assert_eq!(refused(ground.commit_later(put(R, 2, "x")).await.unwrap()), Refusal::Draining);
    let many = later(&ground, item(&[R], 2)).await.unwrap();
    let CommitVerdict::Refused { refusal: Refusal::Draining, .. } = many else {
        panic!("{many:?}")
    };
    let open = open_later(&ground, intent(R, 2)).await.unwrap();
    assert_eq!(open, IntentVerdict::Refused(Refusal::Draining));
}

/// Objects of one name on two resources, in one batch and in a commit.
#[tokio::test]
pub async fn a_delete_leaves_the_objects_of_other_resources() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b", "c"], 1).await;
    for resource in ["a", "b", "c"] {
        ground.written(put(resource, 1, "x")).await;
    }
    let key = || ObjectKey::new("k").unwrap();
    let delete = WriteItem { effect: Effect::Delete { key: key() }, ..put("a", 1, "") };
    let other = WriteItem { effect: Effect::DeleteAll, ..put("b", 1, "") };
    let batch = ground.ledger.commit([delete, other].into(), WAIT).await.unwrap();
    batch.into_iter().for_each(|verdict| drop(applied(verdict)));
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 1);
    assert_eq!(ground.written(put("a", 1, "y")).await.version, Some(3));
    let mut many = item(&["a"], 1);
    let step = CommitStep { effect: Effect::Delete { key: key() }, ..many.steps[0].clone() };
    many.steps = [step].into();
    let done = later(&ground, many).await.unwrap();
    assert!(matches!(done, CommitVerdict::Applied { .. }), "{done:?}");
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 1);
}
