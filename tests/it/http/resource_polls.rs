//! `GET /resources/{resource}?wait=&since=`: the answer comes when the resource's tag is another.
#![expect(clippy::disallowed_methods, reason = "a test measures and sleeps on the real clock")]

use std::time::{Duration, Instant};

use fence_core::wire::Resource;
use fence_tests::client::{Call, Client, resource_path};
use futures::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use crate::setup::{SetUp, look, on_both};

on_both!(
    a_poll_answers_when_the_tag_changes,
    a_poll_answers_at_once_when_the_tag_differs,
    a_poll_ends_with_its_wait_and_the_same_tag,
    a_gateway_that_shuts_down_answers_polls_of_resources,
);

/// The longest wait there is. An answer that comes sooner was caused by what has happened.
const WAIT: Duration = Duration::from_secs(50);

fn poll(client: &Client, resource: &str, wait: &str, since: Option<&str>) -> Call {
    let call = client.get(resource_path(resource)).query("wait", wait);
    match since {
        Some(tag) => call.query("since", tag),
        None => call,
    }
}

/// The answer to a poll, which must come before its wait is over.
async fn told(call: Call) -> Resource {
    let answer = timeout(WAIT, call.send()).await.expect("an answer before the wait is over");
    answer.expect(200).parse()
}

/// What a poll that begins now is told, once this was done.
async fn after<T>(client: &Client, tag: &str, done: impl Future<Output = T>) -> (Resource, T) {
    let done = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        done.await
    };
    let (now, done) = tokio::join!(told(poll(client, "r", "50s", Some(tag))), done);
    assert_ne!(now.state_tag, tag, "{now:?}");
    (now, done)
}

async fn a_poll_answers_when_the_tag_changes(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let mut seen = look(&client, "r").await;

    let write = client.put("r", "k", "x").under(&lock).send();
    (seen, _) = after(&client, &seen.state_tag, write).await;
    assert_eq!((seen.version, seen.objects), (1, 1));

    let frozen = client.post(format!("{}/freeze", resource_path("r")), &json!({ "reason": "x" }));
    (seen, _) = after(&client, &seen.state_tag, frozen.send()).await;
    assert_eq!(seen.frozen.as_deref(), Some("x"));
    let thawed = client.post(format!("{}/unfreeze", resource_path("r")), &json!({ "reason": "x" }));
    (seen, _) = after(&client, &seen.state_tag, thawed.send()).await;

    (seen, _) = after(&client, &seen.state_tag, client.release(&lock).send()).await;
    assert_eq!(seen.state.as_str(), "released");
    let next;
    (seen, next) = after(&client, &seen.state_tag, client.acquire("r", "10m")).await;
    assert_eq!(seen.state.as_str(), "leased");

    let soon = json!({ "after": "2s", "reason": "x" });
    (seen, _) = after(&client, &seen.state_tag, client.break_lock("r", &soon).send()).await;
    assert_eq!(seen.state.as_str(), "breaking");
    assert!(seen.breaks_in_ms.is_some_and(|left| left <= 2_000), "{seen:?}");
    // Nobody does anything, and it comes.
    (seen, ()) = after(&client, &seen.state_tag, async {}).await;
    assert_eq!((seen.state.as_str(), seen.breaks_in_ms), ("broken", None));
    drop(next);

    client.acquire("r", "1s").await;
    seen = look(&client, "r").await;
    // On a machine that stood still it is over by now.
    if seen.state.as_str() == "leased" {
        (seen, ()) = after(&client, &seen.state_tag, async {}).await;
    }
    assert_eq!(seen.state.as_str(), "expired");

    // A commit of many, and many who wait.
    let both = client.lock(&json!({ "resources": ["r", "s"] })).send().await.expect(201).parse();
    seen = look(&client, "r").await;
    let polls = (0..5).map(|_| told(poll(&client, "r", "50s", Some(&seen.state_tag))));
    let write = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.put("r", "k", "y").under(&both).send().await.expect(200);
    };
    let (all, ()) = tokio::join!(join_all(polls), write);
    assert!(all.iter().all(|now| now.version == 2), "{all:?}");
}

