//! What gateways allow and send, and rules that are put in force, step by step.

use fence_core::acts;
use fence_core::ports::{REFENCE_JUMP, Refence};

use super::{Access, Act, Action, Event, Fate, Lock, Request, Rules, State};
use crate::ledger::nonce;
use crate::locks::Sending;
use crate::mutants::Mutant;

impl Access {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn numbers(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.plan.requests.len()).unwrap_or(u8::MAX)
    }

    pub(super) fn request(&self, number: u8) -> &Request {
        &self.plan.requests[usize::from(number)]
    }

    pub(super) fn lock(&self, number: u8) -> &Lock {
        &self.plan.locks[usize::from(number)]
    }

    /// Whether a principal has come to this request, and knows what it needs for it.
    fn is_next(&self, state: &State, number: u8) -> bool {
        let request = self.request(number);
        let unsent = |number: u8| state.fates[usize::from(number)] == Fate::Unsent;
        let knows = |lock: u8| state.tokens[usize::from(lock)].is_some();
        let ready = match request.act {
            Act::Seal(lock) => match self.lock(lock).from {
                Some(from) => knows(from),
                None => !state.ledger.is_held(0),
            },
            Act::Write(lock) | Act::Renew(lock) | Act::Reenter(lock) | Act::Release(lock) => {
                knows(lock)
            }
        };
        ready && !(0..number).any(|before| self.request(before).by == request.by && unsent(before))
    }

    /// What may be done about a request.
    pub(super) fn request_actions(&self, state: &State, number: u8, actions: &mut Vec<Action>) {
        let request = self.request(number);
        let known = state.gateways[usize::from(request.through)];
        match state.fates[usize::from(number)] {
            Fate::Unsent
                if known.says.denied != Some(request.by) && self.is_next(state, number) =>
            {
                actions.push(Action::Ask(number));
            }
            Fate::Moved(before) if known.generation != before.generation => {
                actions.push(Action::AskAgain(number));
            }
            Fate::Asked(..)
                if state.left.losses > 0 && matches!(request.act, Act::Seal(_) | Act::Write(_)) =>
            {
                actions.push(Action::Lose(number));
            }
            Fate::Unknown(_, wanted) => {
                // A caller that has gone does not come back.
                if wanted {
                    actions.push(Action::Resend(number, Sending::Again));
                }
                actions.push(Action::Resend(number, Sending::Bury));
            }
            _ => {}
        }
    }

    /// What may happen to the ledger and its rules.
    pub(super) fn ledger_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ledger.timeline == state.timeline {
            actions.extend(state.wire.iter().copied().map(Action::Arrive));
            if state.left.applies > 0 {
                let others = self.rules.iter().filter(|says| **says != state.in_force.says);
                actions.extend(others.copied().map(Action::Apply));
            }
        } else {
            actions.push(Action::Refence);
        }
        for gateway in 0..2_u8 {
            if state.gateways[usize::from(gateway)] != state.in_force {
                actions.push(Action::Learn(gateway));
            }
        }
        if state.ledger.is_held(0) && state.left.expiries > 0 {
            actions.push(Action::Expire);
        }
        if state.left.rollbacks > 0 {
            actions.push(if state.copy.is_none() { Action::Copy } else { Action::Rollback });
        }
    }

    /// What a gateway does with a request.
    pub(super) fn request_step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Ask(number) => {
                let mut known = state.gateways[usize::from(self.request(number).through)];
                if self.is(Mutant::GenerationReadApart) {
                    known.generation = state.in_force.generation;
                }
                send(state, number, known, Sending::First);
            }
            Action::AskAgain(number) => {
                let request = self.request(number);
                let known = state.gateways[usize::from(request.through)];
                let denied = known.says.denied == Some(request.by);
                if denied && !self.is(Mutant::SentAgainUnasked) {
                    state.fates[usize::from(number)] = Fate::Denied;
                } else {
                    state.last = Some(Event::AllowedAgain);
                    send(state, number, known, Sending::First);
                }
            }
            Action::Lose(number) => {
                let fate = &mut state.fates[usize::from(number)];
                let Fate::Asked(rules, sending) = *fate else { return None };
                *fate = Fate::Unknown(rules, sending != Sending::Bury);
                state.left.losses -= 1;
            }
            Action::Resend(number, sending) => {
                let Fate::Unknown(rules, _) = state.fates[usize::from(number)] else { return None };
                send(state, number, rules, sending);
            }
            _ => return None,
        }
        Some(())
    }

    /// What happens to the ledger and its rules.
    pub(super) fn ledger_step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Apply(says) => {
                let generation = match self.is(Mutant::RulesRecur) {
                    false => state.ledger.rows().guard.next_rules(),
                    true => state.in_force.generation + 1,
                };
                state.ledger.act(|rows| rows.guard.rules = generation);
                let number = self.bounds.applies - state.left.applies + 1;
                state.in_force = Rules { generation, number, says };
                state.left.applies -= 1;
            }
            Action::Learn(gateway) => state.gateways[usize::from(gateway)] = state.in_force,
            Action::Expire => {
                state.ledger.expire(0);
                state.left.expiries -= 1;
            }
            Action::Copy => state.copy = Some((state.ledger.clone(), state.in_force)),
            Action::Rollback => {
                (state.ledger, state.in_force) = state.copy.take()?;
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
                });
                state.ledger.timeline = state.timeline;
            }
            _ => return None,
        }
        Some(())
    }
}

/// A request is on its way.
pub(super) fn send(state: &mut State, number: u8, rules: Rules, sending: Sending) {
    state.fates[usize::from(number)] = Fate::Asked(rules, sending);
    state.wire.insert((number, rules, sending));
}
