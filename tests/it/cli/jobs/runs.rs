//! One run after another.

use std::time::Duration;

use fence_tests::process::signal;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::*;

#[tokio::test]
async fn a_slot_is_done_once() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let tells = "echo $FENCE_JOB $FENCE_SLOT $FENCE_ATTEMPT ${FENCE_RESUME-no} ${FENCE_SHARD-none}; echo err >&2";
    let run = ["job", "run", "nightly", "--every", "1d", "-c", tells];
    let first = call(url, &run).await.with(0);
    let runs = runs_of(&gateway, "nightly").await;
    assert_eq!(words(&runs), [(1, "succeeded")]);
    let run_of = &runs[0];
    assert_eq!(first.out(), format!("nightly {} 1 no none\n", run_of.slot));
    assert_eq!(run_of.slot.as_str().get(8..), Some("T000000Z"), "midnight");
    assert_eq!((run_of.exit, run_of.trigger.as_str()), (Some(0), "schedule"));
    assert!(run_of.fence.is_some() && run_of.finished_at.is_some() && run_of.duration_ms.is_some());
    assert_eq!(run_of.program.as_deref(), Some("sh"), "arguments may be secrets");
    let output = run_of.output.as_ref().unwrap();
    assert_eq!(output.bytes, first.out().len() as u64 + 4);
    assert!(!output.truncated);

    // Again: nothing is run, and nothing is said, or cron would send a letter.
    let second = call(url, &run).await.with(0);
    assert_eq!((second.out(), second.err()), (String::new(), String::new()));
    let told =
        call(url, &["-v", "job", "run", "nightly", "--every", "1d", "--", "true"]).await.with(0);
    assert!(told.err().contains("has done it already"), "{told:?}");
    let dry = call(url, &["job", "run", "nightly", "--every", "1d", "--dry-run", "--", "true"]);
    let told = dry.await.with(0).out();
    assert!(
        told.starts_with("would run nothing: ") && told.contains("has done it already"),
        "{told}"
    );
    let code = ["job", "run", "nightly", "--every", "1d", "--done-exit-code", "9", "--", "true"];
    call(url, &code).await.with(9);
    assert_eq!(runs_of(&gateway, "nightly").await.len(), 1);

    // Without a schedule each call is a run.
    for _ in 0..2 {
        call(url, &["job", "run", "at-will", "--", "true"]).await.with(0);
    }
    let runs = runs_of(&gateway, "at-will").await;
    assert_eq!(words(&runs), [(1, "succeeded"), (1, "succeeded")]);
    assert!(runs[0].slot != runs[1].slot && runs.iter().all(|run| !run.slot.is_scheduled()));
    assert_eq!(runs[0].trigger.as_str(), "manual");
}

#[tokio::test]
async fn what_fails_is_tried_again_and_the_state_says_so() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count").display().to_string();
    // The third attempt succeeds: one of the first call, with its retry, and one of the second.
    let script = format!("echo x >> {count}; [ $(wc -l < {count}) -ge 3 ] || exit 4");
    let run = [
        "job",
        "run",
        "j",
        "--slot",
        "20261122T020000Z",
        "--retries",
        "1",
        "--backoff",
        "10ms",
        "-c",
        &script,
    ];
    call(url, &run).await.with(4);
    assert_eq!(state_of(&gateway, "j").await.failures_in_row, 2);
    assert_eq!(
        call(url, &["job", "check", "j"]).await.with(1).out(),
        "WARNING - j: the last 2 runs failed\n"
    );
    call(url, &run).await.with(0);
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(words(&runs), [(1, "failed"), (2, "failed"), (3, "succeeded")]);
    let triggers: Vec<_> = runs.iter().map(|run| run.trigger.as_str()).collect();
    assert_eq!(triggers, ["schedule", "retry", "schedule"]);
    let state = state_of(&gateway, "j").await;
    assert_eq!((state.failures_in_row, state.recent.len()), (0, 3));
    assert!(state.running.is_none());

    // At most once: whatever became of it.
    let claimed = [
        "job",
        "run",
        "once",
        "--slot",
        "20261122T020000Z",
        "--once-policy",
        "claimed",
        "--",
        "false",
    ];
    call(url, &claimed).await.with(1);
    call(url, &claimed).await.with(0);
    assert_eq!(words(&runs_of(&gateway, "once").await), [(1, "failed")]);
}

