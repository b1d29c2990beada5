//! How jobs are doing: lists, alarms, and what Prometheus is told.

use std::time::Duration;

use fencegate_client::Body;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::*;

#[tokio::test]
async fn runs_are_listed_and_shown() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    for (day, code) in [(1, "0"), (2, "3"), (3, "0")] {
        let slot = format!("2026010{day}T000000Z");
        let script = format!("echo of day {day}; exit {code}");
        call(url, &["job", "run", "j", "--slot", &slot, "-c", &script]).await;
    }
    let names = call(url, &["job", "runs", "j", "-o", "name"]).await.with(0).out();
    assert_eq!(names, "20260103T000000Z.1\n20260102T000000Z.1\n20260101T000000Z.1\n");
    let failed =
        call(url, &["job", "runs", "j", "--status", "failed", "--json"]).await.with(0).json();
    assert_eq!(failed["items"][0]["slot"], "20260102T000000Z");
    assert_eq!(failed["items"].as_array().unwrap().len(), 1);
    assert!(
        call(url, &["job", "runs", "j", "--status", "broken"])
            .await
            .with(2)
            .err()
            .contains("timed_out")
    );
    assert_eq!(
        call(url, &["job", "runs", "j", "--limit", "1", "-o", "name"])
            .await
            .with(0)
            .out()
            .lines()
            .count(),
        1
    );
    call(url, &["job", "runs", "nobody"]).await.with(3);
    let shown = call(url, &["job", "show", "j", "20260102T000000Z"]).await.with(0).out();
    assert!(shown.contains("status      failed") && shown.contains("exit        3"), "{shown}");
    assert!(shown.ends_with("\n\nof day 2\n"), "{shown}");
    let id = call(url, &["--json", "job", "show", "j"]).await.with(0).json()["run"]
        .as_str()
        .unwrap()
        .to_owned();
    let by_id = call(url, &["job", "logs", "j", &id]).await.with(0).out();
    assert_eq!(by_id, "of day 3\n");
    call(url, &["job", "show", "j", "20260109T000000Z"]).await.with(3);
    call(url, &["job", "show", "j", "yesterday"]).await.with(2);
}

#[tokio::test]
async fn an_alarm_has_the_codes_of_nagios() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "good", "--every", "1d", "--", "true"]).await.with(0);
    assert_eq!(call(url, &["job", "check", "good"]).await.with(0).out(), "OK - good: succeeded\n");
    // Of seconds that go by, one is missed soon.
    call(url, &["job", "run", "over", "--every", "1s", "--overdue-after", "0", "--", "true"])
        .await
        .with(0);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let found = call(url, &["job", "check", "good", "over"]).await.with(2).out();
    assert!(found.starts_with("CRITICAL - over: it is overdue"), "{found}");
    assert_eq!(
        call(url, &["job", "check", "good", "none"]).await.with(3).out(),
        "UNKNOWN - none: it has never run; good: succeeded\n"
    );
    // One that runs for too long.
    let words = ["job", "run", "slow", "--max-runtime", "600", "-c", "echo begun; exec sleep 1000"];
    let mut child = fence(url, &words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    assert_eq!(call(url, &["job", "check", "slow"]).await.with(0).out(), "OK - slow: running\n");
    let where_it_is = call(url, &["job", "logs", "slow"]).await.with(2).err();
    assert!(
        where_it_is.contains("has not ended") && where_it_is.contains(&pid(&child).to_string()),
        "{where_it_is}"
    );
    let json = call(url, &["--json", "job", "check", "over"]).await.with(2).json();
    assert_eq!((&json["level"], &json["items"][0]["job"]), (&"CRITICAL".into(), &"over".into()));
    // Without a gateway nothing is known.
    call("http://127.0.0.1:1", &["--timeout", "0.2", "job", "check", "good"]).await.with(3);
}

#[tokio::test]
async fn prometheus_is_told() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "good", "--every", "1d", "--", "true"]).await.with(0);
    call(url, &["job", "run", "bad", "--", "false"]).await.with(1);
    // Another client may leave out what is usual.
    let other = json!({ "v": 1, "job": "other", "expect": { "every_ms": 3_600_000 } });
    let lock = gateway.client().lock("job:other").acquire().await.unwrap();
    lock.put("state.json", Body::json(&other).unwrap()).await.unwrap();
    lock.release().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.prom");
    call(url, &["job", "exporter", "--textfile", &file.display().to_string()]).await.with(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut child = fence(url, &["job", "exporter", "--listen", "127.0.0.1:0", "--prefix", "g"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    let answer = reqwest::get(said.rsplit(' ').next().unwrap()).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4");
    let scraped = answer.text().await.unwrap();
    for line in [
        "fencegate_job_state{name=\"good\",status=\"succeeded\"} 1",
        "fencegate_job_state{name=\"good\",status=\"lost\"} 0",
        "fencegate_job_expected_interval_seconds{name=\"good\"} 86400",
        "fencegate_job_grace_seconds{name=\"good\"} 86400",
        "fencegate_job_running{name=\"good\"} 0",
    ] {
        assert!(text.contains(line) && scraped.contains(line), "{line}: {text}");
    }
    assert!(text.contains("fencegate_job_failures_in_row{name=\"bad\"} 1"), "{text}");
    assert!(text.contains("fencegate_job_grace_seconds{name=\"other\"} 3600"), "{text}");
    assert!(!scraped.contains("bad"), "only those that were asked for");
}
