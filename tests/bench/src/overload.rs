//! Overload: far more callers than a slow disk can serve. How much of what is applied do they learn, and how soon is
//! all well again when they have gone?

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::slow_disk::SlowDisk;
use futures::future::join_all;

use crate::callers::put;
use crate::http::Connection;
use crate::locks::lock_all;
use crate::servers::{body, quiet};
use crate::usage::allow_files;

/// Of what is applied so much must be told.
const TOLD_MIN: f64 = 0.8;
/// So long it may take until all is as before.
const BACK_MAX: Duration = Duration::from_secs(5);
/// All is as before when a lone caller's writes take at most so many times as long as before, several times in turn.
const AS_BEFORE: f64 = 2.0;
const IN_TURN: usize = 5;
/// How long somebody waits who is refused and is not told how long.
const PAUSE: Duration = Duration::from_millis(500);

/// How overload is measured.
#[derive(Debug, clap::Args)]
pub struct Overload {
    /// Callers, each of whom writes again as soon as it has its answer, or may ask again
    #[arg(long, default_value_t = 3_000)]
    callers: usize,
    /// How long they go on, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How much longer each sync takes, in milliseconds
    #[arg(long, default_value_t = 150)]
    sync_ms: u64,
    /// Resources that they write to
    #[arg(long, default_value_t = 256)]
    resources: usize,
}

impl Overload {
    /// Measures on both ledgers, and prints what comes out. Says whether all is as it must be.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.callers > 0 && self.seconds > 0 && self.resources > 0, "all are above 0");
        allow_files(self.callers as u64 + 1_000)?;
        let mut all_well = true;
        for ledger in ["SQLite", "Postgres"] {
            let seen = self.on(ledger).await.with_context(|| format!("on {ledger}"))?;
            println!("{ledger}: {seen}");
            all_well &= seen.is_well();
        }
        Ok(all_well)
    }

    async fn on(&self, ledger: &str) -> Result<Seen> {
        let disk = SlowDisk::new();
        let (gateway, _servers) = match ledger {
            "SQLite" => {
                let settings = disk
                    .env()
                    .into_iter()
                    .fold(quiet(Gateway::embedded()), |settings, (name, value)| {
                        settings.env(name, &value)
                    });
                (settings.start().await, None)
            }
            _ => {
                let (postgres, etcd) =
                    tokio::join!(Postgres::with_env(disk.env().to_vec()), Etcd::dedicated());
                let ledger = postgres.database().await;
                let settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
                (settings.start().await, Some((postgres, etcd)))
            }
        };
        let names: Vec<String> = (0..self.resources).map(|number| format!("r{number}")).collect();
        let locks = lock_all(&gateway, &names).await?;
        disk.slow_down(Duration::from_millis(self.sync_ms));
        let puts: Vec<_> = locks.iter().map(|lock| put(lock, &body(1024))).collect();
        let before = self.alone(&gateway, &puts[0]).await?;
        let versions_before = versions(&gateway.client(), &locks).await;
        let counts = Arc::new(Counts::default());
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let callers = (0..self.callers).map(|number| {
            let (put, counts) = (Arc::clone(&puts[number % puts.len()]), Arc::clone(&counts));
            tokio::spawn(call_until(gateway.address(), put, counts, until))
        });
        for caller in join_all(callers).await {
            caller??;
        }
        let began = Instant::now();
        let mut in_turn = 0;
        while in_turn < IN_TURN && began.elapsed() < 10 * BACK_MAX {
            let took = self.alone(&gateway, &puts[0]).await;
            let as_before = took.is_ok_and(|took| took <= before.mul_f64(AS_BEFORE));
            in_turn = if as_before { in_turn + 1 } else { 0 };
        }
        let back = began.elapsed();
        let applied = versions(&gateway.client(), &locks).await - versions_before - in_turn as i64;
        Ok(Seen { counts, applied, back, before, seconds: self.seconds })
    }

    /// How long a lone caller's write takes.
    async fn alone(&self, gateway: &Gateway, put: &[u8]) -> Result<Duration> {
        let mut connection = Connection::open(gateway.address()).await?;
        let began = Instant::now();
        let answer = connection.ask(put).await?;
        ensure!((200..202).contains(&answer.status), "{}", answer.status);
        Ok(began.elapsed())
    }
}

/// What callers were told.
#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    unknown: AtomicU64,
    overloaded: AtomicU64,
    unavailable: AtomicU64,
    /// The longest that an answer took, in milliseconds.
    longest_ms: AtomicU64,
}

/// Writes again and again, and waits when told to.
async fn call_until(
    at: std::net::SocketAddr,
    put: Arc<[u8]>,
    counts: Arc<Counts>,
    until: Instant,
) -> Result<()> {
    let mut connection = Connection::open(at).await?;
    while Instant::now() < until {
        let began = Instant::now();
        let answer = connection.ask(&put).await?;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        counts.longest_ms.fetch_max(took_ms, Ordering::Relaxed);
        if (200..202).contains(&answer.status) {
            counts.done.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let problem: serde_json::Value = serde_json::from_slice(answer.body)?;
        let counter = match problem["code"].as_str() {
            Some("outcome-unknown") => &counts.unknown,
            Some("overloaded") => &counts.overloaded,
            Some("ledger-unavailable") => &counts.unavailable,
            _ => anyhow::bail!("{}: {problem}", answer.status),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let pause = problem["retry_after_ms"].as_u64().map_or(PAUSE, Duration::from_millis);
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn versions(client: &Client, locks: &[Lock]) -> i64 {
    let mut total = 0;
    for lock in locks {
        total += client.version(lock.resources[0].as_str()).await;
    }
    total
}

/// What came of it.
struct Seen {
    counts: Arc<Counts>,
    applied: i64,
    back: Duration,
    before: Duration,
    seconds: u64,
}

impl Seen {
    fn told(&self) -> f64 {
        self.counts.done.load(Ordering::Relaxed) as f64 / self.applied.max(1) as f64
    }

    fn is_well(&self) -> bool {
        let unknown = self.counts.unknown.load(Ordering::Relaxed);
        self.told() >= TOLD_MIN && unknown == 0 && self.back <= BACK_MAX
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { done, unknown, overloaded, unavailable, longest_ms } = &*self.counts;
        let [done, unknown, overloaded, unavailable, longest_ms] =
            [done, unknown, overloaded, unavailable, longest_ms]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{} applied in {} s, {done} of them told (share {:.3}, wanted {TOLD_MIN}); unknown {unknown}, wanted 0; \
             overloaded {overloaded}, unavailable {unavailable}; longest answer {longest_ms} ms; a lone write took {} ms \
             before; as before after {:.1} s, wanted {}{}",
            self.applied,
            self.seconds,
            self.told(),
            self.before.as_millis(),
            self.back.as_secs_f64(),
            BACK_MAX.as_secs(),
            if self.is_well() { "" } else { ": NOT MET" },
        )
    }
}
