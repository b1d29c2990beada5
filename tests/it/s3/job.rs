//! A job: a process with a client of S3, which does what it is asked, and can be stopped in its tracks.

use std::process::Stdio;
use std::time::Duration;

use fence_tests::process::{DEADLINE, children_of, signal};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::site::equip;

/// How long the most patient of the tools goes on asking, and a half of that.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(180);

/// It ends with this.
pub struct Job {
    child: Child,
    asked: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
    _home: TempDir,
}

/// How a call ended.
#[derive(Debug)]
pub struct Told(Value);

impl Job {
    /// Starts a driver, or something that runs one, with these variables.
    pub fn start(mut command: Command, variables: &[(&str, String)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        equip(&mut command, home.path());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let (asked, told) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, asked, told: BufReader::new(told).lines(), _home: home }
    }

    /// Has it do something.
    pub async fn ask(&mut self, call: Value) -> Told {
        self.asked.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        let line = tokio::time::timeout(GIVES_UP_WITHIN, self.told.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{call}: no answer"));
        let line = line.unwrap().unwrap_or_else(|| panic!("{call}: it has ended"));
        Told(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{call}: {line}")))
    }

    /// Stops all of its processes, whatever they are about to do.
    pub fn pause(&self) {
        signal("STOP", &self.processes());
    }

    pub fn resume(&self) {
        signal("CONT", &self.processes());
    }

    fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.id().unwrap()];
        let mut at = 0;
        while let Some(pid) = all.get(at).copied() {
            all.extend(children_of(pid));
            at += 1;
        }
        all
    }

    /// Gives it nothing more to do; its exit code.
    pub async fn end(self) -> i32 {
        let Self { mut child, asked, .. } = self;
        drop(asked);
        let ended = tokio::time::timeout(DEADLINE, child.wait()).await;
        ended.expect("it ends").unwrap().code().expect("it ends by itself")
    }
}

impl Told {
    /// What it was told, where all went well.
    #[track_caller]
    pub fn ok(self) -> Value {
        self.0.get("told").unwrap_or_else(|| panic!("{}", self.0)).clone()
    }

    /// The same as a text.
    #[track_caller]
    pub fn text(self) -> String {
        let told = self.ok();
        told.as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
    }

    /// What it says of a failure.
    #[track_caller]
    pub fn failed(self) -> String {
        let failed = self.0.get("failed").and_then(Value::as_str);
        failed.unwrap_or_else(|| panic!("it did not fail: {}", self.0)).to_owned()
    }
}
