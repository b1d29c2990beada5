//! Fences without a lock over real HTTP: answers, repetitions, orders, and how they meet locks.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::lock::Supersession;
use fence_core::wire::{Fence, Lock};
use fence_tests::client::{Call, Client};
use serde_json::{Value, json};

use crate::setup::{SetUp, assert_hides, look, on_both, random_id, until_state};

on_both!(
    a_fence_says_its_token_and_nothing_else,
    a_fence_repeated_gets_the_same_token,
    a_fence_and_a_lock_take_turns,
    a_fence_is_looked_at_and_released_like_a_lock,
    an_order_is_digits_or_a_number,
    the_id_of_a_fence_is_of_nothing_else,
    many_fences_at_once_leave_the_highest_order,
);

/// A fence with an id of its own and these fields beside it.
fn fence(client: &Client, fields: &Value) -> Call {
    let mut body = json!({ "id": random_id().to_string(), "owner": "mine" });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    client.fence("job:1", &body)
}

async fn set(client: &Client, fields: &Value) -> Fence {
    fence(client, fields).send().await.expect(201).parse()
}

async fn a_fence_says_its_token_and_nothing_else(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    let body = json!({ "id": id, "owner": "worker é 7" });
    let answer = client.fence("job:1", &body).send().await.expect(201);
    let fence: Fence = answer.parse();
    assert_eq!(answer.must_have("x-fence-token"), fence.token.to_string());
    assert_eq!(answer.must_have("location"), format!("/locks/{id}"));
    assert_eq!(answer.must_have("cache-control"), "no-store");
    let whole = json!({ "resource": "job:1", "token": fence.token.to_string(), "version": 0 });
    assert_eq!(answer.json(), whole);
    client.put("job:1", "k", "x").token(fence.token).send().await.expect(201);
    let mine = client.put("job:1", "k", "x").token(fence.token).header("x-lock-id", &id);
    mine.send().await.expect(200);
    assert_eq!(set(&client, &json!({})).await.version, 2);
}

