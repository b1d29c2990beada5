//! What was done to locks and resources, for the operator.

use axum::Json;
use fence_core::ports::{AuditAction, AuditFilter};
use fence_core::{ErrorCode, wire};
use serde::Deserialize;

use super::views;
use crate::http::extract::{Asker, Query, before, cursor_before, limit, narrowed_to};
use crate::http::problem::Problem;
use crate::http::spec::ListProblems;

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
}

/// List what was done
///
/// Newest first: every grant, and everything that operators did, with their reasons. Entries are
/// kept for ever.
#[utoipa::path(
    get, path = "/audit", operation_id = "listAudit", tag = "seeing", params(Filter),
    responses((status = 200, description = "A page.", body = wire::AuditList), ListProblems)
)]
pub async fn list(
    Query(query): Query<Filter>,
    Asker(engine): Asker,
) -> Result<Json<wire::AuditList>, Problem> {
    let limit = limit(query.limit)?;
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
    Ok(AuditFilter { resource, action, before, limit: limit + 1 })
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
        };
        let good = filter(query("freeze", "job:1", "17"), 5).unwrap();
        assert_eq!((good.action, good.before), (Some(AuditAction::Freeze), Some(17)));
        assert_eq!(good.limit, 6);
        assert!(filter(query("thaw", "job:1", "17"), 5).is_err());
        assert!(filter(query("freeze", "a/b", "17"), 5).is_err());
        assert!(filter(query("freeze", "job:1", "x"), 5).is_err());
    }
}
