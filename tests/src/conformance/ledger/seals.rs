//! Seal: who gets a resource, under which token, and what becomes of whoever had it.

use std::sync::Arc;

use fence_core::ports::{
    Attempt, BreakVerdict, Ledger, LedgerError, Patience, ReleaseVerdict, RenewVerdict, SealItem,
    SealVerdict, WriteItem,
};
use fence_core::{LockEnd, LockState, Refusal};

use super::build::*;
use crate::conformance::Operator;

/// Nobody had it before.
pub async fn a_fresh_resource_is_sealed(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    let SealVerdict::Sealed(grant, taken_over) = seal_one(ledger, item.clone()).await else {
        panic!("not sealed")
    };
    assert_eq!((grant.lock, &grant.resources), (item.lock, &item.resources));
    assert_eq!((grant.token, grant.owner.as_str()), (token(10), "ann"));
    assert_eq!((grant.state, grant.ttl), (LockState::Leased, long()));
    assert!((long().as_ms() - 1000..=long().as_ms()).contains(&grant.remaining_ms));
    assert_eq!((grant.versions, taken_over), (vec![0], vec![]));
}

/// The verdict names the holder.
pub async fn a_held_resource_is_refused_with_its_holder(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let bob = SealItem { owner: "bob".into(), ..seal(["r"], 20) };
    let SealVerdict::Held(holder) = seal_one(ledger, bob.clone()).await else { panic!("not held") };
    assert_eq!((holder.resource.as_str(), holder.owner.as_str()), ("r", "ann"));
    assert_eq!(holder.state, LockState::Leased);
    assert!(holder.age_ms >= 0 && holder.remaining_ms > 0);
    assert_eq!(ledger.lock(bob.lock).await.expect("read"), None);
}

/// The old token is stale at once, and the takeover is reported.
pub async fn an_expired_lock_is_taken_over(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let item = SealItem { owner: "bob".into(), ..seal(["r"], 20) };
    let SealVerdict::Sealed(bob, taken_over) = seal_one(ledger, item).await else {
        panic!("not sealed")
    };
    assert_eq!((bob.token, bob.versions.as_slice()), (token(20), [1].as_slice()));
    assert_eq!(only(taken_over.clone()).resource, name("r"));
    assert!(only(taken_over).held_ms >= short().as_ms());
    assert!(matches!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Stale { .. }));
    let record = ledger.lock(ann.lock).await.expect("read").expect("kept");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Superseded));
}

/// Not on another resource either, in the same batch or later: a mint that went back repeats itself. A lock
/// on several resources has its number on all of them.
pub async fn a_number_names_one_grant(ledger: &dyn Ledger) {
    let several = seal(["a", "b"], 10);
    assert!(matches!(seal_one(ledger, several.clone()).await, SealVerdict::Sealed(..)));
    for names in [["c"].as_slice(), &["c", "d"]] {
        let tied =
            SealItem { resources: names.iter().copied().map(name).collect(), ..seal(["c"], 10) };
        assert_eq!(seal_one(ledger, tied).await, SealVerdict::NumberTooLow);
    }
    let released = held(ledger, "f", 5).await;
    release_one(ledger, released.lock).await;
    assert_eq!(seal_one(ledger, seal(["f"], 10)).await, SealVerdict::NumberTooLow);
    let batch = [seal(["c"], 20), seal(["d"], 20), seal(["e"], 21)];
    let epoch = ledger.epoch().await.expect("an epoch").number;
    let verdicts = ledger.seal(epoch, Arc::new(batch), Patience::Skip).await.expect("decided");
    assert!(matches!(verdicts[0], SealVerdict::Sealed(..)), "{verdicts:?}");
    assert_eq!(verdicts[1], SealVerdict::NumberTooLow);
    assert!(matches!(verdicts[2], SealVerdict::Sealed(..)), "{verdicts:?}");
    assert!(matches!(seal_one(ledger, several).await, SealVerdict::Again(_)));
}

