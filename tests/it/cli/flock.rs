//! The same scripts under flock(1) and under `fence run`: where both apply, both do the same.

use std::process::Stdio;

use tokio::process::Command;

use super::{Dev, end, fence};

async fn under_flock(words: &[&str], script: &str) -> (Option<i32>, String, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("flock");
    command.args(words).arg(file.path()).args(["-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = end(command.kill_on_drop(true).spawn().unwrap()).await;
    (said.code(), said.out(), said.err())
}

#[tokio::test]
async fn scripts_behave_as_under_flock() {
    let gateway = Dev::start().await;
    for (words, script) in [
        (vec![], "echo out; echo err >&2"),
        (vec![], "exit 42"),
        (vec![], "read line || echo end of input"),
        (vec!["-n"], "echo $((6 * 7))"),
        (vec!["-w", "1"], "printf 'no newline'"),
        (vec!["-E", "9"], "exit 8"),
        (vec![], "cd /; pwd; umask"),
        (vec![], "false; true"),
    ] {
        let flock = under_flock(&words, script).await;
        let all = [vec!["run", "-r", "r"], words, vec!["-c", script]].concat();
        let said = end(fence(gateway.url(), &all).spawn().unwrap()).await;
        assert_eq!((said.code(), said.out(), said.err()), flock, "{script}");
    }
}

#[tokio::test]
async fn what_is_held_is_a_conflict_as_with_flock() {
    let gateway = Dev::start().await;
    let lock = gateway.client().lock("r").acquire().await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let mut holder = Command::new("flock");
    let mut holder = holder.args(["-F", path, "sleep", "1000"]).kill_on_drop(true).spawn().unwrap();
    let held = async || {
        let status = Command::new("flock").args(["-n", path, "true"]).status().await.unwrap();
        (!status.success()).then_some(())
    };
    fence_tests::process::eventually("flock holds it", held).await;
    for words in [["-n", "-E", "7"], ["-w0", "-E", "7"]] {
        let flock = Command::new("flock").args(words).args([path, "true"]).status().await.unwrap();
        let all = [&["run", "-r", "r"][..], &words, &["--", "true"]].concat();
        let said = end(fence(gateway.url(), &all).spawn().unwrap()).await;
        assert_eq!((said.code(), flock.code()), (Some(7), Some(7)), "{words:?}");
    }
    holder.kill().await.unwrap();
    lock.release().await;
}
