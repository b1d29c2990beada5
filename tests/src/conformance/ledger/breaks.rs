//! Break: an operator ends a lock, at once or soon.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Attempt, BreakItem, BreakVerdict, By, Ended, Grant, IntentItem, IntentVerdict, Ledger,
    Patience, ReleaseVerdict, RenewVerdict, Retention, SealItem, SealVerdict,
};
use fence_core::{LockEnd, LockState, Refusal, Ttl};

use super::build::*;
use super::drains::intent;
use crate::conformance::pause;

fn due(verdict: BreakVerdict) -> i64 {
    match verdict {
        BreakVerdict::Breaking { due_ms } => due_ms,
        other => panic!("not breaking: {other:?}"),
    }
}

fn is_broken_again(verdict: BreakVerdict) -> bool {
    verdict == BreakVerdict::Broken { held_ms: None, ended: None }
}

async fn state(ledger: &dyn Ledger, resource: &str) -> LockState {
    ledger.resource(&name(resource)).await.expect("read").expect("locked").state
}

/// The holder is fenced off in the same act.
pub async fn a_break_at_once_fences_the_holder_off(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let verdict = break_one(ledger, &ann, 0).await;
    let BreakVerdict::Broken { held_ms: Some(held_ms), ended } = verdict else {
        panic!("not broken: {verdict:?}")
    };
    assert!((0..60_000).contains(&held_ms));
    assert_eq!(ended, Some(Ended { resource: name("r"), number: 10 }));
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Broken);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Ended(LockEnd::Broken));
    assert_eq!(state(ledger, "r").await, LockState::Broken);
    assert_eq!(holders(ledger, &[name("r")]).await, [None]);
    held(ledger, "r", 11).await;
}

/// Until then the holder goes on.
pub async fn a_break_after_a_while_comes_due(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert!((1..=500).contains(&due(break_one(ledger, &ann, 500).await)));
    assert_eq!(state(ledger, "r").await, LockState::Breaking);
    apply(ledger, put(&ann, "k", "a")).await;
    pause(550).await;
    assert_eq!(holders(ledger, &[name("r")]).await, [None]);
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Broken);
}

/// Whoever acts on the row stores it; only then does it show.
pub async fn a_due_break_is_stored_by_whoever_acts(ledger: &dyn Ledger) {
    let names = ["write", "renew", "release", "break", "seal", "intent", "sweep"];
    let mut grants = Vec::new();
    for (resource, number) in names.into_iter().zip(10..) {
        let grant = held(ledger, resource, number).await;
        due(break_one(ledger, &grant, 20).await);
        grants.push(grant);
    }
    pause(40).await;
    for resource in names {
        assert_eq!(state(ledger, resource).await, LockState::Breaking, "{resource}");
    }
    refusal(ledger, put(&grants[0], "k", "x")).await;
    assert_eq!(renew_one(ledger, grants[1].lock).await, RenewVerdict::Ended(LockEnd::Broken));
    let late = release_one(ledger, grants[2].lock).await;
    assert_eq!(late, ReleaseVerdict::AlreadyEnded);
    assert!(is_broken_again(break_one(ledger, &grants[3], 0).await));
    let refused = seal_one(ledger, SealItem { number: None, ..seal(["seal"], 0) }).await;
    assert_eq!(refused, SealVerdict::NumberTooLow);
    let given_up = IntentItem { attempt: Attempt::Bury, ..intent("intent", 15) };
    let buried = ledger.open_intents(Arc::from([given_up]), Patience::Skip).await;
    assert_eq!(buried, Ok(vec![IntentVerdict::Buried]));
    let keep = Duration::from_secs(3600);
    let retention = Retention {
        keys: keep,
        ended_locks: keep,
        buried: keep,
        history: None,
        rejections_max: 10,
        rows_per_pass: 100,
    };
    assert_eq!(ledger.sweep(&retention).await, Ok(1));
    for (resource, grant) in names.into_iter().zip(&grants) {
        assert_eq!(state(ledger, resource).await, LockState::Broken, "{resource}");
        let record = ledger.lock(grant.lock).await.expect("read").expect("kept");
        assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Broken), "{resource}");
    }
    assert_eq!(ledger.sweep(&retention).await, Ok(0));
}

/// A seal takes the resource once the break is due; nothing was taken over.
pub async fn a_due_break_frees_the_resource(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    due(break_one(ledger, &ann, 20).await);
    pause(40).await;
    let verdict = seal_one(ledger, seal(["r"], 20)).await;
    let SealVerdict::Sealed(_, taken_over) = verdict else { panic!("not sealed: {verdict:?}") };
    assert_eq!(taken_over, []);
    assert!(matches!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Stale { .. }));
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Ended(LockEnd::Broken));
}

