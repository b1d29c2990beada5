//! Gateways and clients on a Postgres that Patroni runs: switchovers, restarts and kills of the primary, one after the
//! other, and what they cost: tokens that are void, and time until every gateway writes again.

mod cluster;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use fence_history::{Answer, Record, check};
use fence_tests::chaos::ChaosProxy;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::stores::{Kind, Store};
use futures::future::join_all;
use serde::Serialize;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;

pub use self::cluster::{Cluster, Primary, install};
use crate::book::Book;
use crate::client::{Client, Held};
use crate::crew::Crew;
use crate::ledger::{self, Object};
use crate::rules::Doors;
use crate::run::{ADOPTED, Operator, REFENCED, SETTLES_WITHIN, all_are_served, look_at_everything};
use crate::upstream;

/// How many gateways there are.
const GATEWAYS: usize = 2;
/// How soon each gateway must write again: a dead leader keeps its key for 20 s.
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// Numbers of the callers that hold locks; client processes count up from 1.
const HOLDERS: u32 = 40_000;
/// The database of the ledger.
const DATABASE: &str = "ledger";

/// What is wanted.
#[derive(Debug, Clone, clap::Args)]
pub struct Plan {
    /// How many events
    #[arg(long, default_value_t = 20)]
    pub events: usize,
    /// How many nodes the cluster has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=5))]
    pub nodes: u8,
    /// What the gateways are told of a failover
    #[arg(long, value_enum, default_value_t = Failover::Lossy)]
    pub failover: Failover,
    /// What the clients draw from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where Patroni is installed, if it is not there yet
    #[arg(long, default_value = "target/tools")]
    pub tools: PathBuf,
    /// Where the history, the report and the logs are kept
    #[arg(long, default_value = "target/chaos-patroni")]
    pub out: PathBuf,
}

/// What a gateway is told of failovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failover {
    /// They may lose something.
    Lossy,
    /// They lose nothing.
    Lossless,
}

impl Failover {
    /// The value of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lossy => "lossy",
            Self::Lossless => "lossless",
        }
    }
}

/// What happens to the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Switchover,
    Restart,
    Kill,
}

/// One event, and what it cost.
#[derive(Debug, Serialize)]
struct Cost {
    event: Event,
    /// The timeline before and after.
    timelines: (i64, i64),
    /// Locks that were held, one through each gateway, whose tokens were void afterwards.
    voided: usize,
    /// Until each gateway had let a write through, in milliseconds.
    back_ms: u64,
}

/// What came of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    failover: Failover,
    costs: Vec<Cost>,
    adoptions: usize,
    refences: usize,
    calls: u64,
    grants: u64,
    trouble: Vec<String>,
    checks: fence_history::Report,
}

impl Report {
    /// Whether all held.
    pub fn is_clean(&self) -> bool {
        self.checks.is_clean() && self.trouble.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "failover = {:?}, {} events", self.failover, self.costs.len())?;
        for event in [Event::Switchover, Event::Restart, Event::Kill] {
            let of: Vec<_> = self.costs.iter().filter(|cost| cost.event == event).collect();
            let moved = of.iter().filter(|cost| cost.timelines.0 != cost.timelines.1).count();
            let voided: usize = of.iter().map(|cost| cost.voided).sum();
            let mut back: Vec<u64> = of.iter().map(|cost| cost.back_ms).collect();
            back.sort_unstable();
            let at = |part: usize| back.get(back.len() * part / 2).or(back.last()).copied();
            writeln!(
                f,
                "  {event:?}: {}, new timelines {moved}, locks voided {voided} of {}, back after \
                 {:?} ms at best, {:?} ms in the middle, {:?} ms at worst",
                of.len(),
                of.len() * GATEWAYS,
                at(0).unwrap_or(0),
                at(1).unwrap_or(0),
                at(2).unwrap_or(0)
            )?;
        }
        writeln!(f, "adoptions {}, re-fences {}", self.adoptions, self.refences)?;
        writeln!(f, "{} calls, {} grants", self.calls, self.grants)?;
        for line in &self.trouble {
            writeln!(f, "TROUBLE: {line}")?;
        }
        write!(f, "{}", self.checks)
    }
}

/// Holds a lock through one gateway all the time, and writes under it.
struct Holder {
    client: Client,
    resource: String,
    held: Option<Held>,
}

impl Holder {
    fn of(number: usize, doors: &Doors, book: &Book) -> Self {
        let book = book.clone();
        let process = HOLDERS + u32::try_from(number).unwrap_or(0);
        let client = Client::of(process, doors, Some(number), move |line| book.write(line));
        Self { client, resource: format!("held-{number}"), held: None }
    }

