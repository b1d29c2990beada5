//! What goes on, what stops and what comes back by itself when etcd or Postgres is down.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{Lock, Readiness};
use fence_tests::client::{Answer, Call, Client, resource_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;

use crate::operating::gauges;

/// How a server is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// Its port is closed.
    Stopped,
    /// Its connections are open and nothing answers.
    Frozen,
}

/// Whether a part is ready, and what is wrong if it is not.
pub fn part(readiness: &Readiness, name: &str) -> (bool, Option<String>) {
    let part = readiness.parts.iter().find(|part| part.part == name).unwrap();
    (part.ready, part.detail.clone())
}

async fn acquirable(client: &Client, resource: &str) -> Lock {
    eventually("locks are granted again", async || {
        let answer = client.lock(&json!({ "resource": resource, "ttl": "10m" })).send().await;
        (answer.status == 201).then(|| answer.parse())
    })
    .await
}

async fn without_etcd(outage: Outage) {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:held", "10m").await;
    let leaving = client.acquire("job:leaving", "10m").await;
    match outage {
        Outage::Stopped => etcd.stop().await,
        Outage::Frozen => etcd.pause(),
    }

    let grants = join_all(
        (0..4).map(|index| client.lock(&json!({ "resource": format!("job:new-{index}") })).send()),
    );
    let holder = async {
        for version in 1..=20 {
            let put = client.put("job:held", "k", "x").under(&lock).send().await;
            assert_eq!(put.written().version, version);
        }
        client.renew(&lock, Some("1h")).send().await.expect(200);
        let again = json!({ "resource": "job:held", "owner": "test", "id": lock.id.to_string() });
        client.lock(&again).send().await.expect(200);
        client.lock(&json!({ "resource": "job:held" })).send().await.refused(409, "lock-held");
        client.release(&leaving).send().await.expect(204);
        client.break_lock("job:leaving", &json!({ "reason": "x" })).send().await.expect(200);
        client.read("job:held", "k").send().await.expect(200);
    };
    let readiness = async {
        let ready = eventually("it is known that the mint does not answer", async || {
            let ready: Readiness = client.get("/readyz").send().await.expect(200).parse();
            (!part(&ready, "mint").0).then_some(ready)
        })
        .await;
        eventually("the page says so, and counts locks still", async || {
            let page = client.get("/metrics").send().await.expect(200).text();
            let counted = gauges::totals(&page).is_some_and(|(locks_held, _)| locks_held > 0);
            let ready = |what| gauges::ready(&page, what);
            (!ready("mint") && ready("ledger") && counted).then_some(())
        })
        .await;
        assert_eq!((ready.ready, part(&ready, "ledger").0), (true, true));
        assert!(part(&ready, "mint").1.is_some_and(|why| !why.is_empty()), "{ready:?}");
        let not: Readiness =
            client.get("/readyz").query("grants", "1").send().await.expect(503).parse();
        assert!(!not.ready);
    };
    let (grants, (), ()) = tokio::join!(grants, holder, readiness);
    for grant in grants {
        let refused = grant.refused(503, "mint-unavailable");
        assert!(refused.problem().retryable && refused.header("retry-after").is_some());
    }

    match outage {
        Outage::Stopped => etcd.start().await,
        Outage::Frozen => etcd.resume(),
    }
    let next = acquirable(&client, "job:leaving").await;
    assert!(next.token > leaving.token && next.token > lock.token);
    client.put("job:leaving", "k", "x").under(&next).send().await.expect(201);
    client.get("/readyz").query("grants", "1").send().await.expect(200);
}

#[tokio::test]
async fn with_etcd_stopped_holders_go_on_and_only_new_locks_stop() {
    without_etcd(Outage::Stopped).await;
}

#[tokio::test]
async fn with_etcd_frozen_holders_go_on_and_only_new_locks_stop() {
    without_etcd(Outage::Frozen).await;
}

