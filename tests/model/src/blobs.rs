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

use std::collections::BTreeSet;

use fence_core::acts;
use fence_core::ports::{
    Attempt, BlobId, Effect, Payload, REFENCE_JUMP, Refence, SealVerdict, UploadItem,
    UploadVerdict, WriteItem, WriteVerdict,
};
use fence_core::{ErrorCode, Token};
use jiff::SignedDuration;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::ledger::{self, Ledger, lock_id, nonce, now, operation_id, resource, seal_item};
use crate::mutants::Mutant;

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

impl State {
    /// Whether a replaced version with this blob is younger than the horizon. An older one may come back
    /// with a rollback although its blob is gone: it is past what is kept, and is forgotten next.
    fn keeps(&self, blob: u8) -> bool {
        let horizon = SignedDuration::from_hours(i64::from(HORIZON));
        let young = |row: &&acts::ReplacedRow| row.at + horizon > now(self.tick).wall;
        let rows = self.tables.ledger.rows().replaced.iter().filter(young);
        rows.into_iter().any(|row| row.object.payload.blob() == Some(id(blob)))
    }
}

fn id(blob: u8) -> BlobId {
    BlobId(Uuid::from_u128(u128::from(blob)))
}

impl Tables {
    fn has_intent(&self, blob: u8) -> bool {
        self.ledger.rows().intents.contains_key(&id(blob))
    }

    /// The blob that the object is.
    fn current(&self) -> Option<u8> {
        let object = self.ledger.rows().objects.values().next()?;
        u8::try_from(object.object.payload.blob()?.0.as_u128()).ok()
    }

    fn is_replaced(&self, blob: u8) -> bool {
        let replaced = &self.ledger.rows().replaced;
        replaced.iter().any(|row| row.object.payload.blob() == Some(id(blob)))
    }

    /// Whether anything here tells of a blob.
    fn knows(&self, blob: u8) -> bool {
        self.has_intent(blob)
            || self.current() == Some(blob)
            || self.is_replaced(blob)
            || self.garbage.contains(&blob)
            || self.deleted_once.contains(&blob)
    }
}

