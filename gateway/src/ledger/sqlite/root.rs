//! The digest of the root of S3 keys, which is all that the ledger has of it; and the root itself, if a gateway of an older
//! version left it here.

use fence_core::ports::LedgerError;

use super::file::rolled_back;
use super::{SqliteLedger, disk};
use crate::ledger::s3_root;

impl SqliteLedger {
    /// The digest of the root that is in the file beside the ledger; none if there is no such root.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub async fn s3_root_digest(&self) -> Result<Option<String>, LedgerError> {
        let mut reader = self.reader().await?;
        let read = sqlx::query_scalar("SELECT s3_root_digest FROM guard");
        let digest = read.fetch_one(&mut *reader).await;
        self.keep(reader, digest)
    }

    /// Notes the digest of the root, unless there is one already; returns the one that there is.
    ///
    /// # Errors
    /// A ledger that cannot be written.
    pub async fn note_s3_root(&self, digest: &str) -> Result<String, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        sqlx::query("UPDATE guard SET s3_root_digest = ?1 WHERE s3_root_digest IS NULL")
            .bind(digest)
            .execute(&mut *connection)
            .await
            .map_err(|error| self.unwritten(error))?;
        let read = sqlx::query_scalar("SELECT s3_root_digest FROM guard");
        read.fetch_one(connection).await.map_err(rolled_back)
    }

    /// The root, if a gateway of an older version left it here in clear.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub async fn s3_root_in_clear(&self) -> Result<Option<[u8; 32]>, LedgerError> {
        let mut reader = self.reader().await?;
        let read = sqlx::query_scalar::<_, Vec<u8>>("SELECT root FROM s3_root");
        let root = read.fetch_optional(&mut *reader).await;
        self.keep(reader, root)?.map(s3_root).transpose()
    }

    /// Removes it, so that no byte of it stays in the files of the ledger. Doing it again is harmless.
    ///
    /// 1. SQLite writes zeros over what it deletes. The table has had one row on one page, so there is no other place.
    /// 2. The log goes back into the file, and begins empty: pages in it were from before.
    ///
    /// # Errors
    /// A ledger that cannot be written; or somebody reads it, who may have the page from before.
    pub async fn remove_s3_root(&self) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let removal = async {
            // Step 1.
            sqlx::query("PRAGMA secure_delete = ON").fetch_one(&mut *connection).await?;
            sqlx::query("DELETE FROM s3_root").execute(&mut *connection).await?;
            sqlx::query("PRAGMA secure_delete = OFF").fetch_one(&mut *connection).await?;
            // Step 2.
            disk::fold_log_whole(&mut *connection).await
        };
        removal.await.map_err(|error| self.unwritten(error))
    }
}
