//! The sweeper beside readers and writers, with little time between replacing a blob and deleting it: no
//! reader gets a wrong blob, or a missing one, however slowly it reads.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads and sleeps on the real clock")]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::stores::{Kind, Store};
use fence_tests::survey;
use futures::StreamExt as _;
use futures::future::join_all;
use rand::RngExt as _;

use crate::blobs::rig::{on_store, put, seed_of};

const GRACE: &str = "2s";
const OBJECTS: usize = 6;
const LENGTHS: [usize; 2] = [300_000, 9 << 20];
/// How long a slow reader takes for a large object, at the least: several times the grace.
const SLOW: Duration = Duration::from_secs(6);
const FAST: Duration = Duration::from_millis(500);

/// An object with one writer, whose seeds rise.
struct Object {
    resource: String,
    lock: Lock,
    /// The seed acknowledged last.
    acknowledged: AtomicU64,
}

/// The reads that have ended, and whether they are enough.
#[derive(Debug, Default)]
struct Reading {
    slow: AtomicUsize,
    fast: AtomicUsize,
    is_over: AtomicBool,
}

impl Reading {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// Puts it again and again.
async fn write(client: &Client, object: &Object, reading: &Reading) {
    let mut seed = 1;
    while reading.goes_on() {
        let length = LENGTHS[usize::try_from(seed % 2).unwrap()];
        put(client, &object.lock, "k", seed, length).await;
        object.acknowledged.store(seed, Ordering::SeqCst);
        seed += 1;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Reads one after the other, with pauses between pieces.
async fn read(client: &Client, objects: &[Object], slowly: bool, reading: &Reading) {
    let pace = if slowly { SLOW } else { FAST };
    while reading.goes_on() {
        let object = &objects[rand::rng().random_range(0..objects.len())];
        let least = object.acknowledged.load(Ordering::SeqCst);
        let answer = client.read(&object.resource, "k").unchecked().open().await.unwrap();
        assert_eq!(answer.status(), 200);
        let length = usize::try_from(answer.content_length().unwrap()).unwrap();
        let mut bytes = Vec::with_capacity(length);
        let mut stream = answer.bytes_stream();
        let began = Instant::now();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.expect("the answer is whole"));
            let due = pace.mul_f64(bytes.len() as f64 / LENGTHS[1] as f64);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
        assert_eq!(bytes.len(), length);
        let seed = seed_of(&bytes);
        assert!(seed >= least, "{} is {seed}, older than {least}", object.resource);
        let count = if slowly { &reading.slow } else { &reading.fast };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

async fn metric(client: &Client, name: &str) -> u64 {
    let page = client.get("/metrics").send().await.expect(200).text();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or(0)
}

fn sweeping(settings: Settings, store: &Store) -> Settings {
    on_store(settings, store)
        .env("FENCEGATE_SWEEP_INTERVAL", "100ms")
        .env("FENCEGATE_READER_GRACE", GRACE)
        .env("FENCEGATE_ROLLBACK_HORIZON", "0s")
        .env("FENCEGATE_REDELETE_AFTER", "0s")
}

async fn readers_get_what_they_asked_for(gateways: &[Gateway]) {
    let clients: Vec<Client> = gateways.iter().map(Gateway::client).collect();
    let mut objects = Vec::new();
    for number in 0..OBJECTS {
        let resource = format!("r{number}");
        let lock = clients[0].acquire(&resource, "24h").await;
        put(&clients[0], &lock, "k", 0, LENGTHS[1]).await;
        objects.push(Object { resource, lock, acknowledged: AtomicU64::new(0) });
    }
    let reading = Reading::default();
    let client = |number: usize| &clients[number % clients.len()];
    let writers =
        objects.iter().enumerate().map(|(number, object)| write(client(number), object, &reading));
    let readers = (0..8).map(|number| read(client(number), &objects, number < 4, &reading));
    let all = async |name: &str| -> u64 {
        join_all(clients.iter().map(|client| metric(client, name))).await.into_iter().sum()
    };
    let enough = async {
        let (slow, others) = (survey::size(8, 32), survey::size(20, 200));
        while reading.slow.load(Ordering::SeqCst) < slow
            || reading.fast.load(Ordering::SeqCst) < others
            || all("fencegate_blob_deletions_total").await < others as u64
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        reading.is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(join_all(writers), join_all(readers), enough);
    println!("{reading:?}");
    assert_eq!(all("fencegate_blobs_missing_total").await, 0);
}

#[tokio::test]
async fn readers_of_a_folder_get_what_they_asked_for() {
    let store = Store::start(Kind::Folder).await;
    let gateway = sweeping(Gateway::embedded(), &store).start().await;
    readers_get_what_they_asked_for(&[gateway]).await;
}

#[tokio::test]
async fn readers_of_s3_get_what_they_asked_for_at_two_gateways() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let store = Store::start(Kind::S3).await;
    let (database, prefix) = (postgres.database().await, etcd.prefix());
    let settings = || sweeping(Gateway::clustered(&database, &etcd.endpoint(), &prefix), &store);
    let gateways = [settings().start().await, settings().start().await];
    readers_get_what_they_asked_for(&gateways).await;
}
