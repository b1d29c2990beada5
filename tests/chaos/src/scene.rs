//! The scene: the servers and their clients, what is done to them, and how it is made good again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fence_tests::chaos::{ChaosProxy, Direction};
use fence_tests::postgres::Postgres;
use fence_tests::process::signal;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::Mutex;

use crate::book::Book;
use crate::client::Client;
use crate::clock::{self, READ_AGAIN};
use crate::crew::{Callers, PROCESSES};
use crate::crowd::Crowd;
use crate::database::{Database, new_disk};
use crate::faults::{Fault, Part};
use crate::line::moment;
use crate::rules::Doors;
use crate::site::{GATEWAYS, ROLLBACK_HORIZON, Site};

/// An edge between two servers.
#[derive(Debug, Clone, Copy)]
enum Edge {
    ClientGateway(usize),
    GatewayPostgres(usize),
    GatewayEtcd(usize),
    GatewayStore(usize),
    EtcdPeers(usize),
    Replication,
}

impl Edge {
    fn any(site: &Site, rng: &mut StdRng) -> Self {
        let gateway = rng.random_range(0..GATEWAYS);
        let kinds = match site.database {
            Database::Pair(_) => 6,
            // Its nodes follow each other without a proxy.
            Database::Patroni(_) => 5,
        };
        match rng.random_range(0..kinds) {
            0 => Self::ClientGateway(gateway),
            1 => Self::GatewayPostgres(gateway),
            2 => Self::GatewayEtcd(gateway),
            3 => Self::GatewayStore(gateway),
            4 => Self::EtcdPeers(rng.random_range(0..3)),
            _ => Self::Replication,
        }
    }

    fn proxies(self, site: &Site) -> Vec<&ChaosProxy> {
        match self {
            Self::ClientGateway(gateway) => {
                let node = &site.nodes[gateway];
                vec![&node.front, &node.s3_front]
            }
            Self::GatewayPostgres(gateway) => vec![&site.nodes[gateway].postgres],
            Self::GatewayEtcd(gateway) => site.nodes[gateway].etcd.iter().collect(),
            Self::GatewayStore(gateway) => vec![&site.nodes[gateway].store],
            Self::EtcdPeers(member) => vec![&site.peers[member]],
            Self::Replication => match &site.database {
                Database::Pair(pair) => vec![&pair.replication],
                Database::Patroni(_) => Vec::new(),
            },
        }
    }
}

/// A fault that is there until it is mended.
#[derive(Debug)]
pub struct Struck {
    /// Which.
    pub fault: Fault,
    /// Where, for people.
    pub where_to: String,
    /// How long it is to be there.
    pub lasts: Duration,
    target: usize,
    edge: Option<Edge>,
    /// The gateway whose clock is wrong meanwhile.
    clock: Option<usize>,
    pids: Vec<u32>,
    crowd: Option<Crowd>,
}

/// The servers, their clients, and the record of what is done to them.
pub struct Scene {
    /// The servers.
    pub site: Site,
    /// The clients.
    pub crew: Callers,
    /// Where callers go, and what they show.
    pub doors: Doors,
    /// The record.
    pub book: Book,
    /// The operator who breaks what a wrong clock has granted for too long.
    pub breaker: Client,
    /// Who has this changes no rules of access.
    pub turn: Arc<Mutex<()>>,
}

