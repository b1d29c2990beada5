//! In line for the lock.

use fence_tests::process::signal;

use super::super::rust_client::until_in_line;
use super::{Dev, call, end, fence, pid};

#[tokio::test]
async fn a_signal_leaves_the_line() {
    let gateway = Dev::start().await;
    let http = gateway.http();
    let lock = gateway.client().lock("r").acquire().await.unwrap();
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3)] {
        let child = fence(gateway.url(), &["run", "-r", "r", "--", "true"]).spawn().unwrap();
        until_in_line(&http, "r", 1).await;
        signal(name, &[pid(&child)]);
        let said = end(child).await;
        assert_eq!(said.signal(), Some(number), "{name}: {said:?}");
        until_in_line(&http, "r", 0).await;
    }
    lock.release().await;
}

#[tokio::test]
async fn what_is_held_is_waited_for_or_not() {
    let gateway = Dev::start().await;
    let lock = gateway.client().lock("r").owner("worker-b").acquire().await.unwrap();
    for words in [vec!["-n"], vec!["-w", "0"], vec!["-w", "0.2"], vec!["-w", "200ms"]] {
        let words = [vec!["run", "-r", "r"], words, vec!["--", "true"]].concat();
        let said = call(gateway.url(), &words).await.with(75);
        assert!(said.err().contains("worker-b"), "{words:?}: {said:?}");
    }
    call(gateway.url(), &["run", "-r", "r", "-n", "-E", "9", "--", "true"]).await.with(9);
    let child =
        fence(gateway.url(), &["run", "-r", "r", "-w", "60", "-c", "echo had"]).spawn().unwrap();
    until_in_line(&gateway.http(), "r", 1).await;
    lock.release().await;
    assert_eq!(end(child).await.with(0).out(), "had\n");
}

#[tokio::test]
async fn who_has_ended_gets_back_in_line_if_wished() {
    let gateway = Dev::start().await;
    let words = [
        "run",
        "-r",
        "r",
        "--rejoin=10ms",
        "-c",
        "echo $FENCE_TOKEN; test $FENCE_TOKEN -gt 2 && kill -TERM $PPID; sleep 0.01",
    ];
    let said = end(fence(gateway.url(), &words).spawn().unwrap()).await;
    assert_eq!(said.signal(), Some(15), "{said:?}");
    assert!(said.out().starts_with("1\n2\n3\n"), "{said:?}");
}

#[tokio::test]
async fn what_is_frozen_is_a_conflict() {
    let gateway = Dev::start().await;
    gateway.client().lock("r").acquire().await.unwrap().release().await;
    gateway.client().freeze("r", "a test").await.unwrap();
    call(gateway.url(), &["run", "-r", "r", "-n", "--", "true"]).await.with(75);
    gateway.client().unfreeze("r", "a test").await.unwrap();
}

#[tokio::test]
async fn a_program_that_was_replaced_still_runs_its_command() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("fence");
    std::fs::copy(super::binary(), &copy).unwrap();
    let lock = gateway.client().lock("r").acquire().await.unwrap();
    let mut command = tokio::process::Command::new(&copy);
    command.args(["run", "-r", "r", "-c", "echo ran"]).env("FENCE_URL", gateway.url());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let child = command.kill_on_drop(true).spawn().unwrap();
    until_in_line(&gateway.http(), "r", 1).await;
    std::fs::remove_file(&copy).unwrap();
    lock.release().await;
    assert_eq!(end(child).await.with(0).out(), "ran\n");
}
