//! What happens to a message on its way, and to its answer on the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::channel::oneshot;
use rand::RngExt as _;

use crate::world::{MS, Micros, Process, SECOND, World};

/// How likely the network does what to a message. Each seed has its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// The answer is lost; what was asked is done, perhaps much later, or never.
    pub lost: f64,
    /// It never arrives, and its sender knows that.
    pub refused: f64,
    /// It takes much longer than usual.
    pub slow: f64,
    /// It arrives twice, where whoever sends it may send it again.
    pub duplicated: f64,
    /// A row that is wanted is locked by somebody else's transaction.
    pub busy: f64,
}

/// The longest that anything is on its way.
pub const LATEST: Micros = 4 * SECOND;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// It never arrived.
    NotSent,
    /// It may have arrived, or may still arrive.
    Lost,
}

/// One edge between two processes.
#[derive(Clone)]
pub struct Link {
    world: World,
    weather: Weather,
    /// Where what is asked is done.
    server: Process,
    /// Whether nothing passes now.
    is_cut: Arc<AtomicBool>,
    /// Whether nothing goes wrong any more.
    is_calm: Arc<AtomicBool>,
}

impl Link {
    /// An edge to a server.
    pub fn new(world: &World, weather: Weather, server: Process) -> Self {
        let (is_cut, is_calm) = (Arc::default(), Arc::default());
        Self { world: world.clone(), weather, server, is_cut, is_calm }
    }

    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        self.is_calm.store(true, Ordering::Release);
    }

    fn weather(&self) -> Weather {
        match self.is_calm.load(Ordering::Acquire) {
            true => Weather::default(),
            false => self.weather,
        }
    }

    /// Lets nothing pass, or all.
    pub fn cut(&self, cut: bool) {
        self.is_cut.store(cut, Ordering::Release);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Whether a row that is wanted now is locked by somebody else.
    pub fn is_busy(&self) -> bool {
        self.world.chance(self.weather().busy)
    }

    /// Whether a message arrives twice.
    pub fn is_duplicated(&self) -> bool {
        self.world.chance(self.weather().duplicated)
    }

    /// How long a message takes.
    fn delay(&self) -> Micros {
        match self.world.chance(self.weather().slow) {
            true => self.world.between(100 * MS, LATEST / 2),
            false => self.world.between(50, 3 * MS),
        }
    }

    /// Has something done at the server, in one step, and brings the answer.
    pub async fn ask<T: Send + 'static>(
        &self,
        deed: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        if self.is_cut() || self.world.chance(self.weather().refused) {
            self.world.sleep(self.world.between(50, 5 * MS)).await;
            return Err(NoAnswer::NotSent);
        }
        let lost = self.world.chance(self.weather().lost);
        let arrives = !lost || self.world.chance(0.7);
        let there = match lost {
            true => self.world.between(50, LATEST),
            false => self.delay(),
        };
        let back = self.delay();
        let (send, answer) = oneshot::channel();
        if arrives {
            let world = self.world.clone();
            let task = async move {
                world.sleep(there).await;
                let done = deed();
                world.sleep(back).await;
                let _ = send.send(done);
            };
            self.world.spawn(self.server, Box::pin(task));
        }
        if lost {
            let patience = self.world.draw(|rng| rng.random_range(MS..2 * SECOND));
            self.world.sleep(patience).await;
            return Err(NoAnswer::Lost);
        }
        match answer.await {
            Ok(answer) if !self.is_cut() => Ok(answer),
            _ => Err(NoAnswer::Lost),
        }
    }
}
