//! C4, C11, C12, C13, C16: grants, and what may come after them.

use fence_history::{Answer, Asked, Checker, HEALED_WITHIN_US, Outcome};

use super::{begun, clean, only};
use crate::build::*;

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

/// A token that was mixed up with another one would be good.
#[test]
fn c12_finds_a_token_of_two_locks_on_different_resources() {
    let mut story = begun();
    story.sealed_on("other", 20, 2);
    clean(&story);
    story.sealed_on("other", 10, 3);
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
    // Nothing was asked for.
    let mut story = begun();
    story.call(Asked::Renew { lock: id(2) }, granted(2, 20, 1));
    story.sealed(20, 2);
    only(&story, Checker::C12);
    // One of two resources is missing.
    let mut story = begun();
    let resources = vec!["other".into(), "r".into()];
    story.call(Asked::Acquire { lock: None, resources }, granted(2, 20, 1));
    story.sealed(20, 2);
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
    story.effect(30, 10);
    story.grant(2, 20, 1);
    clean(&story);
    let mut across = story.clone();
    story.effect(30, 10);
    only(&story, Checker::C13);
    // A rollback is no excuse.
    across.rollback(0, 1);
    across.effect(30, 10);
    only(&across, Checker::C13);
}

#[test]
fn c12_lets_one_lock_be_told_twice() {
    let mut story = begun();
    story.call(acquire(1), granted(1, 10, 1));
    clean(&story);
}

/// A request that was admitted as operation 30, and on which the upstream acted, if it did.
fn forwarded(acted: bool) -> Story {
    let mut story = begun();
    story.intent(30);
    let call = story.begin(1, forward(30, 10));
    if acted {
        story.effect(30, 10);
    }
    story.end(call, unknown(30));
    story
}

#[test]
fn c16_finds_what_is_told_of_a_request_and_is_not_so() {
    for (acted, told) in [(true, Outcome::Buried), (false, Outcome::Applied)] {
        let mut story = forwarded(acted);
        story.call(ask(30), outcome(Outcome::NotKnown));
        clean(&story);
        story.call(ask(30), outcome(told));
        only(&story, Checker::C16);
        let mut story = forwarded(!acted);
        story.call(ask(30), outcome(told));
        clean(&story);
    }
}

/// What never will be must not be later, and what is said to be must have been before.
#[test]
fn c16_finds_an_effect_that_comes_after_what_was_told() {
    for told in [Outcome::Buried, Outcome::Applied] {
        let mut story = forwarded(false);
        story.call(ask(30), outcome(told));
        story.effect(30, 10);
        only(&story, Checker::C16);
    }
}

#[test]
fn c16_finds_a_wrong_answer_to_the_request_itself() {
    let never = Answer::Failed { code: "upstream-unreachable".into() };
    for (acted, answer) in
        [(true, refused("fence-token-stale")), (true, never), (false, Answer::Forwarded)]
    {
        let mut story = begun();
        let call = story.begin(1, forward(30, 10));
        if acted {
            story.effect(30, 10);
        }
        story.end(call, answer);
        only(&story, Checker::C16);
    }
}
