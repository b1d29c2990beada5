//! A failover that is declared to lose nothing: a promoted standby that is proven not to be behind is taken over with
//! all tokens; one that is behind, or of which nobody can tell, is re-fenced as ever.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::conformance::pause;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop, database_in};
use fence_tests::process::eventually;
use serde_json::json;

use crate::disasters::refence::{Locks, Site, listening, locks, witness};

fn gateway(site: &Site, failover: &str) -> Settings {
    site.gateway("auto").flag("--failover", failover)
}

/// The standby takes over with all that the primary had: a clean stop waits for it.
async fn switch_over(site: &Site) {
    site.primary.stop(Stop::Fast).await;
    promote(site).await;
}

async fn promote(site: &Site) {
    site.standby.promote().await;
    site.proxy.retarget(site.standby.port());
}

/// Writes under a lock until it is let through; no refusal comes before that says that the token is worth nothing.
async fn written(client: &Client, lock: &Lock) {
    eventually("the token is good", async || {
        let put = client.put(lock.resources[0].as_str(), "k", "goes on").under(lock);
        let put = put.send().await;
        let before = ["ledger-unavailable", "outcome-unknown", "refence-required"];
        assert!(put.status.is_success() || before.contains(&put.code().as_str()), "{}", put.text());
        put.status.is_success().then_some(())
    })
    .await;
}

/// Writes under a lock until its token is void; it is never let through.
async fn voided(client: &Client, lock: &Lock) {
    eventually("the token is void", async || {
        let put = client.put(lock.resources[0].as_str(), "k", "late").under(lock).send().await;
        assert!(!put.status.is_success(), "a late write was admitted: {}", put.text());
        (put.code() == "fence-token-void").then_some(())
    })
    .await;
}

/// Waits until etcd knows how far the ledger is on this line; before, nothing is proven.
async fn witnessed(site: &Site, adoptions: i64) {
    eventually("there is a witness", async || {
        let seen = witness(&site.etcd, &site.prefix).await?;
        let is_of = seen["adoptions"].as_i64() == Some(adoptions);
        (is_of && seen["flushed"].as_i64()? > 0).then_some(())
    })
    .await;
}

/// Waits until etcd knows of all that the primary has written so far.
async fn all_witnessed(site: &Site) {
    let mut connection = site.primary.connect(database_in(&site.url)).await;
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let position: i64 = sqlx::query_scalar(position).fetch_one(&mut connection).await.unwrap();
    eventually("the witness has seen it", async || {
        let seen = witness(&site.etcd, &site.prefix).await?;
        (seen["flushed"].as_i64()? >= position).then_some(())
    })
    .await;
}

/// Waits until nothing is written that gateways had sent before they stood still. Their standby is an asynchronous one.
async fn at_rest(server: &Postgres) {
    let mut connection = server.connect("postgres").await;
    let mut last = None;
    eventually("nothing is written", async || {
        let look = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,
                           (SELECT count(*) FROM pg_stat_activity
                            WHERE state <> 'idle' AND backend_type = 'client backend' AND pid <> pg_backend_pid())";
        let now: (i64, i64) = sqlx::query_as(look).fetch_one(&mut connection).await.unwrap();
        let before = last.replace(now);
        pause(100).await;
        (now.1 == 0 && before == Some(now)).then_some(())
    })
    .await;
}

/// How often something was counted by all of these gateways.
async fn counted(gateways: &[&Gateway], name: &str) -> u64 {
    let mut sum = 0;
    for gateway in gateways {
        let page = gateway.client().get("/metrics").send().await.expect(200).text();
        let count = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        sum += count.map_or(0, |count| count.parse::<u64>().unwrap());
    }
    sum
}

