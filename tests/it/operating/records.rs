//! `GET /audit` and `GET /rejections` with `after`: followed by their users, nothing missed and nothing twice.
#![expect(
    clippy::disallowed_methods,
    reason = "a test measures on the real clock and starts tasks"
)]

use std::time::{Duration, Instant};

use fence_core::wire::{AuditEntry, AuditList, RejectionEntry, RejectionList};
use fence_tests::client::{Client, resource_path};
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, on_both, take_over};

on_both!(
    the_audit_is_followed_from_the_beginning,
    the_audit_is_followed_from_now,
    refused_writes_are_followed,
    what_cannot_be_followed_is_refused,
    a_gateway_that_shuts_down_answers_its_followers,
);

async fn audit(client: &Client, query: &[(&str, &str)]) -> AuditList {
    let call = client.get("/audit");
    let call = query.iter().fold(call, |call, (name, value)| call.query(name, value));
    call.send().await.expect(200).parse()
}

async fn rejections(client: &Client, query: &[(&str, &str)]) -> RejectionList {
    let call = client.get("/rejections");
    let call = query.iter().fold(call, |call, (name, value)| call.query(name, value));
    call.send().await.expect(200).parse()
}

/// Action and resource of each.
fn told(entries: &[AuditEntry]) -> Vec<(String, String)> {
    let told = |one: &AuditEntry| (one.action.clone(), one.resource.clone().unwrap_or_default());
    entries.iter().map(told).collect()
}

async fn the_audit_is_followed_from_the_beginning(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let mut expected: Vec<(String, String)> = Vec::new();
    for number in 0..7 {
        let resource = format!("job:{number}");
        client.acquire(&resource, "10m").await;
        expected.push(("grant".into(), resource));
    }
    // There may be entries about the ledger itself, too.
    let (mut seen, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = audit(&client, &[("after", &cursor), ("limit", "3")]).await;
        assert!(page.items.len() <= 3);
        cursor = page.next_cursor.expect("always there");
        if page.items.is_empty() {
            break;
        }
        seen.extend(page.items);
    }
    let grants = |entries: &[AuditEntry]| {
        let mut told = told(entries);
        told.retain(|(action, _)| action == "grant");
        told
    };
    assert_eq!(grants(&seen), expected);
    // The same cursor goes on, also behind entries of others than those that are asked for.
    let freeze = json!({ "reason": "x" });
    client.post(format!("{}/freeze", resource_path("job:1")), &freeze).send().await.expect(200);
    let frozen = [("after", cursor.as_str()), ("action", "freeze"), ("resource", "job:1")];
    let page = audit(&client, &frozen).await;
    assert_eq!(told(&page.items), [("freeze".into(), "job:1".into())]);
    let next = page.next_cursor.expect("always there");
    client.acquire("job:9", "10m").await;
    let none = audit(&client, &[("after", &next), ("action", "break")]).await;
    assert!(none.items.is_empty());
    let after = none.next_cursor.expect("always there");
    assert_ne!(after, next, "it is past what it does not ask for");
    assert!(audit(&client, &[("after", &after)]).await.items.is_empty());
    // And back from the end as ever.
    let newest = audit(&client, &[("limit", "1")]).await;
    assert_eq!(told(&newest.items), [("grant".into(), "job:9".into())]);
}

async fn the_audit_is_followed_from_now(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("before", "10m").await;
    let now = audit(&client, &[("after", "now")]).await;
    assert!(now.items.is_empty());
    let cursor = now.next_cursor.expect("always there");
    let from = [("after", cursor.as_str()), ("wait", "50s")];
    let (page, _) = tokio::join!(audit(&client, &from), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.acquire("then", "10m").await
    });
    // One whose wait is over has none.
    assert_eq!(told(&page.items), [("grant".into(), "then".into())]);
    // What is there already is not waited for, and a wait ends.
    let again = audit(&client, &[("after", &cursor), ("wait", "50s")]).await;
    assert_eq!(told(&again.items), told(&page.items));
    let cursor = again.next_cursor.expect("always there");
    let began = Instant::now();
    let none = audit(&client, &[("after", &cursor), ("wait", "700ms")]).await;
    assert!(none.items.is_empty() && began.elapsed() >= Duration::from_millis(700));
    assert_eq!(none.next_cursor, Some(cursor));
}

