//! Blobs: large payloads are uploaded under a name of their own and made an object's by a commit, while a
//! collector deletes what nothing points at, readers read, and the ledger goes back to an older state.
//!
//! Three clients put to one object; each put is an intent, an upload and a commit, with any time in
//! between. An upload may end after its intent was given up, and a gateway that was handed garbage may
//! delete it as late as it likes. Intents are given up at any age, so no clock decides there. Time counts,
//! in ticks, only where DESIGN lets it: a ledger goes back by less than the rollback horizon, and garbage
//! is not handed out a second time while its upload may still end. Whoever restored a ledger may, within
//! the horizon, decide otherwise and go back to the one it had abandoned.
//!
//! The collector is `tidy_blobs` and `blobs_deleted` of the port, step by step; everything else is an act of
//! fence-core. Left out: how grants are taken (`locks`), what a re-fence does to the mint (`disasters`), the
//! parts of an upload (a part is visible to nobody), and pins that lapse because their gateway stands still or
//! the ledger went back: such a reader gets an error, not wrong bytes.

mod properties;
mod steps;

use std::collections::BTreeSet;

use fence_core::ports::SealVerdict;
use fence_core::{ErrorCode, acts};
use stateright::{Model, Property};

use crate::check;
use crate::ledger::{Ledger, lock_id, now, seal_item};
use crate::mutants::Mutant;

pub use properties::SITUATIONS;

/// The rollback horizon, in ticks.
pub const HORIZON: u8 = 2;

/// How often things may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Grants.
    pub grants: u8,
    /// Ticks of the clock.
    pub ticks: u8,
    /// Times the ledger goes back.
    pub rollbacks: u8,
    /// Reads that are begun.
    pub reads: u8,
    /// Intents that are given up.
    pub given_up: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Blobs {
    /// Whose put each blob is for, by client.
    pub puts: &'static [u8],
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// Some of the blobs.
pub type Set = BTreeSet<u8>;

/// The tables: those that the acts work on, and those that only the collector does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Fences, objects, intents, replaced versions.
    pub ledger: Ledger,
    /// Garbage that was never deleted.
    pub garbage: Set,
    /// Garbage that was deleted once.
    pub deleted_once: Set,
    /// When it was last re-fenced.
    pub refenced_at: Option<u8>,
}

/// A put, as its gateway sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Put {
    /// Not begun.
    Unsent,
    /// Its intent is committed under this token; its upload is on the way.
    Begun(i64),
    /// Its upload has ended.
    Uploaded(i64),
    /// It took effect.
    Applied,
    /// It was refused, before or after its upload.
    Refused(ErrorCode),
    /// Its intent was gone.
    Expired,
}

/// A reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Not reading.
    Idle,
    /// It has read a pointer to this blob; whether it found no such blob before.
    Pointed(u8, bool),
    /// It reads the bytes.
    Open(u8),
    /// The same, and the ledger knows.
    Pinned(u8),
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The ledger that is in charge.
    pub tables: Tables,
    /// The timeline of its server.
    pub timeline: u8,
    /// The time.
    pub tick: u8,
    /// An older state of the ledger, and when it was that.
    pub copy: Option<(Tables, u8)>,
    /// The ledger that was given up for an older one, and when.
    pub abandoned: Option<(Tables, u8)>,
    /// What the store has.
    pub store: Set,
    /// Puts, by blob.
    pub puts: Vec<Put>,
    /// The token of each client.
    pub tokens: [i64; 3],
    /// Garbage in the hands of gateways: whether it was deleted before, and whether it is by now.
    pub hands: BTreeSet<(u8, bool, bool)>,
    /// The one reader.
    pub reader: Reader,
    /// What may still happen.
    pub left: Bounds,
    /// Whether the ledger has ever gone back: the scrub, not the collector, knows what is left then.
    pub went_back: bool,
    /// Whether a reader found no blob where the pointer still was.
    pub alarm: bool,
    /// What came of the last step.
    pub last: Option<Event>,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// An upload ended after its intent had been given up.
    LateUpload,
    /// A deletion found something.
    Deleted,
    /// The second deletion found something.
    DeletedAgain,
    /// A reader found the pointer moved.
    Moved,
    /// The ledger went back to a pointer that had been replaced.
    PointerCameBack,
    /// The ledger that had been abandoned is in charge again.
    Otherwise,
    /// The collector was refused.
    Halted,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client takes over the lock.
    Grant(u8),
    /// The intent of a put.
    Begin(u8),
    /// Its upload ends.
    Upload(u8),
    /// Its commit.
    Commit(u8),
    /// The collector gives up an intent.
    GiveUp(u8),
    /// It forgets a replaced version.
    Forget(u8),
    /// It hands out garbage.
    HandOut(u8, bool),
    /// What was handed out is deleted from the store.
    Delete(u8, bool),
    /// The ledger notes that.
    Note(u8, bool),
    /// The reader reads the pointer.
    Point,
    /// It opens the blob.
    Open,
    /// The blob is pinned.
    Pin,
    /// The reader is done.
    Close,
    /// Time passes.
    Tick,
    /// The state of the ledger is kept.
    Copy,
    /// The ledger goes back to it.
    Rollback,
    /// It was the wrong one: back to the ledger before.
    Otherwise,
    /// The ledger is re-fenced.
    Refence,
}

