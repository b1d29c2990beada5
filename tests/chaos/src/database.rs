//! The Postgres of a run: a primary with a standby, which the run itself stops, kills and promotes, or a cluster of
//! Patroni, of which it asks that.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fence_tests::chaos::ChaosProxy;
use fence_tests::disk::Disk;
use fence_tests::etcd::Etcd;
use fence_tests::postgres::Postgres;
use fence_tests::slow_disk::SlowDisk;
use sqlx::{Connection as _, PgConnection};
use tokio::task::AbortHandle;

use crate::clock::WallClock;
use crate::faults::Fault;
use crate::patroni::{Cluster, Primary, install};

/// The size of a disk under Postgres.
const DISK_MIB: u64 = 1024;
/// How many nodes Patroni runs.
const NODES: usize = 3;
/// How often it is asked which of them is the primary.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// How long the cluster is left alone before the primary goes: until then nobody knows how far the ledger was when
/// it was last re-fenced or adopted, so that nothing is provable.
const PROVABLE_AFTER: Duration = Duration::from_secs(4);
/// The database of the ledger in a cluster.
const LEDGER: &str = "ledger";

/// The Postgres under the ledger.
pub enum Database {
    /// A primary and its asynchronous standby.
    Pair(Box<Pair>),
    /// A cluster.
    Patroni(Box<Managed>),
}

/// A primary and its standby.
pub struct Pair {
    /// The primary.
    pub primary: Postgres,
    /// Its standby.
    pub standby: Postgres,
    /// From the standby to the primary.
    pub replication: ChaosProxy,
    /// The name of the database of the ledger.
    pub ledger: String,
}

/// A cluster that Patroni runs, and an address that leads to its primary.
pub struct Managed {
    cluster: Cluster,
    front: Arc<ChaosProxy>,
    follower: AbortHandle,
    /// The node that was killed.
    killed: Option<Primary>,
    _etcd: Etcd,
}

impl Database {
    /// Starts a primary and its standby, with an empty database, on disks whose syncs can be slowed down, and with this
    /// wall clock.
    pub async fn pair(syncs: &SlowDisk, clock: Option<&WallClock>) -> Self {
        let mut env = syncs.env().to_vec();
        if let Some(clock) = clock {
            let loaded = env.iter().position(|(name, _)| *name == "LD_PRELOAD");
            let loaded = loaded.map(|at| env.swap_remove(at).1);
            env.extend(clock.env(loaded.as_deref()));
        }
        let primary = Postgres::on_with(new_disk().await, env).await;
        let ledger = primary.database_name().await;
        let replication = ChaosProxy::start(primary.port()).await;
        let standby = primary.standby_through(replication.port(), new_disk().await).await;
        Self::Pair(Box::new(Pair { primary, standby, replication, ledger }))
    }

    /// Starts a cluster that is installed below `tools`, with an empty database, on disks whose syncs can be slowed
    /// down. It has an etcd of its own.
    ///
    /// # Errors
    /// It cannot be installed, or does not come up.
    pub async fn patroni(tools: &Path, syncs: &SlowDisk) -> Result<Self> {
        let program = install(tools)?;
        let etcd = Etcd::dedicated().await;
        let cluster = Cluster::start(program, NODES, &etcd.endpoint(), &syncs.env()).await?;
        let primary = cluster.settled(cluster.size()).await?;
        primary.create(LEDGER).await?;
        let front = Arc::new(ChaosProxy::start(primary.port).await);
        let (asked, leads) = (cluster.asked(), Arc::clone(&front));
        let follower = tokio::spawn(async move {
            let mut now = primary.port;
            loop {
                tokio::time::sleep(ASKED_EVERY).await;
                if let Some(found) = asked.primary().await
                    && found.port != now
                {
                    leads.retarget(found.port);
                    now = found.port;
                }
            }
        });
        let follower = follower.abort_handle();
        let managed = Managed { cluster, front, follower, killed: None, _etcd: etcd };
        Ok(Self::Patroni(Box::new(managed)))
    }

    /// The port of the primary, whichever that is.
    pub fn port(&self) -> u16 {
        match self {
            Self::Pair(pair) => pair.primary.port(),
            Self::Patroni(managed) => managed.front.port(),
        }
    }

    /// The name of the database of the ledger.
    pub fn ledger(&self) -> &str {
        match self {
            Self::Pair(pair) => &pair.ledger,
            Self::Patroni(_) => LEDGER,
        }
    }

    /// The URL of the ledger through this port.
    pub fn url_through(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}", self.ledger())
    }

    /// A connection to the ledger.
    ///
    /// # Errors
    /// There is no primary.
    pub async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.url_through(self.port())).await.context("the ledger")
    }

    /// The pair, to which only those faults are done that happen to one.
    pub fn as_pair(&mut self) -> Result<&mut Pair> {
        match self {
            Self::Pair(pair) => Ok(pair),
            Self::Patroni(_) => bail!("that is not done to a cluster of Patroni"),
        }
    }

    /// The cluster, likewise.
    pub fn as_managed(&mut self) -> Result<&mut Managed> {
        match self {
            Self::Patroni(managed) => Ok(managed),
            Self::Pair(_) => bail!("that is only done to a cluster of Patroni"),
        }
    }

    /// Has gateways reach the primary through this proxy.
    pub async fn proxy(&self) -> ChaosProxy {
        ChaosProxy::start(self.port()).await
    }

    /// Keeps what the servers have logged, where it is kept by nobody else.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_logs(&self, into: &Path) -> Result<()> {
        match self {
            Self::Pair(_) => Ok(()),
            Self::Patroni(managed) => managed.cluster.keep_logs(into),
        }
    }
}

impl Managed {
    /// Has the primary handed over, restarted or killed, once the cluster is whole.
    ///
    /// # Errors
    /// The cluster does not settle, or Patroni refuses.
    pub async fn strike(&mut self, fault: Fault) -> Result<()> {
        let primary = self.cluster.settled(self.cluster.size()).await?;
        tokio::time::sleep(PROVABLE_AFTER).await;
        match fault {
            Fault::PatroniSwitchover => self.cluster.switch_over(primary).await,
            Fault::PatroniRestart => self.cluster.restart(primary).await,
            _ => {
                self.cluster.kill9(primary);
                self.killed = Some(primary);
                Ok(())
            }
        }
    }

    /// Waits until there is a primary again, starts the node that was killed, and waits until the primary commits: before
    /// that nobody could store anything.
    ///
    /// # Errors
    /// Not in time.
    pub async fn mend(&mut self) -> Result<()> {
        self.cluster.led().await?;
        self.killed.take().map_or(Ok(()), |node| self.cluster.revive(node))?;
        self.cluster.commits().await.map(drop)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// A disk for a Postgres, where one can be had.
pub async fn new_disk() -> Option<Disk> {
    if Disk::is_available() { Some(Disk::new(DISK_MIB).await) } else { None }
}
