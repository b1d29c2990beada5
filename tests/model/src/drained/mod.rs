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

mod properties;
mod steps;

use std::collections::BTreeSet;

use fence_core::ports::DrainedUpstream;
use fence_core::rule::Hold;
use fence_core::{ErrorCode, acts};
use stateright::{Model, Property};

use crate::check;
use crate::ledger::{Ledger, now, operation_id, resource};
use crate::locks::Sending;
use crate::mutants::Mutant;

pub use properties::SITUATIONS;

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
    /// On which requests it has acted, by number.
    pub acted: u8,
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
            acted: 0,
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
                let open = |number: &u8| state.ledger.is_open(operation_id(*number));
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
            | Action::Resolve(_) => self.request_step(state, action)?,
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
        check::properties(properties::invariants(), SITUATIONS, self.situations)
    }
}
