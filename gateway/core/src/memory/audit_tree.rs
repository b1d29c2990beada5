//! The tree over the audit of the ledger in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::state::MemoryLedger;
use crate::ports::{
    AuditAction, AuditEntry, AuditTree, LedgerError, TILE_LEAVES, TreeGrowth, TreeHead, TreeTile,
};

/// The tree.
#[derive(Clone, Default)]
pub(super) struct Tree {
    size: i64,
    upto: i64,
    roots: Vec<[u8; 32]>,
    note: Option<String>,
    witnessed: Option<String>,
    tiles: BTreeMap<i64, TreeTile>,
}

impl Tree {
    /// All entries up to this number are in it.
    pub(super) fn upto(&self) -> i64 {
        self.upto
    }
}

#[async_trait]
impl AuditTree for MemoryLedger {
    async fn tree_head(&self) -> Result<TreeHead, LedgerError> {
        let state = self.state();
        let (guard, tree) = (&state.rows.guard, &state.tree);
        let last = tree.tiles.values().next_back();
        Ok(TreeHead {
            ledger: guard.ledger,
            generation: guard.generation,
            size: tree.size,
            upto: tree.upto,
            roots: tree.roots.clone(),
            note: tree.note.clone(),
            witnessed: tree.witnessed.clone(),
            last: last.filter(|tile| tile.leaves.len() < TILE_LEAVES).cloned(),
        })
    }

    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError> {
        let at = self.now().wall;
        let state = &mut *self.state();
        let tree = &mut state.tree;
        if tree.size != growth.from || state.rows.guard.generation != growth.generation {
            return Ok(false);
        }
        (tree.size, tree.upto) = (growth.size, growth.upto);
        tree.roots.clone_from(&growth.roots);
        tree.note = Some(growth.note.clone());
        tree.tiles.extend(growth.tiles.iter().map(|tile| (tile.tile, tile.clone())));
        let fork = growth.fork.iter();
        let entry = fork.map(|why| AuditEntry::because(AuditAction::Fork, at, why));
        state.rows.audited.extend(entry);
        Ok(true)
    }

    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError> {
        self.state().tree.witnessed = Some(note.to_owned());
        Ok(())
    }

    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError> {
        let limit = usize::try_from(limit).unwrap_or_default();
        Ok(self
            .state()
            .tree
            .tiles
            .range(from..)
            .map(|(_, tile)| tile)
            .take(limit)
            .cloned()
            .collect())
    }

    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError> {
        Ok(self.state().tree.tiles.values().filter_map(|tile| tile.root).collect())
    }

    async fn grants_let_go(&self) -> Result<i64, LedgerError> {
        Ok(self.state().grants_let_go())
    }
}
