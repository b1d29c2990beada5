//! Histories by hand: one that is right and touches all, and for each way of being wrong one that
//! exactly one checker finds.

use fence_history::{Answer, Asked, Change, Checker, HEALED_WITHIN_US, Outcome, check};

use crate::build::*;

/// One grant and one write, both told, before a story goes wrong.
fn begun() -> Story {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    story.write(1, 10, 1);
    story
}

#[track_caller]
fn only(story: &Story, checker: Checker) {
    let (violated, report) = story.violated();
    assert_eq!(violated, [checker], "{report}");
}

#[track_caller]
fn clean(story: &Story) {
    let (violated, report) = story.violated();
    assert!(violated.is_empty(), "{report}");
}

fn keyed(story: &mut Story, key: &str) {
    story.last_write().idempotency_key = Some(key.into());
}

fn keyed_line(story: &mut Story, key: &str) {
    story.last_line().idempotency_key = Some(key.into());
}

fn numbered(story: &mut Story, operation: u128, version: i64, sequence: i64) {
    story.write(operation, 10, version);
    story.last_write().sequence = Some(sequence);
    story.last_line().sequence = Some(sequence);
}

/// A set is replaced under token 10 by operation and version of the same number.
fn adds(story: &mut Story, version: i64, value: &str, number: u64) {
    let operation = u128::from(version.unsigned_abs());
    story.call(changing(10, add(value, number)), written(operation, version));
    story.line(operation, 10, Some(version), add(value, number));
}

#[test]
fn a_right_history_touches_every_checker_and_violates_none() {
    let mut story = begun();
    story.call(acquire(1), again(1, 10, 1));
    numbered(&mut story, 2, 2, 1);
    numbered(&mut story, 3, 3, 5);
    story.read(3, Some((3, "v3")));
    story.call(put(10, "v4"), unknown(4));
    keyed(&mut story, "key");
    let late = story.begin(2, Asked::Release { lock: id(1) });
    story.committed(4, 10, 4, "v4");
    keyed_line(&mut story, "key");
    story.end(late, Answer::Done);
    story.call(ask(4), outcome(Outcome::Applied));
    story.call(Asked::Forward { resource: "r".into(), token: 10 }, Answer::Forwarded);
    story.effect(10);
    story.healed();
    story.grant(2, 20, 4);
    story.call(put(20, "v4"), told(4, Some(4), 0, true));
    keyed(&mut story, "key");
    story.call(put(10, "late"), refused("fence-token-stale"));
    story.write(5, 20, 5);
    story.call(changing(20, delete()), written(6, 6));
    story.line(6, 20, Some(6), delete());
    story.call(changing(20, delete()), told(7, None, 0, false));
    story.line(7, 20, None, delete());
    story.read(6, None);
    story.call(changing(20, add("1", 1)), written(8, 7));
    story.line(8, 20, Some(7), add("1", 1));
    story.call(changing(20, add("1 2", 2)), written(9, 8));
    story.line(9, 20, Some(8), add("1 2", 2));
    let report = check(&story.history());
    assert!(report.is_clean(), "{report}");
    for checker in Checker::ALL {
        assert!(report.looked_at[&checker] > 0, "{checker} saw nothing:\n{report}");
    }
}

#[test]
fn a_rollback_explains_losses() {
    let mut story = begun();
    story.call(put(10, "lost"), written(2, 2));
    story.read(2, Some((2, "lost")));
    story.call(acquire(2), granted(2, 20, 2));
    story.rollback(0, 1);
    story.read(1, Some((1, "v1")));
    story.grant(3, 1_000, 1);
    story.call(put(1_000, "v3"), told(3, Some(2), 1, false));
    story.committed(3, 1_000, 2, "v3");
    story.last_line().generation = 1;
    clean(&story);
}

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
fn c4_finds_a_write_that_a_grant_did_not_know_of() {
    let mut story = begun();
    let late = story.begin(2, put(10, "v2"));
    story.grant(2, 20, 1);
    story.end(late, written(2, 2));
    story.committed(2, 10, 2, "v2");
    only(&story, Checker::C4);
}

