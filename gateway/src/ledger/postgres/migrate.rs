//! Brings the schema up to date, safely beside other gateways that do the same.

use std::borrow::Cow;
use std::sync::LazyLock;

use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::poolers::{self, POOLER};
use super::session::pin_path;

/// Its table is named with its schema, since nothing is looked up there; it takes no lock of its own, which
/// would be an advisory one.
static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| Migrator {
    locking: false,
    table_name: Cow::Borrowed(TABLE),
    ..sqlx::migrate!("../schema/postgres")
});

/// What the migrations keep of themselves.
const TABLE: &str = "fencegate._sqlx_migrations";

/// How often gateways that make the schema at the same moment may come between each other.
const TRIES: usize = 5;

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The database could not be reached, or a statement failed.
    #[error("migrate the Postgres schema: {0}")]
    Database(#[from] sqlx::Error),
    /// A session of one's own is needed.
    #[error("migrate the Postgres schema: {POOLER}")]
    Pooler,
    /// The schema has a migration that this binary does not know.
    #[error(
        "the Postgres schema is newer than this binary (it has migration {0}); \
         run a newer fencegate"
    )]
    SchemaNewer(i64),
    /// A migration failed, or was changed after it had been applied.
    #[error("migrate the Postgres schema: {0}")]
    Migration(MigrateError),
}

/// Applies what is missing, all of it or nothing; returns the schema's version. Gateways that start at once wait
/// for each other on the table of the migrations.
pub async fn migrate(options: &PgConnectOptions) -> Result<i64, MigrationError> {
    let mut connection = options.connect().await?;
    if !poolers::stays(&mut connection).await?
        || !poolers::is_alone(&mut connection, options).await?
    {
        return Err(MigrationError::Pooler);
    }
    pin_path(&mut connection).await?;
    let mut tries = TRIES;
    let outcome = loop {
        match apply(&mut connection).await {
            // Somebody else made schema or table in between.
            Err(error) if tries > 1 && exists_already(&error) => tries -= 1,
            outcome => break outcome,
        }
    };
    connection.close().await?;
    match outcome {
        Ok(()) => Ok(MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)),
        Err(MigrateError::VersionMissing(version)) => Err(MigrationError::SchemaNewer(version)),
        Err(MigrateError::Execute(error)) => Err(MigrationError::Database(error)),
        Err(error) => Err(MigrationError::Migration(error)),
    }
}

/// One transaction, so that the lock of the table is held until all is there.
async fn apply(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let mut transaction = connection.begin().await?;
    // Whoever made the schema for the gateway need not let it make others.
    let missing: bool = sqlx::query_scalar("SELECT to_regnamespace('fencegate') IS NULL")
        .fetch_one(&mut *transaction)
        .await?;
    if missing {
        sqlx::query("CREATE SCHEMA fencegate").execute(&mut *transaction).await?;
    }
    transaction.ensure_migrations_table(TABLE).await?;
    // A gateway that stands still while it migrates must not keep all others from starting without a word.
    sqlx::query("SELECT set_config('lock_timeout', '60s', true)")
        .execute(&mut *transaction)
        .await?;
    sqlx::query("LOCK TABLE fencegate._sqlx_migrations IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await?;
    sqlx::query("SELECT set_config('lock_timeout', '0', true)").execute(&mut *transaction).await?;
    MIGRATOR.run(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// A schema, a table, or a row of the catalogue.
fn exists_already(error: &MigrateError) -> bool {
    let MigrateError::Execute(error) = error else { return false };
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("42P06" | "42P07" | "23505"))
}
