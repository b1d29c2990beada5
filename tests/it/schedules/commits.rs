//! Commits over several resources that wait for one of them, in a forced order.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;

use fence_core::etag::{EntityTag, ObjectCondition};
use fence_core::ports::{
    Attempt, By, CommitItem, CommitResource, CommitStep, CommitVerdict, Commits as _, Patience,
    SealItem, SealVerdict,
};
use fence_core::{OperationId, Refusal, ResourceName, Token};
use fencegate::ledger::postgres::PgLedger;
use futures::future::join_all;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::schedules::forced::{Ground, WAIT, put, seal, sealing};

fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).unwrap()
}

/// A put of `k` on each of these resources, in this order.
pub fn item(resources: &[&str], token: i64) -> CommitItem {
    let mut names: Vec<_> = resources.iter().map(|resource| name(resource)).collect();
    names.sort();
    let at = |resource| CommitResource { resource, version: None };
    let step = |resource: &&str| CommitStep {
        resource: name(resource),
        object_condition: None,
        effect: put(resource, token, "many").effect,
    };
    CommitItem {
        operation: OperationId(Uuid::now_v7()),
        resources: names.into_iter().map(at).collect(),
        token: Token::new(token).unwrap(),
        lock: None,
        sequence: None,
        idempotency: None,
        steps: resources.iter().map(step).collect(),
        attempt: Attempt::First,
        taken_at: jiff::Timestamp::MAX,
        by: By::default(),
    }
}

async fn commit(ledger: &PgLedger, item: CommitItem) -> CommitVerdict {
    ledger.commit_many(item, WAIT).await.unwrap()
}

pub fn later(ground: &Ground, item: CommitItem) -> JoinHandle<CommitVerdict> {
    let ledger = Arc::clone(&ground.ledger);
    tokio::spawn(async move { commit(&ledger, item).await })
}

/// One lock on these, which expires at once.
pub async fn sealed(ground: &Ground, resources: &[&str], number: i64) {
    let resources = resources.iter().map(|resource| name(resource)).collect();
    let item = SealItem { resources, ..sealing("unused", number) };
    let verdict = seal(&ground.ledger, item).await;
    assert!(matches!(verdict, Ok(SealVerdict::Sealed(..))), "{verdict:?}");
}

#[tokio::test]
pub async fn a_commit_behind_a_seal_of_one_of_its_resources_is_stale_on_all() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let held = ground.hold_fence("b").await;
    let seal = ground.seal_later(sealing("b", 2));
    ground.waiting(1).await;
    let late = later(&ground, item(&["a", "b"], 1));
    ground.waiting(2).await;
    held.let_go().await;

    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let verdict = late.await.unwrap();
    let CommitVerdict::Refused { refusal: Refusal::Stale { .. }, resource, step: None } = verdict
    else {
        panic!("{verdict:?}");
    };
    assert_eq!(resource, name("b"));
    for count in [
        "SELECT count(*) FROM fencegate.objects",
        "SELECT count(version) FROM fencegate.operations",
    ] {
        assert_eq!(ground.number(count).await, 0, "{count}");
    }
}

#[tokio::test]
pub async fn a_precondition_that_changes_while_a_commit_waits_refuses_it() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    ground.written(put("b", 1, "old")).await;
    let first = OldOrNew::demand(&item(&["a", "b"], 1));
    let held = ground.hold_fence("b").await;
    let write = ground.commit_later(put("b", 1, "new"));
    ground.waiting(1).await;
    let late = later(&ground, first);
    ground.waiting(2).await;
    held.let_go().await;

    write.await.unwrap();
    let (refusal, resource) = (Refusal::VersionMismatch, name("b"));
    assert_eq!(late.await.unwrap(), CommitVerdict::Refused { refusal, resource, step: Some(1) });
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 1);
}

/// The demand that the object of the second step is still of version 1.
struct OldOrNew;

