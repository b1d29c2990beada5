//! Mutants in the simulation: each is switched on for seed after seed until the checkers notice. A checker
//! that never failed has proved nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fence_core::mutants::Mutant;

use crate::seeds::seeds;

/// How many seeds a mutant has before it counts as not caught.
pub const SEEDS_MAX: u64 = 2000;

/// What became of a mutant.
pub struct Caught {
    /// The mutant.
    pub mutant: Mutant,
    /// What it does.
    pub what: &'static str,
    /// Who noticed and on which seed, counted from 1; `None` if nobody did.
    pub by: Option<(String, u64)>,
}

/// Switches on each mutant that is wanted for at most so many seeds, and tells of each in a line.
pub fn catch_all(
    wanted: impl Fn(Mutant) -> bool,
    seeds_max: u64,
    threads: usize,
    tell: impl Fn(String),
) -> Vec<Caught> {
    let caught = |(mutant, what): &(Mutant, &'static str)| {
        let one = catch(*mutant, what, seeds_max, threads);
        tell(match &one.by {
            Some((by, seed)) => format!("{mutant:?}: noticed on seed {seed} by {by}"),
            None => format!("{mutant:?}: NOT CAUGHT in {seeds_max} seeds"),
        });
        one
    };
    Mutant::ALL.iter().filter(|(mutant, _)| wanted(*mutant)).map(caught).collect()
}

/// Switches on a mutant for at most so many seeds.
pub fn catch(mutant: Mutant, what: &'static str, seeds_max: u64, threads: usize) -> Caught {
    let tally = seeds(1..seeds_max + 1, Some(mutant), threads, 1, |_| {});
    let first = tally.failures.first();
    Caught { mutant, what, by: first.map(|failure| (failure.found_by(), failure.seed)) }
}

const BEGIN: &str = "<!-- mutants:begin -->";
const END: &str = "<!-- mutants:end -->";

/// A table of mutants for people.
pub fn table(caught: &[Caught]) -> String {
    let mut lines = vec![
        "| mutant | what it does | noticed by | on seed |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for Caught { mutant, what, by } in caught {
        let (checker, seed) = match by {
            Some((checker, seed)) => (checker.as_str(), seed.to_string()),
            None => ("nobody", "-".into()),
        };
        lines.push(format!("| `{mutant:?}` | {what} | {checker} | {seed} |"));
    }
    lines.join("\n")
}

/// Puts a table between the marks of a page.
///
/// # Errors
/// A page that cannot be read or written, or has no marks.
pub fn write_table(page: &Path, table: &str) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        rest.split_once(END).map(|(_, after)| format!("{before}{BEGIN}\n{table}\n{END}{after}"))
    });
    ensure!(parts.is_some(), "{} has no place for the table: {BEGIN} ... {END}", page.display());
    fs::write(page, parts.unwrap_or_default())?;
    Ok(())
}
