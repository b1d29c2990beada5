//! What the operator sees: metrics and refused writes.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::BTreeSet;

use fence_core::wire::{RejectionEntry, RejectionList};
use fence_tests::client::Client;
use fence_tests::gateway::Settings;
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;

use crate::setup::{SetUp, on_both, take_over, until_state};

on_both!(
    metrics_count_what_happened,
    only_chosen_resources_are_exported_by_name,
    refused_writes_are_listed_newest_first,
    refused_writes_have_the_owner_of_their_lock,
    the_record_of_refused_writes_is_bounded,
    a_storm_of_stale_writes_does_not_slow_the_holder,
);

/// The value of a series such as `name{label="value"}`; 0 if it is not there.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a metric is a number"))
}

async fn page(client: &Client) -> String {
    client.get("/metrics").send().await.expect(200).text()
}

/// One of everything: grants and a takeover, contention, writes with every outcome.
async fn play(client: &Client) {
    let a = client.acquire("zebra:1", "1s").await;
    client.acquire("zebra:3", "10m").await;
    let held = client.lock(&json!({ "resource": "zebra:3" }));
    held.clone().send().await.refused(409, "lock-held");
    held.send().await.refused(409, "lock-held");
    let put = client.put("zebra:1", "k", "x").under(&a).idempotency_key("once");
    put.clone().send().await.expect(201);
    put.send().await.expect(201);
    let b = take_over(client, "zebra:1").await;
    for _ in 0..3 {
        let late = client.put("zebra:1", "k", "x").under(&a).send().await;
        late.refused(412, "fence-token-stale");
    }
    client.put("zebra:1", "k", "y").token(b.token.get() + 1).send().await.expect(403);
    client.put("zebra:1", "k", "y").send().await.expect(428);
    client.put("zebra:1", "k", "y").token("07").send().await.expect(400);
    client.put("zebra:1", "k", "y").under(&b).header("if-match", "\"x\"").send().await.expect(412);
    client.renew(&b, None).send().await.expect(200);
    client.renew(&a, None).send().await.refused(409, "lock-superseded");
    client.release(&b).send().await.expect(204);
    let expired = client.acquire("zebra:2", "1s").await;
    until_state(client, "zebra:2", "expired").await;
    client.renew(&expired, Some("10m")).send().await.expect(200);
    client.break_lock("zebra:2", &json!({ "reason": "x" })).send().await.expect(200);
}

