//! `fence` itself is killed.

use fence_tests::process::signal;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::ended::until_gone;
use super::{Dev, fence, pid};

#[tokio::test]
async fn a_killed_fence_leaves_no_worker_behind() {
    let gateway = Dev::start().await;
    // Children and grandchildren, and one that does not listen to TERM.
    let script = "sleep 1000 & echo $!; sh -c 'sleep 1000 & echo $!; wait' & echo $!; \
                  sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & echo $$; wait";
    let words = ["run", "-r", "r", "--ttl", "3s", "--grace", "0.3", "-c", script];
    let mut child = fence(gateway.url(), &words).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut pids = Vec::new();
    for _ in 0..5 {
        pids.push(lines.next_line().await.unwrap().unwrap());
    }
    signal("KILL", &[pid(&child)]);
    for pid in pids {
        until_gone(&pid).await;
    }
}

#[tokio::test]
async fn with_its_watcher_killed_too_the_command_ends_still() {
    let gateway = Dev::start().await;
    let mut child = fence(gateway.url(), &["run", "-r", "r", "-c", "echo $$; exec sleep 1000"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let command = lines.next_line().await.unwrap().unwrap();
    let all = fence_tests::process::children_of(pid(&child));
    let watchers = all.into_iter().filter(|pid| pid.to_string() != command);
    let both: Vec<u32> = watchers.chain([pid(&child)]).collect();
    assert_eq!(both.len(), 2);
    signal("KILL", &both);
    until_gone(&command).await;
}

#[tokio::test]
async fn a_watcher_does_not_hear_what_is_sent_to_all() {
    let gateway = Dev::start().await;
    let script = "sleep 1000 & echo $!; wait";
    let mut child =
        fence(gateway.url(), &["run", "-r", "r", "--grace", "0.2", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let grandchild = lines.next_line().await.unwrap().unwrap();
    let all = fence_tests::process::children_of(pid(&child));
    let is_watcher = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("__watch")
    };
    let watcher = all.into_iter().find(is_watcher).unwrap();
    signal("HUP", &[watcher]);
    signal("TERM", &[watcher]);
    signal("KILL", &[pid(&child)]);
    until_gone(&grandchild).await;
}
