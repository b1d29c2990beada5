//! The ledger in a file: its one writer, its few readers, and how an act runs.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fence_core::acts::{Now, Rows};
use fence_core::ports::{Clock, LedgerError, Unwritable};
use fence_core::queue::Queue;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit, SetOnce};

use super::bulk::Script;
use super::needs::Needs;
use super::{disk, load, store};

/// The ledger in a file.
pub struct SqliteLedger {
    pub(super) options: SqliteConnectOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) writer: tokio::sync::Mutex<Option<SqliteConnection>>,
    /// How many may read at once.
    pub(super) reading: Semaphore,
    pub(super) readers: Mutex<Vec<SqliteConnection>>,
    /// Who waits. In memory: the callers' connections end with the process, too.
    pub(super) waiting: Mutex<Queue>,
    /// Why the ledger stopped, once its disk has failed.
    pub(super) disk_failed: SetOnce<String>,
    pub(super) closed: AtomicBool,
    /// How many acts were committed.
    pub(super) acts: AtomicU32,
    pub(super) keeps_versions: bool,
}

impl SqliteLedger {
    /// Keeps replaced versions whose bytes are in the ledger, too.
    pub fn keeping_versions(mut self, keeps_versions: bool) -> Self {
        self.keeps_versions = keeps_versions;
        self
    }

    /// The highest token that was ever sealed; 0 for none.
    pub async fn highest_token(&self) -> Result<i64, LedgerError> {
        let mut reader = self.reader().await?;
        let highest = sqlx::query_scalar("SELECT coalesce(max(token), 0) FROM grants")
            .fetch_one(&mut *reader)
            .await;
        self.keep(reader, highest)
    }

    /// The number that is raised here and in the mint together.
    pub async fn mark(&self) -> Result<i64, LedgerError> {
        let mut reader = self.reader().await?;
        let mark = sqlx::query_scalar("SELECT mark FROM guard").fetch_one(&mut *reader).await;
        self.keep(reader, mark)
    }

