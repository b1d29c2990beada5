//! What must hold when stores go back, and what is worth reaching.

use stateright::Property;

use super::{Disasters, Event, Grant, State};
use crate::check::Situation;

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Disasters>> {
    vec![
        Property::always("I1 a token in a client's hand was sealed once", |_, state: &State| {
            let unknown = |token| {
                let (ledger, floor) = (&state.ledger, state.ledger.rows().guard.floor);
                // A ledger that went back has forgotten it, and takes nothing until it is void.
                let lost = ledger.timeline != state.timeline || token <= floor;
                !ledger.is_sealed(0, token) && !lost
            };
            !state.grants.iter().any(|one| matches!(one, Grant::Given(token) if unknown(*token)))
        }),
        Property::always("I2 a fence never falls", |_, state: &State| {
            !state.ledger.fell && !state.wrong.fell
        }),
        Property::always("I3 nothing older takes effect", |_, state: &State| !state.wrong.stale),
        Property::always("I11 no seal under a past epoch", |_, state: &State| !state.wrong.crossed),
        Property::always("I12 a ledger that lost commits takes nothing", |_, state: &State| {
            !state.wrong.taken
        }),
    ]
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Disasters>] = &[
    ("a restored etcd repeated a number", |_, state| state.last == Some(Event::Repeated)),
    ("a number was too low", |_, state| state.last == Some(Event::TooLow)),
    ("a seal came after the epoch had moved on", |_, state| state.last == Some(Event::Moved)),
    ("a holder wrote across a change of epoch", |_, state| state.last == Some(Event::Undisturbed)),
    ("a token was given out in a later epoch", |_, state| {
        state.ledger.rows().guard.epoch > 0 && given_above(state, state.ledger.rows().guard.base)
    }),
    ("a ledger that went back refused an act", |_, state| state.last == Some(Event::Called)),
    ("a write was void after a re-fence", |_, state| state.last == Some(Event::Void)),
    ("a token was given out after a re-fence", |_, state| {
        state.refences > 0 && given_above(state, state.ledger.rows().guard.floor)
    }),
    ("a token was given out after both went back", |model, state| {
        let both = state.left.rollbacks < model.bounds.rollbacks
            && state.left.restores < model.bounds.restores;
        both && state.refences > 0 && given_above(state, state.ledger.rows().guard.floor)
    }),
    ("a token was given out after a second re-fence", |_, state| {
        state.refences > 1 && given_above(state, state.ledger.rows().guard.floor)
    }),
];

fn given_above(state: &State, bound: i64) -> bool {
    state.highest_given() > bound
}
