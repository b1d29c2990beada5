//! A copy of the file, as of one moment, also while a gateway writes it.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _};

use super::{OpenError, SqliteLedger, open};

impl SqliteLedger {
    /// Copies a ledger into a file that is not there yet. One read transaction: what is committed meanwhile is
    /// not in the copy, and the log of the ledger grows until it ends.
    ///
    /// # Errors
    /// A ledger that is damaged, or that cannot be read; a copy that cannot be written.
    pub async fn copy(from: &Path, to: &Path) -> Result<(), OpenError> {
        let failed = |error| {
            let other = |source| OpenError::Copy { path: from.to_owned(), source };
            open::damaged_or(from, error, other)
        };
        open::private(to).map_err(|error| failed(error.into()))?;
        let options = SqliteConnectOptions::new().filename(from).read_only(true);
        let options = options.busy_timeout(Duration::from_secs(10)).pragma("temp_store", "MEMORY");
        let mut reader = options.connect().await.map_err(failed)?;
        // SQLite takes the place of an empty file.
        let copied = sqlx::query("VACUUM INTO ?1").bind(to.to_string_lossy().into_owned());
        copied.execute(&mut reader).await.map_err(failed)?;
        reader.close().await.map_err(failed)
    }
}
