//! Transfers: a lock that hands over to a successor in one act.

use fence_core::ports::{Attempt, Grant, Ledger, SealItem, SealKind, SealVerdict};
use fence_core::{LockEnd, Refusal, Supersession};

use super::build::*;

/// A seal that takes over from this lock.
fn taking_over(from: &Grant, number: i64) -> SealItem {
    SealItem {
        resources: from.resources.clone(),
        owner: "bob".into(),
        kind: SealKind::Transfer { from: from.lock },
        ..seal(["unused"], number)
    }
}

/// The successor is in, the old token is stale, in the same act and on every resource.
pub async fn a_transfer_hands_over_all_resources(ledger: &dyn Ledger) {
    let ann = granted(ledger, seal(["a", "b"], 10)).await;
    apply(ledger, put(&ann, "k", "by ann")).await;
    let bob = granted(ledger, taking_over(&ann, 20)).await;
    assert_eq!((bob.token.get(), &bob.resources, bob.owner.as_str()), (20, &ann.resources, "bob"));
    assert_eq!(bob.versions, [1, 0]);
    let stale = refusal(ledger, put(&ann, "k", "late")).await;
    let Refusal::Stale { by, grants_behind, .. } = stale else { panic!("{stale:?}") };
    assert_eq!((by, grants_behind), (Some(Supersession::Transfer), Some(1)));
    apply(ledger, put(&bob, "k", "by bob")).await;
    let record = ledger.lock(ann.lock).await.expect("read").expect("known");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Superseded));
}

/// The same call again gets the same lock and token, also as a rerun.
pub async fn a_transfer_repeated_is_the_same_lock(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = taking_over(&ann, 20);
    let bob = granted(ledger, item.clone()).await;
    for attempt in [Attempt::First, Attempt::Rerun] {
        let again = SealItem { number: Some(30), attempt, ..item.clone() };
        let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
        assert_eq!((grant.lock, grant.token), (bob.lock, bob.token));
    }
}

/// A lock that is not in force hands nothing over.
pub async fn a_lock_that_has_ended_hands_nothing_over(ledger: &dyn Ledger) {
    let unknown = SealItem { kind: SealKind::Transfer { from: lock_id() }, ..seal(["r"], 10) };
    assert_eq!(seal_one(ledger, unknown).await, SealVerdict::NotFound);
    assert_eq!(ledger.resource(&name("r")).await.expect("read"), None);

    let released = held(ledger, "a", 11).await;
    release_one(ledger, released.lock).await;
    let ended = seal_one(ledger, taking_over(&released, 20)).await;
    assert_eq!(ended, SealVerdict::Ended(LockEnd::Released));

    let superseded = expired(ledger, "b", 12).await;
    held(ledger, "b", 21).await;
    let ended = seal_one(ledger, taking_over(&superseded, 30)).await;
    assert_eq!(ended, SealVerdict::Ended(LockEnd::Superseded));

    let breaking = held(ledger, "c", 13).await;
    break_one(ledger, &breaking, 60_000).await;
    assert_eq!(seal_one(ledger, taking_over(&breaking, 22)).await, SealVerdict::Breaking);
    apply(ledger, put(&breaking, "k", "still in")).await;
}

/// A lock hands over what it holds, no more and no less, and its successor's number must rise.
pub async fn a_transfer_of_other_resources_is_a_conflict(ledger: &dyn Ledger) {
    let ann = granted(ledger, seal(["a", "b"], 10)).await;
    for resources in [vec![name("a")], vec![name("a"), name("b"), name("c")]] {
        let item = SealItem { resources, ..taking_over(&ann, 20) };
        assert_eq!(seal_one(ledger, item).await, SealVerdict::Conflict);
    }
    assert_eq!(seal_one(ledger, taking_over(&ann, 10)).await, SealVerdict::NumberTooLow);
    apply(ledger, put(&ann, "k", "still in")).await;
}

/// An expired lock that nobody took over can still be handed over.
pub async fn an_expired_lock_hands_over(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    let bob = granted(ledger, SealItem { ttl: Some(long()), ..taking_over(&ann, 20) }).await;
    apply(ledger, put(&bob, "k", "by bob")).await;
    assert!(matches!(seal_one(ledger, seal(["r"], 30)).await, SealVerdict::Held(_)));
}

/// A rerun that is refused buries the successor's id: the first sending may still be on its way.
pub async fn a_refused_rerun_of_a_transfer_is_buried(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = taking_over(&ann, 20);
    release_one(ledger, ann.lock).await;
    let rerun = SealItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(seal_one(ledger, rerun).await, SealVerdict::Ended(LockEnd::Released));
    let ghost = SealItem { kind: SealKind::Lock, ..item };
    assert_eq!(seal_one(ledger, ghost).await, SealVerdict::Ended(LockEnd::Released));
    assert!(matches!(seal_one(ledger, seal(["r"], 30)).await, SealVerdict::Sealed(..)));
}
