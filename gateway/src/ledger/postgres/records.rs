//! The operator's records as they are followed: how far, as a call of `schema/postgres/acts/records.sql`, and the
//! refused writes.

use fence_core::ResourceName;
use fence_core::ports::{LedgerError, Log, Rejection, RejectionFilter, Settled};
use sqlx::{Postgres, QueryBuilder};

use super::reads::fetch_anyway;
use super::session::{Sessions, harmless};
use crate::ledger::rows::RejectionRow;

row! {
    struct SettledRow {
        upto: i64,
        reached: i64,
        writers: Vec<String>,
    }
}

pub(super) async fn settled(
    sessions: &Sessions,
    log: Log,
    last: &Settled,
) -> Result<Settled, LedgerError> {
    let query = sqlx::query_as::<_, SettledRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".settled($1, $2, $3, $4)"
    ))
    .bind(log.as_str())
    .bind(last.upto)
    .bind(last.reached)
    .bind(&last.writers);
    let row: SettledRow = fetch_anyway!(sessions, fetch_one, query)?;
    Ok(Settled { upto: row.upto, reached: row.reached, writers: row.writers })
}

/// The statement names only the filters in use, so that each finds its index: which there are must be known to
/// whoever plans it.
fn listing(filter: &RejectionFilter) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(
        "SELECT r.*, fencegate.micros(r.at) AS at_us FROM fencegate.rejections r WHERE r.number < ",
    );
    query.push_bind(filter.before.unwrap_or(i64::MAX));
    if let Some(span) = filter.between {
        query.push(" AND r.number > ").push_bind(span.after);
        query.push(" AND r.number <= ").push_bind(span.upto);
    }
    if let Some(resource) = filter.resource.as_ref().map(ResourceName::as_str) {
        query.push(" AND r.resource = ").push_bind(resource.to_owned());
    }
    if let Some(reason) = &filter.reason {
        query.push(" AND r.reason = ").push_bind(reason.clone());
    }
    let order = if filter.between.is_some() { "" } else { " DESC" };
    query.push(" ORDER BY r.number").push(order).push(" LIMIT ").push_bind(filter.limit);
    query
}

pub(super) async fn rejections(
    sessions: &Sessions,
    filter: &RejectionFilter,
) -> Result<Vec<(i64, Rejection)>, LedgerError> {
    let mut query = listing(filter);
    let query = query.build_query_as::<RejectionRow>();
    let rows: Vec<RejectionRow> = fetch_anyway!(sessions, fetch_all, query)?;
    rows.into_iter().map(RejectionRow::rejection).collect()
}
