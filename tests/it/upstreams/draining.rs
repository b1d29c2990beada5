//! Drained upstreams: nothing of an older token is under way once a newer one was given out.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks and sleeps on the real clock")]

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::{Answer, Client};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::operating::commands::fencegate;
use crate::operating::gauges::{gauge, scrape};
use crate::setup::{SetUp, look, on_both, random_id, until_state};
use crate::upstreams::requests::{fronted, through};

on_both!(
    a_write_in_flight_keeps_the_next_lock_out,
    a_waiter_gets_the_lock_when_the_write_is_over,
    the_wait_may_end_before_the_write,
    a_lock_on_several_resources_drains_as_one,
    a_transfer_and_a_fence_do_not_wait,
    a_hung_upstream_needs_an_operator,
    a_longest_delay_ends_it,
    metrics_tell_how_old_the_oldest_intent_is,
    a_caller_that_hangs_up_changes_nothing,
    a_body_that_breaks_off_leaves_its_fate_open,
    the_one_who_gives_up_leaves_nothing_behind,
    after_a_re_fence_an_operator_says_when_to_go_on,
);

/// A write that the upstream acts on after so many milliseconds.
async fn slow_write(
    client: &Client,
    upstream: &Upstream,
    lock: &Lock,
    ms: u64,
) -> JoinHandle<Answer> {
    let begun = upstream.begun();
    let write = through(client, Method::POST, "1", &format!("delay={ms}")).body("x").under(lock);
    let write = tokio::spawn(write.send());
    eventually("it is there", async || (upstream.begun() > begun).then_some(())).await;
    write
}

fn acquire(wait: Option<&str>, id: Option<String>) -> Value {
    json!({ "resource": "u:1", "ttl": "10m", "owner": "next", "wait": wait, "id": id })
}

pub async fn intents(client: &Client) -> Vec<Value> {
    let page = client.get("/admin/intents").send().await.expect(200).json();
    page["items"].as_array().expect("a list").clone()
}

async fn a_write_in_flight_keeps_the_next_lock_out(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 3000).await;
    client.release(&lock).send().await.expect(204);
    let refused = client.lock(&acquire(None, None)).send().await.refused(409, "resource-draining");
    assert_eq!(refused.problem().resource.as_deref(), Some("u:1"));
    assert!(refused.header("retry-after").is_some());
    assert!(upstream.seen().is_empty(), "it was refused while the write was under way");
    // It stands as if nobody had asked.
    assert_eq!(look(&client, "u:1").await.state.as_str(), "released");
    through(&client, Method::GET, "1", "delay=0").send().await.expect(200);
    let open = intents(&client).await;
    assert_eq!(open.len(), 1);
    assert_eq!(open[0]["resource"], "u:1");
    assert_eq!((&open[0]["method"], &open[0]["path"]), (&json!("POST"), &json!("/r/1")));
    assert_eq!((&open[0]["upstream"], &open[0]["in_flight"]), (&json!("u"), &json!(true)));
    assert!(open[0].get("token").is_none());
    let operation = open[0]["operation"].as_str().expect("an id").to_owned();
    let known = client.get(format!("/operations/{operation}")).send().await.expect(200).json();
    assert_eq!((&known["outcome"], &known["kind"]), (&json!("unknown"), &json!("forward")));

    write.await.expect("no panic").expect(200);
    client.lock(&acquire(None, None)).send().await.expect(201);
}

async fn a_waiter_gets_the_lock_when_the_write_is_over(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "1s").await;
    let write = slow_write(&client, &upstream, &lock, 3000).await;
    let id = random_id().to_string();
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), Some(id.clone()))).send());
    // Once it has expired it is sealed over, and from then on the old token is stale.
    let view = until_state(&client, "u:1", "draining").await;
    assert_eq!(view.owner, "next");
    let late = through(&client, Method::POST, "1", "").under(&lock).send().await;
    late.refused(412, "fence-token-stale");
    // Its token is shown to nobody before it is in force.
    let own = client.get(format!("/locks/{id}")).send().await.expect(200).json();
    assert_eq!((&own["state"], own.get("token")), (&json!("draining"), None));
    let renewal = client.post(format!("/locks/{id}/renew"), &json!({})).send().await;
    renewal.refused(409, "resource-draining");
    client.get(format!("/locks/{id}/s3")).send().await.refused(409, "resource-draining");
    let again = client.lock(&acquire(None, Some(id.clone()))).send().await;
    again.refused(409, "resource-draining");
    let held = json!({ "resource": "u:1", "owner": "third" });
    client.lock(&held).send().await.refused(409, "lock-held");
    through(&client, Method::GET, "1", "").send().await.expect(200);
    assert!(upstream.seen().iter().all(|one| one.method != Method::POST), "too early");

    let granted: Lock = waiter.await.expect("no panic").expect(201).parse();
    write.await.expect("no panic").expect(200);
    assert_eq!(granted.state.as_str(), "leased");
    assert!(granted.token > lock.token && granted.expires_in_ms > Some(590_000), "{granted:?}");
    through(&client, Method::POST, "1", "delay=0").under(&granted).send().await.expect(200);
    let tokens: Vec<_> = upstream.seen().iter().filter_map(|one| one.token()).collect();
    assert_eq!(tokens, [lock.token.get(), granted.token.get()]);
}

