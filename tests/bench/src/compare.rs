//! The comparison: each path and its rival in turn, round by round.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;

use crate::ours::ours;
use crate::paths::Path;
use crate::pgbench::prepare_pgbench;
use crate::plots;
use crate::prepared::{Prepared, Size, ZOMBIES};
use crate::record::Record;
use crate::report::{Report, Row};
use crate::sample::Sample;
use crate::servers::Servers;
use crate::theirs::theirs;
use crate::usage::allow_files;

/// Fewer rounds than this tell whether something broke, not how fast it is.
pub const ROUNDS: usize = 5;

/// How a comparison is made.
#[derive(Debug, clap::Args)]
pub struct Compare {
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
    /// Compare with this binary of the gateway instead, each with servers of its own: an older one, say
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["against", "record"])]
    beside: Option<PathBuf>,
    /// Only these paths, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<Path>,
    /// Where the table, its JSON and its plots are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Ratios of an earlier run: warns where this one does less than 0.8 as well, fails below 0.5
    #[arg(long)]
    against: Option<PathBuf>,
    /// Where to keep the ratios of this run
    #[arg(long)]
    record: Option<PathBuf>,
}

impl Compare {
    /// Compares, and prints what comes out. Says whether nothing was much worse than recorded.
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
        fs::create_dir_all(&self.out)?;
        let record = self.against.as_deref().map(Record::read).transpose()?;
        let all = || Path::value_variants().to_vec();
        let paths = if self.only.is_empty() { all() } else { self.only };
        allow_files((size.waiters + ZOMBIES) as u64 + 1_000)?;

        println!("starting the servers");
        let side = Side::start(None, &paths, size).await?;
        let rival = match self.beside.clone() {
            Some(binary) => Rival::Binary(Box::new(Side::start(Some(binary), &paths, size).await?)),
            None => {
                prepare_pgbench(&side.servers).await;
                Rival::Others
            }
        };
        println!("everything is ready after {} s", begun.elapsed().as_secs());
        let lasts = Duration::from_secs(seconds);
        let mut samples: Vec<_> = paths.iter().map(|path| (*path, vec![], vec![])).collect();
        for round in 1..=rounds {
            for (path, ours, rivals) in &mut samples {
                // Whoever comes second may find the machine warmer.
                let (our, theirs) = rival.measured(&side, *path, lasts, round % 2 == 0).await?;
                let beside = theirs
                    .as_ref()
                    .map_or(String::new(), |theirs| format!("; rival {}", told(theirs)));
                println!("round {round} of {rounds}: {}: {}{beside}", path.name(), told(&our));
                ours.push(our);
                rivals.extend(theirs);
            }
        }
        let row = match rival {
            Rival::Binary(_) => Row::beside,
            Rival::Others => Row::new,
        };
        let rows = samples.into_iter().map(|(path, ours, rival)| row(path, ours, rival));
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
        if let Some(file) = &self.record {
            Record::of(&report.rows).write(file)?;
        }
        let Some(record) = record else { return Ok(true) };
        let (warnings, errors) = record.judge(&report.rows);
        warnings.iter().for_each(|line| println!("WARNING: {line}"));
        errors.iter().for_each(|line| println!("WORSE THAN HALF: {line}"));
        Ok(errors.is_empty())
    }
}

/// The servers of one side, and what its callers present.
struct Side {
    servers: Servers,
    prepared: Prepared,
}

impl Side {
    async fn start(binary: Option<PathBuf>, paths: &[Path], size: Size) -> Result<Self> {
        let servers = Servers::start(binary).await?;
        let prepared = Prepared::new(&servers, paths, size).await?;
        Ok(Self { servers, prepared })
    }

    async fn measure(&self, path: Path, lasts: Duration) -> Result<Sample> {
        let measured = ours(&self.servers, &self.prepared, path, lasts).await;
        measured.with_context(|| path.name()).inspect_err(|_| last_lines(&self.servers))
    }
}

/// What the gateway is compared with.
enum Rival {
    /// What people would use instead, path by path.
    Others,
    /// Another binary of the gateway, on all paths.
    Binary(Box<Side>),
}

impl Rival {
    /// One measurement of either.
    async fn measured(
        &self,
        side: &Side,
        path: Path,
        lasts: Duration,
        rival_first: bool,
    ) -> Result<(Sample, Option<Sample>)> {
        match self {
            Self::Binary(rival) if rival_first => {
                let theirs = rival.measure(path, lasts).await?;
                Ok((side.measure(path, lasts).await?, Some(theirs)))
            }
            Self::Binary(rival) => {
                let our = side.measure(path, lasts).await?;
                Ok((our, Some(rival.measure(path, lasts).await?)))
            }
            Self::Others => {
                let our = side.measure(path, lasts).await?;
                let rival = theirs(&side.servers, &side.prepared, path, lasts).await;
                Ok((our, rival.with_context(|| format!("the rival of {}", path.name()))?))
            }
        }
    }
}

/// What the gateways printed last, where something went wrong.
fn last_lines(servers: &Servers) {
    for gateway in [&servers.clustered, &servers.embedded] {
        let log = gateway.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..]
            .iter()
            .for_each(|line| eprintln!("gateway: {line}"));
    }
}

fn told(sample: &Sample) -> String {
    format!("{:.0}/s, p50 {} us", sample.per_second, sample.p50_us)
}
