//! Sessions with Postgres: who owns a connection, and what a failure means.

use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::{LedgerError, Line};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::disasters::place;
use super::notices;
use super::poolers::{self, POOLER};

/// How to reach Postgres.
#[derive(Debug, Clone)]
pub struct PgSettings {
    /// Where, as whom.
    pub options: PgConnectOptions,
    /// At most this many connections.
    pub connections_max: usize,
    /// How long a call may take. The server cancels it then; if even that answer does not come, the
    /// connection is closed and the outcome is unknown.
    pub timeout: Duration,
}

/// A connection and the right to have it.
pub struct Session {
    /// The connection.
    pub connection: PgConnection,
    /// The line of the ledger as it was known when the session was taken.
    pub line: Option<Line>,
    /// The highest position that was seen flushed on that line: a server that is behind it has lost
    /// commits. Of the same moment: one from before a re-fence would be held against the ledger after it.
    pub seen: i64,
    _permit: OwnedSemaphorePermit,
}

/// What this gateway holds against the server.
#[derive(Debug, Default)]
struct Standing {
    /// The line of the ledger, once it was read. What is held against one generation does not
    /// count in the next: the ledger was re-fenced in between.
    line: Option<Line>,
    /// The timeline that the ledger's guards know on this line; empty before it was read.
    timeline: String,
    /// Where the timeline of the line before ended, if this gateway saw that one, too.
    left_at: Option<i64>,
    /// Why this server must not be acted on any more on this line.
    halted: Option<String>,
    /// Why nothing is read from it as the present, on this line: the ledger or the mint says that it lost
    /// commits, or was replaced. Acts ask the ledger each time.
    doubted: Option<String>,
    /// Why the server that was asked last says of itself that it must be re-fenced. Another one that the address
    /// leads to later may be good.
    told: Option<String>,
    /// Which standbys the server's commits waited for when it was asked last.
    standbys: Option<String>,
}

/// The connections of a ledger.
///
/// Not a pool of the driver: there, a call that is given up half-way leaves its transaction open
/// for whoever comes next. Here a connection comes back only after the server has answered.
pub struct Sessions {
    settings: PgSettings,
    permits: std::sync::Arc<Semaphore>,
    idle: Mutex<Vec<PgConnection>>,
    /// The highest position seen flushed: a server that is behind it has lost commits.
    flushed: AtomicI64,
    standing: Mutex<Standing>,
}

impl Sessions {
    /// No connection yet.
    pub fn new(settings: PgSettings) -> Self {
        Self {
            permits: std::sync::Arc::new(Semaphore::new(settings.connections_max)),
            idle: Mutex::new(Vec::new()),
            flushed: AtomicI64::new(0),
            standing: Mutex::default(),
            settings,
        }
    }

    /// How to reach the server, for a connection that is no session.
    pub fn options(&self) -> PgConnectOptions {
        self.settings.options.clone()
    }

