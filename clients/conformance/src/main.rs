//! `fencegate-conformance`: judges the client libraries by scenarios.

use std::collections::HashSet;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use fencegate_conformance::mutants::{self, Mutant};
use fencegate_conformance::run::{self, Outcome, Target};
use fencegate_conformance::scenarios::{self, Scenario};
use futures::StreamExt as _;

/// Judges client libraries of Fencegate by what they send and what they tell.
#[derive(Parser)]
#[command(name = "fencegate-conformance")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the scenarios, the rules they are about, and what must hold
    List,
    /// Play scenarios against a driver; exits with 1 if one fails
    Run {
        #[command(flatten)]
        with: With,
        /// Print what went to and fro in scenarios that fail
        #[arg(long)]
        trace: bool,
    },
    /// Play them against deliberately wrong clients; exits with 1 if one is caught by none
    ///
    /// It does so, too, if a scenario catches none. Each wrong client is played the scenarios that are known to catch it.
    Mutants {
        #[command(flatten)]
        with: With,
        /// Only these wrong clients
        #[arg(long, value_delimiter = ',')]
        mutant: Vec<String>,
        /// Play each of them all scenarios, which takes hours, and say which catch it
        #[arg(long)]
        all: bool,
    },
}

/// What is played against what.
#[derive(clap::Args)]
struct With {
    /// The command line of the driver
    #[arg(long)]
    driver: String,
    /// Only scenarios whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How many are played at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

impl With {
    fn scenarios(&self) -> Result<Vec<Scenario>> {
        let all = scenarios::all();
        let wanted =
            |id: &str| self.only.is_empty() || self.only.iter().any(|only| id.starts_with(only));
        let chosen: Vec<_> = all.into_iter().filter(|scenario| wanted(scenario.id)).collect();
        ensure!(!chosen.is_empty(), "there is no such scenario");
        Ok(chosen)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let good = match Cli::parse().command {
        Command::List => {
            list();
            true
        }
        Command::Run { with, trace } => run(&with, trace).await?,
        Command::Mutants { with, mutant, all } => judge(&with, &mutant, all).await?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn rules(scenario: &Scenario) -> String {
    let rules: Vec<_> = scenario.rules.iter().map(|rule| format!("CC{rule}")).collect();
    rules.join(" ")
}

fn list() {
    let all = scenarios::all();
    for scenario in &all {
        println!("{:30} {:24} {}", scenario.id, rules(scenario), scenario.why);
    }
    println!("{} scenarios", all.len());
}

async fn run(with: &With, trace: bool) -> Result<bool> {
    let (target, chosen) = (Target::new(&with.driver), with.scenarios()?);
    let mut outcomes = std::pin::pin!(run::all(&target, &chosen, with.jobs));
    let (mut passed, mut skipped, mut failed) = (0, 0, 0);
    while let Some((scenario, outcome)) = outcomes.next().await {
        let (mark, count) = match &outcome {
            Outcome::Passed => ("pass", &mut passed),
            Outcome::Skipped(_) => ("skip", &mut skipped),
            Outcome::Failed(_) => ("FAIL", &mut failed),
        };
        *count += 1;
        println!("{mark}  {:30} {:24} {}", scenario.id, rules(scenario), scenario.why);
        match outcome {
            Outcome::Passed => {}
            Outcome::Skipped(why) => println!("      {why}"),
            Outcome::Failed(failure) => {
                println!("      {}", failure.why);
                let told = failure.trace.iter().filter(|_| trace);
                told.for_each(|line| println!("        {line}"));
                if !failure.errors.is_empty() {
                    println!("        standard error: {}", failure.errors.trim_end());
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

async fn judge(with: &With, names: &[String], all: bool) -> Result<bool> {
    let (target, chosen) = (Target::new(&with.driver), with.scenarios()?);
    let wanted =
        |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| name == mutant.name);
    let mutants = mutants::all();
    let mutants: Vec<_> = mutants.iter().filter(wanted).collect();
    ensure!(!mutants.is_empty(), "there is no such wrong client");
    let mut lazy: HashSet<_> = chosen.iter().map(|scenario| scenario.id).collect();
    let (mut good, mut tried) = (true, 0);
    for mutant in &mutants {
        let against = |scenario: &&Scenario| all || mutant.caught_by.contains(&scenario.id);
        let against: Vec<_> = chosen.iter().filter(against).copied().collect();
        if against.is_empty() {
            continue;
        }
        tried += 1;
        let target = target.mutant(mutant.name);
        let outcomes: Vec<_> = run::all(&target, &against, with.jobs).collect().await;
        let by = outcomes.iter().filter(|(_, outcome)| outcome.failed());
        let by: Vec<_> = by.map(|(scenario, _)| scenario.id).collect();
        // One that is skipped can catch nothing.
        let over = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
        for (scenario, _) in over {
            lazy.remove(scenario.id);
        }
        good &= !by.is_empty() || outcomes.iter().all(|(_, outcome)| outcome.skipped());
        let told = if by.is_empty() { "NO SCENARIO".to_owned() } else { by.join(" ") };
        println!("{:26} {}\n{:26} caught by {told}", mutant.name, mutant.does, "");
    }
    println!("{tried} wrong clients, {} scenarios", chosen.len());
    if !lazy.is_empty() && names.is_empty() {
        let mut lazy: Vec<_> = lazy.into_iter().collect();
        lazy.sort_unstable();
        println!("these scenarios catch none: {}", lazy.join(" "));
        good = false;
    }
    Ok(good)
}
