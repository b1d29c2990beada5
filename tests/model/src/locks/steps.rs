//! What the clients, gateways and the ledger do, step by step.

use std::time::Duration;

use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Attempt, BreakItem, By, Effect, IdempotencyKey, Payload, ReleaseItem, RenewItem, RenewVerdict,
    SealKind, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{ErrorCode, LockEnd, Token, acts};
use jiff::SignedDuration;

use super::{Action, Claim, Condition, Event, Fate, Locks, Message, Plan, Sending, State};
use crate::history::{Given, Written};
use crate::ledger::{
    self, Ledger, commit_unjudged, lock_id, now, operation_id, resource, seal_item,
};
use crate::mutants::Mutant;

impl Locks {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn plan(&self, client: u8) -> &Plan {
        &self.clients[usize::from(client)]
    }

    /// What a write of a client presents; `None` while it has no token.
    pub(super) fn item(
        &self,
        state: &State,
        client: u8,
        index: u8,
        sending: Sending,
    ) -> Option<WriteItem> {
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
            idempotency: write.keyed.then(|| IdempotencyKey {
                key: "k".into(),
                fingerprint: [0; 32],
                kept: None,
            }),
            object_condition: (write.condition == Condition::Absent)
                .then_some(ObjectCondition::Absent),
            resource_version: as_read.then_some(read[usize::from(write.resource)]),
            effect: Effect::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::NONE,
                size: 0,
                sha256: [0; 32],
                about: None,
                parts: None,
            },
            attempt: sending.attempt(),
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by: By::default(),
        })
    }

    /// A seal arrives at the ledger.
    pub(super) fn seal(&self, state: &mut State, client: u8, number: u8, sending: Sending) {
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
            state.ledger.act(|rows| {
                if self.is(Mutant::NumberMayFall) {
                    // Nothing is left for the number to rise above.
                    rows.fences.clear();
                }
                acts::seal(rows, &item, now(0))
            })
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
    pub(super) fn write(&self, state: &mut State, message: (u8, u8, Sending), checked: bool) {
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
                WriteVerdict::UploadExpired
                | WriteVerdict::PartsDiffer
                | WriteVerdict::RulesMoved
                | WriteVerdict::Forgotten
                | WriteVerdict::Busy => Fate::Unknown(true),
            };
        }
    }

    /// What a client may do with its lock.
    pub(super) fn lock_actions(&self, state: &State, client: u8, actions: &mut Vec<Action>) {
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
    pub(super) fn write_actions(&self, state: &State, client: u8, actions: &mut Vec<Action>) {
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
    pub(super) fn resource_actions(&self, state: &State, index: u8, actions: &mut Vec<Action>) {
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
pub(super) fn one_by_one(ledger: &mut Ledger, item: &fence_core::ports::SealItem) -> SealVerdict {
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

/// What happens to a lock after its grant.
pub(super) fn lock_step(state: &mut State, action: Action) -> Option<()> {
    match action {
        Action::Expire(index) => {
            state.ledger.expire(index);
            state.left.expiries -= 1;
        }
        Action::Renew(client) => {
            let item = RenewItem { lock: lock_id(client), ttl: None, by: By::default() };
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
                by: By::default(),
            };
            state.ledger.act(|rows| acts::break_lock(rows, &item, now(0)));
            state.left.breaks -= 1;
        }
        Action::Due(index) => state.ledger.act(|rows| {
            if let Some(fence) = rows.fences.get_mut(&resource(index)) {
                fence.break_due = Some(now(0).wall - SignedDuration::from_secs(1));
            }
        }),
        _ => return None,
    }
    Some(())
}