    /// A session of one's own. Failing means that nothing was sent.
    pub async fn take(&self) -> Result<Session, LedgerError> {
        let permit = std::sync::Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.settings.timeout, permit)
            .await
            .map_err(|_| LedgerError::Unavailable("all connections are in use".into()))?
            .map_err(|_| LedgerError::Unavailable("the ledger is closed".into()))?;
        // Looked at before: while this connects, the address may move and the ledger be re-fenced, and the
        // connection still lead to the server before.
        let (line, seen, timeline) = {
            let standing = self.standing();
            (standing.line, self.flushed.load(Ordering::Acquire), standing.timeline.clone())
        };
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect(&timeline).await?,
        };
        Ok(Session { connection, line, seen, _permit: permit })
    }

    /// Ends a call: keeps the session if the server has answered, closes it if not.
    pub fn settle<T>(
        &self,
        session: Session,
        answer: Result<T, Failure>,
    ) -> Result<T, LedgerError> {
        match answer {
            Ok(value) => {
                self.keep(session);
                Ok(value)
            }
            // By what its own guard says, so nothing has to be remembered here. Perhaps it is not the
            // server that the address leads to now.
            Err(Failure::Answered(error @ LedgerError::RefenceRequired(_))) => {
                self.idle().clear();
                Err(error)
            }
            Err(Failure::Behind(why)) => {
                self.idle().clear();
                Err(LedgerError::RefenceRequired(why))
            }
            Err(Failure::Passed(why)) => {
                self.idle().clear();
                Err(LedgerError::Unavailable(why))
            }
            Err(Failure::Answered(error)) => {
                self.keep(session);
                Err(error)
            }
            Err(Failure::RowLocked) => {
                self.keep(session);
                Err(LedgerError::Unavailable("a row stayed locked by somebody else".into()))
            }
            Err(Failure::Duplicate(why)) => {
                self.keep(session);
                Err(LedgerError::Unavailable(why))
            }
            // Those that are idle may have been moved, too; new ones are looked at when they begin.
            Err(Failure::Moved(why)) => {
                self.idle().clear();
                Err(LedgerError::Unavailable(why))
            }
            Err(Failure::Lost(why)) => {
                // The others are probably lost too; better to connect anew than to lose more calls.
                self.idle().clear();
                Err(LedgerError::Unknown(why))
            }
        }
    }

    /// Keeps a connection for the next call. One that is from before a re-fence may lead to a server that was
    /// replaced, and is closed.
    fn keep(&self, session: Session) {
        if session.line == self.standing().line {
            self.idle().push(session.connection);
        }
    }

    /// A session for a read that is answered as the present, unless something is held against this server: it
    /// has lost commits, or another one was re-fenced in its place. A newer token may then have been given out
    /// for what is not seen here.
    pub async fn take_for_read(&self) -> Result<Session, LedgerError> {
        if self.held_against().is_some() {
            // It may have been re-fenced a moment ago.
            place(self).await?;
        }
        match self.held_against() {
            Some(why) => Err(LedgerError::RefenceRequired(why)),
            None => self.take().await,
        }
    }

    /// That what was read on this line is still the present, now that it was read: while it was,
    /// something may have come to be held against the server.
    ///
    /// # Errors
    /// It may not be.
    pub fn still_present(&self, line: Option<Line>) -> Result<(), LedgerError> {
        if let Some(why) = self.held_against() {
            return Err(LedgerError::RefenceRequired(why));
        }
        match self.standing().line == line {
            true => Ok(()),
            false => Err(LedgerError::Unavailable(
                "the ledger was re-fenced or adopted meanwhile".into(),
            )),
        }
    }

    fn held_against(&self) -> Option<String> {
        let standing = self.standing();
        let Standing { halted, doubted, told, .. } = &*standing;
        halted.clone().or_else(|| doubted.clone()).or_else(|| told.clone())
    }

    /// A session for an act, unless this server was seen to have lost commits.
    pub async fn take_for_act(&self) -> Result<Session, LedgerError> {
        let halted = self.standing().halted.clone();
        match halted {
            Some(why) => Err(LedgerError::RefenceRequired(why)),
            None => self.take().await,
        }
    }

    /// Ends an act: `None` if it did not get its rows in time, which rolled it back.
    ///
    /// A server that lost commits must stay refused, although it soon reaches the position again that
    /// it had fallen behind: this gateway remembers, and tells the others through the ledger (I12).
    pub async fn settle_act<T>(
        &self,
        session: Session,
        answer: Result<T, Failure>,
    ) -> Result<Option<T>, LedgerError> {
        let line = session.line;
        let behind = match &answer {
            Err(Failure::Behind(why)) => Some(why.clone()),
            _ => None,
        };
        let refused = matches!(&answer, Err(Failure::Answered(LedgerError::RefenceRequired(_))));
        let passed = matches!(&answer, Err(Failure::Passed(_)));
        let answer = match answer {
            Err(Failure::RowLocked) => self.settle(session, Ok(None)),
            answer => self.settle(session, answer.map(Some)),
        };
        if passed || (refused && self.held_against().is_none()) {
            // If another gateway found it out, reads here must know before the caller of this act does.
            let _ = place(self).await;
        }
        let Some(why) = behind else { return answer };
        let first = {
            let mut standing = self.standing();
            if standing.line != line {
                let why = "the ledger was re-fenced or adopted meanwhile; nothing was applied";
                return Err(LedgerError::Unavailable(why.into()));
            }
            let first = standing.halted.is_none();
            standing.halted.get_or_insert_with(|| why.clone());
            first
        };
        if first {
            tracing::error!(why, "the ledger lost commits; nothing is sealed or written any more");
            if let Some(line) = line {
                self.tell_others(line, &why).await;
            }
        }
        answer
    }

    /// Ends an act whose rows say which position it made durable, and remembers that.
    pub async fn settle_seen<T>(
        &self,
        session: Session,
        answer: Result<Vec<T>, Failure>,
        flushed: impl Fn(&T) -> i64,
    ) -> Result<Option<Vec<T>>, LedgerError> {
        let line = session.line;
        let rows = self.settle_act(session, answer).await?;
        rows.iter().flatten().for_each(|row| self.saw(line, flushed(row)));
        Ok(rows)
    }

    /// Stores what this gateway holds against the server on this line, unless it was re-fenced or adopted
    /// since.
    pub async fn tell_others(&self, line: Line, why: &str) {
        let told = async {
            let mut session = self.take().await?;
            let call = sqlx::query("SELECT fencegate.halt_at($1, $2, $3)")
                .bind(line.generation)
                .bind(line.adoptions)
                .bind(why)
                .execute(&mut session.connection);
            let answer = self.answer(call).await;
            self.settle(session, answer.map(drop))
        };
        if let Err(error) = told.await {
            tracing::error!(%error, "the other gateways could not be told");
        }
    }

    /// Takes note of where the ledger stands, and of whether it calls for a re-fence itself.
    ///
    /// 1. On a line that is older than what was seen `before` the ledger was asked, it went back; on one that is only
    ///    older than what is known by now, the answer was overtaken by another one.
    /// 2. In a generation that is new to this gateway, nothing is held against it any more, and the position may be a
    ///    lower one.
    /// 3. After an adoption, what was seen of the timeline before must lie before the position at which that ended;
    ///    else the server lacks what this gateway knows to have been acknowledged.
    ///
    /// Returns what is held against it although it does not say so.
    pub fn stands(&self, before: Option<Line>, stand: &Stood<'_>) -> Option<String> {
        let line = stand.line;
        let mut standing = self.standing();
        let known = standing.line;
        let newer = known.is_none_or(|known| line > known);
        standing.line = known.max(Some(line));
        if let Some(known) = before.filter(|before| *before > line) {
            standing
                .halted
                .get_or_insert_with(|| format!("the ledger is in {line}, but {known} was seen"));
        }
        if newer {
            let adopted = known.filter(|known| known.generation == line.generation);
            standing.halted = None;
            match adopted {
                None => self.flushed.store(0, Ordering::Release),
                Some(_) => {
                    let seen = self.flushed.load(Ordering::Acquire);
                    standing.halted = lost_at(stand.left_at, seen);
                }
            }
            standing.left_at = stand.left_at.filter(|_| adopted.is_some());
            standing.doubted = None;
            standing.told = None;
            self.idle().clear();
            match (known, adopted) {
                (None, _) => {}
                (_, None) => tracing::warn!(
                    generation = line.generation,
                    "the ledger was re-fenced; what was held against it is over"
                ),
                (_, Some(_)) => tracing::warn!(
                    timeline = stand.timeline,
                    "the ledger was adopted on a new timeline; all tokens stay good"
                ),
            }
        }
        if standing.line == Some(line) {
            stand.timeline.clone_into(&mut standing.timeline);
        }
        standing.halted.clone().filter(|_| !stand.called_for)
    }

    /// Holds it against the server that it lost commits, or was replaced, unless it was re-fenced or adopted since.
    pub fn doubt(&self, line: Line, why: &str) {
        let mut standing = self.standing();
        if standing.line == Some(line) {
            standing.doubted = Some(why.to_owned());
        }
    }

    /// Takes note of whether the server that was asked just now says on this line that it must be re-fenced.
    pub fn tells(&self, line: Line, halted: Option<String>) {
        let mut standing = self.standing();
        if standing.line == Some(line) {
            standing.told = halted;
        }
    }

    /// Takes note of which standbys the server's commits wait for: a setting that a reload changes without a word.
    pub fn waits_for(&self, standbys: String) {
        let before = self.standing().standbys.replace(standbys.clone());
        if let Some(before) = before.filter(|before| *before != standbys) {
            tracing::warn!(
                before,
                now = standbys,
                "synchronous_standby_names was changed on the Postgres server"
            );
        }
    }

    /// The latest line that this gateway has seen.
    pub fn line(&self) -> Option<Line> {
        self.standing().line
    }

    /// The highest position that this gateway has seen flushed on the latest line.
    pub fn seen(&self) -> i64 {
        self.flushed.load(Ordering::Acquire)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the server's answer.
    pub async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Failure> {
        // A little longer than the server's own limit, so that the server can say that it gave up.
        let limit = self.settings.timeout + Duration::from_millis(500);
        let (end, warning) = notices::heard(tokio::time::timeout(limit, call)).await;
        if let Some(warning) = warning {
            // Committed here, and perhaps nowhere else: sent again, the act waits for the standby again.
            return Err(Failure::Lost(format!("the server warned: {warning}")));
        }
        match end {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::from(error)),
            Err(_) => Err(Failure::Lost("no answer in time".into())),
        }
    }

    /// Remembers a position that the server says is flushed, in a session of this line. An answer that is only read
    /// after the ledger was adopted counts as what was seen before does; after a re-fence, it says nothing.
    fn saw(&self, line: Option<Line>, flushed: i64) {
        let mut standing = self.standing();
        if standing.line == line || standing.line.is_none() {
            self.flushed.fetch_max(flushed, Ordering::AcqRel);
        } else if standing.line.map(|line| line.generation) == line.map(|line| line.generation)
            && standing.halted.is_none()
        {
            standing.halted = lost_at(standing.left_at, flushed);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn connect(&self, timeline: &str) -> Result<PgConnection, LedgerError> {
        self.try_connect(timeline, false)
            .await
            .map_err(|error| LedgerError::Unavailable(error.to_string()))
    }

    /// A new connection, prepared for that timeline. With `closely` it is held against a second one, which tells
    /// poolers that move nobody as long as nobody else is there.
    async fn try_connect(
        &self,
        timeline: &str,
        closely: bool,
    ) -> Result<PgConnection, ConnectError> {
        let limit = self.settings.timeout.min(Duration::from_secs(2));
        let options = &self.settings.options;
        let connecting = async {
            let mut connection = options.connect().await?;
            // Before anything that a session is needed for, so that it is said in plain words.
            if !poolers::stays(&mut connection).await?
                || (closely && !poolers::is_alone(&mut connection, options).await?)
            {
                return Err(ConnectError::Pooler);
            }
            prepare(&mut connection, self.settings.timeout, timeline).await?;
            Ok::<_, ConnectError>(connection)
        };
        tokio::time::timeout(limit, connecting).await.unwrap_or(Err(ConnectError::Late))
    }

    /// Whether the server can be used: a connection to it is made, and ended.
    pub async fn check(&self) -> Result<(), Unusable> {
        match self.try_connect("", true).await {
            Ok(connection) => {
                self.idle().push(connection);
                Ok(())
            }
            Err(error) => Err(Unusable { may_pass: error.may_pass(), text: error.to_string() }),
        }
    }
}

/// What a look at the ledger has found.
pub struct Stood<'a> {
    /// On which line it is.
    pub line: Line,
    /// The timeline that its guards know.
    pub timeline: &'a str,
    /// Where the timeline ended that this gateway knew when it asked, if the ledger was adopted since.
    pub left_at: Option<i64>,
    /// Whether it says itself that it must be re-fenced.
    pub called_for: bool,
}

