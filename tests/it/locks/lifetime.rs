//! Locks over real HTTP: ids of the caller's choice, renewals, releases, lists, bounds, crowds.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::BTreeSet;

use fence_core::wire::{Lock, RenewManyAnswer, ResourceList};
use fence_tests::client::Client;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::setup::{SetUp, look, on_both, random_id, take_over};

on_both!(
    a_grant_says_all_that_its_holder_needs,
    the_same_id_again_gets_the_same_lock_and_token,
    an_id_names_one_grant_for_ever,
    a_held_lock_says_by_whom_and_when_to_come_back,
    many_locks_are_renewed_in_one_call,
    a_release_is_idempotent_and_buries_an_unknown_id,
    lists_have_prefixes_limits_and_cursors,
    ttls_have_bounds,
);

/// Asks for `job:1` under an id of the caller's choice.
fn named(client: &Client, id: &str, owner: &str) -> fence_tests::client::Call {
    client.lock(&json!({ "resource": "job:1", "owner": owner, "id": id, "ttl": "10m" }))
}

async fn a_grant_says_all_that_its_holder_needs(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let body = json!({ "resource": "job:1", "owner": "worker é 7" });
    let granted = client.lock(&body).send().await.expect(201);
    let lock: Lock = granted.parse();
    assert_eq!(granted.must_have("location"), format!("/locks/{}", lock.id));
    assert_eq!(granted.must_have("x-fence-token"), lock.token.to_string());
    assert_eq!(granted.must_have("cache-control"), "no-store");
    let raw = granted.json();
    assert_eq!(raw["token"], lock.token.to_string(), "a token is a decimal string");
    assert_eq!(raw["resources"], json!(["job:1"]));
    assert_eq!((raw["state"].as_str(), raw["ttl_ms"].as_i64()), (Some("leased"), Some(30_000)));
    assert!(lock.expires_in_ms.is_some_and(|ms| (1..=30_000).contains(&ms)), "{raw}");
    assert_eq!((lock.owner.as_str(), lock.versions.as_slice()), ("worker é 7", &[0][..]));
    assert_eq!((raw.get("ended"), raw.get("lapsed_ms")), (None, None));

    let own: Lock = client.get(granted.must_have("location")).send().await.expect(200).parse();
    assert_eq!((own.id, own.token, own.acquired_at), (lock.id, lock.token, lock.acquired_at));
    let view = look(&client, "job:1").await;
    assert_eq!((view.owner.as_str(), view.state.as_str()), ("worker é 7", "leased"));
    assert_eq!((view.acquired_at, view.version, view.objects), (lock.acquired_at, 0, 0));
}

async fn the_same_id_again_gets_the_same_lock_and_token(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let id = random_id().to_string();
    let first: Lock = named(&client, &id, "w1").send().await.expect(201).parse();
    assert_eq!(first.id.to_string(), id);
    let again = named(&client, &id, "w1").send().await.expect(200);
    assert_eq!(again.must_have("x-fence-token"), first.token.to_string());
    let again: Lock = again.parse();
    assert_eq!((again.id, again.token), (first.id, first.token));
    assert_eq!(again.acquired_at, first.acquired_at);

    // Its ttl starts again, with the ttl of the repeated call.
    let longer = json!({ "resource": "job:1", "owner": "w1", "id": id, "ttl": "1h" });
    let longer: Lock = client.lock(&longer).send().await.expect(200).parse();
    assert_eq!((longer.token, longer.ttl_ms), (first.token, Some(3_600_000)));
    assert!(look(&client, "job:1").await.expires_in_ms > Some(600_000));

    named(&client, &id, "w2").send().await.refused(409, "lock-id-conflict");
    let elsewhere = json!({ "resource": "job:2", "owner": "w1", "id": id });
    client.lock(&elsewhere).send().await.refused(409, "lock-id-conflict");
    client.put("job:1", "k", "x").under(&first).send().await.expect(201);

    // The same call many times at once is one grant.
    let id = random_id().to_string();
    let body = json!({ "resource": "job:3", "owner": "w1", "id": id, "ttl": "10m" });
    let answers = join_all((0..8).map(|_| client.lock(&body).send())).await;
    let tokens: BTreeSet<_> = answers.iter().map(|a| a.must_have("x-fence-token")).collect();
    let granted = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((tokens.len(), granted), (1, 1), "{answers:?}");
}

