//! The belts: what no act does, the database refuses.

use std::path::Path;
use std::sync::Arc;

use fence_core::ports::{
    Attempt, BreakVerdict, Ledger, LedgerError, Patience, ReleaseVerdict, RenewVerdict, SealItem,
    SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockState, Refusal, Ttl};

use super::build::*;
use crate::conformance::{Operator, pause, reopened_sqlite_ledger};

/// Neither its token nor the number of its grants.
pub async fn a_fence_never_falls(ledger: &dyn Ledger, operator: &Operator) {
    let (_, bob) = succession(ledger, "r").await;
    apply(ledger, put(&bob, "k", "a")).await;
    for set in ["token = 19", "token = 1", "grants = 1"] {
        let why = operator.refusal(&format!("UPDATE fences SET {set}")).await;
        assert!(why.contains("a fence never falls"), "{set}: {why}");
    }
    apply(ledger, put(&bob, "k", "b")).await;
}

/// It outlives everything.
pub async fn a_fence_is_never_removed(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    let why = operator.refusal("DELETE FROM fences").await;
    assert!(why.contains("never removed"), "{why}");
    apply(ledger, put(&ann, "k", "a")).await;
}

/// A resource keeps its name: another name would be a fence that fell.
pub async fn a_fence_is_never_renamed(ledger: &dyn Ledger, operator: &Operator) {
    held(ledger, "r", 10).await;
    let why = operator.refusal("UPDATE fences SET resource = 's'").await;
    assert!(why.contains("a fence never falls"), "{why}");
}

/// One per operation, no more and no fewer. On Postgres it is that of the newest operation, which nobody changes.
pub async fn a_version_without_an_operation_is_refused(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let rises_by_one = "a version rises by one per operation";
    let refused = match operator {
        Operator::Sqlite(_) => [
            ("UPDATE fences SET version = 2", rises_by_one),
            ("UPDATE fences SET version = 1000", rises_by_one),
        ],
        Operator::Postgres(_) => [
            ("UPDATE operations SET version = 2", "rows of operations are never changed"),
            (
                "DELETE FROM operations",
                "the newest row of a resource in operations is never removed",
            ),
        ],
    };
    for (change, wanted) in refused {
        let why = operator.refusal(change).await;
        assert!(why.contains(wanted), "{why}");
    }
    assert_eq!(apply(ledger, put(&ann, "k", "b")).await.version, Some(2));
}

/// An operation is there, but not those between. On Postgres `scrub` finds that.
pub async fn a_version_that_leaps_over_operations_is_refused(
    ledger: &dyn Ledger,
    operator: &Operator,
) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    operator
        .execute(
            "INSERT INTO operations (id, resource, version, kind, generation, created, size, owner, committed_at)
             VALUES ('x', 'r', 3, 'delete_all', 0, 0, 0, 'o', 0)",
        )
        .await;
    let why = operator.refusal("UPDATE fences SET version = 3").await;
    assert!(why.contains("a version rises by one per operation"), "{why}");
}

/// History may go, the newest of it may not: its version and its token must never come again.
pub async fn the_newest_is_never_removed(ledger: &dyn Ledger, operator: &Operator) {
    let (_, bob) = succession(ledger, "r").await;
    apply(ledger, put(&bob, "k", "a")).await;
    apply(ledger, put(&bob, "k", "b")).await;
    for (table, column) in [("grants", "token"), ("operations", "version")] {
        let newest = format!("{column} = (SELECT max({column}) FROM {table})");
        let why = operator.refusal(&format!("DELETE FROM {table} WHERE {newest}")).await;
        assert!(why.contains("newest"), "{table}: {why}");
        assert!(why.contains("never removed"), "{table}: {why}");
        operator.execute(&format!("DELETE FROM {table} WHERE NOT {newest}")).await;
    }
    assert_eq!(apply(ledger, put(&bob, "k", "c")).await.version, Some(3));
}

/// Whatever fails while rows are stored: the act is rolled back, definitely, and the next one is decided.
pub async fn a_statement_that_fails_rolls_back(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    let overflow = "SELECT abs(-9223372036854775808)";
    let trigger =
        format!("CREATE TRIGGER broken BEFORE INSERT ON operations BEGIN {overflow}; END");
    operator.execute(&trigger).await;
    let answer = ledger.commit(Arc::from([put(&ann, "k", "a")]), Patience::Skip).await;
    assert!(matches!(answer, Err(LedgerError::Unavailable(_))), "{answer:?}");
    operator.execute("DROP TRIGGER broken").await;
    assert_eq!(apply(ledger, put(&ann, "k", "b")).await.version, Some(1));
}

/// Neither floor nor epoch nor base, and no guard is removed.
pub async fn the_guard_never_falls(ledger: &dyn Ledger, operator: &Operator) {
    held(ledger, "r", 10).await;
    operator.raise_floor(5).await;
    let tables: &[&str] = match operator {
        Operator::Sqlite(_) => &["guard"],
        Operator::Postgres(_) => &["seal_guard", "write_guard"],
    };
    for table in tables {
        let why = operator.refusal(&format!("UPDATE {table} SET floor = 4")).await;
        assert!(why.contains("never falls"), "{why}");
        let why = operator.refusal(&format!("DELETE FROM {table}")).await;
        assert!(why.contains("never removed"), "{why}");
    }
    for set in ["epoch = -1", "base = -1"] {
        let why = operator.refusal(&format!("UPDATE {} SET {set}", tables[0])).await;
        assert!(why.contains("never fall"), "{why}");
    }
    let last = tables[tables.len() - 1];
    let why = operator.refusal(&format!("UPDATE {last} SET generation = 0")).await;
    assert!(why.contains("never fall"), "{why}");
}

