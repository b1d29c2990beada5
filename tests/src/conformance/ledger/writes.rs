//! Commit, one write at a time: versions, tags, conditions, deletions.

use fence_core::etag::ObjectCondition;
use fence_core::ports::{Applied, Ledger, Payload, WriteItem};
use fence_core::{EntityTag, Refusal};

use super::build::*;

fn when(item: WriteItem, condition: ObjectCondition) -> WriteItem {
    WriteItem { object_condition: Some(condition), ..item }
}

/// 1, 2, 3 ..., over all objects of a resource.
pub async fn versions_count_the_writes_of_a_resource(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let other = held(ledger, "s", 11).await;
    for (version, object) in (1..=6).zip(["a", "b", "a", "c", "a", "b"]) {
        let applied = apply(ledger, put(&ann, object, &version.to_string())).await;
        assert_eq!(
            (applied.version, applied.created),
            (Some(version), [1, 2, 4].contains(&version))
        );
    }
    assert_eq!(counts(ledger, "r").await, (6, 3));
    assert_eq!(apply(ledger, put(&other, "a", "x")).await.version, Some(1));
}

/// The answer to a put says what was stored, and reading shows it.
pub async fn a_put_is_answered_in_full_and_read_back(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let item = write(&ann, put_effect("dir/ключ é.bin", &body));
    let applied = apply(ledger, item.clone()).await;
    let expected = Applied {
        operation: item.operation,
        resource: name("r"),
        kind: "put".into(),
        key: Some(key("dir/ключ é.bin")),
        version: Some(1),
        generation: 0,
        created: true,
        size: 70_000,
        sha256: Some(digest(&body)),
        owner: "ann".into(),
        committed_at: applied.committed_at,
        did: Vec::new(),
    };
    assert_eq!(applied, expected);
    let read = look(ledger, "r", "dir/ключ é.bin").await;
    let object = read.object.expect("it is there");
    assert_eq!(read.resource_version, Some(1));
    assert_eq!((object.tag, object.size, object.sha256), (tag(1), 70_000, digest(&body)));
    assert_eq!((object.content_type.as_str(), object.key), ("text/plain", key("dir/ключ é.bin")));
    assert!(object.payload == Payload::Inline(body.into()));
    let written_at = object.written_at.as_microsecond();
    assert_eq!(written_at, applied.committed_at.as_microsecond());
}

/// An empty body is an object too.
pub async fn an_empty_body_is_an_object(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "")).await;
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some(""));
    assert_eq!(counts(ledger, "r").await, (1, 1));
}

/// The tag is that of the version that wrote this object, not of the resource.
pub async fn a_tag_is_of_the_version_that_wrote_the_object(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    for object in ["a", "b", "a"] {
        apply(ledger, put(&ann, object, "x")).await;
    }
    for (object, version) in [("a", 3), ("b", 2)] {
        let found = look(ledger, "r", object).await;
        assert_eq!(found.object.expect("there").tag, tag(version));
        assert_eq!(found.resource_version, Some(3));
    }
}

/// It takes a version, and the object is gone.
pub async fn a_delete_takes_a_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let applied = apply(ledger, delete(&ann, "k")).await;
    assert_eq!((applied.kind.as_str(), applied.version), ("delete", Some(2)));
    assert_eq!((applied.size, applied.sha256, applied.created), (0, None, false));
    assert_eq!(look(ledger, "r", "k").await.object, None);
    assert_eq!(counts(ledger, "r").await, (2, 0));
    assert!(apply(ledger, put(&ann, "k", "b")).await.created);
}

/// It takes no version, but its operation and its key are kept.
pub async fn a_delete_of_nothing_takes_no_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = WriteItem { idempotency: keyed("once", "p"), ..delete(&ann, "k") };
    let applied = apply(ledger, item).await;
    assert_eq!((applied.version, applied.key.clone()), (None, Some(key("k"))));
    assert_eq!(counts(ledger, "r").await, (0, 0));
    let known = ledger.operation_by_key(&name("r"), "once").await.expect("read");
    assert_eq!(known.map(|known| known.operation), Some(applied.operation));
    assert_eq!(apply(ledger, put(&ann, "k", "a")).await.version, Some(1));
}

/// Its retry must not delete the successor's object.
pub async fn the_retry_of_a_delete_of_nothing_deletes_nothing(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let by_key = WriteItem { idempotency: keyed("once", "p"), ..delete(&ann, "k") };
    let by_id = delete(&ann, "k");
    apply(ledger, by_key.clone()).await;
    apply(ledger, by_id.clone()).await;
    release_one(ledger, ann.lock).await;
    let bob = held(ledger, "r", 20).await;
    apply(ledger, put(&bob, "k", "bob's")).await;
    let retry = WriteItem { operation: operation_id(), token: bob.token, ..by_key };
    assert_eq!(replayed(commit_one(ledger, retry).await).version, None);
    assert_eq!(applied(commit_one(ledger, by_id).await).version, None);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("bob's"));
}

