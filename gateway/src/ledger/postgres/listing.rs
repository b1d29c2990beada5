//! Lists of buckets, as calls of `schema/postgres/acts/listing.sql`.

use async_trait::async_trait;
use fence_core::etag::EntityTag;
use fence_core::ports::{LedgerError, Listing, ListingItem, ListingPage};

use super::PgLedger;
use super::reads::fetch;
use super::session::harmless;
use crate::ledger::time;

row! {
    struct ListingRow {
        name: String,
        is_prefix: bool,
        version: Option<i64>,
        generation: Option<i64>,
        size: Option<i64>,
        at_us: Option<i64>,
        about: Option<String>,
        parts: Option<i32>,
    }
}

impl From<ListingRow> for ListingItem {
    fn from(row: ListingRow) -> Self {
        if row.is_prefix {
            return Self::Prefix(row.name);
        }
        Self::Object {
            key: row.name,
            tag: EntityTag {
                generation: row.generation.unwrap_or_default(),
                version: row.version.unwrap_or_default(),
            },
            size: row.size.unwrap_or_default(),
            written_at: time(row.at_us.unwrap_or_default()),
            about: row.about.map(Into::into),
            parts: row.parts,
        }
    }
}

#[async_trait]
impl Listing for PgLedger {
    async fn list_page(&self, page: ListingPage) -> Result<Vec<ListingItem>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_as::<_, ListingRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".list_page($1, $2, $3, $4, $5, $6)"
        ))
        .bind(&page.bucket)
        .bind(i32::from(page.depth))
        .bind(&page.prefix)
        .bind(&page.delimiter)
        .bind(&page.from)
        .bind(i32::try_from(page.limit).unwrap_or(i32::MAX));
        let rows: Vec<ListingRow> = fetch!(sessions, fetch_all, query)?;
        Ok(rows.into_iter().map(ListingItem::from).collect())
    }
}