#[tokio::test]
async fn a_run_is_ended_and_recorded_so() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let long =
        ["job", "run", "long", "--max-runtime", "0.2", "--grace", "0.2", "--", "sleep", "1000"];
    call(url, &long).await.with(124);
    assert_eq!(words(&runs_of(&gateway, "long").await), [(1, "timed_out")]);
    let mut child =
        fence(url, &["job", "run", "told", "-c", "echo begun; exec sleep 1000"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    signal("TERM", &[pid(&child)]);
    assert_eq!(end(child).await.signal(), Some(15));
    let runs = runs_of(&gateway, "told").await;
    assert_eq!((words(&runs).as_slice(), runs[0].signal), (&[(1, "cancelled")][..], Some(15)));
    // What cannot be run at all stands in nobody's way.
    call(url, &["job", "run", "none", "--", "/nowhere/at/all"]).await.with(127);
    assert!(gateway.client().resource("job:none").await.is_err(), "no lock was taken");
}

#[tokio::test]
async fn a_checkpoint_is_found_by_the_next_run_of_the_slot() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let fence_binary = binary().display().to_string();
    let script = format!(
        "echo resume=${{FENCE_RESUME-no}}; {fence_binary} job checkpoint load || echo nothing $?; \
         echo at-$FENCE_ATTEMPT | {fence_binary} job checkpoint save || exit 9; [ $FENCE_ATTEMPT -ge 3 ] || exit 4"
    );
    let run = |more: &'static [&'static str]| {
        let mut words = vec!["job", "run", "j", "--slot", "20261122T020000Z"];
        words.extend(more);
        words.extend(["-c", &script]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            call(url, &words).await
        }
    };
    assert_eq!(run(&["--resume"]).await.with(4).out(), "resume=no\nnothing 3\n");
    assert_eq!(run(&["--resume"]).await.with(4).out(), "resume=1\nat-1\n");
    // Without it, what was saved is removed as the run begins.
    assert_eq!(run(&[]).await.with(0).out(), "resume=no\nnothing 3\n");
    let runs = runs_of(&gateway, "j").await;
    let resumed: Vec<_> = runs.iter().map(|run| run.resumed_from.as_deref()).collect();
    assert_eq!(resumed, [None, Some("20261122T020000Z.1"), None]);
    // A success has no use for it.
    let left = gateway.client().list("job:j").prefix("checkpoints/").all().await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    // Not within a run, it is nobody's.
    let outside = call(url, &["job", "checkpoint", "save"]).await.with(2);
    assert!(outside.err().contains("within the command of `fence job run`"), "{outside:?}");
    // A slot of its own goes on with that of the last run.
    let saves = format!(
        "echo x | {fence_binary} job checkpoint save; exit ${{FENCE_RESUME+0}}${{FENCE_RESUME-1}}"
    );
    for code in [1, 0] {
        call(url, &["job", "run", "own", "--resume", "-c", &saves]).await;
        let _ = code;
    }
    let runs = runs_of(&gateway, "own").await;
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].slot, runs[1].slot);
    assert!(runs[1].resumed_from.is_some());
}

#[tokio::test]
async fn missed_slots_are_caught_up_or_skipped() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "j", "--every", "1s", "--", "true"]).await.with(0);
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().display().to_string();
    let notes = format!("echo $FENCE_SLOT >> {path}");
    call(url, &["job", "run", "j", "--every", "1s", "--catch-up", "all", "-c", &notes])
        .await
        .with(0);
    let noted = std::fs::read_to_string(log.path()).unwrap();
    let noted: Vec<&str> = noted.lines().collect();
    assert!(noted.len() >= 3 && noted.is_sorted(), "{noted:?}");
    let runs = runs_of(&gateway, "j").await;
    let slots: Vec<_> = runs.iter().map(|run| run.slot.time().as_second()).collect();
    assert!(slots.windows(2).all(|pair| pair[1] == pair[0] + 1), "none is left out: {slots:?}");
    assert!(runs.iter().any(|run| run.trigger.as_str() == "catch_up"));

    // Of a year that began a second ago at the earliest, nothing may be late by nothing.
    let late = [
        "job",
        "run",
        "late",
        "--every",
        "366d",
        "--catch-up",
        "none",
        "--overdue-after",
        "0",
        "--",
        "false",
    ];
    call(url, &late).await.with(0);
    call(url, &late).await.with(0);
    assert_eq!(words(&runs_of(&gateway, "late").await), [(1, "skipped")]);
    // Another slot, by its name.
    let named = [
        "job",
        "run",
        "late",
        "--slot",
        "20260101T000000Z",
        "--catch-up",
        "none",
        "--overdue-after",
        "1h",
    ];
    call(url, &[&named[..], &["--", "false"]].concat()).await.with(0);
    assert_eq!(words(&runs_of(&gateway, "late").await).len(), 2);
    let twice = ["job", "run", "twice", "--once-policy", "claimed", "--retries", "1", "--", "true"];
    assert!(call(url, &twice).await.with(125).err().contains("at most once"));
}

