//! An idle foreign transaction on one fence row delays nobody but those who want that row.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and reads clocks")]

use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::client::{Answer, Call, Client};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;
use sqlx::{Executor, PgConnection};

const OTHERS: usize = 50;
const ROUNDS: usize = 4;

async fn settings() -> (Settings, String) {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let url = postgres.database().await;
    (Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()), database_in(&url).to_owned())
}

/// A transaction that has locked these fence rows and does nothing any more, as a forgotten `psql`.
async fn idle_transaction(database: &str, resources: &str) -> PgConnection {
    let mut connection = Postgres::shared().await.connect(database).await;
    connection.execute("BEGIN").await.unwrap();
    let select = "SELECT FROM fencegate.fences WHERE resource = ANY ($1::text[]) FOR UPDATE";
    let locked = sqlx::query(select).bind(resources).execute(&mut connection).await.unwrap();
    assert_eq!(locked.rows_affected() as usize, resources.split(',').count());
    connection
}

/// Waits until this many calls of the gateway wait for a row.
pub async fn waiting(database: &str, count: i64) {
    let mut connection = Postgres::shared().await.connect(database).await;
    eventually(&format!("{count} calls wait for a row"), async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock' AND application_name = 'fencegate'",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        (waiting == count).then_some(())
    })
    .await;
}

/// Sends a call that must succeed; how long that took.
async fn timed(call: Call) -> (Answer, Duration) {
    let began = Instant::now();
    let answer = call.send().await;
    assert!(answer.status.is_success(), "{}: {}", answer.status, answer.text());
    (answer, began.elapsed())
}

/// Writes, renews, releases and acquires on another resource, a few times over.
async fn go_on(client: &Client, resource: &str) -> Vec<Duration> {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let acquire = json!({ "resource": resource, "ttl": "10m", "owner": "other" });
        let (lock, acquired) = timed(client.lock(&acquire)).await;
        let lock: Lock = lock.parse();
        let (_, wrote) = timed(client.put(resource, "k", format!("{round}")).under(&lock)).await;
        let (_, renewed) = timed(client.renew(&lock, None)).await;
        let (_, released) = timed(client.release(&lock)).await;
        took.extend([acquired, wrote, renewed, released]);
    }
    took
}

/// The median over all calls on all other resources at once.
pub async fn median(client: &Client) -> Duration {
    let others = (0..OTHERS).map(|i| async move { go_on(client, &format!("other-{i}")).await });
    let mut took = join_all(others).await.concat();
    took.sort_unstable();
    took[took.len() / 2]
}

#[tokio::test]
async fn a_stuck_row_delays_no_other_resource() {
    let (settings, database) = settings().await;
    let gateway = settings.start().await;
    let client = gateway.client();
    let stuck = client.acquire("stuck", "10m").await;
    let free = client.acquire("stuck-free", "10m").await;
    client.release(&free).send().await.expect(204);
    let before = median(&client).await;

    let held = idle_transaction(&database, "{stuck,stuck-free}").await;
    let stuck_calls = async {
        tokio::join!(
            client.put("stuck", "k", "plain").under(&stuck).send(),
            client.renew(&stuck, None).send(),
            client.lock(&json!({ "resource": "stuck-free" })).send(),
        )
    };
    let others = async {
        waiting(&database, 3).await;
        median(&client).await
    };
    let ((write, renewal, grant), during) = tokio::join!(stuck_calls, others);
    // The row was held all the while, and those who want it hear so before long.
    for answer in [write, renewal, grant] {
        answer.expect(503);
    }
    let keyed = client.put("stuck", "k", "keyed").under(&stuck).idempotency_key("once");
    let status = keyed.send().await.status.as_u16();
    assert!([409, 503].contains(&status), "{status}");
    // Nothing of it is under way any more.
    waiting(&database, 0).await;
    // Reads wait for nobody.
    client.read("stuck", "k").send().await.refused(404, "object-not-found");
    assert_eq!(client.version("stuck").await, 0);
    drop(held);

    eprintln!("median {before:?} before, {during:?} beside stuck rows");
    assert!(during < before * 20, "{during:?} is more than 20 times {before:?}");
    // What was refused was not applied, and everything goes on.
    let put = client.put("stuck", "k", "after").under(&stuck).idempotency_key("once");
    assert_eq!(put.send().await.expect(201).written().version, 1);
    client.acquire("stuck-free", "10m").await;
}

#[tokio::test]
async fn writes_on_a_row_that_comes_free_in_time_take_effect_in_their_order() {
    let (settings, database) = settings().await;
    let gateway = settings.env("FENCEGATE_REQUEST_TIMEOUT", "50s").start().await;
    let client = gateway.client();
    let stuck = client.acquire("stuck", "10m").await;
    let held = idle_transaction(&database, "{stuck}").await;

    let mut writes = Vec::new();
    for sequence in 1..=8 {
        let put = client.put("stuck", "k", format!("{sequence}")).under(&stuck);
        let put = put.header("x-fence-seq", sequence.to_string());
        writes.push(tokio::spawn(put.send()));
        if sequence == 1 {
            waiting(&database, 1).await;
        }
        // Nothing outside tells that a request has been queued; this is far more than it takes.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    drop(held);
    for (write, version) in writes.into_iter().zip(1..) {
        let answer = write.await.unwrap();
        assert!(answer.status.is_success(), "write {version}: {}", answer.text());
        assert_eq!(answer.written().version, version);
    }
    assert_eq!(client.read("stuck", "k").send().await.expect(200).text(), "8");
}

#[tokio::test]
async fn a_write_that_was_given_up_beside_a_stuck_row_never_takes_effect() {
    let (settings, database) = settings().await;
    let gateway = settings.env("FENCEGATE_REQUEST_TIMEOUT", "1s").start().await;
    let client = gateway.client();
    let stuck = client.acquire("stuck", "10m").await;
    let held = idle_transaction(&database, "{stuck}").await;
    let writes = (0..10).map(|i| client.put("stuck", &format!("k{i}"), "x").under(&stuck).send());
    let refused = join_all(writes).await;
    drop(held);
    // The lane is empty once a write that came after them is through.
    let next = eventually("the row is free", async || {
        let answer = client.put("stuck", "k", "next").under(&stuck).send().await;
        answer.status.is_success().then(|| answer.written().version)
    })
    .await;
    let mut applied = 0;
    for answer in refused {
        // One of them was in a statement when its time was up: nobody knows yet.
        let problem = answer.clone().expect(503).problem();
        let id = answer.must_have("x-operation-id");
        let record = client.get(format!("/operations/{id}")).send().await;
        if problem.outcome.as_deref() == Some("unknown") {
            applied += i64::from(record.json()["outcome"] == "applied");
        } else {
            record.refused(404, "operation-not-found");
        }
    }
    assert_eq!(next, applied + 1);
}
