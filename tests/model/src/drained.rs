//! A drained upstream: what is forwarded to it has its effect elsewhere, at any moment until it answers, so
//! an intent stands in the ledger from before it is sent until after it was answered, and a newer token is
//! given out only when none of an older one is open.
//!
//! Each of three clients may take over the lock, waiting or not, and forward requests under whatever token
//! it has. Between any two steps a gateway may stop for a while, or die. The ledger may go back, so that it
//! forgets intents.
//!
//! Assumed, since nothing else can tell: an operator who closes an intent, or ends a doubt, knows that the
//! gateway is gone and that the upstream is done with the request; and the upstream does nothing after its
//! answer. Left out: `max_effect_delay` (an operator by the clock), versions and sequences (`locks`), the
//! mint (`disasters`), and an upstream whose guarantee is `admission`, which promises nothing of the kind.

use std::collections::BTreeSet;

use fence_core::acts;
use fence_core::ports::{
    Attempt, DrainedUpstream, IntentItem, IntentVerdict, REFENCE_JUMP, Refence, Resolution,
    SealVerdict,
};
use fence_core::rule::Hold;
use fence_core::{ErrorCode, Token};
use stateright::{Model, Property};
use uuid::Uuid;

use crate::ledger::{Ledger, lock_id, nonce, now, operation_id, resource, seal_item};
use crate::locks::Sending;
use crate::mutants::Mutant;

/// How often things may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Seals that are tried.
    pub grants: u8,
    /// Connections to the ledger that are lost while an intent is opened.
    pub losses: u8,
    /// Gateways that die while they forward.
    pub deaths: u8,
    /// Locks that expire while they drain.
    pub expiries: u8,
    /// Times the ledger goes back.
    pub rollbacks: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Drained {
    /// Whose each request is, by client.
    pub requests: &'static [u8],
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// How a client stands with its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// It has none.
    Idle,
    /// Its gateway has read the open intents, these, and not sealed yet (mutant).
    Looked(u8),
    /// Its lock is sealed and drains; it waits.
    Waits(u8),
    /// It has this token.
    Given(i64),
}

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Not begun.
    Unsent,
    /// Its intent is to be opened under this token.
    Opening(i64, Sending),
    /// The connection was lost; whether it is still wanted.
    Unknown(i64, bool),
    /// Its intent is open; it is about to be forwarded.
    Admitted(i64),
    /// Forwarded: the upstream has it.
    Sent(i64),
    /// The upstream has answered.
    Answered(i64),
    /// The gateway has died; the upstream may have it.
    Orphan(i64),
    /// Over: the intent is closed.
    Closed,
    /// Not forwarded.
    Refused(ErrorCode),
    /// Not forwarded, and never will be.
    Buried,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The ledger.
    pub ledger: Ledger,
    /// The timeline of its server.
    pub timeline: u8,
    /// An older state of it.
    pub copy: Option<Ledger>,
    /// The lock of each client.
    pub claims: [Claim; 3],
    /// The requests.
    pub fates: Vec<Fate>,
    /// Wishes to open an intent that are on their way: request, token, how often sent.
    pub wire: BTreeSet<(u8, i64, Sending)>,
    /// What the upstream has and has not answered, with its token.
    pub upstream: BTreeSet<(u8, i64)>,
    /// What may still happen.
    pub left: Bounds,
    /// The highest token that was ever given out.
    pub given: i64,
    /// Whether an effect came under a token below that.
    pub late: bool,
    /// What came of the last step.
    pub last: Option<Event>,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A seal that does not wait was refused, since something is open.
    SealRefused,
    /// A lock that drained is in force.
    Completed,
    /// Another lock was sealed over one that drained.
    TakenWhileDraining,
    /// An intent was found by a rerun.
    Found,
    /// A wish to open an intent came after the intent had been closed.
    CameTooLate,
    /// An effect under a token that is stale, but above all that were given out.
    StaleEffect,
    /// An operator closed an intent.
    Resolved,
    /// An operator ended a doubt.
    DoubtEnded,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks for the lock, and waits or not.
    Acquire(u8, bool),
    /// Its gateway reads the open intents (mutant).
    Look(u8),
    /// A client that waits asks again.
    Poll(u8),
    /// A gateway puts in force what drains no more.
    Complete,
    /// The lock expires.
    Expire,
    /// A wish to open an intent is sent.
    Open(u8),
    /// One arrives.
    Arrive(u8, i64, Sending),
    /// The connection that it was sent on is lost.
    Lose(u8),
    /// It is sent again, or buried.
    Resend(u8, Sending),
    /// A request is forwarded.
    Forward(u8),
    /// The upstream does it.
    Effect(u8, i64),
    /// The upstream has done it, or will not, and answers.
    Answer(u8, i64),
    /// The intent is closed.
    Close(u8),
    /// The gateway that forwards it dies.
    Die(u8),
    /// An operator closes an intent.
    Resolve(u8),
    /// An operator ends the doubts.
    EndDoubt,
    /// The state of the ledger is kept.
    Copy,
    /// The ledger goes back to it.
    Rollback,
    /// It is re-fenced.
    Refence,
}

