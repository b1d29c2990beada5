//! Fenced writes to users' own tables: `fencegate.guard` inside users' transactions, beside a gateway.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Lock;
use fence_tests::client::{Call, Client, resource_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, Stop, database_in};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::named;
use serde_json::json;
use sqlx::postgres::PgDatabaseError;
use sqlx::{Executor, PgConnection};

use crate::schedules::forced::run;
use crate::setup::{random_id, take_over, until_state};

/// A gateway, and beside its tables one of a user's.
pub struct Site {
    _gateway: Gateway,
    pub client: Client,
    pub database: String,
}

impl Site {
    pub async fn new() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let url = postgres.database().await;
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        // Nothing is re-fenced but by the tests.
        let gateway = settings.flag("--refence", "manual").start().await;
        let site = Self {
            client: gateway.client(),
            _gateway: gateway,
            database: database_in(&url).into(),
        };
        let table = "CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL);
                     INSERT INTO accounts VALUES ('a', 0), ('b', 0)";
        postgres.execute(&site.database, table).await;
        // Tokens of so many digits that they stand out wherever they are shown.
        let high = "UPDATE fencegate.seal_guard SET base = 770000000000";
        postgres.execute(&site.database, high).await;
        site
    }

    pub async fn connect(&self) -> PgConnection {
        Postgres::shared().await.connect(&self.database).await
    }

    /// An open transaction that is guarded by this lock, and has written `balance` to account `a`.
    pub async fn guarded(&self, lock: &Lock, balance: i32) -> PgConnection {
        let mut connection = self.connect().await;
        run(&mut connection, "BEGIN").await;
        run(&mut connection, &guard(lock)).await;
        run(&mut connection, &set(balance)).await;
        connection
    }

    pub async fn balance(&self) -> i32 {
        let balance = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = 'a'");
        balance.fetch_one(&mut self.connect().await).await.unwrap()
    }

    /// The SQLSTATE with which `guard` refuses this lock now.
    pub async fn code(&self, lock: &Lock) -> String {
        refused(&mut self.connect().await, &guard(lock)).await.0
    }
}

pub fn guard(lock: &Lock) -> String {
    guard_of(lock.resources[0].as_str(), lock.token.get())
}

fn guard_of(resource: &str, token: i64) -> String {
    format!("SELECT fencegate.guard('{resource}', {token})")
}

/// The write to account `a`.
pub fn set(balance: i32) -> String {
    format!("UPDATE accounts SET balance = {balance} WHERE id = 'a'")
}

/// The statements of `docs/tables.md` that begin with these words, up to the end of their block.
pub fn documented(words: &str) -> &'static str {
    let page = include_str!("../../../docs/tables.md");
    let begun = page.find(words).map(|at| &page[at..]).unwrap();
    begun.split("```").next().unwrap()
}

/// Runs a statement that must fail: its SQLSTATE, and all that is told.
pub async fn refused(connection: &mut PgConnection, statement: &str) -> (String, String) {
    let outcome = connection.execute(sqlx::AssertSqlSafe(named(statement))).await;
    let Err(sqlx::Error::Database(error)) = outcome else { panic!("{statement}: {outcome:?}") };
    let told = error.downcast_ref::<PgDatabaseError>();
    (told.code().to_owned(), format!("{told:?}"))
}

/// An operator's act.
pub fn post(client: &Client, resource: &str, act: &str) -> Call {
    client.post(format!("{}/{act}", resource_path(resource)), &json!({ "reason": "test" }))
}

#[tokio::test]
async fn a_stale_token_is_rolled_back_and_a_good_one_commits() {
    let site = Site::new().await;
    let late = site.client.acquire("job:1", "1s").await;
    site.guarded(&late, 1).await.execute("COMMIT").await.unwrap();
    assert_eq!(site.balance().await, 1);
    let next = take_over(&site.client, "job:1").await;

    let mut connection = site.connect().await;
    run(&mut connection, "BEGIN").await;
    run(&mut connection, &set(99)).await;
    let (code, told) = refused(&mut connection, &guard(&late)).await;
    assert_eq!(code, "FG403");
    assert!(told.contains("fence-token-stale") && told.contains("superseded by grant"), "{told}");
    assert!(!told.contains(&next.token.to_string()), "the token is shown: {told}");
    assert_eq!(refused(&mut connection, &set(99)).await.0, "25P02");
    run(&mut connection, "COMMIT").await;
    assert_eq!(site.balance().await, 1);

    site.guarded(&next, 2).await.execute("COMMIT").await.unwrap();
    assert_eq!(site.balance().await, 2);
}

#[tokio::test]
async fn an_expired_lock_that_nobody_took_over_still_admits() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "1s").await;
    until_state(&site.client, "job:1", "expired").await;
    site.guarded(&lock, 1).await.execute("COMMIT").await.unwrap();
    assert_eq!(site.balance().await, 1);
}

