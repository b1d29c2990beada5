//! The story of every lock in Redis: its holder stalls, it lapses, the next one gets it, and the first
//! wakes up. With a fence in front of the writes, the late one bounces.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::lock::Supersession;
use fence_core::wire::Fence;
use fence_tests::client::{Call, Client};
use fence_tests::process::eventually;
use fence_tests::redis::{Redis, Reply};
use serde_json::json;

use crate::setup::{SetUp, on_both, random_id};

on_both!(a_lock_in_redis_that_lapses_is_fenced, without_an_order_the_last_caller_wins);

/// A fence of this order, as a decimal string.
fn fence(client: &Client, owner: &str, order: i64) -> Call {
    let id = random_id().to_string();
    let body = json!({ "id": id, "order": order.to_string(), "owner": owner });
    client.fence("job:1", &body)
}

async fn a_lock_in_redis_that_lapses_is_fenced(setup: SetUp) {
    let (gateway, redis) = tokio::join!(setup.start(), Redis::start());
    let client = gateway.client();
    let put =
        |fence: &Fence, text: &'static str| client.put("job:1", "report", text).token(fence.token);

    // A has the lock in Redis, fences, and writes.
    let a_order = redis.lock("lock:job:1", "A", 600_000).await.unwrap();
    let a: Fence = fence(&client, "A", a_order).send().await.expect(201).parse();
    put(&a, "by A").send().await.expect(201);
    assert_eq!(redis.lock("lock:job:1", "B", 600_000).await, None, "A has it");

    // A stalls; the lock in Redis lapses; B gets it, fences, and writes.
    redis.command(["PEXPIRE", "lock:job:1", "1"]).await;
    let b_order = eventually("the lock in Redis lapses", async || {
        redis.lock("lock:job:1", "B", 600_000).await
    })
    .await;
    assert!(b_order > a_order, "{b_order} does not rise above {a_order}");
    let b: Fence = fence(&client, "B", b_order).send().await.expect(201).parse();
    assert!(b.token > a.token);
    assert_eq!(b.version, 1, "B reads what A wrote");
    put(&b, "by B").send().await.expect(200);

    // A wakes up, still sure of its lock: its write is late, and so is its fence.
    let late = put(&a, "by A, late").send().await.refused(412, "fence-token-stale");
    assert_eq!(late.problem().superseded_by, Some(Supersession::Fence.into()));
    for _ in 0..2 {
        let late = fence(&client, "A", a_order).send().await.refused(412, "fence-order-stale");
        assert_eq!(late.problem().resource.as_deref(), Some("job:1"));
        assert!(!late.problem().retryable);
    }
    fence(&client, "A", b_order).send().await.refused(412, "fence-order-stale");

    put(&b, "by B again").send().await.expect(200);
    assert_eq!(client.read("job:1", "report").send().await.expect(200).text(), "by B again");
    assert_eq!(redis.command(["GET", "lock:job:1"]).await, Reply::Text("B".into()));
}

async fn without_an_order_the_last_caller_wins(setup: SetUp) {
    let (gateway, redis) = tokio::join!(setup.start(), Redis::start());
    let client = gateway.client();
    let fence = async || -> Fence {
        let body = json!({ "id": random_id().to_string() });
        client.fence("job:1", &body).send().await.expect(201).parse()
    };
    redis.lock("lock:job:1", "A", 100).await.unwrap();
    fence().await;
    let next = async || redis.lock("lock:job:1", "B", 600_000).await;
    eventually("the lock in Redis lapses", next).await;
    let b = fence().await;
    // A woke up late, and has fenced off B. Its own lock tells it, asked after the answer.
    let a = fence().await;
    assert_eq!(redis.command(["GET", "lock:job:1"]).await, Reply::Text("B".into()));
    client.put("job:1", "k", "b").token(b.token).send().await.refused(412, "fence-token-stale");
    // B fences again, because it still has its lock, and goes on.
    let b = fence().await;
    client.put("job:1", "k", "b").token(b.token).send().await.expect(201);
    client.put("job:1", "k", "a").token(a.token).send().await.refused(412, "fence-token-stale");
}
