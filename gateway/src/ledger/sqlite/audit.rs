//! The audit: appended by the acts in their own transaction, and listed.

use fence_core::ports::{AuditAction, AuditEntry, AuditFilter, LedgerError};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::SqliteLedger;
use crate::ledger::rows::AuditRow;

/// Appends what an act recorded.
pub(super) async fn append(
    connection: &mut SqliteConnection,
    entries: &[AuditEntry],
) -> Result<(), sqlx::Error> {
    for entry in entries {
        sqlx::query(
            "INSERT INTO audit (at, action, resource, owner, previous_owner, token, reason,
                                request_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .bind(entry.at.as_microsecond())
        .bind(entry.action.as_str())
        .bind(entry.resource.as_ref().map(|resource| resource.as_str()))
        .bind(&entry.owner)
        .bind(&entry.previous_owner)
        .bind(entry.token.map(|token| token.get()))
        .bind(&entry.reason)
        .bind(&entry.request_id)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// The statement names only the filters in use, so that each finds its index.
fn listing(filter: &AuditFilter) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("SELECT *, at AS at_us FROM audit WHERE number < ");
    query.push_bind(filter.before.unwrap_or(i64::MAX));
    if let Some(resource) = &filter.resource {
        query.push(" AND resource = ").push_bind(resource.to_string());
    }
    if let Some(action) = filter.action {
        query.push(" AND action = ").push_bind(action.as_str());
        if action != AuditAction::Grant {
            query.push(" AND action <> 'grant'");
        }
    }
    query.push(" ORDER BY number DESC LIMIT ").push_bind(filter.limit);
    query
}

impl SqliteLedger {
    pub(super) async fn list_audit(
        &self,
        filter: &AuditFilter,
    ) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        let mut query = listing(filter);
        let mut reader = self.reader().await?;
        let rows = query.build_query_as::<AuditRow>().fetch_all(&mut reader).await;
        self.keep(reader, rows)?.into_iter().map(AuditRow::entry).collect()
    }
}
