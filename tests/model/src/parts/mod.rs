//! Uploads in parts: parts are uploaded under names of their own and become an object's all at once, while holders of
//! the lock come and go, a collector deletes what is nobody's, a reader reads, and the ledger goes back.
//!
//! An upload is an intent without bytes; each of its parts is a blob with an intent, an upload and an act that makes
//! it the upload's, with any time in between: a gateway that stands still sends that act as late as it likes, and
//! again. Whoever completes reads the parts first, and names all of them or the first alone; its statement comes at
//! any later time, and is sent again as a call of its own when its answer was lost. An abort, too, is asked for and
//! comes later. The collector is `tidy_blobs` and `blobs_deleted` of the port, step by step, over times in ticks as in
//! [`blobs`](crate::blobs); everything else is an act of fence-core.
//!
//! Left out: what becomes of a deletion on its way to the store (`blobs`), readers that the ledger does not know of
//! yet once the bytes come, and what a part has beside its bytes.

mod collect;
pub mod plans;
mod properties;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use fence_core::ErrorCode;
use stateright::{Model, Property};

use crate::check;
use crate::ledger::Ledger;
use crate::mutants::Mutant;

pub use properties::SITUATIONS;

/// The rollback horizon, in ticks.
pub const HORIZON: u8 = 2;

/// A part that a client uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlan {
    /// By which client.
    pub client: u8,
    /// Of which upload.
    pub upload: u8,
    /// Under which number.
    pub number: i32,
}

/// A client's wish to complete an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletePlan {
    /// Which client.
    pub client: u8,
    /// Which upload.
    pub upload: u8,
    /// Whether it names all parts, or the first alone.
    pub all: bool,
}

/// What clients want to do. The upload of an index is begun by the client of that index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// How many uploads there are.
    pub uploads: u8,
    /// Parts.
    pub parts: &'static [PartPlan],
    /// Completions.
    pub completes: &'static [CompletePlan],
    /// Who aborts the first upload, if anybody.
    pub abort: Option<u8>,
}

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
    /// Times the object is deleted.
    pub deletes: u8,
    /// Statements that are sent again after their answers were lost.
    pub repeats: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Parts {
    /// What clients want.
    pub plan: Plan,
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// A blob: of an upload, which has no bytes, or of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blob {
    /// An upload, by its index.
    Upload(u8),
    /// A part, by its index.
    Part(u8),
}

/// Garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Garbage {
    /// When it may be handed out.
    pub due: u8,
    /// Whether it was deleted once.
    pub deleted: bool,
}

/// The tables: those that the acts work on, and those that only the collector does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Fences, objects, intents, parts, replaced versions, keys.
    pub ledger: Ledger,
    /// Garbage.
    pub garbage: BTreeMap<Blob, Garbage>,
    /// When it was last re-fenced.
    pub refenced_at: Option<u8>,
}

/// A part, as its gateway sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Not begun.
    Unsent,
    /// Its intent is committed under this token, as the so many-th; its bytes are on the way.
    Begun(i64, u8),
    /// Its bytes are stored.
    Stored(i64, u8),
    /// The ledger has decided.
    Told(i64, u8, PartOutcome),
    /// It was refused, before its bytes were sent or as it was to be stored.
    Refused,
}

/// What the ledger has told of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartOutcome {
    /// It is the upload's.
    Stored,
    /// One of its number was begun later.
    Overtaken,
    /// Its upload is over.
    NoUpload,
    /// Its intent is gone.
    Expired,
}

/// A completion, as its gateway sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Completion {
    /// Not begun.
    Unsent,
    /// These are the parts that it names, under this token.
    Asked(i64, Vec<u8>),
    /// It made this version.
    Applied(i64, Vec<u8>, i64),
    /// The rule refused it.
    Refused(ErrorCode),
    /// The upload was over, or its parts were others.
    Over,
}

/// An abort, as its gateway sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Abort {
    /// Not asked for.
    Unsent,
    /// On its way under this token.
    Asked(i64),
    /// Done, refused, or too late.
    Over,
}

