//! The paths that are measured, and the rival of each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use clap::ValueEnum;
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use futures::future::try_join_all;
use serde::Serialize;

use crate::http::request;
use crate::load::{Caller, Measured, Pace, measure};
use crate::rivals::{EtcdLocker, RedisWriter, S3Writer, Statement, pgbench};
use crate::servers::{Locker, Same, Servers, body, lock_all, put, warm_up};
use crate::usage::{cpu_seconds, peak_mib};

/// How many callers ask at once where many do.
const MANY: usize = 64;
const LARGE: usize = 8 << 20;
/// Good writes in a second while stale ones are refused, and how many times as many those are.
const GOOD_PER_SECOND: f64 = 300.0;
const STALE_PER_GOOD: f64 = 10.0;

/// A path through the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Fenced 1 KiB PUT, 64 connections, distinct resources, Postgres; pgbench, 64 clients
    Put,
    /// The same, all on one resource; pgbench, 64 clients on one row
    PutOne,
    /// Fenced 1 KiB PUT, 1 connection; pgbench, 1 client
    PutAlone,
    /// Fenced 1 KiB PUT on the embedded default, 64 connections; Redis with a script, synced
    PutEmbedded,
    /// Acquire and release, 64 clients, etcd and Postgres; etcd's own lock API
    Lock,
    /// The same, 1 client; etcd's own lock API
    LockAlone,
    /// GET 1 KiB, 64 connections, Postgres; pgbench SELECT, 64 clients
    Get,
    /// 8 MiB PUT to S3, 4 connections; the same PUT direct
    Large,
    /// Good writes while 10 times as many stale ones are refused; good writes alone
    Goodput,
    /// An empty answer of the same HTTP server, 64 connections: the ceiling, and the load generator's own cost
    Ceiling,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Answers in a second: more is better.
    Throughput,
    /// The median time of an answer: less is better.
    P50,
}

impl Path {
    /// What is compared, and the ratio that is wanted: at least of throughput, at most of p50.
    pub fn wanted(self) -> Option<(Figure, f64)> {
        match self {
            Self::Put => Some((Figure::Throughput, 1.0)),
            Self::PutOne => Some((Figure::Throughput, 2.0)),
            Self::PutAlone => Some((Figure::P50, 2.0)),
            Self::PutEmbedded => Some((Figure::Throughput, 0.5)),
            Self::Lock => Some((Figure::Throughput, 10.0)),
            Self::LockAlone => Some((Figure::P50, 1.0)),
            Self::Get => Some((Figure::Throughput, 0.7)),
            Self::Large => Some((Figure::Throughput, 0.8)),
            Self::Goodput => Some((Figure::Throughput, 0.9)),
            Self::Ceiling => None,
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Answers in a second.
    pub per_second: f64,
    /// Half of the answers took no longer, in microseconds.
    pub p50_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1000.
    pub p999_us: u64,
    /// Processor time of the servers for one answer, in microseconds.
    pub cpu_us: f64,
    /// The most memory that the gateway had so far, in MiB; none for a rival.
    pub gateway_mib: Option<f64>,
}

/// What callers present, made once.
pub struct Prepared {
    puts: Vec<Arc<[u8]>>,
    embedded: Vec<Arc<[u8]>>,
    gets: Vec<Arc<[u8]>>,
    large: Vec<Arc<[u8]>>,
    stale: Vec<Arc<[u8]>>,
}

impl Prepared {
    /// Takes the locks, and writes what is read.
    ///
    /// # Errors
    /// A lock that is not granted.
    pub async fn new(servers: &Servers) -> Result<Self> {
        let names: Vec<String> = (0..MANY).map(|number| format!("r{number}")).collect();
        let small = body(1024);
        let each = |locks: &[Lock], body: &[u8]| locks.iter().map(|lock| put(lock, body)).collect();
        let locks = lock_all(&servers.clustered, &names).await?;
        let puts: Vec<_> = each(&locks, &small);
        for put in &puts {
            Same::new(servers.clustered.address(), Arc::clone(put), 200..202).await?.call().await?;
        }
        let get = |name: &String| request("GET", &object_path(name, "k"), &[], b"").into();
        let large: Vec<String> = (0..4).map(|number| format!("large{number}")).collect();
        let large = lock_all(&servers.clustered, &large).await?;
        let lost: Vec<String> = (0..16).map(|number| format!("lost{number}")).collect();
        let old = lock_all(&servers.clustered, &lost).await?;
        let client = servers.clustered.client();
        for lock in &old {
            client.release(lock).send().await.expect(204);
        }
        lock_all(&servers.clustered, &lost).await?;
        Ok(Self {
            puts,
            embedded: each(&lock_all(&servers.embedded, &names).await?, &small),
            gets: names.iter().map(get).collect(),
            large: each(&large, &body(LARGE)),
            stale: each(&old, &small),
        })
    }
}

/// Measures a path through the gateway.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn ours(
    servers: &Servers,
    prepared: &Prepared,
    path: Path,
    lasts: Duration,
) -> Result<Sample> {
    let gateway = match path {
        Path::PutEmbedded => &servers.embedded,
        _ => &servers.clustered,
    };
    let (at, embedded) = (gateway.address(), [servers.embedded.pid()]);
    let clustered =
        [servers.clustered.pid(), servers.postgres.pid(), servers.etcd.pid(), servers.store.pid()];
    let pids: &[u32] = if path == Path::PutEmbedded { &embedded } else { &clustered };
    let closed = |callers: Vec<Same>| measure(callers, Pace::Closed, warm_up(lasts), lasts);
    let same = async |requests: &[Arc<[u8]>], count: usize, wanted: std::ops::Range<u16>| {
        let each = (0..count).map(|number| {
            Same::new(at, Arc::clone(&requests[number % requests.len()]), wanted.clone())
        });
        try_join_all(each).await
    };
    let before = cpu_seconds(pids);
    let measured = match path {
        Path::Put => closed(same(&prepared.puts, MANY, 200..202).await?).await,
        Path::PutOne => closed(same(&prepared.puts[..1], MANY, 200..202).await?).await,
        Path::PutAlone => closed(same(&prepared.puts, 1, 200..202).await?).await,
        Path::PutEmbedded => closed(same(&prepared.embedded, MANY, 200..202).await?).await,
        Path::Get => closed(same(&prepared.gets, MANY, 200..201).await?).await,
        Path::Large => closed(same(&prepared.large, 4, 200..202).await?).await,
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let names: Vec<String> = (0..count).map(|number| format!("lock{number}")).collect();
            let lockers = try_join_all(names.iter().map(|name| Locker::new(at, name))).await?;
            measure(lockers, Pace::Closed, warm_up(lasts), lasts).await
        }
        Path::Goodput => {
            let stale = same(&prepared.stale, MANY, 412..413).await?;
            let rate = Pace::PerSecond(GOOD_PER_SECOND * STALE_PER_GOOD);
            let (good, stale) = tokio::join!(
                good_alone(servers, prepared, lasts),
                measure(stale, rate, warm_up(lasts), lasts),
            );
            stale?;
            good
        }
        Path::Ceiling => {
            let ask: Arc<[u8]> = request("GET", "/", &[], b"").into();
            let each = (0..MANY).map(|_| Same::new(servers.empty, Arc::clone(&ask), 200..201));
            closed(try_join_all(each).await?).await
        }
    }?;
    let sample = sample(&measured, cpu_seconds(pids) - before, lasts);
    Ok(Sample { gateway_mib: Some(peak_mib(gateway.pid())), ..sample })
}

