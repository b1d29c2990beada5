//! Checks all models and hunts all mutants, shows how far it is, and prints two tables in Markdown.

use std::io::{IsTerminal as _, Write as _, stderr};

use anyhow::{Context as _, ensure};
use fence_model::catalogue::models;
use fence_model::check::Progress;
use fence_model::hunts::HUNTS;

fn main() -> anyhow::Result<()> {
    let mut failures = Vec::new();
    let mut total = Progress::default();
    println!("| model | bounds | states | unique states | depth | seconds |");
    println!("|---|---|--:|--:|--:|--:|");
    for model in models() {
        let (name, bounds) = (model.name, model.bounds.clone());
        let report = model.check(None, &mut |progress| show(name, progress));
        for (invariant, steps) in &report.broken {
            failures.push(format!("{name}: {invariant}: {}", steps.join(", ")));
        }
        for situation in &report.missed {
            failures.push(format!("{name}: never reached: {situation}"));
        }
        let Progress { states, unique, depth, took } = report.progress;
        println!(
            "| {name} | {bounds} | {states} | {unique} | {depth} | {:.1} |",
            took.as_secs_f64()
        );
        total.states += states;
        total.unique += unique;
        total.depth = total.depth.max(depth);
        total.took += took;
    }
    let Progress { states, unique, depth, took } = total;
    println!("| all | | {states} | {unique} | {depth} | {:.1} |", took.as_secs_f64());
    println!();
    println!("| mutant | caught by | breaks | unique states until found | steps |");
    println!("|---|---|---|--:|--:|");
    for hunt in HUNTS {
        let prey = hunt.prey().with_context(|| format!("no model {}", hunt.model))?;
        let report = prey.check(Some(hunt.breaks), &mut |progress| show(hunt.model, progress));
        let (mutant, unique) = (hunt.mutant, report.progress.unique);
        match report.broken.get(hunt.breaks) {
            Some(steps) => {
                let (model, breaks, steps) = (hunt.model, hunt.breaks, steps.len());
                println!("| {mutant:?} | {model} | {breaks} | {unique} | {steps} |");
            }
            None => failures.push(format!("{mutant:?} is not caught in {unique} states")),
        }
    }
    ensure!(failures.is_empty(), "\n{}", failures.join("\n"));
    Ok(())
}

/// Shows how far a run is, to whoever watches.
fn show(name: &str, progress: Progress) {
    let mut out = stderr();
    if out.is_terminal() {
        let Progress { states, unique, depth, .. } = progress;
        let _ = write!(out, "\r\x1b[K{name}: {states} states, {unique} unique, depth {depth}\r");
    }
}