#[test]
fn c4_holds_what_is_said_again_against_the_first() {
    let mut story = begun();
    let late = story.begin(2, put(10, "v2"));
    story.grant(2, 20, 1);
    story.end(late, written(2, 2));
    story.committed(2, 10, 2, "v2");
    story.call(acquire(2), again(2, 20, 2));
    only(&story, Checker::C4);
    // With the first answer lost, the second is right.
    let mut story = begun();
    let late = story.begin(2, put(10, "v2"));
    story.begin(1, acquire(2));
    story.sealed(20, 2);
    story.end(late, written(2, 2));
    story.committed(2, 10, 2, "v2");
    story.call(acquire(2), again(2, 20, 2));
    clean(&story);
}

#[test]
fn c4_finds_a_late_writer_though_its_write_was_lost() {
    let mut story = begun();
    story.grant(2, 20, 1);
    story.call(put(10, "v2"), written(2, 2));
    story.rollback(0, 1);
    only(&story, Checker::C4);
}

#[test]
fn c5_finds_a_write_that_is_not_there() {
    let mut story = begun();
    story.call(put(10, "v2"), written(2, 2));
    only(&story, Checker::C5);
    // A rollback that kept it is no excuse; nor is one of before.
    story.rollback(0, 1);
    clean(&story);
    let mut story = begun();
    story.rollback(0, 1);
    story.grant(2, 20, 1);
    story.call(put(20, "v2"), told(2, Some(2), 1, false));
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_write_that_is_there_otherwise() {
    let changes: [fn(&mut Story); 3] = [
        |story| story.last_line().sequence = Some(9),
        |story| story.last_line().idempotency_key = Some("other".into()),
        |story| story.last_line().operation = id(9),
    ];
    for change in changes {
        let mut story = begun();
        story.write(2, 10, 2);
        change(&mut story);
        only(&story, Checker::C5);
    }
}

#[test]
fn c5_finds_a_write_that_was_denied() {
    for answer in [refused("fence-token-stale"), Answer::Failed { code: "overloaded".into() }] {
        let mut story = begun();
        story.call(put(10, "v2"), answer);
        story.committed(2, 10, 2, "v2");
        only(&story, Checker::C5);
    }
}

#[test]
fn c5_lets_another_attempt_under_the_same_key_be_the_one() {
    let mut story = begun();
    story.begin(2, put(10, "v2"));
    keyed(&mut story, "key");
    story.begin(1, acquire(2));
    story.sealed(20, 2);
    story.call(put(20, "v2"), Answer::Failed { code: "overloaded".into() });
    keyed(&mut story, "key");
    story.committed(2, 10, 2, "v2");
    keyed_line(&mut story, "key");
    clean(&story);
    // But not if the one that failed is the one that is there.
    story.last_line().token = 20;
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_write_that_nobody_asked_for() {
    let mut story = begun();
    story.line(2, 10, Some(2), delete());
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_two_effects_of_one_delete() {
    let mut story = begun();
    story.begin(2, changing(10, Change::DeleteAll));
    for (operation, version) in [(2, 2), (3, 3)] {
        story.line(operation, 10, Some(version), Change::DeleteAll);
    }
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_forged_token_that_was_admitted() {
    let mut story = begun();
    story.write(2, 10, 2);
    story.last_write().forged = true;
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_condition_that_did_not_hold() {
    let mut story = begun();
    story.write(2, 10, 2);
    story.last_write().if_version = Some(0);
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_outcomes_that_are_not_so() {
    let mut story = begun();
    story.call(ask(1), outcome(Outcome::Buried));
    only(&story, Checker::C5);
    let mut story = begun();
    story.call(put(10, "v2"), unknown(2));
    story.call(ask(2), outcome(Outcome::Applied));
    only(&story, Checker::C5);
    let mut story = begun();
    story.call(ask(1), outcome(Outcome::NotKnown));
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_an_operation_that_was_applied_and_buried() {
    let mut story = begun();
    story.call(put(10, "v2"), unknown(2));
    story.call(ask(2), outcome(Outcome::Buried));
    clean(&story);
    let late = story.begin(2, ask(2));
    story.rollback(0, 1);
    story.call(ask(2), outcome(Outcome::NotKnown));
    clean(&story);
    // Begun before the rollback, so that the loss is explained; but buried is buried.
    story.end(late, outcome(Outcome::Applied));
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_an_unknown_operation_that_is_another_one() {
    let mut story = begun();
    story.call(put(10, "v2"), unknown(1));
    only(&story, Checker::C5);
}

#[test]
fn c6_finds_a_read_of_the_past() {
    let mut story = begun();
    story.write(2, 10, 2);
    story.read(1, Some((1, "v1")));
    only(&story, Checker::C6);
    // It is not the past while the write is under way.
    let mut story = begun();
    let late = story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    story.read(1, Some((1, "v1")));
    story.end(late, written(2, 2));
    clean(&story);
}

#[test]
fn c6_finds_reads_that_contradict_each_other() {
    let mut story = begun();
    story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    story.read(2, Some((2, "v2")));
    story.read(1, Some((1, "v1")));
    only(&story, Checker::C6);
}

#[test]
fn c6_finds_a_read_of_the_future() {
    let mut story = begun();
    story.read(2, Some((2, "v2")));
    story.write(2, 10, 2);
    only(&story, Checker::C6);
}

#[test]
fn c6_finds_values_that_are_not_those_of_the_version() {
    for found in [Some((1, "v1")), Some((2, "v1")), Some((2, "v9")), Some((3, "v2")), None] {
        let mut story = begun();
        story.write(2, 10, 2);
        story.read(2, found);
        only(&story, Checker::C6);
    }
}

#[test]
fn c6_finds_an_object_that_was_removed() {
    for change in [delete(), Change::DeleteAll] {
        let mut story = begun();
        story.call(changing(10, change.clone()), written(2, 2));
        story.line(2, 10, Some(2), change);
        story.read(2, Some((1, "v1")));
        only(&story, Checker::C6);
    }
}

#[test]
fn c6_finds_what_was_lost_read_after_the_loss() {
    let mut story = begun();
    story.call(put(10, "lost"), written(2, 2));
    story.rollback(0, 1);
    story.read(2, Some((2, "lost")));
    only(&story, Checker::C6);
}

#[test]
fn c7_finds_a_lost_update() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    adds(&mut story, 1, "1", 1);
    adds(&mut story, 2, "1 2", 2);
    clean(&story);
    adds(&mut story, 3, "1 3", 3);
    only(&story, Checker::C7);
}

#[test]
fn c7_finds_a_number_that_nobody_added() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    adds(&mut story, 1, "1 7", 1);
    only(&story, Checker::C7);
}

#[test]
fn c8_finds_two_effects_under_one_key() {
    let mut story = begun();
    for (operation, version) in [(2, 2), (3, 3)] {
        story.begin(u32::try_from(operation).unwrap(), put(10, "v2"));
        keyed(&mut story, "key");
        story.committed(operation, 10, version, "v2");
        keyed_line(&mut story, "key");
    }
    only(&story, Checker::C8);
}

#[test]
fn c8_finds_it_though_the_ledger_lost_both() {
    let mut story = begun();
    for (operation, version) in [(2, 2), (3, 3)] {
        story.call(put(10, "v2"), written(operation, version));
        keyed(&mut story, "key");
    }
    story.rollback(0, 1);
    only(&story, Checker::C8);
}

#[test]
fn c8_finds_two_that_were_told_of_one_effect_as_new() {
    let mut story = begun();
    for _ in 0..2 {
        story.call(put(10, "v2"), written(2, 2));
        keyed(&mut story, "key");
    }
    story.committed(2, 10, 2, "v2");
    keyed_line(&mut story, "key");
    let (violated, report) = story.violated();
    // The second is also told of a version that was there before it began.
    assert_eq!(violated, [Checker::C6, Checker::C8], "{report}");
}

#[test]
fn c9_finds_a_missing_blob() {
    let mut story = begun();
    story.call(ask_value(), Answer::Failed { code: "blobs-unavailable".into() });
    clean(&story);
    story.call(ask_value(), Answer::Failed { code: "blob-missing".into() });
    only(&story, Checker::C9);
}

#[test]
fn c11_finds_what_does_not_come_back() {
    let mut story = begun();
    story.healed();
    story.grant(2, 20, 1);
    only(&story, Checker::C11);
    let too_late = {
        let mut story = story.clone();
        story.wait(HEALED_WITHIN_US);
        story.write(2, 20, 2);
        story
    };
    only(&too_late, Checker::C11);
    let mut cut_short = story.clone();
    cut_short.rollback(0, 1);
    cut_short.grant(3, 1_000, 1);
    cut_short.call(put(1_000, "v2"), told(2, Some(2), 1, false));
    cut_short.committed(2, 1_000, 2, "v2");
    cut_short.last_line().generation = 1;
    only(&cut_short, Checker::C11);
    story.write(2, 20, 2);
    clean(&story);
}

#[test]
fn c12_finds_a_token_that_the_ledger_does_not_hold() {
    let mut story = begun();
    story.call(acquire(2), granted(2, 20, 1));
    only(&story, Checker::C12);
    story.rollback(0, 1);
    clean(&story);
}

#[test]
fn c12_finds_a_token_of_two_locks() {
    let mut story = begun();
    story.grant(2, 10, 1);
    only(&story, Checker::C12);
}

#[test]
fn c12_finds_a_token_that_does_not_rise() {
    let mut story = begun();
    story.grant(2, 5, 1);
    only(&story, Checker::C12);
}

#[test]
fn c12_finds_a_write_under_what_was_never_sealed() {
    let mut story = begun();
    story.write(2, 11, 2);
    only(&story, Checker::C12);
}

#[test]
fn c12_finds_a_grant_of_what_was_not_asked_for() {
    let mut story = begun();
    story.call(acquire(2), granted(3, 20, 1));
    story.sealed(20, 3);
    only(&story, Checker::C12);
}

#[test]
fn c12_finds_a_lock_with_two_tokens() {
    let mut story = begun();
    story.grant(1, 20, 1);
    only(&story, Checker::C12);
    // A fence that a re-fence voided is set anew under its id.
    let mut story = begun();
    story.rollback(0, 1);
    story.grant(1, 20, 1);
    clean(&story);
}

#[test]
fn c13_finds_a_late_effect() {
    let mut story = begun();
    story.effect(10);
    story.grant(2, 20, 1);
    clean(&story);
    let mut across = story.clone();
    story.effect(10);
    only(&story, Checker::C13);
    // A rollback is no excuse.
    across.rollback(0, 1);
    across.effect(10);
    only(&across, Checker::C13);
}

#[test]
fn what_is_no_history_is_not_judged() {
    let malformed = |story: &Story| {
        let report = check(&story.history());
        assert!(report.violations.is_empty() && report.looked_at.is_empty(), "{report}");
        assert!(!report.is_clean(), "{report}");
        report.malformed.join("; ")
    };
    let mut story = begun();
    story.last_call().number = 1;
    assert!(malformed(&story).contains("two calls have number 1"));
    let mut story = begun();
    story.last_call().begun_at = 10;
    assert!(malformed(&story).contains("two things happen at 10"));
    let mut story = begun();
    story.last_call().begun_at = 5;
    assert!(malformed(&story).contains("stands behind one that began later"));
    let mut story = begun();
    story.last_call().begun_at = 41;
    assert!(malformed(&story).contains("answered before it began"));
    let mut story = begun();
    let late = story.begin(1, put(10, "v2"));
    story.read(1, Some((1, "v1")));
    story.end(late, unknown(2));
    assert!(malformed(&story).contains("client 1 begins call 4 during call 3"));
    let mut story = begun();
    story.call(put(10, "v1"), refused("fence-token-released"));
    assert!(malformed(&story).contains("calls 2 and 3 both put \"v1\" into r/k"));
    let mut story = begun();
    story.call(changing(10, add("1", 2)), refused("fence-token-released"));
    assert!(malformed(&story).contains("adds 2"));
}
