//! Crashes and losses of Postgres and etcd: what was acknowledged stays, and when it may not have,
//! nothing is applied or granted.

use fence_core::wire::Lock;
use fence_tests::client::resource_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::{eventually, is_alive, signal};
use futures::future::join_all;
use serde_json::json;

#[tokio::test]
async fn a_crash_of_postgres_loses_no_acknowledged_write_and_asks_for_no_refence() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let resources = ["job:1", "job:2", "job:3", "job:4"];
    let locks = join_all(resources.map(|resource| client.acquire(resource, "1h"))).await;
    let stop = std::cell::Cell::new(false);
    let acknowledged = std::cell::RefCell::new(Vec::new());
    let writer = async |lock: &Lock| {
        let resource = lock.resources[0].as_str();
        let mut count = 0;
        while !stop.get() {
            let key = format!("k{count}");
            count += 1;
            let put = client.put(resource, &key, key.clone()).under(lock).send().await;
            match put.status.as_u16() {
                201 => acknowledged.borrow_mut().push((resource.to_owned(), key)),
                503 => assert_ne!(put.code(), "refence-required", "{}", put.text()),
                _ => panic!("{}", put.text()),
            }
        }
    };
    let crashes = async {
        for round in 1..=3 {
            let wanted = round * 40;
            eventually("writes are acknowledged", async || {
                (acknowledged.borrow().len() > wanted).then_some(())
            })
            .await;
            postgres.kill9().await;
            postgres.start().await;
        }
        let before = acknowledged.borrow().len();
        eventually("writes go on after the last crash", async || {
            (acknowledged.borrow().len() > before + 20).then_some(())
        })
        .await;
        stop.set(true);
    };
    tokio::join!(join_all(locks.iter().map(writer)), crashes);
    for (resource, key) in &acknowledged.take() {
        let read = client.read(resource, key).send().await.expect(200);
        assert_eq!(&read.text(), key, "{resource}");
    }
    for word in ["refence", "re-fence", "lost commits"] {
        assert!(!gateway.log().contains(word), "{}", gateway.log());
    }
}

/// Of what kills servers here: a session that outlives its server may wait for ever for what others held, and keeps the
/// server from starting again.
#[tokio::test]
async fn a_killed_server_leaves_no_session_and_starts_again() {
    let postgres = Postgres::dedicated().await;
    let mut connection = postgres.connect("postgres").await;
    let session = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await;
    let session: i32 = session.expect("its id");
    let session = u32::try_from(session).expect("ids are positive");
    // It cannot notice by itself that the server is gone.
    signal("STOP", &[session]);
    postgres.kill9().await;
    assert!(!is_alive(session));
    postgres.start().await;
}

#[tokio::test]
async fn on_a_promoted_server_nothing_is_applied_until_it_is_refenced() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let url = postgres.url(&database);
    let prefix = etcd.prefix();
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &prefix).flag("--refence", "manual");
    let (gateway, other) = (settings.clone().start().await, settings.start().await);
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "kept").under(&lock).send().await.expect(201);
    let guards = async |timeline: &str| {
        for table in ["write_guard", "seal_guard"] {
            let set = format!("UPDATE fencegate.{table} SET timeline = {timeline}");
            postgres.execute(&database, &set).await;
        }
    };
    // As the guard of a ledger would look on a standby that was promoted: another timeline.
    guards("'0000002A'").await;
    for call in [
        client.put("job:1", "k", "late").under(&lock),
        client.put("job:1", "k", "late").under(&lock).idempotency_key("order-1"),
        client.put("job:1", "k", "late").token(lock.token.get() + 1),
        client.delete("job:1", "k").under(&lock),
        client.delete_resource("job:1").under(&lock),
        client.renew(&lock, None),
        client.release(&lock),
        client.lock(&json!({ "resource": "job:2" })),
        client.break_lock("job:1", &json!({ "reason": "x" })),
    ] {
        let refused = call.send().await.refused(503, "refence-required");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.problem().outcome, None, "nothing was applied, and that is known");
    }
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "kept");

    assert_eq!(client.version("job:1").await, 1);
    client.get(resource_path("job:2")).send().await.refused(404, "resource-not-found");

    // As when the address leads to the right server again: a promoted copy says nothing about it.
    guards("fencegate.current_timeline()").await;
    for client in [&client, &other.client()] {
        client.put("job:1", "k", "kept").under(&lock).send().await.expect(200);
    }
}

/// Another gateway may have found out that the ledger lost commits. Whoever is told so of an act reads nothing
/// as the present afterwards, until the ledger says otherwise.
#[tokio::test]
async fn once_an_act_was_told_that_the_ledger_lost_commits_reads_are_refused_too() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let settings = Gateway::clustered(&postgres.url(&database), &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.flag("--refence", "manual").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "kept").under(&lock).send().await.expect(201);
    let say = async |halted: &str| {
        for table in ["write_guard", "seal_guard"] {
            let set = format!("UPDATE fencegate.{table} SET halted = {halted}");
            postgres.execute(&database, &set).await;
        }
    };
    say("'the test says so'").await;
    client.put("job:1", "k", "late").under(&lock).send().await.refused(503, "refence-required");
    client.read("job:1", "k").send().await.refused(503, "refence-required");
    say("NULL").await;
    eventually("reads are answered again", async || {
        (client.read("job:1", "k").send().await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_ledger_that_fell_behind_stays_refused_when_it_has_caught_up() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let database = postgres.database_name().await;
    let url = postgres.url(&database);
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.flag("--refence", "manual").start().await;
    let client = gateway.client();
    let old = client.acquire("job:1", "1s").await;
    client.put("job:1", "k", "by the old holder").under(&old).send().await.expect(201);
    postgres.stop(Stop::Fast).await;
    let copy = postgres.copy();
    postgres.start().await;
    let new = eventually("the lock has expired", async || {
        let answer = client.lock(&json!({ "resource": "job:1" })).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    client.put("job:1", "k", "by the new holder").under(&new).send().await.expect(200);
    postgres.stop(Stop::Fast).await;
    postgres.restore(&copy);
    postgres.start().await;

    eventually("the loss is noticed", async || {
        let late = client.put("job:1", "k", "late").under(&old).send().await;
        assert_eq!(late.status, 503, "{}", late.text());
        (late.code() == "refence-required").then_some(())
    })
    .await;
    for _ in 0..3 {
        postgres.execute(&database, "CREATE TABLE more AS SELECT generate_series(1, 1000)").await;
        postgres.execute(&database, "DROP TABLE more").await;
        postgres.execute(&database, "SELECT pg_switch_wal()").await;
    }
    for lock in [&old, &new] {
        let late = client.put("job:1", "k", "late").under(lock).send().await;
        late.refused(503, "refence-required");
    }
}
