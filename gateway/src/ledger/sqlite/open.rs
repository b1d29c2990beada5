//! Opening the file of the ledger: its settings, its schema, and the locks that were held.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_core::ports::Clock;
use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use uuid::Uuid;

use super::{SqliteLedger, elapsed_ms};

static MIGRATOR: Migrator = sqlx::migrate!("../schema/sqlite");

/// Why the ledger file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// SQLite refused.
    #[error("open the ledger {path}: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// The schema has a migration that this binary does not know.
    #[error(
        "the ledger {path} is newer than this binary (it has migration {version}); \
         run a newer fencegate"
    )]
    SchemaNewer {
        /// The file.
        path: PathBuf,
        /// The migration.
        version: i64,
    },
    /// A migration failed.
    #[error("migrate the ledger {path}: {source}")]
    Migration {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: MigrateError,
    },
}

impl SqliteLedger {
    /// The ledger file in a data directory.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("ledger.sqlite")
    }

    /// Opens the ledger, making or migrating it if needed. Every lock that is held gets its full ttl
    /// again, within its longest hold: its deadline was on the clock of a process that is gone.
    ///
    /// A ledger that is new expects a mint with `nonce`, or adopts the one that the mint carries.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>, nonce: Uuid) -> Result<Self, OpenError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(2))
            // Rows of a statement on their way to its table never touch the disk.
            .pragma("temp_store", "MEMORY")
            // 16 MiB, instead of 4, go back into the file at once: a page that is written again and
            // again goes there once.
            .pragma("wal_autocheckpoint", "4000")
            .pragma("cache_size", "-16384")
            .statement_cache_capacity(200);
        let failed = |source| OpenError::Database { path: path.to_owned(), source };
        private(path).map_err(|error| failed(error.into()))?;
        let mut connection = options.connect().await.map_err(failed)?;
        match MIGRATOR.run(&mut connection).await {
            Ok(()) => {}
            Err(MigrateError::VersionMissing(version)) => {
                return Err(OpenError::SchemaNewer { path: path.to_owned(), version });
            }
            Err(source) => return Err(OpenError::Migration { path: path.to_owned(), source }),
        }
        sqlx::query(
            "INSERT INTO guard (only_row, epoch, nonce, open, base, floor, generation, mark, ledger)
             VALUES (1, 0, ?1, 0, 0, 0, 0, 0, ?1) ON CONFLICT DO NOTHING",
        )
        .bind(nonce.to_string())
        .execute(&mut connection)
        .await
        .map_err(failed)?;
        sqlx::query(
            "UPDATE fences SET deadline_ms = ?1 + min(ttl_ms, coalesce(
                 (SELECT (l.hold_until - ?2) / 1000 FROM locks l WHERE l.id = fences.lock_id),
                 ttl_ms))
             WHERE hold IN ('held', 'draining')",
        )
        .bind(elapsed_ms(&*clock))
        .bind(clock.now().as_microsecond())
        .execute(&mut connection)
        .await
        .map_err(failed)?;
        Ok(Self {
            options,
            clock,
            writer: tokio::sync::Mutex::new(Some(connection)),
            readers: Mutex::default(),
            waiting: Mutex::default(),
            disk_failed: AtomicBool::new(false),
            keeps_versions: false,
        })
    }
}

/// Makes the file, if it is new, for nobody else to read; SQLite gives its other files the same
/// rights.
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path).map(drop)
}
