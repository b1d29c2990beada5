//! A gateway with two principals, and what the one that means harm sends to it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fence_core::wire::{Lock, PrincipalUsage, UsageList};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::{eventually, free_port, loopback};
use fence_tests::s3::{self, Request};
use reqwest::Method;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tokio::time::sleep;

use super::Way;
use crate::flood::{AT_ONCE, Again, BUSY, EVERY, Flood, in_turn, under};
use crate::servers::{body, quiet};

/// Larger payloads go to the store.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Items that wait in a queue. One principal may have half of them, and asks for ten times that.
const QUEUE_MAX: usize = 256;
const MANY_WAITING: usize = QUEUE_MAX / 2 * 10;
/// Time for which a call stands in line (`request_timeout`): then as many ask again, all at once.
const WAITS: Duration = Duration::from_secs(4);
/// Resources that an idle transaction guards.
const GUARDED: usize = 120;
/// Ten times the places for uploads that one principal has, where S3 is spoken.
const MANY_UPLOADS: usize = 80;
const MIB: usize = 1 << 20;
/// Interval between looks at who waits.
const LOOKS: Duration = Duration::from_millis(50);

const MAY: &str = "allow = [\"lock\", \"write\", \"clear\", \"read\", \"list\", \"observe\"]\nresources = [\"*\"]";
/// Fills a resource with more objects than one act removes.
const FILL: &str = "
    INSERT INTO fencegate.objects
        (resource, key, version, generation, content_type, size, sha256, written_at, body)
    SELECT 'large', 'k' || n, 1, 0, 'text/plain', 1, sha256('x'), now(), 'x'
    FROM generate_series(1, 10001) n;
    UPDATE fencegate.fences SET objects = 10001 WHERE resource = 'large'";
const MAY_GUARD: &str = "
    CREATE ROLE ann; GRANT USAGE ON SCHEMA fencegate TO ann;
    GRANT EXECUTE ON FUNCTION fencegate.guard(text, bigint, uuid) TO ann";
const WAITING: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid))";

/// A gateway on etcd and Postgres with two principals: `ann`, who means harm, and `bob`.
pub struct Site {
    /// The gateway.
    pub gateway: Gateway,
    /// The key of `bob`.
    pub bob: Key,
    ann: Key,
    s3: SocketAddr,
    /// Locks of `ann`: of the resource with many objects, and of one in a bucket.
    large: Lock,
    copied: Lock,
    /// Guarded transactions so far.
    guarded: usize,
    database: String,
    looker: PgConnection,
    postgres: Postgres,
    _etcd: Etcd,
}

/// A load, and where it goes.
pub struct Load {
    /// The load.
    pub flood: Arc<Flood>,
    /// The address of the gateway that it is meant for.
    pub at: SocketAddr,
    /// The transaction that it waits for.
    pub idle: Option<Idle>,
}

/// A guarded transaction that is left open, until this is dropped.
pub struct Idle {
    _connection: PgConnection,
    pid: i32,
}

