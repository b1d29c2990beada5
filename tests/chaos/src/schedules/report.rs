//! What came of the rounds of a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::disturber::Tally;
use super::stage::Stage;
use crate::book::Outcomes;

/// A round.
pub struct Round {
    /// Which one.
    pub number: u64,
    /// From which all is drawn.
    pub seed: u64,
    /// For how long sessions are disturbed.
    pub lasts: Duration,
}

/// What came of all rounds so far.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    mutant: Option<&'static str>,
    rounds: u64,
    calls: u64,
    grants: u64,
    lost_answers: u64,
    /// How often the server was disturbed.
    pub tally: Arc<Tally>,
    outcomes: Outcomes,
    trouble: Vec<String>,
    checks: fence_history::Report,
}

impl Report {
    /// Nothing yet.
    pub fn new(seed: u64, mutant: Option<&'static str>) -> Self {
        let (outcomes, trouble, checks, tally) = Default::default();
        let (rounds, calls, grants, lost_answers) = Default::default();
        Self { seed, mutant, rounds, calls, grants, lost_answers, tally, outcomes, trouble, checks }
    }

    /// What was asked in one more.
    pub fn count(&mut self, stage: &Stage) {
        let (calls, grants) = stage.book.so_far();
        self.rounds += 1;
        self.calls += calls;
        self.grants += grants;
        self.lost_answers += stage.lost_answers();
    }

    /// What came of it.
    pub fn add(&mut self, outcomes: Outcomes, trouble: Vec<String>, checks: fence_history::Report) {
        for (asked, by_outcome) in outcomes {
            let all = self.outcomes.entry(asked).or_default();
            for (outcome, count) in by_outcome {
                *all.entry(outcome).or_default() += count;
            }
        }
        self.trouble.extend(trouble);
        self.checks.malformed.extend(checks.malformed);
        self.checks.violations.extend(checks.violations);
        for (checker, count) in checks.looked_at {
            *self.checks.looked_at.entry(checker).or_default() += count;
        }
    }

    /// Whether all held.
    pub fn is_clean(&self) -> bool {
        self.trouble.is_empty() && self.checks.is_clean()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.seed + self.rounds.saturating_sub(1);
        writeln!(f, "{} rounds, seeds {} to {last}", self.rounds, self.seed)?;
        if let Some(mutant) = self.mutant {
            writeln!(f, "with the mutant {mutant}")?;
        }
        let Self { calls, grants, lost_answers, tally, .. } = self;
        writeln!(f, "{calls} calls, {grants} grants, {lost_answers} answers lost; {tally}")?;
        for (asked, by_outcome) in &self.outcomes {
            let all: u64 = by_outcome.values().sum();
            writeln!(f, "  {asked:<10} {all:>8}")?;
            let mut by_outcome: Vec<_> = by_outcome.iter().collect();
            by_outcome.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (outcome, count) in by_outcome {
                writeln!(f, "    {count:>8} {outcome}")?;
            }
        }
        writeln!(f)?;
        for line in &self.trouble {
            writeln!(f, "TROUBLE: {line}")?;
        }
        write!(f, "{}", self.checks)
    }
}
