//! Locks and writes: three clients take turns on one or two resources, through gateways that may crash
//! and whose connections to the ledger may be lost.
//!
//! Everything that is sent to the ledger lies in `wire` until it arrives, at any later time, or never: so a
//! write decided long ago, a gateway that stops between two steps, and one that stops for ever, are all
//! covered. A connection that is lost leaves what was sent in `wire`: the old backend may still get there.
//! The client gets its answer in the step of the act, since it may do its next step as late as it likes.
//!
//! Left out: queues (they order grants, no decision on safety reads them), metadata, longest holds, infinite
//! locks, freezing, deletes, batches (their items are decided one after the other, as here), and
//! `commit_many`, which takes its fences in one act as the seal of two resources does here.

mod properties;
mod steps;

use std::collections::BTreeSet;

use fence_core::ErrorCode;
use fence_core::ports::Attempt;
use stateright::{Model, Property};

use crate::check;
use crate::history::{Given, History};
use crate::ledger::Ledger;
use crate::mutants::Mutant;

pub use properties::SITUATIONS;
use steps::lock_step;

/// What a client wants to write.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// On which resource.
    pub resource: u8,
    /// Its sequence number.
    pub sequence: Option<i64>,
    /// Whether it carries the idempotency key, which is the same for all clients.
    pub keyed: bool,
    /// What it demands.
    pub condition: Condition,
    /// A token to present that was never given to it.
    pub forged: Option<i64>,
}

/// What a write demands of what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// The resource is as its client read it when it got its lock.
    AsRead,
    /// The object does not exist.
    Absent,
}

/// A plain write on the first resource.
pub const PLAIN: Write =
    Write { resource: 0, sequence: None, keyed: false, condition: Condition::None, forged: None };

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What its lock covers.
    pub resources: &'static [u8],
    /// The client whose lock is transferred to it, if it does not take its own.
    pub from: Option<u8>,
    /// Its writes, in this order, each sent whether or not the one before has been answered.
    pub writes: &'static [Write],
}

/// How often things may happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Numbers of the mint.
    pub mints: u8,
    /// Locks that expire.
    pub expiries: u8,
    /// Connections that are lost.
    pub losses: u8,
    /// Renewals.
    pub renewals: u8,
    /// Releases.
    pub releases: u8,
    /// Breaks.
    pub breaks: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Locks {
    /// What the clients do.
    pub clients: [Plan; 3],
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// How often something was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sending {
    /// For the first time.
    First,
    /// Again, under the same id, since the answer was lost.
    Again,
    /// No longer wanted.
    Bury,
}

impl Sending {
    /// The same for an act.
    pub fn attempt(self) -> Attempt {
        match self {
            Self::First => Attempt::First,
            Self::Again => Attempt::Rerun,
            Self::Bury => Attempt::Bury,
        }
    }
}

/// How a client stands with its lock, as far as its gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Not asked for, or refused: it may ask (again).
    Idle,
    /// Asked for with this number.
    Asked(u8, Sending),
    /// The connection was lost; whether the lock is still wanted.
    Unknown(u8, bool),
    /// Given, with this token; the versions are what it read.
    Given(i64, [i64; 2]),
    /// It was given, and was over when the gateway found out.
    Over,
    /// Told that it was not given and never will be.
    Never,
}

/// How a write stands, as far as its gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Not sent.
    Unsent,
    /// Sent, and waited for.
    Asked(Sending),
    /// The connection was lost; whether its client still waits. If it has gone, it was told 503.
    Unknown(bool),
    /// 2xx.
    Applied,
    /// 2xx, of an earlier write with the same key.
    Replayed,
    /// 4xx.
    Refused(ErrorCode),
    /// It had no effect and never will.
    Buried,
}