impl Scene {
    /// Lets something go wrong. When a ledger or a mint goes back, the clock of a gateway may be wrong.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn strike(&mut self, fault: Fault, rng: &mut StdRng) -> Result<Struck> {
        let goes_back = matches!(
            fault,
            Fault::EtcdRestored
                | Fault::EtcdWiped
                | Fault::StandbyPromoted
                | Fault::BothRestored
                | Fault::CopyPutBack
        );
        if !goes_back || Fault::ClockShifted.unavailable().is_some() || rng.random_bool(0.5) {
            return self.strike_alone(fault, rng).await;
        }
        let clock = self.strike_alone(Fault::ClockShifted, rng).await?;
        tokio::time::sleep(READ_AGAIN).await;
        let struck = self.strike_alone(fault, rng).await?;
        let where_to = format!("with gateway {} off {}", clock.target, clock.where_to);
        Ok(Struck { where_to, clock: Some(clock.target), ..struck })
    }

    async fn strike_alone(&mut self, fault: Fault, rng: &mut StdRng) -> Result<Struck> {
        let gateway = rng.random_range(0..GATEWAYS);
        let member = rng.random_range(0..self.site.etcd.len());
        let client = rng.random_range(0..PROCESSES);
        let ms = |rng: &mut StdRng, from, to| Duration::from_millis(rng.random_range(from..to));
        let mut struck = Struck {
            fault,
            where_to: String::new(),
            lasts: ms(rng, 300, 2500),
            target: gateway,
            edge: None,
            clock: None,
            pids: Vec::new(),
            crowd: None,
        };
        let site = &mut self.site;
        match fault {
            Fault::GatewayStop => {
                site.nodes[gateway].gateway.pause();
                struck.lasts = ms(rng, 1500, 5500);
            }
            Fault::GatewayKill => site.nodes[gateway].gateway.kill9(),
            Fault::ClockShifted | Fault::ClientClocks | Fault::PostgresClock => {
                let ahead_s = clock::jump_s(rng);
                self.shift(fault, gateway, ahead_s)?;
                (struck.where_to, struck.lasts) = (format!("by {ahead_s} s"), ms(rng, 2000, 5000));
            }
            Fault::SweeperAtZero => {
                set_horizon(site, "0s").await;
                struck.lasts = ms(rng, 2000, 5000);
            }
            Fault::ClientStop => {
                self.crew.pause(client);
                (struck.target, struck.lasts) = (client, ms(rng, 3000, 4000));
            }
            Fault::ClientKill => {
                self.crew.kill9(client);
                struck.target = client;
            }
            Fault::Overload | Fault::FullLine | Fault::Dawdlers => {
                struck.crowd = Some(Crowd::of(fault, &self.book, &self.doors, gateway));
                struck.where_to = format!("at gateway {gateway}");
                struck.lasts = ms(rng, 2000, 6000);
            }
            Fault::EtcdStop => {
                site.etcd[member].pause();
                (struck.target, struck.lasts) = (member, ms(rng, 500, 4000));
            }
            Fault::EtcdKill => {
                site.etcd[member].kill9();
                struck.target = member;
            }
            Fault::EtcdRestored => restore_etcd(site).await,
            Fault::EtcdWiped => wipe_etcd(site).await,
            Fault::PostgresStop => site.database.as_pair()?.primary.pause(),
            Fault::PostgresKill => site.database.as_pair()?.primary.kill9().await,
            Fault::PatroniSwitchover | Fault::PatroniRestart | Fault::PatroniKill => {
                site.database.as_managed()?.strike(fault).await?;
            }
            Fault::BackendsTerminated => {
                let ended = end_backends(site).await?;
                (struck.where_to, struck.lasts) = (format!("{ended} of them"), Duration::ZERO);
            }
            Fault::BackendStop => {
                struck.pids = some_backend(site, rng).await?;
                signal("STOP", &struck.pids);
                struck.lasts = ms(rng, 500, 4000);
            }
            Fault::DiskSlow => {
                struck.lasts = ms(rng, 2000, 6000);
                struck.where_to = slow_down(site, ms(rng, 50, 250));
            }
            Fault::DiskFull => {
                fill_disk(&site.database.as_pair()?.primary).await;
                struck.lasts = ms(rng, 1500, 4000);
            }
            Fault::StandbyStop => site.database.as_pair()?.standby.pause(),
            Fault::StandbyKill => site.database.as_pair()?.standby.kill9().await,
            Fault::StandbyPromoted => self.promote(false, rng).await?,
            Fault::BothRestored => self.promote(true, rng).await?,
            Fault::CopyPutBack => self.put_back(rng).await?,
            Fault::StoreStop => site.store.pause(),
            Fault::StoreKill => site.store.kill9(),
            Fault::EdgeSlow
            | Fault::EdgeHalfOpen
            | Fault::EdgeOneWay
            | Fault::EdgeReset
            | Fault::EdgeRefused => {
                let edge = Edge::any(site, rng);
                struck.where_to = strike_edge(site, edge, fault, rng).await;
                struck.edge = Some(edge);
            }
        }
        if struck.where_to.is_empty() && matches!(fault.part(), Part::Gateway | Part::Etcd) {
            struck.where_to = format!("number {}", struck.target);
        }
        Ok(struck)
    }

    /// Sets a clock ahead by so many seconds, or back.
    fn shift(&mut self, fault: Fault, gateway: usize, ahead_s: i64) -> Result<()> {
        match fault {
            Fault::ClientClocks => self.crew.set_clock(ahead_s),
            Fault::PostgresClock => {
                self.site.clock.as_ref().context("a run about clocks")?.set(ahead_s)
            }
            _ => self.site.nodes[gateway].clock.set(ahead_s),
        }
    }

    /// Makes it good again.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn mend(&mut self, struck: &Struck) -> Result<()> {
        let (site, target) = (&mut self.site, struck.target);
        if let Some(gateway) = struck.clock {
            site.nodes[gateway].clock.set(0)?;
        }
        match struck.fault {
            Fault::GatewayStop => site.nodes[target].gateway.resume(),
            Fault::GatewayKill => site.nodes[target].gateway.spawn(),
            Fault::ClockShifted => site.nodes[target].clock.set(0)?,
            Fault::ClientClocks => self.crew.set_clock(0)?,
            Fault::PostgresClock => self.put_clock_right().await?,
            Fault::SweeperAtZero => set_horizon(site, ROLLBACK_HORIZON).await,
            Fault::ClientStop => self.crew.resume(target),
            Fault::ClientKill => self.crew.replace(target).await?,
            Fault::Overload | Fault::FullLine | Fault::Dawdlers => {
                struck.crowd.iter().for_each(Crowd::leave);
            }
            Fault::EtcdStop => site.etcd[target].resume(),
            Fault::EtcdKill => site.etcd[target].spawn(),
            Fault::EtcdRestored | Fault::EtcdWiped | Fault::BackendsTerminated => {}
            Fault::PostgresStop => site.database.as_pair()?.primary.resume(),
            Fault::PostgresKill => site.database.as_pair()?.primary.revive().await,
            Fault::PatroniSwitchover | Fault::PatroniRestart | Fault::PatroniKill => {
                site.database.as_managed()?.mend().await?;
            }
            Fault::BackendStop => signal("CONT", &struck.pids),
            Fault::DiskSlow => site.syncs.slow_down(Duration::ZERO),
            Fault::DiskFull => {
                let pair = site.database.as_pair()?;
                if let Some(disk) = pair.primary.disk() {
                    disk.free();
                }
                // Postgres gives up where it cannot even write its log.
                pair.primary.revive().await;
            }
            Fault::StandbyStop => site.database.as_pair()?.standby.resume(),
            Fault::StandbyKill => site.database.as_pair()?.standby.start().await,
            // Nothing follows a server that went back.
            Fault::StandbyPromoted | Fault::BothRestored | Fault::CopyPutBack => {
                let pair = site.database.as_pair()?;
                let (port, disk) = (pair.replication.port(), new_disk().await);
                pair.standby = pair.primary.standby_through(port, disk).await;
            }
            Fault::StoreStop => site.store.resume(),
            Fault::StoreKill => site.store.restart().await,
            Fault::EdgeSlow
            | Fault::EdgeHalfOpen
            | Fault::EdgeOneWay
            | Fault::EdgeReset
            | Fault::EdgeRefused => {
                let proxies = struck.edge.map(|edge| edge.proxies(site)).unwrap_or_default();
                for proxy in proxies {
                    if proxy.armed() {
                        proxy.disarm();
                        proxy.cut();
                    }
                    proxy.delay(Duration::ZERO);
                    proxy.resume().await;
                }
            }
        }
        Ok(())
    }

    /// The standby takes over without the last writes of the primary, which is gone for good.
    ///
    /// 1. Rules of access stay as they are meanwhile. It has all that was written so far, the last re-fence and everything that the sweeper knew among
    ///    it, and hears of nothing any more.
    /// 2. Writes go on, and are acknowledged.
    /// 3. The primary dies. What was asked before may be lost, if it is above what the standby has.
    /// 4. With `both`, etcd goes back as well: of the last grants neither knows any more.
    /// 5. The standby is a primary, and the gateways reach it.
    async fn promote(&mut self, both: bool, rng: &mut StdRng) -> Result<()> {
        let turn = Arc::clone(&self.turn);
        let _rules_stay = turn.lock().await;
        let pair = self.site.database.as_pair()?;
        pair.standby.caught_up(&pair.primary).await;
        pair.standby.stop_following().await;
        let behind = Duration::from_millis(rng.random_range(200..3000));
        tokio::time::sleep(behind).await;
        pair.primary.kill9().await;
        let died_at = moment();
        if both {
            restore_etcd(&self.site).await;
        }
        let pair = self.site.database.as_pair()?;
        pair.standby.promote().await;
        let back = pair.standby.connect(&pair.ledger).await;
        note_rollback(&self.book, died_at, back).await?;
        let port = pair.standby.port();
        pair.replication.retarget(port);
        self.site.nodes.iter().for_each(|node| node.postgres.retarget(port));
        self.site.ledger.retarget(port);
        // The old primary goes with its disk once the new one has a standby.
        std::mem::swap(&mut pair.primary, &mut pair.standby);
        Ok(())
    }
    /// A copy of the files takes the place of what the server has written since, in the same directory.
    ///
    /// 1. Rules of access stay as they are meanwhile. The copy is made while the server runs.
    /// 2. Writes go on, and are acknowledged, for longer than a milestone is on its way to etcd: what is younger than the newest
    ///    one goes unnoticed.
    /// 3. The server dies, the copy is put back, and the server starts.
    async fn put_back(&mut self, rng: &mut StdRng) -> Result<()> {
        let turn = Arc::clone(&self.turn);
        let _rules_stay = turn.lock().await;
        let pair = self.site.database.as_pair()?;
        let copy = pair.primary.base_backup(&[]);
        tokio::time::sleep(Duration::from_millis(rng.random_range(4000..8000))).await;
        pair.primary.kill9().await;
        let died_at = moment();
        pair.primary.replace_by(&copy);
        pair.primary.start().await;
        note_rollback(&self.book, died_at, pair.primary.connect(&pair.ledger).await).await
    }

    /// Puts the wall clock of Postgres right, and has an operator break the locks that a clock which was ahead has granted
    /// for too long.
    async fn put_clock_right(&mut self) -> Result<()> {
        self.site.clock.as_ref().context("a run about clocks")?.set(0)?;
        tokio::time::sleep(READ_AGAIN).await;
        let too_long = "SELECT resource FROM fencegate.fences
             WHERE hold IN ('held', 'draining') AND deadline > clock_timestamp() + interval '20 seconds'";
        let mut connection = self.site.database.connect().await?;
        let resources: Vec<String> =
            sqlx::query_scalar(too_long).fetch_all(&mut connection).await?;
        for resource in resources {
            self.breaker.break_lock(&resource).await;
        }
        Ok(())
    }
}

