//! C4: a token is in force before it is given out (I5).

use std::collections::HashMap;

use super::view::{Attempt, Rising, View};
use crate::report::{Checker, Report};

/// C4 (I5): once a grant was answered with token T and version v, everything under smaller tokens has
/// a version of at most v, and whoever writes later with a smaller token is not admitted, also if a
/// rollback took the traces back. Of the answers about one grant, the first one has the lowest
/// version, and what is said again holds against that.
pub(super) fn before_use(view: &View<'_>, report: &mut Report) {
    let mut told: HashMap<(&str, i64), (i64, u64)> = HashMap::new();
    for grant in &view.grants {
        let at = (grant.version, grant.call.number);
        let lowest = told.entry((grant.resource, grant.token)).or_insert(at);
        *lowest = at.min(*lowest);
    }
    report.looked(Checker::C4, told.len());

    // By token: the highest version written under it or a smaller one, and under which.
    let mut written: HashMap<&str, Vec<(i64, i64, i64)>> = HashMap::new();
    for (resource, lines) in &view.versions {
        let mut by_token: Vec<_> =
            lines.iter().map(|(version, line)| (line.token, *version, line.token)).collect();
        by_token.sort_unstable();
        let mut highest = (i64::MIN, 0);
        for (_, version, token) in &mut by_token {
            highest = highest.max((*version, *token));
            (*version, *token) = highest;
        }
        written.insert(resource, by_token);
    }
    let mut told: Vec<_> = told.into_iter().collect();
    told.sort_unstable();
    for ((resource, token), (version, call)) in told {
        let Some(by_token) = written.get(resource) else { continue };
        let smaller = by_token.partition_point(|(other, ..)| *other < token);
        let Some((_, highest, under)) = smaller.checked_sub(1).and_then(|at| by_token.get(at))
        else {
            continue;
        };
        if *highest > version {
            report.violation(Checker::C4, format!(
                "{resource}: call {call} was granted token {token} at version {version}, but version \
                 {highest} was written under token {under}"
            ));
        }
    }
    late_writers(view, report);
}

fn late_writers(view: &View<'_>, report: &mut Report) {
    let granted = Rising::tokens(view, true);
    for Attempt { call, signature, told, .. } in &view.attempts {
        if !told.is_some_and(|told| !told.replayed) {
            continue;
        }
        for (resource, _) in &signature.deeds {
            report.looked(Checker::C4, 1);
            let Some((newer, grant)) = granted.before(resource, call.begun_at) else { continue };
            let (number, token) = (call.number, signature.token);
            if newer > token {
                report.violation(Checker::C4, format!(
                    "{resource}: call {number} was admitted with token {token}, begun after call \
                     {grant} was granted {newer}"
                ));
            }
        }
    }
}
