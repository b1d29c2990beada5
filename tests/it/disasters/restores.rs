//! Backups that are put back, of each kind that we know: who wrote late before is refused after, and a restore that a
//! gateway cannot notice by itself is one that the runbook names a command for.
//!
//! Those that take seconds are tried in the gate, all of them in the long runs.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::{eventually, eventually_or};
use fence_tests::survey::is_long;
use futures::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::refence::witness;
use crate::operating::commands::fencegate;

const DROP_SCHEMAS: &str = "DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname LIKE 'fencegate%' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$";
const R: &str = "job:1";

/// How a ledger on Postgres is backed up and put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A dump, into a new database of the same server under the same name.
    DumpSameServer,
    /// The same, while the gateways run.
    DumpUnderGateways,
    /// A dump of its schemas alone, into the same database.
    DumpSameDatabase,
    /// A dump, into another server.
    DumpOtherServer,
    /// A copy of the database, which takes its name.
    TemplateCopy,
    /// A copy of the files, whose log has passed by then what it had reached before.
    Files,
    /// The same, twice.
    FilesTwice,
    /// A base backup that is started as it is.
    BaseBackup,
    /// A standby that is started without its signal file.
    StandbyAsPrimary,
    /// A base backup, recovered to a point in time.
    PointInTime,
    /// A server that crashed, and whose log was thrown away.
    ResetLog,
    /// A copy of the files of Postgres and of etcd, from one moment.
    BothFiles,
}

const GATE: [Kind; 4] =
    [Kind::DumpSameServer, Kind::DumpSameDatabase, Kind::TemplateCopy, Kind::Files];

const ALL: [Kind; 12] = [
    Kind::DumpSameServer,
    Kind::DumpUnderGateways,
    Kind::DumpSameDatabase,
    Kind::DumpOtherServer,
    Kind::TemplateCopy,
    Kind::Files,
    Kind::FilesTwice,
    Kind::BaseBackup,
    Kind::StandbyAsPrimary,
    Kind::PointInTime,
    Kind::ResetLog,
    Kind::BothFiles,
];

impl Kind {
    /// Whether nothing is left that could notice it: the runbook has a command to run first.
    fn needs_command(self) -> bool {
        self == Self::BothFiles
    }
}

/// What is put back.
enum Backup {
    File(PathBuf),
    Database(String),
    Files(PathBuf),
    Both(PathBuf, PathBuf),
    Checkpoint,
}

struct House {
    etcd: Etcd,
    postgres: Postgres,
    other: Option<Postgres>,
    database: String,
    prefix: String,
    home: TempDir,
}