/// Writes down that the ledger is what it was before, as of when the later one died.
async fn note_rollback(book: &Book, died_at: u64, mut back: PgConnection) -> Result<()> {
    let generation = sqlx::query_scalar("SELECT generation FROM fencegate.write_guard")
        .fetch_one(&mut back)
        .await?;
    let kept = sqlx::query(
        "SELECT f.resource, coalesce(max(o.version), 0) FROM fencegate.fences f
         LEFT JOIN fencegate.operations o ON o.resource = f.resource GROUP BY f.resource",
    )
    .fetch_all(&mut back)
    .await?;
    let kept = kept.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    book.rollback(died_at, generation, kept.collect::<Result<_>>()?);
    Ok(())
}

async fn restore_etcd(site: &Site) {
    site.etcd.iter().for_each(fence_tests::etcd::Etcd::kill9);
    site.etcd.iter().for_each(|member| member.restore(&site.snapshot));
    begin_etcd(site).await;
}

async fn wipe_etcd(site: &Site) {
    site.etcd.iter().for_each(fence_tests::etcd::Etcd::kill9);
    site.etcd.iter().for_each(fence_tests::etcd::Etcd::wipe);
    begin_etcd(site).await;
}

/// None of them answers before most have started.
async fn begin_etcd(site: &Site) {
    site.etcd.iter().for_each(fence_tests::etcd::Etcd::spawn);
    for member in &site.etcd {
        member.client().await;
    }
}

