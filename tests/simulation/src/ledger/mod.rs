//! The simulated ledger: a server that all gateways share, and which may go back to an older copy of
//! itself.

mod port;
mod s3;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fence_core::memory::MemoryLedger;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    Clock, Effect, Epoch, Ledger as _, LedgerError, Line, OperationRecord, Place, Refence, Stand,
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
}

struct State {
    memory: Arc<MemoryLedger>,
    guard: Guard,
    /// The timeline that it is on: each promotion begins another one.
    timeline: u32,
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
        let guard = Guard { timeline: 1, halted: None, inserted: 0 };
        let memory = Arc::new(MemoryLedger::new(clock, nonce));
        let asked = Asked::default();
        Self { state: Mutex::new(State { memory, guard, timeline: 1, asked, lagging: None }) }
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
        timeline: u32,
        guarded: bool,
        deed: impl FnOnce(&MemoryLedger) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        if self.state().timeline != timeline {
            return Err(LedgerError::Unknown("that server is gone".into()));
        }
        if guarded && let Some(why) = self.called_for() {
            return Err(LedgerError::RefenceRequired(why));
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
        let generation = now(self.memory().place())?.generation;
        let epoch = now(self.memory().refence(Refence { forced, ..refence }))?;
        if now(self.memory().place())?.generation > generation {
            let mut state = self.state();
            state.guard.timeline = state.timeline;
            state.guard.halted = None;
        }
        Ok(epoch)
    }

    fn place(&self) -> Result<Place, LedgerError> {
        let called_for = self.called_for();
        let place = now(self.memory().place())?;
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
            called_for,
            ..place
        })
    }

    fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError> {
        if now(self.memory().place())?.line() == line {
            self.state().guard.halted = Some(why.to_owned());
        }
        Ok(())
    }

    fn note_write(&self, id: OperationId, write: AskedWrite) {
        self.state().asked.operations.entry(id).or_insert(write);
    }
}

/// The ledger in memory never waits.
fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("the ledger in memory never waits")
}
