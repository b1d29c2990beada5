//! C1, C2, C3: versions, tokens and sequence numbers in the ledger.

use fence_history::Checker;

use super::{begun, clean, numbered, only};
use crate::build::*;

#[test]
fn c1_finds_a_gap_and_a_repeat() {
    for version in [3, 1] {
        let mut story = begun();
        // Nobody was told, so that it is only the ledger that is wrong.
        story.begin(2, put(10, "v2"));
        story.committed(2, 10, version, "v2");
        only(&story, Checker::C1);
    }
}

#[test]
fn c1_finds_what_the_old_line_took_after_the_ledger_went_back() {
    let mut story = begun();
    story.rollback(0, 1);
    story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    only(&story, Checker::C1);
}

#[test]
fn c1_finds_a_put_without_a_version() {
    let mut story = begun();
    story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    story.last_line().version = None;
    only(&story, Checker::C1);
}

#[test]
fn c2_finds_a_token_that_falls() {
    let mut story = begun();
    // The answer to this grant was lost, and it knows of no version.
    story.begin(2, acquire(2));
    story.sealed(20, 2);
    story.begin(3, put(20, "v2"));
    story.committed(2, 20, 2, "v2");
    story.write(3, 10, 3);
    only(&story, Checker::C2);
}

#[test]
fn c3_finds_a_sequence_number_that_falls_or_repeats() {
    for second in [4, 5] {
        let mut story = begun();
        numbered(&mut story, 2, 2, 5);
        numbered(&mut story, 3, 3, second);
        only(&story, Checker::C3);
    }
}

#[test]
fn c3_finds_it_among_deletes_of_nothing() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    for (operation, sequence) in [(1, 5), (2, 4)] {
        story.call(changing(10, delete()), told(operation, None, 0, false));
        story.last_write().sequence = Some(sequence);
        story.line(operation, 10, None, delete());
        story.last_line().sequence = Some(sequence);
    }
    only(&story, Checker::C3);
}

#[test]
fn c1_finds_that_less_is_there_than_was_kept() {
    let mut story = begun();
    story.rollback(0, 2);
    only(&story, Checker::C1);
    let mut story = Story::default();
    story.grant(1, 10, 0);
    story.rollback(0, 1);
    only(&story, Checker::C1);
}

#[test]
fn c1_lets_a_ledger_go_back_beyond_an_earlier_rollback() {
    let mut story = begun();
    story.call(put(10, "v2"), written(2, 2));
    story.rollback(0, 2);
    story.rollback(1, 1);
    story.grant(2, 1_000, 1);
    story.call(put(1_000, "v3"), told(3, Some(2), 2, false));
    story.committed(3, 1_000, 2, "v3");
    story.last_line().generation = 2;
    clean(&story);
}

#[test]
fn c3_finds_it_though_nobody_was_told() {
    let mut story = begun();
    for (operation, version, sequence) in [(2, 2, 5), (3, 3, 4)] {
        let value = format!("v{operation}");
        story.begin(u32::try_from(operation).unwrap(), put(10, &value));
        story.last_write().sequence = Some(sequence);
        story.committed(operation, 10, version, &value);
        story.last_line().sequence = Some(sequence);
    }
    only(&story, Checker::C3);
}