/// Released and broken locks were given up before: nothing is taken over.
pub async fn only_locks_that_expired_count_as_taken_over(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let SealVerdict::Sealed(bob, taken_over) = seal_one(ledger, seal(["r"], 20)).await else {
        panic!("not sealed")
    };
    assert_eq!(taken_over, []);
    break_one(ledger, &bob, 0).await;
    let SealVerdict::Sealed(_, taken_over) = seal_one(ledger, seal(["r"], 30)).await else {
        panic!("not sealed")
    };
    assert_eq!(taken_over, []);
    let ends = [(ann.lock, LockEnd::Released), (bob.lock, LockEnd::Broken)];
    for (id, how) in ends {
        let record = ledger.lock(id).await.expect("read").expect("kept");
        assert_eq!(record.ended.map(|(how, _)| how), Some(how));
    }
}

/// The same caller's retry or re-entry: the same lock and token, the ttl started again.
pub async fn the_same_id_again_is_the_same_lock(ledger: &dyn Ledger) {
    let item = SealItem { ttl: Some(short()), ..seal(["r"], 10) };
    let first = granted(ledger, item.clone()).await;
    apply(ledger, put(&first, "k", "a")).await;
    expire().await;
    for number in [None, Some(99)] {
        let again = SealItem { number, ttl: Some(long()), ..item.clone() };
        let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
        assert_eq!((grant.token, grant.lock), (first.token, first.lock));
        assert_eq!((grant.ttl, grant.state), (long(), LockState::Leased));
        assert_eq!(grant.acquired_at.as_microsecond(), first.acquired_at.as_microsecond());
        assert_eq!(grant.versions, [1]);
        assert!(grant.remaining_ms > short().as_ms());
    }
    assert!(matches!(seal_one(ledger, seal(["r"], 100)).await, SealVerdict::Held(_)));
}

/// An id belongs to its owner and its resources.
pub async fn the_same_id_for_something_else_conflicts(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    granted(ledger, item.clone()).await;
    let others = [
        SealItem { owner: "bob".into(), ..item.clone() },
        SealItem { resources: vec![name("s")], number: Some(20), ..item.clone() },
        SealItem { resources: vec![name("r"), name("s")], number: Some(20), ..item.clone() },
    ];
    for other in others {
        assert_eq!(seal_one(ledger, other).await, SealVerdict::Conflict);
    }
    assert_eq!(ledger.resource(&name("s")).await.expect("read"), None);
    assert!(matches!(seal_one(ledger, item).await, SealVerdict::Again(_)));
}

/// However it ended, and even with other resources.
pub async fn an_ended_id_is_never_granted_again(ledger: &dyn Ledger) {
    let released = seal(["a"], 10);
    granted(ledger, released.clone()).await;
    release_one(ledger, released.lock).await;
    let broken = seal(["b"], 11);
    break_one(ledger, &granted(ledger, broken.clone()).await, 0).await;
    let superseded = SealItem { ttl: Some(short()), ..seal(["c"], 12) };
    granted(ledger, superseded.clone()).await;
    expire().await;
    held(ledger, "c", 20).await;
    let all = [
        (released, LockEnd::Released),
        (broken, LockEnd::Broken),
        (superseded, LockEnd::Superseded),
    ];
    for (item, how) in all {
        let again = SealItem { number: Some(30), ..item };
        assert_eq!(seal_one(ledger, again.clone()).await, SealVerdict::Ended(how));
        let elsewhere = SealItem { resources: vec![name("d")], ..again };
        assert_eq!(seal_one(ledger, elsewhere).await, SealVerdict::Ended(how));
    }
}

/// A release that overtakes its grant wins.
pub async fn releasing_an_unknown_id_buries_it(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    assert_eq!(release_one(ledger, item.lock).await, ReleaseVerdict::Buried);
    let ended = SealVerdict::Ended(LockEnd::Released);
    assert_eq!(seal_one(ledger, item.clone()).await, ended);
    let rerun = SealItem { attempt: Attempt::Rerun, ..item };
    assert_eq!(seal_one(ledger, rerun).await, ended);
    held(ledger, "r", 10).await;
}