/// Fills the disk, and makes Postgres write so much log that it needs new files. It gives up over it.
async fn fill_disk(primary: &Postgres) {
    if let Some(disk) = primary.disk() {
        disk.fill();
    }
    let url = primary.url("postgres");
    let Ok(mut connection) = PgConnection::connect(&url).await else { return };
    let more = "SELECT pg_logical_emit_message(false, 'chaos', repeat('x', 8000000))";
    for _ in 0..60 {
        if sqlx::query(more).execute(&mut connection).await.is_err() {
            return;
        }
    }
}

/// Lets each sync under Postgres take so much longer.
fn slow_down(site: &Site, sync: Duration) -> String {
    site.syncs.slow_down(sync);
    format!("by {} ms", sync.as_millis())
}

async fn set_horizon(site: &mut Site, horizon: &str) {
    for node in &mut site.nodes {
        node.gateway.set_env("FENCEGATE_ROLLBACK_HORIZON", horizon);
    }
    // None starts with another one than all have.
    site.nodes[0].gateway.agree().await;
    for node in &mut site.nodes {
        node.gateway.kill9();
        node.gateway.restart().await;
    }
}

/// Ends all connections to the ledger; returns how many there were.
async fn end_backends(site: &Site) -> Result<i64> {
    let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    Ok(sqlx::query_scalar(others).fetch_one(&mut site.database.connect().await?).await?)
}

