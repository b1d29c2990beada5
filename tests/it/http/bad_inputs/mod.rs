//! Requests that no well-behaved client sends, over a raw socket: each gets its answer, changes
//! nothing, and leaves the gateway working.

mod calls;
mod commits;
mod row;
mod writes;

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::raw::{RawConnection, exchange};

use row::Row;

/// Locks in every condition, and one object that must not change.
struct Scene {
    gateway: Gateway,
    client: Client,
    live: Lock,
    stale: Lock,
    released: Lock,
    other: Lock,
}

impl Scene {
    async fn set(settings: Settings) -> Self {
        let settings = settings
            .flag("--inline-bytes-max", "512")
            .env("FENCEGATE_OBJECT_BYTES_MAX", "1024")
            .env("FENCEGATE_BODY_IDLE_TIMEOUT", "300ms")
            .env("FENCEGATE_BODY_TIMEOUT", "1s");
        let gateway = settings.start().await;
        let client = gateway.client();
        let stale = client.acquire("live", "30s").await;
        client.release(&stale).send().await.expect(204);
        let live = client.acquire("live", "10m").await;
        let released = client.acquire("released", "30s").await;
        client.release(&released).send().await.expect(204);
        let other = client.acquire("other", "10m").await;
        let kept = client.put("live", "kept", "kept").under(&live).header("x-fence-seq", "5");
        kept.idempotency_key("used").send().await.expect(201);
        Self { gateway, client, live, stale, released, other }
    }

    /// The request with real tokens and ids in the place of `{words}`.
    fn fill(&self, request: &str) -> String {
        let never = self.other.token.get() + 1;
        request
            .replace("{live}", &self.live.token.to_string())
            .replace("{stale}", &self.stale.token.to_string())
            .replace("{released}", &self.released.token.to_string())
            .replace("{other}", &self.other.token.to_string())
            .replace("{never}", &never.to_string())
            .replace("{other-id}", &self.other.id.to_string())
            .replace("{host}", &self.gateway.address().to_string())
    }

    /// Sends a row and says how its answer differs from what is expected.
    async fn play(&self, row: &Row) -> Result<(), String> {
        let request = self.fill(&row.request);
        let mut connection = RawConnection::open(self.gateway.address()).await;
        connection.send(request.as_bytes()).await;
        if row.hangs_up {
            connection.finish().await;
        }
        let Some(answer) = connection.answer().await else {
            return if row.hangs_up { Ok(()) } else { Err("closed without an answer".to_owned()) };
        };
        let got = (answer.status, answer.code());
        if got != (row.status, row.code.to_owned()) {
            return Err(format!("{} {}: {}", got.0, got.1, answer.text()));
        }
        if answer.header("content-type") != Some("application/problem+json") {
            return Err(format!("not a problem document: {answer:?}"));
        }
        let closes = answer.header("connection") == Some("close");
        if row.closes && !(closes && connection.closed().await) {
            return Err(format!("the connection stays open: {answer:?}"));
        }
        Ok(())
    }

    async fn assert_unchanged(&self) {
        let answer = self.client.read("live", "kept").send().await.expect(200);
        assert_eq!(answer.text(), "kept");
        assert_eq!(self.client.version("live").await, 1);
        assert_eq!(self.client.version("other").await, 0);
        assert_eq!(self.client.version("released").await, 0);
        let objects = self.client.get("/resources/live/objects").send().await.expect(200);
        assert_eq!(objects.json()["items"].as_array().map(Vec::len), Some(1));
        let resources = self.client.get("/resources").send().await.expect(200);
        assert_eq!(resources.json()["items"].as_array().map(Vec::len), Some(3));
    }
}