#[tokio::test]
async fn each_reason_has_its_code() {
    let site = Site::new().await;
    let client = &site.client;
    let acquire = async |resource| client.acquire(resource, "10m").await;

    let released = acquire("released").await;
    client.release(&released).send().await.expect(204);
    assert_eq!(site.code(&released).await, "FG404");
    let broken = acquire("broken").await;
    post(client, "broken", "break").send().await.expect(200);
    assert_eq!(site.code(&broken).await, "FG405");
    let frozen = acquire("frozen").await;
    post(client, "frozen", "freeze").send().await.expect(200);
    assert_eq!(site.code(&frozen).await, "FG406");
    post(client, "frozen", "unfreeze").send().await.expect(200);
    run(&mut site.connect().await, &guard(&frozen)).await;
    let transferred = acquire("transferred").await;
    let path = format!("/locks/{}/transfer", transferred.id);
    client.post(path, &json!({ "owner": "next" })).send().await.expect(201);
    assert_eq!(site.code(&transferred).await, "FG403");
    let fenced = acquire("fenced").await;
    let fence = json!({ "id": random_id(), "force": true });
    client.fence("fenced", &fence).send().await.expect(201);
    assert_eq!(site.code(&fenced).await, "FG403");

    let good = acquire("good").await;
    let mut connection = site.connect().await;
    for (call, code) in [
        (guard_of("good", good.token.get() + 1), "FG402"),
        (guard_of("good", released.token.get()), "FG402"),
        (guard_of("good", i64::MAX), "FG402"),
        (guard_of("never", good.token.get()), "FG402"),
        (guard_of("not a name", 1), "FG402"),
        (guard_of("good", 0), "FG400"),
        (guard_of("good", -1), "FG400"),
        ("SELECT fencegate.guard('good', NULL)".into(), "FG400"),
        ("SELECT fencegate.guard(NULL, 1)".into(), "FG400"),
        ("SELECT fencegate.guard_all(NULL, '{1}')".into(), "FG400"),
        ("SELECT fencegate.guard_all('{}', '{}')".into(), "FG400"),
        ("SELECT fencegate.guard_all('{good,good}', '{1}')".into(), "FG400"),
        ("SELECT fencegate.guard_all('{{good}}', '{1}')".into(), "FG400"),
        (
            "SELECT fencegate.guard_all(array_fill('x'::text, '{101}'), \
             array_fill(1::bigint, '{101}'))"
                .into(),
            "FG400",
        ),
    ] {
        let (found, told) = refused(&mut connection, &call).await;
        assert_eq!(found, code, "{call}: {told}");
    }
    // A token as JSON has it, and many at once, in any order.
    run(&mut connection, &format!("SELECT fencegate.guard('good', '{}')", good.token)).await;
    let both = |second: &Lock| {
        let tokens = format!("{},{}", good.token, second.token);
        format!("SELECT fencegate.guard_all('{{good,{}}}', '{{{tokens}}}')", second.resources[0])
    };
    run(&mut connection, &both(&frozen)).await;
    assert_eq!(refused(&mut connection, &both(&broken)).await.0, "FG405");
}

#[tokio::test]
async fn with_the_id_of_the_lock_a_guessed_token_is_not_enough() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let other = site.client.acquire("job:2", "10m").await;
    let guard = |token: i64, id: &str| format!("SELECT fencegate.guard('job:1', {token}, {id})");
    let mut connection = site.connect().await;
    for good in [format!("'{}'", lock.id), "NULL".into()] {
        run(&mut connection, &guard(lock.token.get(), &good)).await;
    }
    for id in [other.id.0, random_id()] {
        let guess = guard(lock.token.get(), &format!("'{id}'"));
        let (code, told) = refused(&mut connection, &guess).await;
        assert_eq!(code, "FG411");
        assert!(
            told.contains("lock-id-mismatch") && !told.contains(&lock.id.to_string()),
            "{told}"
        );
    }
    let ids = |ids: &str| {
        let tokens = format!("ARRAY[{}, {}]::bigint[]", lock.token, other.token);
        format!("SELECT fencegate.guard_all(ARRAY['job:1', 'job:2'], {tokens}, {ids})")
    };
    run(&mut connection, &ids(&format!("ARRAY['{}', '{}']::uuid[]", lock.id, other.id))).await;
    run(&mut connection, &ids(&format!("ARRAY[NULL, '{}']::uuid[]", other.id))).await;
    let swapped = ids(&format!("ARRAY['{}', '{}']::uuid[]", other.id, lock.id));
    assert_eq!(refused(&mut connection, &swapped).await.0, "FG411");
    let one = ids(&format!("ARRAY['{}']::uuid[]", lock.id));
    assert_eq!(refused(&mut connection, &one).await.0, "FG400");
    // What became of the token comes first, and it says nothing about the lock that has it now.
    site.client.release(&lock).send().await.expect(204);
    let late = guard(lock.token.get(), &format!("'{}'", other.id));
    assert_eq!(refused(&mut connection, &late).await.0, "FG404");
}

#[tokio::test]
async fn a_break_that_has_come_due_refuses_also_before_it_is_stored() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let due = "UPDATE fencegate.fences SET break_due = clock_timestamp()";
    let mut connection = site.connect().await;
    run(&mut connection, "BEGIN").await;
    run(&mut connection, due).await;
    assert_eq!(refused(&mut connection, &guard(&lock)).await.0, "FG405");
}

