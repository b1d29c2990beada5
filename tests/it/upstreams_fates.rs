//! Drained upstreams: what closes an intent, and what must not.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fence_core::wire::Lock;
use fence_tests::bare::BareUpstream;
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::setup::{SetUp, on_both};
use crate::upstreams::{fronted, through};
use crate::upstreams_draining::intents;

on_both!(
    an_answer_that_may_be_anothers_leaves_its_fate_open,
    a_number_is_used_up_by_what_was_not_sent,
);

const EARLY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn in_front_of(url: &str, more: &str) -> Gateway {
    let setting = format!(
        "name=u,url={url},resource=/r/{{resource}},resource_form=digits,guarantee=drained{more}"
    );
    SetUp::Embedded.settings().await.flag("--upstream", &setting).start().await
}

async fn until_nothing_is_open(client: &Client) {
    eventually("nothing is open", async || intents(client).await.is_empty().then_some(())).await;
}

/// A PUT whose body has no known end; reads the answer to its end.
async fn streamed(
    gateway: &Gateway,
    lock: &Lock,
    body: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> (u16, String) {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let put = http.put(format!("{}/upstreams/u/r/1", gateway.url()));
    let put = put.header("x-fence-token", lock.token.to_string());
    let body = reqwest::Body::wrap_stream(body.map(Ok::<_, std::io::Error>));
    let answer = put.body(body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a whole answer"))
}

/// The answer closes the intent, so nothing of the body is sent after it.
#[tokio::test]
async fn an_answer_ends_the_sending() {
    let upstream = BareUpstream::start(EARLY, true).await;
    let gateway = in_front_of(&upstream.url(), "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let (parts, mut more) = mpsc::channel(9);
    let body = futures::stream::poll_fn(move |cx| more.poll_recv(cx));
    parts.send(Bytes::from(vec![b'a'; 200_000])).await.expect("it is read");
    upstream.answer();
    let answer = streamed(&gateway, &lock, body).await;
    assert_eq!(answer, (200, "ok".to_owned()));
    assert_eq!(intents(&client).await, Vec::<serde_json::Value>::new());
    client.release(&lock).send().await.expect(204);
    client.acquire("u:1", "10m").await;
    // What the old holder goes on sending is nobody's any more.
    let _ = parts.send(Bytes::from(vec![b'b'; 200_000])).await;
    drop(parts);
    let received = eventually("the connection is cut, or the rest is there", async || {
        let received = upstream.received();
        (received.ended || received.bytes.contains(&b'b')).then_some(received)
    })
    .await;
    assert!(!received.bytes.contains(&b'b'), "it was sent after the next lock was in force");
    assert!(!received.bytes.ends_with(b"0\r\n\r\n"), "a part must not look like the whole");
}

/// What the connection still holds, the upstream may still take.
#[tokio::test]
async fn a_body_that_is_stuck_keeps_its_intent_open() {
    let upstream = BareUpstream::start(EARLY, false).await;
    let gateway = in_front_of(&upstream.url(), "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    // More than all buffers on the way.
    let part = Bytes::from(vec![b'a'; 1 << 16]);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let body = std::iter::repeat_n(part, 4096).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let stuck = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match taken.load(Ordering::Relaxed) {
                now if now == before && now > 0 => return upstream.answer(),
                now => before = now,
            }
        }
    };
    let body = futures::stream::iter(body);
    let (answer, ()) = tokio::join!(streamed(&gateway, &lock, body), stuck);
    assert_eq!(answer, (200, "ok".to_owned()));
    let open = intents(&client).await;
    assert_eq!((open.len(), &open[0]["in_flight"]), (1, &json!(true)));
    client.release(&lock).send().await.expect(204);
    let next = json!({ "resource": "u:1" });
    client.lock(&next).send().await.refused(409, "resource-draining");
    // Once it cannot come through any more, it is over.
    drop(upstream);
    until_nothing_is_open(&client).await;
    client.lock(&next).send().await.expect(201);
}

/// A caller that takes every part in time, and all of them never. Buffers on the way make it take them in
/// leaps of a megabyte or so, of which two go by in a second.
#[tokio::test]
async fn a_slow_reader_leaves_nothing_open() {
    const SIZE: usize = 48 << 20;
    let upstream = Upstream::start().await;
    let settings = SetUp::Embedded.settings().await.env("FENCEGATE_BODY_IDLE_TIMEOUT", "3s");
    let setting = upstream.setting("drained", ",timeout=10s");
    let gateway = settings.flag("--upstream", &setting).start().await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let mut connection = TcpStream::connect(gateway.address()).await.expect("it listens");
    let request = format!(
        "PUT /upstreams/u/r/1?size={SIZE} HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
         Content-Length: 1\r\n\r\nx",
        lock.token
    );
    connection.write_all(request.as_bytes()).await.expect("it is taken");
    let reader = tokio::spawn(async move {
        let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
        while let Ok(read @ 1..) = connection.read(&mut buffer).await {
            got += read;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        got
    });
    eventually("it was answered", async || (upstream.seen().len() == 1).then_some(())).await;
    until_nothing_is_open(&client).await;
    client.release(&lock).send().await.expect(204);
    client.lock(&json!({ "resource": "u:1" })).send().await.expect(201);
    // It is not told that this was all.
    assert!(reader.await.expect("no panic") < SIZE);
}

async fn an_answer_that_may_be_anothers_leaves_its_fate_open(setup: SetUp) {
    let (gateway, _upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    for (turn, status) in [502, 503, 504, 524].into_iter().enumerate() {
        let lock = client.acquire("u:1", "10m").await;
        let query = format!("status={status}");
        let answer = through(&client, Method::POST, "1", &query).under(&lock).send().await;
        let answer = answer.expect(status);
        assert_eq!(
            (answer.text().as_str(), answer.header("x-fence-verdict")),
            ("done", Some("admitted"))
        );
        client.release(&lock).send().await.expect(204);
        let next = json!({ "resource": "u:1" });
        client.lock(&next).send().await.refused(409, "resource-draining");
        let open = intents(&client).await;
        assert_eq!((open.len(), &open[0]["in_flight"]), (1, &json!(false)), "{turn}");
        let operation = answer.must_have("x-operation-id");
        assert_eq!(open[0]["operation"], operation);
        let path = format!("/admin/intents/{operation}/resolve");
        client.post(path, &json!({ "reason": "looked" })).send().await.expect(204);
    }
    // Others are the upstream's own.
    let lock = client.acquire("u:1", "10m").await;
    for status in [400, 408, 429, 500, 501] {
        let query = format!("status={status}");
        through(&client, Method::POST, "1", &query).under(&lock).send().await.expect(status);
    }
    assert!(intents(&client).await.is_empty());

    // So are all, where nobody is in between.
    let (gateway, _upstream) = fronted(setup, "drained", ",intermediary=false").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    for status in [502, 503, 504] {
        let query = format!("status={status}");
        through(&client, Method::POST, "1", &query).under(&lock).send().await.expect(status);
    }
    assert!(intents(&client).await.is_empty());
}

async fn a_number_is_used_up_by_what_was_not_sent(setup: SetUp) {
    let setting = "name=u,url=http://127.0.0.1:1,resource=/r/{resource},resource_form=digits,guarantee=drained";
    let gateway = setup.settings().await.flag("--upstream", setting).start().await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let put = || through(&client, Method::PUT, "1", "").body("x").under(&lock);
    let unsent = put().header("x-fence-seq", "5").send().await.refused(502, "upstream-unreachable");
    let detail = unsent.problem().detail;
    assert!(detail.contains("X-Fence-Seq") && detail.contains("higher"), "{detail}");
    put().header("x-fence-seq", "5").send().await.refused(409, "sequence-out-of-order");
    put().header("x-fence-seq", "6").send().await.refused(502, "upstream-unreachable");
    let plain = put().send().await.refused(502, "upstream-unreachable");
    assert!(!plain.problem().detail.contains("X-Fence-Seq"));
}