    /// Raises the mark.
    pub async fn record_mark(&self, mark: i64) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let update = sqlx::query("UPDATE guard SET mark = ?1").bind(mark);
        update.execute(connection).await.map(drop).map_err(|error| self.unwritten(error))
    }

    /// Closes the file, which folds its write-ahead log into it, and notes in it that it was closed: what
    /// is copied from then on is whole. Nothing is written afterwards.
    ///
    /// # Errors
    /// The disk failed: what was committed is in the log, and the next start finds out what the disk has.
    pub async fn close(&self) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        self.closed.store(true, Ordering::Release);
        self.working()?;
        let readers =
            std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        for reader in readers {
            let _ = reader.close().await;
        }
        let Some(connection) = writer.as_mut() else { return Ok(()) };
        let noted = sqlx::query("UPDATE guard SET closed = 1").execute(&mut *connection).await;
        let folded = match noted {
            // SQLite makes the same checkpoint when it closes, and does not tell whether it failed.
            Ok(_) => disk::fold_log_whole(connection).await,
            Err(error) => Err(error),
        };
        if let Err(error) = folded {
            if self.stop_if_disk_failed(&error) {
                return Err(LedgerError::Unknown(error.to_string()));
            }
            tracing::warn!(%error, "the ledger was not closed cleanly; nothing is lost");
        }
        let Some(connection) = writer.take() else { return Ok(()) };
        if let Err(error) = connection.close().await {
            tracing::warn!(%error, "the ledger was not closed cleanly; nothing is lost");
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Now {
        Now { wall: self.clock.now(), elapsed_ms: elapsed_ms(&*self.clock) }
    }

    /// Runs an act on the rows that it needs, in one transaction.
    ///
    /// 1. `BEGIN IMMEDIATE`, load, run, prepare what is to be stored: an error rolls back, definitely.
    /// 2. Store and `COMMIT`, on one way to the connection. After an error that leaves a transaction to roll
    ///    back there was no commit: definitely. If there is none, the commit may have reached the disk: the
    ///    outcome is unknown, the connection is closed, and the next act opens the file anew. After an
    ///    input/output error not even that: the system may show what the disk does not have, so the ledger
    ///    stops, and only the next start finds out ([`disk`]).
    /// 3. What was committed is, also if the log cannot be written back into the file afterwards.
    pub(super) async fn act<V>(
        &self,
        mut needs: Needs,
        run: impl FnOnce(&mut Rows, Now) -> Result<V, LedgerError> + Send,
    ) -> Result<V, LedgerError> {
        let mut writer = self.writer.lock().await;
        self.writable()?;
        if needs.line {
            let more = self.waiting().wanted_by_absent(needs.resources.iter());
            needs.resources.extend(more);
        }
        // Taken out while in use: a call that is given up half-way closes it, and what was not committed by
        // then is rolled back.
        let mut connection = match writer.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let prepared = async {
            let mut rows = load::begin(&mut connection, &needs).await?;
            rows.keeps_versions = self.keeps_versions;
            let before = rows.fences.clone();
            let now = self.now();
            let verdicts = self.with_waiting(&mut rows, |rows| run(rows, now))?;
            let script = store::store(&mut connection, &rows, &before, now).await;
            Ok((verdicts, script.map_err(rolled_back)?))
        };
        let prepared: Result<(V, Script), LedgerError> = prepared.await;
        let (error, sent) = match prepared {
            Err(error) => (error, false),
            Ok((verdicts, script)) => match script.commit(&mut connection).await {
                Ok(()) => {
                    self.waiting().settle();
                    if self.acts.fetch_add(1, Ordering::Relaxed).is_multiple_of(disk::ACTS_PER_LOOK)
                    {
                        self.fold_long_log(&mut connection).await;
                    }
                    *writer = Some(connection);
                    return Ok(verdicts);
                }
                Err(error) if self.stop_if_disk_failed(&error) => {
                    self.waiting().undo();
                    *writer = Some(connection);
                    return Err(LedgerError::Unknown(error.to_string()));
                }
                Err(error) => (rolled_back(error), true),
            },
        };
        self.waiting().undo();
        match roll_back(&mut connection).await {
            Ok(()) => {
                *writer = Some(connection);
                Err(error)
            }
            Err(_) if sent => {
                let _ = connection.close().await;
                Err(LedgerError::Unknown(error.to_string()))
            }
            Err(_) => Err(error),
        }
    }

    /// Whether the ledger may still be written.
    pub(super) fn writable(&self) -> Result<(), LedgerError> {
        self.working()?;
        match self.closed.load(Ordering::Acquire) {
            true => Err(LedgerError::Unavailable("the ledger is closed".into())),
            false => Ok(()),
        }
    }

    /// Opens the file for writing, once more. It may have a new log, whose name must be durable before
    /// anything in it is acknowledged.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, LedgerError> {
        let connection = self.options.connect().await.map_err(|error| self.unwritten(error))?;
        let synced = disk::sync_directory(self.options.get_filename());
        synced.map_err(|error| LedgerError::Unavailable(self.stop(&error)))?;
        Ok(connection)
    }

    /// The writer's connection, opened anew if the last one was closed. For single statements, which
    /// are transactions of their own.
    pub(super) async fn connected<'a>(
        &self,
        writer: &'a mut Option<SqliteConnection>,
    ) -> Result<&'a mut SqliteConnection, LedgerError> {
        self.writable()?;
        if writer.is_none() {
            *writer = Some(self.connect().await?);
        }
        writer.as_mut().ok_or_else(|| LedgerError::Unavailable("the ledger is closed".into()))
    }

    /// A connection for reading only. Each has a thread, two descriptors and a cache, so there are few.
    pub(super) async fn reader(&self) -> Result<Reader<'_>, LedgerError> {
        let permit = self.reading.acquire().await;
        let permit = permit.map_err(|_| LedgerError::Unavailable("the ledger is closed".into()))?;
        self.working()?;
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(reader) => reader,
            None => {
                // The large cache is for the writer, of which there is one.
                let options = self.options.clone().read_only(true).pragma("cache_size", "-2000");
                options.connect().await.map_err(rolled_back)?
            }
        };
        Ok(Reader { connection, _permit: permit })
    }

    /// Keeps a reader after its query has ended.
    pub(super) fn keep<T>(
        &self,
        reader: Reader<'_>,
        answer: Result<T, sqlx::Error>,
    ) -> Result<T, LedgerError> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader.connection);
        answer.map_err(rolled_back)
    }
}

/// A connection for reading, and the right to have one.
pub(super) struct Reader<'ledger> {
    connection: SqliteConnection,
    _permit: SemaphorePermit<'ledger>,
}

impl Deref for Reader<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

/// Rolls back. Fails if there is nothing to roll back, and if the connection's thread has died.
async fn roll_back(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("ROLLBACK; SELECT 1").fetch_one(connection).await.map(drop)
}

pub(super) fn elapsed_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// SQLite's primary codes, <https://www.sqlite.org/rescode.html>.
pub(super) const SQLITE_IOERR: i64 = 10;
const SQLITE_READONLY: i64 = 8;
const SQLITE_FULL: i64 = 13;
const SQLITE_CONSTRAINT: i64 = 19;

/// The primary code of an error. Extended ones have it in their lowest byte.
pub(super) fn code(error: &sqlx::Error) -> Option<i64> {
    let extended: i64 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// An error before `COMMIT`: nothing was applied.
pub(super) fn rolled_back(error: sqlx::Error) -> LedgerError {
    match code(&error) {
        // A constraint or trigger: a defect, which trying again will not mend.
        Some(SQLITE_CONSTRAINT) => LedgerError::Defect(error.to_string()),
        Some(SQLITE_FULL) => LedgerError::Unwritable(Unwritable::Full),
        Some(SQLITE_READONLY) => LedgerError::Unwritable(Unwritable::ReadOnly),
        _ => LedgerError::Unavailable(error.to_string()),
    }
}
