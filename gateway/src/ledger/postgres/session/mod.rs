//! Sessions with Postgres: who owns a connection, and whether it is used again.

mod connecting;
mod failure;
mod standing;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::{LedgerError, Line};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::connecting::connect;
pub use self::connecting::{Unusable, pin_path};
pub use self::failure::{Failure, harmless, unreadable};
pub use self::standing::Stood;
use self::standing::{Halted, Standing};
use super::disasters::place;
use super::notices;

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
    /// The highest position that was seen flushed on that line: a server that is behind it has lost commits. It
    /// must be of the same moment as the line: a position from before a re-fence would speak against the ledger
    /// after it.
    pub seen: i64,
    _permit: OwnedSemaphorePermit,
}

/// The connections of a ledger.
///
/// Not a pool of the driver: there, a call that is given up half-way leaves its transaction open
/// for whoever comes next. Here a connection comes back only after the server has answered.
pub struct Sessions {
    settings: PgSettings,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<PgConnection>>,
    standing: Mutex<Standing>,
}

impl Sessions {
    /// No connection yet.
    pub fn new(settings: PgSettings) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(settings.connections_max)),
            idle: Mutex::new(Vec::new()),
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
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.settings.timeout, permit)
            .await
            .map_err(|_| LedgerError::Unavailable("all connections are in use".into()))?
            .map_err(|_| LedgerError::Unavailable("the ledger is closed".into()))?;
        // Looked at before: while this connects, the address may move and the ledger be re-fenced, and the
        // connection still lead to the server before.
        let (line, seen, timeline) = {
            let standing = self.standing();
            (standing.line(), standing.flushed(), standing.timeline().to_owned())
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
        // As one step, so that none is kept after those were closed.
        let standing = self.standing();
        if session.line == standing.line() {
            self.idle().push(session.connection);
        }
    }

    /// A session for a read that is answered as the present, unless something speaks against this server: it
    /// has lost commits, or another server was re-fenced in its place. A newer token may then have been given
    /// out for a state that cannot be seen here.
    pub async fn take_for_read(&self) -> Result<Session, LedgerError> {
        if self.held_against().is_some() {
            // It may have been re-fenced a moment ago.
            place(self, None).await?;
        }
        if let Some(error) = self.held_against() {
            return Err(error);
        }
        let session = self.take().await?;
        if self.held_against().is_none() {
            return Ok(session);
        }
        // It leads to a server that was started since.
        self.keep(session);
        place(self, None).await?;
        match self.held_against() {
            Some(error) => Err(error),
            None => self.take().await,
        }
    }

    /// Checks that what was read on this line is still the present: during the read this gateway may have
    /// learned something that speaks against the server.
    ///
    /// # Errors
    /// It may not be.
    pub fn still_present(&self, line: Option<Line>) -> Result<(), LedgerError> {
        if let Some(error) = self.held_against() {
            return Err(error);
        }
        match self.line() == line {
            true => Ok(()),
            false => Err(LedgerError::Unavailable(
                "the ledger was re-fenced or adopted meanwhile".into(),
            )),
        }
    }

    fn held_against(&self) -> Option<LedgerError> {
        self.standing().held_against()
    }

    /// A session for an act, unless this server was seen to have lost commits.
    pub async fn take_for_act(&self) -> Result<Session, LedgerError> {
        let halted = self.standing().halted();
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
            let _ = place(self, None).await;
        }
        let Some(why) = behind else { return answer };
        let halted = self.standing().halt(line, &why);
        if halted == Halted::Passed {
            let why = "the ledger was re-fenced or adopted meanwhile; nothing was applied";
            return Err(LedgerError::Unavailable(why.into()));
        }
        if halted == Halted::First {
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
        if let Some(rows) = &rows {
            let mut standing = self.standing();
            rows.iter().for_each(|row| standing.saw(line, flushed(row)));
        }
        Ok(rows)
    }

    /// Stores what this gateway holds against the server on this line, unless it was re-fenced or adopted
    /// since.
    pub async fn tell_others(&self, line: Line, why: &str) {
        let told = async {
            let mut session = self.take().await?;
            let call = sqlx::query(concat!("SELECT ", acts!(), ".halt_at($1, $2, $3)"))
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

    /// Takes note of where the ledger stands, as [`Standing::stands`] says. Returns what speaks against the
    /// server although the server does not say so.
    pub fn stands(&self, before: Option<Line>, stand: &Stood<'_>) -> Option<String> {
        let mut standing = self.standing();
        if standing.stands(before, stand) {
            self.idle().clear();
        }
        standing.halted().filter(|_| !stand.called_for)
    }

    /// Holds it against the server that it lost commits, or was replaced, unless it was re-fenced or adopted since.
    pub fn doubt(&self, line: Line, why: &str) {
        self.standing().doubt(line, why);
    }

    /// Takes note of whether the server that was asked just now says on this line that it must be re-fenced.
    pub fn tells(&self, line: Line, halted: Option<String>) {
        self.standing().tells(line, halted);
    }

    /// Takes note of whether a server with this start waits for a look.
    pub fn started(&self, started_us: i64, restarted: bool) {
        self.standing().started(started_us, restarted);
    }

    /// Takes note of which standbys the server's commits wait for.
    pub fn waits_for(&self, standbys: String) {
        self.standing().waits_for(standbys);
    }

    /// The latest line that this gateway has seen.
    pub fn line(&self) -> Option<Line> {
        self.standing().line()
    }

    /// The highest position that this gateway has seen flushed on the latest line.
    pub fn seen(&self) -> i64 {
        self.standing().flushed()
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

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, timeline: &str) -> Result<PgConnection, LedgerError> {
        let PgSettings { options, timeout, .. } = &self.settings;
        let connected = connect(options, *timeout, timeline, false).await;
        let (connection, started_us) =
            connected.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
        self.standing().connected(started_us);
        Ok(connection)
    }

    /// Whether the server can be used: a connection to it is made, and ended.
    pub async fn check(&self) -> Result<(), Unusable> {
        let PgSettings { options, timeout, .. } = &self.settings;
        match connect(options, *timeout, "", true).await {
            Ok((connection, _)) => {
                self.idle().push(connection);
                Ok(())
            }
            Err(error) => {
                let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                Err(Unusable { may_pass: error.may_pass(), text: format!("{error}{hint}") })
            }
        }
    }
}
