//! Lists of buckets on SQLite, from one snapshot.

use async_trait::async_trait;
use fence_core::ResourceName;
use fence_core::listing::{Run, Shelf, list};
use fence_core::ports::{LedgerError, Listing, ListingItem, ListingPage, Object};
use sqlx::SqliteConnection;

use super::columns::ObjectColumns;
use super::{SqliteLedger, rolled_back};
use crate::ledger::{ABOVE_ALL, resource_name};

struct Rows<'c>(&'c mut SqliteConnection);

#[async_trait]
impl Shelf for Rows<'_> {
    async fn objects(&mut self, run: &Run) -> Result<Vec<Object>, LedgerError> {
        let query = sqlx::query_as(
            "SELECT key, version, generation, content_type, size, sha256, written_at, NULL AS body,
                    NULL AS blob, about, parts
             FROM objects
             WHERE resource = ?1 AND key >= ?2 AND key < ?3
               AND (?4 IS NULL OR length(key) - length(replace(key, '/', '')) < ?4)
             ORDER BY key LIMIT ?5",
        );
        let query = query.bind(&run.resource).bind(&run.from);
        let rows: Vec<ObjectColumns> = query
            .bind(run.below.as_ref().unwrap_or(&ABOVE_ALL))
            .bind(run.slashes)
            .bind(i64::try_from(run.limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *self.0)
            .await
            .map_err(rolled_back)?;
        rows.into_iter().map(ObjectColumns::object).collect()
    }

    async fn resource(&mut self, after: &str) -> Result<Option<ResourceName>, LedgerError> {
        let found: Option<String> = sqlx::query_scalar(
            "SELECT resource FROM fences
             WHERE replace(resource, ':', '/') || '/' > ?1 AND instr(resource, ':') > 0 AND objects > 0
             ORDER BY replace(resource, ':', '/') || '/' LIMIT 1",
        )
        .bind(after)
        .fetch_optional(&mut *self.0)
        .await
        .map_err(rolled_back)?;
        found.map(resource_name).transpose()
    }
}

#[async_trait]
impl Listing for SqliteLedger {
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError> {
        self.with_reader(async |reader| list(&mut Rows(reader), &page).await).await
    }
}
