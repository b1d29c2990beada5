//! Breaks end the lock that was meant and no other, whoever acts on the resource in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fence_core::ports::{Ledger as _, SealVerdict};
use fence_core::{LockEnd, LockState};
use fence_tests::scripted::{Step, lost};
use fencegate::engine::EngineError;

use crate::engine::rig::{R, Rig, counter, name, seal_as};

#[tokio::test]
async fn a_break_stops_at_its_target_although_somebody_acquires_at_once() {
    let rig = Rig::new();
    let target = rig.granted(R).await;
    let (memory, (calls, mut call)) = (rig.memory(), counter());
    rig.ledger.on_break(move |_, _| {
        let (memory, number) = (Arc::clone(&memory), 1000 + call() as i64);
        Step::act().and_then(async move {
            let innocent = seal_as(&memory, "innocent", number, 3_600_000).await;
            assert!(matches!(innocent, SealVerdict::Sealed(..)), "{innocent:?}");
        })
    });
    assert_eq!(rig.break_lock().await.unwrap(), "innocent");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(rig.lock(target.lock).await.ended.unwrap().0, LockEnd::Broken);
    rig.until_state(R, LockState::Leased).await;
}

#[tokio::test]
async fn a_break_whose_answer_was_lost_does_not_hit_the_next_holder() {
    let rig = Rig::new();
    let target = rig.granted(R).await;
    let (memory, (_, mut call)) = (rig.memory(), counter());
    rig.ledger.on_break(move |_, _| match call() {
        0 => {
            let memory = Arc::clone(&memory);
            Step::act_but(lost()).and_then(async move {
                drop(seal_as(&memory, "innocent", 1000, 3_600_000).await);
            })
        }
        _ => Step::act(),
    });
    let answer = rig.break_lock().await;
    assert_eq!(rig.lock(target.lock).await.ended.unwrap().0, LockEnd::Broken);
    let view = rig.ledger.resource(&name(R)).await.unwrap().unwrap();
    assert_eq!((view.owner.as_str(), view.state), ("innocent", LockState::Leased), "{answer:?}");
}

#[tokio::test]
async fn a_break_that_finds_its_token_gone_aims_at_the_new_one() {
    let rig = Rig::new();
    let first = seal_as(&rig.ledger.memory, "first", 1, 0).await;
    assert!(matches!(first, SealVerdict::Sealed(..)), "{first:?}");
    let (memory, (calls, mut call)) = (rig.memory(), counter());
    rig.ledger.on_break(move |_, _| match call() {
        0 => {
            let memory = Arc::clone(&memory);
            Step::act().after(async move { drop(seal_as(&memory, "second", 2, 3_600_000).await) })
        }
        _ => Step::act(),
    });
    assert_eq!(rig.break_lock().await.unwrap(), "second");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    rig.until_state(R, LockState::Broken).await;
}

#[tokio::test]
async fn a_break_of_a_lock_that_changes_hands_for_ever_is_given_up() {
    let rig = Rig::new();
    drop(seal_as(&rig.ledger.memory, "first", 1, 0).await);
    let (memory, (calls, mut call)) = (rig.memory(), counter());
    rig.ledger.on_break(move |_, _| {
        let (memory, number) = (Arc::clone(&memory), 2 + call() as i64);
        Step::act().after(async move { drop(seal_as(&memory, "next", number, 0).await) })
    });
    let answer = rig.break_lock().await;
    assert!(matches!(answer, Err(EngineError::LedgerUnavailable(_))), "{answer:?}");
    assert!((2..=5).contains(&calls.load(Ordering::Relaxed)), "{calls:?}");
}
