//! What clients ask for, at random, by what they know.

use fence_history::{Asked, Change, FencedWrite};

use super::world::{Held, World};

impl World {
    pub(super) fn choose(&mut self, client: usize) -> Asked {
        let lock = self.clients[client].lock.clone();
        match (self.random.below(100), lock) {
            (0..15, _) | (_, None) => self.without_a_lock(client),
            (15..60, Some(held)) => self.write_under(&held),
            (60..75, Some(held)) => self.read_under(held),
            (75..82, Some(held)) => Asked::Release { lock: held.id },
            (_, Some(held)) if self.shape.plain => self.write_under(&held),
            (82..86, Some(held)) => Asked::Renew { lock: held.id },
            (86..90, Some(held)) => {
                let to = Some(self.id());
                Asked::Transfer { from: held.id, to, resources: held.resources }
            }
            (90..95, Some(held)) => {
                let resource = held.resources[0].clone();
                Asked::Forward { resource, token: held.token, request: self.id() }
            }
            (_, Some(held)) => Asked::Acquire { lock: Some(held.id), resources: held.resources },
        }
    }

    fn without_a_lock(&mut self, client: usize) -> Asked {
        let resource = self.resource();
        let dice = self.random.below(100);
        match dice {
            0..25 => Asked::Read { resource, key: self.key() },
            25..40 if !self.shape.plain => match self.random.pick(&self.questions).copied() {
                Some(operation) => Asked::Ask { operation },
                None => Asked::Break { resource },
            },
            40..50 => {
                let old = self.random.pick(&self.clients[client].old).cloned();
                let (resource, token, forged) = match old {
                    Some((resource, token)) => (resource, token, false),
                    None => (resource, 1 << 50, true),
                };
                self.single(resource, token, forged, None)
            }
            50..58 if !self.shape.plain => Asked::Fence { lock: self.id(), resource },
            58..61 if !self.shape.plain => Asked::Break { resource },
            _ => {
                let two = !self.shape.plain && self.shape.resources > 1 && self.random.percent(25);
                let resources = match two {
                    true => vec!["r0".to_owned(), "r1".to_owned()],
                    false => vec![resource],
                };
                let lock = (!self.shape.plain && self.random.percent(70)).then(|| self.id());
                Asked::Acquire { lock, resources }
            }
        }
    }

    fn key(&mut self) -> String {
        ["a", "b", "set"][usize::try_from(self.random.below(3)).expect("small")].to_owned()
    }

    fn change(&mut self) -> Change {
        self.counter += 1;
        let key = ["a", "b"][usize::from(self.random.percent(50))].to_owned();
        match self.random.below(10) {
            0 => Change::DeleteAll,
            1 | 2 => Change::Delete { key },
            _ => Change::Put { key, value: format!("v{}", self.counter), adds: None },
        }
    }

    pub(super) fn single(
        &mut self,
        resource: String,
        token: i64,
        forged: bool,
        held: Option<&Held>,
    ) -> Asked {
        let plain = self.shape.plain;
        let again = (!self.retries.is_empty() && self.random.percent(40)).then(|| {
            let at = self.random.below(self.retries.len() as u64);
            self.retries[usize::try_from(at).expect("small")].clone()
        });
        let again = again.filter(|(name, ..)| *name == resource);
        let (change, key) = match again {
            Some((_, change, key)) => (change, key),
            None => {
                let change = self.change();
                let keyed = self.random.percent(50);
                (change, keyed.then(|| format!("k{}", self.counter)))
            }
        };
        let sequence = held.filter(|_| !plain).map(|held| held.sequence + 1);
        let if_version = held.filter(|_| !plain).map(|held| held.version);
        Asked::Write(FencedWrite {
            resource,
            token,
            forged,
            sequence,
            idempotency_key: key,
            if_version: if_version.filter(|_| self.random.percent(20)),
            change,
        })
    }

    fn write_under(&mut self, held: &Held) -> Asked {
        let resource = held.resources[0].clone();
        let sequence = Some(held.sequence + 1);
        if let Some((resource, set)) = held.read.clone().filter(|_| !self.shape.plain) {
            self.counter += 1;
            let add = u64::try_from(self.counter).expect("few");
            let value = format!("{set} {add}").trim().to_owned();
            let change = Change::Put { key: "set".to_owned(), value, adds: Some(add) };
            let (token, forged, if_version) = (held.token, false, None);
            let idempotency_key = self.random.percent(50).then(|| format!("k{add}"));
            return Asked::Write(FencedWrite {
                resource,
                token,
                forged,
                sequence,
                idempotency_key,
                if_version,
                change,
            });
        }
        if held.resources.len() > 1 && self.random.percent(70) {
            let steps = held.resources.iter().map(|name| (name.clone(), self.change())).collect();
            let idempotency_key = self.random.percent(50).then(|| format!("k{}", self.counter));
            return Asked::Commit { token: held.token, sequence, idempotency_key, steps };
        }
        self.single(resource, held.token, false, Some(held))
    }

    fn read_under(&mut self, held: Held) -> Asked {
        Asked::Read { resource: held.resources[0].clone(), key: "set".to_owned() }
    }
}
