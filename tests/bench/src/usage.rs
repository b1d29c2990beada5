//! What processes take of the machine, read from `/proc`.

use std::fs;

use fence_tests::process::children_of;

/// Processor time of these processes and their children so far, in seconds.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    let ticks: u64 =
        pids.iter().flat_map(|pid| children_of(*pid).into_iter().chain([*pid])).map(ticks).sum();
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

/// The most that a process had resident so far, in MiB.
pub fn peak_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok()
    });
    kib.unwrap_or_default() / 1024.0
}
