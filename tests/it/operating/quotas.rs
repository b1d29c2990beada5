//! Quotas: what a principal has its share of, it is refused beyond that, and nobody else is.

use fence_core::wire::{Lock, Problem, UsageList};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::Call;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use reqwest::StatusCode;
use serde_json::json;

use crate::setup::{SetUp, on_both};

/// A gateway with two principals: `few`, who has these quotas, and `plain`, who has what everybody has.
struct Site {
    gateway: Gateway,
    few: Key,
    plain: Key,
}

impl Site {
    async fn new(quotas: &str) -> Self {
        Self::on(SetUp::Embedded, quotas).await
    }

    async fn on(set_up: SetUp, quotas: &str) -> Self {
        let rules = Rules::new().await;
        let (few, plain) = (Key::new().await, Key::new().await);
        let gateway = set_up.settings().await.start().await;
        let may =
            "allow = [\"lock\", \"write\", \"read\", \"list\", \"observe\"]\nresources = [\"*\"]";
        let text = rules.admin()
            + &role("few", &format!("{may}\n{quotas}"))
            + &role("plain", may)
            + &principal("ann", "few", &[&few])
            + &principal("bob", "plain", &[&plain]);
        rules.put_in_force(&gateway, &text).await;
        Self { gateway, few, plain }
    }

    /// On a connection that nobody else uses.
    fn get(&self, by: &Key, path: &str) -> Call {
        by.by(self.gateway.client().get(path))
    }

    async fn is_refused(&self, call: Call, quota: &str) -> Problem {
        let answer = call.send().await;
        let problem: Problem = answer.refused(429, "rate-limited").parse();
        assert!(problem.detail.contains(&format!("`{quota}`")), "{}", problem.detail);
        assert!(problem.retryable && problem.retry_after_ms.is_some());
        let limited = format!("fencegate_rate_limited_total{{limit=\"{quota}\"}}");
        let metrics = self.get(&self.plain, "/metrics").send().await.expect(200).text();
        assert!(metrics.contains(&limited), "{metrics}");
        problem
    }
}

