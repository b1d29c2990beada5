//! What memory the gateway takes: busy for long, and with very many who wait.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use fence_tests::client::object_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use futures::future::try_join_all;

use crate::callers::{Locker, Patient, Same, put};
use crate::http::request;
use crate::line::Line;
use crate::load::{Caller, Pace, measure};
use crate::locks::lock_all;
use crate::series::{Series, watch};
use crate::servers::{body, quiet};
use crate::usage::allow_files;

/// The longest that the run with waiters takes: more than the longest wait, so that all come again.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// How memory is measured.
#[derive(Debug, clap::Args)]
pub struct Memory {
    /// How long the gateway is busy; with waiters, for 2 minutes at most
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Callers of the first run, all busy
    #[arg(long, default_value_t = 64)]
    busy: usize,
    /// Waiters of the second run, who are idle
    #[arg(long, default_value_t = 10_000)]
    waiters: usize,
    /// Callers of the second run, all busy
    #[arg(long, default_value_t = 2_000)]
    busy_beside: usize,
    /// The most that the gateway may take in the first run, in MiB
    #[arg(long, default_value_t = 200.0)]
    limit_mib: f64,
    /// The most that it may take in the second run, in MiB
    #[arg(long, default_value_t = 600.0)]
    limit_beside_mib: f64,
    /// Where the series and its plot are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Memory {
    /// Measures, and prints what comes out. Says whether it is within all limits.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.minutes > 0.0, "--minutes is above 0");
        fs::create_dir_all(&self.out)?;
        allow_files((self.waiters + self.busy_beside) as u64 + 1_000)?;
        let lasts = Duration::from_secs_f64(60.0 * self.minutes);
        let busy = Scene::set().await?.busy(self.busy, self.limit_mib, lasts).await?;
        println!("{busy}");
        let beside = Scene::set().await?;
        let beside =
            beside.idle(self.waiters, self.busy_beside, self.limit_beside_mib, lasts.min(IDLE_MAX));
        let beside = beside.await?;
        println!("{beside}");
        let both = [busy, beside];
        fs::write(self.out.join("memory.json"), serde_json::to_vec_pretty(&both)?)?;
        Series::plot(&both, &self.out.join("memory.svg"))?;
        println!("series and plot: {}", self.out.display());
        Ok(both.iter().all(Series::is_within))
    }
}

/// A gateway that nobody has asked for anything yet, and what it stands on.
struct Scene {
    gateway: Gateway,
    _postgres: Postgres,
    _etcd: Etcd,
}

impl Scene {
    async fn set() -> Result<Self> {
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        let ledger = postgres.database().await;
        let settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()));
        Ok(Self { gateway: settings.start().await, _postgres: postgres, _etcd: etcd })
    }

    async fn busy(self, callers: usize, limit_mib: f64, lasts: Duration) -> Result<Series> {
        let (series, load) = tokio::join!(
            watch(self.gateway.pid(), format!("{callers} busy"), limit_mib, true, lasts),
            self.load(callers, lasts),
        );
        load.map(|()| series)
    }

    async fn idle(
        self,
        waiters: usize,
        callers: usize,
        limit_mib: f64,
        lasts: Duration,
    ) -> Result<Series> {
        let mut line = Line::form(self.gateway.address(), waiters).await?;
        let name = format!("{waiters} waiting, {callers} busy");
        let (series, load) = tokio::join!(
            // Whether that grows, the other run tells.
            watch(self.gateway.pid(), name, limit_mib, false, lasts),
            self.load(callers, lasts),
        );
        load?;
        line.check()?;
        Ok(series)
    }

    /// Half of the callers put, a quarter reads, and a quarter takes locks and gives them back.
    async fn load(&self, callers: usize, lasts: Duration) -> Result<()> {
        let (at, quarter) = (self.gateway.address(), callers.div_ceil(4));
        let names: Vec<String> = (0..callers - 2 * quarter).map(|n| format!("r{n}")).collect();
        let locks = lock_all(&self.gateway, &names).await?;
        let puts: Vec<_> = locks.iter().map(|lock| put(lock, &body(1024))).collect();
        let puts = puts.into_iter().map(|put| Same::new(at, put, 200..202));
        let mut puts = try_join_all(puts).await?;
        // Objects to read; one after the other, which nobody is turned away for.
        for put in &mut puts {
            put.call().await?;
        }
        let gets = names.iter().cycle().take(quarter).map(|name| {
            let get = request("GET", &object_path(name, "k"), &[], b"");
            Same::new(at, Arc::from(get), 200..201)
        });
        let gets = try_join_all(gets).await?;
        let names: Vec<String> = (0..quarter).map(|n| format!("lock{n}")).collect();
        let lockers = try_join_all(names.iter().map(|name| Locker::new(at, name))).await?;
        let (none, turned_away) = (Duration::ZERO, Arc::new(AtomicU64::new(0)));
        let (puts, gets, locks) = tokio::try_join!(
            measure(patient(puts, &turned_away), Pace::Closed, none, lasts),
            measure(patient(gets, &turned_away), Pace::Closed, none, lasts),
            measure(patient(lockers, &turned_away), Pace::Closed, none, lasts),
        )?;
        let told = [("puts", puts), ("reads", gets), ("locks", locks)].map(|(what, measured)| {
            let p99_ms = measured.micros.value_at_quantile(0.99) as f64 / 1000.0;
            format!("{:.0} {what}/s, p99 {p99_ms:.0} ms", measured.per_second)
        });
        let turned_away = turned_away.load(Ordering::Relaxed);
        println!("meanwhile: {}; turned away {turned_away} times", told.join("; "));
        Ok(())
    }
}

fn patient<C: Caller>(callers: Vec<C>, turned_away: &Arc<AtomicU64>) -> Vec<Patient<C>> {
    callers.into_iter().map(|caller| Patient::new(caller, turned_away)).collect()
}