async fn metrics_count_what_happened(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    play(&client).await;
    let answer = client.get("/metrics").send().await.expect(200);
    assert_eq!(answer.must_have("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = answer.text();
    for (series, expected) in [
        ("fencegate_writes_total{outcome=\"admitted\"}", 1.0),
        ("fencegate_writes_total{outcome=\"replayed\"}", 1.0),
        ("fencegate_writes_total{outcome=\"refused\"}", 5.0),
        ("fencegate_writes_total{outcome=\"unknown\"}", 0.0),
        ("fencegate_rejections_total{reason=\"fence-token-stale\"}", 3.0),
        ("fencegate_rejections_total{reason=\"fence-token-unknown\"}", 1.0),
        ("fencegate_rejections_total{reason=\"fence-token-missing\"}", 1.0),
        ("fencegate_rejections_total{reason=\"fence-token-malformed\"}", 1.0),
        ("fencegate_rejections_total{reason=\"version-mismatch\"}", 1.0),
        ("fencegate_acquisitions_total{outcome=\"granted\"}", 4.0),
        ("fencegate_acquisitions_total{outcome=\"held\"}", 2.0),
        ("fencegate_renewals_total{outcome=\"renewed\"}", 1.0),
        ("fencegate_renewals_total{outcome=\"revived\"}", 1.0),
        ("fencegate_renewals_total{outcome=\"failed\"}", 1.0),
        ("fencegate_renew_failures_total{reason=\"lock-superseded\"}", 1.0),
        ("fencegate_breaks_total{kind=\"at_once\"}", 1.0),
        ("fencegate_lock_hold_seconds_count{end=\"superseded\"}", 1.0),
        ("fencegate_lock_hold_seconds_count{end=\"released\"}", 1.0),
        ("fencegate_lock_hold_seconds_count{end=\"broken\"}", 1.0),
        ("fencegate_token_lag_grants_count", 3.0),
        ("fencegate_token_lag_grants_sum", 3.0),
        ("fencegate_superseded_seconds_count", 3.0),
        ("fencegate_commit_seconds_count", 7.0),
        ("fencegate_acquire_seconds_count", 6.0),
    ] {
        assert!((value(&page, series) - expected).abs() < 0.5, "{series} {expected}\n{page}");
    }
    for (series, at_least) in [
        ("fencegate_batch_items_count{act=\"commit\"}", 1.0),
        ("fencegate_batch_items_count{act=\"seal\"}", 3.0),
        ("fencegate_commit_seconds_bucket{le=\"+Inf\"}", 7.0),
        ("fencegate_lock_hold_seconds_sum{end=\"superseded\"}", 1.0),
    ] {
        assert!(value(&page, series) >= at_least, "{series} >= {at_least}\n{page}");
    }
    let typed = |line: &&str| line.starts_with("# TYPE fencegate_");
    let described: BTreeSet<_> = page.lines().filter(typed).collect();
    assert!(described.contains("# TYPE fencegate_writes_total counter"), "{described:?}");
    assert!(described.contains("# TYPE fencegate_commit_seconds histogram"), "{described:?}");
    assert!(!page.contains("zebra"), "a resource is named in a label\n{page}");
}

async fn only_chosen_resources_are_exported_by_name(setup: SetUp) {
    let exported = ["job:", "job:1"];
    let adjust = |settings: Settings| {
        exported.iter().fold(settings, |settings, prefix| settings.flag("--metrics-prefix", prefix))
    };
    let gateway = setup.start_with_high_tokens(adjust).await;
    let client = gateway.client();
    let mut lock = client.acquire("job:1", "10m").await;
    client.acquire("cron:1", "10m").await;
    let gone = client.acquire("job:2", "10m").await;
    client.release(&gone).send().await.expect(204);
    client.release(&lock).send().await.expect(204);
    lock = client.acquire("job:1", "10m").await;
    let text = page(&client).await;
    assert!(!text.contains("cron:1"), "{text}");
    let line = "fencegate_resource_grants_total{resource=\"job:1\"} 2".to_owned();
    let named = |line: &str| text.lines().filter(|found| *found == line).count();
    assert_eq!(named(&line), 1, "once, however many prefixes match\n{text}");
    let gone = "fencegate_resource_grants_total{resource=\"job:2\"} 1";
    assert_eq!(named(gone), 1, "{text}");
    assert!(text.contains("# TYPE fencegate_resource_grants_total counter"), "{text}");
    // A token is all it takes to write.
    let token = lock.token.to_string();
    assert!(token.len() > 9 && !text.contains(&token), "{text}");
    let age = |name: &str| format!("fencegate_resource_holder_age_seconds{{resource=\"{name}\"}}");
    assert!(text.contains(&age("job:1")) && !text.contains(&age("job:2")), "{text}");

    let renewal = "fencegate_resource_last_renewal_timestamp_seconds{resource=\"job:1\"}";
    let before = value(&text, renewal);
    let acquired = lock.acquired_at.as_millisecond() as f64 / 1000.0;
    assert!((before - acquired).abs() < 1.0, "{before} {acquired}");
    eventually("the renewal shows", async || {
        client.renew(&lock, None).send().await.expect(200);
        (value(&page(&client).await, renewal) > before).then_some(())
    })
    .await;
}

/// All kept refusals that a query asks for, page by page.
async fn rejections(client: &Client, query: &[(&str, &str)]) -> Vec<RejectionEntry> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let call = query
            .iter()
            .fold(client.get("/rejections"), |call, (name, value)| call.query(name, value));
        let call = cursor.iter().fold(call, |call, cursor| call.query("cursor", cursor));
        let page: RejectionList = call.send().await.expect(200).parse();
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

async fn refused_writes_are_listed_newest_first(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let body = json!({ "resource": "job:1", "owner": "worker-a", "ttl": "10m" });
    let a: fence_core::wire::Lock = client.lock(&body).send().await.expect(201).parse();
    for _ in 0..2 {
        client.break_lock("job:1", &json!({ "reason": "x" })).send().await.expect(200);
        client.acquire("job:1", "10m").await;
    }
    let other = client.acquire("job:2", "10m").await;
    for index in 0..5 {
        let late = client.put("job:1", &format!("k{index}"), "x").under(&a);
        let late = late.header("x-request-id", format!("late-{index}")).send().await;
        late.refused(412, "fence-token-stale");
    }
    let unknown = client.delete_resource("job:2").token(other.token.get() + 9);
    unknown.send().await.refused(403, "fence-token-unknown");

    let all = eventually("all refusals are kept", async || {
        Some(rejections(&client, &[]).await).filter(|all| all.len() == 6)
    })
    .await;
    assert_eq!(
        (all[0].resource.as_str(), all[0].reason.as_str()),
        ("job:2", "fence-token-unknown")
    );
    assert_eq!((&all[0].key, &all[0].owner, all[0].grants_behind), (&None, &None, None));
    let newest = &all[1];
    assert_eq!(newest.presented_token, Some(a.token.to_string()));
    assert_eq!(newest.key.as_deref(), Some("k4"));
    assert_eq!(newest.owner.as_deref(), Some("worker-a"));
    assert_eq!(newest.grants_behind, Some(2));
    assert!(newest.superseded_ms.is_some_and(|ms| ms >= 0), "{newest:?}");
    let ids: Vec<_> = all[1..].iter().map(|entry| entry.request_id.as_str()).collect();
    assert_eq!(ids, ["late-4", "late-3", "late-2", "late-1", "late-0"]);
    assert!(all.windows(2).all(|pair| pair[0].at >= pair[1].at), "{all:?}");

    assert_eq!(rejections(&client, &[("resource", "job:1"), ("limit", "2")]).await.len(), 5);
    // One to which nothing can have led is made up.
    let made_up = client.delete_resource("job:3").token(i64::MAX).send().await;
    made_up.refused(403, "fence-token-unknown");
    let made_up = [("reason", "fence-token-unknown")];
    eventually("it is kept", async || {
        (rejections(&client, &made_up).await.len() == 2).then_some(())
    })
    .await;
    let page = client.get("/metrics").send().await.expect(200).text();
    assert!(page.contains("\nfencegate_tokens_ahead_total 1\n"), "{page}");
    let both = [("resource", "job:2"), ("reason", "fence-token-stale")];
    assert!(rejections(&client, &both).await.is_empty());
    let first = client.get("/rejections").query("limit", "4").send().await.expect(200);
    let cursor = first.parse::<RejectionList>().next_cursor.expect("another page");
    let rest = rejections(&client, &[]).await.split_off(4);
    let second: RejectionList =
        client.get("/rejections").query("cursor", &cursor).send().await.expect(200).parse();
    let ids = |entries: &[RejectionEntry]| -> Vec<String> {
        entries.iter().map(|entry| entry.request_id.clone()).collect()
    };
    assert_eq!((ids(&second.items), second.next_cursor), (ids(&rest), None));
    for bad in [("reason", "stale"), ("resource", "a/b"), ("cursor", "x"), ("since", "1")] {
        let refused = client.get("/rejections").query(bad.0, bad.1).send().await;
        refused.refused(400, "query-malformed");
    }
}

/// Also of a lock that was given back or broken, and that none has followed yet.
async fn refused_writes_have_the_owner_of_their_lock(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for (resource, code) in [("a", "fence-token-released"), ("b", "fence-token-broken")] {
        let body = json!({ "resource": resource, "owner": format!("of {resource}"), "ttl": "10m" });
        let lock: fence_core::wire::Lock = client.lock(&body).send().await.expect(201).parse();
        match resource {
            "a" => drop(client.release(&lock).send().await.expect(204)),
            _ => {
                let why = json!({ "reason": "x" });
                drop(client.break_lock(resource, &why).send().await.expect(200));
            }
        }
        client.put(resource, "k", "x").under(&lock).send().await.refused(412, code);
        let of_it = [("resource", resource)];
        let kept = eventually("it is kept", async || rejections(&client, &of_it).await.pop()).await;
        let owner = format!("of {resource}");
        assert_eq!((kept.reason.as_str(), kept.owner), (code, Some(owner)));
    }
}

async fn the_record_of_refused_writes_is_bounded(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_REJECTIONS_MAX", "10");
    let gateway = settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    for index in 0..40 {
        let put = client.put("job:1", "k", "x").under(&lock).header("if-match", "\"x\"");
        put.header("x-request-id", format!("r-{index}")).send().await.expect(412);
    }
    let kept = eventually("the oldest went and the newest stayed", async || {
        let kept = rejections(&client, &[]).await;
        let newest = kept.first().is_some_and(|entry| entry.request_id == "r-39");
        (newest && kept.len() <= 10).then_some(kept)
    })
    .await;
    assert_eq!(kept.len(), 10);
    assert_eq!(kept.last().unwrap().request_id, "r-30");
}

async fn a_storm_of_stale_writes_does_not_slow_the_holder(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let stale = client.acquire("job:1", "10m").await;
    client.release(&stale).send().await.expect(204);
    let lock = client.acquire("job:1", "10m").await;
    let late = client.put("job:1", "k", vec![b'x'; 1024]).under(&stale);
    let storm = join_all((0..48).map(async |_| {
        for _ in 0..50 {
            late.clone().send().await.refused(412, "fence-token-stale");
        }
    }));
    let holder = async {
        for version in 1..=50 {
            let put = client.put("job:1", "k", "x").under(&lock).send().await;
            assert_eq!(put.written().version, version);
        }
    };
    tokio::join!(storm, holder);
    let text = page(&client).await;
    let refused = value(&text, "fencegate_rejections_total{reason=\"fence-token-stale\"}");
    assert!((refused - 2400.0).abs() < 0.5, "every one is counted: {refused}");
    eventually("each one is kept or counted as dropped", async || {
        let dropped = value(&page(&client).await, "fencegate_rejections_dropped_total");
        let kept = rejections(&client, &[("limit", "1000")]).await.len();
        ((kept as f64 + dropped - 2400.0).abs() < 0.5).then_some(())
    })
    .await;
}