/// Why a ledger has lost commits whose timeline before ended there, if it has. What is not known of it is no reason:
/// who saw more than one adoption pass unseen has been told the first of them.
fn lost_at(left_at: Option<i64>, seen: i64) -> Option<String> {
    let left_at = left_at.filter(|left_at| seen > *left_at)?;
    Some(format!(
        "the ledger was adopted at position {left_at}, but {seen} was seen flushed before: it has lost commits"
    ))
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
enum ConnectError {
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
    fn may_pass(&self) -> bool {
        match self {
            Self::Standby | Self::Late => true,
            Self::Driver(sqlx::Error::Io(_)) => true,
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
/// until it was looked at.
///
/// Without bitmap scans: one of them looks at every row that an index entry leads to, and an index scan marks the
/// entries of rows that are dead, so that the next one passes them by. Rows that are written often have many.
async fn prepare(
    connection: &mut PgConnection,
    limit: Duration,
    timeline: &str,
) -> Result<(), ConnectError> {
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
    let (commit, encoding, fsync, pages, standbys, recovery): (
        String,
        String,
        String,
        String,
        String,
        bool,
    ) =
        // Set to what it is, so that a later change of the server's default does not reach here; and noted, so that
        // each act finds out whether it still is.
        sqlx::query_as(
            "SELECT set_config('synchronous_commit',
                               set_config('fencegate.session', current_setting('synchronous_commit'), false),
                               false),
                    current_setting('server_encoding'), current_setting('fsync'),
                    current_setting('full_page_writes'),
                    current_setting('synchronous_standby_names'), pg_is_in_recovery()",
        )
        .fetch_one(&mut *connection)
        .await?;
    let unsafe_commit = commit == "off" || (commit == "local" && !standbys.is_empty());
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
    Ok(())
}

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
        "FG006" => LedgerError::Unavailable(message.to_owned()),
        // Serialization, deadlock, lock and statement timeouts, resources, shutdown, read-only.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of the ledger may come in another order than they were given.
    #[test]
    fn an_answer_that_was_overtaken_does_not_say_that_the_ledger_went_back() {
        let sessions = Sessions::new(PgSettings {
            options: PgConnectOptions::new(),
            connections_max: 1,
            timeout: Duration::from_secs(1),
        });
        let stands =
            |before, generation| sessions.stands(line(before?, 0), &stood(generation, 0, None));
        assert_eq!(sessions.stands(None, &stood(1, 0, None)), None);
        assert_eq!(stands(Some(1), 2), None);
        assert_eq!(stands(Some(1), 1), None);
        assert_eq!(sessions.line(), line(2, 0));
        let why = stands(Some(2), 1);
        let told = "the ledger is in generation 1, but generation 2 was seen";
        assert_eq!(why.as_deref(), Some(told));
    }

    fn line(generation: i64, adoptions: i64) -> Option<Line> {
        Some(Line { generation, adoptions })
    }

    fn stood(generation: i64, adoptions: i64, left_at: Option<i64>) -> Stood<'static> {
        let line = Line { generation, adoptions };
        Stood { line, timeline: "00000002", left_at, called_for: false }
    }

    /// What an act has seen must be there after an adoption, whenever its answer is read.
    #[test]
    fn an_adoption_that_lacks_what_was_seen_is_held_against_the_server() {
        let why = |known: i64, late: Option<i64>| {
            let sessions = Sessions::new(PgSettings {
                options: PgConnectOptions::new(),
                connections_max: 1,
                timeout: Duration::from_secs(1),
            });
            sessions.stands(None, &stood(1, 0, None));
            sessions.saw(line(1, 0), known);
            let found = sessions.stands(line(1, 0), &stood(1, 1, Some(100)));
            late.into_iter().for_each(|flushed| sessions.saw(line(1, 0), flushed));
            found.or(sessions.held_against())
        };
        assert_eq!(why(100, None), None);
        assert_eq!(why(100, Some(100)), None);
        assert!(why(101, None).is_some_and(|why| why.contains("100, but 101 was seen")));
        assert!(why(5, Some(101)).is_some_and(|why| why.contains("100, but 101 was seen")));
    }
}
