//! `fencegate.guard` in transactions of users' own, beside acts and re-fences, in a forced order.

use fence_core::ports::{Ledger as _, Patience, SealVerdict};

use crate::ledger::guard::refused;
use crate::schedules::forced::{Ground, R, run, sealing};

const GUARD: &str = "SELECT fencegate.guard('r', 1)";

#[tokio::test]
pub async fn a_seal_behind_a_guarded_transaction_waits_for_its_end() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let guarded = ground.hold(GUARD).await;
    let batch = ground.ledger.seal(0, [sealing(R, 2)].into(), Patience::Skip).await;
    assert_eq!(batch, Ok(vec![SealVerdict::Busy]));
    let seal = ground.seal_later(sealing(R, 2));
    ground.kept_waiting(&seal, 1).await;
    guarded.commit().await;
    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    assert_eq!(refused(&mut ground.connect().await, GUARD).await.0, "FG403");
}

/// A re-fence changes no fence: what the snapshot shows of the floor would be the past.
#[tokio::test]
pub async fn a_guard_in_a_snapshot_from_before_a_refence_is_refused() {
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let ground = Ground::new().await;
        ground.sealed(R, 1).await;
        let mut late = ground.connect().await;
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT FROM fencegate.fences");
        run(&mut late, &begin).await;
        let refence = "SELECT acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)";
        run(&mut ground.connect().await, refence).await;
        assert_eq!(refused(&mut late, GUARD).await.0, "40001", "{isolation}");
    }
}

#[tokio::test]
pub async fn nothing_is_guarded_where_the_guard_of_the_ledger_says_no() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    for (set, code) in [
        ("halted = 'test'", "FG407"),
        ("timeline = '0000002A'", "FG407"),
        ("system_id = 7", "FG407"),
        ("floor = 1", "FG401"),
    ] {
        for table in ["seal_guard", "write_guard"] {
            let changed = ground.hold(&format!("UPDATE fencegate.{table} SET {set}")).await;
            let mut changed = changed;
            let found = refused(&mut changed.connection, GUARD).await.0;
            assert_eq!(found, code, "{table}: {set}");
        }
    }
    run(&mut ground.connect().await, GUARD).await;
}
