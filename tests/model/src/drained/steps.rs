//! Seals that wait, intents and what is forwarded, step by step.

use fence_core::ports::{
    Attempt, By, CloseItem, ForwardEnd, IntentEnd, IntentItem, IntentVerdict, REFENCE_JUMP,
    Refence, Resolution, SealVerdict,
};
use fence_core::rule::Hold;
use fence_core::{Token, acts};
use uuid::Uuid;

use super::{Action, Claim, Drained, Event, Fate, State};
use crate::ledger::{lock_id, nonce, now, operation_id, resource, seal_item};
use crate::locks::Sending;
use crate::mutants::Mutant;

pub(super) fn resolution() -> Resolution {
    Resolution { reason: String::new(), request_id: String::new(), by: By::default() }
}

impl Drained {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// A seal arrives. With `seen` it goes by these open intents, by number (mutant).
    pub(super) fn seal(
        &self,
        state: &mut State,
        client: u8,
        waits: bool,
        seen: Option<u8>,
    ) -> Option<()> {
        state.claims[usize::from(client)] = Claim::Idle;
        state.left.grants -= 1;
        let number = self.bounds.grants - state.left.grants;
        let rises = state.ledger.fence(0) - state.ledger.rows().guard.base + 1;
        let mut item = seal_item(lock_id(number), client, &[0], Some(rises.max(1)));
        item.waits = waits.then(|| Uuid::from_u128(1));
        let fence = state.ledger.rows().fences.values().next();
        let over = fence.is_some_and(|fence| fence.hold == Hold::Draining);
        // One that is in force has expired; when is a matter of `locks`.
        if !over {
            state.ledger.expire(0);
        }
        let verdict = state.ledger.act(|rows| match seen {
            None => acts::seal(rows, &item, now(0)),
            Some(seen) => {
                let open = rows.forwards.clone();
                rows.forwards.retain(|id, _| {
                    (0..8).any(|number| seen >> number & 1 == 1 && operation_id(number) == *id)
                });
                let verdict = acts::seal(rows, &item, now(0));
                rows.forwards = open;
                verdict
            }
        });
        match verdict {
            SealVerdict::Sealed(grant, _) => self.give(state, client, grant.token.get()),
            SealVerdict::Drains { .. } if self.is(Mutant::GivenWhileDraining) => {
                let token = state.ledger.fence(0);
                self.give(state, client, token);
            }
            SealVerdict::Drains { .. } => {
                state.claims[usize::from(client)] = Claim::Waits(number);
                state.last = over.then_some(Event::TakenWhileDraining);
            }
            SealVerdict::Draining(_) => state.last = Some(Event::SealRefused),
            SealVerdict::Held(_) => return None,
            _ => {}
        }
        Some(())
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps")]
    pub(super) fn give(&self, state: &mut State, client: u8, token: i64) {
        state.claims[usize::from(client)] = Claim::Given(token);
        state.given = state.given.max(token);
    }

    pub(super) fn poll(&self, state: &mut State, client: u8, number: u8) -> Option<()> {
        let mut item = seal_item(lock_id(number), client, &[0], None);
        item.waits = Some(Uuid::from_u128(1));
        match state.ledger.act(|rows| acts::seal(rows, &item, now(0))) {
            SealVerdict::Again(grant) => {
                self.give(state, client, grant.token.get());
                state.last = Some(Event::Completed);
            }
            SealVerdict::Drains { .. } => return None,
            _ => state.claims[usize::from(client)] = Claim::Idle,
        }
        Some(())
    }

    /// A wish to open an intent arrives.
    pub(super) fn arrive(
        state: &mut State,
        request: u8,
        token: i64,
        sending: Sending,
    ) -> Option<()> {
        let item = IntentItem {
            operation: operation_id(request),
            resource: resource(0),
            token: Token::new(token)?,
            lock: None,
            sequence: None,
            resource_version: None,
            drained: true,
            upstream: "u".into(),
            method: String::new(),
            path: String::new(),
            gateway: Uuid::from_u128(1),
            max_effect_delay: None,
            attempt: match sending {
                Sending::First => Attempt::First,
                Sending::Again => Attempt::Rerun,
                Sending::Bury => Attempt::Bury,
            },
            by: By::default(),
        };
        if state.ledger.timeline != state.timeline {
            return Some(());
        }
        let was_open = state.ledger.is_open(item.operation);
        let verdict = state.ledger.act(|rows| acts::open_intent(rows, &item, now(0)));
        let fate = &mut state.fates[usize::from(request)];
        if *fate == Fate::Closed {
            state.last = Some(Event::CameTooLate);
        }
        if *fate == Fate::Opening(token, sending) {
            *fate = match verdict {
                IntentVerdict::Admitted => {
                    state.last = was_open.then_some(Event::Found);
                    Fate::Admitted(token)
                }
                IntentVerdict::Refused(refusal) => Fate::Refused(refusal.code()),
                IntentVerdict::Buried | IntentVerdict::RulesMoved | IntentVerdict::Busy => {
                    Fate::Buried
                }
            };
        }
        Some(())
    }

    /// Whether an operator may say that nothing of a request is under way any more.
    pub(super) fn is_over(&self, state: &State, request: u8) -> bool {
        let there = state.upstream.iter().any(|(other, _)| *other == request);
        let coming = matches!(
            state.fates[usize::from(request)],
            Fate::Admitted(_) | Fate::Opening(..) | Fate::Unknown(..)
        );
        self.is(Mutant::OperatorGuesses) || !there && !coming
    }

    pub(super) fn request_actions(&self, state: &State, request: u8, actions: &mut Vec<Action>) {
        let client = self.requests[usize::from(request)];
        let sound = state.ledger.timeline == state.timeline;
        let fate = state.fates[usize::from(request)];
        match fate {
            Fate::Unsent => {
                if matches!(state.claims[usize::from(client)], Claim::Given(_)) {
                    actions.push(Action::Open(request));
                }
            }
            Fate::Opening(..) if state.left.losses > 0 => actions.push(Action::Lose(request)),
            Fate::Unknown(_, wanted) => {
                // A caller that has gone does not come back.
                if wanted {
                    actions.push(Action::Resend(request, Sending::Again));
                }
                actions.push(Action::Resend(request, Sending::Bury));
            }
            Fate::Admitted(_) => actions.push(Action::Forward(request)),
            Fate::Sent(_) if self.is(Mutant::ClosedOnTimeout) => {
                actions.push(Action::Close(request));
            }
            Fate::Answered(_) if sound => actions.push(Action::Close(request)),
            _ => {}
        }
        if matches!(fate, Fate::Admitted(_) | Fate::Sent(_) | Fate::Answered(_))
            && state.left.deaths > 0
        {
            actions.push(Action::Die(request));
        }
        let is_open = state.ledger.is_open(operation_id(request));
        // Of requests whose gateway works, the gateway closes the intent.
        let orphan = matches!(fate, Fate::Orphan(_)) || self.is(Mutant::OperatorGuesses);
        if sound && is_open && orphan && self.is_over(state, request) {
            actions.push(Action::Resolve(request));
        }
    }

    pub(super) fn request_step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Lose(request) => {
                let fate = &mut state.fates[usize::from(request)];
                let Fate::Opening(token, sending) = *fate else { return None };
                *fate = Fate::Unknown(token, sending != Sending::Bury);
                state.left.losses -= 1;
            }
            Action::Resend(request, sending) => {
                let fate = &mut state.fates[usize::from(request)];
                let Fate::Unknown(token, _) = *fate else { return None };
                *fate = Fate::Opening(token, sending);
                state.wire.insert((request, token, sending));
            }
            Action::Forward(request) => {
                let fate = &mut state.fates[usize::from(request)];
                let Fate::Admitted(token) = *fate else { return None };
                *fate = Fate::Sent(token);
                state.upstream.insert((request, token));
            }
            Action::Effect(request, token) => {
                state.acted |= 1 << request;
                state.late |= token < state.given;
                let stale = token < state.ledger.fence(0) && token >= state.given;
                state.last = stale.then_some(Event::StaleEffect);
            }
            Action::Answer(request, token) => {
                state.upstream.remove(&(request, token));
                let fate = &mut state.fates[usize::from(request)];
                if *fate == Fate::Sent(token) {
                    *fate = Fate::Answered(token);
                }
            }
            Action::Close(request) => {
                let id = operation_id(request);
                state.ledger.act(|rows| {
                    let item = CloseItem { operation: id, end: ForwardEnd::Answered(200) };
                    acts::close_intent(rows, &item, now(0));
                    if self.is(Mutant::ClosedAndForgotten) {
                        rows.forwards.remove(&id);
                    }
                });
                state.fates[usize::from(request)] = Fate::Closed;
            }
            Action::Die(request) => {
                let fate = &mut state.fates[usize::from(request)];
                let (Fate::Admitted(token) | Fate::Sent(token) | Fate::Answered(token)) = *fate
                else {
                    return None;
                };
                *fate = Fate::Orphan(token);
                state.left.deaths -= 1;
            }
            Action::Resolve(request) => {
                let id = operation_id(request);
                state.ledger.act(|rows| {
                    let _ = acts::resolve_intent(rows, id, &resolution(), now(0));
                    if let Some(intent) = rows.forwards.get_mut(&id)
                        && self.is(Mutant::ClosedIsNotApplied)
                    {
                        let unsent = IntentEnd::Known(ForwardEnd::Unsent);
                        intent.closed = Some((unsent, now(0).wall));
                    }
                });
                state.last = Some(Event::Resolved);
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn ledger_step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Complete => {
                let names = [resource(0)];
                let done = state.ledger.act(|rows| acts::complete_drains(rows, &names, now(0)));
                if done.is_empty() {
                    return None;
                }
            }
            Action::Expire => {
                state.ledger.expire(0);
                state.left.expiries -= 1;
            }
            Action::EndDoubt => {
                let resolve = |rows: &mut _| acts::resolve_doubts(rows, "u", &resolution(), now(0));
                let _ = state.ledger.act(resolve);
                state.last = Some(Event::DoubtEnded);
            }
            Action::Copy => state.copy = Some(state.ledger.clone()),
            Action::Rollback => {
                state.ledger = state.copy.take()?;
                state.timeline += 1;
                state.left.rollbacks -= 1;
            }
            Action::Refence => {
                let refence = Refence {
                    nonce: nonce(state.timeline),
                    number: 0,
                    known_base: i64::from(state.timeline) * REFENCE_JUMP,
                    known_generation: 0,
                    why: String::new(),
                    forced: true,
                    seen: None,
                };
                let highest = state.ledger.highest();
                state.ledger.act(|rows| {
                    acts::refence(&mut rows.guard, highest, &refence);
                    rows.guard.open = true;
                    let floor = rows.guard.floor;
                    if !self.is(Mutant::NoDoubt) {
                        acts::doubt(rows.upstreams.values_mut(), floor, now(0).wall);
                    }
                });
                state.ledger.timeline = state.timeline;
            }
            _ => return None,
        }
        Some(())
    }
}