#[tokio::test]
async fn a_principal_asks_as_often_as_its_rate_allows() {
    let site = Site::new("rate = 1\nburst = 3").await;
    // How long these take is not known: a second allows one more.
    let mut refused = None;
    for _ in 0..50 {
        let answer = site.get(&site.few, "/resources").send().await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        answer.expect(200);
    }
    refused.unwrap().refused(429, "rate-limited");
    site.gateway.client().get("/healthz").send().await.expect(200);
    site.few.by(site.gateway.client().get("/readyz")).send().await.expect(200);
    for _ in 0..10 {
        site.get(&site.plain, "/resources").send().await.expect(200);
    }
    eventually("its rate allows one more", async || {
        let answer = site.get(&site.few, "/resources").send().await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_principal_has_so_many_connections() {
    let site = Site::new("connections = 1").await;
    let first = site.gateway.client();
    site.few.by(first.get("/resources")).send().await.expect(200);
    let other = site.get(&site.few, "/resources");
    site.is_refused(other, "connections").await;
    // The one that it has still is good, and others have theirs.
    site.few.by(first.get("/resources")).send().await.expect(200);
    site.get(&site.plain, "/resources").send().await.expect(200);
    drop(first);
    eventually("the connection has ended", async || {
        let answer = site.get(&site.few, "/resources").send().await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_principal_has_so_many_streams() {
    let site = Site::new("streams = 1").await;
    let stream = |by: &Key| site.get(by, "/events").header("accept", "text/event-stream");
    let open = stream(&site.few).open().await.unwrap();
    site.is_refused(stream(&site.few), "streams").await;
    let others = stream(&site.plain).open().await.unwrap();
    assert_eq!((open.status(), others.status()), (StatusCode::OK, StatusCode::OK));
    drop((open, others));
    eventually("the stream has ended", async || {
        let again = stream(&site.few).open().await.unwrap();
        (again.status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_principal_has_so_many_places_in_a_line() {
    let site = Site::new("line_places = 1").await;
    let client = site.gateway.client();
    let held: Lock = site
        .plain
        .by(client.lock(&json!({ "resource": "a", "ttl": "1h" })))
        .send()
        .await
        .expect(201)
        .parse();
    let waits =
        |by: &Key| by.by(site.gateway.client().lock(&json!({ "resource": "a", "wait": "20s" })));
    let others = async {
        eventually("it stands in line", async || {
            let metrics = site.get(&site.plain, "/metrics").send().await.expect(200).text();
            metrics.contains("fencegate_waiters 1\n").then_some(())
        })
        .await;
        site.is_refused(waits(&site.few), "line_places").await;
        site.plain.by(client.release(&held)).send().await.expect(204);
    };
    let (first, ()) = tokio::join!(waits(&site.few).send(), others);
    first.expect(201);
}

/// What `few` has in the ledger counts within two seconds or so.
async fn has(site: &Site, expected: &[(&str, u64)]) {
    eventually("it is counted", async || {
        let all: UsageList = site.get(&site.plain, "/admin/usage").send().await.expect(200).parse();
        // A principal that does not ask is not counted.
        site.get(&site.few, "/resources/a").send().await;
        let ann = all.items.into_iter().find(|usage| usage.principal.as_str() == "ann")?;
        expected.iter().all(|(of, held)| ann.held.get(*of) == Some(held)).then_some(())
    })
    .await;
}

async fn locks_and_resources_are_so_many(set_up: SetUp) {
    let site = Site::on(set_up, "locks = 2\nnew_resources = 3").await;
    let client = site.gateway.client();
    let lock = |by: &Key, wish: serde_json::Value| by.by(client.lock(&wish));
    let id = "0b0e7a3c-4f5d-4c39-9a55-0c1f5a2b3c4d";
    let first: Lock = lock(&site.few, json!({ "resources": ["a", "b"], "ttl": "1h", "id": id }))
        .send()
        .await
        .expect(201)
        .parse();
    let second: Lock =
        lock(&site.few, json!({ "resource": "c", "ttl": "1h" })).send().await.expect(201).parse();
    has(&site, &[("locks", 2), ("new_resources", 3)]).await;
    let refused = lock(&site.few, json!({ "resource": "a", "ttl": "1h" })).send().await;
    let problem: Problem = refused.refused(403, "quota-exhausted").parse();
    assert!(
        problem.detail.contains("2 of at most 2: `locks`") && !problem.retryable,
        "{}",
        problem.detail
    );
    // What it has it is told again.
    let again = json!({ "resources": ["a", "b"], "ttl": "1h", "id": id });
    let again: Lock = lock(&site.few, again).send().await.expect(200).parse();
    assert_eq!(again.token, first.token);
    lock(&site.plain, json!({ "resource": "d", "ttl": "1h" })).send().await.expect(201);
    site.few.by(client.release(&second)).send().await.expect(204);
    has(&site, &[("locks", 1)]).await;
    let refused = lock(&site.few, json!({ "resources": ["c", "e"], "ttl": "1h" })).send().await;
    let problem: Problem = refused.refused(403, "quota-exhausted").parse();
    assert!(problem.detail.contains("`new_resources`"), "{}", problem.detail);
    lock(&site.few, json!({ "resource": "c", "ttl": "1h" })).send().await.expect(201);
}

async fn objects_are_so_many_and_so_large(set_up: SetUp) {
    let site = Site::on(set_up, "keys = 2\nbytes = 1000").await;
    let client = site.gateway.client();
    let wish = json!({ "resource": "a", "ttl": "1h" });
    let lock: Lock = site.few.by(client.lock(&wish)).send().await.expect(201).parse();
    let put =
        |key: &str, bytes: usize| site.few.by(client.put("a", key, vec![7; bytes]).under(&lock));
    put("k", 100).send().await.expect(201);
    let keyed = || put("l", 100).header("idempotency-key", "once");
    keyed().send().await.expect(201);
    has(&site, &[("keys", 2), ("bytes", 200)]).await;
    let refused = put("m", 100).send().await;
    let problem: Problem = refused.refused(403, "quota-exhausted").parse();
    assert!(problem.detail.contains("2 of at most 2: `keys`"), "{}", problem.detail);
    // In place of another, or written before.
    put("k", 300).send().await.expect(200);
    assert!(keyed().send().await.expect(201).header("idempotent-replayed").is_some());
    has(&site, &[("keys", 2), ("bytes", 400)]).await;
    let problem: Problem = put("k", 701).send().await.refused(403, "quota-exhausted").parse();
    assert!(problem.detail.contains("`bytes`"), "{}", problem.detail);
    site.few.by(client.delete("a", "k").under(&lock)).send().await.expect(204);
    has(&site, &[("keys", 1), ("bytes", 100)]).await;
    put("m", 800).send().await.expect(201);
}

on_both!(locks_and_resources_are_so_many, objects_are_so_many_and_so_large);
