//! `POST /commit` over real HTTP: many puts and deletes over the resources of a lock, all or nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_core::wire::{Committed, Lock};
use fence_tests::client::{Client, resource_path};
use fence_tests::multipart::{BOUNDARY, commit, form, list, part};
use fence_tests::raw::RawConnection;
use serde_json::{Value, json};

use crate::setup::{SetUp, on_both, take_over};

on_both!(
    a_commit_changes_all_resources_at_once,
    what_is_refused_changes_nothing_and_says_where,
    a_commit_is_replayed_under_its_key,
    large_bodies_are_committed_as_blobs,
    bodies_that_are_not_as_listed_are_refused,
    a_commit_in_vain_is_refused_before_its_bodies,
);

async fn lock_on(client: &Client, resources: &[&str]) -> Lock {
    let body = json!({ "resources": resources, "owner": "many", "ttl": "10m" });
    client.lock(&body).send().await.expect(201).parse()
}

fn put(resource: &str, key: &str, body: &str) -> Value {
    json!({ "op": "put", "resource": resource, "key": key, "body": body })
}

fn delete(resource: &str, key: &str) -> Value {
    json!({ "op": "delete", "resource": resource, "key": key })
}

async fn text(client: &Client, resource: &str, key: &str) -> String {
    client.read(resource, key).send().await.expect(200).text()
}

async fn a_commit_changes_all_resources_at_once(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = lock_on(&client, &["a", "b", "c"]).await;
    client.put("b", "old", "old").under(&lock).send().await.expect(201);
    let mut typed = put("a", "dir/k", "x");
    typed["content_type"] = json!("text/x; charset=utf-8");
    let operations = json!({
        "operations": [
            put("b", "k", "first"), typed, delete("b", "old"), delete("c", "nothing"),
            put("b", "empty", "e"),
        ],
        "versions": { "b": 1 },
    });
    let bodies: [(&str, &[u8]); 3] = [("first", b"one"), ("x", b"two\r\n--\r\n"), ("e", b"")];
    let answer = commit(&client, &operations, &bodies).under(&lock).send().await.expect(200);
    assert_eq!(answer.must_have("x-fence-verdict"), "admitted");
    assert_eq!(answer.must_have("x-fence-guarantee"), "strict");
    let done: Committed = answer.parse();
    assert_eq!(answer.must_have("x-operation-id"), done.operation.to_string());
    let json = answer.json();
    let resources = json!([
        { "resource": "a", "version": 1 }, { "resource": "b", "version": 2 }, { "resource": "c" },
    ]);
    assert_eq!(json["resources"], resources);
    let results = json["results"].as_array().expect("results");
    assert_eq!(results.len(), 5);
    assert_eq!(results[0]["etag"], "\"g0-v2\"");
    assert_eq!((&results[0]["created"], &results[0]["size"]), (&json!(true), &json!(3)));
    let deleted = json!({ "op": "delete", "resource": "b", "key": "old", "version": 2 });
    assert_eq!(results[2], deleted);
    assert_eq!(results[3], json!({ "op": "delete", "resource": "c", "key": "nothing" }));

    let read = client.read("a", "dir/k").unchecked().send().await.expect(200);
    assert_eq!((read.text().as_str(), read.must_have("etag")), ("two\r\n--\r\n", "\"g0-v1\""));
    assert_eq!(read.must_have("content-type"), "text/x; charset=utf-8");
    assert_eq!(text(&client, "b", "empty").await, "");
    client.read("b", "old").send().await.refused(404, "object-not-found");
    assert_eq!(client.version("c").await, 0);

    let found =
        client.get(format!("/operations/{}", done.operation)).send().await.expect(200).json();
    assert_eq!((&found["kind"], &found["resources"]), (&json!("commit"), &resources));
    assert_eq!(found["outcome"], "applied");
    let events = client.get("/events").send().await.expect(200).json();
    let events = events["items"].as_array().expect("events").clone();
    let seen: Vec<_> =
        events.iter().map(|one| (one["resource"].as_str(), one["kind"].as_str())).collect();
    let commits = [(Some("a"), Some("commit")), (Some("b"), Some("commit"))];
    assert_eq!(seen, [&[(Some("b"), Some("put"))], commits.as_slice()].concat());
    let history = client.get("/resources/b/versions").send().await.expect(200).json();
    assert_eq!(
        (&history["items"][0]["kind"], &history["items"][0]["version"]),
        (&json!("commit"), &json!(2))
    );
    assert!(history["items"][0].get("key").is_none());
    // Plain writes go on where the commit left off.
    let next = client.put("b", "k", "next").under(&lock).header("if-match", "\"g0-v2\"");
    assert_eq!(next.send().await.expect(200).written().version, 3);
}

