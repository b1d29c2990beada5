//! The rule, row by row and in its order.

use fence_core::etag::ObjectCondition;
use fence_core::ports::{Grant, Ledger, SealItem, SealVerdict, WriteItem};
use fence_core::{LockId, Refusal, Supersession};

use super::build::*;
use crate::conformance::Operator;

/// The holder of the token sealed last is admitted, with its lock id or without.
pub async fn the_holder_is_admitted(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.version, Some(1));
    let with_id = WriteItem { lock: Some(ann.lock), ..put(&ann, "k", "b") };
    assert_eq!(apply(ledger, with_id).await.version, Some(2));
}

/// Nobody took over, so exclusivity was never broken.
pub async fn an_expired_holder_without_successor_is_admitted(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.version, Some(1));
}

/// A resource that was never locked knows no token.
pub async fn without_a_fence_every_token_is_unknown(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let elsewhere = WriteItem { resource: name("other"), ..put(&ann, "k", "a") };
    assert_eq!(refusal(ledger, elsewhere.clone()).await, Refusal::Unknown);
    assert_eq!(ledger.resource(&name("other")).await.expect("read"), None);
    assert_eq!(look(ledger, "other", "k").await.resource_version, None);
}

/// Above and below the fence alike, and whatever else is wrong.
pub async fn a_token_never_sealed_is_unknown_on_either_side(ledger: &dyn Ledger) {
    let (_, bob) = succession(ledger, "r").await;
    for number in [1, 9, 11, 19, 21, i64::MAX] {
        let item = WriteItem { token: token(number), ..put(&bob, "k", "x") };
        assert_eq!(refusal(ledger, item.clone()).await, Refusal::Unknown, "{number}");
        let worse = WriteItem { lock: Some(lock_id()), resource_version: Some(99), ..item };
        assert_eq!(refusal(ledger, worse).await, Refusal::Unknown, "{number}");
    }
}

/// No huge token can poison a fence.
pub async fn a_huge_token_changes_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let before = ledger.resource(&name("r")).await.expect("read").expect("locked");
    let huge = WriteItem { token: token(i64::MAX), ..put(&ann, "k", "x") };
    assert_eq!(refusal(ledger, huge).await, Refusal::Unknown);
    let after = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!((before.token, before.version), (after.token, after.version));
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.version, Some(1));
}

/// With what superseded it, when, how far behind and whose it was.
pub async fn a_superseded_token_is_stale(ledger: &dyn Ledger) {
    let (ann, bob) = succession(ledger, "r").await;
    release_one(ledger, bob.lock).await;
    let carl = granted(ledger, SealItem { owner: "carl".into(), ..seal(["r"], 30) }).await;
    let behind = [(&ann, 2, "ann", &bob), (&bob, 1, "bob", &carl)];
    for (old, grants, whose, successor) in behind {
        let Refusal::Stale { by, at, grants_behind, owner } =
            refusal(ledger, put(old, "k", "late")).await
        else {
            panic!("not stale")
        };
        assert_eq!((by, grants_behind), (Some(Supersession::Grant), Some(grants)));
        assert_eq!(owner.as_deref(), Some(whose));
        let (at, since) = (at.expect("when"), successor.acquired_at);
        assert_eq!(at.as_microsecond(), since.as_microsecond(), "superseded when granted");
    }
    assert_eq!(text(ledger, "r", "k").await, None);
}

/// The timeline of every article: the successor only reads, and the late write is refused already.
pub async fn a_late_write_is_refused_before_the_successor_writes(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    assert!(matches!(refusal(ledger, put(&ann, "k", "late")).await, Refusal::Stale { .. }));
    assert_eq!(text(ledger, "r", "k").await, None);
}

/// A lock that was given back.
pub async fn a_released_token_is_released(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let worse = WriteItem { lock: Some(lock_id()), sequence: Some(0), ..put(&ann, "k", "x") };
    assert_eq!(refusal(ledger, worse).await, Refusal::Released);
}

/// A lock that an operator ended.
pub async fn a_broken_token_is_broken(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 0).await;
    let worse = WriteItem { lock: Some(lock_id()), sequence: Some(0), ..put(&ann, "k", "x") };
    assert_eq!(refusal(ledger, worse).await, Refusal::Broken);
}

/// Before sequence and preconditions, and only for the token sealed last.
pub async fn a_lock_id_must_match_at_the_fence_only(ledger: &dyn Ledger) {
    let (ann, bob) = succession(ledger, "r").await;
    let other = |grant: &Grant, lock: LockId| WriteItem {
        lock: Some(lock),
        resource_version: Some(99),
        ..put(grant, "k", "x")
    };
    assert_eq!(refusal(ledger, other(&bob, ann.lock)).await, Refusal::LockIdMismatch);
    assert!(matches!(refusal(ledger, other(&ann, bob.lock)).await, Refusal::Stale { .. }));
}

