//! One run: a world from a seed, its history, and what the checkers say of it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use fence_core::memory::MemoryBlobs;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{BlobError, Blobs as _, Listed, Uploads as _};
use fence_history::{Answer, History, Record};
use fencegate::engine::refence_now;
use futures::{FutureExt as _, StreamExt as _};

use crate::access;
use crate::client::client;
use crate::clocks::{ClockFacts, Clocks, Jumps};
use crate::faults::{Faults, Targets, strike};
use crate::gateways::{Gateways, Servers};
use crate::ledger::{LedgerServer, SimulatedLedger};
use crate::network::{Link, Weather};
use crate::recorder::Recorder;
use crate::runtime::{random_id, runtime};
use crate::stores::{MintServer, SimulatedMint};
use crate::stories::{DRAINED, Plot, resources};
use crate::world::{MS, Process, SECOND, World};

/// What a run came to.
pub struct Run {
    /// Everything that was asked and told, and what the ledger holds.
    pub history: History,
    /// What went wrong in a way that no history shows: panics, things that never ended.
    pub failures: Vec<String>,
    /// How many steps tasks took.
    pub steps: u64,
    /// Jumps of clocks.
    pub clocks: ClockFacts,
}

impl Run {
    /// How many calls clients made.
    pub fn calls(&self) -> u64 {
        let calls = self.history.records.iter().filter(|record| matches!(record, Record::Call(_)));
        calls.count() as u64
    }
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics are kept for the run instead of printed: the engine survives a panic of one of its tasks, but
/// a run with one has failed.
fn watch_for_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match std::thread::current().name() {
            Some(name) if name.starts_with(THREAD) => {
                PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            }
            _ => before(panic),
        }));
    });
}

/// What the names of threads begin with whose panics belong to a run.
pub const THREAD: &str = "simulation";

/// Runs a seed, with a mutant or without.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Run {
    watch_for_panics();
    mutants::switch(mutant);
    let world = World::new(seed);
    let recorder = Recorder::new(&world);
    let outcome = catch_unwind(AssertUnwindSafe(|| play(&world, seed, recorder.clone())));
    world.end();
    mutants::switch(None);
    let mut failures = PANICS.with_borrow_mut(std::mem::take);
    let (history, unfinished) = outcome.unwrap_or_else(|_| {
        failures.push("the run itself panicked".into());
        (History::default(), None)
    });
    failures.extend(unfinished);
    Run { history, failures, steps: world.steps(), clocks: recorder.clock_facts() }
}

/// The number of the client that asks after what others have left behind.
const ONLOOKER: u32 = 99;
/// One run in so many has rules of access.
const RULED: u64 = 4;
/// One run in so many lets go of history.
const FORGETS: u64 = 6;
/// One run in so many has uploads in parts.
const IN_PARTS: u64 = 5;
/// The longest that a run takes to come to rest after its last fault.
const REST: u64 = 120 * SECOND;

fn play(world: &World, seed: u64, recorder: Recorder) -> (History, Option<String>) {
    let faults = Faults::of(world);
    let processes = [world.process(), world.process(), world.process()];
    let clock = runtime(world, processes[0]).clock;
    // A ledger that goes back has older rules again, of which a history does not tell.
    let ruled = seed.is_multiple_of(RULED) && !faults.ledger;
    let servers = Arc::new(Servers {
        ruled,
        forgets: seed % FORGETS == FORGETS - 1,
        ledger: Arc::new(LedgerServer::new(clock, random_id(world))),
        mint: Arc::new(MintServer::new()),
        blobs: MemoryBlobs::new(runtime(world, processes[2]).clock),
        processes,
    });
    if ruled {
        access::begin(&servers, &recorder);
    }
    let count = if world.chance(0.3) { 1 } else { 2 };
    let gateways = Gateways::new(world, faults.weather, Arc::clone(&servers), count);
    let upstream = world.process();
    let plot = Plot {
        blobs: world.chance(0.7),
        upstream: world.chance(0.45),
        rules: ruled,
        parts: seed % IN_PARTS == IN_PARTS - 1,
    };
    let jumps = Jumps::of(world, &faults, &plot);
    let end = world.now() + world.between(4 * SECOND, 14 * SECOND);
    let mut clients = Vec::new();
    for number in 1..=u32::try_from(world.between(2, 5)).unwrap_or(2) {
        let mut client = client(number, &gateways, &recorder, world);
        if world.chance(0.5) {
            client.patience = (100 * MS, 800 * MS);
        }
        clients.push(client.process);
        world.spawn(client.process, Box::pin(client.live(plot, end, upstream)));
    }
    // What was stamped by a clock that is ahead is kept for longer than the run takes.
    let is_tidied = !faults.ledger && !jumps.ledger;
    let clocks = Clocks {
        world: world.clone(),
        jumps,
        gateways: gateways.clone(),
        ledger: processes[0],
        clients: clients.clone(),
        recorder: recorder.clone(),
    };
    let clock_setter = world.process();
    world.spawn(clock_setter, Box::pin(clocks.jump_about(end)));
    let targets = Targets {
        gateways: gateways.clone(),
        servers: Arc::clone(&servers),
        clients,
        recorder: recorder.clone(),
        clocks: jumps.gateways,
    };
    let nemesis = world.process();
    world.spawn(nemesis, Box::pin(strike(world.clone(), targets, faults, end)));
    let operator = world.process();
    world.spawn(operator, Box::pin(operate(world.clone(), Arc::clone(&servers), operator)));
    let mut onlooker = client(ONLOOKER, &gateways, &recorder, world);
    onlooker.be_patient();
    let looks_on = onlooker.ask_after_the_buried(Arc::clone(&servers.ledger));
    world.spawn(world.process(), Box::pin(looks_on));
    let administrator = world.process();
    if ruled {
        let (servers, recorder) = (Arc::clone(&servers), recorder.clone());
        let changes = access::administer(world.clone(), servers, recorder, end);
        world.spawn(administrator, Box::pin(changes));
    }
    world.run_until(end);
    world.kill(nemesis);
    world.kill(clock_setter);
    jumps.catch_up(world, processes[0]);
    let over = heal(world, &gateways, &recorder);
    world.run_until(world.now() + REST);
    let unfinished = (!over()).then(|| "some resource never came back to life".to_owned());
    let unfinished = unfinished.or_else(|| stray(&servers).filter(|_| is_tidied));
    let history = recorder.history(&servers.ledger);
    (history, unfinished)
}

