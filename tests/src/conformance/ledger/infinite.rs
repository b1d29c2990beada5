//! Locks that last until they are released or broken.

use fence_core::ports::{Attempt, Grant, Ledger, RenewVerdict, SealItem, SealKind, SealVerdict};
use fence_core::{LockState, Ttl};

use super::build::*;
use crate::conformance::{Operator, reopened_sqlite_ledger};

const MINUTE_MS: i64 = 60_000;
const CENTURY_MS: i64 = 3_153_600_000_000;

fn for_ever(resource: &str, number: i64) -> SealItem {
    SealItem { ttl: Some(Ttl::INFINITE), ..seal([resource], number) }
}

async fn renewed(ledger: &dyn Ledger, lock: &Grant, ttl: Option<Ttl>) -> Grant {
    match renew_for(ledger, lock.lock, ttl).await {
        RenewVerdict::Renewed { grant, .. } => grant,
        other => panic!("not renewed: {other:?}"),
    }
}

/// The same call again.
async fn again(ledger: &dyn Ledger, item: SealItem) -> Grant {
    match seal_one(ledger, SealItem { number: None, ..item }).await {
        SealVerdict::Again(grant) => grant,
        other => panic!("not again: {other:?}"),
    }
}

/// A sending of the call that was granted, which comes late: nobody need know of the lock, and whoever does may
/// have changed its ttl meanwhile.
pub async fn a_late_sending_changes_nothing_of_a_lock_in_force(ledger: &dyn Ledger) {
    let ghost = for_ever("a", 10);
    let ann = granted(ledger, ghost.clone()).await;
    for attempt in [Attempt::First, Attempt::Rerun] {
        let late = SealItem { attempt, ..ghost.clone() };
        let SealVerdict::Again(found) = seal_one(ledger, late).await else { panic!("not again") };
        assert!(found.unconfirmed && found.remaining_ms <= Ttl::UNCONFIRMED.as_ms(), "{found:?}");
    }
    assert_eq!(record(ledger, &ann).await.remaining_ms.max(60_000), 60_000);
    let ghost = SealItem { ttl: Some(Ttl::from_ms(30_000)), ..seal(["b"], 11) };
    let bob = granted(ledger, ghost.clone()).await;
    again(ledger, SealItem { ttl: Some(Ttl::INFINITE), ..ghost.clone() }).await;
    assert!(matches!(seal_one(ledger, ghost.clone()).await, SealVerdict::Again(_)));
    assert_for_ever(record(ledger, &bob).await.remaining_ms);
    // A rerun without a number, while the mint could not be reached, is one as well.
    renewed(ledger, &bob, Some(long())).await;
    again(ledger, SealItem { attempt: Attempt::Rerun, ..ghost }).await;
    assert!(record(ledger, &bob).await.remaining_ms > 30_000);
}

/// Nobody need know of the successor either.
pub async fn a_late_sending_of_a_transfer_confirms_nothing(ledger: &dyn Ledger) {
    let ann = granted(ledger, for_ever("r", 10)).await;
    let ann = renewed(ledger, &ann, None).await;
    let transfer =
        SealItem { kind: SealKind::Transfer { from: ann.lock }, ttl: None, ..for_ever("r", 20) };
    let bob = granted(ledger, transfer.clone()).await;
    assert!(matches!(seal_one(ledger, transfer).await, SealVerdict::Again(_)));
    assert_unconfirmed(ledger, &bob).await;
}

/// Then it is the caller's repetition, which was taken for a new call: the lock revives, and is no more than it was.
pub async fn a_numbered_sending_revives_a_lock_that_has_lapsed(ledger: &dyn Ledger) {
    let item = SealItem { ttl: Some(short()), ..seal(["r"], 10) };
    let ann = granted(ledger, item.clone()).await;
    expire().await;
    let again = SealItem { number: Some(20), ttl: Some(long()), ..item };
    let SealVerdict::Again(found) = seal_one(ledger, again).await else { panic!("not again") };
    assert_eq!((found.token, found.ttl), (ann.token, long()));
    assert!(record(ledger, &ann).await.remaining_ms > short().as_ms());
    // Nobody need know of it, also if it was not infinite before.
    let item = SealItem { ttl: Some(short()), ..seal(["s"], 30) };
    granted(ledger, item.clone()).await;
    expire().await;
    let late = SealItem { number: Some(40), ttl: Some(Ttl::INFINITE), ..item };
    let SealVerdict::Again(bob) = seal_one(ledger, late).await else { panic!("not again") };
    assert_unconfirmed(ledger, &bob).await;
}