async fn an_id_names_one_grant_for_ever(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let ids = [(); 3].map(|()| random_id().to_string());
    let expiring = json!({ "resource": "job:1", "owner": "w1", "id": ids[0], "ttl": "1s" });
    client.lock(&expiring).send().await.expect(201);
    let next = take_over(&client, "job:1").await;
    named(&client, &ids[0], "w1").send().await.refused(409, "lock-superseded");
    client.release(&next).send().await.expect(204);
    named(&client, &ids[0], "w1").send().await.refused(409, "lock-superseded");

    let released: Lock = named(&client, &ids[1], "w1").send().await.expect(201).parse();
    client.release(&released).send().await.expect(204);
    named(&client, &ids[1], "w1").send().await.refused(409, "lock-released");

    named(&client, &ids[2], "w1").send().await.expect(201);
    client.break_lock("job:1", &json!({ "reason": "x" })).send().await.expect(200);
    named(&client, &ids[2], "w1").send().await.refused(409, "lock-broken");

    for (id, end) in ids.iter().zip(["superseded", "released", "broken"]) {
        let record = client.get(format!("/locks/{id}")).send().await.expect(200).json();
        assert_eq!((&record["ended"], &record["expires_in_ms"]), (&json!(end), &json!(0)));
        assert!(record["ended_at"].is_string(), "{record}");
    }
    let nobody = format!("/locks/{}", random_id());
    client.get(nobody).send().await.refused(404, "lock-not-found");
}

async fn a_held_lock_says_by_whom_and_when_to_come_back(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let body = json!({ "resource": "job:1", "owner": "worker-7", "ttl": "20s" });
    client.lock(&body).send().await.expect(201);
    let other = random_id().to_string();
    for call in [client.lock(&json!({ "resource": "job:1" })), named(&client, &other, "w2")] {
        let held = call.send().await.refused(409, "lock-held");
        let problem = held.problem();
        assert_eq!(problem.holder.as_deref(), Some("worker-7"));
        assert!(problem.holder_age_ms.is_some_and(|age| age >= 0), "{problem:?}");
        assert_eq!(problem.resource.as_deref(), Some("job:1"));
        let wait = problem.retry_after_ms.unwrap();
        assert!((1..=20_000).contains(&wait) && problem.retryable, "{problem:?}");
        let seconds: i64 = held.must_have("retry-after").parse().unwrap();
        assert_eq!(seconds, (wait + 999) / 1000);
    }
}

async fn many_locks_are_renewed_in_one_call(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let live = client.acquire("job:1", "10m").await;
    let released = client.acquire("job:2", "10m").await;
    client.release(&released).send().await.expect(204);
    let broken = client.acquire("job:3", "10m").await;
    client.break_lock("job:3", &json!({ "reason": "x" })).send().await.expect(200);
    let breaking = client.acquire("job:4", "10m").await;
    let later = json!({ "reason": "x", "after": "1h" });
    client.break_lock("job:4", &later).send().await.expect(200);
    let superseded = client.acquire("job:5", "1s").await;
    take_over(&client, "job:5").await;
    let nobody = random_id();
    let ids = [live.id.0, nobody, released.id.0, broken.id.0, breaking.id.0, superseded.id.0];

    let body = json!({ "ids": ids, "ttl": "1h" });
    let answer: RenewManyAnswer =
        client.post("/locks/renew", &body).send().await.expect(200).parse();
    assert_eq!(answer.items.iter().map(|item| item.id.0).collect::<Vec<_>>(), ids);
    let codes: Vec<_> = answer.items.iter().map(|item| item.code.as_deref()).collect();
    let ends = ["lock-not-found", "lock-released", "lock-broken", "lock-breaking"].map(Some);
    assert_eq!(codes[0], None);
    assert_eq!(codes[1..5], ends);
    assert_eq!(codes[5], Some("lock-superseded"));
    let renewed = answer.items[0].lock.as_ref().unwrap();
    assert_eq!((renewed.token, renewed.ttl_ms), (live.token, Some(3_600_000)));
    assert!(answer.items[1..].iter().all(|item| item.lock.is_none()));

    let many: Vec<_> = (0..1001).map(|_| random_id()).collect();
    for bad in [json!({ "ids": [] }), json!({ "ids": [nobody, nobody] }), json!({ "ids": many })] {
        client.post("/locks/renew", &bad).send().await.refused(400, "body-malformed");
    }
    let full = json!({ "ids": many[..1000] });
    let full: RenewManyAnswer = client.post("/locks/renew", &full).send().await.expect(200).parse();
    assert!(full.items.iter().all(|item| item.code.as_deref() == Some("lock-not-found")));
}

