//! The simulated ledger: a server that all gateways share, and which may go back to an older copy of
//! itself.

mod port;
mod s3;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fence_core::memory::MemoryLedger;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    Applied, Clock, Effect, Epoch, Ledger as _, LedgerError, Line, Milestone, OperationRecord,
    Place, Refence, Stand, Start,
};
use fence_core::{LockId, OperationId, ResourceName, Token};
use futures::FutureExt as _;
use uuid::Uuid;

pub use port::SimulatedLedger;

/// What goes back with the ledger.
#[derive(Clone)]
struct Guard {
    /// The timeline on which it was last re-fenced.
    timeline: u32,
    /// Why it takes nothing, if somebody has said so.
    halted: Option<String>,
    /// How many acts it has taken.
    inserted: i64,
    /// The start of the server that it was last looked at on.
    start: u32,
    /// Those that gateways have left in it.
    milestones: Vec<Milestone>,
    /// Outcomes of writes, since the ledger may let go of them.
    outcomes: BTreeMap<OperationId, Vec<Applied>>,
}

/// The ledger as it was at some time.
pub struct Copy {
    memory: MemoryLedger,
    guard: Guard,
}

impl Copy {
    /// What it holds.
    pub fn memory(&self) -> &MemoryLedger {
        &self.memory
    }

    /// Whether gateways had left this milestone in it.
    pub fn has(&self, milestone: Milestone) -> bool {
        self.guard.milestones.contains(&milestone)
    }
}

struct State {
    memory: Arc<MemoryLedger>,
    guard: Guard,
    /// The timeline that it is on: each promotion begins another one.
    timeline: u32,
    /// How often its server was started: what is on its way to an earlier start is lost.
    start: u32,
    asked: Asked,
    /// What [`Mutant::ReadsLag`] reads from, and of which act it is.
    lagging: Option<(i64, Arc<MemoryLedger>)>,
}

/// What was ever asked of the ledger, so that what became of it can be looked up in the end.
#[derive(Default, Clone)]
pub struct Asked {
    /// Writes and commits.
    pub operations: BTreeMap<OperationId, AskedWrite>,
    /// Locks.
    pub locks: BTreeSet<LockId>,
}

/// A write or a commit that was asked for.
#[derive(Clone)]
pub struct AskedWrite {
    /// The token presented.
    pub token: Token,
    /// The sequence number presented.
    pub sequence: Option<i64>,
    /// The idempotency key presented.
    pub key: Option<String>,
    /// What it is to do.
    pub effects: Vec<(ResourceName, Effect)>,
}

/// The server that all gateways share.
pub struct LedgerServer {
    state: Mutex<State>,
}