/// A process of Postgres that has a connection of a gateway.
async fn some_backend(site: &Site, rng: &mut StdRng) -> Result<Vec<u32>> {
    let others = "SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut connection = site.database.connect().await?;
    let pids: Vec<i32> = sqlx::query_scalar(others).fetch_all(&mut connection).await?;
    Ok(pids.choose(rng).and_then(|pid| u32::try_from(*pid).ok()).into_iter().collect())
}

async fn strike_edge(site: &Site, edge: Edge, fault: Fault, rng: &mut StdRng) -> String {
    let delay = Duration::from_millis(rng.random_range(20..400));
    let way = if rng.random_bool(0.5) { Direction::ToTarget } else { Direction::FromTarget };
    let bytes = rng.random_range(0..20_000);
    for proxy in edge.proxies(site) {
        match fault {
            Fault::EdgeSlow => proxy.delay(delay),
            Fault::EdgeHalfOpen => proxy.blackhole().await,
            Fault::EdgeOneWay => proxy.block(way).await,
            Fault::EdgeReset => proxy.cut_after_bytes(way, bytes),
            _ => proxy.refuse().await,
        }
    }
    match fault {
        Fault::EdgeSlow => format!("{edge:?}, {} ms", delay.as_millis()),
        Fault::EdgeOneWay | Fault::EdgeReset => format!("{edge:?}, {way:?}"),
        _ => format!("{edge:?}"),
    }
}
