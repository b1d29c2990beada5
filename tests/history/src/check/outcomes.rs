//! C5: what callers were told of operations, in answer to a question or as unknown (I8).

use std::collections::HashMap;

use uuid::Uuid;

use super::view::{Attempt, Told, View, signature_of};
use crate::record::{Answer, Asked, Call, Outcome};
use crate::report::{Checker, Report};

/// For how long, in microseconds, a ledger surely remembers an operation that it has buried: 24 h.
pub const REMEMBERED_US: u64 = 24 * 60 * 60 * 1_000_000;

/// When something was told of an operation, and to which call.
#[derive(Clone, Copy)]
struct When {
    begun_at: u64,
    at: u64,
    call: u64,
}

#[derive(Default)]
struct Tellings {
    applied: Vec<When>,
    buried: Vec<When>,
    not_known: Vec<When>,
    /// When somebody named it first.
    named_at: Option<u64>,
}

/// C5 (I8): an operation that is said to have been applied is in the ledger, one that is said to be
/// buried is not; never are both said, unless the ledger went back in between, applied first; and what
/// was decided is not forgotten. An operation of unknown outcome is the one that its caller asked for.
pub(super) fn stable(view: &View<'_>, report: &mut Report) {
    let mut operations: HashMap<Uuid, Tellings> = HashMap::new();
    for call in &view.calls {
        let Some(answered) = &call.answered else { continue };
        let when = When { begun_at: call.begun_at, at: answered.at, call: call.number };
        match (&call.asked, &answered.answer) {
            (Asked::Ask { operation }, Answer::Outcome(outcome)) => {
                report.looked(Checker::C5, 1);
                let tellings = operations.entry(*operation).or_default();
                match outcome {
                    Outcome::Applied => tellings.applied.push(when),
                    Outcome::Buried => tellings.buried.push(when),
                    Outcome::NotKnown => tellings.not_known.push(when),
                }
                // What is told of requests to upstreams is another checker's.
                let is_write = !view.requests.contains_key(operation);
                if matches!(outcome, Outcome::Applied) && is_write {
                    applied(view, *operation, call, report);
                }
            }
            (_, Answer::Written { operation, .. }) => {
                operations.entry(*operation).or_default().applied.push(when);
            }
            (_, Answer::Unknown { operation: Some(operation) }) => {
                let named_at = &mut operations.entry(*operation).or_default().named_at;
                *named_at = named_at.or(Some(call.begun_at));
            }
            _ => {}
        }
    }
    unknown(view, report);
    let mut operations: Vec<_> = operations.into_iter().collect();
    operations.sort_unstable_by_key(|(id, _)| *id);
    for (operation, tellings) in operations {
        consistent(view, operation, &tellings, report);
    }
}

fn applied(view: &View<'_>, operation: Uuid, call: &Call, report: &mut Report) {
    if view.operations.contains_key(&operation) {
        return;
    }
    // Where it was is known if anybody was told of it; else any rollback may have taken it.
    let lost = match view.told.get(&operation) {
        Some(Told { versions, generation, .. }) => versions.iter().any(|(resource, version)| {
            view.is_lost(resource, *version, *generation, call.begun_at)
        }),
        None => view.went_back(call.begun_at, u64::MAX),
    };
    if !lost {
        let number = call.number;
        report.violation(Checker::C5, format!(
            "call {number} was told that {operation} was applied, but the ledger does not hold it"
        ));
    }
}

fn unknown(view: &View<'_>, report: &mut Report) {
    for Attempt { call, signature, .. } in &view.attempts {
        let answer = call.answered.as_ref().map(|answered| &answered.answer);
        let Some(Answer::Unknown { operation: Some(operation) }) = answer else { continue };
        report.looked(Checker::C5, 1);
        let Some(lines) = view.operations.get(operation) else { continue };
        let held = signature_of(lines);
        if held != *signature {
            let number = call.number;
            report.violation(Checker::C5, format!(
                "call {number} was told that {operation} is unknown; it asked for {signature:?}, but \
                 the ledger holds {held:?}"
            ));
        }
    }
}

fn consistent(view: &View<'_>, operation: Uuid, tellings: &Tellings, report: &mut Report) {
    let Tellings { applied, buried, not_known, named_at } = tellings;
    if let Some(buried) = buried.first()
        && view.operations.contains_key(&operation)
    {
        let call = buried.call;
        report.violation(
            Checker::C5,
            format!("call {call} was told that {operation} is buried, but the ledger holds it"),
        );
    } else {
        // The ledger must have gone back between the two: the latest that says applied and the
        // earliest that says buried are the hardest to explain.
        let applied = applied.iter().max_by_key(|when| when.begun_at);
        if let (Some(applied), Some(buried)) = (applied, buried.iter().min_by_key(|when| when.at))
            && !view.went_back(applied.begun_at, buried.at)
        {
            let (first, second) = (applied.call, buried.call);
            report.violation(Checker::C5, format!(
                "call {first} was told that {operation} was applied, call {second} that it is buried"
            ));
        }
    }
    let decided = || applied.iter().chain(buried);
    let since = decided().map(|when| when.begun_at).chain(*named_at).min();
    let Some(first) = decided().min_by_key(|when| when.at) else { return };
    for later in not_known {
        let is_recent = since.is_some_and(|since| later.at - since.min(later.at) < REMEMBERED_US);
        let went_back = view.went_back(first.begun_at, later.at);
        if later.begun_at > first.at && is_recent && !went_back {
            let (first, later) = (first.call, later.call);
            report.violation(Checker::C5, format!(
                "call {first} was told what became of {operation}, call {later} that it is not known"
            ));
        }
    }
}
