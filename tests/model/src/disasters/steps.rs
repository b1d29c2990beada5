//! Minting, sealing, writing, new epochs and re-fences, step by step.

use fence_core::ports::{
    By, Effect, Payload, REFENCE_JUMP, Refence, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{ErrorCode, Token, acts};

use super::{Action, Disasters, Etcd, Event, Grant, Opener, State};
use crate::ledger::{self, lock_id, nonce, now, operation_id, resource, seal_item};
use crate::mutants::Mutant;

impl Disasters {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The guard: whether the ledger takes an act. What gets through although commits were lost is noted.
    pub(super) fn passes(&self, state: &mut State) -> bool {
        let lost = state.ledger.timeline != state.timeline;
        if lost && !self.is(Mutant::NoTimelineGuard) {
            state.last = Some(Event::Called);
            return false;
        }
        true
    }

    pub(super) fn mint(&self, state: &mut State, client: u8, epoch: i64, carried: u8) {
        state.grants[usize::from(client)] = Grant::Idle;
        if state.etcd.nonce == Some(carried) || self.is(Mutant::NumberMayFall) {
            state.etcd.number += 1;
            let number = state.etcd.number;
            let token = state.ledger.rows().guard.base + i64::from(number);
            state.last = state.ledger.is_sealed(0, token).then_some(Event::Repeated);
            state.grants[usize::from(client)] = Grant::Minted(epoch, number);
        }
    }

    pub(super) fn seal(&self, state: &mut State, client: u8, epoch: i64, number: u8) {
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
                // Nothing is left for the number to rise above.
                rows.fences.clear();
            }
            acts::seal(rows, &item, now(0))
        });
        match verdict {
            SealVerdict::Sealed(grant, _) => {
                let token = grant.token.get();
                state.wrong.fell |= token <= state.highest_given();
                state.wrong.crossed |= now_epoch != epoch;
                state.wrong.taken |= state.ledger.timeline != state.timeline;
                state.given.insert(token);
                state.grants[usize::from(client)] = Grant::Given(token);
            }
            SealVerdict::NumberTooLow => state.last = Some(Event::TooLow),
            _ => {}
        }
    }

    pub(super) fn write(&self, state: &mut State, token: i64) {
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
                about: None,
                parts: None,
            },
            attempt: fence_core::ports::Attempt::First,
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by: By::default(),
        };
        let guard = state.ledger.rows().guard.clone();
        let verdict = state.ledger.act(|rows| {
            let verdict = if self.is(Mutant::NoFloor) {
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
                state.wrong.stale |= token < state.highest_given();
                state.wrong.taken |= state.ledger.timeline != state.timeline;
                state.last = (token <= guard.base).then_some(Event::Undisturbed);
            }
            WriteVerdict::Refused(refusal) if refusal.code() == ErrorCode::FenceTokenVoid => {
                state.last = Some(Event::Void);
            }
            _ => {}
        }
    }

    pub(super) fn refence(&self, state: &mut State, head: Etcd) {
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
            seen: None,
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
    pub(super) fn open(state: &mut State, action: Action) -> Option<()> {
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

    pub(super) fn disasters(state: &State, actions: &mut Vec<Action>) {
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
