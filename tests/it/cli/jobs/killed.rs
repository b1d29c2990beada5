//! Runs on three hosts, killed at any moment, two of the hosts with a clock an hour off.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_tests::process::signal;
use fence_tests::survey;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::*;
use crate::setup::libfaketime;

/// How long a slot lasts, in seconds.
const EVERY: i64 = 1;

/// A run, on a host whose clock shows another time. The run after a killed one waits for the end of its ttl.
fn run(url: &str, clock: Option<&str>, ttl: &str, log: &str) -> Command {
    let notes = format!("echo begun; sleep 0.2; echo $FENCE_SLOT $FENCE_RUN_ID >> {log}");
    let every = format!("{EVERY}s");
    let words = [
        "job",
        "run",
        "j",
        "--every",
        &every,
        "--catch-up",
        "all",
        "--on-overlap",
        "wait",
        "--ttl",
        ttl,
        "--keep",
        "10000",
        "-c",
        &notes,
    ];
    let mut command = fence(url, &words);
    if let Some(clock) = clock {
        command
            .env("LD_PRELOAD", libfaketime())
            .env("FAKETIME", clock)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    command
}

/// Kills run after run: at any moment, or while its command runs.
async fn host(url: &str, clock: Option<&str>, log: &str, killed: &AtomicUsize) {
    while killed.load(Ordering::SeqCst) < survey::size(25, 100) {
        let mut child = run(url, clock, "1s", log).spawn().unwrap();
        if rand::random() {
            // The end of its output is its own end.
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let _begun = lines.next_line().await.unwrap();
        }
        let after = rand::random_range(0..300);
        if tokio::time::timeout(Duration::from_millis(after), child.wait()).await.is_err()
            && let Some(pid) = child.id()
        {
            signal("KILL", &[pid]);
            killed.fetch_add(1, Ordering::SeqCst);
            child.wait().await.unwrap();
        }
    }
}

#[tokio::test]
async fn each_slot_succeeds_once_whoever_is_killed() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().display().to_string();
    let killed = AtomicUsize::new(0);
    tokio::join!(
        host(url, None, &path, &killed),
        host(url, Some("+1h"), &path, &killed),
        host(url, Some("-1h"), &path, &killed)
    );
    // What is left is caught up by one that lives, and keeps its lock on a busy machine, too.
    let last = run(url, Some("+1h"), "1m", &path).spawn().unwrap();
    end(last).await.with(0);

    // 1. Each slot from the first to the last has one success, and its mark says which run that was.
    let runs = runs_of(&gateway, "j").await;
    let mut of_slot: BTreeMap<i64, Vec<&Run>> = BTreeMap::new();
    for run in &runs {
        of_slot.entry(run.slot.time().as_second()).or_default().push(run);
    }
    let slots: Vec<i64> = of_slot.keys().copied().collect();
    assert!(
        slots.windows(2).all(|pair| pair[1] == pair[0] + EVERY),
        "a slot is missing: {slots:?}"
    );
    for of_slot in of_slot.values() {
        let done: Vec<_> = of_slot.iter().filter(|run| succeeded(run)).collect();
        assert_eq!(done.len(), 1, "{of_slot:?}");
        let mark =
            gateway.client().get("job:j", &format!("slots/{}.json", done[0].slot)).await.unwrap();
        let mark: Value = mark.json().unwrap();
        assert_eq!(mark["run"], done[0].run.to_string());
        // Whatever was tried before it is settled, and nothing was tried after it.
        assert!(
            of_slot
                .iter()
                .all(|run| run.attempt <= done[0].attempt && run.status != RunStatus::Started)
        );
    }
    // 2. The clock of a host plays no part in the slot: all are of the hour in which the gateway was there.
    let now = gateway.client().gateway_time().await.unwrap().as_second();
    assert!(slots.iter().all(|slot| now - slot < 1_800), "{slots:?}, now {now}");
    // 3. Each success did its work, once at least.
    let noted = std::fs::read_to_string(log.path()).unwrap();
    for run in runs.iter().filter(|run| succeeded(run)) {
        assert!(noted.contains(&format!("{} {}", run.slot, run.run)), "{run:?}");
    }
    // 4. It is shown so.
    let shown = call(url, &["job", "ls", "--json"]).await.with(0).json();
    assert_eq!(
        (&shown["items"][0]["status"], &shown["items"][0]["failures_in_row"]),
        (&"succeeded".into(), &0.into())
    );
    let abandoned = runs.iter().filter(|run| run.status == RunStatus::Abandoned).count();
    println!("{} slots, {} runs, {abandoned} abandoned", slots.len(), runs.len());
    let (slots_min, abandoned_min) = survey::size((2, 2), (5, 10));
    assert!(slots.len() > slots_min && abandoned > abandoned_min, "{} {abandoned}", slots.len());
}
