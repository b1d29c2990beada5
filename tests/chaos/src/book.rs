//! Everything that happened, in the order in which it did: what client processes print, and what was done to
//! the servers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fence_history::{
    Answer, Answered, Asked, Call, Change, Committed, Effect, Healed, History, Record, Rollback,
    Rules, Sealed,
};
use uuid::Uuid;

use crate::client::process_of;
use crate::ledger::Held;
use crate::line::{Line, NOT_TOLD, moment};
use crate::payload::{bytes_of, digests_of};
use crate::s3::{self, Told};
use crate::steady::is_steady;

/// What an outcome is counted under.
pub type Outcomes = BTreeMap<String, BTreeMap<String, u64>>;

/// What is known of what was asked, by which rows of the ledger are told apart.
#[derive(Debug, Default)]
pub struct Wishes {
    /// What a put stored and what it adds to a set, by its digest.
    pub values: HashMap<Vec<u8>, (String, Option<u64>)>,
    /// What becomes of uploads in parts, by the idempotency keys of their completion.
    pub uploads: HashMap<String, (String, Option<u64>)>,
    /// The steps of commits, by their idempotency keys.
    pub commits: HashMap<String, Vec<(String, Change)>>,
    /// Those of commits whose keys nobody was told, by their tokens.
    pub keyless: HashMap<i64, Vec<(String, Change)>>,
    /// Those of commits whose ids the caller chose, by these.
    pub operations: HashMap<Uuid, Vec<(String, Change)>>,
}

#[derive(Debug, Default)]
struct Pages {
    calls: Vec<Call>,
    places: HashMap<u64, usize>,
    happened: Vec<(u64, Record)>,
    wishes: Wishes,
    asked: u64,
    grants: u64,
    /// Calls of steady callers that were answered with what they asked for.
    good: u64,
    /// What callers of S3 were told.
    s3: Vec<Told>,
    /// Calls of which the key, or the number, was chosen by somebody else, and has not been told.
    loose: HashMap<u64, Loose>,
    /// Since when it is looked at who is served, and the places of the calls that were answered since.
    healed: Option<(u64, Vec<usize>)>,
}

/// What is not known of a write.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Loose {
    key: bool,
    number: bool,
}

