//! Writes over real HTTP: puts and deletes, versions, conditions, sequences, limits, operations.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::ObjectList;
use fence_tests::client::{Client, resource_path};
use serde_json::json;

use crate::setup::{SetUp, look, on_both};

on_both!(
    puts_and_deletes_take_successive_versions,
    deleting_a_resource_takes_its_objects_and_keeps_its_fence,
    conditions_on_the_object_are_about_the_object,
    a_condition_on_the_resource_is_about_all_its_writes,
    sequence_numbers_must_rise_under_one_token,
    payloads_go_up_to_the_limit_and_not_beyond,
    keys_are_kept_as_they_were_sent_or_refused,
    objects_are_listed_in_byte_order,
    operations_say_what_became_of_a_write,
);

async fn puts_and_deletes_take_successive_versions(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = client.put("job:1", "a", "hello").under(&lock).send().await.expect(201);
    assert_eq!(put.must_have("etag"), "\"g0-v1\"");
    assert_eq!(put.must_have("x-resource-version"), "1");
    assert_eq!(put.must_have("x-fence-verdict"), "admitted");
    assert_eq!(put.must_have("x-fence-guarantee"), "strict");
    assert_eq!(put.header("idempotent-replayed"), None);
    let written = put.written();
    assert_eq!(put.must_have("x-operation-id"), written.operation.to_string());
    assert_eq!((written.version, written.size, written.key.as_str()), (1, 5, "a"));
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(written.sha256.as_deref(), Some(sha256));

    client.put("job:1", "b", "other").under(&lock).send().await.expect(201);
    let over = client.put("job:1", "a", "again").under(&lock).send().await.expect(200);
    assert_eq!((over.must_have("etag"), over.written().version), ("\"g0-v3\"", 3));
    let gone = client.delete("job:1", "b").under(&lock).send().await.expect(204);
    assert_eq!(gone.must_have("x-resource-version"), "4");
    client.read("job:1", "b").send().await.refused(404, "object-not-found");

    // Deleting nothing succeeds, and takes no version.
    let nothing = client.delete("job:1", "b").under(&lock).send().await.expect(204);
    assert_eq!(nothing.header("x-resource-version"), None);
    assert!(nothing.header("x-operation-id").is_some());
    let view = look(&client, "job:1").await;
    assert_eq!((view.version, view.objects), (4, 1));
    let back = client.put("job:1", "b", "new").under(&lock).send().await.expect(201);
    assert_eq!(back.must_have("etag"), "\"g0-v5\"");
}

async fn deleting_a_resource_takes_its_objects_and_keeps_its_fence(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let first = client.acquire("job:1", "10m").await;
    client.put("job:1", "old", "x").under(&first).send().await.expect(201);
    client.release(&first).send().await.expect(204);
    let lock = client.acquire("job:1", "10m").await;
    for key in ["a", "b/c"] {
        client.put("job:1", key, "x").under(&lock).send().await.expect(201);
    }
    let matched = client.delete_resource("job:1").under(&lock).header("if-match", "\"g0-v3\"");
    matched.send().await.refused(400, "request-malformed");
    let mismatch = client.delete_resource("job:1").under(&lock);
    let mismatch = mismatch.header("x-if-resource-version", "2").send().await;
    mismatch.refused(412, "version-mismatch");

    let gone = client.delete_resource("job:1").under(&lock).send().await.expect(204);
    assert_eq!(gone.must_have("x-resource-version"), "4");
    let view = look(&client, "job:1").await;
    assert_eq!((view.version, view.objects, view.state.as_str()), (4, 0, "leased"));
    for key in ["old", "a", "b/c"] {
        client.read("job:1", key).send().await.refused(404, "object-not-found");
    }
    let nothing = client.delete_resource("job:1").under(&lock).send().await.expect(204);
    assert_eq!(nothing.header("x-resource-version"), None);
    // The old token is as stale as before, and the holder goes on.
    client.put("job:1", "a", "x").under(&first).send().await.refused(412, "fence-token-stale");
    let next = client.put("job:1", "a", "x").under(&lock).send().await.expect(201);
    assert_eq!(next.written().version, 5);
}

