//! The principal that asks for little: small writes, locks, and payloads that take a place among uploads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::site::{INLINE_BYTES_MAX, Site};
use crate::callers::lock_and_release;
use crate::flood::under;
use crate::http::{Connection, request};
use crate::servers::body;

/// Kinds of requests, and how many callers make each.
pub const KINDS: [&str; 3] = ["writes", "locks", "payloads"];
const CALLERS: [usize; 3] = [16, 4, 4];
/// Pause of a caller that was refused.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval at which each caller of a kind asks; none as soon as it is answered.
pub type Paces = [Option<Duration>; 3];

/// Callers of the principal.
pub struct Bob {
    at: SocketAddr,
    asks: [Vec<Arc<Ask>>; 3],
}

/// Request of one caller, made again and again.
enum Ask {
    Put(Vec<u8>),
    Lock { acquire: Vec<u8>, bearer: String },
}

/// Callers that go on.
pub struct Going {
    /// Their tasks.
    pub tasks: JoinSet<()>,
    answered: [Arc<AtomicU64>; 3],
}

impl Bob {
    /// Takes the locks, and asks for everything once.
    ///
    /// # Errors
    /// Whatever is not answered as wanted.
    pub async fn new(site: &Site) -> Result<Self> {
        let at = site.gateway.address();
        let mut asks = [const { Vec::new() }; 3];
        for (kind, bytes) in [(0, 1024), (2, 2 * INLINE_BYTES_MAX)] {
            for number in 0..CALLERS[kind] {
                let resource = format!("bob:{}:{number}", KINDS[kind]);
                let lock = site.lock(&site.bob, &resource).await;
                let path = format!("/resources/{resource}/objects/k");
                let put = under(&site.bob, "PUT", &path, Some(&lock), &body(bytes));
                asks[kind].push(Arc::new(Ask::Put(put)));
            }
        }
        for number in 0..CALLERS[1] {
            let bearer = format!("Bearer {}", site.bob.text);
            // One that was not released is free again soon.
            let wish = format!(r#"{{"resource":"bob:locks:{number}","ttl":"2s"}}"#);
            let headers = [("authorization", &*bearer), ("content-type", "application/json")];
            let acquire = request("POST", "/locks", &headers, wish.as_bytes());
            asks[1].push(Arc::new(Ask::Lock { acquire, bearer }));
        }
        let mut connection = Connection::open(at).await?;
        for (kind, some) in KINDS.iter().zip(&asks) {
            for ask in some {
                ask.once(&mut connection).await.with_context(|| format!("one of the {kind}"))?;
            }
        }
        Ok(Self { at, asks })
    }

    /// Intervals half as fast as these answers came.
    pub fn paces(&self, per_second: [f64; 3]) -> Paces {
        let pace = |kind: usize| {
            let every = 2.0 * CALLERS[kind] as f64 / per_second[kind];
            Duration::try_from_secs_f64(every).ok()
        };
        [pace(0), pace(1), pace(2)]
    }

    /// Has all of them go on.
    pub fn begin(&self, paces: Paces) -> Going {
        let mut going = Going { tasks: JoinSet::new(), answered: Default::default() };
        for (kind, asks) in self.asks.iter().enumerate() {
            for (number, ask) in asks.iter().enumerate() {
                let answered = Arc::clone(&going.answered[kind]);
                let part = number as f64 / asks.len() as f64;
                let pace = paces[kind].map(|every| (every, every.mul_f64(part)));
                going.tasks.spawn(keep_on(self.at, Arc::clone(ask), pace, answered));
            }
        }
        going
    }
}

impl Going {
    /// Answers so far, by kind.
    pub fn answered(&self) -> [u64; 3] {
        std::array::from_fn(|kind| self.answered[kind].load(Ordering::Relaxed))
    }
}

impl Ask {
    async fn once(&self, connection: &mut Connection) -> Result<()> {
        match self {
            Self::Put(put) => {
                let answer = connection.ask(put).await?;
                let text = || answer.body.escape_ascii();
                ensure!((200..202).contains(&answer.status), "{}: {}", answer.status, text());
                Ok(())
            }
            Self::Lock { acquire, bearer } => {
                lock_and_release(connection, acquire, &[("authorization", bearer)]).await
            }
        }
    }
}

/// Asks for the same again and again, so often and after so long at first; counts what is answered as wanted. What was due while an
/// answer was late is not made up for.
async fn keep_on(
    at: SocketAddr,
    ask: Arc<Ask>,
    pace: Option<(Duration, Duration)>,
    answered: Arc<AtomicU64>,
) {
    let mut times = pace.map(|(every, first)| {
        let mut times = interval_at(Instant::now() + first, every);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        times
    });
    loop {
        if let Ok(mut connection) = Connection::open(at).await {
            loop {
                if let Some(times) = &mut times {
                    times.tick().await;
                }
                if ask.once(&mut connection).await.is_err() {
                    break;
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(PAUSE).await;
    }
}