async fn refused_writes_are_followed(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let old = client.acquire("job:1", "1s").await;
    take_over(&client, "job:1").await;
    let mut cursor = "0".to_owned();
    let mut seen: Vec<RejectionEntry> = Vec::new();
    for round in 0..3 {
        let from = [("after", cursor.as_str()), ("wait", "50s")];
        let (found, ()) = tokio::join!(rejections(&client, &from), async {
            let key = format!("k{round}");
            let late = client.put("job:1", &key, "x").under(&old).send().await;
            late.refused(412, "fence-token-stale");
        });
        cursor = found.next_cursor.expect("always there");
        seen.extend(found.items);
    }
    let keys: Vec<_> = seen.iter().filter_map(|one| one.key.as_deref()).collect();
    assert_eq!(keys, ["k0", "k1", "k2"]);
    let of_another = [("after", "0"), ("resource", "job:2")];
    assert!(rejections(&client, &of_another).await.items.is_empty());
    let stale = [("after", "0"), ("reason", "fence-token-stale"), ("limit", "2")];
    let two = rejections(&client, &stale).await;
    let rest = two.next_cursor.expect("always there");
    let rest = rejections(&client, &[("after", &rest), ("resource", "job:1")]).await;
    assert_eq!((two.items.len(), rest.items.len()), (2, 1));
}

async fn what_cannot_be_followed_is_refused(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for path in ["/audit", "/rejections"] {
        for query in [
            &[("after", "x")][..],
            &[("after", "-1")],
            &[("after", "07")],
            &[("wait", "1s")],
            &[("after", "0"), ("wait", "51s")],
            &[("after", "0"), ("cursor", "17")],
            &[("after", "0"), ("resource", "a/b")],
        ] {
            let call =
                query.iter().fold(client.get(path), |call, (name, value)| call.query(name, value));
            call.send().await.refused(400, "query-malformed");
        }
    }
}

async fn a_gateway_that_shuts_down_answers_its_followers(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "0s");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let waits = (0..3).map(|_| rejections(&client, &[("after", "now"), ("wait", "50s")]));
    let term = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        gateway.term();
    };
    let waits = tokio::time::timeout(Duration::from_secs(50), join_all(waits));
    let (all, ()) = tokio::join!(waits, term);
    let all = all.expect("answers before the wait is over");
    assert!(all.iter().all(|list| list.items.is_empty()));
    assert_eq!(gateway.wait_for_exit().await.code(), Some(0), "{}", gateway.log());
}

/// Follows the audit until it has so many entries.
async fn follow(client: Client, count: usize) -> Vec<AuditEntry> {
    let (mut seen, mut cursor) = (Vec::new(), "0".to_owned());
    while seen.len() < count {
        let page = audit(&client, &[("after", &cursor), ("wait", "2s"), ("limit", "7")]).await;
        cursor = page.next_cursor.expect("always there");
        seen.extend(page.items);
    }
    seen
}

/// Locks are granted through both of two gateways at once, and whoever follows at either sees each grant once, in
/// one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_two_gateways_see_every_entry_once() {
    const WORKERS: usize = 8;
    const ROUNDS: usize = 25;
    let settings = SetUp::Clustered.settings().await;
    let gateways = join_all((0..2).map(|_| settings.clone().start())).await;
    let clients: Vec<Client> = gateways.iter().map(|gateway| gateway.client()).collect();
    let known = audit(&clients[0], &[("limit", "1000")]).await.items.len();
    let total = known + WORKERS * ROUNDS;
    let followers = clients.iter().map(|client| tokio::spawn(follow(client.clone(), total)));
    let followers: Vec<_> = followers.collect();
    let workers = (0..WORKERS).map(|worker| {
        let clients = clients.clone();
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let client = &clients[(worker + round) % 2];
                let lock = client.acquire(&format!("job:{worker}:{round}"), "10m").await;
                client.release(&lock).send().await.expect(204);
            }
        })
    });
    for worker in join_all(workers).await {
        worker.unwrap();
    }
    let mut whole = audit(&clients[0], &[("limit", "1000")]).await.items;
    whole.reverse();
    assert_eq!(whole.len(), total);
    for follower in followers {
        assert_eq!(told(&follower.await.unwrap()), told(&whole));
    }
}
