//! Payloads too large for the ledger, through HTTP, on every blob store.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::client::object_path;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use fence_tests::stores::{Kind, Store};
use futures::FutureExt as _;
use serde_json::json;
use tokio::net::TcpListener;

use crate::blobs::rig::{
    self, body, default_blobs, digest_of, head, on_store, seed_of, sha256, streamed,
};
use crate::setup::{SetUp, on_both};

const R: &str = "job:1";
const MIB: usize = 1 << 20;

async fn objects_of_any_size_are_written_and_read(setup: SetUp) {
    for kind in Kind::ALL {
        let store = Store::start(kind).await;
        let gateway = on_store(setup.settings().await, &store).start().await;
        let client = gateway.client();
        let lock = client.acquire(R, "10m").await;
        for (index, length) in
            [262_144, 262_145, MIB, 8 * MIB, 8 * MIB + 1, 25_000_000].into_iter().enumerate()
        {
            let seed = index as u64;
            let put = client.put(R, "big", body(seed, length)).under(&lock);
            let written = put.send().await;
            let expected = if index == 0 { 201 } else { 200 };
            assert_eq!(written.status.as_u16(), expected, "{kind:?} {length}: {}", written.text());
            assert_eq!(written.must_have("x-fence-guarantee"), "strict");
            let told = written.written();
            assert_eq!((told.size, told.sha256), (length as i64, Some(sha256(seed, length))));
            let read = client.read(R, "big").unchecked().open().await.unwrap();
            assert_eq!(read.content_length(), Some(length as u64));
            assert_eq!(read.headers()["etag"], format!("\"g0-v{}\"", told.version).as_str());
            assert_eq!(digest_of(read).await, (length, sha256(seed, length)), "{kind:?}");
        }
        client.delete(R, "big").under(&lock).send().await.expect(204);
        client.read(R, "big").send().await.refused(404, "object-not-found");
    }
}

