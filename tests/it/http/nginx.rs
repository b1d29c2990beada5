//! A gateway behind nginx, with the `location` block that README shows.

use fence_tests::client::{Client, encode, object_path};
use fence_tests::gateway::Gateway;
use fence_tests::nginx::Nginx;
use fence_tests::raw::{RawConnection, exchange};
use serde_json::json;

const LOCATION: &str = include_str!("nginx-location.conf");
/// Under which name clients reach it.
const NAME: &str = "gate.example.com";

async fn behind_nginx() -> (Gateway, Nginx, Client) {
    let settings = Gateway::embedded().env("FENCEGATE_OBJECT_BYTES_MAX", "409600");
    let settings = settings.flag("--server-names", NAME);
    let gateway = settings.start().await;
    let nginx = Nginx::start(LOCATION, gateway.address()).await;
    let client = Client::new(nginx.url());
    (gateway, nginx, client)
}

#[test]
fn readme_shows_the_location_that_is_tested_here() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains(LOCATION), "README.md must contain tests/it/nginx-location.conf");
}

#[tokio::test]
async fn names_arrive_through_nginx_as_they_were_sent() {
    let (gateway, _nginx, client) = behind_nginx().await;
    let resource = "job:1@eu#2+a=b,c~d_e.f-g";
    let lock = client.acquire(resource, "30s").await;
    for key in
        ["plain", "a b", "é", "a+b", "a%b", "100%25", "%2e%2e", "a/b/c", "日本/語", "a?b#c", "..."]
    {
        let put = client.put(resource, key, key.to_owned()).under(&lock).send().await.expect(201);
        let written = put.written();
        assert_eq!((written.resource.as_str(), written.key.as_str()), (resource, key));
        let direct = gateway.client().read(resource, key).send().await.expect(200);
        assert_eq!(direct.text(), key);
        assert_eq!(client.read(resource, key).send().await.expect(200).text(), key);
        client.delete(resource, key).under(&lock).send().await.expect(204);
        client.read(resource, key).send().await.refused(404, "object-not-found");
    }
}

#[tokio::test]
async fn the_id_of_a_lock_is_in_no_log_of_nginx() {
    let (mut gateway, nginx, client) = behind_nginx().await;
    let lock = client.acquire("r", "30s").await;
    client.renew(&lock, None).send().await.expect(200);
    client.lock_of(&lock).send().await.expect(200);
    client.get(format!("/locks%2F{}", lock.id)).unchecked().send().await;
    client.read("r", "k").send().await.refused(404, "object-not-found");
    gateway.kill9();
    client.renew(&lock, None).unchecked().send().await.expect(502);
    client.read("r", "k").unchecked().send().await.expect(502);
    let id = lock.id.to_string();
    let (access, errors) = nginx.logs();
    for log in [&access, &errors] {
        assert!(log.contains("/resources/r/objects/k") && !log.contains(&id), "{log}");
    }
    assert!(access.contains("POST /locks "), "{access}");
}

#[tokio::test]
async fn another_name_than_that_of_the_settings_is_refused_through_nginx() {
    let (_gateway, nginx, _client) = behind_nginx().await;
    let request = b"GET /locks HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let answer = exchange(nginx.address(), request).await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (421, "host-not-served"));
}

#[tokio::test]
async fn characters_that_need_no_encoding_may_be_sent_plain_through_nginx() {
    let (_gateway, nginx, client) = behind_nginx().await;
    let lock = client.acquire("job:1@eu+a=b,c", "30s").await;
    let request = format!(
        "PUT /resources/job:1@eu+a=b,c/objects/x:@+=,y HTTP/1.1\r\nHost: gate.example.com\r\n\
         X-Fence-Token: {}\r\nContent-Length: 1\r\n\r\nx",
        lock.token
    );
    let answer = exchange(nginx.address(), request.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["key"], "x:@+=,y");
    assert_eq!(answer.json()["resource"], "job:1@eu+a=b,c");
}

