//! Races inside the acts on Postgres, forced: rows that are born while an act runs, rows and ids that
//! are not committed yet, and servers whose settings are wrong or change.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Attempt, Ledger, LedgerError, Patience, ReleaseVerdict, SealItem, SealVerdict, WriteVerdict,
};
use fence_core::{LockId, Ttl};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::{PgLedger, PgSettings, migrate};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use crate::schedules::forced::{Ground, R, WAIT, applied, commit, put, run, seal, sealing};

/// The wish of a session to wait where a test has put a pause.
const PAUSE: [(&str, &str); 1] = [("test.pause", "on")];

/// A ledger whose calls end after a while also where they should not have waited at all.
fn ledger(options: PgConnectOptions, connections_max: usize) -> PgLedger {
    PgLedger::new(PgSettings { options, connections_max, timeout: Duration::from_secs(15) })
}

fn options(server: &Postgres, database: &str) -> PgConnectOptions {
    server.url(database).parse().unwrap()
}

fn owner_options(server: &Postgres, database: &str) -> PgConnectOptions {
    server.owner_url(database).parse().unwrap()
}

fn lasting(item: SealItem) -> SealItem {
    SealItem { ttl: Some(Ttl::DEFAULT), ..item }
}

/// Runs statements at the end of `acts.lock_fences`, which all acts call.
async fn after_locking(connection: &mut PgConnection, statements: &str) {
    let rename = "ALTER FUNCTION acts.lock_fences(text[], int) RENAME TO lock_fences_only";
    run(connection, rename).await;
    let wrapper = format!(
        "CREATE FUNCTION acts.lock_fences(p_names text[], p_wait_ms int)
         RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
         DECLARE
             got text[] := acts.lock_fences_only(p_names, p_wait_ms);
         BEGIN
             {statements}
             RETURN got;
         END $$"
    );
    run(connection, &wrapper).await;
}

/// Lets the commits of sessions that wish so wait between locking their fences and reading them.
const PAUSE_BEFORE_READING: &str = "
    DO $do$
    DECLARE
        source text := pg_get_functiondef('acts.write'::regproc);
    BEGIN
        ASSERT position('-- Step 2.' IN source) > 0;
        EXECUTE replace(source, '-- Step 2.', $pause$
            IF current_setting('test.pause', true) = 'on' THEN
                PERFORM set_config('lock_timeout', '0', true);
                PERFORM pg_advisory_xact_lock(42);
            END IF;
            -- Step 2.$pause$);
    END $do$";

/// A write under a token that is sealed, on a resource without a row, after the write has locked
/// what there was and before it reads.
async fn write_beside_a_birth(patience: Patience) {
    let ground = Ground::new().await;
    run(&mut ground.connect().await, PAUSE_BEFORE_READING).await;
    let paused = options(ground.server, &ground.database).options(PAUSE);
    let paused = ledger(paused, 1);

    let held = ground.hold("SELECT pg_advisory_xact_lock(42)").await;
    let write =
        tokio::spawn(async move { paused.commit([put(R, 20, "x")].into(), patience).await });
    ground.waiting(1).await;
    let grant = ground.sealed(R, 20).await;
    held.let_go().await;

    assert_eq!(write.await.unwrap(), Ok(vec![WriteVerdict::Busy]));
    for table in
        ["SELECT count(*) FROM fencegate.objects", "SELECT count(*) FROM fencegate.operations"]
    {
        assert_eq!(ground.number(table).await, 0);
    }
    assert_eq!(
        ground.number("SELECT coalesce(max(version), 0) FROM fencegate.operations").await,
        0
    );
    assert_eq!(ground.written(put(R, grant.token.get(), "y")).await.version, Some(1));
}

#[tokio::test]
pub async fn a_fence_born_inside_a_batch_of_writes_is_busy() {
    write_beside_a_birth(Patience::Skip).await;
}

#[tokio::test]
async fn a_fence_born_inside_a_write_on_a_lane_is_busy() {
    write_beside_a_birth(WAIT).await;
}

/// Lets the acts on locks of sessions that wish so wait once they have done their work.
async fn pause_before_answering(connection: &mut PgConnection) {
    run(connection, "ALTER FUNCTION acts.flushed() RENAME TO flushed_only").await;
    let wrapper = "
        CREATE FUNCTION acts.flushed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
        BEGIN
            IF current_setting('test.pause', true) = 'on' THEN
                PERFORM set_config('lock_timeout', '0', true);
                PERFORM pg_advisory_xact_lock(42);
            END IF;
            RETURN acts.flushed_only();
        END $$";
    run(connection, wrapper).await;
}

