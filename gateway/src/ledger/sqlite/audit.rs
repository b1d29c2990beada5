//! The audit: appended by the acts in their own transaction, and listed.

use fence_core::ports::{AuditAction, AuditEntry, AuditFilter, GrantEntry, LedgerError};
use jiff::Timestamp;
use sqlx::{QueryBuilder, Sqlite};

use super::SqliteLedger;
use super::bulk::Script;
use crate::ledger::rows::AuditRow;

/// Appends what an act recorded.
pub(super) fn append(script: &mut Script, entries: &[AuditEntry]) {
    let row = |entry: &AuditEntry| {
        (
            entry.at.as_microsecond(),
            entry.action.as_str(),
            entry.resource.clone(),
            entry.owner.clone(),
            entry.previous_owner.clone(),
            entry.token.map(|token| token.get()),
            entry.reason.clone(),
            entry.request_id.clone(),
            entry.asked.clone(),
            entry.grant.as_ref().map(grant_columns),
            (
                entry.previous_end.map(|end| end.as_str()),
                entry.previous_ended_at.map(Timestamp::as_microsecond),
            ),
        )
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    script.list(
        "INSERT INTO audit (at, action, resource, owner, previous_owner, token, reason, request_id, asked, lock,
                            ordinal, leads, principal, writers, previous_end, previous_ended_at)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                value ->> 6, value ->> 7, value ->> 8, value ->> '$[9][0]', value ->> '$[9][1]', value ->> '$[9][2]',
                value ->> '$[9][3]', value ->> '$[9][4]', value ->> '$[10][0]', value ->> '$[10][1]'
         FROM json_each(?) ORDER BY key",
        &rows,
    );
}

/// What else a grant is.
fn grant_columns(grant: &GrantEntry) -> (String, i64, bool, Option<String>, Option<String>) {
    let GrantEntry { lock, ordinal, leads, principal, writers } = grant.clone();
    (lock, ordinal, leads, principal, writers)
}

/// The statement names only the filters in use, so that each finds its index.
fn listing(filter: &AuditFilter) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(
        "SELECT *, at AS at_us, previous_ended_at AS previous_ended_us, NULL AS lock_id FROM audit WHERE number < ",
    );
    query.push_bind(filter.before.unwrap_or(i64::MAX));
    if let Some(span) = filter.between {
        query.push(" AND number > ").push_bind(span.after);
        query.push(" AND number <= ").push_bind(span.upto);
    }
    if let Some(resource) = &filter.resource {
        query.push(" AND resource = ").push_bind(resource.to_string());
    }
    if let Some(action) = filter.action {
        query.push(" AND action = ").push_bind(action.as_str());
        if action != AuditAction::Grant {
            query.push(" AND action <> 'grant'");
        }
    }
    let order = if filter.between.is_some() { "" } else { " DESC" };
    query.push(" ORDER BY number").push(order).push(" LIMIT ").push_bind(filter.limit);
    query
}

impl SqliteLedger {
    pub(super) async fn list_audit(
        &self,
        filter: &AuditFilter,
    ) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        let mut query = listing(filter);
        let mut reader = self.reader().await?;
        let rows = query.build_query_as::<AuditRow>().fetch_all(&mut *reader).await;
        self.keep(reader, rows)?.into_iter().map(AuditRow::entry).collect()
    }
}