/// The record of a run; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Book {
    pages: Arc<Mutex<Pages>>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a client process has printed.
    pub fn write(&self, line: Line) {
        match line {
            Line::Begun(call) => {
                let wishes = wishes_of(&call.asked);
                let mut pages = self.pages();
                pages.wishes.values.extend(wishes.values);
                pages.wishes.uploads.extend(wishes.uploads);
                pages.wishes.commits.extend(wishes.commits);
                let place = pages.calls.len();
                pages.places.insert(call.number, place);
                pages.calls.push(call);
                pages.asked += 1;
            }
            Line::Answered { number, answered } => self.pages().answer(number, answered),
            Line::Intent(intent) => {
                self.pages().happened.push((moment(), Record::Intent(intent)));
            }
            Line::Writers(writers) => {
                self.pages().happened.push((moment(), Record::Writers(writers)));
            }
            Line::S3(told) => self.pages().s3.push(told),
        }
    }

    /// What is written with this call has a key, and perhaps a number, that a library chooses.
    pub fn leave_open(&self, call: u64) {
        self.pages().loose.insert(call, Loose { key: true, number: true });
    }

    /// Which it chose, as far as it is told. `Some(None)`: it has no number.
    pub fn learn(&self, call: u64, key: Option<String>, number: Option<Option<i64>>) {
        let mut pages = self.pages();
        let pages = &mut *pages;
        let Some(place) = pages.places.get(&call).copied() else { return };
        let loose = pages.loose.entry(call).or_default();
        let (own_key, own_number) = match &mut pages.calls[place].asked {
            Asked::Write(write) => (&mut write.idempotency_key, &mut write.sequence),
            Asked::Commit { idempotency_key, sequence, .. } => (idempotency_key, sequence),
            _ => return,
        };
        if let Some(key) = key {
            (*own_key, loose.key) = (Some(key), false);
        }
        if let Some(number) = number {
            (*own_number, loose.number) = (number, false);
        }
        let wishes = wishes_of(&pages.calls[place].asked);
        pages.wishes.commits.extend(wishes.commits);
    }

    /// What callers of S3 were told so far.
    pub fn s3(&self) -> Vec<Told> {
        self.pages().s3.clone()
    }

    /// The upstream acts on a request.
    pub fn effect(&self, resource: String, token: i64, request: Uuid) {
        let at = moment();
        let effect = Effect { at, resource, token, request };
        self.pages().happened.push((at, Record::Effect(effect)));
    }

    /// The operations that requests to the upstream were admitted as, as far as anybody was told.
    pub fn forwarded(&self) -> Vec<Uuid> {
        let operation = |(_, record): &(u64, Record)| match record {
            Record::Intent(intent) => Some(intent.operation),
            _ => None,
        };
        let mut operations: Vec<Uuid> =
            self.pages().happened.iter().filter_map(operation).collect();
        operations.sort_unstable();
        operations.dedup();
        operations
    }

    /// The ledger went back to these versions.
    pub fn rollback(&self, at: u64, generation: i64, kept: Vec<(String, i64)>) {
        let record = Record::Rollback(Rollback { at, generation, kept });
        self.pages().happened.push((at, record));
    }

    /// These rules of access are in force.
    pub fn rules(&self, rules: Rules) {
        self.pages().happened.push((rules.at, Record::Rules(rules)));
    }

    /// From here on nothing is broken for these resources.
    pub fn healed<'a>(&self, resources: impl Iterator<Item = &'a str>) {
        let at = moment();
        let resources = resources.map(str::to_owned).collect();
        let mut pages = self.pages();
        pages.happened.push((at, Record::Healed(Healed { at, resources })));
        pages.healed = Some((at, Vec::new()));
    }

    /// Those of these resources on which nobody was granted a lock and wrote under it since all was healed,
    /// as C11 will see it.
    pub fn not_served<'a>(&self, resources: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let pages = self.pages();
        let Some((_, answered)) = &pages.healed else { return Vec::new() };
        let calls = || answered.iter().map(|place| &pages.calls[*place]);
        let mut granted: HashSet<(&str, i64)> = HashSet::new();
        for call in calls() {
            if let Some(Answer::Granted { token, versions, .. }) = answer_of(call) {
                granted.extend(versions.iter().map(|(name, _)| (name.as_str(), *token)));
            }
        }
        let is_served = |resource: &&str| {
            calls().any(|call| {
                let (touches, token) = match &call.asked {
                    Asked::Write(write) => (write.resource == **resource, write.token),
                    Asked::Commit { steps, token, .. } => {
                        (steps.iter().any(|(name, _)| name == *resource), *token)
                    }
                    _ => return false,
                };
                touches
                    && matches!(answer_of(call), Some(Answer::Written { replayed: false, .. }))
                    && granted.contains(&(*resource, token))
            })
        };
        resources.filter(|resource| !is_served(resource)).collect()
    }

    /// How often the ledger went back.
    pub fn rollbacks(&self) -> usize {
        let pages = self.pages();
        pages.happened.iter().filter(|(_, record)| matches!(record, Record::Rollback(_))).count()
    }

    /// How many calls were made, and how many grants were given.
    pub fn so_far(&self) -> (u64, u64) {
        let pages = self.pages();
        (pages.asked, pages.grants)
    }

    /// How many calls of steady callers were answered with what they asked for.
    pub fn good_so_far(&self) -> u64 {
        self.pages().good
    }

    /// Operations of which somebody was told that their outcome is unknown.
    pub fn unknown(&self) -> Vec<Uuid> {
        let unknown = |call: &Call| match answer_of(call) {
            Some(Answer::Unknown { operation }) => *operation,
            _ => None,
        };
        self.pages().calls.iter().filter_map(unknown).collect()
    }

    /// What was asked, for the reader of the ledger.
    pub fn wishes(&self) -> Wishes {
        let mut pages = self.pages();
        let mut wishes = std::mem::take(&mut pages.wishes);
        for call in &pages.calls {
            if let Asked::Commit { token, idempotency_key: None, steps, .. } = &call.asked {
                wishes.keyless.insert(*token, steps.clone());
            }
        }
        wishes
    }

    /// The history, with what the ledger holds at the end, and how calls ended by what was asked.
    pub fn close(self, held: Held) -> (History, Outcomes) {
        let mut pages = self.pages();
        let outcomes = pages.outcomes();
        let generations = held.generations();
        let (calls, happened) =
            (std::mem::take(&mut pages.calls), std::mem::take(&mut pages.happened));
        let calls = calls.into_iter().map(|call| with_generation(call, &generations, &happened));
        let mut calls: Vec<Call> = calls.collect();
        tie_up(&mut calls, &pages.loose, &held.writes);
        s3::settle_deletes(&mut calls, &held.writes);
        let mut records = in_order(calls, happened);
        records.extend(
            held.grants
                .into_iter()
                .map(|(resource, token, lock)| Record::Sealed(Sealed { resource, token, lock })),
        );
        records.extend(held.writes.into_iter().map(Record::Committed));
        (History { records }, outcomes)
    }
}