impl OldOrNew {
    fn demand(item: &CommitItem) -> CommitItem {
        let mut steps = item.steps.to_vec();
        let tag = EntityTag { generation: 0, version: 1 };
        steps[1].object_condition = Some(ObjectCondition::OneOf(vec![tag]));
        CommitItem { steps: steps.into(), ..item.clone() }
    }
}

#[tokio::test]
async fn of_two_commits_with_one_demand_one_wins() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    ground.written(put("b", 1, "old")).await;
    let held = ground.hold_fence("b").await;
    let first = later(&ground, OldOrNew::demand(&item(&["a", "b"], 1)));
    ground.waiting(1).await;
    let second = later(&ground, OldOrNew::demand(&item(&["a", "b"], 1)));
    ground.waiting(2).await;
    held.let_go().await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(matches!(first, CommitVerdict::Applied { replayed: false, .. }), "{first:?}");
    assert!(matches!(second, CommitVerdict::Refused { step: Some(1), .. }), "{second:?}");
}

#[tokio::test]
pub async fn the_same_commit_sent_twice_has_one_effect() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b"], 1).await;
    let ghost = item(&["a", "b"], 1);
    let held = ground.hold_fence("b").await;
    let first = later(&ground, ghost.clone());
    ground.waiting(1).await;
    let again = later(&ground, CommitItem { attempt: Attempt::Rerun, ..ghost.clone() });
    ground.waiting(2).await;
    let unwanted = later(&ground, CommitItem { attempt: Attempt::Bury, ..ghost });
    ground.waiting(3).await;
    held.let_go().await;
    let first = first.await.unwrap();
    assert!(matches!(first, CommitVerdict::Applied { replayed: false, .. }), "{first:?}");
    assert_eq!((again.await.unwrap(), unwrap_all(unwanted).await), (first.clone(), first));
    assert_eq!(ground.number("SELECT count(version) FROM fencegate.operations").await, 2);
}

async fn unwrap_all(task: JoinHandle<CommitVerdict>) -> CommitVerdict {
    task.await.unwrap()
}

#[tokio::test]
pub async fn a_commit_skips_a_locked_row_and_keeps_no_other() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b", "c"], 1).await;
    let held = ground.hold_fence("b").await;
    let verdict = ground.ledger.commit_many(item(&["a", "b", "c"], 1), Patience::Skip).await;
    assert_eq!(verdict, Ok(CommitVerdict::Busy));
    let verdict = ground.ledger.commit_many(item(&["a", "c"], 1), Patience::Skip).await.unwrap();
    assert!(matches!(verdict, CommitVerdict::Applied { .. }), "{verdict:?}");
    held.let_go().await;
    let verdict = commit(&ground.ledger, item(&["a", "b", "c"], 1)).await;
    assert!(matches!(verdict, CommitVerdict::Applied { .. }), "{verdict:?}");
}

#[tokio::test]
async fn commits_on_overlapping_resources_do_not_deadlock() {
    let ground = Ground::new().await;
    sealed(&ground, &["a", "b", "c"], 1).await;
    let sets: [&[&str]; 4] = [&["a", "b"], &["c", "b"], &["c", "a"], &["b", "c", "a"]];
    let commits = (0..60).map(|number| later(&ground, item(sets[number % 4], 1)));
    let plain =
        (0..20).map(|number| ground.commit_later(put(["a", "b", "c"][number % 3], 1, "plain")));
    let plain: Vec<_> = plain.collect();
    for verdict in join_all(commits).await {
        let verdict = verdict.unwrap();
        assert!(matches!(verdict, CommitVerdict::Applied { .. }), "{verdict:?}");
    }
    for write in plain {
        crate::schedules::forced::applied(write.await.unwrap());
    }
    let versions = "SELECT count(version) FROM fencegate.operations";
    assert_eq!(ground.number(versions).await, 15 * (2 + 2 + 2 + 3) + 20);
}
