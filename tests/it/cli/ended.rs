//! What is left of a command when it has ended, or ran for too long.

use std::path::Path;

use fence_tests::process::eventually;

use super::{Dev, call};

/// Whether a process is there and is no zombie.
pub fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Waits until a process has ended.
pub async fn until_gone(pid: &str) {
    eventually(&format!("{pid} has ended"), async || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn what_is_left_of_its_group_ends_with_it() {
    let gateway = Dev::start().await;
    let script = "sleep 1000 > /dev/null 2>&1 & echo $!";
    let said = call(gateway.url(), &["run", "-r", "r", "-c", script]).await.with(0);
    assert!(!is_alive(said.out().trim()), "it outlived the lock");
    // One that does not listen.
    let deaf = "(trap '' TERM; while :; do sleep 1; done) > /dev/null 2>&1 & echo $!";
    let words = ["run", "-r", "r", "--ttl", "3s", "--grace", "0.2", "-c", deaf];
    let said = call(gateway.url(), &words).await.with(0);
    assert!(!is_alive(said.out().trim()), "it outlived the lock");
    // Unless it may stay.
    let said = call(gateway.url(), &["run", "-r", "r", "--leave-children", "-c", script]).await;
    let pid = said.with(0).out().trim().to_owned();
    assert!(is_alive(&pid));
    fence_tests::process::signal("KILL", &[pid.parse().unwrap()]);
}

#[tokio::test]
async fn one_that_runs_for_too_long_is_ended() {
    let gateway = Dev::start().await;
    let words = ["run", "-r", "r", "--max-runtime", "0.3", "--", "sleep", "1000"];
    let said = call(gateway.url(), &words).await.with(124);
    assert!(said.err().contains("--max-runtime"), "{said:?}");
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ended");
    let script = format!("trap 'touch {}; exit 0' TERM; sleep 1000 & wait", mark.display());
    let words = ["run", "-r", "r", "--max-runtime", "0.3", "-c", &script];
    call(gateway.url(), &words).await.with(124);
    assert!(Path::new(&mark).is_file(), "it could end in its own way");
}
