//! Whether what callers of S3 saw was so: lists and reads against what the ledger holds in the end, and uploads that were
//! aborted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fence_history::{Answer, Asked, Change, Committed, History, Record};

use super::{Made, Saw, Told, UPLOAD};

/// What is wrong about what was seen.
///
/// 1. A list has what was acknowledged before it was asked for, unless something replaced or removed that: a read as well.
/// 2. What they show is what the ledger holds, or lost in a rollback that came later.
/// 3. An upload that was aborted has become nothing.
pub fn judge(told: &[Told], history: &History) -> Vec<String> {
    let past = Past::of(history);
    let mut wrong = Vec::new();
    for told in told {
        match &told.saw {
            Some(Saw::List { resources, objects }) => {
                for resource in resources {
                    let here = objects.iter().filter(|object| object.resource == *resource);
                    let shown = here.map(|object| (object.key.as_str(), object.made)).collect();
                    past.look(told, resource, None, &shown, &mut wrong);
                }
            }
            Some(Saw::Object { resource, key, found }) => {
                let shown = found.iter().map(|(made, _)| (key.as_str(), *made)).collect();
                past.look(told, resource, Some(key), &shown, &mut wrong);
                if let Some((made, value)) = found {
                    past.same(told, (resource, key), *made, value, &mut wrong);
                }
            }
            Some(Saw::Aborted { upload }) => {
                let done = past.uploads.get(format!("{UPLOAD}{upload}").as_str());
                if let Some(line) = done.filter(|_| !past.went_back_after(told.begun_at)) {
                    wrong.push(format!(
                        "the upload {upload} was aborted at {}, and completed by {}",
                        told.at, line.operation
                    ));
                }
            }
            None => {}
        }
    }
    wrong
}

/// What was put or removed under a key, by the versions.
type Changes<'a> = BTreeMap<i64, (i64, Option<&'a str>)>;

/// What the ledger holds, and what was known of it when.
#[derive(Default)]
struct Past<'a> {
    changes: HashMap<&'a str, BTreeMap<&'a str, Changes<'a>>>,
    /// Versions that somebody was told of and that are there: when, and which.
    acknowledged: HashMap<&'a str, Vec<(u64, i64)>>,
    /// Completed uploads by their keys.
    uploads: HashMap<&'a str, &'a Committed>,
    /// When the ledger went back, and the generation that ended.
    backs: Vec<(u64, i64)>,
}

impl<'a> Past<'a> {
    fn of(history: &'a History) -> Self {
        let mut past = Self::default();
        let mut lines: Vec<&Committed> = Vec::new();
        for record in &history.records {
            match record {
                Record::Committed(line) => lines.push(line),
                Record::Rollback(back) => past.backs.push((back.at, back.generation)),
                _ => {}
            }
        }
        lines.sort_by_key(|line| line.version);
        for line in &lines {
            past.add(line);
        }
        let held: BTreeSet<_> =
            lines.iter().map(|line| (line.operation, line.resource.as_str())).collect();
        for record in &history.records {
            let Record::Call(call) = record else { continue };
            let Some(answered) = &call.answered else { continue };
            if !matches!(call.asked, Asked::Write(_) | Asked::Commit { .. }) {
                continue;
            }
            let Answer::Written { operation, versions, .. } = &answered.answer else { continue };
            for (resource, version) in versions {
                if let (Some(version), true) =
                    (version, held.contains(&(*operation, resource.as_str())))
                {
                    let known = past.acknowledged.entry(resource).or_default();
                    known.push((answered.at, *version));
                }
            }
        }
        past
    }

    fn add(&mut self, line: &'a Committed) {
        let Some(version) = line.version else { return };
        if let Some(key) = line.idempotency_key.as_deref().filter(|key| key.starts_with(UPLOAD)) {
            self.uploads.insert(key, line);
        }
        let keys = self.changes.entry(&line.resource).or_default();
        for change in &line.changes {
            let at = (line.generation, None);
            match change {
                Change::Put { key, value, .. } => {
                    let made = (line.generation, Some(value.as_str()));
                    keys.entry(key).or_default().insert(version, made);
                }
                Change::Delete { key } => {
                    keys.entry(key).or_default().insert(version, at);
                }
                Change::DeleteAll => keys.values_mut().for_each(|of_key| {
                    of_key.insert(version, at);
                }),
            }
        }
    }

