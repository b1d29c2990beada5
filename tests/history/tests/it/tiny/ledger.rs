//! A ledger for histories: what the rule says, over maps, in as few words as possible.

use std::collections::{BTreeMap, BTreeSet};

use fence_history::{Answer, Change, Committed, Outcome, Sealed, Seen};
use uuid::Uuid;

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub generation: i64,
    pub floor: i64,
    pub fences: BTreeMap<String, Fence>,
    pub locks: BTreeMap<Uuid, (Vec<String>, i64)>,
    pub sealed: Vec<Sealed>,
    pub committed: Vec<Committed>,
    pub buried: BTreeSet<Uuid>,
}

#[derive(Debug, Clone, Default)]
pub struct Fence {
    pub token: i64,
    pub lock: Uuid,
    pub ended: bool,
    pub version: i64,
    sequence: i64,
    objects: BTreeMap<String, Seen>,
}

/// A write, single or of many.
#[derive(Debug, Clone)]
pub struct Item {
    pub operation: Uuid,
    pub token: i64,
    pub sequence: Option<i64>,
    pub key: Option<String>,
    pub if_version: Option<i64>,
    pub steps: Vec<(String, Change)>,
}

pub fn refused(code: &str) -> Answer {
    Answer::Refused { code: code.to_owned() }
}

impl Ledger {
    pub fn holds(&self, lock: Uuid) -> bool {
        let Some((resources, token)) = self.locks.get(&lock) else { return false };
        let holds = |fence: &Fence| fence.lock == lock && !fence.ended;
        *token > self.floor && resources.iter().all(|name| self.fences.get(name).is_some_and(holds))
    }

    /// Seals a lock, or finds it. Who forces takes over what is held: its ttl is over.
    pub fn seal(&mut self, lock: Uuid, resources: &[String], token: i64, force: bool) -> Answer {
        if let Some((_, token)) = self.locks.get(&lock) {
            let token = *token;
            let again =
                Answer::Granted { lock, token, versions: self.versions(resources), again: true };
            return if self.holds(lock) { again } else { refused("lock-superseded") };
        }
        let held = |name: &String| self.fences.get(name).is_some_and(|fence| !fence.ended);
        if !force && resources.iter().any(held) {
            return refused("lock-held");
        }
        for resource in resources {
            let fence = self.fences.entry(resource.clone()).or_default();
            (fence.token, fence.lock, fence.ended, fence.sequence) = (token, lock, false, 0);
            self.sealed.push(Sealed { resource: resource.clone(), token, lock });
        }
        self.locks.insert(lock, (resources.to_vec(), token));
        Answer::Granted { lock, token, versions: self.versions(resources), again: false }
    }

    fn versions(&self, resources: &[String]) -> Vec<(String, i64)> {
        let version = |name: &String| self.fences.get(name).map_or(0, |fence| fence.version);
        resources.iter().map(|name| (name.clone(), version(name))).collect()
    }

    pub fn release(&mut self, lock: Uuid) -> Answer {
        let mine = self.fences.values_mut().filter(|fence| fence.lock == lock);
        mine.for_each(|fence| fence.ended = true);
        Answer::Done
    }

    /// The rule.
    pub fn judge(
        &self,
        resource: &str,
        token: i64,
        sequence: Option<i64>,
    ) -> Result<(), &'static str> {
        let sealed = |it: &Sealed| it.resource == resource && it.token == token;
        let fence = self.fences.get(resource);
        match fence {
            _ if token <= self.floor => Err("fence-token-void"),
            _ if !self.sealed.iter().any(sealed) => Err("fence-token-unknown"),
            Some(fence) if token < fence.token => Err("fence-token-stale"),
            Some(fence) if fence.ended => Err("fence-token-released"),
            Some(fence) if sequence.is_some_and(|it| it <= fence.sequence) => {
                Err("sequence-out-of-order")
            }
            _ => Ok(()),
        }
    }

    pub fn write(&mut self, item: &Item) -> Answer {
        if let Some(known) = self.known(item) {
            return known;
        }
        if self.buried.contains(&item.operation) {
            return refused("operation-buried");
        }
        let resources: BTreeSet<&String> = item.steps.iter().map(|(name, _)| name).collect();
        for resource in &resources {
            if let Err(code) = self.judge(resource, item.token, item.sequence) {
                return refused(code);
            }
            let version = self.fences.get(*resource).map(|fence| fence.version);
            if item.if_version.is_some() && item.if_version != version {
                return refused("version-mismatch");
            }
        }
        let mut versions = Vec::new();
        for resource in resources {
            let fence = self.fences.entry(resource.clone()).or_default();
            fence.sequence = item.sequence.unwrap_or(fence.sequence);
            let steps = item.steps.iter().filter(|(name, _)| name == resource);
            let changes: Vec<Change> = steps.map(|(_, change)| change.clone()).collect();
            let mut changed = false;
            for change in &changes {
                changed |= fence.apply(change, self.generation);
            }
            fence.version += i64::from(changed);
            let version = changed.then_some(fence.version);
            versions.push((resource.clone(), version));
            self.committed.push(Committed {
                operation: item.operation,
                resource: resource.clone(),
                version,
                generation: self.generation,
                token: item.token,
                sequence: item.sequence,
                idempotency_key: item.key.clone(),
                changes,
            });
        }
        let (operation, generation) = (item.operation, self.generation);
        Answer::Written { operation, versions, generation, replayed: false }
    }

    /// A known operation or key.
    fn known(&self, item: &Item) -> Option<Answer> {
        let on_it = |line: &&Committed| item.steps.iter().any(|(name, _)| *name == line.resource);
        let by_key = |line: &&Committed| item.key.is_some() && line.idempotency_key == item.key;
        let same = |line: &&Committed| line.operation == item.operation || by_key(line);
        let found = self.committed.iter().filter(on_it).find(same)?;
        let operation = found.operation;
        let lines: Vec<_> = self.committed.iter().filter(|it| it.operation == operation).collect();
        let held: BTreeSet<String> =
            lines.iter().flat_map(|it| &it.changes).map(|it| format!("{it:?}")).collect();
        let asked = item.steps.iter().map(|(_, change)| format!("{change:?}")).collect();
        if held != asked {
            return Some(refused("idempotency-key-reused"));
        }
        let versions = lines.iter().map(|line| (line.resource.clone(), line.version)).collect();
        let (generation, replayed) = (found.generation, operation != item.operation);
        Some(Answer::Written { operation, versions, generation, replayed })
    }

    pub fn read(&self, resource: &str, key: &str) -> Answer {
        let fence = self.fences.get(resource);
        let found = fence.and_then(|fence| fence.objects.get(key)).cloned();
        Answer::Value { found, resource_version: fence.map(|fence| fence.version) }
    }

    pub fn ask(&self, operation: Uuid) -> Answer {
        let applied = self.committed.iter().any(|line| line.operation == operation);
        Answer::Outcome(match (applied, self.buried.contains(&operation)) {
            (true, _) => Outcome::Applied,
            (_, true) => Outcome::Buried,
            _ => Outcome::NotKnown,
        })
    }
}

impl Fence {
    fn apply(&mut self, change: &Change, generation: i64) -> bool {
        match change {
            Change::Put { key, value, .. } => {
                let version = self.version + 1;
                let seen = Seen { generation, version, value: value.clone() };
                self.objects.insert(key.clone(), seen);
                true
            }
            Change::Delete { key } => self.objects.remove(key).is_some(),
            Change::DeleteAll => {
                let any = !self.objects.is_empty();
                self.objects.clear();
                any
            }
        }
    }
}