async fn a_fence_repeated_gets_the_same_token(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let body = json!({ "id": random_id().to_string(), "order": 5 });
    let repeat = || client.fence("job:1", &body);
    let first: Fence = repeat().send().await.expect(201).parse();
    client.put("job:1", "k", "x").token(first.token).send().await.expect(201);
    let again = repeat().send().await.expect(200);
    assert_eq!(again.must_have("x-fence-token"), first.token.to_string());
    let again: Fence = again.parse();
    assert_eq!((again.token, again.version), (first.token, 1));
    let next = set(&client, &json!({ "order": 6 })).await;
    let refused = repeat().send().await.refused(409, "lock-superseded");
    assert_eq!(refused.problem().resource.as_deref(), Some("job:1"));
    client.put("job:1", "k", "x").token(next.token).send().await.expect(200);

    let metrics = client.get("/metrics").send().await.expect(200).text();
    for (outcome, count) in [("fenced", 2), ("again", 1), ("lock-superseded", 1)] {
        let line = format!("fencegate_fences_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
}

async fn a_fence_and_a_lock_take_turns(setup: SetUp) {
    let gateway = setup.start_with_high_tokens(|settings| settings).await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let held = fence(&client, &json!({})).send().await.refused(409, "lock-held");
    assert_hides(&held, &lock);
    assert_eq!(held.problem().holder.as_deref(), Some("test"));
    client.put("job:1", "k", "lock").under(&lock).send().await.expect(201);

    let forced = set(&client, &json!({ "force": true })).await;
    assert!(forced.token > lock.token);
    let late = client.put("job:1", "k", "late").under(&lock).send().await;
    let late = late.refused(412, "fence-token-stale");
    assert_eq!(late.problem().superseded_by, Some(Supersession::Fence.into()));
    client.renew(&lock, None).send().await.refused(409, "lock-superseded");
    client.put("job:1", "k", "fence").token(forced.token).send().await.expect(200);

    // It shows as expired, and anybody may take over.
    let view = look(&client, "job:1").await;
    assert_eq!((view.state.as_str(), view.owner.as_str()), ("expired", "mine"));
    assert_eq!(view.expires_in_ms, Some(0));
    let lock = client.acquire("job:1", "1s").await;
    let late = client.put("job:1", "k", "late").token(forced.token).send().await;
    let late = late.refused(412, "fence-token-stale");
    assert_eq!(late.problem().superseded_by, Some(Supersession::Grant.into()));
    client.put("job:1", "k", "lock").under(&lock).send().await.expect(200);
    // An expired lock is in nobody's way.
    until_state(&client, "job:1", "expired").await;
    set(&client, &json!({})).await;
    client.put("job:1", "k", "late").under(&lock).send().await.refused(412, "fence-token-stale");
}

async fn a_fence_is_looked_at_and_released_like_a_lock(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let answer = fence(&client, &json!({ "order": "7" })).send().await.expect(201);
    let at = answer.must_have("location").to_owned();
    let fenced: Fence = answer.parse();
    let own: Lock = client.get(&at).send().await.expect(200).parse();
    assert_eq!(
        (own.token, own.state.as_str(), own.owner.as_str()),
        (fenced.token, "expired", "mine")
    );
    assert_eq!((own.ttl_ms, own.expires_in_ms, &own.ended), (Some(0), Some(0), &None));

    client.renew(&own, Some("10m")).send().await.refused(404, "lock-not-found");
    let transfer = client.post(format!("{at}/transfer"), &json!({ "owner": "heir" }));
    transfer.send().await.refused(404, "lock-not-found");
    let many = client.post("/locks/renew", &json!({ "ids": [own.id] })).send().await.expect(200);
    assert_eq!(many.json()["items"][0]["code"], "lock-not-found");
    assert_eq!(look(&client, "job:1").await.state.as_str(), "expired");

    client.release(&own).send().await.expect(204);
    let late = client.put("job:1", "k", "late").token(fenced.token).send().await;
    late.refused(412, "fence-token-released");
    client.release(&own).send().await.expect(204);
    let body = json!({ "id": own.id, "order": 7, "owner": "mine" });
    client.fence("job:1", &body).send().await.refused(409, "lock-released");
    fence(&client, &json!({ "order": 7 })).send().await.refused(412, "fence-order-stale");
    assert_eq!(client.get(&at).send().await.expect(200).json()["ended"], "released");
}

async fn an_order_is_digits_or_a_number(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    set(&client, &json!({ "order": "9" })).await;
    for order in [json!(9), json!("9"), json!(1), json!("1")] {
        let refused = fence(&client, &json!({ "order": order, "force": true })).send().await;
        refused.refused(412, "fence-order-stale");
    }
    set(&client, &json!({ "order": 10 })).await;
    // Above 2^53 no digit is lost.
    set(&client, &json!({ "order": "9223372036854775806" })).await;
    let refused = fence(&client, &json!({ "order": 9_223_372_036_854_775_806_i64 })).send().await;
    refused.refused(412, "fence-order-stale");
    set(&client, &json!({ "order": "9223372036854775807" })).await;
    // No order, no check; and the last order stays.
    set(&client, &json!({})).await;
    set(&client, &json!({ "order": null })).await;
    let refused = fence(&client, &json!({ "order": "9223372036854775807" })).send().await;
    refused.refused(412, "fence-order-stale");
}

async fn the_id_of_a_fence_is_of_nothing_else(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    client.fence("job:1", &json!({ "id": id })).send().await.expect(201);
    let lock = json!({ "id": id, "resource": "job:1" });
    client.lock(&lock).send().await.refused(409, "lock-id-conflict");
    let elsewhere = client.fence("job:2", &json!({ "id": id })).send().await;
    elsewhere.refused(409, "lock-id-conflict");
    let other = client.fence("job:1", &json!({ "id": id, "owner": "other" })).send().await;
    other.refused(409, "lock-id-conflict");
    let lock = client.acquire("job:1", "10m").await;
    let body = json!({ "id": lock.id, "owner": "test", "force": true });
    client.fence("job:1", &body).send().await.refused(409, "lock-id-conflict");
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
}

/// Whatever order they arrive in, in the end the highest stands, and one of each order won at most.
async fn many_fences_at_once_leave_the_highest_order(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let calls = (1..=40).map(async |n: i64| {
        let order = (n + 1) / 2;
        let answer = fence(&client, &json!({ "order": order })).send().await;
        (order, answer)
    });
    let answers = futures::future::join_all(calls).await;
    let mut won: Vec<(Fence, i64)> = Vec::new();
    for (order, answer) in answers {
        match answer.status.as_u16() {
            201 => won.push((answer.parse(), order)),
            _ => drop(answer.refused(412, "fence-order-stale")),
        }
    }
    won.sort_by_key(|(fence, _)| fence.token);
    assert!(won.windows(2).all(|pair| pair[0].1 < pair[1].1), "{won:?}");
    let (last, order) = won.pop().unwrap();
    assert_eq!(order, 20);
    client.put("job:1", "k", "x").token(last.token).send().await.expect(201);
    for (fence, _) in won {
        let late = client.put("job:1", "k", "x").token(fence.token).send().await;
        late.refused(412, "fence-token-stale");
    }
}
