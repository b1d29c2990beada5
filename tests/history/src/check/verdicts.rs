//! C5: what callers were told of writes is so (I8), and each write was somebody's.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::view::{Attempt, Deed, Signature, Told, View, signature_of};
use crate::record::{Answer, Change, Committed};
use crate::report::{Checker, Report};

/// C5 (I8): what was told to have been written is in the ledger, with the operation, version,
/// generation, token and changes that were told, unless a rollback explains its loss. A replay tells the
/// same as the first answer; it needs a key, and admits nothing, so that its token does not matter.
pub(super) fn told(view: &View<'_>, report: &mut Report) {
    let mut first_told: HashMap<Uuid, (u64, Told<'_>)> = HashMap::new();
    for attempt in &view.attempts {
        let Some(told) = attempt.told else { continue };
        report.looked(Checker::C5, 1);
        let number = attempt.call.number;
        let mut wrong = |what: String| {
            report.violation(Checker::C5, format!("call {number} was told of {what}"));
        };
        let Told { operation, versions, generation, replayed, .. } = told;
        if attempt.forged && !replayed {
            wrong(format!("{operation} under the forged token {}", attempt.signature.token));
        }
        if replayed && attempt.signature.idempotency_key.is_none() {
            wrong(format!("a replay of {operation}, but gave no idempotency key"));
        }
        if !same_resources(attempt, versions) {
            wrong(format!("{operation} on {versions:?}, not on what it asked for"));
        }
        for (resource, version) in versions {
            if let Some(what) = differs(view, attempt, &told, resource, *version) {
                wrong(format!("{operation} on {resource}, version {version:?}, {what}"));
            }
        }
        if let (Some(expected), [(resource, Some(version))], false) =
            (attempt.if_version, versions, replayed)
            && *version != expected + 1
        {
            wrong(format!("version {version} of {resource}, though it demanded {expected} before"));
        }
        let (of, first) = *first_told.entry(operation).or_insert((number, told));
        if (first.versions, first.generation) != (versions, generation) {
            let first = (first.versions, first.generation);
            wrong(format!("{operation}: {versions:?} of {generation}, call {of} of {first:?}"));
        }
    }
}

fn same_resources(attempt: &Attempt<'_>, versions: &[(String, Option<i64>)]) -> bool {
    let told: HashSet<&str> = versions.iter().map(|(resource, _)| resource.as_str()).collect();
    let asked: HashSet<&str> =
        attempt.signature.deeds.iter().map(|(resource, _)| *resource).collect();
    told == asked
}

/// How the ledger differs from what a call was told of one resource.
fn differs(
    view: &View<'_>,
    attempt: &Attempt<'_>,
    told: &Told<'_>,
    resource: &str,
    version: Option<i64>,
) -> Option<String> {
    let Signature { token, sequence, idempotency_key, deeds } = &attempt.signature;
    let Some(line) = view.line(told.operation, resource) else {
        // It may have been lost before its answer arrived.
        let lost = view.is_lost(resource, version, told.generation, attempt.call.begun_at);
        return (!lost).then(|| "which the ledger does not hold".to_owned());
    };
    if (line.version, line.generation) != (version, told.generation) {
        let held = (line.version, line.generation);
        let generation = told.generation;
        return Some(format!("generation {generation}, but the ledger has {held:?}"));
    }
    if line.idempotency_key.as_deref() != *idempotency_key {
        return Some(format!("which the ledger holds under the key {:?}", line.idempotency_key));
    }
    let asked = deeds.iter().find(|(name, _)| *name == resource).map(|(_, deeds)| deeds);
    let held: Vec<Deed<'_>> = line.changes.iter().map(Deed::of).collect();
    if asked.is_some_and(|asked| *asked != held) {
        return Some(format!("for which the ledger has {held:?}"));
    }
    if !told.replayed && (line.token, line.sequence) != (*token, *sequence) {
        let held = (line.token, line.sequence);
        return Some(format!("under {token} ({sequence:?}), but the ledger has {held:?}"));
    }
    None
}

/// The calls that asked for the same under the same token, sequence number and key.
#[derive(Default)]
struct Askers {
    /// Who was never told what came of it: each may have had one effect.
    unresolved: usize,
    /// Who was told that nothing came of it.
    denied: Vec<u64>,
    /// Of which operations the others were told.
    told: HashSet<Uuid>,
}

/// C5 (I6, I8), from the other side: for each operation in the ledger there is a call that was told of
/// it, or one of its own that was told nothing. So what was refused or failed had no effect, nobody's
/// writes are not there, and no call took effect twice.
pub(super) fn asked_for(view: &View<'_>, report: &mut Report) {
    let mut askers: HashMap<&Signature<'_>, Askers> = HashMap::new();
    for Attempt { call, signature, forged, told, .. } in &view.attempts {
        let askers = askers.entry(signature).or_default();
        match call.answered.as_ref().map(|answered| &answered.answer) {
            Some(Answer::Refused { .. } | Answer::Failed { .. }) => askers.denied.push(call.number),
            Some(Answer::Written { .. }) => askers.told.extend(told.map(|told| told.operation)),
            _ if *forged => askers.denied.push(call.number),
            _ => askers.unresolved += 1,
        }
    }
    let mut operations: Vec<_> = view.operations.iter().collect();
    operations.sort_unstable_by_key(|(id, lines)| (lines.first().map(|it| it.version), **id));
    for (operation, lines) in operations {
        report.looked(Checker::C5, 1);
        let mut wrong = |what: String| {
            report.violation(Checker::C5, format!("{}, {what}", describe(*operation, lines)));
        };
        let common = |line: &Committed| {
            (line.token, line.sequence, line.generation, line.idempotency_key.clone())
        };
        if lines.windows(2).any(|two| common(two[0]) != common(two[1])) {
            wrong("is one thing on one resource and another on the next".to_owned());
        }
        match askers.get_mut(&signature_of(lines)) {
            None => wrong("but nobody asked for it like that".to_owned()),
            Some(askers) if askers.told.contains(operation) => {}
            Some(Askers { unresolved, .. }) if *unresolved > 0 => *unresolved -= 1,
            Some(Askers { denied, told, .. }) if told.is_empty() => {
                wrong(format!("but who asked for it was told that it had no effect: {denied:?}"));
            }
            Some(Askers { told, .. }) => {
                wrong(format!("but who asked for it was told of another operation: {told:?}"));
            }
        }
    }
}

fn describe(operation: Uuid, lines: &[&Committed]) -> String {
    let part = |line: &&Committed| {
        let what: Vec<String> = line.changes.iter().map(short).collect();
        format!("{} version {:?} ({})", line.resource, line.version, what.join(", "))
    };
    let parts: Vec<String> = lines.iter().map(part).collect();
    let token = lines.first().map_or(0, |line| line.token);
    format!("the ledger holds {operation} under token {token}: {}", parts.join("; "))
}

fn short(change: &Change) -> String {
    match change {
        Change::Put { key, value, .. } => format!("put {key} {value:?}"),
        Change::Delete { key } => format!("delete {key}"),
        Change::DeleteAll => "delete all".to_owned(),
    }
}
