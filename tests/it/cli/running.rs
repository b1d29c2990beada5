//! What a command sees of `fence run`, and what its caller sees of the command.

use fence_tests::client::resource_path;
use fence_tests::process::eventually;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Dev, call, call_with, end, fence, on_a_terminal};

#[tokio::test]
async fn a_command_is_told_its_lock_and_writes_under_it() {
    let gateway = Dev::start().await;
    let script = "env | grep ^FENCE_ | sort; \"$FENCE\" put r k --quiet < /dev/null";
    let mut command =
        fence(gateway.url(), &["run", "-r", "r", "-r", "a", "--owner", "me", "-c", script]);
    let said = end(command.env("FENCE", super::binary()).spawn().unwrap()).await.with(0);
    let told = said.out();
    let names: Vec<_> = told.lines().filter_map(|line| line.split_once('=')).collect();
    let value = |name: &str| names.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
    assert_eq!(value("FENCE_RUN"), value("FENCE_LOCK_ID"), "the run is named");
    assert_eq!(value("FENCE_URL"), Some(gateway.url()));
    assert_eq!(value("FENCE_RESOURCE"), Some("r"), "the first as it was named");
    assert_eq!(value("FENCE_RESOURCES"), Some("a r"));
    assert_eq!(value("FENCE_LOCK_OWNER"), Some("me"));
    assert_eq!(value("FENCE_OWNER"), None, "a setting, not an answer");
    assert!(value("FENCE_TOKEN").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(value("FENCE_LOCK_ID").unwrap().len(), 36);
    assert_eq!(said.err(), "");
    assert_eq!(super::super::rust_client::text(&gateway.http(), "r", "k").await, "");
}

#[tokio::test]
async fn its_end_is_that_of_the_command() {
    let gateway = Dev::start().await;
    for code in [0, 1, 3, 77, 255] {
        let said = call(gateway.url(), &["run", "-r", "r", "-c", &format!("exit {code}")]).await;
        assert_eq!(said.with(code).err(), "", "{code}");
    }
    for (name, number) in
        [("KILL", 9), ("TERM", 15), ("INT", 2), ("HUP", 1), ("SEGV", 11), ("USR1", 10)]
    {
        let said =
            call(gateway.url(), &["run", "-r", "r", "-c", &format!("kill -{name} $$")]).await;
        assert_eq!(said.signal(), Some(number), "{name}: {said:?}");
    }
    // The lock is free again after each of them.
    call(gateway.url(), &["run", "-n", "-r", "r", "--", "true"]).await.with(0);
}

#[tokio::test]
async fn nobody_stands_in_line_for_what_cannot_be_run() {
    let gateway = Dev::start().await;
    let lock = gateway.client().lock("r").acquire().await.unwrap();
    let said = call(gateway.url(), &["run", "-r", "r", "--", "no-such-program"]).await.with(127);
    assert!(said.err().contains("cannot run no-such-program"), "{said:?}");
    for path in ["/etc/passwd", "/etc"] {
        call(gateway.url(), &["run", "-r", "r", "--", path]).await.with(126);
    }
    call(gateway.url(), &["run", "-r", "r", "--", "/no/such"]).await.with(127);
    lock.release().await;
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_sent() {
    // No gateway is there to refuse it.
    let url = "http://127.0.0.1:1";
    for (words, why) in [
        (vec!["-r", "no/slash"], "no slash"),
        (vec!["-r", "r", "--ttl", "10ms"], "1s"),
        (vec!["-r", "r", "--ttl", "3d"], "24h"),
        (vec!["-r", "r", "--ttl", "9s", "--grace", "4s"], "a third of --ttl"),
        (vec!["-r", "r", "--max-hold", "400d"], "30d"),
        (vec!["-r", "r", "--metadata", "x"], "KEY=VALUE"),
        (vec!["-r", "r", "--on-loss", "signal:NIX"], "USR1"),
        (vec!["-r", "r", "-n", "-w", "3"], "cannot be used with"),
        (vec![], "--resource"),
    ] {
        let words = [vec!["run", "--timeout", "1s"], words, vec!["--", "true"]].concat();
        let said = call(url, &words).await.with(125);
        assert!(said.err().contains(why), "{words:?}: {said:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_no_failure_of_the_command() {
    let words = ["run", "-r", "r", "--timeout", "300ms", "--", "true"];
    let said = call("http://127.0.0.1:1", &words).await.with(125);
    assert!(said.err().contains("fence: "), "{said:?}");
}

#[tokio::test]
async fn input_and_output_go_straight_through() {
    let gateway = Dev::start().await;
    let large: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let said = call_with(gateway.url(), &["run", "-r", "r", "--", "cat"], &large).await.with(0);
    assert!(said.output.stdout == large, "{} bytes", said.output.stdout.len());
    let script =
        "head -c 1000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' y >&2";
    let said = call(gateway.url(), &["run", "-r", "r", "-c", script]).await.with(0);
    assert_eq!((said.output.stdout.len(), said.output.stderr.len()), (1_000_000, 1_000_000));
    // Without an input of its own.
    let said = call_with(gateway.url(), &["run", "-r", "r", "--no-stdin", "--", "cat"], b"x").await;
    assert_eq!(said.with(0).out(), "");
}

#[tokio::test]
async fn output_is_kept_or_shown_later() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let path = file.to_str().unwrap();
    let words = ["run", "-r", "r", "--tee", path, "-c", "echo one; echo two >&2"];
    let said = call(gateway.url(), &words).await.with(0);
    assert_eq!((said.out().as_str(), said.err().as_str()), ("one\n", "two\n"));
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept == "one\ntwo\n" || kept == "two\none\n", "{kept:?}");
    let quiet = |code: i32| format!("echo one; echo two >&2; exit {code}");
    let run = async |script: String| {
        call(gateway.url(), &["run", "-r", "r", "--quiet-unless-failed", "-c", &script]).await
    };
    let said = run(quiet(0)).await.with(0);
    assert_eq!((said.out().as_str(), said.err().as_str()), ("", ""));
    let said = run(quiet(4)).await.with(4);
    assert_eq!((said.out().as_str(), said.err().as_str()), ("one\n", "two\n"));
}

#[tokio::test]
async fn signals_reach_the_command_and_all_of_its_group() {
    let gateway = Dev::start().await;
    let script = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup; exit 9' HUP; echo ready; \
                  while :; do sleep 0.02; done";
    let mut child = fence(gateway.url(), &["run", "-r", "r", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    assert_eq!(next().await, "ready");
    for (name, said) in [("USR1", "usr1"), ("USR2", "usr2"), ("HUP", "hup")] {
        fence_tests::process::signal(name, &[super::pid(&child)]);
        assert_eq!(next().await, said);
    }
    end(child).await.with(9);
}

#[tokio::test]
async fn a_second_term_is_kill() {
    let gateway = Dev::start().await;
    let script = "trap 'echo no' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = fence(gateway.url(), &["run", "-r", "r", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "ready");
    fence_tests::process::signal("TERM", &[super::pid(&child)]);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "no");
    fence_tests::process::signal("TERM", &[super::pid(&child)]);
    assert_eq!(end(child).await.signal(), Some(9));
}

#[tokio::test]
async fn on_a_terminal_the_command_reads_from_it() {
    let gateway = Dev::start().await;
    let words = "run -r r -c 'read line; echo got $line; test -t 0 && echo terminal'";
    let mut child = on_a_terminal(gateway.url(), words).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"hello\n").await.unwrap();
    let said = end(child).await;
    assert!(said.out().contains("got hello") && said.out().contains("terminal"), "{said:?}");
    drop(input);
}

#[tokio::test]
async fn a_reader_that_does_not_read_costs_no_lock() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let script = "head -c 3000000 /dev/zero; sleep 1";
    let words = ["run", "-r", "r", "--ttl", "8s", "--tee", file.to_str().unwrap(), "-c", script];
    let child = fence(gateway.url(), &words).spawn().unwrap();
    // Longer than the lock lasts without renewal, and the pipe is full.
    eventually("it is held for longer than its ttl", async || {
        let seen = gateway.http().get(resource_path("r")).try_send().await.ok()?;
        (seen.json()["age_ms"].as_i64() > Some(9_000)).then_some(())
    })
    .await;
    assert_eq!(end(child).await.with(0).output.stdout.len(), 3_000_000);
}

#[tokio::test]
async fn who_only_waits_leaves_the_copy_of_the_other_alone() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    std::fs::write(&file, "of the one that runs").unwrap();
    let lock = gateway.client().lock("r").acquire().await.unwrap();
    let words = ["run", "-r", "r", "-n", "--tee", file.to_str().unwrap(), "-c", "echo new"];
    call(gateway.url(), &words).await.with(75);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of the one that runs");
    lock.release().await;
    call(gateway.url(), &words).await.with(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
}

#[tokio::test]
async fn the_command_has_the_credential_that_is_in_force() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret").unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, own).unwrap();
    let path = file.to_str().unwrap();
    let words =
        ["run", "-r", "r", "--auth-token-file", path, "-c", "env | grep ^FENCE_AUTH | sort"];
    let mut command = fence(gateway.url(), &words);
    let said = end(command.env("FENCE_AUTH_TOKEN", "another").spawn().unwrap()).await.with(0);
    assert_eq!(said.out(), format!("FENCE_AUTH_TOKEN_FILE={path}\n"));
    let mut both = fence(gateway.url(), &["status"]);
    both.env("FENCE_AUTH_TOKEN", "a").env("FENCE_AUTH_TOKEN_FILE", path);
    assert!(end(both.spawn().unwrap()).await.with(2).err().contains("one of them"));
}
