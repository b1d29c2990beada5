//! What callers do: stories from a lock to its end, some of which end badly on purpose.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fence_history::{Answer, Change, FencedWrite};
use tokio::time::Interval;

use super::{Client, Held};
use crate::line::moment;

/// Resources with sets that writers read, add to and write back.
pub const SETS: [&str; 10] =
    ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "lake:s0", "lake:s1", "lake:s2"];
/// Resources with objects that are put and deleted.
pub const PLAIN: [&str; 14] = [
    "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "lake:p0", "lake:p1", "lake:p2",
    "pond",
];
/// Those that lie in buckets.
pub const S3_SETS: [&str; 3] = ["lake:s0", "lake:s1", "lake:s2"];
/// See [`S3_SETS`].
pub const S3_PLAIN: [&str; 4] = ["lake:p0", "lake:p1", "lake:p2", "pond"];
/// Resources of the upstream, of each of its names.
const FRONTED: [&str; 12] = [
    "crm:0", "crm:1", "crm:2", "crm:3", "crm:4", "crm:5", "later:0", "later:1", "later:2",
    "later:3", "later:4", "later:5",
];
/// Objects of plain resources.
pub const OBJECTS: [&str; 4] = ["a", "b", "c/d", "both"];
/// A set that grew for longer than this is left alone, and another one begun.
pub const SET_GROWS_US: u64 = 15_000_000;

/// All resources that callers use.
pub fn resources() -> impl Iterator<Item = &'static str> {
    SETS.into_iter().chain(PLAIN)
}

/// What a caller knows of a write at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Written,
    Refused,
    /// It may have taken effect, or may still.
    Nothing,
}