async fn the_wait_may_end_before_the_write(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 4000).await;
    client.release(&lock).send().await.expect(204);
    let id = random_id().to_string();
    let waited = client.lock(&acquire(Some("300ms"), Some(id.clone()))).send().await;
    waited.refused(409, "resource-draining");
    assert_eq!(look(&client, "u:1").await.state.as_str(), "draining");
    // Somebody puts it in force, and it is there for the same call.
    write.await.expect("no panic").expect(200);
    until_state(&client, "u:1", "leased").await;
    let granted: Lock = client.lock(&acquire(None, Some(id))).send().await.expect(200).parse();
    through(&client, Method::POST, "1", "delay=0").under(&granted).send().await.expect(200);

    // Without an id of the caller's nobody could take it up: it is given up with the wait.
    let write = slow_write(&client, &upstream, &granted, 3000).await;
    client.release(&granted).send().await.expect(204);
    let waited = client.lock(&acquire(Some("300ms"), None)).send().await;
    waited.refused(409, "resource-draining");
    until_state(&client, "u:1", "released").await;
    write.await.expect("no panic").expect(200);
    client.lock(&acquire(None, None)).send().await.expect(201);
}

async fn a_lock_on_several_resources_drains_as_one(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 3000).await;
    client.release(&lock).send().await.expect(204);
    let both = json!({ "resources": ["other", "u:1"], "ttl": "10m", "wait": "30s" });
    let waiter = tokio::spawn(client.lock(&both).send());
    until_state(&client, "u:1", "draining").await;
    assert_eq!(look(&client, "other").await.state.as_str(), "draining");
    write.await.expect("no panic").expect(200);
    let granted: Lock = waiter.await.expect("no panic").expect(201).parse();
    client.put("other", "k", "x").under(&granted).send().await.expect(201);
    assert_eq!(look(&client, "u:1").await.state.as_str(), "leased");
}

async fn a_transfer_and_a_fence_do_not_wait(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 3000).await;
    let transfer =
        || client.post(format!("/locks/{}/transfer", lock.id), &json!({ "owner": "heir" }));
    transfer().send().await.refused(409, "resource-draining");
    let fence = json!({ "id": random_id().to_string(), "force": true });
    client.fence("u:1", &fence).send().await.refused(409, "resource-draining");
    // Nothing happened to the holder.
    through(&client, Method::POST, "1", "delay=0").under(&lock).send().await.expect(200);
    write.await.expect("no panic").expect(200);
    let heir: Lock = transfer().send().await.expect(201).parse();
    through(&client, Method::POST, "1", "delay=0").under(&heir).send().await.expect(200);
}

async fn a_hung_upstream_needs_an_operator(setup: SetUp) {
    let (gateway, upstream) =
        fronted(setup, "drained", ",timeout=700ms,connect_timeout=500ms").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let hung = through(&client, Method::POST, "1", "hang").under(&lock).send().await;
    let problem = hung.refused(504, "upstream-timeout").problem();
    assert_eq!(problem.outcome.as_deref(), Some("unknown"));
    let operation = problem.operation.expect("an operation to ask about");
    assert_eq!(upstream.begun(), 1, "nothing is sent twice");
    client.release(&lock).send().await.expect(204);
    client.lock(&acquire(None, None)).send().await.refused(409, "resource-draining");
    let open = intents(&client).await;
    assert_eq!((open.len(), &open[0]["in_flight"]), (1, &json!(false)));
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), None)).send());
    until_state(&client, "u:1", "draining").await;

    let resolve = |id: String, reason: &str| {
        client.post(format!("/admin/intents/{id}/resolve"), &json!({ "reason": reason }))
    };
    resolve(operation.to_string(), "").send().await.refused(400, "body-malformed");
    resolve(random_id().to_string(), "x").send().await.refused(404, "operation-not-found");
    resolve(operation.to_string(), "looked at the upstream").send().await.expect(204);
    resolve(operation.to_string(), "again").send().await.expect(204);
    let granted: Lock = waiter.await.expect("no panic").expect(201).parse();
    assert!(granted.token > lock.token);
    let audit = client.get("/audit").query("action", "resolve").send().await.expect(200).json();
    let entries = audit["items"].as_array().expect("a list");
    assert_eq!(entries.len(), 1, "{audit}");
    assert_eq!(
        (&entries[0]["resource"], &entries[0]["reason"]),
        (&json!("u:1"), &json!("looked at the upstream"))
    );
    assert!(intents(&client).await.is_empty());
}

