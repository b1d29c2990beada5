//! Histories by hand: one that is right and touches all, and for each way of being wrong one that
//! exactly one checker finds.

mod access;
mod grants;
mod order;
mod reads;
mod verdicts;

use fence_history::{Answer, Asked, Checker, Outcome, check};

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
    story.rules(&[], 1);
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
    let forward = story.begin(1, forward(30, 10));
    story.intent(30);
    story.effect(30, 10);
    story.end(forward, Answer::Forwarded);
    story.call(ask(30), outcome(Outcome::Applied));
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
