//! Random histories that are spoiled: wherever the truth changed, a checker must say so.

use std::collections::BTreeMap;

use fence_history::{
    Answer, Asked, Call, Change, Checker, Committed, History, Outcome, Record, check,
};
use uuid::Uuid;

use crate::tiny::{Random, Shape, history};

/// A history in parts.
struct Parts {
    calls: Vec<Call>,
    lines: Vec<Committed>,
    others: Vec<Record>,
}

impl Parts {
    fn of(history: History) -> Self {
        let mut parts = Self { calls: Vec::new(), lines: Vec::new(), others: Vec::new() };
        for record in history.records {
            match record {
                Record::Call(call) => parts.calls.push(call),
                Record::Committed(line) => parts.lines.push(line),
                other => parts.others.push(other),
            }
        }
        parts
    }

    fn whole(self) -> History {
        let mut records: Vec<Record> = self.calls.into_iter().map(Record::Call).collect();
        records.extend(self.others);
        records.extend(self.lines.into_iter().map(Record::Committed));
        History { records }
    }

    /// One of the calls whose answer is like this.
    fn answered(
        &mut self,
        random: &mut Random,
        is_it: impl Fn(&Answer) -> bool,
    ) -> Option<&mut Call> {
        let of = |call: &Call| call.answered.as_ref().is_some_and(|it| is_it(&it.answer));
        let all: Vec<usize> = (0..self.calls.len()).filter(|at| of(&self.calls[*at])).collect();
        self.calls.get_mut(*random.pick(&all)?)
    }

    /// One of the lines of the ledger like this.
    fn line(
        &mut self,
        random: &mut Random,
        is_it: impl Fn(&Committed) -> bool,
    ) -> Option<&mut Committed> {
        let all: Vec<usize> = (0..self.lines.len()).filter(|at| is_it(&self.lines[*at])).collect();
        self.lines.get_mut(*random.pick(&all)?)
    }

    /// Two lines of one resource with versions, of which this is true.
    fn two(
        &self,
        random: &mut Random,
        is_it: impl Fn(&Committed, &Committed) -> bool,
    ) -> Option<(usize, usize)> {
        let mut pairs = Vec::new();
        for (first, a) in self.lines.iter().enumerate() {
            for (second, b) in self.lines.iter().enumerate().skip(first + 1) {
                let same = a.resource == b.resource && a.version.is_some() && b.version.is_some();
                if same && is_it(a, b) {
                    pairs.push((first, second));
                }
            }
        }
        random.pick(&pairs).copied()
    }
}

fn answer(call: &mut Call) -> &mut Answer {
    &mut call.answered.as_mut().expect("an answer").answer
}

fn is_new(answer: &Answer) -> bool {
    matches!(answer, Answer::Written { replayed: false, .. })
}

fn is_write(call: &Call) -> bool {
    matches!(call.asked, Asked::Write(_) | Asked::Commit { .. })
}

fn is_told(parts: &Parts, operation: Uuid) -> bool {
    let tells = |call: &Call| {
        let answer = call.answered.as_ref().map(|it| &it.answer);
        matches!(answer, Some(Answer::Written { operation: of, .. }) if *of == operation)
    };
    parts.calls.iter().any(tells)
}

/// Spoils a history; `None` if there is nothing to spoil in this way.
type Mutation = fn(&mut Parts, &mut Random) -> Option<()>;

