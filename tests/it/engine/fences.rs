//! What the engine does around the seal for infinite locks, fences without a lock, and resources that
//! must exist: on a ledger and a mint that fail as each test says.

use fencegate::engine::access::Permit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fence_core::{LockId, Ttl};
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost};
use fencegate::engine::{Acquire, EngineError, Fence};
use tokio::sync::Notify;

use crate::engine::rig::{R, Rig, asking, counter, name, next_number, opened};
use crate::setup::random_id;

fn a_fence(order: Option<i64>) -> Fence {
    let id = LockId(random_id());
    Fence {
        resource: name(R),
        id,
        owner: "me".into(),
        order,
        force: false,
        permit: Permit::default(),
    }
}

async fn left_ms(rig: &Rig, id: LockId) -> i64 {
    rig.lock(id).await.grant.remaining_ms
}

/// That its answer was written to a socket shows nothing: a proxy may have it, or nobody.
#[tokio::test]
async fn an_infinite_lock_is_confirmed_by_its_holder_alone() {
    let rig = Rig::new();
    let (renewals, mut count) = counter();
    rig.ledger.on_renew(move |_, _| {
        count();
        Step::act()
    });
    let wish = |id| Acquire { ttl: Some(Ttl::INFINITE), id, ..asking(R) };
    let id = LockId(random_id());
    let first = rig.engine.acquire(wish(Some(id))).await.unwrap().grant;
    assert!(first.unconfirmed);
    assert!(left_ms(&rig, id).await <= Ttl::UNCONFIRMED.as_ms());
    assert_eq!(renewals.load(Ordering::Relaxed), 0);
    let again = rig.engine.acquire(wish(Some(id))).await.unwrap().grant;
    assert!(!again.unconfirmed && again.token == first.token, "{again:?}");
    assert!(left_ms(&rig, id).await > Ttl::INFINITE.as_ms() - 60_000);
}

/// The gateway sends a seal again whose answer was lost; its caller knows of nothing yet.
#[tokio::test]
async fn a_rerun_of_the_gateway_confirms_nothing() {
    let rig = Rig::new();
    let mut first = true;
    rig.ledger.on_seal(move |_, _| match std::mem::take(&mut first) {
        true => Step::act_but(lost()),
        false => Step::act(),
    });
    let id = Some(LockId(random_id()));
    let wish = Acquire { ttl: Some(Ttl::INFINITE), id, ..asking(R) };
    let acquired = rig.engine.acquire(wish).await.unwrap();
    assert!(acquired.again && acquired.grant.unconfirmed, "{acquired:?}");
    assert!(left_ms(&rig, acquired.grant.lock).await <= Ttl::UNCONFIRMED.as_ms());
}

#[tokio::test]
async fn what_must_exist_is_looked_for_before_a_number_is_minted() {
    let rig = Rig::new();
    rig.granted("a").await;
    let before = next_number(&rig.mint).await;
    let resources = vec![name("a"), name("b"), name("c")];
    let wish = Acquire { resources, only_if_exists: true, ..asking(R) };
    let refused = rig.engine.acquire(wish.clone()).await;
    assert!(
        matches!(refused, Err(EngineError::NeverLocked(ref first)) if first.as_str() == "b"),
        "{refused:?}"
    );
    assert_eq!(next_number(&rig.mint).await, before + 1, "no number was used");
    rig.mint.set_available(false);
    let refused = rig.engine.acquire(wish).await;
    assert!(matches!(refused, Err(EngineError::NeverLocked(_))), "{refused:?}");
}

#[tokio::test]
async fn a_fence_whose_answer_was_lost_has_the_same_token() {
    let rig = Rig::new();
    let mut first = true;
    rig.ledger.on_seal(move |_, _| match std::mem::take(&mut first) {
        true => Step::act_but(lost()),
        false => Step::act(),
    });
    let wish = a_fence(Some(5));
    let one = rig.engine.fence(wish.clone()).await.unwrap();
    let sealed = rig.lock(wish.id).await.grant.token;
    assert_eq!((one.grant.token, one.again), (sealed, true));
    // With the mint down its caller still gets the answer, and nobody else a new one.
    rig.mint.set_available(false);
    let two = rig.engine.fence(wish).await.unwrap();
    assert_eq!((two.grant.token, two.again), (sealed, true));
    let other = rig.engine.fence(a_fence(Some(6))).await;
    assert!(matches!(other, Err(EngineError::MintUnavailable(_))), "{other:?}");
    rig.write(R, sealed).await.unwrap();
}

#[tokio::test]
async fn a_fence_whose_caller_has_gone_stays() {
    let rig = Rig::new();
    let wish = a_fence(None);
    let (arrived, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrives, open) = (Arc::clone(&arrived), Arc::clone(&gate));
    let mut first = true;
    rig.ledger.on_seal(move |_, _| {
        arrives.notify_one();
        if std::mem::take(&mut first) { Step::act().after(opened(&open)) } else { Step::act() }
    });
    tokio::select! {
        answer = rig.engine.fence(wish.clone()) => panic!("answered: {answer:?}"),
        () = arrived.notified() => {}
    }
    gate.notify_one();
    let look = async || rig.engine.lock(wish.id, &Permit::default()).await.ok();
    let record = eventually("it is sealed", look).await;
    let again = rig.engine.fence(wish.clone()).await.unwrap();
    assert_eq!((again.grant.token, again.again), (record.grant.token, true));
    assert_eq!(rig.lock(wish.id).await.ended, None);
}

#[tokio::test]
async fn an_order_that_does_not_rise_is_refused_once_and_for_all() {
    let rig = Rig::new();
    rig.engine.fence(a_fence(Some(5))).await.unwrap();
    let (seals, mut count) = counter();
    rig.ledger.on_seal(move |_, _| {
        count();
        Step::act()
    });
    let stale = rig.engine.fence(a_fence(Some(5))).await;
    assert!(matches!(stale, Err(EngineError::OrderStale(_))), "{stale:?}");
    assert_eq!(seals.load(Ordering::Relaxed), 1, "it is not numbered again");
}
