//! A commit of a large payload and the sweeper meet on the intent of its blob, in a forced order: the blob
//! becomes an object's or garbage, never both.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;
use std::time::Duration;

use fence_core::Token;
use fence_core::ports::{
    BlobId, BlobTimes, CommitItem, CommitVerdict, Commits as _, Effect, Payload, Tidied,
    UploadItem, UploadVerdict, Uploads as _, WriteItem, WriteVerdict,
};
use uuid::Uuid;

use crate::forced::{Ground, R, WAIT, applied, commit, put, run};
use crate::schedules_commits::item;
use crate::schedules_events::{PAUSE_AT_THE_END, gated};

/// Nothing is kept for a while.
const NOW: BlobTimes = BlobTimes {
    upload: Duration::ZERO,
    reader_grace: Duration::ZERO,
    rollback_horizon: Duration::ZERO,
    versions: Duration::ZERO,
    redelete: Duration::ZERO,
};

/// The same, as a call within a transaction.
const TIDY: &str = "SELECT * FROM fencegate.tidy_blobs(0, 0, 0, 0, 0, 0, 100, true)";

/// Blobs that an object has, and that are to be deleted.
const BOTH: &str = "SELECT count(*) FROM fencegate.objects o WHERE o.blob IN
    (SELECT blob FROM fencegate.blob_garbage UNION SELECT blob FROM fencegate.blob_intents)";

/// The effect of a put whose blob is on its way.
async fn begun(ground: &Ground) -> Effect {
    let blob = BlobId(Uuid::new_v4());
    let WriteItem { resource, effect, .. } = put(R, 1, "large");
    let token = Token::new(1).unwrap();
    let upload = UploadItem { blob: Some(blob), resource, token, lock: None, key: None };
    assert_eq!(ground.ledger.begin_upload(upload).await, Ok(UploadVerdict::Begun));
    match effect {
        Effect::Put { key, content_type, size, sha256, .. } => {
            Effect::Put { key, content_type, payload: Payload::Blob(blob), size, sha256 }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn a_write_behind_a_sweep_of_its_intent_has_no_effect() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let large = WriteItem { effect: begun(&ground).await, ..put(R, 1, "") };
    let sweep = ground.hold(TIDY).await;
    let write = ground.commit_later(large);
    ground.ended_or_waiting(&write, 1).await;
    sweep.commit().await;
    assert_eq!(write.await.unwrap(), WriteVerdict::UploadExpired);
    assert_eq!(ground.number(BOTH).await, 0);
}

#[tokio::test]
pub async fn a_commit_behind_a_sweep_of_its_intent_has_no_effect() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let mut many = item(&[R], 1);
    let mut steps = many.steps.to_vec();
    steps[0].effect = begun(&ground).await;
    many = CommitItem { steps: steps.into(), ..many };
    let sweep = ground.hold(TIDY).await;
    let ledger = Arc::clone(&ground.ledger);
    let commit = tokio::spawn(async move { ledger.commit_many(many, WAIT).await.unwrap() });
    ground.ended_or_waiting(&commit, 1).await;
    sweep.commit().await;
    let verdict = commit.await.unwrap();
    assert!(matches!(verdict, CommitVerdict::UploadExpired { .. }), "{verdict:?}");
    assert_eq!(ground.number(BOTH).await, 0);
}

#[tokio::test]
pub async fn a_sweep_beside_a_write_leaves_its_blob() {
    let ground = Ground::new().await;
    run(&mut ground.connect().await, PAUSE_AT_THE_END).await;
    ground.sealed(R, 1).await;
    let large = WriteItem { effect: begun(&ground).await, ..put(R, 1, "") };
    let gate = ground.hold("SELECT pg_advisory_xact_lock(42, 1)").await;
    let ledger = gated(&ground, 1);
    let write = tokio::spawn(async move { commit(&ledger, large).await });
    ground.waiting(1).await;
    let ledger = Arc::clone(&ground.ledger);
    let sweep = tokio::spawn(async move { ledger.tidy_blobs(NOW, 100, true).await });
    ground.ended_or_waiting(&sweep, 2).await;
    gate.let_go().await;
    applied(write.await.unwrap());
    assert_eq!(sweep.await.unwrap(), Ok(Tidied::default()));
    assert_eq!(ground.ledger.tidy_blobs(NOW, 100, true).await, Ok(Tidied::default()));
    assert_eq!(ground.number(BOTH).await, 0);
}
