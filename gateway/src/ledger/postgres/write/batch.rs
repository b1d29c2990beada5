//! A batch of writes as `acts.write` takes it: in columns, and in rounds.

use std::collections::HashMap;

use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Attempt, BlobId, By, CommitItem, Effect, IdempotencyKey, KeySpace, Patience, Payload, WriteItem,
};
use fence_core::{LockId, OperationId, Token};
use jiff::Timestamp;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use uuid::Uuid;

use super::verdicts::WriteRow;
use crate::ledger::postgres::{attempt, sparse, wait_ms};

/// One write: what it presents, its places, and its steps.
pub(super) struct Write<'a> {
    operation: OperationId,
    attempt: Attempt,
    taken_at: Timestamp,
    token: Token,
    lock: Option<LockId>,
    sequence: Option<i64>,
    key: Option<&'a IdempotencyKey>,
    by: &'a By,
    /// Its resources in name order, and the version demanded of each.
    places: Vec<(&'a str, Option<i64>)>,
    steps: Vec<Step<'a>>,
    is_commit: bool,
}

struct Step<'a> {
    /// Which of the places.
    place: usize,
    effect: &'a Effect,
    demands: Option<&'a ObjectCondition>,
}

impl<'a> From<&'a WriteItem> for Write<'a> {
    fn from(item: &'a WriteItem) -> Self {
        let (effect, demands) = (&item.effect, item.object_condition.as_ref());
        Self {
            operation: item.operation,
            attempt: item.attempt,
            taken_at: item.taken_at,
            token: item.token,
            lock: item.lock,
            sequence: item.sequence,
            key: item.idempotency.as_ref(),
            by: &item.by,
            places: vec![(item.resource.as_str(), item.resource_version)],
            steps: vec![Step { place: 0, effect, demands }],
            is_commit: false,
        }
    }
}

impl<'a> From<&'a CommitItem> for Write<'a> {
    fn from(item: &'a CommitItem) -> Self {
        let places: Vec<_> =
            item.resources.iter().map(|at| (at.resource.as_str(), at.version)).collect();
        let position: HashMap<&str, usize> =
            places.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let steps = item.steps.iter().map(|step| Step {
            place: position.get(step.resource.as_str()).copied().unwrap_or(0),
            effect: &step.effect,
            demands: step.object_condition.as_ref(),
        });
        let steps = steps.collect();
        Self {
            operation: item.operation,
            attempt: item.attempt,
            taken_at: item.taken_at,
            token: item.token,
            lock: item.lock,
            sequence: item.sequence,
            key: item.idempotency.as_ref(),
            by: &item.by,
            places,
            steps,
            is_commit: true,
        }
    }
}

impl Write<'_> {
    /// Whether it is all the same to it what others of its batch do: a put of bytes that demands nothing.
    fn is_plain(&self) -> bool {
        let puts_bytes = |step: &Step<'_>| {
            matches!(step.effect, Effect::Put { payload: Payload::Inline(_), .. })
                && step.demands.is_none()
        };
        !self.is_commit
            && self.attempt == Attempt::First
            && self.sequence.is_none()
            && self.key.is_none()
            && self.places.iter().all(|(_, version)| version.is_none())
            && self.steps.iter().all(puts_bytes)
    }
}

/// How a batch is decided.
pub(super) struct Terms {
    pub(super) patience: Patience,
    /// Whether replaced versions are kept that have no blob.
    pub(super) keeps_versions: bool,
    /// Whether its operations are looked up, although all are sent for the first time.
    pub(super) again: bool,
}

/// What two writes of a batch may have in common.
#[derive(PartialEq, Eq, Hash)]
enum Common<'a> {
    Resource(&'a str),
    Operation(OperationId),
    Blob(BlobId),
}

