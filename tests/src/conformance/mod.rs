//! The conformance suites: one per port, with the same cases for every adapter.
//!
//! A case is a plain async function on a port. `tests/it/ledger/conformance.rs` runs each of them on each
//! adapter, so that whatever a fast reference does in memory, the real ones do too.

pub mod blobs;
pub mod ledger;
pub mod mint;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fence_core::memory::MemoryLedger;
use fence_core::ports::{BlobTimes, Clock, Ledger, Passed, Tidied};
use fencegate::ledger::postgres::acts::named;
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use fencegate::ledger::sqlite::SqliteLedger;
use fencegate::runtime::TokioClock;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::postgres::Postgres;

/// No blob is kept for anything, and garbage is deleted twice without a pause.
pub const AT_ONCE: BlobTimes = BlobTimes {
    upload: Duration::ZERO,
    multipart: Duration::ZERO,
    reader_grace: Duration::ZERO,
    rollback_horizon: Duration::ZERO,
    versions: Duration::ZERO,
    redelete: Duration::ZERO,
};

/// The real clock.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(TokioClock::new())
}

/// Waits for the time that a case needs to pass.
pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Has the ledger's own time, by which it forgets, catch up with its clock: as if gateways had passed it on ever since.
pub async fn catch_up(ledger: &dyn Ledger) {
    loop {
        let last = ledger.pass_time(&Passed::NOTHING).await.expect("told");
        let passed = Passed { pass: last.number, since: last.behind, boot: None };
        let next = ledger.pass_time(&passed).await.expect("passed");
        // Else a gateway was faster, whose pass brought less.
        if next.at >= last.at + last.behind {
            return;
        }
    }
}

/// Tidies blobs by an own time that has caught up with the clock.
pub async fn tidy(ledger: &dyn Ledger, times: BlobTimes, limit: i64, hand_out: bool) -> Tidied {
    catch_up(ledger).await;
    ledger.tidy_blobs(times, limit, hand_out).await.expect("tidied")
}

/// A ledger of its own in memory.
pub fn memory_ledger() -> MemoryLedger {
    MemoryLedger::new(clock(), Uuid::new_v4())
}

/// A ledger with the hands of an operator on its tables.
pub struct Opened<L> {
    /// The ledger.
    pub ledger: L,
    /// Direct access to its tables.
    pub operator: Operator,
    _home: Home,
}

/// What ends with a ledger.
enum Home {
    /// The directory of its file.
    Directory(#[expect(dead_code, reason = "it goes when this is dropped")] TempDir),
    /// Its database on the server that tests share, by name.
    Database(String),
}

/// Databases that nobody needs any more. Hundreds of tests have one each, which together would fill a small disk.
static DONE_WITH: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Drop for Home {
    fn drop(&mut self) {
        if let Self::Database(name) = self {
            // Dropping it takes a call to the server, which the next test makes.
            DONE_WITH.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(name));
        }
    }
}

async fn drop_databases(server: &Postgres) {
    let names = std::mem::take(&mut *DONE_WITH.lock().unwrap_or_else(PoisonError::into_inner));
    for name in names {
        server.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}

/// A ledger of its own on SQLite.
pub async fn sqlite_ledger() -> Opened<SqliteLedger> {
    let home = TempDir::with_prefix("fence-conformance-").expect("a directory");
    let path = home.path().join("ledger.db");
    let ledger = reopened_sqlite_ledger(&path).await;
    Opened { ledger, operator: Operator::Sqlite(path), _home: Home::Directory(home) }
}

/// The ledger in this file, as a process that starts opens it.
pub async fn reopened_sqlite_ledger(path: &std::path::Path) -> SqliteLedger {
    SqliteLedger::open(path, clock(), Uuid::new_v4()).await.expect("SQLite opens")
}

/// A ledger of its own on Postgres.
pub async fn postgres_ledger() -> Opened<PgLedger> {
    let server = Postgres::shared().await;
    drop_databases(server).await;
    let name = server.database_name().await;
    let url = server.url(&name);
    let options: PgConnectOptions = url.parse().expect("the harness gives good URLs");
    let owner_url = server.owner_url(&name);
    let owner: PgConnectOptions = owner_url.parse().expect("the harness gives good URLs");
    crate::mutants::apply(&owner_url).await;
    let settings = PgSettings { options, connections_max: 4, timeout: Duration::from_secs(20) };
    let operator = Operator::Postgres(Box::new(owner.options([("search_path", "fencegate")])));
    Opened { ledger: PgLedger::new(settings), operator, _home: Home::Database(name) }
}

/// Direct access to the tables, for what no act does: freezing and the like until they have acts of
/// their own, and what must be refused.
pub enum Operator {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A database of Postgres.
    Postgres(Box<PgConnectOptions>),
}

impl Operator {
    /// Runs statements that are the same in both.
    pub async fn try_execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(named(sql));
        match self {
            Self::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path);
                let mut connection = SqliteConnection::connect_with(&options).await?;
                let outcome = connection.execute(sql).await;
                connection.close().await?;
                outcome.map(drop)
            }
            Self::Postgres(options) => {
                let mut connection = PgConnection::connect_with(options).await?;
                let outcome = connection.execute(sql).await;
                // The server reports an error before it lets go of the rows.
                connection.ping().await?;
                connection.close().await?;
                outcome.map(drop)
            }
        }
    }

    /// Runs statements that succeed.
    pub async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// What the database says to statements that it must refuse.
    pub async fn refusal(&self, sql: &str) -> String {
        match self.try_execute(sql).await {
            Ok(()) => panic!("the database took {sql}"),
            Err(error) => error.to_string(),
        }
    }

    /// Raises the floor, as a re-fence does: all tokens up to it are void.
    pub async fn raise_floor(&self, floor: i64) {
        let set = format!("SET floor = {floor}, generation = generation + 1");
        match self {
            Self::Sqlite(_) => self.execute(&format!("UPDATE guard {set}")).await,
            Self::Postgres(_) => {
                self.execute(&format!("UPDATE seal_guard SET floor = {floor}")).await;
                self.execute(&format!("UPDATE write_guard {set}")).await;
            }
        }
    }
}