async fn without_postgres(outage: Outage) {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.flag("--metrics-prefix", "job:").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let page = eventually("the lock is counted", async || {
        let page = gauges::scrape(&client).await;
        (gauges::totals(&page) == Some((1, 0))).then_some(page)
    })
    .await;
    assert!(gauges::ready(&page, "ledger") && page.contains("{resource=\"job:1\"}"), "{page}");
    client.put("job:1", "before", "x").under(&lock).send().await.expect(201);
    match outage {
        Outage::Stopped => postgres.stop(Stop::Fast).await,
        Outage::Frozen => postgres.pause(),
    }

    let put = client.put("job:1", "during", "x").under(&lock);
    let (put, others) = tokio::join!(
        put.send(),
        join_all(
            [
                client.delete("job:1", "before").token(1),
                client.renew(&lock, None),
                client.lock(&json!({ "resource": "job:2" })),
                client.lock(&json!({ "resource": "job:1", "id": lock.id.to_string() })),
                client.break_lock("job:3", &json!({ "reason": "x" })),
                client.post("/locks/renew", &json!({ "ids": [lock.id.to_string()] })),
                client.lock_of(&lock),
                client.read("job:1", "before"),
                client.get("/locks"),
                client.get(resource_path("job:1")),
                client.get(format!("{}/objects", resource_path("job:1"))),
                client.get("/rejections"),
            ]
            .map(Call::send)
        ),
    );
    for answer in &others {
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    assert_eq!(put.status, 503);
    let not = eventually("it is known that the ledger does not answer", async || {
        let answer = client.get("/readyz").send().await;
        (answer.status == 503).then(|| answer.parse::<Readiness>())
    })
    .await;
    assert!(!not.ready && !part(&not, "ledger").0, "{not:?}");
    client.get("/readyz").query("grants", "1").send().await.expect(503);
    let of_the_store = part(&not, "blobs").1.unwrap_or_default();
    let as_before = of_the_store.is_empty() || of_the_store.starts_with("not known");
    assert!(as_before, "nothing is wrong with it: {of_the_store}");
    client.get("/healthz").send().await.expect(200);
    let page = client.get("/metrics").send().await.expect(200).text();
    assert!(!gauges::ready(&page, "ledger") && gauges::ready(&page, "gateway"), "{page}");
    assert!(gauges::totals(&page).is_none() && !page.contains("job:1"), "{page}");
    assert!(page.contains("fencegate_build_info{") && page.contains("process_open_fds "), "{page}");

    match outage {
        Outage::Stopped => postgres.start().await,
        Outage::Frozen => postgres.resume(),
    }
    eventually("the gateway is ready again", async || {
        (client.get("/readyz").send().await.status == 200).then_some(())
    })
    .await;
    let after = client.put("job:1", "after", "x").under(&lock);
    eventually("writes are admitted again", async || {
        after.clone().send().await.status.is_success().then_some(())
    })
    .await;
    acquirable(&client, "job:2").await;
    let page = eventually("locks are counted again", async || {
        let page = gauges::scrape(&client).await;
        (gauges::totals(&page) == Some((2, 0))).then_some(page)
    })
    .await;
    assert!(gauges::ready(&page, "ledger"), "{page}");
    client.renew(&lock, None).send().await.expect(200);
    assert_truthful(&client, &put).await;
}

/// What was said of the write during the outage holds: it was not applied, or its fate was unknown
/// then and can be asked now.
async fn assert_truthful(client: &Client, put: &Answer) {
    let there = client.read("job:1", "during").send().await.status == 200;
    if put.code() == "ledger-unavailable" {
        assert!(!there, "a write that was denied has been applied");
        return;
    }
    put.clone().refused(503, "outcome-unknown");
    assert_eq!(put.must_have("x-fence-verdict"), "unknown");
    let id = put.problem().operation.expect("the operation to ask about");
    let outcome = eventually("the operation is decided", async || {
        let record = client.get(format!("/operations/{id}")).send().await;
        record.json()["outcome"].as_str().map(str::to_owned)
    })
    .await;
    let there = client.read("job:1", "during").send().await.status == 200;
    assert_eq!(outcome == "applied", there, "{outcome}");
}

#[tokio::test]
async fn with_postgres_stopped_all_that_needs_it_says_so_and_recovers() {
    without_postgres(Outage::Stopped).await;
}

#[tokio::test]
async fn with_postgres_frozen_all_that_needs_it_says_so_and_recovers() {
    without_postgres(Outage::Frozen).await;
}

#[tokio::test]
async fn a_crowd_that_wants_locks_while_etcd_is_silent_is_told_so_in_time() {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    client.acquire("job:held", "10m").await;
    etcd.pause();
    // Far more than one call to etcd carries.
    let grants = join_all(
        (0..400).map(|index| client.lock(&json!({ "resource": format!("job:{index}") })).send()),
    );
    // On a busy machine the queue may be too slow for some: they are told so in time as well.
    let codes: Vec<String> = grants.await.iter().map(Answer::code).collect();
    let told = |wanted: &str| codes.iter().filter(|code| *code == wanted).count();
    let (unavailable, overloaded) = (told("mint-unavailable"), told("overloaded"));
    assert!(unavailable > 0 && unavailable + overloaded == codes.len(), "{codes:?}");
    etcd.resume();
    acquirable(&client, "job:0").await;
}
