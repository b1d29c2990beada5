//! From calls to the steps that they take on each resource.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::model::Step;
use super::search::Timed;
use crate::record::{Answer, Asked, Call, Change};

/// Refusals of a call for a lock that may have sealed it all the same: as draining, or it ended before
/// the answer.
const PERHAPS_SEALED: [&str; 6] = [
    "resource-draining",
    "lock-wait-elapsed",
    "lock-superseded",
    "lock-released",
    "lock-broken",
    "lock-breaking",
];

/// The steps of each resource.
pub(super) fn by_resource(calls: &[Call]) -> BTreeMap<String, Vec<Timed>> {
    let locks = Locks::of(calls);
    let mut resources: BTreeMap<&str, Steps<'_>> = BTreeMap::new();
    for ((resource, _), claim) in &locks.claims {
        resources.entry(resource).or_default().claim(claim);
    }
    for call in calls {
        for (resource, token) in locks.touched(call) {
            resources.entry(resource).or_default().lock_call(call, token);
        }
        data_call(call, &mut resources);
    }
    resources.into_iter().map(|(name, steps)| (name.to_owned(), steps.steps)).collect()
}

/// All calls for one lock on one resource: one of them seals it, the others find it.
struct Claim {
    call: u64,
    begun_at: u64,
    /// The token and when somebody was told of it first.
    granted: Option<(i64, u64)>,
    /// Whether it may be sealed although nobody was told.
    perhaps: bool,
    from: Option<Uuid>,
    from_token: Option<i64>,
}

struct Locks<'a> {
    claims: BTreeMap<(&'a str, Lock), Claim>,
    /// The token of a lock that somebody was told of, on its resources.
    tokens: HashMap<Uuid, Vec<(&'a str, i64)>>,
}

/// A lock is named by its id, or, if nobody knows it, by the call that asked for it.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Lock {
    Id(Uuid),
    Call(u64),
}

impl<'a> Locks<'a> {
    fn of(calls: &'a [Call]) -> Self {
        let mut locks = Self { claims: BTreeMap::new(), tokens: HashMap::new() };
        for call in calls {
            let (proposed, resources, from): (_, Vec<&str>, _) = match &call.asked {
                Asked::Acquire { lock, resources } => {
                    (*lock, resources.iter().map(String::as_str).collect(), None)
                }
                Asked::Transfer { from, to, resources } => {
                    (*to, resources.iter().map(String::as_str).collect(), Some(*from))
                }
                Asked::Fence { lock, resource } => (Some(*lock), vec![resource.as_str()], None),
                _ => continue,
            };
            let answer = call.answered.as_ref().map(|answered| (&answered.answer, answered.at));
            let granted = match answer {
                Some((Answer::Granted { lock, token, .. }, at)) => Some((*lock, *token, at)),
                _ => None,
            };
            let perhaps = match answer {
                Some((Answer::Refused { code } | Answer::Failed { code }, _)) => {
                    PERHAPS_SEALED.contains(&code.as_str())
                }
                _ => true,
            };
            let id = granted.map(|(lock, ..)| lock).or(proposed);
            let name = id.map_or(Lock::Call(call.number), Lock::Id);
            for resource in resources {
                let claim = locks.claims.entry((resource, name)).or_insert(Claim {
                    call: call.number,
                    begun_at: call.begun_at,
                    granted: None,
                    perhaps: false,
                    from,
                    from_token: None,
                });
                claim.perhaps |= perhaps;
                let Some((lock, token, at)) = granted else { continue };
                if claim.granted.is_none() {
                    locks.tokens.entry(lock).or_default().push((resource, token));
                    claim.call = call.number;
                }
                let first = claim.granted.get_or_insert((token, at));
                first.1 = at.min(first.1);
            }
        }
        let tokens = &locks.tokens;
        for ((resource, _), claim) in &mut locks.claims {
            let of_from = claim.from.and_then(|from| tokens.get(&from)).into_iter().flatten();
            claim.from_token = of_from.filter(|(name, _)| name == resource).map(|it| it.1).next();
        }
        locks
    }

    /// The resources, with tokens, of the lock that a call is about.
    fn touched(&self, call: &Call) -> Vec<(&'a str, i64)> {
        let lock = match &call.asked {
            Asked::Acquire { lock, .. } | Asked::Transfer { to: lock, .. } => *lock,
            Asked::Fence { lock, .. } | Asked::Renew { lock } | Asked::Release { lock } => {
                Some(*lock)
            }
            _ => None,
        };
        lock.and_then(|lock| self.tokens.get(&lock)).cloned().unwrap_or_default()
    }
}

/// What is done to a resource, and the numbers of its objects, values and keys.
#[derive(Default)]
struct Steps<'a> {
    steps: Vec<Timed>,
    objects: HashMap<&'a str, u32>,
    values: HashMap<&'a str, u32>,
    keys: HashMap<&'a str, u32>,
}

