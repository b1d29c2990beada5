//! Two versions of the gateway: the one that was built with this program beside one before it, in turn, and that one
//! beside itself.

mod estimate;
mod turns;
mod verdict;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::ValueEnum as _;
use fence_tests::postgres::Postgres;

use self::estimate::Estimate;
use self::turns::{BLOCK, Who, ratios};
use self::verdict::{Figure, Row, judged};
use crate::needs;
use crate::pairs::tidied_often;
use crate::paths::Path;
use crate::prepared::{Size, ZOMBIES};
use crate::report::Spread;
use crate::sample::Sample;
use crate::side::Side;
use crate::usage::{CpuTime, allow_files};
use crate::version::Version;

/// Blocks of turns in a round.
const BLOCKS: usize = 2;
/// How long a turn lasts, after a quarter of it to warm up: so short that what else the machine does changes little from
/// one to the next.
const TURN: Duration = Duration::from_millis(400);
/// How long where there are few answers.
const LONG_TURN: Duration = Duration::from_millis(800);

/// How versions are compared.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// The version before: a gateway, or a folder with `fencegate`, its `fence-bench` and its `roles.sql`
    #[arg(long)]
    base: PathBuf,
    /// Only these rows, with commas between them
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Path>,
    /// Rounds of each row, in each of which either version has four turns and the base's twin as well
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many resources there are in the ledger of many, and in the embedded one
    #[arg(long, default_value_t = 100_000)]
    resources: u64,
    /// How many wait in the line in which the lock is handed over
    #[arg(long, default_value_t = 1_000)]
    waiters: usize,
    /// A row that is slower on purpose, and the page that says what that bought
    #[arg(long, value_name = "ROW=PAGE", value_delimiter = ',')]
    bought: Vec<Bought>,
    /// Where the table and its JSON are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// A row that may be slower, and why.
#[derive(Debug, Clone)]
struct Bought {
    path: Path,
    page: PathBuf,
}

impl FromStr for Bought {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (row, page) = text.split_once('=').context("it is ROW=PAGE")?;
        let path = Path::from_str(row, false).map_err(|error| anyhow!("{row}: {error}"))?;
        let page = PathBuf::from(page);
        ensure!(
            page.starts_with("docs/decisions") && page.is_file(),
            "{}: no page in docs/decisions",
            page.display()
        );
        Ok(Self { path, page })
    }
}

