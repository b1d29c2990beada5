//! Refused writes, for the operator.

use axum::Json;
use fence_core::ports::RejectionFilter;
use fence_core::{ErrorCode, wire};
use serde::Deserialize;

use super::views;
use crate::http::extract::{Asker, Query, before, cursor_before, limit, narrowed_to};
use crate::http::problem::Problem;
use crate::http::spec::ListProblems;

/// The filters of a list of rejections.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Only of this resource.
    #[param(value_type = Option<fence_core::ResourceName>)]
    resource: Option<String>,
    /// Only with this error code, such as `fence-token-stale`.
    #[param(value_type = Option<ErrorCode>)]
    reason: Option<String>,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NumberCursor>)]
    cursor: Option<String>,
}

/// List refused writes
///
/// Newest first: which resource, why, how far behind the token was and for how long.
#[utoipa::path(
    get, path = "/rejections", operation_id = "listRejections", tag = "seeing", params(Filter),
    responses((status = 200, description = "A page.", body = wire::RejectionList), ListProblems)
)]
pub async fn list(
    Query(query): Query<Filter>,
    Asker(engine): Asker,
) -> Result<Json<wire::RejectionList>, Problem> {
    let limit = limit(query.limit)?;
    let mut found = engine.rejections(filter(query, limit)?).await?;
    let next_cursor = cursor_before(&mut found, limit, |(number, _)| *number);
    let items = found.into_iter().map(|(_, rejection)| views::rejection(rejection)).collect();
    Ok(Json(wire::RejectionList { items, next_cursor }))
}

/// One item more than asked for, which tells whether there is another page.
fn filter(query: Filter, limit: i64) -> Result<RejectionFilter, Problem> {
    let known = |reason: &String| ErrorCode::ALL.iter().any(|code| code.as_str() == reason);
    if let Some(reason) = query.reason.as_ref().filter(|reason| !known(reason)) {
        let why = format!("{reason:?} is not an error code");
        return Err(Problem::new(ErrorCode::QueryMalformed, why));
    }
    let resource = narrowed_to(query.resource)?;
    let before = before(query.cursor.as_deref())?;
    Ok(RejectionFilter { resource, reason: query.reason, before, limit: limit + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        let query = |reason: &str, resource: &str, cursor: &str| Filter {
            reason: Some(reason.into()),
            resource: Some(resource.into()),
            limit: None,
            cursor: Some(cursor.into()),
        };
        let good = filter(query("fence-token-stale", "job:1", "17"), 5).unwrap();
        assert_eq!((good.before, good.limit), (Some(17), 6));
        assert!(filter(query("stale", "job:1", "17"), 5).is_err());
        assert!(filter(query("fence-token-stale", "a/b", "17"), 5).is_err());
        assert!(filter(query("fence-token-stale", "job:1", "x"), 5).is_err());
    }
}