/// A proxy would see the bytes in the clear, and who signs for them.
#[tokio::test]
async fn a_store_on_this_machine_is_reached_through_no_proxy() {
    let (store, proxy) =
        (Store::start(Kind::S3).await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let settings = on_store(SetUp::Embedded.settings().await, &store);
    let named = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"];
    let settings = named.iter().fold(settings, |settings, name| settings.env(name, &url));
    let gateway = settings.env("NO_PROXY", "").env("no_proxy", "").start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    client.put(R, "big", body(1, MIB)).under(&lock).send().await.expect(201);
    let read = client.read(R, "big").unchecked().open().await.unwrap();
    assert_eq!(digest_of(read).await, (MIB, sha256(1, MIB)));
    assert!(proxy.accept().now_or_never().is_none(), "the proxy was asked");
}

/// Without a `Content-Length` nobody knows where it will end up.
async fn bodies_in_chunks_go_where_they_fit(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (length, blobs) in [(100_000, 0), (262_144, 0), (262_145, 1), (9 * MIB, 2)] {
        let put = http
            .put(format!("{}{}", gateway.url(), object_path(R, &length.to_string())))
            .header("x-fence-token", lock.token.to_string())
            .body(streamed(7, length));
        let answer = put.send().await.unwrap();
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
        let read = client.read(R, &length.to_string()).unchecked().open().await.unwrap();
        assert_eq!(digest_of(read).await, (length, sha256(7, length)));
        assert_eq!(blob_files(&gateway), blobs);
    }
}

fn blob_files(gateway: &Gateway) -> usize {
    let Ok(folders) = std::fs::read_dir(default_blobs(gateway).join("blobs")) else { return 0 };
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

async fn parts_and_conditions_are_as_with_small_objects(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    let whole = body(1, 9 * MIB);
    rig::put(&client, &lock, "big", 1, 9 * MIB).await;
    let last = whole.len() - 1;
    for (range, from, to) in [
        ("bytes=0-0".to_owned(), 0, 0),
        ("bytes=8388600-8388700".to_owned(), 8_388_600, 8_388_700),
        ("bytes=-5".to_owned(), last - 4, last),
        (format!("bytes={}-", last), last, last),
    ] {
        let part = client.read(R, "big").header("range", &range).send().await.expect(206);
        assert!(part.body == whole[from..=to], "{range}");
        let told = format!("bytes {from}-{to}/{}", whole.len());
        assert_eq!(part.must_have("content-range"), told);
    }
    let outside = client.read(R, "big").header("range", "bytes=9437184-").send().await;
    outside.refused(416, "range-not-satisfiable");
    client.read(R, "big").header("if-none-match", "\"g0-v1\"").send().await.expect(304);
    client
        .read(R, "big")
        .header("if-match", "\"g0-v2\"")
        .send()
        .await
        .refused(412, "version-mismatch");
    let head = client.call(reqwest::Method::HEAD, object_path(R, "big")).send().await.expect(200);
    assert_eq!(head.must_have("content-length"), whole.len().to_string());
    let again = client.put(R, "big", body(2, MIB)).under(&lock).header("if-none-match", "*");
    again.send().await.refused(412, "version-mismatch");
    let again = client.put(R, "big", body(2, MIB)).under(&lock).header("if-match", "\"g0-v1\"");
    again.send().await.expect(200);
    assert_eq!(seed_of(&client.read(R, "big").send().await.expect(200).body), 2);
}

async fn replaced_versions_are_read_while_they_are_kept(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_VERSIONS_KEPT", "1h");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    rig::put(&client, &lock, "k", 1, MIB).await;
    rig::put(&client, &lock, "k", 2, 1000).await;
    rig::put(&client, &lock, "k", 3, 2 * MIB).await;
    client.delete(R, "k").under(&lock).send().await.expect(204);
    for (version, length) in [(1, MIB), (2, 1000), (3, 2 * MIB)] {
        let read =
            client.read(R, "k").query("version", &version.to_string()).send().await.expect(200);
        assert_eq!(read.must_have("etag"), format!("\"g0-v{version}\""));
        assert_eq!((seed_of(&read.body), read.body.len()), (version, length));
    }
    let part = client.read(R, "k").query("version", "1").header("range", "bytes=0-7").send().await;
    assert_eq!(&part.expect(206).body[..], 1_u64.to_be_bytes());
    let gone = client.read(R, "k").query("version", "4").send().await;
    gone.refused(404, "version-not-retained");
    for bad in ["0", "-1", "x", "9223372036854775808"] {
        client.read(R, "k").query("version", bad).send().await.refused(400, "query-malformed");
    }
}

/// By default only blobs outlive their replacement, for the sake of readers and of failovers.
async fn small_versions_are_not_kept_by_default(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    rig::put(&client, &lock, "k", 1, 100).await;
    rig::put(&client, &lock, "k", 2, 100).await;
    let old = client.read(R, "k").query("version", "1").send().await;
    old.refused(404, "version-not-retained");
    let new = client.read(R, "k").query("version", "2").send().await.expect(200);
    assert_eq!(seed_of(&new.body), 2);
}

async fn digests_of_clients_are_checked(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    let sha256 = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let hello = || client.put(R, "k", "hello").under(&lock);
    hello().header("repr-digest", sha256).send().await.expect(201);
    hello().header("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").send().await.expect(200);
    for length in [5, 1000, MIB] {
        let put = || client.put(R, "k", body(9, length)).under(&lock);
        put().header("repr-digest", sha256).send().await.refused(400, "digest-mismatch");
        let md5 = put().header("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").send().await;
        md5.refused(400, "digest-mismatch");
    }
    hello().header("content-md5", "hello").send().await.refused(400, "request-malformed");
    assert_eq!(client.read(R, "k").send().await.body, "hello");
    assert_eq!(client.version(R).await, 2);
}

/// Also without being asked to wait, if much would come; but a known key is answered as ever.
async fn writes_in_vain_are_refused_before_their_bodies(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let old = client.acquire(R, "10m").await;
    let key = "pay-once";
    let paid = client.put(R, "big", body(1, MIB)).under(&old).idempotency_key(key);
    let paid = paid.send().await.expect(201).written();
    client.release(&old).send().await.expect(204);
    client.acquire(R, "10m").await;
    for (length, expect) in
        [(10, "Expect: 100-continue\r\n"), (MIB, "Expect: 100-continue\r\n"), (MIB, "")]
    {
        let mut connection = RawConnection::open(gateway.address()).await;
        connection.send(&head(R, "big", &old, length, expect)).await;
        let answer = connection.answer().await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (412, "fence-token-stale"));
        assert!(!answer.continued, "the body is not wanted");
    }
    let keyed = format!("Idempotency-Key: {key}\r\nExpect: 100-continue\r\n");
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(&head(R, "big", &old, MIB, &keyed)).await;
    assert_eq!(connection.interim().await, Some(100));
    connection.send(&body(1, MIB)).await;
    let replayed = connection.answer().await.unwrap();
    assert_eq!(replayed.status, 201, "{}", replayed.text());
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    assert_eq!(replayed.json()["operation"], json!(paid.operation));
    let other = client.put(R, "big", body(2, MIB)).under(&old).idempotency_key(key).send().await;
    other.refused(422, "idempotency-key-reused");
    assert_eq!(blob_files(&gateway), 1, "nothing was uploaded for any of these");
    eventually("the refusals are kept", async || {
        let rejections = client.get("/rejections").send().await.expect(200);
        (rejections.json()["items"].as_array()?.len() == 3).then_some(())
    })
    .await;
}

/// The same body by another worker, under the token of its own: the first answer.
async fn redelivered_uploads_take_effect_once(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let first = client.acquire(R, "10m").await;
    let put = |lock| client.put(R, "k", body(5, MIB)).under(lock).idempotency_key("once");
    let one = put(&first).send().await.expect(201).written();
    client.release(&first).send().await.expect(204);
    let second = client.acquire(R, "10m").await;
    let again = put(&second).send().await.expect(201);
    assert_eq!(again.must_have("idempotent-replayed"), "true");
    assert_eq!(again.written().operation, one.operation);
    assert_eq!(client.version(R).await, 1);
}

async fn uploads_that_end_early_leave_the_object_alone(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire(R, "10m").await;
    rig::put(&client, &lock, "k", 1, MIB).await;
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(&head(R, "k", &lock, 20 * MIB, "")).await;
    connection.send(&body(2, 12 * MIB)).await;
    connection.finish().await;
    let answer = connection.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (400, "request-malformed"));
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(&head(R, "k", &lock, 20 * MIB, "")).await;
    connection.send(&body(3, 12 * MIB)).await;
    connection.reset();
    assert_eq!(seed_of(&client.read(R, "k").send().await.expect(200).body), 1);
    assert_eq!(client.version(R).await, 1);
}

on_both!(
    objects_of_any_size_are_written_and_read,
    bodies_in_chunks_go_where_they_fit,
    parts_and_conditions_are_as_with_small_objects,
    replaced_versions_are_read_while_they_are_kept,
    small_versions_are_not_kept_by_default,
    digests_of_clients_are_checked,
    writes_in_vain_are_refused_before_their_bodies,
    redelivered_uploads_take_effect_once,
    uploads_that_end_early_leave_the_object_alone,
);
