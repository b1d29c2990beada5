//! The rules of access: which are in force, and putting others in their place. What principals have, and all together.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fence_core::PrincipalName;
use fence_core::ports::{
    AuditAction, AuditEntry, LedgerError, Rulebook, RulesChange, RulesChanged, RulesInForce, Stock,
    Totals,
};
use sha2::{Digest as _, Sha256};
use sqlx::Connection as _;

use super::bulk::Script;
use super::{SqliteLedger, load, rolled_back};
use crate::ledger::rows::StockRow;

/// Locks that keep others out, at the moment ?1 on the clock of deadlines and ?2 on that of breaks. The first condition is
/// that of the index.
macro_rules! locks_held {
    () => {
        "fences f, guard g
         WHERE f.hold <> 'released' AND f.hold IN ('held', 'draining') AND f.deadline_ms > ?1 AND f.token > g.floor
           AND (f.break_due IS NULL OR f.break_due > ?2)"
    };
}

impl SqliteLedger {
    pub(super) async fn count_totals(&self) -> Result<Totals, LedgerError> {
        let now = self.now();
        let mut reader = self.reader().await?;
        let row: Result<(i64, i64), _> = sqlx::query_as(TOTALS)
            .bind(now.elapsed_ms)
            .bind(now.wall.as_microsecond())
            .fetch_one(&mut *reader)
            .await;
        let (locks_held, frozen_resources) = self.keep(reader, row)?;
        Ok(Totals { locks_held, frozen_resources })
    }
}

/// By their tokens, which cost a fifth of their ids to tell apart: a token names one grant (I15).
const TOTALS: &str = concat!(
    "SELECT (SELECT count(DISTINCT f.token) FROM ",
    locks_held!(),
    "), (SELECT count(*) FROM fences z WHERE z.frozen IS NOT NULL)"
);

#[async_trait]
impl Rulebook for SqliteLedger {
    async fn rules(&self) -> Result<RulesInForce, LedgerError> {
        let mut reader = self.reader().await?;
        let row = sqlx::query_as(
            "SELECT g.access, a.rules FROM guard g LEFT JOIN access a ON a.generation = g.access",
        )
        .fetch_one(&mut *reader)
        .await;
        let (generation, text) = self.keep(reader, row)?;
        Ok(RulesInForce { generation, text })
    }

    async fn rules_generation(&self) -> Result<i64, LedgerError> {
        let mut reader = self.reader().await?;
        let row = sqlx::query_scalar("SELECT access FROM guard").fetch_one(&mut *reader).await;
        self.keep(reader, row)
    }

    fn has_rules_to_itself(&self) -> bool {
        true
    }

    /// Nobody else writes meanwhile: this process has the directory, and this call its only writer. So all acts under way
    /// have ended, and those that come later find the new generation (I17).
    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let guard = load::guard(&mut *connection).await?;
        let before = guard.rules;
        if change.follows.is_some_and(|follows| follows != before) {
            return Ok(RulesChanged::Overtaken(before));
        }
        let (generation, at) = (guard.next_rules(), self.now().wall);
        let unwritten = |error| self.unwritten(error);
        let mut transaction = connection.begin().await.map_err(rolled_back)?;
        sqlx::query(
            "INSERT INTO access (generation, rules, sha256, applied_at, applied_by, reason)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .bind(generation)
        .bind(&change.text)
        .bind(Sha256::digest(&change.text).as_slice())
        .bind(at.as_microsecond())
        .bind(change.applied_by.as_ref().map(PrincipalName::as_str))
        .bind(&change.reason)
        .execute(&mut *transaction)
        .await
        .map_err(unwritten)?;
        sqlx::query("UPDATE guard SET access = ?1")
            .bind(generation)
            .execute(&mut *transaction)
            .await
            .map_err(unwritten)?;
        let entry = AuditEntry {
            owner: change.applied_by.as_ref().map(ToString::to_string),
            request_id: Some(change.request_id.clone()),
            asked: change.asked.clone(),
            ..AuditEntry::because(AuditAction::Access, at, &change.reason)
        };
        let mut script = Script::new(0);
        super::audit::append(&mut script, &[entry]);
        script.run(&mut transaction).await.map_err(unwritten)?;
        transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        Ok(RulesChanged::InForce(generation))
    }

    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let mut transaction = connection.begin().await.map_err(rolled_back)?;
        let mut script = Script::new(0);
        super::audit::append(&mut script, &entries);
        script.run(&mut transaction).await.map_err(|error| self.unwritten(error))?;
        transaction.commit().await.map_err(|error| self.uncommitted(&error))
    }

    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError> {
        let now = self.now();
        let mut reader = self.reader().await?;
        let rows = sqlx::query_as::<_, StockRow>(concat!(
            "WITH live AS (
                 SELECT f.principal, count(DISTINCT f.lock_id) AS locks FROM ",
            locks_held!(),
            "    GROUP BY f.principal)
             SELECT n.value AS principal, coalesce(l.locks, 0) AS locks, coalesce(s.resources, 0) AS resources,
                    coalesce(s.keys, 0) AS keys, coalesce(s.bytes, 0) AS bytes
             FROM json_each(?3) n LEFT JOIN stocks s ON s.principal = n.value LEFT JOIN live l ON l.principal = n.value
             WHERE l.locks > 0 OR (s.resources, s.keys, s.bytes) <> (0, 0, 0)",
        ))
        .bind(now.elapsed_ms)
        .bind(now.wall.as_microsecond())
        .bind(load::json(of))
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, rows)?.into_iter().map(StockRow::stock).collect()
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, SqliteConnection};

    use super::*;
    use crate::ledger::sqlite::open::MIGRATOR;

    #[tokio::test]
    async fn totals_are_counted_by_the_indexes_of_what_is_taken_and_of_what_is_frozen() {
        let mut connection = SqliteConnection::connect(":memory:").await.expect("opened");
        MIGRATOR.run(&mut connection).await.expect("made");
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {TOTALS}"));
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(explain).fetch_all(&mut connection).await.expect("explained");
        let steps: Vec<_> = plan.into_iter().map(|(_, _, _, step)| step).collect();
        for (table, index) in [("f", "fences_taken"), ("z", "fences_frozen")] {
            let by_index =
                |step: &&String| step.contains(&format!(" {table} USING")) && step.contains(index);
            assert_eq!(steps.iter().filter(by_index).count(), 1, "{table}: {steps:?}");
        }
    }
}
