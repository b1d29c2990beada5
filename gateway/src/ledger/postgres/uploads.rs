//! What the ledger knows of blobs, as calls of `schema/postgres/acts/blobs.sql`.
//!
//! A lost answer does no harm here: an intent that nobody uploads for is given up, garbage that was
//! handed out is handed out again, and deleting twice is what is done anyway.

use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    AbortVerdict, BlobId, BlobTimes, Garbage, KeySpace, LedgerError, PartVerdict, Pointer, Tidied,
    UploadItem, UploadVerdict, Uploads,
};
use uuid::Uuid;

use super::PgLedger;
use super::reads::fetch_anyway;
use super::session::harmless;
use super::write::{GrantColumns, refusal};
use crate::ledger::{digest, object_key, resource_name};

/// Runs a guarded act, on a session of its own, by what was seen when that was taken. It waits for nobody for long. A fourth argument says what becomes of the error where a lost answer is not harmless.
macro_rules! act {
    ($sessions:expr, $method:ident, $query:expr) => {
        act!($sessions, $method, $query, harmless)
    };
    ($sessions:expr, $method:ident, $query:expr, $failed:expr) => {{
        let mut session = $sessions.take_for_act().await?;
        let call = $query(session.seen).$method(&mut session.connection);
        let answer = $sessions.answer(call).await;
        let answer = $sessions.settle_act(session, answer).await.map_err($failed)?;
        answer.ok_or_else(|| LedgerError::Unavailable("a row is in use".into()))
    }};
}
pub(super) use act;

row! {
    pub(super) struct BeginRow {
        verdict: String,
        ..grant: GrantColumns,
    }
}

impl BeginRow {
    pub(super) fn verdict(self) -> Result<UploadVerdict, LedgerError> {
        Ok(match self.verdict.as_str() {
            "begun" => UploadVerdict::Begun,
            "known_key" => UploadVerdict::KnownKey,
            word => UploadVerdict::Refused(refusal(word, self.grant)?),
        })
    }

    pub(super) fn abort_verdict(self) -> Result<AbortVerdict, LedgerError> {
        Ok(match self.verdict.as_str() {
            "aborted" => AbortVerdict::Aborted,
            "no_upload" => AbortVerdict::NoUpload,
            word => AbortVerdict::Refused(refusal(word, self.grant)?),
        })
    }

    pub(super) fn part_verdict(self) -> Result<PartVerdict, LedgerError> {
        Ok(match self.verdict.as_str() {
            "stored" => PartVerdict::Stored,
            "overtaken" => PartVerdict::Overtaken,
            "no_upload" => PartVerdict::NoUpload,
            "expired" => PartVerdict::Expired,
            word => PartVerdict::Refused(refusal(word, self.grant)?),
        })
    }
}

row! {
    /// The first row has the counts, the others the garbage.
    struct TidyRow {
        uploads: Option<i64>,
        versions: Option<i64>,
        blob: Option<Uuid>,
        handle: Option<String>,
        again: Option<bool>,
    }
}

row! {
    struct PointerRow {
        blob: Uuid,
        resource: String,
        key: String,
        version: i64,
        size: i64,
        sha256: Vec<u8>,
        current: bool,
    }
}

fn ids(blobs: &[BlobId]) -> Vec<Uuid> {
    blobs.iter().map(|blob| blob.0).collect()
}