impl House {
    async fn new() -> Self {
        let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::dedicated());
        let database = postgres.database_name().await;
        let prefix = etcd.prefix();
        let home = TempDir::new().unwrap();
        Self { etcd, postgres, other: None, database, prefix, home }
    }

    fn settings(&self) -> Settings {
        let server = self.other.as_ref().unwrap_or(&self.postgres);
        Gateway::clustered(&server.url(&self.database), &self.etcd.endpoint(), &self.prefix)
    }

    /// A program of Postgres on the server that was there first, with its output in a file.
    async fn dump(&self, more: &[&str]) -> PathBuf {
        let file = self.home.path().join("dump.sql");
        let out = std::fs::File::create(&file).unwrap();
        let mut dump = Command::new(self.postgres.program("pg_dump"));
        dump.args(more).arg(self.postgres.owner_url(&self.database)).stdout(Stdio::from(out));
        assert!(dump.status().await.unwrap().success());
        file
    }

    async fn load(&self, server: &Postgres, file: &Path) {
        let mut psql = Command::new(self.postgres.program("psql"));
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file);
        psql.arg(server.owner_url(&self.database)).stdout(Stdio::null());
        assert!(psql.status().await.unwrap().success());
    }

    async fn create_again(&self) {
        let (server, database) = (&self.postgres, &self.database);
        server.execute("postgres", &format!("DROP DATABASE {database} WITH (FORCE)")).await;
        server.execute("postgres", &format!("CREATE DATABASE {database}")).await;
    }

    /// The command of the runbook.
    async fn refence(&self, more: &[&str]) {
        let (url, etcd) = (self.postgres.url(&self.database), self.etcd.endpoint());
        let mut args = vec!["refence", "--postgres", &url, "--etcd", &etcd];
        args.extend(["--etcd-prefix", &self.prefix, "--reason", "it was put back"]);
        args.extend(more);
        let ended = fencegate(&args, &[]).await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }

    async fn back_up(&self, kind: Kind) -> Backup {
        let server = &self.postgres;
        match kind {
            Kind::DumpSameServer | Kind::DumpUnderGateways | Kind::DumpOtherServer => {
                Backup::File(self.dump(&[]).await)
            }
            Kind::DumpSameDatabase => Backup::File(self.dump(&["--schema=fencegate*"]).await),
            Kind::TemplateCopy => {
                let copy = format!("{}_copy", self.database);
                // Nobody may be connected to what is copied.
                server
                    .execute(
                        "postgres",
                        &format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.database),
                    )
                    .await;
                let sql = format!("CREATE DATABASE {copy} TEMPLATE {}", self.database);
                eventually("the database can be copied", async || {
                    server.terminate_backends(&self.database).await;
                    server.try_execute("postgres", &sql).await.ok()
                })
                .await;
                let allow = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.database);
                server.execute("postgres", &allow).await;
                Backup::Database(copy)
            }
            Kind::Files | Kind::FilesTwice => {
                server.stop(Stop::Fast).await;
                let copy = server.copy();
                server.start().await;
                Backup::Files(copy)
            }
            Kind::BothFiles => {
                server.stop(Stop::Fast).await;
                let copy = server.copy();
                server.start().await;
                Backup::Both(copy, self.etcd.snapshot())
            }
            Kind::BaseBackup => Backup::Files(server.base_backup(&[])),
            Kind::StandbyAsPrimary => {
                let copy = server.base_backup(&["--write-recovery-conf"]);
                std::fs::remove_file(copy.join("standby.signal")).unwrap();
                Backup::Files(copy)
            }
            Kind::PointInTime => {
                let copy = server.base_backup(&[]);
                std::fs::write(copy.join("recovery.signal"), "").unwrap();
                let settings = "\nrestore_command = 'false'\nrecovery_target = 'immediate'\n\
                                recovery_target_action = 'promote'\n";
                let file = copy.join("postgresql.auto.conf");
                let mut text = std::fs::read_to_string(&file).unwrap();
                text.push_str(settings);
                std::fs::write(&file, text).unwrap();
                Backup::Files(copy)
            }
            Kind::ResetLog => {
                server.execute("postgres", "CHECKPOINT").await;
                Backup::Checkpoint
            }
        }
    }

    async fn put_back(&mut self, backup: &Backup, kind: Kind) {
        match backup {
            Backup::File(file) if kind == Kind::DumpOtherServer => {
                let other = Postgres::dedicated().await;
                other.execute("postgres", &format!("CREATE DATABASE {}", self.database)).await;
                self.load(&other, file).await;
                self.other = Some(other);
            }
            Backup::File(file) if kind == Kind::DumpSameDatabase => {
                self.postgres.execute(&self.database, DROP_SCHEMAS).await;
                self.load(&self.postgres, file).await;
            }
            Backup::File(file) => {
                self.create_again().await;
                self.load(&self.postgres, file).await;
            }
            Backup::Database(copy) => {
                let drop = format!("DROP DATABASE {} WITH (FORCE)", self.database);
                self.postgres.execute("postgres", &drop).await;
                let rename = format!("ALTER DATABASE {copy} RENAME TO {}", self.database);
                self.postgres.execute("postgres", &rename).await;
            }
            Backup::Files(copy) => {
                self.postgres.stop(Stop::Fast).await;
                self.postgres.restore(copy);
                self.postgres.start().await;
            }
            Backup::Both(copy, snapshot) => {
                self.postgres.stop(Stop::Fast).await;
                self.postgres.restore(copy);
                self.postgres.start().await;
                self.etcd.stop().await;
                self.etcd.restore(snapshot);
                self.etcd.start().await;
            }
            Backup::Checkpoint => {
                self.postgres.kill9().await;
                self.postgres.reset_log();
                self.postgres.start().await;
            }
        }
        let server = self.other.as_ref().unwrap_or(&self.postgres);
        eventually("the server is a primary", async || {
            server.try_execute(&self.database, "CREATE TEMPORARY TABLE t ()").await.ok()
        })
        .await;
        // By itself a log passes on within a minute where it is archived, or where another database is in use.
        for _ in 0..4 {
            server.execute("postgres", "SELECT pg_switch_wal()").await;
            server.execute("postgres", "SELECT pg_logical_emit_message(true, 'x', 'x')").await;
        }
    }
}

