//! Lists of a bucket of very many objects beside those of a bucket of few, question by question in turn: a page must cost
//! what it holds.

use std::time::Instant;

use anyhow::{Result, ensure};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::s3::{Key, Request, texts};
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};

use super::{BUCKET, Site};
use crate::http::Connection;
use crate::load::histogram;
use crate::servers::quiet;

/// Objects of the smaller ledger.
const FEW: u64 = 10_000;
/// Objects of each resource.
const EACH: u64 = 100;
/// How many times longer the median answer may take.
const RATIO_MAX: f64 = 1.5;
/// Questions of each kind before it counts, and then.
const WARM: usize = 50;
const ASKED: usize = 400;
/// Places in the list from which is asked.
const PLACES: usize = 40;
/// Resources in one transaction.
const CHUNK: u64 = 1_000;

/// Of resources $1 to $2 the fence, and $3 objects.
const POSTGRES: [&str; 2] = [
    "INSERT INTO fencegate.fences (resource, token, lock_id, owner, hold, ttl_ms, deadline, acquired_at, renewed_at,
                                   objects, grants, live_token)
     SELECT 'lake:r' || lpad(n::text, 7, '0'), n + 1, gen_random_uuid(), 'fill', 'held', 86400000,
            now() + interval '24 hours', now(), now(), $3::bigint, 1, n + 1
     FROM generate_series($1::bigint, $2::bigint) n",
    "INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256, written_at, body)
     SELECT 'lake:r' || lpad(n::text, 7, '0'), 'part-' || lpad(k::text, 5, '0'), k + 1, 0, 'text/plain', 20,
            decode(repeat('00', 32), 'hex'), now(), decode(repeat('ab', 20), 'hex')
     FROM generate_series($1::bigint, $2::bigint) n, generate_series(0, $3::bigint - 1) k",
];
const SQLITE: [&str; 2] = [
    "INSERT INTO fences (resource, token, lock_id, owner, hold, ttl_ms, deadline_ms, acquired_at, renewed_at, version,
                         last_seq, objects, grants, live_token)
     WITH RECURSIVE numbers (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
     SELECT printf('lake:r%07d', n), n + 1, printf('%08x-0000-7000-8000-%012x', n, n), 'fill', 'held', 86400000,
            9000000000000, 0, 0, ?3, 0, ?3, 1, n + 1 FROM numbers",
    "INSERT INTO objects (resource, key, version, generation, content_type, size, sha256, written_at, body)
     WITH RECURSIVE numbers (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2),
                    keys (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM keys WHERE k < ?3 - 1)
     SELECT printf('lake:r%07d', n), printf('part-%05d', k), k + 1, 0, 'text/plain', 20, zeroblob(32), 0, zeroblob(20)
     FROM numbers, keys",
];

/// Measures on both ledgers.
///
/// # Errors
/// What could not be measured.
pub async fn measured(many: u64) -> Result<bool> {
    ensure!(many >= FEW, "--objects is at least {FEW}");
    let of_sqlite = [embedded(FEW).await?, embedded(many).await?];
    let mut all_well = compared("SQLite", &of_sqlite, many).await?;
    drop(of_sqlite);
    let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
    let of_postgres =
        [clustered(&postgres, &etcd, FEW).await?, clustered(&postgres, &etcd, many).await?];
    all_well &= compared("Postgres", &of_postgres, many).await?;
    Ok(all_well)
}

/// The numbers of resources, in chunks, with progress.
fn chunks(objects: u64) -> impl Iterator<Item = (i64, i64)> {
    let (resources, begun) = (objects / EACH, Instant::now());
    let mut tenths = 0;
    (0..resources).step_by(CHUNK as usize).map(move |from| {
        if from * 10 / resources > tenths {
            tenths = from * 10 / resources;
            println!("filling: {} of {objects} objects after {:.0?}", from * EACH, begun.elapsed());
        }
        (from as i64, ((from + CHUNK).min(resources) - 1) as i64)
    })
}

