//! What drivers are told to do: stories from a lock to its end, some of which end badly on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fence_history::{Answer, Change};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::hand::{Demands, Hand, Held, Known};
use crate::client::Client;
use crate::client::stories::{OBJECTS, PLAIN, SET_GROWS_US, SETS};
use crate::line::moment;

/// What may happen to the process of a driver.
const MISHAPS: [&str; 3] = ["block", "fork", "drop"];

/// Somebody who lives from story to story.
pub struct Caller {
    hand: Hand,
    /// Reads what drivers need not: they know no reads here.
    reader: Client,
    rng: StdRng,
}

impl Caller {
    /// Whose choices begin here.
    pub fn new(hand: Hand, reader: Client, seed: u64) -> Self {
        Self { hand, reader, rng: StdRng::seed_from_u64(seed) }
    }

    /// Story after story, until the run ends, or the driver does.
    pub async fn live(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::SeqCst) && !self.hand.talk.is_over() {
            match self.draw(0, 100) {
                0..28 => self.add_to_a_set().await,
                28..60 => self.put_one_by_one().await,
                60..78 => self.put_together().await,
                78..93 => self.commit_to_some().await,
                93 => self.meet_with_a_mishap().await,
                _ => self.leave_behind().await,
            }
            self.pause(0, 40).await;
        }
    }

    fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..to)
    }

    fn chance(&mut self, likely: f64) -> bool {
        self.rng.random_bool(likely)
    }

    fn any_of(&mut self, all: &[&'static str]) -> &'static str {
        all[self.rng.random_range(0..all.len())]
    }

    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let pause = self.draw(from_ms, to_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// How a lock is asked for. Half of the callers queue up.
    fn options(&mut self) -> Value {
        let mut options = json!({ "ttl": format!("{}ms", self.draw(1000, 2500)) });
        if self.chance(0.5) {
            options["wait"] = json!(format!("{}ms", self.draw(100, 4000)));
        }
        if self.chance(0.2) {
            options["on_uncertain"] = json!("hold");
        }
        options
    }

    async fn acquire(&mut self, on: &[&str], options: Value) -> Option<Held> {
        self.hand.acquire(on, options, &mut self.reader).await
    }

    fn put(&mut self, object: &str) -> Change {
        let value = format!("d{}", self.hand.fresh());
        let value = match self.draw(0, 20) {
            0..4 => format!("{value}.{}", self.draw(5000, 100_000)),
            _ => value,
        };
        Change::Put { key: object.to_owned(), value, adds: None }
    }

    fn key(&mut self) -> Option<String> {
        self.chance(0.15).then(|| format!("key-{}", self.hand.fresh()))
    }

    /// How a lock ends. Some look what the guard believes, or write on although they have given it back.
    async fn part(&mut self, held: &Held) {
        if self.chance(0.5) {
            self.hand.believes(held).await;
        }
        self.hand.release(held).await;
        if self.chance(0.1) {
            let (on, _) = held.versions.first().cloned().unwrap_or_default();
            let late = self.put("a");
            if !on.is_empty()
                && matches!(
                    self.hand.put(held, &on, late, Demands::default()).await,
                    Known::Written { .. }
                )
            {
                self.hand.wrong(format!("{on}: a guard that was released wrote"));
            }
        }
    }

    /// Under a lock: read the set, add a number, write it back. A set that loses a number that was acknowledged is a
    /// lost update. After a write of unknown outcome the lock is given back.
    async fn add_to_a_set(&mut self) {
        let on = self.any_of(&SETS);
        let options = self.options();
        let Some(held) = self.acquire(&[on], options).await else { return };
        let set = format!("set-{}", moment() / SET_GROWS_US);
        for _ in 0..self.draw(1, 12) {
            let (numbers, version) = match self.reader.read(on, &set).await {
                Some(Answer::Value { found: Some(seen), resource_version }) => {
                    (seen.value, resource_version)
                }
                Some(Answer::Refused { code }) if code == "object-not-found" => {
                    (String::new(), None)
                }
                _ => break,
            };
            let number = self.hand.fresh();
            let value = match numbers.is_empty() {
                true => number.to_string(),
                false => format!("{numbers} {number}"),
            };
            let change = Change::Put { key: set.clone(), value, adds: Some(number) };
            let by_version = self.chance(0.3);
            let demands = Demands {
                version: version.filter(|_| by_version),
                once: self.chance(0.1),
                key: self.key(),
                ..Demands::default()
            };
            match self.hand.put(&held, on, change, demands).await {
                Known::Written { .. } => {}
                Known::Refused | Known::Nothing => break,
            }
        }
        self.part(&held).await;
    }

    /// Puts, small and large, with and without conditions. Goes on after what is unknown and after what is refused.
    async fn put_one_by_one(&mut self) {
        let on = self.any_of(&PLAIN);
        let options = self.options();
        let Some(held) = self.acquire(&[on], options).await else { return };
        let mut version = held.versions.first().map(|(_, version)| *version);
        let mut tags: Vec<(String, String)> = Vec::new();
        let mut refused = 0;
        for _ in 0..self.draw(1, 20) {
            let mut object = self.any_of(&OBJECTS).to_owned();
            let mut demands =
                Demands { once: self.chance(0.15), key: self.key(), ..Demands::default() };
            match self.draw(0, 100) {
                0..15 => demands.version = version,
                15..25 => {
                    object = format!("new-{}", self.hand.fresh());
                    demands.is_absent = true;
                }
                25..40 => {
                    if let Some((of, tag)) = tags.last() {
                        (object, demands.tag) = (of.clone(), Some(tag.clone()));
                    }
                }
                _ => {}
            }
            let change = self.put(&object);
            match self.hand.put(&held, on, change, demands).await {
                Known::Written { version: now, tag } => {
                    version = now;
                    tags.retain(|(of, _)| *of != object);
                    tags.extend(tag.map(|tag| (object, tag)));
                }
                Known::Refused => refused += 1,
                Known::Nothing => {}
            }
            if refused > 2 || self.hand.talk.is_over() {
                break;
            }
            // Now and then longer than any ttl, during which the library renews.
            match self.chance(0.01) {
                true => self.pause(2500, 4000).await,
                false => self.pause(0, 25).await,
            }
        }
        self.part(&held).await;
    }

    /// Many writers on one guard at once.
    async fn put_together(&mut self) {
        let on = self.any_of(&PLAIN);
        let mut options = self.options();
        match self.draw(0, 10) {
            0..2 => options["ordered"] = json!(true),
            2 => options["numbers"] = json!(false),
            _ => {}
        }
        let Some(held) = self.acquire(&[on], options).await else { return };
        for _ in 0..self.draw(1, 6) {
            let count = self.draw(2, 9);
            let wishes: Vec<_> = (0..count)
                .map(|_| {
                    let object = self.any_of(&OBJECTS);
                    let change = self.put(object);
                    let once = self.chance(0.1);
                    (change, Demands { once, key: self.key(), ..Demands::default() })
                })
                .collect();
            let puts = wishes
                .into_iter()
                .map(|(change, demands)| self.hand.put(&held, on, change, demands));
            let known = join_all(puts).await;
            if known.iter().all(|known| *known == Known::Refused) || self.hand.talk.is_over() {
                break;
            }
            self.pause(0, 25).await;
        }
        self.part(&held).await;
    }

    /// A lock on some resources, and puts into all of them in one act.
    async fn commit_to_some(&mut self) {
        let count = if self.chance(0.5) { 2 } else { 3 };
        let first = self.rng.random_range(0..PLAIN.len() - count);
        let on = &PLAIN[first..first + count];
        let options = self.options();
        let Some(held) = self.acquire(on, options).await else { return };
        for _ in 0..self.draw(1, 5) {
            let value = self.hand.fresh();
            let large = self.chance(0.15).then(|| self.draw(5000, 40_000));
            let put = |resource: &&str| {
                let value = match large {
                    Some(length) => format!("d{value}-{resource}.{length}"),
                    None => format!("d{value}-{resource}"),
                };
                ((*resource).to_owned(), Change::Put { key: "both".into(), value, adds: None })
            };
            let steps = on.iter().map(put).collect();
            let key = self.key();
            if !matches!(self.hand.commit(&held, steps, key).await, Known::Written { .. }) {
                break;
            }
            self.pause(0, 25).await;
        }
        self.part(&held).await;
    }

    /// A lock that is not given back: the gateway ends it, whatever the library renews.
    async fn leave_behind(&mut self) {
        let on = self.any_of(&PLAIN);
        let mut options = self.options();
        options["max_hold"] = json!(format!("{}ms", self.draw(1000, 3000)));
        let Some(held) = self.acquire(&[on], options).await else { return };
        for _ in 0..self.draw(1, 6) {
            let change = self.put("a");
            self.hand.put(&held, on, change, Demands::default()).await;
            self.pause(0, 1000).await;
        }
    }

    /// A mishap of the process, if the driver can have it: its loop stands still for two ttls, a copy of it writes, or it
    /// forgets a guard. What was forgotten is given back, or others would wait for it for ever.
    async fn meet_with_a_mishap(&mut self) {
        let mishap = self.any_of(&MISHAPS);
        let on = self.any_of(&PLAIN);
        let ttl_ms = self.draw(1000, 2500);
        let wait_ms = self.draw(100, 4000);
        let options = json!({ "ttl": format!("{ttl_ms}ms"), "wait": format!("{wait_ms}ms") });
        if !self.hand.talk.can(mishap) {
            return;
        }
        let Some(held) = self.acquire(&[on], options).await else { return };
        let first = self.put("a");
        self.hand.put(&held, on, first, Demands::default()).await;
        match mishap {
            "block" => self.hand.block(Duration::from_millis(2 * ttl_ms)).await,
            "fork" => self.hand.write_in_copy(&held, on).await,
            _ => return self.hand.drop_guard(&held).await,
        }
        let next = self.put("a");
        let known = self.hand.put(&held, on, next, Demands::default()).await;
        // A guard whose holder overslept is over, whether or not somebody else has the lock.
        if mishap == "block" && matches!(known, Known::Written { .. }) {
            self.hand
                .wrong(format!("{on}: a guard wrote after its loop had stood still for two ttls"));
        }
        self.part(&held).await;
    }
}
