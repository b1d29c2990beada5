//! Commits of many that come again, and their blobs: found, replayed, buried, consumed together.

use std::time::Duration;

use fence_core::Refusal;
use fence_core::ports::{
    Attempt, BlobId, BlobTimes, By, CommitItem, CommitStep, CommitVerdict, Effect, Grant, Ledger,
    OperationRecord, Payload, UploadItem, WriteItem, WriteVerdict,
};
use uuid::Uuid;

use super::build::*;
use super::commits::{both, committed, decide, demand_version, many, of_steps, refused_on, step};

/// By whoever redelivers it, whatever became of the token.
pub async fn a_known_key_replays_the_commit(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("y"))]);
    let item = CommitItem { idempotency: keyed("once", "p"), ..item };
    let applied = committed(ledger, &item).await;
    release_one(ledger, ann.lock).await;
    let again = CommitItem { operation: operation_id(), token: token(999), ..item.clone() };
    let replayed = CommitVerdict::Applied { applied, replayed: true };
    for attempt in [Attempt::First, Attempt::Rerun, Attempt::Bury] {
        let again = CommitItem { operation: operation_id(), ..again.clone() };
        assert_eq!(decide(ledger, &CommitItem { attempt, ..again.clone() }).await, replayed);
        // Told unknown first, it must not be looked for in vain for ever.
        let record = ledger.operation(again.operation).await.expect("read");
        let buried = (attempt != Attempt::First).then_some(OperationRecord::Buried);
        assert_eq!(record, buried, "{attempt:?}");
    }
    let other = CommitItem { idempotency: keyed("once", "other"), ..again };
    let reused = CommitVerdict::KeyReused { first: item.operation, resource: name("a") };
    assert_eq!(decide(ledger, &other).await, reused);
    let rerun = CommitItem { operation: operation_id(), attempt: Attempt::Rerun, ..other };
    assert_eq!(decide(ledger, &rerun).await, reused);
    let record = ledger.operation(rerun.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Buried));
    let late = CommitItem { idempotency: None, attempt: Attempt::First, ..rerun };
    assert_eq!(decide(ledger, &late).await, CommitVerdict::Buried);
    assert_eq!(counts(ledger, "a").await, (1, 1));
}

/// Also of a commit that was given up before another one had its effect under the key.
pub async fn a_key_that_had_its_effect_answers_for_a_buried_commit(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("y"))]);
    let given_up = CommitItem { idempotency: keyed("once", "p"), ..item };
    let bury = CommitItem { attempt: Attempt::Bury, ..given_up.clone() };
    assert_eq!(decide(ledger, &bury).await, CommitVerdict::Buried);
    let second = CommitItem { operation: operation_id(), ..given_up.clone() };
    let applied = committed(ledger, &second).await;
    for attempt in [Attempt::First, Attempt::Rerun, Attempt::Bury] {
        let again = CommitItem { attempt, ..given_up.clone() };
        let replayed = CommitVerdict::Applied { applied: applied.clone(), replayed: true };
        assert_eq!(decide(ledger, &again).await, replayed, "{attempt:?}");
    }
    assert_eq!(counts(ledger, "a").await, (1, 1));
}

/// The key counts on each resource, for commits and for plain writes.
pub async fn a_key_used_on_one_resource_refuses_all(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let resource = name("b");
    let plain =
        WriteItem { resource, idempotency: keyed("once", "plain"), ..put(&ann, "k", "plain") };
    let first = apply(ledger, plain.clone()).await.operation;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("x"))]);
    let item = CommitItem { idempotency: keyed("once", "p"), ..item };
    let reused = CommitVerdict::KeyReused { first, resource: name("b") };
    assert_eq!(decide(ledger, &item).await, reused);
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((0, 0), (1, 1)));

    let twice = CommitItem { idempotency: keyed("twice", "p"), ..item };
    committed(ledger, &twice).await;
    let plain =
        WriteItem { operation: operation_id(), idempotency: keyed("twice", "plain"), ..plain };
    let reused = WriteVerdict::KeyReused { first: twice.operation };
    assert_eq!(commit_one(ledger, plain).await, reused);
}

/// It is found by its id, not applied twice.
pub async fn a_commit_whose_answer_was_lost_is_found(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", None)]);
    let applied = committed(ledger, &item).await;
    apply(ledger, put(&ann, "k", "later")).await;
    release_one(ledger, ann.lock).await;
    for attempt in [Attempt::First, Attempt::Rerun, Attempt::Bury] {
        let again = CommitItem { attempt, ..item.clone() };
        let known = CommitVerdict::Applied { applied: applied.clone(), replayed: false };
        assert_eq!(decide(ledger, &again).await, known);
    }
    let record = ledger.operation(item.operation).await.expect("read");
    assert_eq!(record, Some(OperationRecord::Committed(applied)));
    assert_eq!(text(ledger, "a", "k").await.as_deref(), Some("later"));
}

