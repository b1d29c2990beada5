//! Log lines: one per request, and no token and no lock id in any.

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::gateway::Settings;
use fence_tests::process::eventually;
use serde_json::{Value, json};

use crate::setup::{SetUp, random_id};

/// Every kind of call that carries a token or a lock id, each under a request id of its own.
async fn calls_with_secrets(client: &Client) -> (Vec<String>, usize) {
    let id = random_id();
    let body = json!({ "resource": "job:1", "owner": "w", "ttl": "10m", "id": id });
    let granted = client.lock(&body).header("x-request-id", "log-0").send().await.expect(201);
    let first: Lock = granted.parse();
    let calls = [
        client.lock(&body),
        client.put("job:1", "k", "x").under(&first).idempotency_key("log"),
        client.put("job:1", "k", "x").token(first.token.get() + 1),
        client.put("job:1", "k", "x").token(format!("0{}", first.token)),
        client.renew(&first, None),
        client.post("/locks/renew", &json!({ "ids": [id] })),
        client.post("/locks/renew", &json!({ "ids": [id], "odd": 1 })),
        client.lock_of(&first),
        client.get(format!("/locks/{id}x")),
        client.get(format!("/locks/{id}/nowhere")).unchecked(),
        client.lock_of(&first).query("wait", "1ms").query("since", "leased"),
        client.release(&first),
        client.get(format!("/locks/{id}/events")),
        client.put("job:1", "k", "late").under(&first),
    ];
    let count = calls.len() + 1;
    for (index, call) in calls.into_iter().enumerate() {
        call.header("x-request-id", format!("log-{}", index + 1)).send().await;
    }
    (vec![id.to_string(), first.token.to_string()], count)
}

#[tokio::test]
async fn each_request_is_one_line_of_json_without_tokens_and_lock_ids() {
    for setup in [SetUp::Embedded, SetUp::Clustered] {
        let verbose = |settings: Settings| {
            settings.flag("--log-format", "json").flag("--log", "info,fencegate=trace")
        };
        let gateway = setup.start_with_high_tokens(verbose).await;
        let (secrets, count) = calls_with_secrets(&gateway.client()).await;
        gateway.logged(&format!("\"log-{}\"", count - 1)).await;
        let log = gateway.log();
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
            .collect();
        for index in 0..count {
            let id = format!("log-{index}");
            let of_request =
                |line: &&Value| line["message"] == "request" && line["request_id"] == id.as_str();
            let found: Vec<_> = lines.iter().filter(of_request).collect();
            assert_eq!(found.len(), 1, "{id}: {found:?}");
            let line = found[0];
            assert!(line["method"].is_string() && line["route"].is_string(), "{line}");
            assert!(line["status"].is_u64() && line["duration_ms"].is_f64(), "{line}");
            // Writers that are fenced off are warnings: those with unknown tokens, and the one that came late.
            let level = if [3, count - 1].contains(&index) { "WARN" } else { "INFO" };
            assert!(line["timestamp"].is_string() && line["level"] == level, "{line}");
            assert_eq!(line["target"], "request");
            let verdict = match index {
                2 => Some("admitted"),
                3 | 4 | 14 => Some("refused"),
                _ => None,
            };
            assert_eq!(line["verdict"].as_str(), verdict, "{line}");
        }
        let stale = lines.iter().find(|line| line["request_id"] == format!("log-{}", count - 1));
        let stale = stale.unwrap();
        assert_eq!(
            (&stale["status"], &stale["code"]),
            (&json!(412), &json!("fence-token-released"))
        );
        assert_eq!(stale["resource"], "job:1");
        // Who did what to which resource: acquired, again, written, renewed, released.
        for index in [0, 1, 2, 5, 12] {
            let line = lines.iter().find(|line| line["request_id"] == format!("log-{index}"));
            let line = line.unwrap();
            let owner = (index != 12).then_some("w");
            assert_eq!((&line["resource"], line["owner"].as_str()), (&json!("job:1"), owner));
        }
        for secret in secrets {
            assert!(!log.contains(&secret), "{secret} is in the log:\n{log}");
        }
    }
}

#[tokio::test]
async fn each_request_is_one_line_of_text_without_tokens_and_lock_ids() {
    let gateway = SetUp::Embedded.start_with_high_tokens(|settings| settings).await;
    let (secrets, count) = calls_with_secrets(&gateway.client()).await;
    gateway.logged(&format!("\"log-{}\"", count - 1)).await;
    let log = gateway.log();
    for index in 0..count {
        let id = format!("request_id=\"log-{index}\"");
        assert_eq!(log.lines().filter(|line| line.contains(&id)).count(), 1, "{id}:\n{log}");
    }
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret} is in the log:\n{log}");
    }
}

#[tokio::test]
async fn the_lines_of_requests_have_a_level_of_their_own() {
    let lines = async |filter: &str| {
        let mut gateway =
            SetUp::Embedded.start_with_high_tokens(|it| it.flag("--log", filter)).await;
        let (_, count) = calls_with_secrets(&gateway.client()).await;
        // All of the log has been read once the gateway has ended.
        gateway.term();
        gateway.wait_for_exit().await;
        let log = gateway.log();
        (log.lines().filter(|line| line.contains("request_id=")).count(), count)
    };
    let (all, count) = lines("info").await;
    assert!(all >= count, "{all} of {count}");
    let (fenced_off, _) = lines("info,request=warn").await;
    assert_eq!(fenced_off, 2);
    let (none, _) = lines("info,request=off").await;
    assert_eq!(none, 0);
}

#[tokio::test]
async fn a_reader_of_the_log_that_stands_still_costs_lines_and_nothing_else() {
    for setup in [SetUp::Embedded, SetUp::Clustered] {
        // Enough lines for the pipe and the queue with few requests.
        let settings = setup.settings().await.flag("--log", "info,hyper=trace");
        let mut gateway = settings.start().await;
        let client = gateway.client();
        let lock = client.acquire("r", "10m").await;
        gateway.hold_log();
        eventually("lines are lost", async || {
            for count in 0..100 {
                let put = client.put("r", &format!("k{count}"), "x").under(&lock).send().await;
                assert!(put.status.is_success(), "{}", put.text());
            }
            let page = client.get("/metrics").send().await.expect(200).text();
            let lost = page.lines().find_map(|line| {
                line.strip_prefix("fencegate_log_lines_lost_total ")?.parse::<u64>().ok()
            });
            (lost? > 0).then_some(())
        })
        .await;
        client.renew(&lock, None).send().await.expect(200);
        gateway.term();
        assert!(gateway.wait_for_exit().await.success(), "{setup:?}");
    }
}

/// A start says whether somebody is asked who he is.
#[tokio::test]
async fn a_start_says_whether_rules_of_access_are_in_force() {
    let gateway = SetUp::Embedded.start().await;
    gateway.client().get("/locks").send().await.expect(200);
    gateway.logged("no rules of access are in force").await;
    assert!(!gateway.log().contains("generation=0"), "{}", gateway.log());
}
