//! The rules of access, as calls of `schema/postgres/acts/access.sql`.

use async_trait::async_trait;
use fence_core::PrincipalName;
use fence_core::ports::{
    DatabaseRole, LedgerError, Rulebook, RulesChange, RulesChanged, RulesInForce,
};
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;

use super::PgLedger;
use super::locks::busy;
use super::reads::fetch_anyway;
use super::session::harmless;

#[derive(FromRow)]
struct AppliedRow {
    generation: i64,
    applied: bool,
    flushed: i64,
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
}