impl Model for Blobs {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tables: Tables {
                ledger: Ledger::default(),
                garbage: Set::new(),
                deleted_once: Set::new(),
                refenced_at: None,
            },
            timeline: 0,
            tick: 0,
            copy: None,
            abandoned: None,
            store: Set::new(),
            puts: vec![Put::Unsent; self.puts.len()],
            tokens: [0; 3],
            hands: BTreeSet::new(),
            reader: Reader::Idle,
            left: self.bounds,
            went_back: false,
            alarm: false,
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let sound = state.tables.ledger.timeline == state.timeline;
        if sound && state.left.grants > 0 {
            // The clients are alike, so they come in order.
            actions.push(Action::Grant((self.bounds.grants - state.left.grants) % 3));
        }
        for (blob, put) in (0_u8..).zip(&state.puts) {
            let client = usize::from(self.puts[usize::from(blob)]);
            match put {
                Put::Unsent if sound && state.tokens[client] > 0 => {
                    actions.push(Action::Begin(blob))
                }
                Put::Begun(_) => actions.push(Action::Upload(blob)),
                Put::Uploaded(_) if sound => actions.push(Action::Commit(blob)),
                _ => {}
            }
        }
        self.collector(state, actions);
        match state.reader {
            Reader::Idle if state.left.reads > 0 && state.tables.current().is_some() => {
                actions.push(Action::Point);
            }
            Reader::Idle => {}
            Reader::Pointed(..) => actions.push(Action::Open),
            Reader::Open(_) => actions.extend([Action::Pin, Action::Close]),
            Reader::Pinned(_) => actions.push(Action::Close),
        }
        if state.left.ticks > 0 {
            actions.push(Action::Tick);
        }
        if state.left.rollbacks > 0 && sound && state.copy.is_none() {
            actions.push(Action::Copy);
        }
        if state.left.rollbacks > 0 && state.copy.is_some() {
            actions.push(Action::Rollback);
        }
        if state.abandoned.is_some() {
            actions.push(Action::Otherwise);
        }
        if !sound {
            actions.push(Action::Refence);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Grant(client) => {
                state.left.grants -= 1;
                let number = self.bounds.grants - state.left.grants;
                let base = state.tables.ledger.rows().guard.base;
                let rises = i64::from(number).max(state.tables.ledger.fence(0) - base + 1);
                state.tables.ledger.expire(0);
                let item = seal_item(lock_id(number), client, &[0], Some(rises));
                let verdict = state.tables.ledger.act(|rows| acts::seal(rows, &item, now(0)));
                let SealVerdict::Sealed(grant, _) = verdict else { return None };
                state.tokens[usize::from(client)] = grant.token.get();
            }
            Action::Begin(blob) => self.begin(state, blob),
            Action::Upload(blob) => {
                let Put::Begun(token) = state.puts[usize::from(blob)] else { return None };
                state.last = (!state.tables.has_intent(blob)).then_some(Event::LateUpload);
                state.puts[usize::from(blob)] = Put::Uploaded(token);
                state.store.insert(blob);
            }
            Action::Commit(blob) => {
                let Put::Uploaded(token) = state.puts[usize::from(blob)] else { return None };
                self.commit(state, blob, token);
            }
            Action::GiveUp(_)
            | Action::Forget(_)
            | Action::HandOut(..)
            | Action::Delete(..)
            | Action::Note(..) => self.collect(state, action),
            Action::Point | Action::Open | Action::Pin | Action::Close => Self::read(state, action),
            Action::Tick
            | Action::Copy
            | Action::Rollback
            | Action::Otherwise
            | Action::Refence => Self::travel(state, action)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        check::properties(properties::invariants(), SITUATIONS, self.situations)
    }
}
