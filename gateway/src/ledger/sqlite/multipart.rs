//! Uploads in parts on SQLite: whoever takes the intent of an upload takes its row, and decides over its parts (I19).

use async_trait::async_trait;
use fence_core::acts::{self, Rows};
use fence_core::listing::path;
use fence_core::ports::{
    AbortItem, AbortVerdict, BlobId, LedgerError, Multipart, MultipartRecord, Multiparts,
    MultipartsPage, Part, PartItem, PartVerdict, UploadItem, UploadVerdict,
};
use sqlx::SqliteConnection;

use super::columns::id;
use super::load::json;
use super::needs::Needs;
use super::{SqliteLedger, rolled_back};
use crate::ledger::{digest, object_key, principal, resource_name, time};

row! {
    struct UploadColumns {
        id: String,
        begun_at: i64,
        resource: String,
        key: String,
        content_type: String,
        about: Option<String>,
        principal: Option<String>,
    }
}

impl UploadColumns {
    fn record(self) -> Result<MultipartRecord, LedgerError> {
        Ok(MultipartRecord {
            upload: BlobId(id(&self.id)?),
            begun_at: time(self.begun_at),
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
    struct PartColumns {
        upload: String,
        number: i32,
        blob: String,
        size: i64,
        sha256: Vec<u8>,
        checksum: Option<String>,
        begun_at: i64,
        stored_at: i64,
    }
}

impl PartColumns {
    fn part(self) -> Result<((BlobId, i32), Part), LedgerError> {
        let part = Part {
            blob: BlobId(id(&self.blob)?),
            size: self.size,
            sha256: digest(self.sha256)?,
            checksum: self.checksum,
            begun_at: time(self.begun_at),
            stored_at: time(self.stored_at),
        };
        Ok(((BlobId(id(&self.upload)?), self.number), part))
    }
}

/// What uploads become whose intents were loaded, and their parts, as far as an act needs them.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    rows: &mut Rows,
    needs: &Needs,
) -> Result<(), LedgerError> {
    if needs.uploads.is_empty() {
        return Ok(());
    }
    let ids = json(needs.uploads.iter().map(|upload| upload.0));
    let uploads: Vec<UploadColumns> = sqlx::query_as(
        "SELECT u.*, i.begun_at FROM json_each(?1) n CROSS JOIN uploads u ON u.id = n.value
         JOIN blob_intents i ON i.blob = u.id",
    )
    .bind(&ids)
    .fetch_all(&mut *connection)
    .await
    .map_err(rolled_back)?;
    for upload in uploads {
        let record = upload.record()?;
        if let Some(intent) = rows.intents.get_mut(&record.upload) {
            intent.upload = Some(record.multipart);
        }
    }
    let parts: Vec<PartColumns> = sqlx::query_as(
        "SELECT p.* FROM json_each(?1) n CROSS JOIN upload_parts p ON p.upload = n.value",
    )
    .bind(&ids)
    .fetch_all(connection)
    .await
    .map_err(rolled_back)?;
    for part in parts {
        rows.parts.extend([part.part()?]);
    }
    Ok(())
}

/// Stores what an upload becomes, whose intent has just been stored.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    upload: BlobId,
    multipart: &Multipart,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO uploads (id, resource, key, content_type, about, principal)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(upload.to_string())
    .bind(multipart.resource.as_str())
    .bind(multipart.key.as_str())
    .bind(&multipart.content_type)
    .bind(multipart.about.as_deref())
    .bind(multipart.principal.as_ref().map(|principal| principal.as_str()))
    .execute(connection)
    .await
    .map(drop)
}

/// Stores a part that an act has changed, or removes it.
pub(super) async fn store_part(
    connection: &mut SqliteConnection,
    rows: &Rows,
    (upload, number): (BlobId, i32),
) -> Result<(), sqlx::Error> {
    let query = match rows.parts.get(&(upload, number)) {
        None => sqlx::query("DELETE FROM upload_parts WHERE upload = ?1 AND number = ?2")
            .bind(upload.to_string())
            .bind(number),
        Some(part) => sqlx::query(
            "INSERT INTO upload_parts (upload, number, blob, size, sha256, checksum, begun_at, stored_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (upload, number) DO UPDATE
             SET blob = excluded.blob, size = excluded.size, sha256 = excluded.sha256,
                 checksum = excluded.checksum, begun_at = excluded.begun_at,
                 stored_at = excluded.stored_at",
        )
        .bind(upload.to_string())
        .bind(number)
        .bind(part.blob.to_string())
        .bind(part.size)
        .bind(part.sha256.as_slice())
        .bind(&part.checksum)
        .bind(part.begun_at.as_microsecond())
        .bind(part.stored_at.as_microsecond()),
    };
    query.execute(connection).await.map(drop)
}

/// Blobs that are nobody's any more by what an act did are garbage.
pub(super) async fn discard(
    connection: &mut SqliteConnection,
    blobs: &[BlobId],
) -> Result<(), sqlx::Error> {
    if blobs.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO blob_garbage (blob, due_at, may_return)
         SELECT value, (SELECT own_time FROM guard), 1 FROM json_each(?1)",
    )
    .bind(json(blobs.iter().map(|blob| blob.0)))
    .execute(connection)
    .await
    .map(drop)
}

