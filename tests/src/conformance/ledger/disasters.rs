//! A new epoch, and a re-fence.

use std::sync::Arc;

use fence_core::ports::{
    AuditAction, AuditFilter, Ledger, LedgerError, Patience, REFENCE_JUMP, Refence, ReleaseVerdict,
    RenewVerdict, SealItem, SealKind, SealVerdict, Stand,
};
use fence_core::{LockEnd, LockState, Refusal};
use futures::future::join_all;
use uuid::Uuid;

use super::build::*;

pub(super) fn forced(nonce: Uuid) -> Refence {
    Refence {
        nonce,
        number: 50,
        known_base: 0,
        known_generation: 0,
        why: "test".into(),
        forced: true,
        seen: None,
    }
}

/// Its base lies above every token, so that numbers may begin anew; holders notice nothing.
pub async fn a_new_epoch_begins_above_every_token(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let high = held(ledger, "s", 70).await;
    release_one(ledger, high.lock).await;
    let before = ledger.epoch().await.expect("an epoch");
    let before = ledger.open_epoch(before.nonce).await.expect("opened");
    let nonce = Uuid::new_v4();
    let after = ledger.switch_epoch(before.number, nonce, 0, "test").await.expect("switched");
    assert_eq!((after.number, after.nonce, after.base, after.open), (1, nonce, 70, false));
    assert_eq!(after.ledger, before.ledger);
    assert_eq!(ledger.epoch().await.expect("an epoch"), after);
    let late = ledger.seal(0, Arc::from([seal(["r"], 1000)]), Patience::Skip).await;
    assert_eq!(late, Err(LedgerError::EpochMoved));

    apply(ledger, put(&ann, "k", "a")).await;
    assert!(matches!(renew_one(ledger, ann.lock).await, RenewVerdict::Renewed { .. }));
    assert!(ledger.open_epoch(nonce).await.expect("opened").open);
    assert_eq!(held(ledger, "s", 1).await.token, token(71));
    release_one(ledger, ann.lock).await;
    assert_eq!(held(ledger, "r", 2).await.token, token(72));
    let next = ledger.switch_epoch(1, Uuid::new_v4(), 0, "test").await.expect("switched");
    assert_eq!((next.number, next.base), (2, 72));
}

/// Somebody else was faster.
pub async fn of_many_switches_from_one_epoch_one_happens(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let nonces: Vec<Uuid> = (1..=8).map(Uuid::from_u128).collect();
    let switches = nonces.iter().map(|nonce| ledger.switch_epoch(0, *nonce, 0, "test"));
    let epochs = join_all(switches).await;
    let first = epochs[0].clone().expect("switched");
    assert_eq!((first.number, first.base), (1, 10));
    assert!(epochs.iter().all(|epoch| epoch.as_ref() == Ok(&first)), "{epochs:?}");
    for past in [0, -1, 7] {
        assert_eq!(ledger.switch_epoch(past, Uuid::new_v4(), 0, "test").await, Ok(first.clone()));
    }
}

/// All of them, on every act; the resources can be locked anew at once.
pub async fn a_refence_voids_all_tokens(ledger: &dyn Ledger) {
    let item = seal(["r"], 10);
    let ann = granted(ledger, item.clone()).await;
    apply(ledger, put(&ann, "k", "before")).await;
    let freed = held(ledger, "s", 90).await;
    release_one(ledger, freed.lock).await;
    let before = ledger.place(None).await.expect("a place");
    assert_eq!((before.generation, before.floor, before.highest), (0, 0, 90));
    let nonce = Uuid::new_v4();
    let epoch = ledger.refence(forced(nonce)).await.expect("re-fenced");
    let floor = 90 + REFENCE_JUMP;
    assert_eq!((epoch.number, epoch.nonce, epoch.base, epoch.open), (1, nonce, floor, false));
    let after = ledger.place(None).await.expect("a place");
    assert_eq!((after.generation, after.floor, after.called_for), (1, floor, None));
    assert_eq!(after.epoch, epoch);

    assert_eq!(refusal(ledger, put(&ann, "k", "late")).await, Refusal::Void);
    assert_eq!(refusal(ledger, put(&freed, "k", "late")).await, Refusal::Void);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Ended(LockEnd::Void));
    assert_eq!(seal_one(ledger, item).await, SealVerdict::Ended(LockEnd::Void));
    let transfer = SealItem { kind: SealKind::Transfer { from: ann.lock }, ..seal(["r"], 1) };
    assert_eq!(seal_one(ledger, transfer).await, SealVerdict::Ended(LockEnd::Void));
    assert_eq!(release_one(ledger, ann.lock).await, ReleaseVerdict::AlreadyEnded);
    let record = ledger.lock(ann.lock).await.expect("read").expect("kept");
    assert_eq!(record.ended.map(|(how, _)| how), Some(LockEnd::Void));
    assert_eq!(holders(ledger, &[name("r")]).await, [None]);
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked once");
    assert_eq!(view.state, LockState::Expired);

    ledger.open_epoch(nonce).await.expect("opened");
    let bob = held(ledger, "r", 1).await;
    assert_eq!((bob.token, bob.state), (token(floor + 1), LockState::Leased));
    let applied = apply(ledger, put(&bob, "k", "after")).await;
    assert_eq!((applied.version, applied.generation), (Some(2), 1));
    assert_eq!(refusal(ledger, put(&ann, "k", "late")).await, Refusal::Void);
}

