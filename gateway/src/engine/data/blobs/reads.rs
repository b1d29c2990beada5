//! Reading objects, whose bytes are in the ledger or in the blob store.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fence_core::ObjectKey;
use fence_core::ResourceName;
use fence_core::ports::{BlobError, BlobId, BlobStream, Object, Payload, ReadItem};
use futures::{StreamExt as _, TryStreamExt as _};

use super::digests::checked;
use crate::engine::{Engine, EngineError, metrics};

/// How often a pointer is followed that moves while it is being read.
const FOLLOWED_MAX: u32 = 16;

/// Which bytes of an object somebody wants, once it is known what it is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    Nothing,
    /// These.
    Bytes(Range<u64>),
    /// These, by a reader that has those before them: a part of the object in which they begin is checked whole, or a read
    /// that broke off before damaged bytes would go on behind them.
    Rest(Range<u64>),
}

/// An object, and the bytes that were wanted.
pub struct Fetched {
    /// What it is like.
    pub object: Object,
    /// The version of the resource when it was read.
    pub resource_version: i64,
    /// The bytes.
    pub content: Content,
}

/// The bytes of an object.
pub enum Content {
    /// Here.
    Here(Bytes),
    /// As they come from the blob store.
    Stream(BlobStream),
}

impl Engine {
    /// Reads an object, or an older version of it.
    ///
    /// `wanted` may be asked more than once: a pointer that moved between reading it and opening its
    /// blob is followed, and then names another object.
    ///
    /// # Errors
    /// `ResourceNotFound`, `ObjectNotFound`, `VersionNotRetained`; `BlobMissing` if the ledger points
    /// at what the store does not have.
    #[tracing::instrument(level = "debug", skip_all, fields(%resource))]
    pub async fn fetch(
        &self,
        resource: ResourceName,
        key: ObjectKey,
        version: Option<i64>,
        mut wanted: impl FnMut(&Object) -> Wanted + Send,
    ) -> Result<Fetched, EngineError> {
        let mut missing: Option<BlobId> = None;
        for _ in 0..FOLLOWED_MAX {
            let item = ReadItem { resource: resource.clone(), key: key.clone(), version };
            let verdict = self.inner.reads.submit(item).await;
            let verdict = verdict.map_err(|failure| EngineError::unread(failure, "reads"))?;
            let resource_version = verdict.resource_version.ok_or(EngineError::ResourceNotFound)?;
            let object = verdict.object.ok_or(match version {
                None => EngineError::ObjectNotFound,
                Some(_) => EngineError::VersionNotRetained,
            })?;
            let wanted = wanted(&object);
            let content = match (&wanted, &object.payload) {
                (Wanted::Nothing, _) => Content::Here(Bytes::new()),
                (Wanted::Bytes(range) | Wanted::Rest(range), Payload::Inline(bytes)) => {
                    Content::Here(part(bytes, range))
                }
                (Wanted::Bytes(range) | Wanted::Rest(range), Payload::Blob(blob)) => {
                    let is_rest = matches!(wanted, Wanted::Rest(_));
                    let range = range.clone();
                    match self.open_object(&resource, &object, *blob, (range, is_rest)).await? {
                        Some(stream) => Content::Stream(stream),
                        None if missing == Some(*blob) => {
                            self.store_is_ours().await?;
                            ::metrics::counter!(metrics::BLOBS_MISSING).increment(1);
                            tracing::error!(%resource, %key, %blob, "the blob of an object is missing");
                            return Err(EngineError::BlobMissing);
                        }
                        None => {
                            missing = Some(*blob);
                            continue;
                        }
                    }
                }
            };
            return Ok(Fetched { object, resource_version, content });
        }
        Err(EngineError::BlobsUnavailable("the object changes faster than it can be read".into()))
    }

    /// Only of the store that has the ledger's blobs can something be missing.
    async fn store_is_ours(&self) -> Result<(), EngineError> {
        let inner = Arc::clone(&self.inner);
        self.detached(None, async move { inner.blobs.store.ours().await.map(drop) }).await
    }

    /// Opens the blob of an object, or its parts; `None` if they are not there.
    async fn open_object(
        &self,
        resource: &ResourceName,
        object: &Object,
        blob: BlobId,
        (range, is_rest): (Range<u64>, bool),
    ) -> Result<Option<BlobStream>, EngineError> {
        if object.parts.is_some() {
            return self.open_parts(blob, object, (range, is_rest)).await;
        }
        let is_whole = range == (0..object.size.unsigned_abs());
        let stream = self.open(blob, range).await?;
        Ok(stream.map(|stream| match is_whole {
            true => held_against(stream, resource, object, blob),
            false => stream,
        }))
    }

    async fn open(
        &self,
        blob: BlobId,
        range: Range<u64>,
    ) -> Result<Option<BlobStream>, EngineError> {
        let reader = self.inner.blobs.readers.enter(blob);
        let stream = self.inner.blobs.store.blobs()?.read(blob, range).await?;
        let told = move |error: &BlobError| {
            tracing::warn!(%error, %blob, "the bytes of an object broke off");
        };
        Ok(stream.map(|stream| reader.guard(stream).inspect_err(told).boxed()))
    }
}

/// The bytes of a whole object, checked against its digest. A part cannot be checked.
fn held_against(
    stream: BlobStream,
    resource: &ResourceName,
    object: &Object,
    blob: BlobId,
) -> BlobStream {
    let (resource, key) = (resource.clone(), object.key.clone());
    let told = move || {
        ::metrics::counter!(metrics::BLOBS_DAMAGED).increment(1);
        tracing::error!(%resource, %key, %blob, "the blob of an object is not what was stored");
    };
    checked(stream, object.size.unsigned_abs(), object.sha256, told)
}

fn part(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(at(range.start)..at(range.end))
}
