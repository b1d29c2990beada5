//! Locks that cannot be told are given back, and no reader that goes away is a panic. A run does not wait for itself.

use std::fs::File;
use std::process::Stdio;

use fence_tests::gateway::binary as gateway_binary;
use tokio::process::Command;

use super::{Dev, binary, call, end, fence};

/// A place where nothing can be written.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[tokio::test]
async fn a_lock_that_cannot_be_told_is_given_back() {
    let gateway = Dev::start().await;
    let url = gateway.url();
    let none_is_held = async || assert_eq!(call(url, &["locks", "-o", "name"]).await.out(), "");
    for more in [&[][..], &["--export"], &["--json"], &["-o", "name"]] {
        let words = [&["lock", "-r", "r", "--ttl", "24h"][..], more].concat();
        end(fence(url, &words).stdout(full()).spawn().unwrap()).await.with(1);
        none_is_held().await;
        end(fence(url, &words).stdout(unread()).spawn().unwrap()).await.with(141);
        none_is_held().await;
    }
    // The lock of a successor of whom nobody hears.
    let id = call(url, &["lock", "-r", "r", "-o", "name"]).await.with(0).out();
    let words = ["transfer", id.trim(), "--to", "you"];
    end(fence(url, &words).stdout(full()).spawn().unwrap()).await.with(1);
    none_is_held().await;
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_panic() {
    let gateway = Dev::start().await;
    call(gateway.url(), &["lock", "-r", "r"]).await.with(0);
    for words in [&["completions", "bash"][..], &["version"], &["ls"], &["locks", "--json"]] {
        let said = end(fence(gateway.url(), words).stdout(unread()).spawn().unwrap()).await;
        assert_eq!((said.code(), said.err().as_str()), (Some(141), ""), "{words:?}");
    }
    let mut command = Command::new(gateway_binary());
    command.arg("openapi").stdout(unread()).stderr(Stdio::piped());
    let said = end(command.spawn().unwrap()).await.with(0);
    assert_eq!(said.err(), "");
    // Neither where errors are read by nobody.
    let mut command = Command::new(gateway_binary());
    command.args(["serve", "--config", "/nonexistent"]).stderr(unread()).stdout(Stdio::piped());
    end(command.spawn().unwrap()).await.with(2);
    let words = ["break", "r", "--reason", "a test"];
    end(fence(gateway.url(), &words).stderr(unread()).spawn().unwrap()).await.with(2);
}

#[tokio::test]
async fn a_run_does_not_wait_for_itself() {
    let gateway = Dev::start().await;
    let nested = |inner: &str| {
        let inner = inner.replace("fence ", &format!("{} ", binary().display()));
        ["run", "-r", "a", "-r", "b", "-c"].map(str::to_owned).into_iter().chain([inner])
    };
    let run = async |inner: &str| {
        let words: Vec<_> = nested(inner).collect();
        call(gateway.url(), &words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    for (inner, code) in [
        ("fence run -r b -- true", 125),
        ("fence elect a -- true", 125),
        ("fence run -r c -c 'fence run -r a -- true'", 125),
        ("fence lock -r a --wait 1h", 2),
        ("echo x | fence put a k --lock --wait 1h", 2),
    ] {
        let said = run(inner).await.with(code);
        assert!(said.err().contains("would deadlock"), "{inner}: {said:?}");
    }
    run("fence run -r c -- true").await.with(0);
    // What has outlived its run waits for it no more.
    let run_of = call(gateway.url(), &["run", "-r", "a", "-c", "echo $FENCE_RUN"]).await.with(0);
    let mut command = fence(gateway.url(), &["run", "-r", "a", "--", "true"]);
    end(command.env("FENCE_RUN", run_of.out().trim()).spawn().unwrap()).await.with(0);
}
