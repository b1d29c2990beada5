//! The longest hold, and metadata: what binds a lock from its grant on.

use std::collections::BTreeMap;

use fence_core::ports::{
    Attempt, Grant, Ledger, LockRecord, RenewVerdict, SealItem, SealKind, SealVerdict,
};
use fence_core::{LockId, LockState, MaxHold, Metadata, Refusal, Ttl};

use super::build::*;
use crate::conformance::{Operator, pause, reopened_sqlite_ledger};

/// Ann's lock that may be held for so long.
fn for_at_most(resource: &str, number: i64, hold_ms: i64) -> SealItem {
    SealItem { max_hold: Some(MaxHold::from_ms(hold_ms)), ..seal([resource], number) }
}

fn noting(words: &str) -> Metadata {
    Metadata::new(BTreeMap::from([("why".into(), words.into())])).expect("small")
}

async fn record(ledger: &dyn Ledger, id: LockId) -> LockRecord {
    ledger.lock(id).await.expect("read").expect("known")
}

/// From the grant to the end of its longest hold.
fn hold_ms(grant: &Grant) -> i64 {
    let until = grant.hold_until.expect("it is bounded");
    let micros = until.as_microsecond() - grant.acquired_at.as_microsecond();
    assert_eq!(micros % 1000, 0, "a whole number of milliseconds");
    micros / 1000
}

/// The deadline is that of the ttl, or of the longest hold if that is sooner.
pub async fn a_longest_hold_bounds_every_deadline(ledger: &dyn Ledger) {
    let item = for_at_most("r", 10, 10_000);
    let ann = granted(ledger, item.clone()).await;
    assert_eq!((hold_ms(&ann), ann.ttl), (10_000, long()));
    assert!((1..=10_000).contains(&ann.remaining_ms), "{}", ann.remaining_ms);
    for ttl in [None, Some(long()), Some(Ttl::INFINITE), Some(Ttl::from_ms(3_000))] {
        let RenewVerdict::Renewed { grant, .. } = renew_for(ledger, ann.lock, ttl).await else {
            panic!("not renewed")
        };
        let most = if ttl == Some(Ttl::from_ms(3_000)) { 3_000 } else { 10_000 };
        assert!((1..=most).contains(&grant.remaining_ms), "{ttl:?}: {}", grant.remaining_ms);
        assert_eq!((hold_ms(&grant), grant.hold_until), (10_000, ann.hold_until));
        assert_eq!(grant.ttl, ttl.unwrap_or(long()));
    }
    // A re-entry cannot bring a longest hold of its own.
    let again = SealItem { max_hold: Some(MaxHold::from_ms(3_600_000)), ..item };
    let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
    assert_eq!(grant.hold_until, ann.hold_until);
    assert!((1..=10_000).contains(&grant.remaining_ms));
    let found = record(ledger, ann.lock).await.grant;
    assert_eq!(hold_ms(&found), 10_000);
    assert!((1..=10_000).contains(&found.remaining_ms));
}

/// Once it is over nothing extends the lock; its holder may write until somebody else is granted.
pub async fn a_lock_held_for_too_long_is_not_extended(ledger: &dyn Ledger) {
    let item = for_at_most("r", 10, 20);
    let ann = granted(ledger, item.clone()).await;
    pause(40).await;
    for ttl in [None, Some(long()), Some(Ttl::INFINITE)] {
        assert_eq!(renew_for(ledger, ann.lock, ttl).await, RenewVerdict::HoldExceeded);
    }
    for attempt in [Attempt::First, Attempt::Rerun] {
        let again = SealItem { number: Some(20), attempt, ..item.clone() };
        assert_eq!(seal_one(ledger, again).await, SealVerdict::HoldExceeded);
    }
    let kind = SealKind::Transfer { from: ann.lock };
    let heir = SealItem { kind, ..seal(["r"], 20) };
    assert_eq!(seal_one(ledger, heir).await, SealVerdict::HoldExceeded);
    assert_eq!(record(ledger, ann.lock).await.grant.state, LockState::Expired);
    apply(ledger, put(&ann, "k", "nobody took over")).await;

    let bob = SealItem { owner: "bob".into(), ..seal(["r"], 30) };
    let bob = granted(ledger, bob).await;
    assert_eq!(bob.hold_until, None);
    assert!(matches!(refusal(ledger, put(&ann, "k", "late")).await, Refusal::Stale { .. }));
    let how = record(ledger, ann.lock).await.ended.map(|(how, _)| how);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Ended(how.expect("ended")));
}