/// A rerun applies it now, or buries it; one that is buried never takes effect.
pub async fn a_rerun_applies_or_buries(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let item = many(&ann, &[("a", "k", Some("x")), ("b", "k", Some("x"))]);
    let rerun = |item: &CommitItem| CommitItem { attempt: Attempt::Rerun, ..item.clone() };
    let bury = |item: &CommitItem| CommitItem { attempt: Attempt::Bury, ..item.clone() };
    let mut dead = Vec::new();
    for item in [demand_version(&item, "b", 1), CommitItem { token: token(11), ..item.clone() }] {
        let item = CommitItem { operation: operation_id(), ..item };
        assert!(matches!(decide(ledger, &rerun(&item)).await, CommitVerdict::Refused { .. }));
        dead.push(item);
    }
    let expired = CommitItem {
        operation: operation_id(),
        steps: [blob_step("a", "k", BlobId(Uuid::new_v4()))].into(),
        ..item.clone()
    };
    let verdict = CommitVerdict::UploadExpired { step: 0 };
    assert_eq!(decide(ledger, &rerun(&expired)).await, verdict);
    let unwanted = CommitItem { operation: operation_id(), ..item.clone() };
    assert_eq!(decide(ledger, &bury(&unwanted)).await, CommitVerdict::Buried);
    dead.extend([expired, unwanted]);
    for item in dead {
        let good = CommitItem { token: ann.token, ..item.clone() };
        assert_eq!(decide(ledger, &good).await, CommitVerdict::Buried);
        assert_eq!(decide(ledger, &rerun(&good)).await, CommitVerdict::Buried);
        let record = ledger.operation(item.operation).await.expect("read");
        assert_eq!(record, Some(OperationRecord::Buried));
    }
    assert_eq!((counts(ledger, "a").await, counts(ledger, "b").await), ((0, 0), (0, 0)));
    // A first sending that is refused leaves its id free.
    assert!(matches!(
        decide(ledger, &demand_version(&item, "b", 1)).await,
        CommitVerdict::Refused { .. }
    ));
    let applied = committed(ledger, &rerun(&item)).await;
    assert_eq!(committed(ledger, &item).await, applied);
}

/// A put of a blob.
pub fn blob_step(resource: &str, object: &str, blob: BlobId) -> CommitStep {
    let effect = Effect::Put {
        key: key(object),
        content_type: "video/x".into(),
        payload: Payload::Blob(blob),
        size: 5_000_000_000,
        sha256: digest(blob.0.as_bytes()),
        about: None,
        parts: None,
    };
    CommitStep { resource: name(resource), object_condition: None, effect }
}

async fn begun(ledger: &dyn Ledger, grant: &Grant) -> BlobId {
    let blob = BlobId(Uuid::new_v4());
    let (resource, token) = (grant.resources[0].clone(), grant.token);
    let item =
        UploadItem { blob: Some(blob), resource, token, lock: None, key: None, by: By::default() };
    ledger.begin_upload(item).await.expect("decided");
    blob
}

/// What becomes garbage with nothing kept.
async fn garbage(ledger: &dyn Ledger, uploads_go_on: bool) -> Vec<BlobId> {
    let upload = if uploads_go_on { Duration::from_secs(3600) } else { Duration::ZERO };
    let times = BlobTimes {
        upload,
        multipart: upload,
        reader_grace: Duration::ZERO,
        rollback_horizon: Duration::ZERO,
        versions: Duration::ZERO,
        redelete: Duration::ZERO,
    };
    let tidied = crate::conformance::tidy(ledger, times, 100, true).await;
    let mut found: Vec<_> = tidied.garbage.into_iter().map(|garbage| garbage.blob).collect();
    found.sort_unstable();
    found
}

/// All intents or none: one that expired refuses all, and leaves the others to the sweeper.
pub async fn intents_are_consumed_together(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let (one, two) = (begun(ledger, &ann).await, begun(ledger, &ann).await);
    let gone = BlobId(Uuid::new_v4());
    let steps = |third| {
        vec![blob_step("a", "k", one), blob_step("b", "k", two), blob_step("b", "l", third)]
    };
    let verdict = decide(ledger, &of_steps(&ann, steps(gone))).await;
    assert_eq!(verdict, CommitVerdict::UploadExpired { step: 2 });
    assert_eq!(counts(ledger, "a").await, (0, 0));
    let third = begun(ledger, &ann).await;
    let refused = demand_version(&of_steps(&ann, steps(third)), "b", 1);
    assert_eq!(
        decide(ledger, &refused).await,
        refused_on("b", None, Refusal::VersionMismatch),
        "decided before intents are consumed"
    );
    committed(ledger, &of_steps(&ann, steps(third))).await;
    assert_eq!(garbage(ledger, false).await, [], "their intents are gone");
    let found = look(ledger, "b", "l").await.object.expect("it is there");
    assert_eq!((found.payload, found.tag), (Payload::Blob(third), tag(1)));
    let again = decide(ledger, &of_steps(&ann, steps(third))).await;
    assert_eq!(again, CommitVerdict::UploadExpired { step: 0 });
}

/// What nobody committed is swept, and what a commit replaced or deleted stays for a while.
pub async fn replaced_blobs_are_kept_and_swept(ledger: &dyn Ledger) {
    let ann = both(ledger).await;
    let (one, two) = (begun(ledger, &ann).await, begun(ledger, &ann).await);
    let steps = vec![blob_step("a", "k", one), blob_step("b", "k", two)];
    committed(ledger, &of_steps(&ann, steps)).await;
    let three = begun(ledger, &ann).await;
    let steps = vec![blob_step("a", "k", three), step(("b", "k", None))];
    committed(ledger, &of_steps(&ann, steps)).await;
    let before = look_at(ledger, "b", "k", Some(1)).await.object.expect("it is kept");
    assert_eq!((before.payload, before.tag), (Payload::Blob(two), tag(1)));
    let pointers = ledger.pointers(None, 10).await.expect("read");
    let mut current: Vec<_> = pointers.iter().map(|one| (one.current, one.blob)).collect();
    current.sort_unstable();
    let mut replaced = vec![(false, one), (false, two)];
    replaced.sort_unstable();
    assert_eq!(current, [replaced, vec![(true, three)]].concat());
    let mut gone = vec![one, two];
    gone.sort_unstable();
    assert_eq!(garbage(ledger, true).await, gone);
}
