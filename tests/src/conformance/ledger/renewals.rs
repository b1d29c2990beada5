//! Renew and release: what a holder does with its lock.

use std::sync::Arc;

use fence_core::ports::{
    By, Ended, Grant, Ledger, Patience, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict,
    SealItem, SealVerdict, WriteItem,
};
use fence_core::{LockEnd, LockId, LockState, Refusal, Ttl};

use super::build::*;

/// The ttl starts again; nothing else changes.
pub async fn a_renewal_starts_the_ttl_again(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let RenewVerdict::Renewed { grant, lapsed_ms } = renew_one(ledger, ann.lock).await else {
        panic!("not renewed")
    };
    assert_eq!(
        (grant.token, &grant.resources, &grant.owner),
        (ann.token, &ann.resources, &ann.owner)
    );
    assert_eq!((grant.ttl, grant.state, lapsed_ms), (long(), LockState::Leased, None));
    assert_eq!(grant.acquired_at.as_microsecond(), ann.acquired_at.as_microsecond());
    assert_eq!(grant.versions, [1]);
    assert!((long().as_ms() - 1000..=long().as_ms()).contains(&grant.remaining_ms));
}

/// A new ttl stays for the renewals after it.
pub async fn a_renewal_may_bring_a_new_ttl(ledger: &dyn Ledger) {
    let ann = granted(ledger, SealItem { ttl: Some(short()), ..seal(["r"], 10) }).await;
    let hour = Ttl::from_ms(3_600_000);
    for ttl in [Some(hour), None] {
        let RenewVerdict::Renewed { grant, .. } = renew_for(ledger, ann.lock, ttl).await else {
            panic!("not renewed")
        };
        assert_eq!(grant.ttl, hour);
        assert!(grant.remaining_ms > 3_590_000);
    }
    let record = ledger.lock(ann.lock).await.expect("read").expect("known");
    assert_eq!(record.grant.ttl, hour);
    assert!(matches!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Held(_)));
}

/// Nobody took over: it says for how long it had lapsed.
pub async fn a_renewal_revives_an_expired_lock(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    let RenewVerdict::Renewed { grant, lapsed_ms } =
        renew_for(ledger, ann.lock, Some(long())).await
    else {
        panic!("not renewed")
    };
    assert!((1..60_000).contains(&lapsed_ms.expect("it had lapsed")), "{lapsed_ms:?}");
    assert_eq!(grant.state, LockState::Leased);
    assert!(matches!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Held(_)));
    apply(ledger, put(&ann, "k", "a")).await;
}

/// No lock has this id; it stays free.
pub async fn renewing_an_unknown_id_finds_nothing(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    assert_eq!(renew_one(ledger, item.lock).await, RenewVerdict::NotFound);
    granted(ledger, item).await;
}

/// Whatever ended it says so.
pub async fn an_ended_lock_is_not_renewed(ledger: &dyn Ledger) {
    let released = held(ledger, "a", 10).await;
    release_one(ledger, released.lock).await;
    let broken = held(ledger, "b", 11).await;
    break_one(ledger, &broken, 0).await;
    let superseded = expired(ledger, "c", 12).await;
    held(ledger, "c", 20).await;
    let buried = lock_id();
    release_one(ledger, buried).await;
    let all = [
        (released.lock, LockEnd::Released),
        (broken.lock, LockEnd::Broken),
        (superseded.lock, LockEnd::Superseded),
        (buried, LockEnd::Released),
    ];
    for (id, how) in all {
        assert_eq!(renew_one(ledger, id).await, RenewVerdict::Ended(how));
    }
}

/// Nothing is extended.
pub async fn a_breaking_lock_is_not_renewed(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 60_000).await;
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Breaking);
    apply(ledger, put(&ann, "k", "still mine")).await;
}

/// Many at once, each with its own verdict, some twice.
pub async fn many_are_renewed_at_once(ledger: &dyn Ledger) {
    let ann = held(ledger, "a", 10).await;
    let gone = held(ledger, "b", 11).await;
    release_one(ledger, gone.lock).await;
    let pair = granted(ledger, seal(["c", "d"], 12)).await;
    let ids = [ann.lock, gone.lock, lock_id(), pair.lock, ann.lock];
    let items = ids.map(|lock| RenewItem { lock, ttl: None, by: By::default() });
    let verdicts = ledger.renew(Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(
        matches!(
            verdicts.as_slice(),
            [
                RenewVerdict::Renewed { .. },
                RenewVerdict::Ended(LockEnd::Released),
                RenewVerdict::NotFound,
                RenewVerdict::Renewed { .. },
                RenewVerdict::Renewed { .. }
            ]
        ),
        "{verdicts:?}"
    );
}

/// Its deadline starts again on each of its resources.
pub async fn a_lock_on_several_resources_is_renewed_on_all(ledger: &dyn Ledger) {
    let pair = granted(ledger, SealItem { ttl: Some(short()), ..seal(["a", "b"], 10) }).await;
    expire().await;
    renew_for(ledger, pair.lock, Some(long())).await;
    for each in ["a", "b"] {
        assert!(matches!(seal_one(ledger, seal([each], 20)).await, SealVerdict::Held(_)), "{each}");
    }
}

/// The token is refused from then on, and the next one gets the resource.
pub async fn a_release_frees_the_resource(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    crate::conformance::pause(5).await;
    let ReleaseVerdict::Released { held_ms, ended, .. } = release_one(ledger, ann.lock).await
    else {
        panic!("not released")
    };
    assert!((4..60_000).contains(&held_ms), "{held_ms}");
    assert_eq!(ended, [Ended { resource: name("r"), number: 10 }]);
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Released);
    held(ledger, "r", 11).await;
}

