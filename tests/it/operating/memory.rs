//! The gateway's memory under load.
#![expect(clippy::disallowed_methods, reason = "a test reads and sleeps on the real clock")]

use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use fence_tests::raw::RawConnection;
use futures::future::join_all;

use crate::setup::{SetUp, on_both};

on_both!(memory_stays_small_under_64_busy_connections);

const CONNECTIONS: usize = 64;
const RESOURCES: usize = 16;
const LOAD: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;
const LIMIT: u64 = 200 * MIB;

/// Puts 1 KiB again and again over one connection; how often.
async fn put_until(gateway: &Gateway, number: usize, lock: &Lock, end: Instant) -> usize {
    let mut connection = RawConnection::open(gateway.address()).await;
    let mut writes = 0;
    while Instant::now() < end {
        let put = format!(
            "PUT /resources/{}/objects/c{number}-{} HTTP/1.1\r\nHost: localhost\r\n\
             X-Fence-Token: {}\r\nContent-Length: 1024\r\n\r\n{}",
            lock.resources[0],
            writes % 100,
            lock.token,
            "x".repeat(1024)
        );
        connection.send(put.as_bytes()).await;
        let answer = connection.answer().await.expect("an answer");
        assert!([200, 201].contains(&answer.status), "{}", answer.text());
        writes += 1;
    }
    writes
}

async fn memory_stays_small_under_64_busy_connections(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let locks = (0..RESOURCES).map(|n| {
        let client = client.clone();
        async move { client.acquire(&format!("r{n}"), "1h").await }
    });
    let locks = join_all(locks).await;
    let end = Instant::now() + LOAD;
    let load = (0..CONNECTIONS).map(|n| put_until(&gateway, n, &locks[n % RESOURCES], end));
    let watch = async {
        let mut highest = 0;
        while Instant::now() < end {
            highest = highest.max(gateway.rss_bytes());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        highest
    };
    let (writes, highest) = tokio::join!(join_all(load), watch);
    let writes: usize = writes.into_iter().sum();
    eprintln!("{setup:?}: {writes} writes in {LOAD:?}, at most {} MiB", highest / MIB);
    assert!(writes > CONNECTIONS, "{writes} writes are no load");
    assert!(highest < LIMIT, "{} MiB", highest / MIB);
}