async fn what_is_refused_changes_nothing_and_says_where(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = lock_on(&client, &["a", "b"]).await;
    client.put("b", "k", "kept").under(&lock).send().await.expect(201);
    let other = client.acquire("other", "10m").await;
    let with = |at: usize, name: &str, value: Value| {
        let mut operations = vec![put("a", "k", "x"), put("b", "k", "y"), delete("b", "l")];
        operations[at][name] = value;
        json!({ "operations": operations })
    };
    let bodies: [(&str, &[u8]); 2] = [("x", b"x"), ("y", b"y")];
    for (operations, status, code, resource, index) in [
        (with(1, "if_none_match", json!("*")), 412, "version-mismatch", Some("b"), Some(1)),
        (with(1, "if_match", json!("\"g0-v7\"")), 412, "version-mismatch", Some("b"), Some(1)),
        (with(2, "if_match", json!("*")), 412, "version-mismatch", Some("b"), Some(2)),
        (with(0, "resource", json!("other")), 403, "fence-token-unknown", Some("other"), None),
        (
            json!({ "operations": [put("a", "k", "x"), put("a", "l", "y")], "versions": { "b": 0 } }),
            412,
            "version-mismatch",
            Some("b"),
            None,
        ),
    ] {
        let answer = commit(&client, &operations, &bodies).under(&lock).send().await;
        let answer = answer.refused(status, code);
        assert_eq!(answer.must_have("x-fence-verdict"), "refused");
        let problem = answer.problem();
        assert_eq!((problem.resource.as_deref(), problem.index), (resource, index));
    }
    let wrong = commit(&client, &with(0, "key", json!("k")), &bodies).token(lock.token);
    let wrong = wrong.header("x-lock-id", other.id.to_string()).send().await;
    wrong.refused(403, "lock-id-mismatch");
    assert_eq!((client.version("a").await, client.version("b").await), (0, 1));
    assert_eq!(text(&client, "b", "k").await, "kept");
    // One row each for the operator.
    let rows = fence_tests::process::eventually("all refusals are kept", async || {
        let rows = client.get("/rejections").send().await.expect(200).json();
        let rows = rows["items"].as_array().expect("rows").clone();
        (rows.len() == 6).then_some(rows)
    })
    .await;
    let of_steps = rows.iter().filter(|row| row["key"] == "k" || row["key"] == "l").count();
    assert_eq!(of_steps, 3);
}

async fn a_commit_is_replayed_under_its_key(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let body = json!({ "resources": ["a", "b"], "owner": "many", "ttl": "1s" });
    let lock: Lock = client.lock(&body).send().await.expect(201).parse();
    let operations =
        json!({ "operations": [put("a", "k", "x"), delete("b", "k"), put("b", "l", "y")] });
    let send = |bodies: &[(&str, &[u8])]| {
        commit(&client, &operations, bodies).under(&lock).idempotency_key("once")
    };
    let bodies: [(&str, &[u8]); 2] = [("x", b"1"), ("y", b"2")];
    let first = send(&bodies).send().await.expect(200);
    assert_eq!(first.header("idempotent-replayed"), None);
    let successor = take_over(&client, "b").await;
    client.put("b", "k", "of the successor").under(&successor).send().await.expect(201);
    // Its token is stale on one of the resources by now.
    let again = send(&bodies).send().await.expect(200);
    assert_eq!(again.must_have("idempotent-replayed"), "true");
    assert_eq!(again.must_have("x-fence-verdict"), "replayed");
    assert_eq!(again.body, first.body);
    let other = send(&[("x", b"1"), ("y", b"3")]).send().await;
    let other = other.refused(422, "idempotency-key-reused").problem();
    assert_eq!(other.operation.map(|id| id.to_string()).as_deref(), first.header("x-operation-id"));
    for resource in ["a", "b"] {
        let path = format!("{}/operations", resource_path(resource));
        let found = client.get(path).query("idempotency_key", "once").send().await.expect(200);
        let found = &found.json()["items"][0];
        assert_eq!((&found["resource"], &found["kind"]), (&json!(resource), &json!("commit")));
    }
    assert_eq!(text(&client, "b", "k").await, "of the successor");
}

