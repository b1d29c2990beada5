//! The queue: joining, order, turns, and who is passed over.

use std::sync::Arc;

use fence_core::ports::{
    Attempt, Call, JoinItem, JoinVerdict, Ledger, Mark, Patience, ReleaseVerdict, SealItem,
    SealKind, SealVerdict,
};
use fence_core::queue::TURN_MS;
use fence_core::{LockEnd, LockId, Ttl};
use uuid::Uuid;

use super::build::*;
use super::marks::mark_one;
use crate::conformance::pause;

/// Who is called on these resources, by the gateway of those who wait.
async fn call<const N: usize>(ledger: &dyn Ledger, resources: [&str; N]) -> Vec<Call> {
    let calls = ledger.call_next(GATEWAY, Some(true), &resources.map(name)).await;
    calls.expect("the call is made")
}

/// Whose turn it is on a resource.
async fn called(ledger: &dyn Ledger, resource: &str) -> Option<LockId> {
    call(ledger, [resource]).await.pop().and_then(|call| call.called)
}

async fn passed_over() {
    pause(TURN_MS as u64 + 100).await;
}

/// What is free is not waited for, and nothing is stored.
pub async fn what_is_free_is_not_waited_for(ledger: &dyn Ledger) {
    assert_eq!(join_one(ledger, join(["r"])).await, JoinVerdict::Free);
    let ann = expired(ledger, "r", 10).await;
    let item = join(["r"]);
    assert_eq!(join_one(ledger, item.clone()).await, JoinVerdict::Free);
    assert_eq!(ledger.position(item.lock, None).await.expect("read"), None);
    assert_eq!(
        join_one(ledger, JoinItem { lock: ann.lock, ..join(["r"]) }).await,
        JoinVerdict::Known
    );
    let given_up = lock_id();
    release_one(ledger, given_up).await;
    let item = JoinItem { lock: given_up, ..join(["r"]) };
    assert_eq!(join_one(ledger, item).await, JoinVerdict::Ended(LockEnd::Released));
}

/// First in, first out, and nobody who is not in line gets in between.
pub async fn the_first_in_line_is_the_next_holder(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (first, second) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    let standing = ledger.look(&[name("r")]).await.expect("read").remove(0);
    assert!(standing.holder.is_some() && standing.queued);
    let view = ledger.resource(&name("r")).await.expect("read").expect("locked");
    assert_eq!(view.waiting, 2);
    for (waiter, position) in [(&first, 1), (&second, 2)] {
        assert_eq!(ledger.position(waiter.lock, None).await.expect("read"), Some(position));
    }
    assert_eq!(called(ledger, "r").await, None, "it is held");
    let ReleaseVerdict::Released { waited_for: true, .. } = release_one(ledger, ann.lock).await
    else {
        panic!("somebody waits for it");
    };
    assert_eq!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Queued);
    assert_eq!(seal_one(ledger, turn(&second, 20)).await, SealVerdict::Queued);
    assert_eq!(called(ledger, "r").await, Some(first.lock));
    let grant = granted(ledger, turn(&first, 20)).await;
    assert_eq!(ledger.position(first.lock, None).await.expect("read"), None);
    release_one(ledger, grant.lock).await;
    assert_eq!(called(ledger, "r").await, Some(second.lock));
    let last = granted(ledger, turn(&second, 30)).await;
    let ReleaseVerdict::Released { waited_for: false, .. } = release_one(ledger, last.lock).await
    else {
        panic!("nobody waits for it");
    };
}

/// One ticket for all resources: those that are free are kept for whoever is first in line.
pub async fn one_ticket_covers_all_resources(ledger: &dyn Ledger) {
    let ann = held(ledger, "a", 10).await;
    let both = waiting(ledger, ["a", "b"]).await;
    let b = waiting(ledger, ["b"]).await;
    assert_eq!(called(ledger, "b").await, None, "kept for the first");
    assert_eq!(seal_one(ledger, turn(&b, 20)).await, SealVerdict::Queued);
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "a").await, Some(both.lock));
    assert_eq!(called(ledger, "b").await, Some(both.lock));
    granted(ledger, turn(&both, 20)).await;
    assert_eq!(called(ledger, "b").await, None);
}

