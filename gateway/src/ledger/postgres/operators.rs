//! Marks, as calls of `schema/postgres/acts/operators.sql`, the audit, and how much there is of what.

use fence_core::ports::{
    AuditAction, AuditEntry, AuditFilter, LedgerError, MarkItem, MarkVerdict, Patience, Totals,
};
use sqlx::{Postgres, QueryBuilder};

use super::locks::{asked_of, rules_of};
use super::reads::fetch;
use super::session::{Sessions, harmless, unreadable};
use super::wait_ms;
use crate::ledger::rows::AuditRow;

row! {
    /// What `fencegate.mark` returns per item.
    struct MarkRow {
        verdict: String,
        flushed: i64,
    }
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
        ".mark($1, $2, $3, $4, $5, $6, $7, $8)"
    ))
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(items.iter().map(|item| item.resource.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.mark.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.reason.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.request_id.as_str()).collect::<Vec<_>>())
    .bind(asked_of(items.iter().map(|item| &item.by)))
    .bind(rules_of(items.iter().map(|item| &item.by)))
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
            "rules_moved" => MarkVerdict::RulesMoved,
            "busy" => MarkVerdict::Busy,
            other => return Err(LedgerError::Defect(format!("the schema answered {other:?}"))),
        })
    };
    rows.iter().map(verdict).collect::<Result<_, _>>().map_err(unreadable)
}

/// Grants, as entries of the audit, and the column that says which.
const GRANTS: (&str, &str) = (
    "how",
    "(SELECT number, at, how::text AS action, resource, owner, previous_owner, previous_end::text AS previous_end,
             fencegate.micros(previous_ended_at) AS previous_ended_us, token::bigint AS token,
             NULL::text AS reason, NULL::text AS request_id, asked::text, lock_id, NULL::text AS lock, ordinal, leads,
             principal::text, array_to_string(writers, ' ') AS writers FROM fencegate.grants WHERE number < ",
);

/// All other entries.
const OTHERS: (&str, &str) = (
    "action",
    "(SELECT number, at, action::text, resource, owner, NULL::text AS previous_owner, NULL::text AS previous_end,
             NULL::bigint AS previous_ended_us, token, reason::text, request_id::text, asked::text, NULL::uuid AS lock_id, NULL::text AS lock, NULL::bigint AS ordinal, NULL::boolean AS leads,
             NULL::text AS principal, NULL::text AS writers
      FROM fencegate.audit WHERE number < ",
);

/// The statement names only the tables and filters in use: plans are made once, and one for all of them could use no
/// index.
fn listing(filter: &AuditFilter) -> QueryBuilder<Postgres> {
    let tables = match filter.action {
        None => &[GRANTS, OTHERS][..],
        Some(action) if action.is_of_grant() => &[GRANTS],
        Some(_) => &[OTHERS],
    };
    let order = if filter.between.is_some() { "" } else { " DESC" };
    let mut query = QueryBuilder::new("SELECT a.*, fencegate.micros(a.at) AS at_us FROM (");
    let mut union = query.separated(" UNION ALL ");
    for (column, table) in tables {
        union.push(table).push_bind_unseparated(filter.before.unwrap_or(i64::MAX));
        if let Some(span) = filter.between {
            union.push_unseparated(" AND number > ").push_bind_unseparated(span.after);
            union.push_unseparated(" AND number <= ").push_bind_unseparated(span.upto);
        }
        if let Some(resource) = &filter.resource {
            union.push_unseparated(" AND resource = ");
            union.push_bind_unseparated(resource.to_string());
        }
        if let Some(action) = filter.action {
            union.push_unseparated(format!(" AND {column} = "));
            union.push_bind_unseparated(action.as_str());
            if column == &"how" && action != AuditAction::Grant {
                union.push_unseparated(" AND how <> 'grant'");
            }
        }
        union.push_unseparated(format!(" ORDER BY number{order} LIMIT "));
        union.push_bind_unseparated(filter.limit).push_unseparated(")");
    }
    query.push(format!(") a ORDER BY a.number{order} LIMIT ")).push_bind(filter.limit);
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

pub(super) async fn totals(sessions: &Sessions) -> Result<Totals, LedgerError> {
    let query = sqlx::query_as::<_, (i64, i64)>(concat!(
        "SELECT t.locks_held, t.frozen_resources FROM ",
        acts!(),
        ".totals t"
    ));
    let (locks_held, frozen_resources) = fetch!(sessions, fetch_one, query)?;
    Ok(Totals { locks_held, frozen_resources })
}
