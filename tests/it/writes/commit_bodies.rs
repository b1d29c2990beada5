//! The bodies of `POST /commit`: what their headers say counts, and however slowly they arrive, others
//! find room.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_core::wire::Lock;
use fence_tests::conformance::pause;
use fence_tests::gateway::Gateway;
use fence_tests::multipart::{BOUNDARY, commit, form, list, part};
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

const INLINE: usize = 250_000;
const LARGE: usize = 300_000;

fn put(key: &str, body: &str) -> Value {
    json!({ "op": "put", "resource": "a", "key": key, "body": body })
}

/// The head of a commit whose body will have so many bytes.
fn head(lock: &Lock, length: usize) -> String {
    format!(
        "POST /commit HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
         Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {length}\r\n\r\n",
        lock.token
    )
}

/// A commit of a small body and a large one, of which some bytes never come.
async fn stalled(gateway: &Gateway, lock: &Lock, number: usize) -> RawConnection {
    let operations = json!({ "operations": [put(&format!("s{number}"), "1"), put("l", "2")] });
    let parts = [list(&operations), part("1", "", &[1; INLINE]), part("2", "", &[2; LARGE])];
    let mut bytes = parts.concat();
    bytes.truncate(bytes.len() - 100);
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(head(lock, bytes.len() + 1000).as_bytes()).await;
    connection.send(&bytes).await;
    connection
}

/// 4 MiB for all bodies: twenty such commits would fill it, and nobody else would find room.
#[tokio::test]
async fn slow_uploads_of_commits_leave_room_for_puts() {
    let gateway = Gateway::embedded()
        .env("FENCEGATE_BODIES_BYTES_MAX", "4194304")
        .env("FENCEGATE_BODY_IDLE_TIMEOUT", "10m")
        .env("FENCEGATE_UPLOADS_MAX", "64")
        .start()
        .await;
    let client = gateway.client();
    let lock = client.acquire("a", "10m").await;
    let path = gateway.data_dir().join("ledger.sqlite");
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut ledger = options.connect().await.expect("the ledger can be read");
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for number in 0..20 {
        let mut connection = stalled(&gateway, &lock, number).await;
        let answer = tokio::spawn(async move { connection.answer().await });
        let is_held = eventually("it is refused, or its upload has begun", async || {
            let count = "SELECT count(*) FROM blob_intents";
            let intents: i64 =
                sqlx::query_scalar(count).fetch_one(&mut ledger).await.expect("a count");
            let is_held = intents > i64::try_from(waiting.len()).expect("few");
            (is_held || answer.is_finished()).then_some(is_held)
        })
        .await;
        if is_held {
            waiting.push(answer);
            continue;
        }
        let answer = answer.await.expect("it was read").expect("an answer");
        assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"));
        refused += 1;
    }
    // Half of the room has place for eight of them.
    assert_eq!((waiting.len(), refused), (8, 12));
    for number in 0..3 {
        let body = vec![3; INLINE];
        let answer = client.put("a", &format!("p{number}"), body).under(&lock).send().await;
        answer.expect(201);
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    // Whoever hangs up gives its share back.
    let operations = json!({ "operations": [put("s", "1"), put("l", "2")] });
    eventually("commits with uploads have room again", async || {
        let (one, two) = (vec![1; INLINE], vec![2; LARGE]);
        let bodies: [(&str, &[u8]); 2] = [("1", &one), ("2", &two)];
        let answer = commit(&client, &operations, &bodies).under(&lock).send().await;
        (answer.status == 200).then_some(())
    })
    .await;
}

/// Each of them alone would be in time.
#[tokio::test]
async fn all_uploads_of_a_commit_have_one_deadline() {
    let gateway = Gateway::embedded().env("FENCEGATE_UPLOAD_TIMEOUT", "2s").start().await;
    let client = gateway.client();
    let lock = client.acquire("a", "10m").await;
    let names = ["1", "2", "3", "4"];
    let operations: Vec<_> = names.iter().map(|name| put(name, name)).collect();
    let operations = list(&json!({ "operations": operations }));
    let bodies: Vec<_> = names.iter().map(|name| part(name, "", &[7; LARGE])).collect();
    let end = format!("--{BOUNDARY}--\r\n");
    let length = operations.len() + bodies.iter().map(Vec::len).sum::<usize>() + end.len();
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(head(&lock, length).as_bytes()).await;
    connection.send(&operations).await;
    for body in &bodies {
        connection.send(body).await;
        pause(1000).await;
    }
    connection.send(end.as_bytes()).await;
    let answer = connection.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.code().as_str()), (408, "request-timeout"));
    assert_eq!(client.version("a").await, 0);
}

