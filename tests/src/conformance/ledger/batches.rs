//! Several writes in one batch: each sees the effects of those before it.

use std::sync::Arc;

use fence_core::etag::ObjectCondition;
use fence_core::ports::{Ledger, Patience, ReadItem, WriteItem, WriteVerdict};
use fence_core::{Refusal, ResourceName};

use super::build::*;

fn version(verdict: WriteVerdict) -> Option<i64> {
    applied(verdict).version
}

fn when(item: WriteItem, condition: ObjectCondition) -> WriteItem {
    WriteItem { object_condition: Some(condition), ..item }
}

/// One wins.
pub async fn of_two_equal_if_match_one_wins(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "0")).await;
    let condition = || ObjectCondition::OneOf(vec![tag(1)]);
    let items =
        [when(put(&ann, "k", "first"), condition()), when(put(&ann, "k", "second"), condition())];
    let [first, second] = commit(ledger, items).await;
    assert_eq!(version(first), Some(2));
    assert_eq!(refused(second), Refusal::VersionMismatch);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("first"));
}

/// One effect, the second replays; a third with another payload is told of the first.
pub async fn of_two_equal_keys_one_takes_effect(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let with =
        |payload, text| WriteItem { idempotency: keyed("once", payload), ..put(&ann, "k", text) };
    let items = [with("p", "first"), with("p", "second"), with("q", "third"), put(&ann, "j", "z")];
    let [first, second, third, fourth] = commit(ledger, items).await;
    let first = applied(first);
    assert_eq!(replayed(second), first);
    assert_eq!(third, WriteVerdict::KeyReused { first: first.operation });
    assert_eq!(version(fourth), Some(2));
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("first"));
}

/// The first that carries the key may be refused; then the next takes effect.
pub async fn a_key_of_a_refused_item_is_free_for_the_next(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let with = |text| WriteItem { idempotency: keyed("once", "p"), ..put(&ann, "k", text) };
    let refused_one = WriteItem { resource_version: Some(9), ..with("x") };
    let [first, second, third] = commit(ledger, [refused_one, with("a"), with("b")]).await;
    assert_eq!(refused(first), Refusal::VersionMismatch);
    assert_eq!(applied(second), replayed(third));
}

/// `If-None-Match: *`.
pub async fn of_two_creations_one_wins(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let create = |text| when(put(&ann, "k", text), ObjectCondition::Absent);
    let [first, second] = commit(ledger, [create("first"), create("second")]).await;
    assert!(applied(first).created);
    assert_eq!(refused(second), Refusal::VersionMismatch);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("first"));
}

/// Versions 1 to 3; the last body stays.
pub async fn three_puts_to_one_key_take_three_versions(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let items = ["one", "two", "three"].map(|text| put(&ann, "k", text));
    let applied_all = commit(ledger, items).await.map(applied);
    assert_eq!(applied_all.each_ref().map(|a| a.version), [Some(1), Some(2), Some(3)]);
    assert_eq!(applied_all.each_ref().map(|a| a.created), [true, false, false]);
    let object = look(ledger, "r", "k").await.object.expect("there");
    assert_eq!((object.tag, body(&object)), (tag(3), b"three".as_slice()));
    assert_eq!((object.size, object.sha256), (5, digest(b"three")));
    assert_eq!(counts(ledger, "r").await, (3, 1));
}

/// The object is gone.
pub async fn a_put_then_a_delete(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    for before in [0, 2] {
        let [first, second] = commit(ledger, [put(&ann, "k", "a"), delete(&ann, "k")]).await;
        assert_eq!((version(first), version(second)), (Some(before + 1), Some(before + 2)));
        assert_eq!(text(ledger, "r", "k").await, None);
        assert_eq!(counts(ledger, "r").await, (before + 2, 0));
    }
}

/// The object is the new one, and it was created.
pub async fn a_delete_then_a_put(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "old")).await;
    let [first, second] = commit(ledger, [delete(&ann, "k"), put(&ann, "k", "new")]).await;
    assert_eq!(version(first), Some(2));
    let second = applied(second);
    assert_eq!((second.version, second.created), (Some(3), true));
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("new"));
    assert_eq!(counts(ledger, "r").await, (3, 1));
}

/// The second delete finds nothing.
pub async fn two_deletes_take_one_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let items = [delete(&ann, "k"), delete(&ann, "k"), put(&ann, "j", "b")];
    assert_eq!(commit(ledger, items).await.map(version), [Some(2), None, Some(3)]);
    assert_eq!(counts(ledger, "r").await, (3, 1));
}

/// Only what was put after stays, of this resource.
pub async fn a_put_then_a_deletion_of_all_then_a_put(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let other = held(ledger, "s", 11).await;
    apply(ledger, put(&ann, "old", "a")).await;
    apply(ledger, put(&other, "k", "other")).await;
    let items = [
        put(&ann, "k", "a"),
        put(&ann, "gone", "a"),
        put(&other, "l", "other"),
        delete_all(&ann),
        delete_all(&ann),
        put(&ann, "k", "b"),
        put(&ann, "new", "c"),
    ];
    let versions = commit(ledger, items).await.map(version);
    assert_eq!(versions, [Some(2), Some(3), Some(2), Some(4), None, Some(5), Some(6)]);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("b"));
    assert_eq!(text(ledger, "r", "new").await.as_deref(), Some("c"));
    assert_eq!((text(ledger, "r", "old").await, text(ledger, "r", "gone").await), (None, None));
    assert_eq!((counts(ledger, "r").await, counts(ledger, "s").await), ((6, 2), (2, 2)));
}

