//! Versions of objects that were replaced, and intents: what an act keeps besides the current rows.

use std::collections::BTreeSet;

use fence_core::acts::{Change, IntentRow, Now, ReplacedRow, Rows};
use fence_core::ports::{BlobId, Payload};
use sqlx::SqliteConnection;

/// The bytes of an object, if they are in the ledger.
pub(super) fn body(payload: &Payload) -> Option<&[u8]> {
    match payload {
        Payload::Inline(body) => Some(body),
        Payload::Blob(_) => None,
    }
}

/// Keeps what an act replaced. Before anything else is stored: what was there before the act is copied
/// from where it still is, since acts do not look at bytes; the rest the act itself has put.
pub(super) async fn keep(
    connection: &mut SqliteConnection,
    rows: &Rows,
    now: Now,
) -> Result<(), sqlx::Error> {
    for row in &rows.replaced {
        let copied = sqlx::query(
            "INSERT OR IGNORE INTO replaced_versions
             SELECT resource, key, version, generation, content_type, size, sha256, written_at, body,
                    blob, ?5, about, parts
             FROM objects WHERE resource = ?1 AND key = ?2 AND version = ?3 AND generation = ?4",
        )
        .bind(row.resource.as_str())
        .bind(row.object.key.as_str())
        .bind(row.object.tag.version)
        .bind(row.object.tag.generation)
        .bind(row.at.as_microsecond())
        .execute(&mut *connection)
        .await?;
        if copied.rows_affected() == 0 {
            insert(connection, row).await?;
        }
    }
    let wiped: BTreeSet<_> = rows
        .journal
        .iter()
        .filter_map(|change| match change {
            Change::Wiped(resource) => Some(resource),
            _ => None,
        })
        .collect();
    for resource in wiped {
        sqlx::query(
            "INSERT OR IGNORE INTO replaced_versions
             SELECT resource, key, version, generation, content_type, size, sha256, written_at, body,
                    blob, ?2, about, parts
             FROM objects WHERE resource = ?1 AND (?3 OR blob IS NOT NULL)",
        )
        .bind(resource.as_str())
        .bind(now.wall.as_microsecond())
        .bind(rows.keeps_versions)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

async fn insert(connection: &mut SqliteConnection, row: &ReplacedRow) -> Result<(), sqlx::Error> {
    let object = &row.object;
    sqlx::query(
        "INSERT OR IGNORE INTO replaced_versions
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )
    .bind(row.resource.as_str())
    .bind(object.key.as_str())
    .bind(object.tag.version)
    .bind(object.tag.generation)
    .bind(&object.content_type)
    .bind(object.size)
    .bind(object.sha256.as_slice())
    .bind(object.written_at.as_microsecond())
    .bind(body(&object.payload))
    .bind(object.payload.blob().map(|blob| blob.to_string()))
    .bind(row.at.as_microsecond())
    .bind(object.about.as_deref())
    .bind(object.parts)
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores an intent, or removes it.
pub(super) async fn intent(
    connection: &mut SqliteConnection,
    blob: BlobId,
    row: Option<&IntentRow>,
) -> Result<(), sqlx::Error> {
    let upload = row.and_then(|row| row.upload.as_ref());
    let query = match row {
        Some(row) => sqlx::query("INSERT INTO blob_intents (blob, begun_at) VALUES (?1, ?2)")
            .bind(blob.to_string())
            .bind(row.begun_at.as_microsecond()),
        None => sqlx::query("DELETE FROM blob_intents WHERE blob = ?1").bind(blob.to_string()),
    };
    query.execute(&mut *connection).await?;
    match upload {
        Some(upload) => super::multipart::store(connection, blob, upload).await,
        None => Ok(()),
    }
}
