//! The command ends before its lock can be another's.

use std::path::Path;
use std::time::Duration;

use fence_tests::process::{eventually, signal};
use serde_json::json;
use tokio::process::Child;

use super::super::rust_client::{take_over, until_state};
use super::{Dev, end, fence, pid};
use crate::setup::look;

/// Writes the time since the machine started into a file, again and again.
const TICKS: &str =
    "while :; do cut -d' ' -f1 /proc/uptime > $FILE.new; mv $FILE.new $FILE; sleep 0.02; done";

/// A command under a lock of so long that ticks into a file.
struct Ticking {
    fence: Child,
    file: std::path::PathBuf,
    folder: tempfile::TempDir,
}

impl Ticking {
    async fn start(gateway: &Dev, ttl: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tick");
        let words = [&["run", "-r", "r", "--ttl", ttl][..], more, &["-c", TICKS]].concat();
        let fence = fence(gateway.url(), &words).env("FILE", &file).spawn().unwrap();
        let ticking = Self { fence, file, folder };
        eventually("it ticks", async || ticking.last()).await;
        ticking
    }

    /// The last tick, in seconds since the machine started.
    fn last(&self) -> Option<f64> {
        std::fs::read_to_string(&self.file).ok()?.trim().parse().ok()
    }
}

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// How coarse `/proc/uptime` is, in seconds.
const COARSE: f64 = 0.02;

#[tokio::test]
async fn a_gateway_that_falls_silent_ends_it_before_the_deadline() {
    let gateway = Dev::start().await;
    let ticking = Ticking::start(&gateway, "3s", &["--grace", "1s"]).await;
    // What confirms the lock last is sent before this moment.
    let paused = uptime();
    gateway.pause();
    let Ticking { fence, file, folder } = ticking;
    let said = end(fence).await.with(121);
    assert!(said.err().contains("confirmed"), "{said:?}");
    let last: f64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(last <= paused + 3.0 + COARSE, "the last tick was {} s after it", last - paused);
    gateway.resume();
    drop(folder);
}

#[tokio::test]
async fn a_fence_that_stands_still_ends_it_before_the_deadline() {
    let gateway = Dev::start().await;
    let ticking = Ticking::start(&gateway, "2s", &[]).await;
    let stopped = uptime();
    signal("STOP", &[pid(&ticking.fence)]);
    // Twice the ttl: somebody else has the lock by then.
    until_state(&gateway.http(), "r", "expired").await;
    take_over(&gateway.http(), "r").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let last = ticking.last().unwrap();
    assert!(last <= stopped + 2.0 + COARSE, "the last tick was {} s after it", last - stopped);
    signal("CONT", &[pid(&ticking.fence)]);
    end(ticking.fence).await.with(121);
}

#[tokio::test]
async fn a_loss_ends_it_at_once() {
    let gateway = Dev::start().await;
    let ticking = Ticking::start(&gateway, "20s", &["--grace", "0.5s"]).await;
    take_over(&gateway.http(), "r").await;
    let said = end(ticking.fence).await.with(121);
    assert!(said.err().contains("lost"), "{said:?}");
}

/// By a renewal: the lock is too young for a stream of events.
#[tokio::test]
async fn who_was_broken_says_why() {
    let gateway = Dev::start().await;
    let ticking = Ticking::start(&gateway, "2s", &["--grace", "0.5s"]).await;
    let reason = json!({"reason": "worker hangs"});
    gateway.http().break_lock("r", &reason).send().await.expect(200);
    let said = end(ticking.fence).await.with(121);
    assert!(said.err().contains("an operator broke it: worker hangs"), "{said:?}");
}

#[tokio::test]
async fn a_break_to_come_ends_it_before() {
    let gateway = Dev::start().await;
    // It hears of the break by an event: no renewal is due for long. That comes before the grace begins.
    let ticking = Ticking::start(&gateway, "10h", &["--grace", "20s"]).await;
    let breaking = json!({"reason": "a test", "after": "28s"});
    gateway.http().break_lock("r", &breaking).send().await.expect(200);
    let said = end(ticking.fence).await.with(121);
    assert!(said.err().contains("an operator broke it: a test"), "{said:?}");
    // It was given back before the break came.
    assert_eq!(look(&gateway.http(), "r").await.state.as_str(), "released");
}

