//! Chaos: real servers, real clients, and everything that can go wrong with them; what callers were told is
//! judged against what the ledger holds in the end.
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own: it reads real clocks and makes real ids"
)]

mod book;
mod client;
mod clock;
mod crew;
mod crowd;
mod database;
mod driven;
mod faults;
mod ledger;
mod line;
mod mutants;
mod newer;
mod patroni;
mod payload;
mod report;
mod rules;
mod run;
mod s3;
mod scene;
mod schedules;
mod site;
mod steady;
mod upgrade;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand, ValueEnum as _};

use crate::faults::Fault;
use crate::run::Plan;
use crate::site::Patroni;

/// Breaks real servers under a Fencegate, and judges what its callers were told.
#[derive(Parser)]
#[command(name = "fence-chaos")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything, break it for a while, and judge
    ///
    /// Exits with 0 if everything held, with 1 if anything is violated or service was not back within 30 s,
    /// and with 2 if the run could not be made.
    Run {
        /// For how long faults go on; at least until each kind was there once
        #[arg(long, default_value_t = 3.0)]
        minutes: f64,
        /// From which faults are drawn; by chance, if not said
        #[arg(long)]
        seed: Option<u64>,
        /// Also judge whether callers at a steady pace get as much done as before within 10 s of each fault; for a
        /// quiet machine
        #[arg(long)]
        goodput: bool,
        /// Let Patroni run Postgres, installed from the registry of Python unless it is there, and tell the gateways
        /// this of its failovers; its events are among the faults then, and what it does by itself is not
        #[arg(long, value_name = "FAILOVER")]
        patroni: Option<patroni::Failover>,
        /// Where Patroni is installed, if it is not there yet
        #[arg(long, default_value = "target/tools")]
        tools: PathBuf,
        /// Only these kinds, with commas between them; `faults` lists them
        #[arg(long, value_delimiter = ',')]
        faults: Vec<Fault>,
        /// Where the history, the report and the logs are kept
        #[arg(long, default_value = "target/chaos")]
        out: PathBuf,
        /// Let a client library call instead of our own client processes, by this command of its driver, which is
        /// given `--real-time` besides; it speaks the protocol of `clients/conformance/README.md`
        ///
        /// Three of them run, each in a dozen stories at a time; they are killed and stand still like any process.
        /// Outcomes that are unknown to them are found out once nothing is broken; exits with 1 as well if one stays
        /// unknown, or if a guard says that it is held after somebody else was granted its lock.
        #[arg(long, value_name = "CMD")]
        client: Option<String>,
        /// Let a wall clock jump with every fault that leaves room for it, that of Postgres, too, by a minute, an hour or a
        /// year; no upstream is promised then to be done with a request by a time
        #[arg(long, conflicts_with = "patroni")]
        clocks: bool,
        /// Without rules of access; otherwise callers have keys, and an administrator puts other rules in force again
        /// and again, which deny some of them everything; with `--client` and `--patroni` there are none anyway
        #[arg(long)]
        open: bool,
        /// Let every second gateway be this program, as `newer-gateway` builds it: one with other, newer acts
        ///
        /// In the end the older gateways are stopped, but for one that is forgotten, and the newer one's `migrate
        /// --retire-older` drops their acts. Exits with 1 as well if anything is left of those, if an older gateway
        /// still grants or starts, or a newer one does not grant and write, and if no verdict was told that only the
        /// newer acts have.
        #[arg(long, value_name = "BINARY")]
        newer_gateway: Option<PathBuf>,
        /// Make a function of the ledger wrong, to see that it is noticed; `mutants` lists them
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Go through switchovers, restarts and kills of a Postgres that Patroni runs, and judge
    ///
    /// Installs Patroni, from the registry of Python, unless it is there. Exits as `run` does; with `lossless`
    /// no token may be void, without it all must be.
    Patroni(patroni::Plan),
    /// Ask the ledger on Postgres alone, in many sessions at random, while its processes stand still, are cancelled
    /// and are ended, and judge
    ///
    /// Exits with 0 if everything held, with 1 if anything is violated, and with 2 if the run could not be made.
    Schedules(schedules::Plan),
    /// Build a gateway of a version after this one, with other acts, from a changed copy of the sources; print its path
    ///
    /// For `run --newer-gateway`. Runs in a clone of the repository.
    NewerGateway(newer::Build),
    /// List the kinds of faults
    Faults,
    /// List the mutants
    Mutants,
    /// Live as a client process
    #[command(hide = true)]
    Client(client::Settings),
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Cli::parse().command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

async fn carry_out(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Client(settings) => client::live(settings).await,
        Command::Patroni(plan) => {
            let report = patroni::run(&plan).await?;
            print!("\n{report}");
            println!("\nhistory, report and logs: {}", plan.out.display());
            return Ok(report.is_clean());
        }
        Command::Schedules(plan) => {
            let Some(report) = schedules::run(&plan).await? else { return Ok(true) };
            print!("\n{report}");
            return Ok(report.is_clean());
        }
        Command::NewerGateway(plan) => println!("{}", newer::build(&plan)?.display()),
        Command::Faults => {
            for fault in Fault::value_variants() {
                let value = fault.to_possible_value();
                let about = value.as_ref().and_then(|value| value.get_help());
                println!("{fault:<20} {}", about.map(ToString::to_string).unwrap_or_default());
                if let Some(why) = fault.unavailable() {
                    println!("{:<20} not on this machine: {why}", "");
                }
            }
        }
        Command::Mutants => {
            for mutant in mutants::ALL {
                println!("{:<26} {}", mutant.name, mutant.what);
            }
        }
        Command::Run {
            minutes,
            seed,
            goodput,
            patroni,
            tools,
            faults,
            out,
            client,
            clocks,
            open,
            newer_gateway,
            mutant,
        } => {
            ensure!((0.0..=1000.0).contains(&minutes), "--minutes is between 0 and 1000");
            for fault in &faults {
                let so = if patroni.is_some() { "with" } else { "without" };
                ensure!(fault.happens(patroni.is_some()), "{fault} does not happen {so} --patroni");
                ensure!(clocks || !fault.is_of_clocks(), "{fault} only happens with --clocks");
            }
            let find = |name: String| {
                let found = mutants::ALL.iter().find(|mutant| mutant.name == name);
                found.with_context(|| format!("no mutant is named {name:?}"))
            };
            let all = || Fault::value_variants().to_vec();
            let plan = Plan {
                lasts: Duration::from_secs_f64(minutes * 60.0),
                seed: seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
                goodput,
                faults: if faults.is_empty() { all() } else { faults },
                out,
                patroni: patroni.map(|failover| Patroni { tools, failover }),
                mutant: mutant.map(find).transpose()?,
                client,
                clocks,
                open,
                newer: newer_gateway,
            };
            let report = run::run(&plan).await?;
            print!("\n{report}");
            println!("\nhistory, report and logs: {}", plan.out.display());
            return Ok(report.is_clean());
        }
    }
    Ok(true)
}