/// The other one takes over.
async fn taken_over(client: &Client) -> Lock {
    eventually("the lock is broken", async || {
        let broken = client.break_lock(R, &json!({"reason": "it stands still"})).send().await;
        (broken.status == 200).then_some(())
    })
    .await;
    let bob = client.acquire(R, "1h").await;
    client.put(R, "k", "by bob").under(&bob).send().await.expect(200);
    bob
}

/// Late writes under these are refused, whenever they come, and void once the ledger was re-fenced.
async fn bounce(client: &Client, kind: Kind, late: &[&Lock]) {
    let told = Mutex::new(Vec::new());
    let what = || format!("{kind:?}: what was before is void, not {:?}", told.lock().unwrap());
    eventually_or(what, async || {
        let mut codes = Vec::new();
        for lock in late {
            let late = client.put(R, "k", "late").under(lock).send().await;
            assert!(!late.status.is_success(), "a late write was admitted: {}", late.text());
            codes.push(late.code());
        }
        let before =
            ["fence-token-void", "ledger-unavailable", "outcome-unknown", "refence-required"];
        assert!(codes.iter().all(|code| before.contains(&code.as_str())), "{kind:?}: {codes:?}");
        let are_void = codes.iter().all(|code| code == "fence-token-void");
        *told.lock().unwrap() = codes;
        are_void.then_some(())
    })
    .await;
}

/// 1. ann writes, and is backed up; bob takes over and writes, which the gateway makes known as it stops.
/// 2. The backup is put back. Where the runbook says so, its command is run.
/// 3. A gateway is started: nobody of before writes, whoever comes now gets a higher token.
async fn restored(kind: Kind) {
    // Step 1.
    let mut house = House::new().await;
    let mut gateway = house.settings().start().await;
    let client = gateway.client();
    let ann = client.acquire(R, "1h").await;
    client.put(R, "k", "by ann").under(&ann).send().await.expect(201);
    let backup = house.back_up(kind).await;
    gateway.wait_until_ready().await;
    let bob = taken_over(&client).await;
    if kind == Kind::DumpUnderGateways {
        known(&house).await;
    } else {
        gateway.term();
        gateway.wait_for_exit().await;
    }

    // Step 2.
    house.put_back(&backup, kind).await;
    if kind.needs_command() {
        house.refence(&["--force"]).await;
    }

    // Step 3.
    if kind != Kind::DumpUnderGateways {
        gateway = house.settings().begin();
        super::refence::listening(&gateway).await;
    }
    let client = gateway.client();
    bounce(&client, kind, &[&ann, &bob]).await;
    let carol = client.acquire(R, "1h").await;
    assert!(carol.token > bob.token, "{kind:?}: {} after {}", carol.token, bob.token);
    assert_eq!(client.read(R, "k").send().await.expect(200).text(), "by ann", "{kind:?}");
    let put = client.put(R, "k", "by carol").under(&carol).send().await.expect(200);
    if kind != Kind::FilesTwice {
        return;
    }
    // Once more, the same backup: it may be an old primary that came back, so an operator says that it is not. What was given
    // out in between is void, too, and no tag comes back.
    gateway.term();
    gateway.wait_for_exit().await;
    house.put_back(&backup, kind).await;
    let gateway = house.settings().begin();
    super::refence::listening(&gateway).await;
    let client = gateway.client();
    eventually("it is noticed", async || {
        let late = client.put(R, "k", "late").under(&carol).send().await;
        assert!(!late.status.is_success(), "a late write was admitted: {}", late.text());
        (late.code() == "refence-required").then_some(())
    })
    .await;
    house.refence(&[]).await;
    bounce(&client, kind, &[&ann, &bob, &carol]).await;
    let dave = client.acquire(R, "1h").await;
    assert!(dave.token > carol.token);
    let again = client.put(R, "k", "by dave").under(&dave).send().await.expect(200);
    assert_ne!(put.must_have("etag"), again.must_have("etag"));
}

