//! Refused writes, for the operator.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fence_core::ports::RejectionFilter;
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

/// List refused writes
///
/// Newest first: which resource, why, how far behind the token was and for how long. Through whichever gateway they
/// were refused: all of one ledger keep one record.
///
/// With `after` oldest first, to be followed: every entry once, whichever gateway recorded it, none skipped but those
/// that were pruned before they were read. `next_cursor` is always there, also with no items. An entry comes within
/// about a second of its write. Writes with unknown tokens on one resource in one minute are one entry, which is given
/// out once, with the `times` of then; those of the rest of the minute are counted in it and not told again. A
/// gateway that cannot keep up, cannot reach the ledger or is killed records some refusals never, and counts them in
/// `fencegate_rejections_dropped_total` as far as it can.
#[utoipa::path(
    get, path = "/rejections", operation_id = "listRejections", tag = "seeing", params(Filter),
    responses((status = 200, description = "A page.", body = wire::RejectionList), ListProblems)
)]
pub async fn list(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<Filter>,
    counted: Counted,
) -> Result<Json<wire::RejectionList>, Problem> {
    asks.may(observing(query.resource.as_deref())).await?;
    let limit = limit(query.limit)?;
    let wait = query.wait;
    if let Some(from) = from(query.after.as_deref(), wait, query.cursor.as_deref())? {
        let filter = filter(query, limit)?;
        let (found, cursor) = followed(&app, &counted, (filter, limit), from, wait).await?;
        let items = found.into_iter().map(views::rejection).collect();
        return Ok(Json(wire::RejectionList { items, next_cursor: Some(cursor) }));
    }
    let engine = Asker::take(&app, &counted).await?.0;
    let mut found = engine.rejections(filter(query, limit)?).await?;
    let next_cursor = cursor_before(&mut found, limit, |(number, _)| *number);
    let items = found.into_iter().map(|(_, entry)| views::rejection(entry)).collect();
    Ok(Json(wire::RejectionList { items, next_cursor }))
}

/// One item more than asked for, which tells whether there is another page.
fn filter(query: Filter, limit: i64) -> Result<RejectionFilter, Problem> {
    let known = |reason: &String| ErrorCode::parse(reason).is_some();
    if let Some(reason) = query.reason.as_ref().filter(|reason| !known(reason)) {
        let why = format!("{reason:?} is not an error code");
        return Err(Problem::new(ErrorCode::QueryMalformed, why));
    }
    let resource = narrowed_to(query.resource)?;
    let before = before(query.cursor.as_deref())?;
    Ok(RejectionFilter { resource, reason: query.reason, before, between: None, limit: limit + 1 })
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
            after: None,
            wait: None,
        };
        let good = filter(query("fence-token-stale", "job:1", "17"), 5).unwrap();
        assert_eq!((good.before, good.limit), (Some(17), 6));
        assert!(filter(query("stale", "job:1", "17"), 5).is_err());
        assert!(filter(query("fence-token-stale", "a/b", "17"), 5).is_err());
        assert!(filter(query("fence-token-stale", "job:1", "x"), 5).is_err());
    }
}
