//! What stays behind under the fastest load: what is kept for a while must level off, and what stays for ever is told
//! in bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::stores::{Kind, Store};
use sqlx::{PgConnection, Row as _};

use crate::callers::put;
use crate::http::{Connection, request};
use crate::servers::{body, quiet};

/// What is kept for a while, by a name and how many there are.
const KEPT: [(&str, &str); 8] = [
    ("locks", "SELECT count(*) FROM fencegate.locks"),
    ("keys", "SELECT count(*) FROM fencegate.idempotency_keys"),
    (
        "burials",
        "SELECT (SELECT count(*) FROM fencegate.buried) + count(*)
         FROM fencegate.operations WHERE kind = 'buried'",
    ),
    ("rejections", "SELECT count(*) FROM fencegate.rejections"),
    ("waiters", "SELECT count(*) FROM fencegate.waiters"),
    ("uploads", "SELECT count(*) FROM fencegate.blob_intents"),
    ("garbage", "SELECT count(*) FROM fencegate.blob_garbage"),
    ("replaced versions", "SELECT count(*) FROM fencegate.replaced_versions"),
];
/// What is kept for ever, for each lock and for each write. The tree over the audit has a leaf for each lock.
const HISTORY: [(&str, &[&str]); 3] = [
    ("lock", &["grants", "audit"]),
    ("lock, in the tree,", &["audit_tiles"]),
    ("write", &["operations", "events"]),
];
/// From the middle to the end it may grow so many times, and by so many rows that come and go.
const GROWTH_MAX: f64 = 1.1;
const ROWS_MORE: f64 = 200.0;
/// How often it is looked.
const EVERY: Duration = Duration::from_secs(60);
/// How much of the history etcd keeps.
const COMPACTION: &str = "5m";
/// How long somebody waits who is turned away.
const PAUSE: Duration = Duration::from_millis(200);

/// How growth is measured.
#[derive(Debug, clap::Args)]
pub struct Growth {
    /// How long the load goes on, in minutes
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// Callers who take a lock, write under it with a key, and give it back
    #[arg(long, default_value_t = 64)]
    callers: usize,
}

/// How often what was done.
#[derive(Debug, Default)]
struct Done {
    locks: AtomicU64,
    writes: AtomicU64,
    blobs: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
    turned_away: AtomicU64,
}

/// What there was at one time.
struct Look {
    kept: [f64; KEPT.len()],
    etcd_bytes: f64,
    history_bytes: [f64; HISTORY.len()],
    locks: u64,
    writes: u64,
}

impl Growth {
    /// Measures, and prints what comes out. Says whether all levels off that must.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(self.minutes >= 4 && self.callers > 0, "4 minutes and one caller at least");
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::compacted(COMPACTION));
        let store = Store::start(Kind::S3).await;
        let ledger = postgres.database().await;
        let mut settings = quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &etcd.prefix()))
            .flag("--blobs", &store.url());
        let short = [
            ("KEYS_KEPT", "1m"),
            ("ENDED_LOCKS_KEPT", "1m"),
            ("BURIED_KEPT", "1m"),
            ("UPLOAD_TIMEOUT", "50s"),
            ("UPLOADS_KEPT", "1m"),
            ("READER_GRACE", "10s"),
            ("ROLLBACK_HORIZON", "1m"),
            ("REDELETE_AFTER", "30s"),
            ("REJECTIONS_MAX", "10000"),
        ];
        for (name, value) in short {
            settings = settings.env(&format!("FENCEGATE_{name}"), value);
        }
        for (name, value) in store.env(None) {
            settings = settings.env(name, &value);
        }
        let gateway = settings.start().await;
        let done = Arc::new(Done::default());
        let until = Instant::now() + self.minutes * EVERY;
        let load = tokio::spawn(load(gateway.address(), self.callers, Arc::clone(&done), until));
        let mut connection = postgres.connect(database_in(&ledger)).await;
        let mut looks = Vec::new();
        for minute in 1..=self.minutes {
            tokio::time::sleep_until((until - (self.minutes - minute) * EVERY).into()).await;
            let look = look(&mut connection, &etcd, &done).await?;
            println!("minute {minute}: {}", said(&look, &done));
            looks.push(look);
            ensure!(!load.is_finished() || minute == self.minutes, "the load has ended: {load:?}");
        }
        load.await??;
        Ok(judged(&looks))
    }
}

