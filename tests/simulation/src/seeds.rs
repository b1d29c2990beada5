//! Many seeds: on several threads, with progress, up to the first few that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fence_core::mutants::Mutant;
use fence_history::linear::{self, Verdict};
use fence_history::{Checker, History, Record, Report, check};

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
    /// Which checkers found it, in a word or two.
    pub fn found_by(&self) -> String {
        let checkers: BTreeSet<_> = self.report.violations.iter().map(|one| one.checker).collect();
        let checkers: Vec<_> = checkers.iter().map(ToString::to_string).collect();
        match checkers.is_empty() {
            true => "the run itself".into(),
            false => checkers.join(", "),
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
    /// In how many a clock jumped.
    pub with_jumps: u64,
    /// In how many a clock jumped while an answer was unknown.
    pub with_jumps_while_unknown: u64,
    /// Those that failed, by seed.
    pub failures: Vec<Failure>,
}

/// How many calls the second opinion looks at: its search takes long on long histories.
const WINDOW: usize = 150;
/// How many effects it may try on a resource.
const BUDGET: usize = 20_000;

/// Judges one seed: by the checkers, and, as far as the ledger does not go back, by a search for an order
/// of the calls that explains the answers.
pub fn judge(seed: u64, mutant: Option<Mutant>) -> (Report, Run) {
    let mut run = run(seed, mutant);
    let report = check(&run.history);
    if report.malformed.is_empty() {
        let found = second_opinion(&run.history);
        run.failures.extend(found);
    }
    (report, run)
}

/// Why no order of the first calls explains their answers, if there is none.
fn second_opinion(history: &History) -> Vec<String> {
    let calls = history.records.iter().filter_map(|record| match record {
        Record::Call(call) => Some(call),
        _ => None,
    });
    let calls: Vec<_> = calls.take(WINDOW).collect();
    let back = history.records.iter().find_map(|record| match record {
        Record::Rollback(back) => Some(back.at),
        _ => None,
    });
    let last = calls.last().map_or(0, |call| call.begun_at);
    let window = linear::until(calls, back.unwrap_or(last).min(last));
    let wrong = |(resource, verdict)| match verdict {
        Verdict::NotLinearizable { stuck_at } => {
            Some(format!("{resource}: no order of the calls explains the answers ({stuck_at})"))
        }
        Verdict::Linearizable | Verdict::GaveUp => None,
    };
    linear::judge(&window, BUDGET).into_iter().filter_map(wrong).collect()
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
        tally.with_jumps += u64::from(run.clocks.jumps > 0);
        tally.with_jumps_while_unknown += u64::from(run.clocks.jumps_while_unknown > 0);
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
