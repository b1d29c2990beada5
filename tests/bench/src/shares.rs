//! Shares: how much of its goodput a principal keeps while another asks for ten times its share, in each way that there is
//! of doing so; beside the same load sent to a socket that discards it, so that what the load itself costs is not counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::{interval, sleep};
use uuid::Uuid;

use crate::callers::Same;
use crate::flood::{AT_ONCE, Again, BUSY, EVERY, Flood, PAUSE, Sink, in_turn, under};
use crate::http::{Connection, request};
use crate::load::{Caller, Pace, measure};
use crate::report::Spread;
use crate::servers::{body, quiet, warm_up};
use crate::usage::allow_files;

/// So much of its goodput a principal must keep.
const KEPT_MIN: f64 = 0.9;
/// Connections that the gateway takes; one principal has a quarter of them.
const CONNECTIONS: usize = 400;
/// Ten times what a principal has of them.
const MANY_CONNECTIONS: usize = CONNECTIONS / 4 * 10;
/// Writers of the principal that is to keep its goodput, and how often it asks for something else beside.
const WRITERS: usize = 16;
const ASKS_EVERY: Duration = Duration::from_millis(50);

/// How shares are measured.
#[derive(Debug, clap::Args)]
pub struct Shares {
    /// Rounds for each way, without and with
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each lasts, in seconds
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Only the ways whose names have this in them
    #[arg(long, default_value = "")]
    way: String,
}

/// One way of asking for too much.
struct Way {
    name: &'static str,
    flood: Arc<Flood>,
    /// What the other principal asks for beside its writes, and how that must be answered.
    beside: (Vec<u8>, u16),
}

impl Shares {
    /// Measures, and prints what comes out. Says whether goodput is kept in all ways.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.rounds > 0 && self.seconds > 0, "there are rounds and seconds");
        allow_files(4 * MANY_CONNECTIONS as u64)?;
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        let settings =
            Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &etcd.prefix());
        let gateway = quiet(settings)
            .env("FENCEGATE_CONNECTIONS_MAX", &CONNECTIONS.to_string())
            .start()
            .await;
        let (rules, good, greedy) = (Rules::new().await, Key::new().await, Key::new().await);
        let may =
            "allow = [\"lock\", \"write\", \"read\", \"list\", \"observe\"]\nresources = [\"*\"]";
        let text = rules.admin()
            + &role("plain", may)
            + &role("fast", "allow = [\"write\"]\nresources = [\"*\"]\nrate = 1000000")
            + &principal("greedy", "plain", &[&greedy])
            + &format!(
                "[[principals]]\nname = \"good\"\nroles = [\"plain\", \"fast\"]\nkeys = [{}]\n",
                good.line
            );
        rules.put_in_force(&gateway, &text).await;
        let site = Site::new(gateway, good, greedy).await?;
        let sink = Sink::open().await?;
        let mut all_well = true;
        for way in site.ways().into_iter().filter(|way| way.name.contains(&self.way)) {
            let (mut kept, mut answered) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                let alone = self.beside(&site, &way, sink.address).await?;
                let with = self.beside(&site, &way, site.gateway.address()).await?;
                kept.push(with.0 / alone.0);
                answered.push(with.1 / alone.1);
            }
            let [kept, answered] = [kept, answered].map(|each| Spread::of(each.into_iter()));
            let is_well = kept.median >= KEPT_MIN && answered.median >= KEPT_MIN;
            all_well &= is_well;
            println!(
                "{}: writes kept {kept}, other calls {answered}, wanted {KEPT_MIN}{}",
                way.name,
                if is_well { "" } else { ": NOT MET" }
            );
        }
        Ok(all_well)
    }

    /// Writes a second, and other calls that were answered well, while this way of asking goes to an address.
    async fn beside(&self, site: &Site, way: &Way, to: SocketAddr) -> Result<(f64, f64)> {
        let mut flood = way.flood.begin(to);
        sleep(PAUSE).await;
        let lasts = Duration::from_secs(self.seconds);
        let at = site.gateway.address();
        let writers = site.puts.iter().map(|put| Writer::new(at, Arc::clone(put)));
        let writers = try_join_all(writers).await?;
        let answered = Arc::new(AtomicU64::new(0));
        let asks = tokio::spawn(ask_on(at, way.beside.clone(), Arc::clone(&answered)));
        let measured = measure(writers, Pace::Closed, warm_up(lasts), lasts).await;
        asks.abort();
        flood.shutdown().await;
        // What was under way of it ends.
        sleep(PAUSE).await;
        let measured = measured.context("a write of the one that asks for little")?;
        Ok((measured.per_second, answered.load(Ordering::Relaxed) as f64))
    }
}

/// Sends the same write again and again; over a new connection where the last was closed, as HTTP lets a server do.
struct Writer {
    at: SocketAddr,
    put: Arc<[u8]>,
    now: Same,
}

impl Writer {
    async fn new(at: SocketAddr, put: Arc<[u8]>) -> Result<Self> {
        let now = Same::new(at, Arc::clone(&put), 200..202).await?;
        Ok(Self { at, put, now })
    }
}

impl Caller for Writer {
    async fn call(&mut self) -> Result<()> {
        if self.now.call().await.is_ok() {
            return Ok(());
        }
        self.now = Same::new(self.at, Arc::clone(&self.put), 200..202).await?;
        self.now.call().await
    }
}

