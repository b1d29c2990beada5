//! The audit and the refused writes as they are followed: oldest first, up to where nothing is still to come.

use std::sync::Arc;

use fence_core::ports::{
    AuditAction, AuditFilter, Ledger, Log, Mark, REFENCE_JUMP, Rejection, RejectionFilter, Settled,
    Span,
};
use uuid::Uuid;

use super::build::*;
use super::disasters::forced;
use super::marks::mark_one;
use crate::conformance::Operator;

async fn upto(ledger: &dyn Ledger, log: Log) -> i64 {
    let settled = ledger.settled(log, &Settled::default()).await.expect("known");
    assert!(settled.writers.is_empty() && settled.reached == settled.upto, "{settled:?}");
    settled.upto
}

/// Numbers in this span, in the order in which they are listed.
async fn audited(ledger: &dyn Ledger, span: (i64, i64), filter: AuditFilter) -> Vec<i64> {
    let between = Some(Span { after: span.0, upto: span.1 });
    let found = ledger.audit(AuditFilter { between, ..filter }).await.expect("read");
    found.iter().map(|(number, _)| *number).collect()
}

async fn rejected(ledger: &dyn Ledger, span: (i64, i64), filter: RejectionFilter) -> Vec<i64> {
    let between = Some(Span { after: span.0, upto: span.1 });
    let found = ledger.rejections(RejectionFilter { between, ..filter }).await.expect("read");
    found.iter().map(|(number, _)| *number).collect()
}

fn refused(resource: &str, reason: &str) -> Rejection {
    Rejection {
        at: jiff::Timestamp::UNIX_EPOCH,
        resource: name(resource),
        key: None,
        reason: reason.into(),
        token: None,
        grants_behind: None,
        superseded_ms: None,
        owner: None,
        request_id: "test".into(),
        times: 1,
    }
}

/// Each filter for itself and both, behind one number and up to another, up to a limit.
pub async fn the_audit_is_followed_oldest_first(ledger: &dyn Ledger) {
    assert_eq!(upto(ledger, Log::Audit).await, 0);
    for (resource, number) in [("a", 10), ("b", 11), ("a", 12), ("b", 13)] {
        let grant = held(ledger, resource, number).await;
        release_one(ledger, grant.lock).await;
        mark_one(ledger, resource, Mark::Protect, &number.to_string()).await;
    }
    let end = upto(ledger, Log::Audit).await;
    let all = || AuditFilter { limit: 100, ..AuditFilter::default() };
    let numbers = audited(ledger, (0, end), all()).await;
    assert_eq!((numbers.len(), numbers.last()), (8, Some(&end)));
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(audited(ledger, (numbers[1], numbers[4]), all()).await, numbers[2..5]);
    let few = AuditFilter { limit: 3, ..all() };
    assert_eq!(audited(ledger, (numbers[1], end), few).await, numbers[2..5]);
    assert_eq!(audited(ledger, (end, end), all()).await, [0; 0]);
    let of_b = AuditFilter { resource: Some(name("b")), ..all() };
    let expected = [numbers[2], numbers[3], numbers[6], numbers[7]];
    assert_eq!(audited(ledger, (0, end), of_b.clone()).await, expected);
    for (action, expected) in [(AuditAction::Grant, 6), (AuditAction::Protect, 7)] {
        let both = AuditFilter { action: Some(action), ..of_b.clone() };
        assert_eq!(audited(ledger, (numbers[3], end), both).await, [numbers[expected]]);
    }
    // And the other way round it is as it was.
    let newest = ledger.audit(all()).await.expect("read");
    assert!(newest.iter().map(|(number, _)| number).rev().eq(&numbers));
}

/// The same of refused writes. What is counted in an entry that is there is no new one.
pub async fn rejections_are_followed_oldest_first(ledger: &dyn Ledger) {
    assert_eq!(upto(ledger, Log::Rejections).await, 0);
    let (stale, unknown) = ("fence-token-stale", "fence-token-unknown");
    let rows =
        [("a", stale), ("b", stale), ("a", "version-mismatch"), ("a", stale), ("b", unknown)];
    for (resource, reason) in rows {
        ledger.record_rejections(Arc::from([refused(resource, reason)])).await.expect("kept");
    }
    let end = upto(ledger, Log::Rejections).await;
    let all = || RejectionFilter { limit: 100, ..RejectionFilter::default() };
    let numbers = rejected(ledger, (0, end), all()).await;
    assert_eq!((numbers.len(), numbers.last()), (5, Some(&end)));
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let few = RejectionFilter { limit: 2, ..all() };
    assert_eq!(rejected(ledger, (numbers[0], end), few).await, numbers[1..3]);
    let of_a = RejectionFilter { resource: Some(name("a")), ..all() };
    assert_eq!(rejected(ledger, (numbers[0], end), of_a.clone()).await, numbers[2..4]);
    let of_stale = RejectionFilter { reason: Some(stale.into()), ..all() };
    let expected = [numbers[0], numbers[1], numbers[3]];
    assert_eq!(rejected(ledger, (0, end), of_stale.clone()).await, expected);
    let both = RejectionFilter { resource: of_a.resource, ..of_stale };
    assert_eq!(rejected(ledger, (0, numbers[2]), both).await, numbers[..1]);

    ledger.record_rejections(Arc::from([refused("b", unknown)])).await.expect("counted");
    let end_then = upto(ledger, Log::Rejections).await;
    assert_eq!(rejected(ledger, (end, end_then), all()).await, [0; 0]);
}

/// What a ledger has lost when it is re-fenced may have been read: its numbers are given to nothing else.
pub async fn numbers_are_skipped_by_a_re_fence(ledger: &dyn Ledger, _: &Operator) {
    held(ledger, "r", 10).await;
    let (audit, rejections) = (upto(ledger, Log::Audit).await, upto(ledger, Log::Rejections).await);
    for round in 1..=2 {
        ledger.refence(forced(Uuid::new_v4())).await.expect("re-fenced");
        let one = refused("r", "fence-token-stale");
        ledger.record_rejections(Arc::from([one])).await.expect("kept");
        assert!(upto(ledger, Log::Audit).await > audit + round * REFENCE_JUMP);
        assert!(upto(ledger, Log::Rejections).await > rejections + round * REFENCE_JUMP);
    }
    let all = AuditFilter { limit: 9, ..AuditFilter::default() };
    let end = upto(ledger, Log::Audit).await;
    assert_eq!(audited(ledger, (0, end), all).await.len(), 3);
}
