//! The rule in the acts beside `commit`, and what acts on an older lock must leave alone.
#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::disallowed_methods, reason = "a test makes ids")]

use std::time::Duration;

use fence_core::ports::{
    Attempt, BreakItem, BreakVerdict, By, CommitItem, CommitVerdict, IntentItem, IntentVerdict,
    Intents as _, Ledger as _, Mark, MarkItem, ReleaseVerdict, Retention, SealItem, SealVerdict,
};
use fence_core::{LockId, Refusal, ResourceName, Token, Ttl};
use fence_tests::conformance::ledger::drains::{answered, intent};
use fence_tests::conformance::pause;
use uuid::Uuid;

use crate::ledger::guard::refused;
use crate::schedules::commits::{item, later, sealed};
use crate::schedules::forced::{Ground, R, WAIT, put, release, sealing};
use crate::schedules::upstreams::open_later;

/// Why a commit on both of `a` and `b` is refused, and where.
async fn refusal(ground: &Ground, item: CommitItem) -> (Refusal, String) {
    match later(ground, item).await.unwrap() {
        CommitVerdict::Refused { refusal, resource, step: None } => (refusal, resource.to_string()),
        other => panic!("not refused: {other:?}"),
    }
}

/// On either side of the one that was.
#[tokio::test]
pub async fn a_token_that_was_never_sealed_is_unknown_to_every_act() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 10).await;
    let mut connection = ground.connect().await;
    for token in [9, 11, i64::MAX] {
        let many = refusal(&ground, item(&["a", "b"], token)).await;
        assert_eq!(many, (Refusal::Unknown, "a".into()), "{token}");
        let open = open_later(&ground, intent("a", token)).await.unwrap();
        assert_eq!(open, IntentVerdict::Refused(Refusal::Unknown), "{token}");
        let guard = format!("SELECT fencegate.guard('a', {token})");
        assert_eq!(refused(&mut connection, &guard).await.0, "FG402", "{token}");
    }
    let tokens = "SELECT sum(token)::bigint FROM fencegate.fences";
    assert_eq!(ground.number(tokens).await, 20);
}

#[tokio::test]
pub async fn another_lock_id_is_refused_by_every_act() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 10).await;
    let lock = Some(LockId(Uuid::new_v4()));
    let many = refusal(&ground, CommitItem { lock, ..item(&["a", "b"], 10) }).await;
    assert_eq!(many, (Refusal::LockIdMismatch, "a".into()));
    let open = open_later(&ground, IntentItem { lock, ..intent("a", 10) }).await.unwrap();
    assert_eq!(open, IntentVerdict::Refused(Refusal::LockIdMismatch));
}

