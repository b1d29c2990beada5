//! All scenarios against the Rust client, and each deliberately wrong Rust client against a scenario that catches it.

use fencegate_conformance::mutants;
use fencegate_conformance::run::{self, Outcome, Target};
use fencegate_conformance::scenarios;
use futures::StreamExt as _;

/// How many are played at once.
const AT_ONCE: usize = 4;

fn target() -> Target {
    Target::new(env!("CARGO_BIN_EXE_rust-driver"))
}

#[tokio::test]
async fn the_rust_client_passes() {
    let (target, all) = (target(), scenarios::all());
    let mut failed = Vec::new();
    let mut outcomes = std::pin::pin!(run::all(&target, &all, AT_ONCE));
    while let Some((scenario, outcome)) = outcomes.next().await {
        if let Outcome::Failed(failure) = outcome {
            failed.push(format!("{}: {}\n{}", scenario.id, failure.why, failure.errors));
        }
    }
    assert!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n"));
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
