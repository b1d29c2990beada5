//! What must hold of a drained upstream, and what is worth reaching.

use fence_core::ErrorCode;
use fence_core::acts::Buried;
use fence_core::ports::{ForwardEnd, IntentEnd};
use stateright::Property;

use super::{Drained, Event, Fate, State};
use crate::check::Situation;
use crate::ledger::operation_id;

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Drained>> {
    vec![
        Property::always("I13 nothing older has an effect", |_, state: &State| !state.late),
        Property::always("I13 nothing older is under way", |_, state: &State| {
            let older = |token: i64| token < state.given;
            let coming = |fate: &Fate| matches!(fate, Fate::Admitted(token) if older(*token));
            !state.upstream.iter().any(|(_, token)| older(*token))
                && !state.fates.iter().any(coming)
        }),
        Property::always("I8 what is said not to be applied has no effect", |_, state: &State| {
            let denied = |number: &u8| {
                let id = operation_id(*number);
                let rows = state.ledger.rows();
                rows.buried.contains_key(&Buried::Operation(id))
                    || rows.forwards.get(&id).is_some_and(|row| {
                        let end = row.closed.as_ref().map(|(end, _)| end);
                        end == Some(&IntentEnd::Known(ForwardEnd::Unsent))
                    })
            };
            let acts = |number: &u8| {
                state.acted >> number & 1 == 1
                    || state.upstream.iter().any(|(request, _)| request == number)
                    || matches!(state.fates[usize::from(*number)], Fate::Admitted(_))
            };
            // Of what was asked of a ledger that is gone, nothing arrives at the next one; here it does.
            let numbers = 0..u8::try_from(state.fates.len()).unwrap_or(u8::MAX);
            state.timeline > 0
                || !numbers.into_iter().any(|number| denied(&number) && acts(&number))
        }),
        Property::always("what is over is not opened again", |_, state: &State| {
            let open = |number| state.ledger.is_open(operation_id(number));
            let over = |fate: &Fate| matches!(fate, Fate::Closed | Fate::Buried);
            let fates = (0_u8..).zip(&state.fates);
            // A ledger that went back may have an intent that was closed: that blocks, and is safe.
            state.timeline > 0
                || !fates.into_iter().any(|(number, fate)| over(fate) && open(number))
        }),
    ]
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Drained>] = &[
    ("a seal that does not wait was refused", |_, state| state.last == Some(Event::SealRefused)),
    ("a lock that drained came into force", |_, state| state.last == Some(Event::Completed)),
    ("a lock that drained was taken over", |_, state| {
        state.last == Some(Event::TakenWhileDraining)
    }),
    ("an effect came while a newer lock drained", |_, state| {
        state.last == Some(Event::StaleEffect)
    }),
    ("a request under an older token was refused", |_, state| {
        state.fates.contains(&Fate::Refused(ErrorCode::FenceTokenStale))
    }),
    ("a request waited under way while its token was stale", |_, state| {
        state.upstream.iter().any(|(_, token)| *token < state.ledger.fence(0))
    }),
    ("a lost intent was found", |_, state| state.last == Some(Event::Found)),
    ("a lost intent was buried", |_, state| state.fates.contains(&Fate::Buried)),
    ("a wish to open came after the close", |_, state| state.last == Some(Event::CameTooLate)),
    ("an operator closed an intent", |_, state| state.last == Some(Event::Resolved)),
    ("an operator ended a doubt", |_, state| state.last == Some(Event::DoubtEnded)),
    ("a rollback forgot an intent that is under way", |_, state| {
        let open = |number: &u8| state.ledger.is_open(operation_id(*number));
        state.timeline > 0 && state.upstream.iter().any(|(request, _)| !open(request))
    }),
    ("a token was given out after a re-fence", |_, state| {
        let floor = state.ledger.rows().guard.floor;
        floor > 0 && state.given > floor
    }),
];
