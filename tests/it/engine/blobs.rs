//! Large payloads through the engine, with what happens in between forced: pointers that move while they
//! are read, blobs that are gone, and commits whose answers are lost.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fencegate::engine::access::Permit;
use std::sync::Arc;

use bytes::Bytes;
use fence_core::ports::{Blobs, Ledger as _, LedgerError, PartVerdict, Uploads as _};
use fence_core::rule::Refusal;
use fence_core::{ObjectKey, Token};
use fence_tests::scripted::{Step, lost, rolled_back};
use fencegate::engine::{
    Content, Engine, EngineError, PutBody, UploadHead, Wanted, Write, WriteEffect, WriteFailure,
};
use futures::TryStreamExt as _;
use tokio::sync::Notify;

use crate::blobs::hooked_blobs::HookedBlobs;
use crate::engine::rig::{R, Rig, counter, name};
use fence_tests::conformance::{AT_ONCE, tidy};

fn key() -> ObjectKey {
    ObjectKey::new("k").unwrap()
}

fn head(token: Token) -> UploadHead {
    UploadHead {
        resource: name(R),
        key: key(),
        token,
        lock: None,
        idempotency_key: None,
        request_id: "test".into(),
        permit: Permit::default(),
    }
}

/// Uploads a body, and commits it.
async fn put(engine: &Engine, token: Token, text: &'static str) -> Result<(), WriteFailure> {
    let head = head(token);
    let mut upload = engine.begin_upload(&head, None).await?;
    upload.push(Bytes::from_static(text.as_bytes())).await.unwrap();
    let uploaded = upload.finish().await.unwrap();
    let effect = WriteEffect::Put {
        about: None,
        key: head.key,
        content_type: "text/plain".into(),
        body: PutBody::Uploaded(uploaded),
    };
    let write = Write { effect, ..crate::engine::rig::put(R, token) };
    engine.write(write).await.map(drop)
}

/// Reads the whole object.
async fn read(engine: &Engine) -> Result<(i64, String), EngineError> {
    let whole = |object: &fence_core::ports::Object| Wanted::Bytes(0..object.size.unsigned_abs());
    let fetched = engine.fetch(name(R), key(), None, whole).await?;
    let Content::Stream(stream) = fetched.content else { panic!("its bytes are in a blob") };
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    Ok((fetched.object.tag.version, String::from_utf8(chunks.concat()).unwrap()))
}

/// The blobs that nothing points at any more are deleted, for the first time.
async fn sweep(rig: &Rig, blobs: &HookedBlobs) -> usize {
    let tidied = tidy(&*rig.memory(), AT_ONCE, 100, true).await;
    for garbage in &tidied.garbage {
        blobs.delete(garbage.blob, None).await.unwrap();
    }
    rig.ledger.blobs_deleted(&tidied.garbage, AT_ONCE).await.unwrap();
    tidied.garbage.len()
}

#[tokio::test]
async fn a_pointer_that_moved_is_followed() {
    let blobs = HookedBlobs::new();
    let rig = Arc::new(Rig::on_blobs(Some(blobs.clone())));
    let token = rig.granted(R).await.token;
    put(&rig.engine, token, "the first, and longer").await.unwrap();
    let (other, store) = (Arc::clone(&rig), Arc::clone(&blobs));
    *blobs.before_read.lock().unwrap() = Some(Box::pin(async move {
        put(&other.engine, token, "the second").await.unwrap();
        assert_eq!(sweep(&other, &store).await, 1, "the first is deleted");
    }));
    assert_eq!(read(&rig.engine).await.unwrap(), (2, "the second".into()));
}

#[tokio::test]
async fn an_object_that_was_deleted_meanwhile_is_not_there() {
    let blobs = HookedBlobs::new();
    let rig = Arc::new(Rig::on_blobs(Some(blobs.clone())));
    let token = rig.granted(R).await.token;
    put(&rig.engine, token, "text").await.unwrap();
    let (other, store) = (Arc::clone(&rig), Arc::clone(&blobs));
    *blobs.before_read.lock().unwrap() = Some(Box::pin(async move {
        let effect = WriteEffect::Delete { key: key() };
        let delete = Write { effect, ..crate::engine::rig::put(R, token) };
        other.engine.write(delete).await.unwrap();
        sweep(&other, &store).await;
    }));
    assert!(matches!(read(&rig.engine).await, Err(EngineError::ObjectNotFound)));
}

/// Nobody has moved the pointer: that is an alarm, and nothing is made up.
#[tokio::test]
async fn a_blob_that_is_missing_is_told_so() {
    let blobs = HookedBlobs::new();
    let rig = Rig::on_blobs(Some(blobs.clone()));
    let token = rig.granted(R).await.token;
    put(&rig.engine, token, "text").await.unwrap();
    let pointer = rig.ledger.pointers(None, 1).await.unwrap().pop().unwrap();
    blobs.delete(pointer.blob, None).await.unwrap();
    assert!(matches!(read(&rig.engine).await, Err(EngineError::BlobMissing)));
}

