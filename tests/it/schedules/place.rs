//! Where a ledger is, and how far its floor has risen: what each act checks first, each of them by itself.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::time::Duration;

use fence_core::Refusal;
use fence_core::ports::{CommitVerdict, IntentVerdict, Ledger as _, LedgerError, SealVerdict};
use fence_tests::conformance::ledger::drains::intent;
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::{PgLedger, PgSettings, migrate};
use sqlx::postgres::PgConnectOptions;

use crate::ledger::guard::refused;
use crate::schedules::commits::{item, later, sealed};
use crate::schedules::forced::{Ground, R, WAIT, put, run, seal, sealing};
use crate::schedules::guard::{RAISE_FLOOR, acts};
use crate::schedules::upstreams::open_later;

/// Each act, and `guard()`, on a ledger of which this is true; the SQLSTATE of all of them.
async fn all_refuse(set: &str, seen: i64, code: &str) {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let mut connection = ground.connect().await;
    if !set.is_empty() {
        for table in ["seal_guard", "write_guard"] {
            run(&mut connection, &format!("UPDATE fencegate.{table} SET {set}")).await;
        }
    }
    for act in acts(seen) {
        let (found, told) = refused(&mut connection, &format!("SELECT * FROM {act}")).await;
        assert_eq!(found, code, "{set}: {act}: {told}");
    }
}

#[tokio::test]
pub async fn no_act_goes_on_in_another_timeline() {
    all_refuse("timeline = '0000002A'", 0, "FG001").await;
}

#[tokio::test]
pub async fn no_act_goes_on_in_another_system() {
    all_refuse("system_id = 7", 0, "FG001").await;
}

#[tokio::test]
pub async fn no_act_goes_on_in_other_tables() {
    all_refuse("tables = 7", 0, "FG001").await;
}

#[tokio::test]
pub async fn no_act_goes_on_at_another_start() {
    all_refuse("started = 'epoch'", 0, "FG015").await;
}

#[tokio::test]
pub async fn no_act_goes_on_in_a_halted_ledger() {
    all_refuse("halted = 'it has lost commits'", 0, "FG001").await;
}

#[tokio::test]
pub async fn no_act_goes_on_behind_what_was_seen() {
    all_refuse("", i64::MAX, "FG004").await;
}

#[tokio::test]
pub async fn no_act_goes_on_that_was_retired() {
    all_refuse("acts_min = 2", 0, "FG014").await;
    let ground = Ground::new().await;
    let mut connection = ground.connect().await;
    run(&mut connection, "UPDATE fencegate.write_guard SET acts_min = 2").await;
    for act in [
        "acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)",
        "acts.adopt(0, 0, 0, 0, 0, '00000001', '00000002', 1, gen_random_uuid())",
        "acts.confirm_start(0, 0, 0, '00000001', 0, 1, gen_random_uuid())",
        "acts.halt_at(0, 0, 'test')",
    ] {
        let (found, told) = refused(&mut connection, &format!("SELECT * FROM {act}")).await;
        assert_eq!(found, "FG014", "{act}: {told}");
    }
}

fn ledger(server: &Postgres, database: &str) -> PgLedger {
    let options: PgConnectOptions = server.url(database).parse().unwrap();
    PgLedger::new(PgSettings { options, connections_max: 2, timeout: Duration::from_secs(20) })
}

/// It has not heard of the newer token, and a gateway that comes to it first has seen nothing else.
#[tokio::test]
pub async fn a_promoted_standby_that_missed_a_seal_takes_nothing() {
    let primary = Postgres::dedicated().await;
    let database = primary.database_name().await;
    let options: PgConnectOptions = primary.url(&database).parse().unwrap();
    migrate(&options).await.unwrap();
    fence_tests::mutants::apply(&primary.owner_url(&database)).await;
    let before = ledger(&primary, &database);
    assert!(matches!(seal(&before, sealing(R, 1)).await, Ok(SealVerdict::Sealed(..))));
    let standby = primary.standby().await;
    standby.caught_up(&primary).await;
    standby.stop_following().await;
    assert!(matches!(seal(&before, sealing(R, 2)).await, Ok(SealVerdict::Sealed(..))));
    primary.stop(Stop::Immediate).await;
    standby.promote().await;
    let mut connection = standby.connect(&database).await;
    eventually("the standby is a primary", async || {
        let waits = sqlx::query_scalar("SELECT pg_is_in_recovery()");
        let waits: bool = waits.fetch_one(&mut connection).await.unwrap();
        (!waits).then_some(())
    })
    .await;
    let verdicts = ledger(&standby, &database).commit([put(R, 1, "late")].into(), WAIT).await;
    assert!(matches!(verdicts, Err(LedgerError::RefenceRequired(_))), "{verdicts:?}");
    let verdict = seal(&ledger(&standby, &database), sealing(R, 2)).await;
    assert!(matches!(verdict, Err(LedgerError::RefenceRequired(_))), "{verdict:?}");
}

#[tokio::test]
pub async fn a_commit_that_waits_while_the_floor_rises_is_void() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let raising = ground.hold(RAISE_FLOOR).await;
    let commit = later(&ground, item(&["a", "b"], 1));
    ground.kept_waiting(&commit, 1).await;
    raising.commit().await;
    let verdict = commit.await.unwrap();
    let CommitVerdict::Refused { refusal: Refusal::Void, .. } = verdict else {
        panic!("{verdict:?}")
    };
}

#[tokio::test]
pub async fn an_opening_that_waits_while_the_floor_rises_is_void() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let raising = ground.hold(RAISE_FLOOR).await;
    let opening = open_later(&ground, intent(R, 1));
    ground.kept_waiting(&opening, 1).await;
    raising.commit().await;
    assert_eq!(opening.await.unwrap(), IntentVerdict::Refused(Refusal::Void));
}