async fn large_bodies_are_committed_as_blobs(setup: SetUp) {
    let settings = setup.settings().await.flag("--inline-bytes-max", "1024");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = lock_on(&client, &["a", "b"]).await;
    let large = |seed: u8| vec![seed; 300_000];
    let puts = [put("a", "big", "1"), put("a", "small", "2"), put("b", "big", "3")];
    let operations = json!({ "operations": puts });
    let (one, three) = (large(1), large(3));
    let bodies: [(&str, &[u8]); 3] = [("1", &one), ("2", b"small"), ("3", &three)];
    commit(&client, &operations, &bodies).under(&lock).send().await.expect(200);
    let two = large(2);
    let bodies: [(&str, &[u8]); 3] = [("1", &two), ("2", b"small"), ("3", &three)];
    commit(&client, &operations, &bodies).under(&lock).send().await.expect(200);
    let read = client.read("a", "big").send().await.expect(200);
    assert!(read.body == two && read.must_have("etag") == "\"g0-v2\"");
    let old = client.read("a", "big").query("version", "1").send().await.expect(200);
    assert!(old.body == one && old.must_have("etag") == "\"g0-v1\"");
    assert!(client.read("b", "big").send().await.expect(200).body == three);
    assert_eq!(text(&client, "a", "small").await, "small");
}

async fn bodies_that_are_not_as_listed_are_refused(setup: SetUp) {
    let settings = setup.settings().await.flag("--inline-bytes-max", "1024");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = lock_on(&client, &["a"]).await;
    let operations = json!({ "operations": [put("a", "k", "x"), put("a", "l", "y")] });
    let (x, y) = (|| part("x", "", b"x"), || part("y", "", b"y"));
    let large = || part("y", "", &[0; 5000]);
    for parts in [
        vec![list(&operations)],
        vec![list(&operations), x()],
        vec![list(&operations), y(), x()],
        vec![list(&operations), x(), y(), y()],
        vec![list(&operations), x(), large(), part("z", "", b"")],
        vec![x(), y(), list(&operations)],
        vec![],
    ] {
        let answer = form(&client, &parts).under(&lock).send().await;
        answer.refused(400, "body-malformed");
    }
    let md5 = |digest: &str| format!("Content-MD5: {digest}\r\n");
    let of_x = "ndTkYSaMgDT1yFZOFVxnpg==";
    for wrong in [
        part("y", &md5(of_x), b"y"),
        part("y", &md5(&STANDARD.encode([0; 16])), &[0; 5000]),
        part("y", "Repr-Digest: sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:\r\n", b"y"),
    ] {
        let answer = form(&client, &[list(&operations), x(), wrong]).under(&lock).send().await;
        answer.refused(400, "digest-mismatch");
    }
    assert_eq!(client.version("a").await, 0);
    let as_said = [list(&operations), part("x", &md5(of_x), b"x"), large()];
    form(&client, &as_said).under(&lock).send().await.expect(200);
    assert_eq!(client.version("a").await, 1);
}

async fn a_commit_in_vain_is_refused_before_its_bodies(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = lock_on(&client, &["a", "b"]).await;
    let operations = json!({ "operations": [put("a", "k", "x"), put("b", "k", "y")] });
    let bodies: [(&str, &[u8]); 2] = [("x", b"x"), ("y", b"y")];
    let paid = commit(&client, &operations, &bodies).under(&lock).idempotency_key("paid");
    paid.clone().send().await.expect(200);
    client.release(&lock).send().await.expect(204);
    client.acquire("b", "10m").await;
    let begin = async |extra: &str| {
        let mut connection = RawConnection::open(gateway.address()).await;
        let head = format!(
            "POST /commit HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n{extra}\
             Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\
             Content-Length: 1000000000\r\n\r\n",
            lock.token
        );
        connection.send(head.as_bytes()).await;
        connection.send(&list(&operations)).await;
        // As far as the head of the first body, of which nothing comes.
        connection.send(format!("--{BOUNDARY}\r\n").as_bytes()).await;
        connection.answer().await.expect("an answer")
    };
    let answer = begin("").await;
    assert_eq!((answer.status, answer.code().as_str()), (412, "fence-token-released"));
    assert_eq!(answer.json()["resource"], "a");
    assert_eq!(answer.header("connection"), Some("close"));
    // Whoever knows the key is heard out.
    let again = paid.send().await.expect(200);
    assert_eq!(again.must_have("idempotent-replayed"), "true");
}
