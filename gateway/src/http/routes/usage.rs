//! What each principal holds and asks for at this gateway: metrics name nobody, so that observers ask here.

use axum::Json;
use axum::extract::State;
use fence_core::{PrincipalName, wire};
use fencegate_access::Action;
use serde::Deserialize;

use crate::engine::access::{Asks, Want};
use crate::http::extract::Query;
use crate::http::problem::Problem;
use crate::http::spec::PlainProblems;
use crate::http::state::App;

/// How many principals are on a page, unless asked otherwise.
const LIMIT: usize = 100;
/// How many at most.
const LIMIT_MAX: usize = 1_000;

/// Which principals.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// `next` of the page before: those whose names come after this one.
    after: Option<PrincipalName>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// See what each principal holds
///
/// Of what all have shares of, at this gateway alone; what each has in the ledger, as it was counted last; and how often each
/// has asked and was refused since the gateway first heard of it. In the order of their names; a principal that holds nothing may be forgotten.
#[utoipa::path(
    get, path = "/admin/usage", operation_id = "getUsage", tag = "access", params(Page),
    responses((status = 200, description = "A page.", body = wire::UsageList), PlainProblems)
)]
pub async fn get(
    State(app): State<App>,
    asks: Asks,
    Query(page): Query<Page>,
) -> Result<Json<wire::UsageList>, Problem> {
    asks.may(Want::All(Action::Observe, String::new())).await?;
    let limit = page.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let why = format!("limit is 1 to {LIMIT_MAX}");
        return Err(Problem::new(fence_core::ErrorCode::QueryMalformed, why));
    }
    let mut all = app.engine.access().usage(page.after.as_ref(), limit + 1);
    let has_more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| has_more).map(|last| last.principal.clone());
    let item = |usage: crate::engine::access::Usage| wire::PrincipalUsage {
        principal: usage.principal,
        requests: usage.requests,
        refused: usage.refused,
        held: usage.held.into_iter().map(|(of, amount)| (of.to_owned(), amount)).collect(),
    };
    Ok(Json(wire::UsageList { items: all.into_iter().map(item).collect(), next }))
}
