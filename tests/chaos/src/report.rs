//! What came of a run, for people and for programs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use fence_history::{Answer, Asked, History, Record};
use serde::Serialize;
use uuid::Uuid;

use crate::book::Outcomes;
use crate::driven::Account;
use crate::faults::Fault;
use crate::upgrade::Upgrade;

/// What came of one kind of fault.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Tally {
    /// How often it was there.
    pub count: u64,
    /// The longest time, in milliseconds, after which all gateways granted and wrote again.
    pub back_within_ms: u64,
    /// The longest time, in milliseconds, after which the clients got as much done as before, or nearly.
    pub goodput_within_ms: u64,
}

/// What came of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// From which its faults were drawn.
    pub seed: u64,
    /// How long it took, in seconds.
    pub seconds: u64,
    /// The mutant that was switched on, if any.
    pub mutant: Option<&'static str>,
    /// The upgrade that it was, if it was one.
    pub upgrade: Option<Upgrade>,
    /// What the drivers of a client library were asked and told, if they called.
    pub client: Option<Account>,
    /// New timelines of Postgres that were proven to have lost nothing.
    pub adoptions: usize,
    /// How often all tokens were void from then on.
    pub refences: usize,
    /// All faults.
    pub faults_total: u64,
    /// By kind.
    pub faults: BTreeMap<Fault, Tally>,
    /// Kinds that this machine does not have, and why.
    pub unavailable: BTreeMap<Fault, &'static str>,
    /// All calls.
    pub calls: u64,
    /// Those by S3.
    pub s3_calls: u64,
    /// By what was asked, and how it ended.
    pub outcomes: Outcomes,
    /// Grants in the ledger that took over from a holder who had not given the lock up.
    pub takeovers: u64,
    /// What else went wrong: service that was not back in time, gateways that ended by themselves, objects
    /// that are not what was written, answers that nobody can read.
    pub trouble: Vec<String>,
    /// What the checkers said.
    pub checks: fence_history::Report,
}

impl Report {
    /// Whether all held.
    pub fn is_clean(&self) -> bool {
        self.checks.is_clean() && self.trouble.is_empty()
    }
}

/// How many grants of the ledger took a resource over from somebody who had not released it, nor asked to hand
/// it over: whose lock had expired or was broken, or who was fenced off.
pub fn takeovers(history: &History) -> u64 {
    let mut given_up: HashSet<Uuid> = HashSet::new();
    let mut grants: HashMap<&str, Vec<(i64, Uuid)>> = HashMap::new();
    for record in &history.records {
        match record {
            Record::Call(call) => {
                match (&call.asked, call.answered.as_ref().map(|it| &it.answer)) {
                    (Asked::Release { lock }, Some(Answer::Done)) => {
                        given_up.insert(*lock);
                    }
                    (Asked::Transfer { from, .. }, _) => {
                        given_up.insert(*from);
                    }
                    _ => {}
                }
            }
            Record::Sealed(sealed) => {
                grants.entry(&sealed.resource).or_default().push((sealed.token, sealed.lock));
            }
            _ => {}
        }
    }
    let taken = |grants: &mut Vec<(i64, Uuid)>| {
        grants.sort_unstable();
        grants.windows(2).filter(|pair| !given_up.contains(&pair[0].1)).count() as u64
    };
    grants.values_mut().map(taken).sum()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} s", self.seed, self.seconds)?;
        if let Some(mutant) = self.mutant {
            writeln!(f, "with the mutant {mutant}")?;
        }
        if let Some(upgrade) = &self.upgrade {
            write!(f, "{upgrade}")?;
        }
        writeln!(
            f,
            "\n{} faults; service, and goodput, were back after at most",
            self.faults_total
        )?;
        for (fault, Tally { count, back_within_ms, goodput_within_ms }) in &self.faults {
            let [back, goodput] = [back_within_ms, goodput_within_ms].map(|ms| *ms as f64 / 1000.0);
            writeln!(f, "  {fault:<20} {count:>4}   {back:>5.1} s  {goodput:>5.1} s")?;
        }
        for (fault, why) in &self.unavailable {
            writeln!(f, "  {fault:<20} not on this machine: {why}")?;
        }
        let Self { calls, s3_calls, takeovers, .. } = self;
        writeln!(f, "\n{calls} calls, {s3_calls} of them by S3, {takeovers} takeovers")?;
        writeln!(f, "{} re-fences, {} timelines adopted", self.refences, self.adoptions)?;
        for (asked, by_outcome) in &self.outcomes {
            let all: u64 = by_outcome.values().sum();
            writeln!(f, "  {asked:<10} {all:>8}")?;
            let mut by_outcome: Vec<_> = by_outcome.iter().collect();
            by_outcome.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (outcome, count) in by_outcome {
                writeln!(f, "    {count:>8} {outcome}")?;
            }
        }
        if let Some(client) = &self.client {
            write!(f, "{client}")?;
        }
        writeln!(f)?;
        for line in &self.trouble {
            writeln!(f, "TROUBLE: {line}")?;
        }
        write!(f, "{}", self.checks)
    }
}

#[cfg(test)]
mod tests {
    use fence_history::{Answered, Call, Sealed};

    use super::*;

    #[test]
    fn a_takeover_is_a_grant_over_a_holder_that_gave_nothing_up() {
        let lock = Uuid::from_u128;
        let sealed = |token: i64| {
            let lock = lock(u128::try_from(token).unwrap_or(0));
            Record::Sealed(Sealed { resource: "r".into(), token, lock })
        };
        let call = |number, asked, answer| {
            let answered = Some(Answered { at: number * 10 + 1, answer });
            Record::Call(Call {
                number,
                client: 1,
                principal: 1,
                gateway: 0,
                begun_at: number * 10,
                asked,
                answered,
            })
        };
        let records = vec![
            call(1, Asked::Release { lock: lock(1) }, Answer::Done),
            call(2, Asked::Release { lock: lock(2) }, Answer::Refused { code: "no".into() }),
            call(
                3,
                Asked::Transfer { from: lock(3), to: None, resources: vec!["r".into()] },
                Answer::Done,
            ),
            sealed(4),
            sealed(2),
            sealed(3),
            sealed(1),
        ];
        assert_eq!(takeovers(&History { records }), 1, "3 took over from 2");
    }
}
