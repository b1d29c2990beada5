//! The servers of a comparison, and who asks them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::process::loopback;
use fence_tests::redis::Redis;
use fence_tests::stores::{Kind, Store};

use crate::http::{Connection, request};
use crate::load::Caller;

/// Everything that is compared, started once.
pub struct Servers {
    /// The ledger, and what pgbench writes to.
    pub postgres: Postgres,
    /// The mint, and whose locks are compared.
    pub etcd: Etcd,
    /// Which syncs each write.
    pub redis: Redis,
    /// The S3 server.
    pub store: Store,
    /// A gateway on etcd, Postgres and the S3 server.
    pub clustered: Gateway,
    /// A gateway on the embedded default.
    pub embedded: Gateway,
    /// An HTTP server that answers and does nothing: as fast as it can be here.
    pub empty: SocketAddr,
    /// The database of pgbench.
    pub database: String,
}

impl Servers {
    /// Starts them.
    ///
    /// # Errors
    /// Whatever does not start.
    pub async fn start() -> Result<Self> {
        let (postgres, etcd, redis) =
            tokio::join!(Postgres::dedicated(), Etcd::dedicated(), Redis::durable());
        let store = Store::start(Kind::S3).await;
        let ledger = postgres.database().await;
        let mut settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()))
            .flag("--blobs", &store.url());
        for (name, value) in store.env(None) {
            settings = settings.env(name, &value);
        }
        let (clustered, embedded) =
            tokio::join!(settings.start(), quiet(Gateway::embedded()).start());
        let database = postgres.database_name().await;
        let listener = tokio::net::TcpListener::bind(loopback(0)).await?;
        let empty = listener.local_addr()?;
        let router = axum::Router::new().fallback(async || "");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { postgres, etcd, redis, store, clustered, embedded, empty, database })
    }
}

fn quiet(settings: Settings) -> Settings {
    settings.flag("--log", "warn").env("FENCEGATE_CONNECTIONS_MAX", "20000")
}

/// Takes locks on these resources for long.
///
/// # Errors
/// A lock that is not granted.
pub async fn lock_all(gateway: &Gateway, resources: &[String]) -> Result<Vec<Lock>> {
    let client = gateway.client();
    let mut locks = Vec::new();
    for resource in resources {
        locks.push(client.acquire(resource, "24h").await);
    }
    Ok(locks)
}

/// Sends one and the same request again and again.
pub struct Same {
    connection: Connection,
    request: Arc<[u8]>,
    /// The status that it must be answered with.
    wanted: std::ops::Range<u16>,
}

impl Same {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(
        address: SocketAddr,
        request: Arc<[u8]>,
        wanted: std::ops::Range<u16>,
    ) -> Result<Self> {
        Ok(Self { connection: Connection::open(address).await?, request, wanted })
    }
}

impl Caller for Same {
    async fn call(&mut self) -> Result<()> {
        let answer = self.connection.ask(&self.request).await?;
        let text = || String::from_utf8_lossy(answer.body).into_owned();
        ensure!(self.wanted.contains(&answer.status), "{}: {}", answer.status, text());
        Ok(())
    }
}

/// A fenced put of these bytes under a lock.
pub fn put(lock: &Lock, body: &[u8]) -> Arc<[u8]> {
    let (token, id) = (lock.token.to_string(), lock.id.to_string());
    let path = object_path(lock.resources[0].as_str(), "k");
    let headers = [
        ("x-fence-token", token.as_str()),
        ("x-lock-id", id.as_str()),
        ("content-type", "application/octet-stream"),
    ];
    request("PUT", &path, &headers, body).into()
}

/// Acquires a lock of its own and releases it.
pub struct Locker {
    connection: Connection,
    acquire: Vec<u8>,
}

impl Locker {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(address: SocketAddr, resource: &str) -> Result<Self> {
        let body = format!(r#"{{"resource":"{resource}","ttl":"30s","owner":"bench"}}"#);
        let headers = [("content-type", "application/json")];
        let acquire = request("POST", "/locks", &headers, body.as_bytes());
        Ok(Self { connection: Connection::open(address).await?, acquire })
    }
}

impl Caller for Locker {
    async fn call(&mut self) -> Result<()> {
        let answer = self.connection.ask(&self.acquire).await?;
        ensure!(answer.status == 201, "{}: {:?}", answer.status, answer.body.escape_ascii());
        let lock: Lock = serde_json::from_slice(answer.body).context("a lock")?;
        let release = request("DELETE", &format!("/locks/{}", lock.id), &[], b"");
        let answer = self.connection.ask(&release).await?;
        ensure!(answer.status == 204, "{}: {:?}", answer.status, answer.body.escape_ascii());
        Ok(())
    }
}

/// The bytes of a body: not all the same.
pub fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"0123456789abcdef"[(at * 7 + at / 16) % 16]).collect()
}

/// How long a part of a measurement takes before it counts.
pub fn warm_up(lasts: Duration) -> Duration {
    lasts.mul_f64(0.25)
}
