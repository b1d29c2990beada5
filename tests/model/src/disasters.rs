//! Disasters: an etcd that is restored or wiped, so that its numbers repeat, and a Postgres that is
//! promoted or restored without its last commits, alone and both together, while three clients take turns
//! on one resource.
//!
//! A gateway reads the epoch, mints and seals in three steps; a new epoch and a re-fence take four
//! (`engine/epochs.rs`, `engine/refencing.rs`). Between any two of them any gateway may stop for a while, or
//! for ever, and anything else may happen. A gateway may begin a new epoch without cause, too.
//!
//! A write is nothing but a token here, and any token that was ever given out may arrive at any time, as often
//! as it likes: so no write has to be part of the state. The lock before a grant has always expired.
//!
//! Left out: a ledger that loses commits on its own timeline. What finds that is a position (the witness in
//! etcd, and the highest one each gateway has seen), with a gap that DESIGN admits. A restored etcd is not
//! confused with another ledger's. Lost answers, conditions, keys and ends of locks: `locks`.

use std::collections::BTreeSet;

use fence_core::acts;
use fence_core::ports::{
    Effect, Payload, REFENCE_JUMP, Refence, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{ErrorCode, Token};
use stateright::{Model, Property};

use crate::ledger::{
    self, Ledger, commit_unjudged, lock_id, nonce, now, operation_id, resource, seal_item,
};
use crate::mutants::Mutant;

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

/// What must not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// A token was given out that is not above all that were given out before.
    pub fell: bool,
    /// A write took effect under a token below one that had been given out.
    pub stale: bool,
    /// A write took effect under another token than the one sealed last.
    pub unfenced: bool,
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

impl Disasters {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The guard: whether the ledger takes an act. What gets through although commits were lost is noted.
    fn passes(&self, state: &mut State) -> bool {
        let lost = state.ledger.timeline != state.timeline;
        if lost && !self.is(Mutant::NoTimelineGuard) {
            state.last = Some(Event::Called);
            return false;
        }
        true
    }

    fn mint(&self, state: &mut State, client: u8, epoch: i64, carried: u8) {
        state.grants[usize::from(client)] = Grant::Idle;
        if state.etcd.nonce == Some(carried) || self.is(Mutant::NumberMayFall) {
            state.etcd.number += 1;
            let number = state.etcd.number;
            let token = state.ledger.rows().guard.base + i64::from(number);
            state.last = state.ledger.is_sealed(0, token).then_some(Event::Repeated);
            state.grants[usize::from(client)] = Grant::Minted(epoch, number);
        }
    }

    fn seal(&self, state: &mut State, client: u8, epoch: i64, number: u8) {
        state.grants[usize::from(client)] = Grant::Idle;
        if !self.passes(state) {
            return;
        }
        let now_epoch = state.ledger.rows().guard.epoch;
        if now_epoch != epoch && !self.is(Mutant::NoEpoch) {
            state.last = Some(Event::Moved);
            return;
        }
        state.rounds += 1;
        let item = seal_item(lock_id(state.rounds), client, &[0], Some(i64::from(number)));
        let verdict = state.ledger.act(|rows| {
            if self.is(Mutant::NumberMayFall) {
                rows.fences.clear();
            }
            acts::seal(rows, &item, now(0))
        });
        match verdict {
            SealVerdict::Sealed(grant, _) => {
                let token = grant.token.get();
                state.wrong.fell |= token <= highest(&state.given);
                state.wrong.crossed |= now_epoch != epoch;
                state.wrong.taken |= state.ledger.timeline != state.timeline;
                state.given.insert(token);
                state.grants[usize::from(client)] = Grant::Given(token);
            }
            SealVerdict::NumberTooLow => state.last = Some(Event::TooLow),
            _ => {}
        }
    }

    fn write(&self, state: &mut State, token: i64) {
        if !self.passes(state) {
            return;
        }
        let Some(presented) = Token::new(token) else { return };
        let item = WriteItem {
            operation: operation_id(0),
            resource: resource(0),
            token: presented,
            lock: None,
            sequence: None,
            idempotency: None,
            object_condition: None,
            resource_version: None,
            effect: Effect::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::NONE,
                size: 0,
                sha256: [0; 32],
            },
            attempt: fence_core::ports::Attempt::First,
        };
        let sealed = state.ledger.fence(0);
        let guard = state.ledger.rows().guard.clone();
        let verdict = state.ledger.act(|rows| {
            let verdict = if self.is(Mutant::AtLeastTheFence) && token > sealed {
                commit_unjudged(rows, &item)
            } else if self.is(Mutant::NoFloor) {
                rows.guard.floor = 0;
                let verdict = acts::commit(rows, &item, now(0));
                rows.guard.floor = guard.floor;
                verdict
            } else {
                acts::commit(rows, &item, now(0))
            };
            // What became of a write is a matter of `locks`.
            rows.operations.clear();
            rows.objects.clear();
            rows.fences.values_mut().for_each(|fence| (fence.version, fence.objects) = (0, 0));
            verdict
        });
        match verdict {
            WriteVerdict::Applied { .. } => {
                state.wrong.stale |= token < highest(&state.given);
                state.wrong.unfenced |= token != sealed;
                state.wrong.taken |= state.ledger.timeline != state.timeline;
                state.last = (token <= guard.base).then_some(Event::Undisturbed);
            }
            WriteVerdict::Refused(refusal) if refusal.code() == ErrorCode::FenceTokenVoid => {
                state.last = Some(Event::Void);
            }
            _ => {}
        }
    }

    fn refence(&self, state: &mut State, head: Etcd) {
        state.refencer = None;
        if state.ledger.timeline == state.timeline {
            return;
        }
        state.nonces += 1;
        state.refences += 1;
        // The calendar: more than one jump for each re-fence that there can have been.
        let reached = match self.is(Mutant::NoCalendar) {
            true => 0,
            false => i64::from(state.refences) * REFENCE_JUMP,
        };
        let refence = Refence {
            nonce: nonce(state.nonces),
            number: i64::from(head.number),
            known_base: head.base.max(reached),
            known_generation: head.generation,
            why: String::new(),
            forced: true,
        };
        let highest = state.ledger.highest();
        state.ledger.act(|rows| {
            acts::refence(&mut rows.guard, highest, &refence);
            if self.is(Mutant::NoJump) {
                let jump = REFENCE_JUMP + reached;
                (rows.guard.base, rows.guard.floor) =
                    (rows.guard.base - jump, rows.guard.floor - jump);
            }
        });
        state.ledger.timeline = state.timeline;
    }

    /// The steps of a gateway that opens an epoch.
    fn open(state: &mut State, action: Action) -> Option<()> {
        let guard = state.ledger.rows().guard.clone();
        let carried = |id: uuid::Uuid| (0..=state.nonces).find(|number| nonce(*number) == id);
        state.opener = match (action, state.opener) {
            (Action::Look, _) => Opener::Saw(state.etcd),
            (Action::Compare, Opener::Saw(_)) if guard.open => Opener::Idle,
            // A witness that was further on: the ledger has lost commits, and waits for a re-fence.
            (Action::Compare, Opener::Saw(head)) if head.generation > guard.generation => {
                Opener::Idle
            }
            (Action::Compare, Opener::Saw(head)) => match carried(guard.nonce)? {
                new if head.nonce == Some(new) => Opener::Put(new),
                new => Opener::Read(head, new, guard.base, guard.generation),
            },
            (Action::Put, Opener::Read(head, new, base, generation)) => {
                let same = (state.etcd.nonce, state.etcd.base, state.etcd.generation)
                    == (head.nonce, head.base, head.generation);
                if same {
                    state.etcd.number += 1;
                    state.etcd.nonce = Some(new);
                    state.etcd.base = state.etcd.base.max(base);
                    state.etcd.generation = generation;
                    Opener::Put(new)
                } else {
                    Opener::Idle
                }
            }
            (Action::Open, Opener::Put(new)) => {
                state.ledger.act(|rows| {
                    rows.guard.open |= rows.guard.nonce == nonce(new);
                });
                Opener::Idle
            }
            _ => return None,
        };
        Some(())
    }

    fn disasters(state: &State, actions: &mut Vec<Action>) {
        let left = &state.left;
        let sound = state.ledger.timeline == state.timeline;
        if left.copies > 0 && left.rollbacks > 0 && sound {
            actions.push(Action::Copy);
        }
        if left.rollbacks > 0 && state.copy.is_some() {
            actions.push(Action::Rollback);
        }
        if left.snapshots > 0 && left.restores > 0 && state.snapshot != state.etcd {
            actions.push(Action::Snapshot);
        }
        if left.restores > 0 && state.snapshot != state.etcd {
            actions.push(Action::Restore);
        }
        match state.opener {
            Opener::Idle if !state.ledger.rows().guard.open => actions.push(Action::Look),
            Opener::Idle => {}
            Opener::Saw(_) => actions.push(Action::Compare),
            Opener::Read(..) => actions.push(Action::Put),
            Opener::Put(_) => actions.push(Action::Open),
        }
        if left.deaths > 0 && state.opener != Opener::Idle {
            actions.push(Action::Die);
        }
        match state.refencer {
            Some(_) => actions.push(Action::Refence),
            None if state.ledger.timeline != state.timeline => actions.push(Action::Count),
            None => {}
        }
    }
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
        let mut properties = vec![
            Property::always(
                "I1 a token in a client's hand was sealed once",
                |_, state: &State| {
                    let unknown = |token| {
                        let (ledger, floor) = (&state.ledger, state.ledger.rows().guard.floor);
                        // A ledger that went back has forgotten it, and takes nothing until it is void.
                        let lost = ledger.timeline != state.timeline || token <= floor;
                        !ledger.is_sealed(0, token) && !lost
                    };
                    !state
                        .grants
                        .iter()
                        .any(|one| matches!(one, Grant::Given(token) if unknown(*token)))
                },
            ),
            Property::always("I2 a fence never falls", |_, state: &State| {
                !state.ledger.fell && !state.wrong.fell
            }),
            Property::always("I3 nothing older takes effect", |_, state: &State| {
                !state.wrong.stale
            }),
            Property::always("I6 each write is fenced", |_, state: &State| !state.wrong.unfenced),
            Property::always("I11 no seal under a past epoch", |_, state: &State| {
                !state.wrong.crossed
            }),
            Property::always("I12 a ledger that lost commits takes nothing", |_, state: &State| {
                !state.wrong.taken
            }),
        ];
        let wanted = SITUATIONS.iter().filter(|(name, _)| self.situations.contains(name));
        properties.extend(wanted.map(|(name, reached)| Property::sometimes(name, *reached)));
        properties
    }
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[(&str, fn(&Disasters, &State) -> bool)] = &[
    ("a restored etcd repeated a number", |_, state| state.last == Some(Event::Repeated)),
    ("a number was too low", |_, state| state.last == Some(Event::TooLow)),
    ("a seal came after the epoch had moved on", |_, state| state.last == Some(Event::Moved)),
    ("a holder wrote across a change of epoch", |_, state| state.last == Some(Event::Undisturbed)),
    ("a token was given out in a later epoch", |_, state| {
        state.ledger.rows().guard.epoch > 0 && given_above(state, state.ledger.rows().guard.base)
    }),
    ("a ledger that went back refused an act", |_, state| state.last == Some(Event::Called)),
    ("a write was void after a re-fence", |_, state| state.last == Some(Event::Void)),
    ("a token was given out after a re-fence", |_, state| {
        state.refences > 0 && given_above(state, state.ledger.rows().guard.floor)
    }),
    ("a token was given out after both went back", |model, state| {
        let both = state.left.rollbacks < model.bounds.rollbacks
            && state.left.restores < model.bounds.restores;
        both && state.refences > 0 && given_above(state, state.ledger.rows().guard.floor)
    }),
    ("a token was given out after a second re-fence", |_, state| {
        state.refences > 1 && given_above(state, state.ledger.rows().guard.floor)
    }),
];

fn highest(tokens: &BTreeSet<i64>) -> i64 {
    tokens.last().copied().unwrap_or(0)
}

fn given_above(state: &State, bound: i64) -> bool {
    highest(&state.given) > bound
}
