//! A Postgres that was promoted from a stale standby or rolled back: no old token is ever admitted
//! again, and new ones are larger than all before.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{BlobId, By, Ledger as _, Patience, RenewItem, Uploads as _};
use fence_core::wire::Lock;
use fence_tests::chaos::ChaosProxy;
use fence_tests::client::Client;
use fence_tests::conformance::pause;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop, database_in};
use fence_tests::process::eventually;
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::operating::commands::fencegate;

/// A primary with an asynchronous standby, behind a proxy, and an etcd.
pub struct Site {
    pub etcd: Etcd,
    pub primary: Postgres,
    pub standby: Postgres,
    pub proxy: ChaosProxy,
    pub url: String,
    pub prefix: String,
}

impl Site {
    pub async fn new() -> Self {
        let (etcd, primary) = tokio::join!(Etcd::dedicated(), Postgres::dedicated());
        let database = primary.database_name().await;
        let standby = primary.standby().await;
        let proxy = ChaosProxy::start(primary.port()).await;
        let url = primary.url_through(proxy.port(), &database);
        let prefix = etcd.prefix();
        Self { etcd, primary, standby, proxy, url, prefix }
    }

    pub fn gateway(&self, refence: &str) -> Settings {
        Gateway::clustered(&self.url, &self.etcd.endpoint(), &self.prefix)
            .flag("--refence", refence)
    }

    /// The standby takes the primary's place.
    pub async fn fail_over(&self) {
        self.primary.kill9().await;
        self.standby.promote().await;
        self.proxy.retarget(self.standby.port());
    }

    /// `fencegate refence` on this site.
    async fn refence(&self, more: &[&str]) -> crate::operating::commands::Ended {
        let etcd = self.etcd.endpoint();
        let mut args = vec!["refence", "--postgres", &self.url, "--etcd", &etcd];
        args.extend(["--etcd-prefix", &self.prefix, "--reason", "the test says so"]);
        args.extend(more);
        fencegate(&args, &[]).await
    }
}

/// What the standby knows, what it does not, and who took over on the primary alone.
pub struct Locks {
    pub known: Lock,
    pub taken_over: Lock,
    pub unknown: Lock,
}

