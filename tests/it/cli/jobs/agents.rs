//! Runs that somebody asks for.

use std::time::Duration;

use fence_tests::process::signal;
use fencegate_client::Error;
use fencegate_client::jobs::{JobEnd, JobName};

use super::*;

#[tokio::test]
async fn a_request_is_run_once_by_one_agent() {
    let gateway = Dev::start().await;
    let (url, client) = (gateway.url(), gateway.client());
    let name = JobName::new("j").unwrap();
    let ask = ["job", "start", "j", "--reason", "by hand"];
    let nobody = call(url, &ask).await.with(2);
    assert!(nobody.err().contains("nobody waits"), "{nobody:?}");
    let log = tempfile::NamedTempFile::new().unwrap();
    let notes =
        format!("echo $FENCE_SLOT ${{FENCE_RESUME-no}} >> {}; exit 3", log.path().display());
    let words = ["job", "agent", "j", "--", "sh", "-c", &notes];
    let (one, other) = (fence(url, &words).spawn().unwrap(), fence(url, &words).spawn().unwrap());
    while !client.has_agent(&name).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        call(url, &["job", "start", "j", "--reason", "x", "--dry-run"])
            .await
            .with(0)
            .out()
            .contains("would ask")
    );
    let asked = call(
        url,
        &["--json", "job", "start", "j", "--slot", "20261122T020000Z", "--reason", "by hand"],
    );
    let id = asked.await.with(0).json()["request"].as_str().unwrap().to_owned();
    call(url, &ask).await.with(0);
    let is_done = async || {
        let runs = client.job_runs(&name, 100).await.unwrap_or_default();
        runs.len() == 2 && client.requested_runs(&name).await.unwrap().is_empty()
    };
    while !is_done().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let runs = runs_of(&gateway, "j").await;
    let asked = runs.iter().find(|run| run.slot.is_scheduled()).unwrap();
    assert_eq!(asked.request.unwrap().to_string(), id);
    assert!(
        runs.iter().all(|run| run.trigger.as_str() == "request" && run.status == RunStatus::Failed)
    );
    // Seen again, a request does nothing.
    let again = ["job", "run", "j", &format!("--request={id}"), "--", "true"].map(str::to_owned);
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    call(url, &again).await.with(0);
    assert_eq!(std::fs::read_to_string(log.path()).unwrap().lines().count(), 2);
    assert_eq!(runs_of(&gateway, "j").await.len(), 2);
    // The other one takes the place of the one that goes.
    signal("TERM", &[pid(&one), pid(&other)]);
    assert_eq!((end(one).await.signal(), end(other).await.signal()), (Some(15), Some(15)));
    assert!(!client.has_agent(&name).await.unwrap());
}

/// The program was upgraded while the agent waited.
#[tokio::test]
async fn an_agent_whose_program_was_replaced_goes_on() {
    let gateway = Dev::start().await;
    let (url, client) = (gateway.url(), gateway.client());
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("fence");
    std::fs::copy(binary(), &copy).unwrap();
    let mut command = tokio::process::Command::new(&copy);
    command.env("FENCE_URL", url).env("XDG_CONFIG_HOME", "/nonexistent");
    command.args(["job", "agent", "j", "--", "true"]).kill_on_drop(true);
    let agent = command.spawn().unwrap();
    let name = JobName::new("j").unwrap();
    while !client.has_agent(&name).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(&copy).unwrap();
    call(url, &["job", "start", "j", "--reason", "after the upgrade"]).await.with(0);
    while client.job_runs(&name, 10).await.map_or(true, |runs| !runs.iter().any(succeeded)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    signal("TERM", &[pid(&agent)]);
    assert_eq!(end(agent).await.signal(), Some(15));
}

/// Whoever carries a request out tries again as often as it was said.
#[tokio::test]
async fn a_request_is_tried_again() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let request =
        client.request_run(&JobName::new("j").unwrap(), None, false, "now").await.unwrap();
    let job = client.job("j").request(request.request).retries(1, Duration::from_millis(10));
    let end = job.run(async |run| match run.attempt() {
        1 => Err(std::io::Error::other("not yet").into()),
        attempt => Ok::<_, Box<dyn std::error::Error>>(attempt),
    });
    assert!(matches!(end.await, Ok(JobEnd::Ran(_, 2))));
    let again = job.run(async |_| Ok::<_, Error>(()));
    assert!(matches!(again.await, Ok(JobEnd::Done(_))), "it was taken");
}

/// A request that nobody has removed yet is not run again once its run is forgotten.
#[tokio::test]
async fn a_request_in_the_inbox_outlives_its_run() {
    let gateway = Dev::start().await;
    let (url, client) = (gateway.url(), gateway.client());
    let name = JobName::new("j").unwrap();
    let request = client.request_run(&name, None, false, "now").await.unwrap();
    let id = format!("--request={}", request.request);
    let run = ["job", "run", "j", "--keep", "1", &id, "--", "echo", "ran"];
    assert_eq!(call(url, &run).await.with(0).out(), "ran\n");
    call(url, &["job", "run", "j", "--keep", "1", "--", "true"]).await.with(0);
    assert_eq!(runs_of(&gateway, "j").await.len(), 1, "its run is forgotten");
    assert_eq!(call(url, &run).await.with(0).out(), "");
    client.drop_request(&name, request.request).await.unwrap();
}