/// What is on its way to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// A seal for this client, with this number.
    Seal(u8, u8, Sending),
    /// The write of this client with this index.
    Write(u8, u8, Sending),
    /// One that was admitted and has not been carried out yet (mutant).
    Effect(u8, u8, Sending),
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The ledger.
    pub ledger: Ledger,
    /// The last number of the mint.
    pub number: u8,
    /// The lock of each client.
    pub claims: [Claim; 3],
    /// The writes of each client.
    pub writes: [[Fate; 2]; 3],
    /// What is on its way.
    pub wire: BTreeSet<Message>,
    /// What may still happen.
    pub left: Bounds,
    /// What happened.
    pub history: History,
    /// What came of the last step.
    pub last: Option<Event>,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A renewal revived an expired lock.
    Revived,
    /// A seal whose answer had been lost was found to have been done.
    SealFound,
    /// The same of a write.
    WriteFound,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client's gateway gets a number from the mint and sends the seal.
    Ask(u8),
    /// A client sends its next write.
    Send(u8, u8),
    /// Something arrives at the ledger.
    Arrive(Message),
    /// The connection that a client's seal was sent on is lost.
    LoseSeal(u8),
    /// The connection that a write was sent on is lost.
    LoseWrite(u8, u8),
    /// A seal is sent again, or buried.
    Resend(u8, Sending),
    /// A write is sent again, or buried.
    Rewrite(u8, u8, Sending),
    /// A gateway looks an operation up instead (mutant).
    LookUp(u8, u8),
    /// The lock of a resource expires.
    Expire(u8),
    /// A client's renewal arrives.
    Renew(u8),
    /// A client's release arrives.
    Release(u8),
    /// An operator breaks the lock of a resource: soon, or at once.
    Break(u8, bool),
    /// A break comes due.
    Due(u8),
}

impl Model for Locks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            ledger: Ledger::default(),
            number: 0,
            claims: [Claim::Idle; 3],
            writes: [[Fate::Unsent; 2]; 3],
            wire: BTreeSet::new(),
            left: self.bounds,
            history: History::default(),
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.wire.iter().copied().map(Action::Arrive));
        for client in 0..3 {
            self.lock_actions(state, client, actions);
            self.write_actions(state, client, actions);
        }
        for index in 0..2 {
            self.resource_actions(state, index, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Ask(client) => {
                state.left.mints -= 1;
                state.number += 1;
                let number = state.number;
                if self.is(Mutant::SealAtFirstWrite) {
                    let version = state.ledger.version(0);
                    let token = i64::from(number);
                    state.claims[usize::from(client)] = Claim::Given(token, [version, 0]);
                    state.history.given.push(Given { resource: 0, token, version });
                } else {
                    state.wire.insert(Message::Seal(client, number, Sending::First));
                    state.claims[usize::from(client)] = Claim::Asked(number, Sending::First);
                }
            }
            Action::Send(client, index) => {
                state.wire.insert(Message::Write(client, index, Sending::First));
                let fate = &mut state.writes[usize::from(client)][usize::from(index)];
                *fate = Fate::Asked(Sending::First);
                if self.is(Mutant::KeyReadBeforeLock)
                    && self.plan(client).writes[usize::from(index)].keyed
                    && !state.ledger.rows().keys.is_empty()
                {
                    *fate = Fate::Replayed;
                    state.wire.remove(&Message::Write(client, index, Sending::First));
                }
            }
            Action::Arrive(message) => {
                state.wire.remove(&message);
                match message {
                    Message::Seal(client, number, sending) => {
                        self.seal(state, client, number, sending);
                    }
                    Message::Write(client, index, sending) => {
                        self.write(state, (client, index, sending), false);
                    }
                    Message::Effect(client, index, sending) => {
                        self.write(state, (client, index, sending), true);
                    }
                }
            }
            Action::LoseSeal(client) => {
                let claim = &mut state.claims[usize::from(client)];
                let Claim::Asked(number, sending) = *claim else { return None };
                *claim = Claim::Unknown(number, sending != Sending::Bury);
                state.left.losses -= 1;
            }
            Action::LoseWrite(client, index) => {
                let fate = &mut state.writes[usize::from(client)][usize::from(index)];
                *fate = Fate::Unknown(*fate != Fate::Asked(Sending::Bury));
                state.left.losses -= 1;
            }
            Action::Resend(client, sending) => {
                let claim = &mut state.claims[usize::from(client)];
                let Claim::Unknown(number, _) = *claim else { return None };
                *claim = Claim::Asked(number, sending);
                state.wire.insert(Message::Seal(client, number, sending));
            }
            Action::Rewrite(client, index, sending) => {
                state.writes[usize::from(client)][usize::from(index)] = Fate::Asked(sending);
                state.wire.insert(Message::Write(client, index, sending));
            }
            Action::LookUp(client, index) => {
                let found = state.history.has(client * 2 + index);
                let fate = if found { Fate::Applied } else { Fate::Buried };
                state.writes[usize::from(client)][usize::from(index)] = fate;
            }
            Action::Expire(_)
            | Action::Renew(_)
            | Action::Release(_)
            | Action::Break(..)
            | Action::Due(_) => lock_step(state, action)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        check::properties(properties::invariants(), SITUATIONS, self.situations)
    }
}
