//! The processes of a command wherever they went: by a mark in their environment, which children inherit.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable that has the mark: the runs that a process is part of, the outermost first.
pub const VARIABLE: &str = "FENCE_RUN";

/// What stands between two runs.
const BETWEEN: char = ',';
/// No environment is larger: a quarter of the stack at most, which is 8 MiB by default.
const ENVIRONMENT_MAX: u64 = 4 << 20;

/// Which of the processes of a run are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Its own. Those of a `fence run` within it hear from that one.
    Own,
    /// All, also those of runs within it.
    All,
}

/// The value for a run, within those that this process is part of.
pub fn value(run: &str) -> String {
    match std::env::var(VARIABLE) {
        Ok(outer) if !outer.is_empty() => format!("{outer}{BETWEEN}{run}"),
        _ => run.to_owned(),
    }
}

/// The runs that this process is part of, the outermost first: each is named by its lock.
pub fn runs() -> Vec<String> {
    let all = std::env::var(VARIABLE).unwrap_or_default();
    all.split(BETWEEN).filter(|run| !run.is_empty()).map(str::to_owned).collect()
}

/// Sends a signal to those processes of a run that are chosen.
pub fn send(run: &str, signal: Signal, is_chosen: impl Fn(Pid) -> bool) {
    for (_, process) in found(run, Reach::Own).filter(|(pid, _)| is_chosen(*pid)) {
        // It may have ended meanwhile.
        let _sent = pidfd_send_signal(process, signal);
    }
}

/// Kills all processes of a run, also those that are born meanwhile.
pub fn kill(run: &str) {
    let mut killed = HashSet::new();
    loop {
        let before = killed.len();
        for (pid, process) in found(run, Reach::All) {
            if pidfd_send_signal(&process, Signal::KILL).is_ok() {
                killed.insert(pid);
            }
        }
        if killed.len() == before {
            return;
        }
    }
}

/// Whether a process of the run is there.
pub fn are_there(run: &str) -> bool {
    found(run, Reach::Own).next().is_some()
}

/// The processes of a run that may be looked at, each with what names it for good.
fn found(run: &str, reach: Reach) -> impl Iterator<Item = (Pid, OwnedFd)> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?));
    pids.filter(move |pid| is_marked(*pid, run, reach)).filter_map(move |pid| {
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Another process may have got its number meanwhile.
        is_marked(pid, run, reach).then_some((pid, process))
    })
}

fn is_marked(pid: Pid, run: &str, reach: Reach) -> bool {
    let mut environment = Vec::new();
    let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
    let read =
        File::open(path).and_then(|file| file.take(ENVIRONMENT_MAX).read_to_end(&mut environment));
    read.is_ok() && has(&environment, run, reach)
}

fn has(environment: &[u8], run: &str, reach: Reach) -> bool {
    let value = environment.split(|byte| *byte == 0).find_map(|variable| {
        std::str::from_utf8(variable).ok()?.strip_prefix(VARIABLE)?.strip_prefix('=')
    });
    value.is_some_and(|runs| match reach {
        Reach::Own => runs.rsplit(BETWEEN).next() == Some(run),
        Reach::All => runs.split(BETWEEN).any(|it| it == run),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_within_another_is_not_its_own() {
        let is = |text: &str, reach| has(text.as_bytes(), "b", reach);
        assert!(is("A=1\0FENCE_RUN=b\0C=2\0", Reach::Own) && is("FENCE_RUN=a,b", Reach::Own));
        assert!(!is("FENCE_RUN=a,b,c\0", Reach::Own) && is("FENCE_RUN=a,b,c\0", Reach::All));
        assert!(
            !is("FENCE_RUN=ab\0", Reach::All) && !is("X=1\0", Reach::All) && !is("", Reach::All)
        );
        assert!(!is("XFENCE_RUN=b\0FENCE_RUNS=b\0", Reach::All));
    }
}
