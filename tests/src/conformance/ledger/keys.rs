//! Idempotency keys: one effect, and its answer again whatever became of the token since.

use fence_core::ports::{Applied, Ledger, OperationRecord, SealItem, WriteItem, WriteVerdict};

use super::build::*;

fn once(item: WriteItem) -> WriteItem {
    WriteItem { idempotency: keyed("once", "payload"), ..item }
}

fn retried(item: &WriteItem) -> WriteItem {
    WriteItem { operation: operation_id(), ..item.clone() }
}

/// Its key replays the first answer to the last digit, and has no second effect.
async fn replays(ledger: &dyn Ledger, item: WriteItem, first: &Applied) {
    assert_eq!(replayed(commit_one(ledger, item.clone()).await), *first);
    let record = ledger.operation(item.operation).await.expect("read");
    let own = (item.operation == first.operation).then(|| OperationRecord::Applied(first.clone()));
    assert_eq!(record, own);
}

/// The same answer, and one effect.
pub async fn a_key_replays_its_first_answer(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = once(put(&ann, "k", "a"));
    let first = apply(ledger, item.clone()).await;
    apply(ledger, put(&ann, "k", "b")).await;
    for _ in 0..3 {
        replays(ledger, retried(&item), &first).await;
    }
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("b"));
    assert_eq!(counts(ledger, "r").await, (2, 1));
}

/// What was answered at first is what the ledger shows later.
pub async fn an_answer_equals_what_is_read_later(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = once(put(&ann, "k", "a"));
    let first = apply(ledger, item.clone()).await;
    let record = ledger.operation(item.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Applied(first.clone())));
    let by_key = ledger.operation_by_key(&name("r"), "once").await.expect("read");
    assert_eq!(by_key, Some(first.clone()));
    assert_eq!(apply(ledger, item).await, first);
    let record = ledger.lock(ann.lock).await.expect("read").expect("known");
    assert_eq!(record.grant.acquired_at, ann.acquired_at);
}

/// The key comes before every row of the rule.
pub async fn a_key_replays_before_anything_is_judged(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = once(put(&ann, "k", "a"));
    let first = apply(ledger, item.clone()).await;
    let wrong = [
        WriteItem { token: token(i64::MAX), ..retried(&item) },
        WriteItem { token: token(3), ..retried(&item) },
        WriteItem { lock: Some(lock_id()), ..retried(&item) },
        WriteItem { sequence: Some(0), ..retried(&item) },
        WriteItem { resource_version: Some(77), ..retried(&item) },
        WriteItem { object_condition: if_match(77), ..retried(&item) },
    ];
    for item in wrong {
        replays(ledger, item, &first).await;
    }
}

/// Fenced, released, broken: the holder's answer is still its own.
pub async fn a_key_replays_whatever_became_of_the_token(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = once(put(&ann, "k", "a"));
    let first = apply(ledger, item.clone()).await;
    release_one(ledger, ann.lock).await;
    replays(ledger, retried(&item), &first).await;
    let bob = granted(ledger, SealItem { owner: "bob".into(), ..seal(["r"], 20) }).await;
    replays(ledger, retried(&item), &first).await;
    // Another worker that took over and redelivers.
    replays(ledger, WriteItem { token: bob.token, ..retried(&item) }, &first).await;
    break_one(ledger, &bob, 0).await;
    replays(ledger, retried(&item), &first).await;
    assert_eq!(first.owner, "ann");
}

/// Another payload is told who used the key first, whatever else is wrong.
pub async fn a_key_of_another_payload_is_reused(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let first = apply(ledger, once(put(&ann, "k", "a"))).await;
    let other = WriteItem { idempotency: keyed("once", "other"), ..put(&ann, "k", "x") };
    let reused = WriteVerdict::KeyReused { first: first.operation };
    assert_eq!(commit_one(ledger, other.clone()).await, reused);
    let stale = WriteItem { token: token(3), ..retried(&other) };
    assert_eq!(commit_one(ledger, stale).await, reused);
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("a"));
    assert_eq!(ledger.operation(other.operation).await.expect("read"), None);
}

/// A key belongs to its resource, and keys differ by every byte.
pub async fn a_key_is_of_one_resource(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let other = held(ledger, "s", 11).await;
    apply(ledger, once(put(&ann, "k", "a"))).await;
    apply(ledger, once(put(&other, "k", "a"))).await;
    for text in ["ONCE", "once ", "on'ce", "\"once\"", "on\\ce", "öncé"] {
        let item = WriteItem { idempotency: keyed(text, "payload"), ..put(&ann, "k", "a") };
        let applied = apply(ledger, item).await;
        let known = ledger.operation_by_key(&name("r"), text).await.expect("read");
        assert_eq!(known, Some(applied), "{text}");
    }
}

/// A refused write does not use up its key.
pub async fn a_refused_write_leaves_its_key_free(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    let item = once(WriteItem { resource_version: Some(9), ..put(&ann, "k", "x") });
    refusal(ledger, item).await;
    apply(ledger, once(put(&ann, "k", "a"))).await;
}

/// Deletions replay too.
pub async fn a_key_replays_deletions(ledger: &dyn Ledger) {
    let ann = held(ledger, "r", 10).await;
    apply(ledger, put(&ann, "k", "a")).await;
    let item = once(delete(&ann, "k"));
    let first = apply(ledger, item.clone()).await;
    apply(ledger, put(&ann, "k", "b")).await;
    replays(ledger, retried(&item), &first).await;
    let all = WriteItem { idempotency: keyed("all", "p"), ..delete_all(&ann) };
    let first = apply(ledger, all.clone()).await;
    apply(ledger, put(&ann, "k", "c")).await;
    replays(ledger, retried(&all), &first).await;
    assert_eq!(text(ledger, "r", "k").await.as_deref(), Some("c"));
}
