//! What `/metrics` finds out for each scrape: the version, the parts, the process, the locks and frozen resources of the
//! ledger.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::client::{Client, resource_path};
use fence_tests::process::eventually;
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpStream;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    a_scrape_tells_the_version_and_the_parts,
    a_scrape_measures_the_process,
    the_gauges_follow_locks_and_frozen_resources,
    a_gateway_that_drains_is_not_ready,
);

pub async fn scrape(client: &Client) -> String {
    client.get("/metrics").send().await.expect(200).text()
}

/// The value of a series such as `name{label="value"}`, which must be there once, or not at all.
pub fn gauge(page: &str, series: &str) -> Option<f64> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let values: Vec<f64> = lines.map(|value| value.parse().expect("a number")).collect();
    assert!(values.len() <= 1, "{series} is there more than once\n{page}");
    values.first().copied()
}

/// Whether a part works; it must be said.
pub fn ready(page: &str, part: &str) -> bool {
    let value = gauge(page, &format!("fencegate_ready{{part=\"{part}\"}}"));
    let known = [0.0, 1.0].into_iter().find(|known| Some(*known) == value);
    known.unwrap_or_else(|| panic!("{part}: {value:?}\n{page}")) > 0.5
}

/// How many locks are held and how many resources are frozen, where that is said; both or none.
pub fn totals(page: &str) -> Option<(u32, u32)> {
    let names = ["fencegate_locks_held", "fencegate_frozen_resources"];
    let said: Vec<u32> =
        names.iter().filter_map(|name| gauge(page, name)).map(|value| value as u32).collect();
    for name in names {
        let typed = page.matches(&format!("# TYPE {name} gauge\n")).count();
        assert_eq!(typed, said.len() / 2, "{name}\n{page}");
    }
    (!said.is_empty()).then(|| (said[0], said[1]))
}

async fn until_totals(client: &Client, locks_held: u32, frozen: u32) {
    eventually(&format!("{locks_held} locks and {frozen} frozen resources"), async || {
        (totals(&scrape(client).await)? == (locks_held, frozen)).then_some(())
    })
    .await;
}

async fn a_scrape_tells_the_version_and_the_parts(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let status = client.get("/status").send().await.expect(200).json();
    let version = format!("fencegate_build_info{{version={}}}", status["version"]);
    let page = scrape(&client).await;
    assert_eq!(gauge(&page, &version), Some(1.0), "{page}");
    let parts = ["gateway", "ledger", "mint", "blobs", "settings", "writes", "grants"];
    assert!(parts.iter().all(|part| ready(&page, part)), "{page}");
    let lines = page.lines().filter(|line| line.starts_with("fencegate_ready{"));
    assert_eq!(lines.count(), parts.len(), "{page}");
    for name in ["fencegate_build_info", "fencegate_ready", "process_open_fds"] {
        let help = page.matches(&format!("# HELP {name} ")).count();
        let kind = page.matches(&format!("# TYPE {name} gauge\n")).count();
        assert_eq!((help, kind), (1, 1), "{name}\n{page}");
    }
}

async fn a_scrape_measures_the_process(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let page = scrape(&client).await;
    let measured =
        |page: &str, name: &str| gauge(page, name).unwrap_or_else(|| panic!("{name}\n{page}"));
    let status = client.get("/status").send().await.expect(200).json();
    let started: Timestamp = status["started_at"].as_str().unwrap().parse().unwrap();
    let start = measured(&page, "process_start_time_seconds");
    assert!((start - started.as_second() as f64).abs() < 60.0, "{start} {started}");
    let memory = measured(&page, "process_resident_memory_bytes");
    let megabyte = 1e6;
    assert!(memory > megabyte && memory < measured(&page, "process_virtual_memory_bytes"));
    assert!(measured(&page, "process_threads") > 1.0, "{page}");
    assert!(page.contains("# TYPE process_cpu_seconds_total counter\n"), "{page}");
    measured(&page, "process_cpu_seconds_total");

    // What is open is counted anew.
    let open = measured(&page, "process_open_fds");
    assert!(open > 0.0 && open < measured(&page, "process_max_fds"), "{page}");
    let mut callers = Vec::new();
    for _ in 0..50 {
        callers.push(TcpStream::connect(gateway.address()).await.unwrap());
    }
    eventually("the callers are counted", async || {
        (measured(&scrape(&client).await, "process_open_fds") > open + 30.0).then_some(())
    })
    .await;
    drop(callers);
    eventually("they are gone", async || {
        (measured(&scrape(&client).await, "process_open_fds") < open + 30.0).then_some(())
    })
    .await;
}

async fn mark(client: &Client, resource: &str, mark: &str) {
    let path = format!("{}/{mark}", resource_path(resource));
    client.post(path, &json!({ "reason": "audit" })).send().await.expect(200);
}

async fn the_gauges_follow_locks_and_frozen_resources(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    until_totals(&client, 0, 0).await;
    let one = client.acquire("job:1", "10m").await;
    let both = json!({ "resources": ["job:2", "job:3"], "ttl": "10m" });
    client.lock(&both).send().await.expect(201);
    client.fence("job:4", &json!({ "id": random_id(), "order": "1" })).send().await.expect(201);
    until_totals(&client, 2, 0).await;
    mark(&client, "job:1", "freeze").await;
    mark(&client, "job:4", "freeze").await;
    until_totals(&client, 2, 2).await;
    client.release(&one).send().await.expect(204);
    mark(&client, "job:4", "unfreeze").await;
    until_totals(&client, 1, 1).await;
    // Longer than a count may be old.
    client.acquire("job:5", "12s").await;
    until_totals(&client, 2, 1).await;
    // Nobody does anything: it expires.
    until_totals(&client, 1, 1).await;
    let soon = json!({ "reason": "x", "after": "10m" });
    client.break_lock("job:2", &soon).send().await.expect(200);
    mark(&client, "job:1", "unfreeze").await;
    until_totals(&client, 1, 0).await;
    for resource in ["job:2", "job:3"] {
        client.break_lock(resource, &json!({ "reason": "x" })).send().await.expect(200);
    }
    until_totals(&client, 0, 0).await;
}

async fn a_gateway_that_drains_is_not_ready(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "1h");
    let gateway = settings.start().await;
    let client = gateway.client();
    assert!(ready(&scrape(&client).await, "gateway"));
    gateway.term();
    let page = eventually("it is known that it drains", async || {
        let page = scrape(&client).await;
        (!ready(&page, "gateway")).then_some(page)
    })
    .await;
    assert!(ready(&page, "ledger") && totals(&page).is_some(), "{page}");
}
