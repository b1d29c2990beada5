//! The fenced reverse proxy, as callers and upstreams see it.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use fence_tests::client::{Answer, Call, Client};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use reqwest::Method;
use serde_json::json;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    a_write_is_fenced_and_passed_on,
    reads_pass_without_a_token,
    what_the_upstream_says_is_passed_back,
    an_upstream_that_cannot_be_reached_leaves_nothing_open,
    a_large_body_is_streamed_both_ways_in_little_memory,
    what_is_too_large_is_refused,
    a_sequence_number_and_a_version_are_judged,
);

/// A gateway in front of an upstream with this guarantee.
pub async fn fronted(setup: SetUp, guarantee: &str, more: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let setting = upstream.setting(guarantee, more);
    let gateway = setup.settings().await.flag("--upstream", &setting).start().await;
    (gateway, upstream)
}

/// A call through the upstream `u` on the resource `u:<resource>`.
pub fn through(client: &Client, method: Method, resource: &str, query: &str) -> Call {
    let call = client.call(method, format!("/upstreams/u/r/{resource}")).unchecked();
    query.split('&').filter(|pair| !pair.is_empty()).fold(call, |call, pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        call.query(name, value)
    })
}

fn fence_headers(answer: &Answer) -> [Option<&str>; 2] {
    ["x-fence-verdict", "x-fence-guarantee"].map(|name| answer.header(name))
}

async fn a_write_is_fenced_and_passed_on(setup: SetUp) {
    for guarantee in ["drained", "admission"] {
        let (gateway, upstream) = fronted(setup, guarantee, "").await;
        let client = gateway.client();
        let write = || through(&client, Method::POST, "1/orders", "a=b c").body("hello");
        write().send().await.refused(428, "fence-token-missing");
        write().token("007").send().await.refused(400, "fence-token-malformed");
        write().token(1).send().await.refused(403, "fence-token-unknown");
        let lock = client.acquire("u:1", "10m").await;
        let done = write()
            .under(&lock)
            .idempotency_key("k1")
            .header("x-fence-seq", "5")
            .header("if-none-match", "\"upstreams-own\"")
            .send()
            .await
            .expect(200);
        assert_eq!(done.text(), "done");
        assert_eq!(fence_headers(&done), [Some("admitted"), Some(guarantee)]);
        assert!(done.must_have("via").contains("fencegate"));
        let operation = done.must_have("x-operation-id").to_owned();
        // It is over; of an admitted one nothing is kept.
        let known = client.get(format!("/operations/{operation}")).send().await;
        match guarantee {
            "drained" => assert_eq!(known.expect(200).json()["outcome"], "applied"),
            _ => drop(known.refused(404, "operation-not-found")),
        }

        let seen = upstream.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!((seen[0].method.as_str(), seen[0].bytes), ("POST", 5));
        assert_eq!(seen[0].target, "/r/1/orders?a=b%20c");
        assert_eq!(seen[0].token(), Some(lock.token.get()));
        let header = |name: &str| seen[0].headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("x-fence-seq"), Some("5"));
        assert_eq!(header("idempotency-key"), Some("k1"));
        assert_eq!(header("if-none-match"), Some("\"upstreams-own\""));
        assert_eq!(header("host"), Some(upstream.url().trim_start_matches("http://")));
        assert_eq!(header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(header("x-lock-id"), None);

        client.release(&lock).send().await.expect(204);
        write().under(&lock).send().await.refused(412, "fence-token-released");
        let next = client.acquire("u:1", "10m").await;
        let late = write().under(&lock).send().await.refused(412, "fence-token-stale");
        assert_eq!(fence_headers(&late), [Some("refused"), None]);
        let other = write().token(next.token).header("x-lock-id", random_id().to_string());
        other.send().await.refused(403, "lock-id-mismatch");
        let frozen = json!({ "reason": "audit" });
        client.post("/resources/u:1/freeze", &frozen).send().await.expect(200);
        write().under(&next).send().await.refused(423, "resource-frozen");
        assert_eq!(upstream.seen().len(), 1);
        let refused = client.get("/rejections").query("resource", "u:1").send().await.json();
        assert!(
            !refused["items"].as_array().expect("a list").is_empty() || guarantee == "admission"
        );
    }
}

async fn reads_pass_without_a_token(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let read = through(&client, Method::GET, "1", "size=100").send().await.expect(200);
    assert_eq!((read.body.len(), read.header("x-fence-verdict")), (100, None));
    assert_eq!(read.header("cache-control"), None);
    let head = through(&client, Method::HEAD, "1", "size=100").send().await.expect(200);
    assert_eq!((head.body.len(), head.header("content-length")), (0, Some("100")));
    through(&client, Method::OPTIONS, "1", "").send().await.expect(200);
    client.get("/upstreams/u/").unchecked().send().await.expect(200);
    client.get("/upstreams/u/elsewhere/").unchecked().send().await.expect(200);
    assert_eq!(upstream.seen().len(), 5);
    client.get("/upstreams/v/r/1").send().await.refused(404, "upstream-not-found");
}

