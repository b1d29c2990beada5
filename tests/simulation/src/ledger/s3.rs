//! What S3 asks of a simulated ledger.

use async_trait::async_trait;
use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Listing, ListingItem, ListingPage, Multipart,
    MultipartRecord, Multiparts, MultipartsPage, Part, PartItem, PartVerdict, UploadItem,
    UploadVerdict,
};

use super::now;
use super::port::SimulatedLedger;

#[async_trait]
impl Multiparts for SimulatedLedger {
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError> {
        self.act(move |memory| now(memory.begin_multipart(item, multipart))).await
    }

    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError> {
        self.act(move |memory| now(memory.put_part(item))).await
    }

    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError> {
        self.act(move |memory| now(memory.abort_multipart(item))).await
    }

    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError> {
        self.look_up(move |memory| now(memory.multipart(upload))).await
    }

    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError> {
        self.look_up(move |memory| now(memory.parts(upload, after, limit))).await
    }

    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError> {
        self.look_up(move |memory| now(memory.multiparts(page))).await
    }
}

#[async_trait]
impl Listing for SimulatedLedger {
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError> {
        self.look_up(move |memory| now(memory.list_page(page))).await
    }
}