/// It ends on the resources that nobody has taken over since.
#[tokio::test]
pub async fn a_release_frees_nothing_of_the_next_holder() {
    let ground = Ground::new().await;
    let name = |resource| ResourceName::new(resource).unwrap();
    let both = SealItem { resources: vec![name("a"), name("b")], ..sealing("a", 1) };
    let old = both.lock;
    assert!(matches!(ground.seal_later(both).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let next = SealItem { ttl: Some(Ttl::DEFAULT), ..sealing("a", 2) };
    assert!(matches!(ground.seal_later(next).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let released = release(&ground.ledger, old).await;
    let ReleaseVerdict::Released { ended, .. } = released else { panic!("{released:?}") };
    assert_eq!(ended.iter().map(|one| one.resource.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(ground.written(put("a", 2, "x")).await.version, Some(1));
    let other = ground.seal_later(sealing("a", 3)).await.unwrap();
    assert!(matches!(other, Ok(SealVerdict::Held(_))), "{other:?}");
}

#[tokio::test]
pub async fn a_draining_lock_is_not_completed_while_an_intent_is_open() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let opening = intent(R, 1);
    let operation = opening.operation;
    assert_eq!(open_later(&ground, opening).await.unwrap(), IntentVerdict::Admitted);
    let gateway = Uuid::from_u128(7);
    let waits = SealItem { waits: Some(gateway), ttl: Some(Ttl::DEFAULT), ..sealing(R, 2) };
    let lock = waits.lock;
    let seal = ground.seal_later(waits).await.unwrap();
    assert!(matches!(seal, Ok(SealVerdict::Drains { .. })), "{seal:?}");
    assert_eq!(ground.ledger.complete_drains(gateway, None).await, Ok(vec![]));
    ground.ledger.close_intents(&[answered(operation)]).await.unwrap();
    assert_eq!(ground.ledger.complete_drains(gateway, None).await, Ok(vec![lock]));
}

/// Its intent counts as closed, and was swept: a first sending that comes now would be forwarded.
#[tokio::test]
pub async fn an_opening_that_comes_after_its_time_opens_nothing() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let late = IntentItem { max_effect_delay: Some(Duration::from_millis(1)), ..intent(R, 1) };
    let rerun = IntentItem { attempt: Attempt::Rerun, ..late.clone() };
    assert_eq!(open_later(&ground, rerun).await.unwrap(), IntentVerdict::Admitted);
    pause(5).await;
    let long = Duration::from_secs(3600);
    let keep = Retention {
        keys: long,
        ended_locks: long,
        buried: long,
        history: None,
        rejections_max: 10,
        rows_per_pass: 10,
    };
    ground.ledger.sweep(&keep).await.unwrap();
    assert_eq!(open_later(&ground, late).await.unwrap(), IntentVerdict::Buried);
}

async fn mark(ground: &Ground, resource: &str, mark: Mark) {
    let (reason, request_id) = ("test".into(), "test-request".into());
    let resource = ResourceName::new(resource).unwrap();
    let item = MarkItem { resource, mark, reason, request_id, by: By::default() };
    ground.ledger.mark([item].into(), WAIT).await.unwrap();
}

#[tokio::test]
pub async fn a_frozen_resource_is_refused_by_every_act() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    mark(&ground, "b", Mark::Freeze).await;
    let many = refusal(&ground, item(&["a", "b"], 1)).await;
    assert_eq!(many, (Refusal::Frozen, "b".into()));
    let open = open_later(&ground, intent("b", 1)).await.unwrap();
    assert_eq!(open, IntentVerdict::Refused(Refusal::Frozen));
    let guard = refused(&mut ground.connect().await, "SELECT fencegate.guard('b', 1)").await;
    assert_eq!(guard.0, "FG406");
    mark(&ground, "b", Mark::Unfreeze).await;
    let open = open_later(&ground, intent("b", 1)).await.unwrap();
    assert_eq!(open, IntentVerdict::Admitted);
}

/// A resource whose break has come due, which nobody has stored yet.
async fn due(ground: &Ground, resource: &str, number: i64) {
    let lock = SealItem { ttl: Some(Ttl::DEFAULT), ..sealing(resource, number) };
    assert!(matches!(ground.seal_later(lock).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let breaking = BreakItem {
        resource: ResourceName::new(resource).unwrap(),
        token: Token::new(number).unwrap(),
        after: Duration::from_millis(1),
        reason: "test".to_owned(),
        request_id: "test-request".to_owned(),
        by: By::default(),
    };
    let broken = ground.ledger.break_locks([breaking].into(), WAIT).await.unwrap();
    assert!(matches!(broken[..], [BreakVerdict::Breaking { .. }]), "{broken:?}");
    pause(5).await;
}

/// And stored by those that can, so that no step of a clock takes it back.
#[tokio::test]
pub async fn a_break_that_has_come_due_is_seen_by_every_act() {
    let ground = Ground::new().await;
    let stored =
        async || ground.number("SELECT count(*) FROM fencegate.fences WHERE hold = 'broken'").await;
    due(&ground, "a", 1).await;
    let guard = refused(&mut ground.connect().await, "SELECT fencegate.guard('a', 1)").await;
    assert_eq!(guard.0, "FG405");
    assert_eq!(refusal(&ground, item(&["a"], 1)).await, (Refusal::Broken, "a".into()));
    assert_eq!(stored().await, 1);
    due(&ground, "b", 2).await;
    let open = open_later(&ground, intent("b", 2)).await.unwrap();
    assert_eq!(open, IntentVerdict::Refused(Refusal::Broken));
    assert_eq!(stored().await, 2);
}