/// A successor is bound by the hold and has the words of its predecessor.
pub async fn a_transfer_carries_hold_and_metadata_over(ledger: &dyn Ledger) {
    let item = SealItem { metadata: noting("ann's"), ..for_at_most("r", 10, 30_000) };
    let ann = granted(ledger, item).await;
    pause(5).await;
    let bob = SealItem {
        kind: SealKind::Transfer { from: ann.lock },
        owner: "bob".into(),
        metadata: noting("ignored"),
        ..for_at_most("r", 20, 3_600_000)
    };
    let bob = granted(ledger, bob).await;
    assert_eq!((bob.hold_until, &bob.metadata), (ann.hold_until, &noting("ann's")));
    assert!((1..30_000).contains(&bob.remaining_ms), "{}", bob.remaining_ms);
    let found = record(ledger, bob.lock).await.grant;
    let micros = |grant: &Grant| grant.hold_until.map(|until| until.as_microsecond());
    assert_eq!((micros(&found), found.metadata), (micros(&ann), noting("ann's")));
}

/// It stays with the lock as it was granted, in every view of its own.
pub async fn metadata_stays_with_the_lock(ledger: &dyn Ledger) {
    let entries = BTreeMap::from([
        ("why".to_owned(), "nightly \"import\"\n\u{1}".to_owned()),
        ("schlüssel".to_owned(), "ü€😀".to_owned()),
        (String::from("empty"), String::new()),
    ]);
    let words = Metadata::new(entries).expect("small");
    let item = SealItem { metadata: words.clone(), ..seal(["r"], 10) };
    let ann = granted(ledger, item.clone()).await;
    assert_eq!(ann.metadata, words);
    assert_eq!(record(ledger, ann.lock).await.grant.metadata, words);
    let RenewVerdict::Renewed { grant, .. } = renew_one(ledger, ann.lock).await else {
        panic!("not renewed")
    };
    assert_eq!(grant.metadata, words);
    // The same id with other words is the same lock with the old ones.
    let again = SealItem { metadata: noting("other"), ..item };
    let SealVerdict::Again(grant) = seal_one(ledger, again).await else { panic!("not again") };
    assert_eq!(grant.metadata, words);
    assert_eq!(record(ledger, ann.lock).await.grant.metadata, words);
    release_one(ledger, ann.lock).await;
    assert_eq!(record(ledger, ann.lock).await.grant.metadata, words);
    assert_eq!(held(ledger, "r", 20).await.metadata, Metadata::default());
}

/// The largest fits.
pub async fn the_largest_metadata_fits(ledger: &dyn Ledger) {
    // 16 entries of 256 bytes each with what JSON puts around them, less one byte.
    let value = |n: usize| "\"".repeat(123) + if n == 0 { "" } else { "x" };
    let words = Metadata::new((0..16).map(|n| (format!("{n:03}"), value(n))).collect());
    let words = words.expect("within the limits");
    assert_eq!(words.to_json().len(), Metadata::BYTES_MAX);
    let ann = granted(ledger, SealItem { metadata: words.clone(), ..seal(["r"], 10) }).await;
    assert_eq!(record(ledger, ann.lock).await.grant.metadata, words);
}

/// The database keeps no more than the limit, whoever writes.
pub async fn metadata_beyond_the_limit_is_refused_by_the_database(
    ledger: &dyn Ledger,
    operator: &Operator,
) {
    let ann = held(ledger, "r", 10).await;
    let set = |text: &str| {
        format!("UPDATE locks SET metadata = '{{\"a\":\"{text}\"}}' WHERE id = '{}'", ann.lock)
    };
    operator.execute(&set(&"x".repeat(1024))).await;
    let refused = operator.refusal(&set(&"x".repeat(4200))).await;
    assert!(refused.contains("metadata"), "{refused}");
}

/// A process that starts keeps the end of the hold: it is a time of the day, not one left.
pub async fn a_restart_keeps_the_longest_hold(ledger: &dyn Ledger, operator: &Operator) {
    let Operator::Sqlite(path) = operator else { panic!("only SQLite counts its own time") };
    let ann = granted(ledger, for_at_most("ann", 10, 30_000)).await;
    let bob = granted(ledger, for_at_most("bob", 11, 20)).await;
    let carl =
        granted(ledger, SealItem { ttl: Some(Ttl::INFINITE), ..for_at_most("carl", 12, 80_000) });
    let carl = carl.await;
    renew_one(ledger, carl.lock).await;
    pause(40).await;
    let reopened = reopened_sqlite_ledger(path).await;
    let left = record(&reopened, ann.lock).await.grant.remaining_ms;
    assert!((1..30_000).contains(&left), "{left}");
    assert_eq!(record(&reopened, bob.lock).await.grant.state, LockState::Expired);
    assert_eq!(renew_one(&reopened, bob.lock).await, RenewVerdict::HoldExceeded);
    let left = record(&reopened, carl.lock).await.grant.remaining_ms;
    assert!((60_001..80_000).contains(&left), "{left}");
}
