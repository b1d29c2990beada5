//! Idempotency keys over real HTTP: one effect, and the same answer for ever.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::BTreeMap;

use fence_tests::client::{Call, Client};
use fence_tests::gateway::Gateway;
use fence_tests::multipart::commit;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::setup::{SetUp, ledger_file, on_both, take_over};

on_both!(
    concurrent_requests_with_one_key_have_one_effect_and_equal_answers,
    a_replay_answers_whatever_became_of_the_token_since,
    the_same_key_for_another_payload_names_the_first_operation,
    what_is_not_part_of_the_payload_may_differ_in_a_retry,
    the_retry_of_a_delete_does_not_delete_the_successors_object,
    a_key_belongs_to_its_resource,
    a_refused_write_does_not_use_its_key_up,
    a_key_is_kept_for_as_long_as_its_writer_says,
    what_no_key_can_be_kept_for_is_refused,
);

async fn concurrent_requests_with_one_key_have_one_effect_and_equal_answers(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for round in 0..5_i64 {
        let key = format!("order-{round}");
        let put = client.put("job:1", &key, key.clone()).under(&lock).idempotency_key(&key);
        let answers = join_all((0..8).map(|_| put.clone().send())).await;
        let replayed = |answer: &&fence_tests::client::Answer| {
            answer.header("idempotent-replayed") == Some("true")
        };
        assert_eq!(answers.iter().filter(replayed).count(), 7, "{answers:?}");
        let first = answers.iter().find(|answer| !replayed(answer)).unwrap();
        assert_eq!((first.status.as_u16(), first.header("idempotent-replayed")), (201, None));
        assert_eq!(first.must_have("x-fence-verdict"), "admitted");
        for answer in &answers {
            assert_eq!((answer.status, &answer.body), (first.status, &first.body));
            for name in ["etag", "x-resource-version", "x-operation-id"] {
                assert_eq!(answer.must_have(name), first.must_have(name), "{name}");
            }
            let verdict = if replayed(&answer) { "replayed" } else { "admitted" };
            assert_eq!(answer.must_have("x-fence-verdict"), verdict);
        }
        assert_eq!(client.version("job:1").await, round + 1, "one effect");
    }
}

/// A put of `bytes` under the key `order-1`.
fn order(client: &Client, bytes: &str) -> Call {
    client.put("job:1", "order", bytes.to_owned()).idempotency_key("order-1")
}

async fn a_replay_answers_whatever_became_of_the_token_since(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("job:1", "1s").await;
    let first = order(&client, "17 boxes").under(&a).send().await.expect(201);
    let b = take_over(&client, "job:1").await;
    client.put("job:1", "order", "changed by B").under(&b).send().await.expect(200);

    // The late holder asks again: the effect took place, and it is told so.
    let again = order(&client, "17 boxes").under(&a).send().await.expect(201);
    // So is another worker that took over and delivers the same order again.
    let redelivered = order(&client, "17 boxes").under(&b).send().await.expect(201);
    for replay in [again, redelivered] {
        assert_eq!(replay.body, first.body);
        assert_eq!(replay.must_have("idempotent-replayed"), "true");
        assert_eq!(replay.must_have("etag"), first.must_have("etag"));
    }
    // Nothing of it was applied again, and without its key the late write bounces.
    assert_eq!(client.read("job:1", "order").send().await.text(), "changed by B");
    let late = client.put("job:1", "order", "17 boxes").under(&a).send().await;
    late.refused(412, "fence-token-stale");
    client.release(&b).send().await.expect(204);
    order(&client, "17 boxes").under(&b).send().await.expect(201);
    client.break_lock("job:1", &json!({ "reason": "x" })).send().await.expect(200);
    order(&client, "17 boxes").under(&a).send().await.expect(201);
    assert_eq!(client.version("job:1").await, 2);
}

