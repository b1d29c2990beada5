//! Writes as they are drawn: under whose token, with what demands, what they do; and as the ledger is asked for them.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use fence_core::etag::{EntityTag, ObjectCondition};
use fence_core::ports::{
    Attempt, BlobId, By, CommitItem, CommitResource, CommitStep, Effect, IdempotencyKey, Payload,
    WriteItem,
};
use fence_core::{LockId, OperationId};
use fence_history::{Asked, Change, FencedWrite};
use sha2::{Digest as _, Sha256};

use super::session::{Session, key, name, token};
use super::stage::{Known, STRIDE, Step};
use crate::payload::bytes_of;

/// The objects of each resource.
const OBJECTS: [&str; 3] = ["a", "b", "c"];

/// Something that is to be written, as it is put down and as the ledger is asked.
pub struct Wanted<I> {
    /// What is put down.
    pub asked: Asked,
    /// What the ledger is asked.
    pub item: I,
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// What a change is to the ledger; its bytes are in the blob, if there is one.
fn effect(change: &Change, blob: Option<BlobId>) -> Effect {
    match change {
        Change::Put { key: object, value, .. } => {
            let bytes: Bytes = bytes_of(value);
            Effect::Put {
                key: key(object),
                content_type: "text/plain".into(),
                size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
                sha256: digest(&bytes),
                payload: blob.map_or(Payload::Inline(bytes), Payload::Blob),
                about: None,
                parts: None,
            }
        }
        Change::Delete { key: object } => Effect::Delete { key: key(object) },
        Change::DeleteAll => Effect::DeleteAll,
    }
}

fn idempotency(key: String, changes: &impl std::fmt::Debug) -> IdempotencyKey {
    let fingerprint = digest(format!("{changes:?}").as_bytes());
    IdempotencyKey { key, fingerprint, kept: None }
}

impl Session {
    /// An object.
    pub fn object(&mut self) -> String {
        self.one_of(&OBJECTS).unwrap_or_default().to_owned()
    }

    fn put(&mut self) -> Change {
        Change::Put { key: self.object(), value: self.unique("s"), adds: None }
    }

    fn change(&mut self) -> Change {
        match self.draw(0, 100) {
            0..78 => self.put(),
            78..96 => Change::Delete { key: self.object() },
            _ => Change::DeleteAll,
        }
    }

    /// Numbers mostly rise, some come again, and some come late.
    fn sequence(&mut self, known: &Known) -> Option<i64> {
        if !self.chance(0.3) {
            return None;
        }
        let next = known.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        Some(match self.chance(0.25) {
            true => (next - i64::from(self.chance(0.5)) - 1).max(1),
            false => next,
        })
    }

    /// A key: a new one, or one that was used on some resource before, with what it was used for, or with something else.
    fn key_and_change(&mut self, resource: &str) -> (Option<String>, String, Change) {
        let change = self.change();
        if !self.chance(0.35) {
            return (None, resource.to_owned(), change);
        }
        let used = self.stage.used();
        match self.one_of(&used).filter(|_| self.chance(0.4)) {
            Some((resource, key, _)) if self.chance(0.15) => (Some(key), resource, change),
            Some((resource, key, change)) => (Some(key), resource, change),
            None => {
                let key = self.unique("key");
                self.stage.use_key((resource.to_owned(), key.clone(), change.clone()));
                (Some(key), resource.to_owned(), change)
            }
        }
    }

