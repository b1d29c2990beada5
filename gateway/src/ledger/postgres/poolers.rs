//! Poolers between the gateway and Postgres.
//!
//! A pooler that gives each transaction to whichever session is free takes away what a session is prepared with:
//! whether its commits wait for the disk, its limits of time, its statements. Such a pooler is refused where it is
//! noticed: when a session begins, and in each act, which finds out whether the session is one that was prepared
//! (`acts.assert_session`).

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _};

/// What is said of one.
pub const POOLER: &str = "a pooler in transaction or statement mode stands between the gateway and Postgres: \
                          use session mode or none";

/// A setting of the session that only we know of says what was done to it last.
const BEGUN: &str = "SELECT pg_catalog.pg_backend_pid(),
                            pg_catalog.set_config('fencegate.session', 'begun', false)";
const OTHER: &str = "SELECT pg_catalog.pg_backend_pid(),
                            pg_catalog.set_config('fencegate.session', 'other', false)";
const FOUND: &str = "SELECT pg_catalog.pg_backend_pid(),
                            pg_catalog.current_setting('fencegate.session', true)";

/// A session as one transaction finds it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    process: i32,
    mark: Option<String>,
}

/// Asks in a transaction of its own, and without a statement that the server would have to keep.
async fn see(connection: &mut PgConnection, query: &'static str) -> Result<Seen, sqlx::Error> {
    let row: PgRow = sqlx::raw_sql(query).fetch_one(connection).await?;
    Ok(Seen { process: row.try_get(0)?, mark: row.try_get(1)? })
}

/// Whether two transactions of a new connection find the same session.
pub async fn stays(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let begun = see(connection, BEGUN).await?;
    Ok(see(connection, FOUND).await? == begun)
}

/// Whether a connection has a session for itself: a second one gets another, and the first one keeps its own. A
/// pooler with one free session gives it to both, as long as neither is in a transaction.
pub async fn is_alone(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<bool, sqlx::Error> {
    let before = see(connection, FOUND).await?;
    let mut second = options.connect().await?;
    let other = see(&mut second, OTHER).await;
    let after = see(connection, FOUND).await?;
    second.close().await?;
    Ok(other?.process != before.process && after == before)
}
