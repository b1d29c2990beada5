//! C11: everything works again soon after nothing is broken any more.

use std::collections::{HashMap, HashSet};

use super::view::View;
use crate::report::{Checker, Report};

/// How soon, in microseconds: 30 s.
pub const HEALED_WITHIN_US: u64 = 30_000_000;

/// C11 (liveness): after each [`Healed`](crate::Healed) each of its resources sees a new grant and a
/// write under it: soon, and before the ledger goes back again or the history ends.
pub(super) fn soon(view: &View<'_>, report: &mut Report) {
    // By resource: when a new grant was answered, under which token.
    let mut granted: HashMap<&str, Vec<(u64, i64)>> = HashMap::new();
    // New is what nobody was told of before: also what is said again, if the first answer was lost.
    let mut first: HashMap<(&str, i64), u64> = HashMap::new();
    for grant in &view.grants {
        let at = first.entry((grant.resource, grant.token)).or_insert(grant.at);
        *at = grant.at.min(*at);
    }
    for ((resource, token), at) in first {
        granted.entry(resource).or_default().push((at, token));
    }
    let mut written: HashMap<&str, Vec<(u64, i64)>> = HashMap::new();
    for attempt in &view.attempts {
        let Some(told) = attempt.told.filter(|told| !told.replayed) else { continue };
        for (resource, _) in &attempt.signature.deeds {
            written.entry(resource).or_default().push((told.at, attempt.signature.token));
        }
    }
    let lists = granted.values_mut().chain(written.values_mut());
    lists.for_each(|answers| answers.sort_unstable());
    for healed in &view.healed {
        let disaster = view.rollbacks.iter().map(|back| back.at).find(|at| *at > healed.at);
        let until = healed.at.saturating_add(HEALED_WITHIN_US).min(disaster.unwrap_or(u64::MAX));
        for resource in &healed.resources {
            report.looked(Checker::C11, 1);
            let grants = between(granted.get(resource.as_str()), healed.at, until);
            let tokens: HashSet<i64> = grants.iter().map(|(_, token)| *token).collect();
            let writes = between(written.get(resource.as_str()), healed.at, until);
            if !writes.iter().any(|(_, token)| tokens.contains(token)) {
                let (at, grants, writes) = (healed.at, tokens.len(), writes.len());
                report.violation(Checker::C11, format!(
                    "{resource}: healed at {at}, but until {until} there are {grants} new grants, \
                     {writes} writes, and no write under a new grant"
                ));
            }
        }
    }
}

fn between(answers: Option<&Vec<(u64, i64)>>, after: u64, until: u64) -> &[(u64, i64)] {
    let Some(answers) = answers else { return &[] };
    let from = answers.partition_point(|(at, _)| *at <= after);
    let to = answers.partition_point(|(at, _)| *at <= until);
    answers.get(from..to).unwrap_or(&[])
}
