//! What tests of large payloads share: gateways on a blob store, bodies that can be told apart, and
//! streams of any length.

use bytes::Bytes;
use fence_core::wire::Lock;
use fence_tests::chaos::ChaosProxy;
use fence_tests::client::{Answer, Client, object_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::process::loopback;
pub use fence_tests::stores::on_store;
use fence_tests::stores::{Kind, Store};
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

/// Makes a gateway give its uploads up early, and delete at once what nobody needs.
pub fn impatient(settings: Settings) -> Settings {
    settings
        .env("FENCEGATE_SWEEP_INTERVAL", "100ms")
        .env("FENCEGATE_UPLOAD_TIMEOUT", "10s")
        .env("FENCEGATE_UPLOADS_KEPT", "11s")
        .env("FENCEGATE_READER_GRACE", "0s")
        .env("FENCEGATE_ROLLBACK_HORIZON", "0s")
        .env("FENCEGATE_REDELETE_AFTER", "0s")
}

/// A ledger and a store for two gateways, one of which can be cut off from both.
pub struct Apart {
    postgres: &'static Postgres,
    database: String,
    /// Between the ledger and the gateway that can be cut off.
    pub to_postgres: ChaosProxy,
    /// Between the store and that, unless the store is a folder.
    pub to_store: Option<ChaosProxy>,
    _store: Store,
}

impl Apart {
    /// Starts them. Returns the settings of the gateway that can be cut off, and of the other one.
    pub async fn new(kind: Kind) -> (Self, [Settings; 2]) {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let store = Store::start(kind).await;
        let database = postgres.database_name().await;
        let to_postgres = ChaosProxy::start(postgres.port()).await;
        let to_store = match store.address() {
            Some(address) => Some(ChaosProxy::start(address.port()).await),
            None => None,
        };
        let (endpoint, prefix) = (etcd.endpoint(), etcd.prefix());
        let url = postgres.url_through(to_postgres.port(), &database);
        let mut cut_off = Gateway::clustered(&url, &endpoint, &prefix)
            .flag("--blobs", &store.url())
            .env("FENCEGATE_REQUEST_TIMEOUT", "30s")
            .env("FENCEGATE_BODY_IDLE_TIMEOUT", "30s");
        for (name, value) in store.env(to_store.as_ref().map(|proxy| loopback(proxy.port()))) {
            cut_off = cut_off.env(name, &value);
        }
        let other = Gateway::clustered(&postgres.url(&database), &endpoint, &prefix);
        let other = on_store(other, &store);
        (Self { postgres, database, to_postgres, to_store, _store: store }, [cut_off, other])
    }

    /// A connection to the ledger that is never cut off.
    pub async fn connect(&self) -> PgConnection {
        self.postgres.connect(&self.database).await
    }

    /// How many uploads are under way.
    pub async fn intents(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM fencegate.blob_intents");
        count.fetch_one(&mut self.connect().await).await.expect("counted")
    }
}

/// The bytes of a block, which no other seed and no other place has. Its steps differ in their first bytes alone: tests are
/// not optimized, and most bytes are copied rather than computed.
const BLOCK: usize = 64 << 10;
const STEP: usize = 1 << 10;

fn block(seed: u64, number: u64) -> Bytes {
    let mut block = vec![0; BLOCK];
    let mut state = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    for word in block[..STEP].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_be_bytes());
    }
    for start in (STEP..BLOCK).step_by(STEP) {
        block.copy_within(..STEP, start);
        block[start..start + 8].copy_from_slice(&(start as u64 ^ state).to_be_bytes());
    }
    block[..8].copy_from_slice(&seed.to_be_bytes());
    block.into()
}

/// A body of this length.
pub fn body(seed: u64, length: usize) -> Bytes {
    let mut whole = Vec::with_capacity(length.next_multiple_of(BLOCK));
    for number in 0..length.div_ceil(BLOCK) as u64 {
        whole.extend_from_slice(&block(seed, number));
    }
    whole.truncate(length);
    whole.into()
}

/// A body of this length that is never in memory as a whole.
pub fn streamed(seed: u64, length: usize) -> reqwest::Body {
    let last = length.div_ceil(BLOCK) as u64;
    let blocks = (0..last).map(move |number| {
        let block = block(seed, number);
        let left = length - usize::try_from(number).expect("a block number") * BLOCK;
        Ok::<_, std::io::Error>(block.slice(..left.min(BLOCK)))
    });
    reqwest::Body::wrap_stream(futures::stream::iter(blocks))
}

/// The SHA-256 of a body.
pub fn sha256(seed: u64, length: usize) -> String {
    let mut digest = Sha256::new();
    let mut left = length;
    for number in 0..length.div_ceil(BLOCK) as u64 {
        let block = block(seed, number);
        digest.update(&block[..left.min(BLOCK)]);
        left = left.saturating_sub(BLOCK);
    }
    hex(&digest.finalize())
}

/// The seed of a body; panics unless it is whole and as it was made.
#[track_caller]
pub fn seed_of(bytes: &[u8]) -> u64 {
    let seed = u64::from_be_bytes(bytes[..8].try_into().expect("a body has 8 bytes"));
    let same = (0..)
        .zip(bytes.chunks(BLOCK))
        .all(|(number, part)| part == &block(seed, number)[..part.len()]);
    assert!(same, "{} bytes of seed {seed} are not as they were made", bytes.len());
    seed
}

/// The length and SHA-256 of an answer that is read as it comes.
pub async fn digest_of(answer: reqwest::Response) -> (usize, String) {
    let mut digest = Sha256::new();
    let mut length = 0;
    let mut stream = answer.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.expect("the answer is whole");
        length += chunk.len();
        digest.update(&chunk);
    }
    (length, hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts an object whose body has this seed and length; it must succeed.
pub async fn put(client: &Client, lock: &Lock, key: &str, seed: u64, length: usize) -> Answer {
    let put = client.put(lock.resources[0].as_str(), key, body(seed, length)).under(lock);
    let answer = put.send().await;
    assert!(answer.status.is_success(), "{}", answer.text());
    answer
}

/// The head of a put whose body is still to be sent.
pub fn head(resource: &str, key: &str, lock: &Lock, length: usize, more: &str) -> Vec<u8> {
    format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\nX-Lock-Id: {}\r\n{more}\
         Content-Length: {length}\r\n\r\n",
        object_path(resource, key),
        lock.token,
        lock.id
    )
    .into_bytes()
}

/// Where a gateway of tests keeps blobs by default.
pub fn default_blobs(gateway: &Gateway) -> std::path::PathBuf {
    gateway.data_dir().join("blobs")
}

/// Blobs of such a gateway, each a file.
pub fn blob_files(gateway: &Gateway) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(default_blobs(gateway).join("blobs")).into_iter().flatten();
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    files.map(|file| file.expect("a file").path()).collect()
}
