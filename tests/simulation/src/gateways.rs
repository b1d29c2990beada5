//! The gateways: each a process with the real engine in it, which may die and be started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::memory::MemoryBlobs;
use fence_core::ports::{BlobTimes, DrainedUpstream, Intents as _, Retention};
use fencegate::engine::{Engine, Refencing, Settings};

use crate::ledger::{LedgerServer, SimulatedLedger};
use crate::network::{Link, Weather};
use crate::runtime::runtime;
use crate::stores::{MintServer, SimulatedBlobs, SimulatedMint};
use crate::world::{MS, Process, World};

/// The upstream that is drained, and what its resources begin with.
pub const UPSTREAM: (&str, &str) = ("billing", "u");
/// What was forwarded to it has had its effect after this, or never will.
pub const MAX_EFFECT_DELAY: Duration = Duration::from_secs(10);
/// How far back a promoted standby may be.
pub const HORIZON: Duration = Duration::from_secs(8);

/// Longer than any run, and shorter than most jumps of clocks: what makes an outcome known is forgotten by none of them.
const KEPT: Duration = Duration::from_secs(300);
/// Time for which history is kept where it is let go: shorter than an edge is cut now and then, so that a rerun comes
/// after.
const HISTORY: Duration = Duration::from_millis(200);

/// What all gateways share.
pub struct Servers {
    /// The ledger.
    pub ledger: Arc<LedgerServer>,
    /// The mint.
    pub mint: Arc<MintServer>,
    /// The blob store.
    pub blobs: MemoryBlobs,
    /// Whether rules of access are in force.
    pub ruled: bool,
    /// Set if history is let go.
    pub forgets: bool,
    /// Where they run, each by itself: ledger, mint, blobs.
    pub processes: [Process; 3],
}

/// One gateway, as it runs now.
struct Seat {
    process: Process,
    /// `None` before it has started.
    engine: Option<Engine>,
    /// To the ledger, the mint, the blobs.
    links: [Link; 3],
}

/// All gateways; cheap to clone.
#[derive(Clone)]
pub struct Gateways {
    world: World,
    weather: Weather,
    servers: Arc<Servers>,
    seats: Arc<Mutex<Vec<Seat>>>,
    is_calm: Arc<AtomicBool>,
}

impl Gateways {
    /// So many gateways, which are starting.
    pub fn new(world: &World, weather: Weather, servers: Arc<Servers>, count: usize) -> Self {
        let (world, seats) = (world.clone(), Arc::default());
        let this = Self { world, weather, servers, seats, is_calm: Arc::default() };
        for _ in 0..count {
            let seat = this.seat();
            let process = seat.process;
            this.seats().push(seat);
            this.boot(process);
        }
        this
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self) -> Seat {
        let link = |server| Link::new(&self.world, self.weather, server);
        let links = self.servers.processes.map(link);
        if self.is_calm.load(Ordering::Acquire) {
            links.iter().for_each(Link::calm);
        }
        Seat { process: self.world.process(), engine: None, links }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.seats().len()
    }

    /// Whether rules of access are in force.
    pub fn are_ruled(&self) -> bool {
        self.servers.ruled
    }

    /// Tells if what became of a write may be let go.
    pub fn forget(&self) -> bool {
        self.servers.forgets
    }

    /// The process of a gateway.
    pub fn process(&self, gateway: usize) -> Process {
        self.seats()[gateway].process
    }

    /// A gateway that takes requests.
    pub fn engine(&self, gateway: usize) -> Option<(Process, Engine)> {
        let seats = self.seats();
        let seat = seats.get(gateway)?;
        let engine = seat.engine.clone()?;
        self.world.is_alive(seat.process).then_some((seat.process, engine))
    }

    /// Cuts an edge of a gateway, or mends it.
    pub fn cut(&self, gateway: usize, edge: usize, cut: bool) {
        self.seats()[gateway].links[edge].cut(cut);
    }

    /// Mends all edges.
    pub fn mend(&self) {
        for seat in self.seats().iter() {
            seat.links.iter().for_each(|link| link.cut(false));
        }
    }

    /// From now on nothing goes wrong on any edge, nor on those of gateways that are yet to start.
    pub fn calm(&self) {
        self.is_calm.store(true, Ordering::Release);
        for seat in self.seats().iter() {
            seat.links.iter().for_each(Link::calm);
        }
    }

    /// Starts those again that have died.
    pub fn restart(&self) {
        for gateway in 0..self.count() {
            if !self.world.is_alive(self.process(gateway)) {
                let seat = self.seat();
                let process = seat.process;
                let dead = std::mem::replace(&mut self.seats()[gateway], seat);
                drop(dead);
                self.boot(process);
            }
        }
    }

    /// Starts a gateway as `serve` does: upstreams are registered, then the engine runs, and requests
    /// are taken once ledger and mint were held against each other.
    fn boot(&self, process: Process) {
        let this = self.clone();
        let start = async move {
            let Some(links) = this.links(process) else { return };
            let [to_ledger, to_mint, to_blobs] = links;
            let servers = Arc::clone(&this.servers);
            let ledger = Arc::new(SimulatedLedger::new(Arc::clone(&servers.ledger), to_ledger));
            let mint = Arc::new(SimulatedMint::new(Arc::clone(&servers.mint), to_mint));
            let blobs = SimulatedBlobs::new(servers.blobs.clone(), to_blobs, this.world.clone());
            let settings = settings(servers.forgets);
            while ledger.register_upstreams(&settings.drained).await.is_err() {
                this.world.sleep(50 * MS).await;
            }
            let runtime = runtime(&this.world, process);
            let engine = Engine::new(ledger, mint, Some(Arc::new(blobs)), runtime, settings);
            engine.looked_around().await;
            if let Some(seat) = this.seats().iter_mut().find(|seat| seat.process == process) {
                seat.engine = Some(engine);
            }
        };
        self.world.spawn(process, Box::pin(start));
    }

    fn links(&self, process: Process) -> Option<[Link; 3]> {
        let seats = self.seats();
        let seat = seats.iter().find(|seat| seat.process == process)?;
        Some(seat.links.clone())
    }
}

/// As a gateway is configured, with times that fit a run of some seconds.
fn settings(forgets: bool) -> Settings {
    let (name, prefix) = UPSTREAM;
    let upstream = DrainedUpstream {
        name: name.into(),
        resource_prefix: prefix.into(),
        max_effect_delay: Some(MAX_EFFECT_DELAY),
    };
    Settings {
        request_timeout: Duration::from_secs(1),
        queue_max: 100,
        waiters_max: 20,
        batch_max: 16,
        committers: 2,
        retention: Retention {
            keys: KEPT,
            ended_locks: KEPT,
            buried: KEPT,
            history: forgets.then_some(HISTORY),
            rejections_max: 50,
            rows_per_pass: 1000,
        },
        sweep_interval: Duration::from_secs(1),
        blob_times: BlobTimes {
            upload: Duration::from_secs(1),
            multipart: Duration::from_secs(1),
            reader_grace: Duration::from_millis(500),
            rollback_horizon: HORIZON,
            versions: Duration::ZERO,
            redelete: Duration::from_secs(6),
        },
        uploads_max: 8,
        terms: Default::default(),
        refencing: Some(Refencing::Auto),
        audit_key: Some(fencegate::engine::AuditKey([7; 32])),
        audit_places: fencegate::engine::AuditPlaces::default(),
        s3_keys: None,
        drained: Arc::from([upstream]),
    }
}
