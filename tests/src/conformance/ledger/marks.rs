//! Marks: an operator freezes and protects resources.

use std::sync::Arc;

use fence_core::Refusal;
use fence_core::ports::{
    By, Grant, Ledger, Mark, MarkItem, MarkVerdict, Patience, ReleaseVerdict, RenewVerdict,
    ResourceView, SealItem, SealKind, SealVerdict, Which, WriteItem,
};

use super::build::*;
use crate::conformance::{Operator, pause};

const CHANGED: MarkVerdict = MarkVerdict::Marked { changed: true };
const UNCHANGED: MarkVerdict = MarkVerdict::Marked { changed: false };

/// A mark by the request of the same name.
pub(super) fn item(resource: &str, mark: Mark, reason: &str) -> MarkItem {
    let request_id = format!("to-{}", mark.as_str());
    MarkItem {
        resource: name(resource),
        mark,
        reason: reason.into(),
        request_id,
        by: By::default(),
    }
}

/// The verdict on one mark.
pub(super) async fn mark_one(
    ledger: &dyn Ledger,
    resource: &str,
    mark: Mark,
    reason: &str,
) -> MarkVerdict {
    let items = Arc::from([item(resource, mark, reason)]);
    only(ledger.mark(items, Patience::Skip).await.expect("the mark is decided"))
}

async fn view(ledger: &dyn Ledger, resource: &str) -> ResourceView {
    ledger.resource(&name(resource)).await.expect("read").expect("locked")
}

/// Why it is frozen and protected, as the view of one resource and the list of all tell it.
async fn marks(ledger: &dyn Ledger, resource: &str) -> (Option<String>, Option<String>) {
    let one = view(ledger, resource).await;
    let page = fence_core::ports::Page { limit: 100, ..Default::default() };
    let all = ledger.resources(page, Which::All).await.expect("read");
    let listed = all.iter().find(|view| view.resource == one.resource).expect("listed");
    assert_eq!((&one.frozen, &one.protected), (&listed.frozen, &listed.protected));
    (one.frozen, one.protected)
}

/// Writes, grants and transfers stop; renewals and releases go on.
pub async fn a_frozen_resource_stops_writers_and_grants(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "before")).await;
    assert_eq!(mark_one(ledger, "r", Mark::Freeze, "audit").await, CHANGED);
    for item in [put(&ann, "k", "x"), delete(&ann, "k"), delete_all(&ann)] {
        assert_eq!(refusal(ledger, item).await, Refusal::Frozen);
    }
    let frozen = SealVerdict::Frozen(name("r"));
    assert_eq!(seal_one(ledger, seal(["r"], 20)).await, frozen);
    assert_eq!(seal_one(ledger, seal(["other", "r"], 20)).await, frozen);
    assert_eq!(ledger.resource(&name("other")).await.expect("read"), None);
    let transfer = SealItem {
        kind: SealKind::Transfer { from: ann.lock },
        owner: "bob".into(),
        ..seal(["r"], 20)
    };
    assert_eq!(seal_one(ledger, transfer.clone()).await, frozen);
    assert!(matches!(renew_one(ledger, ann.lock).await, RenewVerdict::Renewed { .. }));
    let again = SealItem { lock: ann.lock, ..seal(["r"], 20) };
    assert!(matches!(seal_one(ledger, again).await, SealVerdict::Again(_)));

    assert_eq!(mark_one(ledger, "r", Mark::Unfreeze, "done").await, CHANGED);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("before"));
    assert_eq!(apply(ledger, put(&ann, "k", "after")).await.version, Some(2));
    let bob = granted(ledger, transfer).await;
    mark_one(ledger, "r", Mark::Freeze, "again").await;
    assert!(matches!(release_one(ledger, bob.lock).await, ReleaseVerdict::Released { .. }));
    assert_eq!(seal_one(ledger, seal(["r"], 30)).await, frozen, "free, but frozen");
    mark_one(ledger, "r", Mark::Unfreeze, "done").await;
    held(ledger, "r", 30).await;
}

/// An expired lock is not taken over while frozen; its holder is admitted again after it.
pub async fn a_frozen_resource_is_not_taken_over(ledger: &dyn Ledger) {
    let ann = expired(ledger, "r", 10).await;
    mark_one(ledger, "r", Mark::Freeze, "audit").await;
    assert_eq!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Frozen(name("r")));
    assert!(matches!(
        renew_for(ledger, ann.lock, Some(short())).await,
        RenewVerdict::Renewed { lapsed_ms: Some(_), .. }
    ));
    mark_one(ledger, "r", Mark::Unfreeze, "done").await;
    apply(ledger, put(&ann, "k", "a")).await;
}

/// What took effect before is answered as it was; a new key is refused and stays free.
pub async fn a_known_key_is_answered_while_frozen(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let once = WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", "a") };
    let first = apply(ledger, once.clone()).await;
    mark_one(ledger, "r", Mark::Freeze, "audit").await;
    let again = WriteItem { operation: operation_id(), ..once };
    assert_eq!(replayed(commit_one(ledger, again).await), first);
    let new = WriteItem { idempotency: keyed("new", "p"), ..put(&ann, "k", "b") };
    assert_eq!(refusal(ledger, new.clone()).await, Refusal::Frozen);
    mark_one(ledger, "r", Mark::Unfreeze, "done").await;
    apply(ledger, new).await;
}

