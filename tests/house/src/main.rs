//! Counts what the house rules are about, and holds the waits of the tests against their list.

mod count;
mod items;
mod lex;
mod place;
mod report;
mod tree;
mod waits;

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Counts lines, long files, doc comments, helpers of tests and waits.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Shows the differences to this commit as well.
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// Lists the doc comments that begin with none of a noun and a verb.
    #[arg(long)]
    docs: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the list of waits anew, with `?` for reasons that are yet to be given.
    Waits {
        /// Writes it to where it belongs instead.
        #[arg(long)]
        write: bool,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            // If nobody reads this either, the exit code must do.
            let _ = writeln!(io::stderr(), "fence-house: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns a failure if the list of waits is not as the tests are.
fn run(args: &Args) -> Result<ExitCode> {
    let sources = tree::here()?;
    let found = waits::find(&sources);
    let file = format!("{}/{}", tree::ROOT, waits::LIST);
    let list = fs::read_to_string(&file).with_context(|| format!("cannot read {}", waits::LIST))?;
    let list = waits::List::parse(&list)?;
    let mut out = io::stdout().lock();
    match args.command {
        Some(Command::Waits { write: true }) => {
            fs::write(file, list.renewed(&found))
                .with_context(|| format!("cannot write {}", waits::LIST))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Waits { write: false }) => {
            out.write_all(list.renewed(&found).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let now = count::count(&sources);
    let then = args.against.as_deref().map(tree::at).transpose()?.map(|then| count::count(&then));
    report::lines(&mut out, &now, then.as_ref())?;
    report::files(&mut out, &now)?;
    report::docs(&mut out, &now, then.as_ref(), args.docs)?;
    report::functions(&mut out, &now, then.as_ref())?;
    let faults = list.faults(&found);
    report::waits(&mut out, &list, &faults)?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
