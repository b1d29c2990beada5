//! Marks, as calls of `schema/postgres/acts/operators.sql`, and the audit.

use fence_core::ports::{
    AuditAction, AuditEntry, AuditFilter, LedgerError, MarkItem, MarkVerdict, Patience,
};
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::session::{Sessions, harmless, unreadable};
use super::wait_ms;
use crate::ledger::rows::AuditRow;

/// What `fencegate.mark` returns per item.
#[derive(FromRow)]
struct MarkRow {
    verdict: String,
    flushed: i64,
}

pub(super) async fn mark(
    sessions: &Sessions,
    items: &[MarkItem],
    patience: Patience,
) -> Result<Vec<MarkVerdict>, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, MarkRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".mark($1, $2, $3, $4, $5, $6)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(items.iter().map(|item| item.resource.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.mark.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.reason.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.request_id.as_str()).collect::<Vec<_>>())
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
        return Ok(items.iter().map(|_| MarkVerdict::Busy).collect());
    };
    let verdict = |row: &MarkRow| {
        Ok(match row.verdict.as_str() {
            "changed" => MarkVerdict::Marked { changed: true },
            "unchanged" => MarkVerdict::Marked { changed: false },
            "no_fence" => MarkVerdict::NoFence,
            "busy" => MarkVerdict::Busy,
            other => return Err(LedgerError::Defect(format!("the schema answered {other:?}"))),
        })
    };
    rows.iter().map(verdict).collect::<Result<_, _>>().map_err(unreadable)
}

/// The statement names only the filters in use: plans are made once, and one for all of them could
/// use no index.
fn listing(filter: &AuditFilter) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(
        "SELECT a.*, fencegate.micros(a.at) AS at_us FROM fencegate.audit a WHERE a.number < ",
    );
    query.push_bind(filter.before.unwrap_or(i64::MAX));
    if let Some(span) = filter.between {
        query.push(" AND a.number > ").push_bind(span.after);
        query.push(" AND a.number <= ").push_bind(span.upto);
    }
    if let Some(resource) = &filter.resource {
        query.push(" AND a.resource = ").push_bind(resource.to_string());
    }
    if let Some(action) = filter.action {
        query.push(" AND a.action = ").push_bind(action.as_str());
        if action != AuditAction::Grant {
            query.push(" AND a.action <> 'grant'");
        }
    }
    let order = if filter.between.is_some() { "" } else { " DESC" };
    query.push(" ORDER BY a.number").push(order).push(" LIMIT ").push_bind(filter.limit);
    query
}

pub(super) async fn audit(
    sessions: &Sessions,
    filter: &AuditFilter,
) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
    let mut query = listing(filter);
    let mut session = sessions.take().await?;
    let call = query.build_query_as::<AuditRow>().fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    let rows: Vec<AuditRow> = sessions.settle(session, answer).map_err(harmless)?;
    rows.into_iter().map(AuditRow::entry).collect()
}
