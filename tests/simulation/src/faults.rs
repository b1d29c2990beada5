//! What goes wrong, and when: the faults of a run.

use std::collections::VecDeque;
use std::sync::Arc;

use fence_core::memory::{MemoryLedger, MemoryMint};
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{Ledger as _, Mint as _, Page, Which, Witness};
use futures::FutureExt as _;
use rand::RngExt as _;

use crate::gateways::{Gateways, HORIZON, Servers};
use crate::ledger::{Copy, LedgerServer};
use crate::network::Weather;
use crate::recorder::Recorder;
use crate::runtime::micros;
use crate::world::{Blow, MS, Micros, Process, SECOND, World};

/// Which faults a run has. Each seed has its own, so that some runs are calm and some have one kind only.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// What the network does.
    pub weather: Weather,
    /// Gateways die.
    pub kills: bool,
    /// Gateways and clients stand still.
    pub freezes: bool,
    /// Edges are cut.
    pub cuts: bool,
    /// The mint is restored from an older snapshot, or wiped.
    pub mint: bool,
    /// An older standby of the ledger takes over, or a copy of its files is put back.
    pub ledger: bool,
    /// The server of the ledger is started anew.
    pub restarts: bool,
}

impl Faults {
    /// As the seed says.
    pub fn of(world: &World) -> Self {
        world.draw(|rng| {
            let mut rate = |likely: f64, most: f64| match rng.random_bool(likely) {
                true => rng.random_range(0.0..most),
                false => 0.0,
            };
            let weather = Weather {
                lost: rate(0.6, 0.12),
                refused: rate(0.4, 0.08),
                slow: rate(0.5, 0.2),
                duplicated: rate(0.3, 0.2),
                busy: rate(0.4, 0.2),
            };
            Self {
                weather,
                kills: rng.random_bool(0.5),
                freezes: rng.random_bool(0.5),
                cuts: rng.random_bool(0.3),
                mint: rng.random_bool(0.3),
                ledger: rng.random_bool(0.3),
                restarts: rng.random_bool(0.2),
            }
        })
    }
}

/// Who may be struck.
pub struct Targets {
    /// The gateways.
    pub gateways: Gateways,
    /// The servers they share.
    pub servers: Arc<Servers>,
    /// The clients.
    pub clients: Vec<Process>,
    /// The record.
    pub recorder: Recorder,
    /// Tells whether clocks of gateways are wrong.
    pub clocks: bool,
}

/// Older states that a server may go back to.
#[derive(Default)]
struct Copies {
    ledger: VecDeque<(Micros, Copy)>,
    mint: VecDeque<MemoryMint>,
}

/// The most copies that are kept.
const COPIES_MAX: usize = 8;

/// Fault after fault, until a time.
pub async fn strike(world: World, targets: Targets, faults: Faults, until: Micros) {
    let mut copies = Copies::default();
    while world.now() < until {
        world.sleep(world.between(50 * MS, 900 * MS)).await;
        copies.take(&world, &targets.servers);
        let gateway = usize::try_from(world.between(0, targets.gateways.count() as u64 - 1));
        let gateway = gateway.unwrap_or(0);
        let process = targets.gateways.process(gateway);
        let steps = world.draw(|rng| rng.random_range(0..400));
        match world.draw(|rng| rng.random_range(0..10)) {
            0..3 if faults.kills => world.strike(process, steps, Blow::Kill),
            3 if faults.freezes => {
                world.strike(process, steps, Blow::Freeze(world.between(50 * MS, 4 * SECOND)));
            }
            4 if faults.freezes => {
                let client = world.one_of(&targets.clients).copied();
                let duration = world.between(200 * MS, 4 * SECOND);
                client.into_iter().for_each(|client| world.freeze(client, duration));
            }
            5..7 if faults.cuts => {
                let edge = world.draw(|rng| rng.random_range(0..3));
                targets.gateways.cut(gateway, edge, true);
            }
            7 if faults.mint => copies.restore_mint(&world, &targets.servers),
            8 if faults.ledger => match world.chance(0.4) {
                true => copies.put_back(&world, &targets),
                false => copies.promote(&world, &targets),
            },
            9 if faults.ledger && faults.mint && world.chance(0.3) => {
                copies.restore_mint(&world, &targets.servers);
                copies.promote(&world, &targets);
            }
            9 if faults.restarts && knows_milestone(&targets.servers) => {
                targets.servers.ledger.restart();
            }
            _ => {}
        }
        if world.chance(0.4) {
            targets.gateways.mend();
        }
        if world.chance(0.5) {
            targets.gateways.restart();
        }
    }
}

impl Copies {
    fn take(&mut self, world: &World, servers: &Servers) {
        if servers.ledger.called_for().is_none() {
            self.ledger.push_back((world.now(), servers.ledger.copy()));
        }
        self.mint.push_back(servers.mint.memory().copy());
        let oldest = world.now().saturating_sub(micros(HORIZON) - SECOND);
        self.ledger.retain(|(at, _)| *at >= oldest);
        while self.ledger.len() > COPIES_MAX {
            self.ledger.pop_front();
        }
        while self.mint.len() > COPIES_MAX {
            self.mint.pop_front();
        }
    }