impl Pages {
    fn answer(&mut self, number: u64, answered: Answered) {
        let Some(place) = self.places.get(&number).copied() else { return };
        self.grants += u64::from(matches!(answered.answer, Answer::Granted { again: false, .. }));
        let is_good = !matches!(
            answered.answer,
            Answer::Failed { .. } | Answer::Refused { .. } | Answer::Unknown { .. }
        );
        self.good += u64::from(is_good && is_steady(process_of(number)));
        if let Some((since, places)) = &mut self.healed
            && answered.at > *since
        {
            places.push(place);
        }
        self.calls[place].answered = Some(answered);
    }

    fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::new();
        let mut count = |asked: String, outcome: String| {
            *outcomes.entry(asked).or_default().entry(outcome).or_default() += 1;
        };
        self.calls.iter().for_each(|call| count(name_of(&call.asked).to_owned(), outcome_of(call)));
        self.s3
            .iter()
            .for_each(|told| count(format!("S3 {}", told.operation), told.outcome.clone()));
        outcomes
    }
}

fn answer_of(call: &Call) -> Option<&Answer> {
    call.answered.as_ref().map(|answered| &answered.answer)
}

fn wishes_of(asked: &Asked) -> Wishes {
    let mut wishes = Wishes::default();
    let mut put = |change: &Change| {
        if let Change::Put { value, adds, .. } = change {
            let wished = (value.clone(), *adds);
            let digests = digests_of(&bytes_of(value)).into_iter();
            wishes.values.extend(digests.map(|digest| (digest, wished.clone())));
        }
    };
    match asked {
        Asked::Write(write) => {
            put(&write.change);
            if let (Change::Put { value, adds, .. }, Some(key)) =
                (&write.change, &write.idempotency_key)
                && key.starts_with(s3::UPLOAD)
            {
                wishes.uploads.insert(key.clone(), (value.clone(), *adds));
            }
        }
        Asked::Commit { steps, idempotency_key, .. } => {
            steps.iter().for_each(|(_, change)| put(change));
            wishes.commits.extend(idempotency_key.clone().map(|key| (key, steps.clone())));
        }
        _ => {}
    }
    wishes
}

/// A key, or a number, that was never told is that of the line in the ledger which does the same under the same token: no
/// two puts store the same value. A call that did not happen has none.
fn tie_up(calls: &mut [Call], loose: &HashMap<u64, Loose>, lines: &[Committed]) {
    let mut by_token: HashMap<i64, Vec<&Committed>> = HashMap::new();
    for line in lines {
        by_token.entry(line.token).or_default().push(line);
    }
    for call in calls {
        let Some(loose) = loose.get(&call.number).filter(|it| **it != Loose::default()) else {
            continue;
        };
        let (token, steps) = match &call.asked {
            Asked::Write(write) => (write.token, vec![(&write.resource, &write.change)]),
            Asked::Commit { token, steps, .. } => {
                (*token, steps.iter().map(|(resource, change)| (resource, change)).collect())
            }
            _ => continue,
        };
        let Some((resource, _)) = steps.first().copied() else { continue };
        let does_it = |line: &&&Committed| {
            let here = steps.iter().filter(|(name, _)| *name == resource);
            line.resource == *resource && here.map(|(_, change)| *change).eq(&line.changes)
        };
        let Some(line) = by_token.get(&token).and_then(|lines| lines.iter().find(does_it)) else {
            continue;
        };
        let (key, number) = match &mut call.asked {
            Asked::Write(write) => (&mut write.idempotency_key, &mut write.sequence),
            Asked::Commit { idempotency_key, sequence, .. } => (idempotency_key, sequence),
            _ => continue,
        };
        if loose.key {
            key.clone_from(&line.idempotency_key);
        }
        if loose.number {
            *number = line.sequence;
        }
    }
}

/// A delete is not told its generation. The ledger knows it; of one that it does not hold, only a
/// generation that has ended explains the loss.
fn with_generation(
    mut call: Call,
    generations: &HashMap<Uuid, i64>,
    happened: &[(u64, Record)],
) -> Call {
    let begun_at = call.begun_at;
    if let Some(Answered { answer: Answer::Written { operation, generation, .. }, .. }) =
        &mut call.answered
        && *generation == NOT_TOLD
    {
        let ended = happened.iter().find_map(|(at, record)| match record {
            Record::Rollback(back) if *at > begun_at => Some(back.generation),
            _ => None,
        });
        *generation = generations.get(operation).copied().or(ended).unwrap_or(0);
    }
    call
}