impl Site {
    /// Starts it, with all that the ways need.
    pub async fn start() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        let database = postgres.database_name().await;
        let s3 = loopback(free_port());
        let settings =
            Gateway::clustered(&postgres.url(&database), &etcd.endpoint(), &etcd.prefix())
                .flag("--s3-listen", &s3.to_string())
                .flag("--inline-bytes-max", &INLINE_BYTES_MAX.to_string())
                .env("FENCEGATE_QUEUE_MAX", &QUEUE_MAX.to_string());
        let gateway = quiet(settings).start().await;
        let (rules, ann, bob) = (Rules::new().await, Key::new().await, Key::new().await);
        let fast = format!("{MAY}\nrate = 1000000");
        let text = rules.admin()
            + &role("plain", MAY)
            + &role("fast", &fast)
            + &principal("bob", "fast", &[&bob])
            + &principal("ann", "plain", &[&ann])
            + "postgres_roles = [\"ann\"]\n";
        rules.put_in_force(&gateway, &text).await;
        let client = gateway.client();
        eventually("the rules are known", async || {
            (client.get("/status").send().await.status == 401).then_some(())
        })
        .await;
        let make = client.call(Method::PUT, "/buckets/lake");
        let make = make.header("content-type", "application/json");
        rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
        let large = locked(&gateway, &ann, "large").await;
        let copied = locked(&gateway, &ann, "lake:a").await;
        for (key, bytes) in [("small", 2 * INLINE_BYTES_MAX), ("large", 2 * MIB)] {
            let put = client.put("lake:a", key, body(bytes)).under(&copied);
            ann.by(put).send().await.expect(201);
        }
        postgres.execute(&database, FILL).await;
        let delete = ann.by(client.delete_resource("large").under(&large));
        delete.send().await.refused(409, "too-many-objects");
        postgres.execute(&database, MAY_GUARD).await;
        let looker = postgres.connect(&database).await;
        let (guarded, _etcd) = (0, etcd);
        Self { gateway, bob, ann, s3, large, copied, guarded, database, looker, postgres, _etcd }
    }

    /// Takes a lock that lasts for all of the measurement.
    pub async fn lock(&self, by: &Key, resource: &str) -> Lock {
        locked(&self.gateway, by, resource).await
    }

    /// The load of a way, with all that it needs anew.
    ///
    /// # Errors
    /// A transaction that guards nothing.
    pub async fn load(&mut self, way: Way) -> Result<Load> {
        let own = self.gateway.address();
        let (flood, at, idle) = match way {
            Way::Guarded => {
                let (idle, waits) = self.guarded().await?;
                let again = (in_turn(waits, 1), WAITS);
                (of(MANY_WAITING, Vec::new(), again), own, Some(idle))
            }
            Way::Deletes => {
                let path = "/resources/large";
                let delete = under(&self.ann, "DELETE", path, Some(&self.large), b"");
                (of(BUSY, Vec::new(), (in_turn(vec![delete], AT_ONCE), EVERY)), own, None)
            }
            Way::Copies => {
                let copies = in_turn(self.copies("/lake/a/small", BUSY), AT_ONCE);
                (of(BUSY, Vec::new(), (copies, EVERY)), self.s3, None)
            }
            Way::LargeCopies => {
                let copies = in_turn(self.copies("/lake/a/large", MANY_UPLOADS), 1);
                (of(MANY_UPLOADS, Vec::new(), (copies, Duration::from_secs(1))), self.s3, None)
            }
            Way::Uploads => {
                let path = "/resources/lake:a/objects/slow";
                let mut begun = under(&self.ann, "PUT", path, Some(&self.copied), &body(64 * MIB));
                begun.truncate(begun.len() - 63 * MIB);
                let drop_by_drop: Again = Arc::new(|| vec![7]);
                (of(MANY_UPLOADS, begun, (drop_by_drop, Duration::from_secs(3))), own, None)
            }
        };
        Ok(Load { flood: Arc::new(flood), at, idle })
    }

    /// A transaction that guards many resources and is left open, and requests that wait for it.
    async fn guarded(&mut self) -> Result<(Idle, Vec<Vec<u8>>)> {
        self.guarded += 1;
        let mut begun = String::from("SET SESSION AUTHORIZATION ann; BEGIN;");
        let mut waits = Vec::new();
        for number in 0..GUARDED {
            let resource = format!("ann:{}:{number}", self.guarded);
            let lock = self.lock(&self.ann, &resource).await;
            let (token, id) = (lock.token, lock.id);
            write!(begun, "SELECT fencegate.guard('{resource}', {token}, '{id}');")?;
            let (path, object) =
                (format!("/locks/{id}"), format!("/resources/{resource}/objects/k"));
            waits.extend([
                under(&self.ann, "POST", &format!("{path}/renew"), None, b"{}"),
                under(&self.ann, "PUT", &object, Some(&lock), &body(1024)),
                under(&self.ann, "DELETE", &path, None, b""),
            ]);
        }
        let mut connection = self.postgres.connect(&self.database).await;
        let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await?;
        connection.execute(AssertSqlSafe(begun)).await.context("a guarded transaction")?;
        Ok((Idle { _connection: connection, pid }, waits))
    }

    /// Copies of this object, each to a key of its own.
    fn copies(&self, from: &str, count: usize) -> Vec<Vec<u8>> {
        let key = s3::Key::of(&self.copied);
        let copy = |number| {
            let copy = Request::copy(&format!("/lake/a/copy{number}"), from);
            copy.sign(self.s3, &key).head(0)
        };
        (0..count).map(copy).collect()
    }

    /// Requests of `ann` so far, and refusals of them since she has her share.
    ///
    /// # Errors
    /// She has asked for nothing.
    pub async fn usage(&self) -> Result<PrincipalUsage> {
        let usage = self.bob.by(self.gateway.client().get("/admin/usage")).send().await;
        let usage: UsageList = usage.expect(200).parse();
        let mut all = usage.items.into_iter();
        all.find(|usage| usage.principal.as_str() == "ann").context("no usage of ann")
    }

    /// Waits until something waits for this transaction.
    ///
    /// # Errors
    /// Postgres does not tell.
    pub async fn until_waiting(&mut self, idle: &Idle) -> Result<()> {
        loop {
            let waiting = sqlx::query_scalar::<_, i64>(WAITING).bind(idle.pid);
            if waiting.fetch_one(&mut self.looker).await? > 0 {
                return Ok(());
            }
            sleep(LOOKS).await;
        }
    }
}

async fn locked(gateway: &Gateway, by: &Key, resource: &str) -> Lock {
    let wish = json!({ "resource": resource, "ttl": "24h" });
    by.by(gateway.client().lock(&wish)).send().await.expect(201).parse()
}

fn of(connections: usize, first: Vec<u8>, again: (Again, Duration)) -> Flood {
    Flood { connections, first, again: Some(again), reads_per_second: None }
}
