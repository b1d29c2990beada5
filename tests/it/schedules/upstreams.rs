//! Intents and seals that wait for one fence row, in a forced order; and answers that get lost between the
//! engine and the ledger.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use fencegate::engine::access::Permit;
use std::sync::Arc;
use std::time::Duration;

use fence_core::Refusal;
use fence_core::ports::{
    Attempt, By, ForwardEnd, IntentFilter, IntentItem, IntentVerdict, Intents as _, SealItem,
    SealVerdict,
};
use fence_tests::conformance::ledger::drains::{answered, intent};
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost, rolled_back};
use fencegate::engine::{EngineError, Forward};
use fencegate::ledger::postgres::PgLedger;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::engine::rig::{self, Rig, counter};
use crate::schedules::forced::{Ground, R, WAIT, sealing};

pub fn open_later(ground: &Ground, item: IntentItem) -> JoinHandle<IntentVerdict> {
    let ledger = Arc::clone(&ground.ledger);
    tokio::spawn(async move { open(&ledger, item).await })
}

async fn open(ledger: &PgLedger, item: IntentItem) -> IntentVerdict {
    let verdicts = ledger.open_intents([item].into(), WAIT).await.expect("decided");
    verdicts.into_iter().next().expect("a verdict")
}

fn waiting(number: i64) -> SealItem {
    SealItem { waits: Some(Uuid::from_u128(7)), ..sealing(R, number) }
}

/// The seal locks the row while the intent is not committed yet, and must see it all the same: a statement
/// that reads with its lock would show the past.
#[tokio::test]
pub async fn a_seal_behind_an_opening_sees_the_intent() {
    for waits in [false, true] {
        let ground = Ground::new().await;
        ground.sealed(R, 1).await;
        let held = ground.hold_fence(R).await;
        let opening = open_later(&ground, intent(R, 1));
        ground.waiting(1).await;
        let seal = ground.seal_later(if waits { waiting(2) } else { sealing(R, 2) });
        ground.waiting(2).await;
        held.let_go().await;
        assert_eq!(opening.await.expect("no panic"), IntentVerdict::Admitted);
        match seal.await.expect("no panic").expect("decided") {
            SealVerdict::Draining(resource) if !waits => assert_eq!(resource.as_str(), R),
            SealVerdict::Drains { resource, .. } if waits => assert_eq!(resource.as_str(), R),
            other => panic!("{other:?}"),
        }
        let token = if waits { 2 } else { 1 };
        assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, token);
        assert_eq!(ground.number("SELECT live_token FROM fencegate.fences").await, 1);
    }
}

#[tokio::test]
pub async fn an_opening_behind_a_seal_is_stale() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let opening = open_later(&ground, intent(R, 1));
    ground.kept_waiting(&opening, 2).await;
    held.let_go().await;
    assert!(matches!(seal.await.expect("no panic"), Ok(SealVerdict::Sealed(..))));
    let refused = opening.await.expect("no panic");
    assert!(matches!(refused, IntentVerdict::Refused(Refusal::Stale { .. })), "{refused:?}");
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.upstream_intents").await, 0);
}

/// Whichever comes first, the intent is closed and the lock is in force in the end.
#[tokio::test]
async fn a_closing_while_a_seal_waits_is_seen_by_it() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let item = intent(R, 1);
    assert_eq!(open(&ground.ledger, item.clone()).await, IntentVerdict::Admitted);
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    ground.other_ledger().close_intents(&[answered(item.operation)]).await.expect("closed");
    held.let_go().await;
    assert!(matches!(seal.await.expect("no panic"), Ok(SealVerdict::Sealed(..))));
}

/// The old backend had not reached the row yet when the same operation was sent again, forwarded and closed.
#[tokio::test]
pub async fn an_opening_that_comes_late_opens_nothing() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let item = intent(R, 1);
    let rerun = IntentItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(open(&ground.ledger, rerun).await, IntentVerdict::Admitted);
    let held = ground.hold_fence(R).await;
    let late = open_later(&ground, item.clone());
    ground.waiting(1).await;
    ground.other_ledger().close_intents(&[answered(item.operation)]).await.expect("closed");
    held.let_go().await;
    assert_eq!(late.await.expect("no panic"), IntentVerdict::Buried);
    assert_eq!(ground.ledger.intents_open().await.map(|open| open.count), Ok(0));
}

/// An operator's resolution waits for an act that is under way, and that act does not find it open after.
#[tokio::test]
pub async fn an_opening_behind_a_resolution_is_buried() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let item = intent(R, 1);
    assert_eq!(open(&ground.ledger, item.clone()).await, IntentVerdict::Admitted);
    let resolution = fence_core::ports::Resolution {
        reason: "x".into(),
        request_id: "r".into(),
        by: By::default(),
    };
    ground.ledger.resolve_intent(item.operation, resolution).await.expect("resolved");
    let rerun = IntentItem { attempt: Attempt::Rerun, ..item };
    assert_eq!(open(&ground.ledger, rerun).await, IntentVerdict::Buried);
}

