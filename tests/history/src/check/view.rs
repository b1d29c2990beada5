//! A history, sorted and indexed for the checkers.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::record::{
    Answer, Asked, Call, Change, Committed, Effect, Healed, History, Record, Rollback, Rules,
    Sealed, Writers,
};

/// What a change does, without what it means to its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Deed<'a> {
    Put { key: &'a str, value: &'a str },
    Delete { key: &'a str },
    DeleteAll,
}

impl<'a> Deed<'a> {
    pub(super) fn of(change: &'a Change) -> Self {
        match change {
            Change::Put { key, value, .. } => Self::Put { key, value },
            Change::Delete { key } => Self::Delete { key },
            Change::DeleteAll => Self::DeleteAll,
        }
    }
}

/// All by which the ledger's operation is told to be the one that a call asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Signature<'a> {
    pub(super) token: i64,
    pub(super) sequence: Option<i64>,
    pub(super) idempotency_key: Option<&'a str>,
    /// Sorted by resource; what is done to one stays in order.
    pub(super) deeds: Vec<(&'a str, Vec<Deed<'a>>)>,
}

/// A call that asked for a write, single or of many.
#[derive(Debug, Clone)]
pub(super) struct Attempt<'a> {
    pub(super) call: &'a Call,
    pub(super) signature: Signature<'a>,
    pub(super) forged: bool,
    pub(super) if_version: Option<i64>,
    pub(super) told: Option<Told<'a>>,
}

/// A call was told that a write took effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) operation: Uuid,
    pub(super) versions: &'a [(String, Option<i64>)],
    pub(super) generation: i64,
    pub(super) replayed: bool,
    pub(super) at: u64,
}

/// A call was told that it has a lock: one of these for each resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant<'a> {
    pub(super) call: &'a Call,
    pub(super) at: u64,
    pub(super) resource: &'a str,
    pub(super) lock: Uuid,
    pub(super) token: i64,
    pub(super) version: i64,
    pub(super) again: bool,
}

/// A history, sorted and indexed.
#[derive(Debug, Default)]
pub(super) struct View<'a> {
    pub(super) calls: Vec<&'a Call>,
    pub(super) effects: Vec<&'a Effect>,
    /// Requests to drained upstreams, by the operations that they were admitted as.
    pub(super) requests: HashMap<Uuid, Uuid>,
    /// In the order of time.
    pub(super) rollbacks: Vec<Back<'a>>,
    pub(super) healed: Vec<&'a Healed>,
    /// In the order of time.
    pub(super) rules: Vec<&'a Rules>,
    /// Who else may write under a lock.
    pub(super) writers: HashMap<Uuid, &'a [u32]>,
    pub(super) sealed: Vec<&'a Sealed>,
    pub(super) committed: Vec<&'a Committed>,
    /// What took a version, in the order of versions.
    pub(super) versions: BTreeMap<&'a str, Vec<(i64, &'a Committed)>>,
    /// What the ledger holds of an operation, one for each resource.
    pub(super) operations: HashMap<Uuid, Vec<&'a Committed>>,
    pub(super) attempts: Vec<Attempt<'a>>,
    pub(super) grants: Vec<Grant<'a>>,
    /// What somebody was told of an operation.
    pub(super) told: HashMap<Uuid, Told<'a>>,
    /// When an operation of the ledger was asked for first, as far as calls tell.
    pub(super) asked_at: HashMap<Uuid, u64>,
}

/// A rollback.
#[derive(Debug)]
pub(super) struct Back<'a> {
    pub(super) at: u64,
    pub(super) generation: i64,
    kept: HashMap<&'a str, i64>,
}

impl<'a> Back<'a> {
    /// What it kept anything of.
    pub(super) fn resources(&self) -> impl Iterator<Item = &'a str> {
        self.kept.keys().copied()
    }

    /// Up to which version it kept a resource; `None` if it lost all of it.
    pub(super) fn kept(&self, resource: &str) -> Option<i64> {
        self.kept.get(resource).copied()
    }
}