/// Locks before and after the standby stops following. On the standby, the token of `known` is the
/// last of `job:1`: without a guard its late holder would be admitted there.
pub async fn locks(site: &Site, client: &Client) -> Locks {
    let known = client.acquire("job:1", "1s").await;
    client.put("job:1", "k", "by the old holder").under(&known).send().await.expect(201);
    site.standby.caught_up(&site.primary).await;
    site.standby.stop_following().await;
    let taken_over = eventually("the lock has expired", async || {
        let answer = client.lock(&json!({ "resource": "job:1", "ttl": "1h" })).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    client.put("job:1", "k", "by the new holder").under(&taken_over).send().await.expect(200);
    let unknown = client.acquire("job:2", "1h").await;
    client.put("job:2", "k", "x").under(&unknown).send().await.expect(201);
    Locks { known, taken_over, unknown }
}

impl Locks {
    fn all(&self) -> [&Lock; 3] {
        [&self.known, &self.taken_over, &self.unknown]
    }

    fn highest(&self) -> i64 {
        self.all().iter().map(|lock| lock.token.get()).max().expect("three")
    }

    /// Sends a late write under each of them; returns the codes of the refusals.
    pub async fn late(&self, client: &Client) -> Vec<String> {
        let mut codes = Vec::new();
        for lock in self.all() {
            let late = client.put(lock.resources[0].as_str(), "k", "late").under(lock).send();
            let late = late.await;
            assert!(!late.status.is_success(), "a late write was admitted: {}", late.text());
            codes.push(late.code());
        }
        codes
    }

    /// Waits until the answer to each of them is this one; no other but 503 is given before.
    pub async fn until_late(&self, client: &Client, code: &str) {
        eventually(&format!("late writes are {code}"), async || {
            let codes = self.late(client).await;
            let before = ["ledger-unavailable", "outcome-unknown", "refence-required"];
            let fine = |found: &String| found == code || before.contains(&found.as_str());
            assert!(codes.iter().all(fine), "{codes:?}");
            codes.iter().all(|found| found == code).then_some(())
        })
        .await;
    }

    /// All tokens are void, all resources can be locked, with larger tokens.
    async fn all_void(&self, client: &Client) {
        for lock in self.all() {
            // What the ledger has lost, it does not know; after a new grant it is superseded.
            let ended = ["lock-void", "lock-not-found", "lock-superseded"];
            let renewed = client.renew(lock, None).send().await.code();
            assert!(ended.contains(&renewed.as_str()), "{renewed}");
        }
        for resource in ["job:1", "job:2", "job:3"] {
            let new = eventually("a lock is granted", async || {
                let body = json!({ "resource": resource, "ttl": "10m" });
                let answer = client.lock(&body).send().await;
                let code = answer.code();
                assert!(["", "mint-unavailable"].contains(&code.as_str()), "{}", answer.text());
                (answer.status == 201).then(|| answer.parse::<Lock>())
            })
            .await;
            assert!(new.token.get() > self.highest(), "{} after {}", new.token, self.highest());
            let put = client.put(resource, "k", "by the next").under(&new).send().await;
            assert!(put.status.is_success(), "{}", put.text());
            assert!(!put.must_have("etag").starts_with("\"g0-v"), "{put:?}");
            client.release(&new).send().await.expect(204);
        }
        assert_eq!(self.late(client).await, ["fence-token-void"; 3]);
    }
}

#[tokio::test]
async fn after_a_failover_nothing_is_written_until_an_operator_refences() {
    let site = Site::new().await;
    let (gateway, idle) =
        tokio::join!(site.gateway("manual").start(), site.gateway("manual").start());
    let client = gateway.client();
    let locks = locks(&site, &client).await;
    let nothing = site.refence(&[]).await;
    assert_eq!(nothing.code, Some(1), "{}{}", nothing.out, nothing.err);
    assert!(nothing.err.contains("nothing calls for a re-fence"), "{}", nothing.err);
    locks.unknown_still_writes(&client).await;

    site.fail_over().await;
    for client in [&client, &idle.client()] {
        locks.until_late(client, "refence-required").await;
        let new = client.lock(&json!({ "resource": "job:3" })).send().await;
        new.refused(503, "refence-required");
        // It is known a moment later.
        eventually("it is not ready", async || {
            (client.get("/readyz").send().await.status == 503).then_some(())
        })
        .await;
    }
    // Looked at again and again, it stays so.
    pause(3000).await;
    assert_eq!(locks.late(&client).await, ["refence-required"; 3]);

    let done = site.refence(&[]).await;
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    for told in ["found:  ", "timeline 00000002", "after:  generation ", "the test says so"] {
        assert!(done.out.contains(told), "{told}: {}", done.out);
    }
    locks.until_late(&client, "fence-token-void").await;
    client.renew(&locks.known, None).send().await.refused(409, "lock-void");
    for client in [&client, &idle.client()] {
        locks.until_late(client, "fence-token-void").await;
        locks.all_void(client).await;
        eventually("it is ready", async || {
            let ready = client.get("/readyz").query("grants", "1").send().await;
            (ready.status == 200).then_some(())
        })
        .await;
    }
    gateway.logged("the ledger was re-fenced").await;
    let again = site.refence(&[]).await;
    assert_eq!(again.code, Some(1), "{}{}", again.out, again.err);
    let held = client.acquire("job:9", "10m").await;
    let forced = site.refence(&["--force"]).await;
    assert_eq!(forced.code, Some(0), "{}{}", forced.out, forced.err);
    assert!(forced.out.contains("epoch 2,"), "{}", forced.out);
    let late = client.put("job:9", "k", "late").under(&held).send().await;
    late.refused(412, "fence-token-void");
    let next = eventually("a lock is granted", async || {
        let answer = client.lock(&json!({ "resource": "job:9" })).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    assert!(next.token > held.token);
}

impl Locks {
    async fn unknown_still_writes(&self, client: &Client) {
        client.put("job:2", "k", "y").under(&self.unknown).send().await.expect(200);
    }
}

#[tokio::test]
async fn after_a_failover_the_gateways_refence_by_themselves() {
    let site = Site::new().await;
    let (gateway, idle) = tokio::join!(site.gateway("auto").start(), site.gateway("auto").start());
    let client = gateway.client();
    let locks = locks(&site, &client).await;
    site.fail_over().await;
    for client in [&client, &idle.client()] {
        locks.until_late(client, "fence-token-void").await;
        locks.all_void(client).await;
    }
    let mut refences = 0;
    for client in [&client, &idle.client()] {
        let page = client.get("/metrics").send().await.expect(200).text();
        let count = page.lines().find_map(|line| line.strip_prefix("fencegate_refences_total "));
        refences += count.map_or(0, |count| count.parse::<u64>().expect("a count"));
    }
    assert_eq!(refences, 1, "{}\n{}", gateway.log(), idle.log());
}

#[tokio::test]
async fn when_etcd_went_back_as_well_the_tokens_still_rise() {
    let site = Site::new().await;
    let gateway = site.gateway("auto").start().await;
    let client = gateway.client();
    client.acquire("job:0", "10m").await;
    let snapshot = site.etcd.snapshot();
    for _ in 0..50 {
        let lock = client.acquire("job:1", "10m").await;
        client.release(&lock).send().await.expect(204);
    }
    let locks = locks(&site, &client).await;
    site.etcd.stop().await;
    site.etcd.restore(&snapshot);
    site.fail_over().await;
    // Without etcd nobody knows what the ledger has forgotten.
    locks.until_late(&client, "refence-required").await;
    pause(2000).await;
    assert_eq!(locks.late(&client).await, ["refence-required"; 3]);
    site.etcd.start().await;
    locks.until_late(&client, "fence-token-void").await;
    locks.all_void(&client).await;
}

/// A gateway that holds something against its server shows nothing of it as the present, but for the records
/// that tell an operator what happened.
async fn reads_are_refused(client: &Client, lock: &Lock) {
    for call in [
        client.read("job:2", "k"),
        client.read("job:2", "k").query("version", "1"),
        client.get("/resources"),
        client.get("/resources/job:2"),
        client.get("/resources/job:2/objects"),
        client.get("/resources/job:2/versions"),
        client.get("/resources/job:2/operations").query("idempotency_key", "x"),
        client.get("/locks"),
        client.lock_of(lock),
        client.get("/events"),
        client.get(format!("/operations/{}", lock.id)),
        client.lock(&json!({ "resource": "job:2" })),
    ] {
        call.send().await.refused(503, "refence-required");
    }
    for path in ["/audit", "/rejections"] {
        client.get(path).send().await.expect(200);
    }
    client.get("/healthz").send().await.expect(200);
    let ready = client.get("/readyz").send().await.expect(503).json();
    assert_ne!(ready["ledger"]["ready"], true, "{ready}");
}

#[tokio::test]
async fn an_old_primary_that_comes_back_is_refused_and_disturbs_nobody() {
    let site = Site::new().await;
    let gateway = site.gateway("auto").start().await;
    let client = gateway.client();
    let locks = locks(&site, &client).await;
    site.fail_over().await;
    locks.until_late(&client, "fence-token-void").await;
    locks.all_void(&client).await;
    let next = client.acquire("job:1", "1h").await;

    site.primary.start().await;
    let database = fence_tests::postgres::database_in(&site.url);
    let url = site.primary.url(database);
    let stray = Gateway::clustered(&url, &site.etcd.endpoint(), &site.prefix).begin();
    listening(&stray).await;
    assert_eq!(locks.late(&stray.client()).await, ["refence-required"; 3]);
    stray.logged("another server was re-fenced since").await;
    reads_are_refused(&stray.client(), &locks.unknown).await;
    client.put("job:1", "k", "goes on").under(&next).send().await.expect(200);
    pause(2500).await;
    client.put("job:1", "k", "goes on").under(&next).send().await.expect(200);
    client.acquire("job:7", "1h").await;
    let found = witness(&site.etcd, &site.prefix).await.expect("a witness");
    assert!(found["generation"].as_i64() > Some(0), "{found}");
}

/// Its own guard asks for a re-fence, which must not hide that another server was re-fenced already.
#[tokio::test]
async fn a_stale_standby_that_is_promoted_by_mistake_answers_no_reads() {
    let site = Site::new().await;
    let stale = site.primary.standby().await;
    let gateway = site.gateway("auto").start().await;
    let client = gateway.client();
    let locks = locks(&site, &client).await;
    stale.promote().await;
    site.fail_over().await;
    locks.until_late(&client, "fence-token-void").await;

    let database = fence_tests::postgres::database_in(&site.url);
    let stray = Gateway::clustered(&stale.url(database), &site.etcd.endpoint(), &site.prefix);
    for how in ["auto", "manual"] {
        let stray = stray.clone().flag("--refence", how).begin();
        listening(&stray).await;
        assert_eq!(locks.late(&stray.client()).await, ["refence-required"; 3]);
        reads_are_refused(&stray.client(), &locks.unknown).await;
    }
}

#[tokio::test]
async fn a_waiter_gets_its_lock_when_a_refence_voids_the_one_before_it() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let (url, prefix) = (postgres.database().await, etcd.prefix());
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &prefix).start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    let waiter = client.lock(&json!({ "resource": "job:1", "wait": "30s" })).send();
    let refence = async {
        eventually("it waits", async || {
            let view = client.get("/resources/job:1").send().await.expect(200).json();
            (view["queue_length"].as_i64()? == 1).then_some(())
        })
        .await;
        let endpoint = etcd.endpoint();
        let mut args = vec!["refence", "--postgres", &url, "--etcd", &endpoint];
        args.extend(["--etcd-prefix", &prefix, "--reason", "test", "--force"]);
        let done = fencegate(&args, &[]).await;
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    };
    let (answer, ()) = tokio::join!(waiter, refence);
    let next: Lock = answer.expect(201).parse();
    assert!(next.token > held.token);
    let late = client.put("job:1", "k", "late").under(&held).send().await;
    late.refused(412, "fence-token-void");
}

/// What the gateways have put into etcd.
pub async fn witness(etcd: &Etcd, prefix: &str) -> Option<Value> {
    let found = etcd.client().await.get(format!("{prefix}/witness"), None).await.expect("read");
    serde_json::from_slice(found.kvs().first()?.value()).ok()
}

/// Waits until the gateway answers at all: one whose ledger must be re-fenced is not ready.
pub async fn listening(gateway: &Gateway) {
    eventually("the gateway answers", async || {
        gateway.client().get("/healthz").try_send().await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_rollback_on_the_same_timeline_is_noticed_although_all_gateways_were_restarted() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let database = postgres.database_name().await;
    let prefix = etcd.prefix();
    let settings = Gateway::clustered(&postgres.url(&database), &etcd.endpoint(), &prefix);
    let mut gateway = settings.clone().flag("--refence", "manual").start().await;
    let client = gateway.client();
    let old = client.acquire("job:1", "1s").await;
    client.put("job:1", "k", "by the old holder").under(&old).send().await.expect(201);
    postgres.stop(Stop::Fast).await;
    let copy = postgres.copy();
    postgres.start().await;
    let new = eventually("the lock has expired", async || {
        let answer = client.lock(&json!({ "resource": "job:1", "ttl": "1h" })).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    client.put("job:1", "k", vec![7; 200_000]).under(&new).send().await.expect(200);
    let mut connection = postgres.connect(&database).await;
    let position: i64 = sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        .fetch_one(&mut connection)
        .await
        .expect("a position");
    drop(connection);
    eventually("the witness has seen it", async || {
        let witness = witness(etcd, &prefix).await?;
        (witness["flushed"].as_i64()? >= position).then_some(())
    })
    .await;
    gateway.kill9();
    postgres.stop(Stop::Fast).await;
    postgres.restore(&copy);
    postgres.start().await;

    gateway.spawn();
    listening(&gateway).await;
    for lock in [&old, &new] {
        let late = client.put("job:1", "k", "late").under(lock).send().await;
        late.refused(503, "refence-required");
    }
    gateway.logged("has lost commits").await;
    gateway.kill9();
    let gateway = settings.start().await;
    let client = gateway.client();
    for lock in [&old, &new] {
        let late = client.put("job:1", "k", "late").under(lock).send().await;
        late.refused(412, "fence-token-void");
    }
    let next = client.acquire("job:1", "10m").await;
    assert!(next.token > new.token);
    let read = client.read("job:1", "k").send().await.expect(200);
    assert_eq!(read.text(), "by the old holder");
    client.put("job:1", "k", "by the next").under(&next).send().await.expect(200);
    let found = witness(etcd, &prefix).await.expect("a witness");
    assert!(found["generation"].as_i64() > Some(0), "{found}");
}

/// What was seen of the ledger before a re-fence is not held against it after it, whoever waited meanwhile.
#[tokio::test]
async fn an_act_that_waited_for_a_connection_calls_for_no_second_re_fence() {
    let site = Site::new().await;
    let gateway = site.gateway("auto").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "1h").await;
    site.standby.caught_up(&site.primary).await;
    site.standby.stop_following().await;
    let database = database_in(&site.url);
    // So much that the standby does not soon get as far.
    let filler = "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)";
    site.primary.execute(database, filler).await;
    let options = site.url.parse().expect("a URL");
    let timeout = Duration::from_secs(20);
    let ledger = PgLedger::new(PgSettings { options, connections_max: 1, timeout });
    ledger.place(None).await.expect("the ledger stands");
    let renewal = RenewItem { lock: lock.id, ttl: None, by: By::default() };
    ledger
        .renew(Arc::from([renewal]), Patience::Skip)
        .await
        .expect("it sees how far the ledger is");

    site.fail_over().await;
    let mut promoted = site.standby.connect(database).await;
    let generation = "SELECT generation FROM fencegate.write_guard";
    eventually("the gateway re-fences", async || {
        let found: i64 = sqlx::query_scalar(generation).fetch_one(&mut promoted).await.ok()?;
        (found > 0).then_some(())
    })
    .await;
    // The one connection is in use; behind it waits a look at the ledger, and behind that an act.
    let mut transaction = promoted.begin().await.expect("a transaction");
    transaction.execute("LOCK TABLE fencegate.blob_pins").await.expect("the table is locked");
    let blobs = [BlobId(uuid::Uuid::nil())];
    let pin = || ledger.pin_blobs(&blobs, Duration::from_secs(1));
    pin().await.expect_err("the old connection is gone");
    let release = async {
        pause(500).await;
        transaction.rollback().await.expect("the table is free");
    };
    let (pinned, place, act, ()) =
        tokio::join!(pin(), ledger.place(None), ledger.may_delete(Duration::ZERO), release);
    pinned.expect("it was pinned");
    assert_eq!(place.expect("the ledger stands").called_for, None);
    act.expect("the act is not refused");
    let place = ledger.place(None).await.expect("the ledger stands");
    assert_eq!((place.called_for, place.generation > 0), (None, true));
}