async fn conditions_on_the_object_are_about_the_object(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = |key: &str| client.put("job:1", key, "x").under(&lock);
    put("k").header("if-match", "*").send().await.refused(412, "version-mismatch");
    put("k").header("if-none-match", "*").send().await.expect(201);
    put("k").header("if-none-match", "*").send().await.refused(412, "version-mismatch");
    // Another object's write raises the resource's version, not the object's.
    put("other").send().await.expect(201);
    let second = put("k").header("if-match", "\"g0-v1\"").send().await.expect(200);
    assert_eq!(second.must_have("etag"), "\"g0-v3\"");
    for stale in ["\"g0-v1\"", "\"g0-v2\"", "\"g1-v3\"", "W/\"g0-v3\"", "\"x\""] {
        put("k").header("if-match", stale).send().await.refused(412, "version-mismatch");
    }
    put("k").header("if-match", "\"g0-v1\", \"g0-v3\"").send().await.expect(200);
    put("k").header("if-match", "*").send().await.expect(200);

    let delete = |tag: &str| client.delete("job:1", "k").under(&lock).header("if-match", tag);
    delete("\"g0-v4\"").send().await.refused(412, "version-mismatch");
    delete("\"g0-v5\"").send().await.expect(204);
    delete("*").send().await.refused(412, "version-mismatch");
    put("k").header("if-none-match", "*").send().await.expect(201);
    for (name, value) in [("if-none-match", "\"g0-v1\""), ("if-match", "g0-v1"), ("if-match", "")] {
        put("k").header(name, value).send().await.refused(400, "request-malformed");
    }
    assert_eq!(client.version("job:1").await, 7);
}

async fn a_condition_on_the_resource_is_about_all_its_writes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = |key: &str, version: &str| {
        client.put("job:1", key, "x").under(&lock).header("x-if-resource-version", version).send()
    };
    put("a", "1").await.refused(412, "version-mismatch");
    put("a", "0").await.expect(201);
    put("b", "0").await.refused(412, "version-mismatch");
    put("b", "1").await.expect(201);
    let delete = client.delete("job:1", "a").under(&lock).header("x-if-resource-version", "1");
    delete.send().await.refused(412, "version-mismatch");
    for bad in ["-1", "+2", "02", "two", "", "9223372036854775808"] {
        put("c", bad).await.refused(400, "request-malformed");
    }
    assert_eq!(client.version("job:1").await, 2);
}

async fn sequence_numbers_must_rise_under_one_token(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = |sequence: &str| {
        client.put("job:1", "k", sequence.to_owned()).under(&lock).header("x-fence-seq", sequence)
    };
    put("1").send().await.expect(201);
    put("1").send().await.refused(409, "sequence-out-of-order");
    put("7").send().await.expect(200);
    // A delayed duplicate of the holder's own earlier write; in a delete as well.
    put("5").send().await.refused(409, "sequence-out-of-order");
    let delete = client.delete("job:1", "k").under(&lock).header("x-fence-seq", "7");
    delete.send().await.refused(409, "sequence-out-of-order");
    // A write without one does not disturb the order.
    client.put("job:1", "other", "x").under(&lock).send().await.expect(201);
    put("7").send().await.refused(409, "sequence-out-of-order");
    put("9223372036854775807").send().await.expect(200);
    assert_eq!(client.read("job:1", "k").send().await.text(), "9223372036854775807");

    client.release(&lock).send().await.expect(204);
    let next = client.acquire("job:1", "10m").await;
    let first = client.put("job:1", "k", "next").under(&next).header("x-fence-seq", "1");
    first.send().await.expect(200);
}

async fn payloads_go_up_to_the_limit_and_not_beyond(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_OBJECT_BYTES_MAX", "70000");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let binary: Vec<u8> = (0..70_000_u32).map(|i| u8::try_from(i * 31 % 256).unwrap()).collect();
    for body in [Vec::new(), vec![0], (0..=255).collect(), binary.clone()] {
        let put = client.put("job:1", "k", body.clone()).under(&lock).send().await;
        assert!(put.status.is_success(), "{} bytes: {}", body.len(), put.text());
        assert_eq!(put.written().size, i64::try_from(body.len()).unwrap());
        let read = client.read("job:1", "k").send().await.expect(200);
        assert!(read.body == body, "{} bytes came back otherwise", body.len());
        assert_eq!(read.must_have("content-length"), body.len().to_string());
    }
    let mut above = binary.clone();
    above.push(0);
    let refused = client.put("job:1", "k", above).under(&lock).send().await;
    refused.refused(413, "payload-too-large");
    assert!(client.read("job:1", "k").send().await.body == binary);
    assert_eq!(client.version("job:1").await, 4);
}