const MUTATIONS: &[(&str, Mutation)] = &[
    ("a write that was told is dropped from the ledger", |parts, random| {
        let told: Vec<usize> = (0..parts.lines.len())
            .filter(|at| is_told(parts, parts.lines[*at].operation))
            .collect();
        parts.lines.remove(*random.pick(&told)?);
        Some(())
    }),
    ("a version is dropped that others follow", |parts, random| {
        let (first, second) = parts.two(random, |_, _| true)?;
        let is_before = parts.lines[first].version < parts.lines[second].version;
        parts.lines.remove(if is_before { first } else { second });
        Some(())
    }),
    ("two writes swap tokens", |parts, random| {
        let (first, second) = parts.two(random, |a, b| a.token != b.token)?;
        let token = parts.lines[first].token;
        parts.lines[first].token = parts.lines[second].token;
        parts.lines[second].token = token;
        Some(())
    }),
    ("two writes swap versions", |parts, random| {
        let known = |line: &Committed| is_told(parts, line.operation);
        let (first, second) = parts.two(random, |a, b| known(a) || known(b))?;
        let version = parts.lines[first].version;
        parts.lines[first].version = parts.lines[second].version;
        parts.lines[second].version = version;
        Some(())
    }),
    ("a value in the ledger is another one", |parts, random| {
        let puts = |line: &Committed| matches!(line.changes[..], [Change::Put { .. }, ..]);
        let line = parts.line(random, puts)?;
        if let Change::Put { value, .. } = &mut line.changes[0] {
            value.push('x');
        }
        Some(())
    }),
    ("a write in the ledger is of another generation", |parts, random| {
        let told: Vec<Uuid> = parts.lines.iter().map(|line| line.operation).collect();
        let told: Vec<Uuid> = told.into_iter().filter(|id| is_told(parts, *id)).collect();
        parts.line(random, |line| told.contains(&line.operation))?.generation += 1;
        Some(())
    }),
    ("a sequence number in the ledger is another one", |parts, random| {
        let line = parts.line(random, |line| line.sequence.is_some())?;
        line.sequence = line.sequence.map(|sequence| sequence + 100);
        Some(())
    }),
    ("a write takes effect a second time", |parts, random| {
        let mut line = parts.line(random, |line| line.version.is_some())?.clone();
        let others = parts.lines.iter().filter(|other| other.resource == line.resource);
        line.version = others.filter_map(|other| other.version).max().map(|version| version + 1);
        line.operation = Uuid::from_u128(u128::MAX);
        parts.lines.push(line);
        Some(())
    }),
    ("a write has the idempotency key of another", |parts, random| {
        let (first, second) = parts.two(random, |a, b| {
            a.idempotency_key.is_some() && a.idempotency_key != b.idempotency_key
        })?;
        parts.lines[second].idempotency_key = parts.lines[first].idempotency_key.clone();
        Some(())
    }),
    ("a write that took effect is refused", |parts, random| {
        let held: Vec<Uuid> = parts.lines.iter().map(|line| line.operation).collect();
        let is_it = |it: &Answer| matches!(it, Answer::Written { operation, replayed: false, .. } if held.contains(operation));
        let call = parts.answered(random, is_it)?;
        let code = "fence-token-stale".to_owned();
        *answer(call) = match random.percent(50) {
            true => Answer::Refused { code },
            false => Answer::Failed { code },
        };
        // Somebody who was told a replay of it, or never told, may have had the effect just as well.
        let signature = format!("{:?}", call.asked);
        let same = |call: &&Call| format!("{:?}", call.asked) == signature;
        (parts.calls.iter().filter(same).count() == 1).then_some(())
    }),
    ("a write that was refused is told as done", |parts, random| {
        let refused: Vec<usize> = (0..parts.calls.len())
            .filter(|at| is_write(&parts.calls[*at]))
            .filter(|at| {
                let answer = parts.calls[*at].answered.as_ref().map(|it| &it.answer);
                matches!(answer, Some(Answer::Refused { .. } | Answer::Failed { .. }))
            })
            .collect();
        let call = &mut parts.calls[*random.pick(&refused)?];
        let versions = match &call.asked {
            Asked::Write(write) => vec![(write.resource.clone(), Some(1))],
            _ => Vec::new(),
        };
        let operation = Uuid::from_u128(u128::MAX);
        *answer(call) = Answer::Written { operation, versions, generation: 0, replayed: false };
        Some(())
    }),
    ("two calls are told of the same write", |parts, random| {
        let told = answer(parts.answered(random, is_new)?).clone();
        let is_denied = |it: &Answer| matches!(it, Answer::Refused { .. } | Answer::Failed { .. });
        let call = parts.answered(random, is_denied)?;
        *answer(call) = told;
        is_write(call).then_some(())
    }),
    ("a write is told with another version", |parts, random| {
        if let Answer::Written { versions, .. } = answer(parts.answered(random, is_new)?) {
            versions[0].1 = Some(versions[0].1.unwrap_or(0) + 1);
        }
        Some(())
    }),
    ("a read finds another value", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Value { found: Some(_), .. });
        if let Answer::Value { found: Some(seen), .. } = answer(parts.answered(random, is_it)?) {
            seen.value.push('1');
        }
        Some(())
    }),
    ("a read finds nothing", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Value { found: Some(_), .. });
        if let Answer::Value { found, .. } = answer(parts.answered(random, is_it)?) {
            *found = None;
        }
        Some(())
    }),
    ("a read is of a version that never was", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Value { .. });
        if let Answer::Value { resource_version, .. } = answer(parts.answered(random, is_it)?) {
            *resource_version = Some(1_000);
        }
        Some(())
    }),
    ("a read is of the past", |parts, _| {
        // The last reads come after everything else.
        let call = parts.calls.last_mut()?;
        let Answer::Value { resource_version, found } = answer(call) else { return None };
        *found = None;
        *resource_version = resource_version.map(|version| version - 1);
        Some(())
    }),
    ("a number is missing from a set, wherever it is told", |parts, random| {
        let adds = |line: &Committed| matches!(&line.changes[..], [Change::Put { adds: Some(_), value, .. }] if value.contains(' '));
        let line = parts.line(random, adds)?;
        let Change::Put { value: before, .. } = line.changes[0].clone() else { return None };
        let after = before.split_once(' ')?.1.to_owned();
        let lose = |change: &mut Change| match change {
            Change::Put { value, .. } if *value == before => value.clone_from(&after),
            _ => {}
        };
        line.changes.iter_mut().for_each(lose);
        for call in &mut parts.calls {
            if let Asked::Write(write) = &mut call.asked {
                lose(&mut write.change);
            }
            if let Some(Answer::Value { found: Some(seen), .. }) =
                call.answered.as_mut().map(|it| &mut it.answer)
                && seen.value == before
            {
                seen.value.clone_from(&after);
            }
        }
        Some(())
    }),
    ("a grant is told with another token", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Granted { .. });
        if let Answer::Granted { token, .. } = answer(parts.answered(random, is_it)?) {
            // All tokens that were minted are even.
            *token += 1;
        }
        Some(())
    }),
    ("a grant is told with another lock", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Granted { .. });
        if let Answer::Granted { lock, .. } = answer(parts.answered(random, is_it)?) {
            *lock = Uuid::from_u128(u128::MAX);
        }
        Some(())
    }),
    ("a grant does not know of a write before it", |parts, random| {
        let lines = parts.lines.clone();
        let older = |name: &str, token: i64| {
            let of_it = lines.iter().filter(|it| it.resource == name && it.token < token);
            of_it.filter_map(|it| it.version).max()
        };
        let is_it = |it: &Answer| match it {
            Answer::Granted { token, versions, .. } => older(&versions[0].0, *token).is_some(),
            _ => false,
        };
        if let Answer::Granted { token, versions, .. } = answer(parts.answered(random, is_it)?) {
            versions[0].1 = older(&versions[0].0, *token)? - 1;
        }
        Some(())
    }),
    ("a grant is dropped from the ledger", |parts, random| {
        let told: Vec<i64> = parts
            .calls
            .iter()
            .filter_map(|call| match &call.answered.as_ref()?.answer {
                Answer::Granted { token, .. } => Some(*token),
                _ => None,
            })
            .collect();
        let is_it = |at: &usize| match &parts.others[*at] {
            Record::Sealed(sealed) => told.contains(&sealed.token),
            _ => false,
        };
        let sealed: Vec<usize> = (0..parts.others.len()).filter(is_it).collect();
        parts.others.remove(*random.pick(&sealed)?);
        Some(())
    }),
    ("an upstream acts late", |parts, random| {
        let end = parts.calls.iter().filter_map(|it| it.answered.as_ref()).map(|it| it.at).max()?;
        let is_effect = |at: &usize| matches!(parts.others[*at], Record::Effect(_));
        let effects: Vec<usize> = (0..parts.others.len()).filter(is_effect).collect();
        if let Record::Effect(effect) = &mut parts.others[*random.pick(&effects)?] {
            // The last grants supersede all that clients had.
            effect.at = end + 1;
        }
        Some(())
    }),
    ("an outcome is told the other way round", |parts, random| {
        let held: Vec<Uuid> = parts.lines.iter().map(|line| line.operation).collect();
        let is_it = |it: &Answer| matches!(it, Answer::Outcome(Outcome::Applied | Outcome::Buried));
        let call = parts.answered(random, is_it)?;
        let Asked::Ask { operation } = call.asked else { return None };
        *answer(call) = Answer::Outcome(match held.contains(&operation) {
            true => Outcome::Buried,
            false => Outcome::Applied,
        });
        Some(())
    }),
    ("nothing is granted after all was healed", |parts, _| {
        let healed = parts.others.iter().find_map(|record| match record {
            Record::Healed(healed) => Some(healed.at),
            _ => None,
        })?;
        for call in parts.calls.iter_mut().filter(|call| call.begun_at > healed) {
            call.answered = None;
        }
        Some(())
    }),
    ("a read finds no blob", |parts, random| {
        let is_it = |it: &Answer| matches!(it, Answer::Value { .. });
        let call = parts.answered(random, is_it)?;
        *answer(call) = Answer::Failed { code: "blob-missing".to_owned() };
        Some(())
    }),
];

