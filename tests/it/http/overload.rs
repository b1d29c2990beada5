//! More than the gateway can do: it says so at once, and what it denied never happens.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;
use sqlx::Connection;
use tokio::task::JoinSet;

/// Sends `count` writes of `job:1` at once, none of which can be admitted now; returns the keys of
/// those that were denied for want of room.
async fn flood(client: &Client, lock: &Lock, count: usize) -> Vec<String> {
    let puts =
        (0..count).map(|index| client.put("job:1", &format!("k{index}"), "x").under(lock).send());
    let mut denied = Vec::new();
    for (index, answer) in join_all(puts).await.into_iter().enumerate() {
        assert_eq!(answer.status, 503, "{}", answer.text());
        if answer.code() == "overloaded" {
            let seconds: i64 = answer.must_have("retry-after").parse().unwrap();
            assert!(seconds >= 1 && answer.problem().retryable);
            denied.push(format!("k{index}"));
        }
    }
    denied
}

#[tokio::test]
async fn beyond_the_queue_writes_are_refused_as_overloaded_when_postgres_is_frozen() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.env("FENCEGATE_QUEUE_MAX", "4").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    postgres.pause();
    let denied = flood(&client, &lock, 64).await;
    postgres.resume();
    assert!(!denied.is_empty(), "nobody was told that the gateway is overloaded");
    let put = client.put("job:1", "after", "x").under(&lock);
    eventually("writes are admitted again", async || {
        put.clone().send().await.status.is_success().then_some(())
    })
    .await;
    for key in denied {
        client.read("job:1", &key).send().await.refused(404, "object-not-found");
    }
}

#[tokio::test]
async fn beyond_the_queue_writes_of_a_stuck_resource_are_overloaded_and_others_go_on() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let settings = settings.env("FENCEGATE_QUEUE_MAX", "16").env("FENCEGATE_COMMITTERS", "1");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let other = client.acquire("job:2", "10m").await;
    let mut foreign = postgres.connect(database_in(&url)).await;
    let mut transaction = foreign.begin().await.unwrap();
    sqlx::query("SELECT FROM fencegate.fences WHERE resource = 'job:1' FOR UPDATE")
        .execute(&mut *transaction)
        .await
        .unwrap();

    // Never more at once than the queue takes; but they all wait for the same row.
    let mut waiting = JoinSet::new();
    for wave in 0..20 {
        for index in 0..8 {
            let put = client.put("job:1", &format!("k{wave}-{index}"), "x").under(&lock);
            waiting.spawn(put.send());
        }
        let put = client.put("job:2", "k", "x").under(&other);
        eventually("another resource is written meanwhile", async || {
            let put = put.clone().send().await;
            if put.code() != "overloaded" {
                assert!(put.status.is_success(), "{}", put.text());
            }
            put.status.is_success().then_some(())
        })
        .await;
    }
    let answers = waiting.join_all().await;
    assert!(answers.iter().all(|answer| answer.status == 503), "{answers:?}");
    let denied = answers.iter().filter(|answer| answer.code() == "overloaded").count();
    assert!(denied > 0, "160 writes wait for a row behind a queue of 16, and nobody was denied");
    transaction.rollback().await.unwrap();
    let put = client.put("job:1", "after", "x").under(&lock);
    eventually("the resource works again", async || {
        put.clone().send().await.status.is_success().then_some(())
    })
    .await;
}