impl Compare {
    /// Compares, and prints what comes out. Says whether each row is inside.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        let begun = Instant::now();
        ensure!(self.rounds >= 3, "--rounds is at least 3: fewer say nothing");
        ensure!(!self.rows.contains(&Path::Ceiling), "ceiling has no gateway in it");
        let paths = match self.rows.is_empty() {
            true => Path::value_variants()
                .iter()
                .copied()
                .filter(|path| *path != Path::Ceiling)
                .collect(),
            false => self.rows.clone(),
        };
        let told = CpuTime::of(&[std::process::id()]).is_told();
        ensure!(told, "this kernel does not tell processor times in /proc/PID/task/TID/schedstat");
        needs::check(paths.iter().flat_map(|path| path.needs().iter().copied()))?;
        fs::create_dir_all(&self.out)?;
        allow_files((3 * self.waiters + ZOMBIES) as u64 + 1_000)?;
        let (base, new) = (Version::at(&self.base)?, Version::own()?);
        let rows = judged(&paths, self.rounds, async |paths, rounds| {
            self.measured([&base, &new, &base], paths, rounds).await
        });
        let rows = rows.await?;
        let table = table(&rows);
        println!("\n{table}");
        fs::write(self.out.join("versions.md"), &table)?;
        fs::write(self.out.join("versions.json"), serde_json::to_vec_pretty(&rows)?)?;
        let outside: Vec<&Row> = rows.iter().filter(|row| !row.faults().is_empty()).collect();
        for row in &outside {
            println!("SLOWER: {}: {}", row.path.name(), row.faults().join("; "));
        }
        println!(
            "{} of {} rows are inside; it took {} s",
            rows.len() - outside.len(),
            rows.len(),
            begun.elapsed().as_secs()
        );
        Ok(outside.is_empty())
    }

    /// Starts all sides anew, and measures these rows.
    async fn measured(
        &self,
        versions: [&Version; 3],
        paths: &[Path],
        rounds: usize,
    ) -> Result<Vec<Row>> {
        let begun = Instant::now();
        let [base, new, twin] = versions.map(|version| self.side(version, paths));
        let (base, new, twin) = tokio::try_join!(base, new, twin)?;
        let mut sides = [base, new, twin];
        println!("everything is ready after {} s", begun.elapsed().as_secs());
        let mut rows = Vec::new();
        for path in paths {
            let row = self.row(&mut sides, *path, rounds).await?;
            let (cpu, rate) = (&row.cpu_us, &row.per_second);
            println!(
                "{}: processor time {}, A/A {}; rate {}, A/A {}; after {} s",
                path.name(),
                cpu.ratio,
                cpu.twin,
                rate.ratio,
                rate.twin,
                begun.elapsed().as_secs()
            );
            rows.push(row);
        }
        Ok(rows)
    }

    async fn side(&self, version: &Version, paths: &[Path]) -> Result<Side> {
        let size = Size { resources: self.resources, waiters: self.waiters };
        let side = Side::start(version, paths, size, false).await?;
        if let Ok(clustered) = side.servers.clustered() {
            tidied_often(&clustered.postgres).await;
            checkpoints_by_hand(&clustered.postgres).await;
        }
        Ok(side)
    }

    /// Measures a row on all sides in turn.
    async fn row(&self, sides: &mut [Side; 3], path: Path, rounds: usize) -> Result<Row> {
        let is_rare = [Path::LockAlone, Path::Large, Path::Goodput, Path::Zombies, Path::HandOver];
        let lasts = if is_rare.contains(&path) { LONG_TURN } else { TURN };
        for side in &mut *sides {
            side.begin(path).await?;
            if let Ok(clustered) = side.servers.clustered() {
                clustered.postgres.execute("postgres", "CHECKPOINT").await;
            }
        }
        // The first turn of each is not counted.
        for side in &mut *sides {
            side.measure(path, lasts).await?;
        }
        let mut samples = [const { Vec::new() }; 3];
        let block = BLOCK.iter().cycle().take(rounds * BLOCKS * BLOCK.len());
        for who in block.chain([&Who::Base]) {
            let at = *who as usize;
            samples[at].push(sides[at].measure(path, lasts).await?);
        }
        for side in &mut *sides {
            side.end().await?;
        }
        let bought = self.bought.iter().find(|bought| bought.path == path);
        Ok(Row {
            path,
            cpu_us: figure(&samples, |sample| sample.cpu_any_us),
            per_second: figure(&samples, |sample| sample.per_second),
            bought: bought.map(|bought| bought.page.clone()),
            is_again: false,
        })
    }
}

fn figure(samples: &[Vec<Sample>; 3], of: fn(&Sample) -> f64) -> Figure {
    let [base, new, twin] = samples.each_ref().map(|all| all.iter().map(of).collect::<Vec<_>>());
    let median = |all: &[f64]| Spread::of(all.iter().copied()).median;
    Figure {
        base: median(&base),
        now: median(&new),
        ratio: Estimate::of(&ratios(&base, &new)),
        twin: Estimate::of(&ratios(&base, &twin)),
    }
}

/// Keeps checkpoints out of the turns: one is made before each row.
async fn checkpoints_by_hand(postgres: &Postgres) {
    for seldom in [
        "ALTER SYSTEM SET checkpoint_timeout = '1h'",
        "ALTER SYSTEM SET max_wal_size = '4GB'",
        "SELECT pg_reload_conf()",
    ] {
        postgres.execute("postgres", seldom).await;
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "Processor time of all servers of a side for one answer, and the rate: the new version beside the base, in turn, as\n\
         trimmed mean (99 % interval); A/A is the base beside itself, in the same turns.\n\n\
         | row | CPU us, base / new | CPU, ratio | A/A | at most | rate/s, base / new | rate, ratio | A/A | at least | |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in rows {
        let Row { cpu_us: cpu, per_second: rate, .. } = row;
        let mut said = Vec::new();
        said.extend((!row.faults().is_empty()).then_some("SLOWER"));
        said.extend(row.bought.is_some().then_some("on purpose"));
        said.extend(row.is_again.then_some("again, alone"));
        let _ = writeln!(
            table,
            "| {} | {:.1} / {:.1} | {} | {} | {:.3} | {:.0} / {:.0} | {} | {} | {:.3} | {} |",
            row.path.name(),
            cpu.base,
            cpu.now,
            cpu.ratio,
            cpu.twin,
            row.cpu_max(),
            rate.base,
            rate.now,
            rate.ratio,
            rate.twin,
            row.rate_min(),
            said.join(", ")
        );
    }
    table
}
