//! The world of a ledger and its clients, one step at a time: a call begins, is decided, is answered.

use std::mem::take;

use fence_history::{
    Answer, Answered, Asked, Call, Change, Effect, Healed, History, Record, Rollback,
};
use uuid::Uuid;

use super::ledger::{Item, Ledger, refused};
use super::{Random, Shape};

/// Where a call is.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Begun,
    Decided(Answer),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    under_way: Option<(usize, Phase)>,
    pub(super) lock: Option<Held>,
    /// Tokens of locks that it gave up or lost: on what, which.
    pub(super) old: Vec<(String, i64)>,
}

/// A lock as its holder knows it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: Uuid,
    pub(super) token: i64,
    pub(super) resources: Vec<String>,
    pub(super) sequence: i64,
    /// The set of which resource, read since the grant and the last write.
    pub(super) read: Option<(String, String)>,
    pub(super) version: i64,
}

/// The ledger, the clients, and what is recorded.
pub struct World {
    pub(super) random: Random,
    pub(super) shape: Shape,
    now: u64,
    mint: i64,
    pub(super) counter: u128,
    ledger: Ledger,
    snapshot: Ledger,
    pub(super) clients: Vec<Client>,
    calls: Vec<Call>,
    events: Vec<Record>,
    /// Writes of unknown outcome that may still take effect.
    late: Vec<Item>,
    /// Keyed writes of unknown outcome that anybody may send again.
    pub(super) retries: Vec<(String, Change, Option<String>)>,
    /// Operations that somebody may ask about.
    pub(super) questions: Vec<Uuid>,
    /// Calls to the upstream that may still have their effect.
    open: Vec<(usize, String, i64, Uuid)>,
}

impl World {
    pub fn new(seed: u64, shape: Shape) -> Self {
        Self {
            random: Random(seed),
            shape,
            now: 0,
            mint: 0,
            counter: 0,
            ledger: Ledger::default(),
            snapshot: Ledger::default(),
            clients: (0..shape.clients).map(|_| Client::default()).collect(),
            calls: Vec::new(),
            events: Vec::new(),
            late: Vec::new(),
            retries: Vec::new(),
            questions: Vec::new(),
            open: Vec::new(),
        }
    }

    pub fn run(mut self) -> History {
        let rollbacks = u64::from(self.shape.rollbacks);
        while (self.calls.len() as u64) < self.shape.calls
            || self.clients.iter().any(|client| client.under_way.is_some())
        {
            let at = self.random.below(self.clients.len() as u64);
            self.step(usize::try_from(at).expect("few clients"));
            self.late_write();
            if self.random.below(self.shape.calls) < rollbacks {
                self.snapshot = self.ledger.clone();
            }
            if self.random.below(self.shape.calls * 3) < rollbacks {
                self.go_back();
            }
        }
        if !self.shape.plain {
            self.heal();
        }
        let mut records: Vec<Record> = self.calls.into_iter().map(Record::Call).collect();
        records.extend(self.events);
        records.extend(self.ledger.sealed.into_iter().map(Record::Sealed));
        records.extend(self.ledger.committed.into_iter().map(Record::Committed));
        History { records }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1 + self.random.below(2_000);
        self.now
    }

    pub(super) fn id(&mut self) -> Uuid {
        self.counter += 1;
        Uuid::from_u128(self.counter)
    }

    fn step(&mut self, client: usize) {
        match self.clients[client].under_way.take() {
            None if (self.calls.len() as u64) < self.shape.calls => {
                let asked = self.choose(client);
                self.begin(client, asked);
            }
            None => {}
            Some((call, Phase::Begun)) => self.decide(client, call),
            Some((call, Phase::Decided(answer))) => self.answer(client, call, answer),
        }
    }

    fn begin(&mut self, client: usize, asked: Asked) {
        let begun_at = self.tick();
        let number = self.calls.len() as u64 + 1;
        let of = u32::try_from(client).expect("few clients");
        let gateway = of % 2;
        self.calls.push(Call {
            number,
            client: of,
            principal: of,
            gateway,
            begun_at,
            asked,
            answered: None,
        });
        self.clients[client].under_way = Some((self.calls.len() - 1, Phase::Begun));
    }

    pub(super) fn resource(&mut self) -> String {
        format!("r{}", self.random.below(u64::from(self.shape.resources)))
    }

    fn decide(&mut self, client: usize, call: usize) {
        let asked = self.calls[call].asked.clone();
        let is_read = matches!(asked, Asked::Read { .. } | Asked::Ask { .. });
        let answer = if is_read || !self.random.percent(self.shape.accidents) {
            self.carry_out(call, &asked)
        } else {
            self.accident(call, &asked)
        };
        self.clients[client].under_way = Some((call, Phase::Decided(answer)));
    }