async fn a_release_is_idempotent_and_buries_an_unknown_id(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for _ in 0..3 {
        client.release(&lock).send().await.expect(204);
    }
    let next = client.acquire("job:1", "10m").await;
    // A late repetition must not hit the next holder.
    client.release(&lock).send().await.expect(204);
    client.put("job:1", "k", "x").under(&next).send().await.expect(201);
    client.release(&next).send().await.expect(204);

    // Given up before it was granted: a grant on its way can never be sealed.
    let id = random_id().to_string();
    let delete = client.call(reqwest::Method::DELETE, format!("/locks/{id}"));
    delete.send().await.expect(200);
    named(&client, &id, "w1").send().await.refused(409, "lock-released");
    let renew = client.post(format!("/locks/{id}/renew"), &json!({}));
    renew.send().await.refused(409, "lock-released");
    named(&client, &random_id().to_string(), "w1").send().await.expect(201);
}

/// All pages of a list of resources: the names, and how many pages there were.
pub async fn pages(
    client: &Client,
    path: &str,
    prefix: &str,
    limit: usize,
) -> (Vec<String>, usize) {
    let (mut names, mut count, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let mut call = client.get(path).query("prefix", prefix).query("limit", &limit.to_string());
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page: ResourceList = call.send().await.expect(200).parse();
        assert!(page.items.len() <= limit);
        names.extend(page.items.iter().map(|item| item.resource.to_string()));
        count += 1;
        cursor = page.next_cursor;
        if cursor.is_none() {
            return (names, count);
        }
    }
}

async fn lists_have_prefixes_limits_and_cursors(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let names = ["Job:1", "cron:a", "job", "job:1", "job:10", "job:2", "job;", "job~x", "kob:1"];
    let names: Vec<&str> = names.into_iter().filter(|name| !name.contains(';')).collect();
    let locks = join_all(names.iter().map(|name| client.acquire(name, "10m"))).await;

    for limit in [1, 2, 4, 8, 100] {
        let (found, count) = pages(&client, "/locks", "", limit).await;
        assert_eq!(found, names, "byte order, limit {limit}");
        assert_eq!(count, names.len().div_ceil(limit), "no empty last page, limit {limit}");
    }
    assert_eq!(pages(&client, "/locks", "job:", 2).await.0, ["job:1", "job:10", "job:2"]);
    assert_eq!(pages(&client, "/locks", "job", 2).await.0, names[2..7]);
    assert!(pages(&client, "/locks", "%", 2).await.0.is_empty());
    assert!(pages(&client, "/locks", "_ob", 2).await.0.is_empty());

    let gone = locks.iter().find(|lock| lock.resources[0].as_str() == "job:10").unwrap();
    client.release(gone).send().await.expect(204);
    assert_eq!(pages(&client, "/locks", "job:", 100).await.0, ["job:1", "job:2"]);
    assert_eq!(pages(&client, "/resources", "job:1", 1).await.0, ["job:1", "job:10"]);
    for (name, value) in [("limit", "0"), ("limit", "1001"), ("cursor", "!"), ("page", "2")] {
        let refused = client.get("/locks").query(name, value).send().await;
        refused.refused(400, "query-malformed");
    }
}

async fn ttls_have_bounds(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for (index, (ttl, ms)) in
        [("1s", 1_000), ("24h", 86_400_000), ("1500ms", 1_500), ("90s", 90_000)]
            .into_iter()
            .enumerate()
    {
        let lock = client.acquire(&format!("job:{index}"), ttl).await;
        assert_eq!(lock.ttl_ms, Some(ms), "{ttl}");
    }
    let live = client.acquire("job:live", "10m").await;
    let bad: [Value; 14] = [
        json!("1m 30s"),
        json!("90 s"),
        json!("090s"),
        json!("999ms"),
        json!("0s"),
        json!("24h 1s"),
        json!("30"),
        json!(""),
        json!("-1s"),
        json!("soon"),
        json!("1e3s"),
        json!("99999999999999999999s"),
        json!(30),
        json!(true),
    ];
    for ttl in bad {
        let body = json!({ "resource": "job:bad", "ttl": ttl });
        client.lock(&body).send().await.refused(400, "body-malformed");
        let renew = client.post(format!("/locks/{}/renew", live.id), &json!({ "ttl": ttl }));
        renew.send().await.refused(400, "body-malformed");
    }
    client.get("/resources/job:bad").send().await.refused(404, "resource-not-found");
    assert_eq!(client.lock_of(&live).send().await.expect(200).json()["ttl_ms"], 600_000);
}
