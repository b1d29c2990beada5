//! Further `fence job run` of the same words, each a process of its own that ends with this one.

use std::ffi::OsString;
use std::process::Stdio;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::ending::End;
use crate::run::exec;

/// One that runs.
pub struct Process {
    child: Child,
    pid: Option<Pid>,
}

impl Process {
    /// Starts it, with these words behind `fence`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[OsString]) -> anyhow::Result<Self> {
        // This very program, also if its file was replaced since.
        let this = std::path::Path::new("/proc/self/exe");
        let all: Vec<OsString> =
            std::iter::once("fence".into()).chain(words.iter().cloned()).collect();
        let mut command = Command::from(exec::command(this, &all));
        // A group of its own: what a terminal sends to all, it would hear twice.
        command.process_group(0).stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().context("cannot start another fence")?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(Self { child, pid })
    }

    /// Hands a signal on to it.
    pub fn send(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It may have ended meanwhile.
            let _sent = kill_process(pid, signal);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub async fn end(&mut self) -> anyhow::Result<End> {
        let status = self.child.wait().await.context("cannot wait for another fence")?;
        self.pid = None;
        Ok(End::of(status))
    }
}

/// The words of this call, with more before the command.
pub fn words_with(more: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(at..at, more.iter().map(OsString::from));
    words
}
