//! Servers that answer reads and take nothing new, because they are full or read-only: the gateway says so by itself, with the
//! cause, and goes on once there is room.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fence_core::wire::{Lock, Readiness};
use fence_tests::client::Client;
use fence_tests::disk::{Disk, fill};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::outages::part;
use crate::operating::gauges;

/// The size of a disk that holds a ledger and little more.
const DISK_MIB: u64 = 512;
/// The most that etcd takes in.
const QUOTA_BYTES: u64 = 4 << 20;

/// Bytes that do not become fewer where they are compressed.
fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 60_000];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Waits until `/readyz` says with this parameter that it is not ready, because of this.
async fn not_ready(client: &Client, what: &str, cause: &str) {
    eventually(&format!("no {what} can be made, and that is known"), async || {
        let answer = client.get("/readyz").query(what, "1").send().await;
        let why = part(&answer.parse::<Readiness>(), what).1.unwrap_or_default();
        (answer.status == 503 && why.contains(cause)).then_some(())
    })
    .await;
}

/// Checks what is ready: all else goes on.
async fn ready(client: &Client, writes: bool, grants: bool) {
    client.get("/readyz").send().await.expect(200);
    let page = client.get("/metrics").send().await.expect(200).text();
    let found = ["ledger", "writes", "grants"].map(|part| gauges::ready(&page, part));
    assert_eq!(found, [true, writes, grants], "{page}");
}

async fn granted(client: &Client) -> Lock {
    eventually("locks are granted again", async || {
        let answer = client.lock(&json!({ "resource": "job:2", "ttl": "1m" })).send().await;
        (answer.status == 201).then(|| answer.parse())
    })
    .await
}

async fn written(client: &Client, lock: &Lock) {
    eventually("writes are made again", async || {
        let put = client.put("job:1", "later", noise(0)).under(lock).send().await;
        (put.status.is_success()).then_some(())
    })
    .await;
    for what in ["writes", "grants"] {
        eventually("that is known", async || {
            (client.get("/readyz").query(what, "1").send().await.status == 200).then_some(())
        })
        .await;
    }
}

/// Puts objects until one is refused because of this.
async fn write_until_refused(client: &Client, lock: &Lock, cause: &str) {
    let mut acknowledged = 0;
    eventually("a write is refused with the cause", async || {
        let body = noise(acknowledged);
        let put = client.put("job:1", &format!("k{acknowledged}"), body).under(lock).send().await;
        if put.status.is_success() {
            acknowledged += 1;
            return None;
        }
        (put.code() == "ledger-unavailable" && put.problem().detail.contains(cause)).then_some(())
    })
    .await;
    for number in 0..acknowledged {
        let read = client.read("job:1", &format!("k{number}")).send().await.expect(200);
        assert!(read.body == noise(number), "what was acknowledged is there: {number}");
    }
}

#[tokio::test]
async fn a_full_etcd_stops_grants_alone() {
    let (etcd, postgres) = tokio::join!(Etcd::small(QUOTA_BYTES), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let mut other = etcd.client().await;
    while other.put("other", vec![0; 1 << 20], None).await.is_ok() {}

    // Nobody asks for a lock meanwhile.
    not_ready(&client, "grants", "it is full").await;
    ready(&client, true, false).await;
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    let refused = client.lock(&json!({ "resource": "job:2" })).send().await;
    let refused = refused.refused(503, "mint-unavailable").problem();
    assert!(refused.retryable && refused.detail.contains("it is full"), "{refused:?}");

    let revision = other.get("other", None).await.unwrap().header().unwrap().revision();
    other.compact(revision, None).await.unwrap();
    other.defragment().await.unwrap();
    etcd.disarm();
    let next = granted(&client).await;
    assert!(next.token > lock.token);
    ready(&client, true, true).await;
}

#[tokio::test]
async fn a_full_postgres_stops_writes_and_loses_none() {
    let etcd = Etcd::shared().await;
    let postgres = Postgres::on(Some(Disk::new(DISK_MIB).await)).await;
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let disk = postgres.disk().unwrap();
    disk.fill();

    write_until_refused(&client, &lock, "it is full").await;
    not_ready(&client, "writes", "it is full").await;
    ready(&client, false, false).await;

    disk.free();
    written(&client, &lock).await;
}

#[tokio::test]
async fn a_read_only_postgres_is_known_without_a_write() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let url = postgres.url(&database);
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let set = async |how: &str| {
        let sql = format!("ALTER DATABASE {database} {how}");
        postgres.execute("postgres", &sql).await;
        postgres.terminate_backends(&database).await;
    };
    set("SET default_transaction_read_only = on").await;

    not_ready(&client, "writes", "read-only").await;
    ready(&client, false, false).await;
    write_until_refused(&client, &lock, "read-only").await;

    set("RESET default_transaction_read_only").await;
    written(&client, &lock).await;
}

/// A program that runs the gateway with its data directory on a disk of its own.
fn on_a_small_disk(script: &Path) {
    let gateway = fence_tests::gateway::binary();
    let text = format!(
        "#!/bin/sh\nmkdir -p \"$5\"\nexec unshare --mount sh -ec 'mount -t tmpfs -o size=24m,mode=0700 none \"$5\"\n\
         exec {} \"$@\"' sh \"$@\"\n",
        gateway.display()
    );
    fs::write(script, text).unwrap();
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_full_data_directory_stops_writes_and_loses_none() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("gateway");
    on_a_small_disk(&script);
    let gateway = Gateway::embedded().binary(script).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    // As the gateway sees it.
    let data = gateway.data_dir();
    let seen = format!("/proc/{}/root{}", gateway.pid(), data.display());
    let filler = Path::new(&seen).join("filler");
    fill(&filler);

    write_until_refused(&client, &lock, "it is full").await;
    not_ready(&client, "writes", "it is full").await;
    ready(&client, false, false).await;

    fs::remove_file(filler).unwrap();
    written(&client, &lock).await;
}
