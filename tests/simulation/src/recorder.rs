//! Writes down what callers asked and were told, what upstreams did, and in the end what the ledger holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fence_core::ports::{Applied, Effect as LedgerEffect, Ledger as _};
use fence_history::{
    Answer, Answered, Asked, Call, Change, Committed, Effect, Healed, History, Intent, Record,
    Rollback, Rules, Sealed, Writers,
};
use futures::FutureExt as _;
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::access::PRINCIPALS;
use crate::client::Upload;
use crate::clocks::ClockFacts;
use crate::ledger::{AskedWrite, LedgerServer};
use crate::world::{Micros, World};

/// A put's value, and what it adds to a set.
type Value = (String, Option<u64>);

#[derive(Default)]
struct Book {
    last: Micros,
    calls: BTreeMap<u64, Call>,
    happened: Vec<(Micros, Record)>,
    values: BTreeMap<[u8; 32], Value>,
    /// Operations of which somebody was told that their outcome is unknown.
    unknown: Vec<Uuid>,
    /// Every token that anybody was given, with its resource.
    tokens: Vec<(String, i64)>,
    /// Every lock that anybody was given, with its token and one of its resources.
    locks: Vec<(Uuid, i64, String)>,
    /// Uploads in parts that were begun.
    uploads: Vec<Upload>,
    /// Operations that were admitted to the upstream.
    admitted: Vec<Uuid>,
    /// Those with which the upstream is done, and no gateway knows it.
    stuck: Vec<Uuid>,
    /// Clients that do not know what became of a write.
    unsure: usize,
    clocks: ClockFacts,
}

/// The record of a run; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    world: World,
    book: Arc<Mutex<Book>>,
    losses: Arc<Notify>,
}

/// Time in which a client does not know what became of a write whose answer was lost.
pub struct Unsure {
    recorder: Recorder,
}

impl Drop for Unsure {
    fn drop(&mut self) {
        self.recorder.book().unsure -= 1;
    }
}