/// A break goes through, and the freeze outlives the lock.
pub async fn a_frozen_resource_can_be_broken(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    mark_one(ledger, "r", Mark::Freeze, "audit").await;
    break_one(ledger, &ann, 0).await;
    assert_eq!(refusal(ledger, put(&ann, "k", "x")).await, Refusal::Broken);
    assert_eq!(seal_one(ledger, seal(["r"], 20)).await, SealVerdict::Frozen(name("r")));
    mark_one(ledger, "r", Mark::Unfreeze, "done").await;
    let bob = held(ledger, "r", 20).await;
    assert_eq!(marks(ledger, "r").await, (None, None));
    apply(ledger, put(&bob, "k", "a")).await;
}

/// Only the deletion of all objects is forbidden, also to later holders.
pub async fn a_protected_resource_keeps_its_objects(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    assert_eq!(mark_one(ledger, "r", Mark::Protect, "precious").await, CHANGED);
    assert_eq!(refusal(ledger, delete_all(&ann)).await, Refusal::Protected);
    apply(ledger, put(&ann, "k", "b")).await;
    apply(ledger, delete(&ann, "k")).await;
    release_one(ledger, ann.lock).await;
    let bob = held(ledger, "r", 20).await;
    assert_eq!(marks(ledger, "r").await, (None, Some("precious".into())));
    apply(ledger, put(&bob, "k", "c")).await;
    assert_eq!(refusal(ledger, delete_all(&bob)).await, Refusal::Protected);
    assert_eq!(mark_one(ledger, "r", Mark::Unprotect, "gone").await, CHANGED);
    apply(ledger, delete_all(&bob)).await;
    assert_eq!(counts(ledger, "r").await.1, 0);
}

/// The latest reason counts; the same again, or the reverse of what is not there, changes nothing.
pub async fn marks_are_idempotent_and_the_latest_reason_counts(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    for (lift, set) in [(Mark::Unfreeze, Mark::Freeze), (Mark::Unprotect, Mark::Protect)] {
        assert_eq!(mark_one(ledger, "r", lift, "nothing").await, UNCHANGED);
        assert_eq!(mark_one(ledger, "r", set, "one").await, CHANGED);
        assert_eq!(mark_one(ledger, "r", set, "one").await, UNCHANGED);
        assert_eq!(mark_one(ledger, "r", set, "two").await, CHANGED);
    }
    assert_eq!(marks(ledger, "r").await, (Some("two".into()), Some("two".into())));
    assert_eq!(mark_one(ledger, "r", Mark::Unprotect, "x").await, CHANGED);
    assert_eq!(marks(ledger, "r").await, (Some("two".into()), None));
    assert_eq!(mark_one(ledger, "r", Mark::Unfreeze, "x").await, CHANGED);
    assert_eq!(mark_one(ledger, "r", Mark::Unfreeze, "y").await, UNCHANGED);
    assert_eq!(marks(ledger, "r").await, (None, None));
}

/// There is nothing to mark, also after a seal that was refused.
pub async fn what_was_never_locked_is_not_marked(ledger: &dyn Ledger) {
    seal_one(ledger, SealItem { number: Some(0), ..seal(["r"], 0) }).await;
    for mark in Mark::ALL {
        assert_eq!(mark_one(ledger, "r", mark, "x").await, MarkVerdict::NoFence);
    }
    assert_eq!(ledger.resource(&name("r")).await.expect("read"), None);
}

/// Several in one batch, each seeing those before it.
pub async fn a_batch_of_marks_has_a_verdict_each(ledger: &dyn Ledger) {
    held(ledger, "a", 10).await;
    let b = held(ledger, "b", 11).await;
    let items = [
        item("b", Mark::Freeze, "x"),
        item("a", Mark::Protect, "x"),
        item("c", Mark::Freeze, "x"),
        item("b", Mark::Freeze, "x"),
        item("b", Mark::Unfreeze, "x"),
    ];
    let verdicts = ledger.mark(Arc::from(items), Patience::Skip).await.expect("decided");
    assert_eq!(verdicts, [CHANGED, CHANGED, MarkVerdict::NoFence, UNCHANGED, CHANGED]);
    apply(ledger, put(&b, "k", "a")).await;
}

/// Whoever acts on the row stores a break that has come due.
pub async fn a_mark_stores_a_due_break(ledger: &dyn Ledger) {
    let ann: Grant = held(ledger, "r", 10).await;
    break_one(ledger, &ann, 20).await;
    pause(40).await;
    assert_eq!(mark_one(ledger, "r", Mark::Unfreeze, "x").await, UNCHANGED);
    assert_eq!(view(ledger, "r").await.state, fence_core::LockState::Broken);
}

/// Somebody's open transaction on the row: busy, and nothing changed.
pub async fn a_locked_row_is_not_marked(ledger: &dyn Ledger, operator: &Operator) {
    use sqlx::{Connection as _, Executor as _};
    held(ledger, "r", 10).await;
    let Operator::Postgres(options) = operator else { panic!("only on Postgres") };
    let mut foreign = sqlx::PgConnection::connect_with(options).await.expect("a connection");
    foreign.execute("BEGIN").await.expect("begun");
    foreign.execute("SELECT FROM fences WHERE resource = 'r' FOR UPDATE").await.expect("locked");
    assert_eq!(mark_one(ledger, "r", Mark::Freeze, "x").await, MarkVerdict::Busy);
    let waits = Patience::Wait(std::time::Duration::from_millis(50));
    let lane = ledger.mark(Arc::from([item("r", Mark::Freeze, "x")]), waits).await;
    assert_eq!(lane, Ok(vec![MarkVerdict::Busy]));
    foreign.execute("ROLLBACK").await.expect("ended");
    assert_eq!(marks(ledger, "r").await, (None, None));
    assert_eq!(mark_one(ledger, "r", Mark::Freeze, "x").await, CHANGED);
}