    /// Nothing happens and it is said, or nobody knows.
    fn accident(&mut self, call: usize, asked: &Asked) -> Answer {
        let item = self.item(asked);
        match (self.random.below(3), item) {
            (0, _) => Answer::Failed { code: "ledger-unavailable".to_owned() },
            (1, Some(item)) => {
                let operation = Some(item.operation);
                self.questions.extend(operation);
                self.late.push(item);
                Answer::Unknown { operation }
            }
            (_, Some(item)) => {
                let operation = Some(item.operation);
                self.questions.extend(operation);
                self.ledger.write(&item);
                Answer::Unknown { operation }
            }
            (_, None) => {
                self.carry_out(call, asked);
                Answer::Unknown { operation: None }
            }
        }
    }

    fn item(&mut self, asked: &Asked) -> Option<Item> {
        let operation = self.id();
        match asked.clone() {
            Asked::Write(write) => Some(Item {
                operation,
                token: write.token,
                sequence: write.sequence,
                key: write.idempotency_key,
                if_version: write.if_version,
                steps: vec![(write.resource, write.change)],
            }),
            Asked::Commit { token, sequence, idempotency_key: key, steps } => {
                Some(Item { operation, token, sequence, key, if_version: None, steps })
            }
            _ => None,
        }
    }

    fn carry_out(&mut self, call: usize, asked: &Asked) -> Answer {
        if let Some(item) = self.item(asked) {
            let answer = self.ledger.write(&item);
            if let Answer::Written { operation, .. } = answer {
                self.questions.push(operation);
            }
            return answer;
        }
        match asked.clone() {
            Asked::Acquire { lock, resources } => {
                let lock = lock.unwrap_or_else(|| self.id());
                let force = self.random.percent(20);
                self.seal(lock, &resources, force)
            }
            Asked::Transfer { from, to, resources } => {
                let to = to.unwrap_or_else(|| self.id());
                match self.ledger.holds(from) {
                    true => self.seal(to, &resources, true),
                    false => refused("lock-superseded"),
                }
            }
            Asked::Fence { lock, resource } => self.seal(lock, &[resource], true),
            Asked::Renew { lock } => match self.ledger.holds(lock) {
                true => Answer::Done,
                false => refused("lock-superseded"),
            },
            Asked::Release { lock } => self.ledger.release(lock),
            Asked::Break { resource } => {
                let fence = self.ledger.fences.get_mut(&resource);
                fence.into_iter().for_each(|fence| fence.ended = true);
                Answer::Done
            }
            Asked::Read { resource, key } => self.ledger.read(&resource, &key),
            Asked::Ask { operation } => self.ledger.ask(operation),
            Asked::Forward { resource, token, request } => {
                match self.ledger.judge(&resource, token, None) {
                    Ok(()) => {
                        self.open.push((call, resource, token, request));
                        Answer::Forwarded
                    }
                    Err(code) => refused(code),
                }
            }
            Asked::Resolve { .. } => unreachable!("nobody asks that"),
            Asked::Write(_) | Asked::Commit { .. } => unreachable!("an item"),
        }
    }

    fn seal(&mut self, lock: Uuid, resources: &[String], force: bool) -> Answer {
        if self.open.iter().any(|(_, name, ..)| resources.contains(name)) {
            return Answer::Refused { code: "resource-draining".to_owned() };
        }
        self.mint += 2;
        self.ledger.seal(lock, resources, self.mint, force)
    }

    fn answer(&mut self, client: usize, call: usize, answer: Answer) {
        if let Some(at) = self.open.iter().position(|(open, ..)| *open == call) {
            let (_, resource, token, request) = self.open.remove(at);
            let at = self.tick();
            self.events.push(Record::Effect(Effect { at, resource, token, request }));
        }
        let asked = self.calls[call].asked.clone();
        let lost = self.random.below(200) < self.shape.accidents;
        if let (Asked::Write(write), true) =
            (&asked, lost || matches!(answer, Answer::Unknown { .. }))
            && write.idempotency_key.is_some()
            && !matches!(write.change, Change::Put { adds: Some(_), .. })
        {
            let (resource, change) = (write.resource.clone(), write.change.clone());
            self.retries.push((resource, change, write.idempotency_key.clone()));
        }
        if lost {
            return self.give_up(client, &asked);
        }
        let at = self.tick();
        self.learn(client, &asked, &answer);
        self.calls[call].answered = Some(Answered { at, answer });
    }