async fn the_same_key_for_another_payload_names_the_first_operation(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let first = order(&client, "17 boxes").under(&lock).send().await.expect(201);
    let keyed = |call: Call| call.under(&lock).idempotency_key("order-1");
    for other in [
        order(&client, "18 boxes").under(&lock),
        order(&client, "17 boxes").under(&lock).header("content-type", "text/plain"),
        keyed(client.put("job:1", "order-2", "17 boxes")),
        keyed(client.delete("job:1", "order")),
        keyed(client.delete_resource("job:1")),
    ] {
        let refused = other.send().await.refused(422, "idempotency-key-reused");
        assert_eq!(refused.problem().operation, Some(first.written().operation));
        assert_eq!(refused.must_have("x-fence-verdict"), "refused");
    }
    assert_eq!(client.version("job:1").await, 1);
    assert_eq!(client.read("job:1", "order").send().await.text(), "17 boxes");
}

async fn what_is_not_part_of_the_payload_may_differ_in_a_retry(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let first = order(&client, "x").under(&lock).header("if-none-match", "*");
    let first = first.header("x-fence-seq", "5").send().await.expect(201);
    for retry in [
        order(&client, "x").under(&lock).header("if-none-match", "*").header("x-fence-seq", "5"),
        order(&client, "x").under(&lock).header("x-fence-seq", "4"),
        order(&client, "x").under(&lock).header("x-if-resource-version", "99"),
        order(&client, "x").token(lock.token.get() + 1),
        order(&client, "x").under(&lock).header("x-request-id", "another"),
    ] {
        let replay = retry.send().await.expect(201);
        assert_eq!(replay.body, first.body);
        assert_eq!(replay.must_have("idempotent-replayed"), "true");
    }
    for bad in ["", "a b", "é", &"k".repeat(256)] {
        let put = client.put("job:1", "k", "x").under(&lock).idempotency_key(bad);
        put.send().await.refused(400, "request-malformed");
    }
    assert_eq!(client.version("job:1").await, 1);
}

async fn the_retry_of_a_delete_does_not_delete_the_successors_object(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "old").under(&lock).send().await.expect(201);
    let delete = client.delete("job:1", "k").under(&lock).idempotency_key("drop");
    let nothing = client.delete("job:1", "absent").under(&lock).idempotency_key("drop-absent");
    let first = delete.clone().send().await.expect(204);
    nothing.clone().send().await.expect(204);
    for key in ["k", "absent"] {
        client.put("job:1", key, "new").under(&lock).send().await.expect(201);
    }
    let replay = delete.send().await.expect(204);
    assert_eq!(replay.must_have("idempotent-replayed"), "true");
    assert_eq!(replay.must_have("x-operation-id"), first.must_have("x-operation-id"));
    assert_eq!(nothing.send().await.expect(204).must_have("idempotent-replayed"), "true");
    for key in ["k", "absent"] {
        assert_eq!(client.read("job:1", key).send().await.expect(200).text(), "new");
    }
    let all = client.delete_resource("job:1").under(&lock).idempotency_key("all");
    all.clone().send().await.expect(204);
    client.put("job:1", "k", "newer").under(&lock).send().await.expect(201);
    assert_eq!(all.send().await.expect(204).must_have("idempotent-replayed"), "true");
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "newer");
}

async fn a_key_belongs_to_its_resource(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for resource in ["job:1", "job:2"] {
        let lock = client.acquire(resource, "10m").await;
        let put = client.put(resource, "k", resource.to_owned()).under(&lock).idempotency_key("x");
        assert_eq!(put.send().await.expect(201).header("idempotent-replayed"), None);
    }
}

async fn a_refused_write_does_not_use_its_key_up(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let condition = order(&client, "x").under(&lock).header("if-match", "*");
    condition.send().await.refused(412, "version-mismatch");
    order(&client, "x")
        .token(lock.token.get() + 1)
        .send()
        .await
        .refused(403, "fence-token-unknown");
    let admitted = order(&client, "y").under(&lock).send().await.expect(201);
    assert_eq!(admitted.header("idempotent-replayed"), None);
    order(&client, "x").under(&lock).send().await.refused(422, "idempotency-key-reused");
}

