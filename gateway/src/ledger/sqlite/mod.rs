//! The ledger on SQLite: one writer, the acts of fence-core on the rows that a batch touches.
//!
//! An act is one `BEGIN IMMEDIATE`: nobody else writes between its first read and its commit. Rows
//! are loaded, the acts run on them in memory, and what they changed is stored. A failed `COMMIT`
//! leaves open whether it took effect: the answer is unknown, and the connection is opened anew. After
//! an input/output error nothing is: the ledger stops, see [`disk`].

mod audit;
mod bulk;
mod columns;
mod copy;
mod disasters;
mod disk;
mod events;
mod load;
mod needs;
mod open;
mod queue;
mod reads;
mod store;
mod tables;
mod uploads;
mod upstreams;
mod versions;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fence_core::acts::{self, Guard, Now, Rows};
use fence_core::ports::{
    Applied, AuditAction, AuditEntry, AuditFilter, BreakItem, BreakVerdict, Call, Clock,
    CommitItem, CommitVerdict, Commits, Deaf, Epoch, EventCursor, EventsHead, EventsPage, JoinItem,
    JoinVerdict, Ledger, LedgerError, Line, Listener, LockRecord, MarkItem, MarkVerdict, Object,
    OperationRecord, Page, Patience, Place, ReadItem, ReadVerdict, Refence, Rejection,
    RejectionFilter, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, ResourceView, Retention,
    SealItem, SealVerdict, Standing, VersionsFilter, WriteItem, WriteVerdict,
};
use fence_core::queue::Queue;
use fence_core::{LockId, OperationId, ResourceName};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit, SetOnce};
use uuid::Uuid;

pub use open::OpenError;

use bulk::Script;
use needs::Needs;

/// The ledger in a file.
pub struct SqliteLedger {
    options: SqliteConnectOptions,
    clock: Arc<dyn Clock>,
    writer: tokio::sync::Mutex<Option<SqliteConnection>>,
    /// How many may read at once.
    reading: Semaphore,
    readers: Mutex<Vec<SqliteConnection>>,
    /// Who waits. In memory: the callers' connections end with the process, too.
    waiting: Mutex<Queue>,
    /// Why the ledger stopped, once its disk has failed.
    disk_failed: SetOnce<String>,
    closed: AtomicBool,
    /// How many acts were committed.
    acts: AtomicU32,
    keeps_versions: bool,
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

    fn now(&self) -> Now {
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
    async fn act<V>(
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
    fn writable(&self) -> Result<(), LedgerError> {
        self.working()?;
        match self.closed.load(Ordering::Acquire) {
            true => Err(LedgerError::Unavailable("the ledger is closed".into())),
            false => Ok(()),
        }
    }

    /// Opens the file for writing, once more. It may have a new log, whose name must be durable before
    /// anything in it is acknowledged.
    async fn connect(&self) -> Result<SqliteConnection, LedgerError> {
        let connection = self.options.connect().await.map_err(|error| self.unwritten(error))?;
        let synced = disk::sync_directory(self.options.get_filename());
        synced.map_err(|error| LedgerError::Unavailable(self.stop(&error)))?;
        Ok(connection)
    }

    /// The writer's connection, opened anew if the last one was closed. For single statements, which
    /// are transactions of their own.
    async fn connected<'a>(
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
    async fn reader(&self) -> Result<Reader<'_>, LedgerError> {
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
    fn keep<T>(
        &self,
        reader: Reader<'_>,
        answer: Result<T, sqlx::Error>,
    ) -> Result<T, LedgerError> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader.connection);
        answer.map_err(rolled_back)
    }
}

/// A connection for reading, and the right to have one.
struct Reader<'ledger> {
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

