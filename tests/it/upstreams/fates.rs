//! What is told of a request to an upstream once it is over, whoever has closed its intent.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::{Answer, Client};
use fence_tests::process::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use crate::setup::{SetUp, on_both};
use crate::upstreams::requests::{fronted, through};

on_both!(
    the_upstreams_word_is_kept,
    what_an_operator_has_closed_stays_unknown,
    what_its_time_has_closed_stays_unknown,
    what_was_never_sent_is_not_applied,
    of_admitted_requests_nothing_is_known,
);

/// What is told of the operation that an answer names.
async fn told(client: &Client, answer: &Answer) -> Value {
    let operation = answer.header("x-operation-id").expect("an operation");
    client.get(format!("/operations/{operation}")).send().await.expect(200).json()
}

fn outcome(told: &Value) -> [&str; 2] {
    [&told["outcome"], &told["forward"]["state"]].map(|it| it.as_str().expect("a word"))
}

async fn post(client: &Client, lock: &Lock, query: &str) -> Answer {
    through(client, Method::POST, "1", query).under(lock).send().await
}

async fn the_upstreams_word_is_kept(setup: SetUp) {
    let (gateway, _upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    for (status, known) in
        [(200, "applied"), (201, "applied"), (202, "unknown"), (409, "unknown"), (500, "unknown")]
    {
        let answer = post(&client, &lock, &format!("status={status}")).await.expect(status);
        let told = told(&client, &answer).await;
        assert_eq!(outcome(&told), [known, "answered"], "{told}");
        assert_eq!((&told["kind"], &told["owner"]), (&json!("forward"), &json!("test")), "{told}");
        assert_eq!((&told["resource"], &told["forward"]["upstream"]), (&json!("u:1"), &json!("u")));
        assert_eq!(told["forward"]["status"], json!(status), "{told}");
        assert!(told["forward"]["closed_at"].is_string(), "{told}");
    }
}

/// The upstream acts after the gateway has given up, so the effect is there whatever the operator knows of it.
async fn what_an_operator_has_closed_stays_unknown(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", ",timeout=2s,connect_timeout=1s").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let late = post(&client, &lock, "delay=3000").await.refused(504, "upstream-timeout");
    assert_eq!(outcome(&told(&client, &late).await), ["unknown", "open"]);
    eventually("the upstream acts", async || (upstream.seen().len() == 1).then_some(())).await;
    let operation = late.problem().operation.expect("an operation");
    let resolve = || {
        let path = format!("/admin/intents/{operation}/resolve");
        client.post(path, &json!({ "reason": "restarted it" })).send()
    };
    for _ in 0..2 {
        resolve().await.expect(204);
        let told = told(&client, &late).await;
        assert_eq!(outcome(&told), ["unknown", "resolved"], "{told}");
        assert_eq!(told["forward"]["reason"], json!("restarted it"), "{told}");
    }
    client.release(&lock).send().await.expect(204);
    client.acquire("u:1", "10m").await;
    assert_eq!(outcome(&told(&client, &late).await), ["unknown", "resolved"]);
}

async fn what_its_time_has_closed_stays_unknown(setup: SetUp) {
    let more = ",timeout=2s,connect_timeout=1s,max_effect_delay=5s";
    let (gateway, upstream) = fronted(setup, "drained", more).await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let late = post(&client, &lock, "delay=3000").await.refused(504, "upstream-timeout");
    let mut states = Vec::new();
    // At any moment there is an answer, and none says that there was no effect.
    let told = eventually("its time is over", async || {
        let told = told(&client, &late).await;
        let [outcome, state] = outcome(&told);
        assert_eq!(outcome, "unknown", "{told}");
        states.push(state.to_owned());
        (state == "elapsed").then_some(told)
    })
    .await;
    assert_eq!(states[0], "open");
    assert!(told["forward"]["closed_at"].is_string(), "{told}");
    assert_eq!(upstream.seen().len(), 1, "it has acted");
    // Past the next passes of the sweeper.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(outcome(&self::told(&client, &late).await), ["unknown", "elapsed"]);
    }
}

async fn what_was_never_sent_is_not_applied(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    drop(upstream);
    let refused = post(&client, &lock, "").await.refused(502, "upstream-unreachable");
    assert_eq!(outcome(&told(&client, &refused).await), ["not_applied", "unsent"]);
}

/// Neither of what it answered nor of what it did not, and that is said.
async fn of_admitted_requests_nothing_is_known(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "admission", ",timeout=2s,connect_timeout=1s").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let done = post(&client, &lock, "").await.expect(200);
    let late = post(&client, &lock, "delay=3000").await.refused(504, "upstream-timeout");
    eventually("the upstream acts", async || (upstream.seen().len() == 2).then_some(())).await;
    for answer in [done, late] {
        let operation = answer.header("x-operation-id").expect("an operation").to_owned();
        let absent = client.get(format!("/operations/{operation}")).send().await;
        let absent = absent.refused(404, "operation-not-found");
        let detail = absent.problem().detail;
        assert!(detail.contains("an upstream of which no records are kept"), "{detail}");
    }
}
