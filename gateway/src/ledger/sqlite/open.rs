//! Opening the file of the ledger: its settings, its schema, and the locks that were held.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use fence_core::ports::Clock;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::sync::{Semaphore, SetOnce};
use uuid::Uuid;

use super::{SqliteLedger, disk, elapsed_ms};
use crate::ledger::migrations::{File, migrator};

/// How many may read at once. More would wait for the same two or three processors.
const READERS_MAX: usize = 8;

pub(super) static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| migrator(&TABLES));

/// The files of `schema/sqlite`.
pub(in crate::ledger) const TABLES: [File; 16] = [
    (1, "tables", include_str!("../../../../schema/sqlite/0001_tables.sql")),
    (6, "operators", include_str!("../../../../schema/sqlite/0006_operators.sql")),
    (9, "events", include_str!("../../../../schema/sqlite/0009_events.sql")),
    (10, "blobs", include_str!("../../../../schema/sqlite/0010_blobs.sql")),
    (11, "upstreams", include_str!("../../../../schema/sqlite/0011_upstreams.sql")),
    (12, "access", include_str!("../../../../schema/sqlite/0012_access.sql")),
    (13, "audit tree", include_str!("../../../../schema/sqlite/0013_audit_tree.sql")),
    (14, "stocks", include_str!("../../../../schema/sqlite/0014_stocks.sql")),
    (15, "buckets", include_str!("../../../../schema/sqlite/0015_buckets.sql")),
    (16, "uploads", include_str!("../../../../schema/sqlite/0016_uploads.sql")),
    (17, "frozen", include_str!("../../../../schema/sqlite/0017_frozen.sql")),
    (18, "credentials", include_str!("../../../../schema/sqlite/0018_credentials.sql")),
    (19, "own time", include_str!("../../../../schema/sqlite/0019_own_time.sql")),
    (20, "root", include_str!("../../../../schema/sqlite/0020_root.sql")),
    (21, "let go", include_str!("../../../../schema/sqlite/0021_let_go.sql")),
    (22, "ends", include_str!("../../../../schema/sqlite/0022_ends.sql")),
];

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
    /// What a gateway before this one wrote cannot be brought to the disk.
    #[error(
        "bring the ledger {path} to the disk: {source}. Nothing new was written; see to the disk and \
         start again"
    )]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: sqlx::Error,
    },
    /// It could not be copied.
    #[error("copy the ledger {path}: {source}")]
    Copy {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// The SQLite in this binary is one that loses writes.
    #[error(
        "this binary was built with SQLite {0}; {SOUND} is the first that loses no committed write when its log is folded. \
         Build fencegate with the Cargo.lock that it comes with"
    )]
    Unsound(String),
    /// Another process has the file open.
    #[error(
        "the ledger {path} is open in another process: a backup that is under way, or another tool; \
         start again when it has ended"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Its pages do not fit together.
    #[error(
        "the ledger {path} is damaged: {found}. It is a copy that was made while a gateway ran, or the \
         disk lost some of it. Put back a copy that `fencegate backup` made, or one of a gateway that \
         was stopped"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found first.
        found: String,
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
    ///
    /// The caller holds the lock of the directory.
    ///
    /// 1. Whatever can be read must be on the disk before anything is written behind it ([`disk`]).
    /// 2. Unless it was closed, its pages are looked at: a copy of a file in use is refused.
    /// 3. The schema, the row of the guard, and the deadlines.
    /// 4. The file itself says from now on that it is in use, not its log alone.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>, nonce: Uuid) -> Result<Self, OpenError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(2))
            // Rows of a statement on their way to its table never touch the disk.
            .pragma("temp_store", "MEMORY")
            // Checkpoints are made by `fold_long_log`, which sees whether they fail.
            .pragma("wal_autocheckpoint", "0")
            .pragma("cache_size", "-16384")
            .statement_cache_capacity(200);
        let failed = |source| OpenError::Database { path: path.to_owned(), source };
        let unsynced = |source| OpenError::Unsynced { path: path.to_owned(), source };
        private(path).map_err(|error| failed(error.into()))?;
        if disk::is_open_elsewhere(path).map_err(|error| failed(error.into()))? {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        is_sound(libsqlite_version().await.map_err(failed)?)?;
        disk::write_log_again(path).map_err(|error| unsynced(error.into()))?;
        let opened = options.connect().await;
        let mut connection = opened.map_err(|error| damaged_or(path, error, failed))?;
        let folded = disk::fold_log_whole(&mut connection).await;
        folded.map_err(|error| damaged_or(path, error, unsynced))?;
        if !disk::was_closed(&mut connection).await {
            look_at_pages(path, &mut connection).await?;
        }
        match MIGRATOR.run(&mut connection).await {
            Ok(()) => {}
            Err(MigrateError::VersionMissing(version)) => {
                return Err(OpenError::SchemaNewer { path: path.to_owned(), version });
            }
            Err(source) => return Err(OpenError::Migration { path: path.to_owned(), source }),
        }
        sqlx::query(
            "INSERT INTO guard (only_row, epoch, nonce, open, base, floor, generation, mark, ledger, own_time)
             VALUES (1, 0, ?1, 0, 0, 0, 0, 0, ?1, ?2) ON CONFLICT DO UPDATE SET closed = 0",
        )
        .bind(nonce.to_string())
        .bind(clock.now().as_microsecond())
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
        disk::fold_log_whole(&mut connection).await.map_err(unsynced)?;
        disk::sync_directory(path).map_err(|error| unsynced(error.into()))?;
        Ok(Self {
            options,
            clock,
            writer: tokio::sync::Mutex::new(Some(connection)),
            reading: Semaphore::new(READERS_MAX),
            readers: Mutex::default(),
            waiting: Mutex::default(),
            disk_failed: SetOnce::new(),
            closed: AtomicBool::new(false),
            acts: AtomicU32::new(0),
            keeps_versions: false,
        })
    }
}