/// For how many seconds each key was stored, by its name.
async fn kept(gateway: &Gateway, database: Option<&str>) -> BTreeMap<String, Option<i64>> {
    let rows: Vec<(String, Option<i64>)> = match database {
        None => {
            let file = SqliteConnectOptions::new().filename(ledger_file(gateway)).read_only(true);
            let mut connection = file.connect().await.unwrap();
            let sql = "SELECT key, (kept_until - stored_at) / 1000000 FROM idempotency_keys";
            sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap()
        }
        Some(database) => {
            let mut connection = Postgres::shared().await.connect(database).await;
            let sql = "SELECT key::text, extract(epoch FROM kept_until - stored_at)::bigint
                       FROM fencegate.idempotency_keys";
            sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap()
        }
    };
    rows.into_iter().collect()
}

async fn a_key_is_kept_for_as_long_as_its_writer_says(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_KEYS_KEPT", "2h");
    let flags = settings.flags();
    let url = flags.iter().find(|(flag, _)| flag == "--postgres").map(|(_, url)| url);
    let database = url.map(|url| database_in(url));
    let gateway = settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let keyed = |call: Call, key: &str, time: &str| {
        call.under(&lock).idempotency_key(key).header("x-fence-key-kept", time)
    };
    let put = |key: &str| client.put("job:1", "k", key.to_owned());
    keyed(put("most"), "most", "2h").send().await.expect(201);
    keyed(put("least"), "least", "60000ms").send().await.expect(200);
    put("plain").under(&lock).idempotency_key("plain").send().await.expect(200);
    keyed(client.delete("job:1", "k"), "delete", "1h").send().await.expect(204);
    keyed(client.delete_resource("job:1"), "all", "90m").send().await.expect(204);
    let list = json!({ "operations": [
        { "op": "put", "resource": "job:1", "key": "m", "body": "text" },
    ]});
    let commit = commit(&client, &list, &[("text", b"x")]);
    keyed(commit, "commit", "3m").send().await.expect(200);
    // A retry changes nothing, whatever it says.
    for time in ["1m", "2h"] {
        let again = keyed(client.delete("job:1", "k"), "delete", time).send().await.expect(204);
        assert_eq!(again.must_have("idempotent-replayed"), "true");
    }
    let expected = [
        ("most", Some(7200)),
        ("least", Some(60)),
        ("plain", None),
        ("delete", Some(3600)),
        ("all", Some(5400)),
        ("commit", Some(180)),
    ];
    let expected = expected.map(|(key, time)| (key.to_owned(), time));
    assert_eq!(kept(&gateway, database).await, BTreeMap::from(expected));
    if let Some(name) = database {
        let mut connection = Postgres::shared().await.connect(name).await;
        let age = "UPDATE fencegate.idempotency_keys SET kept_until = kept_until - interval '100 minutes'";
        crate::schedules::forced::run(&mut connection, age).await;
        eventually("those whose time is over are forgotten", async || {
            let left: Vec<String> = kept(&gateway, database).await.into_keys().collect();
            (left == ["most", "plain"]).then_some(())
        })
        .await;
        let anew = keyed(put("least"), "least", "1m").send().await.expect(201);
        assert_eq!(anew.header("idempotent-replayed"), None);
    }
}

async fn what_no_key_can_be_kept_for_is_refused(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_KEYS_KEPT", "2h");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let put = || client.put("job:1", "k", "x").under(&lock);
    for (time, why) in [
        ("59s", "59s is not from 1m"),
        ("1.5h", "is not a duration such as"),
        ("infinite", "is not a duration such as"),
        ("", "is not a duration such as"),
    ] {
        let refused = put().idempotency_key("k").header("x-fence-key-kept", time).send().await;
        let refused = refused.refused(400, "request-malformed");
        assert!(refused.problem().detail.contains(why), "{}", refused.text());
    }
    let alone = put().header("x-fence-key-kept", "1h").send().await;
    assert!(alone.refused(400, "request-malformed").problem().detail.contains("Idempotency-Key"));
    put().idempotency_key("k").send().await.expect(201);
}
