//! What must hold of blobs, and what is worth reaching.

use fence_core::ErrorCode;
use stateright::Property;

use super::{Blobs, Event, HORIZON, Put, Reader, State};
use crate::check::Situation;

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Blobs>> {
    vec![
        Property::always("I9 no pointer dangles", |_, state: &State| {
            state.tables.current().is_none_or(|blob| state.store.contains(&blob))
        }),
        Property::always("I9 no version that is kept dangles", |model: &Blobs, state: &State| {
            model.blobs().all(|blob| state.store.contains(&blob) || !state.keeps(blob))
        }),
        Property::always("I9 no reader finds a blob missing", |_, state: &State| !state.alarm),
        Property::always("what is pinned stays", |_, state: &State| match state.reader {
            Reader::Pinned(blob) => state.store.contains(&blob) || state.went_back,
            _ => true,
        }),
        Property::always("nothing in the store is forgotten", |model: &Blobs, state: &State| {
            let known = |blob: u8| state.tables.knows(blob) || state.went_back;
            model.blobs().all(|blob| !state.store.contains(&blob) || known(blob))
        }),
    ]
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Blobs>] = &[
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
