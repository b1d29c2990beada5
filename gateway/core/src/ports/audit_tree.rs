//! The Merkle tree over the audit as the ledger keeps it: how far it has come, and what it keeps of each entry.

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
    /// The last tile, if it is not full.
    pub last: Option<TreeTile>,
}

/// One step of its growth.
#[derive(Debug, Clone)]
pub struct TreeGrowth {
    /// The size that it grows from.
    pub from: i64,
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
}

/// The part of the ledger that is about the tree.
#[async_trait]
pub trait AuditTree: Send + Sync {
    /// How far it has come.
    async fn tree_head(&self) -> Result<TreeHead, LedgerError>;

    /// Takes a step, unless it has grown since from another size; says whether it did.
    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError>;

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
