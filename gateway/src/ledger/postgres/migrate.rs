//! Brings the tables up to date and installs the acts, safely beside other gateways that do the same.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::acts::{self, Installed};
use super::poolers::{self, POOLER};
use super::session::pin_path;
use crate::ledger::migrations::{File, migrator};

/// Its table is named with its schema, since nothing is looked up there; it takes no lock of its own, which
/// would be an advisory one.
static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| Migrator {
    locking: false,
    // Tables that are newer than this binary are those of a version that lets its acts go on.
    ignore_missing: true,
    table_name: Cow::Borrowed(TABLE),
    ..migrator(&TABLES)
});

/// The files of `schema/postgres/tables`.
pub(in crate::ledger) const TABLES: [File; 21] = [
    (1, "fences", include_str!("../../../../schema/postgres/tables/0001_fences.sql")),
    (2, "data", include_str!("../../../../schema/postgres/tables/0002_data.sql")),
    (3, "line", include_str!("../../../../schema/postgres/tables/0003_line.sql")),
    (4, "operators", include_str!("../../../../schema/postgres/tables/0004_operators.sql")),
    (5, "feed", include_str!("../../../../schema/postgres/tables/0005_feed.sql")),
    (6, "blobs", include_str!("../../../../schema/postgres/tables/0006_blobs.sql")),
    (7, "upstreams", include_str!("../../../../schema/postgres/tables/0007_upstreams.sql")),
    (8, "access", include_str!("../../../../schema/postgres/tables/0008_access.sql")),
    (9, "audit tree", include_str!("../../../../schema/postgres/tables/0009_audit_tree.sql")),
    (10, "stocks", include_str!("../../../../schema/postgres/tables/0010_stocks.sql")),
    (11, "buckets", include_str!("../../../../schema/postgres/tables/0011_buckets.sql")),
    (12, "uploads", include_str!("../../../../schema/postgres/tables/0012_uploads.sql")),
    (13, "frozen", include_str!("../../../../schema/postgres/tables/0013_frozen.sql")),
    (14, "place", include_str!("../../../../schema/postgres/tables/0014_place.sql")),
    (15, "numbers", include_str!("../../../../schema/postgres/tables/0015_numbers.sql")),
    (16, "credentials", include_str!("../../../../schema/postgres/tables/0016_credentials.sql")),
    (17, "own time", include_str!("../../../../schema/postgres/tables/0017_own_time.sql")),
    (
        18,
        "agreed before",
        include_str!("../../../../schema/postgres/tables/0018_agreed_before.sql"),
    ),
    (19, "root", include_str!("../../../../schema/postgres/tables/0019_root.sql")),
    (20, "let go", include_str!("../../../../schema/postgres/tables/0020_let_go.sql")),
    (21, "ends", include_str!("../../../../schema/postgres/tables/0021_ends.sql")),
];

/// What the migrations keep of themselves.
const TABLE: &str = "fencegate._sqlx_migrations";

/// How often gateways that make the schema at the same moment may come between each other.
const TRIES: usize = 5;

/// How long a statement waits for a lock: what comes behind it waits as well, reads included.
const LOCK_TIMEOUT: &str = "1s";

/// How often it is tried again when somebody else's transaction keeps a lock, after a pause for those that it held up.
const GIVES_WAY: usize = 60;

