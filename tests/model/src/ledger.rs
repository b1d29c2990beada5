//! The ledger of the models: fence-core's own rows, changed by fence-core's own acts, small and hashable
//! enough to be part of a state.
//!
//! What is abstracted is time and place. The clock stands still: a lock expires, and a break comes due,
//! when the model says so, at any moment, which covers every clock there could be (I14). The timeline of
//! the server is a number that the models compare as `acts.assert_place` does.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fence_core::acts::{self, Guard, Now, OwnTime, Rows};
use fence_core::lock::{LockId, OperationId};
use fence_core::names::{ObjectKey, ResourceName};
use fence_core::ports::{Attempt, By, SealItem, SealKind, WriteItem, WriteVerdict};
use fence_core::rule::Hold;
use fence_core::{Metadata, Token, Ttl};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

/// What the clock of the acts shows, in milliseconds; an expired lock has a deadline before it.
const ELAPSED_MS: i64 = 1_000;

/// The time of an act, so many ticks after the beginning. Only the model of blobs has ticks.
pub fn now(tick: u8) -> Now {
    Now {
        wall: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(i64::from(tick)),
        elapsed_ms: ELAPSED_MS,
    }
}

/// The name of a resource of the models.
pub fn resource(index: u8) -> ResourceName {
    let name = if index == 0 { "r" } else { "s" };
    ResourceName::new(name).unwrap_or_else(|error| unreachable!("{error}"))
}

/// The only object of each resource.
pub fn object() -> ObjectKey {
    ObjectKey::new("o").unwrap_or_else(|error| unreachable!("{error}"))
}

/// The name of a client.
pub fn owner(client: u8) -> String {
    char::from(b'a' + client).to_string()
}

/// A lock id from a small number.
pub fn lock_id(number: u8) -> LockId {
    LockId(Uuid::from_u128(0x100 + u128::from(number)))
}

/// An operation id from a small number.
pub fn operation_id(number: u8) -> OperationId {
    OperationId(Uuid::from_u128(0x1000 + u128::from(number)))
}

/// A nonce of the mint.
pub fn nonce(number: u8) -> Uuid {
    Uuid::from_u128(0x10000 + u128::from(number))
}

/// A lock of a client on some resources, to be sealed at once or not at all.
pub fn seal_item(id: LockId, client: u8, resources: &[u8], number: Option<i64>) -> SealItem {
    SealItem {
        kind: SealKind::Lock,
        lock: id,
        resources: resources.iter().copied().map(resource).collect(),
        owner: owner(client),
        ttl: Some(Ttl::DEFAULT),
        max_hold: None,
        metadata: Metadata::default(),
        number,
        attempt: Attempt::First,
        waits: None,
        by: By::default(),
        principal: None,
        writers: Vec::new(),
    }
}

/// The tables of a ledger, with what the guard's row says of the server they are on.
#[derive(Clone)]
pub struct Ledger {
    rows: Arc<Rows>,
    print: u64,
    /// The timeline that the guard's row carries. It goes back with the tables, the server's own does not.
    pub timeline: u8,
    /// Whether an act has made a fence fall, or removed one (I2, I10).
    pub fell: bool,
}

impl Default for Ledger {
    /// Empty tables in an epoch that is open, with the first nonce.
    fn default() -> Self {
        let guard = Guard {
            epoch: 0,
            nonce: nonce(0),
            open: true,
            base: 0,
            floor: 0,
            generation: 0,
            ledger: Uuid::from_u128(1),
            rules: 0,
            time: OwnTime::beginning(Timestamp::UNIX_EPOCH),
        };
        let rows = Rows::new(guard);
        Self { print: print(&rows), rows: Arc::new(rows), timeline: 0, fell: false }
    }
}

impl Ledger {
    /// The tables.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Runs an act, all of it or nothing, and returns its verdict.
    pub fn act<V>(&mut self, act: impl FnOnce(&mut Rows) -> V) -> V {
        let mut rows = Rows::clone(&self.rows);
        let verdict = act(&mut rows);
        let stands = |(name, before): (&ResourceName, &acts::FenceRow)| {
            rows.fences.get(name).is_some_and(|after| after.token >= before.token)
        };
        self.fell |= !self.rows.fences.iter().all(stands);
        // Records that no act reads.
        rows.audited.clear();
        rows.written.clear();
        rows.journal.clear();
        rows.queue.settle();
        self.print = print(&rows);
        self.rows = Arc::new(rows);
        verdict
    }

    /// Whether the lock of a resource keeps others out.
    pub fn is_held(&self, index: u8) -> bool {
        let fence = self.rows.fences.get(&resource(index));
        fence
            .is_some_and(|fence| fence.is_held(now(0)) && fence.token.get() > self.rows.guard.floor)
    }

    /// The token sealed last on a resource; 0 for none.
    pub fn fence(&self, index: u8) -> i64 {
        self.rows.fences.get(&resource(index)).map_or(0, |fence| fence.token.get())
    }

    /// Whether an intent is open.
    pub fn is_open(&self, id: OperationId) -> bool {
        self.rows.forwards.get(&id).is_some_and(|row| row.closed.is_none())
    }

    /// The version of a resource.
    pub fn version(&self, index: u8) -> i64 {
        self.rows.fences.get(&resource(index)).map_or(0, |fence| fence.version)
    }

    /// The highest token that these tables know of.
    pub fn highest(&self) -> i64 {
        self.rows.grants.keys().map(|(_, token)| token.get()).max().unwrap_or(0)
    }

