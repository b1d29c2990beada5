//! A line of waiters for one resource, each on a connection of its own, in which the lock is handed over.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fence_tests::client::resource_path;
use fence_tests::gateway::Gateway;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::http::{Connection, request};
use crate::load::{Measured, histogram};
use crate::sample::{Meter, Sample};
use crate::servers::{Clustered, Servers};

/// Hand-overs for each second that a measurement takes.
const PER_SECOND: f64 = 40.0;
/// How long a holder keeps the lock, so that its own return into the line is not measured with the next
/// hand-over.
const HOLDS: Duration = Duration::from_millis(5);
/// How many join in a second.
const JOINS_PER_SECOND: f64 = 2_000.0;
/// How long one waits that was turned away, such as when too many came at once.
const AGAIN: Duration = Duration::from_millis(100);
/// How long all may take to be in line.
const PATIENCE: Duration = Duration::from_secs(120);

/// A line on a ledger and a gateway that are new, so that nothing of it is left to tidy up while something else is
/// measured.
pub struct OwnLine {
    gateway: Gateway,
    database: String,
    line: Line,
}

impl OwnLine {
    /// Waits until one has the lock, so many are in line, and the lock was handed over a few times.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn form(servers: &Servers, waiters: usize) -> Result<Self> {
        let (database, settings) = servers.clustered()?.another().await?;
        let gateway = settings.start().await;
        let mut line = Line::form(gateway.address(), waiters).await?;
        line.hand_over(10).await?;
        Ok(Self { gateway, database, line })
    }

    /// Hands the lock over, again and again.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn sample(&mut self, servers: &Servers, lasts: Duration) -> Result<Sample> {
        let Clustered { postgres, etcd, .. } = servers.clustered()?;
        let gateway = self.gateway.pid();
        let meter = Meter::begin(&[gateway, postgres.pid(), etcd.pid()], Some(gateway));
        let count = (PER_SECOND * lasts.as_secs_f64()).ceil() as usize;
        let measured = self.line.hand_over(count).await?;
        let sample = meter.end(&measured);
        self.line.check()?;
        Ok(sample)
    }

    /// Lets all go, and drops the ledger.
    ///
    /// # Errors
    /// There is no Postgres.
    pub async fn end(mut self, servers: &Servers) -> Result<()> {
        self.gateway.kill9();
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        servers.clustered()?.postgres.execute("postgres", &drop).await;
        Ok(())
    }
}

/// Measures hand-overs while so many wait, in a line that is formed for them.
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn hand_over(servers: &Servers, waiters: usize, lasts: Duration) -> Result<Sample> {
    let mut line = OwnLine::form(servers, waiters).await?;
    let sample = line.sample(servers, lasts).await?;
    line.end(servers).await?;
    Ok(sample)
}

/// A holder, and those who wait for it.
pub struct Line {
    state: Arc<State>,
    members: JoinSet<Result<()>>,
}

struct State {
    address: SocketAddr,
    resource: String,
    /// One permit for each hand-over that is to come.
    moves: Semaphore,
    /// When the holder sent its release, and how long it took until the next one had its answer.
    times: Mutex<(Option<Instant>, Histogram<u64>)>,
    /// How many have been granted the lock.
    grants: watch::Sender<usize>,
}