/// A number must rise above the fence; a refused one changes nothing.
pub async fn a_number_that_does_not_rise_is_too_low(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    for number in [Some(9), Some(10), Some(0), Some(-5), None] {
        let item = SealItem { number, ..seal(["r"], 0) };
        assert_eq!(seal_one(ledger, item).await, SealVerdict::NumberTooLow, "{number:?}");
    }
    for number in [Some(0), Some(-5), None] {
        let fresh = SealItem { number, ..seal(["fresh"], 0) };
        assert_eq!(seal_one(ledger, fresh).await, SealVerdict::NumberTooLow, "{number:?}");
    }
    assert_eq!(ledger.resource(&name("fresh")).await.expect("read"), None);
    held(ledger, "r", 11).await;
}

/// A number that was too low does not use up its id.
pub async fn after_a_number_too_low_the_same_id_may_mint_again(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let item = seal(["r"], 10);
    assert_eq!(seal_one(ledger, item.clone()).await, SealVerdict::NumberTooLow);
    granted(ledger, SealItem { number: Some(11), ..item }).await;
}

/// One of two is held: nothing is sealed on the other.
pub async fn several_resources_are_sealed_all_or_none(ledger: &dyn Ledger) {
    let ann = held(ledger, "b", 10).await;
    let both = seal(["a", "b", "c"], 20);
    assert!(
        matches!(seal_one(ledger, both.clone()).await, SealVerdict::Held(h) if h.resource == name("b"))
    );
    for free in ["a", "c"] {
        assert_eq!(ledger.resource(&name(free)).await.expect("read"), None);
    }
    assert_eq!(ledger.lock(both.lock).await.expect("read"), None);
    assert_eq!(refusal(ledger, put_at("a", 20)).await, Refusal::Unknown);
    release_one(ledger, ann.lock).await;
    let grant = granted(ledger, both).await;
    assert_eq!(grant.resources, [name("a"), name("b"), name("c")]);
    for each in ["a", "b", "c"] {
        apply(ledger, put_at(each, 20)).await;
    }
    let record = ledger.lock(grant.lock).await.expect("read").expect("known");
    assert_eq!(record.grant.versions, [1, 1, 1]);
}

/// The number must rise on each of them.
pub async fn several_resources_need_a_number_above_all_their_fences(ledger: &dyn Ledger) {
    for (resource, number) in [("a", 5), ("b", 30)] {
        let grant = held(ledger, resource, number).await;
        release_one(ledger, grant.lock).await;
    }
    let item = seal(["a", "b"], 20);
    assert_eq!(seal_one(ledger, item.clone()).await, SealVerdict::NumberTooLow);
    let view = ledger.resource(&name("a")).await.expect("read").expect("locked");
    assert_eq!((view.token, view.state), (token(5), LockState::Released));
    granted(ledger, SealItem { number: Some(31), ..item }).await;
}

/// A lock of which one resource was taken over has ended, everywhere.
pub async fn a_lock_taken_over_on_one_resource_has_ended(ledger: &dyn Ledger) {
    let pair = granted(ledger, SealItem { ttl: Some(short()), ..seal(["a", "b"], 10) }).await;
    expire().await;
    held(ledger, "b", 20).await;
    let record = ledger.lock(pair.lock).await.expect("read").expect("kept");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Superseded));
    let ended = RenewVerdict::Ended(LockEnd::Superseded);
    assert_eq!(renew_one(ledger, pair.lock).await, ended);
    // On the other its token stays good until the next grant, or until it is given back.
    apply(ledger, put_at("a", 10)).await;
    assert!(matches!(refusal(ledger, put_at("b", 10)).await, Refusal::Stale { .. }));
    assert!(matches!(release_one(ledger, pair.lock).await, ReleaseVerdict::Released { .. }));
    assert_eq!(release_one(ledger, pair.lock).await, ReleaseVerdict::AlreadyEnded);
    assert_eq!(refusal(ledger, put_at("a", 10)).await, Refusal::Released);
}

