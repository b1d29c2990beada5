//! Drained upstreams: intents, and locks that are sealed but not in force yet.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Attempt, AuditAction, AuditFilter, By, CloseItem, DrainedUpstream, ForwardEnd, IntentEnd,
    IntentFilter, IntentItem, IntentVerdict, Ledger, OperationRecord, Patience, Refence,
    RenewVerdict, Resolution, Resolved, Retention, SealItem, SealKind, SealVerdict,
};
use fence_core::{LockState, MaxHold, OperationId, Refusal, ResourceName, Ttl};
use uuid::Uuid;

use super::build::{
    GATEWAY, apply, break_one, expire, fence, granted, held, lock_id, name, operation_id, put,
    refusal, release_one, renew_one, seal, seal_one, short, token,
};
use crate::conformance::{Operator, catch_up, pause};

/// A request to the drained upstream `u` under a token.
pub fn intent(resource: &str, number: i64) -> IntentItem {
    IntentItem {
        operation: operation_id(),
        resource: name(resource),
        token: token(number),
        lock: None,
        sequence: None,
        resource_version: None,
        drained: true,
        upstream: "u".into(),
        method: "POST".into(),
        path: "/r/1".into(),
        gateway: GATEWAY,
        max_effect_delay: None,
        attempt: Attempt::First,
        by: By::default(),
    }
}

pub(super) async fn open(ledger: &dyn Ledger, item: IntentItem) -> IntentVerdict {
    let mut verdicts =
        ledger.open_intents(Arc::from([item]), Patience::Skip).await.expect("decided");
    verdicts.pop().expect("a verdict")
}

/// An open intent.
async fn opened(ledger: &dyn Ledger, resource: &str, number: i64) -> OperationId {
    let item = intent(resource, number);
    let operation = item.operation;
    assert_eq!(open(ledger, item).await, IntentVerdict::Admitted);
    operation
}

/// The upstream has answered that it took effect.
pub fn answered(operation: OperationId) -> CloseItem {
    CloseItem { operation, end: ForwardEnd::Answered(200) }
}

/// How an intent was closed; `None` if it is open.
async fn end(ledger: &dyn Ledger, operation: OperationId) -> Option<IntentEnd> {
    let record = ledger.operation(operation).await.expect("read");
    let Some(OperationRecord::Forwarded(record)) = record else { panic!("{record:?}") };
    assert_eq!((record.operation, record.owner.as_str()), (operation, "ann"));
    assert_eq!((record.resource.as_str(), record.upstream.as_str()), ("r", "u"));
    assert!(record.closed.as_ref().is_none_or(|(_, at)| *at >= record.opened_at));
    record.closed.map(|(end, _)| end)
}

const APPLIED: IntentEnd = IntentEnd::Known(ForwardEnd::Answered(200));
const UNSENT: IntentEnd = IntentEnd::Known(ForwardEnd::Unsent);

pub(super) async fn close(ledger: &dyn Ledger, operation: OperationId) -> Vec<ResourceName> {
    ledger.close_intents(&[answered(operation)]).await.expect("closed")
}

async fn all_open(ledger: &dyn Ledger) -> Vec<OperationId> {
    let filter = IntentFilter { limit: 100, ..IntentFilter::default() };
    let open = ledger.intents(filter).await.expect("read");
    let told = ledger.intents_open().await.expect("read");
    assert_eq!(told.count, open.len() as i64);
    let oldest_age_ms = open.iter().map(|one| one.age_ms).max();
    assert!(told.oldest_age_ms >= oldest_age_ms.unwrap_or_default(), "{told:?} {open:?}");
    assert!(told.oldest_age_ms == 0 || told.count > 0, "{told:?}");
    open.into_iter().map(|one| one.operation).collect()
}

/// The seal of a caller that waits.
pub(super) fn waiting<const N: usize>(resources: [&str; N], number: i64) -> SealItem {
    SealItem { waits: Some(GATEWAY), owner: "bob".into(), ..seal(resources, number) }
}

fn again(item: &SealItem) -> SealItem {
    SealItem { number: None, ..item.clone() }
}

pub(super) fn drains_on(verdict: &SealVerdict) -> Option<&str> {
    match verdict {
        SealVerdict::Drains { resource, .. } => Some(resource.as_str()),
        _ => None,
    }
}