/// Generation and adoptions, as the ledger says.
async fn line(server: &Postgres, url: &str) -> (i64, i64) {
    let mut connection = server.connect(database_in(url)).await;
    let line = sqlx::query_as("SELECT generation, adoptions FROM fencegate.write_guard");
    line.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_failover_that_lost_nothing_voids_no_token_and_neither_does_the_next() {
    let mut site = Site::new().await;
    let (one, other) =
        tokio::join!(gateway(&site, "lossless").start(), gateway(&site, "lossless").start());
    let (client, idle) = (one.client(), other.client());
    let held = client.acquire("job:1", "1h").await;
    client.put("job:1", "k", "before").under(&held).send().await.expect(201);
    let keyed = async |client: &Client| {
        client.put("job:1", "once", "x").under(&held).idempotency_key("a").send().await
    };
    keyed(&client).await.expect(201);

    witnessed(&site, 0).await;
    switch_over(&site).await;
    written(&client, &held).await;
    written(&idle, &held).await;
    assert_eq!(line(&site.standby, &site.url).await, (0, 1));
    assert_eq!(keyed(&idle).await.header("idempotent-replayed"), Some("true"));
    let etag = client.read("job:1", "k").send().await.expect(200);
    assert!(etag.must_have("etag").starts_with("\"g0-v"), "{etag:?}");
    idle.renew(&held, None).send().await.expect(200);
    idle.lock(&json!({ "resource": "job:1" })).send().await.refused(409, "lock-held");
    let gateways = [&one, &other];
    assert_eq!(counted(&gateways, "fencegate_adoptions_total").await, 1);
    assert_eq!(counted(&gateways, "fencegate_refences_total").await, 0);
    let audit = client.get("/audit").query("action", "adopt").send().await.expect(200).json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");

    // And on to a third server, killed without a word while the gateways stand still: what is on the disk is there.
    let third = site.standby.standby().await;
    site.primary = std::mem::replace(&mut site.standby, third);
    let new = client.acquire("job:2", "1h").await;
    witnessed(&site, 1).await;
    assert!(new.token > held.token);
    gateways.iter().for_each(|gateway| gateway.pause());
    at_rest(&site.primary).await;
    site.standby.caught_up(&site.primary).await;
    site.primary.kill9().await;
    promote(&site).await;
    gateways.iter().for_each(|gateway| gateway.resume());
    for (client, lock) in [(&client, &held), (&idle, &new), (&idle, &held), (&client, &new)] {
        written(client, lock).await;
    }
    assert_eq!(line(&site.standby, &site.url).await, (0, 2));
    assert_eq!(counted(&gateways, "fencegate_refences_total").await, 0);
    let seen = witness(&site.etcd, &site.prefix).await.unwrap();
    assert_eq!(seen["generation"].as_i64(), Some(0), "{seen}");
}

/// Also where an operator re-fences: nothing is voided by it.
#[tokio::test]
async fn with_manual_re_fencing_an_adoption_needs_nobody() {
    let site = Site::new().await;
    let gateway = site.gateway("manual").flag("--failover", "lossless").start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    witnessed(&site, 0).await;
    switch_over(&site).await;
    written(&client, &held).await;
}

/// The same failover where nothing is declared.
#[tokio::test]
async fn without_the_declaration_the_same_failover_voids_all_tokens() {
    let site = Site::new().await;
    let gateway = gateway(&site, "lossy").start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    switch_over(&site).await;
    voided(&client, &held).await;
    let (generation, adoptions) = line(&site.standby, &site.url).await;
    assert!(generation > 0 && adoptions == 0, "{generation} {adoptions}");
}

/// The standby lacks what was acknowledged, and goes on to write more than it lacks before anybody looks: where it is
/// now says nothing.
#[tokio::test]
async fn a_standby_that_lacks_what_was_acknowledged_is_not_adopted() {
    let site = Site::new().await;
    let (one, other) =
        tokio::join!(gateway(&site, "lossless").start(), gateway(&site, "lossless").start());
    let client = one.client();
    let locks: Locks = locks(&site, &client).await;
    // So that whoever comes first knows of it.
    all_witnessed(&site).await;
    let gateways = [&one, &other];
    gateways.iter().for_each(|gateway| gateway.pause());
    site.primary.kill9().await;
    promote(&site).await;
    eventually("it is a primary that takes writes", async || {
        let mut connection = site.standby.connect(database_in(&site.url)).await;
        let more = "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)";
        sqlx::query(more).execute(&mut connection).await.ok()
    })
    .await;
    gateways.iter().for_each(|gateway| gateway.resume());
    locks.until_late(&client, "fence-token-void").await;
    locks.until_late(&other.client(), "fence-token-void").await;
    assert_eq!(counted(&gateways, "fencegate_adoptions_total").await, 0);
    let (generation, adoptions) = line(&site.standby, &site.url).await;
    assert!(generation > 0 && adoptions == 0, "{generation} {adoptions}");
    let logs = one.log() + &other.log();
    assert!(logs.contains("it left timeline 00000001 at position"), "{logs}");
}

/// No gateway of before is there any more: the witness in etcd alone tells.
#[tokio::test]
async fn a_gateway_that_has_seen_nothing_goes_by_the_witness() {
    let site = Site::new().await;
    let mut gateway = gateway(&site, "lossless").start().await;
    let client = gateway.client();
    let locks = locks(&site, &client).await;
    all_witnessed(&site).await;
    gateway.kill9();
    site.fail_over().await;
    gateway.spawn();
    listening(&gateway).await;
    locks.until_late(&client, "fence-token-void").await;
    assert_eq!(counted(&[&gateway], "fencegate_adoptions_total").await, 0);
}

/// The declaration is wrong, and the one gateway that knows stands still while the other adopts. From the moment at
/// which it looks, nothing goes on.
#[tokio::test]
async fn a_gateway_that_knows_better_objects_to_an_adoption() {
    let site = Site::new().await;
    let (knows, other) =
        tokio::join!(gateway(&site, "lossless").start(), gateway(&site, "lossless").start());
    let client = knows.client();
    let held = client.acquire("job:1", "1h").await;
    let theirs = other.client().acquire("job:2", "1h").await;
    all_witnessed(&site).await;
    // Nobody raises the witness any more, and only one gateway sees how far the ledger gets.
    site.etcd.pause();
    at_rest(&site.primary).await;
    site.standby.caught_up(&site.primary).await;
    site.standby.stop_following().await;
    other.pause();
    client.put("job:1", "k", "acknowledged and lost").under(&held).send().await.expect(201);
    knows.pause();
    site.primary.kill9().await;
    promote(&site).await;
    site.etcd.resume();
    other.resume();
    written(&other.client(), &theirs).await;
    assert_eq!(line(&site.standby, &site.url).await, (0, 1));
    let filler = "CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)";
    site.standby.execute(database_in(&site.url), filler).await;

    knows.resume();
    voided(&client, &held).await;
    voided(&other.client(), &theirs).await;
    let (generation, adoptions) = line(&site.standby, &site.url).await;
    assert!(generation > 0 && adoptions == 1, "{generation} {adoptions}");
    knows.logged("was seen flushed before: it has lost commits").await;
}

/// Without etcd nobody knows what was witnessed: nothing is adopted, and nothing voided, until it answers.
#[tokio::test]
async fn while_etcd_is_silent_nothing_is_adopted() {
    let site = Site::new().await;
    let gateway = gateway(&site, "lossless").start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    witnessed(&site, 0).await;
    site.etcd.pause();
    switch_over(&site).await;
    eventually("the ledger is refused", async || {
        let put = client.put("job:1", "k", "x").under(&held).send().await;
        assert!(!put.status.is_success(), "{}", put.text());
        (put.code() == "refence-required").then_some(())
    })
    .await;
    pause(3000).await;
    client.put("job:1", "k", "x").under(&held).send().await.refused(503, "refence-required");
    assert_eq!(line(&site.standby, &site.url).await, (0, 0));
    site.etcd.resume();
    written(&client, &held).await;
    assert_eq!(line(&site.standby, &site.url).await, (0, 1));
}

/// An etcd that came back from a snapshot may have forgotten how far the ledger was.
#[tokio::test]
async fn a_mint_that_went_back_proves_nothing() {
    let site = Site::new().await;
    let mut gateway = gateway(&site, "lossless").start().await;
    let client = gateway.client();
    client.acquire("job:0", "1h").await;
    witnessed(&site, 0).await;
    let snapshot = site.etcd.snapshot();
    let held = client.acquire("job:1", "1h").await;
    gateway.kill9();
    site.etcd.stop().await;
    site.etcd.restore(&snapshot);
    switch_over(&site).await;
    site.etcd.start().await;
    gateway.spawn();
    listening(&gateway).await;
    voided(&client, &held).await;
    assert!(line(&site.standby, &site.url).await.0 > 0);
    gateway.logged("the mint has lost its place, and may have forgotten").await;
}

/// The old primary comes back, and a gateway that still reaches it: it was adopted away from there.
#[tokio::test]
async fn the_old_primary_of_an_adoption_is_refused_and_disturbs_nobody() {
    let site = Site::new().await;
    let gateway = gateway(&site, "lossless").start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    witnessed(&site, 0).await;
    switch_over(&site).await;
    written(&client, &held).await;
    eventually("the witness knows of it", async || {
        let seen = witness(&site.etcd, &site.prefix).await?;
        (seen["adoptions"].as_i64() == Some(1)).then_some(())
    })
    .await;

    site.primary.start().await;
    let url = site.primary.url(database_in(&site.url));
    let stray = Gateway::clustered(&url, &site.etcd.endpoint(), &site.prefix)
        .flag("--failover", "lossless")
        .begin();
    listening(&stray).await;
    stray.logged("another server was adopted since").await;
    let late = stray.client().put("job:1", "k", "on the old primary").under(&held).send().await;
    late.refused(503, "refence-required");
    stray.client().read("job:1", "k").send().await.refused(503, "refence-required");
    written(&client, &held).await;
    assert_eq!(line(&site.primary, &site.url).await, (0, 0), "nobody re-fenced it");
    assert_eq!(line(&site.standby, &site.url).await, (0, 1));
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "goes on");
}

