//! What processes take of the machine, read from `/proc`; and how many files they may open.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Processor time that processes and their children have taken so far, to the microsecond: the ticks that `/proc` has for
/// a whole process are too coarse where less than a second is measured.
#[derive(Debug, Clone, Default)]
pub struct CpuTime {
    /// In nanoseconds, by process and task.
    tasks: BTreeMap<(u32, u32), u64>,
    /// Of the children that have ended, in nanoseconds.
    ended: u64,
}

impl CpuTime {
    /// Reads that of these processes and their children.
    pub fn of(pids: &[u32]) -> Self {
        let mut read = Self::default();
        for pid in family(pids) {
            read.ended += nanos_of_ended(pid);
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let ran = fs::read_to_string(task.path().join("schedstat")).ok();
                let ran = ran.and_then(|text| text.split(' ').next()?.parse().ok());
                let id = task.file_name().to_string_lossy().parse().ok();
                read.tasks.extend(id.zip(ran).map(|(task, ran)| ((pid, task), ran)));
            }
        }
        read
    }

    /// Whether the system tells it of these processes: a kernel may be built without.
    pub fn is_told(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The part of one process, without its children.
    pub fn only(&self, pid: u32) -> Self {
        let tasks = self.tasks.range((pid, 0)..=(pid, u32::MAX));
        Self { tasks: tasks.map(|(key, ran)| (*key, *ran)).collect(), ended: 0 }
    }

    /// Seconds taken since an earlier reading. A child that ended in between counts with what it took since then; a task
    /// of a process that goes on, and ended in between, does not: threads end after they have been idle for long.
    pub fn seconds_since(&self, before: &Self) -> f64 {
        let earlier = |key| before.tasks.get(key).copied().unwrap_or_default();
        let ran = self.tasks.iter().map(|(key, ran)| ran.saturating_sub(earlier(key)));
        let is_there = |pid: u32| self.tasks.range((pid, 0)..=(pid, u32::MAX)).next().is_some();
        let gone = before.tasks.iter().filter(|((pid, _), _)| !is_there(*pid));
        let of_gone: u64 = gone.map(|(_, ran)| ran).sum();
        let ended = self.ended.saturating_sub(before.ended).saturating_sub(of_gone);
        (ran.sum::<u64>() + ended) as f64 / 1e9
    }
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

/// These processes and their children, by one look at all that run.
fn family(pids: &[u32]) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|pid| pids.contains(pid) || pids.contains(&(fields(*pid, 1, 1) as u32))).collect()
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Own time, and that of children that have ended.
fn ticks(pid: u32) -> u64 {
    fields(pid, 11, 4)
}

fn nanos_of_ended(pid: u32) -> u64 {
    (seconds(fields(pid, 13, 2)) * 1e9) as u64
}

/// The sum of so many fields of the `stat` of a process, from this one after its name on: its state, its parent ...
fn fields(pid: u32, first: usize, count: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets, and may hold spaces and brackets.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields = rest.split(' ').skip(first).take(count);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn kib(file: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tasks: &[((u32, u32), u64)], ended: u64) -> CpuTime {
        let tasks = tasks.iter().map(|(key, millis)| (*key, millis * 1_000_000)).collect();
        CpuTime { tasks, ended: ended * 1_000_000 }
    }

    #[test]
    fn tasks_count_with_what_they_took_since() {
        let before = read(&[((1, 1), 100), ((1, 2), 50)], 0);
        let after = read(&[((1, 1), 130), ((1, 2), 50), ((1, 3), 5), ((7, 7), 15)], 0);
        assert_eq!(after.seconds_since(&before), 0.05);
    }

    #[test]
    fn a_child_that_ended_counts_with_what_it_took_since() {
        let before = read(&[((1, 1), 100), ((2, 2), 400)], 0);
        // The child took 30 ms more, and one that began and ended in between 20 ms.
        let after = read(&[((1, 1), 110)], 450);
        assert_eq!(after.seconds_since(&before), 0.06);
    }

    #[test]
    fn a_thread_that_ended_takes_nothing_away() {
        let before = read(&[((1, 1), 100), ((1, 2), 900)], 0);
        let after = read(&[((1, 1), 110)], 0);
        assert_eq!(after.seconds_since(&before), 0.01);
    }

    #[test]
    fn this_process_is_read_task_by_task() {
        let pid = std::process::id();
        let read = CpuTime::of(&[pid]);
        assert!(read.tasks.range((pid, 0)..=(pid, u32::MAX)).any(|(_, ran)| *ran > 0), "{read:?}");
    }
}