/// A wiped object is absent for the conditions after it.
pub async fn conditions_see_what_was_wiped_before(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let items = [
        delete_all(&ann),
        when(put(&ann, "k", "x"), ObjectCondition::Exists),
        when(put(&ann, "k", "b"), ObjectCondition::Absent),
        when(delete(&ann, "k"), ObjectCondition::OneOf(vec![tag(3)])),
        delete_all(&ann),
    ];
    let [all, exists, absent, matched, nothing] = commit(ledger, items).await;
    assert_eq!((version(all), version(absent), version(matched)), (Some(2), Some(3), Some(4)));
    assert_eq!((refused(exists), version(nothing)), (Refusal::VersionMismatch, None));
    assert_eq!(counts(ledger, "r").await, (4, 0));
}

/// The resource's version rises item by item.
pub async fn a_demanded_resource_version_sees_the_items_before(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let at = |version, text| WriteItem { resource_version: Some(version), ..put(&ann, "k", text) };
    let [a, b, c] = commit(ledger, [at(0, "a"), at(0, "x"), at(1, "c")]).await;
    assert_eq!((version(a), refused(b), version(c)), (Some(1), Refusal::VersionMismatch, Some(2)));
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("c"));
}

/// A later number first makes the earlier one late.
pub async fn a_sequence_falls_in_one_batch(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let at = |sequence, text| WriteItem { sequence: Some(sequence), ..put(&ann, "k", text) };
    let items = [at(5, "a"), at(4, "x"), at(5, "x"), at(6, "b")];
    let [a, b, c, d] = commit(ledger, items).await;
    assert_eq!((version(a), version(d)), (Some(1), Some(2)));
    assert_eq!(
        (refused(b), refused(c)),
        (Refusal::SequenceOutOfOrder, Refusal::SequenceOutOfOrder)
    );
    assert_eq!(refusal(ledger, at(6, "x")).await, Refusal::SequenceOutOfOrder);
}

/// Each resource counts for itself, in the order of the items.
pub async fn items_on_many_resources_are_interleaved(ledger: &dyn Ledger) {
    let names = ["d", "a", "c", "b"];
    let mut grants = Vec::new();
    for (resource, number) in names.into_iter().zip(10..) {
        grants.push(held(ledger, resource, number).await);
    }
    let items: Vec<WriteItem> =
        (0..40).map(|i| put(&grants[i * 7 % 4], &format!("k{}", i % 3), &i.to_string())).collect();
    let verdicts = ledger.commit(Arc::from(items.clone()), Patience::Skip).await.expect("decided");
    let mut versions = [0; 4];
    let mut last = std::collections::BTreeMap::new();
    for (i, (item, verdict)) in items.iter().zip(verdicts).enumerate() {
        versions[i * 7 % 4] += 1;
        let done = applied(verdict);
        assert_eq!((done.operation, done.version), (item.operation, Some(versions[i * 7 % 4])));
        assert_eq!(done.resource, item.resource);
        last.insert((item.resource.clone(), item.effect.key().cloned()), i.to_string());
    }
    assert_eq!(versions, [10; 4]);
    for ((resource, object), body) in last {
        let object = object.expect("all are puts");
        let found = text(ledger, resource.as_str(), object.as_str()).await;
        assert_eq!(found, Some(body), "{resource} {object}");
    }
}

/// The others take effect, and nothing of the stale one stays.
pub async fn one_stale_item_among_good_ones(ledger: &dyn Ledger) {
    let (ann, bob) = succession(ledger, "r").await;
    let other = held(ledger, "s", 5).await;
    let items = [
        put(&bob, "k", "good"),
        put(&ann, "k", "stale"),
        put(&other, "k", "good"),
        WriteItem { token: token(15), ..put(&bob, "k", "unknown") },
        put(&bob, "j", "good"),
    ];
    let [a, b, c, d, e] = commit(ledger, items).await;
    assert_eq!((version(a), version(c), version(e)), (Some(1), Some(1), Some(2)));
    assert!(matches!(refused(b), Refusal::Stale { .. }));
    assert_eq!(refused(d), Refusal::Unknown);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("good"));
}

/// As many as a committer ever sends at once.
pub async fn a_large_batch_is_decided_in_order(ledger: &dyn Ledger) {
    let mut grants = Vec::new();
    for i in 0..50 {
        grants.push(held(ledger, &format!("r{i:02}"), 10 + i).await);
    }
    let items: Vec<WriteItem> = (0..1000)
        .map(|i| WriteItem {
            idempotency: keyed(&format!("i{}", i / 50), "p"),
            ..put(&grants[i % 50], &format!("k{}", i % 7), &"x".repeat(i))
        })
        .collect();
    let verdicts = ledger.commit(Arc::from(items), Patience::Skip).await.expect("decided");
    for (i, verdict) in verdicts.into_iter().enumerate() {
        assert_eq!(version(verdict), Some(i as i64 / 50 + 1), "{i}");
    }
    let reads: Vec<ReadItem> = grants
        .iter()
        .map(|grant| ReadItem {
            version: None,
            resource: ResourceName::clone(&grant.resources[0]),
            key: key("k0"),
        })
        .collect();
    let read = ledger.read(Arc::from(reads)).await.expect("read");
    assert!(read.iter().all(|verdict| verdict.resource_version == Some(20)));
}