/// In which round each write is decided, from 0: after those before it that it has something in common with. Only plain
/// ones share a round and a resource, if they are of one writer and under one token: it is what they are judged by, so
/// they are admitted together, or refused together. Unless they come a second time: then one may turn out to be known, or buried.
fn rounds(writes: &[Write<'_>], terms: &Terms) -> Vec<usize> {
    let mut last = HashMap::new();
    let mut rounds = Vec::with_capacity(writes.len());
    for write in writes {
        let is_second = last.contains_key(&Common::Operation(write.operation));
        let shares = !terms.keeps_versions && !terms.again && !is_second && write.is_plain();
        let under = shares.then_some((write.token, write.lock, write.by));
        let blobs = write.steps.iter().filter_map(|step| step.effect.blob()).map(Common::Blob);
        let resources = write.places.iter().map(|(name, _)| Common::Resource(name));
        let common: Vec<_> = resources
            .map(|resource| (resource, under))
            .chain(blobs.chain([Common::Operation(write.operation)]).map(|other| (other, None)))
            .collect();
        let after = |(common, under): &(Common<'_>, Option<_>)| match last.get(common) {
            None => 0,
            Some((round, before)) if under.is_some() && before == under => *round,
            Some((round, _)) => round + 1,
        };
        let round = common.iter().map(after).max().unwrap_or_default();
        last.extend(common.into_iter().map(|(common, under)| (common, (round, under))));
        rounds.push(round);
    }
    rounds
}

/// The columns that `acts.write` takes: of each write a row for each step, then one for each place without a step.
#[derive(Default)]
pub(super) struct Batch<'a> {
    /// Which write each row is of.
    pub(super) order: Vec<usize>,
    is_commit: bool,
    resources: Vec<&'a str>,
    /// The last row of each round.
    ends: Vec<i32>,
    operation: Vec<Uuid>,
    resource: Vec<&'a str>,
    token: Vec<i64>,
    lock: Vec<Option<Uuid>>,
    sequence: Vec<Option<i64>>,
    if_version: Vec<Option<i64>>,
    attempt: Vec<Option<i32>>,
    key: Vec<Option<&'a str>>,
    fingerprint: Vec<Option<&'a [u8]>>,
    kept_ms: Vec<Option<i64>>,
    nth: Vec<Option<i32>>,
    kind: Vec<Option<&'a str>>,
    object: Vec<Option<&'a str>>,
    if_object: Vec<Option<String>>,
    again: Vec<Option<bool>>,
    last: Vec<Option<bool>>,
    content_type: Vec<Option<&'a str>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<&'a [u8]>>,
    body: Vec<Option<&'a [u8]>>,
    blob: Vec<Option<Uuid>>,
    names: Vec<Option<&'a str>>,
    rules: Vec<Option<i64>>,
    space: Vec<Option<&'a str>>,
    about: Vec<Option<&'a str>>,
    parts: Vec<Option<String>>,
    /// When the oldest rerun was taken, in microseconds.
    taken_us: Option<i64>,
}

/// A condition as the function takes it.
fn condition(condition: &ObjectCondition) -> String {
    match condition {
        ObjectCondition::Exists => "*".into(),
        ObjectCondition::Absent => "-".into(),
        ObjectCondition::OneOf(tags) => {
            tags.iter().map(|tag| tag.bare()).collect::<Vec<_>>().join(",")
        }
    }
}