async fn a_longest_delay_ends_it(setup: SetUp) {
    let more = ",timeout=500ms,connect_timeout=500ms,max_effect_delay=3s";
    let (gateway, _upstream) = fronted(setup, "drained", more).await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let hung = through(&client, Method::POST, "1", "hang").under(&lock).send().await;
    hung.refused(504, "upstream-timeout");
    client.release(&lock).send().await.expect(204);
    client.lock(&acquire(None, None)).send().await.refused(409, "resource-draining");
    assert!(intents(&client).await[0]["closes_at"].is_string());
    client.lock(&acquire(Some("30s"), None)).send().await.expect(201);
    assert!(intents(&client).await.is_empty());
}

/// Where requests are under way at all times, their number does not show one that is stuck.
async fn metrics_tell_how_old_the_oldest_intent_is(setup: SetUp) {
    let upstream = Upstream::start().await;
    let setting = upstream.setting("drained", ",timeout=500ms,connect_timeout=500ms");
    let settings = setup.settings().await.flag("--upstream", &setting);
    let gateway = settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms").start().await;
    let client = gateway.client();
    let told = async |count: f64| {
        eventually("so many intents are open", async || {
            let page = scrape(&client).await;
            let open = gauge(&page, "fencegate_upstream_intents_open")?;
            let oldest_s = gauge(&page, "fencegate_upstream_intent_oldest_seconds")?;
            ((open - count).abs() < 0.5).then_some(oldest_s)
        })
        .await
    };
    assert!(told(0.0).await.abs() < 0.001);
    for resource in ["1", "2"] {
        let lock = client.acquire(&format!("u:{resource}"), "10m").await;
        let hung = through(&client, Method::POST, resource, "hang").under(&lock).send().await;
        hung.refused(504, "upstream-timeout");
    }
    let oldest_ms = told(2.0).await * 1000.0;
    let open = intents(&client).await;
    let ages_ms: Vec<f64> = open.iter().filter_map(|one| one["age_ms"].as_f64()).collect();
    let [older, newer] = ages_ms[..] else { panic!("{open:?}") };
    assert!(older - newer <= oldest_ms + 1.0 && oldest_ms <= older, "{oldest_ms} {ages_ms:?}");
    for one in &open {
        let path = format!("/admin/intents/{}/resolve", one["operation"].as_str().expect("an id"));
        client.post(path, &json!({ "reason": "x" })).send().await.expect(204);
    }
    assert!(told(0.0).await.abs() < 0.001);
}

async fn a_caller_that_hangs_up_changes_nothing(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 1500).await;
    write.abort();
    client.release(&lock).send().await.expect(204);
    client.lock(&acquire(None, None)).send().await.refused(409, "resource-draining");
    client.lock(&acquire(Some("30s"), None)).send().await.expect(201);
    assert_eq!(upstream.seen().len(), 1, "the upstream has acted");
    assert!(intents(&client).await.is_empty());
}

async fn a_body_that_breaks_off_leaves_its_fate_open(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let put = |size: usize| {
        let first = futures::stream::iter([Ok(vec![7; size])]);
        let broken = futures::stream::once(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Err(std::io::Error::other("the caller died"))
        });
        let body = futures::StreamExt::chain(first, broken);
        let url = format!("{}/upstreams/u/r/1", gateway.url());
        let put = http.put(url).header("x-fence-token", lock.token.to_string());
        put.body(reqwest::Body::wrap_stream(body)).send()
    };
    // Within what is read ahead: nothing was forwarded, nothing is open.
    put(1000).await.expect_err("no answer to half a request");
    assert_eq!((upstream.begun(), intents(&client).await.len()), (0, 0));
    // Beyond it: the upstream has seen a part, and nobody knows what it made of it.
    put(1 << 20).await.expect_err("no answer to half a request");
    let open = eventually("it is not in flight any more", async || {
        let open = intents(&client).await;
        (open.len() == 1 && open[0]["in_flight"] == json!(false)).then_some(open)
    })
    .await;
    assert_eq!(open[0]["method"], json!("PUT"));
}

