//! A session: draws what to ask next, asks it again as a gateway does, and writes down what it is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fence_core::ports::{Attempt, LedgerError, Patience};
use fence_core::{ObjectKey, ResourceName, Token};
use fence_history::{Answer, Asked};
use fencegate::ledger::postgres::PgLedger;
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::timeout;
use uuid::Uuid;

use super::stage::{GATEWAYS, Known, Stage};

/// How many things a session asks in one act at most, each as a caller of its own.
const CALLERS: u32 = 8;
/// How often it sends something before it leaves it.
const SENDINGS: usize = 8;

/// A session.
pub struct Session {
    pub(super) stage: Arc<Stage>,
    number: u32,
    rng: StdRng,
    count: u64,
}

/// What became of something that was sent, perhaps several times.
#[derive(Debug)]
pub enum End<V> {
    /// The ledger has decided.
    Decided(V),
    /// It had no effect, and never will.
    Undone,
    /// That is not known.
    Unknown,
}

/// An act of the ledger on one item: at this gateway, sent so often before, with such patience.
pub type Sending<V> = Box<
    dyn Fn(Arc<PgLedger>, Attempt, Patience) -> BoxFuture<'static, Result<V, LedgerError>>
        + Send
        + Sync,
>;

/// The verdict on the only item.
pub fn only<V>(verdicts: Result<Vec<V>, LedgerError>) -> Result<V, LedgerError> {
    verdicts?.pop().ok_or_else(|| LedgerError::Unreadable("no verdict".into()))
}

