//! Uploads in parts in the ledger in memory.

use async_trait::async_trait;

use super::MemoryLedger;
use super::state::limit;
use crate::acts;
use crate::listing::path;
use crate::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Multipart, MultipartRecord, Multiparts,
    MultipartsPage, Part, PartItem, PartVerdict, UploadItem, UploadVerdict,
};

#[async_trait]
impl Multiparts for MemoryLedger {
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError> {
        let begin =
            |rows: &mut _, item: &_, now| acts::begin_multipart(rows, item, &multipart, now);
        Ok(self.act(&[item], begin).remove(0))
    }

    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError> {
        self.act(&[item], acts::put_part).remove(0)
    }

    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError> {
        if self.state().rows.rules_moved(&item.by) {
            return Err(LedgerError::RulesMoved);
        }
        Ok(self.act(&[item], acts::abort_multipart).remove(0))
    }

    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError> {
        let state = self.state();
        let intent = state.rows.intents.get(&upload);
        Ok(intent.and_then(|intent| {
            let multipart = intent.upload.clone()?;
            Some(MultipartRecord { upload, begun_at: intent.begun_at, multipart })
        }))
    }

    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError> {
        let state = self.state();
        let found = state.rows.parts.range((upload, after.saturating_add(1))..=(upload, i32::MAX));
        let found = found.map(|((_, number), part)| (*number, part.clone()));
        Ok(found.take(self::limit(limit)).collect())
    }

    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError> {
        let state = self.state();
        let root = path(&page.bucket);
        let mut found: Vec<_> = state
            .rows
            .intents
            .iter()
            .filter_map(|(upload, intent)| {
                let multipart = intent.upload.clone()?;
                let place = path(multipart.resource.as_str()) + multipart.key.as_str();
                let record =
                    MultipartRecord { upload: *upload, begun_at: intent.begun_at, multipart };
                Some(((place, Some(*upload)), record))
            })
            .filter(|(place, _)| place.0.starts_with(&root))
            .filter(|(place, _)| page.after.as_ref().is_none_or(|after| place > after))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found.into_iter().map(|(_, record)| record).take(limit(page.limit)).collect())
    }
}