async fn state(ledger: &dyn Ledger, resource: &str) -> LockState {
    ledger.resource(&name(resource)).await.expect("read").expect("a fence").state
}

fn resolution() -> Resolution {
    Resolution { reason: "looked".into(), request_id: "r1".into(), by: By::default() }
}

/// The rule is that of writes; a refusal changes nothing.
pub async fn an_intent_is_judged_like_a_write(ledger: &dyn Ledger) {
    let refused = |refusal| IntentVerdict::Refused(refusal);
    assert_eq!(open(ledger, intent("r", 10)).await, refused(Refusal::Unknown));
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "x")).await;
    let item =
        |sequence, resource_version| IntentItem { sequence, resource_version, ..intent("r", 10) };
    assert_eq!(open(ledger, item(Some(3), Some(1))).await, IntentVerdict::Admitted);
    assert_eq!(open(ledger, item(Some(3), None)).await, refused(Refusal::SequenceOutOfOrder));
    assert_eq!(open(ledger, item(None, Some(0))).await, refused(Refusal::VersionMismatch));
    let other = IntentItem { lock: Some(lock_id()), ..intent("r", 10) };
    assert_eq!(open(ledger, other).await, refused(Refusal::LockIdMismatch));
    assert_eq!(open(ledger, intent("r", 9)).await, refused(Refusal::Unknown));
    let admission = IntentItem { drained: false, sequence: Some(4), ..intent("r", 10) };
    assert_eq!(open(ledger, admission).await, IntentVerdict::Admitted);
    assert_eq!(all_open(ledger).await.len(), 1, "only a drained upstream leaves an intent");
    // No version, no operation, no event.
    let view = ledger.resource(&name("r")).await.expect("read").expect("a fence");
    assert_eq!(view.version, 1);
    release_one(ledger, ann.lock).await;
    assert_eq!(open(ledger, intent("r", 10)).await, refused(Refusal::Released));
}

/// Whoever does not wait is refused, and nothing has changed.
pub async fn an_open_intent_keeps_the_next_lock_out(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let operation = opened(ledger, "r", 10).await;
    let heir = SealItem { kind: SealKind::Transfer { from: ann.lock }, ..seal(["r"], 20) };
    assert_eq!(seal_one(ledger, heir).await, SealVerdict::Draining(name("r")));
    assert_eq!(
        seal_one(ledger, fence("r", 20, None, true)).await,
        SealVerdict::Draining(name("r"))
    );
    release_one(ledger, ann.lock).await;
    let bob = seal(["r"], 20);
    assert_eq!(seal_one(ledger, bob.clone()).await, SealVerdict::Draining(name("r")));
    let pair = seal(["q", "r"], 21);
    assert_eq!(seal_one(ledger, pair).await, SealVerdict::Draining(name("r")));
    assert_eq!(state(ledger, "r").await, LockState::Released);
    assert_eq!(close(ledger, operation).await, Vec::<ResourceName>::new());
    assert_eq!(close(ledger, operation).await, Vec::<ResourceName>::new(), "again is harmless");
    assert_eq!(granted(ledger, bob).await.token, token(20));
}

