//! The collector, the reader, and the ways of a ledger through time.

use fence_core::acts;
use fence_core::ports::{REFENCE_JUMP, Refence};
use jiff::SignedDuration;

use super::steps::id;
use super::{Action, Alarm, Blob, Event, Garbage, HORIZON, Parts, Reader, Sent, State, Tables};
use crate::ledger::{nonce, now};
use crate::mutants::Mutant;

impl Tables {
    /// The rows of replaced versions that point at an upload.
    fn replaced(&self, upload: u8) -> impl Iterator<Item = &acts::ReplacedRow> {
        let of_it = move |row: &&acts::ReplacedRow| {
            row.object.payload.blob() == Some(id(Blob::Upload(upload)))
        };
        self.ledger.rows().replaced.iter().filter(of_it)
    }

    /// Whether a replaced version is this upload.
    pub(super) fn is_replaced(&self, upload: u8) -> bool {
        self.replaced(upload).next().is_some()
    }

    /// Whether a replaced version is this upload, and is younger than the horizon.
    pub(super) fn keeps(&self, upload: u8, tick: u8) -> bool {
        let horizon = SignedDuration::from_hours(i64::from(HORIZON));
        self.replaced(upload).any(|row| row.at + horizon > now(tick).wall)
    }
}

impl Parts {
    /// A blob is nobody's any more by what an act did: it may have been somebody's in an older copy of the ledger.
    pub(super) fn discard(&self, state: &mut State, blob: Blob) {
        let at_once = self.is(Mutant::PartsGoAtOnce);
        let due = state.tick + if at_once { 0 } else { HORIZON };
        state.tables.garbage.insert(blob, Garbage { due, deleted: false });
    }

    /// What the collector may do.
    pub(super) fn collector(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.is_sound() {
            return;
        }
        let tables = &state.tables;
        if state.left.given_up > 0 {
            let uploads = (0..self.plan.uploads).map(Blob::Upload);
            let parts = (0..).zip(&state.parts).map(|(part, _)| Blob::Part(part));
            let there = uploads.chain(parts).filter(|blob| tables.has_intent(*blob));
            actions.extend(there.map(Action::GiveUp));
        }
        let pinned = |upload: u8| {
            let reads = matches!(state.reader, Reader::Pinned(read, _) if read == upload);
            reads && !self.is(Mutant::PinsIgnored)
        };
        for upload in 0..self.plan.uploads {
            let keeps = tables.keeps(upload, state.tick);
            if tables.is_replaced(upload) && !keeps && !pinned(upload) {
                actions.push(Action::Forget(upload));
            }
        }
        let paused = tables.refenced_at.is_some_and(|at| at + HORIZON > state.tick);
        for (blob, garbage) in &tables.garbage {
            // A request to the store is not on its way for longer than `redelete`.
            let under_way = match blob {
                Blob::Upload(_) => false,
                Blob::Part(part) => {
                    let sent = state.parts[usize::from(*part)];
                    garbage.deleted && matches!(sent, Sent::Begun(..))
                }
            };
            let is_pinned = matches!(blob, Blob::Upload(upload) if pinned(*upload));
            if garbage.due <= state.tick && !paused && !under_way && !is_pinned {
                actions.push(Action::Collect(*blob));
            }
        }
    }

    pub(super) fn collect(&self, state: &mut State, action: Action) {
        let tick = state.tick;
        match action {
            Action::GiveUp(blob) => {
                state.left.given_up -= 1;
                state.tables.ledger.act(|rows| rows.intents.remove(&id(blob)));
                match blob {
                    Blob::Upload(_) => self.discard(state, blob),
                    Blob::Part(_) => {
                        let garbage = Garbage { due: tick, deleted: false };
                        state.tables.garbage.insert(blob, garbage);
                    }
                }
            }
            Action::Forget(upload) => {
                let of_it = |row: &acts::ReplacedRow| {
                    row.object.payload.blob() == Some(id(Blob::Upload(upload)))
                };
                state.tables.ledger.act(|rows| rows.replaced.retain(|row| !of_it(row)));
                let garbage = Garbage { due: tick + HORIZON, deleted: false };
                state.tables.garbage.insert(Blob::Upload(upload), garbage);
            }
            Action::Collect(blob) => self.hand_out(state, blob),
            _ => {}
        }
    }

