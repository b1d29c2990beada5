//! A store that may be away when the gateway starts: nothing is done with it before it was tried out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fence_core::ports::{BlobError, BlobId, BlobStream, BlobUpload, Blobs, Listed, StoreMark};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::ObjectBlobs;

/// A store that answers nothing until somebody says that it can be used. Cheap to clone.
#[derive(Clone)]
pub struct LateBlobs {
    blobs: ObjectBlobs,
    is_fit: Arc<AtomicBool>,
}

impl LateBlobs {
    /// A store that was not tried out yet.
    pub fn new(blobs: ObjectBlobs) -> Self {
        Self { blobs, is_fit: Arc::default() }
    }

    /// The store itself, to try it out.
    pub fn untried(&self) -> &ObjectBlobs {
        &self.blobs
    }

    /// From now on it is used: it can do what is needed, and its blobs are those of the ledger.
    pub fn use_from_now_on(&self) {
        self.is_fit.store(true, Ordering::Release);
    }

    fn fit(&self) -> Result<&ObjectBlobs, BlobError> {
        match self.is_fit.load(Ordering::Acquire) {
            true => Ok(&self.blobs),
            false => Err(BlobError("it was away when the gateway started, and is still".into())),
        }
    }
}

#[async_trait]
impl Blobs for LateBlobs {
    async fn upload(
        &self,
        blob: BlobId,
        size: Option<u64>,
    ) -> Result<Box<dyn BlobUpload>, BlobError> {
        self.fit()?.upload(blob, size).await
    }

    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        self.fit()?.read(blob, range).await
    }

    async fn delete(&self, blob: BlobId, handle: Option<&str>) -> Result<(), BlobError> {
        self.fit()?.delete(blob, handle).await
    }

    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>> {
        match self.fit() {
            Ok(blobs) => blobs.list(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError> {
        self.fit()?.size(blob).await
    }

    async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        self.fit()?.mark().await
    }

    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError> {
        self.fit()?.set_mark(mark).await
    }
}