#[tokio::test]
async fn a_part_is_what_its_headers_say() {
    let gateway = Gateway::embedded().flag("--inline-bytes-max", "1024").start().await;
    let client = gateway.client();
    let lock = client.acquire("a", "10m").await;
    let mut typed = put("k", "x");
    typed["content_type"] = json!("text/x");
    let (plain, typed) =
        (json!({ "operations": [put("k", "x")] }), json!({ "operations": [typed] }));
    for body in [b"x".to_vec(), vec![b'x'; 5000]] {
        for (operations, header, status, code) in [
            (&plain, "Content-Encoding: gzip", 415, "unsupported-media-type"),
            (&plain, "Content-Transfer-Encoding: base64", 415, "unsupported-media-type"),
            (&plain, "Content-Transfer-Encoding: quoted-printable", 415, "unsupported-media-type"),
            (&plain, "Content-Length: 2", 400, "body-malformed"),
            (&plain, "Content-Length: 50000", 400, "body-malformed"),
            (&plain, "Content-Length: +1", 400, "request-malformed"),
            (&plain, "Content-Length: ", 400, "request-malformed"),
            (&plain, "Content-Type: ", 400, "request-malformed"),
            (&plain, "Content-Type: a\r\nContent-Type: a", 400, "request-malformed"),
            (&typed, "Content-Type: text/y", 400, "body-malformed"),
        ] {
            let parts = [list(operations), part("x", &format!("{header}\r\n"), &body)];
            let answer = form(&client, &parts).under(&lock).send().await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (status, code),
                "{header}"
            );
        }
        let length = format!("Content-Length: {}", body.len());
        for (operations, header, content_type) in [
            (&plain, "X: y", "application/octet-stream"),
            (&plain, length.as_str(), "application/octet-stream"),
            (&plain, "Content-Encoding: identity", "application/octet-stream"),
            (&plain, "Content-Transfer-Encoding: Binary", "application/octet-stream"),
            (&plain, "Content-Type: text/y", "text/y"),
            (&typed, "X: y", "text/x"),
            (&typed, "Content-Type: text/x", "text/x"),
        ] {
            let parts = [list(operations), part("x", &format!("{header}\r\n"), &body)];
            form(&client, &parts).under(&lock).send().await.expect(200);
            let read = client.read("a", "k").unchecked().send().await.expect(200);
            assert_eq!(read.must_have("content-type"), content_type, "{header}");
            assert_eq!(read.body, body);
        }
    }
}

/// Whatever a client says of its bytes is checked or refused.
#[tokio::test]
async fn no_digest_is_passed_over() {
    let gateway = Gateway::embedded().flag("--inline-bytes-max", "1024").start().await;
    let client = gateway.client();
    let lock = client.acquire("a", "10m").await;
    let sha256 = |bytes: &[u8]| format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(bytes)));
    let operations = json!({ "operations": [put("k", "x")] });
    let text = operations.to_string();
    let listed = |header: &str, digest: &str| {
        let headers = format!("Content-Type: application/json\r\n{header}: {digest}\r\n");
        part("operations", &headers, text.as_bytes())
    };
    let body = || part("x", "", b"x");
    let zeros = STANDARD.encode([0; 16]);
    for (header, digest) in [
        ("Content-MD5", zeros.as_str()),
        ("Repr-Digest", &sha256(b"x")),
        ("Content-Digest", &sha256(b"x")),
    ] {
        let answer = form(&client, &[listed(header, digest), body()]).under(&lock).send().await;
        answer.refused(400, "digest-mismatch");
        let whole = form(&client, &[list(&operations), body()]).under(&lock);
        let answer = whole.header(&header.to_lowercase(), digest).send().await;
        answer.refused(400, "request-malformed");
    }
    for header in ["Repr-Digest", "Content-Digest"] {
        for bytes in [b"y".to_vec(), vec![b'y'; 5000]] {
            let part = part("x", &format!("{header}: {}\r\n", sha256(b"x")), &bytes);
            let answer = form(&client, &[list(&operations), part]).under(&lock).send().await;
            answer.refused(400, "digest-mismatch");
            let answer = client.put("a", "k", bytes.clone()).under(&lock);
            let answer = answer.header(&header.to_lowercase(), sha256(b"x")).send().await;
            answer.refused(400, "digest-mismatch");
            let capitals = sha256(&bytes).replace("sha", "SHA");
            let answer = client.put("a", "k", bytes).under(&lock);
            let answer = answer.header(&header.to_lowercase(), capitals).send().await;
            answer.refused(400, "request-malformed");
        }
        let body = r#"{"resource":"b"}"#;
        let lock = |digest: String| {
            let call = client.call(Method::POST, "/locks");
            let call = call.header("content-type", "application/json");
            call.header(&header.to_lowercase(), digest).body(body)
        };
        lock(sha256(b"other")).send().await.refused(400, "digest-mismatch");
    }
    assert_eq!(client.version("a").await, 0);
    client.get("/resources/b").send().await.refused(404, "resource-not-found");
    let digest = sha256(text.as_bytes());
    let as_said = [listed("Repr-Digest", &digest), part("x", "Content-Length: 1\r\n", b"x")];
    form(&client, &as_said).under(&lock).send().await.expect(200);
    let stored = client.put("a", "k", "y").under(&lock).header("content-digest", sha256(b"y"));
    stored.send().await.expect(200);
}