/// The pause.
const PAUSE: Duration = Duration::from_secs(1);

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The database could not be reached, or a statement failed.
    #[error("migrate the Postgres schema: {0}")]
    Database(#[from] sqlx::Error),
    /// A session of one's own is needed.
    #[error("migrate the Postgres schema: {POOLER}")]
    Pooler,
    /// The tables are newer than this binary, and its acts are not there.
    #[error(
        "the Postgres schema is newer than this binary (it has the acts {0}); run a newer fencegate"
    )]
    SchemaNewer(i64),
    /// The acts of this binary were retired.
    #[error(
        "the acts of this binary ({}) were retired on this ledger, which takes {lowest} and newer; run a newer fencegate",
        acts::NUMBER,
        lowest = .0
    )]
    Retired(i64),
    /// Something is missing, and the role may not make it.
    #[error(
        "the Postgres schema is not up to date, and the role of this gateway does not own it: run `fencegate migrate` \
         as its owner"
    )]
    NotOwner,
    /// The acts are there, and the role may not call them.
    #[error(
        "the role of this gateway does not own the Postgres schema and may not use the acts: grant it what is in the \
         schemas fencegate and {0}"
    )]
    NoRights(&'static str),
    /// The older acts can do nothing any more; somebody still looks at them.
    #[error(
        "the older acts are retired, but still in use by a session: run this again to drop them"
    )]
    StillInUse,
    /// Somebody else's transaction keeps a lock on a table for too long.
    #[error("migrate the Postgres schema: {0} is in the way; nothing was changed")]
    InTheWay(String),
    /// A migration failed, or was changed after it had been applied.
    #[error("migrate the Postgres schema: {0}")]
    Migration(#[from] MigrateError),
}

/// Applies what is missing, all of it or nothing; returns the version of the tables. Gateways that start at once wait
/// for each other on the table of the migrations.
///
/// It gives way: behind a statement that waits for the lock of a table, all acts and reads of that table wait. So it waits
/// for a moment only, rolls back, lets the others pass, and tries again; and says whose transaction it waits for.
pub async fn migrate(options: &PgConnectOptions) -> Result<i64, MigrationError> {
    let mut connection = prepared(options).await?;
    let (mut tries, mut given_way) = (TRIES, 0);
    let outcome = loop {
        match apply(&mut connection).await {
            // Somebody else made schema or table in between.
            Err(error) if tries > 1 && exists_already(&error) => tries -= 1,
            Err(error) if kept_waiting(&error) => {
                let who = in_the_way(&mut connection).await?;
                if given_way == GIVES_WAY {
                    break Err(MigrationError::InTheWay(who));
                }
                if given_way % 10 == 0 {
                    tracing::warn!(who, "the schema waits to be migrated");
                }
                given_way += 1;
                pause().await;
            }
            outcome => break outcome,
        }
    };
    connection.close().await?;
    outcome.map(|()| MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0))
}

/// Lets gateways with older acts do nothing any more, and drops those; returns their numbers.
///
/// # Errors
/// The ledger is not up to date, or may not be changed.
pub async fn retire_older(options: &PgConnectOptions) -> Result<Vec<i64>, MigrationError> {
    let mut connection = prepared(options).await?;
    let owner = match owner(&mut connection).await? {
        Some((owner, true)) => owner,
        _ => return Err(MigrationError::NotOwner),
    };
    // 1. From this commit on they do nothing.
    let mut transaction = connection.begin().await?;
    acts::become_role(&mut transaction, &owner).await?;
    acts::retire_older(&mut transaction).await?;
    transaction.commit().await?;
    // 2. Apart from that, since a session that looks at their views may keep them for long.
    let mut transaction = connection.begin().await?;
    acts::become_role(&mut transaction, &owner).await?;
    lock(&mut transaction).await?;
    let older = match acts::drop_retired(&mut transaction, &owner).await {
        Err(error) if is_lock_timeout(&error) => return Err(MigrationError::StillInUse),
        older => older?,
    };
    transaction.commit().await?;
    connection.close().await?;
    Ok(older)
}

async fn prepared(options: &PgConnectOptions) -> Result<PgConnection, MigrationError> {
    let mut connection = options.connect().await?;
    if !poolers::stays(&mut connection).await?
        || !poolers::is_alone(&mut connection, options).await?
    {
        return Err(MigrationError::Pooler);
    }
    pin_path(&mut connection).await?;
    Ok(connection)
}

