//! Rules of access: two principals on one resource, through two gateways, each of which knows some rules that were once
//! in force. Rules may be put in force between any two steps.
//!
//! A gateway allows a request by the rules that it knows; it arrives at the ledger at any later time, or never, and
//! says who asks and under which rules that was allowed. If these are in force no more, the gateway asks newer ones before
//! it sends the request again. One whose answer was lost it only asks after. Between any two steps a gateway may stop for
//! as long as it likes, and the ledger may go back, so that it forgets rules.
//!
//! A token and the id of its lock are no secrets: as soon as a principal was told of them, the other one tries what they
//! are good for. Left out: what rules say and how they are read (`gateway/access`), who a caller is, reads (they have no
//! effect), requests that a gateway refuses by rules that it knows to begin with, and a ledger without rules.

mod arrivals;
pub mod plans;
mod properties;
mod steps;

use std::collections::BTreeSet;

use fence_core::ErrorCode;
use stateright::{Model, Property};

use crate::check;
use crate::ledger::Ledger;
use crate::locks::Sending;
use crate::mutants::Mutant;

pub use properties::SITUATIONS;

/// What rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Says {
    /// The principal that may do nothing.
    pub denied: Option<u8>,
    /// The principal that has the role by which writers are named.
    pub in_role: Option<u8>,
}

/// Rules that were once in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    /// Their generation, as the ledger counts. It is what gateways and the ledger go by.
    pub generation: i64,
    /// Which they were of all that were ever put in force. No decision of a gateway or the ledger reads it.
    pub number: u8,
    /// What they say.
    pub says: Says,
}

/// A lock that may be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    /// Whose it is to be.
    pub principal: u8,
    /// Who else may write under its token.
    pub writers: Writers,
    /// The lock that hands over to it, if it is not taken.
    pub from: Option<u8>,
}

/// Who may write under a token besides its principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Nobody.
    None,
    /// This principal.
    Named(u8),
    /// Whoever has the role.
    InRole,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// This lock.
    Seal(u8),
    /// A write under its token.
    Write(u8),
    /// That it is renewed.
    Renew(u8),
    /// The same, by asking for it once more under its id.
    Reenter(u8),
    /// That it ends.
    Release(u8),
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The principal that sends it, after those before it.
    pub by: u8,
    /// The gateway that it is sent through.
    pub through: u8,
    /// What it asks for.
    pub act: Act,
}

/// What the principals do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The locks.
    pub locks: &'static [Lock],
    /// The requests.
    pub requests: &'static [Request],
}

/// How often things may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Rules that are put in force.
    pub applies: u8,
    /// Answers that are lost.
    pub losses: u8,
    /// Locks that expire.
    pub expiries: u8,
    /// Times the ledger goes back.
    pub rollbacks: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Access {
    /// What the principals do.
    pub plan: Plan,
    /// What the rules are that may be put in force; the first are in force to begin with.
    pub rules: &'static [Says],
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// How a request stands, as far as its gateway knows. Rules are those that allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Not sent, or refused for now.
    Unsent,
    /// Sent, and waited for.
    Asked(Rules, Sending),
    /// The answer was lost; whether it is still wanted.
    Unknown(Rules, bool),
    /// Nothing was decided, since these rules are in force no more.
    Moved(Rules),
    /// 2xx.
    Applied,
    /// 403, by rules that came into force after it had been allowed.
    Denied,
    /// 4xx, by the ledger.
    Refused(ErrorCode),
    /// It had no effect and never will.
    Buried,
}

/// Something that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The request.
    pub request: u8,
    /// The rules that allowed it.
    pub allowed: Rules,
    /// The rules that were in force.
    pub in_force: Rules,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Newer rules allowed a request, too.
    AllowedAgain,
    /// Something arrived that was allowed under rules which the ledger has forgotten.
    CameFromTheFuture,
    /// Something whose rules had moved was found to have been done.
    FoundSinceMoved,
}

/// What is on its way to the ledger: a request, the rules that allowed it, how often it was sent.
pub type Message = (u8, Rules, Sending);

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The ledger.
    pub ledger: Ledger,
    /// The rules that are in force: those that the ledger holds.
    pub in_force: Rules,
    /// The timeline of the ledger's server.
    pub timeline: u8,
    /// An older state of the ledger, with its rules.
    pub copy: Option<(Ledger, Rules)>,
    /// The rules that each gateway knows.
    pub gateways: [Rules; 2],
    /// The tokens that somebody was told, by lock.
    pub tokens: [Option<i64>; 3],
    /// The requests.
    pub fates: Vec<Fate>,
    /// What is on its way.
    pub wire: BTreeSet<Message>,
    /// Which requests took effect, by number.
    pub done: u16,
    /// What may still happen.
    pub left: Bounds,
    /// What took effect in the last step.
    pub effect: Option<Effect>,
    /// What else came of it.
    pub last: Option<Event>,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A gateway allows a request and sends it.
    Ask(u8),
    /// The same for one that older rules had allowed; or it denies it.
    AskAgain(u8),
    /// Something arrives at the ledger.
    Arrive(Message),
    /// The answer to a request is lost.
    Lose(u8),
    /// A request is sent again, or buried.
    Resend(u8, Sending),
    /// Rules are put in force.
    Apply(Says),
    /// A gateway reads the rules that are in force.
    Learn(u8),
    /// The lock expires.
    Expire,
    /// The state of the ledger is kept.
    Copy,
    /// The ledger goes back to it.
    Rollback,
    /// It is re-fenced.
    Refence,
}

impl Model for Access {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::default();
        let rules = Rules { generation: 1, number: 0, says: self.rules[0] };
        ledger.act(|rows| rows.guard.rules = rules.generation);
        vec![State {
            ledger,
            in_force: rules,
            timeline: 0,
            copy: None,
            gateways: [rules; 2],
            tokens: [None; 3],
            fates: vec![Fate::Unsent; self.plan.requests.len()],
            wire: BTreeSet::new(),
            done: 0,
            left: self.bounds,
            effect: None,
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in self.numbers() {
            self.request_actions(state, number, actions);
        }
        self.ledger_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { effect: None, last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Arrive(message) => {
                state.wire.remove(&message);
                self.arrive(state, message)?;
            }
            Action::Ask(_) | Action::AskAgain(_) | Action::Lose(_) | Action::Resend(..) => {
                self.request_step(state, action)?;
            }
            Action::Apply(_)
            | Action::Learn(_)
            | Action::Expire
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
