//! The gateway's memory under load.

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use fence_tests::raw::RawConnection;
use fence_tests::survey;
use futures::future::join_all;

use crate::setup::{SetUp, on_both};

on_both!(memory_stays_small_under_64_busy_connections);

const CONNECTIONS: usize = 64;
const RESOURCES: usize = 16;
const MIB: u64 = 1 << 20;
const LIMIT: u64 = 200 * MIB;

/// Puts 1 KiB again and again over one connection.
async fn put(gateway: &Gateway, number: usize, lock: &Lock, writes: usize) {
    let mut connection = RawConnection::open(gateway.address()).await;
    for write in 0..writes {
        let put = format!(
            "PUT /resources/{}/objects/c{number}-{} HTTP/1.1\r\nHost: localhost\r\n\
             X-Fence-Token: {}\r\nContent-Length: 1024\r\n\r\n{}",
            lock.resources[0],
            write % 100,
            lock.token,
            "x".repeat(1024)
        );
        connection.send(put.as_bytes()).await;
        let answer = connection.answer().await.expect("an answer");
        assert!([200, 201].contains(&answer.status), "{}", answer.text());
    }
}

async fn memory_stays_small_under_64_busy_connections(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let locks = (0..RESOURCES).map(|n| {
        let client = client.clone();
        async move { client.acquire(&format!("r{n}"), "1h").await }
    });
    let locks = join_all(locks).await;
    let writes = survey::size(40, 1_500);
    let load = (0..CONNECTIONS).map(|n| put(&gateway, n, &locks[n % RESOURCES], writes));
    let mut load = std::pin::pin!(join_all(load));
    let mut highest = 0;
    while tokio::time::timeout(Duration::from_millis(50), &mut load).await.is_err() {
        highest = highest.max(gateway.rss_bytes());
    }
    let highest = highest.max(gateway.rss_bytes());
    eprintln!("{setup:?}: {} writes, at most {} MiB", writes * CONNECTIONS, highest / MIB);
    assert!(highest < LIMIT, "{} MiB", highest / MIB);
}
