//! Uploads in parts through the engine, with what happens while they begin forced.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use bytes::Bytes;
use fence_core::ports::Tidied;
use fence_core::{ObjectKey, Token};
use fencegate::engine::access::Permit;
use fencegate::engine::{Engine, EngineError, Upload, UploadHead};

use crate::blobs::hooked_blobs::{Gate, HookedBlobs};
use crate::engine::rig::{R, Rig, name};
use fence_tests::conformance::{AT_ONCE, tidy};

fn rig() -> (Rig, Gate) {
    let gate = Gate::default();
    (Rig::on_blobs(Some(HookedBlobs::in_parts(gate.clone()))), gate)
}

fn head(token: Token) -> UploadHead {
    UploadHead {
        resource: name(R),
        key: ObjectKey::new("k").unwrap(),
        token,
        lock: None,
        idempotency_key: None,
        request_id: "test".into(),
        permit: Permit::default(),
    }
}

async fn begun(engine: &Engine, token: Token) -> Upload {
    engine.begin_upload(&head(token), None).await.unwrap()
}

async fn tidied(rig: &Rig) -> Tidied {
    tidy(&*rig.memory(), AT_ONCE, 10, true).await
}

/// Nobody else could end the upload in the store: its handle would be known to nobody.
#[tokio::test]
async fn the_handle_of_an_upload_is_noted_although_its_caller_has_gone() {
    let (rig, gate) = rig();
    let mut upload = begun(&rig.engine, rig.granted(R).await.token).await;
    let pushing = tokio::spawn(async move { upload.push(Bytes::from_static(b"text")).await });
    gate.began.notified().await;
    pushing.abort();
    assert!(pushing.await.unwrap_err().is_cancelled());
    gate.open.notify_one();
    // Whoever notes it has had its turn.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let tidied = tidied(&rig).await;
    let handles: Vec<_> = tidied.garbage.iter().map(|garbage| garbage.handle.as_deref()).collect();
    assert_eq!(handles, [Some("a handle")]);
}

/// The sweeper was here: what would be uploaded is garbage that nobody knows of.
#[tokio::test]
async fn an_upload_that_was_given_up_goes_no_further() {
    let (rig, gate) = rig();
    let mut upload = begun(&rig.engine, rig.granted(R).await.token).await;
    let pushing = tokio::spawn(async move { upload.push(Bytes::from_static(b"text")).await });
    gate.began.notified().await;
    assert_eq!(tidied(&rig).await.uploads, 1);
    gate.open.notify_one();
    let pushed = pushing.await.unwrap();
    assert!(matches!(pushed, Err(EngineError::UploadExpired)), "{pushed:?}");
}

/// Of four uploads at a time, each can be two that are known to have at most 8 MiB.
#[tokio::test]
async fn small_uploads_take_half_of_the_room() {
    const SMALL: Option<u64> = Some(8 << 20);
    let (rig, _gate) = rig();
    let head = head(rig.granted(R).await.token);
    let mut under_way = Vec::new();
    for _ in 0..8 {
        under_way.push(rig.engine.begin_upload(&head, SMALL).await.unwrap());
    }
    let overloaded = async |size| {
        let refused = rig.engine.begin_upload(&head, size).await.err().map(|why| why.error);
        assert!(matches!(refused, Some(EngineError::Overloaded(_))), "{refused:?}");
    };
    overloaded(SMALL).await;
    under_way.pop();
    for whole in [None, SMALL.map(|size| size + 1)] {
        overloaded(whole).await;
    }
    under_way.push(rig.engine.begin_upload(&head, SMALL).await.unwrap());
    under_way.truncate(6);
    assert!(rig.engine.begin_upload(&head, None).await.is_ok());
}