    fn went_back_after(&self, moment: u64) -> bool {
        self.backs.iter().any(|(at, _)| *at > moment)
    }

    /// The highest version that was acknowledged before a moment, and that is there in the end: so it was there from then on.
    fn known_at(&self, resource: &str, moment: u64) -> i64 {
        let known = self.acknowledged.get(resource).into_iter().flatten();
        known.filter(|(at, _)| *at < moment).map(|(_, version)| *version).max().unwrap_or(0)
    }

    /// Looks at all objects of a resource that were shown, or at one.
    fn look(
        &self,
        told: &Told,
        resource: &str,
        only: Option<&str>,
        shown: &BTreeMap<&str, Made>,
        wrong: &mut Vec<String>,
    ) {
        let floor = self.known_at(resource, told.begun_at);
        let none = BTreeMap::new();
        let keys = self.changes.get(resource).unwrap_or(&none);
        let all = keys.keys().copied().chain(shown.keys().copied());
        let all: BTreeSet<&str> = all.filter(|key| only.is_none_or(|only| only == *key)).collect();
        for key in all {
            let empty = Changes::new();
            let changes = keys.get(key).unwrap_or(&empty);
            let before = changes.range(..=floor).next_back();
            let what = format!("{} at {}: {resource}/{key}", told.operation, told.begun_at);
            match (shown.get(key), before) {
                (None, Some((version, (_, Some(_))))) => {
                    let removed = changes.range(version + 1..).any(|(_, (_, put))| put.is_none());
                    if !removed && !self.went_back_after(told.begun_at) {
                        wrong.push(format!("{what} is missing, of version {version}"));
                    }
                }
                (Some(made), Some((version, (_, put))))
                    if made.version < *version || (made.version == *version && put.is_none()) =>
                {
                    wrong.push(format!("{what} is {made:?}, which version {version} had replaced"));
                }
                _ => {}
            }
            if let Some(made) = shown.get(key).filter(|made| !self.was_there(told, changes, **made))
            {
                wrong.push(format!("{what} is {made:?}, which nobody put"));
            }
        }
    }

    fn was_there(&self, told: &Told, changes: &Changes<'_>, made: Made) -> bool {
        let is_held = changes
            .get(&made.version)
            .is_some_and(|(generation, put)| put.is_some() && *generation == made.generation);
        let is_lost =
            |(at, generation): &(u64, i64)| *at > told.begun_at && made.generation <= *generation;
        is_held || self.backs.iter().any(is_lost)
    }