impl<'a> Batch<'a> {
    /// Writes of one step each, or one commit.
    pub(super) fn new(writes: &'a [Write<'a>], terms: &Terms) -> Self {
        let rounds = rounds(writes, terms);
        let is_commit = writes.iter().any(|write| write.is_commit);
        let reruns = writes.iter().filter(|write| write.attempt != Attempt::First);
        let taken_us = reruns.map(|write| write.taken_at.as_microsecond()).min();
        let mut batch = Self { is_commit, taken_us, ..Self::default() };
        let mut order: Vec<usize> = (0..writes.len()).collect();
        order.sort_by_key(|at| rounds[*at]);
        for together in order.chunk_by(|a, b| rounds[*a] == rounds[*b]) {
            let begins = batch.order.len();
            for at in together {
                batch.push(*at, &writes[*at], terms);
            }
            if !batch.is_commit {
                batch.count(begins);
            }
            batch.ends.push(i32::try_from(batch.order.len()).unwrap_or(i32::MAX));
        }
        batch.resources.clone_from(&batch.resource);
        batch.resources.sort_unstable();
        batch.resources.dedup();
        batch
    }

    fn push(&mut self, at: usize, write: &'a Write<'a>, terms: &Terms) {
        let begins = self.order.len();
        // A plain one that is there already is found by the key of the table, which costs the others nothing.
        let looks = terms.again || !write.is_plain() || self.operation.contains(&write.operation.0);
        for step in &write.steps {
            self.push_row(at, write, write.places.get(step.place).copied().unwrap_or_default());
            self.push_step(Some(step));
        }
        for (place, resource) in write.places.iter().enumerate() {
            if write.steps.iter().all(|step| step.place != place) {
                self.push_row(at, write, *resource);
                self.push_step(None);
            }
        }
        let looked_up = looks.then(|| attempt(write.attempt));
        self.attempt.extend(vec![looked_up; self.order.len() - begins]);
    }

    fn push_row(&mut self, at: usize, write: &'a Write<'a>, place: (&'a str, Option<i64>)) {
        let key = write.key;
        let named = key.map(|key| KeySpace::of(&key.key));
        let kept_ms = |key: &IdempotencyKey| {
            key.kept.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX))
        };
        self.order.push(at);
        self.operation.push(write.operation.0);
        self.resource.push(place.0);
        self.token.push(write.token.get());
        self.lock.push(write.lock.map(|lock| lock.0));
        self.sequence.push(write.sequence);
        self.if_version.push(place.1);
        self.key.push(named.map(|(_, key)| key));
        let foreign = named.filter(|(space, _)| *space != KeySpace::Native);
        self.space.push(foreign.map(|(space, _)| space.word()));
        self.fingerprint.push(key.map(|key| key.fingerprint.as_slice()));
        self.kept_ms.push(key.and_then(kept_ms));
        self.names.push(write.by.names());
        self.rules.push(write.by.rules);
    }

    fn push_step(&mut self, step: Option<&'a Step<'a>>) {
        let effect = step.map(|step| step.effect);
        self.kind.push(effect.map(Effect::word));
        self.object.push(effect.and_then(Effect::key).map(|key| key.as_str()));
        self.if_object.push(step.and_then(|step| step.demands).map(condition));
        let (content_type, size, sha256, payload) = match effect {
            Some(Effect::Put { content_type, size, sha256, payload, .. }) => {
                (Some(content_type.as_str()), Some(*size), Some(sha256.as_slice()), Some(payload))
            }
            Some(Effect::Delete { .. } | Effect::DeleteAll) | None => (None, None, None, None),
        };
        self.about.push(match effect {
            Some(Effect::Put { about, .. }) => about.as_deref(),
            Some(Effect::Delete { .. } | Effect::DeleteAll) | None => None,
        });
        let ids = |parts: &[BlobId]| {
            parts.iter().map(|blob| blob.to_string()).collect::<Vec<_>>().join(",")
        };
        self.parts.push(effect.and_then(Effect::parts).map(ids));
        self.content_type.push(content_type);
        self.size.push(size);
        self.sha256.push(sha256);
        self.body.push(match payload {
            Some(Payload::Inline(body)) => Some(body.as_ref()),
            Some(Payload::Blob(_)) | None => None,
        });
        self.blob.push(effect.and_then(Effect::blob).map(|blob| blob.0));
    }

    /// Counts the writes of a round by their resource, and finds those that put one object.
    fn count(&mut self, begins: usize) {
        let mut of_resource: HashMap<&str, i32> = HashMap::new();
        let mut of_object = HashMap::new();
        for row in begins..self.order.len() {
            let nth = of_resource.entry(self.resource[row]).or_default();
            *nth += 1;
            self.nth.push((*nth > 1).then_some(*nth));
            let before = of_object.insert((self.resource[row], self.object[row]), row);
            self.again.push(before.map(|_| true));
            self.last.push(None);
            if let Some(before) = before {
                self.last[before] = Some(false);
            }
        }
    }

    /// The call. What it answers names rows by their position, from 1.
    pub(super) fn call(
        self,
        seen: i64,
        terms: &Terms,
    ) -> QueryAs<'a, Postgres, WriteRow, PgArguments> {
        let query = match self.ends.len() {
            0 | 1 => sqlx::query_as(ONE_ROUND),
            _ => sqlx::query_as(ROUNDS),
        };
        query
            .bind(seen)
            .bind(wait_ms(terms.patience))
            .bind(terms.keeps_versions)
            .bind(self.is_commit)
            .bind(self.ends)
            .bind(self.resources)
            .bind(self.operation)
            .bind(self.resource)
            .bind(self.token)
            .bind(sparse(self.lock))
            .bind(sparse(self.sequence))
            .bind(sparse(self.if_version))
            .bind(sparse(self.attempt))
            .bind(sparse(self.key))
            .bind(sparse(self.fingerprint))
            .bind(sparse(self.kept_ms))
            .bind(sparse(self.nth))
            .bind(self.kind)
            .bind(sparse(self.object))
            .bind(sparse(self.if_object))
            .bind(sparse(self.again))
            .bind(sparse(self.last))
            .bind(sparse(self.content_type))
            .bind(sparse(self.size))
            .bind(sparse(self.sha256))
            .bind(sparse(self.body))
            .bind(sparse(self.blob))
            .bind(sparse(self.names))
            .bind(sparse(self.rules))
            .bind(sparse(self.space))
            .bind(sparse(self.about))
            .bind(sparse(self.parts))
            .bind(self.taken_us)
    }
}

/// The columns, by the names of the function's parameters.
macro_rules! columns {
    () => {
        "p_resources => $6, p_operation => $7, p_resource => $8, p_token => $9, p_lock => $10, p_seq => $11,
         p_if_version => $12, p_attempt => $13, p_key => $14, p_fingerprint => $15, p_kept_ms => $16,
         p_nth => $17, p_kind => $18, p_object => $19, p_if_object => $20, p_again => $21, p_last => $22,
         p_content_type => $23, p_size => $24, p_sha256 => $25, p_body => $26, p_blob => $27,
         p_names => $28, p_rules => $29, p_space => $30, p_about => $31, p_parts => $32,
         p_taken_us => $33)"
    };
}

const ONE_ROUND: &str = concat!(
    "SELECT * FROM ",
    acts!(),
    ".write(p_seen => $1, p_wait_ms => $2, p_keep => $3,
            p_now => NULL, p_commit => $4, ",
    columns!()
);

const ROUNDS: &str = concat!(
    "SELECT * FROM ",
    acts!(),
    ".write_rounds(p_seen => $1, p_wait_ms => $2, p_keep => $3,
                   p_ends => $5, ",
    columns!()
);
