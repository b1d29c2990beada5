//! `GET /resources/{resource}/waiters`: who waits in line, as everybody may see it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "tests start their own tasks")]

use fence_core::wire::WaiterList;
use fence_tests::client::{Client, resource_path};
use fence_tests::process::eventually;
use serde_json::{Value, json};

use crate::setup::{SetUp, on_both, random_id};

on_both!(a_line_is_shown_to_everybody_without_ids);

fn wants(owner: &str, id: &str, wait: &str) -> Value {
    json!({ "resource": "job:1", "owner": owner, "id": id, "wait": wait })
}

async fn line(client: &Client, limit: &str, cursor: Option<&str>) -> WaiterList {
    let call = client.get(format!("{}/waiters", resource_path("job:1"))).query("limit", limit);
    let call = match cursor {
        Some(cursor) => call.query("cursor", cursor),
        None => call,
    };
    call.send().await.expect(200).parse()
}

/// Waits until the line looks so.
async fn until(client: &Client, expected: &[(&str, i64, bool)]) -> WaiterList {
    eventually(&format!("{expected:?}"), async || {
        let list = line(client, "9", None).await;
        let seen: Vec<_> =
            list.items.iter().map(|one| (one.owner.as_str(), one.position, one.present)).collect();
        (seen == expected).then_some(list)
    })
    .await
}

async fn a_line_is_shown_to_everybody_without_ids(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let waiters = format!("{}/waiters", resource_path("job:1"));
    client.get(&waiters).send().await.refused(404, "resource-not-found");
    let holder = client.acquire("job:1", "10m").await;
    assert!(until(&client, &[]).await.next_cursor.is_none());

    let ids: Vec<String> = (0..3).map(|_| random_id().to_string()).collect();
    let mut calls = Vec::new();
    let mut expected = Vec::new();
    for ((owner, id), position) in ["ann", "bob", "cid"].into_iter().zip(&ids).zip(1..) {
        calls.push(tokio::spawn(client.lock(&wants(owner, id, "40s")).send()));
        expected.push((owner, position, true));
        until(&client, &expected).await;
    }
    let shown = client.get(&waiters).send().await.expect(200).text();
    assert!(ids.iter().all(|id| !shown.contains(id.as_str())), "{shown}");
    assert!(!shown.contains(&holder.id.to_string()), "{shown}");

    // By pages.
    let first = line(&client, "2", None).await;
    let next = first.next_cursor.as_deref().expect("there is more");
    let second = line(&client, "2", Some(next)).await;
    let owners = |list: &WaiterList| -> Vec<String> {
        list.items.iter().map(|one| one.owner.clone()).collect()
    };
    assert_eq!(
        (owners(&first), owners(&second)),
        (vec!["ann".into(), "bob".into()], vec!["cid".into()])
    );
    assert_eq!((second.items[0].position, second.next_cursor), (3, None));
    assert!(first.items.is_sorted_by_key(|one| one.since));

    // Whose call is cut keeps its place for a while.
    calls.remove(1).abort();
    until(&client, &[("ann", 1, true), ("bob", 2, false), ("cid", 3, true)]).await;
    client.release(&holder).send().await.expect(204);
    assert_eq!(calls.remove(0).await.unwrap().status, 201);
    until(&client, &[("bob", 1, false), ("cid", 2, true)]).await;

    for (name, value) in [("limit", "0"), ("cursor", "x"), ("prefix", "a")] {
        let bad = client.get(&waiters).query(name, value).send().await;
        bad.refused(400, "query-malformed");
    }
}
