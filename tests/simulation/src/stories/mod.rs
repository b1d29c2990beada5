//! What clients do: stories from a lock to its end, chosen by the seed.

mod uploads;
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fence_history::{Answer, Asked, Change, FencedWrite, Outcome};
use fencegate::engine::Engine;
use rand::RngExt as _;

use crate::access::PRINCIPALS;
use crate::client::{Client, Held, client};
use crate::ledger::LedgerServer;
use crate::runtime::random_id;
use crate::world::{MS, Process, SECOND};

/// Resources with a set that writers read, add to and write back.
pub const SETS: [&str; 2] = ["s0", "s1"];
/// Resources with objects that are put and deleted.
pub const PLAIN: [&str; 2] = ["p0", "p1"];
/// The resource of the drained upstream.
pub const DRAINED: &str = "u0";
/// The object that holds a set.
const SET: &str = "set";
/// Objects of plain resources.
const KEYS: [&str; 3] = ["a", "b", "c"];

/// All resources.
pub fn resources() -> impl Iterator<Item = &'static str> {
    SETS.into_iter().chain(PLAIN).chain([DRAINED])
}

/// What a client knows of a write at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Written,
    Refused,
    /// It may have taken effect, or may still.
    Nothing,
}

/// Which stories a run has.
#[derive(Debug, Clone, Copy)]
pub struct Plot {
    /// Large objects.
    pub blobs: bool,
    /// Requests to the drained upstream.
    pub upstream: bool,
    /// Principals, and rules that change.
    pub rules: bool,
    /// Uploads in parts.
    pub parts: bool,
}

/// Whether an answer tells what became of an operation.
fn is_told(answer: Option<&Answer>) -> bool {
    matches!(answer, Some(Answer::Outcome(Outcome::Applied | Outcome::Buried)))
}

impl Client {
    /// Story after story, until a time.
    pub async fn live(mut self, plot: Plot, until: u64, upstream: Process) {
        while self.world.now() < until {
            if plot.rules && self.world.chance(0.2) {
                match self.world.chance(0.5) {
                    true => self.share().await,
                    false => self.meddle().await,
                }
            }
            if plot.parts && self.world.chance(0.5) {
                self.in_parts().await;
                self.pause(MS, 400 * MS).await;
            }
            match self.world.draw(|rng| rng.random_range(0..100)) {
                0..32 => self.add_to_a_set().await,
                32..52 => self.put_and_delete(plot).await,
                52..60 => self.commit_to_two().await,
                60..67 => self.hand_over().await,
                67..71 => self.fence_without_a_lock().await,
                71..75 => {
                    let on = self.any_resource();
                    self.break_lock(on).await;
                }
                75..82 => self.write_late().await,
                82..85 => self.forge().await,
                85..90 => self.look().await,
                90..93 if plot.upstream => self.resolve().await,
                _ if plot.upstream => self.forward(upstream).await,
                _ => self.look().await,
            }
            self.pause(MS, 400 * MS).await;
        }
    }