async fn record(ledger: &dyn Ledger, lock: &Grant) -> Grant {
    ledger.lock(lock.lock).await.expect("read").expect("known").grant
}

async fn left(ledger: &dyn Ledger, lock: &Grant) -> i64 {
    record(ledger, lock).await.remaining_ms
}

/// What an answer says, and what the ledger will do.
async fn assert_unconfirmed(ledger: &dyn Ledger, grant: &Grant) {
    for grant in [grant, &record(ledger, grant).await] {
        assert!(grant.unconfirmed, "{grant:?}");
        assert_a_minute(grant.remaining_ms);
    }
}

async fn assert_confirmed(ledger: &dyn Ledger, grant: &Grant) {
    for grant in [grant, &record(ledger, grant).await] {
        assert!(!grant.unconfirmed, "{grant:?}");
        assert_for_ever(grant.remaining_ms);
    }
}

#[track_caller]
fn assert_a_minute(remaining_ms: i64) {
    assert!((MINUTE_MS - 20_000..=MINUTE_MS).contains(&remaining_ms), "{remaining_ms}");
}

#[track_caller]
fn assert_for_ever(remaining_ms: i64) {
    assert!((CENTURY_MS - MINUTE_MS..=CENTURY_MS).contains(&remaining_ms), "{remaining_ms}");
}

/// A lost answer locks nothing for ever: the deadline is near until a renewal shows that it arrived.
pub async fn an_infinite_lock_lasts_a_minute_until_it_is_renewed(ledger: &dyn Ledger) {
    let ann = granted(ledger, for_ever("r", 10)).await;
    assert_eq!((ann.ttl, ann.state), (Ttl::INFINITE, LockState::Leased));
    assert_eq!(ann.remaining_ms, MINUTE_MS);
    assert_unconfirmed(ledger, &ann).await;

    let grant = renewed(ledger, &ann, None).await;
    assert_eq!(grant.ttl, Ttl::INFINITE);
    assert_confirmed(ledger, &grant).await;
    let SealVerdict::Held(holder) = seal_one(ledger, seal(["r"], 20)).await else {
        panic!("not held")
    };
    assert_for_ever(holder.remaining_ms);
}

/// Or until its caller sends the same call again, with the ttl or without one.
pub async fn the_same_call_again_confirms_an_infinite_lock(ledger: &dyn Ledger) {
    for (resource, number, ttl) in [("a", 10, Some(Ttl::INFINITE)), ("b", 11, None)] {
        let item = for_ever(resource, number);
        granted(ledger, item.clone()).await;
        for _ in 0..2 {
            let grant = again(ledger, SealItem { ttl, ..item.clone() }).await;
            assert_eq!(grant.ttl, Ttl::INFINITE);
            assert_confirmed(ledger, &grant).await;
        }
    }
    let item = SealItem { resources: vec![name("c"), name("d")], ..for_ever("unused", 12) };
    granted(ledger, item.clone()).await;
    assert_confirmed(ledger, &again(ledger, item).await).await;
}

/// A rerun of the gateway's may be of the very call that was granted: it shows nothing. What was
/// confirmed stays so.
pub async fn a_rerun_confirms_no_infinite_lock(ledger: &dyn Ledger) {
    let item = for_ever("r", 10);
    let rerun = SealItem { attempt: Attempt::Rerun, ..item.clone() };
    granted(ledger, item).await;
    let ann = again(ledger, rerun.clone()).await;
    assert_unconfirmed(ledger, &ann).await;
    renewed(ledger, &ann, None).await;
    assert_confirmed(ledger, &again(ledger, rerun).await).await;
}

/// The same call with another ttl changes it at once: from finite to finite, to infinite and back.
pub async fn the_same_call_with_another_ttl_changes_it(ledger: &dyn Ledger) {
    let hour = Ttl::from_ms(3_600_000);
    let item = SealItem { ttl: Some(Ttl::from_ms(5_000)), ..seal(["r"], 10) };
    granted(ledger, item.clone()).await;
    for asked in [hour, Ttl::INFINITE, Ttl::from_ms(15_000)] {
        let grant = again(ledger, SealItem { ttl: Some(asked), ..item.clone() }).await;
        assert_eq!(grant.ttl, asked);
        if asked.is_infinite() {
            assert_confirmed(ledger, &grant).await;
        } else {
            assert_eq!((grant.remaining_ms, grant.unconfirmed), (asked.as_ms(), false));
            let left = record(ledger, &grant).await.remaining_ms;
            assert!((asked.as_ms() - 4_000..=asked.as_ms()).contains(&left), "{left}");
        }
    }
    // Also while it is not confirmed.
    let item = for_ever("s", 11);
    granted(ledger, item.clone()).await;
    let grant = again(ledger, SealItem { ttl: Some(hour), ..item }).await;
    assert_eq!((grant.ttl, grant.unconfirmed), (hour, false));
    assert!(record(ledger, &grant).await.remaining_ms > 3_500_000);
}