/// Whoever is ahead on one of its resources keeps a waiter from all of them, without a deadlock.
pub async fn crossing_waiters_go_in_ticket_order(ledger: &dyn Ledger) {
    let (a, c) = (held(ledger, "a", 10).await, held(ledger, "c", 11).await);
    let ab = waiting(ledger, ["a", "b"]).await;
    let bc = waiting(ledger, ["b", "c"]).await;
    release_one(ledger, c.lock).await;
    assert_eq!(called(ledger, "c").await, None, "b is kept for the first");
    passed_over().await;
    assert_eq!(seal_one(ledger, turn(&bc, 20)).await, SealVerdict::Queued, "it never had its turn");
    release_one(ledger, a.lock).await;
    assert_eq!(called(ledger, "a").await, Some(ab.lock));
    let grant = granted(ledger, turn(&ab, 20)).await;
    release_one(ledger, grant.lock).await;
    assert_eq!(called(ledger, "b").await, Some(bc.lock));
    granted(ledger, turn(&bc, 30)).await;
}

/// The same id again is the same place; for something else it is a conflict.
pub async fn the_same_id_waits_once(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let first = waiting(ledger, ["r"]).await;
    waiting(ledger, ["r"]).await;
    assert_eq!(join_one(ledger, first.clone()).await, JoinVerdict::Waiting);
    assert_eq!(ledger.position(first.lock, None).await.expect("read"), Some(1));
    for other in [
        JoinItem { owner: "bob".into(), ..first.clone() },
        JoinItem { resources: vec![name("q"), name("r")], ..first.clone() },
    ] {
        assert_eq!(join_one(ledger, other).await, JoinVerdict::Conflict);
    }
    let other = SealItem { owner: "bob".into(), ..turn(&first, 20) };
    assert_eq!(seal_one(ledger, other).await, SealVerdict::Conflict);
}

/// A line that is full takes nobody more.
pub async fn a_line_has_a_limit(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let first = waiting(ledger, ["r"]).await;
    let full = JoinItem { waiters_max: 1, ..join(["q", "r"]) };
    assert_eq!(join_one(ledger, full.clone()).await, JoinVerdict::Full);
    let again = JoinItem { waiters_max: 1, ..first.clone() };
    assert_eq!(join_one(ledger, again).await, JoinVerdict::Waiting);
    assert_eq!(release_one(ledger, first.lock).await, ReleaseVerdict::Left(vec![name("r")]));
    assert_eq!(join_one(ledger, full).await, JoinVerdict::Waiting);
}

/// Whoever leaves is gone: its id is never granted.
pub async fn a_release_leaves_the_line(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (first, second) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    release_one(ledger, first.lock).await;
    assert_eq!(release_one(ledger, first.lock).await, ReleaseVerdict::Buried);
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, Some(second.lock));
    assert_eq!(seal_one(ledger, turn(&first, 20)).await, SealVerdict::Ended(LockEnd::Released));
    granted(ledger, turn(&second, 20)).await;
}

/// A waiter that does not take its turn is passed over, keeps its ticket, and is called again when the
/// resource is free again.
pub async fn who_does_not_come_is_passed_over(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (slow, quick) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    release_one(ledger, ann.lock).await;
    let calls = call(ledger, ["r"]).await;
    assert_eq!(calls[0].called, Some(slow.lock));
    assert!(calls[0].next_ms.is_some_and(|ms| (0..=TURN_MS).contains(&ms)), "{calls:?}");
    assert_eq!(seal_one(ledger, turn(&quick, 20)).await, SealVerdict::Queued);
    passed_over().await;
    assert_eq!(called(ledger, "r").await, Some(quick.lock));
    let grant = granted(ledger, turn(&quick, 20)).await;
    release_one(ledger, grant.lock).await;
    assert_eq!(called(ledger, "r").await, Some(slow.lock));
    // It may also come without being called, and late.
    granted(ledger, turn(&slow, 30)).await;
}

/// A call counts only for as long as nothing of what it was about was renewed.
pub async fn a_renewal_takes_the_turn_back(ledger: &dyn Ledger) {
    let ann = granted(ledger, SealItem { ttl: Some(Ttl::from_ms(600)), ..seal(["r"], 10) }).await;
    let (first, second) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    pause(700).await;
    assert_eq!(called(ledger, "r").await, Some(first.lock));
    renew_for(ledger, ann.lock, Some(long())).await;
    passed_over().await;
    assert_eq!(called(ledger, "r").await, None, "held again");
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, Some(first.lock));
    assert_eq!(seal_one(ledger, turn(&second, 20)).await, SealVerdict::Queued);
}

