//! The Merkle tree over the audit as the ledger keeps it: how far it has come, and what it keeps of each entry.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::LedgerError;

/// How many leaves there are in a tile: the tree is kept in pieces of this size.
pub const TILE_LEAVES: usize = 256;

/// What the tree keeps of an entry, also once the entry itself is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLeaf {
    /// The number of the entry in the audit.
    pub number: i64,
    /// Whether it is a grant: nothing else is ever let go.
    pub is_grant: bool,
    /// The digest of its fields.
    pub digest: [u8; 32],
}

/// Leaves beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeTile {
    /// Which one, from 0: it begins with this many times [`TILE_LEAVES`].
    pub tile: i64,
    /// Its leaves, by their numbers; fewer only in the last one.
    pub leaves: Vec<TreeLeaf>,
    /// The root over them, once there are all.
    pub root: Option<[u8; 32]>,
}

/// How far the tree has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    /// The ledger that it is of.
    pub ledger: Uuid,
    /// The generation of that ledger.
    pub generation: i64,
    /// How many leaves it has.
    pub size: i64,
    /// All entries up to this number are in it.
    pub upto: i64,
    /// The roots of its complete subtrees, the largest first.
    pub roots: Vec<[u8; 32]>,
    /// The checkpoint of this size; none before the first step.
    pub note: Option<String>,
    /// The newest one that an outside witness has signed, too.
    pub witnessed: Option<String>,
    /// The last tile, if it is not full.
    pub last: Option<TreeTile>,
}

/// One step of its growth.
#[derive(Debug, Clone)]
pub struct TreeGrowth {
    /// The size that it grows from.
    pub from: i64,
    /// The generation of the ledger that its entries were read from.
    pub generation: i64,
    /// How many leaves it has then.
    pub size: i64,
    /// All entries up to this number are in it then.
    pub upto: i64,
    /// The roots of its complete subtrees then.
    pub roots: Vec<[u8; 32]>,
    /// The checkpoint of it then.
    pub note: String,
    /// The tiles that are new, or have more leaves than before.
    pub tiles: Vec<TreeTile>,
    /// With the first step of a generation: what the audit is to say of it.
    pub fork: Option<String>,
}

/// A checkpoint that is to be kept outside of the ledger.
#[derive(Debug, Clone)]
pub struct KeepCheckpoint {
    /// The note.
    pub note: String,
    /// How many leaves it has.
    pub size: i64,
    /// Of which generation of the ledger it is.
    pub generation: i64,
    /// The size that the place was said to have last; 0 for none.
    pub from: i64,
    /// That those are the beginning of these.
    pub proof: Vec<[u8; 32]>,
}

/// What a place says to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointKept {
    /// It has it, or a newer one.
    Kept,
    /// It goes there with something else that is written there now and then.
    Underway,
    /// A witness has it, and has signed it: the lines that it adds to the note.
    Signed(String),
    /// It has seen so many leaves, and wants a proof from there.
    Behind(i64),
    /// A checkpoint of the same generation stands in the way: one of so many leaves that is newer, or another one of this
    /// size. A ledger without those leaves went back.
    Beyond(i64),
}

/// A place outside of the ledger that keeps checkpoints of its audit, so that whoever changes the ledger is found out.
#[async_trait]
pub trait CheckpointPlace: Send + Sync {
    /// What people call it.
    fn name(&self) -> String;

    /// How often it is to be told at most.
    fn interval(&self) -> Duration;

    /// Keeps a checkpoint, unless it has one of a higher generation, or of the same with as many leaves. The error says why
    /// that could not be done, or that it is not known.
    async fn keep(&self, checkpoint: &KeepCheckpoint) -> Result<CheckpointKept, String>;

    /// The newest that it has; none for a place that only signs, too.
    async fn newest(&self) -> Result<Option<String>, String>;
}

/// The part of the ledger that is about the tree.
#[async_trait]
pub trait AuditTree: Send + Sync {
    /// How far it has come.
    async fn tree_head(&self) -> Result<TreeHead, LedgerError>;

    /// Takes a step, unless the tree has another size by now, or the ledger another generation: it may have gone back to
    /// before the entries of this step. Says whether it did.
    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError>;

    /// Keeps a checkpoint that a witness has signed.
    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError>;

    /// At most so many tiles from this one on, in order.
    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError>;

    /// The roots of all full tiles, in order.
    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError>;

    /// Up to which number of the audit grants were let go that others of their resource followed.
    async fn grants_let_go(&self) -> Result<i64, LedgerError>;
}

/// Roots in a row, as ledgers keep them.
pub fn roots_from(bytes: &[u8]) -> Result<Vec<[u8; 32]>, LedgerError> {
    let (roots, rest) = bytes.as_chunks::<32>();
    match rest {
        [] => Ok(roots.to_vec()),
        _ => Err(LedgerError::Defect("half a hash in the tree of the audit".into())),
    }
}
