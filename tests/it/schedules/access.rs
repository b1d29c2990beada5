//! Rules of access that are put in force beside acts under way, and whose each token is to `guard()`.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "tests start what runs beside them")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::WriterName;
use fence_core::ports::{
    BreakItem, BreakVerdict, By, CommitItem, CommitVerdict, Commits as _, IntentItem,
    IntentVerdict, Intents as _, JoinItem, JoinVerdict, Ledger as _, Mark, MarkItem, MarkVerdict,
    Patience, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, Rulebook as _, RulesChanged,
    SealItem, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockId, ResourceName, Token};
use fence_tests::conformance::ledger::build::{by, principal_name, rules_change, under};
use fence_tests::conformance::ledger::drains::intent;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::ledger::guard::refused;
use crate::schedules::commits;
use crate::schedules::forced::{Ground, R, WAIT, applied, commit, put, run, seal, sealing};

/// What rules do that are put in force, but not yet.
pub const APPLY: &str = "LOCK TABLE fencegate.seal_guard, fencegate.write_guard IN EXCLUSIVE MODE;
                     UPDATE fencegate.seal_guard SET access = 1; UPDATE fencegate.write_guard SET access = 1";

fn of_ann(number: i64) -> SealItem {
    SealItem { by: under("ann", 0), principal: Some(principal_name("ann")), ..sealing(R, number) }
}

fn by_ann(body: &str) -> WriteItem {
    WriteItem { by: under("ann", 0), ..put(R, 1, body) }
}

/// Puts rules in force, in a task of its own.
fn apply_later(ground: &Ground) -> JoinHandle<RulesChanged> {
    let ledger = Arc::clone(&ground.ledger);
    tokio::spawn(async move { ledger.apply_rules(rules_change("one")).await.unwrap() })
}

/// A write that a gateway was about to make when it stood still: the rules have moved, and it has no effect.
#[tokio::test]
pub async fn a_write_that_waits_while_rules_are_applied_is_not_decided() {
    let ground = Ground::new().await;
    seal(&ground.ledger, of_ann(1)).await.unwrap();
    let applying = ground.hold(APPLY).await;
    let write = ground.commit_later(by_ann("late"));
    ground.kept_waiting(&write, 1).await;
    applying.commit().await;
    assert_eq!(write.await.unwrap(), WriteVerdict::RulesMoved, "a write");
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.operations").await, 0);
}

#[tokio::test]
pub async fn a_seal_and_a_renewal_that_wait_while_rules_are_applied_are_not_decided() {
    let ground = Ground::new().await;
    let Ok(SealVerdict::Sealed(grant, _)) = seal(&ground.ledger, of_ann(1)).await else {
        panic!("not sealed")
    };
    let applying = ground.hold(APPLY).await;
    let sealing = ground.seal_later(of_ann(2));
    ground.kept_waiting(&sealing, 1).await;
    let renewal = RenewItem { lock: grant.lock, ttl: None, by: under("ann", 0) };
    let ledger = ground.other_ledger();
    let renewing =
        tokio::spawn(async move { ledger.renew([renewal].into(), Patience::Skip).await.unwrap() });
    ground.kept_waiting(&renewing, 2).await;
    applying.commit().await;
    assert_eq!(sealing.await.unwrap(), Ok(SealVerdict::RulesMoved), "a seal");
    assert_eq!(renewing.await.unwrap(), [RenewVerdict::RulesMoved], "a renewal");
    assert_eq!(ground.number("SELECT token FROM fencegate.fences").await, 1);
}

