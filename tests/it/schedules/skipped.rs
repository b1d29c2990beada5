//! Batches that skip a row which somebody else has: nothing is decided on what it showed.
#![expect(clippy::unwrap_used, reason = "tests may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    BreakItem, BreakVerdict, By, CommitVerdict, Commits as _, IntentItem, IntentVerdict,
    Intents as _, JoinItem, JoinVerdict, Ledger as _, Mark, MarkItem, MarkVerdict, Patience,
    ReleaseVerdict, RenewItem, RenewVerdict, SealItem, SealVerdict, WriteVerdict,
};
use fence_core::{LockId, OperationId, ResourceName, Token, Ttl};
use fence_tests::conformance::ledger::drains::intent;
use fencegate::ledger::postgres::PgLedger;
use uuid::Uuid;

use crate::schedules::commits::{item, sealed};
use crate::schedules::forced::{Ground, put, run, sealing};

/// An act that skips waits 50 ms for what it has not skipped: that must not hide what it decided on.
pub const WAIT_LONG: &str = "
    CREATE OR REPLACE FUNCTION acts.limit_wait(p_wait_ms int) RETURNS text LANGUAGE plpgsql
    VOLATILE AS $$ BEGIN RETURN set_config('lock_timeout', '30s', true); END $$";

/// A resource that is being frozen, which the acts cannot see yet.
const FREEZE: &str = "UPDATE fencegate.fences SET frozen = 'test' WHERE resource = 'a'";

#[tokio::test]
pub async fn a_write_is_not_decided_on_a_row_that_was_skipped() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    run(&mut ground.connect().await, WAIT_LONG).await;
    let freezing = ground.hold(FREEZE).await;
    let ledger = Arc::clone(&ground.ledger);
    let items = [put("a", 1, "x"), put("b", 1, "x"), put("never", 1, "x")];
    let batch = tokio::spawn(async move { ledger.commit(items.into(), Patience::Skip).await });
    ground.ended_or_waiting(&batch, 1).await;
    freezing.commit().await;
    let verdicts = batch.await.unwrap().unwrap();
    let [WriteVerdict::Busy, WriteVerdict::Applied { .. }, WriteVerdict::Refused(_)] = verdicts[..]
    else {
        panic!("{verdicts:?}");
    };
}

#[tokio::test]
pub async fn a_commit_is_not_decided_on_a_row_that_was_skipped() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    run(&mut ground.connect().await, WAIT_LONG).await;
    let freezing = ground.hold(FREEZE).await;
    let ledger = Arc::clone(&ground.ledger);
    let many = item(&["a", "b"], 1);
    let commit = tokio::spawn(async move { ledger.commit_many(many, Patience::Skip).await });
    ground.ended_or_waiting(&commit, 1).await;
    freezing.commit().await;
    assert_eq!(commit.await.unwrap(), Ok(CommitVerdict::Busy));
}

#[tokio::test]
pub async fn a_seal_is_not_decided_on_a_row_that_was_skipped() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    run(&mut ground.connect().await, WAIT_LONG).await;
    let freezing = ground.hold(FREEZE).await;
    let ledger = Arc::clone(&ground.ledger);
    let items = [sealing("a", 2), sealing("b", 2)];
    let batch = tokio::spawn(async move { ledger.seal(0, items.into(), Patience::Skip).await });
    ground.ended_or_waiting(&batch, 1).await;
    freezing.commit().await;
    let verdicts = batch.await.unwrap().unwrap();
    let [SealVerdict::Busy, SealVerdict::Sealed(..)] = verdicts[..] else { panic!("{verdicts:?}") };
}

#[tokio::test]
pub async fn an_opening_is_not_decided_on_a_row_that_was_skipped() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    run(&mut ground.connect().await, WAIT_LONG).await;
    let freezing = ground.hold(FREEZE).await;
    let ledger = Arc::clone(&ground.ledger);
    let items = ["a", "b"].map(|resource| IntentItem {
        operation: OperationId(Uuid::now_v7()),
        sequence: Some(1),
        ..intent(resource, 1)
    });
    let batch =
        tokio::spawn(async move { ledger.open_intents(items.into(), Patience::Skip).await });
    ground.ended_or_waiting(&batch, 1).await;
    freezing.commit().await;
    let verdicts = batch.await.unwrap();
    assert_eq!(verdicts, Ok(vec![IntentVerdict::Busy, IntentVerdict::Admitted]));
}

/// What the acts on a held lock decide that skip its row.
async fn acts_on_a_lock(
    ledger: Arc<PgLedger>,
    lock: LockId,
    resource: ResourceName,
) -> (RenewVerdict, BreakVerdict, MarkVerdict, JoinVerdict, ReleaseVerdict) {
    let (reason, request_id) = ("test".to_owned(), "test-request".to_owned());
    let renewal = RenewItem { lock, ttl: None, by: By::default() };
    let breaking = BreakItem {
        resource: resource.clone(),
        token: Token::new(1).unwrap(),
        after: Duration::ZERO,
        reason: reason.clone(),
        request_id: request_id.clone(),
        by: By::default(),
    };
    let mark = MarkItem {
        resource: resource.clone(),
        mark: Mark::Freeze,
        reason,
        request_id,
        by: By::default(),
    };
    let joining = JoinItem {
        lock: LockId(Uuid::new_v4()),
        resources: vec![resource],
        owner: "next".into(),
        gateway: Uuid::new_v4(),
        waiters_max: 10,
        by: By::default(),
    };
    let skip = Patience::Skip;
    (
        ledger.renew([renewal].into(), skip).await.unwrap().remove(0),
        ledger.break_locks([breaking].into(), skip).await.unwrap().remove(0),
        ledger.mark([mark].into(), skip).await.unwrap().remove(0),
        ledger.join([joining].into(), skip).await.unwrap().remove(0),
        ledger.release([lock.into()].into(), skip).await.unwrap().remove(0),
    )
}

#[tokio::test]
pub async fn no_act_on_a_lock_is_decided_on_a_row_that_was_skipped() {
    let ground = Ground::new().await;
    let lasting = SealItem { ttl: Some(Ttl::DEFAULT), ..sealing("a", 1) };
    let (lock, resource) = (lasting.lock, lasting.resources[0].clone());
    assert!(matches!(ground.seal_later(lasting).await.unwrap(), Ok(SealVerdict::Sealed(..))));
    run(&mut ground.connect().await, WAIT_LONG).await;
    let held = ground.hold_fence("a").await;
    let acts = tokio::spawn(acts_on_a_lock(Arc::clone(&ground.ledger), lock, resource));
    ground.ended_or_waiting(&acts, 1).await;
    held.let_go().await;
    let (renewed, broken, marked, joined, released) = acts.await.unwrap();
    assert_eq!(renewed, RenewVerdict::Busy);
    assert_eq!(broken, BreakVerdict::Busy);
    assert_eq!(marked, MarkVerdict::Busy);
    assert_eq!(joined, JoinVerdict::Busy);
    assert_eq!(released, ReleaseVerdict::Busy);
}