/// The commit that was sent first took effect, and its answer was lost: its rerun finds that, although the
/// intent is consumed and sweepers run.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_keeps_its_blob() {
    let blobs = HookedBlobs::new();
    let rig = Rig::on_blobs(Some(blobs.clone()));
    let token = rig.granted(R).await.token;
    let mut sendings = 0;
    rig.ledger.on_commit(move |_, _| {
        sendings += 1;
        match sendings {
            1 => Step::act_but(lost()),
            _ => Step::act(),
        }
    });
    put(&rig.engine, token, "text").await.unwrap();
    assert_eq!(sweep(&rig, &blobs).await, 0);
    assert_eq!(read(&rig.engine).await.unwrap(), (1, "text".into()));
}

/// The one that was sent first has not reached the ledger, and a sweeper gives the upload up: the rerun is
/// refused, and buries it.
#[tokio::test]
async fn a_commit_that_comes_after_the_sweeper_is_refused_for_good() {
    let blobs = HookedBlobs::new();
    let rig = Rig::on_blobs(Some(blobs.clone()));
    let token = rig.granted(R).await.token;
    let memory = rig.memory();
    let mut sendings = 0;
    rig.ledger.on_commit(move |_, _| {
        sendings += 1;
        if sendings > 1 {
            return Step::act();
        }
        let memory = Arc::clone(&memory);
        Step::fail(lost()).after(async move {
            assert_eq!(tidy(&*memory, AT_ONCE, 10, true).await.uploads, 1);
        })
    });
    let failure = put(&rig.engine, token, "text").await.unwrap_err();
    assert!(matches!(failure.error, EngineError::UploadExpired), "{failure:?}");
    let record = rig.ledger.operation(failure.operation).await.unwrap();
    assert_eq!(record, Some(fence_core::ports::OperationRecord::Buried));
    assert!(matches!(read(&rig.engine).await, Err(EngineError::ObjectNotFound)));
}

/// The second sending of a part is refused, or hears nothing, while the first may be stored or come to the ledger yet.
#[tokio::test]
async fn a_part_whose_answer_was_lost_is_unknown_whatever_the_next_one_hears() {
    type Make = fn() -> Step<PartVerdict>;
    let frozen: Make = || Step::each(vec![Some(PartVerdict::Refused(Refusal::Frozen))]);
    let moved: Make = || Step::fail(LedgerError::RulesMoved);
    for later in [frozen, moved, || Step::fail(rolled_back()), || Step::fail(lost())] {
        let firsts: [Make; 2] = [|| Step::fail(lost()), || Step::act_but(lost())];
        for first in firsts {
            let said = part(move |sending| if sending == 0 { first() } else { later() }).await;
            assert!(matches!(said, Err(EngineError::OutcomeUnknown { .. })), "{said:?}");
        }
    }
    // Sent again, it is stored once; and a refusal is one where nothing was lost.
    let again = |sending| if sending == 0 { Step::act_but(lost()) } else { Step::act() };
    assert!(matches!(part(again).await, Ok(PartVerdict::Stored)));
    let said = part(move |_| frozen()).await;
    assert!(matches!(said, Ok(PartVerdict::Refused(Refusal::Frozen))), "{said:?}");
}

/// Puts one part of an upload whose sendings go as told.
async fn part(
    step: impl Fn(usize) -> Step<PartVerdict> + Send + 'static,
) -> Result<PartVerdict, EngineError> {
    let rig = Rig::on_blobs(Some(HookedBlobs::new()));
    let head = head(rig.granted(R).await.token);
    let begun = rig.engine.begin_multipart(&head, "text/plain".into(), None).await;
    let id = begun.unwrap();
    let mut upload = rig.engine.begin_upload(&head, None).await.unwrap();
    upload.push(Bytes::from_static(b"text")).await.unwrap();
    let uploaded = upload.finish().await.unwrap();
    let (_, mut next) = counter();
    rig.ledger.on_put_part(move |_| step(next()));
    rig.engine.put_part(&head, id, 1, &uploaded, None).await
}

/// A call of the ledger that is dropped in the middle can leave a transaction open on its connection, and
/// what is written next would be acknowledged without being committed.
#[tokio::test]
async fn a_gateway_that_stops_lets_the_collector_finish_its_call() {
    let rig = Rig::sweeping(None, std::time::Duration::from_millis(100));
    let (began, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (entered, gate, left) = (Arc::clone(&began), Arc::new(Notify::new()), Arc::clone(&ended));
    let opened = Arc::clone(&gate);
    rig.ledger.tidy_after(async move {
        entered.notify_one();
        opened.notified().await;
        left.notify_one();
    });
    began.notified().await;
    rig.engine.shutdown();
    // Whoever would drop the call has had its turn.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    tokio::time::timeout(fence_tests::process::DEADLINE, ended.notified())
        .await
        .expect("the call goes on to its end");
}