async fn the_one_who_gives_up_leaves_nothing_behind(setup: SetUp) {
    let (gateway, upstream) = fronted(setup, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = slow_write(&client, &upstream, &lock, 5000).await;
    client.release(&lock).send().await.expect(204);
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), None)).send());
    until_state(&client, "u:1", "draining").await;
    waiter.abort();
    until_state(&client, "u:1", "released").await;
    // A break and a release of a draining lock work as ever.
    let id = random_id().to_string();
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), Some(id.clone()))).send());
    until_state(&client, "u:1", "draining").await;
    client.break_lock("u:1", &json!({ "reason": "x" })).send().await.expect(200);
    waiter.await.expect("no panic").refused(409, "lock-broken");
    let id = random_id().to_string();
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), Some(id.clone()))).send());
    until_state(&client, "u:1", "draining").await;
    client.call(Method::DELETE, format!("/locks/{id}")).send().await.expect(204);
    waiter.await.expect("no panic").refused(409, "lock-released");
    write.await.expect("no panic").expect(200);
}

/// Runs `fencegate refence`, by force, with the same upstream in its settings.
async fn refence(setup: SetUp, gateway: &Gateway, flags: &[(String, String)]) {
    let data = gateway.data_dir();
    let mut args = vec!["refence", "--reason", "test", "--force"];
    if setup == SetUp::Embedded {
        args.extend(["--data-dir", data.to_str().expect("plain")]);
    }
    args.extend(flags.iter().flat_map(|(flag, value)| [flag.as_str(), value.as_str()]));
    let ended = fencegate(&args, &[]).await;
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
}

/// Intents may have been lost with the rest.
async fn after_a_re_fence_an_operator_says_when_to_go_on(setup: SetUp) {
    let upstream = Upstream::start().await;
    let flag = ("--upstream".to_owned(), upstream.setting("drained", ""));
    let settings = setup.settings().await.flag(&flag.0, &flag.1);
    let mut flags: Vec<(String, String)> = settings.flags();
    flags.retain(|(name, _)| name != "--data-dir");
    let mut gateway = settings.start().await;
    let client = gateway.client();
    let old = client.acquire("u:1", "10m").await;
    through(&client, Method::POST, "1", "").under(&old).send().await.expect(200);
    if setup == SetUp::Embedded {
        gateway.kill9();
    }
    refence(setup, &gateway, &flags).await;
    if setup == SetUp::Embedded {
        gateway.restart().await;
    }
    let client = gateway.client();
    through(&client, Method::POST, "1", "")
        .under(&old)
        .send()
        .await
        .refused(412, "fence-token-void");
    eventually("locks are granted again", async || {
        let free = client.lock(&json!({ "resource": "free" })).send().await;
        (free.status == 201).then_some(())
    })
    .await;
    for resource in ["u:1", "u:2"] {
        let refused = client.lock(&json!({ "resource": resource })).send().await;
        refused.refused(409, "resource-draining");
    }
    // A read is refused if the gateway hears of the re-fence meanwhile. The caller has to ask again.
    let intents = async || {
        eventually("the intents are told", async || {
            let answer = client.get("/admin/intents").send().await;
            (answer.status == 200).then(|| answer.json())
        })
        .await
    };
    let page = intents().await;
    assert_eq!(page["doubts"][0]["upstream"], "u", "{page}");
    assert_eq!((&page["doubts"][0]["resource_prefix"], &page["items"]), (&json!("u:"), &json!([])));
    let waiter = tokio::spawn(client.lock(&acquire(Some("30s"), None)).send());
    until_state(&client, "u:1", "draining").await;
    let resolve = json!({ "upstream": "u", "reason": "all quiet" });
    let done = client.post("/admin/intents/resolve", &resolve).send().await.expect(200);
    assert_eq!(done.json()["resolved"], 1);
    let granted: Lock = waiter.await.expect("no panic").expect(201).parse();
    through(&client, Method::POST, "1", "").under(&granted).send().await.expect(200);
    client.acquire("u:2", "10m").await;
    assert_eq!(intents().await["doubts"], json!([]));
}
