//! The servers of a run, as one would have them: three members of etcd, Postgres with a standby or under Patroni, a
//! store, three gateways, and a proxy on every edge between them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fence_tests::chaos::ChaosProxy;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::mutants::{Edit, mutate};
use fence_tests::process::{free_port, loopback};
use fence_tests::slow_disk::SlowDisk;
use fence_tests::stores::{Kind, Store};
use fence_tests::upstream::Upstream;
use futures::future::join_all;

use crate::book::Book;
use crate::clock::WallClock;
use crate::database::Database;
use crate::ledger::{Held, Object};
use crate::patroni::Failover;
use crate::s3;
use crate::upstream;

/// How many gateways there are.
pub const GATEWAYS: usize = 3;
const MEMBERS: usize = 3;
/// How long replaced blobs are kept for a standby that is behind: longer than one is ever behind here.
pub const ROLLBACK_HORIZON: &str = "20s";
/// What is larger goes to the store.
const INLINE_BYTES_MAX: usize = 4096;

/// A gateway, and the edges from it and to it.
pub struct Node {
    /// Its process.
    pub gateway: Gateway,
    /// Whether it is of the version after this one.
    pub is_newer: bool,
    /// Between clients and it.
    pub front: ChaosProxy,
    /// Between clients and its S3.
    pub s3_front: ChaosProxy,
    /// To Postgres.
    pub postgres: ChaosProxy,
    /// To each member of etcd.
    pub etcd: Vec<ChaosProxy>,
    /// To the store.
    pub store: ChaosProxy,
    /// Its wall clock.
    pub clock: WallClock,
}

/// That Patroni runs Postgres, and how.
pub struct Patroni {
    /// Where it is installed, if it is not there yet.
    pub tools: PathBuf,
    /// What the gateways are told of a failover.
    pub failover: Failover,
}

/// All servers.
pub struct Site {
    /// The members of etcd.
    pub etcd: Vec<Etcd>,
    /// To each member, from the others.
    pub peers: Vec<ChaosProxy>,
    /// Postgres.
    pub database: Database,
    /// How long the disks under it sync.
    pub syncs: SlowDisk,
    /// The S3 server.
    pub store: Store,
    /// The gateways.
    pub nodes: Vec<Node>,
    /// To Postgres, for who looks at the ledger while it is broken; nothing happens to this edge.
    pub ledger: ChaosProxy,
    /// The last snapshot of etcd.
    pub snapshot: PathBuf,
    /// The wall clock of Postgres and its standby, in a run about clocks.
    pub clock: Option<WallClock>,
    _upstream: Upstream,
}

/// What a gateway is started before.
#[derive(Clone, Copy)]
struct Servers<'a> {
    etcd: &'a [Etcd],
    database: &'a Database,
    store: &'a Store,
    upstream: &'a Upstream,
    prefix: &'a str,
    failover: &'static str,
    newer: Option<&'a Path>,
    clocks: bool,
}

/// Has one gateway bind the store to the ledger, by an upload that is refused. The S3 server of the tests looks whether
/// an object is there and then creates it, in two steps: of two gateways that bind at the same time it would believe
/// both, where S3 refuses one.
async fn bind_store(gateway: &Gateway, database: &Database) -> Result<()> {
    let upload = gateway.client().put("nobody", "nothing", vec![0; INLINE_BYTES_MAX + 1]);
    upload.token(1).send().await.expect(403);
    let bound: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM fencegate.blob_store)")
        .fetch_one(&mut database.connect().await?)
        .await?;
    ensure!(bound, "an upload was refused before the store was bound to the ledger");
    Ok(())
}