fn number<'a>(names: &mut HashMap<&'a str, u32>, name: &'a str) -> u32 {
    let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
    *names.entry(name).or_insert(next)
}

impl<'a> Steps<'a> {
    fn claim(&mut self, claim: &Claim) {
        let (at, step) = match claim.granted {
            Some((token, at)) => (Some(at), Step::Raise { token, from: claim.from_token }),
            None if claim.perhaps => (None, Step::RaiseHidden),
            None => return,
        };
        self.steps.push(Timed { call: claim.call, begun_at: claim.begun_at, at, step });
    }

    /// What a call about a lock does beyond sealing it.
    fn lock_call(&mut self, call: &Call, token: i64) {
        let at = call.answered.as_ref().map(|answered| answered.at);
        let answer = call.answered.as_ref().map(|answered| &answered.answer);
        // A lock may end without anybody being told: it only admits less then, so that nothing that was
        // told depends on it.
        let Some(answer) = answer else { return };
        let step = match (&call.asked, answer) {
            (Asked::Release { .. }, Answer::Done) => Step::End { token },
            (Asked::Renew { .. }, Answer::Done) => Step::Holds { token },
            (_, Answer::Granted { again: true, .. }) => Step::Holds { token },
            _ => return,
        };
        let (call, begun_at) = (call.number, call.begun_at);
        self.steps.push(Timed { call, begun_at, at, step });
    }

    fn write(&mut self, call: &Call, token: i64, key: Option<&'a str>, changes: &[&'a Change]) {
        let at = call.answered.as_ref().map(|answered| answered.at);
        let key = key.map(|key| number(&mut self.keys, key));
        let (at, step) = match (call.answered.as_ref().map(|answered| &answered.answer), key) {
            (Some(Answer::Refused { code }), _) if code == "fence-token-stale" => {
                (at, Step::Stale { token })
            }
            (Some(Answer::Written { replayed: true, .. }), Some(key)) => (at, Step::Replay { key }),
            (Some(Answer::Written { .. }), _) => (at, self.new_write(token, key, changes)),
            (None | Some(Answer::Unknown { .. }), _) => (None, self.new_write(token, key, changes)),
            _ => return,
        };
        self.steps.push(Timed { call: call.number, begun_at: call.begun_at, at, step });
    }

    fn new_write(&mut self, token: i64, key: Option<u32>, changes: &[&'a Change]) -> Step {
        let deed = |change: &&'a Change| match change {
            Change::Put { key, value, .. } => {
                (Some(number(&mut self.objects, key)), number(&mut self.values, value) + 1)
            }
            Change::Delete { key } => (Some(number(&mut self.objects, key)), 0),
            Change::DeleteAll => (None, 0),
        };
        Step::Write { token, key, deeds: changes.iter().map(deed).collect() }
    }

    fn read(&mut self, call: &Call, at: u64, object: &'a str, value: Option<&'a str>) {
        let object = number(&mut self.objects, object);
        let value = value.map_or(0, |value| number(&mut self.values, value) + 1);
        let step = Step::Read { object, value };
        self.steps.push(Timed { call: call.number, begun_at: call.begun_at, at: Some(at), step });
    }
}

fn data_call<'a>(call: &'a Call, resources: &mut BTreeMap<&'a str, Steps<'a>>) {
    let answered = call.answered.as_ref();
    match (&call.asked, answered.map(|it| (&it.answer, it.at))) {
        (Asked::Write(write), _) => {
            let key = write.idempotency_key.as_deref();
            let steps = resources.entry(&write.resource).or_default();
            steps.write(call, write.token, key, &[&write.change]);
        }
        (Asked::Commit { token, idempotency_key, steps, .. }, answer) => {
            let mut parts: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
            for (resource, change) in steps {
                parts.entry(resource).or_default().push(change);
            }
            // Which of several resources refused it is not told.
            if parts.len() > 1 && matches!(answer, Some((Answer::Refused { .. }, _))) {
                return;
            }
            for (resource, changes) in parts {
                let steps = resources.entry(resource).or_default();
                steps.write(call, *token, idempotency_key.as_deref(), &changes);
            }
        }
        (Asked::Read { resource, key }, Some((Answer::Value { found, .. }, at))) => {
            let value = found.as_ref().map(|seen| seen.value.as_str());
            resources.entry(resource).or_default().read(call, at, key, value);
        }
        (Asked::Forward { resource, token, .. }, Some((Answer::Forwarded, at))) => {
            let (step, at) = (Step::Holds { token: *token }, Some(at));
            let timed = Timed { call: call.number, begun_at: call.begun_at, at, step };
            resources.entry(resource).or_default().steps.push(timed);
        }
        _ => {}
    }
}