/// Each item of a batch is decided on its own.
pub async fn a_batch_of_seals_has_a_verdict_each(ledger: &dyn Ledger) {
    held(ledger, "b", 10).await;
    let items = [seal(["a"], 20), seal(["b"], 21), seal(["c", "d"], 22), seal(["e"], 0)];
    let verdicts = ledger.seal(0, Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(
        matches!(
            verdicts.as_slice(),
            [
                SealVerdict::Sealed(..),
                SealVerdict::Held(_),
                SealVerdict::Sealed(..),
                SealVerdict::NumberTooLow
            ]
        ),
        "{verdicts:?}"
    );
}

/// The second is judged by what the first has left.
pub async fn one_id_for_two_resources_in_a_batch_is_granted_once(ledger: &dyn Ledger) {
    for (name, number) in [("r", 10), ("s", 11)] {
        let lock = held(ledger, name, number).await;
        release_one(ledger, lock.lock).await;
    }
    let first = seal(["r"], 20);
    let second = SealItem { lock: first.lock, ..seal(["s"], 21) };
    let verdicts = ledger.seal(0, Arc::from([first, second]), Patience::Skip).await;
    let verdicts = verdicts.expect("decided");
    assert!(
        matches!(verdicts.as_slice(), [SealVerdict::Sealed(..), SealVerdict::Conflict]),
        "{verdicts:?}"
    );
}

/// The number was minted in another epoch: definitely not applied.
pub async fn a_wrong_epoch_seals_nothing(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    for epoch in [-1, 1, 7] {
        let answer = ledger.seal(epoch, Arc::from([item.clone()]), Patience::Skip).await;
        assert_eq!(answer, Err(LedgerError::EpochMoved), "{epoch}");
    }
    assert_eq!(ledger.resource(&name("r")).await.expect("read"), None);
    granted(ledger, item).await;
}

/// A new holder counts from the start.
pub async fn a_seal_starts_the_sequence_again(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let high = |grant| WriteItem { sequence: Some(5), ..put(grant, "k", "a") };
    apply(ledger, high(&ann)).await;
    release_one(ledger, ann.lock).await;
    let bob = held(ledger, "r", 20).await;
    apply(ledger, WriteItem { sequence: Some(1), ..put(&bob, "k", "b") }).await;
    // Also if no version has the highest number.
    apply(ledger, WriteItem { sequence: Some(5), ..delete(&bob, "absent") }).await;
    let late = WriteItem { sequence: Some(5), ..put(&bob, "k", "c") };
    assert_eq!(refusal(ledger, late).await, Refusal::SequenceOutOfOrder);
    release_one(ledger, bob.lock).await;
    let eve = held(ledger, "r", 30).await;
    apply(ledger, WriteItem { sequence: Some(1), ..put(&eve, "k", "d") }).await;
}

/// A lock being broken keeps others out, and is not re-entered.
pub async fn a_breaking_lock_keeps_others_out(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    let ann = granted(ledger, item.clone()).await;
    assert!(matches!(break_one(ledger, &ann, 60_000).await, BreakVerdict::Breaking { .. }));
    assert_eq!(seal_one(ledger, item).await, SealVerdict::Breaking);
    let SealVerdict::Held(holder) = seal_one(ledger, seal(["r"], 20)).await else {
        panic!("not held")
    };
    assert_eq!(holder.state, LockState::Breaking);
}

/// A re-fence ends all locks: nothing at or below the floor is sealed or held.
pub async fn a_raised_floor_frees_what_was_held(ledger: &dyn Ledger, operator: &Operator) {
    let item = seal(["r"], 10);
    let ann = granted(ledger, item.clone()).await;
    operator.raise_floor(15).await;
    assert_eq!(seal_one(ledger, item.clone()).await, SealVerdict::Ended(LockEnd::Void));
    let void = RenewVerdict::Ended(LockEnd::Void);
    assert_eq!(renew_one(ledger, ann.lock).await, void);
    assert_eq!(release_one(ledger, ann.lock).await, ReleaseVerdict::AlreadyEnded);
    let record = ledger.lock(ann.lock).await.expect("read").expect("kept");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Void));
    assert_eq!(holders(ledger, &[name("r")]).await, [None]);
    assert_eq!(seal_one(ledger, seal(["r"], 15)).await, SealVerdict::NumberTooLow);
    assert_eq!(seal_one(ledger, seal(["s"], 15)).await, SealVerdict::NumberTooLow);
    held(ledger, "r", 16).await;
}
