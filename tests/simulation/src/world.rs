//! A world on one thread: processes made of tasks, a clock that moves only when nothing else can, and a
//! seed that decides who runs next. The same seed gives the same run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use fence_core::ports::Task;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Microseconds of the world's time.
pub type Micros = u64;

/// One millisecond.
pub const MS: Micros = 1_000;
/// One second.
pub const SECOND: Micros = 1_000_000;

/// A process: it runs, stands still or dies as a whole. A number is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(u64);

/// What may befall a process at its next step but so many: a step goes from one await to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// It stands still for so long, and knows nothing of it.
    Freeze(Micros),
    /// It is gone, with everything it knew.
    Kill,
}

type TaskId = u64;

struct Slot {
    process: Process,
    /// `None` while it is being polled.
    future: Option<Task>,
    waker: Arc<TaskWaker>,
}

#[derive(Default)]
struct Condition {
    frozen_until: Option<Micros>,
    /// What happens to it after so many steps.
    blow: Option<(u32, Blow)>,
    /// How far its wall clock is off, in microseconds.
    skew: i64,
    /// Its tasks that could run, if it did.
    parked: Vec<TaskId>,
}

struct State {
    now: Micros,
    last_id: u64,
    timers: BTreeMap<(Micros, u64), Waker>,
    tasks: BTreeMap<TaskId, Slot>,
    processes: BTreeMap<Process, Condition>,
    rng: StdRng,
    /// Steps so far.
    steps: u64,
}

impl State {
    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Tasks that have been woken since the scheduler looked.
type Woken = Arc<Mutex<Vec<TaskId>>>;

/// The world; cheap to clone.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    woken: Woken,
}

struct TaskWaker {
    task: TaskId,
    is_queued: AtomicBool,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            lock(&self.woken).push(self.task);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                now: SECOND,
                last_id: 0,
                timers: BTreeMap::new(),
                tasks: BTreeMap::new(),
                processes: BTreeMap::new(),
                rng: StdRng::seed_from_u64(seed),
                steps: 0,
            })),
            woken: Woken::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The time.
    pub fn now(&self) -> Micros {
        self.state().now
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Asks the seed.
    pub fn draw<T>(&self, question: impl FnOnce(&mut StdRng) -> T) -> T {
        question(&mut self.state().rng)
    }

    /// Whether something of this probability happens.
    pub fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.draw(|rng| rng.random_bool(probability.min(1.0)))
    }

    /// A time between two others.
    pub fn between(&self, least: Micros, most: Micros) -> Micros {
        self.draw(|rng| rng.random_range(least..=most))
    }

    /// One of several.
    pub fn one_of<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        match all.len() {
            0 => None,
            count => all.get(self.draw(|rng| rng.random_range(0..count))),
        }
    }

    /// A new process.
    pub fn process(&self) -> Process {
        let mut state = self.state();
        let process = Process(state.id());
        state.processes.insert(process, Condition::default());
        process
    }

    /// Whether a process has not died.
    pub fn is_alive(&self, process: Process) -> bool {
        self.state().processes.contains_key(&process)
    }

    /// Starts a task of a process; of one that is dead, nothing.
    pub fn spawn(&self, process: Process, future: Task) {
        let mut state = self.state();
        if !state.processes.contains_key(&process) {
            drop(state);
            return drop(future);
        }
        let task = state.id();
        let waker = Arc::new(TaskWaker {
            task,
            is_queued: AtomicBool::new(true),
            woken: Arc::clone(&self.woken),
        });
        let slot = Slot { process, future: Some(future), waker };
        state.tasks.insert(task, slot);
        drop(state);
        lock(&self.woken).push(task);
    }

    /// Waits.
    pub fn sleep(&self, duration: Micros) -> Sleep {
        Sleep { world: self.clone(), until: self.now().saturating_add(duration), timer: None }
    }

    /// How far the wall clock of a process is off, in microseconds.
    pub fn skew(&self, process: Process) -> i64 {
        self.state().processes.get(&process).map_or(0, |condition| condition.skew)
    }

    /// Sets the wall clock of a process.
    pub fn set_skew(&self, process: Process, skew: i64) {
        if let Some(condition) = self.state().processes.get_mut(&process) {
            condition.skew = skew;
        }
    }

    /// A process stands still, from now on for so long.
    pub fn freeze(&self, process: Process, duration: Micros) {
        let mut state = self.state();
        let until = state.now.saturating_add(duration);
        if let Some(condition) = state.processes.get_mut(&process) {
            condition.frozen_until = condition.frozen_until.max(Some(until));
        }
    }

    /// All that stand still go on.
    pub fn thaw_all(&self) {
        let mut state = self.state();
        for condition in state.processes.values_mut() {
            condition.frozen_until = None;
            condition.blow = None;
            lock(&self.woken).append(&mut condition.parked);
        }
    }

    /// Something befalls a process after so many of its steps.
    pub fn strike(&self, process: Process, steps: u32, blow: Blow) {
        if let Some(condition) = self.state().processes.get_mut(&process) {
            condition.blow = Some((steps, blow));
        }
    }

    /// A process is gone, and all its tasks.
    pub fn kill(&self, process: Process) {
        let mut state = self.state();
        state.processes.remove(&process);
        let of_it = |_: &TaskId, slot: &mut Slot| slot.process == process;
        let dead: Vec<Slot> = state.tasks.extract_if(.., of_it).map(|(_, slot)| slot).collect();
        drop(state);
        // What they spawn while they are dropped goes nowhere: the process is dead.
        drop(dead);
    }

    /// Ends everything: tasks hold the world, and the world holds them.
    pub fn end(&self) {
        let mut state = self.state();
        state.processes.clear();
        let (tasks, timers) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers));
        drop(state);
        drop((tasks, timers));
    }

    /// Runs until a time, or until nothing would ever happen again.
    pub fn run_until(&self, end: Micros) {
        let mut runnable: Vec<TaskId> = Vec::new();
        loop {
            runnable.append(&mut lock(&self.woken));
            // Some channels of tokio wake in an order of their own, which differs from run to run.
            runnable.sort_unstable();
            match self.pick(&mut runnable) {
                Some(task) => self.step(task),
                None if self.now() >= end || !self.pass_time(end) => return,
                None => {}
            }
        }
    }

    /// The next task to run: one of those that can, as the seed says.
    fn pick(&self, runnable: &mut Vec<TaskId>) -> Option<TaskId> {
        let mut state = self.state();
        while !runnable.is_empty() {
            let index = state.rng.random_range(0..runnable.len());
            let task = runnable.remove(index);
            let Some(process) = state.tasks.get(&task).map(|slot| slot.process) else { continue };
            let now = state.now;
            let Some(condition) = state.processes.get_mut(&process) else { continue };
            if condition.frozen_until.is_some_and(|until| until > now) {
                condition.parked.push(task);
                continue;
            }
            condition.frozen_until = None;
            match condition.blow {
                Some((0, blow)) => {
                    condition.blow = None;
                    condition.parked.push(task);
                    drop(state);
                    match blow {
                        Blow::Kill => self.kill(process),
                        Blow::Freeze(duration) => self.freeze(process, duration),
                    }
                    state = self.state();
                    continue;
                }
                Some((steps, blow)) => condition.blow = Some((steps - 1, blow)),
                None => {}
            }
            return Some(task);
        }
        None
    }

    /// Lets a task run to its next await.
    fn step(&self, task: TaskId) {
        let (mut future, waker) = {
            let mut state = self.state();
            state.steps += 1;
            state.now += 1;
            let Some(slot) = state.tasks.get_mut(&task) else { return };
            let Some(future) = slot.future.take() else { return };
            (future, Arc::clone(&slot.waker))
        };
        // Woken from here on, it runs once more.
        waker.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(waker);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.state();
        match state.tasks.get_mut(&task) {
            Some(slot) if polled.is_pending() => slot.future = Some(future),
            Some(_) => {
                state.tasks.remove(&task);
                drop(state);
                drop(future);
            }
            // Its process has died by its own hand.
            None => {
                drop(state);
                drop(future);
            }
        }
    }

    /// Nothing can run: on to the next moment at which something can. Says whether there is one before
    /// the end.
    fn pass_time(&self, end: Micros) -> bool {
        let mut due = Vec::new();
        {
            let mut state = self.state();
            let timer = state.timers.keys().next().map(|(at, _)| *at);
            let thaw = state.processes.values().filter(|one| !one.parked.is_empty());
            let thaw = thaw.map(|one| one.frozen_until.unwrap_or(0)).min();
            let next = timer.into_iter().chain(thaw).min().unwrap_or(Micros::MAX);
            state.now = state.now.max(next.min(end));
            let now = state.now;
            if next > now {
                return false;
            }
            while let Some(entry) = state.timers.first_entry()
                && entry.key().0 <= now
            {
                due.push(entry.remove());
            }
            for condition in state.processes.values_mut() {
                if condition.frozen_until.is_none_or(|until| until <= now) {
                    lock(&self.woken).append(&mut condition.parked);
                }
            }
        }
        due.into_iter().for_each(Waker::wake);
        true
    }
}