impl<'a> View<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut view = Self::default();
        for record in &history.records {
            match record {
                Record::Call(call) => view.calls.push(call),
                Record::Effect(effect) => view.effects.push(effect),
                Record::Intent(intent) => {
                    view.requests.insert(intent.operation, intent.request);
                }
                Record::Rollback(Rollback { at, generation, kept }) => {
                    let kept = kept.iter().map(|(name, version)| (name.as_str(), *version));
                    let kept = kept.collect();
                    view.rollbacks.push(Back { at: *at, generation: *generation, kept });
                }
                Record::Healed(healed) => view.healed.push(healed),
                Record::Rules(rules) => view.rules.push(rules),
                Record::Writers(Writers { lock, principals }) => {
                    view.writers.insert(*lock, principals);
                }
                Record::Sealed(sealed) => view.sealed.push(sealed),
                Record::Committed(committed) => view.committed.push(committed),
            }
        }
        view.rollbacks.sort_by_key(|back| back.at);
        view.rules.sort_by_key(|rules| rules.at);
        for line in &view.committed {
            if let Some(version) = line.version {
                view.versions.entry(&line.resource).or_default().push((version, line));
            }
            view.operations.entry(line.operation).or_default().push(line);
        }
        view.versions.values_mut().for_each(|lines| lines.sort_by_key(|(version, _)| *version));
        view.attempts = view.calls.iter().filter_map(|call| attempt(call)).collect();
        view.grants = view.calls.iter().flat_map(|call| grants(call)).collect();
        let told = view.attempts.iter().filter_map(|attempt| attempt.told);
        view.told = told.map(|told| (told.operation, told)).collect();
        view.asked_at = view.first_asked();
        view
    }

    fn first_asked(&self) -> HashMap<Uuid, u64> {
        let mut by_signature: HashMap<&Signature<'_>, u64> = HashMap::new();
        for Attempt { call, signature, .. } in &self.attempts {
            let at = by_signature.entry(signature).or_insert(call.begun_at);
            *at = call.begun_at.min(*at);
        }
        let asked = |(id, lines): (&Uuid, &Vec<&'a Committed>)| {
            Some((*id, *by_signature.get(&signature_of(lines))?))
        };
        self.operations.iter().filter_map(asked).collect()
    }

    /// What the ledger holds of an operation on a resource.
    pub(super) fn line(&self, operation: Uuid, resource: &str) -> Option<&'a Committed> {
        let lines = self.operations.get(&operation)?;
        lines.iter().find(|line| line.resource == resource).copied()
    }

    /// What made a version, if the ledger holds it.
    pub(super) fn maker(&self, resource: &str, version: i64) -> Option<&'a Committed> {
        let lines = self.versions.get(resource)?;
        let at = lines.partition_point(|(other, _)| *other < version);
        lines.get(at).filter(|(other, _)| *other == version).map(|(_, line)| *line)
    }

    /// Whether a rollback explains that something is gone which was there at some moment after
    /// `since`. Of what took no version it is not known whether it was kept, so any rollback does.
    pub(super) fn is_lost(
        &self,
        resource: &str,
        version: Option<i64>,
        generation: i64,
        since: u64,
    ) -> bool {
        self.rollbacks.iter().any(|back| {
            let above = |version| back.kept(resource).is_none_or(|kept| version > kept);
            back.at > since && generation <= back.generation && version.is_none_or(above)
        })
    }

    /// For each rollback up to which version of a resource its line lasts to the end: what it kept,
    /// unless a later one took it back.
    pub(super) fn kept_at_end(&self, resource: &str) -> Vec<Option<i64>> {
        let mut kept: Vec<_> = self.rollbacks.iter().map(|back| back.kept(resource)).collect();
        let mut lowest = Some(i64::MAX);
        for kept in kept.iter_mut().rev() {
            lowest = lowest.min(*kept);
            *kept = lowest;
        }
        kept
    }

    /// Whether the ledger went back between two moments.
    pub(super) fn went_back(&self, after: u64, before: u64) -> bool {
        self.rollbacks.iter().any(|back| after < back.at && back.at < before)
    }
}