/// A gateway on SQLite with so many objects in its bucket.
async fn embedded(objects: u64) -> Result<Site> {
    let mut site = Site::start(quiet(Gateway::embedded())).await;
    site.gateway.term();
    site.gateway.wait_for_exit().await;
    let ledger = site.gateway.data_dir().join("ledger.sqlite");
    let mut connection: SqliteConnection =
        SqliteConnectOptions::new().filename(ledger).connect().await?;
    connection.execute("PRAGMA synchronous = OFF").await?;
    for (from, to) in chunks(objects) {
        let mut transaction = connection.begin().await?;
        for rows in SQLITE {
            sqlx::query(rows)
                .bind(from)
                .bind(to)
                .bind(EACH as i64)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
    }
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
    connection.close().await?;
    site.gateway.restart().await;
    Ok(site)
}

/// A gateway on Postgres with so many objects in its bucket.
async fn clustered(postgres: &Postgres, etcd: &Etcd, objects: u64) -> Result<Site> {
    let ledger = postgres.database().await;
    let prefix = format!("{}{objects}", etcd.prefix());
    let mut site = Site::start(quiet(Gateway::clustered(&ledger, &etcd.endpoint(), &prefix))).await;
    site.gateway.term();
    site.gateway.wait_for_exit().await;
    let mut connection = postgres.connect(database_in(&ledger)).await;
    connection.execute("SET synchronous_commit = off").await?;
    for (from, to) in chunks(objects) {
        for rows in POSTGRES {
            sqlx::query(rows)
                .bind(from)
                .bind(to)
                .bind(EACH as i64)
                .execute(&mut connection)
                .await?;
        }
    }
    connection.execute("VACUUM (ANALYZE)").await?;
    site.gateway.restart().await;
    Ok(site)
}

/// A kind of list.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// 1,000 objects, one after the other.
    Page,
    /// 25 folders of the bucket, each told as one.
    Folders,
    /// All of one folder.
    Folder,
}

impl Kind {
    const ALL: [(Self, &str); 3] = [
        (Self::Page, "a page of 1,000"),
        (Self::Folders, "25 folders"),
        (Self::Folder, "one folder of 100"),
    ];

    /// The question from this resource on, what its items are called, and how many it must have.
    fn question(self, number: u64) -> (Request, &'static str, usize) {
        let list = Request::get(&format!("/{BUCKET}")).query("list-type", "2");
        let folder = format!("r{number:07}/");
        match self {
            Self::Page => (list.query("start-after", &folder), "Key", 1000),
            Self::Folders => {
                let list = list.query("start-after", &folder).query("delimiter", "/");
                (list.query("max-keys", "25"), "CommonPrefixes", 25)
            }
            Self::Folder => (list.query("prefix", &folder).query("delimiter", "/"), "Key", 100),
        }
    }
}

/// Whoever lists one of the two buckets.
struct Reader<'a> {
    site: &'a Site,
    key: Key,
    resources: u64,
    connection: Connection,
    micros: Histogram<u64>,
}

impl<'a> Reader<'a> {
    async fn new(site: &'a Site, kind: Kind, objects: u64) -> Result<Self> {
        let (_, key) = site.lock(&format!("reader-{kind:?}")).await?;
        let connection = Connection::open(site.at).await?;
        Ok(Self { site, key, resources: objects / EACH, connection, micros: histogram() })
    }

    /// Asks from places anywhere in the first half.
    fn questions(&self, kind: Kind) -> Vec<(Vec<u8>, &'static str, usize)> {
        let mut random = StdRng::seed_from_u64(7);
        let any = |_| {
            let (request, item, count) = kind.question(random.random_range(0..self.resources / 2));
            (request.sign(self.site.at, &self.key).head(0), item, count)
        };
        (0..PLACES).map(any).collect()
    }

    async fn ask(
        &mut self,
        (question, item, count): &(Vec<u8>, &str, usize),
        counts: bool,
    ) -> Result<()> {
        let began = Instant::now();
        let answer = self.connection.ask(question).await?;
        let took = began.elapsed();
        ensure!(answer.status == 200, "{}", answer.body.escape_ascii());
        if counts {
            self.micros.saturating_record(took.as_micros() as u64);
        } else {
            let found = texts(std::str::from_utf8(answer.body)?, item).len();
            ensure!(found == *count, "{found} times {item} in a list, not {count}");
        }
        Ok(())
    }
}

async fn compared(ledger: &str, sites: &[Site; 2], many: u64) -> Result<bool> {
    let mut all_well = true;
    for (kind, what) in Kind::ALL {
        let mut readers =
            [Reader::new(&sites[0], kind, FEW).await?, Reader::new(&sites[1], kind, many).await?];
        let questions = [readers[0].questions(kind), readers[1].questions(kind)];
        for number in 0..WARM + ASKED {
            for (reader, questions) in readers.iter_mut().zip(&questions) {
                reader.ask(&questions[number % PLACES], number >= WARM).await?;
            }
        }
        let [few, large] =
            [0, 1].map(|at| readers[at].micros.value_at_quantile(0.5) as f64 / 1000.0);
        let ratio = large / few;
        let is_met = ratio <= RATIO_MAX;
        all_well &= is_met;
        println!(
            "{ledger}, {what}: p50 {large:.2} ms with {many} objects, {few:.2} ms with {FEW}: {ratio:.2}, wanted at most \
             {RATIO_MAX}{}",
            if is_met { "" } else { ": NOT MET" }
        );
    }
    Ok(all_well)
}