    fn restore_mint(&mut self, world: &World, servers: &Servers) {
        let index = world.draw(|rng| rng.random_range(0..self.mint.len().max(1)));
        // See `is_forgotten`: the mint may be all that remembers one.
        if servers.ledger.called_for().is_some() || servers.ledger.is_restarted() {
            return;
        }
        match self.mint.remove(index) {
            Some(snapshot) if world.chance(0.8) => servers.mint.restore(snapshot),
            _ => servers.mint.memory().wipe(),
        }
    }

    /// An older standby takes over. Not while one that did is waiting for its re-fence.
    fn promote(&mut self, world: &World, targets: &Targets) {
        let server = &targets.servers.ledger;
        let Some(copy) = self.older(world, targets) else { return };
        let generation = generation(&server.memory());
        server.promote(copy);
        targets.recorder.rollback(generation, versions(server));
        if mutants::is(Mutant::NoGuard) {
            self.ledger.clear();
        }
    }

    /// A copy of the files is put back under the same server, which has gone on meanwhile. Not one that is younger than
    /// the newest milestone that the mint knows: what it lacks is no older than two seconds, and is not promised.
    fn put_back(&mut self, world: &World, targets: &Targets) {
        let server = &targets.servers.ledger;
        let Some(copy) = self.older(world, targets) else { return };
        let head = targets.servers.mint.memory().head().now_or_never().and_then(Result::ok);
        let witness = head.and_then(|head| head.witness);
        let generation = generation(&server.memory());
        let is_told = witness.is_some_and(|witness| {
            witness.generation == generation
                && witness.milestone.is_some_and(|milestone| !copy.has(milestone))
        });
        if is_told {
            server.put_back(copy);
            targets.recorder.rollback(generation, versions(server));
        }
    }

    /// An older copy of the ledger, of which a later one was never this server's; none while it waits for a re-fence.
    fn older(&mut self, world: &World, targets: &Targets) -> Option<Copy> {
        let server = &targets.servers.ledger;
        if self.ledger.is_empty() || server.called_for().is_some() || server.is_restarted() {
            return None;
        }
        let index = world.draw(|rng| rng.random_range(0..self.ledger.len()));
        let (_, copy) = self.ledger.remove(index)?;
        if is_forgotten(server, &copy, &targets.servers.mint.memory(), targets.clocks) {
            return None;
        }
        self.ledger.truncate(index);
        Some(copy)
    }
}

/// Whether the mint knows a milestone of the ledger, by which a start of its server is confirmed. A mint that was restored
/// lately may know none: the ledger would be re-fenced, and tokens be void, although it did not go back.
fn knows_milestone(servers: &Servers) -> bool {
    let head = servers.mint.memory().head().now_or_never().and_then(Result::ok);
    let generation = generation(&servers.ledger.memory());
    let of_line = |witness: &Witness| witness.generation == generation;
    let witness = head.and_then(|head| head.witness).filter(of_line);
    let milestone = witness.and_then(|witness| witness.milestone);
    milestone.is_some_and(|milestone| servers.ledger.copy().has(milestone))
}

/// Whether nobody would remember the last re-fence: the clock alone would tell then. With clocks that are wrong, the same of a new epoch: one that
/// was begun by a clock that is ahead has a base which a right clock does not outdo.
fn is_forgotten(server: &LedgerServer, copy: &Copy, mint: &MemoryMint, clocks: bool) -> bool {
    let head = mint.head().now_or_never().and_then(Result::ok);
    let witness = head.and_then(|head| head.witness);
    let (by_mint, base_by_mint) = witness.map_or((0, 0), |one| (one.generation, one.base));
    let now = server.memory();
    let forgets_base = base(copy.memory()).max(base_by_mint) < base(&now);
    generation(copy.memory()).max(by_mint) < generation(&now) || (clocks && forgets_base)
}

fn base(memory: &MemoryLedger) -> i64 {
    memory.place(None).now_or_never().and_then(Result::ok).map_or(0, |place| place.epoch.base)
}

/// How often a ledger was re-fenced.
pub fn generation(memory: &MemoryLedger) -> i64 {
    memory.place(None).now_or_never().and_then(Result::ok).map_or(0, |place| place.generation)
}

/// The version of each resource in the ledger as it is.
pub fn versions(server: &LedgerServer) -> Vec<(String, i64)> {
    let memory = server.memory();
    let page = Page { prefix: String::new(), after: None, limit: 1000 };
    let views = memory.resources(page, Which::All).now_or_never().and_then(Result::ok);
    let version = |view: fence_core::ports::ResourceView| (view.resource.to_string(), view.version);
    views.unwrap_or_default().into_iter().map(version).collect()
}
