//! Brings the schema up to date, safely beside other gateways that do the same.

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

static MIGRATOR: Migrator = sqlx::migrate!("../schema/postgres");

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The database could not be reached, or a statement failed.
    #[error("migrate the Postgres schema: {0}")]
    Database(#[from] sqlx::Error),
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

/// Applies what is missing; returns the schema's version. Gateways that start at once wait for each
/// other on an advisory lock.
pub async fn migrate(options: &PgConnectOptions) -> Result<i64, MigrationError> {
    let mut connection = options.connect().await?;
    // CREATE SCHEMA IF NOT EXISTS is not safe against itself; the lock is released with the session.
    sqlx::query("SELECT pg_advisory_lock(7165196801)").execute(&mut connection).await?;
    sqlx::query("CREATE SCHEMA IF NOT EXISTS fencegate").execute(&mut connection).await?;
    sqlx::query("SET search_path TO fencegate").execute(&mut connection).await?;
    let outcome = MIGRATOR.run(&mut connection).await;
    connection.close().await?;
    match outcome {
        Ok(()) => Ok(MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)),
        Err(MigrateError::VersionMissing(version)) => Err(MigrationError::SchemaNewer(version)),
        Err(error) => Err(MigrationError::Migration(error)),
    }
}
