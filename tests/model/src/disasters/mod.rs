//! Disasters: an etcd that is restored or wiped, so that its numbers repeat, and a Postgres that is
//! promoted or restored without its last commits, alone and both together, while three clients take turns
//! on one resource.
//!
//! A gateway reads the epoch, mints and seals in three steps; a new epoch and a re-fence take four
//! (`engine/disasters/epochs.rs`, `engine/disasters/refencing.rs`). Between any two of them any gateway may stop for a while, or
//! for ever, and anything else may happen. A gateway may begin a new epoch without cause, too.
//!
//! A write is nothing but a token here, and any token that was ever given out may arrive at any time, as often
//! as it likes: so no write has to be part of the state. The lock before a grant has always expired.
//!
//! Left out: a ledger that loses commits on its own timeline. What finds that is a position (the witness in
//! etcd, and the highest one each gateway has seen), with a gap that DESIGN admits. A restored etcd is not
//! confused with another ledger's. Lost answers, conditions, keys and ends of locks: `locks`.

mod properties;
mod steps;

use std::collections::BTreeSet;

use fence_core::acts;
use stateright::{Model, Property};

use crate::check;
use crate::ledger::{Ledger, nonce};
use crate::mutants::Mutant;

pub use properties::SITUATIONS;

/// How often things may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Grants that are begun.
    pub grants: u8,
    /// Times the ledger goes back to what it was.
    pub rollbacks: u8,
    /// Times etcd does.
    pub restores: u8,
    /// Copies of the ledger that are kept to go back to, one at a time.
    pub copies: u8,
    /// Copies of etcd.
    pub snapshots: u8,
    /// New epochs that a gateway begins.
    pub switches: u8,
    /// Gateways that die while they open an epoch; another one begins.
    pub deaths: u8,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Disasters {
    /// How often things may happen.
    pub bounds: Bounds,
    /// The situations that must be reached; see [`SITUATIONS`].
    pub situations: &'static [&'static str],
    /// How it is broken, if it is.
    pub mutant: Option<Mutant>,
}

/// What etcd holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Etcd {
    /// The last revision.
    pub number: u8,
    /// The nonce; `None` after it was wiped.
    pub nonce: Option<u8>,
    /// Of the witness: the highest base of an epoch that was opened.
    pub base: i64,
    /// Of the witness: the generation of the ledger.
    pub generation: i64,
}

/// A grant on its way through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grant {
    /// Not asked for.
    Idle,
    /// The gateway knows of this epoch and its nonce.
    Known(i64, u8),
    /// It has this number, minted under this epoch.
    Minted(i64, u8),
    /// The client has this token.
    Given(i64),
}

/// A gateway on its way to open an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opener {
    /// Not begun.
    Idle,
    /// It has seen etcd like this.
    Saw(Etcd),
    /// It has read the ledger after that: this nonce, base and generation are to go in.
    Read(Etcd, u8, i64, i64),
    /// This nonce is in.
    Put(u8),
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The ledger that is in charge.
    pub ledger: Ledger,
    /// The timeline of its server.
    pub timeline: u8,
    /// An older state of the ledger, which a standby or a backup has.
    pub copy: Option<Ledger>,
    /// The mint.
    pub etcd: Etcd,
    /// An older state of it.
    pub snapshot: Etcd,
    /// The grant of each client.
    pub grants: [Grant; 3],
    /// How many grants there have been, for ids.
    pub rounds: u8,
    /// A gateway that opens an epoch.
    pub opener: Opener,
    /// A gateway that re-fences has seen etcd like this.
    pub refencer: Option<Etcd>,
    /// The last nonce that anybody made up.
    pub nonces: u8,
    /// How many re-fences there have been, whatever was lost since: what the calendar knows.
    pub refences: u8,
    /// What may still happen.
    pub left: Bounds,
    /// All tokens that were ever given out.
    pub given: BTreeSet<i64>,
    /// What must not happen, and did.
    pub wrong: Wrong,
    /// What came of the last step.
    pub last: Option<Event>,
}

impl State {
    fn highest_given(&self) -> i64 {
        self.given.last().copied().unwrap_or(0)
    }
}

/// What must not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// A token was given out that is not above all that were given out before.
    pub fell: bool,
    /// A write took effect under a token below one that had been given out.
    pub stale: bool,
    /// A number was sealed in another epoch than it was minted in.
    pub crossed: bool,
    /// A ledger that had lost commits took something.
    pub taken: bool,
}

