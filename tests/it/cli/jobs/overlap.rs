//! Runs that meet: the one that has lost its lock changes nothing any more.

use std::time::Duration;

use fence_tests::process::signal;
use fencegate_client::jobs::{Begun, RunEnd};
use fencegate_client::{Error, LossReason, Wait};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::*;

/// A run that has begun.
async fn begun(url: &str, more: &[&str], script: &str) -> Child {
    let mut all = vec!["job", "run", "j", "--slot", "20261122T020000Z"];
    all.extend(more);
    all.extend(["-c", script]);
    let mut child = fence(url, &all).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    child
}

#[tokio::test]
async fn a_second_run_is_skipped_or_waits() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let child = begun(url, &[], "echo begun; exec sleep 1000").await;
    let other = ["job", "run", "j", "--slot", "20261123T020000Z", "--", "true"];
    let skipped = call(url, &other).await.with(75);
    assert!(skipped.err().contains("job j does not run now: "), "{skipped:?}");
    assert!(skipped.err().contains(" has job:j"), "{skipped:?}");
    for more in [["-q", "75"], ["-v", "0"]] {
        let words = [&more[..1], &other[..5], &["--conflict-exit-code", more[1], "--", "true"]];
        let said = call(url, &words.concat()).await.with(more[1].parse().unwrap());
        assert_eq!(said.err().is_empty(), more[0] == "-q", "{said:?}");
    }
    let words =
        ["job", "run", "j", "--slot", "20261123T020000Z", "--on-overlap", "wait", "--", "true"];
    let waits = fence(url, &words).spawn().unwrap();
    let client = gateway.client();
    while client.waiters("job:j").all().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal("TERM", &[pid(&child)]);
    assert_eq!(end(child).await.signal(), Some(15));
    end(waits).await.with(0);
    let bounded = ["job", "run", "j", "--on-overlap", "wait", "--wait", "0.1", "--", "true"];
    let held = client.lock("job:j").acquire().await.unwrap();
    call(url, &bounded).await.with(75);
    held.release().await;
}

#[tokio::test]
async fn a_run_is_replaced_for_a_reason() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let old = begun(url, &["--grace", "0.3"], "echo begun; exec sleep 1000").await;
    let no_reason =
        ["job", "run", "j", "--slot", "20261122T020000Z", "--on-overlap", "replace", "--", "true"];
    assert!(call(url, &no_reason).await.with(125).err().contains("--reason"));
    let words = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--on-overlap",
        "replace",
        "--grace",
        "0.3",
        "--reason",
        "new build",
        "--",
        "true",
    ];
    call(url, &words).await.with(0);
    let old = end(old).await.with(121);
    assert!(old.err().contains("nothing is recorded of its end"), "{old:?}");
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(super::words(&runs), [(1, "cancelled"), (2, "succeeded")]);
    assert_eq!(runs[0].reason.as_deref(), Some("replaced: new build"));
    let audit =
        call(url, &["--json", "audit", "--on", "job:j", "--action", "break"]).await.with(0).json();
    assert_eq!(audit["items"][0]["reason"], "new build");
}

#[tokio::test]
async fn the_checkpoint_and_the_log_of_a_fenced_off_run_bounce() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    // It does not end when it is told to, but saves where it is.
    let script = format!(
        "trap 'echo late | {} job checkpoint save 2> /dev/null; echo $? > {}; exit 0' TERM; echo begun; \
         while :; do sleep 0.05; done",
        binary().display(),
        saved.display()
    );
    let late = begun(url, &[], &script).await;
    let words = ["job", "break", "j", "--now", "--reason", "stuck", "--yes"];
    let broken = call(url, &words).await.with(0);
    assert!(broken.out().contains("run 20261122T020000Z.1 of "), "{broken:?}");
    end(late).await.with(121);
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "5\n", "its checkpoint was refused");
    // Nobody could write that it was lost: it is shown so.
    let shown = call(url, &["job", "ls", "--json"]).await.with(0).json();
    assert_eq!(shown["items"][0]["status"], "lost");
    let why = "an operator at 127.0.0.1 broke its lock: stuck";
    let checked = call(url, &["job", "check", "j"]).await.with(2).out();
    assert!(checked.contains(why), "{checked}");
    let shown = call(url, &["job", "show", "j"]).await.with(0).out();
    assert!(shown.contains(&format!("lost: {why}")), "{shown}");
    let next = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--resume",
        "-c",
        "echo ${FENCE_RESUME-no}",
    ];
    assert_eq!(call(url, &next).await.with(0).out(), "no\n");
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(super::words(&runs), [(1, "cancelled"), (2, "succeeded")]);
    assert_eq!(runs[0].reason.as_deref(), Some(why));
    assert_eq!(state_of(&gateway, "j").await.recent[1].reason.as_deref(), Some(why));
    let log = gateway.client().get("job:j", &runs[0].log_object()).optional().await.unwrap();
    assert!(log.is_none() && runs[0].output.is_none(), "its log was refused");
    let again = call(url, &["job", "break", "j", "--now", "--reason", "x", "--yes"]).await.with(2);
    assert!(again.err().contains("nobody runs j"), "{again:?}");
}