/// The first SQLite that may be linked. Before it, a checkpoint beside a commit could lose what was committed, and
/// [`disk`]'s `wal_checkpoint(NOOP)` is a word that an older one takes for another.
const SOUND: &str = "3.51.3";

/// Which SQLite this binary has.
async fn libsqlite_version() -> Result<String, sqlx::Error> {
    let mut nowhere = SqliteConnectOptions::new().in_memory(true).connect().await?;
    sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut nowhere).await
}

/// Refuses a SQLite older than [`SOUND`], and one whose version cannot be read.
fn is_sound(version: String) -> Result<(), OpenError> {
    let parts = |text: &str| text.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
    match (parts(&version), parts(SOUND)) {
        (Ok(found), Ok(sound)) if found >= sound => Ok(()),
        _ => Err(OpenError::Unsound(version)),
    }
}

/// Refuses a file whose pages do not fit together.
async fn look_at_pages(path: &Path, connection: &mut SqliteConnection) -> Result<(), OpenError> {
    let found = disk::damage(connection).await;
    let found = found.map_err(|source| OpenError::Database { path: path.to_owned(), source })?;
    match found {
        None => Ok(()),
        Some(found) => Err(OpenError::Damaged { path: path.to_owned(), found }),
    }
}

pub(super) fn damaged_or(
    path: &Path,
    error: sqlx::Error,
    other: impl FnOnce(sqlx::Error) -> OpenError,
) -> OpenError {
    match disk::is_damage(&error) {
        true => OpenError::Damaged { path: path.to_owned(), found: error.to_string() },
        false => other(error),
    }
}

/// Makes the file, if it is new, for nobody else to read; SQLite gives its other files the same
/// rights.
pub(super) fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sqlite_that_loses_writes_is_refused() {
        for version in ["3.51.3", "3.51.10", "3.53.0", "4.0.0"] {
            assert!(is_sound(version.into()).is_ok(), "{version}");
        }
        for version in ["3.51.2", "3.50.4", "3.7.0", "2.99.99", "", "new"] {
            let error = is_sound(version.into()).unwrap_err();
            assert!(error.to_string().contains("built with SQLite"), "{error}");
        }
        let linked = libsqlite_version().await.unwrap();
        assert!(is_sound(linked.clone()).is_ok(), "{linked}");
    }
}
