//! Uploads in parts. Each part is uploaded like any large payload, and then made one of the upload; the object is their
//! list, and becomes visible with the write that completes the upload.

use std::sync::Arc;

use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Multipart, MultipartRecord, MultipartsPage, Part,
    PartItem, PartVerdict, UploadItem, UploadVerdict,
};

use super::uploads::{UploadHead, Uploaded};
use crate::engine::data::WriteFailure;
use crate::engine::{Engine, EngineError};

/// How often an act on a part is sent again whose answer was lost: sent again, it changes nothing.
const RESENT_MAX: usize = 2;

impl Engine {
    /// Begins an upload in parts, unless a write would be refused for good. It is seen by nobody until it is completed.
    ///
    /// # Errors
    /// The refusal; what does not answer.
    pub async fn begin_multipart(
        &self,
        head: &UploadHead,
        content_type: String,
        about: Option<Arc<str>>,
    ) -> Result<BlobId, WriteFailure> {
        let unsent = |error| WriteFailure { operation: self.inner.runtime.ids.operation(), error };
        self.bind_store().await.map_err(unsent)?;
        let upload = BlobId(self.inner.runtime.ids.uuid());
        let by = head.permit.by();
        let multipart = Multipart {
            resource: head.resource.clone(),
            key: head.key.clone(),
            content_type,
            about,
            principal: by.principal().cloned(),
        };
        let item = UploadItem {
            blob: Some(upload),
            resource: head.resource.clone(),
            token: head.token,
            lock: head.lock,
            key: None,
            by,
        };
        let ledger = Arc::clone(&self.inner.ledger);
        let begin = async move { ledger.begin_multipart(item, multipart).await };
        match self.ask_to_begin(head, begin).await? {
            UploadVerdict::Begun => Ok(upload),
            UploadVerdict::KnownKey | UploadVerdict::Refused(_) => {
                Err(unsent(EngineError::Defect("an upload without a key has one".into())))
            }
        }
    }

    /// Makes a blob a part of an upload that goes on, which was begun under this head. A part is judged by the act that
    /// stores it, like a write.
    ///
    /// # Errors
    /// What does not answer: the part may be one or not, and may be uploaded again.
    pub async fn put_part(
        &self,
        head: &UploadHead,
        upload: BlobId,
        number: i32,
        uploaded: &Uploaded,
        checksum: Option<String>,
    ) -> Result<PartVerdict, EngineError> {
        loop {
            let item = PartItem {
                upload,
                resource: head.resource.clone(),
                token: head.token,
                lock: head.lock,
                by: head.permit.by(),
                number,
                blob: uploaded.blob,
                size: i64::try_from(uploaded.size).unwrap_or(i64::MAX),
                sha256: uploaded.sha256,
                checksum: checksum.clone(),
            };
            let ledger = Arc::clone(&self.inner.ledger);
            let asked = self.inner.writes.refusals.asking(&head.resource);
            let put = async move {
                let mut lost = None;
                for _ in 0..=RESENT_MAX {
                    match (ledger.put_part(item.clone()).await, lost.take()) {
                        (Err(unknown @ LedgerError::Unknown(_)), _) => lost = Some(unknown),
                        // What was sent before may be stored, or come to the ledger yet.
                        (Ok(PartVerdict::Refused(_)) | Err(_), Some(unknown)) => {
                            return Err(unknown);
                        }
                        (Err(LedgerError::RulesMoved), None) => return Ok(None),
                        (answer, _) => return answer.map(Some),
                    }
                }
                lost.map_or(Ok(None), Err)
            };
            let Some(verdict) = self.change(put).await? else {
                head.permit.renew().await?;
                continue;
            };
            if let PartVerdict::Refused(refusal) = &verdict {
                self.note_refusal(head, refusal, asked);
            }
            return Ok(verdict);
        }
    }

    /// Ends an upload that goes on; `false` if it does not. Whoever would be refused a write is refused, by the same act: an
    /// abort that comes late takes nothing from whoever goes on with the upload.
    ///
    /// # Errors
    /// The refusal; what does not answer: it may have been ended.
    pub async fn abort_multipart(
        &self,
        head: &UploadHead,
        upload: BlobId,
    ) -> Result<bool, WriteFailure> {
        let unsent = |error| WriteFailure { operation: self.inner.runtime.ids.operation(), error };
        loop {
            let item = AbortItem {
                upload,
                resource: head.resource.clone(),
                token: head.token,
                lock: head.lock,
                by: head.permit.by(),
            };
            let ledger = Arc::clone(&self.inner.ledger);
            let asked = self.inner.writes.refusals.asking(&head.resource);
            let abort = async move {
                match ledger.abort_multipart(item).await {
                    Err(LedgerError::RulesMoved) => Ok(None),
                    answer => answer.map(Some),
                }
            };
            match self.change(abort).await.map_err(unsent)? {
                Some(AbortVerdict::Aborted) => return Ok(true),
                Some(AbortVerdict::NoUpload) => return Ok(false),
                Some(AbortVerdict::Refused(refusal)) => {
                    self.note_refusal(head, &refusal, asked);
                    return Err(unsent(EngineError::Refused(refusal)));
                }
                None => head.permit.renew().await.map_err(unsent)?,
            }
        }
    }

    /// An upload that goes on.
    ///
    /// # Errors
    /// What does not answer.
    pub async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.multipart(upload).await }).await
    }

    /// Parts of an upload, or of the object that it became.
    ///
    /// # Errors
    /// What does not answer.
    pub async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.parts(upload, after, limit).await }).await
    }

    /// Uploads that go on.
    ///
    /// # Errors
    /// What does not answer.
    pub async fn multiparts(
        &self,
        page: MultipartsPage,
    ) -> Result<Vec<MultipartRecord>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.multiparts(page).await }).await
    }
}