/// The second one finds it ended, also after somebody else took the resource.
pub async fn a_release_is_idempotent(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    assert_eq!(release_one(ledger, ann.lock).await, ReleaseVerdict::AlreadyEnded);
    let bob = held(ledger, "r", 20).await;
    assert_eq!(release_one(ledger, ann.lock).await, ReleaseVerdict::AlreadyEnded);
    apply(ledger, put(&bob, "k", "b")).await;
}

/// In one batch as well.
pub async fn two_releases_in_one_batch_release_once(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let unknown = lock_id();
    let items = [ann.lock, ann.lock, unknown, unknown].map(ReleaseItem::from);
    let verdicts = ledger.release(Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(matches!(verdicts[0], ReleaseVerdict::Released { .. }));
    assert_eq!(verdicts[1], ReleaseVerdict::AlreadyEnded);
    assert_eq!(verdicts[2..], [ReleaseVerdict::Buried, ReleaseVerdict::Buried]);
}

/// One that must not be buried is left as it was: it can be granted. What holds, waits or has ended under
/// its id is released all the same, and what was buried before stays so.
pub async fn an_unknown_id_is_buried_only_where_it_may_be(ledger: &dyn Ledger) {
    let spare = |lock: LockId| ReleaseItem { may_bury: false, ..lock.into() };
    let release = async |lock: LockId| {
        only(ledger.release(Arc::from([spare(lock)]), Patience::Skip).await.expect("decided"))
    };
    let item = seal(["r"], 10);
    for _ in 0..2 {
        assert_eq!(release(item.lock).await, ReleaseVerdict::Unknown);
    }
    assert_eq!(renew_one(ledger, item.lock).await, RenewVerdict::NotFound);
    let ann = granted(ledger, item).await;
    let waiter = waiting(ledger, ["r"]).await;
    assert_eq!(release(waiter.lock).await, ReleaseVerdict::Left(vec![name("r")]));
    assert_eq!(release(waiter.lock).await, ReleaseVerdict::Buried);
    assert!(matches!(release(ann.lock).await, ReleaseVerdict::Released { .. }));
    assert_eq!(release(ann.lock).await, ReleaseVerdict::AlreadyEnded);
    let one = lock_id();
    assert_eq!(release_one(ledger, one).await, ReleaseVerdict::Buried);
    assert_eq!(release(one).await, ReleaseVerdict::Buried);
    // In one batch each is decided by its own.
    let (kept, buried) = (seal(["s"], 11), seal(["t"], 12));
    let items = [spare(kept.lock), buried.lock.into(), spare(buried.lock)];
    let verdicts = ledger.release(Arc::from(items), Patience::Skip).await.expect("decided");
    use ReleaseVerdict::{Buried, Unknown};
    assert_eq!(verdicts, [Unknown, Buried, Buried]);
    granted(ledger, kept).await;
    let ended = SealVerdict::Ended(LockEnd::Released);
    assert_eq!(seal_one(ledger, buried).await, ended);
}

/// Also while it was being broken: it ends as released, and no break comes after it.
pub async fn a_breaking_lock_may_be_released(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 300).await;
    assert!(matches!(release_one(ledger, ann.lock).await, ReleaseVerdict::Released { .. }));
    crate::conformance::pause(350).await;
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Released);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Ended(LockEnd::Released));
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!(view.state, LockState::Released);
}

/// Also after it had expired.
pub async fn an_expired_lock_may_be_released(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    assert!(matches!(release_one(ledger, ann.lock).await, ReleaseVerdict::Released { .. }));
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Released);
}

/// A lock on several resources gives them all back.
pub async fn a_release_frees_all_its_resources(ledger: &dyn Ledger) {
    let pair = granted(ledger, seal(["a", "b"], 10)).await;
    let ReleaseVerdict::Released { ended, .. } = release_one(ledger, pair.lock).await else {
        panic!("not released")
    };
    let trace = |resource| Ended { resource: name(resource), number: 10 };
    assert_eq!(ended, [trace("a"), trace("b")]);
    granted(ledger, seal(["a"], 11)).await;
    granted(ledger, seal(["b"], 12)).await;
}

/// The verdict on a release of this grant unless it was taken up since.
async fn release_untouched(ledger: &dyn Ledger, grant: &Grant) -> ReleaseVerdict {
    let unless_renewed_since = Some(grant.acquired_at);
    let item = ReleaseItem { unless_renewed_since, ..grant.lock.into() };
    only(ledger.release(Arc::from([item]), Patience::Skip).await.expect("the release is decided"))
}

