//! Poolers between a gateway and Postgres: sessions of one's own, or a refusal; never an answer that a crash takes
//! back.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use fence_core::ports::{Ledger as _, Patience, WriteVerdict};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::mover::Mover;
use fence_tests::pgbouncer::PgBouncer;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::named;
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use sqlx::Connection as _;

use crate::operating::commands::fencegate;
use crate::schedules::forced::{Ground, R, put, run};
use crate::schedules::guard::acts;
use crate::setup::take_over;

const SAID: &str = "use session mode or none";

#[tokio::test]
async fn through_a_pooler_in_session_mode_everything_works() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let pooler = PgBouncer::start(postgres.port(), "session").await;
    let url = postgres.url_through(pooler.port(), &database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let late = client.acquire("job:1", "1s").await;
    client.put("job:1", "k", "x").under(&late).send().await.expect(201);
    let lock = take_over(&client, "job:1").await;
    client.put("job:1", "k", "y").under(&lock).send().await.expect(200);
    client.put("job:1", "k", "z").under(&late).send().await.refused(412, "fence-token-stale");
    client.release(&lock).send().await.expect(204);
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "y");
}

#[tokio::test]
async fn a_pooler_that_moves_sessions_is_refused_when_a_gateway_starts() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    for mode in ["transaction", "statement"] {
        let database = postgres.empty_database_name().await;
        let pooler = PgBouncer::start(postgres.port(), mode).await;
        let url = postgres.url_through(pooler.port(), &database);
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let (status, log) = settings.start_refused().await;
        assert!(!status.success() && log.contains(SAID), "{mode}: {log}");
        let endpoint = etcd.endpoint();
        let migrate = ["migrate", "--postgres", &url, "--etcd", &endpoint];
        let migrated = fencegate(&migrate, &[]).await;
        assert!(
            migrated.code != Some(0) && migrated.err.contains(SAID),
            "{mode}: {}",
            migrated.err
        );
        let mut operator = postgres.connect(&database).await;
        let made: bool = sqlx::query_scalar("SELECT to_regnamespace('fencegate') IS NOT NULL")
            .fetch_one(&mut operator)
            .await
            .unwrap();
        assert!(!made, "something was changed through it");
    }
}

/// What each stored write was committed under.
const WITNESS: &str = "
    CREATE TABLE public.committed (how text);
    CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.committed VALUES (current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER witness AFTER INSERT ON fencegate.operations
    FOR EACH ROW EXECUTE FUNCTION public.witness();
    CREATE TRIGGER witness AFTER INSERT ON fencegate.grants
    FOR EACH ROW EXECUTE FUNCTION public.witness()";

#[tokio::test]
async fn a_pooler_that_begins_to_move_sessions_makes_no_act_forgettable() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let mover = Mover::start(postgres.port()).await;
    let url = postgres.url_through(mover.port(), &database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = gateway.env("FENCEGATE_REQUEST_TIMEOUT", "1s").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "0").under(&lock).send().await.expect(201);
    postgres.execute(&database, WITNESS).await;
    assert_eq!(mover.moved(), 0);

    mover.begin_to_move();
    let mut stored = 0;
    for number in 1..=8 {
        let put = client.put("job:1", "k", number.to_string()).under(&lock).send().await;
        match put.status.as_u16() {
            200 => stored += 1,
            503 => assert!(put.problem().outcome.is_none(), "refused for certain: {}", put.text()),
            _ => panic!("{}", put.text()),
        }
        let granted = client.lock(&serde_json::json!({ "resource": format!("r{number}") }));
        let granted = granted.send().await;
        assert!([201, 503].contains(&granted.status.as_u16()), "{}", granted.text());
    }
    assert!(mover.moved() > 0, "nothing was moved");
    let log = gateway.logged(SAID).await;
    assert!(log.contains("pooler"), "{log}");
    let mut operator = postgres.connect(&database).await;
    let off: i64 = sqlx::query_scalar("SELECT count(*) FROM committed WHERE how = 'off'")
        .fetch_one(&mut operator)
        .await
        .unwrap();
    assert_eq!(off, 0, "committed without waiting for the disk; {stored} writes were acknowledged");
}