/// One transaction, so that the lock of the table is held until all is there.
async fn apply(connection: &mut PgConnection) -> Result<(), MigrationError> {
    let mut transaction = connection.begin().await?;
    let owner = match owner(&mut transaction).await? {
        Some((owner, true)) => owner,
        Some((_, false)) => return check(&mut transaction).await,
        // Whoever made the schema for the gateway need not let it make this one.
        None => {
            sqlx::query("CREATE SCHEMA fencegate").execute(&mut *transaction).await?;
            owner(&mut transaction).await?.map(|(owner, _)| owner).unwrap_or_default()
        }
    };
    // Whoever runs this, all of it is its owner's: `guard()` calls the acts with the owner's rights.
    acts::become_role(&mut transaction, &owner).await?;
    transaction.ensure_migrations_table(TABLE).await?;
    lock(&mut transaction).await?;
    MIGRATOR.run(&mut *transaction).await?;
    let Installed { lowest, newest, is_there } = acts::installed(&mut transaction).await?;
    if lowest > acts::NUMBER {
        return Err(MigrationError::Retired(lowest));
    }
    if !is_there && newest > acts::NUMBER {
        return Err(MigrationError::SchemaNewer(newest));
    }
    if !is_there {
        acts::install(&mut transaction, &owner).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Who owns the schema, if it is there, as SQL names the role; and whether this role may act for it.
async fn owner(connection: &mut PgConnection) -> Result<Option<(String, bool)>, sqlx::Error> {
    let query = "SELECT quote_ident(pg_get_userbyid(n.nspowner)), pg_has_role(n.nspowner, 'MEMBER')
                 FROM pg_namespace n WHERE n.nspname = 'fencegate'";
    sqlx::query_as(query).fetch_optional(connection).await
}

/// That all is there, for a role that may not change it.
async fn check(connection: &mut PgConnection) -> Result<(), MigrationError> {
    let applied = "SELECT count(*) FROM fencegate._sqlx_migrations WHERE version = ANY ($1)";
    let versions: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
    let count: i64 =
        sqlx::query_scalar(applied).bind(&versions).fetch_one(&mut *connection).await?;
    let Installed { lowest, newest, is_there } = acts::installed(connection).await?;
    if lowest > acts::NUMBER {
        return Err(MigrationError::Retired(lowest));
    }
    if !is_there && newest > acts::NUMBER {
        return Err(MigrationError::SchemaNewer(newest));
    }
    if !is_there || count != i64::try_from(versions.len()).unwrap_or(i64::MAX) {
        return Err(MigrationError::NotOwner);
    }
    match acts::may_be_used(connection).await? {
        true => Ok(()),
        false => Err(MigrationError::NoRights(acts!())),
    }
}

/// Waits for others that migrate.
async fn lock(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('lock_timeout', $1, true)")
        .bind(LOCK_TIMEOUT)
        .execute(&mut *connection)
        .await?;
    sqlx::query("LOCK TABLE fencegate._sqlx_migrations IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *connection)
        .await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "there is no engine yet whose clock it could be")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Whose transaction has held a lock on a table of the schema for longest.
async fn in_the_way(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let query = "SELECT format('session %s of %s (%s, %s, for %s s)', a.pid, a.usename, a.application_name, a.state,
                               floor(extract(epoch FROM now() - a.xact_start)))
                 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                 JOIN pg_class c ON c.oid = l.relation
                 WHERE l.granted AND l.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
                   AND c.relnamespace = 'fencegate'::regnamespace
                   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                 ORDER BY a.xact_start LIMIT 1";
    let who: Option<String> = sqlx::query_scalar(query).fetch_optional(connection).await?;
    Ok(who.unwrap_or_else(|| "a session that is gone by now".to_owned()))
}

/// Whether a lock was not had in time.
fn kept_waiting(error: &MigrationError) -> bool {
    match error {
        MigrationError::Database(error)
        | MigrationError::Migration(
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _),
        ) => is_lock_timeout(error),
        _ => false,
    }
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some("55P03")
}

/// A schema, a table, or a row of the catalogue.
fn exists_already(error: &MigrationError) -> bool {
    let error = match error {
        MigrationError::Database(error)
        | MigrationError::Migration(
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _),
        ) => error,
        _ => return false,
    };
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("42P06" | "42P07" | "23505"))
}
