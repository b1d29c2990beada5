//! Seeds of the simulation: none breaks the promise, each gives the same history whenever it is run, and
//! every mutant is noticed.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::Path;
use std::thread::available_parallelism;

use fence_history::Checker;
use fence_simulation::mutants::{SEEDS_MAX, catch_all, read_table};
use fence_simulation::run::{THREAD, run};
use fence_simulation::seeds::seeds;

/// The number of seeds in the ordinary tests; `make long` runs 100,000, by `cargo run -p fence-simulation -- run`.
const SEEDS: u64 = 200;

fn threads() -> usize {
    available_parallelism().unwrap().get()
}

#[test]
fn no_seed_breaks_the_promise() {
    let tally = seeds(1..SEEDS + 1, None, threads(), 5, |_| {});
    let failures: Vec<String> = tally.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.concat());
    assert_eq!(tally.seeds, SEEDS);
    let (jumps, in_gaps) = (tally.with_jumps, tally.with_jumps_while_unknown);
    assert!(jumps * 10 >= SEEDS * 9, "a clock jumped in {jumps} of {SEEDS}");
    assert!(in_gaps * 10 >= SEEDS, "while an answer was unknown in {in_gaps} of {SEEDS}");
    // A checker that looked at nothing has shown nothing.
    for checker in Checker::ALL {
        let looked_at = tally.looked_at.get(&checker).copied().unwrap_or(0);
        assert!(looked_at >= SEEDS / 2, "{checker} looked at {looked_at}");
    }
}

/// A token of a grant that was let go before an older one was refused in it as one that was never granted.
#[test]
fn a_seed_that_failed_once_passes() {
    let tally = seeds(989..990, None, 1, 1, |_| {});
    let failures: Vec<String> = tally.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.concat());
}

#[test]
fn the_same_seed_gives_the_same_history_byte_for_byte() {
    let text = |seed: u64| {
        let mut text = Vec::new();
        run(seed, None).history.write(&mut text).unwrap();
        text
    };
    // In a thread of its own whatever is random by thread is random anew.
    let in_a_thread = move |seed: u64| {
        let named = std::thread::Builder::new().name(format!("{THREAD}-again"));
        named.spawn(move || text(seed)).unwrap().join().unwrap()
    };
    for seed in 1..=20 {
        let (one, other) = (in_a_thread(seed), in_a_thread(seed));
        assert!(one.len() > 1000, "seed {seed} did nothing");
        assert!(one == other, "seed {seed} went another way the second time");
    }
}

#[test]
fn every_mutant_is_noticed() {
    // The seeds that the page has are tried first: one that has come to do something else costs time, and no mutant.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proof.md");
    let known = read_table(Path::new(page)).unwrap();
    assert!(known.len() > 30, "the page has {} seeds", known.len());
    let caught = catch_all(|_| true, &known, SEEDS_MAX, threads(), |line| println!("{line}"));
    let missed: Vec<_> =
        caught.iter().filter(|one| one.by.is_none()).map(|one| one.mutant).collect();
    assert_eq!(missed, []);
}
