//! Many callers at once, and many grants one after the other.

use std::collections::BTreeSet;

use fence_core::wire::Lock;
use fence_tests::client::object_path;
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::locks::lifetime::pages;
use crate::setup::{SetUp, look, on_both};

on_both!(
    tokens_rise_with_every_grant,
    of_a_crowd_exactly_one_gets_the_lock,
    many_resources_are_locked_at_once,
    concurrent_writes_of_one_holder_get_versions_without_gaps,
);

async fn tokens_rise_with_every_grant(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let mut last = client.acquire("job:1", "10m").await;
    for round in 0..20 {
        if round % 2 == 0 {
            client.release(&last).send().await.expect(204);
        } else {
            client.break_lock("job:1", &json!({ "reason": "x" })).send().await.expect(200);
        }
        let next = client.acquire("job:1", "10m").await;
        assert!(next.token > last.token && next.id != last.id, "{next:?} after {last:?}");
        last = next;
    }
}

async fn of_a_crowd_exactly_one_gets_the_lock(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let mut tokens = BTreeSet::new();
    for _ in 0..3 {
        let body = json!({ "resource": "job:1", "owner": "crowd", "ttl": "10m" });
        let answers = join_all((0..32).map(|_| client.lock(&body).send())).await;
        let (granted, held): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 201);
        assert_eq!(granted.len(), 1, "{granted:?}");
        for answer in held {
            answer.refused(409, "lock-held");
        }
        let lock: Lock = granted[0].parse();
        client.put("job:1", "k", "x").under(&lock).send().await;
        client.release(&lock).send().await.expect(204);
        assert!(tokens.insert(lock.token), "a token was granted twice");
    }
    assert_eq!(client.version("job:1").await, 3);
}

async fn many_resources_are_locked_at_once(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let names: Vec<_> = (0..200).map(|index| format!("job:{index:03}")).collect();
    let locks = join_all(names.iter().map(|name| client.acquire(name, "10m"))).await;
    let writes = locks.iter().map(|lock| {
        let resource = lock.resources[0].as_str();
        client.put(resource, "k", resource.to_owned()).under(lock).send()
    });
    for written in join_all(writes).await {
        assert_eq!(written.expect(201).written().version, 1);
    }
    assert_eq!(pages(&client, "/locks", "job:", 70).await, (names, 3));
    for done in join_all(locks.iter().map(|lock| client.release(lock).send())).await {
        done.expect(204);
    }
    assert!(pages(&client, "/locks", "", 70).await.0.is_empty());
}

async fn concurrent_writes_of_one_holder_get_versions_without_gaps(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let puts = (0..64).map(|index| {
        client.put("job:1", &format!("k{}", index % 5), index.to_string()).under(&lock).send()
    });
    let mut versions: Vec<_> =
        join_all(puts).await.iter().map(|answer| answer.written().version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=64).collect::<Vec<i64>>());
    assert_eq!(look(&client, "job:1").await.objects, 5);
    let head = client.call(Method::HEAD, object_path("job:1", "k0")).send().await.expect(200);
    assert_eq!(head.must_have("x-resource-version"), "64");
}
