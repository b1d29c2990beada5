//! C7: the test for lost updates. A holder of a lock reads a set, adds a number of its own, and writes
//! it back under its token; whatever anybody else writes in between would be lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::view::{Attempt, View};
use crate::record::{Asked, Call, Change};
use crate::report::{Checker, Report};

type Object<'a> = (&'a str, &'a str);

/// Who adds what: the number that a put adds to an object, by the value that it stores.
#[derive(Default)]
struct Adds<'a> {
    by_value: HashMap<(Object<'a>, &'a str), u64>,
    by_number: HashMap<(Object<'a>, u64), u64>,
}

/// C7: each value of a set in the ledger is the one before plus what was added, no acknowledged add is
/// missing from the last value, and nothing is in it that nobody added.
///
/// It holds only for writers that read under the lock that they write under, and that do not go on
/// with the same token after a write of unknown outcome: it could take effect after what they do next.
pub(super) fn nothing_lost(view: &View<'_>, report: &mut Report) {
    let adds = Adds::of(view);
    let sets: BTreeSet<Object<'_>> = adds.by_value.keys().map(|(object, _)| *object).collect();
    let mut resources: BTreeMap<&str, BTreeMap<&str, Set<'_>>> = BTreeMap::new();
    for (resource, key) in sets {
        resources.entry(resource).or_default().entry(key).or_default();
    }
    for (resource, sets) in &mut resources {
        for (version, line) in view.versions.get(resource).into_iter().flatten() {
            for change in &line.changes {
                apply(resource, *version, change, sets, &adds, report);
            }
        }
    }
    acknowledged(view, &resources, report);
}

/// A set as of some version.
#[derive(Default)]
struct Set<'a> {
    value: BTreeSet<&'a str>,
    version: i64,
    /// When it was last removed, or replaced by what is no sum.
    reset: i64,
}

fn apply<'a>(
    resource: &'a str,
    version: i64,
    change: &'a Change,
    sets: &mut BTreeMap<&'a str, Set<'a>>,
    adds: &Adds<'a>,
    report: &mut Report,
) {
    let removed = || Set { version, reset: version, ..Set::default() };
    match change {
        Change::DeleteAll => sets.values_mut().for_each(|set| *set = removed()),
        Change::Delete { key } => {
            if let Some(set) = sets.get_mut(key.as_str()) {
                *set = removed();
            }
        }
        Change::Put { key, value, .. } => {
            let Some(set) = sets.get_mut(key.as_str()) else { return };
            let object = (resource, key.as_str());
            let now: BTreeSet<&str> = value.split_whitespace().collect();
            let Some(add) = adds.by_value.get(&(object, value.as_str())) else {
                *set = Set { value: now, version, reset: version };
                return;
            };
            report.looked(Checker::C7, 1);
            let own = add.to_string();
            for lost in set.value.difference(&now) {
                let before = set.version;
                report.violation(Checker::C7, format!(
                    "{resource}/{key}: version {version} adds {add}, and loses {lost}, which version \
                     {before} has"
                ));
            }
            for other in now.difference(&set.value).filter(|number| **number != own) {
                let adder = other.parse().ok().and_then(|it| adds.by_number.get(&(object, it)));
                let whose = adder.map_or("nobody".to_owned(), |call| format!("call {call}"));
                report.violation(Checker::C7, format!(
                    "{resource}/{key}: version {version} adds {add}, and has {other}, which the version \
                     before has not ({whose} adds it)"
                ));
            }
            (set.value, set.version) = (now, version);
        }
    }
}

fn acknowledged(
    view: &View<'_>,
    resources: &BTreeMap<&str, BTreeMap<&str, Set<'_>>>,
    report: &mut Report,
) {
    for Attempt { call, told, .. } in &view.attempts {
        let Some(told) = told else { continue };
        for (resource, key, _, add) in added(call) {
            report.looked(Checker::C7, 1);
            let set = resources.get(resource).and_then(|sets| sets.get(key));
            let versions = told.versions.iter().filter(|(name, _)| name == resource);
            let version = versions.map(|(_, version)| *version).next().flatten();
            let in_it = set.is_some_and(|set| set.value.contains(add.to_string().as_str()));
            let removed = set.is_some_and(|set| version < Some(set.reset));
            let lost = view.is_lost(resource, version, told.generation, call.begun_at);
            if !in_it && !removed && !lost {
                let number = call.number;
                report.violation(Checker::C7, format!(
                    "{resource}/{key}: call {number} added {add} with version {version:?}, and it is \
                     not there in the end"
                ));
            }
        }
    }
}

impl<'a> Adds<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut adds = Self::default();
        for attempt in &view.attempts {
            let call = attempt.call;
            for (resource, key, value, add) in added(call) {
                adds.by_value.insert(((resource, key), value), add);
                adds.by_number.insert(((resource, key), add), call.number);
            }
        }
        adds
    }
}

/// What a call adds: resource, object, the value it stores, the number.
fn added(call: &Call) -> Vec<(&str, &str, &str, u64)> {
    let add = |(resource, change)| match change {
        &Change::Put { ref key, ref value, adds: Some(add) } => {
            Some((resource, key.as_str(), value.as_str(), add))
        }
        _ => None,
    };
    match &call.asked {
        Asked::Write(write) => add((write.resource.as_str(), &write.change)).into_iter().collect(),
        Asked::Commit { steps, .. } => {
            steps.iter().map(|(name, change)| (name.as_str(), change)).filter_map(add).collect()
        }
        _ => Vec::new(),
    }
}
