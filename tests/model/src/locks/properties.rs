//! What must hold of locks and writes, and what is worth reaching.

use fence_core::ErrorCode;
use fence_core::lock::LockId;
use fence_core::rule::Hold;
use stateright::Property;

use super::{Claim, Event, Fate, Locks, Message, Sending, State};
use crate::check::Situation;
use crate::ledger::{lock_id, now, resource};

/// What must hold in every state.
pub(super) fn invariants() -> Vec<Property<Locks>> {
    vec![
        Property::always(
            "I1 a token in a client's hand is a grant",
            |model: &Locks, state: &State| {
                (0..3).all(|client| match state.claims[usize::from(client)] {
                    Claim::Given(token, _) => model
                        .plan(client)
                        .resources
                        .iter()
                        .all(|index| state.ledger.is_sealed(*index, token)),
                    _ => true,
                })
            },
        ),
        Property::always("I2 a fence never falls", |_, state: &State| !state.ledger.fell),
        Property::always("I3 tokens never fall", |_, state: &State| {
            state.history.tokens_never_fall()
        }),
        Property::always("I4 sequences rise", |_, state: &State| state.history.sequences_rise()),
        Property::always("I5 what a new holder reads is final", |_, state: &State| {
            state.history.reads_are_final()
        }),
        Property::always("I6 each write is fenced", |_, state: &State| {
            state.history.writes_are_fenced()
        }),
        Property::always("I7 a key has one effect", |_, state: &State| {
            state.history.key_had_one_effect()
        }),
        Property::always("I8 verdicts are true", |model, state: &State| {
            verdicts_are_true(model, state)
        }),
        Property::always("all resources of a lock, or none", |model: &Locks, state: &State| {
            (0..3).all(|client| {
                let grants = state.ledger.rows().grants.values();
                let of_it = grants.filter(|grant| grant.lock == lock_id(client)).count();
                of_it == 0 || of_it == model.plan(client).resources.len()
            })
        }),
    ]
}

/// I8: what was told to have been applied was, and what was told not to have been never is; of locks too.
fn verdicts_are_true(model: &Locks, state: &State) -> bool {
    let writes = (0..3_u8).all(|client| {
        (0..2_u8).all(|index| {
            let applied = state.history.has(client * 2 + index);
            match state.writes[usize::from(client)][usize::from(index)] {
                Fate::Applied => applied,
                Fate::Replayed => state.history.written.iter().any(|one| one.keyed),
                Fate::Refused(_) | Fate::Buried | Fate::Unsent => !applied,
                Fate::Asked(_) | Fate::Unknown(_) => true,
            }
        })
    });
    // Of a transfer the answer does not tell whose end it was.
    let locks = (0..3_u8).all(|client| {
        let id: LockId = lock_id(client);
        state.claims[usize::from(client)] != Claim::Never
            || model.plan(client).from.is_some()
            || !state.ledger.rows().locks.contains_key(&id)
    });
    writes && locks
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[Situation<Locks>] = &[
    ("a lock was taken over twice", |_, state| state.history.given.len() == 3),
    ("an old holder was refused as stale", |_, state| refused(state, ErrorCode::FenceTokenStale)),
    ("an expired holder without a successor wrote", |_, state| {
        let expired = !state.ledger.is_held(0);
        let fence = state.ledger.fence(0);
        expired && state.history.written.last().is_some_and(|one| one.token == fence)
    }),
    ("a late duplicate was refused", |_, state| refused(state, ErrorCode::SequenceOutOfOrder)),
    ("a condition was not met", |_, state| refused(state, ErrorCode::VersionMismatch)),
    ("a forged token was refused", |_, state| refused(state, ErrorCode::FenceTokenUnknown)),
    ("a write after a release was refused", |_, state| {
        refused(state, ErrorCode::FenceTokenReleased)
    }),
    ("a write after a break was refused", |_, state| refused(state, ErrorCode::FenceTokenBroken)),
    ("a successor got the replay", |_, state| {
        let first = state.history.written.iter().find(|one| one.keyed).map(|one| one.operation / 2);
        let replayed = |(client, fates): (u8, &[Fate; 2])| {
            first != Some(client) && fates.contains(&Fate::Replayed)
        };
        (0..).zip(&state.writes).any(replayed)
    }),
    ("a stale client got the replay", |_, state| {
        (0..).zip(&state.writes).any(|(client, fates): (usize, _)| {
            let token = match state.claims[client] {
                Claim::Given(token, _) => token,
                _ => return false,
            };
            let newer = state.history.given.iter().any(|given| given.token > token);
            newer && fates[1] == Fate::Replayed
        })
    }),
    ("a lost write was found", |_, state| state.last == Some(Event::WriteFound)),
    ("a lost write was buried before it arrived", |_, state| {
        (0..).zip(&state.writes).any(|(client, fates)| {
            let waits = state.wire.contains(&Message::Write(client, 0, Sending::First));
            waits && fates[0] == Fate::Buried
        })
    }),
    ("a lost seal was found", |_, state| state.last == Some(Event::SealFound)),
    ("a lost seal was given up for good", |_, state| state.claims.contains(&Claim::Never)),
    ("a lost seal was over when it was found", |_, state| state.claims.contains(&Claim::Over)),
    ("a renewal revived a lock", |_, state| state.last == Some(Event::Revived)),
    ("a successor by transfer wrote", |model, state| {
        let heirs = (0..3_u8).filter(|client| model.plan(*client).from.is_some());
        heirs.into_iter().any(|client| state.history.has(client * 2))
    }),
    ("a lock has lost one of its resources", |_, state| {
        let fences = &state.ledger.rows().fences;
        let of = |index| fences.get(&resource(index)).map(|fence| fence.lock);
        of(0) == Some(lock_id(0)) && of(1).is_some_and(|lock| lock != lock_id(0))
    }),
    ("a lock on two resources wrote on both", |_, state| {
        state.writes.contains(&[Fate::Applied, Fate::Applied])
    }),
    ("a break was due, but not stored", |_, state| {
        let fences = state.ledger.rows().fences.values();
        fences
            .into_iter()
            .any(|fence| fence.hold == Hold::Held && fence.hold_at(now(0)) == Hold::Broken)
    }),
];

fn refused(state: &State, code: ErrorCode) -> bool {
    state.writes.iter().flatten().any(|fate| *fate == Fate::Refused(code))
}
