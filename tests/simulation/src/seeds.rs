//! Many seeds: on several threads, with progress, up to the first few that fail.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fence_core::mutants::Mutant;
use fence_history::{Checker, History, Report, check};

use crate::run::{Run, THREAD, run};

/// A seed on which something that must hold did not.
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What the checkers say.
    pub report: Report,
    /// What no history shows.
    pub failures: Vec<String>,
    /// The history.
    pub history: History,
}

impl Failure {
    /// Who found it, in a word or two.
    pub fn found_by(&self) -> String {
        match self.report.violations.first() {
            Some(violation) => violation.checker.to_string(),
            None if self.report.malformed.is_empty() => "no end".into(),
            None => "malformed".into(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {} failed", self.seed)?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "  {failure}"))?;
        self.report.malformed.iter().try_for_each(|why| writeln!(f, "  malformed: {why}"))?;
        let violations = self.report.violations.iter();
        violations.take(8).try_for_each(|one| writeln!(f, "  {}: {}", one.checker, one.what))
    }
}

/// What many seeds came to.
#[derive(Default)]
pub struct Tally {
    /// How many were run.
    pub seeds: u64,
    /// How many steps their tasks took.
    pub steps: u64,
    /// How many calls their clients made.
    pub calls: u64,
    /// How much each checker has looked at.
    pub looked_at: BTreeMap<Checker, u64>,
    /// Those that failed, by seed.
    pub failures: Vec<Failure>,
}

/// Judges one seed.
pub fn judge(seed: u64, mutant: Option<Mutant>) -> (Report, Run) {
    let run = run(seed, mutant);
    (check(&run.history), run)
}

/// Runs seeds on so many threads until all are done or so many have failed. `progress` is told how many
/// are done, now and then.
pub fn seeds(
    range: Range<u64>,
    mutant: Option<Mutant>,
    threads: usize,
    failures_max: usize,
    progress: impl Fn(&Tally) + Sync,
) -> Tally {
    let next = AtomicU64::new(range.start);
    let tally = Mutex::new(Tally::default());
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= range.end {
            return;
        }
        let (report, run) = judge(seed, mutant);
        let mut tally = tally.lock().expect("nobody panics with it");
        tally.seeds += 1;
        tally.steps += run.steps;
        tally.calls += run.calls();
        for (checker, count) in &report.looked_at {
            *tally.looked_at.entry(*checker).or_default() += count;
        }
        if !report.is_clean() || !run.failures.is_empty() {
            let Run { history, failures, .. } = run;
            tally.failures.push(Failure { seed, report, failures, history });
        }
        progress(&tally);
        if tally.failures.len() >= failures_max {
            next.store(range.end, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for number in 0..threads.max(1) {
            let builder = thread::Builder::new().name(format!("{THREAD}-{number}"));
            builder.spawn_scoped(scope, work).expect("a thread can be started");
        }
    });
    let mut tally = tally.into_inner().expect("nobody panics with it");
    tally.failures.sort_by_key(|failure| failure.seed);
    tally
}
