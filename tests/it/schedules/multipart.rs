//! An upload in parts, its parts, its completion and its end meet on its intent, in a forced order (I19).
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;

use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, By, Effect, Grant, LedgerError, Multipart, Multiparts as _,
    PartItem, PartVerdict, Payload, SealVerdict, UploadItem, UploadVerdict, Uploads as _,
    WriteItem, WriteVerdict,
};
use fence_core::{ObjectKey, Refusal};
use fence_tests::chaos::ChaosProxy;
use fence_tests::conformance::catch_up;
use fence_tests::process::eventually;
use fencegate::ledger::postgres::PgLedger;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::schedules::access::APPLY;
use crate::schedules::events::{PAUSE_AT_THE_END, gated};
use crate::schedules::forced::{Ground, R, applied, commit, put, run, sealing};

/// The parts that the object has.
const PARTS: &str =
    "SELECT count(*) FROM fencegate.upload_parts p JOIN fencegate.objects o ON o.blob = p.upload";
/// Parts and uploads that are garbage.
const GARBAGE: &str = "SELECT count(*) FROM fencegate.blob_garbage";

fn upload_item(grant: &Grant, blob: BlobId) -> UploadItem {
    let resource = grant.resources[0].clone();
    let (token, by) = (grant.token, By::default());
    UploadItem { blob: Some(blob), resource, token, lock: None, key: None, by }
}

/// An upload that goes on, with its first part.
async fn begun(ground: &Ground, grant: &Grant) -> (BlobId, BlobId) {
    let upload = BlobId(Uuid::new_v4());
    let multipart = Multipart {
        resource: grant.resources[0].clone(),
        key: ObjectKey::new("k").unwrap(),
        content_type: "text/plain".into(),
        about: None,
        principal: None,
    };
    let begun = ground.ledger.begin_multipart(upload_item(grant, upload), multipart).await;
    assert_eq!(begun, Ok(UploadVerdict::Begun));
    let first = uploaded(ground, grant, upload, 1).await;
    let blob = first.blob;
    assert_eq!(ground.ledger.put_part(first).await, Ok(PartVerdict::Stored));
    (upload, blob)
}

/// A part whose bytes are in the store.
async fn uploaded(ground: &Ground, grant: &Grant, upload: BlobId, number: i32) -> PartItem {
    let blob = BlobId(Uuid::new_v4());
    let begun = ground.ledger.begin_upload(upload_item(grant, blob)).await;
    assert_eq!(begun, Ok(UploadVerdict::Begun));
    PartItem {
        upload,
        resource: grant.resources[0].clone(),
        token: grant.token,
        lock: None,
        by: By::default(),
        number,
        blob,
        size: 7,
        sha256: [0; 32],
        checksum: None,
    }
}

/// The write that makes it an object.
fn completing(token: i64, upload: BlobId, parts: &[BlobId]) -> WriteItem {
    let WriteItem { effect, .. } = put(R, token, "");
    let Effect::Put { key, content_type, size, sha256, .. } = effect else { panic!("a put") };
    let effect = Effect::Put {
        key,
        content_type,
        payload: Payload::Blob(upload),
        size,
        sha256,
        about: None,
        parts: Some(Arc::from(parts)),
    };
    WriteItem { effect, ..put(R, token, "") }
}

fn put_later(ledger: &Arc<PgLedger>, item: PartItem) -> JoinHandle<PartVerdict> {
    let ledger = Arc::clone(ledger);
    tokio::spawn(async move { ledger.put_part(item).await.unwrap() })
}

#[tokio::test]
pub async fn a_part_behind_a_completion_is_not_stored() {
    let ground = Ground::new().await;
    run(&mut ground.connect().await, PAUSE_AT_THE_END).await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let late = uploaded(&ground, &grant, upload, 2).await;
    let gate = ground.hold("SELECT pg_advisory_xact_lock(42, 1)").await;
    let (ledger, item) = (gated(&ground, 1), completing(1, upload, &[first]));
    let complete = tokio::spawn(async move { commit(&ledger, item).await });
    ground.waiting(1).await;
    let part = put_later(&ground.ledger, late);
    ground.ended_or_waiting(&part, 2).await;
    gate.let_go().await;
    applied(complete.await.unwrap());
    assert_eq!(part.await.unwrap(), PartVerdict::NoUpload);
    assert_eq!(ground.number(PARTS).await, 1, "as it was completed");
    assert_eq!(ground.number(GARBAGE).await, 0);
}

/// The other way round it is the completion that waits; it sees that the part which it names has gone.
#[tokio::test]
pub async fn a_completion_behind_a_part_sees_it() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let next = uploaded(&ground, &grant, upload, 1).await;
    let second = next.blob;
    let statement = format!(
        "SELECT * FROM acts.put_part(0, '{upload}', '{R}', 1, NULL, NULL, NULL, 1, '{second}', 7, decode(repeat('00', 32), 'hex'), NULL)"
    );
    let part = ground.hold(&statement).await;
    let complete = ground.commit_later(completing(1, upload, &[first]));
    ground.ended_or_waiting(&complete, 1).await;
    part.commit().await;
    assert_eq!(complete.await.unwrap(), WriteVerdict::PartsDiffer);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 0);
    applied(commit(&ground.ledger, completing(1, upload, &[second])).await);
    assert_eq!(ground.number(PARTS).await, 1);
    assert_eq!(ground.number(GARBAGE).await, 1, "the one whose place was taken");
}

