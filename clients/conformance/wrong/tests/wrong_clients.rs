//! Each deliberately wrong Rust client against the scenarios that catch it.

use std::collections::BTreeSet;
use std::path::Path;

use fencegate_conformance::run::{self, Target};
use fencegate_conformance::{mutants, scenarios};
use futures::StreamExt as _;

/// How many are played at once.
const AT_ONCE: usize = 4;

fn target() -> Target {
    Target::new(env!("CARGO_BIN_EXE_wrong-driver"))
}

#[tokio::test]
async fn wrong_clients_are_caught() {
    let all = scenarios::all();
    let named = |name: &str| all.iter().find(|scenario| scenario.id == name).copied();
    let pairs = mutants::all().into_iter().flat_map(|mutant| {
        let by = mutant.caught_by.iter().filter_map(|name| named(name));
        by.map(|scenario| (mutant.name, scenario)).collect::<Vec<_>>()
    });
    let played = pairs.map(|(name, scenario)| async move {
        let outcome = run::play(&target().mutant(name), &scenario).await;
        (name, scenario.id, outcome.failed())
    });
    let outcomes: Vec<_> = futures::stream::iter(played).buffered(AT_ONCE).collect().await;
    let missed = outcomes.into_iter().filter(|(_, _, caught)| !caught);
    let missed: Vec<_> =
        missed.map(|(name, scenario, _)| format!("{name} by {scenario}")).collect();
    assert!(missed.is_empty(), "these wrong clients are not caught: {}", missed.join(", "));
}

/// A mistake that is in the code but not in the table would be seen by nobody.
#[test]
fn every_mistake_is_in_the_table() {
    let mut found = BTreeSet::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/patches")), &mut found);
    let known: BTreeSet<_> = mutants::all().iter().map(|mutant| mutant.name.to_owned()).collect();
    assert_eq!(found, known);
}

/// The names in the patches of a folder.
fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the patches") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).expect("text");
            let names = text.split("mutants::is(\"").skip(1);
            found.extend(names.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}