/// Sequence comes before preconditions.
pub async fn a_sequence_is_judged_before_preconditions(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, WriteItem { sequence: Some(5), ..put(&ann, "k", "a") }).await;
    let both = WriteItem {
        sequence: Some(5),
        resource_version: Some(99),
        object_condition: Some(ObjectCondition::Absent),
        ..put(&ann, "k", "x")
    };
    assert_eq!(refusal(ledger, both.clone()).await, Refusal::SequenceOutOfOrder);
    let one = WriteItem { sequence: Some(6), ..both };
    assert_eq!(refusal(ledger, one).await, Refusal::VersionMismatch);
}

/// A refused write leaves no trace.
pub async fn a_refused_write_leaves_no_trace(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, WriteItem { sequence: Some(3), ..put(&ann, "k", "a") }).await;
    let item = WriteItem {
        idempotency: keyed("once", "p"),
        sequence: Some(7),
        resource_version: Some(99),
        ..put(&ann, "k", "x")
    };
    assert_eq!(refusal(ledger, item.clone()).await, Refusal::VersionMismatch);
    assert_eq!(ledger.operation(item.operation).await.expect("read"), None);
    assert_eq!(ledger.operation_by_key(&name("r"), "once").await.expect("read"), None);
    assert_eq!(
        (text(ledger, "r", "k").await.as_deref(), counts(ledger, "r").await),
        (Some("a"), (1, 1))
    );
    let again = WriteItem { sequence: Some(4), resource_version: Some(1), ..item };
    assert_eq!(apply(ledger, again).await.version, Some(2));
}

/// Everything at or below the floor is void, known or not; a key still replays.
pub async fn a_token_at_or_below_the_floor_is_void(ledger: &dyn Ledger, operator: &Operator) {
    let (ann, bob) = succession(ledger, "r").await;
    let once = WriteItem { idempotency: keyed("once", "p"), ..put(&bob, "k", "a") };
    apply(ledger, once.clone()).await;
    operator.raise_floor(20).await;
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Void);
    assert_eq!(refusal(ledger, put(&bob, "k", "x")).await, Refusal::Void);
    let never = WriteItem { token: token(15), ..put(&bob, "k", "x") };
    assert_eq!(refusal(ledger, never).await, Refusal::Void);
    let above = WriteItem { token: token(21), ..put(&bob, "k", "x") };
    assert_eq!(refusal(ledger, above).await, Refusal::Unknown);
    let elsewhere = WriteItem { resource: name("other"), ..put(&bob, "k", "x") };
    assert_eq!(refusal(ledger, elsewhere).await, Refusal::Void);
    replayed(commit_one(ledger, WriteItem { operation: operation_id(), ..once }).await);
}

/// After the lock id, before the sequence; stale and released win over it.
pub async fn a_frozen_resource_takes_no_write(ledger: &dyn Ledger, operator: &Operator) {
    let (ann, bob) = succession(ledger, "r").await;
    operator.execute("UPDATE fences SET frozen = 'audit'").await;
    let item = WriteItem { sequence: Some(0), resource_version: Some(99), ..put(&bob, "k", "x") };
    assert_eq!(refusal(ledger, item.clone()).await, Refusal::Frozen);
    let other_id = WriteItem { lock: Some(ann.lock), ..item };
    assert_eq!(refusal(ledger, other_id).await, Refusal::LockIdMismatch);
    assert!(matches!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Stale { .. }));
    release_one(ledger, bob.lock).await;
    assert_eq!(refusal(ledger, put(&bob, "k", "x")).await, Refusal::Released);
    let next = seal_one(ledger, seal(["r"], 30)).await;
    assert_eq!(next, SealVerdict::Frozen(name("r")));
    operator.execute("UPDATE fences SET frozen = NULL").await;
    held(ledger, "r", 30).await;
}

/// Only the deletion of all objects is forbidden.
pub async fn a_protected_resource_is_not_deleted(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    operator.execute("UPDATE fences SET protected = 'precious'").await;
    assert_eq!(refusal(ledger, delete_all(&ann)).await, Refusal::Protected);
    assert_eq!(apply(ledger, delete(&ann, "k")).await.version, Some(2));
    let mismatch = WriteItem { resource_version: Some(99), ..delete_all(&ann) };
    assert_eq!(refusal(ledger, mismatch).await, Refusal::VersionMismatch);
}

/// The generation rises with the floor, so tags of before match nothing written since.
pub async fn a_tag_of_an_older_generation_never_matches(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.generation, 0);
    operator.raise_floor(10).await;
    let bob = granted(ledger, seal(["r"], 20)).await;
    let kept = WriteItem { object_condition: if_match(1), ..put(&bob, "k", "b") };
    let applied = apply(ledger, kept.clone()).await;
    assert_eq!((applied.version, applied.generation), (Some(2), 1));
    let old = WriteItem { object_condition: if_match(2), operation: operation_id(), ..kept };
    assert_eq!(refusal(ledger, old).await, Refusal::VersionMismatch);
}
