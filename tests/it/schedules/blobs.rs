//! A commit of a large payload and the sweeper meet on the intent of its blob, in a forced order: the blob
//! becomes an object's or garbage, never both.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;

use fence_core::Token;
use fence_core::ports::{
    BlobId, By, CommitItem, CommitVerdict, Commits as _, Effect, Ledger as _, Patience, Payload,
    Tidied, UploadItem, UploadVerdict, Uploads as _, WriteItem, WriteVerdict,
};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::named;
use uuid::Uuid;

use crate::schedules::commits::item;
use crate::schedules::events::{PAUSE_AT_THE_END, gated};
use crate::schedules::forced::{Ground, R, WAIT, applied, commit, put, run};
use fence_tests::conformance::{AT_ONCE, catch_up};

/// The same, as a call within a transaction.
const TIDY: &str = "SELECT * FROM acts.tidy_blobs(0, 0, 0, 0, 0, 0, 0, 0, 100, true)";

/// Blobs that an object has, and that are to be deleted.
const BOTH: &str = "SELECT count(*) FROM fencegate.objects o WHERE o.blob IN
    (SELECT blob FROM fencegate.blob_garbage UNION SELECT blob FROM fencegate.blob_intents)";

/// The effect of a put whose blob is on its way.
async fn begun(ground: &Ground) -> Effect {
    let blob = BlobId(Uuid::new_v4());
    let WriteItem { resource, effect, .. } = put(R, 1, "large");
    let token = Token::new(1).unwrap();
    let upload =
        UploadItem { blob: Some(blob), resource, token, lock: None, key: None, by: By::default() };
    assert_eq!(ground.ledger.begin_upload(upload).await, Ok(UploadVerdict::Begun));
    match effect {
        Effect::Put { key, content_type, size, sha256, .. } => Effect::Put {
            key,
            content_type,
            payload: Payload::Blob(blob),
            size,
            sha256,
            about: None,
            parts: None,
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
pub async fn a_write_behind_a_sweep_of_its_intent_has_no_effect() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let large = WriteItem { effect: begun(&ground).await, ..put(R, 1, "") };
    catch_up(&*ground.ledger).await;
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
    catch_up(&*ground.ledger).await;
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
    catch_up(&*ground.ledger).await;
    let ledger = Arc::clone(&ground.ledger);
    let sweep = tokio::spawn(async move { ledger.tidy_blobs(AT_ONCE, 100, true).await });
    ground.ended_or_waiting(&sweep, 2).await;
    gate.let_go().await;
    applied(write.await.unwrap());
    assert_eq!(sweep.await.unwrap(), Ok(Tidied::default()));
    assert_eq!(ground.ledger.tidy_blobs(AT_ONCE, 100, true).await, Ok(Tidied::default()));
    assert_eq!(ground.number(BOTH).await, 0);
}

/// The sweep may be undone: the upload is not lost yet.
#[tokio::test]
pub async fn a_write_that_skips_an_intent_is_busy_and_not_expired() {
    let ground = Ground::new().await;
    ground.sealed(R, 1).await;
    let large = WriteItem { effect: begun(&ground).await, ..put(R, 1, "") };
    catch_up(&*ground.ledger).await;
    let sweep = ground.hold(TIDY).await;
    let verdicts = ground.ledger.commit([large.clone()].into(), Patience::Skip).await;
    assert_eq!(verdicts, Ok(vec![WriteVerdict::Busy]));
    sweep.let_go().await;
    assert_eq!(ground.written(large).await.version, Some(1));
}

/// One that is promoted without the replacement has the pointer to the replaced blob back.
#[tokio::test]
pub async fn a_replaced_blob_stays_until_synchronous_standbys_know_that_it_was() {
    let primary = Postgres::dedicated().await;
    let database = primary.database_name().await;
    fence_tests::mutants::apply(&primary.owner_url(&database)).await;
    let _standby = primary.standby().await;
    let mut operator = primary.connect(&database).await;
    let replaced = "INSERT INTO fencegate.replaced_versions (resource, key, version, generation,
        content_type, size, sha256, written_at, blob, replaced_at, replaced_lsn)
        VALUES ('r', 'k', 1, 0, 'x', 1, '', now(), gen_random_uuid(), 'epoch', 'FFFFFFFF/0')";
    run(&mut operator, replaced).await;
    run(&mut operator, "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
    run(&mut operator, "SELECT pg_reload_conf()").await;
    eventually("the standby is a synchronous one", async || {
        let count = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut operator).await.unwrap();
        (count == 1).then_some(())
    })
    .await;
    for (garbage, next) in
        [(0, "UPDATE fencegate.replaced_versions SET replaced_lsn = '0/1'"), (1, "")]
    {
        let tidy = "SELECT count(blob) FROM acts.tidy_blobs(0, 0, 0, 0, 0, 0, 0, 0, 100, true)";
        let tidy = sqlx::AssertSqlSafe(named(tidy));
        let found: i64 = sqlx::query_scalar(tidy).fetch_one(&mut operator).await.unwrap();
        assert_eq!(found, garbage);
        run(&mut operator, next).await;
    }
}

/// However many parts uploads have, an act moves only so many, and what is due beside them is not held up.
#[tokio::test]
async fn the_parts_of_large_uploads_become_garbage_piece_by_piece() {
    let ground = Ground::new().await;
    let mut operator = ground.connect().await;
    for statement in [
        "INSERT INTO fencegate.blob_garbage (blob, due_at)
         SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'epoch' FROM generate_series(1, 3) n",
        "INSERT INTO fencegate.upload_parts (upload, number, blob, size, sha256, begun_at, stored_at)
         SELECT g.blob, n, gen_random_uuid(), 1, '', 'epoch', 'epoch'
         FROM fencegate.blob_garbage g CROSS JOIN generate_series(1, 6000) n",
        "INSERT INTO fencegate.blob_garbage (blob, due_at) VALUES ('00000000-0000-0000-0000-000000000009', 'epoch')",
    ] {
        run(&mut operator, statement).await;
    }
    let beside = BlobId(uuid::Uuid::from_u128(9));
    let parts = async || ground.number("SELECT count(*) FROM fencegate.upload_parts").await;
    let first = ground.ledger.tidy_blobs(AT_ONCE, 100, true).await.unwrap();
    assert!(first.garbage.iter().any(|garbage| garbage.blob == beside), "it waits for the parts");
    assert_eq!(parts().await, 8_000);
    ground.ledger.tidy_blobs(AT_ONCE, 100, true).await.unwrap();
    assert_eq!(parts().await, 0);
    let whole = "SELECT count(*) FROM fencegate.blob_garbage";
    assert_eq!(ground.number(whole).await, 4 + 18_000);
}