    /// Writes under the lock that it holds, or takes a new one if its token is void; says whether it was, once a write
    /// is through.
    async fn goes_on(&mut self, until: Instant) -> Option<bool> {
        let mut voided = false;
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let Some(held) = &self.held else {
                self.held = self.client.hold(&self.resource).await;
                continue;
            };
            match self.client.write_under(&self.resource, held).await {
                Some(Answer::Written { .. }) => return Some(voided),
                Some(Answer::Refused { .. }) => {
                    voided = true;
                    self.held = None;
                }
                _ => {}
            }
        }
        None
    }
}

/// Carries it out.
///
/// # Errors
/// What keeps it from being carried out.
pub async fn run(plan: &Plan) -> Result<Report> {
    fs::create_dir_all(&plan.out).with_context(|| format!("{}", plan.out.display()))?;
    let program = install(&plan.tools)?;
    println!("starting the servers");
    let (book, etcd) = (Book::default(), Etcd::dedicated().await);
    let cluster = Cluster::start(program, plan.nodes.into(), &etcd.endpoint(), &[]).await?;
    let primary = cluster.settled(cluster.size()).await?;
    primary.create(DATABASE).await?;
    let proxy = Arc::new(ChaosProxy::start(primary.port).await);
    let store = Store::start(Kind::S3).await;
    let fronted = upstream::start(&book).await;
    let mut gateways = Vec::new();
    for _ in 0..GATEWAYS {
        let url = format!("postgres://postgres@127.0.0.1:{}/{DATABASE}", proxy.port());
        let mut settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix())
            .flag("--failover", plan.failover.name())
            .flag("--blobs", &store.url())
            .flag("--inline-bytes-max", "4096")
            .flag("--log", "warn");
        settings = upstream::settings(&fronted, true)
            .iter()
            .fold(settings, |settings, one| settings.flag("--upstream", one));
        settings =
            store.env(None).into_iter().fold(settings, |all, (name, value)| all.env(name, &value));
        gateways.push(settings.start().await);
    }
    let addresses = gateways.iter().map(Gateway::address).collect();
    let doors = Doors { addresses, ..Doors::default() };
    let operator = Operator::start(&book, &doors);
    let crew = Crew::start(&book, &doors, plan.seed)?;
    let cluster = Arc::new(Mutex::new(cluster));
    let mut trouble = Vec::new();
    let costs = go_through(plan, &cluster, &proxy, &doors, &book, &mut trouble).await;
    let costs = costs.unwrap_or_else(|(costs, error)| {
        trouble.push(format!("no more events could be made: {error:#}"));
        costs
    });

    println!("peace");
    all_are_served(&book, &mut trouble).await;
    trouble.extend(crew.end().await);
    operator.end().await?;
    tokio::time::sleep(SETTLES_WITHIN).await;
    let cluster = cluster.lock().await;
    let primary = cluster.settled(1).await?;
    let url = format!("postgres://postgres@127.0.0.1:{}/{DATABASE}", primary.port);
    let mut connection = PgConnection::connect(&url).await.context("the ledger")?;
    let objects = Object::all(&mut connection).await?;
    look_at_everything(&doors, objects, &book, &mut trouble).await;
    let (mut adoptions, mut refences) = (0, 0);
    for (number, gateway) in gateways.iter_mut().enumerate() {
        gateway.term();
        let status = gateway.wait_for_exit().await;
        let said = gateway.log();
        fs::write(plan.out.join(format!("gateway-{number}.log")), &said)?;
        if !status.success() || said.contains("panicked at") {
            trouble.push(format!("gateway {number} ended with {status}, or has panicked"));
        }
        adoptions += said.matches(ADOPTED).count();
        refences += said.matches(REFENCED).count();
    }
    cluster.keep_logs(&plan.out)?;
    let wishes = book.wishes();
    let held = ledger::Held::read(&mut connection, &wishes).await?;
    trouble.extend(held.misplaced(&wishes));
    let (calls, grants) = book.so_far();
    let (mut history, _) = book.close(held);
    if plan.failover == Failover::Lossy {
        history.records.retain(|record| !is_void(record));
    }
    println!("judging");
    history.write(BufWriter::new(File::create(plan.out.join("history.jsonl"))?))?;
    let checks = check(&history);
    let failover = plan.failover;
    let report = Report { failover, costs, adoptions, refences, calls, grants, trouble, checks };
    fs::write(plan.out.join("report.json"), serde_json::to_vec_pretty(&report)?)?;
    fs::write(plan.out.join("report.txt"), report.to_string())?;
    Ok(report)
}