impl Client {
    /// Story after story, until the process is told to end.
    pub(super) async fn live(mut self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            match self.draw(0, 100) {
                _ if self.speaks_s3() => self.live_by_s3().await,
                0..34 => self.add_to_a_set().await,
                34..62 => self.put_and_delete().await,
                62..75 => self.commit_to_some().await,
                75..81 => self.hand_over().await,
                81..84 => self.fence_without_a_lock().await,
                84..86 => {
                    let on = self.any_resource();
                    self.break_lock(on).await;
                }
                86..92 => self.write_late().await,
                92..94 => self.forge().await,
                94..97 => self.ask_an_upstream().await,
                _ => self.look().await,
            }
            // Whom rules deny everything asks again before long, and does not crowd out the others.
            let pause_ms = if self.is_denied { 400 } else { 40 };
            self.pause(0, pause_ms).await;
        }
    }

    pub(super) fn any_of(&mut self, all: &[&'static str]) -> &'static str {
        let at = self.draw(0, all.len() as u64);
        all[usize::try_from(at).unwrap_or(0)]
    }

    fn any_resource(&mut self) -> &'static str {
        let plain = self.chance(0.5);
        if plain { self.any_of(&PLAIN) } else { self.any_of(&SETS) }
    }

    /// Half of the callers queue up.
    pub(super) fn wait(&mut self) -> Duration {
        let wait_ms = self.draw(100, 4000);
        Duration::from_millis(if self.chance(0.5) { 0 } else { wait_ms })
    }

    /// A pause that is now and then longer than any ttl.
    pub(super) async fn think(&mut self) {
        match self.chance(0.015) {
            true => self.pause(2000, 3500).await,
            false => self.pause(0, 25).await,
        }
    }

    /// How a lock ends: given back, lost by a pause, after which its holder goes on as if nothing had
    /// happened, or left behind.
    async fn part(&mut self, held: &Held) {
        match self.draw(0, 100) {
            0..72 => {
                self.release(held).await;
            }
            72..86 => {
                self.pause(1500, 3500).await;
                for (resource, _) in &held.versions {
                    let late = self.put(resource, held.token);
                    self.write(&late, None).await;
                }
            }
            _ => {}
        }
    }

    /// Under a lock: read the set, add a number, write it back. A set that loses a number that was
    /// acknowledged is a lost update.
    async fn add_to_a_set(&mut self) {
        let on = self.any_of(&SETS);
        let wait = self.wait();
        let Some(mut held) = self.acquire(&[on], wait).await else { return };
        let set = format!("set-{}", moment() / SET_GROWS_US);
        // Whether a write of its own may still be on its way: then what it reads may be out of date
        // before it writes, and only the version tells.
        let mut unsure = false;
        for _ in 0..self.draw(1, 16) {
            let (numbers, version) = match self.read(on, &set).await {
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
            let value = match numbers.is_empty() {
                true => number.to_string(),
                false => format!("{numbers} {number}"),
            };
            if unsure && version.is_none() {
                break;
            }
            let by_version = unsure || self.chance(0.2);
            held.sequence += 1;
            let wish = FencedWrite {
                resource: on.to_owned(),
                token: held.token,
                forged: false,
                sequence: Some(held.sequence),
                idempotency_key: self.key(),
                if_version: version.filter(|_| by_version),
                change: Change::Put { key: set.clone(), value, adds: Some(number) },
            };
            match self.write_until_told(&wish, &held).await {
                Told::Written => unsure = false,
                Told::Refused => break,
                Told::Nothing => unsure = true,
            }
            if self.chance(0.1) {
                self.renew(&held).await;
            }
        }
        self.part(&held).await;
    }

    fn key(&mut self) -> Option<String> {
        self.chance(0.4).then(|| self.random_id().to_string())
    }

    /// Writes; with an idempotency key again until it is told what became of it. Now and then the same
    /// write is delivered once more later, by whoever kept it.
    async fn write_until_told(&mut self, wish: &FencedWrite, held: &Held) -> Told {
        let lock = self.chance(0.7).then_some(held.lock);
        let keyed = wish.idempotency_key.is_some();
        if keyed && self.chance(0.08) {
            self.deliver_late(wish.clone(), lock);
        }
        for _ in 0..4 {
            match self.write(wish, lock).await {
                Some(Answer::Written { .. }) => return Told::Written,
                Some(Answer::Refused { .. }) => return Told::Refused,
                Some(Answer::Unknown { operation: Some(operation) }) => {
                    self.pause(1, 1000).await;
                    self.look_up(operation).await;
                }
                _ => {}
            }
            if !keyed || self.chance(0.2) {
                break;
            }
            self.pause(1, 500).await;
        }
        Told::Nothing
    }

    /// The same request arrives a second time, at once or much later.
    fn deliver_late(&mut self, wish: FencedWrite, lock: Option<uuid::Uuid>) {
        let mut twin = self.twin();
        tokio::spawn(async move {
            let latest_ms = if twin.chance(0.5) { 50 } else { 6000 };
            twin.pause(0, latest_ms).await;
            twin.write(&wish, lock).await;
        });
    }

    /// Puts and deletes, small and large, with and without conditions, some out of order.
    async fn put_and_delete(&mut self) {
        let on = self.any_of(&PLAIN);
        let wait = self.wait();
        let Some(mut held) = self.acquire(&[on], wait).await else { return };
        for _ in 0..self.draw(1, 24) {
            let object = self.any_of(&OBJECTS).to_owned();
            let change = match self.draw(0, 20) {
                0..2 => Change::Delete { key: object },
                2 => Change::DeleteAll,
                draw => {
                    let value = self.value();
                    let value = match draw {
                        3..8 => format!("{value}.{}", self.draw(5000, 100_000)),
                        8 => format!("{value}.{}", self.draw(100_000, 1_000_000)),
                        _ => value,
                    };
                    Change::Put { key: object, value, adds: None }
                }
            };
            let version = held.versions.first().map(|(_, version)| *version);
            let sequenced = self.chance(0.4);
            held.sequence += i64::from(sequenced);
            let wish = FencedWrite {
                resource: on.to_owned(),
                token: held.token,
                forged: false,
                sequence: sequenced.then_some(held.sequence),
                idempotency_key: self.key(),
                if_version: version.filter(|_| self.chance(0.05)),
                change,
            };
            if self.chance(0.05) {
                self.fall_behind(on, &mut held);
            }
            if self.write_until_told(&wish, &held).await == Told::Refused {
                break;
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    /// A write with a number that is used up by the time it is sent.
    fn fall_behind(&mut self, on: &str, held: &mut Held) {
        held.sequence += 1;
        let late = FencedWrite { sequence: Some(held.sequence), ..self.put(on, held.token) };
        held.sequence += 1;
        let mut twin = self.twin();
        tokio::spawn(async move {
            twin.pause(0, 300).await;
            twin.write(&late, None).await;
        });
    }

    /// A lock on some resources, and puts into all of them in one act.
    async fn commit_to_some(&mut self) {
        let first = self.draw(0, PLAIN.len() as u64 - 2);
        let first = usize::try_from(first).unwrap_or(0);
        let count = if self.chance(0.5) { 2 } else { 3 };
        let on = &PLAIN[first..first + count];
        let wait = self.wait();
        let Some(mut held) = self.acquire(on, wait).await else { return };
        for _ in 0..self.draw(1, 5) {
            let value = self.value();
            let large = self.chance(0.15).then(|| self.draw(5000, 40_000));
            let put = |resource: &&str| {
                let value = match large {
                    Some(length) => format!("{value}-{resource}.{length}"),
                    None => format!("{value}-{resource}"),
                };
                ((*resource).to_owned(), Change::Put { key: "both".into(), value, adds: None })
            };
            let steps: Vec<_> = on.iter().map(put).collect();
            held.sequence += 1;
            let key = self.random_id().to_string();
            let sequence = self.chance(0.5).then_some(held.sequence);
            let mut refused = false;
            for _ in 0..3 {
                match self.commit(&held, &steps, &key, sequence).await {
                    Some(Answer::Written { .. }) => break,
                    Some(Answer::Refused { .. }) => {
                        refused = true;
                        break;
                    }
                    _ => self.pause(1, 300).await,
                }
            }
            if refused {
                break;
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    /// A lock goes to a successor; both write.
    async fn hand_over(&mut self) {
        let on = self.any_resource();
        let wait = self.wait();
        let Some(old) = self.acquire(&[on], wait).await else { return };
        let new = self.transfer(&old).await;
        for held in [&old].into_iter().chain(&new) {
            let wish = self.put(on, held.token);
            self.write(&wish, None).await;
        }
        if let Some(new) = new {
            self.part(&new).await;
        }
    }

    /// A put of something new.
    pub(super) fn put(&mut self, on: &str, token: i64) -> FencedWrite {
        FencedWrite {
            resource: on.to_owned(),
            token,
            forged: false,
            sequence: None,
            idempotency_key: None,
            if_version: None,
            change: Change::Put { key: "a".into(), value: self.value(), adds: None },
        }
    }

    async fn fence_without_a_lock(&mut self) {
        let on = self.any_resource();
        let force = self.chance(0.5);
        let Some(held) = self.fence(on, force).await else { return };
        let wish = self.put(on, held.token);
        self.write(&wish, Some(held.lock)).await;
    }

    /// Writes with a token that somebody was given once.
    async fn write_late(&mut self) {
        let at = usize::try_from(self.draw(0, 1 << 20)).unwrap_or(0);
        let Some((on, token)) = self.shared.any_token(at) else { return };
        let wish = FencedWrite { idempotency_key: self.key(), ..self.put(&on, token) };
        self.write(&wish, None).await;
    }

    /// Writes with a token that nobody was ever given.
    async fn forge(&mut self) {
        let on = self.any_resource();
        let token = (1 << 62) + i64::try_from(self.draw(0, 1_000_000)).unwrap_or(0);
        let wish = FencedWrite { forged: true, ..self.put(on, token) };
        self.write(&wish, None).await;
    }

    /// Under a lock: requests to an upstream, and what became of them.
    async fn ask_an_upstream(&mut self) {
        let on = self.any_of(&FRONTED);
        let wait = self.wait();
        let Some(held) = self.acquire(&[on], wait).await else { return };
        for _ in 0..self.draw(1, 5) {
            if let Some(operation) = self.forward(on, held.token).await {
                self.look_up(operation).await;
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    async fn look(&mut self) {
        for _ in 0..self.draw(1, 20) {
            let (on, object) = match self.chance(0.4) {
                true => (self.any_of(&SETS), format!("set-{}", moment() / SET_GROWS_US)),
                false => (self.any_of(&PLAIN), self.any_of(&OBJECTS).to_owned()),
            };
            self.read(on, &object).await;
        }
    }

    /// Waits for a lock, and leaves it to itself.
    pub async fn wait_in_line(&mut self, on: &str, wait: Duration) {
        self.acquire(&[on], wait).await;
    }

    /// Takes a lock and tells its token.
    pub async fn token_of(&mut self, on: &str) -> Option<i64> {
        Some(self.acquire(&[on], Duration::ZERO).await?.token)
    }

    /// Takes a lock, to keep it: nobody else wants it, so its token stays good beyond its ttl.
    pub async fn hold(&mut self, on: &str) -> Option<Held> {
        self.acquire(&[on], Duration::from_secs(1)).await
    }

    /// Writes under a lock that was taken to keep it.
    pub async fn write_under(&mut self, on: &str, held: &Held) -> Option<Answer> {
        let wish = self.put(on, held.token);
        self.write(&wish, Some(held.lock)).await
    }

    /// Takes a lock, writes under it and gives it back; whether all of it worked.
    pub async fn prove(&mut self, on: &str) -> bool {
        let Some(held) = self.acquire(&[on], Duration::from_secs(1)).await else {
            return false;
        };
        let wish = self.put(on, held.token);
        let written = self.write(&wish, Some(held.lock)).await;
        let released = self.release(&held).await;
        matches!(written, Some(Answer::Written { .. })) && released == Some(Answer::Done)
    }

    /// Takes a lock, writes under it and gives it back, each at a tick; what was refused is left alone.
    pub async fn take_a_turn(&mut self, on: &str, pace: &mut Interval) {
        pace.tick().await;
        let Some(held) = self.acquire(&[on], Duration::ZERO).await else { return };
        for _ in 0..2 {
            pace.tick().await;
            let wish = self.put(on, held.token);
            self.write(&wish, Some(held.lock)).await;
        }
        pace.tick().await;
        self.release(&held).await;
    }
}