impl Recorder {
    /// An empty one.
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), book: Arc::default(), losses: Arc::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment that no other record has.
    fn moment(&self, book: &mut Book) -> Micros {
        book.last = self.world.now().max(book.last + 1);
        book.last
    }

    /// Somebody asks something. Returns the number of the call.
    pub fn begin(&self, client: u32, gateway: u32, asked: Asked) -> u64 {
        let mut book = self.book();
        let begun_at = self.moment(&mut book);
        let number = book.calls.len() as u64 + 1;
        let principal = client % PRINCIPALS;
        let call = Call { number, client, principal, gateway, begun_at, asked, answered: None };
        book.calls.insert(number, call);
        number
    }

    /// The answer arrived.
    pub fn answer(&self, number: u64, answer: Answer) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        if let Answer::Unknown { operation: Some(operation) } = &answer {
            book.unknown.push(*operation);
        }
        if let Answer::Granted { lock, token, versions, .. } = &answer {
            let first = versions.first().map(|(resource, _)| (*lock, *token, resource.clone()));
            book.locks.extend(first);
            let token = *token;
            book.tokens.extend(versions.iter().map(|(resource, _)| (resource.clone(), token)));
        }
        if let Some(call) = book.calls.get_mut(&number) {
            call.answered = Some(Answered { at, answer });
        }
    }

    /// A client has lost the answer to a write, and is unsure of it until it finds out or gives up.
    pub fn unsure(&self) -> Unsure {
        self.book().unsure += 1;
        self.losses.notify_one();
        Unsure { recorder: self.clone() }
    }

    /// Notice of each lost answer to a write, for one that waits.
    pub fn losses(&self) -> Arc<Notify> {
        Arc::clone(&self.losses)
    }

    /// A wall clock has jumped.
    pub fn clock_jumped(&self) {
        let mut book = self.book();
        book.clocks.jumps += 1;
        book.clocks.jumps_while_unknown += u64::from(book.unsure > 0);
    }

    /// Facts about clocks so far.
    pub fn clock_facts(&self) -> ClockFacts {
        self.book().clocks
    }

    /// An upstream acted on a request.
    pub fn effect(&self, resource: String, token: i64, request: Uuid) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.happened.push((at, Record::Effect(Effect { at, resource, token, request })));
    }

    /// The ledger admitted a request to the upstream.
    pub fn admitted(&self, operation: Uuid, request: Uuid) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.admitted.push(operation);
        book.happened.push((at, Record::Intent(Intent { operation, request })));
    }

    /// The upstream will do nothing more for an operation, and no gateway knows it.
    pub fn stuck(&self, operation: Uuid) {
        self.book().stuck.push(operation);
    }

    /// One of those, for an operator who has looked at the upstream.
    pub fn any_stuck(&self) -> Option<Uuid> {
        let mut book = self.book();
        match book.stuck.len() {
            0 => None,
            count => {
                let at = self.world.draw(|rng| rng.random_range(0..count));
                Some(book.stuck.swap_remove(at))
            }
        }
    }

    /// All operations that were admitted to the upstream.
    pub fn forwarded(&self) -> Vec<Uuid> {
        self.book().admitted.clone()
    }

    /// The ledger goes back to where these versions were the last.
    pub fn rollback(&self, generation: i64, kept: Vec<(String, i64)>) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.happened.push((at, Record::Rollback(Rollback { at, generation, kept })));
    }

    /// Other rules are in force, and these were the versions before and after that.
    pub fn rules(
        &self,
        asked_at: u64,
        denied: Vec<u32>,
        before: Vec<(String, i64)>,
        after: Vec<(String, i64)>,
    ) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.happened.push((at, Record::Rules(Rules { asked_at, at, denied, before, after })));
    }

    /// The present moment: all that is recorded from here on is later.
    pub fn now(&self) -> u64 {
        let mut book = self.book();
        self.moment(&mut book)
    }

    /// Somebody asks for a lock, and names who else may write under it.
    pub fn writers(&self, lock: Uuid, principals: Vec<u32>) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.happened.push((at, Record::Writers(Writers { lock, principals })));
    }

    /// From here on nothing is broken.
    pub fn healed(&self, resources: Vec<String>) {
        let mut book = self.book();
        let at = self.moment(&mut book);
        book.happened.push((at, Record::Healed(Healed { at, resources })));
    }

    /// The bytes that stand for a value.
    pub fn bytes_of(&self, value: &str, adds: Option<u64>) -> Bytes {
        let bytes = Bytes::copy_from_slice(value.as_bytes());
        let digest = Sha256::digest(&bytes).into();
        self.book().values.insert(digest, (value.to_owned(), adds));
        bytes
    }

    /// An object in parts whose digests have this digest is this value.
    pub fn stands_for(&self, sha256: [u8; 32], value: &str) {
        self.book().values.insert(sha256, (value.to_owned(), None));
    }

    /// Somebody has begun an upload in parts.
    pub fn began(&self, upload: Upload) {
        self.book().uploads.push(upload);
    }

    /// An upload in parts that somebody has begun lately.
    pub fn any_upload(&self) -> Option<Upload> {
        let uploads = self.book().uploads.clone();
        let recent = uploads.len().saturating_sub(4);
        self.world.one_of(&uploads[recent..]).cloned()
    }

    /// Operations of which somebody was told that their outcome is unknown.
    pub fn unknown(&self) -> Vec<Uuid> {
        self.book().unknown.clone()
    }

    /// A token that somebody was given once, with its resource.
    pub fn any_token(&self) -> Option<(String, i64)> {
        let tokens = self.book().tokens.clone();
        // Late ones are more interesting.
        let recent = tokens.len().saturating_sub(12);
        self.world.one_of(&tokens[recent..]).cloned()
    }

    /// A lock that somebody was given lately, with its token and one of its resources.
    pub fn any_lock(&self) -> Option<(Uuid, i64, String)> {
        let locks = self.book().locks.clone();
        let recent = locks.len().saturating_sub(4);
        self.world.one_of(&locks[recent..]).cloned()
    }

    /// The history, with what the ledger holds now.
    pub fn history(&self, server: &LedgerServer) -> History {
        let mut book = self.book();
        let mut timed: Vec<(Micros, Record)> = std::mem::take(&mut book.happened);
        timed.extend(book.calls.values().map(|call| (call.begun_at, Record::Call(call.clone()))));
        timed.sort_by_key(|(at, _)| *at);
        let mut records: Vec<Record> = timed.into_iter().map(|(_, record)| record).collect();
        let (asked, outcomes) = (server.asked(), server.outcomes());
        let memory = server.memory();
        for id in &asked.locks {
            let Some(Ok(Some(lock))) = memory.lock(*id).now_or_never() else { continue };
            let sealed = |resource: &fence_core::ResourceName| {
                let (resource, token) = (resource.to_string(), lock.grant.token.get());
                Record::Sealed(Sealed { resource, token, lock: id.0 })
            };
            records.extend(lock.grant.resources.iter().map(sealed));
        }
        for (id, write) in &asked.operations {
            let committed = |applied| Record::Committed(book.committed(write, applied));
            let rows = outcomes.get(id).into_iter().flatten().cloned();
            records.extend(rows.map(committed));
        }
        History { records }
    }
}

impl Book {
    fn committed(&self, write: &AskedWrite, applied: Applied) -> Committed {
        let here = write.effects.iter().filter(|(resource, _)| *resource == applied.resource);
        Committed {
            operation: applied.operation.0,
            resource: applied.resource.to_string(),
            version: applied.version,
            generation: applied.generation,
            token: write.token.get(),
            sequence: write.sequence,
            idempotency_key: write.key.clone(),
            changes: here.map(|(_, effect)| self.change(effect)).collect(),
        }
    }

    fn change(&self, effect: &LedgerEffect) -> Change {
        match effect {
            LedgerEffect::Put { key, sha256, .. } => {
                let (value, adds) = self.values.get(sha256).cloned().unwrap_or_default();
                Change::Put { key: key.to_string(), value, adds }
            }
            LedgerEffect::Delete { key } => Change::Delete { key: key.to_string() },
            LedgerEffect::DeleteAll => Change::DeleteAll,
        }
    }
}