/// What a superuser must do once, where the gateways' role is none: until then it is re-fenced, and the log says why.
#[tokio::test]
async fn a_role_that_may_not_read_the_history_re_fences_until_it_may() {
    let mut site = Site::new().await;
    let database = site.primary.empty_database_name().await;
    site.url = site.url.replace(database_in(&site.url), &database);
    let sql = format!("CREATE ROLE gate LOGIN; GRANT CREATE ON DATABASE {database} TO gate");
    site.primary.execute("postgres", &sql).await;
    let url = site.url.replace("serving@", "gate@");
    assert_ne!(url, site.url);
    let settings = Gateway::clustered(&url, &site.etcd.endpoint(), &site.prefix);
    let gateway = settings.flag("--failover", "lossless").start().await;
    let client = gateway.client();
    let held = client.acquire("job:1", "1h").await;
    witnessed(&site, 0).await;
    switch_over(&site).await;
    voided(&client, &held).await;
    gateway.logged("may not read the history of the timeline").await;

    let page = include_str!("../../../docs/postgres.md");
    let begun =
        page.find("ALTER FUNCTION fencegate.timeline_history()").map(|at| &page[at..]).unwrap();
    let grant = begun.split("```").next().unwrap().replace("gateways", "gate");
    site.standby.execute(&database, &grant).await;
    let third = site.standby.standby().await;
    site.primary = std::mem::replace(&mut site.standby, third);
    let held = eventually("a lock is granted", async || {
        let answer = client.lock(&json!({ "resource": "job:1", "ttl": "1h" })).send().await;
        (answer.status == 201).then(|| answer.parse::<Lock>())
    })
    .await;
    witnessed(&site, 0).await;
    eventually("the witness is of the new generation", async || {
        let seen = witness(&site.etcd, &site.prefix).await?;
        (seen["generation"].as_i64()? > 0 && seen["flushed"].as_i64()? > 0).then_some(())
    })
    .await;
    let (generation, _) = line(&site.primary, &site.url).await;
    switch_over(&site).await;
    written(&client, &held).await;
    assert_eq!(line(&site.standby, &site.url).await, (generation, 1));
}
