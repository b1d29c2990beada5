//! What the SQLite ledger knows of blobs. One writer, so each call is a transaction like any other.

use std::time::Duration;

use async_trait::async_trait;
use fence_core::acts::{self, Now, OwnTime};
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    BlobId, BlobTimes, Garbage, LedgerError, Pointer, Tidied, UploadItem, UploadVerdict, Uploads,
};
use sqlx::{Connection as _, SqliteConnection};
use uuid::Uuid;

use super::columns::id;
use super::needs::Needs;
use super::{SqliteLedger, load};
use crate::ledger::{digest, object_key, resource_name};

row! {
    struct PointerColumns {
        blob: String,
        resource: String,
        key: String,
        version: i64,
        size: i64,
        sha256: Vec<u8>,
        current: bool,
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn json(blobs: &[BlobId]) -> String {
    let ids: Vec<Uuid> = blobs.iter().map(|blob| blob.0).collect();
    serde_json::to_string(&ids).unwrap_or_default()
}

/// Intents that are too old become garbage, as do blobs of versions that nobody needs any more.
async fn collect(
    connection: &mut SqliteConnection,
    times: BlobTimes,
    limit: i64,
    (own, clock): (&OwnTime, Now),
) -> Result<Tidied, sqlx::Error> {
    let now = own.to_forget_by(clock).as_microsecond();
    let due = |kept: Duration| own.due(clock, kept).as_microsecond();
    let before = |keep: Duration| now.saturating_sub(micros(keep));
    let uploads: Vec<(String, Option<String>, bool)> = sqlx::query_as(
        "SELECT i.blob, i.handle, u.id IS NOT NULL FROM blob_intents i LEFT JOIN uploads u ON u.id = i.blob
         WHERE i.begun_at <= CASE WHEN u.id IS NOT NULL THEN ?3 ELSE ?1 END
         ORDER BY i.begun_at LIMIT ?2",
    )
    .bind(before(times.upload))
    .bind(limit)
    .bind(before(times.multipart))
    .fetch_all(&mut *connection)
    .await?;
    let given_up: Vec<&str> = uploads.iter().map(|(blob, ..)| blob.as_str()).collect();
    sqlx::query("DELETE FROM blob_intents WHERE blob IN (SELECT value FROM json_each(?1))")
        .bind(serde_json::to_string(&given_up).unwrap_or_default())
        .execute(&mut *connection)
        .await?;
    let inline = sqlx::query(
        "DELETE FROM replaced_versions WHERE rowid IN (
             SELECT rowid FROM replaced_versions WHERE blob IS NULL AND replaced_at <= ?1
             ORDER BY replaced_at LIMIT ?2)",
    )
    .bind(before(times.versions))
    .bind(limit)
    .execute(&mut *connection)
    .await?;
    let versions: Vec<String> = sqlx::query_scalar(
        "DELETE FROM replaced_versions WHERE rowid IN (
             SELECT r.rowid FROM replaced_versions r
             WHERE r.blob IS NOT NULL AND r.replaced_at <= ?1 AND NOT EXISTS (
                 SELECT 1 FROM blob_pins p WHERE p.blob = r.blob AND p.keep_until > ?3)
             ORDER BY r.replaced_at LIMIT ?2)
         RETURNING blob",
    )
    .bind(before(times.replaced_blobs()))
    .bind(limit)
    .bind(now)
    .fetch_all(&mut *connection)
    .await?;
    let counts = (uploads.len() as u64, inline.rows_affected() + versions.len() as u64);
    let later = due(times.forgotten_blobs());
    let replaced = versions.into_iter().map(|blob| (blob, None, later, false));
    let uploads = uploads.into_iter().map(|(blob, handle, in_parts)| (blob, handle, now, in_parts));
    for (blob, handle, due_at, may_return) in uploads.chain(replaced) {
        sqlx::query(
            "INSERT INTO blob_garbage (blob, handle, due_at, may_return) VALUES (?1, ?2, ?3, ?4)",
        )
        .bind(blob)
        .bind(handle)
        .bind(due_at)
        .bind(may_return)
        .execute(&mut *connection)
        .await?;
    }
    // What may come back with an older copy of the ledger stays for the rollback horizon.
    sqlx::query("UPDATE blob_garbage SET due_at = ?1, may_return = 0 WHERE may_return")
        .bind(due(match mutants::is(Mutant::PartsGoAtOnce) {
            true => Duration::ZERO,
            false => times.rollback_horizon,
        }))
        .execute(&mut *connection)
        .await?;
    Ok(Tidied { uploads: counts.0, versions: counts.1, garbage: Vec::new() })
}

