//! A comparison that anyone can run: the gateway beside what people would use instead, on one machine, in one
//! run, in turn.
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own: it measures by the real clock"
)]

mod http;
mod load;
mod paths;
mod report;
mod rivals;
mod servers;
mod usage;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum as _};

use crate::paths::{Path, Prepared};
use crate::report::{Record, Report, Row};
use crate::servers::Servers;

/// Measures a Fencegate beside what people would use instead.
///
/// Starts Postgres, etcd, Redis, an S3 server and two gateways, measures each path and its rival in turn, and
/// prints a table. Exits with 1 if anything is below half of the recorded ratio, and with 2 if something could
/// not be measured.
#[derive(Parser)]
#[command(name = "fence-bench")]
struct Cli {
    /// How often each path and its rival are measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a measurement takes, in seconds, after a quarter of it to warm up
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Only these paths, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<Path>,
    /// Where the table, its JSON and its plot are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Ratios of an earlier run: warns below 0.8 of them, fails below 0.5
    #[arg(long)]
    against: Option<PathBuf>,
    /// Where to keep the ratios of this run
    #[arg(long)]
    record: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match compare(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

async fn compare(cli: Cli) -> anyhow::Result<bool> {
    ensure!(cli.rounds > 0 && cli.seconds > 0, "--rounds and --seconds are at least 1");
    fs::create_dir_all(&cli.out)?;
    let record: Option<Record> = match &cli.against {
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
            Some(serde_json::from_str(&text)?)
        }
        None => None,
    };
    println!("starting the servers");
    let servers = Servers::start().await?;
    rivals::prepare_pgbench(&servers).await;
    let prepared = Prepared::new(&servers).await?;
    let all = || Path::value_variants().to_vec();
    let paths = if cli.only.is_empty() { all() } else { cli.only };
    let lasts = Duration::from_secs(cli.seconds);
    let mut samples: Vec<_> = paths.iter().map(|path| (*path, Vec::new(), Vec::new())).collect();
    for round in 1..=cli.rounds {
        for (path, ours, rivals) in &mut samples {
            let name = path.to_possible_value();
            let name = name.as_ref().map_or("", |value| value.get_name());
            let our = paths::ours(&servers, &prepared, *path, lasts).await;
            let our = our.with_context(|| name.to_owned())?;
            let rival = paths::rival(&servers, &prepared, *path, lasts).await;
            let rival = rival.with_context(|| format!("the rival of {name}"))?;
            let told = |sample: &paths::Sample| {
                format!("{:.0}/s, p50 {} us", sample.per_second, sample.p50_us)
            };
            let beside =
                rival.as_ref().map_or(String::new(), |rival| format!("; rival {}", told(rival)));
            println!("round {round} of {}: {name}: {}{beside}", cli.rounds, told(&our));
            ours.push(our);
            rivals.extend(rival);
        }
    }
    let rows = samples.into_iter().map(|(path, ours, rival)| Row::new(path, ours, rival)).collect();
    let report = Report { rounds: (cli.rounds, lasts.as_secs_f64()), rows };
    println!("\n{report}");
    fs::write(cli.out.join("comparison.md"), report.to_string())?;
    fs::write(cli.out.join("comparison.json"), serde_json::to_vec_pretty(&report)?)?;
    report.plot(&cli.out.join("comparison.svg"))?;
    println!("table, JSON and plot: {}", cli.out.display());
    if let Some(file) = &cli.record {
        fs::write(file, serde_json::to_vec_pretty(&report.record())?)?;
    }
    let (warnings, errors) = record.map(|record| report.against(&record)).unwrap_or_default();
    warnings.iter().for_each(|line| println!("WARNING: {line}"));
    errors.iter().for_each(|line| println!("WORSE THAN HALF: {line}"));
    Ok(errors.is_empty())
}
