//! Wall clocks that are wrong: whose jump in a run, how far, and when.

use futures::future::{Either, select};
use rand::RngExt as _;

use crate::faults::Faults;
use crate::gateways::Gateways;
use crate::recorder::Recorder;
use crate::stories::Plot;
use crate::world::{MS, Micros, Process, SECOND, World};

/// Magnitudes of jumps: a minute, an hour, a year.
const MAGNITUDES: [Micros; 3] = [60 * SECOND, 3600 * SECOND, 365 * 24 * 3600 * SECOND];
/// The longest time without a jump; shorter than any run.
const STILL_MAX: Micros = 3 * SECOND;

/// Clocks that jump in a run.
#[derive(Debug, Clone, Copy)]
pub struct Jumps {
    /// Clocks of gateways.
    pub gateways: bool,
    /// That of the ledger: when a request to an upstream has had its effect is promised by it.
    pub ledger: bool,
    clients: bool,
}

impl Jumps {
    /// As the seed and the promises of the run say. In nearly all runs some clock jumps.
    pub fn of(world: &World, faults: &Faults, plot: &Plot) -> Self {
        if world.chance(0.04) {
            return Self { gateways: false, ledger: false, clients: false };
        }
        // What only the clock of a gateway still tells is told by a right one alone: see `is_forgotten`.
        let gateways = !(faults.ledger && faults.mint) || world.chance(0.5);
        // What is stamped by a clock that is ahead stays: most runs whose ledger goes back to pointers of blobs have none.
        let keeps_blobs = faults.ledger && (plot.blobs || plot.parts) && world.chance(0.7);
        Self { gateways, ledger: !plot.upstream && !keeps_blobs, clients: true }
    }

    /// Puts the clock of the ledger as far ahead as it can have been: nothing waits for a time that was stamped before the
    /// clock went back.
    pub fn catch_up(self, world: &World, ledger: Process) {
        if self.ledger {
            world.set_skew(ledger, i64::try_from(MAGNITUDES[2]).unwrap_or(i64::MAX));
        }
    }
}

/// The clocks of a run.
pub struct Clocks {
    /// The world.
    pub world: World,
    /// Clocks that jump.
    pub jumps: Jumps,
    /// The gateways.
    pub gateways: Gateways,
    /// The process of the ledger.
    pub ledger: Process,
    /// The clients.
    pub clients: Vec<Process>,
    /// The record.
    pub recorder: Recorder,
}

#[derive(Clone, Copy)]
enum Whose {
    Gateway,
    Ledger,
    Client,
}

impl Clocks {
    /// Jump after jump, until a time: now and then, and soon after somebody has lost the answer to a write, so that what
    /// became of it is found out across the jump.
    pub async fn jump_about(self, until: Micros) {
        let lost = self.recorder.losses();
        while self.world.now() < until {
            let pause = self.world.sleep(self.world.between(200 * MS, STILL_MAX));
            match select(pause, Box::pin(lost.notified())).await {
                Either::Left(_) => self.jump(),
                Either::Right(_) if self.world.chance(0.9) => {
                    self.world.sleep(self.world.between(0, 20 * MS)).await;
                    self.jump();
                }
                Either::Right(_) => {}
            }
        }
    }

    fn jump(&self) {
        let Jumps { gateways, ledger, clients } = self.jumps;
        let all = [(Whose::Gateway, gateways), (Whose::Ledger, ledger), (Whose::Client, clients)];
        let jumping: Vec<_> = all.into_iter().filter(|(_, jumps)| *jumps).collect();
        let Some((whose, _)) = self.world.one_of(&jumping).copied() else { return };
        let count = self.gateways.count();
        let process = match whose {
            Whose::Gateway => {
                let number = self.world.draw(|rng| rng.random_range(0..count));
                Some(self.gateways.process(number))
            }
            Whose::Ledger => Some(self.ledger),
            Whose::Client => self.world.one_of(&self.clients).copied(),
        };
        let Some(process) = process else { return };
        let skew = self.skew();
        if skew != self.world.skew(process) {
            self.world.set_skew(process, skew);
            self.recorder.clock_jumped();
        }
    }

    /// Right again now and then; else ahead or behind.
    fn skew(&self) -> i64 {
        let most = self.world.one_of(&MAGNITUDES).copied().unwrap_or(MAGNITUDES[0]);
        let off = i64::try_from(self.world.between(most / 2, most)).unwrap_or(0);
        match self.world.draw(|rng| rng.random_range(0..8)) {
            0 => 0,
            1..4 => -off,
            _ => off,
        }
    }
}

/// Facts about clocks in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockFacts {
    /// Jumps.
    pub jumps: u64,
    /// Jumps while some client did not know what became of a write whose answer was lost.
    pub jumps_while_unknown: u64,
}