#[tokio::test]
async fn a_stale_write_is_refused_through_nginx_with_the_same_answer_as_without() {
    let (gateway, _nginx, client) = behind_nginx().await;
    let first = client.acquire("r", "30s").await;
    client.release(&first).send().await.expect(204);
    let second = client.acquire("r", "30s").await;
    client.put("r", "k", "second").under(&second).send().await.expect(201);

    let mut bodies = Vec::new();
    for client in [client, gateway.client()] {
        let late = client.put("r", "k", "late").under(&first).header("x-request-id", "late-1");
        let late = late.send().await.refused(412, "fence-token-stale");
        assert_eq!(late.must_have("content-type"), "application/problem+json");
        assert_eq!(late.must_have("x-fence-verdict"), "refused");
        assert_eq!(late.must_have("x-request-id"), "late-1");
        let mut body = late.json();
        // The gateway's own id of each request.
        assert!(body.as_object_mut().unwrap().remove("gateway_request_id").is_some());
        bodies.push(body);
        assert_eq!(client.read("r", "k").send().await.expect(200).text(), "second");
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn headers_ranges_and_conditions_pass_through_nginx() {
    let (_gateway, _nginx, client) = behind_nginx().await;
    let lock = client.acquire("r", "30s").await;
    let put = client
        .put("r", "k", "0123456789")
        .under(&lock)
        .header("content-type", "text/plain")
        .header("x-fence-seq", "7")
        .idempotency_key("once");
    let first = put.clone().send().await.expect(201);
    let again = put.send().await.expect(201);
    assert_eq!(again.must_have("idempotent-replayed"), "true");
    assert_eq!(again.must_have("x-fence-verdict"), "replayed");
    let etag = first.must_have("etag");

    let read = client.read("r", "k").header("range", "bytes=2-4").send().await.expect(206);
    assert_eq!((read.text().as_str(), read.must_have("content-range")), ("234", "bytes 2-4/10"));
    client.read("r", "k").header("if-none-match", etag).send().await.expect(304);
    let mismatch = client.put("r", "k", "x").under(&lock).header("if-match", "\"g0-v99\"");
    mismatch.send().await.refused(412, "version-mismatch");
    let head = client.call(reqwest::Method::HEAD, object_path("r", "k")).send().await.expect(200);
    assert_eq!(head.must_have("content-length"), "10");
    assert_eq!(head.must_have("etag"), etag);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_it_through_nginx() {
    let (_gateway, nginx, client) = behind_nginx().await;
    let lock = client.acquire("r", "30s").await;
    let mut connection = RawConnection::open(nginx.address()).await;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: gate.example.com\r\nX-Fence-Token: {}\r\nExpect: 100-continue\r\n\
         Content-Length: 5\r\n\r\n",
        object_path("r", "k"),
        lock.token
    );
    connection.send(head.as_bytes()).await;
    assert_eq!(connection.interim().await, Some(100));
    connection.send(b"hello").await;
    assert_eq!(connection.answer().await.unwrap().status, 201);
    assert_eq!(client.read("r", "k").send().await.expect(200).text(), "hello");
}

#[tokio::test]
async fn chunked_bodies_and_the_limit_on_them_pass_through_nginx() {
    let (gateway, nginx, client) = behind_nginx().await;
    let lock = client.acquire("r", "30s").await;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: gate.example.com\r\nX-Fence-Token: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        object_path("r", "k"),
        lock.token
    );
    let small = format!("{head}5\r\nhello\r\n0\r\n\r\n");
    let answer = exchange(nginx.address(), small.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(client.read("r", "k").send().await.expect(200).text(), "hello");

    // nginx may close a connection after a refusal, in which a caller may already send its next request: one for each.
    let large = async |length| {
        Client::new(nginx.url()).put("r", "k", vec![b'x'; length]).under(&lock).send().await
    };
    large(500 * 1024).await.refused(413, "payload-too-large");
    let stored = async || gateway.client().read("r", "k").send().await.expect(200);
    assert_eq!(stored().await.text(), "hello");
    large(400 * 1024).await.expect(200);
    assert_eq!(stored().await.body.len(), 400 * 1024);
}

#[tokio::test]
async fn names_that_are_refused_without_nginx_are_refused_behind_it() {
    let (_gateway, nginx, client) = behind_nginx().await;
    let lock = client.acquire("r", "30s").await;
    for (path, code) in [
        ("/resources/r/objects/a%2Fb", "object-key-invalid"),
        ("/resources/r/objects/a//b", "object-key-invalid"),
        ("/resources/r/objects/a/%2e%2e/b", "object-key-invalid"),
        ("/resources/a%2Fb/objects/k", "resource-name-invalid"),
        ("/resources/%252e/objects/k", "resource-name-invalid"),
    ] {
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: gate.example.com\r\nX-Fence-Token: {}\r\nContent-Length: 1\r\n\r\nx",
            lock.token
        );
        let answer = exchange(nginx.address(), request.as_bytes()).await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{path}");
    }
    let list = client.get(format!("/resources/{}/objects", encode("r", b""))).send().await;
    assert_eq!(list.expect(200).json()["items"], json!([]));
}
