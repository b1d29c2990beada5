//! The simulation as a tool: runs seeds, replays one, and shows that mutants are caught.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use fence_core::mutants::Mutant;
use fence_history::{Checker, History};
use fence_simulation::mutants::{SEEDS_MAX, catch_all, table, write_table};
use fence_simulation::seeds::{Tally, judge, seeds};

/// Runs the real engine in a simulated world, and judges what it did.
#[derive(Parser)]
#[command(name = "fence-simulation")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds; exits with 1 if one fails
    Run {
        /// How many
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first one
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// On how many threads; as many as there are cores if not said
        #[arg(long)]
        threads: Option<usize>,
        /// A directory for the histories of those that fail
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Run one seed, and print its report; exits with 1 if it fails
    Replay {
        /// The seed
        seed: u64,
        /// With this mutant
        #[arg(long)]
        mutant: Option<String>,
        /// A file for its history
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Switch on one mutant after the other until a seed catches it; exits with 1 if one is not caught
    Mutants {
        /// Only this one
        #[arg(long)]
        only: Option<String>,
        /// How many seeds each has
        #[arg(long, default_value_t = SEEDS_MAX)]
        seeds: u64,
        /// On how many threads
        #[arg(long)]
        threads: Option<usize>,
        /// A page whose table is to be written anew, between its marks
        #[arg(long)]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "people want to know how long it took")]
fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Run { seeds: count, from, threads, save } => {
            let began = Instant::now();
            let tally =
                seeds(from..from.saturating_add(count), None, cores(threads), 20, progress(count));
            for failure in &tally.failures {
                print!("{failure}");
                if let Some(directory) = &save {
                    fs::create_dir_all(directory)?;
                    keep(&failure.history, &directory.join(format!("{}.jsonl", failure.seed)))?;
                }
            }
            print!("{}", summary(&tally, began.elapsed()));
            Ok(tally.failures.is_empty())
        }
        Command::Replay { seed, mutant, save } => {
            let mutant = mutant.as_deref().map(named).transpose()?;
            let (report, run) = judge(seed, mutant);
            print!("{report}");
            run.failures.iter().for_each(|failure| println!("failed: {failure}"));
            if let Some(file) = &save {
                keep(&run.history, file)?;
            }
            Ok(report.is_clean() && run.failures.is_empty())
        }
        Command::Mutants { only, seeds, threads, write } => {
            let only = only.as_deref().map(named).transpose()?;
            let wanted = |mutant| only.is_none_or(|only| only == mutant);
            let none = BTreeMap::new();
            let caught = catch_all(wanted, &none, seeds, cores(threads), |line| println!("{line}"));
            if let Some(page) = write {
                write_table(&page, &table(&caught))?;
            }
            Ok(caught.iter().all(|one| one.by.is_some()))
        }
    }
}

fn cores(threads: Option<usize>) -> usize {
    threads.or_else(|| Some(std::thread::available_parallelism().ok()?.get())).unwrap_or(1)
}

fn named(name: &str) -> anyhow::Result<Mutant> {
    match Mutant::ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name) {
        Some((mutant, _)) => Ok(*mutant),
        None => bail!("no mutant is named {name:?}; `mutants` lists them all"),
    }
}

fn keep(history: &History, file: &PathBuf) -> anyhow::Result<()> {
    let into = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    history.write(BufWriter::new(into))?;
    Ok(())
}

/// A line that counts, on a terminal; on anything else a line now and then.
fn progress(count: u64) -> impl Fn(&Tally) + Sync {
    let is_terminal = io::stderr().is_terminal();
    move |tally| {
        let seeds = tally.seeds;
        let failed = match &tally.failures[..] {
            [] => "none".to_owned(),
            all => {
                all.iter().map(|failure| failure.seed.to_string()).collect::<Vec<_>>().join(", ")
            }
        };
        let mut out = io::stderr();
        // Whoever watches no more is no reason to stop.
        let _ = match is_terminal {
            true if seeds == count => writeln!(out, "\r{seeds} of {count} seeds, failed: {failed}"),
            true if seeds.is_multiple_of(50) => {
                write!(out, "\r{seeds} of {count} seeds, failed: {failed}")
            }
            false if seeds.is_multiple_of((count / 10).max(1)) => {
                writeln!(out, "{seeds} of {count} seeds, failed: {failed}")
            }
            _ => Ok(()),
        };
    }
}

fn summary(tally: &Tally, took: Duration) -> String {
    let mut text = format!(
        "{} seeds in {:.0} s: {} steps, {} calls, {} failed\n",
        tally.seeds,
        took.as_secs_f64(),
        tally.steps,
        tally.calls,
        tally.failures.len()
    );
    let percent = |count: u64| 100.0 * count as f64 / tally.seeds.max(1) as f64;
    text.push_str(&format!(
        "a clock jumped in {:.1} % of them, in {:.1} % while an answer was unknown\n",
        percent(tally.with_jumps),
        percent(tally.with_jumps_while_unknown)
    ));
    for checker in Checker::ALL {
        let (holds, measure) = checker.about();
        let count = tally.looked_at.get(&checker).copied().unwrap_or(0);
        text.push_str(&format!("{checker:<4}{count:>12} {measure}: {holds}\n"));
    }
    text
}