#[async_trait]
impl Uploads for SqliteLedger {
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError> {
        self.act(Needs::of_upload(&item), |rows, now| Ok(acts::begin_upload(rows, &item, now)))
            .await
    }

    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError> {
        let mut writer = self.writer.lock().await;
        sqlx::query("UPDATE blob_intents SET handle = ?2 WHERE blob = ?1")
            .bind(blob.to_string())
            .bind(handle)
            .execute(self.connected(&mut writer).await?)
            .await
            .map(|noted| noted.rows_affected() > 0)
            .map_err(|error| self.unwritten(error))
    }

    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let (own, clock) = (load::guard(&mut *connection).await?.time, self.now());
        let now = own.to_forget_by(clock).as_microsecond();
        let mut transaction = connection.begin().await.map_err(|error| self.unwritten(error))?;
        let tidied = collect(&mut transaction, times, limit, (&own, clock))
            .await
            .map_err(|error| self.unwritten(error))?;
        sqlx::query("DELETE FROM blob_pins WHERE keep_until <= ?1")
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(|error| self.unwritten(error))?;
        let due: Vec<(String, Option<String>, bool)> = sqlx::query_as(
            "UPDATE blob_garbage SET due_at = ?2 WHERE blob IN (
                 SELECT blob FROM blob_garbage
                 WHERE due_at <= ?1 AND ?4
                   AND NOT EXISTS (SELECT 1 FROM guard WHERE refenced_at > ?5)
                   AND blob NOT IN (SELECT p.blob FROM blob_pins p WHERE p.keep_until > ?1)
                 ORDER BY due_at LIMIT ?3)
             RETURNING blob, handle, deleted",
        )
        .bind(now)
        .bind(now.saturating_add(micros(times.claim())))
        .bind(limit)
        .bind(hand_out)
        .bind(now.saturating_sub(micros(times.rollback_horizon)))
        .fetch_all(&mut *transaction)
        .await
        .map_err(|error| self.unwritten(error))?;
        let handed_out: Vec<&str> = due.iter().map(|(blob, ..)| blob.as_str()).collect();
        super::multipart::discard_parts(&mut transaction, &handed_out, now)
            .await
            .map_err(|error| self.unwritten(error))?;
        transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        let garbage = |(blob, handle, again): (String, _, _)| {
            Ok(Garbage { blob: BlobId(id(&blob)?), handle, again })
        };
        let garbage = due.into_iter().map(garbage).collect::<Result<_, LedgerError>>()?;
        Ok(Tidied { garbage, ..tidied })
    }

    async fn blobs_deleted(
        &self,
        garbage: &[Garbage],
        times: BlobTimes,
    ) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let own = load::guard(&mut *connection).await?.time;
        let due_at = own.due(self.now(), times.redelete).as_microsecond();
        let mut transaction = connection.begin().await.map_err(|error| self.unwritten(error))?;
        for one in garbage {
            let blob = one.blob.to_string();
            let noted = if one.again {
                sqlx::query("DELETE FROM blob_garbage WHERE blob = ?1 AND deleted").bind(blob)
            } else {
                let first = "UPDATE blob_garbage SET deleted = 1, due_at = ?2
                             WHERE blob = ?1 AND NOT deleted";
                sqlx::query(first).bind(blob).bind(due_at)
            };
            noted.execute(&mut *transaction).await.map_err(|error| self.unwritten(error))?;
        }
        transaction.commit().await.map_err(|error| self.uncommitted(&error))
    }

    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let until = load::guard(&mut *connection).await?.time.due(self.now(), keep);
        sqlx::query(
            "INSERT INTO blob_pins (blob, keep_until) SELECT value, ?2 FROM json_each(?1) WHERE true
             ON CONFLICT (blob) DO UPDATE SET keep_until = max(keep_until, excluded.keep_until)",
        )
        .bind(json(blobs))
        .bind(until.as_microsecond())
        .execute(connection)
        .await
        .map(drop)
        .map_err(|error| self.unwritten(error))
    }

    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError> {
        let mut reader = self.reader().await?;
        let known = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM objects WHERE blob = b.value)
                 OR EXISTS (SELECT 1 FROM replaced_versions WHERE blob = b.value)
                 OR EXISTS (SELECT 1 FROM blob_intents WHERE blob = b.value)
                 OR EXISTS (SELECT 1 FROM blob_garbage WHERE blob = b.value)
                 OR EXISTS (SELECT 1 FROM upload_parts WHERE blob = b.value)
             FROM json_each(?1) b ORDER BY b.key",
        )
        .bind(json(blobs))
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, known)
    }

    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError> {
        let mut reader = self.reader().await?;
        let settled = sqlx::query_scalar(
            "SELECT ?1 = 0 OR NOT EXISTS (SELECT 1 FROM guard WHERE refenced_at > own_time - ?1)",
        )
        .bind(micros(horizon))
        .fetch_one(&mut *reader)
        .await;
        self.keep(reader, settled)
    }

    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError> {
        let mut reader = self.reader().await?;
        let rows =
            sqlx::query_as("SELECT * FROM blob_pointers WHERE blob > ?1 ORDER BY blob LIMIT ?2")
                .bind(after.map_or(Uuid::nil(), |blob| blob.0).to_string())
                .bind(limit)
                .fetch_all(&mut *reader)
                .await;
        let pointer = |row: PointerColumns| {
            Ok(Pointer {
                blob: BlobId(id(&row.blob)?),
                resource: resource_name(row.resource)?,
                key: object_key(row.key)?,
                version: row.version,
                size: row.size,
                sha256: digest(row.sha256)?,
                current: row.current,
            })
        };
        self.keep(reader, rows)?.into_iter().map(pointer).collect()
    }

    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError> {
        let mut reader = self.reader().await?;
        let mark: Result<Option<String>, _> =
            sqlx::query_scalar("SELECT store FROM blob_store").fetch_optional(&mut *reader).await;
        self.keep(reader, mark)?.as_deref().map(id).transpose()
    }

    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        sqlx::query("INSERT INTO blob_store VALUES (1, ?1) ON CONFLICT DO NOTHING")
            .bind(store.to_string())
            .execute(&mut *connection)
            .await
            .map_err(|error| self.unwritten(error))?;
        let mark: String = sqlx::query_scalar("SELECT store FROM blob_store")
            .fetch_one(connection)
            .await
            .map_err(|error| self.unwritten(error))?;
        id(&mark)
    }
}
