//! What all sessions of a round share: the ledgers of a few gateways, the record, the mint, and what they know of
//! each other's locks and lost answers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{BlobId, CommitItem, Epoch, LedgerError, WriteItem};
use fence_history::{Answer, Answered, Asked, Call, Change};
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::RwLock;
use uuid::Uuid;

use crate::book::Book;
use crate::line::{Line, moment};

/// How many gateways there are, each with a ledger of its own.
pub const GATEWAYS: usize = 3;
/// How many sessions each of them may have with the server.
const CONNECTIONS: usize = 5;
/// How long the server may take over a call. Short, so that many sessions that stand still are given up.
const TIMEOUT: Duration = Duration::from_millis(300);
/// How many of the last grants and keys are remembered, for late writes and for replays.
const REMEMBERED: usize = 24;
/// By how much the mint's numbers rise. Tokens in between are nobody's, now and later.
pub const STRIDE: i64 = 8;
/// How long a resource is left to its holders, before it is not for twice as long. Without the one, what was lost comes back when its token is
/// stale; without the other, tokens would seldom be.
const PHASE_US: u64 = 2_500_000;
/// The upstream, and what the names of its resources begin with.
pub const UPSTREAM: &str = "up";

/// A lock that somebody was given.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its id.
    pub lock: Uuid,
    /// Its token.
    pub token: i64,
    /// Its resources, each with a version that it had.
    pub versions: Vec<(String, i64)>,
    /// The last sequence number that was used under it.
    pub sequence: Arc<AtomicI64>,
}

/// A write whose caller went away before its outcome was known.
#[derive(Debug, Clone)]
pub enum Lost {
    /// One.
    Write(WriteItem),
    /// One over several resources.
    Commit(CommitItem),
}

/// An idempotency key that was used, on which resource and for what.
pub type Used = (String, String, Change);

/// A step of a commit: what it does, and to which resource.
pub type Step = (String, Change);

/// What the sessions of a round share.
pub struct Stage {
    /// What was asked and told.
    pub book: Book,
    /// All resources, sorted.
    pub resources: Vec<ResourceName>,
    /// The gateways' ids.
    pub gateways: Vec<Uuid>,
    /// Whether sessions are to end.
    pub stop: AtomicBool,
    /// Held, shared, by whoever is between a ledger and the upstream; alone, by who says that nothing is under way.
    pub under_way: RwLock<()>,
    ledgers: Mutex<Vec<Arc<PgLedger>>>,
    number: AtomicI64,
    calls: AtomicU64,
    lost_answers: AtomicU64,
    epoch: Mutex<Option<Epoch>>,
    grants: Mutex<VecDeque<Known>>,
    used: Mutex<VecDeque<Used>>,
    newest: Mutex<HashMap<String, i64>>,
    commits: Mutex<HashMap<Uuid, Vec<Step>>>,
    lost: Mutex<Vec<Lost>>,
    blobs: Mutex<HashMap<BlobId, String>>,
    trouble: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember<T>(all: &Mutex<VecDeque<T>>, one: T) {
    let mut all = lock(all);
    all.push_back(one);
    if all.len() > REMEMBERED {
        all.pop_front();
    }
}

impl Stage {
    /// One before this database.
    pub fn new(
        options: &PgConnectOptions,
        resources: Vec<ResourceName>,
        ids: [Uuid; GATEWAYS],
    ) -> Self {
        let stage = Self {
            book: Book::default(),
            resources,
            gateways: ids.into(),
            stop: AtomicBool::new(false),
            under_way: RwLock::new(()),
            ledgers: Mutex::default(),
            number: AtomicI64::new(STRIDE),
            calls: AtomicU64::new(0),
            lost_answers: AtomicU64::new(0),
            epoch: Mutex::default(),
            grants: Mutex::default(),
            used: Mutex::default(),
            newest: Mutex::default(),
            commits: Mutex::default(),
            lost: Mutex::default(),
            blobs: Mutex::default(),
            trouble: Mutex::default(),
        };
        stage.connect(options, TIMEOUT);
        stage
    }

    /// Gives each gateway a ledger anew.
    pub fn connect(&self, options: &PgConnectOptions, timeout: Duration) {
        let settings =
            || PgSettings { options: options.clone(), connections_max: CONNECTIONS, timeout };
        let ledgers = (0..GATEWAYS).map(|_| Arc::new(PgLedger::new(settings())));
        *lock(&self.ledgers) = ledgers.collect();
    }

    /// Ends all sessions with the server.
    pub fn disconnect(&self) {
        lock(&self.ledgers).clear();
    }

    /// The ledger of a gateway.
    pub fn ledger(&self, gateway: usize) -> Arc<PgLedger> {
        let ledgers = lock(&self.ledgers);
        Arc::clone(&ledgers[gateway % ledgers.len()])
    }

