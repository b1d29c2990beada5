//! Events whose cause is at another gateway, also while every connection to Postgres is cut.
#![expect(clippy::disallowed_methods, reason = "a test measures on the real clock")]

use std::time::{Duration, Instant};

use fence_core::Supersession;
use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::events::Events;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use serde_json::json;

use super::events::quiet_until_now;
use crate::setup::take_over;

struct Two {
    watching: Gateway,
    acting: Gateway,
    database: String,
}

impl Two {
    async fn start() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let url = postgres.database().await;
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let (watching, acting) = tokio::join!(settings.clone().start(), settings.start());
        Self { watching, acting, database: database_in(&url).to_owned() }
    }

    /// A lock taken through the one gateway and watched through it.
    async fn watched(&self, resource: &str) -> (Lock, Events) {
        let client = self.watching.client();
        let lock = client.acquire(resource, "10m").await;
        let events = Events::of(&client, lock.id).await;
        (lock, events)
    }
}

async fn transfer(client: &Client, lock: &Lock) {
    let path = format!("/locks/{}/transfer", lock.id);
    client.post(path, &json!({ "owner": "next" })).send().await.expect(201);
}

#[tokio::test]
async fn events_come_from_another_gateway() {
    let two = Two::start().await;
    let other = two.acting.client();
    for round in 0..3 {
        let (lock, mut events) = two.watched(&format!("released:{round}")).await;
        other.release(&lock).send().await.expect(204);
        assert_eq!(events.expect("released").await.state, "released");

        let (lock, mut events) = two.watched(&format!("moved:{round}")).await;
        transfer(&other, &lock).await;
        assert_eq!(events.expect("lost").await.state, "superseded");

        let resource = format!("broken:{round}");
        let (_, mut events) = two.watched(&resource).await;
        let break_in = |after: &str| json!({ "after": after, "reason": "x" });
        other.break_lock(&resource, &break_in("5m")).send().await.expect(200);
        events.expect("breaking").await;
        other.break_lock(&resource, &break_in("0s")).send().await.expect(200);
        assert_eq!(events.expect("lost").await.state, "broken");

        let resource = format!("taken:{round}");
        let (lock, mut events) = two.watched(&resource).await;
        other.renew(&lock, Some("1s")).send().await.expect(200);
        events.expect("expiring").await;
        take_over(&other, &resource).await;
        let lost = events.expect("lost").await;
        assert_eq!(lost.superseded_by, Some(Supersession::Grant.into()));
    }
}

#[tokio::test]
async fn a_renewal_through_another_gateway_counts() {
    const TTL: Duration = Duration::from_secs(9);
    let two = Two::start().await;
    let (client, other) = (two.watching.client(), two.acting.client());
    for round in 0.. {
        let resource = format!("job:{round}");
        let began = Instant::now();
        let lock = client.acquire(&resource, "9s").await;
        let mut events = Events::of(&client, lock.id).await;
        other.renew(&lock, Some("10m")).send().await.expect(200);
        let is_in_time = began.elapsed() < TTL / 2;
        // Taken later for as long as the other one at first: that one would have been told of by now.
        let beside = client.acquire("beside", "9s").await;
        Events::of(&client, beside.id).await.expect("expiring").await;
        client.release(&beside).send().await.expect(204);
        // On a machine that stood still it may have been renewed too late.
        if is_in_time {
            quiet_until_now(&client, &resource, &mut events).await;
            other.renew(&lock, Some("1s")).send().await.expect(200);
            events.expect("expiring").await;
            return;
        }
    }
}

#[tokio::test]
async fn a_long_poll_hears_of_another_gateway() {
    let two = Two::start().await;
    let client = two.watching.client();
    let lock = client.acquire("job:1", "10m").await;
    let waiting = client.lock_of(&lock).query("wait", "50s").query("since", "leased").send();
    let release = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        two.acting.client().release(&lock).send().await.expect(204);
    };
    let waiting = tokio::time::timeout(Duration::from_secs(50), waiting);
    let (answer, ()) = tokio::join!(waiting, release);
    let lock: Lock = answer.expect("an answer before the wait is over").expect(200).parse();
    assert!(lock.ended.is_some(), "{lock:?}");
}

#[tokio::test]
async fn events_come_although_every_connection_to_postgres_is_ended() {
    let two = Two::start().await;
    let postgres = Postgres::shared().await;
    let other = two.acting.client();
    for round in 0..8 {
        let (lock, mut events) = two.watched(&format!("job:{round}")).await;
        // Before the cause, and right after it, when the next poll is due.
        assert!(postgres.terminate_backends(&two.database).await > 0);
        eventually("the lock is released through the other gateway", async || {
            let answer = other.release(&lock).send().await;
            assert!([204, 503].contains(&answer.status.as_u16()), "{}", answer.text());
            (answer.status == 204).then_some(())
        })
        .await;
        postgres.terminate_backends(&two.database).await;
        events.expect("released").await;
    }
}

#[tokio::test]
async fn a_stream_outlives_an_outage_of_postgres() {
    let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.env("FENCEGATE_REQUEST_TIMEOUT", "1s").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let mut events = Events::of(&client, lock.id).await;
    postgres.pause();
    let path = format!("/locks/{}/events", lock.id);
    client.get(path).send().await.refused(503, "ledger-unavailable");
    eventually("the gateway knows of the outage", async || {
        (client.get("/readyz").send().await.status == 503).then_some(())
    })
    .await;
    postgres.resume();
    // An outage is no event: nothing came before the next one.
    eventually("the lock is released", async || {
        (client.release(&lock).send().await.status == 204).then_some(())
    })
    .await;
    events.expect("released").await;
}