async fn good_alone(servers: &Servers, prepared: &Prepared, lasts: Duration) -> Result<Measured> {
    let at = servers.clustered.address();
    let each = prepared.puts.iter().take(32).map(|put| Same::new(at, Arc::clone(put), 200..202));
    let callers = try_join_all(each).await?;
    measure(callers, Pace::PerSecond(GOOD_PER_SECOND), warm_up(lasts), lasts).await
}

/// Measures what people would use instead.
///
/// # Errors
/// Whatever it says.
pub async fn rival(
    servers: &Servers,
    prepared: &Prepared,
    path: Path,
    lasts: Duration,
) -> Result<Option<Sample>> {
    let pid = match path {
        Path::PutEmbedded => servers.redis.pid(),
        Path::Lock | Path::LockAlone => servers.etcd.pid(),
        Path::Large => servers.store.pid(),
        _ => servers.postgres.pid(),
    };
    let pids = [pid, servers.clustered.pid()];
    let pids = if path == Path::Goodput { &pids[..] } else { &pids[..1] };
    let warm = warm_up(lasts);
    let before = cpu_seconds(pids);
    let measured = match path {
        Path::Put => pgbench(servers, Statement::WriteOwn, MANY, lasts).await?,
        Path::PutOne => pgbench(servers, Statement::WriteOne, MANY, lasts).await?,
        Path::PutAlone => pgbench(servers, Statement::WriteOwn, 1, lasts).await?,
        Path::Get => pgbench(servers, Statement::Read, MANY, lasts).await?,
        Path::PutEmbedded => {
            let writers = try_join_all((0..MANY).map(|n| RedisWriter::new(servers, n))).await?;
            measure(writers, Pace::Closed, warm, lasts).await?
        }
        Path::Lock | Path::LockAlone => {
            let count = if path == Path::Lock { MANY } else { 1 };
            let lockers = try_join_all((0..count).map(|n| EtcdLocker::new(servers, n))).await?;
            measure(lockers, Pace::Closed, warm, lasts).await?
        }
        Path::Large => {
            let body = Bytes::from(body(LARGE));
            let each = (0..4).map(|number| S3Writer::new(servers, number, body.clone()));
            measure(each.collect::<Result<Vec<_>>>()?, Pace::Closed, warm, lasts).await?
        }
        Path::Goodput => good_alone(servers, prepared, lasts).await?,
        Path::Ceiling => return Ok(None),
    };
    Ok(Some(sample(&measured, cpu_seconds(pids) - before, lasts)))
}

/// Processor time was counted over the warm-up as well, in which as much is done for its length.
fn sample(measured: &Measured, cpu_s: f64, lasts: Duration) -> Sample {
    let Measured { per_second, micros } = measured;
    let seconds = (lasts + warm_up(lasts)).as_secs_f64();
    Sample {
        per_second: *per_second,
        p50_us: micros.value_at_quantile(0.5),
        p99_us: micros.value_at_quantile(0.99),
        p999_us: micros.value_at_quantile(0.999),
        cpu_us: 1e6 * cpu_s / (per_second * seconds),
        gateway_mib: None,
    }
}
