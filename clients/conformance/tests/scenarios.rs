//! All scenarios against the Rust client.

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