/// The same call without a ttl keeps the lock's own, whatever set it, and starts it again. Longest hold
/// and metadata stay.
pub async fn the_same_call_without_a_ttl_keeps_it(ledger: &dyn Ledger) {
    let item = SealItem { ttl: Some(Ttl::from_ms(20_000)), ..seal(["r"], 10) };
    let ann = granted(ledger, item.clone()).await;
    let item = SealItem { ttl: None, ..item };
    crate::conformance::pause(20).await;
    let grant = again(ledger, item.clone()).await;
    assert_eq!((grant.ttl.as_ms(), grant.remaining_ms), (20_000, 20_000));
    renewed(ledger, &ann, Some(long())).await;
    let grant = again(ledger, item).await;
    assert_eq!((grant.ttl, grant.remaining_ms), (long(), long().as_ms()));
    // A new lock gets the default.
    let bob = granted(ledger, SealItem { ttl: None, ..seal(["s"], 11) }).await;
    assert_eq!((bob.ttl, bob.remaining_ms), (Ttl::DEFAULT, Ttl::DEFAULT.as_ms()));
    let both = granted(ledger, SealItem { ttl: None, ..seal(["t", "u"], 12) }).await;
    assert_eq!((both.ttl, both.remaining_ms), (Ttl::DEFAULT, Ttl::DEFAULT.as_ms()));
}

/// A renewal makes any lock infinite, and an infinite one finite again.
pub async fn a_renewal_changes_to_infinite_and_back(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert_for_ever(renewed(ledger, &ann, Some(Ttl::INFINITE)).await.remaining_ms);
    assert_for_ever(renewed(ledger, &ann, None).await.remaining_ms);
    let grant = renewed(ledger, &ann, Some(long())).await;
    assert_eq!(grant.ttl, long());
    assert!(grant.remaining_ms <= long().as_ms());
    assert!(left(ledger, &ann).await <= long().as_ms());
}

/// The answer to the successor may be lost, too.
pub async fn the_successor_of_an_infinite_lock_has_to_show_up(ledger: &dyn Ledger) {
    let ann = granted(ledger, for_ever("r", 10)).await;
    renewed(ledger, &ann, None).await;
    let kind = SealKind::Transfer { from: ann.lock };
    let item = SealItem { kind, ttl: None, ..for_ever("r", 20) };
    let bob = granted(ledger, item.clone()).await;
    assert_eq!((bob.ttl, bob.remaining_ms), (Ttl::INFINITE, MINUTE_MS));
    assert_unconfirmed(ledger, &bob).await;
    assert_confirmed(ledger, &again(ledger, item).await).await;
    let kind = SealKind::Transfer { from: bob.lock };
    let carl = granted(ledger, SealItem { kind, ttl: None, ..for_ever("r", 30) }).await;
    assert_unconfirmed(ledger, &carl).await;
    assert_confirmed(ledger, &renewed(ledger, &carl, None).await).await;
}

/// An operator can still end it, at once or soon.
pub async fn an_infinite_lock_can_be_broken(ledger: &dyn Ledger) {
    let ann = granted(ledger, for_ever("r", 10)).await;
    renewed(ledger, &ann, None).await;
    break_one(ledger, &ann, 1_000).await;
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Breaking);
    crate::conformance::pause(1_100).await;
    held(ledger, "r", 20).await;
}

/// A process that starts gives a full ttl to every lock: for ever to those that were renewed.
pub async fn a_restart_keeps_an_infinite_lock_as_it_was(ledger: &dyn Ledger, operator: &Operator) {
    let Operator::Sqlite(path) = operator else { panic!("only SQLite counts its own time") };
    let ann = granted(ledger, for_ever("ann", 10)).await;
    renewed(ledger, &ann, None).await;
    let bob = granted(ledger, for_ever("bob", 11)).await;
    let carl = renewed(ledger, &held(ledger, "carl", 12).await, Some(Ttl::INFINITE)).await;
    let carl = renewed(ledger, &carl, Some(long())).await;
    for _ in 0..2 {
        let reopened = reopened_sqlite_ledger(path).await;
        assert_for_ever(left(&reopened, &ann).await);
        assert_a_minute(left(&reopened, &bob).await);
        let carl_left = left(&reopened, &carl).await;
        assert!((1..=long().as_ms()).contains(&carl_left), "{carl_left}");
    }
}
