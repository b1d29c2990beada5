//! Uploads. One whose commit would be refused for good is refused early; the others are streamed into the
//! store, and hashed in passing. An upload has no effect: only the commit that follows it has one.

use std::sync::Arc;

use bytes::Bytes;
use fence_core::ports::{
    BlobId, BlobUpload, LedgerError, PIECE_BYTES_MAX, UploadItem, UploadVerdict,
};
use fence_core::{LockId, ObjectKey, Refusal, ResourceName, Token};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::engine::access::Permit;
use crate::engine::data::refusals::Asked;
use crate::engine::data::{Record, WriteFailure};
use crate::engine::{Engine, EngineError, metrics};
use crate::spans::Span;

/// What is known of a write before its body has been read.
#[derive(Debug, Clone)]
pub struct UploadHead {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
    /// The fence token.
    pub token: Token,
    /// The lock id, if sent.
    pub lock: Option<LockId>,
    /// The idempotency key, if sent.
    pub idempotency_key: Option<String>,
    /// The request, for the operator's record.
    pub request_id: String,
    /// What allows it.
    pub permit: Permit,
}

/// A body on its way into the blob store.
pub struct Upload {
    engine: Engine,
    blob: BlobId,
    /// `None` if the bytes are wanted for their digest only, since the write took effect earlier.
    sink: Option<Box<dyn BlobUpload>>,
    in_parts: bool,
    digest: Sha256,
    size: u64,
    /// Until it is stored or given up.
    span: Span,
    _room: OwnedSemaphorePermit,
}

/// A body that was uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// The blob.
    pub blob: BlobId,
    /// Its number of bytes.
    pub size: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

/// How many halves of the room of one upload an upload takes, whose size may be known: one that goes in one piece takes half.
pub fn upload_halves(size: Option<u64>) -> usize {
    if size.is_some_and(|size| size <= PIECE_BYTES_MAX) { 1 } else { 2 }
}

impl Engine {
    /// Refuses a write that is refused for good, before a byte of its body has been read.
    ///
    /// # Errors
    /// The refusal, unless the idempotency key took effect earlier.
    pub async fn refuse_early(&self, head: &UploadHead) -> Result<(), WriteFailure> {
        self.intend(head, None).await.map(drop)
    }

    /// Begins to upload the body of a put.
    ///
    /// 1. Room among the uploads of this gateway: half as much for one that is known to be small.
    /// 2. One act of the ledger: refuse for good, or store the intent (rule 1 of
    ///    `fence_core::ports::Uploads`).
    /// 3. Only then the upload.
    ///
    /// # Errors
    /// The refusal; `Overloaded`; what does not answer. The object is as it was.
    pub async fn begin_upload(
        &self,
        head: &UploadHead,
        size: Option<u64>,
    ) -> Result<Upload, WriteFailure> {
        let unsent = |error| WriteFailure { operation: self.inner.runtime.ids.operation(), error };
        let halves = u32::try_from(upload_halves(size)).unwrap_or(2);
        let room = Arc::clone(&self.inner.blobs.room).acquire_many_owned(halves);
        let limit = self.inner.settings.request_timeout;
        let room = match self.inner.runtime.within(limit, room).await {
            Some(Ok(room)) => room,
            _ => return Err(unsent(EngineError::Overloaded("uploads"))),
        };
        self.bind_store().await.map_err(unsent)?;
        let blob = BlobId(self.inner.runtime.ids.uuid());
        let (sink, span) = match self.intend(head, Some(blob)).await? {
            UploadVerdict::KnownKey => (None, Span::default()),
            _ => {
                let span = Span::of_part("blob.upload");
                let blobs = self.inner.blobs.store.blobs().map_err(unsent)?;
                let sink = blobs.upload(blob, size).await.map_err(|error| unsent(error.into()))?;
                (Some(sink), span)
            }
        };
        Ok(Upload {
            engine: self.clone(),
            blob,
            sink,
            in_parts: false,
            digest: Sha256::new(),
            size: 0,
            span,
            _room: room,
        })
    }

