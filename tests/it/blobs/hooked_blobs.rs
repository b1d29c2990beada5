//! Blobs in memory, with what happens in between forced: before a read, and when an upload begins that goes in
//! parts.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use fence_core::memory::MemoryBlobs;
use fence_core::ports::{BlobError, BlobId, BlobStream, BlobUpload, Blobs, Listed, StoreMark};
use fence_tests::conformance;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::Notify;

type Between = BoxFuture<'static, ()>;

/// Tells when an upload in parts begins, and lets it go on.
#[derive(Clone, Default)]
pub struct Gate {
    pub began: Arc<Notify>,
    pub open: Arc<Notify>,
}

/// Blobs in memory.
pub struct HookedBlobs {
    pub blobs: MemoryBlobs,
    /// Happens before the next one is read.
    pub before_read: Mutex<Option<Between>>,
    /// With one, all are uploaded in parts.
    gate: Option<Gate>,
}

impl HookedBlobs {
    pub fn new() -> Arc<Self> {
        Self::with(None)
    }

    pub fn in_parts(gate: Gate) -> Arc<Self> {
        Self::with(Some(gate))
    }

    fn with(gate: Option<Gate>) -> Arc<Self> {
        let blobs = MemoryBlobs::new(conformance::clock());
        Arc::new(Self { blobs, before_read: Mutex::default(), gate })
    }
}

/// An upload on its way.
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
impl Blobs for HookedBlobs {
    async fn upload(
        &self,
        blob: BlobId,
        size: Option<u64>,
    ) -> Result<Box<dyn BlobUpload>, BlobError> {
        let upload = self.blobs.upload(blob, size).await?;
        Ok(match &self.gate {
            Some(gate) => Box::new(OneInParts { upload, gate: gate.clone() }),
            None => upload,
        })
    }

    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        let between = self.before_read.lock().unwrap().take();
        if let Some(between) = between {
            between.await;
        }
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
