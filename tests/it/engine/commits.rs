//! What the engine says of a commit whose answer was lost, which was rolled back, or whose rows were
//! locked, on a ledger that goes as each test says.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fencegate::engine::access::Permit;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fence_core::ports::{CommitVerdict, Grant, Ledger as _, LedgerError, OperationRecord};
use fence_core::{ObjectKey, Refusal};
use fence_tests::scripted::{Step as Scripted, lost, rolled_back};
use fencegate::engine::{
    Acquire, CommitFailure, CommitHead, CommitOutcome, EngineError, PutBody, Step, WriteEffect,
};
use futures::future::join_all;
use tokio::sync::Notify;

use crate::engine::rig::{Rig, asking, counter, name, opened};

async fn granted(rig: &Rig) -> Grant {
    let asking = Acquire { resources: vec![name("a"), name("b")], ..asking("a") };
    rig.engine.acquire(asking).await.unwrap().grant
}

fn head(grant: &Grant) -> CommitHead {
    CommitHead {
        resources: BTreeMap::from([(name("a"), None), (name("b"), None)]),
        token: grant.token,
        lock: Some(grant.lock),
        sequence: None,
        idempotency_key: None,
        key_kept: None,
        request_id: "test".into(),
        permit: Permit::default(),
    }
}

fn steps() -> Vec<Step> {
    let step = |resource: &str| Step {
        resource: name(resource),
        object_condition: None,
        effect: WriteEffect::Put {
            about: None,
            key: ObjectKey::new("k").unwrap(),
            content_type: "text/plain".into(),
            body: PutBody::Inline(Bytes::from_static(b"x")),
        },
    };
    vec![step("b"), step("a")]
}

async fn commit(rig: &Rig, grant: &Grant) -> Result<CommitOutcome, CommitFailure> {
    rig.engine.commit_many(head(grant), steps()).await
}

async fn versions(rig: &Rig) -> [i64; 2] {
    let mut versions = [0; 2];
    for (resource, version) in ["a", "b"].iter().zip(&mut versions) {
        *version = rig.ledger.resource(&name(resource)).await.unwrap().unwrap().version;
    }
    versions
}

#[tokio::test]
async fn a_commit_that_was_applied_and_lost_is_found() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    let (_, mut call) = counter();
    rig.ledger.on_commit_many(move |_, _| match call() {
        0 => Scripted::act_but(lost()),
        _ => Scripted::act(),
    });
    let done = commit(&rig, &grant).await.unwrap();
    assert!(!done.replayed);
    assert_eq!(versions(&rig).await, [1, 1]);
    let record = rig.engine.operation(done.operation).await.unwrap();
    assert_eq!(record, Some(OperationRecord::Committed(done.applied)));
}

#[tokio::test]
async fn a_commit_that_was_lost_on_the_way_is_applied_once() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    let (_, mut call) = counter();
    rig.ledger.on_commit_many(move |_, _| match call() {
        0 => Scripted::fail(lost()),
        1 => Scripted::fail(rolled_back()),
        _ => Scripted::act(),
    });
    commit(&rig, &grant).await.unwrap();
    assert_eq!(versions(&rig).await, [1, 1]);
}

#[tokio::test]
async fn a_commit_that_was_lost_and_then_rolled_back_is_unknown_and_decided_later() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    let (_, mut call) = counter();
    rig.ledger.on_commit_many(move |_, _| match call() {
        0 => Scripted::fail(lost()),
        _ => Scripted::fail(rolled_back()),
    });
    let failure = commit(&rig, &grant).await.unwrap_err();
    assert!(matches!(failure.error, EngineError::OutcomeUnknown { .. }), "{failure:?}");
    assert_eq!(rig.engine.operation(failure.operation).await.unwrap(), None);
    // It is sent until the ledger decides: to apply it if its caller was still there, else to bury it.
    rig.ledger.on_commit_many(|_, _| Scripted::act());
    match rig.until_known(failure.operation).await {
        OperationRecord::Buried => assert_eq!(versions(&rig).await, [0, 0]),
        OperationRecord::Committed(rows) => {
            assert_eq!((rows.len(), versions(&rig).await), (2, [1, 1]));
        }
        other => panic!("{other:?}"),
    }
    commit(&rig, &grant).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_was_lost_and_then_refused_is_refused_and_buried() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    let (memory, (_, mut call)) = (rig.memory(), counter());
    let lock = grant.lock;
    rig.ledger.on_commit_many(move |_, _| match call() {
        0 => {
            let memory = Arc::clone(&memory);
            Scripted::fail(lost()).and_then(async move {
                let skip = fence_core::ports::Patience::Skip;
                memory.release([lock.into()].into(), skip).await.unwrap();
            })
        }
        _ => Scripted::act(),
    });
    let failure = commit(&rig, &grant).await.unwrap_err();
    assert!(matches!(failure.error, EngineError::Refused(Refusal::Released)), "{failure:?}");
    assert_eq!(failure.resource, Some(name("a")));
    let record = rig.engine.operation(failure.operation).await.unwrap();
    assert_eq!(record, Some(OperationRecord::Buried));
}

#[tokio::test]
async fn a_commit_whose_rows_are_locked_waits_on_a_lane_and_holds_up_no_other() {
    let rig = Rig::new();
    let (grant, other) = (granted(&rig).await, rig.granted("c").await);
    let (gate, (_, mut call)) = (Arc::new(Notify::new()), counter());
    let freed = Arc::clone(&gate);
    rig.ledger.on_commit_many(move |items, _| match items[0].resources.len() {
        1 => Scripted::act(),
        _ => match call() {
            0 => Scripted::each(vec![Some(CommitVerdict::Busy)]),
            _ => Scripted::act().after(opened(&freed)),
        },
    });
    let beside = async {
        for version in 1..=3 {
            let mut steps = steps();
            steps.truncate(1);
            steps[0].resource = name("c");
            let resources = BTreeMap::from([(name("c"), None)]);
            let head = CommitHead { resources, ..head(&other) };
            let done = rig.engine.commit_many(head, steps).await.unwrap();
            assert_eq!(done.applied[0].version, Some(version));
        }
        gate.notify_one();
    };
    let (stuck, ()) = tokio::join!(commit(&rig, &grant), beside);
    stuck.unwrap();
    assert_eq!(versions(&rig).await, [1, 1]);
}

#[tokio::test]
async fn a_commit_whose_rows_stay_locked_says_so() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    rig.ledger.on_commit_many(|_, _| Scripted::each(vec![Some(CommitVerdict::Busy)]));
    let keyed = CommitHead { idempotency_key: Some("once".into()), ..head(&grant) };
    let plain = commit(&rig, &grant).await.unwrap_err().error;
    let keyed = rig.engine.commit_many(keyed, steps()).await.unwrap_err().error;
    assert!(matches!(plain, EngineError::Busy), "{plain:?}");
    assert!(matches!(keyed, EngineError::Busy), "{keyed:?}");
}

#[tokio::test]
async fn a_defect_in_one_commit_does_not_fail_others() {
    let rig = Rig::new();
    let grant = granted(&rig).await;
    let (_, mut call) = counter();
    rig.ledger.on_commit_many(move |_, _| match call() {
        0 => Scripted::fail(LedgerError::Defect("on purpose".into())),
        _ => Scripted::act(),
    });
    let outcomes = join_all((0..3).map(|_| commit(&rig, &grant))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    assert_eq!(versions(&rig).await, [2, 2]);
}
