//! What the ledger in memory holds, under one mutex.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use uuid::Uuid;

use super::audit_tree::Tree;
use super::buckets::BucketRows;
use crate::acts::{self, Guard, Now, OwnTime, Rows};
use crate::ports::{AuditEntry, BlobId, Clock, Rejection, WriteItem, WriteVerdict};

/// What the ledger holds.
#[derive(Clone)]
pub(super) struct State {
    pub(super) rows: Rows,
    pub(super) rejections: VecDeque<(i64, Rejection)>,
    pub(super) rejections_seen: i64,
    /// How many events were let go.
    pub(super) gone: i64,
    /// Where each generation but the first began.
    pub(super) rewound: Vec<(i64, i64)>,
    pub(super) blobs: BlobRows,
    pub(super) refenced_at: Option<Timestamp>,
    /// The rules of access.
    pub(super) access: Option<String>,
    /// The tree over the audit.
    pub(super) tree: Tree,
    /// The buckets of S3.
    pub(super) buckets: BucketRows,
}

impl State {
    /// Whether an entry of the audit is kept: all are, but grants that were let go.
    pub(super) fn keeps(&self, entry: &AuditEntry) -> bool {
        match (&entry.resource, entry.token) {
            (Some(resource), Some(token)) if entry.action.is_of_grant() => {
                self.rows.grants.contains_key(&(resource.clone(), token))
            }
            _ => true,
        }
    }

    /// The highest number of an entry that was let go.
    pub(super) fn grants_let_go(&self) -> i64 {
        let numbered = (1..).zip(&self.rows.audited);
        numbered
            .filter(|(_, entry)| !self.keeps(entry))
            .map(|(number, _)| number)
            .max()
            .unwrap_or(0)
    }
}

/// A ledger that forgets everything with the process.
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl MemoryLedger {
    /// Keeps replaced versions whose bytes are in the ledger, too.
    pub fn keeping_versions(self) -> Self {
        self.state().rows.keeps_versions = true;
        self
    }

    /// An empty ledger in epoch 0, not open yet.
    pub fn new(clock: Arc<dyn Clock>, nonce: Uuid) -> Self {
        let guard = Guard {
            epoch: 0,
            nonce,
            open: false,
            base: 0,
            floor: 0,
            generation: 0,
            ledger: nonce,
            rules: 0,
            time: OwnTime::beginning(clock.now()),
        };
        Self {
            clock,
            state: Mutex::new(State {
                rows: Rows::new(guard),
                rejections: VecDeque::new(),
                rejections_seen: 0,
                gone: 0,
                rewound: Vec::new(),
                blobs: BlobRows::default(),
                refenced_at: None,
                access: None,
                tree: Tree::default(),
                buckets: BucketRows::default(),
            }),
        }
    }

    /// A ledger of its own that holds what this one holds now, as a standby or a backup does.
    pub fn copy(&self) -> Self {
        Self { clock: Arc::clone(&self.clock), state: Mutex::new(self.state().clone()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        Now {
            wall: self.clock.now(),
            elapsed_ms: i64::try_from(self.clock.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// Runs an act for each item, in order.
    pub(super) fn act<I, V>(
        &self,
        items: &[I],
        mut act: impl FnMut(&mut Rows, &I, Now) -> V,
    ) -> Vec<V> {
        let now = self.now();
        let mut state = self.state();
        let verdicts = items.iter().map(|item| act(&mut state.rows, item, now)).collect();
        let own = state.rows.guard.time.to_forget_by(now);
        for blob in std::mem::take(&mut state.rows.discarded) {
            state.discard(blob, None, own, true);
        }
        state.rows.journal.clear();
        state.rows.queue.settle();
        verdicts
    }
}

impl MemoryLedger {
    /// How [`Mutant::BatchOnOldState`](crate::mutants::Mutant) commits.
    pub(super) fn act_on_old_state(&self, items: &[WriteItem]) -> Vec<WriteVerdict> {
        let before = self.state().rows.clone();
        let judged = |rows: &mut Rows, item: &WriteItem, now| {
            let verdict = acts::commit(&mut before.clone(), item, now);
            if !matches!(verdict, WriteVerdict::Applied { replayed: false, .. }) {
                return verdict;
            }
            let blind = WriteItem {
                sequence: None,
                idempotency: None,
                resource_version: None,
                ..item.clone()
            };
            acts::commit(rows, &blind, now)
        };
        self.act(items, judged)
    }
}

/// Garbage, and what keeps blobs from becoming it.
#[derive(Clone, Default)]
pub(super) struct BlobRows {
    pub(super) garbage: BTreeMap<BlobId, GarbageRow>,
    pub(super) pins: HashMap<BlobId, Timestamp>,
    pub(super) store: Option<Uuid>,
}

/// A blob to delete.
#[derive(Clone)]
pub(super) struct GarbageRow {
    pub(super) handle: Option<String>,
    pub(super) due_at: Timestamp,
    pub(super) deleted: bool,
    /// Whether it has yet to stay for the rollback horizon.
    pub(super) may_return: bool,
}

/// How many rows a caller asks for.
pub(super) fn limit(rows: i64) -> usize {
    usize::try_from(rows).unwrap_or(0)
}
