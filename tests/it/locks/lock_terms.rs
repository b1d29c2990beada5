//! What a lock may be bound by or carry, over real HTTP: an infinite ttl, a longest hold, metadata, and
//! resources that must exist.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Lock;
use fence_tests::client::{Client, resource_path};
use serde_json::{Value, json};

use crate::setup::{SetUp, look, on_both, random_id, until_state};

on_both!(
    an_infinite_lock_has_no_deadline_once_its_holder_is_heard_of,
    the_same_call_again_changes_the_ttl_and_nothing_else,
    an_infinite_lock_is_handed_over_and_broken,
    a_longest_hold_ends_a_lock_however_often_it_is_renewed,
    a_longest_hold_has_bounds,
    metadata_is_shown_to_the_holder_alone,
    a_lock_only_on_what_exists_creates_nothing,
);

async fn grant(client: &Client, body: &Value) -> Lock {
    client.lock(body).send().await.expect(201).parse()
}

async fn an_infinite_lock_has_no_deadline_once_its_holder_is_heard_of(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    let body = json!({ "resource": "job:1", "ttl": "infinite", "owner": "test", "id": id });
    let granted = client.lock(&body).send().await.expect(201);
    let raw = granted.json();
    assert_eq!((&raw["ttl_ms"], &raw["expires_in_ms"]), (&Value::Null, &json!(60_000)), "{raw}");
    assert_eq!(raw["confirm_within_ms"], json!(60_000));
    assert_eq!((&raw["state"], raw.get("hold_until")), (&json!("leased"), None));
    let lock: Lock = granted.parse();
    // Its answer has arrived, and nobody knows: it is confirmed by its holder alone.
    let own: Lock = client.lock_of(&lock).send().await.expect(200).parse();
    assert!(own.confirm_within_ms.is_some_and(|ms| ms <= 60_000), "{own:?}");
    assert_eq!((own.ttl_ms, own.expires_in_ms), (None, own.confirm_within_ms));
    assert!(look(&client, "job:1").await.expires_in_ms.unwrap() <= 60_000);
    let again = client.lock(&body).send().await.expect(200).json();
    assert_eq!((&again["ttl_ms"], &again["expires_in_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(again.get("confirm_within_ms"), None);
    assert_eq!(look(&client, "job:1").await.expires_in_ms, None);

    let other = grant(&client, &json!({ "resource": "job:2", "ttl": "infinite" })).await;
    assert_eq!((other.expires_in_ms, other.confirm_within_ms), (Some(60_000), Some(60_000)));
    let renewed: Lock = client.renew(&other, None).send().await.expect(200).parse();
    assert_eq!((renewed.ttl_ms, renewed.expires_in_ms), (None, None));
    assert_eq!(renewed.confirm_within_ms, None);
    let own: Lock = client.lock_of(&lock).send().await.expect(200).parse();
    assert_eq!((own.ttl_ms, own.expires_in_ms), (None, None));
    assert_eq!(look(&client, "job:1").await.expires_in_ms, None);
    let listed = client.get("/locks").send().await.expect(200).json();
    assert_eq!(listed["items"][0]["expires_in_ms"], Value::Null);

    let held = client.lock(&json!({ "resource": "job:1" })).send().await.refused(409, "lock-held");
    let wait_ms = held.problem().retry_after_ms.unwrap();
    assert!((1..=30_000).contains(&wait_ms), "{wait_ms}");
    assert_eq!(held.must_have("retry-after"), "30");

    let finite: Lock = client.renew(&lock, Some("10m")).send().await.expect(200).parse();
    assert_eq!(finite.ttl_ms, Some(600_000));
    assert!(look(&client, "job:1").await.expires_in_ms.unwrap() <= 600_000);
    let infinite: Lock = client.renew(&lock, Some("infinite")).send().await.expect(200).parse();
    assert_eq!((infinite.ttl_ms, infinite.expires_in_ms), (None, None));
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    client.release(&lock).send().await.expect(204);
    let ended = client.lock_of(&lock).send().await.expect(200).json();
    assert_eq!((&ended["ttl_ms"], &ended["expires_in_ms"]), (&Value::Null, &json!(0)));
    client.acquire("job:1", "10m").await;
}

async fn the_same_call_again_changes_the_ttl_and_nothing_else(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    let call = |ttl: Option<&str>, note: &str, max_hold: &str| {
        let mut body = json!({
            "resource": "job:1", "owner": "test", "id": id, "max_hold": max_hold,
            "metadata": { "note": note },
        });
        if let Some(ttl) = ttl {
            body["ttl"] = json!(ttl);
        }
        client.lock(&body).send()
    };
    let first: Lock = call(Some("20s"), "first", "1h").await.expect(201).parse();
    assert_eq!((first.ttl_ms, first.expires_in_ms), (Some(20_000), Some(20_000)));
    let again = async |ttl: Option<&str>| -> Lock {
        let again: Lock = call(ttl, "second", "2h").await.expect(200).parse();
        assert_eq!((again.id, again.token), (first.id, first.token));
        // Those of the call that was granted.
        assert_eq!((&again.metadata, again.hold_until), (&first.metadata, first.hold_until));
        let own: Lock = client.lock_of(&first).send().await.expect(200).parse();
        assert_eq!((own.ttl_ms, own.confirm_within_ms), (again.ttl_ms, None));
        let (said, does) = (again.expires_in_ms.unwrap(), own.expires_in_ms.unwrap());
        assert!((said - 10_000..=said).contains(&does), "{said}, but {does}");
        again
    };
    // Without a ttl it is kept and starts again.
    let kept = again(None).await;
    assert_eq!((kept.ttl_ms, kept.expires_in_ms), (Some(20_000), Some(20_000)));
    assert_eq!(again(Some("15m")).await.expires_in_ms, Some(900_000));
    // To infinite, at once: bound by the longest hold alone.
    let infinite = again(Some("infinite")).await;
    assert!(infinite.ttl_ms.is_none() && infinite.expires_in_ms > Some(3_500_000), "{infinite:?}");
    assert!(again(None).await.ttl_ms.is_none());
    let finite = again(Some("10s")).await;
    assert_eq!((finite.ttl_ms, finite.expires_in_ms), (Some(10_000), Some(10_000)));
    // A renewal's ttl is kept as well.
    client.renew(&first, Some("25s")).send().await.expect(200);
    assert_eq!(again(None).await.ttl_ms, Some(25_000));
}

async fn an_infinite_lock_is_handed_over_and_broken(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let ann = grant(&client, &json!({ "resource": "job:1", "ttl": "infinite" })).await;
    client.renew(&ann, None).send().await.expect(200);
    let to = client.post(format!("/locks/{}/transfer", ann.id), &json!({ "owner": "bob" }));
    let bob: Lock = to.send().await.expect(201).parse();
    assert_eq!((bob.ttl_ms, bob.expires_in_ms), (None, Some(60_000)));
    assert_eq!(bob.confirm_within_ms, Some(60_000));
    client.put("job:1", "k", "a").under(&ann).send().await.refused(412, "fence-token-stale");
    client.renew(&bob, None).send().await.expect(200);
    client.break_lock("job:1", &json!({ "reason": "hangs" })).send().await.expect(200);
    client.put("job:1", "k", "b").under(&bob).send().await.refused(412, "fence-token-broken");
    client.acquire("job:1", "10m").await;
}

async fn a_longest_hold_ends_a_lock_however_often_it_is_renewed(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    let body =
        json!({ "resource": "job:1", "ttl": "10m", "max_hold": "2s", "owner": "test", "id": id });
    let lock = grant(&client, &body).await;
    let until = lock.hold_until.unwrap();
    assert_eq!(until.as_microsecond() - lock.acquired_at.as_microsecond(), 2_000_000);
    assert!(lock.expires_in_ms.unwrap() <= 2_000 && lock.ttl_ms == Some(600_000), "{lock:?}");
    let renewed: Lock = client.renew(&lock, Some("infinite")).send().await.expect(200).parse();
    assert!(renewed.expires_in_ms.unwrap() <= 2_000, "{renewed:?}");
    assert_eq!((renewed.ttl_ms, renewed.hold_until), (None, Some(until)));

    // The successor is bound by the same end.
    let to = client.post(format!("/locks/{}/transfer", lock.id), &json!({ "owner": "heir" }));
    let heir: Lock = to.send().await.expect(201).parse();
    assert_eq!(heir.hold_until, Some(until));
    until_state(&client, "job:1", "expired").await;
    client.renew(&heir, None).send().await.refused(409, "lock-hold-exceeded");
    client.renew(&heir, Some("10m")).send().await.refused(409, "lock-hold-exceeded");
    let same = json!({ "resource": "job:1", "owner": "heir", "id": heir.id });
    client.lock(&same).send().await.refused(409, "lock-hold-exceeded");
    let to = client.post(format!("/locks/{}/transfer", heir.id), &json!({ "owner": "next" }));
    to.send().await.refused(409, "lock-hold-exceeded");
    let many = client.post("/locks/renew", &json!({ "ids": [heir.id] })).send().await.expect(200);
    assert_eq!(many.json()["items"][0]["code"], "lock-hold-exceeded");

    // Nobody took over, so its holder may still write; then somebody does.
    client.put("job:1", "k", "x").under(&heir).send().await.expect(201);
    let next = client.acquire("job:1", "10m").await;
    assert_eq!(next.hold_until, None);
    client.put("job:1", "k", "x").under(&heir).send().await.refused(412, "fence-token-stale");
}

async fn a_longest_hold_has_bounds(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for (index, (hold, seconds)) in [("1s", 1), ("30d", 2_592_000)].into_iter().enumerate() {
        let body = json!({ "resource": format!("job:{index}"), "max_hold": hold });
        let lock = grant(&client, &body).await;
        let micros = lock.hold_until.unwrap().as_microsecond() - lock.acquired_at.as_microsecond();
        assert_eq!(micros, seconds * 1_000_000, "{hold}");
    }
    // An infinite lock within the longest hold there is has a deadline that is shown.
    let body = json!({ "resource": "job:9", "ttl": "infinite", "max_hold": "30d" });
    let lock = grant(&client, &body).await;
    let renewed: Lock = client.renew(&lock, None).send().await.expect(200).parse();
    assert!(renewed.expires_in_ms.unwrap() > 2_500_000_000, "{renewed:?}");
    for bad in [json!("999ms"), json!("30d 1s"), json!("infinite"), json!(30), json!("")] {
        let body = json!({ "resource": "job:bad", "max_hold": bad });
        client.lock(&body).send().await.refused(400, "body-malformed");
    }
    client.get(resource_path("job:bad")).send().await.refused(404, "resource-not-found");
}

async fn metadata_is_shown_to_the_holder_alone(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let words = json!({ "run": "run-4711", "warum?": "Umzug \"grün\"\n", "empty": "" });
    let id = random_id().to_string();
    let body = |metadata: &Value| {
        json!({
            "resource": "job:1", "ttl": "10m", "owner": "test", "id": id, "metadata": metadata
        })
    };
    let granted = client.lock(&body(&words)).send().await.expect(201);
    assert_eq!(granted.json()["metadata"], words);
    let lock: Lock = granted.parse();
    assert_eq!(client.lock_of(&lock).send().await.expect(200).json()["metadata"], words);
    assert_eq!(client.renew(&lock, None).send().await.expect(200).json()["metadata"], words);
    // The same id with other words is the same lock with the old ones.
    let again = client.lock(&body(&json!({ "run": "run-4712" }))).send().await.expect(200);
    assert_eq!(again.json()["metadata"], words);
    for path in ["/locks", "/resources", "/resources/job:1"] {
        let view = client.get(path).send().await.expect(200).text();
        assert!(!view.contains("run-4711"), "{path}: {view}");
    }
    let held = client.lock(&json!({ "resource": "job:1" })).send().await.refused(409, "lock-held");
    assert!(!held.text().contains("run-4711"), "{}", held.text());
    let to = client.post(format!("/locks/{}/transfer", lock.id), &json!({ "owner": "heir" }));
    assert_eq!(to.send().await.expect(201).json()["metadata"], words);
    let plain = client.lock(&json!({ "resource": "job:2" })).send().await.expect(201);
    assert_eq!(plain.json()["metadata"], json!({}));
}

async fn a_lock_only_on_what_exists_creates_nothing(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let only = |resources: Value| {
        client.lock(&json!({ "resources": resources, "ttl": "10m", "only_if_exists": true }))
    };
    only(json!(["job:1"])).send().await.refused(404, "resource-not-found");
    let first = client.acquire("job:1", "10m").await;
    client.release(&first).send().await.expect(204);
    let missing = only(json!(["job:3", "job:1", "job:2"])).send().await;
    let missing = missing.refused(404, "resource-not-found");
    assert_eq!(missing.problem().resource.as_deref(), Some("job:2"));
    for never in ["job:2", "job:3"] {
        client.get(resource_path(never)).send().await.refused(404, "resource-not-found");
    }
    assert_eq!(look(&client, "job:1").await.state.as_str(), "released");
    let lock: Lock = only(json!(["job:1"])).send().await.expect(201).parse();
    assert!(lock.token > first.token);
    only(json!(["job:1"])).send().await.refused(409, "lock-held");
    // A fence makes a resource, too.
    client.fence("job:2", &json!({ "id": random_id().to_string() })).send().await.expect(201);
    only(json!(["job:2"])).send().await.expect(201);
}