/// Waiters of a gateway that is dead, or cannot have numbers minted, hold nobody up.
pub async fn who_is_not_present_holds_nobody_up(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (dead, unable) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for gateway in [dead, unable] {
        let verdicts =
            ledger.join(Arc::from([JoinItem { gateway, ..join(["r"]) }]), Patience::Skip);
        assert_eq!(only(verdicts.await.expect("decided")), JoinVerdict::Waiting);
    }
    ledger.call_next(unable, Some(false), &[]).await.expect("a heartbeat");
    let present = waiting(ledger, ["r"]).await;
    assert_eq!(ledger.position(present.lock, None).await.expect("read"), Some(3));
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, Some(present.lock));
    // Able again, it is the first.
    ledger.call_next(unable, Some(true), &[]).await.expect("a heartbeat");
    assert_eq!(seal_one(ledger, turn(&present, 20)).await, SealVerdict::Queued);
    let calls = call(ledger, ["r"]).await;
    assert!(calls[0].called.is_some_and(|lock| lock != present.lock));
    assert_eq!(calls[0].gateway, unable);
}

/// A place is kept for a caller that is gone, but it is not called, and holds others up for its turn
/// only. Another gateway may take it up.
pub async fn a_place_is_kept(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (gone, next) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    ledger.keep_places(GATEWAY, &[gone.lock]).await.expect("kept");
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, None, "nobody is there to come");
    assert_eq!(seal_one(ledger, turn(&next, 20)).await, SealVerdict::Queued);
    passed_over().await;
    assert_eq!(called(ledger, "r").await, Some(next.lock));
    let other = Uuid::from_u128(3);
    ledger.call_next(other, Some(true), &[]).await.expect("a heartbeat");
    let back = JoinItem { gateway: other, ..gone.clone() };
    assert_eq!(join_one(ledger, back).await, JoinVerdict::Waiting);
    // The old gateway learns late that its caller is gone.
    ledger.keep_places(GATEWAY, &[gone.lock]).await.expect("kept");
    assert_eq!(seal_one(ledger, turn(&next, 20)).await, SealVerdict::Queued);
    let calls = call(ledger, ["r"]).await;
    assert_eq!((calls[0].called, calls[0].gateway), (Some(gone.lock), other));
    granted(ledger, turn(&gone, 20)).await;
}

/// A rerun that is refused is not buried while its id waits: the grant is still wanted.
pub async fn a_refused_rerun_of_a_waiter_stays_in_line(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let waiter = waiting(ledger, ["r"]).await;
    let rerun = SealItem { attempt: Attempt::Rerun, ..turn(&waiter, 20) };
    assert!(matches!(seal_one(ledger, rerun.clone()).await, SealVerdict::Held(_)));
    release_one(ledger, ann.lock).await;
    let grant = granted(ledger, rerun).await;
    assert_eq!(grant.token.get(), 20);
    let second = waiting(ledger, ["r"]).await;
    let bury = SealItem { attempt: Attempt::Bury, ..turn(&second, 30) };
    assert_eq!(seal_one(ledger, bury).await, SealVerdict::Ended(LockEnd::Released));
    assert_eq!(ledger.position(second.lock, None).await.expect("read"), None);
}

/// When a lock ends by itself, and when a turn is over, is known beforehand.
pub async fn what_happens_by_itself_is_foretold(ledger: &dyn Ledger) {
    let ann = held(ledger, "a", 10).await;
    let waiter = waiting(ledger, ["a"]).await;
    let left = call(ledger, ["a"]).await[0].next_ms;
    assert!(left.is_some_and(|ms| ms > 1_000_000), "{left:?}");
    break_one(ledger, &ann, 400).await;
    let left = call(ledger, ["a"]).await[0].next_ms;
    assert!(left.is_some_and(|ms| (0..=400).contains(&ms)), "{left:?}");
    pause(450).await;
    assert_eq!(called(ledger, "a").await, Some(waiter.lock));
    assert!(call(ledger, ["nobody-waits"]).await.is_empty());
}

