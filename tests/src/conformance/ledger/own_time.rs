//! The ledger's own time: at the word of an operator that the clock is right, and of reruns that are older than what it let go.

use std::time::Duration;

use fence_core::ports::{
    Attempt, AuditAction, AuditFilter, Boot, ClockTrusted, CommitItem, CommitVerdict, Ledger,
    Passed, Retention, WriteItem, WriteVerdict,
};
use jiff::Timestamp;

use super::build::{apply, commit_one, held, put};
use super::commits::{committed, decide, many};
use super::tidying::{KEEP, NOTHING_KEPT, outcomes, sweep};

/// Entries of the audit on what operators agreed.
async fn agreed(ledger: &dyn Ledger) -> Vec<String> {
    let filter =
        AuditFilter { action: Some(AuditAction::Agree), limit: 9, ..AuditFilter::default() };
    let entries = ledger.audit(filter).await.expect("read");
    entries.into_iter().filter_map(|(_, entry)| entry.reason).collect()
}

/// At an operator's word, as a pass of its own: what has passed until then is counted once.
pub async fn a_clock_that_is_said_to_be_right_sets_the_own_time(ledger: &dyn Ledger) {
    let pass = async |passed: Passed| ledger.pass_time(&passed).await.expect("told");
    let up = |hours: u32| Some(Boot { id: "a".to_owned(), up: hours * KEEP });
    let first = pass(Passed::NOTHING).await;
    let on_boot = Passed { pass: first.number, since: Duration::ZERO, boot: up(5) };
    let before = pass(on_boot).await;
    assert_eq!((before.number, before.at), (first.number + 1, first.at));
    outcomes(ledger, "r", 10).await;
    crate::conformance::pause(2).await;
    let keep_nothing = Retention { history: None, ..NOTHING_KEPT };
    assert_eq!(ledger.sweep(&keep_nothing).await, Ok(0));

    let verdict = ledger.trust_clock("it stood still").await.expect("decided");
    let ClockTrusted::Set { from, to } = verdict else { panic!("{verdict:?}") };
    assert!(from == before.at && to > from, "{from} {to} {before:?}");
    let since_then = Passed { pass: before.number, since: KEEP, boot: None };
    for passed in [Passed { boot: up(6), ..Passed::NOTHING }, since_then, Passed::NOTHING] {
        let told = pass(passed).await;
        let (is, was_set) = (told.at.as_microsecond(), to.as_microsecond());
        assert_eq!(is, was_set, "what has passed is counted twice");
    }
    let told = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ");
    let entry = format!("own time {} -> {}: it stood still", told(from), told(to));
    assert_eq!(agreed(ledger).await, [entry]);
    assert_eq!(ledger.sweep(&keep_nothing).await, Ok(3), "the key, the lock, the burial");
}

/// The own time never falls, whoever says that the clock is right.
pub async fn a_clock_that_is_not_ahead_sets_no_own_time(ledger: &dyn Ledger) {
    let last = ledger.pass_time(&Passed::NOTHING).await.expect("told");
    let passed = Passed { pass: last.number, since: last.behind + KEEP, boot: None };
    let ahead = ledger.pass_time(&passed).await.expect("passed");
    let verdict = ledger.trust_clock("it is right").await.expect("decided");
    let ClockTrusted::NotAhead { own, clock } = verdict else { panic!("{verdict:?}") };
    assert!(own == ahead.at && clock < own, "{own} {clock} {ahead:?}");
    let after = ledger.pass_time(&Passed::NOTHING).await.expect("told");
    assert_eq!((after.number, after.at), (ahead.number, ahead.at));
    assert!(agreed(ledger).await.is_empty());
}

const AGAIN: [Attempt; 2] = [Attempt::Rerun, Attempt::Bury];

/// The own time as a gateway hears it.
async fn heard(ledger: &dyn Ledger) -> Timestamp {
    ledger.pass_time(&Passed::NOTHING).await.expect("told").at
}

/// It took effect, but nothing tells that any more: neither is it applied once more, nor is it told that it was not.
pub async fn a_rerun_of_what_history_let_go_stays_unknown(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let taken_at = heard(ledger).await;
    let old = WriteItem { taken_at, ..put(&ann, "k", "old") };
    apply(ledger, old.clone()).await;
    let commit = CommitItem { taken_at, ..many(&ann, &[("r", "k", Some("many"))]) };
    committed(ledger, &commit).await;
    let last = WriteItem { taken_at, ..put(&ann, "k", "new") };
    apply(ledger, last.clone()).await;
    for attempt in AGAIN {
        let again = WriteItem { attempt, ..old.clone() };
        let known = commit_one(ledger, again).await;
        assert!(matches!(known, WriteVerdict::Applied { .. }), "before it goes: {known:?}");
    }
    ledger.number_events().await.expect("a step");
    sweep(ledger, NOTHING_KEPT).await;
    for attempt in AGAIN {
        let again = WriteItem { attempt, ..old.clone() };
        assert_eq!(commit_one(ledger, again).await, WriteVerdict::Forgotten);
        let again = CommitItem { attempt, ..commit.clone() };
        assert_eq!(decide(ledger, &again).await, CommitVerdict::Forgotten);
        let newest = commit_one(ledger, WriteItem { attempt, ..last.clone() }).await;
        assert!(matches!(newest, WriteVerdict::Applied { .. }), "it is there still: {newest:?}");
    }
    let since = heard(ledger).await;
    let lost = WriteItem { attempt: Attempt::Rerun, taken_at: since, ..put(&ann, "k", "lost") };
    let applied = apply(ledger, lost).await;
    assert_eq!(applied.version, Some(4), "what was taken since is decided");
}

/// Its first sending may have been found, and buried, long ago.
pub async fn a_rerun_of_what_was_buried_long_ago_stays_unknown(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let taken_at = heard(ledger).await;
    let given_up = WriteItem { attempt: Attempt::Bury, taken_at, ..put(&ann, "k", "x") };
    assert_eq!(commit_one(ledger, given_up.clone()).await, WriteVerdict::Buried);
    let keeps = Retention { history: None, ..NOTHING_KEPT };
    sweep(ledger, keeps).await;
    for attempt in AGAIN {
        let again = WriteItem { attempt, ..given_up.clone() };
        assert_eq!(commit_one(ledger, again).await, WriteVerdict::Forgotten);
    }
}