/// Waits until a time.
pub struct Sleep {
    world: World,
    until: Micros,
    timer: Option<(Micros, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut state = world.state();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let key = match self.timer {
            Some(key) => key,
            None => (self.until, state.id()),
        };
        self.timer = Some(key);
        state.timers.insert(key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let timer = self.world.state().timers.remove(&key);
            drop(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes that note what they do; one may be struck.
    fn run(seed: u64, blow: Option<Blow>) -> Vec<(u8, Micros)> {
        let world = World::new(seed);
        let notes = Arc::new(Mutex::new(Vec::new()));
        for name in 0..2 {
            let process = world.process();
            let (inner, notes) = (world.clone(), Arc::clone(&notes));
            let task = async move {
                for _ in 0..5 {
                    inner.sleep(10 * MS).await;
                    lock(&notes).push((name, inner.now() / MS));
                }
            };
            world.spawn(process, Box::pin(task));
            if let (0, Some(blow)) = (name, blow) {
                world.strike(process, 2, blow);
            }
        }
        world.run_until(10 * SECOND);
        lock(&notes).clone()
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_others_give_others() {
        assert_eq!(run(1, None), run(1, None));
        assert!((2..20).any(|seed| run(seed, None) != run(1, None)));
    }

    #[test]
    fn a_frozen_process_goes_on_later_and_a_dead_one_never() {
        let of_first = |notes: Vec<(u8, Micros)>| {
            notes.into_iter().filter(|(name, _)| *name == 0).map(|(_, at)| at).collect::<Vec<_>>()
        };
        assert_eq!(of_first(run(1, None)), [1010, 1020, 1030, 1040, 1050]);
        assert_eq!(of_first(run(1, Some(Blow::Kill))), [1010]);
        let frozen = of_first(run(1, Some(Blow::Freeze(SECOND))));
        assert_eq!(frozen.len(), 5);
        assert!(frozen[1] >= 2010, "{frozen:?}");
    }
}
