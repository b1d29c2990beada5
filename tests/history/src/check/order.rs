//! The order of what the ledger holds: C1 versions, C2 tokens, C3 sequence numbers.

use std::collections::{BTreeSet, HashMap};

use super::view::{Attempt, Back, Deed, View};
use crate::record::Committed;
use crate::report::{Checker, Report};

/// C1 (I6): the versions of a resource are 1, 2, 3 ... A put takes one. What a rollback kept is there
/// and older than it, what came after is of a later generation (I12).
pub(super) fn versions(view: &View<'_>, report: &mut Report) {
    let resources: BTreeSet<&str> = view
        .versions
        .keys()
        .copied()
        .chain(view.rollbacks.iter().flat_map(Back::resources))
        .collect();
    for resource in resources {
        let lines = view.versions.get(resource).map_or(&[][..], Vec::as_slice);
        report.looked(Checker::C1, lines.len());
        let kept = view.kept_at_end(resource);
        let mut last = 0;
        for (version, line) in lines {
            let operation = line.operation;
            if *version == last {
                let what = format!("{resource}: version {version} twice, also by {operation}");
                report.violation(Checker::C1, what);
            } else if *version != last + 1 {
                let what = format!("{resource}: version {version} of {operation} follows {last}");
                report.violation(Checker::C1, what);
            }
            last = *version;
            for (kept, back) in kept.iter().zip(&view.rollbacks) {
                let is_kept = *version <= kept.unwrap_or(0);
                if is_kept != (line.generation <= back.generation) {
                    let (of, ended, at) = (line.generation, back.generation, back.at);
                    report.violation(Checker::C1, format!(
                        "{resource}: version {version} of {operation} is of generation {of}, though \
                         the rollback at {at} that ended {ended} left versions up to {kept:?}"
                    ));
                }
            }
        }
        for (kept, back) in kept.iter().zip(&view.rollbacks) {
            if let Some(kept) = kept.filter(|kept| *kept > last) {
                let at = back.at;
                let what = format!("{resource}: the rollback at {at} kept {kept}, not only {last}");
                report.violation(Checker::C1, what);
            }
        }
    }
    for line in view.committed.iter().filter(|line| line.version.is_none()) {
        report.looked(Checker::C1, 1);
        if line.changes.iter().map(Deed::of).any(|deed| matches!(deed, Deed::Put { .. })) {
            let Committed { operation, resource, .. } = line;
            let what = format!("{resource}: {operation} puts, but takes no version");
            report.violation(Checker::C1, what);
        }
    }
}

/// C2 (I3): in version order, tokens never fall.
pub(super) fn tokens(view: &View<'_>, report: &mut Report) {
    for (resource, lines) in &view.versions {
        report.looked(Checker::C2, lines.len().saturating_sub(1));
        let mut highest: Option<(i64, i64)> = None;
        for (version, line) in lines {
            let token = line.token;
            if let Some((before, of)) = highest
                && token < before
            {
                report.violation(Checker::C2, format!(
                    "{resource}: version {version} was written under token {token}, after version \
                     {of} under {before}"
                ));
            }
            highest = highest.max(Some((token, *version)));
        }
    }
}

/// C3 (I4): under one token, sequence numbers rise in version order. What took no version counts by
/// its number, which nothing else under the token has, and by when it was answered: whoever begins
/// later has a higher one.
pub(super) fn sequences(view: &View<'_>, report: &mut Report) {
    let mut used: HashMap<(&str, i64, i64), &Committed> = HashMap::new();
    for line in &view.committed {
        let Some(sequence) = line.sequence else { continue };
        report.looked(Checker::C3, 1);
        let Committed { resource, token, operation, .. } = line;
        if let Some(first) = used.insert((resource, *token, sequence), line) {
            let first = first.operation;
            report.violation(Checker::C3, format!(
                "{resource}: {first} and {operation} both have sequence number {sequence} under \
                 token {token}"
            ));
        }
    }
    for (resource, lines) in &view.versions {
        let mut highest: HashMap<i64, (i64, i64)> = HashMap::new();
        for (version, line) in lines {
            let (Some(sequence), token) = (line.sequence, line.token) else { continue };
            let (before, of) = *highest.get(&token).unwrap_or(&(i64::MIN, 0));
            if sequence < before {
                report.violation(
                    Checker::C3,
                    format!(
                        "{resource}: under token {token} version {version} has sequence number \
                     {sequence}, after version {of} with {before}"
                    ),
                );
            }
            highest.insert(token, (before, of).max((sequence, *version)));
        }
    }
    by_time(view, report);
}

/// What was numbered and told as new, on a resource under a token.
type Numbered = Vec<(u64, u64, i64, u64)>;

fn by_time(view: &View<'_>, report: &mut Report) {
    let mut numbered: HashMap<(&str, i64), Numbered> = HashMap::new();
    for Attempt { call, signature, told, .. } in &view.attempts {
        let (Some(told), Some(sequence)) = (told, signature.sequence) else { continue };
        if told.replayed {
            continue;
        }
        for (resource, _) in &signature.deeds {
            let it = (call.begun_at, told.at, sequence, call.number);
            numbered.entry((*resource, signature.token)).or_default().push(it);
        }
    }
    for ((resource, token), by_begin) in numbered {
        report.looked(Checker::C3, by_begin.len());
        let mut by_answer = by_begin.clone();
        by_answer.sort_unstable_by_key(|it| it.1);
        let mut answered = by_answer.into_iter().peekable();
        let mut highest = (i64::MIN, 0);
        for (begun_at, _, sequence, call) in by_begin {
            while let Some(it) = answered.next_if(|it| it.1 < begun_at) {
                highest = highest.max((it.2, it.3));
            }
            let (before, of) = highest;
            // Equal numbers are told above, by the operations.
            if sequence < before {
                report.violation(Checker::C3, format!(
                    "{resource}: under token {token} call {call} was admitted with sequence number \
                     {sequence}, after call {of} with {before} was answered"
                ));
            }
        }
    }
}