    /// Whether the bytes are those that were put.
    fn same(
        &self,
        told: &Told,
        (resource, key): (&str, &str),
        made: Made,
        value: &str,
        wrong: &mut Vec<String>,
    ) {
        let changes = self.changes.get(resource).and_then(|keys| keys.get(key));
        let put = changes.and_then(|changes| changes.get(&made.version));
        if let Some((generation, Some(put))) = put
            && *generation == made.generation
            && *put != value
        {
            let at = told.begun_at;
            wrong.push(format!(
                "a read at {at}: {resource}/{key} is {value:?}, and was put as {put:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use fence_history::{Answered, Call, FencedWrite, Rollback};
    use uuid::Uuid;

    use super::super::Listed;
    use super::*;

    fn line(version: i64, changes: Vec<Change>, key: Option<&str>) -> Committed {
        Committed {
            operation: Uuid::from_u128(u128::from(version.unsigned_abs())),
            resource: "lake:r".into(),
            version: Some(version),
            generation: 0,
            token: 1,
            sequence: None,
            idempotency_key: key.map(str::to_owned),
            changes,
        }
    }

    fn put(key: &str, value: &str) -> Change {
        Change::Put { key: key.into(), value: value.into(), adds: None }
    }

    /// A call was told of a version at that moment.
    fn told_of(version: i64, change: Change, at: u64) -> Record {
        let write = FencedWrite {
            resource: "lake:r".into(),
            token: 1,
            forged: false,
            sequence: None,
            idempotency_key: None,
            if_version: None,
            change,
        };
        let answer = Answer::Written {
            operation: Uuid::from_u128(u128::from(version.unsigned_abs())),
            versions: vec![("lake:r".into(), Some(version))],
            generation: 0,
            replayed: false,
        };
        Record::Call(Call {
            number: at,
            client: 1,
            principal: 1,
            gateway: 0,
            begun_at: at - 1,
            asked: Asked::Write(write),
            answered: Some(Answered { at, answer }),
        })
    }

    /// `a` is put at 10, replaced at 20 and removed at 30, `b` is put at 40.
    fn history() -> History {
        let delete = || Change::Delete { key: "a".into() };
        let records = vec![
            told_of(1, put("a", "x"), 10),
            told_of(2, put("a", "y"), 20),
            told_of(3, delete(), 30),
            told_of(4, put("b", "z"), 40),
            Record::Committed(line(1, vec![put("a", "x")], None)),
            Record::Committed(line(2, vec![put("a", "y")], None)),
            Record::Committed(line(3, vec![delete()], None)),
            Record::Committed(line(
                4,
                vec![put("b", "z")],
                Some("upload:00000000-0000-0000-0000-000000000007"),
            )),
        ];
        History { records }
    }

    fn told(begun_at: u64, saw: Saw) -> Told {
        Told {
            begun_at,
            at: begun_at + 5,
            operation: "list".into(),
            outcome: "done".into(),
            saw: Some(saw),
        }
    }

    fn list(begun_at: u64, shown: &[(&str, i64)]) -> Told {
        let listed = |(key, version): &(&str, i64)| Listed {
            resource: "lake:r".into(),
            key: (*key).into(),
            made: Made { generation: 0, version: *version },
        };
        let objects = shown.iter().map(listed).collect();
        told(begun_at, Saw::List { resources: vec!["lake:r".into()], objects })
    }

    #[test]
    fn a_list_has_what_was_acknowledged_and_nothing_else() {
        let history = history();
        let wrong =
            |begun_at, shown: &[(&str, i64)]| judge(&[list(begun_at, shown)], &history).len();
        for fine in [
            (5, &[][..]),
            (5, &[("a", 1)]),
            (5, &[("b", 4)]),
            (15, &[("a", 1)]),
            (15, &[("a", 2)]),
            (15, &[]),
            (35, &[]),
            (45, &[("b", 4)]),
        ] {
            assert_eq!(wrong(fine.0, fine.1), 0, "{fine:?}");
        }
        for bad in [
            (25, &[("a", 1)][..]),
            (35, &[("a", 2)]),
            (45, &[]),
            (45, &[("b", 5)]),
            (5, &[("c", 1)]),
            (5, &[("a", 4)]),
        ] {
            assert!(wrong(bad.0, bad.1) > 0, "{bad:?}");
        }
    }

    #[test]
    fn a_rollback_explains_what_is_gone() {
        let mut history = history();
        let back = Rollback { at: 50, generation: 0, kept: vec![] };
        history.records.push(Record::Rollback(back));
        assert!(judge(&[list(45, &[("c", 9)])], &history).is_empty());
        assert!(!judge(&[list(55, &[("b", 4), ("c", 9)])], &history).is_empty());
    }

    #[test]
    fn a_read_has_the_bytes_that_were_put() {
        let history = history();
        let read = |value: &str| {
            let found = Some((Made { generation: 0, version: 4 }, value.to_owned()));
            let saw = Saw::Object { resource: "lake:r".into(), key: "b".into(), found };
            judge(&[told(45, saw)], &history).len()
        };
        assert_eq!((read("z"), read("y")), (0, 1));
    }

    #[test]
    fn an_upload_is_aborted_or_completed() {
        let history = history();
        let aborted = |upload: u128| {
            let upload = Uuid::from_u128(upload);
            judge(&[told(5, Saw::Aborted { upload })], &history).len()
        };
        assert_eq!((aborted(7), aborted(8)), (1, 0));
    }
}
