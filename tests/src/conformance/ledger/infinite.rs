//! Locks that last until they are released or broken.

use fence_core::ports::{Grant, Ledger, RenewVerdict, SealItem, SealKind, SealVerdict};
use fence_core::{LockState, Ttl};

use super::build::*;
use crate::conformance::{Operator, reopened_sqlite_ledger};

const MINUTE_MS: i64 = 60_000;
const CENTURY_MS: i64 = 3_153_600_000_000;

fn for_ever(resource: &str, number: i64) -> SealItem {
    SealItem { ttl: Ttl::INFINITE, ..seal([resource], number) }
}

async fn renewed(ledger: &dyn Ledger, lock: &Grant, ttl: Option<Ttl>) -> Grant {
    match renew_for(ledger, lock.lock, ttl).await {
        RenewVerdict::Renewed { grant, .. } => grant,
        other => panic!("not renewed: {other:?}"),
    }
}

async fn left(ledger: &dyn Ledger, lock: &Grant) -> i64 {
    ledger.lock(lock.lock).await.expect("read").expect("known").grant.remaining_ms
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
    assert_a_minute(ann.remaining_ms);
    assert_a_minute(left(ledger, &ann).await);

    let grant = renewed(ledger, &ann, None).await;
    assert_eq!(grant.ttl, Ttl::INFINITE);
    assert_for_ever(grant.remaining_ms);
    assert_for_ever(left(ledger, &ann).await);
    let SealVerdict::Held(holder) = seal_one(ledger, seal(["r"], 20)).await else {
        panic!("not held")
    };
    assert_for_ever(holder.remaining_ms);
}

/// The same id again, whatever its ttl, never brings the deadline nearer, and starts no century.
pub async fn a_re_entry_never_shortens_an_infinite_lock(ledger: &dyn Ledger) {
    let item = for_ever("r", 10);
    let ann = granted(ledger, item.clone()).await;
    for ttl in [Ttl::INFINITE, short()] {
        let again = SealItem { ttl, ..item.clone() };
        let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
        assert_eq!(grant.ttl, Ttl::INFINITE);
        assert_a_minute(grant.remaining_ms);
    }
    renewed(ledger, &ann, None).await;
    for ttl in [Ttl::INFINITE, short()] {
        let again = SealItem { ttl, ..item.clone() };
        let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
        assert_eq!(grant.ttl, Ttl::INFINITE);
        assert_for_ever(grant.remaining_ms);
        assert_for_ever(left(ledger, &ann).await);
    }
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

/// A re-entry that asks for ever gets a minute at least, like a grant.
pub async fn a_re_entry_may_ask_for_ever(ledger: &dyn Ledger) {
    let item = SealItem { ttl: Ttl::from_ms(5_000), ..seal(["r"], 10) };
    let ann = granted(ledger, item.clone()).await;
    let again = SealItem { ttl: Ttl::INFINITE, ..item };
    let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
    assert_eq!(grant.ttl, Ttl::INFINITE);
    assert_a_minute(grant.remaining_ms);
    assert_for_ever(renewed(ledger, &ann, None).await.remaining_ms);
}

/// The answer to the successor may be lost, too.
pub async fn the_successor_of_an_infinite_lock_has_to_show_up(ledger: &dyn Ledger) {
    let ann = granted(ledger, for_ever("r", 10)).await;
    renewed(ledger, &ann, None).await;
    let kind = SealKind::Transfer { from: ann.lock };
    let bob = granted(ledger, SealItem { kind, ..for_ever("r", 20) }).await;
    assert_eq!(bob.ttl, Ttl::INFINITE);
    assert_a_minute(bob.remaining_ms);
    assert_for_ever(renewed(ledger, &bob, None).await.remaining_ms);
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