#[tokio::test]
async fn a_ledger_whose_sessions_were_moved_refuses_and_does_nothing() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let mover = Mover::start(ground.server.port()).await;
    let url = ground.server.url_through(mover.port(), &ground.database);
    let settings = PgSettings {
        options: url.parse().unwrap(),
        connections_max: 4,
        timeout: Duration::from_secs(5),
    };
    let ledger = PgLedger::new(settings);
    let applied = ledger.commit([put(R, 1, "a")].into(), Patience::Skip).await.unwrap();
    assert!(matches!(applied[..], [WriteVerdict::Applied { .. }]), "{applied:?}");
    mover.begin_to_move();
    let moved = ledger.commit([put(R, 1, "b")].into(), Patience::Skip).await;
    let told = format!("{:?}", moved.unwrap_err());
    assert!(told.starts_with("Unavailable") && told.contains(SAID), "{told}");
    // The next one begins a session of its own, which is seen to be moved.
    let refused = ledger.commit([put(R, 1, "c")].into(), Patience::Skip).await;
    let told = format!("{:?}", refused.unwrap_err());
    assert!(told.starts_with("Unavailable") && told.contains(SAID), "{told}");
    let version = "SELECT coalesce(max(version), 0) FROM fencegate.operations WHERE resource = 'r'";
    assert_eq!(ground.number(version).await, 1);
}

/// How an act ends in a session to which this was done.
async fn code(ground: &Ground, done: &str, act: &str) -> Option<String> {
    let mut connection = ground.server.connect_bare(&ground.database).await;
    run(&mut connection, done).await;
    let call = sqlx::AssertSqlSafe(named(&format!("SELECT * FROM {act}")));
    let ended = sqlx::query(call).execute(&mut connection).await;
    // An error is told before its transaction has let go of its locks: the next answer comes after that.
    run(&mut connection, "SELECT 1").await;
    connection.close().await.unwrap();
    let error = ended.err()?;
    error.as_database_error().and_then(|error| error.code()).map(Into::into)
}

#[tokio::test]
pub async fn no_act_goes_on_in_a_session_that_nobody_prepared() {
    let ground = Ground::new().await;
    let refence = "acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)";
    let adopt = "acts.adopt(0, 0, 0, 0, 0, '00000001', '00000002', 1, gen_random_uuid())";
    let confirm = "acts.confirm_start(0, 0, 0, '00000001', 0, 1, gen_random_uuid())";
    let rest = [refence, adopt, confirm, "acts.halt_at(0, 0, 'test')"].map(str::to_owned);
    for act in acts(0).iter().chain(&rest) {
        let moved = Some("FG005".to_owned());
        assert_eq!(code(&ground, "SELECT 1", act).await, moved, "{act}");
        for pinned in ["on", "off"] {
            let done = format!("SET fencegate.session = {pinned}; SET synchronous_commit = off");
            assert_eq!(code(&ground, &done, act).await, moved, "{act}, {pinned}");
        }
    }
    let prepared = "SET fencegate.session = 'on'; SET synchronous_commit = 'on'";
    assert_eq!(code(&ground, prepared, &acts(0)[0]).await, None);
}

#[tokio::test]
async fn a_server_that_is_told_to_forget_is_not_acted_on_until_it_is_told_otherwise() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = gateway.env("FENCEGATE_REQUEST_TIMEOUT", "1s").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = client.put("job:1", "k", "x").under(&lock);
    put.clone().send().await.expect(201);
    let reload = async |setting: &str| {
        // One at a time: neither goes with others in a transaction.
        for statement in [&format!("ALTER SYSTEM SET {setting}"), "SELECT pg_reload_conf()"] {
            postgres.execute(database_in(&url), statement).await;
        }
    };
    for setting in ["fsync", "full_page_writes"] {
        reload(&format!("{setting} = off")).await;
        eventually("writes are refused", async || {
            (put.clone().send().await.status == 503).then_some(())
        })
        .await;
        eventually("it is not ready, and says why", async || {
            let readiness = client.get("/readyz").send().await;
            let says_why = readiness.text().contains("could be lost");
            (readiness.status == 503 && says_why).then_some(())
        })
        .await;
        reload(&format!("{setting} = on")).await;
        eventually("writes go on", async || (put.clone().send().await.status == 200).then_some(()))
            .await;
    }
    reload("synchronous_standby_names = 'nobody'").await;
    let log = gateway.logged("synchronous_standby_names was changed").await;
    assert!(log.contains("nobody"), "{log}");
}