/// Everybody who asks, until a time.
async fn load(at: SocketAddr, callers: usize, done: Arc<Done>, until: Instant) -> Result<()> {
    let mut all = tokio::task::JoinSet::new();
    for number in 0..callers {
        all.spawn(cycle(at, number, Arc::clone(&done), until));
    }
    for number in 0..8 {
        all.spawn(leave(at, number, Arc::clone(&done), until));
        all.spawn(come_late(at, number, Arc::clone(&done), until));
    }
    for number in 0..2 {
        all.spawn(replace(at, number, Arc::clone(&done), until));
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// Takes a lock, writes under it with a key of its own, and gives it back.
async fn cycle(at: SocketAddr, number: usize, done: Arc<Done>, until: Instant) -> Result<()> {
    let mut connection = Connection::open(at).await?;
    let name = format!("cycle{number}");
    let acquire = acquire(&name, "30s", "");
    let body = body(1024);
    let mut round = 0_u64;
    while Instant::now() < until {
        let answer = connection.ask(&acquire).await?;
        if answer.status != 201 {
            turned_away(&done, answer.status, answer.body).await?;
            continue;
        }
        let lock: Lock = serde_json::from_slice(answer.body).context("a lock")?;
        done.locks.fetch_add(1, Ordering::Relaxed);
        round += 1;
        let (token, key) = (lock.token.to_string(), format!("{number}-{round}"));
        let headers = [("x-fence-token", token.as_str()), ("idempotency-key", key.as_str())];
        let answer =
            connection.ask(&request("PUT", &object_path(&name, "k"), &headers, &body)).await?;
        match answer.status {
            200 | 201 => done.writes.fetch_add(1, Ordering::Relaxed),
            status => {
                turned_away(&done, status, answer.body).await?;
                0
            }
        };
        let release = request("DELETE", &format!("/locks/{}", lock.id), &[], b"");
        while connection.ask(&release).await?.status == 503 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Waits for a lock that somebody has, and leaves.
async fn leave(at: SocketAddr, number: usize, done: Arc<Done>, until: Instant) -> Result<()> {
    let mut connection = Connection::open(at).await?;
    let name = format!("taken{number}");
    ensure!(connection.ask(&acquire(&name, "24h", "")).await?.status == 201, "{name} is taken");
    let wait = acquire(&name, "30s", r#","wait":"20ms""#);
    while Instant::now() < until {
        let answer = connection.ask(&wait).await?;
        match answer.status {
            409 => _ = done.left.fetch_add(1, Ordering::Relaxed),
            status => turned_away(&done, status, answer.body).await?,
        }
    }
    Ok(())
}

/// Writes under a lock that somebody else has got since.
async fn come_late(at: SocketAddr, number: usize, done: Arc<Done>, until: Instant) -> Result<()> {
    let mut connection = Connection::open(at).await?;
    let name = format!("lost{number}");
    let answer = connection.ask(&acquire(&name, "24h", "")).await?;
    let lost: Lock = serde_json::from_slice(answer.body).context("a lock")?;
    let release = request("DELETE", &format!("/locks/{}", lost.id), &[], b"");
    ensure!(connection.ask(&release).await?.status == 204, "{name} is given back");
    ensure!(connection.ask(&acquire(&name, "24h", "")).await?.status == 201, "{name} passes on");
    let late = put(&lost, &body(100));
    while Instant::now() < until {
        let answer = connection.ask(&late).await?;
        match answer.status {
            412 => _ = done.refused.fetch_add(1, Ordering::Relaxed),
            status => turned_away(&done, status, answer.body).await?,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Replaces a payload in the blob store.
async fn replace(at: SocketAddr, number: usize, done: Arc<Done>, until: Instant) -> Result<()> {
    let mut connection = Connection::open(at).await?;
    let name = format!("large{number}");
    let answer = connection.ask(&acquire(&name, "24h", "")).await?;
    let lock: Lock = serde_json::from_slice(answer.body).context("a lock")?;
    let large = put(&lock, &body(300_000));
    while Instant::now() < until {
        let answer = connection.ask(&large).await?;
        match answer.status {
            200 | 201 => _ = done.blobs.fetch_add(1, Ordering::Relaxed),
            status => turned_away(&done, status, answer.body).await?,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn acquire(name: &str, ttl: &str, more: &str) -> Vec<u8> {
    let body = format!(r#"{{"resource":"{name}","ttl":"{ttl}","owner":"bench"{more}}}"#);
    request("POST", "/locks", &[("content-type", "application/json")], body.as_bytes())
}

/// What is too much at the moment is asked for again; any other refusal is not expected.
async fn turned_away(done: &Done, status: u16, body: &[u8]) -> Result<()> {
    ensure!([409, 503].contains(&status), "{status}: {}", body.escape_ascii());
    done.turned_away.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

async fn look(connection: &mut PgConnection, etcd: &Etcd, done: &Done) -> Result<Look> {
    let mut kept = [0.0; KEPT.len()];
    for (count, (_, sql)) in kept.iter_mut().zip(KEPT) {
        *count = sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut *connection).await? as f64;
    }
    let mut history_bytes = [0.0; HISTORY.len()];
    for (bytes, (_, tables)) in history_bytes.iter_mut().zip(HISTORY) {
        for table in tables {
            let size = sqlx::query("SELECT pg_total_relation_size($1::regclass)");
            let row = size.bind(format!("fencegate.{table}")).fetch_one(&mut *connection).await?;
            *bytes += row.get::<i64, _>(0) as f64;
        }
    }
    let status = etcd.client().await.status().await?;
    Ok(Look {
        kept,
        etcd_bytes: status.raft_used_db_size() as f64,
        history_bytes,
        locks: done.locks.load(Ordering::Relaxed),
        writes: done.writes.load(Ordering::Relaxed) + done.blobs.load(Ordering::Relaxed),
    })
}

fn said(look: &Look, done: &Done) -> String {
    let kept = KEPT.iter().zip(look.kept).map(|((name, _), rows)| format!("{rows} {name}"));
    let Done { refused, left, turned_away, .. } = done;
    format!(
        "{}; etcd uses {:.1} MB; done so far: {} locks, {} writes, {} refused, {} left the line, {} turned away",
        kept.collect::<Vec<_>>().join(", "),
        look.etcd_bytes / 1e6,
        look.locks,
        look.writes,
        refused.load(Ordering::Relaxed),
        left.load(Ordering::Relaxed),
        turned_away.load(Ordering::Relaxed),
    )
}

/// Compares the end with the middle: of each the highest of some minutes.
fn judged(looks: &[Look]) -> bool {
    let some = (looks.len() / 6).max(1);
    let (middle, end) =
        (&looks[looks.len() / 2 - some..looks.len() / 2], &looks[looks.len() - some..]);
    let highest =
        |part: &[Look], of: &dyn Fn(&Look) -> f64| part.iter().map(of).fold(0.0, f64::max);
    let mut all_well = true;
    let mut judge = |what: &str, of: &dyn Fn(&Look) -> f64, more: f64| {
        let (before, after) = (highest(middle, of), highest(end, of));
        let is_well = after <= before * GROWTH_MAX + more;
        all_well &= is_well;
        let verdict = if is_well { "levels off" } else { "NOT MET" };
        println!("{what}: {before:.0} in the middle, {after:.0} at the end: {verdict}");
    };
    for (number, (name, _)) in KEPT.iter().enumerate() {
        judge(name, &|look| look.kept[number], ROWS_MORE);
    }
    judge("bytes in use of etcd", &|look| look.etcd_bytes, 0.0);
    if let (Some(first), Some(last)) = (looks.first(), looks.last()) {
        let locks = last.locks - first.locks;
        let done = [locks, locks, last.writes - first.writes];
        for (number, (what, tables)) in HISTORY.iter().enumerate() {
            let grown = last.history_bytes[number] - first.history_bytes[number];
            let each = grown / done[number].max(1) as f64;
            println!("history for each {what}: {each:.0} bytes ({})", tables.join(", "));
        }
    }
    all_well
}
