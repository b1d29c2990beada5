//! The gateway beside what people would use instead: each path and its rival in turn, round by round.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;

use crate::needs;
use crate::paths::Path;
use crate::pgbench::prepare_pgbench;
use crate::plots;
use crate::prepared::{Size, ZOMBIES};
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::side::Side;
use crate::theirs::theirs;
use crate::usage::allow_files;
use crate::version::Version;

/// Fewer rounds than this tell whether something broke, not how fast it is.
pub const ROUNDS: usize = 5;

/// How a comparison is made.
#[derive(Debug, clap::Args)]
pub struct Beside {
    /// How often each path and its rival are measured [default: 5]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a measurement takes, in seconds, after a quarter of it to warm up [default: 5]
    #[arg(long)]
    seconds: Option<u64>,
    /// How many resources are in the ledger of many [default: 5000000]
    #[arg(long)]
    resources: Option<u64>,
    /// How many wait in the long line [default: 10000]
    #[arg(long)]
    waiters: Option<usize>,
    /// A few minutes, to see whether something broke: 3 rounds of 1 second, 200000 resources, 1000 waiters
    #[arg(long)]
    short: bool,
    /// Only these rows, with commas between them
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Path>,
    /// Where the table, its JSON and its plots are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Beside {
    /// Compares, and prints what comes out. Says whether nothing seems broken.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        let begun = Instant::now();
        let or = |given: Option<u64>, long, short| {
            given.unwrap_or([long, short][usize::from(self.short)])
        };
        let rounds = self.rounds.unwrap_or(if self.short { 3 } else { ROUNDS });
        let seconds = or(self.seconds, 5, 1);
        let waiters = self.waiters.unwrap_or(if self.short { 1_000 } else { 10_000 });
        let size = Size { resources: or(self.resources, 5_000_000, 200_000), waiters };
        ensure!(rounds > 0 && seconds > 0, "--rounds and --seconds are at least 1");
        let all = || Path::value_variants().to_vec();
        let paths = if self.rows.is_empty() { all() } else { self.rows };
        needs::check(
            paths.iter().flat_map(|path| path.needs().iter().chain(path.needs_of_rival()).copied()),
        )?;
        fs::create_dir_all(&self.out)?;
        allow_files((size.waiters + ZOMBIES) as u64 + 1_000)?;

        println!("starting the servers");
        let mut side = Side::start(&Version::own()?, &paths, size, true).await?;
        if let Ok(clustered) = side.servers.clustered() {
            prepare_pgbench(clustered).await;
        }
        println!("everything is ready after {} s", begun.elapsed().as_secs());
        let lasts = Duration::from_secs(seconds);
        let mut samples: Vec<_> = paths.iter().map(|path| (*path, vec![], vec![])).collect();
        for round in 1..=rounds {
            for (path, ours, rivals) in &mut samples {
                let our = side.measure(*path, lasts).await?;
                let theirs = theirs(&side.servers, &side.prepared, *path, lasts).await;
                let theirs = theirs.with_context(|| format!("the rival of {}", path.name()))?;
                let beside = theirs
                    .as_ref()
                    .map_or(String::new(), |theirs| format!("; rival {}", told(theirs)));
                println!("round {round} of {rounds}: {}: {}{beside}", path.name(), told(&our));
                ours.push(our);
                rivals.extend(theirs);
            }
        }
        let rows = samples.into_iter().map(|(path, ours, rival)| Row::new(path, ours, rival));
        let report = Report { rounds, seconds: lasts.as_secs_f64(), size, rows: rows.collect() };
        println!("\n{report}");
        fs::write(self.out.join("comparison.md"), report.to_string())?;
        fs::write(self.out.join("comparison.json"), serde_json::to_vec_pretty(&report)?)?;
        plots::ratios(&report, &self.out.join("ratios.svg"))?;
        plots::figures(&report, &self.out.join("figures.svg"))?;
        println!(
            "table, JSON and plots: {}; it took {} s",
            self.out.display(),
            begun.elapsed().as_secs()
        );
        let broken: Vec<String> =
            report.rows.iter().filter(|row| row.is_broken()).map(|row| row.path.name()).collect();
        if !broken.is_empty() {
            println!(
                "so far from what any machine has shown that something is broken: {}",
                broken.join(", ")
            );
        }
        Ok(broken.is_empty())
    }
}

fn told(sample: &Sample) -> String {
    format!("{:.0}/s, p50 {} us", sample.per_second, sample.p50_us)
}