/// All objects of this resource and no other, in one version.
pub async fn deleting_all_takes_one_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let other = held(ledger, "s", 11).await;
    for object in ["a", "b", "c/d"] {
        apply(ledger, put(&ann, object, "x")).await;
    }
    apply(ledger, put(&other, "a", "kept")).await;
    let applied = apply(ledger, delete_all(&ann)).await;
    assert_eq!(
        (applied.kind.as_str(), applied.key, applied.version),
        ("delete_all", None, Some(4))
    );
    assert_eq!(counts(ledger, "r").await, (4, 0));
    for object in ["a", "b", "c/d"] {
        assert_eq!(look(ledger, "r", object).await.object, None);
    }
    assert_eq!(text(ledger, "s", "a").await.as_deref(), Some("kept"));
}

/// Nothing was there: no version.
pub async fn deleting_all_of_nothing_takes_no_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    assert_eq!(apply(ledger, delete_all(&ann)).await.version, None);
    apply(ledger, put(&ann, "k", "a")).await;
    apply(ledger, delete(&ann, "k")).await;
    assert_eq!(apply(ledger, delete_all(&ann)).await.version, None);
    assert_eq!(counts(ledger, "r").await, (2, 0));
}

/// `If-Match`: one of the tags, and not one of another version, generation or object.
pub async fn if_match_demands_the_tag(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    apply(ledger, put(&ann, "other", "a")).await;
    let next = EntityTag { generation: 1, version: 1 };
    for tags in [vec![], vec![tag(2)], vec![tag(0), tag(11), next]] {
        let item = when(put(&ann, "k", "x"), ObjectCondition::OneOf(tags.clone()));
        assert_eq!(refusal(ledger, item).await, Refusal::VersionMismatch, "{tags:?}");
    }
    let several = ObjectCondition::OneOf(vec![tag(7), tag(1)]);
    apply(ledger, when(put(&ann, "k", "b"), several.clone())).await;
    assert_eq!(
        refusal(ledger, when(delete(&ann, "k"), several.clone())).await,
        Refusal::VersionMismatch
    );
    assert_eq!(
        refusal(ledger, when(put(&ann, "none", "x"), several)).await,
        Refusal::VersionMismatch
    );
    let now = ObjectCondition::OneOf(vec![tag(3)]);
    apply(ledger, when(delete(&ann, "k"), now)).await;
}

/// `If-Match: *` and `If-None-Match: *`.
pub async fn an_object_may_have_to_exist_or_not(ledger: &dyn Ledger) {
    use ObjectCondition::{Absent, Exists};
    let ann = held(ledger, "r", 10).await;
    let mismatch = Refusal::VersionMismatch;
    assert_eq!(refusal(ledger, when(put(&ann, "k", "x"), Exists)).await, mismatch);
    assert_eq!(refusal(ledger, when(delete(&ann, "k"), Exists)).await, mismatch);
    assert!(apply(ledger, when(put(&ann, "k", "a"), Absent)).await.created);
    assert_eq!(refusal(ledger, when(put(&ann, "k", "x"), Absent)).await, mismatch);
    assert!(!apply(ledger, when(put(&ann, "k", "b"), Exists)).await.created);
    apply(ledger, when(delete(&ann, "k"), Exists)).await;
    apply(ledger, when(put(&ann, "k", "c"), Absent)).await;
    assert_eq!(counts(ledger, "r").await, (4, 1));
}

/// `X-If-Resource-Version`, also of a resource without a write.
pub async fn the_resource_may_have_to_be_at_a_version(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let at = |version, item| WriteItem { resource_version: Some(version), ..item };
    assert_eq!(refusal(ledger, at(1, put(&ann, "k", "x"))).await, Refusal::VersionMismatch);
    apply(ledger, at(0, put(&ann, "k", "a"))).await;
    assert_eq!(refusal(ledger, at(0, put(&ann, "k", "x"))).await, Refusal::VersionMismatch);
    apply(ledger, at(1, put(&ann, "other", "a"))).await;
    apply(ledger, at(2, delete_all(&ann))).await;
}

/// Strictly rising under one token, gaps allowed; writes without one go by.
pub async fn a_sequence_strictly_rises(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let numbered = |sequence| WriteItem { sequence: Some(sequence), ..put(&ann, "k", "a") };
    let late = Refusal::SequenceOutOfOrder;
    assert_eq!(refusal(ledger, numbered(0)).await, late);
    apply(ledger, numbered(1)).await;
    assert_eq!(refusal(ledger, numbered(1)).await, late);
    apply(ledger, numbered(7)).await;
    apply(ledger, put(&ann, "k", "a")).await;
    assert_eq!(refusal(ledger, numbered(6)).await, late);
    let delete = |sequence| WriteItem { sequence: Some(sequence), ..delete(&ann, "none") };
    apply(ledger, delete(8)).await;
    assert_eq!(refusal(ledger, numbered(8)).await, late);
    apply(ledger, numbered(i64::MAX)).await;
    assert_eq!(counts(ledger, "r").await, (4, 1));
}
