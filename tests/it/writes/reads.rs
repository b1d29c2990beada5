//! Reads over real HTTP: bytes, headers, ranges, conditions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_tests::client::object_path;
use reqwest::Method;
use sha2::{Digest as _, Sha256};

use crate::setup::{SetUp, on_both};

on_both!(
    an_object_comes_back_as_it_was_put,
    a_range_is_a_part_of_the_object,
    conditions_save_the_transfer_of_what_the_reader_has,
    what_is_not_there_is_told_apart,
    reads_say_the_digest_of_the_whole_object,
);

async fn an_object_comes_back_as_it_was_put(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for (sent, kept) in [
        (None, "application/octet-stream"),
        (Some("text/html; charset=utf-8"), "text/html; charset=utf-8"),
        (Some("application/json"), "application/json"),
        (Some("application/problem+json"), "application/problem+json"),
    ] {
        let put = client.put("job:1", "k", "{not json").under(&lock);
        let put = sent.into_iter().fold(put, |put, sent| put.header("content-type", sent));
        let put = put.send().await;
        assert!(put.status.is_success(), "{}", put.text());
        let get = client.read("job:1", "k").unchecked().send().await.expect(200);
        let head = client.call(Method::HEAD, object_path("job:1", "k"));
        let head = head.send().await.expect(200);
        for answer in [&get, &head] {
            assert_eq!(answer.must_have("content-type"), kept);
            assert_eq!(answer.must_have("etag"), put.must_have("etag"));
            assert_eq!(answer.must_have("x-resource-version"), put.must_have("x-resource-version"));
            assert_eq!(answer.must_have("content-length"), "9");
            assert_eq!(answer.must_have("accept-ranges"), "bytes");
            assert_eq!(answer.must_have("cache-control"), "no-cache, no-transform");
            assert_eq!(answer.must_have("x-content-type-options"), "nosniff");
            assert_eq!(answer.header("x-fence-verdict"), None, "the fence decides on no read");
        }
        assert_eq!((get.text().as_str(), head.text().as_str()), ("{not json", ""));
    }
    let encoded = client.put("job:1", "k", "x").under(&lock).header("content-encoding", "gzip");
    encoded.send().await.refused(415, "unsupported-media-type");
}

async fn a_range_is_a_part_of_the_object(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "0123456789").under(&lock).send().await.expect(201);
    let read = |range: &str| client.read("job:1", "k").header("range", range);
    for (range, part, place) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=0-99", "0123456789", "bytes 0-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
    ] {
        let answer = read(range).send().await.expect(206);
        assert_eq!((answer.text().as_str(), answer.must_have("content-range")), (part, place));
        assert_eq!(answer.must_have("content-length"), part.len().to_string());
    }
    for outside in ["bytes=10-", "bytes=99-100", "bytes=-0"] {
        let answer = read(outside).send().await.refused(416, "range-not-satisfiable");
        assert_eq!(answer.must_have("content-range"), "bytes */10");
    }
    // What is no range that we serve is as if it had not been sent.
    for ignored in ["bytes=4-2", "lines=1-2", "bytes=x", "bytes=0-1,3-4"] {
        assert_eq!(read(ignored).send().await.expect(200).text(), "0123456789", "{ignored}");
    }
    let current = read("bytes=2-4").header("if-range", "\"g0-v1\"").send().await;
    assert_eq!(current.expect(206).text(), "234");
    let changed = read("bytes=2-4").header("if-range", "\"g0-v0\"").send().await;
    assert_eq!(changed.expect(200).text(), "0123456789");

    client.put("job:1", "empty", "").under(&lock).send().await.expect(201);
    let nothing = client.read("job:1", "empty").header("range", "bytes=0-0").send().await;
    let nothing = nothing.refused(416, "range-not-satisfiable");
    assert_eq!(nothing.must_have("content-range"), "bytes */0");
}

async fn conditions_save_the_transfer_of_what_the_reader_has(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "one").under(&lock).send().await.expect(201);
    let read = |name: &str, tag: &str| client.read("job:1", "k").header(name, tag).send();
    for known in ["\"g0-v1\"", "W/\"g0-v1\"", "\"x\", \"g0-v1\"", "*"] {
        let same = read("if-none-match", known).await.expect(304);
        assert_eq!(same.must_have("etag"), "\"g0-v1\"");
        assert_eq!(same.must_have("x-resource-version"), "1");
        let head = client.call(Method::HEAD, object_path("job:1", "k"));
        head.header("if-none-match", known).send().await.expect(304);
    }
    read("if-match", "\"g0-v1\"").await.expect(200);
    read("if-match", "\"g0-v9\"").await.refused(412, "version-mismatch");

    client.put("job:1", "k", "two").under(&lock).send().await.expect(200);
    let changed = read("if-none-match", "\"g0-v1\"").await.expect(200);
    assert_eq!((changed.text().as_str(), changed.must_have("etag")), ("two", "\"g0-v2\""));
    // A version never comes back, even if the bytes do.
    client.put("job:1", "k", "one").under(&lock).send().await.expect(200);
    assert_eq!(read("if-none-match", "\"g0-v1\"").await.expect(200).text(), "one");
}

async fn what_is_not_there_is_told_apart(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.read("job:1", "k").send().await.refused(404, "resource-not-found");
    client.acquire("job:1", "10m").await;
    let absent = client.read("job:1", "k").send().await.refused(404, "object-not-found");
    assert_eq!(absent.header("x-fence-verdict"), None);
    assert_eq!(absent.problem().resource.as_deref(), Some("job:1"));
    let conditional = client.read("job:1", "k").header("if-none-match", "*");
    conditional.send().await.refused(404, "object-not-found");
    let head = client.call(Method::HEAD, object_path("job:1", "k")).send().await;
    assert_eq!((head.status.as_u16(), head.text().as_str()), (404, ""));
}

async fn reads_say_the_digest_of_the_whole_object(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    // In the ledger, and in the blob store.
    for length in [0, 10, 300_000] {
        let body = vec![b'x'; length];
        let expected = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(&body)));
        client.put("job:1", "k", body).under(&lock).send().await;
        let (get, head) =
            (client.read("job:1", "k"), client.call(Method::HEAD, object_path("job:1", "k")));
        let whole = get.clone().send().await.expect(200);
        let tag = whole.must_have("etag").to_owned();
        let mut answers = vec![
            head.clone().send().await.expect(200),
            get.clone().header("if-none-match", &tag).send().await.expect(304),
            head.header("if-none-match", &tag).send().await.expect(304),
        ];
        if length > 0 {
            answers.push(get.header("range", "bytes=1-2").send().await.expect(206));
        }
        for answer in std::iter::once(&whole).chain(&answers) {
            assert_eq!(answer.must_have("repr-digest"), expected, "{}", answer.status);
        }
        // What was read can be said again of what is written.
        let again = client.put("job:1", "k", whole.body.clone()).under(&lock);
        again.header("repr-digest", &expected).send().await.expect(200);
    }
    let outside = client.read("job:1", "k").header("range", "bytes=999999-").send().await;
    assert_eq!(outside.refused(416, "range-not-satisfiable").header("repr-digest"), None);
    client.read("job:1", "none").send().await.refused(404, "object-not-found");
}
