//! Idempotency keys over real HTTP: one effect, and the same answer for ever.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::client::{Call, Client};
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, on_both, take_over};

on_both!(
    concurrent_requests_with_one_key_have_one_effect_and_equal_answers,
    a_replay_answers_whatever_became_of_the_token_since,
    the_same_key_for_another_payload_names_the_first_operation,
    what_is_not_part_of_the_payload_may_differ_in_a_retry,
    the_retry_of_a_delete_does_not_delete_the_successors_object,
    a_key_belongs_to_its_resource,
    a_refused_write_does_not_use_its_key_up,
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
