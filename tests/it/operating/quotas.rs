//! Quotas: what a principal has its share of, it is refused beyond that, and nobody else is.

use fence_core::wire::{Lock, Problem};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::Call;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use reqwest::StatusCode;
use serde_json::json;

use crate::setup::SetUp;

/// A gateway with two principals: `few`, who has these quotas, and `plain`, who has what everybody has.
struct Site {
    gateway: Gateway,
    few: Key,
    plain: Key,
}

impl Site {
    async fn new(quotas: &str) -> Self {
        let rules = Rules::new().await;
        let (few, plain) = (Key::new().await, Key::new().await);
        let gateway = SetUp::Embedded.settings().await.start().await;
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