#[tokio::test]
async fn a_command_that_fences_itself_goes_on_if_wished() {
    let gateway = Dev::start().await;
    for (code, ended) in [(0, 121), (5, 5)] {
        let folder = tempfile::tempdir().unwrap();
        let (ready, go) = (folder.path().join("ready"), folder.path().join("go"));
        let script = format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done; exit {code}",
            ready.display(),
            go.display()
        );
        let words = ["run", "-r", "r", "--on-loss", "ignore", "-c", &script];
        let child = fence(gateway.url(), &words).spawn().unwrap();
        until_there(&ready).await;
        let rival = take_over(&gateway.http(), "r").await;
        std::fs::write(&go, "").unwrap();
        end(child).await.with(ended);
        gateway.http().release(&rival).send().await.expect(204);
    }
}

#[tokio::test]
async fn the_signal_of_a_loss_may_be_another() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (ready, told) = (folder.path().join("ready"), folder.path().join("told"));
    let script = format!(
        "trap 'touch {}; exit 0' USR1; touch {}; while :; do sleep 0.02; done",
        told.display(),
        ready.display()
    );
    let words = ["run", "-r", "r", "--ttl", "2s", "--on-loss", "signal:USR1", "-c", &script];
    let child = fence(gateway.url(), &words).spawn().unwrap();
    until_there(&ready).await;
    take_over(&gateway.http(), "r").await;
    end(child).await.with(121);
    assert!(told.is_file());
}

#[tokio::test]
async fn who_was_suspended_looks_at_the_clock_first() {
    let gateway = Dev::start().await;
    // Ctrl-Z and fg, in time.
    let folder = tempfile::tempdir().unwrap();
    let (ready, go) = (folder.path().join("ready"), folder.path().join("go"));
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do sleep 0.02; done; exit 6",
        ready.display(),
        go.display()
    );
    let child = fence(gateway.url(), &["run", "-r", "r", "-c", &script]).spawn().unwrap();
    until_there(&ready).await;
    let command = std::fs::read_to_string(&ready).unwrap().trim().to_owned();
    signal("TSTP", &[pid(&child)]);
    eventually("both stand still", async || {
        let state = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(") ").next()?.chars().next()
        };
        // A shell between vfork and exec waits for its child, which stands still: it is not called stopped itself.
        let stands = matches!(state(&command), Some('T' | 'D'));
        (stands && state(&pid(&child).to_string()) == Some('T')).then_some(())
    })
    .await;
    std::fs::write(&go, "").unwrap();
    signal("CONT", &[pid(&child)]);
    end(child).await.with(6);
    // Too late: it does not run beside its successor, and 121 is the answer.
    let ticking = Ticking::start(&gateway, "2s", &[]).await;
    signal("TSTP", &[pid(&ticking.fence)]);
    until_state(&gateway.http(), "r", "expired").await;
    let rival = take_over(&gateway.http(), "r").await;
    let taken = uptime();
    signal("CONT", &[pid(&ticking.fence)]);
    let last = ticking.last().unwrap();
    assert!(last <= taken, "it ticked after its lock was another's");
    end(ticking.fence).await.with(121);
    gateway.http().release(&rival).send().await.expect(204);
}

async fn until_there(path: &Path) {
    eventually("it is ready", async || path.is_file().then_some(())).await;
}

#[tokio::test]
async fn without_its_watcher_fence_ends_the_command_itself() {
    // The watcher is gone, and `fence` itself still ends the command.
    let gateway = Dev::start().await;
    let ticking = Ticking::start(&gateway, "2s", &["--grace", "0.5s"]).await;
    let watchers = fence_tests::process::children_of(pid(&ticking.fence));
    let watcher = watchers.into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("__watch")
    });
    signal("KILL", &[watcher.expect("it has a watcher")]);
    take_over(&gateway.http(), "r").await;
    end(ticking.fence).await.with(121);
}

#[tokio::test]
async fn who_ends_well_before_a_break_has_lost_nothing() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (ready, go) = (folder.path().join("ready"), folder.path().join("go"));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.02; done", ready.display(), go.display());
    let child = fence(gateway.url(), &["run", "-r", "r", "-c", &script]).spawn().unwrap();
    until_there(&ready).await;
    let breaking = json!({"reason": "a test", "after": "10m"});
    gateway.http().break_lock("r", &breaking).send().await.expect(200);
    std::fs::write(&go, "").unwrap();
    end(child).await.with(0);
}
