//! Blobs in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ports::{
    BlobError, BlobId, BlobStream, BlobUpload, Blobs, Clock, Listed, StoreMark, StoredBlob,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

#[derive(Default)]
struct Store {
    blobs: BTreeMap<BlobId, (Bytes, jiff::Timestamp)>,
    mark: Option<StoreMark>,
}

/// A store that forgets everything with the process.
#[derive(Clone)]
pub struct MemoryBlobs {
    clock: Arc<dyn Clock>,
    store: Arc<Mutex<Store>>,
}

impl MemoryBlobs {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, store: Arc::default() }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Upload {
    blob: BlobId,
    bytes: BytesMut,
    into: MemoryBlobs,
}

#[async_trait]
impl BlobUpload for Upload {
    fn outgrows(&self, _: usize) -> bool {
        false
    }

    async fn begin_parts(&mut self) -> Result<Option<String>, BlobError> {
        Ok(None)
    }

    async fn push(&mut self, bytes: Bytes) -> Result<(), BlobError> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<(), BlobError> {
        let stored_at = self.into.clock.now();
        self.into.store().blobs.insert(self.blob, (self.bytes.freeze(), stored_at));
        Ok(())
    }

    async fn abort(self: Box<Self>) {}
}

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn upload(&self, blob: BlobId, _: Option<u64>) -> Result<Box<dyn BlobUpload>, BlobError> {
        Ok(Box::new(Upload { blob, bytes: BytesMut::new(), into: self.clone() }))
    }

    async fn read(&self, blob: BlobId, range: Range<u64>) -> Result<Option<BlobStream>, BlobError> {
        let store = self.store();
        let Some((bytes, _)) = store.blobs.get(&blob) else { return Ok(None) };
        let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
        let part = bytes.slice(at(range.start)..at(range.end));
        Ok(Some(stream::once(async move { Ok(part) }).boxed()))
    }

    async fn delete(&self, blob: BlobId, _: Option<&str>) -> Result<(), BlobError> {
        self.store().blobs.remove(&blob);
        Ok(())
    }

    fn list(&self) -> BoxStream<'static, Result<Listed, BlobError>> {
        let store = self.store();
        let listed = store.blobs.iter().map(|(blob, (bytes, stored_at))| {
            let size = bytes.len() as u64;
            Ok(Listed::Blob(StoredBlob { blob: *blob, size, stored_at: *stored_at }))
        });
        stream::iter(listed.collect::<Vec<_>>()).boxed()
    }

    async fn size(&self, blob: BlobId) -> Result<Option<u64>, BlobError> {
        Ok(self.store().blobs.get(&blob).map(|(bytes, _)| bytes.len() as u64))
    }

    async fn mark(&self) -> Result<Option<StoreMark>, BlobError> {
        Ok(self.store().mark)
    }

    async fn set_mark(&self, mark: StoreMark) -> Result<(), BlobError> {
        self.store().mark.get_or_insert(mark);
        Ok(())
    }
}
