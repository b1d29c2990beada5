//! Disturbs the server's processes: some stand still for a while, calls are cancelled, sessions are ended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::PgConnection;

/// How many stand still at a time at most.
const STOPPED_MAX: usize = 3;

/// How often what was done.
#[derive(Debug, Default)]
pub struct Tally {
    stopped: AtomicU64,
    cancelled: AtomicU64,
    terminated: AtomicU64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [stopped, cancelled, terminated] = [&self.stopped, &self.cancelled, &self.terminated]
            .map(|count| count.load(Ordering::Relaxed));
        write!(f, "{stopped} stopped, {cancelled} cancelled, {terminated} terminated")
    }
}

/// Disturbs the sessions of one database.
pub struct Disturber {
    connection: PgConnection,
    database: String,
    rng: StdRng,
    standing: Arc<AtomicUsize>,
    tally: Arc<Tally>,
}

/// A session of the server, as it shows itself.
#[derive(Debug, Clone)]
struct Backend {
    pid: i32,
    is_idle: bool,
    is_waiting: bool,
}

impl Disturber {
    /// One with a connection of its own to another database.
    pub fn new(connection: PgConnection, database: String, seed: u64, tally: Arc<Tally>) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self { connection, database, rng, standing: Arc::default(), tally }
    }

    /// Goes on for so long; then waits until nothing stands still any more.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn disturb(mut self, lasts: Duration) -> sqlx::Result<()> {
        let until = tokio::time::Instant::now() + lasts;
        while tokio::time::Instant::now() < until {
            let pause_ms = self.rng.random_range(15..90);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            let backends = backends(&mut self.connection, &self.database).await?;
            match self.rng.random_range(0..100) {
                0..75 => self.stop(&backends),
                75..88 => self.cancel(&backends).await?,
                _ => self.terminate(&backends).await?,
            }
        }
        while self.standing.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Lets one stand still. One that is idle must do so for longer than a gateway waits for an answer, so that what it
    /// is sent meanwhile is done when nobody expects it any more; one that is in an act, briefly or for long.
    fn stop(&mut self, backends: &[Backend]) {
        if self.standing.load(Ordering::SeqCst) >= STOPPED_MAX {
            return;
        }
        let wanted = self.rng.random_range(0..4);
        let some: Vec<&Backend> = backends
            .iter()
            .filter(|one| match wanted {
                0 | 1 => one.is_idle,
                2 => one.is_waiting,
                _ => !one.is_idle,
            })
            .collect();
        let Some(one) = some.choose(&mut self.rng).copied().or(backends.choose(&mut self.rng))
        else {
            return;
        };
        let lasts_ms = match (one.is_idle, self.rng.random_bool(0.7)) {
            (true, _) => self.rng.random_range(850..1600),
            (false, true) => self.rng.random_range(2..60),
            (false, false) => self.rng.random_range(60..1200),
        };
        let Some(pid) = Pid::from_raw(one.pid) else { return };
        if kill_process(pid, Signal::STOP).is_err() {
            return;
        }
        self.tally.stopped.fetch_add(1, Ordering::Relaxed);
        self.standing.fetch_add(1, Ordering::SeqCst);
        let standing = Arc::clone(&self.standing);
        // A task of its own: what stands still may keep this one from being answered.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
            // An error means that it has ended.
            let _ended = kill_process(pid, Signal::CONT);
            standing.fetch_sub(1, Ordering::SeqCst);
        });
    }

    async fn cancel(&mut self, backends: &[Backend]) -> sqlx::Result<()> {
        let some: Vec<&Backend> = backends.iter().filter(|one| !one.is_idle).collect();
        let Some(one) = some.choose(&mut self.rng) else { return Ok(()) };
        let cancel = sqlx::query("SELECT pg_cancel_backend($1)").bind(one.pid);
        cancel.execute(&mut self.connection).await?;
        self.tally.cancelled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn terminate(&mut self, backends: &[Backend]) -> sqlx::Result<()> {
        let some: Vec<&Backend> = backends.iter().filter(|one| !one.is_idle).collect();
        let one = some.choose(&mut self.rng).copied().or(backends.choose(&mut self.rng));
        let Some(one) = one else { return Ok(()) };
        let end = sqlx::query("SELECT pg_terminate_backend($1)").bind(one.pid);
        end.execute(&mut self.connection).await?;
        self.tally.terminated.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn backends(connection: &mut PgConnection, database: &str) -> sqlx::Result<Vec<Backend>> {
    let rows: Vec<(i32, bool, bool)> = sqlx::query_as(
        "SELECT pid, state = 'idle' AS is_idle, wait_event_type IS NOT DISTINCT FROM 'Lock' AS is_waiting
         FROM pg_stat_activity
         WHERE datname = $1 AND backend_type = 'client backend' AND state IS NOT NULL",
    )
    .bind(database)
    .fetch_all(connection)
    .await?;
    let backend = |(pid, is_idle, is_waiting)| Backend { pid, is_idle, is_waiting };
    Ok(rows.into_iter().map(backend).collect())
}

/// Waits until no session of the database is left, so that all that was sent has been done or never will be.
///
/// # Errors
/// The server does not answer, or sessions do not end.
pub async fn all_ended(connection: &mut PgConnection, database: &str) -> anyhow::Result<()> {
    for _ in 0..1500 {
        if backends(connection, database).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::bail!("sessions of the round do not end")
}