async fn every_bad_input_gets_its_answer(settings: Settings) {
    let scene = Scene::set(settings).await;
    let mut failures = Vec::new();
    for row in writes::rows().into_iter().chain(calls::rows()).chain(commits::rows()) {
        if let Err(why) = scene.play(&row).await {
            failures.push(format!("{} (expected {} {}): {why}", row.name, row.status, row.code));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    scene.assert_unchanged().await;
    let put = scene.client.put("live", "kept", "changed").under(&scene.live);
    assert_eq!(put.send().await.expect(200).written().version, 2);
}

#[tokio::test]
async fn every_bad_input_gets_its_answer_on_the_embedded_default() {
    every_bad_input_gets_its_answer(Gateway::embedded()).await;
}

#[tokio::test]
async fn every_bad_input_gets_its_answer_on_postgres_and_etcd() {
    let etcd = Etcd::shared().await;
    let database = Postgres::shared().await.database().await;
    let settings = Gateway::clustered(&database, &etcd.endpoint(), &etcd.prefix());
    every_bad_input_gets_its_answer(settings).await;
}

#[tokio::test]
async fn odd_but_allowed_requests_are_taken() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let address = gateway.address();
    for (name, line, extra) in [
        (
            "6: a token among tabs and spaces",
            "/resources/r/objects/a",
            "X-Fence-Token: \t {live} \t\r\n",
        ),
        ("names in other cases", "/resources/r/objects/b", "x-FENCE-token:{live}\r\n"),
        (
            "32: the highest sequence",
            "/resources/r/objects/c",
            "X-Fence-Token: {live}\r\nX-Fence-Seq: 9223372036854775807\r\n",
        ),
        (
            "47: a name that Windows reserves",
            "/resources/r/objects/CON",
            "X-Fence-Token: {live}\r\n",
        ),
        ("48: a key in the other case", "/resources/r/objects/A", "X-Fence-Token: {live}\r\n"),
        (
            "54: the right host in the request line",
            "http://localhost/resources/r/objects/d",
            "X-Fence-Token: {live}\r\n",
        ),
        ("an encoded letter", "/resources/%72/objects/%65", "X-Fence-Token: {live}\r\n"),
        (
            "45: 200 segments",
            &format!("/resources/r/objects/{}", ["x"; 200].join("/")),
            "X-Fence-Token: {live}\r\n",
        ),
    ] {
        let extra = extra.replace("{live}", &lock.token.to_string());
        let request =
            format!("PUT {line} HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: 1\r\n\r\nx");
        let answer = exchange(address, request.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 201, "{name}: {}", answer.text());
    }
    // Row 32: no sequence is higher than the highest.
    let next = client.put("r", "c", "y").under(&lock).header("x-fence-seq", "9223372036854775807");
    next.send().await.refused(409, "sequence-out-of-order");
    // Row 48: names in upper and lower case are different.
    let tags = [client.read("r", "a").send().await, client.read("r", "A").send().await];
    assert_ne!(tags[0].must_have("etag"), tags[1].must_have("etag"));
    client.acquire("R", "30s").await;
    client.read("r", "e").send().await.expect(200);
    client.read("R", "e").send().await.refused(404, "object-not-found");
}

#[tokio::test]
async fn a_write_whose_caller_hangs_up_after_the_body_takes_effect_once() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    for number in 1..=20 {
        let mut connection = RawConnection::open(gateway.address()).await;
        let request = format!(
            "PUT /resources/r/objects/k HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
             Idempotency-Key: key-{number}\r\nContent-Length: 2\r\n\r\nxx",
            lock.token
        );
        connection.send(request.as_bytes()).await;
        connection.finish().await;
        drop(connection);
    }
    // The same calls again: whatever the first round did is replayed, the rest is done now.
    for number in 1..=20 {
        let put = client.put("r", "k", "xx").under(&lock);
        let status = put.idempotency_key(&format!("key-{number}")).send().await.status.as_u16();
        assert!(status == 200 || status == 201, "{status}");
    }
    assert_eq!(client.version("r").await, 20);
}

#[tokio::test]
async fn requests_that_arrive_too_slowly_are_ended() {
    let gateway = Gateway::embedded()
        .env("FENCEGATE_BODY_IDLE_TIMEOUT", "300ms")
        .env("FENCEGATE_BODY_TIMEOUT", "1s")
        .start()
        .await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let put = |length: usize| {
        format!(
            "PUT /resources/r/objects/k HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
             Content-Length: {length}\r\n\r\n",
            lock.token
        )
    };
    let slow = async |head: String, drip: &[u8], pause: u64| {
        let mut connection = RawConnection::open(gateway.address()).await;
        connection.send(head.as_bytes()).await;
        connection.drip(drip, Duration::from_millis(pause)).await;
        connection.answer().await
    };
    let bytes = [b'x'; 100];
    let (stalled, dripping, head) = tokio::join!(
        slow(put(100), b"xxx", 0),
        slow(put(100), &bytes, 50),
        slow("PUT /resources/r/objects/k HTTP/1.1\r\nHost: te".to_owned(), b"", 0),
    );
    for (name, answer) in [("stalled", stalled), ("dripping", dripping)] {
        let answer = answer.unwrap_or_else(|| panic!("{name}: no answer"));
        assert_eq!((answer.status, answer.code().as_str()), (408, "request-timeout"), "{name}");
    }
    let head = head.expect("a head that stalls is answered");
    assert_eq!((head.status, head.code().as_str()), (408, "request-timeout"));
    assert_eq!(client.version("r").await, 0);
    client.put("r", "k", "x").under(&lock).send().await.expect(201);
}
