//! The ledger's own time, when two change it at once.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::time::Duration;

use fence_core::ports::{Boot, ClockTrusted, Ledger as _, Passed};

use crate::schedules::forced::{Ground, run};

const HOUR: Duration = Duration::from_secs(3600);

/// It finds another pass than it knew, and another boot: it adds nothing to what the clock has said.
#[tokio::test]
pub async fn a_pass_that_waits_while_the_clock_is_trusted_adds_nothing() {
    let ground = Ground::new().await;
    let up = |hours: u32| Some(Boot { id: "a".to_owned(), up: hours * HOUR });
    let first = ground.ledger.pass_time(&Passed::NOTHING).await.expect("told");
    let passed = Passed { pass: first.number, since: Duration::ZERO, boot: up(5) };
    let known = ground.ledger.pass_time(&passed).await.expect("passed");
    let trusted = ground.hold("SELECT acts.trust_clock(0, 'the test says so')").await;
    let other = ground.other_ledger();
    let late = Passed { pass: known.number, since: HOUR, boot: up(6) };
    let late = tokio::spawn(async move { other.pass_time(&late).await });
    ground.kept_waiting(&late, 1).await;
    trusted.commit().await;
    let late = late.await.expect("it ends").expect("told");
    assert_eq!(late.number, known.number + 1, "the late pass was made");
    let told = ground.ledger.pass_time(&Passed::NOTHING).await.expect("told");
    assert_eq!((late.number, late.at), (told.number, told.at));
}

/// It is held against the own time as the pass left it.
#[tokio::test]
pub async fn a_clock_that_waits_for_a_pass_is_held_against_the_time_after_it() {
    let ground = Ground::new().await;
    let first = ground.ledger.pass_time(&Passed::NOTHING).await.expect("told");
    let ahead = Duration::from_hours(24 * 365);
    let pass =
        format!("SELECT acts.pass_time(0, {}, {}, NULL, NULL)", first.number, ahead.as_micros());
    let pass = ground.hold(&pass).await;
    let other = ground.other_ledger();
    let trusted = tokio::spawn(async move { other.trust_clock("the test says so").await });
    ground.kept_waiting(&trusted, 1).await;
    pass.commit().await;
    let verdict = trusted.await.expect("it ends").expect("decided");
    let ClockTrusted::NotAhead { own, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(own, first.at + ahead);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.audit").await, 0);
}

/// An operator who says that the clock is right sets the own time to it: what is to be kept from now on counts from the clock.
#[tokio::test]
pub async fn what_is_kept_counts_from_the_clock_where_the_own_time_is_behind() {
    let ground = Ground::new().await;
    let mut operator = ground.connect().await;
    for statement in [
        "ALTER TABLE fencegate.own_time DISABLE TRIGGER own_time_only_rises",
        "UPDATE fencegate.own_time SET at = 'epoch'",
    ] {
        run(&mut operator, statement).await;
    }
    let after = "SELECT (acts.due(60) > clock_timestamp())::int::bigint";
    assert_eq!(ground.number(after).await, 1, "it would be due at once");
    let at_once = "SELECT (acts.due(0) = 'epoch')::int::bigint";
    assert_eq!(ground.number(at_once).await, 1);
}
