//! The operator's records as they are followed. There is one writer, and it commits in the order of the numbers: what
//! can be seen is settled.

use fence_core::ports::{LedgerError, Log, REFENCE_JUMP, Rejection, RejectionFilter, Settled};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::SqliteLedger;
use crate::ledger::rows::RejectionRow;

/// Goes far ahead with the numbers of both records: those of entries that a re-fenced ledger may have lost are given
/// to no others, which whoever has read the lost ones would take for read.
pub(super) async fn skip_numbers(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for log in [Log::Audit, Log::Rejections] {
        let known = sqlx::query("UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = ?2")
            .bind(REFENCE_JUMP)
            .bind(log.as_str())
            .execute(&mut *connection)
            .await?;
        if known.rows_affected() == 0 {
            sqlx::query("INSERT INTO sqlite_sequence (name, seq) VALUES (?2, ?1)")
                .bind(REFENCE_JUMP)
                .bind(log.as_str())
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// The statement names only the filters in use, so that each finds its index.
fn listing(filter: &RejectionFilter) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("SELECT *, at AS at_us FROM rejections WHERE number < ");
    query.push_bind(filter.before.unwrap_or(i64::MAX));
    if let Some(span) = filter.between {
        query.push(" AND number > ").push_bind(span.after);
        query.push(" AND number <= ").push_bind(span.upto);
    }
    if let Some(resource) = &filter.resource {
        query.push(" AND resource = ").push_bind(resource.to_string());
    }
    if let Some(reason) = &filter.reason {
        query.push(" AND reason = ").push_bind(reason.clone());
    }
    let order = if filter.between.is_some() { "" } else { " DESC" };
    query.push(" ORDER BY number").push(order).push(" LIMIT ").push_bind(filter.limit);
    query
}

impl SqliteLedger {
    pub(super) async fn list_rejections(
        &self,
        filter: &RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError> {
        let mut query = listing(filter);
        let mut reader = self.reader().await?;
        let rows = query.build_query_as::<RejectionRow>().fetch_all(&mut *reader).await;
        self.keep(reader, rows)?.into_iter().map(RejectionRow::rejection).collect()
    }

    pub(super) async fn read_settled(
        &self,
        log: Log,
        last: &Settled,
    ) -> Result<Settled, LedgerError> {
        let statement = match log {
            Log::Audit => "SELECT coalesce(max(number), 0) FROM audit",
            Log::Rejections => "SELECT coalesce(max(number), 0) FROM rejections",
        };
        let mut reader = self.reader().await?;
        let number = sqlx::query_scalar::<_, i64>(statement).fetch_one(&mut *reader).await;
        let upto = self.keep(reader, number)?.max(last.upto);
        Ok(Settled { upto, reached: upto, writers: Vec::new() })
    }
}