#[tokio::test]
pub async fn a_seal_inside_its_act_is_busy_and_stalls_nobody_else() {
    let ground = Ground::new().await;
    ground.sealed("stuck", 1).await;
    ground.sealed("other", 2).await;
    pause_before_answering(&mut ground.connect().await).await;
    let held = ground.hold("SELECT pg_advisory_xact_lock(42)").await;
    let item = lasting(sealing("stuck", 10));
    let first = item.clone();
    let ghost = ledger(options(ground.server, &ground.database).options(PAUSE), 1);
    let ghost = tokio::spawn(async move { seal(&ghost, first).await });
    ground.waiting(1).await;

    // The ghost holds the row and the id; of the other resource it holds the id alone.
    let skipping = ledger(options(ground.server, &ground.database), 4);
    for (resource, number) in [("stuck", 12), ("other", 13)] {
        let free = lasting(sealing(&format!("free-{number}"), number));
        let rerun = SealItem { lock: item.lock, ..sealing(resource, number) };
        let rerun = SealItem { attempt: Attempt::Rerun, ..rerun };
        let verdicts = skipping.seal(0, [free, rerun].into(), Patience::Skip).await.unwrap();
        let [SealVerdict::Sealed(..), SealVerdict::Busy] = verdicts[..] else {
            panic!("{verdicts:?}");
        };
    }
    let unknown = LockId(Uuid::new_v4());
    let verdicts =
        skipping.release([unknown.into(), item.lock.into()].into(), Patience::Skip).await;
    assert_eq!(verdicts, Ok(vec![ReleaseVerdict::Buried, ReleaseVerdict::Busy]));

    held.let_go().await;
    let sealed = ghost.await.unwrap();
    assert!(matches!(sealed, Ok(SealVerdict::Sealed(..))), "{sealed:?}");
    // Nothing was buried meanwhile: the rerun finds what the ghost did.
    let rerun = SealItem { number: Some(14), attempt: Attempt::Rerun, ..item };
    let found = seal(&ground.ledger, rerun).await;
    assert!(
        matches!(&found, Ok(SealVerdict::Again(grant)) if grant.token.get() == 10),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_fence_that_is_being_made_makes_a_batch_of_seals_busy_and_not_fail() {
    let ground = Ground::new().await;
    let unborn = ground.hold("INSERT INTO fencegate.fences (resource) VALUES ('new')").await;
    let skipping = ledger(options(ground.server, &ground.database), 4);
    let (free, new) = (lasting(sealing("free", 12)), lasting(sealing("new", 13)));
    let batch: Arc<[SealItem]> = [free.clone(), new.clone()].into();
    // The row is held until the verdict has come.
    let verdicts = skipping.seal(0, batch, Patience::Skip).await;
    assert_eq!(verdicts, Ok(vec![SealVerdict::Busy, SealVerdict::Busy]));
    // On lanes of their own the one is sealed, the other goes on waiting.
    assert!(matches!(seal(&skipping, free).await, Ok(SealVerdict::Sealed(..))));
    let lane = Patience::Wait(Duration::from_millis(250));
    let verdicts = skipping.seal(0, [new.clone()].into(), lane).await;
    assert_eq!(verdicts, Ok(vec![SealVerdict::Busy]));
    unborn.let_go().await;
    assert!(matches!(seal(&skipping, new).await, Ok(SealVerdict::Sealed(..))));
}

#[tokio::test]
async fn a_database_that_is_not_utf8_is_refused_with_the_reason() {
    let server = Postgres::shared().await;
    let database = format!("t_{}", Uuid::new_v4().simple());
    let create = format!(
        "CREATE DATABASE {database} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    );
    server.execute("postgres", &create).await;
    migrate(&owner_options(server, &database)).await.unwrap();
    let ledger = ledger(owner_options(server, &database), 2);
    let (first, second) = tokio::join!(ledger.epoch(), ledger.epoch());
    for answer in [first, second, ledger.epoch().await] {
        let Err(LedgerError::Unavailable(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("LATIN1") && why.contains("UTF8"), "{why}");
    }
}

#[tokio::test]
async fn a_change_of_synchronous_commit_does_not_reach_a_session_that_has_begun() {
    let server = Postgres::dedicated().await;
    let url = server.database().await;
    let database = database_in(&url);
    let mut operator = server.connect(database).await;
    run(&mut operator, "CREATE TABLE seen (number serial, setting text)").await;
    run(&mut operator, "GRANT ALL ON seen, seen_number_seq TO PUBLIC").await;
    let note = "INSERT INTO public.seen (setting) VALUES (current_setting('synchronous_commit'));";
    after_locking(&mut operator, note).await;

    let ledger = ledger(options(&server, database), 1);
    assert!(matches!(seal(&ledger, sealing(R, 1)).await, Ok(SealVerdict::Sealed(..))));
    run(&mut operator, "ALTER SYSTEM SET synchronous_commit = off").await;
    run(&mut operator, "SELECT pg_reload_conf()").await;
    eventually("sessions that have begun see the change", async || {
        let show = sqlx::query_scalar("SHOW synchronous_commit");
        let setting: String = show.fetch_one(&mut operator).await.unwrap();
        (setting == "off").then_some(())
    })
    .await;
    assert!(matches!(seal(&ledger, sealing(R, 2)).await, Ok(SealVerdict::Sealed(..))));
    applied(commit(&ledger, put(R, 2, "x")).await);

    let seen = sqlx::query_scalar("SELECT setting FROM seen ORDER BY number");
    let seen: Vec<String> = seen.fetch_all(&mut operator).await.unwrap();
    assert_eq!(seen, ["on", "on", "on"]);
    // A session that begins now is refused.
    let late = self::ledger(options(&server, database), 1);
    let Err(LedgerError::Unavailable(why)) = late.epoch().await else { panic!("not refused") };
    assert!(why.contains("synchronous_commit is off"), "{why}");
}