async fn keys_are_kept_as_they_were_sent_or_refused(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let resource = "A-z.0_9~:@#+=,";
    let lock = client.acquire(resource, "10m").await;
    let longest = "k".repeat(1024);
    let keys =
        ["plain", "a b", "a/b/c", "a%2Fb", "é", "日本", "a+b", "a?b#c", "...", "\"'\\<>", &longest];
    for key in keys {
        let put = client.put(resource, key, key.to_owned()).under(&lock).send().await.expect(201);
        assert_eq!(put.written().key, key);
        assert_eq!(client.read(resource, key).send().await.expect(200).text(), key);
        let list = client.get(format!("{}/objects", resource_path(resource))).query("prefix", key);
        let list: ObjectList = list.send().await.expect(200).parse();
        assert_eq!(list.items[0].key, key);
        client.delete(resource, key).under(&lock).send().await.expect(204);
        client.read(resource, key).send().await.refused(404, "object-not-found");
    }
    let too_long = "k".repeat(1025);
    for key in ["a//b", "/a", "a/", "a/\u{7}", "e\u{301}", "a\u{202e}b", "\u{feff}", &too_long] {
        // An empty segment is outside of what the contract describes.
        let put = client.put(resource, key, "x").under(&lock).unchecked().send().await;
        put.refused(400, "object-key-invalid");
    }
    for bad in ["a b", "a%b", "é", &"r".repeat(257)] {
        let put = client.put(bad, "k", "x").under(&lock).send().await;
        put.refused(400, "resource-name-invalid");
    }
}

async fn objects_are_listed_in_byte_order(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let path = format!("{}/objects", resource_path("job:1"));
    client.get(path.as_str()).send().await.refused(404, "resource-not-found");
    let lock = client.acquire("job:1", "10m").await;
    let keys = ["B", "a", "a/1", "a/2", "a/2/x", "a0", "b%", "b_", "é"];
    let mut shuffled = keys;
    shuffled.reverse();
    for key in shuffled {
        let put = client.put("job:1", key, key.to_owned()).under(&lock);
        put.header("content-type", "text/x-note").send().await.expect(201);
    }
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let call = client.get(path.as_str()).query("limit", "2");
        let call = cursor.iter().fold(call, |call, cursor| call.query("cursor", cursor));
        let page: ObjectList = call.send().await.expect(200).parse();
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), keys);
    let last = found.last().unwrap();
    assert_eq!((last.version, last.etag.as_str(), last.size), (1, "\"g0-v1\"", 2));
    assert_eq!(last.content_type, "text/x-note");

    let prefixed = async |prefix: &str| -> Vec<String> {
        let list = client.get(path.as_str()).query("prefix", prefix).send().await.expect(200);
        list.parse::<ObjectList>().items.into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(prefixed("a/").await, ["a/1", "a/2", "a/2/x"]);
    assert_eq!(prefixed("b_").await, ["b_"]);
    assert_eq!(prefixed("é").await, ["é"]);
    assert!(prefixed("%").await.is_empty());
}

async fn operations_say_what_became_of_a_write(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let ask =
        async |client: &Client, id: &str| client.get(format!("/operations/{id}")).send().await;
    let put = client.put("job:1", "k", "hello").under(&lock).idempotency_key("order-17/a");
    let put = put.send().await.expect(201);
    let record = ask(&client, put.must_have("x-operation-id")).await.expect(200).json();
    for (name, value) in [
        ("outcome", json!("applied")),
        ("kind", json!("put")),
        ("resource", json!("job:1")),
        ("key", json!("k")),
        ("version", json!(1)),
        ("size", json!(5)),
        ("sha256", json!(put.written().sha256)),
        ("owner", json!("test")),
    ] {
        assert_eq!(record[name], value, "{record}");
    }
    let find = |key: &str| {
        client.get(format!("{}/operations", resource_path("job:1"))).query("idempotency_key", key)
    };
    let found = find("order-17/a").send().await.expect(200).json();
    assert_eq!(found["items"], json!([record]));
    assert_eq!(find("order-18").send().await.expect(200).json(), json!({ "items": [] }));
    find("").send().await.refused(400, "query-malformed");

    let nothing = client.delete("job:1", "absent").under(&lock).send().await.expect(204);
    let record = ask(&client, nothing.must_have("x-operation-id")).await.expect(200).json();
    assert_eq!((&record["kind"], record.get("version")), (&json!("delete"), None));
    let all = client.delete_resource("job:1").under(&lock).send().await.expect(204);
    let record = ask(&client, all.must_have("x-operation-id")).await.expect(200).json();
    assert_eq!((&record["kind"], &record["version"]), (&json!("delete_all"), &json!(2)));

    // A refused write leaves no operation behind.
    let refused = client.put("job:1", "k", "x").token(lock.token.get() + 1).send().await;
    let refused = refused.refused(403, "fence-token-unknown");
    let id = refused.must_have("x-operation-id");
    ask(&client, id).await.refused(404, "operation-not-found");
}
