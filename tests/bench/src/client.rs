//! What a write costs a program: processor time of this process by fencegate-client, beside the same request by bare
//! reqwest.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fence_tests::gateway::Gateway;
use fencegate_client::{Client as Fencegate, Lock};
use futures::future::try_join_all;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use crate::beside::ROUNDS;
use crate::callers::{digest, headers};
use crate::report::Spread;
use crate::servers::{body, quiet};

/// So much more than bare reqwest the client may take for a write, in microseconds.
const MORE_MAX_US: f64 = 20.0;

/// How the client is measured.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// How often each is measured
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// How many writes are measured at a time
    #[arg(long, default_value_t = 8_000)]
    writes: usize,
    /// Callers, each with a lock of its own
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// How large a body is, in bytes
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Only by the client, or only by bare reqwest: to look at one of them with a profiler
    #[arg(long)]
    only: Option<Way>,
}

/// How a write is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// By fencegate-client
    Client,
    /// By bare reqwest
    Bare,
}

impl Client {
    /// Measures both in turn, and prints what comes out. Says whether the client takes no more than it may.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(
            self.rounds > 0 && self.writes >= self.callers && self.callers > 0,
            "all are above 0"
        );
        let gateway = quiet(Gateway::embedded()).start().await;
        let url = gateway.url();
        // One thread, so that it is not measured how threads take work from each other.
        let measured = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.measure(&url))
        });
        let measured = tokio::task::spawn_blocking(move || measured.join());
        measured.await?.map_err(|_| anyhow::anyhow!("the measurement has panicked"))?
    }

    async fn measure(&self, url: &str) -> Result<bool> {
        let client = Fencegate::builder(url).owner("bench").build()?;
        let locks = (0..self.callers).map(|number| {
            client.lock(format!("client{number}")).ttl(Duration::from_secs(3_600)).acquire()
        });
        let locks: Vec<Arc<Lock>> = try_join_all(locks).await?.into_iter().map(Arc::new).collect();
        let bare = Bare::new(url, &client, self.callers, self.bytes).await?;
        let body = Bytes::from(body(self.bytes));
        // Connections are opened, and code is warm.
        by_client(&locks, &body, self.writes / 8).await?;
        bare.write(&body, self.writes / 8).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            // Whoever comes second may find the machine warmer.
            for way in
                if round % 2 == 0 { [Way::Bare, Way::Client] } else { [Way::Client, Way::Bare] }
            {
                if self.only.is_some_and(|only| only != way) {
                    continue;
                }
                let before = cpu_us();
                let written = match way {
                    Way::Client => by_client(&locks, &body, self.writes).await?,
                    Way::Bare => bare.write(&body, self.writes).await?,
                };
                let each = (cpu_us() - before) / written as f64;
                println!("round {round} of {}: {way:?} {each:.1} us", self.rounds);
                if way == Way::Client { ours.push(each) } else { theirs.push(each) }
            }
        }
        for lock in locks {
            lock.release().await;
        }
        let more = Spread::of(ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs));
        let [ours, theirs] = [ours, theirs].map(|each| Spread::of(each.into_iter()));
        println!(
            "\nprocessor time for a write of {} bytes, in us, as median (least-most):",
            self.bytes
        );
        println!("fencegate-client {ours}\nbare reqwest {theirs}");
        let is_met = self.only.is_some() || more.median <= MORE_MAX_US;
        let not = if is_met { "" } else { ": NOT MET" };
        println!("more, round by round {more}, wanted: at most {MORE_MAX_US}{not}");
        Ok(is_met)
    }
}

/// Processor time of this process so far, by user and system, in microseconds.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// So many puts under these locks, by all at once. Says how many there were.
async fn by_client(locks: &[Arc<Lock>], body: &Bytes, writes: usize) -> Result<usize> {
    let each = writes / locks.len();
    let callers = locks.iter().map(async |lock| {
        for _ in 0..each {
            lock.put("k", body.clone()).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(callers).await?;
    Ok(each * locks.len())
}

/// What bare reqwest sends: what the client does, with everything in it made as plainly as can be.
struct Bare {
    http: reqwest::Client,
    locks: Vec<BareLock>,
}

struct BareLock {
    lock: Lock,
    url: String,
    headers: HeaderMap,
    last: std::sync::atomic::AtomicU64,
}

impl Bare {
    async fn new(url: &str, client: &Fencegate, callers: usize, bytes: usize) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().http1_only().pool_max_idle_per_host(64);
        let digest = digest(&body(bytes));
        let locks = (0..callers)
            .map(|number| client.lock(format!("bare{number}")).ttl(Duration::from_secs(3_600)));
        let locks = try_join_all(locks.map(fencegate_client::LockBuilder::acquire)).await?;
        let locks = locks.into_iter().map(|lock| {
            let (token, id) = (lock.token().to_string(), lock.id().to_string());
            let mut headers_of_all = HeaderMap::new();
            // Those that differ from write to write are put in their places each time.
            for (name, value) in headers([&token, &id, "", "", "", &digest]) {
                let name = HeaderName::from_static(name);
                headers_of_all.insert(name, HeaderValue::from_str(value)?);
            }
            let resource = lock.resources().first().context("a lock has a resource")?;
            let url = format!("{url}/resources/{resource}/objects/k");
            Ok(BareLock { url, lock, headers: headers_of_all, last: 0.into() })
        });
        Ok(Self { http: http.build()?, locks: locks.collect::<Result<_>>()? })
    }

    async fn write(&self, body: &Bytes, writes: usize) -> Result<usize> {
        let each = writes / self.locks.len();
        let callers = self.locks.iter().map(async |lock| {
            for _ in 0..each {
                let mut headers = lock.headers.clone();
                let number = lock.last.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                let (key, id) = (Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
                headers.insert("idempotency-key", HeaderValue::from_str(&key)?);
                headers.insert("x-request-id", HeaderValue::from_str(&id)?);
                headers.insert("x-fence-seq", HeaderValue::from(number));
                let put = self.http.put(&lock.url).headers(headers).body(body.clone());
                let answer = put.send().await?;
                let status = answer.status();
                let said = answer.bytes().await?;
                ensure!(status.is_success(), "{status}: {}", said.escape_ascii());
            }
            lock.lock.check()?;
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(callers).await?;
        Ok(each * self.locks.len())
    }
}
