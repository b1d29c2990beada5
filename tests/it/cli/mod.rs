//! The command line `fence` on real gateways.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests take their own time and start their own tasks"
)]

mod access;
mod contact;
mod credentials;
mod data;
mod ended;
mod flock;
mod jobs;
mod json;
mod killed;
mod losing;
mod many_runs;
mod orphans;
mod pasted;
mod reaching;
mod recipes;
mod running;
mod s3;
mod seeing;
mod shells;
mod shown;
mod trees;
mod untold;
mod waiting;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use fence_tests::process::{DEADLINE, free_port, loopback};
use fence_tests::s3::Key;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::rust_client::Dev;
use crate::setup::SetUp;

/// The built `fence`, beside the gateway.
pub fn binary() -> PathBuf {
    let fence = fence_tests::gateway::binary().with_file_name("fence");
    assert!(fence.is_file(), "fence is missing: build it with cargo build -p fencegate-cli");
    fence
}

/// A call of `fence` for this gateway, with nothing else in its environment that it would read.
pub fn fence(url: &str, words: &[&str]) -> Command {
    // Whoever runs the tests in the background may have signals ignored, which children inherit.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCE_") || name == "TRACEPARENT" {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("FENCE_URL", url).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// The same call with these words on a terminal, which script(1) makes.
fn on_a_terminal(url: &str, words: &str) -> Command {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} {words}", binary().display()), "/dev/null"]);
    command.env("FENCE_URL", url).env("XDG_CONFIG_HOME", "/nonexistent");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.kill_on_drop(true);
    command
}

/// How a call ended, and what it said.
#[derive(Debug)]
struct Said {
    output: Output,
}

impl Said {
    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.output.status)
    }

    fn out(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It ended with this code.
    #[track_caller]
    fn with(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{self:?}");
        self
    }
}

/// Waits for the end of a call.
async fn end(child: Child) -> Said {
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
    Said { output: output.expect("it ends").unwrap() }
}

/// A call from beginning to end.
async fn call(url: &str, words: &[&str]) -> Said {
    end(fence(url, words).spawn().unwrap()).await
}

/// The same with something on its standard input.
async fn call_with(url: &str, words: &[&str], input: &[u8]) -> Said {
    let mut child = fence(url, words).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let written = async move {
        // One that ends without reading it all has its reasons.
        let _unread = stdin.write_all(input).await;
    };
    tokio::join!(end(child), written).0
}

fn pid(child: &Child) -> u32 {
    child.id().unwrap()
}

/// Starts a gateway that speaks S3, with a lock on the bucket `lake` and the key of that lock.
async fn lake(setup: SetUp) -> (Gateway, SocketAddr, Lock, Key) {
    let s3 = loopback(free_port());
    let settings = setup.settings().await.flag("--s3-listen", &s3.to_string());
    let gateway = settings.start().await;
    let client = gateway.client();
    client.call(reqwest::Method::PUT, "/buckets/lake").send().await.expect(201);
    let lock = client.acquire("lake", "10m").await;
    let key = Key::of(&lock);
    (gateway, s3, lock, key)
}