impl LedgerServer {
    /// An empty ledger.
    pub fn new(clock: Arc<dyn Clock>, nonce: Uuid) -> Self {
        let guard = Guard {
            timeline: 1,
            halted: None,
            inserted: 0,
            start: 1,
            milestones: Vec::new(),
            outcomes: BTreeMap::new(),
        };
        let memory = Arc::new(MemoryLedger::new(clock, nonce));
        let asked = Asked::default();
        let state = State { memory, guard, timeline: 1, start: 1, asked, lagging: None };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger itself: what it holds, without a network.
    pub fn memory(&self) -> Arc<MemoryLedger> {
        Arc::clone(&self.state().memory)
    }

    /// What was asked of it.
    pub fn asked(&self) -> Asked {
        self.state().asked.clone()
    }

    /// Notes what became of the writes that were asked of it: the next sweep may let go of that.
    fn remember(&self) {
        let mut state = self.state();
        let State { memory, guard, asked, .. } = &mut *state;
        for id in asked.operations.keys() {
            let rows = applied(memory, *id);
            let known = guard.outcomes.entry(*id).or_default();
            known.extend(rows.into_iter().filter(|row| !known.contains(row)).collect::<Vec<_>>());
        }
    }

    /// All that ever came of the writes that were asked of it, and was not lost since.
    pub fn outcomes(&self) -> BTreeMap<OperationId, Vec<Applied>> {
        self.remember();
        self.state().guard.outcomes.clone()
    }

    /// The operations that were asked of it and are buried now.
    pub fn buried(&self) -> Vec<OperationId> {
        let state = self.state();
        let is_buried = |id: &&OperationId| {
            let record = now(state.memory.operation(**id));
            matches!(record, Ok(Some(OperationRecord::Buried)))
        };
        state.asked.operations.keys().filter(is_buried).copied().collect()
    }

    /// It as it is now.
    pub fn copy(&self) -> Copy {
        let state = self.state();
        Copy { memory: state.memory.copy(), guard: state.guard.clone() }
    }

    /// A standby that has got no further than this takes over. What is on its way to the old server
    /// is lost.
    pub fn promote(&self, copy: Copy) {
        let mut state = self.state();
        state.memory = Arc::new(copy.memory);
        state.guard = copy.guard;
        state.timeline += 1;
        state.start += 1;
    }

    /// The server is started anew, and has lost nothing.
    pub fn restart(&self) {
        self.state().start += 1;
    }

    /// A copy of its files is put in its place, on the same timeline, and its log has passed by now whatever was seen of
    /// the one before.
    pub fn put_back(&self, copy: Copy) {
        let mut state = self.state();
        let inserted = state.guard.inserted + 1000;
        state.memory = Arc::new(copy.memory);
        state.guard = Guard { inserted, ..copy.guard };
        state.start += 1;
    }

    /// Whether nobody has looked yet at its last start.
    pub fn is_restarted(&self) -> bool {
        let state = self.state();
        state.guard.start != state.start
    }

    /// As it was some acts ago.
    fn lagging(&self) -> Arc<MemoryLedger> {
        let mut state = self.state();
        let inserted = state.guard.inserted;
        match &state.lagging {
            Some((at, copy)) if inserted - at < 20 => Arc::clone(copy),
            _ => {
                let copy = Arc::new(state.memory.copy());
                state.lagging = Some((inserted, Arc::clone(&copy)));
                copy
            }
        }
    }

    /// Whether it must be re-fenced.
    pub fn called_for(&self) -> Option<String> {
        if mutants::is(Mutant::NoGuard) {
            return None;
        }
        let state = self.state();
        let moved = (state.guard.timeline != state.timeline).then(|| "another timeline".to_owned());
        state.guard.halted.clone().or(moved)
    }

    /// Does something, if it still is the server that was meant, and may.
    fn act<T>(
        &self,
        start: u32,
        guarded: bool,
        deed: impl FnOnce(&MemoryLedger) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        if self.state().start != start {
            return Err(LedgerError::Unknown("that server is gone".into()));
        }
        if guarded && let Some(why) = self.called_for() {
            return Err(LedgerError::RefenceRequired(why));
        }
        if guarded && self.is_restarted() && !mutants::is(Mutant::StartUnasked) {
            return Err(LedgerError::Unavailable("nobody has looked at its start yet".into()));
        }
        let memory = self.memory();
        self.state().guard.inserted += 1;
        deed(&memory)
    }

    fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        let elsewhere = |seen: &Stand| seen.timeline != self.state().timeline.to_string();
        if refence.seen.as_ref().is_some_and(elsewhere) {
            return now(self.memory().epoch());
        }
        let called_for = self.called_for().is_some();
        let forced = refence.forced || called_for;
        let generation = now(self.memory().place(None))?.generation;
        let epoch = now(self.memory().refence(Refence { forced, ..refence }))?;
        if now(self.memory().place(None))?.generation > generation {
            let mut state = self.state();
            state.guard.timeline = state.timeline;
            state.guard.start = state.start;
            state.guard.halted = None;
        }
        Ok(epoch)
    }

    fn place(&self, asked: Option<Milestone>) -> Result<Place, LedgerError> {
        let called_for = self.called_for();
        let place = now(self.memory().place(None))?;
        let state = self.state();
        let position = state.guard.inserted;
        Ok(Place {
            system_id: 1,
            timeline: match mutants::is(Mutant::NoGuard) {
                true => String::new(),
                false => state.timeline.to_string(),
            },
            known_timeline: state.guard.timeline.to_string(),
            inserted: position,
            flushed: position,
            started_us: state.start.into(),
            restarted: state.guard.start != state.start,
            has_milestone: asked.map(|asked| state.guard.milestones.contains(&asked)),
            called_for,
            ..place
        })
    }

    /// Each act is at once on the disk of this server.
    fn leave_milestone(&self) -> Milestone {
        let mut state = self.state();
        let number = state.guard.milestones.last().map_or(0, |last| last.number) + 1;
        // Copies that go on have different starts.
        let id = Uuid::from_u64_pair(state.start.into(), number.unsigned_abs());
        let milestone = Milestone { number, id };
        state.guard.milestones.push(milestone);
        milestone
    }

    fn confirm_start(&self, start: &Start) -> Result<bool, LedgerError> {
        let place = self.place(start.milestone)?;
        let is_sure = match start.milestone {
            Some(_) => place.has_milestone == Some(true),
            None => place.highest == 0,
        } || mutants::is(Mutant::MilestoneUnasked);
        let is_the_one = (place.line(), &place.timeline, place.started_us)
            == (start.line, &start.timeline, start.started_us);
        if place.called_for.is_none() && is_the_one && is_sure {
            let mut state = self.state();
            state.guard.start = state.start;
            return Ok(true);
        }
        Ok(false)
    }

    fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError> {
        if now(self.memory().place(None))?.line() == line {
            self.state().guard.halted = Some(why.to_owned());
        }
        Ok(())
    }

    fn note_write(&self, id: OperationId, write: AskedWrite) {
        self.state().asked.operations.entry(id).or_insert(write);
    }
}

/// The rows of a write, if it took effect and has not been let go.
fn applied(memory: &MemoryLedger, id: OperationId) -> Vec<Applied> {
    match now(memory.operation(id)) {
        Ok(Some(OperationRecord::Applied(applied))) => vec![applied],
        Ok(Some(OperationRecord::Committed(rows))) => rows,
        _ => Vec::new(),
    }
}

/// The ledger in memory never waits.
fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("the ledger in memory never waits")
}