/// All acts of others would wait for it. Objects go one by one, and what is left at once.
pub async fn a_large_resource_is_not_deleted_at_once(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    operator.execute("UPDATE fences SET objects = 10001 WHERE resource = 'r'").await;
    for attempt in [Attempt::First, Attempt::Rerun] {
        let item = WriteItem { attempt, ..delete_all(&ann) };
        assert_eq!(refusal(ledger, item).await, Refusal::TooManyObjects);
    }
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("a"));
    apply(ledger, delete(&ann, "k")).await;
    apply(ledger, delete_all(&ann)).await;
    assert_eq!(counts(ledger, "r").await.1, 0);
}

/// By which the ledger forgets.
pub async fn the_own_time_never_falls(ledger: &dyn Ledger, operator: &Operator) {
    crate::conformance::catch_up(ledger).await;
    let falls: &[&str] = match operator {
        Operator::Sqlite(_) => &[
            "UPDATE guard SET own_time = 0",
            "UPDATE guard SET pass = 0",
            "UPDATE guard SET let_go_before = -1",
        ],
        Operator::Postgres(_) => &[
            "UPDATE own_time SET at = 'epoch'",
            "UPDATE own_time SET pass = 0",
            "UPDATE own_time SET let_go_before = '-infinity'",
        ],
    };
    for fall in falls {
        let why = operator.refusal(fall).await;
        assert!(why.contains("never falls"), "{why}");
    }
}

/// What a process left behind is there for the next one, and each lock gets its full ttl again.
pub async fn a_sqlite_file_is_the_same_when_opened_again(path: &Path) {
    let before = reopened_sqlite_ledger(path).await;
    let item = SealItem { ttl: Some(Ttl::from_ms(1000)), ..seal(["r"], 10) };
    let ann = granted(&before, item.clone()).await;
    let numbered = |sequence| WriteItem { sequence: Some(sequence), ..put(&ann, "k", "a") };
    let write = numbered(4);
    let first = apply(&before, write.clone()).await;
    let broken = held(&before, "s", 11).await;
    break_one(&before, &broken, 60_000).await;
    pause(300).await;
    drop(before);
    let after = reopened_sqlite_ledger(path).await;
    assert_eq!(apply(&after, write).await, first);
    let record = after.lock(ann.lock).await.expect("read").expect("known");
    assert_eq!((record.ended, record.grant.state), (None, LockState::Leased));
    assert!(record.grant.remaining_ms > 800, "{}", record.grant.remaining_ms);
    assert!(matches!(seal_one(&after, item).await, SealVerdict::Again(_)));
    assert_eq!(refusal(&after, numbered(4)).await, Refusal::SequenceOutOfOrder);
    assert_eq!(apply(&after, put(&ann, "k", "b")).await.version, Some(2));
    // A pending break keeps its due time.
    let BreakVerdict::Breaking { due_ms } = break_one(&after, &broken, 3_600_000).await else {
        panic!("not breaking")
    };
    assert!(due_ms < 59_800, "{due_ms}");
}

/// Somebody's open transaction on one fence row delays no other; the item comes back as busy.
pub async fn a_locked_row_is_busy_and_delays_no_other(ledger: &dyn Ledger, operator: &Operator) {
    use sqlx::{Connection as _, Executor as _};
    let (ann, other) = (held(ledger, "r", 10).await, held(ledger, "s", 11).await);
    let Operator::Postgres(options) = operator else { panic!("only on Postgres") };
    let mut foreign = sqlx::PgConnection::connect_with(options).await.expect("a connection");
    foreign.execute("BEGIN").await.expect("begun");
    foreign.execute("SELECT FROM fences WHERE resource = 'r' FOR UPDATE").await.expect("locked");
    let waits = Patience::Wait(std::time::Duration::from_millis(50));
    let items = [put(&ann, "k", "a"), put(&other, "k", "a"), put(&ann, "j", "a")];
    let [busy, good, busy_too] = commit(ledger, items).await;
    assert_eq!((busy, busy_too), (WriteVerdict::Busy, WriteVerdict::Busy));
    applied(good);
    let lane = ledger.commit(Arc::from([put(&ann, "k", "a")]), waits).await.expect("decided");
    assert_eq!(lane, [WriteVerdict::Busy]);
    let items = [seal(["r", "t"], 20), seal(["u"], 20)];
    let verdicts = ledger.seal(0, Arc::from(items), Patience::Skip).await.expect("decided");
    assert!(matches!(verdicts.as_slice(), [SealVerdict::Busy, SealVerdict::Sealed(..)]));
    let lane = ledger.seal(0, Arc::from([seal(["r"], 20)]), waits).await.expect("decided");
    assert_eq!(lane, [SealVerdict::Busy]);
    assert_eq!(renew_one(ledger, ann.lock).await, RenewVerdict::Busy);
    assert_eq!(release_one(ledger, ann.lock).await, ReleaseVerdict::Busy);
    assert_eq!(break_one(ledger, &ann, 0).await, BreakVerdict::Busy);
    foreign.execute("ROLLBACK").await.expect("ended");
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.version, Some(1));
}