/// Older tokens are stale at once, its own is not good yet.
pub async fn a_waiting_lock_is_in_force_when_all_intents_are_closed(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (one, two) = (opened(ledger, "r", 10).await, opened(ledger, "r", 10).await);
    release_one(ledger, ann.lock).await;
    let bob = waiting(["r"], 20);
    assert_eq!(drains_on(&seal_one(ledger, bob.clone()).await), Some("r"));
    assert_eq!(state(ledger, "r").await, LockState::Draining);
    assert!(matches!(
        open(ledger, intent("r", 10)).await,
        IntentVerdict::Refused(Refusal::Stale { .. })
    ));
    assert_eq!(open(ledger, intent("r", 20)).await, IntentVerdict::Refused(Refusal::Draining));
    let early = super::build::put_at("r", 20);
    assert_eq!(refusal(ledger, early.clone()).await, Refusal::Draining);
    assert_eq!(renew_one(ledger, bob.lock).await, RenewVerdict::Draining);
    let heir = SealItem { kind: SealKind::Transfer { from: bob.lock }, ..seal(["r"], 30) };
    assert_eq!(seal_one(ledger, heir).await, SealVerdict::Draining(name("r")));
    assert!(matches!(seal_one(ledger, seal(["r"], 31)).await, SealVerdict::Held(_)));

    assert_eq!(close(ledger, one).await, [name("r")]);
    assert_eq!(drains_on(&seal_one(ledger, again(&bob)).await), Some("r"));
    let impatient = SealItem { waits: None, ..again(&bob) };
    assert_eq!(seal_one(ledger, impatient.clone()).await, SealVerdict::Draining(name("r")));
    assert_eq!(ledger.complete_drains(GATEWAY, None).await, Ok(vec![]));
    assert_eq!(close(ledger, two).await, [name("r")]);
    let SealVerdict::Again(grant) = seal_one(ledger, impatient).await else { panic!("not again") };
    assert_eq!((grant.token, grant.state), (token(20), LockState::Leased));
    apply(ledger, early).await;
}

