//! What it means that a call failed: whether it was rolled back, and whether its session can be used again.

use fence_core::ports::{LedgerError, Unwritable};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::super::poolers::POOLER;

/// SQLSTATE of a lock timeout.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// SQLSTATE of a key that exists already.
const UNIQUE_VIOLATION: &str = "23505";
/// What the schema raises for a server that is behind the position it was given.
const FALLEN_BEHIND: &str = "FG004";
/// What is answered in a session that is not the one that was prepared: the schema says so; or a statement is
/// missing, or there under a name that should be free.
const MOVED: [&str; 3] = ["FG005", "26000", "42P05"];
/// What it raises in a session from before the ledger passed to another timeline.
const PASSED_ON: &str = "FG007";

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The server answered with an error: the call was rolled back, the session is sound.
    Answered(LedgerError),
    /// The server is behind a position that this gateway has seen: rolled back.
    Behind(String),
    /// The ledger has passed to another timeline since this session began: rolled back.
    Passed(String),
    /// The server gave up waiting for a row that somebody else has locked: rolled back.
    RowLocked,
    /// A unique id that is there already, or that somebody else was using at the same moment: rolled back. The
    /// next look finds it.
    Duplicate(String),
    /// It came to another session than the one that was prepared: refused, rolled back. The session must be closed.
    Moved(String),
    /// No answer came: the call may still take effect. The session must be closed.
    Lost(String),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) => {
                match database.try_downcast_ref::<PgDatabaseError>() {
                    // A backend that is being shut down may already have committed.
                    Some(pg) if matches!(pg.severity(), PgSeverity::Fatal | PgSeverity::Panic) => {
                        Self::Lost(pg.to_string())
                    }
                    Some(pg) if pg.code() == LOCK_NOT_AVAILABLE => Self::RowLocked,
                    Some(pg) if pg.code() == FALLEN_BEHIND => Self::Behind(pg.message().to_owned()),
                    Some(pg) if MOVED.contains(&pg.code()) => {
                        Self::Moved(format!("{}; {POOLER}", pg.message()))
                    }
                    Some(pg) if pg.code() == PASSED_ON => Self::Passed(pg.message().to_owned()),
                    Some(pg) if pg.code() == UNIQUE_VIOLATION => {
                        Self::Duplicate(pg.message().to_owned())
                    }
                    Some(pg) => Self::Answered(meaning(pg.code(), pg.message())),
                    None => Self::Lost(error.to_string()),
                }
            }
            // The server answered, but not with what this binary expects.
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::RowNotFound => {
                Self::Answered(LedgerError::Unreadable(error.to_string()))
            }
            sqlx::Error::Encode(_) => Self::Answered(LedgerError::Defect(error.to_string())),
            _ => Self::Lost(error.to_string()),
        }
    }
}

/// What an error of the server means. All of these were rolled back.
fn meaning(code: &str, message: &str) -> LedgerError {
    match code {
        "FG001" => LedgerError::RefenceRequired(message.to_owned()),
        "FG002" => LedgerError::EpochMoved,
        "FG013" => LedgerError::RulesMoved,
        "FG006" | "FG014" => LedgerError::Unavailable(message.to_owned()),
        "FG015" => LedgerError::Unwritable(Unwritable::Restarted),
        // The statement's own limit, or somebody who cancelled it.
        "57014" => LedgerError::Slow(message.to_owned()),
        "53100" => LedgerError::Unwritable(Unwritable::Full),
        "25006" => LedgerError::Unwritable(Unwritable::ReadOnly),
        // Serialization, deadlock, lock and statement timeouts, resources, shutdown.
        _ if ["40", "53", "55", "57", "58", "25"].iter().any(|class| code.starts_with(class)) => {
            LedgerError::Unavailable(message.to_owned())
        }
        // The schema is missing: not migrated yet, or another database.
        "42P01" | "42883" | "3F000" => LedgerError::Unavailable(message.to_owned()),
        _ => LedgerError::Defect(format!("{code}: {message}")),
    }
}

/// For calls that only read: a lost answer is no more than an unavailable ledger.
pub fn harmless(error: LedgerError) -> LedgerError {
    match error {
        LedgerError::Unknown(why) => LedgerError::Unavailable(why),
        LedgerError::Unreadable(why) => LedgerError::Defect(why),
        other => other,
    }
}

/// For what is found wrong in the answer to an act: by then it has been committed.
pub fn unreadable(error: LedgerError) -> LedgerError {
    match error {
        LedgerError::Defect(why) => LedgerError::Unreadable(why),
        other => other,
    }
}