    /// Garbage is handed out, deleted from the store, and noted; with an upload, its parts become garbage.
    fn hand_out(&self, state: &mut State, blob: Blob) {
        match blob {
            Blob::Part(part) => {
                state.last = state.store.remove(&part).then_some(Event::Deleted);
            }
            Blob::Upload(upload) if !self.is(Mutant::PartsStay) => {
                let parts = state.tables.parts_of(upload);
                state.tables.ledger.act(|rows| {
                    rows.parts.retain(|(of, _), _| *of != id(Blob::Upload(upload)));
                });
                // The upload has been kept long enough.
                let garbage = Garbage { due: state.tick, deleted: false };
                for (_, part) in parts {
                    state.tables.garbage.insert(Blob::Part(part), garbage);
                }
            }
            Blob::Upload(_) => {}
        }
        match state.tables.garbage.get_mut(&blob) {
            // An upload has no bytes that could come late.
            Some(garbage) if !garbage.deleted && matches!(blob, Blob::Part(_)) => {
                garbage.deleted = true;
            }
            _ => drop(state.tables.garbage.remove(&blob)),
        }
    }

    pub(super) fn read(state: &mut State, action: Action) {
        let current = state.tables.current();
        state.reader = match (action, std::mem::replace(&mut state.reader, Reader::Idle)) {
            (Action::Point, Reader::Idle) => {
                state.left.reads -= 1;
                current.map_or(Reader::Idle, |upload| Reader::Pointed(upload, false))
            }
            (Action::Open, Reader::Pointed(upload, missed)) => {
                let parts = state.tables.parts_of(upload);
                let parts: Vec<u8> = parts.into_iter().map(|(_, part)| part).collect();
                let whole = state.tables.ledger.rows().objects.values().next();
                let wanted = whole.and_then(|row| row.object.parts).unwrap_or_default();
                let all = parts.iter().all(|part| state.store.contains(part));
                let there = current == Some(upload) || state.tables.is_replaced(upload);
                match current {
                    _ if there && all && !parts.is_empty() => Reader::Pinned(upload, parts),
                    // Not there, or not all of it: the pointer is read again.
                    Some(still) if still == upload => {
                        if missed || parts.len() != usize::try_from(wanted).unwrap_or(0) {
                            state.alarms.insert(Alarm::Missing);
                        }
                        Reader::Pointed(upload, true)
                    }
                    Some(other) => Reader::Pointed(other, false),
                    None => Reader::Idle,
                }
            }
            _ => Reader::Idle,
        };
    }

    pub(super) fn travel(state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Copy => state.copy = Some((state.tables.clone(), state.tick)),
            Action::Rollback => {
                let (tables, _) = state.copy.take()?;
                let before = std::mem::replace(&mut state.tables, tables);
                let over = |upload: &u8| {
                    let blob = Blob::Upload(*upload);
                    state.tables.has_intent(blob) && !before.has_intent(blob)
                };
                let back = state.begun.iter().any(over);
                state.last = back.then_some(Event::CameBack);
                state.left.rollbacks -= 1;
                state.timeline += 1;
                state.went_back = true;
            }
            Action::Refence => {
                let refence = Refence {
                    nonce: nonce(state.timeline),
                    number: 0,
                    known_base: i64::from(state.timeline) * REFENCE_JUMP,
                    known_generation: i64::from(state.timeline),
                    why: String::new(),
                    forced: true,
                    seen: None,
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
            }
        }
        Some(())
    }
}