    fn any_resource(&self) -> &'static str {
        let all: Vec<_> = resources().collect();
        self.world.one_of(&all).copied().unwrap_or(SETS[0])
    }

    fn any_of(&self, all: &[&'static str]) -> &'static str {
        self.world.one_of(all).copied().unwrap_or(all[0])
    }

    fn wait(&self) -> Duration {
        match self.world.chance(0.5) {
            true => Duration::ZERO,
            false => Duration::from_micros(self.world.between(100 * MS, 3 * SECOND)),
        }
    }

    /// A pause that is now and then longer than any ttl.
    async fn think(&self) {
        match self.world.chance(0.08) {
            true => self.pause(SECOND, 4 * SECOND).await,
            false => self.pause(MS, 120 * MS).await,
        }
    }

    /// How a lock ends: given back, or left to expire.
    async fn part(&self, held: &Held) {
        if self.world.chance(0.6) {
            self.release(held).await;
        }
    }

    /// Under a lock: read the set, add a number, write it back. A set that loses a number that was
    /// acknowledged is a lost update.
    async fn add_to_a_set(&mut self) {
        let on = self.any_of(&SETS);
        let wait = self.wait();
        let Some(mut held) = self.acquire(&[on], wait).await else { return };
        // Whether a write of its own may still be on its way: then what it reads may be out of date
        // before it writes, and only the version tells.
        let mut unsure = None;
        for _ in 0..self.world.between(1, 5) {
            let (set, version) = match self.read(on, SET).await {
                Some(Answer::Value { found: Some(seen), resource_version }) => {
                    (seen.value, resource_version)
                }
                Some(Answer::Refused { code }) if code == "object-not-found" => {
                    (String::new(), None)
                }
                _ => break,
            };
            self.think().await;
            self.count += 1;
            let number = u64::from(self.number) * 1_000_000 + self.count;
            let value = match set.is_empty() {
                true => number.to_string(),
                false => format!("{set} {number}"),
            };
            if unsure.is_some() && version.is_none() {
                break;
            }
            let by_version = unsure.is_some() || self.world.chance(0.3);
            let wish = FencedWrite {
                resource: on.to_owned(),
                token: held.token,
                forged: false,
                sequence: Some(self.number_write(&mut held)),
                idempotency_key: self.key(),
                if_version: version.filter(|_| by_version),
                change: Change::Put { key: SET.into(), value, adds: Some(number) },
            };
            match self.write_until_told(wish, &held, false).await {
                Told::Written => unsure = None,
                Told::Refused => break,
                Told::Nothing => unsure = Some(self.recorder.unsure()),
            }
            if self.world.chance(0.2) {
                self.renew(&held).await;
            }
        }
        self.part(&held).await;
    }

    fn key(&self) -> Option<String> {
        self.world.chance(0.4).then(|| random_id(&self.world).to_string())
    }

    /// Writes; with an idempotency key again until it is told what became of it.
    async fn write_until_told(&self, wish: FencedWrite, held: &Held, blob: bool) -> Told {
        let lock = self.world.chance(0.7).then_some(held.lock);
        let mut unsure = None;
        for _ in 0..4 {
            let told = match wish.idempotency_key.is_some() && self.world.chance(0.1) {
                true => self.write_twice(&wish, lock, blob).await,
                false => self.write(wish.clone(), lock, blob).await,
            };
            match told {
                Some(Answer::Written { .. }) => return Told::Written,
                Some(Answer::Refused { .. }) => return Told::Refused,
                Some(Answer::Unknown { operation: Some(operation) }) => {
                    unsure.get_or_insert_with(|| self.recorder.unsure());
                    self.pause(MS, SECOND).await;
                    if is_told(self.look_up(operation).await.as_ref()) {
                        unsure = None;
                    }
                }
                None => {
                    unsure.get_or_insert_with(|| self.recorder.unsure());
                }
                Some(_) => {}
            }
            if wish.idempotency_key.is_none() || self.world.chance(0.2) {
                break;
            }
            self.pause(MS, 500 * MS).await;
        }
        Told::Nothing
    }

    /// The same write is delivered twice at once, as proxies do.
    async fn write_twice(
        &self,
        wish: &FencedWrite,
        lock: Option<uuid::Uuid>,
        blob: bool,
    ) -> Option<Answer> {
        let mut twin =
            client(self.number + PRINCIPALS, &self.gateways, &self.recorder, &self.world);
        twin.patience = self.patience;
        let (one, other) =
            (self.write(wish.clone(), lock, blob), twin.write(wish.clone(), lock, blob));
        let (one, other) = futures::join!(one, other);
        // Whoever was told most.
        match &one {
            Some(Answer::Written { .. }) => one,
            _ => other.or(one),
        }
    }

    /// What became of an operation.
    pub async fn look_up(&self, operation: uuid::Uuid) -> Option<Answer> {
        use fence_core::ports::OperationRecord;
        let id = fence_core::OperationId(operation);
        let forgets = self.gateways.forget();
        let handler = move |engine: Engine| async move {
            let outcome = match engine.operation(id).await {
                Ok(Some(OperationRecord::Applied(_) | OperationRecord::Committed(_))) => {
                    Outcome::Applied
                }
                Ok(Some(OperationRecord::Buried)) => Outcome::Buried,
                Ok(Some(OperationRecord::Forwarded(record))) => upstream::outcome(record),
                // Says nothing where that may have been let go.
                Ok(None) if forgets => {
                    return (Answer::Failed { code: "let-go".to_owned() }, None);
                }
                Ok(_) => Outcome::NotKnown,
                Err(error) => {
                    return (Answer::Failed { code: error.code().as_str().to_owned() }, None);
                }
            };
            (Answer::Outcome(outcome), None)
        };
        self.ask(Asked::Ask { operation }, false, handler).await
    }

    /// Asks after every operation whose caller has left and which a gateway then gave up, as soon as that can be
    /// seen. Its first sending may still be on its way: what is told now must stay true.
    pub async fn ask_after_the_buried(self, ledger: Arc<LedgerServer>) {
        let mut asked = BTreeSet::new();
        loop {
            self.pause(100 * MS, 600 * MS).await;
            for operation in ledger.buried() {
                if asked.insert(operation) {
                    self.look_up(operation.0).await;
                }
            }
        }
    }

    /// Puts and deletes, small and large, with and without conditions.
    async fn put_and_delete(&mut self, plot: Plot) {
        let on = self.any_of(&PLAIN);
        let wait = self.wait();
        let Some(mut held) = self.acquire(&[on], wait).await else { return };
        for _ in 0..self.world.between(1, 5) {
            let object = self.any_of(&KEYS).to_owned();
            let change = match self.world.draw(|rng| rng.random_range(0..20)) {
                0..3 => Change::Delete { key: object },
                3 => Change::DeleteAll,
                _ => Change::Put { key: object, value: self.value(), adds: None },
            };
            let version = held.versions.first().map(|(_, version)| *version);
            let sequenced = self.world.chance(0.4);
            let wish = FencedWrite {
                resource: on.to_owned(),
                token: held.token,
                forged: false,
                sequence: sequenced.then(|| self.number_write(&mut held)),
                idempotency_key: self.key(),
                if_version: version.filter(|_| self.world.chance(0.1)),
                change,
            };
            let blob = plot.blobs && self.world.chance(0.6);
            if self.write_until_told(wish.clone(), &held, blob).await == Told::Refused {
                if wish.idempotency_key.is_some() && self.world.chance(0.5) {
                    self.redeliver(wish).await;
                }
                break;
            }
            if let Some(key) = &wish.idempotency_key
                && self.world.chance(0.1)
            {
                // A key that stands for something else.
                let key = Some(key.clone());
                let other = FencedWrite { idempotency_key: key, ..self.put(on, held.token) };
                self.write(other, None, false).await;
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    /// Another worker takes the lock over and delivers again what was refused.
    async fn redeliver(&mut self, wish: FencedWrite) {
        let Some(held) = self.acquire(&[&wish.resource], Duration::from_secs(3)).await else {
            return;
        };
        let wish = FencedWrite { token: held.token, sequence: None, if_version: None, ..wish };
        self.write_until_told(wish, &held, false).await;
        self.part(&held).await;
    }

    /// A lock on two resources, and puts into both in one act.
    async fn commit_to_two(&mut self) {
        let wait = self.wait();
        let Some(mut held) = self.acquire(&PLAIN, wait).await else { return };
        for _ in 0..self.world.between(1, 3) {
            let value = self.value();
            let put = |resource: &&str| {
                let value = format!("{value}-{resource}");
                ((*resource).to_owned(), Change::Put { key: "both".into(), value, adds: None })
            };
            let steps: Vec<_> = PLAIN.iter().map(put).collect();
            let key = self.key();
            let sequence = self.world.chance(0.5).then(|| self.number_write(&mut held));
            let mut unsure = None;
            for _ in 0..3 {
                let answer = self.commit(&held, steps.clone(), key.clone(), sequence).await;
                if matches!(answer, None | Some(Answer::Unknown { .. })) {
                    unsure.get_or_insert_with(|| self.recorder.unsure());
                }
                match answer {
                    Some(Answer::Written { .. } | Answer::Refused { .. }) => break,
                    _ if key.is_none() => break,
                    _ => self.pause(MS, 300 * MS).await,
                }
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    /// A lock goes to a successor; both write.
    async fn hand_over(&mut self) {
        let on = self.any_of(&PLAIN);
        let wait = self.wait();
        let Some(old) = self.acquire(&[on], wait).await else { return };
        let new = self.transfer(&old).await;
        for held in [&old].into_iter().chain(&new) {
            let wish = self.put(on, held.token);
            self.write(wish, None, false).await;
        }
        if let Some(new) = new {
            self.part(&new).await;
        }
    }

    /// A put of something new.
    pub fn put(&mut self, on: &str, token: i64) -> FencedWrite {
        FencedWrite {
            resource: on.to_owned(),
            token,
            forged: false,
            sequence: None,
            idempotency_key: None,
            if_version: None,
            change: Change::Put { key: "x".into(), value: self.value(), adds: None },
        }
    }

    async fn fence_without_a_lock(&mut self) {
        let on = self.any_of(&PLAIN);
        let Some(held) = self.fence(on, self.world.chance(0.5)).await else { return };
        let wish = self.put(on, held.token);
        self.write(wish, Some(held.lock), false).await;
    }

    /// Takes a lock under which somebody else may write, too.
    async fn share(&mut self) {
        let on = self.any_of(&PLAIN);
        let writer = self.world.draw(|rng| rng.random_range(1..=5));
        let Some(held) = self.acquire_with(on, writer).await else { return };
        let wish = self.put(on, held.token);
        self.write(wish, Some(held.lock), false).await;
        self.pause(100 * MS, SECOND).await;
        self.part(&held).await;
    }

    /// Writes under a lock that somebody was given lately, with its right id, and tries to keep it.
    async fn meddle(&mut self) {
        let Some((lock, token, on)) = self.recorder.any_lock() else { return };
        let wish = self.put(&on, token);
        self.write(wish, Some(lock), false).await;
        let held = Held { lock, token, versions: Vec::new(), sequence: 0 };
        self.renew(&held).await;
    }

    /// Writes with a token that somebody was given once.
    async fn write_late(&mut self) {
        let Some((on, token)) = self.recorder.any_token() else { return };
        let wish = FencedWrite { idempotency_key: self.key(), ..self.put(&on, token) };
        self.write(wish, None, false).await;
    }

    /// Writes with a token that nobody was ever given.
    async fn forge(&mut self) {
        let on = self.any_resource();
        let token = (1 << 62) + self.world.draw(|rng| rng.random_range(0..1_000_000));
        let wish = FencedWrite { forged: true, ..self.put(on, token) };
        self.write(wish, None, false).await;
    }

    async fn look(&self) {
        let (on, object) = match self.world.chance(0.4) {
            true => (self.any_of(&SETS), SET),
            false => (self.any_of(&PLAIN), self.any_of(&["a", "b", "c", "x", "both"])),
        };
        self.read(on, object).await;
    }
}