    /// Who does not know what came of a call goes on without its lock. An add that may come late
    /// reckons with nobody writing under its token in between, not even its writer.
    fn give_up(&mut self, client: usize, asked: &Asked) {
        let adds = matches!(asked, Asked::Write(write) if matches!(write.change, Change::Put { adds: Some(_), .. }));
        let client = &mut self.clients[client];
        if let Some(held) = client.lock.take().filter(|_| !adds) {
            client.old.extend(held.resources.into_iter().map(|name| (name, held.token)));
        }
    }

    fn learn(&mut self, client: usize, asked: &Asked, answer: &Answer) {
        match (asked, answer) {
            (_, Answer::Unknown { .. } | Answer::Failed { .. }) => self.give_up(client, asked),
            (Asked::Release { .. }, _) => self.give_up(client, asked),
            (_, Answer::Granted { lock, token, versions, again: false }) => {
                self.give_up(client, asked);
                let resources = versions.iter().map(|(name, _)| name.clone()).collect();
                let version = versions.first().map_or(0, |(_, version)| *version);
                let (id, token, read) = (*lock, *token, None);
                let held = Held { id, token, resources, sequence: 0, read, version };
                self.clients[client].lock = Some(held);
            }
            (Asked::Read { resource, key }, Answer::Value { found, .. }) => {
                let value = found.as_ref().map_or(String::new(), |seen| seen.value.clone());
                let held = self.clients[client].lock.as_mut();
                if let Some(held) =
                    held.filter(|held| held.resources[0] == *resource && key == "set")
                {
                    held.read = Some((resource.clone(), value));
                }
            }
            (Asked::Write(_) | Asked::Commit { .. }, _) => {
                if let Some(held) = &mut self.clients[client].lock {
                    held.sequence += 1;
                    held.read = None;
                    if let Answer::Written { versions, .. } = answer {
                        let version = versions.first().and_then(|(_, version)| *version);
                        held.version = version.unwrap_or(held.version);
                    }
                }
            }
            _ => {}
        }
    }

    /// A write of unknown outcome takes effect late, or is buried.
    fn late_write(&mut self) {
        if self.late.is_empty() || !self.random.percent(10) {
            return;
        }
        let item = self.late.remove(0);
        if self.random.percent(30) || matches!(self.ledger.write(&item), Answer::Refused { .. }) {
            self.ledger.buried.insert(item.operation);
        }
    }

    /// The ledger goes back to the snapshot, and is fenced off anew at once.
    fn go_back(&mut self) {
        let lost = std::mem::replace(&mut self.ledger, self.snapshot.clone());
        let kept = self.ledger.fences.iter().map(|(name, fence)| (name.clone(), fence.version));
        let (kept, at, generation) = (kept.collect(), self.tick(), lost.generation);
        self.events.push(Record::Rollback(Rollback { at, generation, kept }));
        self.ledger.generation = generation + 1;
        self.ledger.floor = self.mint;
        self.mint += 1_000;
        self.ledger.fences.values_mut().for_each(|fence| fence.ended = true);
        self.snapshot = self.ledger.clone();
        // What was under way at the upstream has been waited for: it has ended without an effect.
        for (call, ..) in take(&mut self.open) {
            let unknown = Answer::Unknown { operation: None };
            for client in &mut self.clients {
                if let Some((of, phase)) = &mut client.under_way
                    && *of == call
                {
                    *phase = Phase::Decided(unknown.clone());
                }
            }
        }
    }

    /// From here on all goes well: each resource is granted, written and read.
    fn heal(&mut self) {
        self.shape.accidents = 0;
        self.late.clear();
        self.retries.clear();
        let names = (0..self.shape.resources).map(|index| format!("r{index}"));
        let resources: Vec<String> = names.collect();
        let at = self.tick();
        self.events.push(Record::Healed(Healed { at, resources: resources.clone() }));
        for resource in resources {
            let id = self.id();
            self.whole(Asked::Fence { lock: id, resource: resource.clone() });
            let held = self.clients[0].lock.clone().expect("a fence is always given");
            let write = self.single(resource.clone(), held.token, false, None);
            self.whole(write);
            for key in ["a", "b", "set"] {
                self.whole(Asked::Read { resource: resource.clone(), key: key.to_owned() });
            }
        }
    }

    fn whole(&mut self, asked: Asked) {
        self.begin(0, asked);
        while self.clients[0].under_way.is_some() {
            self.step(0);
        }
    }
}