fn forward(token: fence_core::Token) -> Forward {
    Forward {
        upstream: "u".into(),
        drained: true,
        max_effect_delay: None,
        resource: rig::name(rig::R),
        token,
        lock: None,
        sequence: None,
        resource_version: None,
        method: "POST".into(),
        path: "/".into(),
        request_id: "test".into(),
        permit: Permit::default(),
    }
}

async fn until_nothing_is_open(rig: &Rig) {
    eventually("nothing is open", async || {
        let open = rig.ledger.intents(IntentFilter { limit: 9, ..IntentFilter::default() }).await;
        open.expect("read").is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_answer_to_an_opening_admits_once() {
    let rig = Rig::new();
    let grant = rig.granted(rig::R).await;
    let (calls, mut call) = counter();
    rig.ledger.on_open(move |_, _| if call() == 0 { Step::act_but(lost()) } else { Step::act() });
    let admitted = rig.engine.admit(forward(grant.token)).await.map_err(|failure| failure.error);
    let admitted = admitted.expect("admitted");
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 2);
    assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(1));
    admitted.close(ForwardEnd::Answered(200)).await;
    assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(0));
}

/// Whether it was admitted is unknown until the one who asked is gone: nothing is forwarded, and nothing
/// stays open.
#[tokio::test]
async fn an_opening_that_is_given_up_is_closed() {
    let rig = Rig::new();
    let grant = rig.granted(rig::R).await;
    let (_, mut call) = counter();
    rig.ledger.on_open(move |_, _| match call() {
        0 => Step::act_but(lost()),
        _ => Step::fail(rolled_back()),
    });
    let refused = rig.engine.admit(forward(grant.token)).await.err().expect("given up").error;
    assert!(matches!(refused, EngineError::NotForwarded), "{refused:?}");
    assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(1));
    rig.ledger.on_open(|_, _| Step::act());
    until_nothing_is_open(&rig).await;
}

/// The verdict comes when nobody waits for it any more.
#[tokio::test]
async fn an_opening_whose_verdict_comes_late_is_closed() {
    let rig = Rig::new();
    let grant = rig.granted(rig::R).await;
    // Behind its time in line, and twice that again for what is under way.
    let late = rig::TIMEOUT * 3 + Duration::from_millis(500);
    rig.ledger.on_open(move |_, _| Step::act().and_then(tokio::time::sleep(late)));
    let refused = rig.engine.admit(forward(grant.token)).await.err().expect("given up").error;
    assert!(matches!(refused, EngineError::NotForwarded), "{refused:?}");
    assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(1));
    until_nothing_is_open(&rig).await;
}

/// Dropped without a word, its fate is unknown, and the next lock waits.
#[tokio::test]
async fn an_intent_of_unknown_fate_stays_open() {
    let rig = Rig::new();
    let grant = rig.granted(rig::R).await;
    let admitted = rig.engine.admit(forward(grant.token)).await.map_err(|failure| failure.error);
    drop(admitted.expect("admitted"));
    rig.engine.release(grant.lock, Permit::default()).await.expect("released");
    let refused = rig.acquire(rig::R, None).await.expect_err("draining");
    assert!(matches!(refused, EngineError::Draining(Some(_))), "{refused:?}");
    assert_eq!(rig.ledger.intents_open().await.map(|open| open.count), Ok(1));
}

/// A transaction of a user's own, too: its token is not good yet.
#[tokio::test]
async fn the_guard_refuses_a_token_that_is_not_in_force() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let item = intent(R, 1);
    assert_eq!(open(&ground.ledger, item.clone()).await, IntentVerdict::Admitted);
    let seal = ground.seal_later(waiting(2)).await.expect("no panic");
    assert!(matches!(seal, Ok(SealVerdict::Drains { .. })), "{seal:?}");
    let mut connection = ground.connect().await;
    let mut code = async |token: i64| {
        let guard = sqlx::query("SELECT fencegate.guard($1, $2)").bind(R).bind(token);
        let answer = guard.execute(&mut connection).await;
        answer.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()))
    };
    assert_eq!(code(2).await.as_deref(), Some("FG410"));
    assert_eq!(code(1).await.as_deref(), Some("FG403"));
    ground.ledger.close_intents(&[answered(item.operation)]).await.expect("closed");
    // Its ttl is over, so nobody but its caller puts it in force.
    assert_eq!(ground.ledger.complete_drains(Uuid::from_u128(1), None).await, Ok(vec![]));
    let again = ground.seal_later(SealItem { number: None, ..waiting(2) }).await.expect("no panic");
    assert_eq!(again, Ok(SealVerdict::NumberTooLow), "another id");
}