/// Asks for the same now and then, each time when the last is answered; counts what is answered as wanted.
async fn ask_on(at: SocketAddr, (question, status): (Vec<u8>, u16), answered: Arc<AtomicU64>) {
    let mut times = interval(ASKS_EVERY);
    times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let Ok(mut connection) = Connection::open(at).await else { continue };
        loop {
            times.tick().await;
            match connection.ask(&question).await {
                Ok(answer) if answer.status == status => {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}

/// A gateway with two principals.
struct Site {
    gateway: Gateway,
    good: Key,
    greedy: Key,
    /// Writes of the one that asks for little, each to its own resource.
    puts: Vec<Arc<[u8]>>,
    /// Its lock for large objects.
    large: Lock,
}

impl Site {
    async fn new(gateway: Gateway, good: Key, greedy: Key) -> Result<Self> {
        let client = gateway.client();
        let lock = async |resource: &str| -> Lock {
            let call = client.lock(&json!({ "resource": resource, "ttl": "24h" }));
            good.by(call).send().await.expect(201).parse()
        };
        let mut puts = Vec::new();
        for number in 0..WRITERS {
            let resource = format!("put{number}");
            let lock = lock(&resource).await;
            let path = format!("/resources/{resource}/objects/k");
            puts.push(under(&good, "PUT", &path, Some(&lock), &body(1024)).into());
        }
        let large = lock("large").await;
        lock("line").await;
        let put = good.by(client.put("large", "slow", body(8 << 20)).under(&large));
        put.send().await.expect(201);
        Ok(Self { gateway, good, greedy, puts, large })
    }

    /// Waiters that leave at once, each under an id of its own, so that their places are kept.
    fn ghosts(&self) -> Again {
        let authorization = format!("Bearer {}", self.greedy.text);
        Arc::new(move || {
            let one = || {
                let id = Uuid::new_v4();
                let wish = format!(r#"{{"resource":"line","ttl":"30s","wait":"1ms","id":"{id}"}}"#);
                let headers =
                    [("authorization", &*authorization), ("content-type", "application/json")];
                request("POST", "/locks", &headers, wish.as_bytes())
            };
            (0..10).flat_map(|_| one()).collect()
        })
    }

    /// The ways, each by what it was found as: what it takes of what all share.
    fn ways(&self) -> Vec<Way> {
        let greedy = |method: &str, path: &str, lock: Option<&Lock>, body: &[u8]| {
            under(&self.greedy, method, path, lock, body)
        };
        let line = br#"{"resource":"line","ttl":"30s","wait":"1ms"}"#;
        let look = (under(&self.good, "GET", "/resources/put0", None, b""), 200);
        let waits = (under(&self.good, "POST", "/locks", None, line), 409);
        let lists = (under(&self.good, "GET", "/audit?limit=1", None, b""), 200);
        let large_put = under(
            &self.good,
            "PUT",
            "/resources/large/objects/k",
            Some(&self.large),
            &body(1 << 20),
        );
        let feed = (under(&self.good, "GET", "/events?limit=1", None, b""), 200);
        // A token that nobody was given, of a lock that nobody has.
        let made_up = Lock { id: fence_core::LockId(Uuid::new_v4()), ..self.large.clone() };
        let refused = greedy("PUT", "/resources/large/objects/k", Some(&made_up), &[7; 100]);
        let in_a_row = |one: Vec<u8>| Some((in_turn(vec![one], AT_ONCE), EVERY));
        let ghosts = self.ghosts();
        let stalled = |bytes: usize, sent: usize| {
            let mut whole =
                greedy("PUT", "/resources/large/objects/k", Some(&made_up), &body(bytes));
            whole.truncate(whole.len() - bytes + sent);
            whole
        };
        let read_slowly = |reads_per_second, name, connections, first, again, beside| {
            let flood = Flood { connections, first, again, reads_per_second };
            Way { name, flood: Arc::new(flood), beside }
        };
        let way = |name, connections, first, again, beside| {
            read_slowly(None, name, connections, first, again, beside)
        };
        let drop_by_drop: Again = Arc::new(|| vec![7]);
        vec![
            way("writes that are refused", BUSY, Vec::new(), in_a_row(refused), look.clone()),
            way("bodies that stall", 512, stalled(255 << 10, (255 << 10) - 1), None, look.clone()),
            way(
                "uploads that dawdle",
                160,
                stalled(64 << 20, 1 << 20),
                Some((drop_by_drop, Duration::from_secs(3))),
                (large_put, 200),
            ),
            way(
                "connections that idle",
                MANY_CONNECTIONS,
                greedy("GET", "/resources/put0", None, b""),
                None,
                look.clone(),
            ),
            way("places in a line", BUSY, Vec::new(), Some((ghosts, EVERY)), waits),
            way(
                "questions of the ledger",
                BUSY,
                Vec::new(),
                in_a_row(greedy("GET", "/audit?action=grant&limit=1000", None, b"")),
                lists,
            ),
            way(
                "streams",
                MANY_CONNECTIONS,
                request(
                    "GET",
                    "/events",
                    &[
                        ("authorization", &format!("Bearer {}", self.greedy.text)),
                        ("accept", "text/event-stream"),
                    ],
                    b"",
                ),
                None,
                feed,
            ),
            read_slowly(
                Some(1024),
                "answers that are read slowly",
                MANY_CONNECTIONS,
                greedy("GET", "/resources/large/objects/slow", None, b""),
                None,
                look,
            ),
        ]
    }
}