/// A slot whose records are gone is not in the way of those after it.
#[tokio::test]
async fn a_forgotten_slot_stops_no_later_one() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "j", "--slot", "20260101T000000Z", "--", "true"]).await.with(0);
    call(url, &["job", "prune", "j", "--older-than", "1d"]).await.with(0);
    assert!(runs_of(&gateway, "j").await.is_empty());
    let all = ["job", "run", "j", "--every", "7d", "--catch-up", "all", "--", "true"];
    call(url, &all).await.with(0);
    let runs = runs_of(&gateway, "j").await;
    assert!(runs.len() > 10 && runs.iter().all(succeeded), "{runs:?}");
}

/// The newest slot of the schedule may be called for again, whatever was run by hand since.
#[tokio::test]
async fn runs_by_hand_do_not_push_the_newest_slot_out() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let scheduled = ["-v", "job", "run", "j", "--every", "366d", "--keep", "1", "--", "true"];
    call(url, &scheduled).await.with(0);
    for _ in 0..2 {
        call(url, &["job", "run", "j", "--keep", "1", "--", "true"]).await.with(0);
    }
    let again = call(url, &scheduled).await.with(0);
    assert!(again.err().contains("has done it already"), "{again:?}");
    assert_eq!(runs_of(&gateway, "j").await.len(), 2, "the newest slot, and the last run");
}

/// A try that failed is followed by the others, also if it is too late by then to begin.
#[tokio::test]
async fn a_retry_is_never_too_late() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let slot =
        gateway.client().gateway_time().await.unwrap().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut run = vec!["job", "run", "j", "--slot", &slot, "--catch-up", "none"];
    run.extend(["--overdue-after", "4s", "--retries", "1", "--backoff", "5s", "--", "false"]);
    call(url, &run).await.with(1);
    assert_eq!(words(&runs_of(&gateway, "j").await), [(1, "failed"), (2, "failed")]);
}

#[tokio::test]
async fn old_runs_go_and_what_is_not_known_is_not_run() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let fence_binary = binary().display().to_string();
    let saves = format!("echo x | {fence_binary} job checkpoint save; echo out; exit 1");
    for day in 1..=5 {
        let slot = format!("2026010{day}T000000Z");
        let fails = [
            "job",
            "run",
            "j",
            "--keep",
            "3",
            "--slot",
            &slot,
            "-c",
            if day == 2 { &saves } else { "echo out" },
        ];
        call(url, &fails).await.with(i32::from(day == 2));
    }
    let objects = gateway.client().list("job:j").all().await.unwrap();
    let mut keys: Vec<&str> = objects.iter().map(|it| it.key.as_str()).collect();
    keys.sort_unstable();
    let expected = [
        "runs/20260103T000000Z.1.json",
        "runs/20260103T000000Z.1.log",
        "runs/20260104T000000Z.1.json",
        "runs/20260104T000000Z.1.log",
        "runs/20260105T000000Z.1.json",
        "runs/20260105T000000Z.1.log",
        "slots/20260103T000000Z.json",
        "slots/20260104T000000Z.json",
        "slots/20260105T000000Z.json",
        "state.json",
    ];
    assert_eq!(keys, expected);
    // Whether it was done is not known any more.
    let again =
        call(url, &["job", "run", "j", "--slot", "20260101T000000Z", "--", "true"]).await.with(125);
    assert!(again.err().contains("not known any more"), "{again:?}");
    call(url, &["job", "run", "j", "--slot", "20260106T000000Z", "--", "true"]).await.with(0);

    call(url, &["job", "prune", "j", "--keep", "1"]).await.with(0);
    assert_eq!(runs_of(&gateway, "j").await.len(), 1);
    let forgotten = state_of(&gateway, "j").await.forgotten_through.unwrap();
    assert_eq!(forgotten.as_str(), "20260105T000000Z");
    call(url, &["job", "prune", "j", "--older-than", "1d"]).await.with(0);
    assert!(runs_of(&gateway, "j").await.is_empty());
    call(url, &["job", "forget", "j"]).await.with(2);
    call(url, &["job", "forget", "j", "--yes"]).await.with(0);
    assert_eq!(gateway.client().resource("job:j").await.unwrap().objects, 0);
}