#[async_trait]
impl Uploads for PgLedger {
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError> {
        let sessions = &self.sessions;
        let named = item.key.as_deref().map(KeySpace::of);
        let (space, key) =
            named.map_or((KeySpace::Native, None), |(space, key)| (space, Some(key)));
        let query = |seen: i64| {
            sqlx::query_as::<_, BeginRow>(concat!(
                "SELECT * FROM ",
                acts!(),
                ".begin_upload($1, $2, $3, $4, $5, $6, $7)"
            ))
            .bind(seen)
            .bind(item.blob.map(|blob| blob.0))
            .bind(item.resource.as_str())
            .bind(item.token.get())
            .bind(key)
            .bind(space.word())
            .bind(item.by.names())
        };
        let row: BeginRow = act!(sessions, fetch_one, query)?;
        row.verdict()
    }

    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query("UPDATE fencegate.blob_intents SET handle = $2 WHERE blob = $1")
            .bind(blob.0)
            .bind(handle);
        fetch_anyway!(sessions, execute, query).map(|noted| noted.rows_affected() > 0)
    }

    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query_as::<_, TidyRow>(concat!(
                "SELECT * FROM ",
                acts!(),
                ".tidy_blobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
            ))
            .bind(seen)
            .bind(times.upload.as_secs_f64())
            .bind(times.multipart.as_secs_f64())
            .bind(times.versions.as_secs_f64())
            .bind(times.replaced_blobs().as_secs_f64())
            .bind(times.forgotten_blobs().as_secs_f64())
            .bind(times.rollback_horizon.as_secs_f64())
            .bind(times.claim().as_secs_f64())
            .bind(limit)
            .bind(hand_out)
        };
        let rows: Vec<TidyRow> = act!(sessions, fetch_all, query)?;
        let mut tidied = Tidied::default();
        for row in rows {
            match row.blob {
                Some(blob) => {
                    let again = row.again.unwrap_or(false);
                    let garbage = Garbage { blob: BlobId(blob), handle: row.handle, again };
                    tidied.garbage.push(garbage);
                }
                None => {
                    tidied.uploads = row.uploads.unwrap_or(0).unsigned_abs();
                    tidied.versions = row.versions.unwrap_or(0).unsigned_abs();
                }
            }
        }
        Ok(tidied)
    }

    async fn blobs_deleted(
        &self,
        garbage: &[Garbage],
        times: BlobTimes,
    ) -> Result<(), LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query(concat!("SELECT ", acts!(), ".blobs_deleted($1, $2, $3, $4)"))
                .bind(seen)
                .bind(garbage.iter().map(|garbage| garbage.blob.0).collect::<Vec<_>>())
                .bind(garbage.iter().map(|garbage| garbage.again).collect::<Vec<_>>())
                .bind(times.redelete.as_secs_f64())
        };
        act!(sessions, execute, query).map(drop)
    }

    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query(concat!(
            "INSERT INTO fencegate.blob_pins AS p (blob, keep_until)
             SELECT b.id, ",
            acts!(),
            ".due($2)
             FROM (SELECT DISTINCT u.id FROM unnest($1::uuid[]) u (id)) b ORDER BY b.id
             ON CONFLICT (blob) DO UPDATE
             SET keep_until = greatest(p.keep_until, excluded.keep_until)"
        ))
        .bind(ids(blobs))
        .bind(keep.as_secs_f64());
        fetch_anyway!(sessions, execute, query).map(drop)
    }

    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM fencegate.objects o WHERE o.blob = b.id)
                 OR EXISTS (SELECT FROM fencegate.replaced_versions r WHERE r.blob = b.id)
                 OR EXISTS (SELECT FROM fencegate.blob_intents i WHERE i.blob = b.id)
                 OR EXISTS (SELECT FROM fencegate.blob_garbage g WHERE g.blob = b.id)
                 OR EXISTS (SELECT FROM fencegate.upload_parts p WHERE p.blob = b.id)
             FROM unnest($1::uuid[]) WITH ORDINALITY b (id, i) ORDER BY b.i",
        )
        .bind(ids(blobs));
        fetch_anyway!(sessions, fetch_all, query)
    }

    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError> {
        let sessions = &self.sessions;
        let query = |seen: i64| {
            sqlx::query_scalar::<_, bool>(concat!("SELECT ", acts!(), ".may_delete($1, $2)"))
                .bind(seen)
                .bind(horizon.as_secs_f64())
        };
        act!(sessions, fetch_one, query)
    }

    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_as::<_, PointerRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".blob_pointers p WHERE p.blob > $1 ORDER BY p.blob LIMIT $2"
        ))
        .bind(after.map_or(Uuid::nil(), |blob| blob.0))
        .bind(limit);
        let rows: Vec<PointerRow> = fetch_anyway!(sessions, fetch_all, query)?;
        let pointer = |row: PointerRow| {
            Ok(Pointer {
                blob: BlobId(row.blob),
                resource: resource_name(row.resource)?,
                key: object_key(row.key)?,
                version: row.version,
                size: row.size,
                sha256: digest(row.sha256)?,
                current: row.current,
            })
        };
        rows.into_iter().map(pointer).collect()
    }

    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query_scalar::<_, Uuid>("SELECT store FROM fencegate.blob_store");
        fetch_anyway!(sessions, fetch_optional, query)
    }

    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError> {
        let sessions = &self.sessions;
        let query = sqlx::query(
            "INSERT INTO fencegate.blob_store (store) VALUES ($1) ON CONFLICT DO NOTHING",
        )
        .bind(store);
        fetch_anyway!(sessions, execute, query)?;
        let query = sqlx::query_scalar::<_, Uuid>("SELECT store FROM fencegate.blob_store");
        fetch_anyway!(sessions, fetch_one, query)
    }
}
