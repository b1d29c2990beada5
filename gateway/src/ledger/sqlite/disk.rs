//! What the disk has. After a sync that failed, the system goes on showing what was written, considers it
//! stored, and never writes it again by itself; the next sync succeeds all the same. So only what was synced
//! without an error counts, and whoever cannot know whether it was writes it again.
//!
//! The rest follows from three rules:
//! 1. Nothing is written behind what the disk may not have: [`write_log_again`], [`fold_log_whole`].
//! 2. The log keeps a commit until the file has it. SQLite begins the log anew only after a checkpoint whose
//!    sync succeeded, but a checkpoint that readers held up notes how far it came *without* a sync. If a later
//!    sync fails, what that one had written is lost, and no checkpoint of this process would write it again. A
//!    start forgets the note, and begins with the first frame of the log. SQLite's own checkpoints do not tell
//!    that they failed, so they are made here ([`SqliteLedger::fold_long_log`]).
//! 3. After a sync that failed the ledger takes nothing more, and its connection is never closed: closing the
//!    last one is a checkpoint, too. The process ends ([`SqliteLedger::disk_failed`]).

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fence_core::ports::LedgerError;
use rustix::fs::{FlockOperation, fcntl_lock};
use sqlx::{Row as _, SqliteConnection};

use super::{SQLITE_IOERR, SqliteLedger, code, rolled_back};

/// The log goes back into the file when it has so many pages: 16 MiB, so that a page that is written again
/// and again goes there once.
const LOG_PAGES: i64 = 4000;
/// Every so many acts the ledger asks how long the log is. Not after each: SQLite parses that question anew each time.
pub(super) const ACTS_PER_LOOK: u32 = 8;
/// How much of the log is written again at a time.
const CHUNK: usize = 1 << 20;

impl SqliteLedger {
    /// Waits until the ledger has stopped since its disk failed; says why.
    pub async fn disk_failed(&self) -> String {
        self.disk_failed.wait().await.clone()
    }

    /// Whether the ledger takes calls.
    pub(super) fn working(&self) -> Result<(), LedgerError> {
        match self.disk_failed.get() {
            Some(why) => Err(LedgerError::Unavailable(why.clone())),
            None => Ok(()),
        }
    }

    /// Stops the ledger if an error of its writer says that the disk failed. Whether it did.
    pub(super) fn stop_if_disk_failed(&self, error: &sqlx::Error) -> bool {
        let failed = code(error) == Some(SQLITE_IOERR);
        if failed {
            self.stop(error);
        }
        failed
    }

    /// Stops the ledger; says why.
    pub(super) fn stop(&self, error: &dyn Display) -> String {
        tracing::error!(%error, "the ledger's disk failed; the ledger stops");
        let why = format!("the ledger's disk failed, see to the disk: {error}");
        // The first reason stays.
        let _ = self.disk_failed.set(why.clone());
        why
    }

    /// What an error of the writer means outside of an act, whose statements are transactions of their own.
    pub(super) fn unwritten(&self, error: sqlx::Error) -> LedgerError {
        match self.stop_if_disk_failed(&error) {
            true => LedgerError::Unknown(error.to_string()),
            false => rolled_back(error),
        }
    }

    /// What an error of a `COMMIT` means outside of an act.
    pub(super) fn uncommitted(&self, error: &sqlx::Error) -> LedgerError {
        self.stop_if_disk_failed(error);
        LedgerError::Unknown(error.to_string())
    }

    /// Writes the log back into the file, if it has become long. What was committed stays so, whatever comes
    /// of it: the log on the disk has it.
    pub(super) async fn fold_long_log(&self, connection: &mut SqliteConnection) {
        let fold = async {
            let look = sqlx::query("PRAGMA wal_checkpoint(NOOP)");
            let pages: i64 = look.fetch_one(&mut *connection).await?.try_get("log")?;
            if pages >= LOG_PAGES {
                sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(connection).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        if let Err(error) = fold.await
            && !self.stop_if_disk_failed(&error)
        {
            // A full disk: the log grows, if it can, and a later act tries again.
            tracing::warn!(%error, "the ledger's log was not written back into its file");
        }
    }
}

impl Drop for SqliteLedger {
    fn drop(&mut self) {
        if self.disk_failed.get().is_some() {
            // Rule 3. While one connection is open, closing the others writes nothing.
            std::mem::forget(self.writer.get_mut().take());
        }
    }
}

/// A file of SQLite's beside the ledger.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether another process has the ledger open. Each connection holds a lock on the index of the log; while
/// there is one, the index with its note (rule 2) outlives the process that wrote it.
pub(super) fn is_open_elsewhere(path: &Path) -> io::Result<bool> {
    let index = match OpenOptions::new().read(true).write(true).open(beside(path, "-shm")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        index => index?,
    };
    match fcntl_lock(&index, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Writes the log again as it is read, and syncs it (rule 1).
///
/// A process before this one may have died of a sync that failed: what it could not sync is read like
/// everything else, and may be missing on the disk. Then whatever is appended behind that hole is lost with a
/// power cut. Folding the log into the file is not enough: a cut before the log is gone would leave an old log
/// beside a newer file. After this the disk has what is read, all of it.
pub(super) fn write_log_again(path: &Path) -> io::Result<()> {
    let log = match OpenOptions::new().read(true).write(true).open(beside(path, "-wal")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        log => log?,
    };
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        match log.read_at(&mut chunk, at)? {
            0 => break,
            read => {
                log.write_all_at(&chunk[..read], at)?;
                at += read as u64;
            }
        }
    }
    log.sync_all()
}

/// Makes the names of the ledger's files durable: SQLite syncs the directory of a new log, and does not tell
/// if that fails.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Writes the whole log back into the file and begins an empty one. Fails if that cannot be done, also for
/// somebody who reads meanwhile.
///
/// Every page that is in the log is written again, so the file has what an earlier checkpoint may not have
/// synced.
pub(super) async fn fold_log_whole(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let folded = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
    match folded.try_get::<i64, _>("busy")? {
        0 => Ok(()),
        _ => Err(sqlx::Error::Io(io::Error::other("somebody else reads the file"))),
    }
}

/// Whether whoever used the file last has closed it. A file that cannot say so was not closed.
pub(super) async fn was_closed(connection: &mut SqliteConnection) -> bool {
    let closed = sqlx::query_scalar("SELECT closed FROM guard").fetch_optional(connection).await;
    matches!(closed, Ok(Some(true)))
}

/// What is wrong with the pages of the file, if anything is: it was copied while it was written, or the disk
/// lost some of it.
pub(super) async fn damage(
    connection: &mut SqliteConnection,
) -> Result<Option<String>, sqlx::Error> {
    let found = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await;
    match found {
        Ok::<String, _>(found) if found == "ok" => Ok(None),
        Ok(found) => Ok(Some(found)),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Whether an error says that the file is not what it should be.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    const SQLITE_CORRUPT: i64 = 11;
    const SQLITE_NOTADB: i64 = 26;
    matches!(code(error), Some(SQLITE_CORRUPT | SQLITE_NOTADB))
}