/// A second break shortens; it never extends.
pub async fn a_second_break_shortens_and_never_extends(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert!(due(break_one(ledger, &ann, 60_000).await) > 50_000);
    assert!(due(break_one(ledger, &ann, 3_600_000).await) <= 60_000);
    let shortened = due(break_one(ledger, &ann, 30_000).await);
    assert!((20_000..=30_000).contains(&shortened), "{shortened}");
    let verdict = break_one(ledger, &ann, 0).await;
    assert!(matches!(verdict, BreakVerdict::Broken { held_ms: Some(_), .. }), "{verdict:?}");
}

/// A lock is broken at its deadline at the latest, so a renewal cannot outrun it.
pub async fn a_break_is_due_at_the_deadline_at_the_latest(ledger: &dyn Ledger) {
    let ann = granted(ledger, SealItem { ttl: Some(Ttl::from_ms(1_500)), ..seal(["r"], 10) }).await;
    assert!(due(break_one(ledger, &ann, 60_000).await) <= 1_500);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Breaking);
    pause(1_600).await;
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Broken);
}

/// It has no time left.
pub async fn an_expired_lock_is_broken_at_once(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    let verdict = break_one(ledger, &ann, 60_000).await;
    assert!(matches!(verdict, BreakVerdict::Broken { held_ms: Some(_), .. }), "{verdict:?}");
}

/// However long an operator grants.
pub async fn a_break_after_ages_waits_for_the_deadline(ledger: &dyn Ledger) {
    for (number, after) in [(10, Duration::from_secs(100 * 366 * 86_400)), (20, Duration::MAX)] {
        let ann = held(ledger, &format!("r{number}"), number).await;
        let left = due(break_with(ledger, &ann, after).await);
        assert!((long().as_ms() - 10_000..=long().as_ms()).contains(&left), "{left}");
    }
}

/// A call whose answer was lost, and which runs late, must not hit the next holder.
pub async fn a_break_is_about_one_token(ledger: &dyn Ledger) {
    let (ann, bob) = succession(ledger, "r").await;
    assert_eq!(break_one(ledger, &ann, 0).await, BreakVerdict::NotHeld);
    let future = Grant { token: token(99), ..bob.clone() };
    assert_eq!(break_one(ledger, &future, 0).await, BreakVerdict::NotHeld);
    apply(ledger, put(&bob, "k", "b")).await;
}

/// Nothing to break.
pub async fn what_nobody_holds_is_not_broken(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    assert_eq!(break_one(ledger, &ann, 0).await, BreakVerdict::NotHeld);
    let elsewhere = Grant { resources: vec![name("other")], ..ann };
    assert_eq!(break_one(ledger, &elsewhere, 0).await, BreakVerdict::NoFence);
    let refused = SealItem { number: Some(0), ..seal(["other"], 0) };
    seal_one(ledger, refused).await;
    assert_eq!(break_one(ledger, &elsewhere, 0).await, BreakVerdict::NoFence);
}

/// The same answer again, and no second trace.
pub async fn a_break_is_idempotent(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 0).await;
    for after in [0, 60_000] {
        assert!(is_broken_again(break_one(ledger, &ann, after).await));
    }
}

/// Several in one batch, the same twice, each seeing those before it.
pub async fn a_batch_of_breaks_has_a_verdict_each(ledger: &dyn Ledger) {
    let a = held(ledger, "a", 10).await;
    let b = held(ledger, "b", 11).await;
    let item = |grant: &Grant, after_ms| BreakItem {
        resource: grant.resources[0].clone(),
        token: grant.token,
        after: Duration::from_millis(after_ms),
        reason: "test".into(),
        request_id: "test-request".into(),
        by: By::default(),
    };
    let items = [item(&a, 60_000), item(&b, 0), item(&a, 0), item(&a, 0)];
    let verdicts = ledger.break_locks(Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(
        matches!(
            verdicts.as_slice(),
            [
                BreakVerdict::Breaking { .. },
                BreakVerdict::Broken { held_ms: Some(_), .. },
                BreakVerdict::Broken { held_ms: Some(_), .. },
                BreakVerdict::Broken { held_ms: None, .. }
            ]
        ),
        "{verdicts:?}"
    );
}

/// Broken on one resource, it has ended; on the others its token stays good until the next grant.
pub async fn a_lock_broken_on_one_resource_has_ended(ledger: &dyn Ledger) {
    let pair = granted(ledger, seal(["a", "b"], 10)).await;
    break_one(ledger, &pair, 0).await;
    assert_eq!(renew_one(ledger, pair.lock).await, RenewVerdict::Ended(LockEnd::Broken));
    assert_eq!(refusal(ledger, put(&pair, "k", "x")).await, Refusal::Broken);
    let on_b = Grant { resources: vec![name("b")], ..pair };
    apply(ledger, put(&on_b, "k", "a")).await;
}