/// A grant that nobody took up is released, also when it has expired or is being broken.
pub async fn a_grant_that_was_never_renewed_may_be_released_on_that_condition(ledger: &dyn Ledger) {
    let fresh = granted(ledger, seal(["a", "b"], 10)).await;
    let lapsed = expired(ledger, "c", 11).await;
    let breaking = held(ledger, "d", 12).await;
    break_one(ledger, &breaking, 60_000).await;
    for grant in [fresh, lapsed, breaking] {
        let verdict = release_untouched(ledger, &grant).await;
        assert!(matches!(verdict, ReleaseVerdict::Released { .. }), "{verdict:?}");
        assert_eq!(release_untouched(ledger, &grant).await, ReleaseVerdict::AlreadyEnded);
        assert_eq!(refusal(ledger, put(&grant, "k", "x")).await, Refusal::Released);
    }
}

/// One that was renewed or re-entered since is kept, on all of its resources; a release without the
/// condition still ends it.
pub async fn a_grant_that_was_taken_up_since_is_kept(ledger: &dyn Ledger) {
    let renewed = granted(ledger, seal(["a", "b"], 10)).await;
    let item = seal(["c"], 11);
    let reentered = granted(ledger, item.clone()).await;
    crate::conformance::pause(2).await;
    renew_one(ledger, renewed.lock).await;
    let again = SealItem { number: None, ..item };
    assert!(matches!(seal_one(ledger, again).await, SealVerdict::Again(_)));
    for grant in [&renewed, &reentered] {
        assert_eq!(release_untouched(ledger, grant).await, ReleaseVerdict::Kept);
        apply(ledger, put(grant, "k", "still mine")).await;
        let record = ledger.lock(grant.lock).await.expect("read").expect("known");
        assert_eq!((record.ended, record.grant.state), (None, LockState::Leased));
        let verdict = release_one(ledger, grant.lock).await;
        assert!(matches!(verdict, ReleaseVerdict::Released { .. }), "{verdict:?}");
    }
}

/// In one batch the condition sees what the items before it did; an unknown id is buried as ever.
pub async fn a_conditional_release_is_decided_in_its_batch(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let unknown = seal(["s"], 10);
    let unless_renewed_since = Some(ann.acquired_at);
    let since = |lock: LockId| ReleaseItem { unless_renewed_since, ..lock.into() };
    let items = [ann.lock.into(), since(ann.lock), since(unknown.lock)];
    let verdicts = ledger.release(Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(matches!(verdicts[0], ReleaseVerdict::Released { .. }));
    assert_eq!(verdicts[1..], [ReleaseVerdict::AlreadyEnded, ReleaseVerdict::Buried]);
    let ended = SealVerdict::Ended(LockEnd::Released);
    assert_eq!(seal_one(ledger, unknown).await, ended);
}

/// A lock that ended on one of its resources is given back on the others by its release, also one that
/// would have lasted for ever.
pub async fn a_lock_that_ended_in_part_is_released_on_the_rest(ledger: &dyn Ledger) {
    let pair = granted(ledger, SealItem { ttl: Some(Ttl::INFINITE), ..seal(["a", "b"], 10) }).await;
    renew_one(ledger, pair.lock).await;
    break_one(ledger, &pair, 0).await;
    let rest = WriteItem { resource: name("b"), ..put(&pair, "k", "x") };
    apply(ledger, rest.clone()).await;
    let ReleaseVerdict::Released { ended, .. } = release_one(ledger, pair.lock).await else {
        panic!("it is released on the rest");
    };
    assert_eq!(ended.iter().map(|one| one.resource.as_str()).collect::<Vec<_>>(), ["b"]);
    let late = WriteItem { operation: operation_id(), ..rest };
    assert_eq!(refusal(ledger, late).await, Refusal::Released);
    assert_eq!(release_one(ledger, pair.lock).await, ReleaseVerdict::AlreadyEnded);
    let record = ledger.lock(pair.lock).await.expect("read").expect("known");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Broken));
    held(ledger, "b", 20).await;
}

/// A lock on several resources shows the break of any of them, and counts down to it.
pub async fn a_break_of_any_resource_shows(ledger: &dyn Ledger) {
    let pair = granted(ledger, seal(["a", "b"], 10)).await;
    let mut second = pair.clone();
    second.resources.remove(0);
    break_one(ledger, &second, 60_000).await;
    let record = ledger.lock(pair.lock).await.expect("read").expect("known");
    assert_eq!(record.grant.state, LockState::Breaking);
    assert!(record.break_due.is_some_and(|due| due.in_ms > 0 && due.in_ms <= 60_000));
    assert!((1..=60_000).contains(&record.grant.remaining_ms), "{record:?}");
    let view = ledger.resource(&name("b")).await.expect("read").expect("locked");
    assert!((1..=60_000).contains(&view.remaining_ms), "{view:?}");
}
