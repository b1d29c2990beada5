//! Commits that wait for a synchronous standby which does not answer, and operators who end those waits:
//! Postgres then says success (`pg_cancel_backend`) or nothing (`pg_terminate_backend`), and a standby that is
//! promoted knows nothing of the write. Nothing is acknowledged that way, and nothing acknowledged is lost.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::cell::{Cell, RefCell};
use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::{Call, Client};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;
use sqlx::PgConnection;

use crate::ledger::guard::post;
use crate::setup::random_id;

/// A primary with a synchronous standby, and a gateway that logs nothing.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    database: String,
    gateway: Gateway,
    operator: tokio::sync::Mutex<PgConnection>,
}

/// Sessions of the gateway that wait for the standby.
const WAITING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = ";

impl Pair {
    async fn new() -> Self {
        let (etcd, primary) = tokio::join!(Etcd::shared(), Postgres::dedicated());
        let database = primary.database_name().await;
        let standby = primary.standby().await;
        let names = "ALTER SYSTEM SET synchronous_standby_names = '*'";
        primary.execute("postgres", names).await;
        primary.execute("postgres", "SELECT pg_reload_conf()").await;
        let operator = primary.connect("postgres").await;
        let url = primary.url(&database);
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let gateway = settings.flag("--log", "off").start().await;
        Self { primary, standby, database, gateway, operator: tokio::sync::Mutex::new(operator) }
    }

    /// Ends all waits of the gateway's sessions in this way; returns how many there were.
    async fn end_waits(&self, how: &str) -> i64 {
        let end = format!("SELECT count(*) FILTER (WHERE {how}(pid)) {WAITING}'{}'", self.database);
        let mut operator = self.operator.lock().await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(end)).fetch_one(&mut *operator).await.unwrap()
    }

    /// The same once somebody waits.
    async fn end_a_wait(&self, how: &str) {
        eventually("a commit waits for the standby", async || {
            (self.end_waits(how).await > 0).then_some(())
        })
        .await;
    }

    /// The standby, which was killed, takes the primary's place, and does not have what it had not got.
    async fn fail_over(&self) -> PgConnection {
        self.primary.kill9().await;
        self.standby.start().await;
        self.standby.promote().await;
        eventually("the standby is a primary", async || {
            let mut connection = self.standby.connect(&self.database).await;
            let asked = sqlx::query_scalar("SELECT pg_is_in_recovery()");
            let recovers: bool = asked.fetch_one(&mut connection).await.unwrap();
            (!recovers).then_some(connection)
        })
        .await
    }
}

/// Calls that change something, with a name for each.
fn acts(client: &Client, held: &[Lock], turn: usize) -> Vec<(&'static str, Call)> {
    let id = random_id();
    let fence = json!({ "id": random_id() });
    vec![
        ("put", client.put("a", &format!("k{turn}"), "x").under(&held[0])),
        (
            "keyed put",
            client.put("b", "k", "x").under(&held[1]).idempotency_key(&format!("{turn}")),
        ),
        ("acquire", client.lock(&json!({ "resource": format!("new-{turn}"), "id": id }))),
        (
            "acquire two",
            client.lock(&json!({ "resources": [format!("x-{turn}"), format!("y-{turn}")] })),
        ),
        ("renew", client.renew(&held[2], Some("2h"))),
        ("freeze", post(client, "d", if turn == 0 { "freeze" } else { "unfreeze" })),
        ("fence", client.fence(&format!("fence-{turn}"), &fence)),
        ("release", client.release(&held[4 + turn])),
    ]
}

async fn locks(client: &Client) -> Vec<Lock> {
    let names = ["a", "b", "c", "d", "e", "f"];
    join_all(names.map(|name| client.acquire(name, "1h"))).await
}