fn resolution() -> Resolution {
    Resolution { reason: String::new(), request_id: String::new() }
}

impl Drained {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// A seal arrives. With `seen` it goes by these open intents, by number (mutant).
    fn seal(&self, state: &mut State, client: u8, waits: bool, seen: Option<u8>) -> Option<()> {
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
    fn give(&self, state: &mut State, client: u8, token: i64) {
        state.claims[usize::from(client)] = Claim::Given(token);
        state.given = state.given.max(token);
    }

    fn poll(&self, state: &mut State, client: u8, number: u8) -> Option<()> {
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
    fn arrive(state: &mut State, request: u8, token: i64, sending: Sending) -> Option<()> {
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
        };
        if state.ledger.timeline != state.timeline {
            return Some(());
        }
        let was_open = state.ledger.rows().forwards.contains_key(&item.operation);
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
                IntentVerdict::Buried | IntentVerdict::Busy => Fate::Buried,
            };
        }
        Some(())
    }

    /// Whether an operator may say that nothing of a request is under way any more.
    fn is_over(&self, state: &State, request: u8) -> bool {
        let there = state.upstream.iter().any(|(other, _)| *other == request);
        let coming = matches!(
            state.fates[usize::from(request)],
            Fate::Admitted(_) | Fate::Opening(..) | Fate::Unknown(..)
        );
        self.is(Mutant::OperatorGuesses) || !there && !coming
    }

    fn request_actions(&self, state: &State, request: u8, actions: &mut Vec<Action>) {
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
        let is_open = state.ledger.rows().forwards.contains_key(&operation_id(request));
        // Of requests whose gateway works, the gateway closes the intent.
        let orphan = matches!(fate, Fate::Orphan(_)) || self.is(Mutant::OperatorGuesses);
        if sound && is_open && orphan && self.is_over(state, request) {
            actions.push(Action::Resolve(request));
        }
    }

    fn request_step(state: &mut State, action: Action) -> Option<()> {
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
            Action::Effect(_, token) => {
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
                state.ledger.act(|rows| acts::close_intent(rows, id, now(0)));
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
                state.ledger.act(|rows| acts::resolve_intent(rows, id, &resolution(), now(0)));
                state.last = Some(Event::Resolved);
            }
            _ => return None,
        }
        Some(())
    }

    fn ledger_step(&self, state: &mut State, action: Action) -> Option<()> {
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
                state.ledger.act(|rows| acts::resolve_doubts(rows, "u", &resolution(), now(0)));
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

impl Model for Drained {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::default();
        let upstream = DrainedUpstream {
            name: "u".into(),
            resource_prefix: resource(0).as_str().to_owned(),
            max_effect_delay: None,
        };
        ledger.act(|rows| acts::register(rows, &upstream, now(0)));
        vec![State {
            ledger,
            timeline: 0,
            copy: None,
            claims: [Claim::Idle; 3],
            fates: vec![Fate::Unsent; self.requests.len()],
            wire: BTreeSet::new(),
            upstream: BTreeSet::new(),
            left: self.bounds,
            given: 0,
            late: false,
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let sound = state.ledger.timeline == state.timeline;
        for client in 0..3_u8 {
            match state.claims[usize::from(client)] {
                Claim::Waits(_) if sound => actions.push(Action::Poll(client)),
                Claim::Looked(_) if sound && state.left.grants > 0 => {
                    actions.extend([Action::Acquire(client, true), Action::Acquire(client, false)]);
                }
                Claim::Idle | Claim::Given(_) if sound && state.left.grants > 0 => {
                    if self.is(Mutant::IntentsReadBeforeLock) {
                        actions.push(Action::Look(client));
                    } else {
                        actions.push(Action::Acquire(client, true));
                        actions.push(Action::Acquire(client, false));
                    }
                }
                _ => {}
            }
        }
        for request in 0_u8.. {
            if usize::from(request) == self.requests.len() {
                break;
            }
            self.request_actions(state, request, actions);
        }
        actions
            .extend(state.wire.iter().map(|(one, token, how)| Action::Arrive(*one, *token, *how)));
        for (request, token) in &state.upstream {
            actions.push(Action::Effect(*request, *token));
            actions.push(Action::Answer(*request, *token));
        }
        if sound {
            actions.push(Action::Complete);
        }
        let fence = state.ledger.rows().fences.values().next();
        if fence.is_some_and(|fence| fence.hold == Hold::Draining && fence.deadline_ms > 0)
            && state.left.expiries > 0
        {
            actions.push(Action::Expire);
        }
        if state.left.rollbacks > 0 {
            actions.push(if state.copy.is_none() { Action::Copy } else { Action::Rollback });
        }
        if !sound {
            actions.push(Action::Refence);
        }
        let mut requests = 0_u8..u8::try_from(self.requests.len()).unwrap_or(u8::MAX);
        let doubt = state.ledger.rows().upstreams.values().any(|row| row.doubt.is_some());
        if sound && doubt && requests.all(|request| self.is_over(state, request)) {
            actions.push(Action::EndDoubt);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Look(client) => {
                let forwards = &state.ledger.rows().forwards;
                let open = |number: &u8| forwards.contains_key(&operation_id(*number));
                let seen = (0..8_u8).filter(open).fold(0, |seen, number| seen | 1 << number);
                state.claims[usize::from(client)] = Claim::Looked(seen);
            }
            Action::Acquire(client, waits) => {
                let seen = match state.claims[usize::from(client)] {
                    Claim::Looked(seen) => Some(seen),
                    _ => None,
                };
                self.seal(state, client, waits, seen)?;
            }
            Action::Poll(client) => {
                let Claim::Waits(number) = state.claims[usize::from(client)] else { return None };
                self.poll(state, client, number)?;
            }
            Action::Open(request) => {
                let client = self.requests[usize::from(request)];
                let Claim::Given(token) = state.claims[usize::from(client)] else { return None };
                state.fates[usize::from(request)] = Fate::Opening(token, Sending::First);
                state.wire.insert((request, token, Sending::First));
            }
            Action::Arrive(request, token, sending) => {
                state.wire.remove(&(request, token, sending));
                Self::arrive(state, request, token, sending)?;
            }
            Action::Lose(_)
            | Action::Resend(..)
            | Action::Forward(_)
            | Action::Effect(..)
            | Action::Answer(..)
            | Action::Close(_)
            | Action::Die(_)
            | Action::Resolve(_) => Self::request_step(state, action)?,
            Action::Complete
            | Action::Expire
            | Action::EndDoubt
            | Action::Copy
            | Action::Rollback
            | Action::Refence => self.ledger_step(state, action)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("I2 a fence never falls", |_, state: &State| !state.ledger.fell),
            Property::always("I13 nothing older has an effect", |_, state: &State| !state.late),
            Property::always("I13 nothing older is under way", |_, state: &State| {
                let older = |token: i64| token < state.given;
                let coming = |fate: &Fate| matches!(fate, Fate::Admitted(token) if older(*token));
                !state.upstream.iter().any(|(_, token)| older(*token))
                    && !state.fates.iter().any(coming)
            }),
            Property::always("what is over is not opened again", |_, state: &State| {
                let open =
                    |number| state.ledger.rows().forwards.contains_key(&operation_id(number));
                let over = |fate: &Fate| matches!(fate, Fate::Closed | Fate::Buried);
                let fates = (0_u8..).zip(&state.fates);
                // A ledger that went back may have an intent that was closed: that blocks, and is safe.
                state.timeline > 0
                    || !fates.into_iter().any(|(number, fate)| over(fate) && open(number))
            }),
        ];
        let wanted = SITUATIONS.iter().filter(|(name, _)| self.situations.contains(name));
        properties.extend(wanted.map(|(name, reached)| Property::sometimes(name, *reached)));
        properties
    }
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[(&str, fn(&Drained, &State) -> bool)] = &[
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
        let open = |number: &u8| state.ledger.rows().forwards.contains_key(&operation_id(*number));
        state.timeline > 0 && state.upstream.iter().any(|(request, _)| !open(request))
    }),
    ("a token was given out after a re-fence", |_, state| {
        let floor = state.ledger.rows().guard.floor;
        floor > 0 && state.given > floor
    }),
];
