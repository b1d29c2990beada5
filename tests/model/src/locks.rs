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

use std::collections::BTreeSet;
use std::time::Duration;

use fence_core::acts;
use fence_core::etag::ObjectCondition;
use fence_core::lock::LockId;
use fence_core::ports::{
    Attempt, BreakItem, Effect, IdempotencyKey, Payload, ReleaseItem, RenewItem, RenewVerdict,
    SealKind, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::rule::Hold;
use fence_core::{ErrorCode, LockEnd, Token};
use jiff::SignedDuration;
use stateright::{Model, Property};

use crate::history::{Given, History, Written};
use crate::ledger::{
    self, Ledger, commit_unjudged, lock_id, now, operation_id, resource, seal_item,
};
use crate::mutants::Mutant;

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
    fn attempt(self) -> Attempt {
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

impl Locks {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn plan(&self, client: u8) -> &Plan {
        &self.clients[usize::from(client)]
    }

    /// What a write of a client presents; `None` while it has no token.
    fn item(&self, state: &State, client: u8, index: u8, sending: Sending) -> Option<WriteItem> {
        let write = &self.plan(client).writes[usize::from(index)];
        let (token, read) = match (write.forged, state.claims[usize::from(client)]) {
            (Some(token), _) => (token, [0, 0]),
            (None, Claim::Given(token, read)) => (token, read),
            (None, _) => return None,
        };
        let as_read = write.condition == Condition::AsRead;
        Some(WriteItem {
            operation: operation_id(client * 2 + index),
            resource: resource(write.resource),
            token: Token::new(token)?,
            lock: write.forged.is_none().then_some(lock_id(client)),
            sequence: write.sequence.filter(|_| !self.is(Mutant::NoSequence)),
            idempotency: write
                .keyed
                .then(|| IdempotencyKey { key: "k".into(), fingerprint: [0; 32] }),
            object_condition: (write.condition == Condition::Absent)
                .then_some(ObjectCondition::Absent),
            resource_version: as_read.then_some(read[usize::from(write.resource)]),
            effect: Effect::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::NONE,
                size: 0,
                sha256: [0; 32],
            },
            attempt: sending.attempt(),
        })
    }

    /// A seal arrives at the ledger.
    fn seal(&self, state: &mut State, client: u8, number: u8, sending: Sending) {
        let plan = self.plan(client);
        let id = lock_id(client);
        let mut item = seal_item(id, client, plan.resources, Some(i64::from(number)));
        item.attempt = match sending {
            Sending::Again if self.is(Mutant::RefusedButNotBuried) => Attempt::First,
            _ => sending.attempt(),
        };
        if let Some(from) = plan.from {
            item.kind = SealKind::Transfer { from: lock_id(from) };
        }
        let verdict = if self.is(Mutant::OneByOne) {
            one_by_one(&mut state.ledger, &item)
        } else {
            state.ledger.act(|rows| acts::seal(rows, &item, now(0)))
        };
        let waits = state.claims[usize::from(client)] == Claim::Asked(number, sending);
        if !waits {
            return;
        }
        let again = sending == Sending::Again && matches!(verdict, SealVerdict::Again(_));
        state.last = again.then_some(Event::SealFound);
        state.claims[usize::from(client)] = match verdict {
            SealVerdict::Sealed(grant, _) | SealVerdict::Again(grant) => {
                let mut read = [0, 0];
                for (index, version) in plan.resources.iter().zip(&grant.versions) {
                    read[usize::from(*index)] = *version;
                    let (resource, token, version) = (*index, grant.token.get(), *version);
                    state.history.given.push(Given { resource, token, version });
                }
                Claim::Given(grant.token.get(), read)
            }
            SealVerdict::Ended(LockEnd::Superseded | LockEnd::Broken) if plan.from.is_none() => {
                Claim::Over
            }
            _ if sending == Sending::First => Claim::Idle,
            _ => Claim::Never,
        };
    }

    /// A write arrives at the ledger. With `checked` it has passed the rule before (mutant).
    fn write(&self, state: &mut State, message: (u8, u8, Sending), checked: bool) {
        let (client, index, sending) = message;
        let Some(item) = self.item(state, client, index, sending) else { return };
        let write = &self.plan(client).writes[usize::from(index)];
        let (token, operation) = (item.token.get(), client * 2 + index);
        if self.is(Mutant::SealAtFirstWrite)
            && !state.ledger.rows().locks.contains_key(&lock_id(client))
        {
            let seal = seal_item(lock_id(client), client, self.plan(client).resources, Some(token));
            state.ledger.act(|rows| acts::seal(rows, &seal, now(0)));
        }
        let sealed = state.ledger.fence(write.resource);
        let past_the_rule = checked || (self.is(Mutant::AtLeastTheFence) && token > sealed);
        let commit = |rows: &mut acts::Rows| match past_the_rule {
            true => commit_unjudged(rows, &item),
            false if self.is(Mutant::KeyReadBeforeLock) => {
                let keys = std::mem::take(&mut rows.keys);
                let verdict = acts::commit(rows, &item, now(0));
                rows.keys.extend(keys);
                verdict
            }
            false => acts::commit(rows, &item, now(0)),
        };
        let known = state.history.has(operation);
        let verdict = if self.is(Mutant::CheckThenWrite) && !checked {
            let verdict = state.ledger.clone().act(commit);
            if matches!(verdict, WriteVerdict::Applied { replayed: false, .. }) {
                state.wire.insert(Message::Effect(client, index, sending));
                return;
            }
            verdict
        } else {
            state.ledger.act(commit)
        };
        if let WriteVerdict::Applied { applied, replayed: false } = &verdict
            && !known
        {
            state.history.written.push(Written {
                operation,
                resource: write.resource,
                version: applied.version.unwrap_or(0),
                token,
                sealed,
                sequence: write.sequence,
                keyed: write.keyed,
            });
        }
        let fate = &mut state.writes[usize::from(client)][usize::from(index)];
        if *fate == Fate::Asked(sending) {
            state.last = known.then_some(Event::WriteFound);
            *fate = match verdict {
                WriteVerdict::Applied { replayed: false, .. } => Fate::Applied,
                WriteVerdict::Applied { replayed: true, .. } => Fate::Replayed,
                WriteVerdict::Refused(refusal) => Fate::Refused(refusal.code()),
                WriteVerdict::KeyReused { .. } => Fate::Refused(ErrorCode::IdempotencyKeyReused),
                WriteVerdict::Buried => Fate::Buried,
                WriteVerdict::UploadExpired | WriteVerdict::Busy => Fate::Unknown(true),
            };
        }
    }

    /// What a client may do with its lock.
    fn lock_actions(&self, state: &State, client: u8, actions: &mut Vec<Action>) {
        let (left, plan) = (&state.left, self.plan(client));
        let claim = state.claims[usize::from(client)];
        let looks_free = || plan.resources.iter().all(|index| !state.ledger.is_held(*index));
        let may_ask = match plan.from {
            Some(from) => matches!(state.claims[usize::from(from)], Claim::Given(..)),
            None => self.is(Mutant::SealAtFirstWrite) || looks_free(),
        };
        match claim {
            Claim::Idle if left.mints > 0 && may_ask && !plan.resources.is_empty() => {
                actions.push(Action::Ask(client));
            }
            Claim::Asked(..) if left.losses > 0 => actions.push(Action::LoseSeal(client)),
            Claim::Unknown(_, wanted) => {
                // A caller that has gone does not come back.
                if wanted {
                    actions.push(Action::Resend(client, Sending::Again));
                }
                actions.push(Action::Resend(client, Sending::Bury));
            }
            Claim::Given(..) => {
                if left.renewals > 0 {
                    actions.push(Action::Renew(client));
                }
                if left.releases > 0 {
                    actions.push(Action::Release(client));
                }
            }
            _ => {}
        }
    }

    /// What a client and its gateways may do with its writes.
    fn write_actions(&self, state: &State, client: u8, actions: &mut Vec<Action>) {
        let fates = &state.writes[usize::from(client)];
        let writes = self.plan(client).writes;
        for (index, write) in (0..).zip(writes) {
            let given = matches!(state.claims[usize::from(client)], Claim::Given(..));
            match fates[usize::from(index)] {
                Fate::Unsent if given || write.forged.is_some() => {
                    // In order: the first that was not sent yet.
                    actions.push(Action::Send(client, index));
                    break;
                }
                Fate::Unsent => break,
                Fate::Asked(_) if state.left.losses > 0 => {
                    actions.push(Action::LoseWrite(client, index));
                }
                Fate::Unknown(_) if self.is(Mutant::AbsentIsNotApplied) => {
                    actions.push(Action::LookUp(client, index));
                }
                Fate::Unknown(wanted) => {
                    if wanted {
                        actions.push(Action::Rewrite(client, index, Sending::Again));
                    }
                    actions.push(Action::Rewrite(client, index, Sending::Bury));
                }
                _ => {}
            }
        }
    }

    /// What may happen to a resource.
    fn resource_actions(&self, state: &State, index: u8, actions: &mut Vec<Action>) {
        let Some(fence) = state.ledger.rows().fences.get(&resource(index)) else { return };
        if fence.hold.stands() && fence.deadline_ms > 0 && state.left.expiries > 0 {
            actions.push(Action::Expire(index));
        }
        if fence.break_due.is_none() && fence.hold.stands() && state.left.breaks > 0 {
            actions.push(Action::Break(index, false));
            actions.push(Action::Break(index, true));
        }
        if fence.break_due.is_some_and(|due| due > now(0).wall) && fence.hold.stands() {
            actions.push(Action::Due(index));
        }
    }
}

/// The mutant's seal: one resource after the other, whatever became of the one before.
fn one_by_one(ledger: &mut Ledger, item: &fence_core::ports::SealItem) -> SealVerdict {
    ledger.act(|rows| {
        let mut verdict = SealVerdict::NotFound;
        for resource in &item.resources {
            rows.locks.remove(&item.lock);
            let one =
                fence_core::ports::SealItem { resources: vec![resource.clone()], ..item.clone() };
            verdict = acts::seal(rows, &one, now(0));
        }
        if let Some(lock) = rows.locks.get_mut(&item.lock) {
            lock.resources.clone_from(&item.resources);
        }
        verdict
    })
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
            Action::Expire(index) => {
                state.ledger.expire(index);
                state.left.expiries -= 1;
            }
            Action::Renew(client) => {
                let item = RenewItem { lock: lock_id(client), ttl: None };
                let verdict = state.ledger.act(|rows| acts::renew(rows, &item, now(0)));
                let revived = matches!(verdict, RenewVerdict::Renewed { lapsed_ms: Some(_), .. });
                state.last = revived.then_some(Event::Revived);
                state.left.renewals -= 1;
            }
            Action::Release(client) => {
                let item = ReleaseItem::from(lock_id(client));
                state.ledger.act(|rows| acts::release(rows, &item, now(0)));
                state.left.releases -= 1;
            }
            Action::Break(index, soon) => {
                let item = BreakItem {
                    resource: resource(index),
                    token: Token::new(state.ledger.fence(index))?,
                    after: Duration::from_secs(u64::from(soon)),
                    reason: String::new(),
                    request_id: String::new(),
                };
                state.ledger.act(|rows| acts::break_lock(rows, &item, now(0)));
                state.left.breaks -= 1;
            }
            Action::Due(index) => state.ledger.act(|rows| {
                if let Some(fence) = rows.fences.get_mut(&resource(index)) {
                    fence.break_due = Some(now(0).wall - SignedDuration::from_secs(1));
                }
            }),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "I1 a token in a client's hand is a grant",
                |model: &Self, state: &State| {
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
            Property::always("I4 sequences rise", |_, state: &State| {
                state.history.sequences_rise()
            }),
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
            Property::always("all resources of a lock, or none", |model: &Self, state: &State| {
                (0..3).all(|client| {
                    let grants = state.ledger.rows().grants.values();
                    let of_it = grants.filter(|grant| grant.lock == lock_id(client)).count();
                    of_it == 0 || of_it == model.plan(client).resources.len()
                })
            }),
        ];
        let wanted = SITUATIONS.iter().filter(|(name, _)| self.situations.contains(name));
        properties.extend(wanted.map(|(name, reached)| Property::sometimes(name, *reached)));
        properties
    }
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
    let locks = (0..3_u8).all(|client| {
        let id: LockId = lock_id(client);
        state.claims[usize::from(client)] != Claim::Never
            || model.plan(client).from.is_some()
            || !state.ledger.rows().locks.contains_key(&id)
    });
    writes && locks
}

/// Situations that are worth reaching, by name; each model lists those that it must reach.
pub const SITUATIONS: &[(&str, fn(&Locks, &State) -> bool)] = &[
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
        state.writes.iter().any(|fates| *fates == [Fate::Applied, Fate::Applied])
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