/// Somebody else puts it in force, and its time begins then.
pub async fn a_draining_lock_is_completed_by_anybody(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let operation = opened(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let bob = SealItem { max_hold: Some(MaxHold::from_ms(60_000)), ..waiting(["q", "r"], 20) };
    assert_eq!(drains_on(&seal_one(ledger, bob.clone()).await), Some("r"));
    assert_eq!(state(ledger, "q").await, LockState::Draining, "in force on all or on none");
    let sealed = ledger.lock(bob.lock).await.expect("read").expect("a lock");
    pause(5).await;
    close(ledger, operation).await;
    let nobody = Some([name("elsewhere")]);
    assert_eq!(ledger.complete_drains(GATEWAY, nobody.as_ref().map(|n| &n[..])).await, Ok(vec![]));
    let resources = [name("r")];
    assert_eq!(ledger.complete_drains(GATEWAY, Some(&resources)).await, Ok(vec![bob.lock]));
    assert_eq!(ledger.complete_drains(GATEWAY, None).await, Ok(vec![]));
    let live = ledger.lock(bob.lock).await.expect("read").expect("a lock");
    assert_eq!((live.grant.state, live.grant.token), (LockState::Leased, token(20)));
    assert!(live.grant.acquired_at > sealed.grant.acquired_at);
    assert!(live.grant.hold_until > sealed.grant.hold_until);
    assert_eq!(live.renewed_at, live.grant.acquired_at);
    assert_eq!(state(ledger, "q").await, LockState::Leased);
}

/// Its token is told only once it is in force, so an infinite one has a minute from then on, whoever puts it
/// in force and whatever its gateway asks meanwhile.
pub async fn an_infinite_lock_that_drained_has_to_be_confirmed(ledger: &dyn Ledger) {
    for by_its_caller in [true, false] {
        let (resource, number) = if by_its_caller { ("r", 10) } else { ("s", 11) };
        let ann = held(ledger, resource, number).await;
        let operation = opened(ledger, resource, number).await;
        release_one(ledger, ann.lock).await;
        let bob = SealItem { ttl: Some(Ttl::INFINITE), ..waiting([resource], number + 10) };
        for _ in 0..2 {
            assert!(drains_on(&seal_one(ledger, bob.clone()).await).is_some());
        }
        close(ledger, operation).await;
        let rerun = SealItem { attempt: Attempt::Rerun, ..again(&bob) };
        let first = match by_its_caller {
            true => again(&bob),
            false => {
                assert_eq!(ledger.complete_drains(GATEWAY, None).await, Ok(vec![bob.lock]));
                rerun.clone()
            }
        };
        for (item, unconfirmed) in [(first, true), (rerun, true), (again(&bob), false)] {
            let verdict = seal_one(ledger, item).await;
            let SealVerdict::Again(grant) = verdict else { panic!("not again: {verdict:?}") };
            assert_eq!(grant.unconfirmed, unconfirmed);
            assert_eq!(grant.remaining_ms <= Ttl::UNCONFIRMED.as_ms(), unconfirmed);
        }
    }
}

/// It keeps others out for its ttl; then the next one drains in turn.
pub async fn a_draining_lock_that_expires_is_sealed_over(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let operation = opened(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let bob = SealItem { ttl: Some(short()), ..waiting(["r"], 20) };
    assert!(drains_on(&seal_one(ledger, bob.clone()).await).is_some());
    expire().await;
    assert_eq!(seal_one(ledger, seal(["r"], 29)).await, SealVerdict::Draining(name("r")));
    let carl = SealItem { owner: "carl".into(), ..waiting(["r"], 30) };
    assert!(drains_on(&seal_one(ledger, carl.clone()).await).is_some());
    assert!(matches!(seal_one(ledger, again(&bob)).await, SealVerdict::Ended(_)));
    close(ledger, operation).await;
    assert!(matches!(seal_one(ledger, again(&carl)).await, SealVerdict::Again(_)));
    assert!(matches!(refusal(ledger, super::build::put_at("r", 20)).await, Refusal::Stale { .. }));
}

/// An expired one is not put in force by others: its caller is gone.
pub async fn a_draining_lock_can_be_given_up(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let operation = opened(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let bob = waiting(["r"], 20);
    seal_one(ledger, bob.clone()).await;
    release_one(ledger, bob.lock).await;
    assert_eq!(state(ledger, "r").await, LockState::Released);
    let carl = waiting(["r"], 30);
    assert!(drains_on(&seal_one(ledger, carl.clone()).await).is_some(), "it drains in turn");
    let record = ledger.lock(carl.lock).await.expect("read").expect("a lock");
    break_one(ledger, &record.grant, 0).await;
    assert_eq!(state(ledger, "r").await, LockState::Broken);
    assert_eq!(refusal(ledger, super::build::put_at("r", 30)).await, Refusal::Broken);
    let last = SealItem { ttl: Some(short()), ..waiting(["r"], 40) };
    assert!(drains_on(&seal_one(ledger, last.clone()).await).is_some());
    close(ledger, operation).await;
    expire().await;
    assert_eq!(ledger.complete_drains(GATEWAY, None).await, Ok(vec![]));
    assert!(matches!(seal_one(ledger, again(&last)).await, SealVerdict::Again(_)));
}

/// Found, opened now, or buried: as writes are.
pub async fn a_lost_answer_to_an_opening_is_found(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let rerun = |item: &IntentItem| IntentItem { attempt: Attempt::Rerun, ..item.clone() };
    let bury = |item: &IntentItem| IntentItem { attempt: Attempt::Bury, ..item.clone() };
    // It was admitted: one intent, however often it is sent, and none after it was closed.
    let item = IntentItem { sequence: Some(1), ..intent("r", 10) };
    assert_eq!(open(ledger, item.clone()).await, IntentVerdict::Admitted);
    assert_eq!(open(ledger, rerun(&item)).await, IntentVerdict::Admitted);
    assert_eq!(all_open(ledger).await, [item.operation]);
    close(ledger, item.operation).await;
    assert_eq!(
        open(ledger, item.clone()).await,
        IntentVerdict::Buried,
        "a sending that comes late"
    );
    // It never arrived.
    let item = intent("r", 10);
    assert_eq!(open(ledger, rerun(&item)).await, IntentVerdict::Admitted);
    close(ledger, item.operation).await;
    assert_eq!(open(ledger, item).await, IntentVerdict::Buried);
    // No longer wanted: nobody forwards it.
    let item = intent("r", 10);
    assert_eq!(open(ledger, item.clone()).await, IntentVerdict::Admitted);
    assert_eq!(open(ledger, bury(&item)).await, IntentVerdict::Buried);
    assert!(all_open(ledger).await.is_empty());
    assert_eq!(open(ledger, item).await, IntentVerdict::Buried);
    let absent = intent("r", 10);
    assert_eq!(open(ledger, bury(&absent)).await, IntentVerdict::Buried);
    assert_eq!(open(ledger, absent).await, IntentVerdict::Buried);
    // Refused: the first sending may still come.
    let refused = IntentItem { sequence: Some(1), ..intent("r", 10) };
    let why = IntentVerdict::Refused(Refusal::SequenceOutOfOrder);
    assert_eq!(open(ledger, rerun(&refused)).await, why);
    assert_eq!(open(ledger, IntentItem { sequence: None, ..refused }).await, IntentVerdict::Buried);
    // Without an intent, a number that is used up may have been so by the first sending.
    let admission = IntentItem { drained: false, sequence: Some(7), ..intent("r", 10) };
    assert_eq!(open(ledger, admission.clone()).await, IntentVerdict::Admitted);
    assert_eq!(open(ledger, rerun(&admission)).await, IntentVerdict::Buried);
}

/// Refused reruns of seals that drain are buried; those that were sealed are found.
pub async fn a_lost_answer_to_a_draining_seal_is_found(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let operation = opened(ledger, "r", 10).await;
    release_one(ledger, ann.lock).await;
    let rerun = |item: &SealItem| SealItem { attempt: Attempt::Rerun, ..item.clone() };
    let refused = seal(["r"], 20);
    assert_eq!(seal_one(ledger, rerun(&refused)).await, SealVerdict::Draining(name("r")));
    assert!(matches!(seal_one(ledger, refused).await, SealVerdict::Ended(_)));
    let bob = waiting(["r"], 21);
    assert!(drains_on(&seal_one(ledger, bob.clone()).await).is_some());
    assert!(drains_on(&seal_one(ledger, rerun(&bob)).await).is_some());
    close(ledger, operation).await;
    assert!(matches!(seal_one(ledger, rerun(&bob)).await, SealVerdict::Again(_)));
}

/// The one timing assumption, for those who make it.
pub async fn an_intent_counts_as_closed_after_the_longest_delay(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let delay = Some(Duration::from_millis(1000));
    let item = IntentItem { max_effect_delay: delay, ..intent("r", 10) };
    let operation = item.operation;
    open(ledger, item).await;
    release_one(ledger, ann.lock).await;
    let bob = waiting(["r"], 20);
    assert!(drains_on(&seal_one(ledger, bob.clone()).await).is_some());
    let filter = IntentFilter { limit: 1, ..IntentFilter::default() };
    let closes = ledger.intents(filter).await.expect("read").remove(0).closes_at;
    assert!(closes.is_some());
    assert_eq!(end(ledger, operation).await, None);
    pause(1020).await;
    // What came of it nobody knows, before the sweeper has seen it and after.
    assert_eq!(end(ledger, operation).await, Some(IntentEnd::Elapsed));
    assert!(matches!(seal_one(ledger, again(&bob)).await, SealVerdict::Again(_)));
    assert_eq!(all_open(ledger).await, vec![]);
    assert_eq!(ledger.sweep(&keep(Duration::from_secs(60))).await, Ok(1));
    assert_eq!(ledger.sweep(&keep(Duration::from_secs(60))).await, Ok(0));
    assert_eq!(end(ledger, operation).await, Some(IntentEnd::Elapsed));
    // Unless the gateway that forwarded it gets to know it after all.
    close(ledger, operation).await;
    assert_eq!(end(ledger, operation).await, Some(APPLIED));
}

fn keep(keys: Duration) -> Retention {
    Retention {
        keys,
        ended_locks: Duration::from_secs(60),
        buried: Duration::ZERO,
        history: None,
        rejections_max: 9,
        rows_per_pass: 9,
    }
}

/// Whoever closes an intent says no more than he knows, and nobody takes back what is known.
pub async fn what_came_of_a_request_is_told_by_who_knows(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let item = intent("r", 10);
    let id = item.operation;
    assert_eq!(open(ledger, item.clone()).await, IntentVerdict::Admitted);
    assert_eq!(end(ledger, id).await, None);
    // An operator does not know, so the answer is better, and the first of two is the right one.
    ledger.resolve_intent(id, resolution()).await.expect("resolved");
    let unknown = IntentEnd::Resolved("looked".into());
    assert_eq!(end(ledger, id).await, Some(unknown.clone()));
    let late = IntentItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(open(ledger, late.clone()).await, IntentVerdict::Buried);
    assert_eq!(end(ledger, id).await, Some(unknown));
    close(ledger, id).await;
    let unsent = CloseItem { operation: id, end: ForwardEnd::Unsent };
    ledger.close_intents(&[unsent]).await.expect("again is harmless");
    assert_eq!(open(ledger, late).await, IntentVerdict::Buried);
    assert_eq!(ledger.resolve_intent(id, resolution()).await, Ok(Resolved::Before));
    assert_eq!(end(ledger, id).await, Some(APPLIED));

    let refused = opened(ledger, "r", 10).await;
    let conflict = CloseItem { operation: refused, end: ForwardEnd::Answered(409) };
    let sent = opened(ledger, "r", 10).await;
    let never = opened(ledger, "r", 10).await;
    let unsent = CloseItem { operation: never, end: ForwardEnd::Unsent };
    ledger.close_intents(&[conflict, answered(sent), unsent]).await.expect("closed");
    let status = IntentEnd::Known(ForwardEnd::Answered(409));
    assert_eq!(end(ledger, refused).await, Some(status));
    assert_eq!(end(ledger, sent).await, Some(APPLIED));
    assert_eq!(end(ledger, never).await, Some(UNSENT));

    // Given up by the gateway that would have forwarded it.
    let item = intent("r", 10);
    open(ledger, item.clone()).await;
    let bury = IntentItem { attempt: Attempt::Bury, ..item };
    assert_eq!(open(ledger, bury.clone()).await, IntentVerdict::Buried);
    assert_eq!(end(ledger, bury.operation).await, Some(UNSENT));
}

/// As long as keys are, and buried ids.
pub async fn what_came_of_a_request_is_kept_as_long_as_keys(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let item = intent("r", 10);
    let open_one = opened(ledger, "r", 10).await;
    open(ledger, item.clone()).await;
    close(ledger, item.operation).await;
    pause(5).await;
    catch_up(ledger).await;
    ledger.sweep(&keep(Duration::from_secs(60))).await.expect("swept");
    assert_eq!(end(ledger, item.operation).await, Some(APPLIED));
    let buried = Duration::from_secs(60);
    ledger.sweep(&Retention { buried, ..keep(Duration::ZERO) }).await.expect("swept");
    assert_eq!(open(ledger, item.clone()).await, IntentVerdict::Buried);
    assert_eq!(ledger.sweep(&keep(Duration::ZERO)).await, Ok(1));
    assert_eq!(ledger.operation(item.operation).await, Ok(None));
    assert_eq!(end(ledger, open_one).await, None, "an open one stays");
}

/// One that leaves no intent leaves nothing at all: a sending that comes late must not say of it that it took
/// no effect, after a later one has forwarded it.
pub async fn a_late_sending_says_nothing_of_a_request_without_intent(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = IntentItem { drained: false, sequence: Some(1), ..intent("r", 10) };
    let rerun = IntentItem { attempt: Attempt::Rerun, ..item.clone() };
    assert_eq!(open(ledger, rerun.clone()).await, IntentVerdict::Admitted);
    assert_eq!(open(ledger, rerun.clone()).await, IntentVerdict::Buried, "an earlier one");
    assert_eq!(ledger.operation(item.operation).await, Ok(None));
    let bury = IntentItem { attempt: Attempt::Bury, ..item.clone() };
    assert_eq!(open(ledger, bury).await, IntentVerdict::Buried);
    release_one(ledger, ann.lock).await;
    assert_eq!(open(ledger, rerun).await, IntentVerdict::Refused(Refusal::Released));
    assert_eq!(ledger.operation(item.operation).await, Ok(None));
}

/// Whoever sends it again then must not forward it: nobody waits for it any more.
pub async fn an_intent_that_counts_as_closed_is_not_admitted_again(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let delay = Some(Duration::from_millis(100));
    let item = IntentItem { max_effect_delay: delay, ..intent("r", 10) };
    let rerun = IntentItem { attempt: Attempt::Rerun, ..item.clone() };
    let operation = item.operation;
    assert_eq!(open(ledger, item.clone()).await, IntentVerdict::Admitted);
    pause(120).await;
    assert_eq!(open(ledger, rerun.clone()).await, IntentVerdict::Buried);
    for late in [item, rerun] {
        assert_eq!(open(ledger, late).await, IntentVerdict::Buried, "for good");
        assert_eq!(end(ledger, operation).await, Some(IntentEnd::Elapsed));
    }
    assert_eq!(all_open(ledger).await, []);
    release_one(ledger, ann.lock).await;
    granted(ledger, seal(["r"], 20)).await;
}

/// Oldest first, in pages, by upstream and resource.
pub async fn open_intents_are_listed(ledger: &dyn Ledger) {
    held(ledger, "q", 9).await;
    held(ledger, "r", 10).await;
    let mut operations = Vec::new();
    for (resource, number, upstream) in [("r", 10, "u"), ("q", 9, "u"), ("r", 10, "v")] {
        let item = IntentItem { upstream: upstream.into(), ..intent(resource, number) };
        operations.push(item.operation);
        open(ledger, item).await;
        pause(2).await;
    }
    assert_eq!(all_open(ledger).await, operations);
    let list = async |filter: IntentFilter| {
        let filter = IntentFilter { limit: filter.limit.max(1), ..filter };
        ledger.intents(filter).await.expect("read")
    };
    let first = list(IntentFilter { limit: 1, ..IntentFilter::default() }).await.remove(0);
    assert_eq!((first.operation, first.owner.as_str()), (operations[0], "ann"));
    assert_eq!((first.token, first.gateway, first.path.as_str()), (token(10), GATEWAY, "/r/1"));
    let after = Some((first.opened_at, first.operation));
    let rest = list(IntentFilter { after, limit: 9, ..IntentFilter::default() }).await;
    assert_eq!(rest.iter().map(|one| one.operation).collect::<Vec<_>>(), operations[1..]);
    let of = list(IntentFilter { upstream: Some("v".into()), limit: 9, ..IntentFilter::default() });
    assert_eq!(of.await[0].operation, operations[2]);
    let on = list(IntentFilter { resource: Some(name("q")), limit: 9, ..IntentFilter::default() });
    assert_eq!(on.await[0].operation, operations[1]);
    assert_eq!(ledger.operation(operation_id()).await, Ok(None));
}

/// Once, and never opened again.
pub async fn an_operator_resolves_an_intent(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = intent("r", 10);
    open(ledger, item.clone()).await;
    release_one(ledger, ann.lock).await;
    let bob = waiting(["r"], 20);
    seal_one(ledger, bob.clone()).await;
    let id = item.operation;
    assert_eq!(ledger.resolve_intent(operation_id(), resolution()).await, Ok(Resolved::NotFound));
    assert_eq!(ledger.resolve_intent(id, resolution()).await, Ok(Resolved::Now(name("r"))));
    assert_eq!(ledger.resolve_intent(id, resolution()).await, Ok(Resolved::Before));
    assert_eq!(open(ledger, item).await, IntentVerdict::Buried);
    assert!(matches!(seal_one(ledger, again(&bob)).await, SealVerdict::Again(_)));
    let filter =
        AuditFilter { action: Some(AuditAction::Resolve), limit: 9, ..AuditFilter::default() };
    let audit = ledger.audit(filter).await.expect("read");
    assert_eq!(audit.len(), 1);
    let (_, entry) = &audit[0];
    assert_eq!(
        (entry.resource.as_ref(), entry.reason.as_deref()),
        (Some(&name("r")), Some("looked"))
    );
    assert_eq!((entry.owner.as_deref(), entry.token), (Some("ann"), Some(token(10))));
}

fn upstream(name: &str, prefix: &str, delay_ms: Option<u64>) -> DrainedUpstream {
    DrainedUpstream {
        name: name.into(),
        resource_prefix: prefix.into(),
        max_effect_delay: delay_ms.map(Duration::from_millis),
    }
}

/// A re-fence: intents may have been lost with the rest.
async fn refenced(ledger: &dyn Ledger) -> i64 {
    let refence = Refence {
        nonce: Uuid::from_u128(5),
        number: 100,
        known_base: 0,
        known_generation: 0,
        why: "test".into(),
        forced: true,
        seen: None,
    };
    ledger.refence(refence).await.expect("re-fenced");
    ledger.place(None).await.expect("read").floor
}

/// Resources of drained upstreams drain until somebody says that nothing is under way; others do not.
pub async fn a_re_fence_puts_drained_upstreams_in_doubt(ledger: &dyn Ledger) {
    let upstreams = [upstream("u", "u:", None), upstream("v", "v:", Some(500))];
    ledger.register_upstreams(&upstreams).await.expect("registered");
    ledger.register_upstreams(&upstreams).await.expect("again is harmless");
    assert_eq!(ledger.doubts().await, Ok(vec![]));
    held(ledger, "u:1", 10).await;
    opened(ledger, "u:1", 10).await;
    refenced(ledger).await;
    let doubts = ledger.doubts().await.expect("read");
    assert_eq!(doubts.iter().map(|one| one.upstream.as_str()).collect::<Vec<_>>(), ["u", "v"]);
    assert_eq!(doubts.iter().map(|one| one.ends_at.is_some()).collect::<Vec<_>>(), [false, true]);

    // One of them ends by itself, soon: the rest is looked at afterwards.
    assert_eq!(seal_one(ledger, seal(["v:1"], 199)).await, SealVerdict::Draining(name("v:1")));

    // Known or not, they drain; what does not belong to the upstream is free.
    for resource in ["u:1", "u:new"] {
        let refused = seal_one(ledger, seal([resource], 200)).await;
        assert_eq!(refused, SealVerdict::Draining(name(resource)));
    }
    granted(ledger, seal(["other"], 201)).await;
    let bob = waiting(["u:new"], 202);
    assert!(drains_on(&seal_one(ledger, bob.clone()).await).is_some());
    // It stays in doubt, although a newer token was sealed since.
    release_one(ledger, bob.lock).await;
    assert_eq!(seal_one(ledger, seal(["u:new"], 203)).await, SealVerdict::Draining(name("u:new")));
    let bob = waiting(["u:new"], 204);
    seal_one(ledger, bob.clone()).await;

    assert_eq!(ledger.resolve_doubts("w", resolution()).await, Ok(None));
    assert_eq!(ledger.resolve_doubts("u", resolution()).await, Ok(Some(1)));
    assert_eq!(ledger.resolve_doubts("u", resolution()).await, Ok(Some(0)));
    assert!(matches!(seal_one(ledger, again(&bob)).await, SealVerdict::Again(_)));
    // The intent that was not lost counts as ever.
    assert_eq!(seal_one(ledger, seal(["u:1"], 205)).await, SealVerdict::Draining(name("u:1")));
    pause(520).await;
    granted(ledger, seal(["v:1"], 207)).await;
    assert_eq!(ledger.doubts().await, Ok(vec![]));
}

/// A grant that was in force since the re-fence leaves no doubt about what came before it.
pub async fn a_lock_in_force_ends_the_doubt_of_its_resource(ledger: &dyn Ledger) {
    ledger.register_upstreams(&[upstream("u", "u:", Some(200))]).await.expect("registered");
    refenced(ledger).await;
    pause(220).await;
    let ann = granted(ledger, seal(["u:1"], 200)).await;
    // The doubt comes back with a longer delay, but this resource is beyond it.
    ledger.register_upstreams(&[upstream("u", "u:", None)]).await.expect("registered");
    release_one(ledger, ann.lock).await;
    granted(ledger, seal(["u:1"], 201)).await;
    assert_eq!(seal_one(ledger, seal(["u:2"], 202)).await, SealVerdict::Draining(name("u:2")));
}

/// Its record, and its intents with it, may be what was lost.
pub async fn an_upstream_that_is_new_after_a_re_fence_is_in_doubt(ledger: &dyn Ledger) {
    refenced(ledger).await;
    ledger.register_upstreams(&[upstream("u", "u:", None)]).await.expect("registered");
    assert_eq!(seal_one(ledger, seal(["u:1"], 200)).await, SealVerdict::Draining(name("u:1")));
    ledger.resolve_doubts("u", resolution()).await.expect("resolved");
    granted(ledger, seal(["u:1"], 201)).await;
    ledger.register_upstreams(&[upstream("u", "u:", None)]).await.expect("registered");
    assert_eq!(ledger.doubts().await, Ok(vec![]), "it is not new any more");
}

/// What no act does, the database refuses.
pub async fn an_upstream_is_never_forgotten(ledger: &dyn Ledger, operator: &Operator) {
    ledger.register_upstreams(&[upstream("u", "u:", None)]).await.expect("registered");
    let why = operator.refusal("DELETE FROM drained_upstreams").await;
    assert!(why.contains("never removed"), "{why}");
}