#[tokio::test]
async fn the_last_of_the_output_is_kept_or_all_of_it() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let writes = "seq 1 20000";
    call(url, &["job", "run", "tail", "--tail", "100", "-c", writes]).await.with(0);
    call(url, &["job", "run", "full", "--log", "full", "-c", writes]).await.with(0);
    call(url, &["job", "run", "none", "--tail", "0", "-c", writes]).await.with(0);
    let all = call(url, &["job", "logs", "full"]).await.with(0).out();
    assert!(all.starts_with("1\n2\n") && all.ends_with("\n20000\n"));
    let tail = call(url, &["job", "logs", "tail"]).await.with(0).out();
    assert_eq!((tail.len(), tail.as_str()), (100, &all[all.len() - 100..]));
    assert!(call(url, &["job", "logs", "none"]).await.with(0).err().contains("nothing is kept"));
    for (job, truncated) in [("tail", true), ("full", false), ("none", true)] {
        let output = runs_of(&gateway, job).await[0].output.clone().unwrap();
        assert_eq!((output.bytes, output.truncated), (all.len() as u64, truncated), "{job}");
        let object = gateway
            .client()
            .get("job:full", &runs_of(&gateway, "full").await[0].log_object())
            .await
            .unwrap();
        assert_eq!(output.sha256, object.sha256, "{job}");
    }
}

/// Whoever reads the output slowly gets all of it, and the record says what came by.
#[tokio::test]
async fn a_slow_reader_gets_all_of_the_output() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let mut child = fence(url, &["job", "run", "slow", "-c", "seq 1 20000"]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    // More than a pipe holds, and longer than a process that outlives its command is waited for.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let mut all = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut out, &mut all).await.unwrap();
    assert!(all.ends_with("\n20000\n"), "{}", all.len());
    end(child).await.with(0);
    let output = runs_of(&gateway, "slow").await[0].output.clone().unwrap();
    assert_eq!(
        (output.bytes, output.truncated),
        (all.len() as u64, true),
        "the record has the last of it"
    );
    assert!(output.sha256.is_some());

    // Nobody reads it at all: the run is recorded all the same.
    let script = "seq 1 100000; exit 3";
    let mut child = fence(url, &["job", "run", "unread", "--quiet-unless-failed", "-c", script])
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    end(child).await.with(3);
    assert_eq!(words(&runs_of(&gateway, "unread").await), [(1, "failed")]);

    // One that is told to end while nobody reads on does.
    let mut child =
        fence(url, &["job", "run", "stuck", "-c", "seq 1 100000; echo over >&2"]).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let kept = child.stdout.take();
    // One that writes as much, begins later and is read comes to its end meanwhile.
    let read = ["job", "run", "read", "-c", "seq 1 100000; echo over >&2"];
    tokio::select! {
        biased;
        line = errors.next_line() => panic!("it came to its end: {line:?}"),
        said = call(url, &read) => assert!(said.with(0).err().contains("over")),
    }
    signal("TERM", &[pid(&child)]);
    end(child).await;
    drop(kept);
}

/// A command that ends politely when it is told to has not done its slot, and no further slot is begun.
#[tokio::test]
async fn what_is_told_to_end_is_cancelled_whatever_it_says() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "j", "--every", "1s", "--", "true"]).await.with(0);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let polite = "trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let words_of = ["job", "run", "j", "--every", "1s", "--catch-up", "all", "-c", polite];
    let mut child = fence(url, &words_of).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    signal("TERM", &[pid(&child)]);
    end(child).await.with(0);
    let runs = runs_of(&gateway, "j").await;
    assert_eq!(words(&runs), [(1, "succeeded"), (1, "cancelled")]);
    assert_eq!(lines.next_line().await.unwrap(), None, "no other slot was begun");
}

#[tokio::test]
async fn options_that_would_do_nothing_are_refused() {
    for (more, word) in [
        (&["--wait", "10"][..], "--on-overlap"),
        (&["--overdue-after", "1h"], "--every"),
        (&["--every", "1h", "--shards", "2", "--on-overlap", "wait"], "--shards"),
        (&["--every", "1h", "--shards", "2", "--once-policy", "claimed"], "--shards"),
        (&["--reason", "x"], "--on-overlap"),
        (&["--every", "1500ms"], "whole seconds"),
        (&["--keep", "0"], "kept"),
    ] {
        let all = [&["job", "run", "j"], more, &["--", "true"]].concat();
        let said = call("http://127.0.0.1:1", &all).await.with(125);
        assert!(said.err().contains(word), "{more:?}: {said:?}");
    }
}

/// By hand, a job is run without a schedule: what is expected of it stays.
#[tokio::test]
async fn a_run_by_hand_leaves_the_alarm_on() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    call(url, &["job", "run", "j", "--every", "1h", "--overdue-after", "5m", "--", "true"])
        .await
        .with(0);
    call(url, &["job", "run", "j", "--", "true"]).await.with(0);
    let expect = state_of(&gateway, "j").await.expect;
    assert_eq!((expect.every_ms, expect.overdue_after_ms), (Some(3_600_000), Some(300_000)));
    // And an old slot that is made up for is no news.
    call(url, &["job", "run", "j", "--slot", "20260101T000000Z", "--", "true"]).await.with(0);
    call(url, &["job", "check", "j"]).await.with(0);
}