/// The first word of a verdict.
pub fn word(verdict: &impl std::fmt::Debug) -> String {
    let text = format!("{verdict:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// A refusal, by a word that says why.
pub fn refused(why: impl Into<String>) -> Answer {
    Answer::Refused { code: why.into() }
}

/// What came to nothing.
pub fn failed(why: &str) -> Answer {
    Answer::Failed { code: why.to_owned() }
}

impl Session {
    /// One whose choices begin with this seed.
    pub fn new(stage: &Arc<Stage>, number: u32, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ (u64::from(number) << 40));
        Self { stage: Arc::clone(stage), number, rng, count: 0 }
    }

    /// Lives until the sessions are to end, and finishes what it is at.
    pub async fn live(mut self) {
        while !self.stage.stop.load(Ordering::Relaxed) {
            match self.draw(0, 100) {
                0..40 => self.tenure().await,
                40..46 => self.acquire_some().await,
                46..52 => self.fence().await,
                52..76 => self.write_as_anybody().await,
                76..82 => self.commit_as_anybody().await,
                82..89 => self.meddle().await,
                89..92 => self.mark().await,
                92..93 if self.chance(0.4) => self.lift().await,
                93..96 => self.look().await,
                _ => self.find_out().await,
            }
            match self.chance(0.05) {
                true => self.pause(10, 60).await,
                false => self.pause(0, 3).await,
            }
        }
    }

    /// Takes a lock, does something under it, and gives it back, or leaves it.
    async fn tenure(&mut self) {
        let Some(mut held) = self.acquire().await else { return };
        let is_calm = held.versions.iter().all(|(resource, _)| self.stage.is_calm(resource));
        let acts = if is_calm { self.draw(8, 40) } else { self.draw(1, 6) };
        for _ in 0..acts {
            match self.draw(0, 100) {
                0..60 => self.write_under(&held).await,
                60..75 => self.commit(&held).await,
                75..82 => self.renew(held.lock).await,
                82..90 => self.look().await,
                90..98 => self.forward(&held).await,
                _ => match self.transfer(&held).await {
                    Some(next) => held = next,
                    None => return,
                },
            }
            self.pause(0, 4).await;
        }
        if self.chance(0.6) {
            self.release(held.lock).await;
        }
    }

    /// Does something to somebody's lock.
    async fn meddle(&mut self) {
        let Some(known) = self.anybody() else { return };
        if known.versions.iter().any(|(resource, _)| self.stage.is_calm(resource)) {
            return self.write_under(&known).await;
        }
        match self.draw(0, 100) {
            0..25 => self.renew(known.lock).await,
            25..50 => self.release(known.lock).await,
            50..75 => self.break_lock(&known).await,
            75..90 => drop(self.transfer(&known).await),
            _ => self.forward(&known).await,
        }
    }

    /// What is drawn decides what happens; the same seed draws the same.
    pub fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..to)
    }

    /// Whether something happens that is so likely.
    pub fn chance(&mut self, likely: f64) -> bool {
        self.rng.random_bool(likely)
    }

    /// One of these.
    pub fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.choose(&mut self.rng).cloned()
    }

    /// An id that nobody else has.
    pub fn id(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.rng.random()).into_uuid()
    }

    /// A word that nobody else uses.
    pub fn unique(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}v{}", self.number, self.count)
    }

    pub(super) async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let pause = self.draw(from_ms, to_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// A lock that was granted to anybody not long ago: the latest, or an earlier one.
    pub fn anybody(&mut self) -> Option<Known> {
        let mut grants = self.stage.grants();
        if self.chance(0.5) {
            let late = grants.len().saturating_sub(4);
            grants.drain(..late);
        }
        self.one_of(&grants)
    }

    /// Some resources, sorted: one, or up to three.
    pub fn some_resources(&mut self) -> Vec<ResourceName> {
        let count = match self.draw(0, 100) {
            0..70 => 1,
            70..90 => 2,
            _ => 3,
        };
        let mut some: Vec<_> = self.stage.resources.sample(&mut self.rng, count).cloned().collect();
        some.sort();
        some
    }

    /// Asks something, as one of the callers of this session.
    pub fn begin(&self, caller: u32, asked: Asked) -> u64 {
        self.stage.begin(self.number * CALLERS + caller % CALLERS, asked)
    }

    /// Any gateway.
    pub fn gateway(&mut self) -> (usize, Arc<PgLedger>) {
        let at = self.rng.random_range(0..GATEWAYS);
        (at, self.stage.ledger(at))
    }

    fn lane(&mut self) -> Patience {
        Patience::Wait(Duration::from_millis(self.draw(20, 250)))
    }

    /// Sends something once, and perhaps cuts the connection before the answer: what was sent then goes on alone, and what
    /// was sent to a process that stands still begins only when that goes on.
    async fn send<V>(
        &mut self,
        send: &Sending<V>,
        attempt: Attempt,
        patience: Patience,
    ) -> Result<V, LedgerError> {
        let (_, ledger) = self.gateway();
        let limit_us = match self.draw(0, 100) {
            0..5 => self.draw(0, 15_000),
            5..60 => self.draw(100_000, 350_000),
            _ => return send(ledger, attempt, patience).await,
        };
        let answer = timeout(Duration::from_micros(limit_us), send(ledger, attempt, patience));
        answer.await.unwrap_or_else(|_| Err(LedgerError::Unknown("the connection was cut".into())))
    }

    /// Sends something until it is decided: again as a first sending if it had no effect, and as a rerun, or to bury
    /// it, if that is not known. Gives up after a while, or now and then before.
    pub async fn settle<V>(
        &mut self,
        first: Attempt,
        send: &Sending<V>,
        is_busy: impl Fn(&V) -> bool,
    ) -> End<V> {
        let mut attempt = first;
        let mut patience = Patience::Skip;
        if first != Attempt::First || self.chance(0.4) {
            patience = self.lane();
        }
        for _ in 0..SENDINGS {
            match self.send(send, attempt, patience).await {
                Ok(verdict) if is_busy(&verdict) => patience = self.lane(),
                Ok(verdict) => return End::Decided(verdict),
                Err(error) => {
                    if self.stage.leaves_unknown(&error) {
                        attempt = if self.chance(0.35) { Attempt::Bury } else { Attempt::Rerun };
                        patience = self.lane();
                        // What stands still may go on before it is sent again, or after.
                        if self.chance(0.3) {
                            self.pause(100, 1200).await;
                        }
                    } else if attempt == Attempt::First && self.chance(0.5) {
                        return End::Undone;
                    }
                    self.pause(0, 30).await;
                }
            }
            if attempt != Attempt::First && self.chance(0.06) {
                return End::Unknown;
            }
        }
        if attempt == Attempt::First { End::Undone } else { End::Unknown }
    }

    /// The same, for what must not be left: an intent that nobody closes, a mark that nobody lifts.
    pub async fn settle_surely<V>(
        &mut self,
        first: Attempt,
        send: &Sending<V>,
        is_busy: impl Fn(&V) -> bool,
    ) -> Option<V> {
        let mut first = first;
        loop {
            match self.settle(first, send, &is_busy).await {
                End::Decided(verdict) => return Some(verdict),
                End::Undone => return None,
                End::Unknown => first = Attempt::Rerun,
            }
        }
    }
}

/// A name that is good.
pub fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a good name")
}

/// A key that is good.
pub fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("a good key")
}

/// A token that is one.
pub fn token(number: i64) -> Token {
    Token::new(number).expect("a token")
}
