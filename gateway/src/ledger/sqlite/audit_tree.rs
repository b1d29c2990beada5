//! The tree over the audit.

use async_trait::async_trait;
use fence_core::ports::{
    AuditAction, AuditEntry, AuditTree, LedgerError, TILE_LEAVES, TreeGrowth, TreeHead, TreeTile,
    roots_from,
};
use sqlx::Connection as _;
use uuid::Uuid;

use super::bulk::Script;
use super::{SqliteLedger, rolled_back};
use crate::ledger::rows::leaves;

row! {
    struct HeadRow {
        ledger: String,
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
        numbers: String,
        grants: String,
        digests: Vec<u8>,
        root: Option<Vec<u8>>,
    }
}

impl TileRow {
    fn tile(self) -> Result<TreeTile, LedgerError> {
        let unreadable = |error| LedgerError::Defect(format!("a tile of the audit: {error}"));
        let numbers: Vec<i64> = serde_json::from_str(&self.numbers).map_err(unreadable)?;
        let grants: Vec<bool> = serde_json::from_str(&self.grants).map_err(unreadable)?;
        let leaves = leaves(&numbers, &grants, &self.digests)?;
        let root = roots_from(&self.root.unwrap_or_default())?.pop();
        Ok(TreeTile { tile: self.tile, leaves, root })
    }
}

#[async_trait]
impl AuditTree for SqliteLedger {
    async fn tree_head(&self) -> Result<TreeHead, LedgerError> {
        let mut reader = self.reader().await?;
        let head = sqlx::query_as::<_, HeadRow>(
            "SELECT g.ledger, g.generation, t.size, t.upto, t.roots, t.note, t.witnessed FROM audit_tree t, guard g",
        )
        .fetch_one(&mut *reader)
        .await;
        let head = self.keep(reader, head)?;
        let last = self.tree_tiles(head.size / TILE_LEAVES as i64, 1).await?.pop();
        let unreadable = |_| LedgerError::Defect("the id of the ledger is none".into());
        Ok(TreeHead {
            ledger: Uuid::parse_str(&head.ledger).map_err(unreadable)?,
            generation: head.generation,
            size: head.size,
            upto: head.upto,
            roots: roots_from(&head.roots)?,
            note: head.note,
            witnessed: head.witnessed,
            last: last.filter(|tile| tile.leaves.len() < TILE_LEAVES),
        })
    }

    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let unwritten = |error| self.unwritten(error);
        let mut transaction = connection.begin().await.map_err(rolled_back)?;
        let head = sqlx::query(
            "UPDATE audit_tree SET size = ?1, upto = ?2, roots = ?3, note = ?4
             WHERE size = ?5 AND (SELECT g.generation FROM guard g) = ?6",
        )
        .bind(growth.size)
        .bind(growth.upto)
        .bind(growth.roots.concat())
        .bind(&growth.note)
        .bind(growth.from)
        .bind(growth.generation);
        if head.execute(&mut *transaction).await.map_err(unwritten)?.rows_affected() == 0 {
            return Ok(false);
        }
        for tile in &growth.tiles {
            let numbers: Vec<_> = tile.leaves.iter().map(|leaf| leaf.number).collect();
            let grants: Vec<_> = tile.leaves.iter().map(|leaf| leaf.is_grant).collect();
            let digests: Vec<_> = tile.leaves.iter().map(|leaf| leaf.digest).collect();
            sqlx::query(
                "INSERT INTO audit_tiles (tile, numbers, grants, digests, root) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (tile) DO UPDATE
                 SET numbers = excluded.numbers, grants = excluded.grants, digests = excluded.digests, root = excluded.root",
            )
            .bind(tile.tile)
            .bind(serde_json::json!(numbers).to_string())
            .bind(serde_json::json!(grants).to_string())
            .bind(digests.concat())
            .bind(tile.root.map(|root| root.to_vec()))
            .execute(&mut *transaction)
            .await
            .map_err(unwritten)?;
        }
        if let Some(why) = &growth.fork {
            let at = self.clock.now();
            let mut script = Script::new(0);
            super::audit::append(&mut script, &[AuditEntry::because(AuditAction::Fork, at, why)]);
            script.run(&mut transaction).await.map_err(unwritten)?;
        }
        transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        Ok(true)
    }

    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let statement = "UPDATE audit_tree SET witnessed = ?1";
        let kept = sqlx::query(statement).bind(note).execute(connection).await;
        kept.map(|_| ()).map_err(|error| self.unwritten(error))
    }

    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError> {
        let mut reader = self.reader().await?;
        let rows = sqlx::query_as::<_, TileRow>(
            "SELECT * FROM audit_tiles WHERE tile >= ?1 ORDER BY tile LIMIT ?2",
        )
        .bind(from)
        .bind(limit)
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, rows)?.into_iter().map(TileRow::tile).collect()
    }

    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError> {
        let mut reader = self.reader().await?;
        let statement = "SELECT root FROM audit_tiles WHERE root IS NOT NULL ORDER BY tile";
        let roots = sqlx::query_scalar::<_, Vec<u8>>(statement).fetch_all(&mut *reader).await;
        roots_from(&self.keep(reader, roots)?.concat())
    }

    async fn grants_let_go(&self) -> Result<i64, LedgerError> {
        let mut reader = self.reader().await?;
        let upto = sqlx::query_scalar("SELECT grants FROM history").fetch_one(&mut *reader).await;
        self.keep(reader, upto)
    }
}
