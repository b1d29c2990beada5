//! The servers of a comparison.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::loopback;
use fence_tests::redis::Redis;
use fence_tests::stores::{Kind, Store, on_store};

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
    /// The binary of the gateways, if it is not the one that was built beside this program.
    binary: Option<PathBuf>,
}

impl Servers {
    /// Starts them.
    ///
    /// # Errors
    /// Whatever does not start.
    pub async fn start(binary: Option<PathBuf>) -> Result<Self> {
        let (postgres, etcd, redis) = tokio::join!(postgres(), Etcd::dedicated(), Redis::durable());
        let store = Store::start(Kind::S3).await;
        let ledger = postgres.database().await;
        let of = |settings| of_binary(quiet(settings), binary.as_ref());
        let settings = of(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
        let settings = on_store(settings, &store);
        let (clustered, embedded) = tokio::join!(settings.start(), of(Gateway::embedded()).start());
        let database = postgres.database_name().await;
        let listener = tokio::net::TcpListener::bind(loopback(0)).await?;
        let empty = listener.local_addr()?;
        let router = axum::Router::new().fallback(async || "");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { postgres, etcd, redis, store, clustered, embedded, empty, database, binary })
    }

    /// The settings of another gateway on these servers, with this ledger.
    pub fn another(&self, ledger: &str) -> Settings {
        let (endpoint, prefix) = (self.etcd.endpoint(), self.etcd.prefix());
        of_binary(quiet(Gateway::clustered(ledger, &endpoint, &prefix)), self.binary.as_ref())
    }
}

fn of_binary(settings: Settings, binary: Option<&PathBuf>) -> Settings {
    match binary {
        Some(binary) => settings.binary(binary.clone()),
        None => settings,
    }
}

/// A server that keeps in memory what is asked for, as its manual advises; all else is as it comes.
async fn postgres() -> Postgres {
    let postgres = Postgres::dedicated().await;
    postgres.execute("postgres", "ALTER SYSTEM SET shared_buffers = '1GB'").await;
    postgres.stop(Stop::Fast).await;
    postgres.start().await;
    postgres
}

/// Settings of a gateway that is measured: less of a log, and room for all who call and wait.
pub fn quiet(settings: Settings) -> Settings {
    logging(settings, "warn")
}

/// The same with another filter of the log.
pub fn logging(settings: Settings, log: &str) -> Settings {
    settings
        .flag("--log", log)
        .env("FENCEGATE_CONNECTIONS_MAX", "100000")
        .env("FENCEGATE_WAITERS_MAX", "100000")
}

/// The bytes of a body: not all the same.
pub fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"0123456789abcdef"[(at * 7 + at / 16) % 16]).collect()
}

/// How long a part of a measurement takes before it counts.
pub fn warm_up(lasts: Duration) -> Duration {
    lasts.mul_f64(0.25)
}