    /// A write under a token that somebody was given.
    pub fn write_wanted(&mut self, known: &Known) -> Option<Wanted<WriteItem>> {
        let (resource, _) = self.one_of(&known.versions)?;
        let resource = match self.chance(0.03) {
            true => self.some_resources().pop()?.to_string(),
            false => resource,
        };
        let (idempotency_key, resource, change) = self.key_and_change(&resource);
        let forged = self.chance(0.03);
        let off = if forged { i64::try_from(self.draw(1, STRIDE as u64)).unwrap_or(1) } else { 0 };
        let lock = match self.draw(0, 100) {
            0..50 => None,
            50..97 => Some(known.lock),
            _ => Some(self.id()),
        };
        let if_version = self.chance(0.1).then(|| self.stage.newest(&resource));
        let write = FencedWrite {
            resource,
            token: known.token + off,
            forged,
            sequence: self.sequence(known),
            idempotency_key,
            if_version,
            change,
        };
        let object_condition = (write.change != Change::DeleteAll && self.chance(0.1)).then(|| {
            match self.chance(0.5) {
                true => ObjectCondition::Absent,
                false => ObjectCondition::Exists,
            }
        });
        let item = WriteItem {
            operation: OperationId(self.id()),
            resource: name(&write.resource),
            token: token(write.token),
            lock: lock.map(LockId),
            sequence: write.sequence,
            idempotency: write.idempotency_key.clone().map(|key| idempotency(key, &write.change)),
            object_condition,
            resource_version: if_version,
            effect: effect(&write.change, None),
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::MAX,
            by: By::default(),
        };
        Some(Wanted { asked: Asked::Write(write), item })
    }

    /// A put of an object, in the place of another if that is still there.
    pub fn replacement(
        &mut self,
        known: &Known,
        tag: Option<EntityTag>,
        (resource, object): (&str, &str),
    ) -> Wanted<WriteItem> {
        let change = Change::Put { key: object.to_owned(), value: self.unique("s"), adds: None };
        let item = WriteItem {
            operation: OperationId(self.id()),
            resource: name(resource),
            token: token(known.token),
            lock: None,
            sequence: None,
            idempotency: None,
            object_condition: tag.map(|tag| ObjectCondition::OneOf(vec![tag])),
            resource_version: None,
            effect: effect(&change, None),
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::MAX,
            by: By::default(),
        };
        let write = FencedWrite {
            resource: resource.to_owned(),
            token: known.token,
            forged: false,
            sequence: None,
            idempotency_key: None,
            if_version: None,
            change,
        };
        Wanted { asked: Asked::Write(write), item }
    }

    /// The same write, with its bytes in a blob. `None`: it puts nothing.
    pub fn in_blob(&self, wanted: &mut Wanted<WriteItem>, blob: BlobId) -> Option<String> {
        let Asked::Write(write) = &wanted.asked else { return None };
        let Change::Put { value, .. } = &write.change else { return None };
        wanted.item.effect = effect(&write.change, Some(blob));
        Some(value.clone())
    }

    /// A commit on resources of a lock; now and then one of them is another's.
    pub fn commit_wanted(&mut self, known: &Known) -> Option<Wanted<CommitItem>> {
        let mut names: Vec<String> =
            known.versions.iter().map(|(resource, _)| resource.clone()).collect();
        if self.chance(0.05) {
            names.push(self.some_resources().pop()?.to_string());
        }
        names.sort();
        names.dedup();
        let mut steps: Vec<Step> = Vec::new();
        for resource in &names {
            for object in OBJECTS {
                let object = object.to_owned();
                match self.draw(0, 100) {
                    0..40 => {
                        let value = self.unique("s");
                        let put = Change::Put { key: object, value, adds: None };
                        steps.push((resource.clone(), put));
                    }
                    40..50 => steps.push((resource.clone(), Change::Delete { key: object })),
                    _ => {}
                }
            }
        }
        names.retain(|resource| steps.iter().any(|(name, _)| name == resource));
        if steps.is_empty() {
            return None;
        }
        let idempotency_key = self.chance(0.4).then(|| self.unique("key"));
        let sequence = self.sequence(known);
        let operation = self.id();
        self.stage.plan(operation, steps.clone());
        let of = |resource: &String| CommitResource { resource: name(resource), version: None };
        let step = |(resource, change): &Step| CommitStep {
            resource: name(resource),
            object_condition: None,
            effect: effect(change, None),
        };
        let item = CommitItem {
            operation: OperationId(operation),
            resources: names.iter().map(of).collect(),
            token: token(known.token),
            lock: self.chance(0.5).then_some(LockId(known.lock)),
            sequence,
            idempotency: idempotency_key.clone().map(|key| idempotency(key, &steps)),
            steps: steps.iter().map(step).collect(),
            attempt: Attempt::First,
            taken_at: jiff::Timestamp::MAX,
            by: By::default(),
        };
        let token = known.token;
        Some(Wanted { asked: Asked::Commit { token, sequence, idempotency_key, steps }, item })
    }
}