impl Blobs {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn blobs(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.puts.len()).unwrap_or(u8::MAX)
    }

    fn begin(&self, state: &mut State, blob: u8) {
        let Some(token) = Token::new(state.tokens[usize::from(self.puts[usize::from(blob)])])
        else {
            return;
        };
        let (resource, lock, key) = (resource(0), None, None);
        let item = UploadItem { blob: Some(id(blob)), resource, token, lock, key };
        let verdict = state.tables.ledger.act(|rows| acts::begin_upload(rows, &item, now(0)));
        state.puts[usize::from(blob)] = match verdict {
            UploadVerdict::Refused(refusal) => Put::Refused(refusal.code()),
            UploadVerdict::Begun | UploadVerdict::KnownKey => Put::Begun(token.get()),
        };
    }

    fn commit(&self, state: &mut State, blob: u8, token: i64) {
        let Some(presented) = Token::new(token) else { return };
        let item = WriteItem {
            operation: operation_id(blob),
            resource: resource(0),
            token: presented,
            lock: None,
            sequence: None,
            idempotency: None,
            object_condition: None,
            resource_version: None,
            effect: Effect::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::Blob(id(blob)),
                size: 1,
                sha256: [0; 32],
            },
            attempt: Attempt::First,
        };
        let at = now(state.tick);
        let verdict = state.tables.ledger.act(|rows| {
            if self.is(Mutant::IntentNotConsumed) {
                let row = acts::IntentRow { begun_at: at.wall, handle: None };
                rows.intents.insert(id(blob), row);
            }
            let verdict = acts::commit(rows, &item, at);
            // What became of a write is a matter of `locks`.
            rows.operations.clear();
            verdict
        });
        state.puts[usize::from(blob)] = match verdict {
            WriteVerdict::Applied { .. } => Put::Applied,
            WriteVerdict::Refused(refusal) => Put::Refused(refusal.code()),
            _ => Put::Expired,
        };
    }

    /// Whether a replaced version with this blob has been kept long enough.
    fn may_forget(&self, state: &State, blob: u8) -> bool {
        let kept = |at: jiff::Timestamp| {
            at + SignedDuration::from_hours(i64::from(HORIZON)) <= now(state.tick).wall
        };
        let pinned = state.reader == Reader::Pinned(blob) && !self.is(Mutant::PinsIgnored);
        let of_it = |row: &&acts::ReplacedRow| row.object.payload.blob() == Some(id(blob));
        let mut rows = state.tables.ledger.rows().replaced.iter().filter(of_it);
        !pinned && rows.any(|row| self.is(Mutant::NoHorizon) || kept(row.at))
    }

    /// Whether garbage may be handed out: not for the horizon after a re-fence.
    fn may_hand_out(&self, state: &State) -> bool {
        let paused = state.tables.refenced_at.is_some_and(|at| at + HORIZON > state.tick);
        !paused || self.is(Mutant::NoPause) || self.is(Mutant::CollectorUnguarded)
    }

    fn collector(&self, state: &State, actions: &mut Vec<Action>) {
        let tables = &state.tables;
        let sound = tables.ledger.timeline == state.timeline;
        if sound || self.is(Mutant::CollectorUnguarded) {
            for blob in self.blobs() {
                if tables.has_intent(blob) && state.left.given_up > 0 {
                    actions.push(Action::GiveUp(blob));
                }
                if self.may_forget(state, blob) {
                    actions.push(Action::Forget(blob));
                }
                if !self.may_hand_out(state) {
                    continue;
                }
                // A request to the store is not on its way for longer than `redelete`.
                let under_way = matches!(state.puts[usize::from(blob)], Put::Begun(_));
                let is_in_hand = state.hands.iter().any(|(other, ..)| *other == blob);
                let naive = self.is(Mutant::NaiveCollector)
                    && state.store.contains(&blob)
                    && tables.current() != Some(blob);
                if (tables.garbage.contains(&blob) || naive) && !is_in_hand {
                    actions.push(Action::HandOut(blob, false));
                }
                if tables.deleted_once.contains(&blob) && !is_in_hand && !under_way {
                    actions.push(Action::HandOut(blob, true));
                }
            }
        }
        for (blob, again, done) in &state.hands {
            actions.push(match done {
                false => Action::Delete(*blob, *again),
                true => Action::Note(*blob, *again),
            });
        }
    }

    fn collect(&self, state: &mut State, action: Action) {
        match action {
            Action::GiveUp(blob) => {
                state.left.given_up -= 1;
                state.tables.ledger.act(|rows| rows.intents.remove(&id(blob)));
                state.tables.garbage.insert(blob);
            }
            Action::Forget(blob) => {
                let of_it = |row: &acts::ReplacedRow| row.object.payload.blob() == Some(id(blob));
                state.tables.ledger.act(|rows| rows.replaced.retain(|row| !of_it(row)));
                state.tables.garbage.insert(blob);
            }
            Action::HandOut(blob, again) => {
                state.hands.insert((blob, again, false));
            }
            Action::Delete(blob, again) => {
                state.hands.remove(&(blob, again, false));
                state.hands.insert((blob, again, true));
                if state.store.remove(&blob) {
                    state.last = Some(if again { Event::DeletedAgain } else { Event::Deleted });
                }
            }
            Action::Note(blob, again) => {
                state.hands.remove(&(blob, again, true));
                if state.tables.ledger.timeline != state.timeline {
                    state.last = Some(Event::Halted);
                } else if again {
                    state.tables.deleted_once.remove(&blob);
                } else if state.tables.garbage.remove(&blob) && !self.is(Mutant::DeletedOnce) {
                    state.tables.deleted_once.insert(blob);
                }
            }
            _ => {}
        }
    }

    fn read(state: &mut State, action: Action) {
        let current = state.tables.current();
        state.reader = match (action, state.reader) {
            (Action::Point, Reader::Idle) => {
                state.left.reads -= 1;
                current.map_or(Reader::Idle, |blob| Reader::Pointed(blob, false))
            }
            (Action::Open, Reader::Pointed(blob, _)) if state.store.contains(&blob) => {
                Reader::Open(blob)
            }
            // Not there: the pointer is read again.
            (Action::Open, Reader::Pointed(blob, missing)) => match current {
                Some(still) if still == blob => {
                    state.alarm |= missing;
                    Reader::Pointed(blob, true)
                }
                Some(other) => {
                    state.last = Some(Event::Moved);
                    Reader::Pointed(other, false)
                }
                None => Reader::Idle,
            },
            // Within the grace, during which what was replaced stays.
            (Action::Pin, Reader::Open(blob))
                if current == Some(blob) || state.tables.is_replaced(blob) =>
            {
                Reader::Pinned(blob)
            }
            _ => Reader::Idle,
        };
    }

    fn travel(state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Copy => state.copy = Some((state.tables.clone(), state.tick)),
            Action::Rollback => {
                let (tables, _) = state.copy.take()?;
                let before = std::mem::replace(&mut state.tables, tables);
                let back = state.tables.current();
                let replaced = back.is_some_and(|blob| before.is_replaced(blob));
                state.last = replaced.then_some(Event::PointerCameBack);
                state.abandoned = Some((before, state.tick));
                state.left.rollbacks -= 1;
                state.timeline += 1;
                state.went_back = true;
            }
            Action::Otherwise => {
                let (tables, _) = state.abandoned.take()?;
                state.tables = tables;
                state.timeline += 1;
                state.last = Some(Event::Otherwise);
            }
            Action::Refence => {
                let refence = Refence {
                    nonce: nonce(state.timeline),
                    number: 0,
                    known_base: i64::from(state.timeline) * REFENCE_JUMP,
                    known_generation: i64::from(state.timeline),
                    why: String::new(),
                    forced: true,
                };
                let highest = state.tables.ledger.highest();
                state.tables.ledger.act(|rows| {
                    acts::refence(&mut rows.guard, highest, &refence);
                    rows.guard.open = true;
                });
                state.tables.ledger.timeline = state.timeline;
                state.tables.refenced_at = Some(state.tick);
            }
            _ => {
                state.tick += 1;
                state.left.ticks -= 1;
                // What is too old to go back to does not matter any more.
                let recent = |(_, at): &(Tables, u8)| state.tick - at < HORIZON;
                state.copy = state.copy.take().filter(recent);
                state.abandoned = state.abandoned.take().filter(recent);
            }
        }
        Some(())
    }
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
        let mut properties = vec![
            Property::always("I2 a fence never falls", |_, state: &State| {
                !state.tables.ledger.fell
            }),
            Property::always("I9 no pointer dangles", |_, state: &State| {
                state.tables.current().is_none_or(|blob| state.store.contains(&blob))
            }),
            Property::always(
                "I9 no version that is kept dangles",
                |model: &Self, state: &State| {
                    model.blobs().all(|blob| state.store.contains(&blob) || !state.keeps(blob))
                },
            ),
            Property::always("I9 no reader finds a blob missing", |_, state: &State| !state.alarm),
            Property::always("what is pinned stays", |_, state: &State| match state.reader {
                Reader::Pinned(blob) => state.store.contains(&blob) || state.went_back,
                _ => true,
            }),
            Property::always("nothing in the store is forgotten", |model: &Self, state: &State| {
                let known = |blob: u8| state.tables.knows(blob) || state.went_back;
                model.blobs().all(|blob| !state.store.contains(&blob) || known(blob))
            }),
        ];
        let wanted = SITUATIONS.iter().filter(|(name, _)| self.situations.contains(name));
        properties.extend(wanted.map(|(name, reached)| Property::sometimes(name, *reached)));
        properties
    }
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[(&str, fn(&Blobs, &State) -> bool)] = &[
    ("an upload ended after its intent was given up", |_, state| {
        state.last == Some(Event::LateUpload)
    }),
    ("a commit came too late for its intent", |_, state| state.puts.contains(&Put::Expired)),
    ("a stale put was refused after its upload", |_, state| {
        let stale = Put::Refused(ErrorCode::FenceTokenStale);
        (0..).zip(&state.puts).any(|(blob, put)| *put == stale && state.tables.has_intent(blob))
    }),
    ("a put was void after a re-fence", |_, state| {
        state.puts.contains(&Put::Refused(ErrorCode::FenceTokenVoid))
    }),
    ("a late upload was deleted the second time", |_, state| {
        state.last == Some(Event::DeletedAgain)
    }),
    ("a replaced blob was deleted", |_, state| {
        state.last == Some(Event::Deleted) && state.tables.current().is_some()
    }),
    ("a reader followed a pointer that had moved", |_, state| state.last == Some(Event::Moved)),
    ("a pinned blob outlived the horizon", |_, state| {
        let old = state.tick > HORIZON;
        old && matches!(state.reader, Reader::Pinned(blob) if state.tables.is_replaced(blob))
    }),
    ("a rollback brought a replaced pointer back", |_, state| {
        state.last == Some(Event::PointerCameBack)
    }),
    ("an abandoned ledger came back", |_, state| state.last == Some(Event::Otherwise)),
    ("a blob was deleted after a rollback", |_, state| {
        state.went_back && state.last == Some(Event::Deleted)
    }),
    ("a collector was halted", |_, state| state.last == Some(Event::Halted)),
];