#[tokio::test]
async fn an_act_whose_wait_for_the_standby_was_ended_is_not_acknowledged() {
    let pair = Pair::new().await;
    let client = pair.gateway.client();
    let held = locks(&client).await;
    for (turn, how) in ["pg_cancel_backend", "pg_terminate_backend"].into_iter().enumerate() {
        for (name, call) in acts(&client, &held, turn) {
            pair.standby.pause();
            let call = tokio::spawn(call.send());
            pair.end_a_wait(how).await;
            if name == "put" {
                // It runs again, and waits again, as often as that is ended.
                for _ in 0..3 {
                    pair.end_a_wait(how).await;
                }
            }
            let limit = tokio::time::timeout(Duration::from_millis(700), async {
                while !call.is_finished() {
                    pair.end_waits(how).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            let ended = limit.await.is_ok();
            pair.standby.resume();
            let answer = call.await.unwrap();
            if ended {
                assert!(!answer.status.is_success(), "{name}, {how}: {}", answer.text());
            }
            assert_ne!(answer.status, 500, "{name}, {how}: {}", answer.text());
        }
    }
    // With the standby back all goes on.
    client.put("a", "last", "x").under(&held[0]).send().await.expect(201);
}

#[tokio::test]
async fn a_write_that_was_applied_but_not_replicated_is_not_said_to_be_applied() {
    let pair = Pair::new().await;
    let client = pair.gateway.client();
    let lock = client.acquire("a", "1h").await;
    pair.standby.pause();
    let put = client.put("a", "k", "x").under(&lock).idempotency_key("once");
    let put = tokio::spawn(put.send());
    let mut look = pair.primary.connect(&pair.database).await;
    // The gateway commits something of its own, too: not the first wait that ends has to be the write's.
    eventually("the write is seen", async || {
        pair.end_waits("pg_cancel_backend").await;
        let keys = sqlx::query_scalar("SELECT count(*) FROM fencegate.idempotency_keys");
        let keys: i64 = keys.fetch_one(&mut look).await.unwrap();
        (keys == 1).then_some(())
    })
    .await;
    let asked = client.get("/resources/a/operations").query("idempotency_key", "once");
    let asked = tokio::spawn(asked.send());
    let _ = tokio::time::timeout(Duration::from_millis(1500), async {
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let ended = asked.is_finished();
    pair.standby.resume();
    let answer = asked.await.unwrap();
    if ended {
        assert!(!answer.status.is_success(), "{}", answer.text());
    }
    put.await.unwrap();
    let asked = client.get("/resources/a/operations").query("idempotency_key", "once");
    asked.send().await.expect(200);
}

#[tokio::test]
async fn a_burial_that_was_not_replicated_is_not_told() {
    let pair = Pair::new().await;
    let client = pair.gateway.client();
    client.acquire("a", "1h").await;
    pair.standby.pause();
    // As it is once somebody has ended the wait of the commit.
    let id = random_id();
    let bury = format!(
        "SET synchronous_commit = local;
         INSERT INTO fencegate.buried (kind, id, buried_at) VALUES ('operation', '{id}', now())"
    );
    pair.primary.execute(&pair.database, &bury).await;
    let asked = tokio::spawn(client.get(format!("/operations/{id}")).send());
    let _ = tokio::time::timeout(Duration::from_millis(1500), async {
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let ended = asked.is_finished();
    pair.standby.resume();
    let answer = asked.await.unwrap();
    if ended {
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    let told = client.get(format!("/operations/{id}")).send().await.expect(200).json();
    assert_eq!(told["outcome"], "not_applied");
}

#[tokio::test]
async fn under_load_no_acknowledged_write_or_grant_is_lost_whoever_ends_waits() {
    let pair = Pair::new().await;
    let client = pair.gateway.client();
    let held = locks(&client).await;
    let stop = Cell::new(false);
    let acknowledged = RefCell::new(Vec::new());
    let granted = RefCell::new(Vec::new());
    let writer = async |lock: &Lock| {
        let resource = lock.resources[0].as_str();
        for count in 0.. {
            if stop.get() {
                return;
            }
            let key = format!("k{count}");
            let put = client.put(resource, &key, "x").under(lock).send().await;
            match put.status.as_u16() {
                200 | 201 => acknowledged.borrow_mut().push((resource.to_owned(), key)),
                503 => {}
                _ => panic!("{}", put.text()),
            }
        }
    };
    let locker = async |name: &str| {
        for count in 0.. {
            if stop.get() {
                return;
            }
            let resource = format!("{name}-{count}");
            let answer = client.lock(&json!({ "resource": resource })).send().await;
            match answer.status.as_u16() {
                // What ran again found what it had done.
                200 | 201 => granted.borrow_mut().push(resource),
                503 => {}
                _ => panic!("{}", answer.text()),
            }
        }
    };
    let operators = async {
        for round in 0..6 {
            // The last time waits are cancelled: that is what Postgres says success to.
            let how = if round % 3 == 1 { "pg_terminate_backend" } else { "pg_cancel_backend" };
            // Some are acknowledged in between.
            let wanted = acknowledged.borrow().len() + 20;
            eventually("writes are acknowledged", async || {
                (acknowledged.borrow().len() > wanted).then_some(())
            })
            .await;
            // One that is only paused still gets what was sent to it: the last time it is killed.
            match round {
                5 => pair.standby.kill9().await,
                _ => pair.standby.pause(),
            }
            let mut ended = 0;
            eventually("waits are ended", async || {
                ended += pair.end_waits(how).await;
                (ended > 10).then_some(())
            })
            .await;
            if round < 5 {
                pair.standby.resume();
            }
        }
        // The standby stays away until it is promoted.
        stop.set(true);
    };
    let writers = join_all(held.iter().map(writer));
    tokio::join!(writers, join_all(["l", "m"].map(locker)), operators);

    let mut promoted = pair.fail_over().await;
    let there = "SELECT resource, key FROM fencegate.objects";
    let there: std::collections::HashSet<(String, String)> =
        sqlx::query_as(there).fetch_all(&mut promoted).await.unwrap().into_iter().collect();
    let lost: Vec<_> =
        acknowledged.take().into_iter().filter(|write| !there.contains(write)).collect();
    assert!(lost.is_empty(), "{} acknowledged writes are lost: {lost:?}", lost.len());
    let sealed = "SELECT resource FROM fencegate.grants";
    let sealed: std::collections::HashSet<String> =
        sqlx::query_scalar(sealed).fetch_all(&mut promoted).await.unwrap().into_iter().collect();
    let lost: Vec<_> = granted.take().into_iter().filter(|name| !sealed.contains(name)).collect();
    assert!(lost.is_empty(), "{} grants that were answered are lost: {lost:?}", lost.len());
}
