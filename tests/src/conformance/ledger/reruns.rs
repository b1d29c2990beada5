//! Lost answers: an act runs again under its id, or its id is buried, and never both takes effect.

use std::sync::Arc;

use fence_core::ports::{
    Attempt, Ledger, Mark, OperationRecord, Patience, SealItem, SealVerdict, WriteItem,
    WriteVerdict,
};
use fence_core::{LockEnd, Refusal};

use super::build::*;
use super::marks::mark_one;

fn rerun(item: &WriteItem) -> WriteItem {
    WriteItem { attempt: Attempt::Rerun, ..item.clone() }
}

fn bury(item: &WriteItem) -> WriteItem {
    WriteItem { attempt: Attempt::Bury, ..item.clone() }
}

/// It is found, not applied twice, and it is not a replay of something earlier.
pub async fn an_operation_that_is_known_is_found(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let numbered = WriteItem { sequence: Some(1), ..put(&ann, "k", "a") };
    let plain = put(&ann, "k", "b");
    let first = [
        (numbered.clone(), apply(ledger, numbered).await),
        (plain.clone(), apply(ledger, plain).await),
    ];
    apply(ledger, put(&ann, "k", "c")).await;
    release_one(ledger, ann.lock).await;
    for (item, first) in first {
        for again in [item.clone(), rerun(&item), bury(&item)] {
            assert_eq!(applied(commit_one(ledger, again).await), first);
        }
    }
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("c"));
    assert_eq!(counts(ledger, "r").await, (3, 1));
}

/// A rerun whose first sending never arrived takes effect now.
pub async fn a_rerun_of_an_absent_write_applies_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = put(&ann, "k", "a");
    let first = apply(ledger, rerun(&item)).await;
    assert_eq!(apply(ledger, item).await, first);
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// The first sending may still be waiting for its row lock: it must find the id buried.
pub async fn a_rerun_that_is_refused_buries_its_id(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { resource_version: Some(1), ..put(&ann, "k", "x") };
    assert_eq!(refusal(ledger, rerun(&item)).await, Refusal::VersionMismatch);
    let record = ledger.operation(item.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Buried));
    apply(ledger, put(&ann, "k", "a")).await;
    // Its precondition holds by now.
    for again in [item.clone(), rerun(&item), bury(&item)] {
        assert_eq!(commit_one(ledger, again).await, WriteVerdict::Buried);
    }
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("a"));
}

/// Also for the refusals of the token, on resources that nobody ever locked, and for what may be admitted a moment later.
pub async fn a_rerun_is_buried_whatever_refused_it(ledger: &dyn Ledger) {
    let (ann, bob) = succession(ledger, "r").await;
    let in_time = put(&bob, "k", "x");
    mark_one(ledger, "r", Mark::Freeze, "a moment").await;
    assert_eq!(refusal(ledger, rerun(&in_time)).await, Refusal::Frozen);
    mark_one(ledger, "r", Mark::Unfreeze, "it is over").await;
    assert_eq!(commit_one(ledger, in_time).await, WriteVerdict::Buried);
    let elsewhere = WriteItem { resource: name("other"), ..put(&bob, "k", "x") };
    for item in [put(&ann, "k", "x"), elsewhere] {
        refusal(ledger, rerun(&item)).await;
        assert_eq!(commit_one(ledger, item).await, WriteVerdict::Buried);
    }
}

/// A first sending that is refused leaves its id free.
pub async fn a_first_sending_that_is_refused_buries_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { resource_version: Some(1), ..put(&ann, "k", "x") };
    refusal(ledger, item.clone()).await;
    apply(ledger, put(&ann, "k", "a")).await;
    apply(ledger, item).await;
}

/// No longer wanted: it never takes effect.
pub async fn burying_an_absent_write_stops_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "x") };
    assert_eq!(commit_one(ledger, bury(&item)).await, WriteVerdict::Buried);
    assert_eq!(commit_one(ledger, item.clone()).await, WriteVerdict::Buried);
    let record = ledger.operation(item.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Buried));
    assert_eq!((counts(ledger, "r").await, text(ledger, "r", "k").await), ((0, 0), None));
    // Its key is free for another operation.
    apply(ledger, WriteItem { operation: operation_id(), ..item }).await;
}

/// Whatever became of the key: the sending is found by its id, another one by its key.
pub async fn a_rerun_with_a_key_finds_the_effect(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    let first = apply(ledger, item.clone()).await;
    assert_eq!(applied(commit_one(ledger, rerun(&item)).await), first);
    let other = WriteItem { operation: operation_id(), ..item };
    assert_eq!(replayed(commit_one(ledger, rerun(&other)).await), first);
    let third = WriteItem { operation: operation_id(), ..other };
    assert_eq!(replayed(commit_one(ledger, bury(&third)).await), first);
}

