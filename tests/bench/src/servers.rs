//! The servers of a comparison.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::loopback;
use fence_tests::redis::Redis;
use fence_tests::stores::{Kind, Store, on_store};

use crate::needs::Need;
use crate::paths::Path;
use crate::version::Version;

/// The servers that some paths need, started once.
pub struct Servers {
    clustered: Option<Clustered>,
    embedded: Option<Gateway>,
    redis: Option<Redis>,
    store: Option<Store>,
    /// An HTTP server that answers and does nothing: as fast as it can be here.
    pub empty: SocketAddr,
}

/// A gateway on etcd and Postgres, and on the S3 server if one was started.
pub struct Clustered {
    /// The gateway.
    pub gateway: Gateway,
    /// The ledger, and what pgbench writes to.
    pub postgres: Postgres,
    /// The mint, and whose locks are compared.
    pub etcd: Etcd,
    /// The database of the gateway, and of pgbench.
    pub database: String,
    /// The version of the gateway.
    pub version: Version,
}

impl Servers {
    /// Starts what these paths need; the rivals as well, if they are measured.
    ///
    /// # Errors
    /// Whatever does not start.
    pub async fn start(version: &Version, paths: &[Path], with_rivals: bool) -> Result<Self> {
        let is_needed = |need| paths.iter().any(|path| path.needs().contains(&need));
        let is_beside = |need| paths.iter().any(|path| path.needs_of_rival().contains(&need));
        let store = if is_needed(Need::S3) { Some(Store::start(Kind::S3).await) } else { None };
        let clustered = match is_needed(Need::Postgres) {
            true => Some(Clustered::start(version, store.as_ref()).await?),
            false => None,
        };
        let embedded = match paths.contains(&Path::PutEmbedded) {
            true => Some(of_version(Gateway::embedded(), version).start().await),
            false => None,
        };
        let redis = match with_rivals && is_beside(Need::Redis) {
            true => Some(Redis::durable().await),
            false => None,
        };
        let listener = tokio::net::TcpListener::bind(loopback(0)).await?;
        let empty = listener.local_addr()?;
        let router = axum::Router::new().fallback(async || "");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { clustered, embedded, redis, store, empty })
    }

    /// The gateway on etcd and Postgres, with both.
    ///
    /// # Errors
    /// No path needed it.
    pub fn clustered(&self) -> Result<&Clustered> {
        self.clustered.as_ref().context("no gateway on etcd and Postgres was started")
    }

    /// The gateway on the embedded default.
    ///
    /// # Errors
    /// No path needed it.
    pub fn embedded(&self) -> Result<&Gateway> {
        self.embedded.as_ref().context("no gateway on the embedded default was started")
    }

    /// Redis, which syncs each write.
    ///
    /// # Errors
    /// No path needed it.
    pub fn redis(&self) -> Result<&Redis> {
        self.redis.as_ref().context("no Redis was started")
    }

    /// The S3 server.
    ///
    /// # Errors
    /// No path needed it.
    pub fn store(&self) -> Result<&Store> {
        self.store.as_ref().context("no S3 server was started")
    }

    /// Fills the ledger of the embedded gateway with so many resources, if that gateway was started.
    ///
    /// # Errors
    /// Whatever the filler says.
    pub async fn fill_embedded(&mut self, version: &Version, resources: u64) -> Result<()> {
        let Some(gateway) = &mut self.embedded else { return Ok(()) };
        gateway.term();
        gateway.wait_for_exit().await;
        version.fill_embedded(&gateway.data_dir().join("ledger.sqlite"), resources).await?;
        gateway.restart().await;
        Ok(())
    }

    /// The processes of the servers behind the gateway on etcd and Postgres, with it.
    ///
    /// # Errors
    /// No path needed it.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let Clustered { gateway, postgres, etcd, .. } = self.clustered()?;
        let mut pids = vec![gateway.pid(), postgres.pid(), etcd.pid()];
        pids.extend(self.store.as_ref().map(Store::pid));
        Ok(pids)
    }

    /// The gateways that run.
    pub fn gateways(&self) -> impl Iterator<Item = &Gateway> {
        let clustered = self.clustered.as_ref().map(|clustered| &clustered.gateway);
        clustered.into_iter().chain(&self.embedded)
    }
}

impl Clustered {
    async fn start(version: &Version, store: Option<&Store>) -> Result<Self> {
        let (postgres, etcd) = tokio::join!(postgres(), Etcd::dedicated());
        let database = version.ledger(&postgres, &etcd.endpoint()).await?;
        let (ledger, prefix) = (postgres.url(&database), etcd.prefix());
        let settings = of_version(Gateway::clustered(&ledger, &etcd.endpoint(), &prefix), version);
        let settings = match store {
            Some(store) => on_store(settings, store),
            None => settings,
        };
        let gateway = settings.start().await;
        Ok(Self { gateway, postgres, etcd, database, version: version.clone() })
    }

    /// Makes another ledger; returns the name of its database, and the settings of a gateway on it.
    ///
    /// # Errors
    /// The gateway does not make it.
    pub async fn another(&self) -> Result<(String, Settings)> {
        let endpoint = self.etcd.endpoint();
        let database = self.version.ledger(&self.postgres, &endpoint).await?;
        let ledger = self.postgres.url(&database);
        let settings = Gateway::clustered(&ledger, &endpoint, &self.etcd.prefix());
        Ok((database, of_version(settings, &self.version)))
    }
}

fn of_version(settings: Settings, version: &Version) -> Settings {
    quiet(settings).binary(version.gateway.clone())
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