/// A waiter that missed its turn, with nobody behind it, has another one: no grant may come that would
/// begin it again.
pub async fn who_missed_its_turn_is_called_again(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let waiter = waiting(ledger, ["r"]).await;
    release_one(ledger, ann.lock).await;
    for _ in 0..2 {
        assert_eq!(called(ledger, "r").await, Some(waiter.lock));
        passed_over().await;
    }
    assert_eq!(called(ledger, "r").await, Some(waiter.lock));
    assert_eq!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Queued);
    granted(ledger, turn(&waiter, 20)).await;
}

/// Waiters whose callers are gone have their turns at the same time, so that many of them hold nobody up
/// for longer than one.
pub async fn kept_places_have_their_turns_together(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let mut gone = Vec::new();
    for _ in 0..4 {
        gone.push(waiting(ledger, ["r"]).await.lock);
    }
    let next = waiting(ledger, ["r"]).await;
    assert_eq!(ledger.roll_call(GATEWAY).await.expect("read").len(), 5);
    ledger.keep_places(GATEWAY, &gone).await.expect("kept");
    assert_eq!(ledger.roll_call(GATEWAY).await.expect("read"), [next.lock]);
    assert!(ledger.roll_call(Uuid::from_u128(1)).await.expect("read").is_empty());
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, None);
    passed_over().await;
    assert_eq!(called(ledger, "r").await, Some(next.lock));
    granted(ledger, turn(&next, 20)).await;
}

/// A caller that is gone and waits for something else as well, which is held, keeps nobody from what is
/// free; once all is free it has its turn like any other.
pub async fn who_is_gone_and_waits_in_vain_holds_nobody_up(ledger: &dyn Ledger) {
    let (a, b) = (held(ledger, "a", 10).await, held(ledger, "b", 11).await);
    let gone = waiting(ledger, ["a", "b"]).await;
    ledger.keep_places(GATEWAY, &[gone.lock]).await.expect("kept");
    let next = waiting(ledger, ["a"]).await;
    release_one(ledger, a.lock).await;
    assert_eq!(called(ledger, "a").await, Some(next.lock), "b is held, so nobody waits for a");
    let next = granted(ledger, turn(&next, 20)).await;
    release_one(ledger, next.lock).await;
    let passer_by = granted(ledger, seal(["a"], 21)).await;
    release_one(ledger, passer_by.lock).await;
    release_one(ledger, b.lock).await;
    assert_eq!(called(ledger, "b").await, None, "nobody is there to come");
    assert_eq!(seal_one(ledger, seal(["a"], 22)).await, SealVerdict::Queued);
    assert_eq!(join_one(ledger, gone.clone()).await, JoinVerdict::Waiting);
    granted(ledger, turn(&gone, 23)).await;
}

/// A waiter that came when it was called, and could not be granted, has not missed its turn.
pub async fn who_came_in_vain_keeps_its_turn(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let (first, second) = (waiting(ledger, ["r"]).await, waiting(ledger, ["r"]).await);
    release_one(ledger, ann.lock).await;
    assert_eq!(called(ledger, "r").await, Some(first.lock));
    mark_one(ledger, "r", Mark::Freeze, "stop").await;
    assert_eq!(seal_one(ledger, turn(&first, 20)).await, SealVerdict::Frozen(name("r")));
    assert_eq!(called(ledger, "r").await, None, "frozen");
    passed_over().await;
    mark_one(ledger, "r", Mark::Unfreeze, "go on").await;
    assert_eq!(seal_one(ledger, turn(&second, 20)).await, SealVerdict::Queued);
    assert_eq!(called(ledger, "r").await, Some(first.lock));
    granted(ledger, turn(&first, 20)).await;
}

/// A fence without a lock is not held up by those who wait for one, and is not theirs.
pub async fn a_fence_does_not_stand_in_line(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let waiter = waiting(ledger, ["r"]).await;
    release_one(ledger, ann.lock).await;
    let kind = SealKind::Fence { order: None, force: false };
    let taken = SealItem { kind, ..turn(&waiter, 20) };
    assert_eq!(seal_one(ledger, taken).await, SealVerdict::Conflict);
    granted(ledger, SealItem { kind, ..seal(["r"], 20) }).await;
    assert_eq!(called(ledger, "r").await, Some(waiter.lock));
    granted(ledger, turn(&waiter, 30)).await;
}
