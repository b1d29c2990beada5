//! What must hold of uploads in parts, and what is worth reaching.

use fence_core::ErrorCode;
use stateright::Property;

use super::{Alarm, Blob, Completion, Event, PartOutcome, Parts, Reader, Sent, State};
use crate::check::Situation;

impl State {
    /// The uploads that the object is, and that replaced versions are which are kept.
    fn pointed_at(&self, model: &Parts) -> impl Iterator<Item = u8> {
        let kept = |upload: &u8| {
            self.tables.current() == Some(*upload) || self.tables.keeps(*upload, self.tick)
        };
        (0..model.plan.uploads).filter(kept)
    }

    /// Whether the bytes of an upload's parts are all there.
    fn has_bytes(&self, upload: u8) -> bool {
        self.tables.parts_of(upload).iter().all(|(_, part)| self.store.contains(part))
    }

    fn is_garbage(&self, part: u8) -> bool {
        self.tables.garbage.contains_key(&Blob::Part(part))
    }

    /// Whether anything tells of a part that leads to its end.
    fn knows(&self, model: &Parts, part: u8) -> bool {
        let upload_is_known = |upload: &u8| {
            let blob = Blob::Upload(*upload);
            self.tables.has_intent(blob)
                || self.tables.current() == Some(*upload)
                || self.tables.is_replaced(*upload)
                || self.tables.garbage.contains_key(&blob)
        };
        let is_part_of =
            |upload: &u8| self.tables.parts_of(*upload).iter().any(|(_, stored)| *stored == part);
        self.is_garbage(part)
            || self.tables.has_intent(Blob::Part(part))
            || (0..model.plan.uploads).filter(upload_is_known).any(|upload| is_part_of(&upload))
    }

    /// Of the parts that were stored under one number, that of an upload that goes on was begun last.
    fn the_last_counts(&self, model: &Parts) -> bool {
        (0..).zip(&self.parts).all(|(part, sent)| {
            let Sent::Told(_, order, PartOutcome::Stored) = sent else { return true };
            let Some(plan) = model.plan.parts.get(part) else { return true };
            let there = self.tables.parts_of(plan.upload);
            let there = there.iter().find(|(number, _)| *number == plan.number);
            let Some((_, stored)) = there else { return true };
            let begun = match self.parts[usize::from(*stored)] {
                Sent::Stored(_, begun) | Sent::Told(_, begun, _) => begun,
                _ => return true,
            };
            begun >= *order || self.went_back
        })
    }

    /// The parts of the object are those that were named.
    fn has_what_was_named(&self) -> bool {
        let Some(upload) = self.tables.current() else { return true };
        let rows = self.tables.ledger.rows();
        let version = rows.objects.values().next().map(|row| row.object.tag.version);
        let parts: Vec<u8> =
            self.tables.parts_of(upload).into_iter().map(|(_, part)| part).collect();
        self.completions.iter().all(|completion| match completion {
            Completion::Applied(_, named, at) if Some(*at) == version && !self.went_back => {
                *named == parts
            }
            _ => true,
        })
    }
}

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Parts>> {
    vec![
        Property::always("I6 parts, completions and aborts are fenced", |_, state: &State| {
            !state.alarms.contains(&Alarm::Unfenced)
        }),
        Property::always("a refused completion changes nothing", |_, state: &State| {
            !state.alarms.contains(&Alarm::Changed)
        }),
        Property::always("I7 a repeated completion is a replay", |_, state: &State| {
            !state.alarms.contains(&Alarm::NoReplay)
        }),
        Property::always("I9 no part of an object is missing", |model: &Parts, state: &State| {
            state.pointed_at(model).all(|upload| state.has_bytes(upload))
        }),
        Property::always("I9 no reader finds a part missing", |_, state: &State| {
            !state.alarms.contains(&Alarm::Missing)
        }),
        Property::always("what is pinned stays", |_, state: &State| match &state.reader {
            Reader::Pinned(_, parts) => {
                state.went_back || parts.iter().all(|part| state.store.contains(part))
            }
            _ => true,
        }),
        Property::always("I19 no part of an object is garbage", |model: &Parts, state: &State| {
            let parts = |upload| state.tables.parts_of(upload);
            let mut parts = state.pointed_at(model).flat_map(parts);
            !parts.any(|(_, part)| state.is_garbage(part))
        }),
        Property::always("I19 an object has the parts that were named", |_, state: &State| {
            state.has_what_was_named()
        }),
        Property::always("I19 no part is forgotten", |model: &Parts, state: &State| {
            state.went_back || state.store.iter().all(|part| state.knows(model, *part))
        }),
        Property::always("the part that was begun last counts", |model: &Parts, state: &State| {
            state.the_last_counts(model)
        }),
    ]
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Parts>] = &[
    ("a successor completed what its predecessor had begun", |_, state| {
        state.last == Some(Event::Inherited)
    }),
    ("a stale completion was refused", |_, state| {
        state.completions.contains(&Completion::Refused(ErrorCode::FenceTokenStale))
    }),
    ("a completion came again", |_, state| state.last == Some(Event::Replayed)),
    ("a completion named a part that had gone", |_, state| state.last == Some(Event::Differed)),
    ("a completion came too late for its upload", |_, state| {
        state.completions.contains(&Completion::Over) && state.last.is_none()
    }),
    ("a part that was not named became garbage", |_, state| state.last == Some(Event::Unnamed)),
    ("a late part changed nothing", |_, state| state.last == Some(Event::LatePart)),
    ("a late abort changed nothing", |_, state| state.last == Some(Event::LateAbort)),
    ("a part came after its upload had ended", |_, state| {
        state.parts.iter().any(|sent| matches!(sent, Sent::Told(_, _, PartOutcome::NoUpload)))
    }),
    ("a part came after one that was begun later", |_, state| {
        state.parts.iter().any(|sent| matches!(sent, Sent::Told(_, _, PartOutcome::Overtaken)))
    }),
    ("a part took too long", |_, state| {
        state.parts.iter().any(|sent| matches!(sent, Sent::Told(_, _, PartOutcome::Expired)))
    }),
    ("the bytes of a part came after its intent was given up", |_, state| {
        state.last == Some(Event::LateBytes)
    }),
    ("the parts of a replaced object were deleted", |_, state| {
        state.last == Some(Event::Deleted)
            && state.completions.iter().any(|one| matches!(one, Completion::Applied(..)))
    }),
    ("a reader outlived its object", |_, state| {
        matches!(state.reader, Reader::Pinned(upload, _) if state.tables.is_replaced(upload)
            && !state.tables.keeps(upload, state.tick))
    }),
    ("a rollback brought an upload back", |_, state| state.last == Some(Event::CameBack)),
    ("a part was void after a re-fence", |_, state| state.last == Some(Event::Void)),
    ("a part was deleted after a rollback", |_, state| {
        state.went_back && state.last == Some(Event::Deleted)
    }),
];
