//! What a gateway says of itself: `/status`, and `Fencegate-Version` with every answer.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Status;
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::{RawConnection, exchange};
use fence_tests::upstream::Upstream;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    a_gateway_says_what_it_is,
    it_says_what_goes_on,
    every_answer_says_the_version,
    it_says_it_at_once_whatever_hangs,
);

async fn status(client: &Client) -> Status {
    client.get("/status").send().await.expect(200).parse()
}

async fn a_gateway_says_what_it_is(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_REQUEST_TIMEOUT", "3s");
    let mut gateway = settings.env("FENCEGATE_KEYS_KEPT", "2h").start().await;
    let client = gateway.client();
    client.acquire("job:1", "10m").await;
    let told = status(&client).await;
    assert_eq!(told.version, env!("CARGO_PKG_VERSION"));
    let [ledger, mint] = match setup {
        SetUp::Embedded => ["sqlite", "embedded"],
        SetUp::Clustered => ["postgres", "etcd"],
    };
    assert_eq!([told.ledger.as_str(), &told.mint, &told.blobs], [ledger, mint, "folder"]);
    assert_eq!((told.api, told.epoch, told.generation), (1, Some(0), Some(0)), "{told:?}");
    assert_eq!((told.answer_within_ms, told.keys_kept_ms), (9_000, 7_200_000));
    assert!(!told.requires_lock_id && !told.draining);
    eventually("the ledger's own time is known", async || status(&client).await.own_time_behind_ms)
        .await;
    #[expect(clippy::disallowed_methods, reason = "a test on real time")]
    let age = Timestamp::now().duration_since(told.started_at);
    assert!(age > SignedDuration::ZERO && age < SignedDuration::from_mins(10), "{told:?}");
    let shown = told.settings.expect("only this machine reaches it");
    assert!(shown.lines().any(|line| line == "keys_kept = \"2h\""), "{shown}");
    assert!(!shown.contains("postgres://postgres:"), "{shown}");

    gateway.kill9();
    gateway.restart().await;
    let again = status(&gateway.client()).await;
    assert_ne!(again.gateway, told.gateway);
    assert!(again.started_at > told.started_at);
}

async fn it_says_what_goes_on(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    let counts = status(&client).await.counts;
    assert_eq!(
        (counts.waiters, counts.watchers, counts.event_readers, counts.forwards),
        (0, 0, 0, 0)
    );
    let id = random_id();
    let waits = json!({ "resource": "job:1", "wait": "30s", "id": id });
    let waits = tokio::spawn(client.lock(&waits).send());
    let watches = client.get(format!("/locks/{}", lock.id)).query("wait", "30s");
    let watches = tokio::spawn(watches.query("since", "leased").send());
    let reads = client.get("/events").query("after", "now").query("wait", "30s");
    let reads = tokio::spawn(reads.send());
    eventually("all are counted", async || {
        let counts = status(&client).await.counts;
        let all = (counts.waiters, counts.watchers, counts.event_readers);
        (all == (1, 1, 1)).then_some(())
    })
    .await;
    assert_eq!(
        eventually("it is numbered", async || {
            status(&client).await.events.filter(|events| *events > 0)
        })
        .await,
        1
    );
    client.release(&lock).send().await.expect(204);
    waits.await.unwrap().expect(201);
    watches.await.unwrap().expect(200);
    reads.abort();
}

async fn every_answer_says_the_version(setup: SetUp) {
    let upstream = Upstream::start().await;
    let settings = setup.settings().await.flag("--upstream", &upstream.setting("admission", ""));
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let answers = [
        client.put("job:1", "k", "x").under(&lock).send().await.expect(201),
        client.put("job:1", "k", "x").send().await.expect(428),
        client.read("job:1", "k").send().await.expect(200),
        client.get("/healthz").send().await.expect(200),
        client.get("/nowhere").unchecked().send().await.expect(404),
        client.call(Method::PATCH, "/locks").unchecked().send().await.expect(405),
        client.get("/upstreams/u/r/1").unchecked().send().await,
    ];
    for answer in &answers {
        assert_eq!(answer.must_have("fencegate-version"), env!("CARGO_PKG_VERSION"));
    }
    // Before a route is known, and what is no HTTP at all.
    let foreign = b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n".as_slice();
    for request in [foreign, b"@\r\n\r\n"] {
        let answer = exchange(gateway.address(), request).await.expect("an answer");
        assert_eq!(answer.header("fencegate-version"), Some(env!("CARGO_PKG_VERSION")));
    }
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(b"HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(connection.head_answer().await.expect("an answer").status, 200);
}

async fn it_says_it_at_once_whatever_hangs(setup: SetUp) {
    if setup == SetUp::Embedded {
        return;
    }
    let etcd = fence_tests::etcd::Etcd::shared().await;
    let postgres = fence_tests::postgres::Postgres::dedicated().await;
    let url = postgres.database().await;
    // Whoever waited for the ledger would wait a minute.
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = gateway.env("FENCEGATE_REQUEST_TIMEOUT", "1m").start().await;
    let client = gateway.client();
    assert!(status(&client).await.epoch.is_some());
    postgres.pause();
    // This one waits for the ledger, and all the others are answered before it.
    let waits = client.get("/resources").send();
    let others = async {
        let silent = eventually("the ledger is silent", async || {
            Some(status(&client).await).filter(|told| told.epoch.is_none())
        })
        .await;
        assert_eq!((silent.ledger.as_str(), silent.generation), ("postgres", None));
        eventually("it is not ready", async || {
            (client.get("/readyz").send().await.status == 503).then_some(())
        })
        .await;
        let page = client.get("/metrics").send().await.expect(200).text();
        assert!(page.contains("fencegate_build_info{"), "{page}");
    };
    tokio::select! {
        biased;
        () = others => {}
        answer = waits => panic!("it waited for no ledger: {answer:?}"),
    }
    postgres.resume();
    eventually("it is heard again", async || status(&client).await.generation).await;
}

#[tokio::test]
async fn settings_are_shown_to_this_machine_alone() {
    for (flag, value) in
        [("--server-names", "gate.example.com"), ("--trusted-proxies", "127.0.0.1")]
    {
        let gateway = Gateway::embedded().flag(flag, value).start().await;
        assert_eq!(status(&gateway.client()).await.settings, None, "{flag}");
    }
}