/// What may come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A write took effect under a token of an earlier epoch.
    Undisturbed,
    /// A write was refused as void.
    Void,
    /// A seal was refused since its number does not rise.
    TooLow,
    /// A seal was refused since the epoch had moved on.
    Moved,
    /// An act was refused since the ledger must be re-fenced.
    Called,
    /// A number of a restored etcd was the same as one that was sealed before.
    Repeated,
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client's gateway reads the epoch.
    Begin(u8),
    /// It mints.
    Mint(u8),
    /// It seals, and answers.
    Seal(u8),
    /// A write with this token arrives.
    Write(i64),
    /// A copy of the ledger is kept.
    Copy,
    /// The ledger is put back to it, on a new timeline.
    Rollback,
    /// A snapshot of etcd is kept.
    Snapshot,
    /// Etcd is put back to it, or begins empty.
    Restore,
    /// A gateway begins a new epoch in place of this one.
    Switch(i64),
    /// A gateway that opens an epoch reads etcd.
    Look,
    /// It reads the ledger.
    Compare,
    /// It puts the nonce into etcd, in place of what it saw.
    Put,
    /// It tells the ledger.
    Open,
    /// It dies.
    Die,
    /// A gateway that re-fences reads etcd.
    Count,
    /// It re-fences the ledger.
    Refence,
}

impl Model for Disasters {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let etcd = Etcd { number: 1, nonce: Some(0), base: 0, generation: 0 };
        vec![State {
            ledger: Ledger::default(),
            timeline: 0,
            copy: None,
            etcd,
            snapshot: Etcd::default(),
            grants: [Grant::Idle; 3],
            rounds: 0,
            opener: Opener::Idle,
            refencer: None,
            nonces: 0,
            refences: 0,
            left: self.bounds,
            given: BTreeSet::new(),
            wrong: Wrong::default(),
            last: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..3_u8 {
            match state.grants[usize::from(client)] {
                Grant::Known(..) => actions.push(Action::Mint(client)),
                Grant::Minted(..) => actions.push(Action::Seal(client)),
                _ if state.left.grants > 0 && state.ledger.rows().guard.open => {
                    actions.push(Action::Begin(client));
                    // The clients are alike, so those that have not begun come in order.
                    if state.grants[usize::from(client)] == Grant::Idle {
                        break;
                    }
                }
                _ => {}
            }
        }
        actions.extend(state.given.iter().copied().map(Action::Write));
        if state.left.switches > 0 && state.ledger.rows().guard.open {
            actions.push(Action::Switch(state.ledger.rows().guard.epoch));
        }
        Self::disasters(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = State { last: None, ..last.clone() };
        let state = &mut next;
        match action {
            Action::Begin(client) => {
                let guard = &state.ledger.rows().guard;
                let carried = (0..=state.nonces).find(|number| nonce(*number) == guard.nonce)?;
                state.grants[usize::from(client)] = Grant::Known(guard.epoch, carried);
                state.left.grants -= 1;
            }
            Action::Mint(client) => {
                let Grant::Known(epoch, carried) = state.grants[usize::from(client)] else {
                    return None;
                };
                self.mint(state, client, epoch, carried);
            }
            Action::Seal(client) => {
                let Grant::Minted(epoch, number) = state.grants[usize::from(client)] else {
                    return None;
                };
                // When the lock before it expires is a matter of `locks`; here it has.
                state.ledger.expire(0);
                self.seal(state, client, epoch, number);
            }
            Action::Write(token) => self.write(state, token),
            Action::Copy => {
                state.copy = Some(state.ledger.clone());
                state.left.copies -= 1;
            }
            Action::Rollback => {
                state.ledger = state.copy.clone()?;
                state.timeline += 1;
                state.left.rollbacks -= 1;
                if state.left.rollbacks == 0 {
                    state.copy = None;
                }
            }
            Action::Snapshot => {
                state.snapshot = state.etcd;
                state.left.snapshots -= 1;
            }
            Action::Restore => {
                state.etcd = state.snapshot;
                state.left.restores -= 1;
                if state.left.restores == 0 {
                    state.snapshot = Etcd::default();
                }
            }
            Action::Switch(expected) => {
                state.left.switches -= 1;
                if !self.passes(state) {
                    return None;
                }
                state.nonces += 1;
                let (highest, new) = (state.ledger.highest(), nonce(state.nonces));
                state.ledger.act(|rows| {
                    acts::switch_epoch(&mut rows.guard, highest, expected, new);
                });
            }
            Action::Look | Action::Compare | Action::Put | Action::Open => {
                Self::open(state, action)?;
            }
            Action::Die => {
                state.opener = Opener::Idle;
                state.left.deaths -= 1;
            }
            Action::Count => state.refencer = Some(state.etcd),
            Action::Refence => {
                let head = state.refencer?;
                self.refence(state, head);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        check::properties(properties::invariants(), SITUATIONS, self.situations)
    }
}
