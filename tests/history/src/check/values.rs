//! C6, values: a read tells what was written last. C9: and never that its bytes are missing.

use std::collections::HashMap;

use super::view::{Attempt, Deed, View};
use crate::record::{Answer, Asked, Call, Seen};
use crate::report::{Checker, Report};

/// What touched an object or all objects of a resource: the version, which change of it, and whether
/// it put something.
type Touch = (i64, usize, bool);

/// What touched the objects, in the order of versions.
struct Touches<'a> {
    objects: HashMap<(&'a str, &'a str), Vec<Touch>>,
    all: HashMap<&'a str, Vec<Touch>>,
}

impl<'a> Touches<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut touches = Self { objects: HashMap::new(), all: HashMap::new() };
        for (resource, lines) in &view.versions {
            for (version, line) in lines {
                for (index, change) in line.changes.iter().enumerate() {
                    let (key, puts) = match Deed::of(change) {
                        Deed::Put { key, .. } => (Some(key), true),
                        Deed::Delete { key } => (Some(key), false),
                        Deed::DeleteAll => (None, false),
                    };
                    let list = match key {
                        Some(key) => touches.objects.entry((*resource, key)).or_default(),
                        None => touches.all.entry(*resource).or_default(),
                    };
                    list.push((*version, index, puts));
                }
            }
        }
        touches
    }

    /// What touched an object last, up to a version.
    fn last(&self, resource: &str, key: &str, version: i64) -> Option<Touch> {
        let up_to = |list: &Vec<Touch>| {
            let after = list.partition_point(|(other, ..)| *other <= version);
            list.get(after.checked_sub(1)?).copied()
        };
        let of_it = self.objects.get(&(resource, key)).and_then(up_to);
        of_it.max(self.all.get(resource).and_then(up_to))
    }
}

/// C6 (I6), values: a read tells the value that the put of that generation, version and key stored, and
/// no put or delete of the key came between that version and the resource's. Of what a rollback took
/// back only this is known: somebody asked for it.
pub(super) fn true_values(view: &View<'_>, report: &mut Report) {
    let touches = Touches::of(view);
    let mut asked: HashMap<(&str, Deed<'_>), u64> = HashMap::new();
    for Attempt { call, signature, .. } in &view.attempts {
        for (resource, deeds) in &signature.deeds {
            for deed in deeds {
                asked.entry((*resource, *deed)).or_insert(call.begun_at);
            }
        }
    }
    for call in &view.calls {
        let Asked::Read { resource, key } = &call.asked else { continue };
        let Some(answered) = &call.answered else { continue };
        let Answer::Value { found, resource_version } = &answered.answer else { continue };
        report.looked(Checker::C6, 1);
        let read =
            Read { call, at: answered.at, resource, key, version: resource_version.unwrap_or(0) };
        let mut wrong =
            |what: String| {
                let (number, version) = (call.number, read.version);
                report.violation(Checker::C6, format!(
                "{resource}/{key}: call {number} read {found:?} at version {version}, {what}"
            ));
            };
        if let Some(what) = found.as_ref().and_then(|seen| not_written(view, &asked, &read, seen)) {
            wrong(what);
        } else if let Some(what) = not_last(view, &touches, &read, found.as_ref()) {
            wrong(what);
        }
    }
}

struct Read<'a> {
    call: &'a Call,
    at: u64,
    resource: &'a str,
    key: &'a str,
    version: i64,
}

fn not_written<'a>(
    view: &View<'a>,
    asked: &HashMap<(&'a str, Deed<'a>), u64>,
    read: &Read<'a>,
    seen: &'a Seen,
) -> Option<String> {
    let Seen { generation, version, value } = seen;
    if *version > read.version {
        return Some("below that of the object".to_owned());
    }
    let deed = Deed::Put { key: read.key, value };
    match asked.get(&(read.resource, deed)) {
        None => return Some("which nobody ever put there".to_owned()),
        Some(asked_at) if *asked_at > read.at => {
            return Some(format!("which was put at {asked_at}, only after it was read"));
        }
        Some(_) => {}
    }
    match view.maker(read.resource, *version).filter(|maker| maker.generation == *generation) {
        Some(maker) => {
            let put = maker.changes.iter().map(Deed::of).rfind(|put| {
                matches!(put, Deed::Put { key, .. } if *key == read.key) || *put == Deed::DeleteAll
            });
            (put != Some(deed)).then(|| format!("but {} did not put it", maker.operation))
        }
        None => {
            let lost = view.is_lost(read.resource, Some(*version), *generation, read.call.begun_at);
            (!lost).then(|| "of which the ledger has no trace".to_owned())
        }
    }
}

/// Only what is in the ledger at the end is known: of a line that ended, the versions that were kept.
fn not_last(
    view: &View<'_>,
    touches: &Touches<'_>,
    read: &Read<'_>,
    found: Option<&Seen>,
) -> Option<String> {
    let Read { resource, key, call, .. } = *read;
    let later = view.rollbacks.iter().filter(|back| back.at > call.begun_at);
    let known = later.map(|back| back.kept(resource).unwrap_or(0)).min().unwrap_or(i64::MAX);
    let is_whole = read.version <= known;
    let last = touches.last(resource, key, read.version.min(known));
    match (found, last) {
        (Some(seen), _) if seen.version > known => None,
        (Some(seen), Some((version, _, puts))) => (version != seen.version || !puts)
            .then(|| format!("but version {version} {} it", if puts { "put" } else { "removed" })),
        (Some(_), None) => Some("which no version put".to_owned()),
        (None, Some((version, _, true))) if is_whole => {
            Some(format!("but version {version} put it"))
        }
        (None, _) => None,
    }
}

/// C9 (I9): no read ever finds that the blob it was pointed at is missing.
pub(super) fn no_dangling(view: &View<'_>, report: &mut Report) {
    for call in &view.calls {
        let (Asked::Read { resource, key }, Some(answered)) = (&call.asked, &call.answered) else {
            continue;
        };
        report.looked(Checker::C9, 1);
        if let Answer::Failed { code } | Answer::Refused { code } = &answered.answer
            && code == "blob-missing"
        {
            let number = call.number;
            let what = format!("{resource}/{key}: call {number} found no blob where it should be");
            report.violation(Checker::C9, what);
        }
    }
}
