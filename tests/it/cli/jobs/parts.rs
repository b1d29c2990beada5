//! Jobs in parts, over several hosts.

use std::time::Duration;

use fence_tests::chaos::ChaosProxy;
use fence_tests::process::{eventually, signal};
use fencegate_client::jobs::JobName;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::*;

#[tokio::test]
async fn sixteen_parts_are_done_once_by_three_hosts_of_which_one_is_killed() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let log = tempfile::NamedTempFile::new().unwrap();
    let notes = format!("sleep 0.3; echo $FENCE_SHARD/$FENCE_SHARDS >> {}", log.path().display());
    let words = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--shards",
        "16",
        "--concurrency",
        "2",
        "--ttl",
        "1s",
        "-c",
        &notes,
    ];
    let start = || fence(url, &words).spawn().unwrap();
    let (killed, one, other) = (start(), start(), start());
    // One is killed while it has parts.
    while std::fs::read_to_string(log.path()).unwrap().lines().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal("KILL", &[pid(&killed)]);
    end(killed).await;
    end(one).await.with(0);
    end(other).await.with(0);
    let whole = JobName::new("j").unwrap();
    let mut runs = 0;
    for index in 0..16 {
        let part = whole.part(index, 16).unwrap();
        let of_part = gateway.client().job_runs(&part, 100).await.unwrap();
        runs += of_part.len();
        let done: Vec<_> = of_part.iter().filter(|run| succeeded(run)).collect();
        assert_eq!(done.len(), 1, "part {index}: {of_part:?}");
        assert_eq!((done[0].shard, done[0].shards), (Some(index), Some(16)));
    }
    println!("{runs} runs of 16 parts");
    let shown = call(url, &["job", "ls", "--json"]).await.with(0).json();
    let row = &shown["items"][0];
    let expected = (&"succeeded".into(), &16.into(), &16.into());
    assert_eq!((&row["status"], &row["parts"], &row["parts_done"]), expected, "{shown}");
    let parts = call(url, &["job", "ls", "--parts", "-o", "name"]).await.with(0).out();
    assert_eq!(parts.lines().next(), Some("j@00.16"));
    assert_eq!(parts.lines().count(), 16);
    // A part is a job of its own.
    call(url, &["job", "show", "j@07.16"]).await.with(0);
    assert!(call(url, &["job", "show", "j@16.16"]).await.with(2).err().contains("shards"));
    // Done again, it is nothing at all.
    call(url, &words).await.with(0);
    let part = gateway.client().job_runs(&whole.part(7, 16).unwrap(), 100).await.unwrap();
    assert_eq!(part.iter().filter(|run| succeeded(run)).count(), 1);
}

#[tokio::test]
async fn a_part_that_fails_is_told_of_and_the_others_are_done() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let script = "[ $FENCE_SHARD != 2 ] || exit 7";
    let words = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--shards",
        "4",
        "--concurrency",
        "4",
        "-c",
        script,
    ];
    let said = call(url, &words).await.with(7);
    assert!(said.err().contains("part 2 of 4 has failed"), "{said:?}");
    let shown = call(url, &["job", "ls", "--json"]).await.with(0).json();
    assert_eq!(
        (&shown["items"][0]["status"], &shown["items"][0]["parts_done"]),
        (&"failed".into(), &3.into())
    );
    // One part alone.
    call(url, &["job", "run", "j", "--slot", "20261122T020000Z", "--shard", "2/4", "--", "true"])
        .await
        .with(0);
    call(url, &["job", "check", "j"]).await.with(0);
    let wrong = ["job", "run", "j", "--shards", "4", "--", "true"];
    assert!(call(url, &wrong).await.with(125).err().contains("--every or --slot"));
}

/// The exit code of a command is its own, whatever number it is.
#[tokio::test]
async fn a_part_may_end_with_the_code_of_a_conflict() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let log = tempfile::NamedTempFile::new().unwrap();
    let script = format!("echo x >> {}; exit 75", log.path().display());
    let words = ["job", "run", "j", "--slot", "20261122T020000Z", "--shards", "2", "-c", &script];
    call(url, &words).await.with(75);
    assert_eq!(std::fs::read_to_string(log.path()).unwrap().lines().count(), 2, "each ran once");
    // Parts that others have are not waited for longer than it is said.
    let part = gateway.client().lock("job:k@0.2").acquire().await.unwrap();
    let waits = [
        "job",
        "run",
        "k",
        "--slot",
        "20261122T020000Z",
        "--shards",
        "2",
        "--wait",
        "0.5",
        "--",
        "true",
    ];
    let said = call(url, &waits).await.with(75);
    assert!(said.err().contains("1 parts of slot"), "{said:?}");
    part.release().await;
    let whole = call(url, &["job", "show", "k"]).await.with(2);
    assert!(whole.err().contains("in parts") && whole.err().contains("k@0.2"), "{whole:?}");
}

/// Where the gateway cannot be asked what became of a part that has ended, the others go on.
#[tokio::test]
async fn a_part_that_ends_while_the_gateway_is_away_ends_no_other() {
    let gateway = Dev::start().await;
    let port = gateway.url().rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap();
    let proxy = ChaosProxy::start(port).await;
    let url = format!("http://{}", proxy.endpoint());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let at = folder.path().display();
    let script = format!(
        "touch {at}/begun-$FENCE_SHARD; until [ -e {at}/end-$FENCE_SHARD ]; do sleep 0.05; done; exit $FENCE_SHARD"
    );
    let mut words = vec!["--timeout", "1s", "job", "run", "j", "--slot", "20261122T020000Z"];
    words.extend(["--ttl", "10m", "--shards", "2", "--concurrency", "2", "-c", &script]);
    let mut child = fence(&url, &words).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun = ["begun-0", "begun-1"];
    eventually("both have begun", async || begun.iter().all(|it| file(it).exists()).then_some(()))
        .await;
    proxy.refuse().await;
    std::fs::write(file("end-1"), "").unwrap();
    let mut said = String::new();
    while !said.contains("part 1 of 2 has failed") {
        said = lines.next_line().await.unwrap().expect("it goes on");
    }
    proxy.resume().await;
    std::fs::write(file("end-0"), "").unwrap();
    // The end of the other part was not recorded.
    assert_eq!(end(child).await.code(), Some(125));
    let part = JobName::new("j").unwrap().part(0, 2).unwrap();
    let runs = gateway.client().job_runs(&part, 10).await.unwrap();
    assert_eq!(super::words(&runs), [(1, "succeeded")]);
}

#[tokio::test]
async fn all_parts_hear_what_the_whole_is_told() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let script = "trap '' TERM; echo begun; while :; do sleep 0.05; done";
    let words = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--shards",
        "2",
        "--concurrency",
        "2",
        "--ttl",
        "20h",
        "--grace",
        "1h",
        "-c",
        script,
    ];
    let mut child = fence(url, &words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    }
    // The second one within two seconds means KILL, as it does for one alone: both end before their grace is over.
    eventually("both have ended", async || {
        signal("TERM", &[pid(&child)]);
        tokio::time::timeout(Duration::from_millis(300), child.wait()).await.ok()
    })
    .await
    .unwrap();
}