#[test]
fn what_is_spoiled_is_found() {
    let mut found: BTreeMap<Checker, u32> = BTreeMap::new();
    for (name, mutate) in MUTATIONS {
        let (mut spoiled, mut by) = (0, BTreeMap::new());
        for seed in 0..80 {
            let mut parts = Parts::of(history(seed, Shape { calls: 150, ..Shape::FULL }));
            if mutate(&mut parts, &mut Random(seed)).is_none() {
                continue;
            }
            let history = parts.whole();
            let report = check(&history);
            assert_eq!(report.malformed, Vec::<String>::new(), "{name}, seed {seed}");
            assert!(!report.is_clean(), "{name}, seed {seed}: not found\n{report}");
            let mut checkers: Vec<_> = report.violations.iter().map(|it| it.checker).collect();
            checkers.sort_unstable();
            checkers.dedup();
            for checker in checkers {
                *by.entry(checker).or_insert(0) += 1;
                *found.entry(checker).or_default() += 1;
            }
            spoiled += 1;
        }
        println!("{name}: {spoiled} histories, found by {by:?}");
        assert!(spoiled >= 20, "{name}: only {spoiled} histories could be spoiled");
    }
    // Principals are in histories of the simulation, and in those made by hand.
    for checker in Checker::ALL.into_iter().filter(|checker| *checker != Checker::C17) {
        assert!(found.contains_key(&checker), "{checker} found nothing");
    }
}
