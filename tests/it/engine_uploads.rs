//! Uploads in parts through the engine, with what happens while they begin forced.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fence_core::memory::MemoryBlobs;
use fence_core::ports::{
    BlobError, BlobId, BlobStream, BlobTimes, BlobUpload, Blobs, Listed, StoreMark, Tidied,
    Uploads as _,
};
use fence_core::{ObjectKey, Token};
use fence_tests::conformance;
use fencegate::engine::{Engine, EngineError, Upload, UploadHead};
use futures::stream::BoxStream;
use tokio::sync::Notify;

use crate::rig::{R, Rig, name};

/// Nothing is kept.
const NOW: BlobTimes = BlobTimes {
    upload: Duration::ZERO,
    reader_grace: Duration::ZERO,
    rollback_horizon: Duration::ZERO,
    versions: Duration::ZERO,
    redelete: Duration::ZERO,
};

/// Tells when an upload in parts begins, and lets it go on.
#[derive(Clone, Default)]
struct Gate {
    began: Arc<Notify>,
    open: Arc<Notify>,
}

/// Blobs in memory; all are uploaded in parts.
struct InParts {
    blobs: MemoryBlobs,
    gate: Gate,
}

/// One on its way.
struct OneInParts {
    upload: Box<dyn BlobUpload>,
    gate: Gate,
}

#[async_trait]
impl BlobUpload for OneInParts {
    fn outgrows(&self, _: usize) -> bool {
        true
    }

    async fn begin_parts(&mut self) -> Result<Option<String>, BlobError> {
        self.gate.began.notify_one();
        self.gate.open.notified().await;
        Ok(Some("a handle".into()))
    }

    async fn push(&mut self, bytes: Bytes) -> Result<(), BlobError> {
        self.upload.push(bytes).await
    }

    async fn finish(self: Box<Self>) -> Result<(), BlobError> {
        self.upload.finish().await
    }

    async fn abort(self: Box<Self>) {
        self.upload.abort().await;
    }
}

#[async_trait]
impl Blobs for InParts {
    async fn upload(
        &self,
        blob: BlobId,
        size: Option<u64>,
    ) -> Result<Box<dyn BlobUpload>, BlobError> {
        let upload = self.blobs.upload(blob, size).await?;
        Ok(Box::new(OneInParts { upload, gate: self.gate.clone() }))
    }

    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        self.blobs.read(blob, range).await
    }

    async fn delete(&self, blob: BlobId, handle: Option<&str>) -> Result<(), BlobError> {
        self.blobs.delete(blob, handle).await
    }

    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>> {
        self.blobs.list()
    }

    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError> {
        self.blobs.size(blob).await
    }

    async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        self.blobs.mark().await
    }

    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError> {
        self.blobs.set_mark(mark).await
    }
}

fn rig() -> (Rig, Gate) {
    let gate = Gate::default();
    let blobs = MemoryBlobs::new(conformance::clock());
    (Rig::on_blobs(Some(Arc::new(InParts { blobs, gate: gate.clone() }))), gate)
}

async fn begun(engine: &Engine, token: Token) -> Upload {
    let head = UploadHead {
        resource: name(R),
        key: ObjectKey::new("k").unwrap(),
        token,
        lock: None,
        idempotency_key: None,
        request_id: "test".into(),
    };
    engine.begin_upload(&head, None).await.unwrap()
}

async fn tidied(rig: &Rig) -> Tidied {
    rig.memory().tidy_blobs(NOW, 10, true).await.unwrap()
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
