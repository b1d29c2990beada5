//! The acts of a scripted ledger that S3 asks for; only parts of uploads have a script.

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Listing, ListingItem, ListingPage, Multipart,
    MultipartRecord, Multiparts, MultipartsPage, Part, PartItem, PartVerdict, Patience, UploadItem,
    UploadVerdict,
};

use super::ScriptedLedger;

#[async_trait]
impl Multiparts for ScriptedLedger {
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError> {
        self.memory.begin_multipart(item, multipart).await
    }

    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError> {
        let act = |items: Arc<[PartItem]>| async move {
            let Some(item) = items.first() else { return Ok(Vec::new()) };
            self.memory.put_part(item.clone()).await.map(|verdict| vec![verdict])
        };
        let mut verdicts = self.parts.run([item].into(), Patience::Skip, act).await?;
        Ok(verdicts.remove(0))
    }

    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError> {
        self.memory.abort_multipart(item).await
    }

    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError> {
        self.memory.multipart(upload).await
    }

    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError> {
        self.memory.parts(upload, after, limit).await
    }

    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError> {
        self.memory.multiparts(page).await
    }
}

#[async_trait]
impl Listing for ScriptedLedger {
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError> {
        self.memory.list_page(page).await
    }
}
