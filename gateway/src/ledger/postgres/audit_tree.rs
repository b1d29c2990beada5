//! The tree over the audit, as a call of `schema/postgres/acts/audit_tree.sql`, and what it keeps.

use async_trait::async_trait;
use fence_core::ports::{
    AuditTree, LedgerError, TILE_LEAVES, TreeGrowth, TreeHead, TreeTile, roots_from,
};
use uuid::Uuid;

use super::PgLedger;
use super::reads::fetch_anyway;
use super::session::harmless;
use crate::ledger::rows::leaves;

row! {
    struct HeadRow {
        ledger: Uuid,
        generation: i64,
        size: i64,
        upto: i64,
        roots: Vec<u8>,
        note: Option<String>,
        witnessed: Option<String>,
    }
}

row! {
    struct TileRow {
        tile: i64,
        numbers: Vec<i64>,
        grants: Vec<bool>,
        digests: Vec<u8>,
        root: Option<Vec<u8>>,
    }
}

impl TileRow {
    fn tile(self) -> Result<TreeTile, LedgerError> {
        let leaves = leaves(&self.numbers, &self.grants, &self.digests)?;
        let root = roots_from(&self.root.unwrap_or_default())?.pop();
        Ok(TreeTile { tile: self.tile, leaves, root })
    }
}

#[async_trait]
impl AuditTree for PgLedger {
    async fn tree_head(&self) -> Result<TreeHead, LedgerError> {
        let query = sqlx::query_as::<_, HeadRow>(
            "SELECT s.ledger, g.generation, t.size, t.upto, t.roots, t.note, t.witnessed
             FROM fencegate.audit_tree t CROSS JOIN fencegate.write_guard g CROSS JOIN fencegate.seal_guard s",
        );
        let head: HeadRow = fetch_anyway!(self.sessions, fetch_one, query)?;
        // It may have grown in between; then the step that follows from this comes too late.
        let last = self.tree_tiles(head.size / TILE_LEAVES as i64, 1).await?.pop();
        Ok(TreeHead {
            ledger: head.ledger,
            generation: head.generation,
            size: head.size,
            upto: head.upto,
            roots: roots_from(&head.roots)?,
            note: head.note,
            witnessed: head.witnessed,
            last: last.filter(|tile| tile.leaves.len() < TILE_LEAVES),
        })
    }

    #[tracing::instrument(level = "debug", name = "ledger.grow_tree", skip_all)]
    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError> {
        let leaves = || {
            growth.tiles.iter().flat_map(|tile| tile.leaves.iter().map(move |leaf| (tile, leaf)))
        };
        let full = || growth.tiles.iter().filter_map(|tile| Some((tile.tile, tile.root?)));
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_scalar::<_, bool>(concat!(
            "SELECT ",
            acts!(),
            ".grow_audit_tree($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
        ))
        .bind(session.seen)
        .bind(growth.from)
        .bind(growth.generation)
        .bind(growth.size)
        .bind(growth.upto)
        .bind(growth.roots.concat())
        .bind(&growth.note)
        .bind(leaves().map(|(tile, _)| tile.tile).collect::<Vec<_>>())
        .bind(leaves().map(|(_, leaf)| leaf.number).collect::<Vec<_>>())
        .bind(leaves().map(|(_, leaf)| leaf.is_grant).collect::<Vec<_>>())
        .bind(leaves().map(|(_, leaf)| leaf.digest.to_vec()).collect::<Vec<_>>())
        .bind(full().map(|(tile, _)| tile).collect::<Vec<_>>())
        .bind(full().map(|(_, root)| root.to_vec()).collect::<Vec<_>>())
        .bind(&growth.fork)
        .fetch_one(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        self.sessions.settle(session, answer)
    }

    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError> {
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query(concat!("SELECT ", acts!(), ".keep_witnessed($1, $2)"))
            .bind(session.seen)
            .bind(note)
            .execute(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        self.sessions.settle(session, answer).map(|_| ())
    }

    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError> {
        let query = sqlx::query_as::<_, TileRow>(
            "SELECT * FROM fencegate.audit_tiles t WHERE t.tile >= $1 ORDER BY t.tile LIMIT $2",
        )
        .bind(from)
        .bind(limit);
        let rows: Vec<TileRow> = fetch_anyway!(self.sessions, fetch_all, query)?;
        rows.into_iter().map(TileRow::tile).collect()
    }

    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError> {
        let query = sqlx::query_scalar::<_, Vec<u8>>(
            "SELECT coalesce(string_agg(t.root, '' ORDER BY t.tile), '') FROM fencegate.audit_tiles t
             WHERE t.root IS NOT NULL",
        );
        let roots: Vec<u8> = fetch_anyway!(self.sessions, fetch_one, query)?;
        roots_from(&roots)
    }

    async fn grants_let_go(&self) -> Result<i64, LedgerError> {
        let query = sqlx::query_scalar("SELECT h.grants FROM fencegate.history h");
        fetch_anyway!(self.sessions, fetch_one, query)
    }
}