/// A write that was refused because its token is void. To the checkers that is no reason unless the ledger went back, and
/// if they were told that it did, they would excuse losses. Here it voids tokens and loses nothing; should such a write
/// have had an effect, nobody has asked for it.
pub fn is_void(record: &Record) -> bool {
    let Record::Call(call) = record else { return false };
    let answer = call.answered.as_ref().map(|answered| &answered.answer);
    matches!(answer, Some(Answer::Refused { code }) if code == "fence-token-void")
}

/// The events, one after the other; a cluster that does not settle ends them.
async fn go_through(
    plan: &Plan,
    cluster: &Arc<Mutex<Cluster>>,
    proxy: &Arc<ChaosProxy>,
    doors: &Doors,
    book: &Book,
    trouble: &mut Vec<String>,
) -> Result<Vec<Cost>, (Vec<Cost>, anyhow::Error)> {
    let mut holders: Vec<Holder> =
        (0..doors.addresses.len()).map(|number| Holder::of(number, doors, book)).collect();
    all_go_on(&mut holders).await;
    let mut costs = Vec::new();
    for number in 0..plan.events {
        let event = [Event::Switchover, Event::Restart, Event::Kill][number % 3];
        match strike(event, cluster, proxy, &mut holders).await {
            Ok(cost) => {
                println!(
                    "{number:>3} {event:?}: timeline {} -> {}, {} of {} locks void, back after {:.1} s",
                    cost.timelines.0,
                    cost.timelines.1,
                    cost.voided,
                    holders.len(),
                    cost.back_ms as f64 / 1000.0
                );
                let expected = match plan.failover {
                    Failover::Lossy if cost.timelines.0 != cost.timelines.1 => holders.len(),
                    _ => 0,
                };
                if cost.voided != expected {
                    let found = cost.voided;
                    trouble.push(format!("event {number}: {found} locks void, not {expected}"));
                }
                costs.push(cost);
            }
            Err(error) => return Err((costs, error)),
        }
    }
    Ok(costs)
}

/// One event: it happens, the proxy goes after the primary, each gateway writes again, the cluster is whole again.
async fn strike(
    event: Event,
    cluster: &Arc<Mutex<Cluster>>,
    proxy: &Arc<ChaosProxy>,
    holders: &mut [Holder],
) -> Result<Cost> {
    let mut cluster = cluster.lock().await;
    let before = cluster.settled(cluster.size()).await?;
    let timeline = cluster::timeline(before.port).await?;
    // Until then nobody knows how far the ledger was when it was last re-fenced or adopted.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let began = Instant::now();
    if event == Event::Kill {
        cluster.kill9(before);
    }
    let (happens, (voided, after)) = {
        let cluster = &*cluster;
        let happens = async {
            match event {
                Event::Switchover => cluster.switch_over(before).await,
                Event::Restart => cluster.restart(before).await,
                Event::Kill => Ok(()),
            }
        };
        let follows = follow(cluster, proxy, before, event);
        let goes_on = async {
            let after = follows.await;
            (all_go_on(holders).await, after)
        };
        tokio::join!(happens, goes_on)
    };
    happens?;
    let voided = voided.context("not every gateway writes again in time")?;
    let back_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if event == Event::Kill {
        cluster.revive(before)?;
    }
    let timelines = (timeline, cluster::timeline(after?.port).await?);
    Ok(Cost { event, timelines, voided, back_ms })
}

/// Has the proxy lead to the primary, as one does that asks each node whether it is: until there is the one that comes of
/// the event.
async fn follow(
    cluster: &Cluster,
    proxy: &ChaosProxy,
    before: Primary,
    event: Event,
) -> Result<Primary> {
    let until = Instant::now() + BACK_WITHIN;
    let mut down = false;
    while Instant::now() < until {
        match cluster.primary().await {
            Some(primary) if event == Event::Restart && primary.node == before.node => {
                // It may not have begun yet.
                if down || primary != before {
                    return Ok(primary);
                }
            }
            Some(primary) if primary.node != before.node => {
                proxy.retarget(primary.port);
                return Ok(primary);
            }
            Some(_) => {}
            None => down = true,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("no primary after {event:?}")
}

/// Waits until each gateway lets a write through; returns how many tokens were void.
async fn all_go_on(holders: &mut [Holder]) -> Option<usize> {
    let until = Instant::now() + BACK_WITHIN;
    let each = join_all(holders.iter_mut().map(|holder| holder.goes_on(until))).await;
    each.into_iter().map(|voided| voided.map(usize::from)).sum()
}