/// Nor may one be stored whose upload is given up meanwhile: nobody would ever delete it.
#[tokio::test]
pub async fn a_part_behind_a_give_up_is_not_stored() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, _) = begun(&ground, &grant).await;
    let late = uploaded(&ground, &grant, upload, 2).await;
    let gives_up =
        "SELECT * FROM acts.tidy_blobs(0, 3600, 0, 3600, 3600, 3600, 3600, 3600, 100, false)";
    catch_up(&*ground.ledger).await;
    let given_up = ground.hold(gives_up).await;
    let part = put_later(&ground.ledger, late);
    ground.ended_or_waiting(&part, 1).await;
    given_up.commit().await;
    assert_eq!(part.await.unwrap(), PartVerdict::NoUpload);
}

/// No smaller token changes what a holder may complete once its own was given out (I3).
#[tokio::test]
pub async fn a_part_behind_a_seal_is_stale() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let late = uploaded(&ground, &grant, upload, 1).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let part = put_later(&ground.ledger, late);
    ground.ended_or_waiting(&part, 2).await;
    held.let_go().await;
    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let verdict = part.await.unwrap();
    assert!(matches!(verdict, PartVerdict::Refused(Refusal::Stale { .. })), "{verdict:?}");
    applied(commit(&ground.ledger, completing(2, upload, &[first])).await);
}

/// Nor by what older rules allowed: acts that come after `access apply` see its rules (I17).
#[tokio::test]
async fn a_part_that_waits_while_rules_are_applied_is_not_stored() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let late = uploaded(&ground, &grant, upload, 1).await;
    let applying = ground.hold(APPLY).await;
    let (ledger, allowed) = (Arc::clone(&ground.ledger), By::default().under(0));
    let item = PartItem { by: allowed, ..late };
    let part = tokio::spawn(async move { ledger.put_part(item).await });
    ground.kept_waiting(&part, 1).await;
    applying.commit().await;
    assert_eq!(part.await.unwrap(), Err(LedgerError::RulesMoved));
    let parts = ground.ledger.parts(upload, 0, 9).await.unwrap();
    assert_eq!(parts.iter().map(|(_, part)| part.blob).collect::<Vec<_>>(), [first]);
}

#[tokio::test]
pub async fn an_abort_behind_a_seal_is_stale() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let held = ground.hold_fence(R).await;
    let seal = ground.seal_later(sealing(R, 2));
    ground.waiting(1).await;
    let item = AbortItem {
        upload,
        resource: grant.resources[0].clone(),
        token: grant.token,
        lock: None,
        by: By::default(),
    };
    let ledger = Arc::clone(&ground.ledger);
    let abort = tokio::spawn(async move { ledger.abort_multipart(item).await.unwrap() });
    ground.ended_or_waiting(&abort, 2).await;
    held.let_go().await;
    assert!(matches!(seal.await.unwrap(), Ok(SealVerdict::Sealed(..))));
    let verdict = abort.await.unwrap();
    assert!(matches!(verdict, AbortVerdict::Refused(Refusal::Stale { .. })), "{verdict:?}");
    applied(commit(&ground.ledger, completing(2, upload, &[first])).await);
    assert_eq!(ground.number(GARBAGE).await, 0);
}

/// The connection breaks while they wait: nobody is told that nothing happened.
#[tokio::test]
async fn what_becomes_of_a_part_or_an_abort_whose_answer_is_lost_is_not_known() {
    let ground = Ground::new().await;
    let proxy = ChaosProxy::start(ground.server.port()).await;
    let cut_off = ground.ledger_through(proxy.port());
    let grant = ground.sealed(R, 1).await;
    let (upload, _) = begun(&ground, &grant).await;
    let part = uploaded(&ground, &grant, upload, 2).await;
    let held = ground
        .hold(&format!("SELECT FROM fencegate.blob_intents WHERE blob = '{upload}' FOR UPDATE"))
        .await;
    let ledger = Arc::clone(&cut_off);
    let put = tokio::spawn(async move { ledger.put_part(part).await });
    ground.kept_waiting(&put, 1).await;
    proxy.cut();
    let told = put.await.unwrap();
    assert!(matches!(told, Err(LedgerError::Unknown(_))), "{told:?}");
    held.let_go().await;
    eventually("it took effect", async || {
        (ground.ledger.parts(upload, 1, 9).await.unwrap().len() == 1).then_some(())
    })
    .await;

    let held = ground.hold_fence(R).await;
    let item = AbortItem {
        upload,
        resource: grant.resources[0].clone(),
        token: grant.token,
        lock: None,
        by: By::default(),
    };
    let abort = tokio::spawn(async move { cut_off.abort_multipart(item).await });
    ground.kept_waiting(&abort, 1).await;
    proxy.cut();
    let told = abort.await.unwrap();
    assert!(matches!(told, Err(LedgerError::Unknown(_))), "{told:?}");
    held.let_go().await;
    eventually("it took effect", async || {
        ground.ledger.multipart(upload).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// Whichever of the two has the intent first decides.
#[tokio::test]
pub async fn a_completion_behind_an_abort_has_no_effect() {
    let ground = Ground::new().await;
    let grant = ground.sealed(R, 1).await;
    let (upload, first) = begun(&ground, &grant).await;
    let statement =
        format!("SELECT * FROM acts.abort_multipart(0, '{upload}', '{R}', 1, NULL, NULL, NULL)");
    let abort = ground.hold(&statement).await;
    let complete = ground.commit_later(completing(1, upload, &[first]));
    ground.ended_or_waiting(&complete, 1).await;
    abort.commit().await;
    assert_eq!(complete.await.unwrap(), WriteVerdict::UploadExpired);
    assert_eq!(ground.number("SELECT count(*) FROM fencegate.objects").await, 0);
    assert_eq!(ground.number(GARBAGE).await, 1, "with it go its parts");
}
