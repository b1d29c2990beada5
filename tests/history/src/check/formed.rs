//! Is it a history at all? One that is not would let every checker pass for the wrong reason.

use std::collections::{HashMap, HashSet};

use super::view::{Attempt, Deed, View};
use crate::record::{Asked, Call, Change, History, Record};

/// Why it is none: moments that are shared or out of order, a client that asks two things at once,
/// numbers of calls and values that are not unique.
pub(super) fn faults(history: &History, view: &View<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    moments(history, &mut faults);
    calls(view, &mut faults);
    values(view, &mut faults);
    faults
}

fn moments(history: &History, faults: &mut Vec<String>) {
    let mut seen = HashSet::new();
    let mut once = |at: u64, faults: &mut Vec<String>| {
        if !seen.insert(at) {
            faults.push(format!("two things happen at {at}"));
        }
    };
    let mut begun = None;
    for record in &history.records {
        match record {
            Record::Call(Call { number, begun_at, answered, .. }) => {
                once(*begun_at, faults);
                if begun > Some(*begun_at) {
                    faults.push(format!("call {number} stands behind one that began later"));
                }
                begun = begun.max(Some(*begun_at));
                if let Some(answered) = answered {
                    once(answered.at, faults);
                    if answered.at < *begun_at {
                        faults.push(format!("call {number} was answered before it began"));
                    }
                }
            }
            Record::Effect(effect) => once(effect.at, faults),
            Record::Rollback(back) => once(back.at, faults),
            Record::Healed(healed) => once(healed.at, faults),
            Record::Rules(rules) => once(rules.at, faults),
            Record::Sealed(_) | Record::Committed(_) | Record::Intent(_) | Record::Writers(_) => {}
        }
    }
}

/// A client that never learned an answer may have given up at any moment, and go on.
fn calls(view: &View<'_>, faults: &mut Vec<String>) {
    let mut numbers = HashSet::new();
    let mut clients: HashMap<u32, &Call> = HashMap::new();
    for call in &view.calls {
        let Call { number, client, begun_at, .. } = call;
        if !numbers.insert(*number) {
            faults.push(format!("two calls have number {number}"));
        }
        if let Some(before) = clients.insert(*client, call)
            && before.answered.as_ref().is_some_and(|answered| answered.at > *begun_at)
        {
            let before = before.number;
            faults.push(format!("client {client} begins call {number} during call {before}"));
        }
    }
}

/// A value is known to be a call's own by being nobody else's: unique for each object, but for
/// attempts under one idempotency key.
fn values(view: &View<'_>, faults: &mut Vec<String>) {
    let mut keys: HashMap<(&str, &str, &str), (u64, Option<&str>)> = HashMap::new();
    for Attempt { call, signature, .. } in &view.attempts {
        let number = call.number;
        let under = signature.idempotency_key;
        for (resource, deeds) in &signature.deeds {
            for deed in deeds {
                let Deed::Put { key, value } = *deed else { continue };
                let first = keys.entry((*resource, key, value)).or_insert((number, under));
                if first.0 != number && (under.is_none() || first.1 != under) {
                    let first = first.0;
                    faults.push(format!(
                        "calls {first} and {number} both put {value:?} into {resource}/{key}"
                    ));
                }
            }
        }
        let changes: Vec<&Change> = match &call.asked {
            Asked::Write(write) => vec![&write.change],
            Asked::Commit { steps, .. } => steps.iter().map(|(_, change)| change).collect(),
            _ => Vec::new(),
        };
        for change in changes {
            if let Change::Put { key, value, adds: Some(add) } = change
                && !value.split_whitespace().any(|number| number == add.to_string())
            {
                faults.push(format!("call {number} adds {add} to {key}, but {value:?} has it not"));
            }
        }
    }
}