async fn what_the_upstream_says_is_passed_back(setup: SetUp) {
    let (gateway, _upstream) = fronted(setup, "drained", ",intermediary=false").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    for (query, status) in [
        ("status=404", 404),
        ("status=412", 412),
        ("status=503", 503),
        ("status=204", 204),
        ("status=302&location=http://169.254.169.254/", 302),
    ] {
        let answer = through(&client, Method::PUT, "1", query).under(&lock).send().await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert_eq!(fence_headers(&answer), [Some("admitted"), Some("drained")]);
    }
    for query in ["size=300000", "size=300000&chunked", "size=1", "late=50&size=70000"] {
        let answer =
            through(&client, Method::POST, "1", query).under(&lock).send().await.expect(200);
        let size = if query.contains("70000") {
            70_000
        } else if query == "size=1" {
            1
        } else {
            300_000
        };
        assert_eq!(answer.body.len(), size, "{query}");
        // Whoever has seen the end of an answer finds nothing under way.
        let intents = client.get("/admin/intents").send().await.expect(200).json();
        assert_eq!(intents["items"], json!([]), "{query}");
    }
}

async fn an_upstream_that_cannot_be_reached_leaves_nothing_open(setup: SetUp) {
    let setting = "name=u,url=http://127.0.0.1:1,resource=/r/{resource},resource_form=digits,guarantee=drained";
    let gateway = setup.settings().await.flag("--upstream", setting).start().await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let put = through(&client, Method::PUT, "1", "").body("x").under(&lock);
    let refused = put.send().await.refused(502, "upstream-unreachable");
    assert_eq!(refused.problem().outcome, None);
    client.release(&lock).send().await.expect(204);
    client.acquire("u:1", "10m").await;
}

async fn a_large_body_is_streamed_both_ways_in_little_memory(setup: SetUp) {
    const SIZE: usize = 100 << 20;
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    // Warm: what comes on top is the bodies'.
    through(&client, Method::PUT, "1", "size=1000000")
        .body("x")
        .under(&lock)
        .send()
        .await
        .expect(200);
    let before = gateway.rss_bytes();
    let url = format!("{}/upstreams/u/r/1?size={SIZE}", gateway.url());
    let parts =
        futures::stream::iter((0..SIZE >> 16).map(|_| Ok::<_, std::io::Error>(vec![7; 1 << 16])));
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = http.put(url).body(reqwest::Body::wrap_stream(parts));
    let sent = request.header("x-fence-token", lock.token.to_string()).send();
    let mut answer = sent.await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let (mut got, mut most) = (0, 0);
    while let Some(part) = answer.chunk().await.expect("a whole answer") {
        got += part.len();
        most = most.max(gateway.rss_bytes());
    }
    assert_eq!((got, upstream.seen()[1].bytes), (SIZE, SIZE));
    let grown = most.saturating_sub(before);
    assert!(grown < SIZE as u64 / 4, "memory grew by {grown} bytes for bodies of {SIZE}");
}

async fn what_is_too_large_is_refused(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", ",body_bytes_max=100000").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let put = |query: &str| through(&client, Method::PUT, "1", query).under(&lock);
    put("").body(vec![0; 100_001]).send().await.refused(413, "payload-too-large");
    assert_eq!(upstream.begun(), 0);
    put("").body(vec![0; 100_000]).send().await.expect(200);
    let large = put("size=100001").send().await.refused(502, "upstream-failed");
    assert_eq!(large.problem().outcome.as_deref(), Some("unknown"));
    put("size=200000&chunked").try_send().await.expect_err("the answer must not look whole");
    // All of them were answered to the end.
    client.release(&lock).send().await.expect(204);
    eventually("nothing is open", async || {
        let intents = client.get("/admin/intents").send().await.expect(200).json();
        (intents["items"] == json!([])).then_some(())
    })
    .await;
}

async fn a_sequence_number_and_a_version_are_judged(setup: SetUp) {
    for guarantee in ["drained", "admission"] {
        let (gateway, upstream) = fronted(setup, guarantee, "").await;
        let client = gateway.client();
        let lock = client.acquire("u:1", "10m").await;
        let put = || through(&client, Method::PUT, "1", "").under(&lock);
        put().header("x-fence-seq", "3").send().await.expect(200);
        put().header("x-fence-seq", "3").send().await.refused(409, "sequence-out-of-order");
        client.put("u:1", "k", "x").under(&lock).send().await.expect(201);
        put().header("x-if-resource-version", "0").send().await.refused(412, "version-mismatch");
        put().header("x-if-resource-version", "1").send().await.expect(200);
        assert_eq!(upstream.seen().len(), 2);
    }
}

#[tokio::test]
async fn what_is_in_flight_is_bounded() {
    let (gateway, upstream) = fronted(SetUp::Embedded, "admission", ",in_flight_max=2").await;
    let client = gateway.client();
    let slow: Vec<_> = (0..2)
        .map(|_| tokio::spawn(through(&client, Method::GET, "1", "delay=3000").send()))
        .collect();
    eventually("both are there", async || (upstream.begun() == 2).then_some(())).await;
    through(&client, Method::GET, "1", "").send().await.refused(503, "overloaded");
    for one in slow {
        one.await.expect("no panic").expect(200);
    }
    through(&client, Method::GET, "1", "").send().await.expect(200);
}

#[tokio::test]
async fn metrics_count_what_was_forwarded() {
    let (gateway, _upstream) = fronted(SetUp::Embedded, "admission", "").await;
    let client = gateway.client();
    through(&client, Method::GET, "1", "").send().await.expect(200);
    through(&client, Method::GET, "1", "status=404").send().await.expect(404);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let metrics = client.get("/metrics").send().await.expect(200).text();
    for class in ["2xx", "4xx"] {
        let line = metrics.lines().find(|line| {
            line.starts_with("fencegate_upstream_requests_total")
                && line.contains("upstream=\"u\"")
                && line.contains(class)
        });
        assert!(line.is_some_and(|line| line.ends_with(" 1")), "{class}: {metrics}");
    }
}
