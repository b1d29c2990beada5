//! C5, C8: what callers were told of writes, and how often they took effect.

use fence_history::{Answer, Asked, Change, Checker, Outcome};

use super::{begun, clean, keyed, keyed_line, only};
use crate::build::*;

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
    for answer in [refused("lock-id-mismatch"), Answer::Failed { code: "overloaded".into() }] {
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

fn release(lock: u128) -> Asked {
    Asked::Release { lock: id(lock) }
}

#[test]
fn c14_finds_a_write_under_a_lock_that_was_given_back() {
    let mut story = begun();
    story.call(release(1), Answer::Done);
    clean(&story);
    story.write(2, 10, 2);
    only(&story, Checker::C14);
}

#[test]
fn c15_finds_a_refusal_without_a_reason() {
    let reasons = [
        "fence-token-stale",
        "fence-token-unknown",
        "fence-token-void",
        "sequence-out-of-order",
        "version-mismatch",
        "idempotency-key-reused",
    ];
    for code in reasons {
        let mut story = begun();
        story.call(put(10, "late"), refused(code));
        only(&story, Checker::C15);
    }
    let mut story = begun();
    story.grant(2, 20, 1);
    story.call(put(10, "late"), refused("fence-token-stale"));
    story.call(put(15, "made up"), refused("fence-token-unknown"));
    clean(&story);
}

#[test]
fn c8_finds_two_effects_of_one_call() {
    // Two operations, or one operation twice; that the second is nobody's is found as well.
    for operation in [3, 2] {
        let mut story = begun();
        story.begin(2, put(10, "v2"));
        story.committed(2, 10, 2, "v2");
        story.committed(operation, 10, 3, "v2");
        let (violated, report) = story.violated();
        assert_eq!(violated, [Checker::C5, Checker::C8], "{report}");
    }
}

#[test]
fn c5_finds_a_replay_without_a_key() {
    let mut story = begun();
    story.call(changing(10, delete()), written(2, 2));
    story.line(2, 10, Some(2), delete());
    story.call(changing(10, delete()), told(2, Some(2), 0, true));
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_replay_that_differs_though_the_write_was_lost() {
    let mut story = begun();
    for (version, replayed) in [(2, false), (3, true)] {
        story.call(put(10, "v2"), told(2, Some(version), 0, replayed));
        keyed(&mut story, "key");
    }
    story.rollback(0, 1);
    only(&story, Checker::C5);
}

#[test]
fn c5_finds_a_commit_of_many_that_is_not_one() {
    let mut story = begun();
    story.sealed_on("other", 10, 1);
    let steps = vec![("r".into(), Change::DeleteAll), ("other".into(), Change::DeleteAll)];
    story.begin(2, Asked::Commit { token: 10, sequence: None, idempotency_key: None, steps });
    story.line(2, 10, Some(2), Change::DeleteAll);
    let half = story.clone();
    story.line(2, 10, Some(1), Change::DeleteAll);
    story.last_line().resource = "other".into();
    clean(&story);
    story.last_line().generation = 1;
    only(&story, Checker::C5);
    only(&half, Checker::C5);
}
