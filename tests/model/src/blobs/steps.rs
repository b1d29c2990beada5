//! Puts, the collector, readers and rollbacks, step by step.

use fence_core::ports::{
    Attempt, BlobId, By, Effect, Payload, REFENCE_JUMP, Refence, UploadItem, UploadVerdict,
    WriteItem, WriteVerdict,
};
use fence_core::{Token, acts};
use jiff::SignedDuration;
use uuid::Uuid;

use super::{Action, Blobs, Event, HORIZON, Put, Reader, State, Tables};
use crate::ledger::{self, nonce, now, operation_id, resource};
use crate::mutants::Mutant;

impl State {
    /// Whether a replaced version with this blob is younger than the horizon. An older one may come back
    /// with a rollback although its blob is gone: it is past what is kept, and is forgotten next.
    pub(super) fn keeps(&self, blob: u8) -> bool {
        let horizon = SignedDuration::from_hours(i64::from(HORIZON));
        let young = |row: &&acts::ReplacedRow| row.at + horizon > now(self.tick).wall;
        let rows = self.tables.ledger.rows().replaced.iter().filter(young);
        rows.into_iter().any(|row| row.object.payload.blob() == Some(id(blob)))
    }
}

pub(super) fn id(blob: u8) -> BlobId {
    BlobId(Uuid::from_u128(u128::from(blob)))
}

impl Tables {
    pub(super) fn has_intent(&self, blob: u8) -> bool {
        self.ledger.rows().intents.contains_key(&id(blob))
    }

    /// The blob that the object is.
    pub(super) fn current(&self) -> Option<u8> {
        let object = self.ledger.rows().objects.values().next()?;
        u8::try_from(object.object.payload.blob()?.0.as_u128()).ok()
    }

    pub(super) fn is_replaced(&self, blob: u8) -> bool {
        let replaced = &self.ledger.rows().replaced;
        replaced.iter().any(|row| row.object.payload.blob() == Some(id(blob)))
    }

    /// Whether anything here tells of a blob.
    pub(super) fn knows(&self, blob: u8) -> bool {
        self.has_intent(blob)
            || self.current() == Some(blob)
            || self.is_replaced(blob)
            || self.garbage.contains(&blob)
            || self.deleted_once.contains(&blob)
    }
}

impl Blobs {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn blobs(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.puts.len()).unwrap_or(u8::MAX)
    }

    pub(super) fn begin(&self, state: &mut State, blob: u8) {
        let Some(token) = Token::new(state.tokens[usize::from(self.puts[usize::from(blob)])])
        else {
            return;
        };
        let (resource, lock, key) = (resource(0), None, None);
        let item =
            UploadItem { blob: Some(id(blob)), resource, token, lock, key, by: By::default() };
        let verdict = state.tables.ledger.act(|rows| acts::begin_upload(rows, &item, now(0)));
        state.puts[usize::from(blob)] = match verdict {
            UploadVerdict::Refused(refusal) => Put::Refused(refusal.code()),
            UploadVerdict::Begun | UploadVerdict::KnownKey => Put::Begun(token.get()),
        };
    }

    pub(super) fn commit(&self, state: &mut State, blob: u8, token: i64) {
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
                about: None,
                parts: None,
            },
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by: By::default(),
        };
        let at = now(state.tick);
        let verdict = state.tables.ledger.act(|rows| {
            if self.is(Mutant::IntentNotConsumed) {
                let row = acts::IntentRow { begun_at: at.wall, handle: None, upload: None };
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
    pub(super) fn may_forget(&self, state: &State, blob: u8) -> bool {
        let kept = |at: jiff::Timestamp| {
            at + SignedDuration::from_hours(i64::from(HORIZON)) <= now(state.tick).wall
        };
        let pinned = state.reader == Reader::Pinned(blob) && !self.is(Mutant::PinsIgnored);
        let of_it = |row: &&acts::ReplacedRow| row.object.payload.blob() == Some(id(blob));
        let mut rows = state.tables.ledger.rows().replaced.iter().filter(of_it);
        !pinned && rows.any(|row| self.is(Mutant::NoHorizon) || kept(row.at))
    }

    /// Whether garbage may be handed out: not for the horizon after a re-fence.
    pub(super) fn may_hand_out(&self, state: &State) -> bool {
        let paused = state.tables.refenced_at.is_some_and(|at| at + HORIZON > state.tick);
        !paused || self.is(Mutant::NoPause) || self.is(Mutant::CollectorUnguarded)
    }

    pub(super) fn collector(&self, state: &State, actions: &mut Vec<Action>) {
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

    pub(super) fn collect(&self, state: &mut State, action: Action) {
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

    pub(super) fn read(state: &mut State, action: Action) {
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

    pub(super) fn travel(state: &mut State, action: Action) -> Option<()> {
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
                state.abandoned = state.abandoned.take().filter(recent);
            }
        }
        Some(())
    }
}