    /// Whether holders of this resource are left alone for now; others are not then.
    pub fn is_calm(&self, resource: &str) -> bool {
        let place = self.resources.iter().position(|one| one.as_str() == resource);
        (moment() / PHASE_US + place.unwrap_or(0) as u64).is_multiple_of(3)
    }

    /// A number that rises, and may be told later than a higher one.
    pub fn mint(&self) -> i64 {
        self.number.fetch_add(STRIDE, Ordering::SeqCst)
    }

    /// The epoch, as far as it is known here.
    pub fn epoch(&self) -> Option<Epoch> {
        lock(&self.epoch).clone()
    }

    /// Which epoch it is; `None`: somebody has to look.
    pub fn set_epoch(&self, epoch: Option<Epoch>) {
        *lock(&self.epoch) = epoch;
    }

    /// Somebody is about to ask something. Returns the number of the call.
    pub fn begin(&self, client: u32, asked: Asked) -> u64 {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let begun_at = moment();
        let call =
            Call { number, client, principal: 0, gateway: 0, begun_at, asked, answered: None };
        self.book.write(Line::Begun(call));
        number
    }

    /// And was told this.
    pub fn answer(&self, number: u64, answer: Answer) {
        if let Answer::Granted { lock, token, versions, .. } = &answer {
            let (lock, token, versions) = (*lock, *token, versions.clone());
            remember(&self.grants, Known { lock, token, versions, sequence: Arc::default() });
        }
        if let Answer::Written { versions, .. } = &answer {
            let mut newest = lock(&self.newest);
            for (resource, version) in versions {
                let known = newest.entry(resource.clone()).or_default();
                *known = version.unwrap_or(0).max(*known);
            }
        }
        self.book.write(Line::Answered { number, answered: Answered { at: moment(), answer } });
    }

    /// The locks that were granted last.
    pub fn grants(&self) -> Vec<Known> {
        lock(&self.grants).iter().cloned().collect()
    }

    /// The highest version of a resource that anybody was told of.
    pub fn newest(&self, resource: &str) -> i64 {
        lock(&self.newest).get(resource).copied().unwrap_or(0)
    }

    /// What a commit with this id is to do.
    pub fn plan(&self, operation: Uuid, steps: Vec<Step>) {
        lock(&self.commits).insert(operation, steps);
    }

    /// What commits were to do, by their ids.
    pub fn plans(&self) -> HashMap<Uuid, Vec<Step>> {
        lock(&self.commits).clone()
    }

    /// A key is about to be used.
    pub fn use_key(&self, used: Used) {
        remember(&self.used, used);
    }

    /// The keys that were used last.
    pub fn used(&self) -> Vec<Used> {
        lock(&self.used).iter().cloned().collect()
    }

    /// Nobody waits any more for what becomes of this.
    pub fn lose(&self, one: Lost) {
        lock(&self.lost).push(one);
    }

    /// One of those, for somebody who wants to know.
    pub fn find(&self, at: usize) -> Option<Lost> {
        let mut lost = lock(&self.lost);
        let count = lost.len();
        (count > 0).then(|| lost.swap_remove(at % count))
    }

    /// The store: a blob is there from now on.
    pub fn store(&self, blob: BlobId, value: String) {
        lock(&self.blobs).insert(blob, value);
    }

    /// What a blob holds, if it is there.
    pub fn stored(&self, blob: BlobId) -> Option<String> {
        lock(&self.blobs).get(&blob).cloned()
    }

    /// A blob is there no more.
    pub fn discard(&self, blob: BlobId) {
        lock(&self.blobs).remove(&blob);
    }

    /// What an error of the ledger leaves: whether it is unknown what it did. An error that no session which is cut off
    /// explains is trouble.
    pub fn leaves_unknown(&self, error: &LedgerError) -> bool {
        match error {
            LedgerError::Unavailable(_) | LedgerError::Slow(_) | LedgerError::Unwritable(_) => {
                false
            }
            LedgerError::Unknown(_) => {
                self.lost_answers.fetch_add(1, Ordering::Relaxed);
                true
            }
            LedgerError::RulesMoved => false,
            LedgerError::EpochMoved => {
                self.set_epoch(None);
                false
            }
            LedgerError::RefenceRequired(_) | LedgerError::Defect(_) => {
                self.trouble(error.to_string());
                false
            }
            LedgerError::Unreadable(_) => {
                self.trouble(error.to_string());
                true
            }
        }
    }

    /// Something went wrong that no checker sees.
    pub fn trouble(&self, what: String) {
        let mut trouble = lock(&self.trouble);
        if !trouble.contains(&what) {
            trouble.push(what);
        }
    }

    /// All of that.
    pub fn troubles(&self) -> Vec<String> {
        lock(&self.trouble).clone()
    }

    /// How many answers were lost.
    pub fn lost_answers(&self) -> u64 {
        self.lost_answers.load(Ordering::Relaxed)
    }
}
