//! New connections: prepared so that acts are safe on them, to servers on which they are.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio_rustls::rustls;

use super::super::notices;
use super::super::poolers::{self, POOLER};

/// How long a new connection may take at most.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// A new connection, prepared for that timeline, on which a call may take as long as `limit`; and when the server was
/// started, in microseconds of Unix time. With `closely` it
/// is compared with a second one: that also finds poolers which move no session as long as nobody else is
/// there.
pub(super) async fn connect(
    options: &PgConnectOptions,
    limit: Duration,
    timeline: &str,
    closely: bool,
) -> Result<(PgConnection, i64), ConnectError> {
    let connecting = async {
        let mut connection = options.connect().await?;
        // Before anything that a session is needed for, so that it is said in plain words.
        if !poolers::stays(&mut connection).await?
            || (closely && !poolers::is_alone(&mut connection, options).await?)
        {
            return Err(ConnectError::Pooler);
        }
        let started_us = prepare(&mut connection, limit, timeline).await?;
        Ok((connection, started_us))
    };
    let connected = tokio::time::timeout(limit.min(CONNECTS_WITHIN), connecting).await;
    connected.unwrap_or(Err(ConnectError::Late))
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Unusable {
    /// Whether waiting may help: it is not there, or not yet what it is to be.
    pub may_pass: bool,
    /// In words.
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{0}")]
    Driver(#[from] sqlx::Error),
    #[error("{setting} is {value} on the Postgres server: acknowledged writes could be lost")]
    Unsafe { setting: &'static str, value: String },
    #[error("the database is encoded in {0}; names and owners need UTF8")]
    Encoding(String),
    #[error("the Postgres server is a standby")]
    Standby,
    #[error("no connection in time")]
    Late,
    #[error("{POOLER}")]
    Pooler,
    #[error(
        "the log of this process keeps the server's warnings back; one could take an answer back"
    )]
    Deaf,
}

impl ConnectError {
    /// Whether the next try may end otherwise without anybody changing a setting.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Standby | Self::Late => true,
            // A certificate that is not trusted is an I/O error, too.
            Self::Driver(sqlx::Error::Io(error)) => refused_by_tls(error).is_none(),
            Self::Driver(sqlx::Error::Database(error)) => {
                let code = error.code().unwrap_or_default();
                // It starts, stops, or has no room: classes 57 and 53, and lost connections.
                ["57", "53", "08"].iter().any(|class| code.starts_with(class))
            }
            Self::Driver(_)
            | Self::Unsafe { .. }
            | Self::Encoding(_)
            | Self::Pooler
            | Self::Deaf => false,
        }
    }

    /// Tells an operator what to look at, if the error alone does not.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Driver(sqlx::Error::Io(error)) => refused_by_tls(error).map(|error| match error {
                rustls::Error::InvalidCertificate(_) => {
                    "`sslrootcert` in its URL names the file with the authority that made its certificate"
                }
                _ => "`sslmode`, `sslcert` and `sslkey` in its URL say how TLS is spoken",
            }),
            Self::Driver(sqlx::Error::Tls(_)) => {
                Some("`sslmode` in its URL says whether TLS is spoken, `sslrootcert` whom to trust")
            }
            Self::Driver(sqlx::Error::Database(error)) => match error.code().unwrap_or_default().as_ref() {
                "28P01" => Some("look at the user and the password in its URL"),
                "28000" => Some("look at the user in its URL, and at what pg_hba.conf asks of it"),
                "3D000" => Some("look at the database in its URL: it must be there, for the gateway makes none"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The refusal of TLS that an I/O error holds, if it is one.
fn refused_by_tls(error: &std::io::Error) -> Option<&rustls::Error> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::AlertReceived(_)
            | rustls::Error::PeerIncompatible(_)
    )
    .then_some(error)
}

/// Looks up names without a schema among those of Postgres alone, and lets it warn.
///
/// Who may create anything in another schema on the path could otherwise put an operator or a function in place
/// of one that the acts call: an exact match for a domain goes before the one of Postgres. The first statement of
/// every connection, itself with a schema. The warnings are what [`notices`] looks for.
pub async fn pin_path(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let pin = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),
                      pg_catalog.set_config('client_min_messages', 'warning', false)";
    sqlx::query(pin).execute(connection).await.map(drop)
}

/// Sets limits on a new connection, has its statements planned once, by index, whatever the tables held
/// when they were planned, and refuses a server that may forget what it acknowledged.
///
/// `timeline` is the one that the gateway knows the ledger to be on, if it does: acts on another one are refused,
/// until it was looked at. Returns when the server was started, in microseconds of Unix time.
///
/// Without bitmap scans: one of them looks at every row that an index entry leads to, and an index scan marks the
/// entries of rows that are dead, so that the next one passes them by. Rows that are written often have many.
async fn prepare(
    connection: &mut PgConnection,
    limit: Duration,
    timeline: &str,
) -> Result<i64, ConnectError> {
    if !notices::listen() {
        return Err(ConnectError::Deaf);
    }
    pin_path(connection).await?;
    let ms = limit.as_millis().to_string();
    sqlx::query(
        "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false),
                set_config('idle_in_transaction_session_timeout', $1, false),
                set_config('default_transaction_isolation', 'read committed', false),
                set_config('plan_cache_mode', 'force_generic_plan', false),
                set_config('enable_seqscan', 'off', false),
                set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false),
                set_config('fencegate.timeline', $2, false)",
    )
    .bind(ms)
    .bind(timeline)
    .execute(&mut *connection)
    .await?;
    let (commit, encoding, fsync, pages, standbys, recovery, started_us): (
        String,
        String,
        String,
        String,
        String,
        bool,
        i64,
    ) =
        // Set to what it is, so that a later change of the server's default does not reach here; and noted, so that
        // each act finds out whether it still is.
        sqlx::query_as(
            "SELECT set_config('synchronous_commit',
                               set_config('fencegate.session', current_setting('synchronous_commit'), false),
                               false),
                    current_setting('server_encoding'), current_setting('fsync'),
                    current_setting('full_page_writes'),
                    current_setting('synchronous_standby_names'), pg_is_in_recovery(),
                    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint",
        )
        .fetch_one(&mut *connection)
        .await?;
    // A standby that has a commit in memory alone may lose it as it is promoted.
    let waits_for_disks = !matches!(commit.as_str(), "local" | "remote_write");
    let unsafe_commit = commit == "off" || (!waits_for_disks && !standbys.is_empty());
    for (setting, value, refused) in [
        ("synchronous_commit", commit, unsafe_commit),
        ("fsync", fsync.clone(), fsync == "off"),
        ("full_page_writes", pages.clone(), pages == "off"),
    ] {
        if refused {
            return Err(ConnectError::Unsafe { setting, value });
        }
    }
    if encoding != "UTF8" {
        return Err(ConnectError::Encoding(encoding));
    }
    if recovery {
        return Err(ConnectError::Standby);
    }
    Ok(started_us)
}