    /// Whether this token was sealed on this resource.
    pub fn is_sealed(&self, index: u8, token: i64) -> bool {
        Token::new(token)
            .is_some_and(|token| self.rows.grants.contains_key(&(resource(index), token)))
    }

    /// Lets the lock of a resource expire.
    pub fn expire(&mut self, index: u8) {
        self.act(|rows| {
            if let Some(fence) = rows.fences.get_mut(&resource(index)) {
                fence.deadline_ms = 0;
            }
        });
    }
}

/// Commits a write on a fence that has been made to admit its token whatever the rule would have said: how
/// mutants get past the rule.
pub fn commit_unjudged(rows: &mut Rows, item: &WriteItem) -> WriteVerdict {
    unjudged(rows, (&item.resource, item.token, item.lock), |rows| acts::commit(rows, item, now(0)))
}

/// Acts as if this were the token and the lock in force.
pub fn unjudged<V>(
    rows: &mut Rows,
    (resource, token, lock): (&ResourceName, Token, Option<LockId>),
    act: impl FnOnce(&mut Rows) -> V,
) -> V {
    let before = rows.fences.get(resource).cloned();
    if let Some(fence) = rows.fences.get_mut(resource) {
        (fence.token, fence.hold, fence.last_sequence) = (token, Hold::Held, 0);
        fence.lock = lock.unwrap_or(fence.lock);
    }
    let verdict = act(rows);
    if let (Some(fence), Some(before)) = (rows.fences.get_mut(resource), before) {
        (fence.token, fence.hold, fence.lock) = (before.token, before.hold, before.lock);
        fence.last_sequence = fence.last_sequence.max(before.last_sequence);
    }
    verdict
}

impl PartialEq for Ledger {
    fn eq(&self, other: &Self) -> bool {
        (self.print, self.timeline, self.fell) == (other.print, other.timeline, other.fell)
    }
}

impl Eq for Ledger {}

impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.print, self.timeline, self.fell).hash(state);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = &self.rows.guard;
        write!(f, "epoch {} base {} floor {}", guard.epoch, guard.base, guard.floor)?;
        for (name, fence) in &self.rows.fences {
            let held = if fence.is_held(now(0)) { "live" } else { "over" };
            let (token, hold, version) = (fence.token, fence.hold, fence.version);
            write!(f, ", {name:?}: {token} {hold:?} {held} v{version}")?;
        }
        Ok(())
    }
}

/// A digest of everything that an act reads. The checker itself knows states by digests of 64 bits.
fn print(rows: &Rows) -> u64 {
    let state = &mut DefaultHasher::new();
    let guard = &rows.guard;
    (guard.epoch, guard.nonce, guard.open, guard.base, guard.floor, guard.generation).hash(state);
    guard.rules.hash(state);
    for (name, fence) in &rows.fences {
        (name.as_str(), fence.token, fence.lock, fence.hold as u8, fence.deadline_ms).hash(state);
        (fence.break_due, fence.frozen.is_some(), fence.version, fence.last_sequence).hash(state);
        (fence.objects, fence.grants, fence.live_token).hash(state);
        (&fence.principal, &fence.writers).hash(state);
    }
    for ((name, token), grant) in &rows.grants {
        (name.as_str(), token, grant.lock, grant.ordinal).hash(state);
        (&grant.principal, &grant.writers).hash(state);
    }
    for ((name, key), row) in &rows.objects {
        let object = &row.object;
        (name.as_str(), key.as_str(), object.tag, object.payload.blob()).hash(state);
    }
    for ((name, key), row) in &rows.keys {
        (name.as_str(), key, row.operation).hash(state);
    }
    for row in &rows.replaced {
        (row.resource.as_str(), row.object.tag, row.object.payload.blob(), row.at).hash(state);
    }
    for ((upload, number), part) in &rows.parts {
        (upload, number, part.blob, part.begun_at).hash(state);
    }
    for (id, row) in &rows.forwards {
        let closed = row.closed.as_ref().map(|(end, _)| format!("{end:?}"));
        (id, row.token, closed).hash(state);
    }
    for (name, row) in &rows.upstreams {
        (name, row.doubt).hash(state);
    }
    // Tables without an order of their own: digests of their rows, added up.
    let row = |row: &dyn Fn(&mut DefaultHasher)| {
        let mut state = DefaultHasher::new();
        row(&mut state);
        state.finish()
    };
    let mut unordered = 0_u64;
    for (id, lock) in &rows.locks {
        let ended = lock.ended.map(|(how, _)| how as u8);
        let whose = (&lock.principal, &lock.writers);
        let digest =
            row(&|state| (1, id, lock.token, lock.resources.len(), ended, whose).hash(state));
        unordered = unordered.wrapping_add(digest);
    }
    for id in rows.buried.keys() {
        unordered = unordered.wrapping_add(row(&|state| (2, id).hash(state)));
    }
    for (id, applied) in &rows.operations {
        let versions: Vec<_> = applied.iter().map(|one| (one.version, one.generation)).collect();
        unordered = unordered.wrapping_add(row(&|state| (3, id, &versions).hash(state)));
    }
    for (id, intent) in &rows.intents {
        let digest = row(&|state| (4, id, intent.begun_at, intent.upload.is_some()).hash(state));
        unordered = unordered.wrapping_add(digest);
    }
    unordered.hash(state);
    state.finish()
}