impl Line {
    /// Waits until one has the lock of a new resource, and so many are in line.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn form(address: SocketAddr, waiters: usize) -> Result<Self> {
        let state = Arc::new(State {
            address,
            resource: format!("line:{}", Uuid::new_v4()),
            moves: Semaphore::new(0),
            times: Mutex::new((None, histogram())),
            grants: watch::Sender::new(0),
        });
        let mut members = JoinSet::new();
        for number in 0..=waiters {
            members.spawn(Arc::clone(&state).member(number));
        }
        let mut line = Self { state, members };
        let mut connection = Connection::open(address).await?;
        let ask = request("GET", &resource_path(&line.state.resource), &[], b"");
        let begun = Instant::now();
        loop {
            let length = match connection.ask(&ask).await? {
                answer if answer.status == 200 => {
                    let resource: Value = serde_json::from_slice(answer.body)?;
                    resource["queue_length"].as_u64().context("a resource without a line")?
                }
                _ => 0,
            };
            if length == waiters as u64 {
                return Ok(line);
            }
            line.check()?;
            ensure!(begun.elapsed() < PATIENCE, "{length} of {waiters} are in line");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Tells why a member has ended, which none does before the line.
    pub fn check(&mut self) -> Result<()> {
        self.members.try_join_next().map_or(Ok(()), |ended| ended?)
    }

    /// Hands the lock over so many times.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn hand_over(&mut self, count: usize) -> Result<Measured> {
        let mut grants = self.state.grants.subscribe();
        let until = *grants.borrow() + count;
        let begun = Instant::now();
        self.state.times().1 = histogram();
        self.state.moves.add_permits(count);
        let all = grants.wait_for(|grants| *grants >= until);
        let moved = tokio::time::timeout(PATIENCE, all).await;
        let micros = std::mem::replace(&mut self.state.times().1, histogram());
        self.check()?;
        ensure!(moved.is_ok(), "only {} of {count} were handed the lock", micros.len());
        let per_second = count as f64 / begun.elapsed().as_secs_f64();
        Ok(Measured { per_second, micros, answers: count as u64, beside: 0 })
    }
}

impl State {
    /// Waits, holds, gives the lock to the next one, and joins again.
    async fn member(self: Arc<Self>, number: usize) -> Result<()> {
        // The first one does not wait.
        let turn = Duration::from_secs_f64(number as f64 / JOINS_PER_SECOND);
        tokio::time::sleep(turn + AGAIN * u32::from(number > 0)).await;
        let mut connection = Connection::open_numbered(self.address, number).await?;
        loop {
            let id = Uuid::new_v4();
            self.wait(&mut connection, id, number).await?;
            self.moves.acquire().await?.forget();
            tokio::time::sleep(HOLDS).await;
            let release = request("DELETE", &format!("/locks/{id}"), &[], b"");
            self.times().0 = Some(Instant::now());
            let answer = connection.ask(&release).await?;
            ensure!(answer.status == 204, "{}: {}", answer.status, answer.body.escape_ascii());
        }
    }

    /// Waits for the lock, as long as it takes.
    async fn wait(&self, connection: &mut Connection, id: Uuid, number: usize) -> Result<()> {
        // Those who came together do not all come again together.
        let wait = format!("{}ms", 40_000 + number % 10_000);
        let body = json!({ "resource": self.resource, "owner": "bench", "ttl": "24h", "wait": wait,
                           "id": id });
        let headers = [("content-type", "application/json")];
        let acquire = request("POST", "/locks", &headers, body.to_string().as_bytes());
        loop {
            let answer = connection.ask(&acquire).await?;
            if answer.status == 201 {
                self.granted();
                return Ok(());
            }
            let problem: Value = serde_json::from_slice(answer.body).unwrap_or_default();
            match problem["code"].as_str() {
                Some("lock-wait-elapsed") => {}
                // With an id of its own, whatever was lost can be asked for again.
                _ if problem["retryable"] == true => tokio::time::sleep(AGAIN).await,
                _ => bail!("a waiter got {}: {problem}", answer.status),
            }
        }
    }

    fn granted(&self) {
        let mut times = self.times();
        if let Some(released_at) = times.0.take() {
            let took = u64::try_from(released_at.elapsed().as_micros()).unwrap_or(u64::MAX);
            times.1.saturating_record(took.max(1));
        }
        drop(times);
        self.grants.send_modify(|grants| *grants += 1);
    }

    fn times(&self) -> MutexGuard<'_, (Option<Instant>, Histogram<u64>)> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