/// All others that are held to rules: each began while those were in force that allowed it.
#[tokio::test]
pub async fn whatever_waits_while_rules_are_applied_is_not_decided() {
    let ground = Ground::new().await;
    let lasting = SealItem { ttl: Some(fence_core::Ttl::from_ms(3_600_000)), ..of_ann(1) };
    let Ok(SealVerdict::Sealed(grant, _)) = seal(&ground.ledger, lasting).await else {
        panic!("not sealed")
    };
    let standing = "SELECT count(*) FROM fencegate.fences
                    WHERE hold = 'held' AND frozen IS NULL AND break_due IS NULL";
    assert_eq!(ground.number(standing).await, 1);
    let applying = ground.hold(APPLY).await;
    let name = ResourceName::new(R).unwrap();
    let ledger = || Arc::clone(&ground.ledger);
    let (reason, request_id) = ("test".to_owned(), "test-request".to_owned());

    let item = ReleaseItem { by: under("ann", 0), ..grant.lock.into() };
    let to = ledger();
    let release = tokio::spawn(async move { to.release([item].into(), WAIT).await.unwrap() });
    let item = BreakItem {
        resource: name.clone(),
        token: Token::new(1).unwrap(),
        after: Duration::ZERO,
        reason: reason.clone(),
        request_id: request_id.clone(),
        by: under("ann", 0),
    };
    let to = ledger();
    let breaking = tokio::spawn(async move { to.break_locks([item].into(), WAIT).await.unwrap() });
    let mark = Mark::Freeze;
    let item = MarkItem { resource: name.clone(), mark, reason, request_id, by: under("ann", 0) };
    let to = ledger();
    let freezing = tokio::spawn(async move { to.mark([item].into(), WAIT).await.unwrap() });
    let item = CommitItem { by: under("ann", 0), ..commits::item(&[R], 1) };
    let to = ledger();
    let many = tokio::spawn(async move { to.commit_many(item, WAIT).await.unwrap() });
    let item = IntentItem { by: under("ann", 0), ..intent(R, 1) };
    let to = ledger();
    let opening = tokio::spawn(async move { to.open_intents([item].into(), WAIT).await.unwrap() });
    let item = JoinItem {
        lock: LockId(Uuid::new_v4()),
        resources: vec![name],
        owner: "bob".to_owned(),
        gateway: Uuid::new_v4(),
        waiters_max: 9,
        by: under("bob", 0),
    };
    let to = ledger();
    let joining = tokio::spawn(async move { to.join([item].into(), WAIT).await.unwrap() });
    ground.waiting(6).await;
    applying.commit().await;

    assert_eq!(release.await.unwrap(), [ReleaseVerdict::RulesMoved]);
    assert_eq!(breaking.await.unwrap(), [BreakVerdict::RulesMoved]);
    assert_eq!(freezing.await.unwrap(), [MarkVerdict::RulesMoved]);
    assert_eq!(many.await.unwrap(), CommitVerdict::RulesMoved);
    assert_eq!(opening.await.unwrap(), [IntentVerdict::RulesMoved]);
    assert_eq!(joining.await.unwrap(), [JoinVerdict::RulesMoved]);
    assert_eq!(ground.number(standing).await, 1, "neither released, broken nor frozen");
    for nothing in [
        "SELECT count(*) FROM fencegate.operations",
        "SELECT count(*) FROM fencegate.upstream_intents",
        "SELECT count(*) FROM fencegate.waiters",
    ] {
        assert_eq!(ground.number(nothing).await, 0, "{nothing}");
    }
}

/// What is under way has its effect before the rules are in force: nothing does after.
#[tokio::test]
pub async fn rules_wait_for_the_writes_under_way() {
    let ground = Ground::new().await;
    seal(&ground.ledger, of_ann(1)).await.unwrap();
    let held = ground.hold_fence(R).await;
    let write = ground.commit_later(by_ann("in time"));
    ground.waiting(1).await;
    let applying = apply_later(&ground);
    ground.kept_waiting(&applying, 2).await;
    held.let_go().await;
    assert_eq!(applied(write.await.unwrap()).version, Some(1));
    assert_eq!(applying.await.unwrap(), RulesChanged::InForce(1));
    assert_eq!(commit(&ground.ledger, by_ann("late")).await, WriteVerdict::RulesMoved);
}