/// The signature of an operation in the ledger.
pub(super) fn signature_of<'a>(lines: &[&'a Committed]) -> Signature<'a> {
    let mut deeds: Vec<_> = lines
        .iter()
        .map(|line| (line.resource.as_str(), line.changes.iter().map(Deed::of).collect()))
        .collect();
    deeds.sort_by_key(|(resource, _)| *resource);
    let first = lines.first();
    Signature {
        token: first.map_or(0, |line| line.token),
        sequence: first.and_then(|line| line.sequence),
        idempotency_key: first.and_then(|line| line.idempotency_key.as_deref()),
        deeds,
    }
}

fn attempt(call: &Call) -> Option<Attempt<'_>> {
    let (token, sequence, key, forged, if_version, steps) = match &call.asked {
        Asked::Write(write) => {
            let steps = vec![(write.resource.as_str(), &write.change)];
            let key = &write.idempotency_key;
            (write.token, write.sequence, key, write.forged, write.if_version, steps)
        }
        Asked::Commit { token, sequence, idempotency_key, steps } => {
            let steps = steps.iter().map(|(resource, change)| (resource.as_str(), change));
            (*token, *sequence, idempotency_key, false, None, steps.collect())
        }
        _ => return None,
    };
    let mut deeds: BTreeMap<&str, Vec<Deed<'_>>> = BTreeMap::new();
    for (resource, change) in steps {
        deeds.entry(resource).or_default().push(Deed::of(change));
    }
    let deeds = deeds.into_iter().collect();
    let signature = Signature { token, sequence, idempotency_key: key.as_deref(), deeds };
    let told = call.answered.as_ref().and_then(|answered| match &answered.answer {
        Answer::Written { operation, versions, generation, replayed } => Some(Told {
            operation: *operation,
            versions,
            generation: *generation,
            replayed: *replayed,
            at: answered.at,
        }),
        _ => None,
    });
    Some(Attempt { call, signature, forged, if_version, told })
}

fn grants(call: &Call) -> Vec<Grant<'_>> {
    let Some(answered) = &call.answered else { return Vec::new() };
    let Answer::Granted { lock, token, versions, again } = &answered.answer else {
        return Vec::new();
    };
    versions
        .iter()
        .map(|(resource, version)| Grant {
            call,
            at: answered.at,
            resource,
            lock: *lock,
            token: *token,
            version: *version,
            again: *again,
        })
        .collect()
}

/// For each resource the highest number known at a moment, and the call that made it known.
#[derive(Debug, Default)]
pub(super) struct Rising<'a>(HashMap<&'a str, Vec<(u64, i64, u64)>>);

impl<'a> Rising<'a> {
    /// The highest token granted, by the moments of the answers.
    pub(super) fn tokens(view: &View<'a>, with_again: bool) -> Self {
        let mut rising: HashMap<&str, Vec<(u64, i64, u64)>> = HashMap::new();
        for grant in view.grants.iter().filter(|grant| with_again || !grant.again) {
            let known = (grant.at, grant.token, grant.call.number);
            rising.entry(grant.resource).or_default().push(known);
        }
        for known in rising.values_mut() {
            known.sort_unstable();
            let mut highest = (i64::MIN, 0);
            for (_, token, call) in known {
                highest = highest.max((*token, *call));
                (*token, *call) = highest;
            }
        }
        Self(rising)
    }

    /// The highest token before a moment, and the call that was told of it.
    pub(super) fn before(&self, resource: &str, moment: u64) -> Option<(i64, u64)> {
        let known = self.0.get(resource)?;
        let after = known.partition_point(|(at, _, _)| *at < moment);
        known.get(after.checked_sub(1)?).map(|(_, token, call)| (*token, *call))
    }
}