    pub(super) async fn bind_store(&self) -> Result<(), EngineError> {
        let proposed = self.inner.runtime.ids.uuid();
        let inner = Arc::clone(&self.inner);
        self.detached(None, async move { inner.blobs.store.bind(proposed).await }).await
    }

    async fn intend(
        &self,
        head: &UploadHead,
        blob: Option<BlobId>,
    ) -> Result<UploadVerdict, WriteFailure> {
        let item = UploadItem {
            blob,
            resource: head.resource.clone(),
            token: head.token,
            lock: head.lock,
            key: head.idempotency_key.clone(),
            by: head.permit.by(),
        };
        let ledger = Arc::clone(&self.inner.ledger);
        self.ask_to_begin(head, async move { ledger.begin_upload(item).await }).await
    }

    /// Asks the ledger whether an upload may begin. A refusal is counted, and kept.
    pub(super) async fn ask_to_begin(
        &self,
        head: &UploadHead,
        call: impl Future<Output = Result<UploadVerdict, LedgerError>> + Send + 'static,
    ) -> Result<UploadVerdict, WriteFailure> {
        let operation = self.inner.runtime.ids.operation();
        let asked = self.inner.writes.refusals.asking(&head.resource);
        let error = match self.call(call).await {
            Ok(UploadVerdict::Refused(refusal)) => {
                self.note_refusal(head, &refusal, asked);
                EngineError::Refused(refusal)
            }
            Ok(verdict) => return Ok(verdict),
            Err(error) => error,
        };
        Err(WriteFailure { operation, error })
    }

    /// Counts a refusal, and keeps it if it is final.
    pub(super) fn note_refusal(&self, head: &UploadHead, refusal: &Refusal, asked: Asked) {
        let writes = &self.inner.writes;
        let principal = head.permit.principal();
        writes.refusals.keep(&head.resource, head.token, principal.as_ref(), refusal, asked);
        writes.reject(&Record::of(head), refusal);
        ::metrics::counter!(metrics::WRITES, "outcome" => "refused").increment(1);
    }
}

impl Upload {
    /// Takes more of the body. Waits while the store is slower.
    ///
    /// The handle of an upload in parts is noted before the first part is sent: so that others can end
    /// it in the store if this gateway does not live to do so. Both in a task of their own: a caller that
    /// hangs up in between would leave a handle that nobody knows.
    ///
    /// # Errors
    /// `UploadExpired` if it was given up; what does not answer.
    pub async fn push(&mut self, bytes: Bytes) -> Result<(), EngineError> {
        self.digest.update(&bytes);
        self.size += bytes.len() as u64;
        let Some(mut sink) = self.sink.take() else { return Ok(()) };
        if !self.in_parts && sink.outgrows(bytes.len()) {
            let (ledger, blob) = (Arc::clone(&self.engine.inner.ledger), self.blob);
            let begin = async move {
                if let Some(handle) = sink.begin_parts().await?
                    && !ledger.note_upload(blob, &handle).await?
                {
                    sink.abort().await;
                    return Err(EngineError::UploadExpired);
                }
                Ok(sink)
            };
            let (send, begun) = oneshot::channel();
            let task = async move { drop(send.send(begin.await)) };
            self.engine.inner.runtime.spawn.spawn("upload", Box::pin(task));
            let lost = |_| EngineError::Defect("an upload began without an answer".into());
            sink = begun.await.map_err(lost)??;
            self.in_parts = true;
        }
        Ok(self.sink.insert(sink).push(bytes).await?)
    }

    /// The body is whole: once this returns it is stored for good, and not an object's yet.
    pub async fn finish(mut self) -> Result<Uploaded, EngineError> {
        self.span.counts("fencegate.blob.size", self.size);
        if let Some(sink) = self.sink {
            let stored = sink.finish().await;
            if stored.is_err() {
                self.span.fails();
            }
            stored?;
            ::metrics::counter!(metrics::UPLOADED_BYTES).increment(self.size);
        }
        Ok(Uploaded { blob: self.blob, size: self.size, sha256: self.digest.finalize().into() })
    }

    /// The body did not arrive whole. What is left the sweeper finds by its intent.
    pub async fn give_up(mut self) {
        self.span.fails();
        if let Some(sink) = self.sink {
            sink.abort().await;
        }
    }
}