/// Waits until etcd knows of a milestone that was left behind all that was committed so far.
async fn known(house: &House) {
    let number =
        async || witness(&house.etcd, &house.prefix).await?["milestone"]["number"].as_i64();
    let before = eventually("etcd has a milestone", number).await;
    eventually("etcd has another milestone", async || {
        (number().await? >= before + 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_was_put_back_admits_nobody_of_before() {
    let kinds: &[Kind] = if is_long() { &ALL } else { &GATE };
    for some in kinds.chunks(4) {
        join_all(some.iter().map(|kind| restored(*kind))).await;
    }
}

/// A server that is started again without a copy in its place voids nothing, and asks for nobody.
#[tokio::test]
async fn a_start_that_lost_nothing_voids_nothing() {
    let house = House::new().await;
    let gateway = house.settings().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "1h").await;
    client.put(R, "k", "before").under(&lock).send().await.expect(201);
    for how in [Stop::Fast, Stop::Immediate] {
        house.postgres.stop(how).await;
        house.postgres.start().await;
        eventually("the holder goes on", async || {
            let put = client.put(R, "k", "after").under(&lock).send().await;
            let passing = ["ledger-unavailable", "outcome-unknown"];
            assert!(put.status == 200 || passing.contains(&put.code().as_str()), "{put:?}");
            (put.status == 200).then_some(())
        })
        .await;
    }
    let page = client.get("/metrics").send().await.expect(200).text();
    assert!(!page.contains("\nfencegate_refences_total 1"), "it was re-fenced");
}

/// Without etcd nobody can say whether a server that was started anew has lost anything: nothing is written, read or
/// guarded until it answers.
#[tokio::test]
async fn while_etcd_is_silent_a_start_is_not_trusted() {
    let house = House::new().await;
    let gateway = house.settings().start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "1h").await;
    client.put(R, "k", "before").under(&lock).send().await.expect(201);
    house.etcd.stop().await;
    // Holders go on without etcd, as ever.
    client.put(R, "k", "still").under(&lock).send().await.expect(200);
    house.postgres.stop(Stop::Fast).await;
    house.postgres.start().await;
    let started_anew = "started";
    eventually("it is told why", async || {
        let put = client.put(R, "k", "late").under(&lock).send().await;
        assert!(!put.status.is_success(), "{put:?}");
        put.text().contains(started_anew).then_some(())
    })
    .await;
    let read = client.read(R, "k").send().await;
    assert!(read.text().contains(started_anew), "{read:?}");
    let guard = format!("SELECT fencegate.guard('{R}', {})", lock.token.get());
    let told = house.postgres.try_execute(&house.database, &guard).await.unwrap_err();
    assert!(told.to_string().contains(started_anew), "{told}");
    house.etcd.start().await;
    eventually("the holder goes on", async || {
        let put = client.put(R, "k", "after").under(&lock).send().await;
        (put.status == 200).then_some(())
    })
    .await;
    house.postgres.execute(&house.database, &guard).await;
}
