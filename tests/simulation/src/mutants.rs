//! Mutants in the simulation: each is switched on for seed after seed until the checkers notice. A checker
//! that never failed has proved nothing.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
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

/// Switches on each mutant that is wanted for at most so many seeds, those first that are known to catch it, and tells of
/// each in a line.
pub fn catch_all(
    wanted: impl Fn(Mutant) -> bool,
    known: &BTreeMap<String, u64>,
    seeds_max: u64,
    threads: usize,
    tell: impl Fn(String),
) -> Vec<Caught> {
    let caught = |(mutant, what): &(Mutant, &'static str)| {
        let known = known.get(&format!("{mutant:?}")).copied();
        let one = catch(*mutant, what, known, seeds_max, threads);
        tell(match &one.by {
            Some((by, seed)) => format!("{mutant:?}: noticed on seed {seed} by {by}"),
            None => format!("{mutant:?}: NOT CAUGHT in {seeds_max} seeds"),
        });
        one
    };
    Mutant::ALL.iter().filter(|(mutant, _)| wanted(*mutant)).map(caught).collect()
}

/// Switches on a mutant for the seed that is known to catch it, and then for at most so many.
pub fn catch(
    mutant: Mutant,
    what: &'static str,
    known: Option<u64>,
    seeds_max: u64,
    threads: usize,
) -> Caught {
    let known = known.map(|seed| seed..seed + 1);
    let by = known.into_iter().chain(iter::once(1..seeds_max + 1)).find_map(|range| {
        let tally = seeds(range, Some(mutant), threads, 1, |_| {});
        tally.failures.first().map(|failure| (failure.found_by(), failure.seed))
    });
    Caught { mutant, what, by }
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

/// Which seed caught which mutant when the table of a page was written.
///
/// # Errors
/// A page that cannot be read.
pub fn read_table(page: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let table = text.split(BEGIN).nth(1).and_then(|rest| rest.split(END).next());
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let mutant = cells.get(1)?.trim_matches('`').to_owned();
        Some((mutant, cells.get(4)?.parse().ok()?))
    };
    Ok(table.into_iter().flat_map(str::lines).filter_map(row).collect())
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