fn elapsed_ms(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// SQLite's primary codes, <https://www.sqlite.org/rescode.html>.
const SQLITE_IOERR: i64 = 10;
const SQLITE_CONSTRAINT: i64 = 19;

/// The primary code of an error. Extended ones have it in their lowest byte.
fn code(error: &sqlx::Error) -> Option<i64> {
    let extended: i64 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// An error before `COMMIT`: nothing was applied.
fn rolled_back(error: sqlx::Error) -> LedgerError {
    match code(&error) {
        // A constraint or trigger: a defect, which trying again will not mend.
        Some(SQLITE_CONSTRAINT) => LedgerError::Defect(error.to_string()),
        _ => LedgerError::Unavailable(error.to_string()),
    }
}

#[async_trait]
impl Commits for SqliteLedger {
    #[tracing::instrument(level = "debug", name = "ledger.commit_many", skip_all)]
    async fn commit_many(
        &self,
        item: CommitItem,
        _: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let needs = Needs::of_commit(&item);
        self.act(needs, |rows, now| Ok(acts::commit_many(rows, &item, now))).await
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    #[tracing::instrument(level = "debug", name = "ledger.seal", skip_all)]
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        _: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        self.act(Needs::of_seals(&items), |rows, now| {
            if rows.guard.epoch != epoch {
                return Err(LedgerError::EpochMoved);
            }
            Ok(items.iter().map(|item| acts::seal(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.renew", skip_all)]
    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        _: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        let needs = Needs::of_locks(items.iter().map(|item| item.lock));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::renew(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.release", skip_all)]
    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        _: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError> {
        let needs = Needs::of_locks(items.iter().map(|item| item.lock));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::release(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.break_locks", skip_all)]
    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        _: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        let needs = Needs::of_resources(items.iter().map(|item| item.resource.clone()));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::break_lock(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.mark", skip_all)]
    async fn mark(
        &self,
        items: Arc<[MarkItem]>,
        _: Patience,
    ) -> Result<Vec<MarkVerdict>, LedgerError> {
        let needs = Needs::of_resources(items.iter().map(|item| item.resource.clone()));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::mark(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.commit", skip_all)]
    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        _: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError> {
        self.act(Needs::of_writes(&items), |rows, now| {
            Ok(items.iter().map(|item| acts::commit(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.read", skip_all)]
    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError> {
        self.read_objects(&items).await
    }

    async fn look(&self, resources: &[ResourceName]) -> Result<Vec<Standing>, LedgerError> {
        self.read_standings(resources).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.join", skip_all)]
    async fn join(
        &self,
        items: Arc<[JoinItem]>,
        _: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError> {
        self.act(Needs::of_joins(&items), |rows, now| {
            Ok(items.iter().map(|item| acts::join(rows, item, now)).collect())
        })
        .await
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        let now_ms = self.now().elapsed_ms;
        let mut waiting = self.waiting();
        locks.iter().for_each(|lock| waiting.keep(*lock, gateway, now_ms));
        Ok(())
    }

    async fn roll_call(&self, gateway: Uuid) -> Result<Vec<LockId>, LedgerError> {
        Ok(self.waiting().of_gateway(gateway))
    }

    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError> {
        self.call_waiters(gateway, able, resources).await
    }

    async fn listen(&self, _: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        Ok(Box::new(Deaf))
    }

    async fn position(&self, lock: LockId) -> Result<Option<i64>, LedgerError> {
        let position = self.waiting().position(lock);
        Ok(position.and_then(|position| i64::try_from(position).ok()))
    }

    async fn locks(&self, ids: &[LockId]) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        self.read_locks(ids).await
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        Ok(self.read_locks(&[id]).await?.pop().flatten())
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        self.read_resource(name).await
    }

    async fn resources(&self, page: Page, held: bool) -> Result<Vec<ResourceView>, LedgerError> {
        self.list_resources(&page, held).await
    }

    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError> {
        self.list_objects(resource, &page).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        self.read_operation(id).await
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        self.read_operation_by_key(resource, key).await
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError> {
        self.read_known_keys(keys).await
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        self.list_versions(resource, &filter).await
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        self.events_head().await
    }

    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError> {
        self.list_events(after, limit).await
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let kept = store::rejections(connection, &rejections).await;
        kept.map_err(|error| self.unwritten(error))
    }

    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError> {
        self.list_rejections(&filter).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        self.list_audit(&filter).await
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        self.read_epoch().await
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        let mut writer = self.writer.lock().await;
        sqlx::query(
            "UPDATE guard SET nonce = ?1, open = 1
             WHERE NOT open AND (nonce = ?1 OR NOT EXISTS (SELECT 1 FROM grants))",
        )
        .bind(nonce.to_string())
        .execute(self.connected(&mut writer).await?)
        .await
        .map_err(|error| self.unwritten(error))?;
        drop(writer);
        self.read_epoch().await
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Epoch, self.now().wall, why);
        let act = |guard: &mut Guard, highest: i64| {
            acts::switch_epoch(guard, highest.max(above), expected, nonce)
        };
        self.change_guard(entry, act).await
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Refence, self.now().wall, &refence.why);
        let act = |guard: &mut Guard, highest| acts::refence(guard, highest, &refence);
        self.change_guard(entry, act).await
    }

    async fn place(&self) -> Result<Place, LedgerError> {
        let highest = self.highest_token().await?;
        let guard = self.with_reader(async |reader| load::guard(reader).await).await?;
        Ok(guard.place(highest))
    }

    /// What this process has committed, it does not lose; copies are told by their marks.
    async fn halt(&self, _: Line, _: &str) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        let now = self.now();
        let due = self.breaks_due(now, retention.rows_per_pass).await?;
        let mut touched = due.len() as u64;
        if !due.is_empty() {
            let needs = Needs::of_resources(due.iter().cloned());
            self.act(needs, |rows, now| {
                due.iter().for_each(|resource| acts::sweep_break(rows, resource, now));
                Ok(())
            })
            .await?;
        }
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let unwritten = |error| self.unwritten(error);
        touched += store::prune(connection, retention, now).await.map_err(unwritten)?;
        touched += upstreams::sweep(connection, retention, now).await.map_err(unwritten)?;
        self.fold_long_log(connection).await;
        touched += self.waiting().sweep(now.elapsed_ms) as u64;
        Ok(touched)
    }
}