impl Site {
    /// Starts all of them; with `patroni` on a cluster that it runs. With `newer`, every second gateway runs this
    /// binary. The first does not: it would not start where only newer acts are. With `clocks` Postgres has a wall clock that
    /// can be set, and no upstream has a longest delay, which would be a promise on that clock.
    ///
    /// # Errors
    /// What does not start.
    pub async fn start(
        book: &Book,
        patroni: Option<&Patroni>,
        newer: Option<&Path>,
        clocks: bool,
    ) -> Result<Self> {
        let mut ports = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..MEMBERS {
            let port = free_port();
            let proxy = ChaosProxy::start(port).await;
            ports.push((port, proxy.port()));
            peers.push(proxy);
        }
        let syncs = SlowDisk::new();
        let clock = clocks.then(WallClock::new).transpose()?;
        let database = async {
            match patroni {
                Some(patroni) => Database::patroni(&patroni.tools, &syncs).await,
                None => Ok(Database::pair(&syncs, clock.as_ref()).await),
            }
        };
        let (etcd, database) = tokio::join!(Etcd::cluster_of(&ports), database);
        let database = database?;
        let failover = patroni.map_or(Failover::Lossy, |patroni| patroni.failover).name();
        let store = Store::start(Kind::S3).await;
        let upstream = upstream::start(book).await;
        let prefix = etcd[0].prefix();
        let mut nodes = Vec::new();
        for number in 0..GATEWAYS {
            let servers = Servers {
                etcd: &etcd,
                database: &database,
                store: &store,
                upstream: &upstream,
                prefix: &prefix,
                failover,
                newer: newer.filter(|_| number % 2 == 1),
                clocks,
            };
            nodes.push(Self::node(&servers).await?);
        }
        s3::make_buckets(&nodes[0].gateway).await?;
        bind_store(&nodes[0].gateway, &database).await?;
        let snapshot = etcd[0].snapshot();
        let ledger = database.proxy().await;
        Ok(Self {
            etcd,
            peers,
            database,
            syncs,
            store,
            nodes,
            ledger,
            snapshot,
            clock,
            _upstream: upstream,
        })
    }

    async fn node(servers: &Servers<'_>) -> Result<Node> {
        let Servers { etcd, database, store, upstream, prefix, failover, newer, clocks } = *servers;
        let clock = WallClock::new()?;
        let postgres = database.proxy().await;
        let to_etcd = join_all(etcd.iter().map(|member| ChaosProxy::start(member.port()))).await;
        let address = store.address().context("the store listens")?;
        let to_store = ChaosProxy::start(address.port()).await;
        let endpoints: Vec<_> = to_etcd.iter().map(ChaosProxy::endpoint).collect();
        let url = database.url_through(postgres.port());
        let s3_port = free_port();
        let mut settings = Gateway::clustered(&url, &endpoints.join(","), prefix)
            .flag("--s3-listen", &loopback(s3_port).to_string())
            .flag("--refence", "auto")
            .flag("--failover", failover)
            .flag("--blobs", &store.url())
            .flag("--inline-bytes-max", &INLINE_BYTES_MAX.to_string())
            .flag("--log", "warn")
            .env("FENCEGATE_CONNECTIONS_MAX", "400")
            .env("FENCEGATE_SWEEP_INTERVAL", "100ms")
            .env("FENCEGATE_UPLOAD_TIMEOUT", "2s")
            .env("FENCEGATE_UPLOADS_KEPT", "2500ms")
            .env("FENCEGATE_READER_GRACE", "0s")
            .env("FENCEGATE_REDELETE_AFTER", "0s")
            .env("FENCEGATE_ROLLBACK_HORIZON", ROLLBACK_HORIZON);
        for setting in upstream::settings(upstream, !clocks) {
            settings = settings.flag("--upstream", &setting);
        }
        for (name, value) in store.env(Some(loopback(to_store.port()))) {
            settings = settings.env(name, &value);
        }
        for (name, value) in clock.env(None) {
            settings = settings.env(name, &value);
        }
        if let Some(binary) = newer {
            // It is started in a folder of its own.
            settings = settings.binary(fs::canonicalize(binary).context("the newer gateway")?);
        }
        let gateway = settings.start().await;
        let front = ChaosProxy::start(gateway.address().port()).await;
        let s3_front = ChaosProxy::start(s3_port).await;
        let (is_newer, etcd, store) = (newer.is_some(), to_etcd, to_store);
        Ok(Node { gateway, is_newer, front, s3_front, postgres, etcd, store, clock })
    }

    /// Where clients reach the gateways.
    pub fn fronts(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| loopback(node.front.port())).collect()
    }

    /// Where clients reach their S3.
    pub fn s3_fronts(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| loopback(node.s3_front.port())).collect()
    }

    /// The URL of the ledger, whichever server has it.
    pub fn ledger_url(&self) -> String {
        self.database.url_through(self.ledger.port())
    }

    /// Makes a function of the ledger wrong.
    ///
    /// # Errors
    /// A ledger that cannot be reached.
    pub async fn mutate(&self, edits: &[Edit]) -> Result<()> {
        let mut connection = self.database.connect().await?;
        for edit in edits {
            mutate(&mut connection, *edit).await;
        }
        Ok(())
    }

    /// The objects that are there now.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub async fn objects(&self) -> Result<Vec<Object>> {
        Object::all(&mut self.database.connect().await?).await
    }

    /// What the ledger holds.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub async fn held(&self, wishes: &crate::book::Wishes) -> Result<Held> {
        Held::read(&mut self.database.connect().await?, wishes).await
    }
}
