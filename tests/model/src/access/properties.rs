//! What must hold of rules of access, and what is worth reaching.

use fence_core::ErrorCode;
use stateright::Property;

use super::{Access, Act, Effect, Event, Fate, State, Writers};
use crate::check::Situation;

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Access>> {
    vec![
        Property::always(
            "I16 only its principal and its writers write",
            |model: &Access, state: &State| {
                state.effect.is_none_or(|effect| model.is_by_a_writer(&effect))
            },
        ),
        Property::always(
            "I16 only its principal changes a lock",
            |model: &Access, state: &State| {
                state.effect.is_none_or(|effect| model.is_by_its_principal(&effect))
            },
        ),
        Property::always("I17 nothing denied takes effect", |model: &Access, state: &State| {
            state.effect.is_none_or(|effect| {
                effect.in_force.says.denied != Some(model.request(effect.request).by)
            })
        }),
        Property::always("I17 nothing allowed before takes effect", |_, state: &State| {
            state.effect.is_none_or(|effect| effect.allowed.number == effect.in_force.number)
        }),
        Property::always("I8 verdicts are true", |model: &Access, state: &State| {
            model.numbers().all(|number| verdict_is_true(state, number))
        }),
    ]
}

impl Access {
    /// I16: a write is its principal's, or that of a writer, as far as the rules in force give it that name.
    fn is_by_a_writer(&self, effect: &Effect) -> bool {
        let request = self.request(effect.request);
        let Act::Write(lock) = request.act else { return true };
        let lock = self.lock(lock);
        let is_writer = match lock.writers {
            Writers::None => false,
            Writers::Named(writer) => writer == request.by,
            Writers::InRole => effect.in_force.says.in_role == Some(request.by),
        };
        request.by == lock.principal || is_writer
    }

    /// I16: a lock is taken, renewed, ended and handed over by its principal.
    fn is_by_its_principal(&self, effect: &Effect) -> bool {
        let request = self.request(effect.request);
        let lock = match request.act {
            Act::Write(_) => return true,
            Act::Seal(lock) => self.lock(lock).from.unwrap_or(lock),
            Act::Renew(lock) | Act::Reenter(lock) | Act::Release(lock) => lock,
        };
        request.by == self.lock(lock).principal
    }

    /// Whether the last step was a write of somebody whose lock it was not.
    fn a_writer_wrote(&self, state: &State, writers: Writers) -> bool {
        state.effect.is_some_and(|effect| {
            let request = self.request(effect.request);
            matches!(request.act, Act::Write(lock)
                if self.lock(lock).writers == writers && self.lock(lock).principal != request.by)
        })
    }

    /// Whether a request of this kind on somebody else's lock was refused for this.
    fn was_refused(&self, state: &State, code: ErrorCode, is: fn(&Access, Act) -> bool) -> bool {
        (0_u8..).zip(&state.fates).any(|(number, fate)| {
            *fate == Fate::Refused(code) && is(self, self.request(number).act)
        })
    }
}

/// I8: what was told to have been done was, and what was told not to have been never is.
fn verdict_is_true(state: &State, number: u8) -> bool {
    let done = state.done >> number & 1 == 1;
    match state.fates[usize::from(number)] {
        Fate::Applied => done,
        // Of what was asked of a ledger that is gone, nothing arrives at the next one; here it does.
        Fate::Denied | Fate::Refused(_) | Fate::Buried => !done || state.timeline > 0,
        Fate::Unsent | Fate::Asked(..) | Fate::Unknown(..) | Fate::Moved(_) => true,
    }
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Access>] = &[
    ("a named writer wrote", |model, state| model.a_writer_wrote(state, Writers::Named(1))),
    ("a writer in a role wrote", |model, state| model.a_writer_wrote(state, Writers::InRole)),
    ("a write under somebody else's token was refused", |model, state| {
        model.was_refused(state, ErrorCode::FenceTokenUnknown, |model, act| {
            matches!(act, Act::Write(lock) if model.lock(lock).writers == Writers::None)
        })
    }),
    ("a writer that had lost its role was refused", |model, state| {
        model.was_refused(state, ErrorCode::FenceTokenUnknown, |model, act| {
            matches!(act, Act::Write(lock) if model.lock(lock).writers == Writers::InRole)
        })
    }),
    ("a renewal of somebody else's lock was refused", |model, state| {
        model.was_refused(state, ErrorCode::LockNotFound, |_, act| matches!(act, Act::Renew(_)))
    }),
    ("a release of somebody else's lock was refused", |model, state| {
        model.was_refused(state, ErrorCode::LockNotFound, |_, act| matches!(act, Act::Release(_)))
    }),
    ("somebody else's lock could not be asked for under its id", |model, state| {
        model.was_refused(state, ErrorCode::LockIdConflict, |_, act| matches!(act, Act::Reenter(_)))
    }),
    ("somebody else's lock could not be handed over", |model, state| {
        model.was_refused(state, ErrorCode::LockNotFound, |_, act| matches!(act, Act::Seal(_)))
    }),
    ("a lock was handed over to somebody else", |model, state| {
        state.effect.is_some_and(|effect| {
            let request = model.request(effect.request);
            matches!(request.act, Act::Seal(lock) if model.lock(lock).principal != request.by)
        })
    }),
    ("newer rules allowed it, too", |_, state| state.last == Some(Event::AllowedAgain)),
    ("newer rules denied what older ones had allowed", |_, state| {
        state.fates.contains(&Fate::Denied)
    }),
    ("what the rules in force deny was on its way", |model, state| {
        state
            .wire
            .iter()
            .any(|(number, ..)| state.in_force.says.denied == Some(model.request(*number).by))
    }),
    ("a lost request was found although its rules had moved", |_, state| {
        state.last == Some(Event::FoundSinceMoved)
    }),
    ("a lost request was buried since its rules had moved", |_, state| {
        state.fates.contains(&Fate::Buried) && state.in_force.number > 0
    }),
    ("rules that the ledger had forgotten did not count", |_, state| {
        state.last == Some(Event::CameFromTheFuture)
    }),
    ("something took effect under rules that came after a re-fence", |_, state| {
        let rules = state.ledger.rows().guard.generation << 20;
        state.effect.is_some_and(|effect| rules > 0 && effect.in_force.generation >= rules)
    }),
];