/// Its own id never took effect, and never does, also where the key is not looked at any more; a first
/// sending leaves its id free.
pub async fn a_rerun_that_its_key_answers_buries_its_id(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let first = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    let done = apply(ledger, first.clone()).await;
    for attempt in [Attempt::Rerun, Attempt::Bury] {
        for payload in ["p", "other"] {
            let idempotency = keyed("once", payload);
            let again = WriteItem { operation: operation_id(), idempotency, ..first.clone() };
            let verdict = commit_one(ledger, WriteItem { attempt, ..again.clone() }).await;
            let expected = match payload {
                "p" => WriteVerdict::Applied { applied: done.clone(), replayed: true },
                _ => WriteVerdict::KeyReused { first: first.operation },
            };
            assert_eq!(verdict, expected, "{attempt:?}");
            let record = ledger.operation(again.operation).await.expect("read");
            assert_eq!(record, Some(OperationRecord::Buried), "{attempt:?} {payload}");
            let late = WriteItem { idempotency: None, ..again };
            assert_eq!(commit_one(ledger, late).await, WriteVerdict::Buried);
        }
    }
    let again = WriteItem { operation: operation_id(), ..first.clone() };
    assert_eq!(replayed(commit_one(ledger, again.clone()).await), done);
    assert_eq!(ledger.operation(again.operation).await, Ok(None));
    // The operation that took effect is found, and stays.
    assert_eq!(applied(commit_one(ledger, bury(&first)).await), done);
    let record = ledger.operation(first.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Applied(done)));
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// Of a key that had its effect no caller is told that there was none, although its own sending was given up before.
pub async fn a_key_that_had_its_effect_answers_for_a_buried_id(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let given_up = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    assert_eq!(commit_one(ledger, bury(&given_up)).await, WriteVerdict::Buried);
    let second = WriteItem { operation: operation_id(), ..given_up.clone() };
    let done = apply(ledger, second.clone()).await;
    for again in [given_up.clone(), rerun(&given_up), bury(&given_up)] {
        assert_eq!(replayed(commit_one(ledger, again).await), done);
    }
    let other_payload = WriteItem { idempotency: keyed("once", "q"), ..rerun(&given_up) };
    let reused = WriteVerdict::KeyReused { first: second.operation };
    assert_eq!(commit_one(ledger, other_payload).await, reused);
    let record = ledger.operation(given_up.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Buried));
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// In one batch, too.
pub async fn what_its_key_buried_in_a_batch_stays_so_in_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let first = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    let other = WriteItem { operation: operation_id(), ..rerun(&first) };
    let late = WriteItem { idempotency: None, attempt: Attempt::First, ..other.clone() };
    let [one, two, three] = commit(ledger, [first, other, late]).await;
    assert_eq!(applied(one), replayed(two));
    assert_eq!(three, WriteVerdict::Buried);
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// The same operation twice in one batch has one effect.
pub async fn one_operation_twice_in_a_batch_has_one_effect(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = put(&ann, "k", "a");
    let [first, second] = commit(ledger, [item.clone(), item]).await;
    assert_eq!(applied(first), applied(second));
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// What an item buries, a later one of the same batch finds.
pub async fn what_is_buried_in_a_batch_stays_so_in_it(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (given_up, refused) =
        (put(&ann, "k", "x"), WriteItem { sequence: Some(0), ..put(&ann, "k", "x") });
    let now_good = WriteItem { sequence: None, ..refused.clone() };
    let items = [bury(&given_up), given_up, rerun(&refused), now_good];
    let [first, second, third, fourth] = commit(ledger, items).await;
    assert_eq!((first, second), (WriteVerdict::Buried, WriteVerdict::Buried));
    assert_eq!(third, WriteVerdict::Refused(Refusal::SequenceOutOfOrder));
    assert_eq!(fourth, WriteVerdict::Buried);
    assert_eq!(counts(ledger, "r").await, (0, 0));
}

/// A grant whose answer was lost is found by its id.
pub async fn a_rerun_of_a_sealed_id_is_the_same_lock(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    let first = granted(ledger, item.clone()).await;
    let again = SealItem { attempt: Attempt::Rerun, number: Some(11), ..item };
    let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
    assert_eq!((grant.token, grant.lock), (first.token, first.lock));
}

/// A grant whose first sending never arrived is sealed now.
pub async fn a_rerun_of_an_absent_seal_seals(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    granted(ledger, SealItem { attempt: Attempt::Rerun, ..item.clone() }).await;
    assert!(matches!(seal_one(ledger, item).await, SealVerdict::Again(_)));
}

/// Held, or a number too low: the id is buried, whoever comes late.
pub async fn a_rerun_of_a_seal_that_is_refused_buries_its_id(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let held_off = seal(["r"], 20);
    let too_low = seal(["free"], 0);
    let again = |item: &SealItem| SealItem { attempt: Attempt::Rerun, ..item.clone() };
    assert!(matches!(seal_one(ledger, again(&held_off)).await, SealVerdict::Held(_)));
    assert_eq!(seal_one(ledger, again(&too_low)).await, SealVerdict::NumberTooLow);
    release_one(ledger, ann.lock).await;
    for item in [held_off, SealItem { number: Some(30), ..too_low }] {
        let ended = SealVerdict::Ended(LockEnd::Released);
        assert_eq!(seal_one(ledger, item.clone()).await, ended);
        assert_eq!(seal_one(ledger, again(&item)).await, ended);
    }
}

/// No longer wanted: it is never sealed.
pub async fn burying_an_absent_seal_stops_it(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    let buried = SealItem { attempt: Attempt::Bury, ..item.clone() };
    let ended = SealVerdict::Ended(LockEnd::Released);
    assert_eq!(seal_one(ledger, buried).await, ended);
    assert_eq!(seal_one(ledger, item).await, ended);
    assert_eq!(ledger.resource(&name("r")).await.expect("read"), None);
}

/// A batch with nothing in it decides nothing.
pub async fn an_empty_batch_is_decided(ledger: &dyn Ledger) {
    let skip = Patience::Skip;
    assert_eq!(ledger.seal(0, Arc::from([]), skip).await, Ok(vec![]));
    assert_eq!(ledger.renew(Arc::from([]), skip).await, Ok(vec![]));
    assert_eq!(ledger.release(Arc::from([]), skip).await, Ok(vec![]));
    assert_eq!(ledger.break_locks(Arc::from([]), skip).await, Ok(vec![]));
    assert_eq!(ledger.commit(Arc::from([]), skip).await, Ok(vec![]));
    assert_eq!(ledger.read(Arc::from([])).await, Ok(vec![]));
}