/// Looks for a blob in the store that is nobody's. Of a ledger that went back, or whose clock jumped, the scrub finds them.
fn stray(servers: &Servers) -> Option<String> {
    let memory = servers.ledger.memory();
    let pointers = memory.pointers(None, i64::MAX).now_or_never()?.ok()?;
    let known: BTreeSet<_> = pointers.into_iter().map(|pointer| pointer.blob).collect();
    let listed: Vec<_> = servers.blobs.list().collect::<Vec<_>>().now_or_never()?;
    let is_stray = |listed: &Result<Listed, BlobError>| match listed {
        Ok(Listed::Blob(stored)) => !known.contains(&stored.blob),
        _ => false,
    };
    let count = listed.iter().filter(|listed| is_stray(listed)).count();
    (count > 0).then(|| format!("{count} blobs are nobody's and were not deleted"))
}

/// An operator: re-fences a ledger that the gateways leave to him, since the mint has seen a later
/// re-fence than the ledger knows of.
async fn operate(world: World, servers: Arc<Servers>, process: Process) {
    let link = |server| Link::new(&world, Weather::default(), server);
    let [to_ledger, to_mint, _] = servers.processes.map(link);
    let ledger = Arc::new(SimulatedLedger::new(Arc::clone(&servers.ledger), to_ledger));
    let mint = Arc::new(SimulatedMint::new(Arc::clone(&servers.mint), to_mint));
    let mut looks = 0;
    loop {
        world.sleep(SECOND).await;
        looks = if servers.ledger.called_for().is_some() { looks + 1 } else { 0 };
        if looks > 4 {
            let (ledger, mint) = (Arc::clone(&ledger), Arc::clone(&mint));
            let runtime = runtime(&world, process);
            // What fails is tried again.
            let _ = refence_now(ledger, mint, runtime, "an operator", false).await;
        }
    }
}

/// Mends everything; a patient client on each resource must then get a lock and write, and reads all
/// that is there. Returns whether all have.
fn heal(world: &World, gateways: &Gateways, recorder: &Recorder) -> impl Fn() -> bool + use<> {
    gateways.mend();
    gateways.calm();
    world.thaw_all();
    gateways.restart();
    recorder.healed(resources().map(str::to_owned).collect());
    let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for (number, resource) in (100..).zip(resources()) {
        let mut prober = client(number, gateways, recorder, world);
        prober.be_patient();
        let (done, recorder) = (Arc::clone(&done), recorder.clone());
        let task = async move {
            loop {
                if let Some(held) = prober.acquire(&[resource], Duration::from_secs(5)).await {
                    let wish = prober.put(resource, held.token);
                    let told = prober.write(wish, Some(held.lock), false).await;
                    prober.release(&held).await;
                    if matches!(told, Some(Answer::Written { .. })) {
                        break;
                    }
                }
                prober.pause(50 * MS, 200 * MS).await;
            }
            for object in ["set", "a", "b", "c", "both", "x"] {
                prober.read(resource, object).await;
            }
            let of_interest = match resource {
                DRAINED => recorder.forwarded(),
                _ if number == 100 => recorder.unknown(),
                _ => Vec::new(),
            };
            for operation in of_interest {
                prober.look_up(operation).await;
            }
            done.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        };
        let process = world.process();
        world.spawn(process, Box::pin(task));
    }
    let all = resources().count();
    move || done.load(std::sync::atomic::Ordering::Acquire) == all
}