/// Gives each moment to one record only. Of what happened within a microsecond it is not known what was
/// first: then what was asked counts as asked before anything was answered, and faults as the last.
fn in_order(mut calls: Vec<Call>, mut happened: Vec<(u64, Record)>) -> Vec<Record> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum What {
        Begun(usize),
        Answered(usize),
        Happened(usize),
    }
    let begun = calls.iter().enumerate().map(|(i, call)| (call.begun_at, What::Begun(i)));
    let answered = calls.iter().enumerate();
    let answered =
        answered.filter_map(|(i, call)| Some((call.answered.as_ref()?.at, What::Answered(i))));
    let done = happened.iter().enumerate().map(|(i, (at, _))| (*at, What::Happened(i)));
    let mut moments: Vec<(u64, What)> = begun.chain(answered).chain(done).collect();
    moments.sort_unstable();
    let mut last = 0;
    for (at, what) in moments {
        last = at.max(last + 1);
        match what {
            What::Begun(i) => calls[i].begun_at = last,
            What::Answered(i) => {
                if let Some(answered) = &mut calls[i].answered {
                    answered.at = last;
                }
            }
            What::Happened(i) => match &mut happened[i] {
                (at, Record::Rollback(back)) => (*at, back.at) = (last, last),
                (at, Record::Healed(healed)) => (*at, healed.at) = (last, last),
                (at, Record::Effect(effect)) => (*at, effect.at) = (last, last),
                (at, Record::Rules(rules)) => (*at, rules.at) = (last, last),
                (at, _) => *at = last,
            },
        }
    }
    let mut timed: Vec<(u64, Record)> =
        calls.into_iter().map(|call| (call.begun_at, Record::Call(call))).collect();
    timed.extend(happened);
    timed.sort_unstable_by_key(|(at, _)| *at);
    timed.into_iter().map(|(_, record)| record).collect()
}

fn name_of(asked: &Asked) -> &'static str {
    match asked {
        Asked::Acquire { .. } => "acquire",
        Asked::Transfer { .. } => "transfer",
        Asked::Fence { .. } => "fence",
        Asked::Renew { .. } => "renew",
        Asked::Release { .. } => "release",
        Asked::Break { .. } => "break",
        Asked::Write(write) => match write.change {
            Change::Put { .. } => "put",
            Change::Delete { .. } | Change::DeleteAll => "delete",
        },
        Asked::Commit { .. } => "commit",
        Asked::Read { .. } => "read",
        Asked::Ask { .. } => "look up",
        Asked::Forward { .. } => "forward",
        Asked::Resolve { .. } => "resolve",
    }
}

fn outcome_of(call: &Call) -> String {
    match answer_of(call) {
        None => "no answer".into(),
        Some(Answer::Unknown { .. }) => "unknown".into(),
        Some(Answer::Refused { code } | Answer::Failed { code }) => code.clone(),
        Some(Answer::Written { replayed: true, .. }) => "replayed".into(),
        Some(Answer::Granted { again: true, .. }) => "again".into(),
        Some(Answer::Outcome(outcome)) => format!("{outcome:?}").to_lowercase(),
        Some(_) => "done".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(number: u64, begun_at: u64, answered_at: Option<u64>) -> Call {
        let asked = Asked::Read { resource: "r".into(), key: "k".into() };
        let answered = answered_at.map(|at| Answered { at, answer: Answer::Done });
        Call { number, client: 1, principal: 1, gateway: 0, begun_at, asked, answered }
    }

    #[test]
    fn each_moment_is_given_to_one_record_and_the_order_stays() {
        let calls = vec![read(2, 10, Some(20)), read(1, 5, Some(10)), read(3, 20, None)];
        let back = Rollback { at: 10, generation: 0, kept: Vec::new() };
        let records = in_order(calls, vec![(10, Record::Rollback(back))]);
        let told: Vec<(u64, u64, Option<u64>)> = records
            .iter()
            .map(|record| match record {
                Record::Call(call) => {
                    (call.number, call.begun_at, call.answered.as_ref().map(|it| it.at))
                }
                Record::Rollback(back) => (0, back.at, None),
                other => panic!("{other:?}"),
            })
            .collect();
        // At 10 call 2 begins, call 1 is answered, the ledger goes back; at 20 call 3 begins first.
        assert_eq!(told, [(1, 5, Some(11)), (2, 10, Some(21)), (0, 12, None), (3, 20, None)]);
    }

    #[test]
    fn a_delete_is_of_the_generation_that_the_ledger_says_or_that_ended_next() {
        let delete = |begun_at, operation| {
            let versions = vec![("r".to_owned(), Some(1))];
            let answer =
                Answer::Written { operation, versions, generation: NOT_TOLD, replayed: false };
            Call {
                answered: Some(Answered { at: begun_at + 1, answer }),
                ..read(1, begun_at, None)
            }
        };
        let (known, lost) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let generations = HashMap::from([(known, 3)]);
        let back =
            |at, generation| (at, Record::Rollback(Rollback { at, generation, kept: Vec::new() }));
        let happened = [back(5, 0), back(15, 1), back(25, 2)];
        let generation = |operation| {
            let call = with_generation(delete(10, operation), &generations, &happened);
            match answer_of(&call) {
                Some(Answer::Written { generation, .. }) => *generation,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((generation(known), generation(lost)), (3, 1));
    }
}
