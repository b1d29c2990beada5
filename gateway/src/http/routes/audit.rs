//! What was done to locks and resources, for the operator.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fence_core::ports::{AuditAction, AuditFilter};
use fence_core::{ErrorCode, wire};
use serde::Deserialize;

use super::follow::{followed, from, observing};
use super::views;
use crate::engine::access::Asks;
use crate::http::extract::{Asker, Query, before, cursor_before, limit, narrowed_to, wait};
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::spec::ListProblems;
use crate::http::state::App;

/// The filters of a list of the audit.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Only about this resource.
    #[param(value_type = Option<fence_core::ResourceName>)]
    resource: Option<String>,
    /// Only this action: `grant`, `transfer`, `break`, `broken`, `freeze`, `unfreeze`, `protect`,
    /// `unprotect`, `fence`, `resolve`, `refence` or `epoch`.
    #[param(value_type = Option<fence_core::ports::AuditAction>)]
    action: Option<String>,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NumberCursor>)]
    cursor: Option<String>,
    /// Follow instead, oldest first: go on behind this `next_cursor` of a page that was followed. With `now`, only what
    /// is recorded from now on; with `0` from the first entry that is kept. Not beside `cursor`.
    #[param(value_type = Option<fence_core::schema::RecordAfter>)]
    after: Option<String>,
    /// With `after`: answer only when there is an entry, or after this time: at most `50s`. At once by default. A
    /// gateway that begins to shut down answers at once, too.
    #[serde(default, deserialize_with = "wait")]
    #[param(value_type = Option<fence_core::schema::Wait>)]
    wait: Option<Duration>,
}

/// List what was done
///
/// Newest first: every grant, and everything that operators did, with their reasons, through whichever gateway.
/// Entries are kept for ever; those of grants as long as `history_kept` says, if it is set.
///
/// With `after` oldest first, to be followed: every entry that is kept once, whichever gateway wrote it, none skipped.
/// `next_cursor` is always there, also with no items. An entry comes within a second, and only once nothing before
/// it is still to come. After a re-fence the same cursors go on: entries that were lost are not taken back, and their
/// places in the order stay empty.
#[utoipa::path(
    get, path = "/audit", operation_id = "listAudit", tag = "seeing", params(Filter),
    responses((status = 200, description = "A page.", body = wire::AuditList), ListProblems)
)]
pub async fn list(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<Filter>,
    counted: Counted,
) -> Result<Json<wire::AuditList>, Problem> {
    asks.may(observing(query.resource.as_deref())).await?;
    let limit = limit(query.limit)?;
    let wait = query.wait;
    if let Some(from) = from(query.after.as_deref(), wait, query.cursor.as_deref())? {
        let filter = filter(query, limit)?;
        let (found, cursor) = followed(&app, &counted, (filter, limit), from, wait).await?;
        let items = found.into_iter().map(views::audit).collect();
        return Ok(Json(wire::AuditList { items, next_cursor: Some(cursor) }));
    }
    let engine = Asker::take(&app, &counted).await?.0;
    let mut found = engine.audit(filter(query, limit)?).await?;
    let next_cursor = cursor_before(&mut found, limit, |(number, _)| *number);
    let items = found.into_iter().map(|(_, entry)| views::audit(entry)).collect();
    Ok(Json(wire::AuditList { items, next_cursor }))
}

/// One item more than asked for, which tells whether there is another page.
fn filter(query: Filter, limit: i64) -> Result<AuditFilter, Problem> {
    let unknown =
        |word| Problem::new(ErrorCode::QueryMalformed, format!("{word:?} is not an action"));
    let action = |word: String| AuditAction::parse(&word).ok_or_else(|| unknown(word));
    let resource = narrowed_to(query.resource)?;
    let before = before(query.cursor.as_deref())?;
    let action = query.action.map(action).transpose()?;
    Ok(AuditFilter { resource, action, before, between: None, limit: limit + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        let query = |action: &str, resource: &str, cursor: &str| Filter {
            action: Some(action.into()),
            resource: Some(resource.into()),
            limit: None,
            cursor: Some(cursor.into()),
            after: None,
            wait: None,
        };
        let good = filter(query("freeze", "job:1", "17"), 5).unwrap();
        assert_eq!((good.action, good.before), (Some(AuditAction::Freeze), Some(17)));
        assert_eq!(good.limit, 6);
        assert!(filter(query("thaw", "job:1", "17"), 5).is_err());
        assert!(filter(query("freeze", "a/b", "17"), 5).is_err());
        assert!(filter(query("freeze", "job:1", "x"), 5).is_err());
    }
}