async fn a_poll_answers_at_once_when_the_tag_differs(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let missing = poll(&client, "r", "50s", None).send().await;
    missing.refused(404, "resource-not-found");
    client.acquire("r", "10m").await;
    for since in ["", "x", "of an earlier version", "日本"] {
        let now = told(poll(&client, "r", "50s", Some(since))).await;
        assert_eq!(now.state.as_str(), "leased", "{since}");
    }
    // Without a wait the tag makes no difference.
    let tag = look(&client, "r").await.state_tag;
    for call in
        [client.get(resource_path("r")).query("since", &tag), poll(&client, "r", "0s", Some(&tag))]
    {
        assert_eq!(told(call).await.state_tag, tag);
    }
    let listed = client.get("/resources").send().await.expect(200).json();
    assert_eq!(listed["items"][0]["state_tag"], tag.as_str());
    for wait in ["51s", "x", "-1s"] {
        poll(&client, "r", wait, None).send().await.refused(400, "query-malformed");
    }
}

/// A renewal, and somebody who comes to wait, are nothing that it waits for.
async fn a_poll_ends_with_its_wait_and_the_same_tag(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let before = look(&client, "r").await;
    for since in [None, Some(before.state_tag.as_str())] {
        let meanwhile = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            client.renew(&lock, None).send().await.expect(200);
            let waits = json!({ "resource": "r", "wait": "100ms" });
            client.lock(&waits).send().await.refused(409, "lock-wait-elapsed");
        };
        let poll = async {
            let began = Instant::now();
            (told(poll(&client, "r", "1200ms", since)).await, began.elapsed())
        };
        let ((now, took), ()) = tokio::join!(poll, meanwhile);
        assert!(took >= Duration::from_millis(1200), "{took:?}");
        assert_eq!(now.state_tag, before.state_tag);
        // As it stands then, not as it stood when the wait began.
        assert!(now.renewed_ms_ago < now.age_ms && now.age_ms >= before.age_ms + 1200, "{now:?}");
    }
}

async fn a_gateway_that_shuts_down_answers_polls_of_resources(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "0s");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    client.acquire("r", "10m").await;
    let polls = (0..5).map(|_| told(poll(&client, "r", "50s", None)));
    let term = async {
        // All of them are under way by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        gateway.term();
    };
    let (all, ()) = tokio::join!(join_all(polls), term);
    assert!(all.iter().all(|now| now.version == 0), "{all:?}");
    let status = gateway.wait_for_exit().await;
    assert_eq!(status.code(), Some(0), "{}", gateway.log());
}

/// Changes that another gateway makes are told, too.
#[tokio::test]
async fn a_poll_hears_of_what_is_done_through_another_gateway() {
    let settings = SetUp::Clustered.settings().await;
    let gateways = join_all((0..2).map(|_| settings.clone().start())).await;
    let (here, there) = (gateways[0].client(), gateways[1].client());
    let lock = there.acquire("r", "10m").await;
    let tag = look(&here, "r").await.state_tag;
    assert_eq!(look(&there, "r").await.state_tag, tag, "the same at every gateway");
    let (seen, _) = after(&here, &tag, there.put("r", "k", "x").under(&lock).send()).await;
    assert_eq!(seen.version, 1);
    let (seen, _) = after(&here, &seen.state_tag, there.release(&lock).send()).await;
    assert_eq!(seen.state.as_str(), "released");
}

/// Calls that wait get a share of the connections, whatever they wait for.
#[tokio::test]
async fn polls_of_resources_leave_room_for_others() {
    let settings = SetUp::Embedded.settings().await.env("FENCEGATE_CONNECTIONS_MAX", "60");
    let gateway = settings.start().await;
    let client = gateway.client();
    client.acquire("r", "10m").await;
    let polls = (0..55).map(|_| tokio::spawn(poll(&client, "r", "2s", None).send()));
    let answers = join_all(polls).await.into_iter().map(Result::unwrap);
    let refused: Vec<_> = answers.filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty(), "all of them may wait");
    assert!(refused.iter().all(|answer| answer.code() == "overloaded"), "{refused:?}");
}
