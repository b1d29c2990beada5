//! What clients and their gateways do, and what the ledger makes of it.

use std::sync::Arc;

use fence_core::ports::{
    AbortItem, AbortVerdict, Attempt, BlobId, By, Effect, IdempotencyKey, KeySpace, Multipart,
    PartItem, PartVerdict, Payload, SealVerdict, UploadItem, UploadVerdict, WriteItem,
    WriteVerdict,
};
use fence_core::{Refusal, Token, acts};
use jiff::SignedDuration;
use uuid::Uuid;

use super::{
    Abort, Action, Alarm, Blob, CompletePlan, Completion, Event, PartOutcome, PartPlan, Parts,
    Sent, State, Tables,
};
use crate::ledger::{
    self, commit_unjudged, lock_id, now, operation_id, resource, seal_item, unjudged,
};
use crate::mutants::Mutant;

/// The name of a blob.
pub(super) fn id(blob: Blob) -> BlobId {
    BlobId(Uuid::from_u128(match blob {
        Blob::Upload(upload) => 0x100 + u128::from(upload),
        Blob::Part(part) => u128::from(part),
    }))
}

/// The part of this name.
pub(super) fn part_of(blob: BlobId) -> Option<u8> {
    u8::try_from(blob.0.as_u128()).ok()
}

/// The upload of this name.
fn upload_of(blob: BlobId) -> Option<u8> {
    u8::try_from(blob.0.as_u128().checked_sub(0x100)?).ok()
}

impl Tables {
    /// Whether the intent of a blob is there.
    pub(super) fn has_intent(&self, blob: Blob) -> bool {
        self.ledger.rows().intents.contains_key(&id(blob))
    }

    /// The upload that the object is.
    pub(super) fn current(&self) -> Option<u8> {
        let object = self.ledger.rows().objects.values().next()?;
        upload_of(object.object.payload.blob()?)
    }

    /// The parts of an upload, in the order of their numbers.
    pub(super) fn parts_of(&self, upload: u8) -> Vec<(i32, u8)> {
        let of = id(Blob::Upload(upload));
        let found = self.ledger.rows().parts.range((of, 0)..=(of, i32::MAX));
        found.filter_map(|((_, number), part)| Some((*number, part_of(part.blob)?))).collect()
    }
}

impl State {
    /// Whether the ledger takes acts.
    pub(super) fn is_sound(&self) -> bool {
        self.tables.ledger.timeline == self.timeline
    }
}

impl Parts {
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn part(&self, part: u8) -> Option<PartPlan> {
        self.plan.parts.get(usize::from(part)).copied()
    }

    /// What clients may do next.
    pub(super) fn clients(&self, state: &State, actions: &mut Vec<Action>) {
        let has_token = |client: u8| state.tokens[usize::from(client)] > 0;
        if state.left.grants > 0 {
            actions.push(Action::Grant((self.bounds.grants - state.left.grants) % 2));
        }
        for upload in 0..self.plan.uploads {
            if !state.begun.contains(&upload) && has_token(upload) {
                actions.push(Action::Begin(upload));
            }
        }
        for (part, sent) in (0_u8..).zip(&state.parts) {
            let Some(plan) = self.part(part) else { continue };
            let goes_on = state.tables.has_intent(Blob::Upload(plan.upload));
            if *sent == Sent::Unsent && has_token(plan.client) && goes_on {
                actions.push(Action::BeginPart(part));
            }
        }
        for (completion, wish) in (0_u8..).zip(self.plan.completes) {
            match &state.completions[usize::from(completion)] {
                Completion::Unsent
                    if has_token(wish.client) && !state.tables.parts_of(wish.upload).is_empty() =>
                {
                    actions.push(Action::Ask(completion));
                }
                Completion::Asked(..) => actions.push(Action::Complete(completion)),
                Completion::Applied(..) if state.left.repeats > 0 => {
                    actions.push(Action::Complete(completion));
                }
                _ => {}
            }
        }
        match (self.plan.abort, state.abort) {
            (Some(client), Abort::Unsent)
                if has_token(client) && state.tables.has_intent(Blob::Upload(0)) =>
            {
                actions.push(Action::AskAbort);
            }
            (_, Abort::Asked(_)) => actions.push(Action::Abort),
            _ => {}
        }
        if state.left.deletes > 0 && state.tables.current().is_some() {
            actions.push(Action::DeleteObject);
        }
    }

