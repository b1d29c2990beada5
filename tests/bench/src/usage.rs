//! What processes take of the machine, read from `/proc`; and how many files they may open.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use fence_tests::process::children_of;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Processor time of these processes and their children so far, in seconds.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    seconds(family(pids).into_iter().map(ticks).sum())
}

/// Processor time of this process so far, and of its children that have ended, in seconds.
pub fn own_cpu_seconds() -> f64 {
    seconds(ticks(std::process::id()))
}

/// Memory of these processes and their children, in MiB. What several of them share counts once, where the
/// system tells.
pub fn memory_mib(pids: &[u32]) -> f64 {
    let kib = family(pids).into_iter().map(|pid| {
        kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
            .or_else(|| kib(&format!("/proc/{pid}/status"), "VmRSS:"))
            .unwrap_or_default()
    });
    kib.sum::<f64>() / 1024.0
}

/// What a process has resident now, in MiB.
pub fn resident_mib(pid: u32) -> f64 {
    kib(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or_default() / 1024.0
}

/// The most that a process had resident so far, in MiB.
pub fn peak_mib(pid: u32) -> f64 {
    kib(&format!("/proc/{pid}/status"), "VmHWM:").unwrap_or_default() / 1024.0
}

/// Lets this process, and those that it starts, open so many files at a time.
///
/// # Errors
/// The system does not allow it.
pub fn allow_files(count: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    // Only a privileged process may raise the upper limit.
    let raised = Rlimit { current: Some(count), maximum: Some(most.max(count)) };
    let set = setrlimit(Resource::Nofile, raised);
    ensure!(
        set.is_ok() || most >= count,
        "{count} files have to be open at a time, and the limit is {most}: raise it with ulimit -n, or ask \
         for fewer with --waiters"
    );
    set.context("raising the limit of open files")
}

fn family(pids: &[u32]) -> Vec<u32> {
    pids.iter().flat_map(|pid| children_of(*pid).into_iter().chain([*pid])).collect()
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Own time, and that of children that have ended.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `pid (name) state ppid ...`, and the name may hold spaces and brackets.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields = rest.split(' ').skip(11).take(4);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn kib(file: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}
