//! The same random acts on a ledger and on the reference in memory: every verdict and every view
//! must be the same.

use std::collections::BTreeMap;

use fence_core::ports::Ledger;

use super::compare::{carry_out, everything, standing};
use super::moves::{Move, Mover};
use crate::conformance::{memory_ledger, pause};

/// Acts of one run.
const MOVES: usize = 300;
/// Everything is compared after so many acts, and at the end.
const LOOK: usize = 60;

/// How often each kind of verdict was given.
pub type Tally = BTreeMap<String, usize>;

/// What the runs must have come across, or they would say little. What is rarer has cases of its own.
const KINDS: &str = "Waiting Free Full Queued Left sealed again held NumberTooLow \
    Conflict NotFound AlreadyEnded NotHeld NoFence OrderStale HoldExceeded Buried KeyReused \
    marked unchanged frozen renewed released broken breaking applied replayed stale \
    Ended(Superseded) Ended(Released) Ended(Broken) Refused(Unknown) Refused(Released) \
    Refused(Broken) Refused(LockIdMismatch) Refused(SequenceOutOfOrder) Refused(VersionMismatch) \
    Refused(Frozen) Refused(Protected) Refused(Draining) drains draining Admitted closed \
    Refused(Foreign) RulesMoved InForce resolved committed not-committed UploadExpired Begun swept-blobs \
    Stored Overtaken Expired NoUpload Aborted PartsDiffer listed";

/// How many runs there are at least; and at most, if some kind of verdict is rare among their seeds.
pub const RUNS: std::ops::RangeInclusive<usize> = 20..=80;

/// The kinds that no run has come across: nothing was compared of them.
pub fn kinds_missing(tallies: &[Tally]) -> Vec<&'static str> {
    let has_come = |kind: &str| tallies.iter().any(|tally| tally.contains_key(kind));
    KINDS.split_whitespace().filter(|kind| !has_come(kind)).collect()
}

/// The word that a verdict begins with, and whether it was a replay.
fn kind(line: &str) -> String {
    if line.ends_with("replayed true") {
        return "replayed".into();
    }
    if line.ends_with(" rows") {
        return "swept".into();
    }
    // `Left([..])` holds names, `InForce(..)` a number, `Ended(..)` a word that counts.
    let word = line.split(' ').next().unwrap_or_default();
    let held = ["Left(", "InForce("].into_iter().find(|held| word.starts_with(held));
    held.map_or(word, |held| held.trim_end_matches('(')).to_owned()
}

/// One run. A difference names the seed and the act.
pub async fn acts_have_the_same_outcome_as_in_memory(ledger: &dyn Ledger, seed: u64) -> Tally {
    let memory = memory_ledger();
    let mut tally = Tally::new();
    let mut mover = Mover::new(seed);
    let mut history: Vec<String> = Vec::new();
    for number in 1..=MOVES {
        let what = mover.next(&standing(&memory).await);
        let expected = carry_out(&memory, &what).await;
        let found = carry_out(ledger, &what).await;
        if expected != found {
            let expected = numbered(&expected);
            let found = numbered(&found);
            let earlier = history.iter().rev().take(3).rev();
            panic!(
                "seed {seed}, act {number}: {what:#?}\nin memory: {expected}\nhere: {found}\n\
                 before it: {:#?}",
                earlier.collect::<Vec<_>>()
            );
        }
        for line in found.iter().flatten() {
            *tally.entry(kind(line)).or_default() += 1;
        }
        history.push(format!("{what:?} => {found:?}"));
        // Locks with the shortest ttl have expired by the next act, on every clock; and of two uploads one began first.
        if !matches!(what, Move::Commit(_) | Move::CommitMany(_) | Move::List(_)) {
            pause(4).await;
        }
        if number % LOOK == 0 || number == MOVES {
            let (locks, operations) = mover.known();
            let expected = everything(&memory, locks, &operations, mover.uploads()).await;
            let found = everything(ledger, locks, &operations, mover.uploads()).await;
            for (expected, found) in expected.iter().zip(&found) {
                let since = history.iter().rev().take(LOOK).rev();
                assert_eq!(
                    expected,
                    found,
                    "seed {seed}, after act {number}: {:#?}",
                    since.collect::<Vec<_>>()
                );
            }
            assert_eq!(expected.len(), found.len(), "seed {seed}, after act {number}");
        }
    }
    tally
}

fn numbered(outcome: &Result<Vec<String>, String>) -> String {
    match outcome {
        Err(error) => error.clone(),
        Ok(lines) => {
            let numbered = lines.iter().enumerate().map(|(i, line)| format!("\n  {i}: {line}"));
            numbered.collect()
        }
    }
}
