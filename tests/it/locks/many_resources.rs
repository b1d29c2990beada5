//! Locks on several resources, and locks that are handed over.
#![expect(clippy::disallowed_methods, reason = "tests read real clocks and make real ids")]

use std::collections::HashSet;
use std::sync::Arc;

use fence_core::lock::Supersession;
use fence_core::wire::Lock;
use fence_tests::client::Client;
use futures::future::join_all;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::setup::{SetUp, on_both};

on_both!(
    a_lock_on_several_resources_is_all_or_nothing,
    a_bad_choice_of_resources_is_refused,
    clients_that_lock_random_sets_never_meet_and_never_deadlock,
    a_lock_is_handed_over_in_one_act,
    a_transfer_can_be_repeated,
    what_has_ended_is_not_handed_over,
);

fn lock_on(resources: &[&str]) -> Value {
    json!({ "resources": resources, "owner": "many", "ttl": "60s" })
}

async fn a_lock_on_several_resources_is_all_or_nothing(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let all: Lock = client.lock(&lock_on(&["c", "a", "b"])).send().await.expect(201).parse();
    let names: Vec<String> = all.resources.iter().map(ToString::to_string).collect();
    assert_eq!((names.join(","), all.versions.clone()), ("a,b,c".to_owned(), vec![0, 0, 0]));
    for name in &names {
        client.put(name, "k", "x").under(&all).send().await.expect(201);
    }
    let held = client.lock(&lock_on(&["x", "b"])).send().await.refused(409, "lock-held");
    assert_eq!(held.problem().resource.as_deref(), Some("b"));
    // Nothing of it was taken.
    client.get("/resources/x").send().await.refused(404, "resource-not-found");

    client.release(&all).send().await.expect(204);
    let next: Lock = client.lock(&lock_on(&["x", "b"])).send().await.expect(201).parse();
    assert_eq!(next.versions, [1, 0]);
    client.put("b", "k", "late").under(&all).send().await.refused(412, "fence-token-stale");
    client.put("a", "k", "late").under(&all).send().await.refused(412, "fence-token-released");
}

async fn a_bad_choice_of_resources_is_refused(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let many: Vec<String> = (0..33).map(|index| format!("r{index}")).collect();
    for body in [
        json!({ "owner": "none" }),
        json!({ "resources": [] }),
        json!({ "resources": ["a", "a"] }),
        json!({ "resource": "a", "resources": ["b"] }),
        json!({ "resources": many }),
    ] {
        client.lock(&body).send().await.refused(400, "body-malformed");
    }
    let bad = client.lock(&json!({ "resources": ["a", "b/c"] })).send().await;
    bad.refused(400, "resource-name-invalid");
    client.lock(&json!({ "resources": &many[..32] })).send().await.expect(201);
}

async fn clients_that_lock_random_sets_never_meet_and_never_deadlock(setup: SetUp) {
    const CLIENTS: usize = 12;
    const TURNS: usize = 12;
    let gateway = setup.start().await;
    let names: Vec<String> = (0..10).map(|index| format!("fork:{index}")).collect();
    let in_use: Arc<Mutex<HashSet<String>>> = Arc::default();
    let diners = (0..CLIENTS).map(|_| {
        let (client, names, in_use) = (gateway.client(), names.clone(), Arc::clone(&in_use));
        async move {
            for turn in 0..TURNS {
                let size = 2 + turn % 4;
                let chosen: Vec<String> = names.sample(&mut rand::rng(), size).cloned().collect();
                eat(&client, &chosen, &in_use).await;
            }
        }
    });
    join_all(diners).await;
}

/// Takes a lock on all of these, writes to each, and gives it back.
async fn eat(client: &Client, chosen: &[String], in_use: &Mutex<HashSet<String>>) {
    let lock: Lock = loop {
        let answer = client.lock(&json!({ "resources": chosen, "ttl": "60s" })).send().await;
        match answer.status.as_u16() {
            201 => break answer.parse(),
            409 => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            other => panic!("{other}: {}", answer.text()),
        }
    };
    for name in chosen {
        assert!(in_use.lock().await.insert(name.clone()), "{name} has two holders");
    }
    for name in chosen {
        let written = client.put(name, "k", "x").under(&lock).send().await;
        assert!([200, 201].contains(&written.status.as_u16()), "{}", written.text());
    }
    for name in chosen {
        in_use.lock().await.remove(name);
    }
    client.release(&lock).send().await.expect(204);
}

async fn a_lock_is_handed_over_in_one_act(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let old: Lock = client.lock(&lock_on(&["a", "b"])).send().await.expect(201).parse();
    let path = format!("/locks/{}/transfer", old.id);
    let new: Lock =
        client.post(&path, &json!({ "owner": "heir" })).send().await.expect(201).parse();
    assert!(new.token > old.token);
    assert_ne!(new.id, old.id);
    assert_eq!(
        (new.owner.as_str(), new.ttl_ms, &new.resources),
        ("heir", Some(60_000), &old.resources)
    );
    let late = client.put("b", "k", "late").under(&old).send().await;
    let late = late.refused(412, "fence-token-stale").problem();
    assert_eq!(late.superseded_by, Some(Supersession::Transfer.into()));
    client.put("b", "k", "by the heir").under(&new).send().await.expect(201);
    client.renew(&old, None).send().await.refused(409, "lock-superseded");
    client.renew(&new, None).send().await.expect(200);
}

async fn a_transfer_can_be_repeated(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let old = client.acquire("r", "60s").await;
    let path = format!("/locks/{}/transfer", old.id);
    let body = json!({ "owner": "heir", "id": Uuid::new_v4() });
    let first: Lock = client.post(&path, &body).send().await.expect(201).parse();
    let again: Lock = client.post(&path, &body).send().await.expect(200).parse();
    assert_eq!((first.id, first.token), (again.id, again.token));
    // Another id: the lock was handed over before.
    let other = json!({ "owner": "heir", "id": Uuid::new_v4() });
    client.post(&path, &other).send().await.refused(409, "lock-superseded");
}

async fn what_has_ended_is_not_handed_over(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let heir = json!({ "owner": "heir" });
    let unknown = format!("/locks/{}/transfer", Uuid::new_v4());
    client.post(&unknown, &heir).send().await.refused(404, "lock-not-found");
    let released = client.acquire("r", "60s").await;
    client.release(&released).send().await.expect(204);
    let path = format!("/locks/{}/transfer", released.id);
    client.post(&path, &heir).send().await.refused(409, "lock-released");
    let breaking = client.acquire("s", "60s").await;
    let after = json!({ "after": "30s", "reason": "maintenance" });
    client.break_lock("s", &after).send().await.expect(200);
    let path = format!("/locks/{}/transfer", breaking.id);
    client.post(&path, &heir).send().await.refused(409, "lock-breaking");
    client.post(&path, &json!({})).send().await.refused(400, "body-malformed");
}