    pub(super) fn grant(&self, state: &mut State, client: u8) -> Option<()> {
        state.left.grants -= 1;
        let number = self.bounds.grants - state.left.grants;
        let base = state.tables.ledger.rows().guard.base;
        let rises = i64::from(number).max(state.tables.ledger.fence(0) - base + 1);
        state.tables.ledger.expire(0);
        let item = seal_item(lock_id(number), client, &[0], Some(rises));
        let verdict = state.tables.ledger.act(|rows| acts::seal(rows, &item, now(0)));
        let SealVerdict::Sealed(grant, _) = verdict else { return None };
        state.tokens[usize::from(client)] = grant.token.get();
        Some(())
    }

    /// The wish to upload a blob under the token of a client.
    fn upload_item(state: &State, client: u8, blob: Blob) -> Option<UploadItem> {
        Some(UploadItem {
            blob: Some(id(blob)),
            resource: resource(0),
            token: Token::new(state.tokens[usize::from(client)])?,
            lock: None,
            key: None,
            by: By::default(),
        })
    }

    pub(super) fn begin(&self, state: &mut State, upload: u8) -> Option<()> {
        let item = Self::upload_item(state, upload, Blob::Upload(upload))?;
        let multipart = Multipart {
            resource: resource(0),
            key: ledger::object(),
            content_type: String::new(),
            about: None,
            principal: None,
        };
        let begin = |rows: &mut _| acts::begin_multipart(rows, &item, &multipart, now(0));
        state.tables.ledger.act(begin);
        state.begun.insert(upload);
        Some(())
    }

    pub(super) fn begin_part(&self, state: &mut State, part: u8) -> Option<()> {
        let item = Self::upload_item(state, self.part(part)?.client, Blob::Part(part))?;
        state.order += 1;
        let order = state.order;
        // A moment later each: which part was begun last is what counts.
        let at =
            acts::Now { wall: now(0).wall + SignedDuration::from_secs(i64::from(order)), ..now(0) };
        let verdict = state.tables.ledger.act(|rows| acts::begin_upload(rows, &item, at));
        state.parts[usize::from(part)] = match verdict {
            UploadVerdict::Begun => Sent::Begun(item.token.get(), order),
            UploadVerdict::KnownKey | UploadVerdict::Refused(_) => Sent::Refused,
        };
        Some(())
    }

    pub(super) fn bytes(state: &mut State, part: u8) -> Option<()> {
        let Sent::Begun(token, order) = state.parts[usize::from(part)] else { return None };
        state.parts[usize::from(part)] = Sent::Stored(token, order);
        state.store.insert(part);
        let late = !state.tables.has_intent(Blob::Part(part));
        state.last = late.then_some(Event::LateBytes);
        Some(())
    }

    pub(super) fn put_part(&self, state: &mut State, part: u8) -> Option<()> {
        let (token, order) = match state.parts[usize::from(part)] {
            Sent::Stored(token, order) => (token, order),
            Sent::Told(token, order, _) => {
                state.left.repeats -= 1;
                (token, order)
            }
            _ => return None,
        };
        let plan = self.part(part)?;
        let item = PartItem {
            upload: id(Blob::Upload(plan.upload)),
            resource: resource(0),
            token: Token::new(token)?,
            lock: None,
            by: By::default(),
            number: plan.number,
            blob: id(Blob::Part(part)),
            size: 1,
            sha256: [0; 32],
            checksum: None,
        };
        let floor = state.tables.ledger.rows().guard.floor;
        let sealed = state.tables.ledger.fence(0);
        let is_there =
            |state: &State| state.tables.parts_of(plan.upload).contains(&(plan.number, part));
        let was_there = is_there(state);
        let verdict = state.act(self, |rows| {
            if self.is(Mutant::PartAfterTheEnd) {
                let row = acts::IntentRow { begun_at: now(0).wall, handle: None, upload: None };
                let row = rows.intents.entry(item.upload).or_insert(row);
                let gone = row.upload.is_none();
                row.upload.get_or_insert_with(|| Multipart {
                    resource: resource(0),
                    key: ledger::object(),
                    content_type: String::new(),
                    about: None,
                    principal: None,
                });
                let verdict = acts::put_part(rows, &item, now(0));
                if gone {
                    rows.intents.remove(&item.upload);
                }
                return verdict;
            }
            if self.is(Mutant::PartUnjudged) {
                let presented = (&item.resource, item.token, item.lock);
                return unjudged(rows, presented, |rows| acts::put_part(rows, &item, now(0)));
            }
            if self.is(Mutant::LastStatementCounts)
                && let Some(old) = rows.parts.get_mut(&(item.upload, item.number))
            {
                old.begun_at = jiff::Timestamp::MIN;
            }
            if self.is(Mutant::NoFloor) {
                rows.guard.floor = 0;
            }
            let verdict = acts::put_part(rows, &item, now(0));
            rows.guard.floor = floor;
            verdict
        });
        state.alarm(!was_there && is_there(state) && sealed != token, Alarm::Unfenced);
        let fate = match verdict.ok()? {
            PartVerdict::Stored => PartOutcome::Stored,
            PartVerdict::Overtaken => PartOutcome::Overtaken,
            PartVerdict::NoUpload => PartOutcome::NoUpload,
            PartVerdict::Expired => PartOutcome::Expired,
            PartVerdict::Refused(refusal) => {
                state.last = match refusal {
                    Refusal::Void => Some(Event::Void),
                    Refusal::Stale { .. } => Some(Event::LatePart),
                    _ => None,
                };
                state.parts[usize::from(part)] = Sent::Refused;
                return Some(());
            }
        };
        state.parts[usize::from(part)] = Sent::Told(token, order, fate);
        Some(())
    }