/// A reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Not reading.
    Idle,
    /// It has read a pointer to this upload; whether it found a part of it missing before.
    Pointed(u8, bool),
    /// The ledger knows that it reads these parts of the upload.
    Pinned(u8, Vec<u8>),
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
    /// The parts whose bytes the store has.
    pub store: BTreeSet<u8>,
    /// Uploads that were begun or refused.
    pub begun: BTreeSet<u8>,
    /// How many intents of parts were stored.
    pub order: u8,
    /// Parts.
    pub parts: Vec<Sent>,
    /// Completions.
    pub completions: Vec<Completion>,
    /// The abort.
    pub abort: Abort,
    /// The token of each client.
    pub tokens: [i64; 2],
    /// The one reader.
    pub reader: Reader,
    /// What may still happen.
    pub left: Bounds,
    /// Whether the ledger has ever gone back: the scrub, not the collector, knows what is left then.
    pub went_back: bool,
    /// What must never happen, and did.
    pub alarms: BTreeSet<Alarm>,
    /// What came of the last step.
    pub last: Option<Event>,
}

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// A completion or an abort took effect under a token that was not the one sealed last.
    Unfenced,
    /// A completion that was refused changed something.
    Changed,
    /// A completion that had taken effect was told as something else when it came again.
    NoReplay,
    /// A reader found a part missing where the pointer still was.
    Missing,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The bytes of a part came after its intent had been given up.
    LateBytes,
    /// A successor completed what its predecessor had begun.
    Inherited,
    /// A completion came again.
    Replayed,
    /// A completion named a part that another had taken the place of.
    Differed,
    /// Parts that were not named became garbage.
    Unnamed,
    /// A deletion found something.
    Deleted,
    /// An abort came after the lock had passed on, and changed nothing.
    LateAbort,
    /// A part under a token that was superseded since was refused.
    LatePart,
    /// The ledger went back to an upload that goes on, which was over before.
    CameBack,
    /// A part was void after a re-fence.
    Void,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client takes over the lock.
    Grant(u8),
    /// An upload is begun.
    Begin(u8),
    /// The intent of a part.
    BeginPart(u8),
    /// Its bytes end.
    Bytes(u8),
    /// It becomes a part, perhaps again.
    PutPart(u8),
    /// A client reads the parts that it will name.
    Ask(u8),
    /// Its completion reaches the ledger, perhaps again.
    Complete(u8),
    /// An abort is asked for.
    AskAbort,
    /// It reaches the ledger.
    Abort,
    /// The holder deletes the object.
    DeleteObject,
    /// The collector gives up an intent.
    GiveUp(Blob),
    /// It forgets a replaced version.
    Forget(u8),
    /// It is handed garbage, deletes it, and the ledger notes that.
    Collect(Blob),
    /// The reader reads the pointer.
    Point,
    /// It reads the list of parts and opens them.
    Open,
    /// The reader is done.
    Close,
    /// Time passes.
    Tick,
    /// The state of the ledger is kept.
    Copy,
    /// The ledger goes back to it.
    Rollback,
    /// The ledger is re-fenced.
    Refence,
}

impl Model for Parts {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let tables =
            Tables { ledger: Ledger::default(), garbage: BTreeMap::new(), refenced_at: None };
        vec![State {
            tables,
            timeline: 0,
            tick: 0,
            copy: None,
            store: BTreeSet::new(),
            begun: BTreeSet::new(),
            order: 0,
            parts: vec![Sent::Unsent; self.plan.parts.len()],
            completions: vec![Completion::Unsent; self.plan.completes.len()],
            abort: Abort::Unsent,
            tokens: [0; 2],
            reader: Reader::Idle,
            left: self.bounds,
            went_back: false,
            alarms: BTreeSet::new(),
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let sound = state.is_sound();
        if sound {
            self.clients(state, actions);
        }
        for (part, sent) in (0_u8..).zip(&state.parts) {
            match sent {
                Sent::Begun(..) => actions.push(Action::Bytes(part)),
                Sent::Stored(..) if sound => actions.push(Action::PutPart(part)),
                Sent::Told(..) if sound && state.left.repeats > 0 => {
                    actions.push(Action::PutPart(part));
                }
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
            Reader::Pinned(..) => actions.push(Action::Close),
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
        if !sound {
            actions.push(Action::Refence);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Grant(client) => self.grant(state, client)?,
            Action::Begin(upload) => self.begin(state, upload)?,
            Action::BeginPart(part) => self.begin_part(state, part)?,
            Action::Bytes(part) => Self::bytes(state, part)?,
            Action::PutPart(part) => self.put_part(state, part)?,
            Action::Ask(completion) => self.ask(state, completion),
            Action::Complete(completion) => self.complete(state, completion)?,
            Action::AskAbort => self.ask_abort(state)?,
            Action::Abort => self.abort(state)?,
            Action::DeleteObject => self.delete_object(state)?,
            Action::GiveUp(_) | Action::Forget(_) | Action::Collect(_) => {
                self.collect(state, action);
            }
            Action::Point | Action::Open | Action::Close => Self::read(state, action),
            Action::Tick | Action::Copy | Action::Rollback | Action::Refence => {
                Self::travel(state, action)?;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        check::properties(properties::invariants(), SITUATIONS, self.situations)
    }
}