/// The parts of uploads that are handed out as garbage become garbage.
pub(super) async fn discard_parts(
    connection: &mut SqliteConnection,
    uploads: &[&str],
    now: i64,
) -> Result<(), sqlx::Error> {
    if uploads.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = sqlx::query_scalar(
        "DELETE FROM upload_parts WHERE upload IN (SELECT value FROM json_each(?1)) RETURNING blob",
    )
    .bind(json(uploads))
    .fetch_all(&mut *connection)
    .await?;
    if parts.is_empty() {
        return Ok(());
    }
    sqlx::query("INSERT INTO blob_garbage (blob, due_at) SELECT value, ?2 FROM json_each(?1)")
        .bind(json(parts))
        .bind(now)
        .execute(connection)
        .await
        .map(drop)
}

#[async_trait]
impl Multiparts for SqliteLedger {
    async fn begin_multipart(
        &self,
        item: UploadItem,
        multipart: Multipart,
    ) -> Result<UploadVerdict, LedgerError> {
        let begin = |rows: &mut Rows, now| Ok(acts::begin_multipart(rows, &item, &multipart, now));
        self.act(Needs::of_upload(&item), begin).await
    }

    async fn put_part(&self, item: PartItem) -> Result<PartVerdict, LedgerError> {
        self.act(Needs::of_part(&item), |rows, now| acts::put_part(rows, &item, now)).await
    }

    async fn abort_multipart(&self, item: AbortItem) -> Result<AbortVerdict, LedgerError> {
        let abort = |rows: &mut Rows, now| match rows.guard.rules_moved(&item.by) {
            true => Err(LedgerError::RulesMoved),
            false => Ok(acts::abort_multipart(rows, &item, now)),
        };
        self.act(Needs::of_abort(&item), abort).await
    }

    async fn multipart(&self, upload: BlobId) -> Result<Option<MultipartRecord>, LedgerError> {
        let mut reader = self.reader().await?;
        let row: Result<Option<UploadColumns>, _> = sqlx::query_as(
            "SELECT u.*, i.begun_at FROM uploads u JOIN blob_intents i ON i.blob = u.id
             WHERE u.id = ?1",
        )
        .bind(upload.to_string())
        .fetch_optional(&mut *reader)
        .await;
        self.keep(reader, row)?.map(UploadColumns::record).transpose()
    }

    async fn parts(
        &self,
        upload: BlobId,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Part)>, LedgerError> {
        let mut reader = self.reader().await?;
        let rows: Result<Vec<PartColumns>, _> = sqlx::query_as(
            "SELECT * FROM upload_parts WHERE upload = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
        )
        .bind(upload.to_string())
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *reader)
        .await;
        let numbered = |row: PartColumns| row.part().map(|((_, number), part)| (number, part));
        self.keep(reader, rows)?.into_iter().map(numbered).collect()
    }

    async fn multiparts(&self, page: MultipartsPage) -> Result<Vec<MultipartRecord>, LedgerError> {
        let root = path(&page.bucket);
        let (after, upload) = page.after.unwrap_or_else(|| (root.clone(), None));
        let mut reader = self.reader().await?;
        let rows: Result<Vec<UploadColumns>, _> = sqlx::query_as(
            "SELECT u.*, i.begun_at FROM uploads u JOIN blob_intents i ON i.blob = u.id
             WHERE (replace(u.resource, ':', '/') || '/' || u.key, u.id) > (?1, ?2)
               AND replace(u.resource, ':', '/') || '/' || u.key >= ?3
               AND replace(u.resource, ':', '/') || '/' || u.key < ?4
             ORDER BY replace(u.resource, ':', '/') || '/' || u.key, u.id LIMIT ?5",
        )
        .bind(after)
        .bind(upload.map_or_else(String::new, |upload: BlobId| upload.to_string()))
        .bind(&root)
        // In the order of bytes `0` follows `/`.
        .bind(format!("{}0", root.trim_end_matches('/')))
        .bind(page.limit)
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, rows)?.into_iter().map(UploadColumns::record).collect()
    }
}
