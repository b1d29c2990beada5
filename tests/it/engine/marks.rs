//! What the engine says of a mark whose answer was lost, which was rolled back, or which never came back.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fencegate::engine::access::Permit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fence_core::ports::{Ledger as _, Mark, MarkVerdict, ResourceView};
use fence_tests::conformance::pause;
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost, rolled_back};
use fencegate::engine::EngineError;
use tokio::sync::Notify;

use crate::engine::rig::{R, Rig, counter, name, opened};

async fn mark(rig: &Rig, mark: Mark) -> Result<ResourceView, EngineError> {
    rig.engine.mark(name(R), mark, "fire".into(), "test-request".into(), Permit::default()).await
}

async fn frozen(rig: &Rig) -> Option<String> {
    rig.ledger.resource(&name(R)).await.unwrap().unwrap().frozen
}

#[tokio::test(start_paused = true)]
async fn a_mark_whose_answer_was_lost_is_unknown_and_never_sent_again_by_itself() {
    let rig = Rig::new();
    rig.granted(R).await;
    let (calls, mut call) = counter();
    rig.ledger.on_mark(move |_, _| match call() {
        0 => Step::act_but(lost()),
        _ => Step::act(),
    });
    let answer = mark(&rig, Mark::Freeze).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    assert_eq!(frozen(&rig).await.as_deref(), Some("fire"));
    // Another operator unfreezes: nothing that is still on its way may undo it.
    assert_eq!(mark(&rig, Mark::Unfreeze).await.unwrap().frozen, None);
    pause(700).await;
    assert_eq!((frozen(&rig).await, calls.load(Ordering::Relaxed)), (None, 2));
}

#[tokio::test]
async fn a_mark_that_was_rolled_back_is_not_applied_and_may_be_repeated() {
    let rig = Rig::new();
    rig.granted(R).await;
    let (_, mut call) = counter();
    rig.ledger.on_mark(move |_, _| match call() {
        0 => Step::fail(rolled_back()),
        1 => Step::each(vec![Some(MarkVerdict::Busy)]),
        _ => Step::act(),
    });
    for code in ["ledger-unavailable", "resource-busy"] {
        let error = mark(&rig, Mark::Freeze).await.unwrap_err();
        assert_eq!(error.code().as_str(), code);
        assert_eq!(frozen(&rig).await, None);
    }
    assert_eq!(mark(&rig, Mark::Freeze).await.unwrap().frozen.as_deref(), Some("fire"));
}

#[tokio::test]
async fn a_mark_that_takes_too_long_is_unknown() {
    let rig = Rig::new();
    rig.granted(R).await;
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    rig.ledger.on_mark(move |_, _| Step::act().after(opened(&held)));
    let answer = mark(&rig, Mark::Freeze).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    assert_eq!(frozen(&rig).await, None);
    gate.notify_one();
    eventually("it took effect after all", async || frozen(&rig).await).await;
}