/// The end of a run and the start of the next one, in the order that is worst: the late end comes last.
#[tokio::test]
async fn the_end_of_a_fenced_off_run_changes_nothing() {
    let gateway = Dev::start().await;
    let (ann, bob) = (gateway.client(), gateway.client());
    let slot = "20261122T020000Z".parse::<fencegate_client::jobs::Slot>().unwrap();
    let (of_ann, of_bob) = (ann.job("j").slot(slot.clone()), bob.job("j").slot(slot));
    let due = of_ann.due().await.unwrap().remove(0);
    let lock = of_ann.lock().unwrap().acquire().await.unwrap();
    let Begun::Run(late) = of_ann.begin(&lock, &due, None).await.unwrap() else {
        panic!("not begun")
    };
    bob.break_lock("job:j", "late").await.unwrap();
    let next =
        of_bob.lock().unwrap().wait(Wait::UpTo(Duration::from_secs(10))).acquire().await.unwrap();
    // Before the next one begins, and after it.
    let before = gateway.client().get("job:j", "state.json").await.unwrap();
    let Begun::Run(run) = of_bob.begin(&next, &due, None).await.unwrap() else {
        panic!("not begun")
    };
    let lost = late.finish(&lock, RunEnd::new(RunStatus::Succeeded)).await;
    assert!(
        matches!(&lost, Err(Error::LockLost(lost)) if lost.reason != LossReason::Released),
        "{lost:?}"
    );
    let after = gateway.client().get("job:j", "state.json").await.unwrap();
    assert!(before.etag != after.etag && state_of(&gateway, "j").await.running.is_some());
    assert_eq!(run.attempt(), 2);
    run.finish(&next, RunEnd::new(RunStatus::Succeeded)).await.unwrap();
    next.release().await;
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(super::words(&runs), [(1, "cancelled"), (2, "succeeded")]);
    // Whoever had looked before finds the slot done, under the lock.
    let lock = of_ann.lock().unwrap().acquire().await.unwrap();
    let done = of_ann.begin(&lock, &due, None).await.unwrap();
    assert!(matches!(&done, Begun::Done(mark) if mark.run == runs[1].run), "{done:?}");
    lock.release().await;
}

/// What is too late to begin ends nobody's run.
#[tokio::test]
async fn what_is_too_late_replaces_nothing() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let child = begun(url, &[], "echo begun; exec sleep 1000").await;
    let late = [
        "job",
        "run",
        "j",
        "--slot",
        "20260101T000000Z",
        "--catch-up",
        "none",
        "--overdue-after",
        "1h",
        "--on-overlap",
        "replace",
        "--reason",
        "x",
        "--wait",
        "0.3",
        "--",
        "true",
    ];
    call(url, &late).await.with(75);
    assert_eq!(gateway.client().resource("job:j").await.unwrap().state.as_str(), "leased");
    signal("TERM", &[pid(&child)]);
    assert_eq!(end(child).await.signal(), Some(15));
}

/// A break that leaves a run the time to record its end: somebody has ended it, so it has not failed.
#[tokio::test]
async fn a_run_that_is_broken_in_time_is_cancelled() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    // It hears of the break by an event, and ends the command once the grace begins.
    let terms = ["--ttl", "10h", "--grace", "20"];
    let run = begun(url, &terms, "echo begun; exec sleep 1000").await;
    let words = ["job", "break", "j", "--after", "26s", "--reason", "OPS-7", "--yes"];
    call(url, &words).await.with(0);
    let ended = end(run).await.with(121);
    assert!(ended.err().contains("an operator broke it: OPS-7"), "{ended:?}");
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(super::words(&runs), [(1, "cancelled")]);
    assert_eq!(runs[0].reason.as_deref(), Some("an operator broke its lock: OPS-7"));
    assert_eq!(state_of(&gateway, "j").await.failures_in_row, 0);
}

/// Slots of one second are told apart by their ids, of which no order is known; their runs are, by when they were made.
#[tokio::test]
async fn runs_of_one_second_are_in_the_order_in_which_they_were_made() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let job = client.job("j");
    let mut made = Vec::new();
    for _ in 0..24 {
        let due = job.due().await.unwrap().remove(0);
        let lock = job.lock().unwrap().acquire().await.unwrap();
        let Begun::Run(run) = job.begin(&lock, &due, None).await.unwrap() else {
            panic!("not begun")
        };
        made.push(run.finish(&lock, RunEnd::new(RunStatus::Succeeded)).await.unwrap());
        lock.release().await;
    }
    let slots: std::collections::BTreeSet<_> = made.iter().map(|run| run.slot.time()).collect();
    assert!(slots.len() < made.len() / 2, "most share their second: {slots:?}");
    let ids: Vec<_> = made.iter().map(|run| run.run).collect();
    let read: Vec<_> = runs_of(&gateway, "j").await.iter().map(|run| run.run).collect();
    assert_eq!(read, ids);
    let name = JobName::new("j").unwrap();
    let newest = client.job_runs(&name, 1).await.unwrap();
    assert_eq!(newest.iter().map(|run| run.run).collect::<Vec<_>>(), ids[23..]);
}
