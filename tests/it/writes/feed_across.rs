//! The feed of committed writes under load, through two gateways, one of which is killed: every
//! committed write exactly once, in version order per resource, none skipped.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::wire::{EventList, WriteEvent};
use fence_tests::client::Client;
use fence_tests::conformance::pause;
use fence_tests::feed::Feed;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;
use sqlx::PgConnection;

use crate::setup::SetUp;

const WRITERS: usize = 8;
const RESOURCES: usize = 5;

/// The state of the writers.
#[derive(Default)]
struct Writing {
    stop: AtomicBool,
    /// Writes that were acknowledged.
    acknowledged: AtomicUsize,
}

impl Writing {
    /// Waits until so many more writes are acknowledged.
    async fn more(&self, count: usize) {
        let wanted = self.acknowledged.load(Ordering::Acquire) + count;
        eventually("more is written", async || {
            (self.acknowledged.load(Ordering::Acquire) >= wanted).then_some(())
        })
        .await;
    }
}

/// Writes through whichever gateway answers, until told to stop. A write whose answer is lost may have
/// taken effect.
async fn write(
    writer: usize,
    clients: [Client; 2],
    tokens: Arc<Vec<String>>,
    writing: Arc<Writing>,
) {
    let mut n = writer;
    while !writing.stop.load(Ordering::Acquire) {
        n += 1;
        let resource = n % RESOURCES;
        let put = clients[n % 2].put(&format!("job:{resource}"), &format!("k{writer}"), "x");
        if let Ok(answer) = put.token(&tokens[resource]).try_send().await
            && answer.status.is_success()
        {
            writing.acknowledged.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Waits until all that has begun in this database has ended: what was under way when a gateway died may still commit.
async fn settled(connection: &mut PgConnection) {
    let now: String =
        sqlx::query_scalar("SELECT now()::text").fetch_one(&mut *connection).await.unwrap();
    eventually("what was under way has ended", async || {
        let under_way = "SELECT count(*) FROM pg_stat_activity
                         WHERE datname = current_database() AND xact_start < $1::timestamptz";
        let under_way =
            sqlx::query_scalar::<_, i64>(under_way).bind(&now).fetch_one(&mut *connection);
        (under_way.await.unwrap() == 0).then_some(())
    })
    .await;
}

/// How a reader reads, and through which gateway it begins.
#[derive(Clone, Copy)]
enum By {
    Stream(usize),
    Poll(usize),
}

/// Reads until the feed has this many events; from the other gateway whenever one does not answer.
async fn read(by: By, clients: [Client; 2], total: Arc<AtomicUsize>) -> Vec<WriteEvent> {
    let mut events: Vec<WriteEvent> = Vec::new();
    let (By::Stream(mut gateway) | By::Poll(mut gateway)) = by;
    while events.len() < total.load(Ordering::Acquire) {
        let after = events.last().map_or("g0-0".to_owned(), |event| event.event.clone());
        let call = clients[gateway].get("/events");
        match by {
            By::Stream(_) => {
                let call = call.header("last-event-id", &after);
                if let Some(mut feed) = Feed::try_open(call).await {
                    let left = || total.load(Ordering::Acquire);
                    while events.len() < left() {
                        match tokio::time::timeout(Duration::from_secs(2), feed.next()).await {
                            Ok(Some(event)) => events.push(event),
                            // Lost; or silent, so that how many there are is looked at again.
                            Ok(None) => break,
                            Err(_) => {}
                        }
                    }
                }
            }
            By::Poll(_) => {
                let call = call.query("after", &after).query("wait", "1s").query("limit", "50");
                if let Ok(answer) = call.try_send().await {
                    events.extend(answer.expect(200).parse::<EventList>().items);
                    continue;
                }
            }
        }
        gateway = 1 - gateway;
        pause(20).await;
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_readers_see_what_eight_writers_did_through_two_gateways_one_of_which_dies() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), fence_tests::etcd::Etcd::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let (one, mut other) = tokio::join!(settings.clone().start(), settings.clone().start());
    let clients = [one.client(), other.client()];
    let locks = join_all(
        (0..RESOURCES).map(async |n| clients[0].acquire(&format!("job:{n}"), "10m").await),
    );
    let tokens: Arc<Vec<_>> =
        Arc::new(locks.await.iter().map(|lock| lock.token.to_string()).collect());
    let writing = Arc::new(Writing::default());
    let total = Arc::new(AtomicUsize::new(usize::MAX));
    let readers = [By::Stream(0), By::Stream(1), By::Poll(1)]
        .map(|by| tokio::spawn(read(by, clients.clone(), Arc::clone(&total))));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(write(n, clients.clone(), Arc::clone(&tokens), Arc::clone(&writing))))
        .collect();
    writing.more(100).await;
    other.kill9();
    writing.more(50).await;
    other.restart().await;
    writing.more(100).await;
    writing.stop.store(true, Ordering::Release);
    for writer in writers {
        writer.await.unwrap();
    }
    let mut connection = postgres.connect(database_in(&url)).await;
    settled(&mut connection).await;
    let truth: Vec<(String, i64, String)> = sqlx::query_as(
        "SELECT resource, version, id::text FROM fencegate.operations
         WHERE version IS NOT NULL ORDER BY resource, version",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    total.store(truth.len(), Ordering::Release);
    let mut orders = Vec::new();
    for reader in readers {
        let events = reader.await.unwrap();
        let mut last = BTreeMap::new();
        for event in &events {
            let before = last.insert(event.resource.clone(), event.version).unwrap_or(0);
            assert_eq!(event.version, before + 1, "{event:?}");
        }
        let once: HashSet<_> = events.iter().map(|event| event.operation).collect();
        assert_eq!(once.len(), events.len(), "an event came twice");
        let mut seen: Vec<_> = events
            .iter()
            .map(|event| (event.resource.clone(), event.version, event.operation.to_string()))
            .collect();
        seen.sort();
        assert_eq!(seen, truth);
        orders.push(events.into_iter().map(|event| event.event).collect::<Vec<_>>());
    }
    assert!(orders.iter().all(|order| *order == orders[0]), "readers disagree");
    drop(one);
}

#[tokio::test]
async fn a_write_through_one_gateway_is_an_event_at_the_other() {
    let settings = SetUp::Clustered.settings().await;
    let (one, other) = tokio::join!(settings.clone().start(), settings.clone().start());
    let (here, there) = (one.client(), other.client());
    let lock = here.acquire("job:1", "10m").await;
    let mut feed = Feed::open(there.get("/events")).await;
    for version in 1..=5 {
        let put = here.put("job:1", &format!("k{version}"), "x").under(&lock);
        put.send().await.expect(201);
        assert_eq!(feed.next().await.unwrap().version, version);
        // A call that begins after the write sees it at once, whichever gateway took it.
        let after = format!("g0-{}", version - 1);
        let list = there.get("/events").query("after", &after).send().await;
        assert_eq!(list.expect(200).parse::<EventList>().items.len(), 1);
    }
}