/// What the mint counted and remembers goes into the floor and the generation.
pub async fn a_refence_goes_beyond_what_the_mint_remembers(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let known = Refence { known_base: 1000, known_generation: 6, ..forced(Uuid::new_v4()) };
    let epoch = ledger.refence(known).await.expect("re-fenced");
    assert_eq!(epoch.base, 1000 + 50 + REFENCE_JUMP);
    assert_eq!(ledger.place(None).await.expect("a place").generation, 7);
    let again = ledger.refence(forced(Uuid::new_v4())).await.expect("re-fenced");
    assert_eq!(again.base, epoch.base + 50 + REFENCE_JUMP);
    assert_eq!((again.number, ledger.place(None).await.expect("a place").generation), (2, 8));
}

/// Another gateway has done it, or it never was needed.
pub async fn a_refence_that_nothing_calls_for_changes_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let before = ledger.place(None).await.expect("a place");
    assert_eq!(before.called_for, None);
    let asked = Refence { forced: false, ..forced(Uuid::new_v4()) };
    assert_eq!(ledger.refence(asked).await, Ok(before.epoch.clone()));
    let after = ledger.place(None).await.expect("a place");
    assert_eq!((after.epoch, after.generation), (before.epoch, before.generation));
    apply(ledger, put(&ann, "k", "a")).await;
}

/// What the mint said before somebody else's re-fence is not gone by.
pub async fn a_refence_of_a_ledger_that_has_moved_on_changes_nothing(ledger: &dyn Ledger) {
    let seen = ledger.place(None).await.expect("a place").stand();
    let of = |seen: &Stand| Refence { seen: Some(seen.clone()), ..forced(Uuid::new_v4()) };
    let first = ledger.refence(of(&seen)).await.expect("re-fenced");
    let after = ledger.place(None).await.expect("a place");
    assert_eq!((after.generation, &after.epoch), (seen.generation + 1, &first));
    assert_eq!(ledger.refence(of(&seen)).await, Ok(first));
    assert_eq!(ledger.place(None).await.expect("a place").stand(), after.stand());
    let again = ledger.refence(of(&after.stand())).await.expect("re-fenced");
    assert!(again.base > after.epoch.base);
}

/// Each has an entry in the audit, with its reason; what changed nothing has none.
pub async fn disasters_are_in_the_audit(ledger: &dyn Ledger) {
    ledger.switch_epoch(0, Uuid::new_v4(), 0, "the mint was wiped").await.expect("switched");
    ledger.switch_epoch(0, Uuid::new_v4(), 0, "too late").await.expect("not again");
    ledger.refence(Refence { forced: false, ..forced(Uuid::new_v4()) }).await.expect("not needed");
    let refence = Refence { why: "restored from a backup".into(), ..forced(Uuid::new_v4()) };
    ledger.refence(refence).await.expect("re-fenced");
    let filter = AuditFilter { limit: 10, ..AuditFilter::default() };
    let entries = ledger.audit(filter).await.expect("read");
    let seen: Vec<_> = entries
        .iter()
        .map(|(_, entry)| (entry.action, entry.reason.as_deref(), entry.resource.is_some()))
        .collect();
    assert_eq!(
        seen,
        [
            (AuditAction::Refence, Some("restored from a backup"), false),
            (AuditAction::Epoch, Some("the mint was wiped"), false),
        ]
    );
}

/// A fence without a lock stands for one elsewhere, which a re-fence here does not end: the same call
/// sets it anew, with a token of the new generation.
pub async fn a_fence_is_set_anew_after_a_refence(ledger: &dyn Ledger) {
    let kind = SealKind::Fence { order: Some(7), force: false };
    let item = SealItem { kind, ..seal(["r"], 10) };
    let before = granted(ledger, item.clone()).await;
    let epoch = ledger.refence(forced(Uuid::new_v4())).await.expect("re-fenced");
    assert_eq!(refusal(ledger, put(&before, "k", "x")).await, Refusal::Void);
    let lower =
        SealItem { kind: SealKind::Fence { order: Some(6), force: false }, ..seal(["r"], 1) };
    let sealed = ledger.seal(epoch.number, Arc::from([lower.clone()]), Patience::Skip).await;
    assert_eq!(sealed, Ok(vec![SealVerdict::OrderStale(name("r"))]));
    let again = SealItem { number: Some(2), ..item.clone() };
    let sealed = ledger.seal(epoch.number, Arc::from([again.clone()]), Patience::Skip).await;
    let Ok([SealVerdict::Sealed(after, _)]) = sealed.as_deref() else { panic!("{sealed:?}") };
    assert_eq!((after.lock, after.token), (before.lock, token(epoch.base + 2)));
    apply(ledger, put(after, "k", "x")).await;
    let sealed = ledger.seal(epoch.number, Arc::from([again]), Patience::Skip).await;
    assert!(matches!(sealed.as_deref(), Ok([SealVerdict::Again(_)])), "{sealed:?}");
    let other = SealItem { number: Some(3), ..SealItem { lock: lock_id(), ..item } };
    let sealed = ledger.seal(epoch.number, Arc::from([other]), Patience::Skip).await;
    assert_eq!(sealed, Ok(vec![SealVerdict::OrderStale(name("r"))]));
    let record = ledger.lock(before.lock).await.expect("read").expect("known");
    assert_eq!((record.ended, record.grant.token), (None, after.token));
}
