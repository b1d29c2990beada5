//! C6, in time: versions that callers were told of never go back, and never come from the future.

use std::collections::HashMap;

use super::view::View;
use crate::record::{Answer, Asked};
use crate::report::{Checker, Report};

/// A call was told of the version of a resource.
struct Observed<'a> {
    resource: &'a str,
    begun_at: u64,
    at: u64,
    call: u64,
    /// The version it was told; `None` if the resource was never locked.
    version: Option<i64>,
    /// The generation of that version, if it was told.
    generation: Option<i64>,
    /// Which version must have been there before it began at most; `None` demands nothing.
    at_most: Option<Option<i64>>,
}

/// C6 (I6, I8), real time: whoever begins after a version was told to somebody is told no lower one,
/// and whoever writes takes a higher one, but for what a rollback took back in between. And nobody is
/// told of a version that was asked for only after the answer.
pub(super) fn in_time(view: &View<'_>, report: &mut Report) {
    let observed = observations(view);
    report.looked(Checker::C6, observed.len());
    for it in &observed {
        from_the_future(view, it, report);
    }
    let mut moments: Vec<(u64, What)> = Vec::new();
    for (index, it) in observed.iter().enumerate() {
        moments.push((it.begun_at, What::Begins(index)));
        moments.push((it.at, What::Answered(index)));
    }
    let backs = view.rollbacks.iter().enumerate();
    moments.extend(backs.map(|(index, back)| (back.at, What::GoesBack(index))));
    moments.sort_unstable();

    let mut known = Known::default();
    let mut at_begin: HashMap<usize, Option<Version>> = HashMap::new();
    for (_, what) in moments {
        match what {
            What::Begins(index) => {
                let known = observed.get(index).and_then(|it| known.0.get(it.resource).copied());
                at_begin.insert(index, known);
            }
            What::Answered(index) => {
                let Some(it) = observed.get(index) else { continue };
                let before = at_begin.remove(&index).flatten();
                judge(view, it, before, report);
                known.learn(view, it);
            }
            What::GoesBack(index) => known.go_back(view, index),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Begins(usize),
    Answered(usize),
    GoesBack(usize),
}

/// A version, and the call that was told of it.
type Version = (i64, u64);

/// The highest version of each resource that anybody was told of, and that is there.
#[derive(Default)]
struct Known<'a>(HashMap<&'a str, Version>);

impl<'a> Known<'a> {
    fn learn(&mut self, view: &View<'_>, it: &Observed<'a>) {
        let Some(version) = it.version else { return };
        // What was seen before a rollback, and told after it, is there as far as it was kept.
        let during =
            rollbacks(view, it).filter(|back| it.generation.is_none_or(|g| g <= back.generation));
        let kept = during.map(|back| back.kept(it.resource)).fold(Some(version), Option::min);
        if let Some(version) = kept {
            let known = self.0.entry(it.resource).or_insert((version, it.call));
            *known = (version, it.call).max(*known);
        }
    }

    fn go_back(&mut self, view: &View<'_>, index: usize) {
        let Some(back) = view.rollbacks.get(index) else { return };
        self.0.retain(|resource, known| match back.kept(resource) {
            Some(kept) => {
                known.0 = known.0.min(kept);
                true
            }
            None => false,
        });
    }
}

/// The rollbacks while a call was under way: it may have been decided on either side.
fn rollbacks<'v, 'a>(
    view: &'v View<'a>,
    it: &Observed<'_>,
) -> impl Iterator<Item = &'v super::view::Back<'a>> {
    let (begun_at, at) = (it.begun_at, it.at);
    view.rollbacks.iter().filter(move |back| begun_at < back.at && back.at < at)
}

fn judge(view: &View<'_>, it: &Observed<'_>, before: Option<Version>, report: &mut Report) {
    let (Some(at_most), Some((version, by))) = (it.at_most, before) else { return };
    let kept = rollbacks(view, it).map(|back| back.kept(it.resource));
    let there = kept.fold(Some(version), Option::min);
    if there > at_most {
        let Observed { resource, call, version: told, .. } = it;
        report.violation(Checker::C6, format!(
            "{resource}: call {call} was told version {told:?}, begun after call {by} was told {version}"
        ));
    }
}

fn from_the_future(view: &View<'_>, it: &Observed<'_>, report: &mut Report) {
    let Some(version) = it.version.filter(|version| *version > 0) else { return };
    let Observed { resource, at, call, .. } = it;
    // A version that was lost later may have had another maker.
    if view.is_lost(resource, Some(version), it.generation.unwrap_or(0), it.begun_at) {
        return;
    }
    let Some(maker) = view.maker(resource, version) else {
        // Of what was told to be written C5 says it.
        if it.generation.is_none() {
            report.violation(Checker::C6, format!(
                "{resource}: call {call} was told version {version}, which the ledger does not hold"
            ));
        }
        return;
    };
    if let Some(asked_at) = view.asked_at.get(&maker.operation).filter(|asked_at| *asked_at > at) {
        let operation = maker.operation;
        report.violation(Checker::C6, format!(
            "{resource}: call {call} was told version {version} at {at}, but {operation} was asked for \
             at {asked_at}"
        ));
    }
}

fn observations<'a>(view: &View<'a>) -> Vec<Observed<'a>> {
    let mut observed = Vec::new();
    for call in &view.calls {
        let Some(answered) = &call.answered else { continue };
        let (begun_at, at, call_number) = (call.begun_at, answered.at, call.number);
        let mut push = |resource, version, generation, at_most| {
            let call = call_number;
            observed.push(Observed { resource, begun_at, at, call, version, generation, at_most });
        };
        match (&call.asked, &answered.answer) {
            (Asked::Read { resource, .. }, Answer::Value { resource_version, .. }) => {
                push(resource.as_str(), *resource_version, None, Some(*resource_version));
            }
            (_, Answer::Granted { versions, again, .. }) => {
                for (resource, version) in versions {
                    // What is said again may be what was said first.
                    push(resource, Some(*version), None, (!again).then_some(Some(*version)));
                }
            }
            (_, Answer::Written { versions, generation, replayed, .. }) => {
                for (resource, version) in versions {
                    let at_most = version.filter(|_| !replayed).map(|version| Some(version - 1));
                    push(resource, *version, Some(*generation), at_most);
                }
            }
            _ => {}
        }
    }
    observed
}
