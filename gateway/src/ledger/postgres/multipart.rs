//! Uploads in parts, as calls of `schema/postgres/acts/multipart.sql`.
//!
//! A lost answer to a begin does no harm: an upload that nobody hears of is given up. What became of a part or an abort is
//! not known then, and said so.

use std::convert::identity;

use async_trait::async_trait;
use fence_core::listing::path;
use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Multipart, MultipartRecord, Multiparts,
    MultipartsPage, Part, PartItem, PartVerdict, UploadItem, UploadVerdict,
};
use uuid::Uuid;

use super::PgLedger;
use super::reads::fetch;
use super::session::harmless;
use super::uploads::{BeginRow, act};
use crate::ledger::{digest, object_key, principal, resource_name, time};

row! {
    struct UploadRow {
        id: Uuid,
        begun_us: i64,
        resource: String,
        key: String,
        content_type: String,
        about: Option<String>,
        principal: Option<String>,
    }
}

impl UploadRow {
    fn record(self) -> Result<MultipartRecord, LedgerError> {
        Ok(MultipartRecord {
            upload: BlobId(self.id),
            begun_at: time(self.begun_us),
            multipart: Multipart {
                resource: resource_name(self.resource)?,
                key: object_key(self.key)?,
                content_type: self.content_type,
                about: self.about.map(Into::into),
                principal: self.principal.as_deref().map(principal).transpose()?,
            },
        })
    }
}

row! {
    struct PartRow {
        number: i32,
        blob: Uuid,
        size: i64,
        sha256: Vec<u8>,
        checksum: Option<String>,
        begun_us: i64,
        stored_us: i64,
    }
}

impl PartRow {
    fn part(self) -> Result<(i32, Part), LedgerError> {
        let part = Part {
            blob: BlobId(self.blob),
            size: self.size,
            sha256: digest(self.sha256)?,
            checksum: self.checksum,
            begun_at: time(self.begun_us),
            stored_at: time(self.stored_us),
        };
        Ok((self.number, part))
    }
}

#[async_trait]
impl Multiparts for PgLedger {
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query_as::<_, BeginRow>(concat!(
                "SELECT * FROM ",
                acts!(),
                ".begin_multipart($1, $2, $3, $4, $5, $6, $7, $8)"
            ))
            .bind(seen)
            .bind(item.blob.map(|blob| blob.0))
            .bind(item.resource.as_str())
            .bind(item.token.get())
            .bind(item.by.names())
            .bind(multipart.key.as_str())
            .bind(&multipart.content_type)
            .bind(multipart.about.as_deref())
        };
        let row: BeginRow = act!(sessions, fetch_one, query)?;
        row.verdict()
    }

    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query_as::<_, BeginRow>(concat!(
                "SELECT * FROM ",
                acts!(),
                ".put_part($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
            ))
            .bind(seen)
            .bind(item.upload.0)
            .bind(item.resource.as_str())
            .bind(item.token.get())
            .bind(item.lock.map(|lock| lock.0))
            .bind(item.by.names())
            .bind(item.by.rules)
            .bind(item.number)
            .bind(item.blob.0)
            .bind(item.size)
            .bind(item.sha256.as_slice())
            .bind(&item.checksum)
        };
        let row: BeginRow = act!(sessions, fetch_one, query, identity)?;
        row.part_verdict()
    }

    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query_as::<_, BeginRow>(concat!(
                "SELECT * FROM ",
                acts!(),
                ".abort_multipart($1, $2, $3, $4, $5, $6, $7)"
            ))
            .bind(seen)
            .bind(item.upload.0)
            .bind(item.resource.as_str())
            .bind(item.token.get())
            .bind(item.lock.map(|lock| lock.0))
            .bind(item.by.names())
            .bind(item.by.rules)
        };
        let row: BeginRow = act!(sessions, fetch_one, query, identity)?;
        row.abort_verdict()
    }

    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_as::<_, UploadRow>(
            "SELECT u.*, fencegate.micros(i.begun_at) AS begun_us
             FROM fencegate.uploads u JOIN fencegate.blob_intents i ON i.blob = u.id
             WHERE u.id = $1",
        )
        .bind(upload.0);
        let row: Option<UploadRow> = fetch!(sessions, fetch_optional, query)?;
        row.map(UploadRow::record).transpose()
    }

    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_as::<_, PartRow>(
            "SELECT p.*, fencegate.micros(p.begun_at) AS begun_us,
                    fencegate.micros(p.stored_at) AS stored_us
             FROM fencegate.upload_parts p
             WHERE p.upload = $1 AND p.number > $2 ORDER BY p.number LIMIT $3",
        )
        .bind(upload.0)
        .bind(after)
        .bind(limit);
        let rows: Vec<PartRow> = fetch!(sessions, fetch_all, query)?;
        rows.into_iter().map(PartRow::part).collect()
    }

    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError> {
        let root = path(&page.bucket);
        let (after, upload) = page.after.unwrap_or_else(|| (root.clone(), None));
        let sessions = &self.sessions;
        let query = sqlx::query_as::<_, UploadRow>(
            "SELECT u.*, fencegate.micros(i.begun_at) AS begun_us
             FROM fencegate.uploads u JOIN fencegate.blob_intents i ON i.blob = u.id
             WHERE ((translate(u.resource, ':', '/') || '/' || u.key) COLLATE \"C\", u.id) > ($1, $2)
               AND (translate(u.resource, ':', '/') || '/' || u.key) COLLATE \"C\" >= $3
               AND (translate(u.resource, ':', '/') || '/' || u.key) COLLATE \"C\" < $4
             ORDER BY (translate(u.resource, ':', '/') || '/' || u.key) COLLATE \"C\", u.id LIMIT $5",
        )
        .bind(after)
        .bind(upload.map_or(Uuid::nil(), |upload: BlobId| upload.0))
        .bind(&root)
        // In the order of bytes `0` follows `/`.
        .bind(format!("{}0", root.trim_end_matches('/')))
        .bind(page.limit);
        let rows: Vec<UploadRow> = fetch!(sessions, fetch_all, query)?;
        rows.into_iter().map(UploadRow::record).collect()
    }
}
