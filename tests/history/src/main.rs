//! `fence-history`: judges a recorded history from the command line.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use fence_history::{History, Record, Report, check};

/// Judges what callers of a Fencegate were told against what its ledger holds.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs all checkers over a history, and says what is violated and what they looked at.
    ///
    /// Exits with 0 if nothing is wrong, 1 if anything is violated, and 2 if the file cannot be read
    /// or is no history: moments out of order, a client that asks two things at once, numbers of calls
    /// or values that are not unique.
    Check {
        /// One record per line, as JSON; `-` reads from standard input.
        file: PathBuf,
        /// Print the report as JSON instead of words.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let Args { command: Command::Check { file, json } } = Args::parse();
    match judge(&file, json) {
        Ok(report) if !report.malformed.is_empty() => ExitCode::from(2),
        Ok(report) if report.is_clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // If nobody reads this either, the exit code must do.
            let _ = writeln!(io::stderr(), "fence-history: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn judge(file: &Path, json: bool) -> Result<Report> {
    let name = file.display();
    let from: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(file).with_context(|| format!("cannot open {name}"))?),
    };
    let history =
        History::read(BufReader::new(from)).with_context(|| format!("cannot read {name}"))?;
    let calls = history.records.iter().filter(|record| matches!(record, Record::Call(_))).count();
    ensure!(calls > 0, "{name} holds no calls, so that it shows nothing");
    let report = check(&history);
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(report)
}