    pub(super) fn ask(&self, state: &mut State, completion: u8) {
        let CompletePlan { client, upload, all } = self.plan.completes[usize::from(completion)];
        let there = state.tables.parts_of(upload).into_iter().map(|(_, part)| part);
        let named = there.take(if all { usize::MAX } else { 1 }).collect();
        let token = state.tokens[usize::from(client)];
        state.completions[usize::from(completion)] = Completion::Asked(token, named);
    }

    /// The write that completes an upload.
    fn completion(
        completion: u8,
        upload: u8,
        token: i64,
        named: &[u8],
        again: bool,
    ) -> Option<WriteItem> {
        let upload = id(Blob::Upload(upload));
        let parts: Arc<[BlobId]> = named.iter().map(|part| id(Blob::Part(*part))).collect();
        let mut fingerprint = [0; 32];
        fingerprint.iter_mut().zip(named).for_each(|(byte, part)| *byte = part + 1);
        Some(WriteItem {
            operation: operation_id(completion * 2 + u8::from(again)),
            resource: resource(0),
            token: Token::new(token)?,
            lock: None,
            sequence: None,
            idempotency: Some(IdempotencyKey {
                key: KeySpace::Upload.key(&upload.to_string()),
                fingerprint,
                kept: None,
            }),
            object_condition: None,
            resource_version: None,
            effect: Effect::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::Blob(upload),
                size: 1,
                sha256: [0; 32],
                about: None,
                parts: Some(parts),
            },
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by: By::default(),
        })
    }

    pub(super) fn complete(&self, state: &mut State, completion: u8) -> Option<()> {
        let CompletePlan { client, upload, .. } = self.plan.completes[usize::from(completion)];
        let (token, named, first) = match &state.completions[usize::from(completion)] {
            Completion::Asked(token, named) => (*token, named.clone(), None),
            Completion::Applied(token, named, version) => (*token, named.clone(), Some(*version)),
            _ => return None,
        };
        let mut item = Self::completion(completion, upload, token, &named, first.is_some())?;
        if self.is(Mutant::NoReplay) {
            item.idempotency = None;
        }
        let before = state.tables.ledger.clone();
        let sealed = before.fence(0);
        let at = now(state.tick);
        let verdict = state.act(self, |rows| self.commit(rows, &item, at));
        state.completions[usize::from(completion)] = match verdict {
            WriteVerdict::Applied { applied, replayed } => {
                let version = applied.version.unwrap_or_default();
                if replayed {
                    state.last = Some(Event::Replayed);
                } else {
                    state.alarm(sealed != token, Alarm::Unfenced);
                    state.noted(client, upload, &before);
                }
                state.alarm(first.is_some_and(|first| first != version), Alarm::NoReplay);
                Completion::Applied(token, named, version)
            }
            refused => {
                // What the ledger forgot when it went back may be told in another way.
                state.alarm(first.is_some() && !state.went_back, Alarm::NoReplay);
                state.alarm(before != state.tables.ledger, Alarm::Changed);
                match refused {
                    WriteVerdict::Refused(refusal) => Completion::Refused(refusal.code()),
                    other => {
                        let differed = other == WriteVerdict::PartsDiffer;
                        state.last = differed.then_some(Event::Differed);
                        Completion::Over
                    }
                }
            }
        };
        if first.is_some() {
            state.left.repeats -= 1;
        }
        Some(())
    }

    /// The commit, as a mutant has it.
    fn commit(&self, rows: &mut acts::Rows, item: &WriteItem, at: acts::Now) -> WriteVerdict {
        let upload = item.effect.blob().unwrap_or(BlobId(Uuid::nil()));
        let intent = rows.intents.get(&upload).cloned();
        let parts = rows.parts.clone();
        let verdict = match self.is(Mutant::CompleteUnjudged) {
            true => commit_unjudged(rows, item),
            false => acts::commit(rows, item, at),
        };
        let has = matches!(verdict, WriteVerdict::Applied { replayed: false, .. });
        if has && self.is(Mutant::UploadNotConsumed) {
            rows.intents.extend(intent.map(|intent| (upload, intent)));
        }
        if has && self.is(Mutant::UnnamedKept) {
            rows.parts = parts;
            rows.discarded.clear();
        } else if has && self.is(Mutant::NamedDiscarded) {
            rows.discarded.extend(item.effect.parts().unwrap_or_default());
        } else if verdict == WriteVerdict::PartsDiffer && self.is(Mutant::RefusedDropsParts) {
            let of_it = |(of, _): &(BlobId, i32), _: &mut _| *of == upload;
            let dropped: Vec<_> = rows.parts.extract_if(.., of_it).collect();
            rows.discarded.extend(dropped.into_iter().map(|(_, part)| part.blob));
        }
        verdict
    }

    pub(super) fn ask_abort(&self, state: &mut State) -> Option<()> {
        let token = state.tokens[usize::from(self.plan.abort?)];
        state.abort = Abort::Asked(token);
        Some(())
    }

    pub(super) fn abort(&self, state: &mut State) -> Option<()> {
        let Abort::Asked(token) = state.abort else { return None };
        let item = AbortItem {
            upload: id(Blob::Upload(0)),
            resource: resource(0),
            token: Token::new(token)?,
            lock: None,
            by: By::default(),
        };
        let sealed = state.tables.ledger.fence(0);
        let verdict = state.act(self, |rows| {
            if self.is(Mutant::AbortUnjudged) {
                let there = rows.intents.remove(&item.upload).is_some();
                rows.discarded.extend(there.then_some(item.upload));
                return if there { AbortVerdict::Aborted } else { AbortVerdict::NoUpload };
            }
            acts::abort_multipart(rows, &item, now(0))
        });
        let aborted = verdict == AbortVerdict::Aborted;
        state.alarm(aborted && sealed != token, Alarm::Unfenced);
        if matches!(verdict, AbortVerdict::Refused(Refusal::Stale { .. })) {
            state.last = Some(Event::LateAbort);
        }
        state.abort = Abort::Over;
        Some(())
    }

    pub(super) fn delete_object(&self, state: &mut State) -> Option<()> {
        state.left.deletes -= 1;
        let item = WriteItem {
            operation: operation_id(0x80),
            resource: resource(0),
            token: Token::new(state.tables.ledger.fence(0))?,
            lock: None,
            sequence: None,
            idempotency: None,
            object_condition: None,
            resource_version: None,
            effect: Effect::Delete { key: ledger::object() },
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by: By::default(),
        };
        let at = now(state.tick);
        state.act(self, |rows| acts::commit(rows, &item, at));
        Some(())
    }
}

impl State {
    /// Runs an act; what it made nobody's is garbage.
    fn act<V>(&mut self, model: &Parts, act: impl FnOnce(&mut acts::Rows) -> V) -> V {
        let mut discarded = Vec::new();
        let verdict = self.tables.ledger.act(|rows| {
            let verdict = act(rows);
            discarded = std::mem::take(&mut rows.discarded);
            verdict
        });
        for blob in discarded {
            let blob = match upload_of(blob) {
                Some(upload) => Blob::Upload(upload),
                None => Blob::Part(part_of(blob).unwrap_or(u8::MAX)),
            };
            model.discard(self, blob);
        }
        verdict
    }

    fn alarm(&mut self, rings: bool, alarm: Alarm) {
        self.alarms.extend(rings.then_some(alarm));
    }

    /// What is worth reaching of a completion that took effect.
    fn noted(&mut self, client: u8, upload: u8, before: &ledger::Ledger) {
        let parts = before.rows().parts.len();
        self.last = match client == upload {
            false => Some(Event::Inherited),
            true if parts > self.tables.ledger.rows().parts.len() => Some(Event::Unnamed),
            true => None,
        };
    }
}
