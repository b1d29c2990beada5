//! The rules of access, as calls of `schema/postgres/acts/access.sql`.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fence_core::PrincipalName;
use fence_core::ports::{
    AuditEntry, DatabaseRole, LedgerError, Rulebook, RulesChange, RulesChanged, RulesInForce,
    STOCKS_WITHIN, Stock,
};
use sha2::{Digest as _, Sha256};

use super::PgLedger;
use super::locks::busy;
use super::reads::fetch_anyway;
use super::session::harmless;
use crate::ledger::rows::StockRow;

row! {
    struct AppliedRow {
        generation: i64,
        applied: bool,
        flushed: i64,
    }
}

#[async_trait]
impl Rulebook for PgLedger {
    /// Also from a ledger that this gateway holds something against: its rules are as old as what it holds, and all else
    /// that is asked of it is refused for that.
    async fn rules(&self) -> Result<RulesInForce, LedgerError> {
        let query = sqlx::query_as::<_, (i64, Option<String>)>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".rules()"
        ));
        let (generation, text) = fetch_anyway!(self.sessions, fetch_one, query)?;
        Ok(RulesInForce { generation, text })
    }

    async fn rules_generation(&self) -> Result<i64, LedgerError> {
        let query = sqlx::query_scalar("SELECT g.access FROM fencegate.write_guard g");
        fetch_anyway!(self.sessions, fetch_one, query)
    }

    /// A lost answer leaves it open whether they are in force.
    #[tracing::instrument(level = "debug", name = "ledger.apply_rules", skip_all)]
    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError> {
        let column = |of: fn(&DatabaseRole) -> &str| -> Vec<&str> {
            change.database_roles.iter().map(of).collect()
        };
        let digest = Sha256::digest(&change.text);
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, AppliedRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".apply_rules($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        ))
        .bind(session.seen)
        .bind(change.follows)
        .bind(&change.text)
        .bind(digest.as_slice())
        .bind(column(|role| &role.role))
        .bind(column(|role| &role.names))
        .bind(change.applied_by.as_ref().map(PrincipalName::as_str))
        .bind(&change.reason)
        .bind(&change.request_id)
        .bind(&change.asked)
        .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let rows = self.sessions.settle_seen(session, answer, |row| row.flushed).await;
        let row = rows?.and_then(|mut rows| rows.pop()).ok_or_else(busy)?;
        Ok(match row.applied {
            true => RulesChanged::InForce(row.generation),
            false => RulesChanged::Overtaken(row.generation),
        })
    }

    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError> {
        let column = |of: fn(&AuditEntry) -> Option<&str>| -> Vec<Option<&str>> {
            entries.iter().map(of).collect()
        };
        let query = sqlx::query(concat!("SELECT ", acts!(), ".record_refused($1, $2, $3, $4, $5)"))
            .bind(column(|entry| Some(entry.action.as_str())))
            .bind(column(|entry| entry.owner.as_deref()))
            .bind(column(|entry| entry.reason.as_deref()))
            .bind(column(|entry| entry.request_id.as_deref()))
            .bind(column(|entry| entry.asked.as_deref()));
        fetch_anyway!(self.sessions, execute, query).map(drop)
    }

    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError> {
        let within_ms = i32::try_from(STOCKS_WITHIN.as_millis()).unwrap_or(i32::MAX);
        let query = sqlx::query(concat!("SELECT ", acts!(), ".count_stocks($1)")).bind(within_ms);
        fetch_anyway!(self.sessions, execute, query)?;
        let names: Vec<&str> = of.iter().map(PrincipalName::as_str).collect();
        let query = sqlx::query_as::<_, StockRow>(
            "SELECT s.* FROM fencegate.stocks s
             WHERE s.principal = ANY ($1) AND (s.locks, s.resources, s.keys, s.bytes) <> (0, 0, 0, 0)",
        )
        .bind(names);
        let rows = fetch_anyway!(self.sessions, fetch_all, query)?;
        rows.into_iter().map(StockRow::stock).collect()
    }
}