#[tokio::test]
async fn nothing_is_guarded_until_a_refence_and_then_no_earlier_token() {
    let site = Site::new().await;
    let lock = site.client.acquire("job:1", "10m").await;
    let mut operator = site.connect().await;
    run(&mut operator, "SELECT acts.halt('it lost commits')").await;
    let (code, told) = refused(&mut site.connect().await, &guard(&lock)).await;
    assert_eq!(code, "FG407");
    assert!(told.contains("it lost commits"), "{told}");
    run(&mut operator, "SELECT acts.refence(gen_random_uuid(), 0, 0, 0, 'test', true)").await;
    assert_eq!(site.code(&lock).await, "FG401");
    // As the guard of a ledger looks on a server that was restored elsewhere.
    run(&mut operator, "UPDATE fencegate.write_guard SET system_id = system_id + 1").await;
    assert_eq!(site.code(&lock).await, "FG407");
}

#[tokio::test]
async fn a_promoted_server_refuses_a_token_that_was_superseded_on_the_lost_one() {
    let (etcd, primary) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = primary.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let late = client.acquire("job:1", "1s").await;
    let standby = primary.standby().await;
    standby.caught_up(&primary).await;
    standby.stop_following().await;
    take_over(&client, "job:1").await;
    drop(gateway);
    primary.stop(Stop::Immediate).await;
    standby.promote().await;
    let mut connection = standby.connect(database_in(&url)).await;
    let code = eventually("the server is promoted", async || {
        let code = refused(&mut connection, &guard(&late)).await.0;
        // A standby takes no locks: read-only.
        (code != "25006" && code != "55000").then_some(code)
    })
    .await;
    assert_eq!(code, "FG407");
}

#[tokio::test]
async fn a_transaction_with_a_snapshot_is_not_guarded_by_what_that_shows() {
    let site = Site::new().await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let lock = site.client.acquire(&isolation.replace(' ', "-"), "1s").await;
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM accounts");
        let mut unchanged = site.connect().await;
        run(&mut unchanged, &begin).await;
        run(&mut unchanged, &guard(&lock)).await;
        run(&mut unchanged, &set(5)).await;
        run(&mut unchanged, "COMMIT").await;

        let mut connection = site.connect().await;
        run(&mut connection, &begin).await;
        site.client.renew(&lock, None).send().await.expect(200);
        assert_eq!(refused(&mut connection, &guard(&lock)).await.0, "40001", "renewed");
        run(&mut connection, &format!("ROLLBACK; {begin}")).await;
        let next = take_over(&site.client, lock.resources[0].as_str()).await;
        assert_eq!(refused(&mut connection, &guard(&lock)).await.0, "40001", "superseded");
        run(&mut connection, &format!("ROLLBACK; {begin}")).await;
        assert_eq!(refused(&mut connection, &guard(&lock)).await.0, "FG403");
        run(&mut connection, &format!("ROLLBACK; {begin}")).await;
        // The floor rises, which no fence shows.
        let raise = "UPDATE fencegate.write_guard SET floor = floor";
        run(&mut site.connect().await, raise).await;
        assert_eq!(refused(&mut connection, &guard(&next)).await.0, "40001", "the floor");
        run(&mut connection, "ROLLBACK").await;
        run(&mut connection, &guard(&next)).await;
    }
}

#[tokio::test]
async fn a_prepared_transaction_keeps_its_fence_over_a_crash() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    postgres.execute("postgres", "ALTER SYSTEM SET max_prepared_transactions = 4").await;
    postgres.stop(Stop::Fast).await;
    postgres.start().await;
    let url = postgres.database().await;
    let database = database_in(&url);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "1s").await;
    let mut connection = postgres.connect(database).await;
    run(&mut connection, "CREATE TABLE t (x int); SELECT fencegate.require_guard('t')").await;
    run(&mut connection, "BEGIN").await;
    run(&mut connection, &guard(&lock)).await;
    run(&mut connection, "INSERT INTO t VALUES (1)").await;
    run(&mut connection, "PREPARE TRANSACTION 'p'").await;
    postgres.kill9().await;
    postgres.start().await;
    eventually("the gateway is back and the lock has expired", async || {
        let view = client.get(resource_path("job:1")).send().await;
        (view.status == 200 && view.json()["state"] == "expired").then_some(())
    })
    .await;
    let free =
        "SELECT count(*) FROM (SELECT FROM fencegate.fences FOR NO KEY UPDATE SKIP LOCKED) f";
    let free: Result<i64, _> =
        sqlx::query_scalar(free).fetch_one(&mut postgres.connect(database).await).await;
    assert_eq!(free.unwrap(), 0);
    client.lock(&json!({ "resource": "job:1" })).send().await.expect(503);
    postgres.execute(database, "COMMIT PREPARED 'p'").await;
    eventually("the next lock is granted", async || {
        let answer = client.lock(&json!({ "resource": "job:1" })).send().await;
        (answer.status == 201).then_some(())
    })
    .await;
    let mut connection = postgres.connect(database).await;
    assert_eq!(refused(&mut connection, &guard(&lock)).await.0, "FG403");
}