#[tokio::test]
pub async fn rules_wait_for_the_seals_under_way() {
    let ground = Ground::new().await;
    seal(&ground.ledger, of_ann(1)).await.unwrap();
    let held = ground.hold_fence(R).await;
    let sealing = ground.seal_later(of_ann(2));
    ground.waiting(1).await;
    let applying = apply_later(&ground);
    ground.kept_waiting(&applying, 2).await;
    held.let_go().await;
    assert!(matches!(sealing.await.unwrap(), Ok(SealVerdict::Sealed(..))), "it was before them");
    assert_eq!(applying.await.unwrap(), RulesChanged::InForce(1));
    assert_eq!(seal(&ground.ledger, of_ann(3)).await, Ok(SealVerdict::RulesMoved));
}

/// A token of before the rules is nobody's: `guard()` takes it no more, whichever role calls.
#[tokio::test]
pub async fn guard_takes_no_token_of_before_the_rules() {
    let ground = Ground::new().await;
    let Ok(SealVerdict::Sealed(grant, _)) = seal(&ground.ledger, sealing(R, 1)).await else {
        panic!("not sealed")
    };
    let mut connection = ground.connect().await;
    let guard = format!("SELECT fencegate.guard('{R}', 1, '{}')", grant.lock.0);
    run(&mut connection, &guard).await;
    ground.ledger.apply_rules(rules_change("one")).await.unwrap();
    assert_eq!(refused(&mut connection, &guard).await.0, "FG402");
    // One that is stale does not even say so.
    seal(&ground.ledger, SealItem { by: under("ann", 1), ..of_ann(2) }).await.unwrap();
    assert_eq!(refused(&mut connection, &guard).await.0, "FG402");
}

/// `guard()` takes a token from its principal's role of the database, or from one of its writers', and from no other.
#[tokio::test]
pub async fn guard_takes_a_token_from_whose_it_is_alone() {
    let ground = Ground::new().await;
    let writers = vec![WriterName::new("dora").unwrap(), WriterName::new("role:loader").unwrap()];
    let item = SealItem { writers, ..of_ann(1) };
    let Ok(SealVerdict::Sealed(grant, _)) = seal(&ground.ledger, item).await else {
        panic!("not sealed")
    };
    let mut connection = ground.connect().await;
    let roles = [
        ("ann", "ann", true),
        ("dora", "dora", true),
        ("carl", "carl role:loader", true),
        ("bob", "bob role:writer", false),
        ("nobody", "", false),
    ];
    for (name, names, is_let) in roles {
        let role = format!("{name}_{}", Uuid::new_v4().simple());
        let known = match names {
            "" => String::new(),
            names => format!("INSERT INTO fencegate.access_roles VALUES ('{role}', '{names}');"),
        };
        run(
            &mut connection,
            &format!(
                "CREATE ROLE {role}; GRANT USAGE ON SCHEMA fencegate TO {role}; {known}
                 GRANT EXECUTE ON FUNCTION fencegate.guard(text, bigint, uuid) TO {role};
                 SET SESSION AUTHORIZATION {role}"
            ),
        )
        .await;
        let guard = format!("SELECT fencegate.guard('{R}', 1, '{}')", grant.lock.0);
        match is_let {
            true => run(&mut connection, &guard).await,
            false => assert_eq!(refused(&mut connection, &guard).await.0, "FG402", "{name}"),
        }
        run(
            &mut connection,
            &format!(
                "RESET SESSION AUTHORIZATION; DELETE FROM fencegate.access_roles;
                 DROP OWNED BY {role}; DROP ROLE {role}"
            ),
        )
        .await;
    }
    // Superseded, it is stale to those whose it was, and unknown to all others.
    seal(&ground.ledger, SealItem { by: by("bob"), ..sealing(R, 2) }).await.unwrap();
    assert_eq!(commit(&ground.ledger, WriteItem { by: By::default(), ..put(R, 1, "x") }).await, {
        WriteVerdict::Refused(fence_core::Refusal::Foreign)
    });
}
