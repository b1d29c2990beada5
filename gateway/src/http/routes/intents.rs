//! `/admin/intents`: what was forwarded to drained upstreams and is not known to be over.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fence_core::ports::IntentFilter;
use fence_core::{ErrorCode, OperationId, wire};
use fencegate_access::Action;
use jiff::Timestamp;
use serde::Deserialize;

use super::resources::check_reason;
use super::views;
use crate::config::is_upstream_name;
use crate::engine::access::{Asks, Want};
use crate::http::extract::{Asker, InIntent, NoQuery, Query, StrictJson, limit, narrowed_to};
use crate::http::middleware::RequestId;
use crate::http::problem::Problem;
use crate::http::spec::{DoubtProblems, IntentProblems, ListProblems};
use crate::http::state::App;

/// The filters of a list of open intents.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Only of this upstream.
    #[param(value_type = Option<fence_core::schema::UpstreamName>)]
    upstream: Option<String>,
    /// Only on this resource.
    #[param(value_type = Option<fence_core::ResourceName>)]
    resource: Option<String>,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::IntentCursor>)]
    cursor: Option<String>,
}

/// List open intents
///
/// For operators: oldest first, what was forwarded to upstreams whose guarantee is `drained` and has no
/// known end. One that is old keeps the next lock on its resource from being in force. Beside them the
/// doubts: upstreams of which intents may have been lost when the ledger was re-fenced.
#[utoipa::path(
    get, path = "/admin/intents", operation_id = "listIntents", tag = "seeing", params(Filter),
    responses((status = 200, description = "A page.", body = wire::IntentList), ListProblems)
)]
pub async fn list(
    asks: Asks,
    Query(query): Query<Filter>,
    Asker(engine): Asker,
) -> Result<Json<wire::IntentList>, Problem> {
    asks.may(Want::All(Action::Observe, String::new())).await?;
    let limit = limit(query.limit)?;
    if query.upstream.as_deref().is_some_and(|name| !is_upstream_name(name)) {
        return Err(Problem::new(ErrorCode::QueryMalformed, "upstream is no name of an upstream"));
    }
    let filter = IntentFilter {
        upstream: query.upstream.clone(),
        resource: narrowed_to(query.resource)?,
        after: query.cursor.as_deref().map(after).transpose()?,
        // One more than asked for, which tells whether there is another page.
        limit: limit + 1,
    };
    let mut found = engine.intents(filter).await?;
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = found.len() > wanted;
    found.truncate(wanted);
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|(one, _)| cursor_of(one.opened_at, one.operation));
    let doubts = engine.doubts().await?.into_iter();
    let named = |name: &str| query.upstream.as_ref().is_none_or(|wanted| wanted == name);
    Ok(Json(wire::IntentList {
        items: found.into_iter().map(|(intent, here)| views::intent(intent, here)).collect(),
        doubts: doubts.filter(|doubt| named(&doubt.upstream)).map(views::doubt).collect(),
        next_cursor,
    }))
}

fn cursor_of(opened_at: Timestamp, operation: OperationId) -> String {
    format!("{}-{operation}", opened_at.as_microsecond())
}

/// The place in the list behind which to go on.
fn after(cursor: &str) -> Result<(Timestamp, OperationId), Problem> {
    let read = || {
        let (micros, id) = cursor.split_once('-')?;
        let at = Timestamp::from_microsecond(micros.parse().ok()?).ok()?;
        let id = OperationId(id.parse().ok()?);
        (cursor_of(at, id) == cursor).then_some((at, id))
    };
    read().ok_or_else(|| {
        Problem::new(ErrorCode::QueryMalformed, "cursor is not the next_cursor of a page")
    })
}

/// Resolve an intent
///
/// For operators: you take it upon yourself that what was forwarded has no effect any more, whatever came
/// of it. The next lock on the resource may be in force from then on. Again is harmless.
#[utoipa::path(
    post, path = "/admin/intents/{operation}/resolve", operation_id = "resolveIntent",
    tag = "seeing",
    params(("operation" = fence_core::OperationId, Path, description = "The operation of the intent.")),
    request_body = wire::MarkRequest,
    responses((status = 204, description = "It is closed."), IntentProblems)
)]
pub async fn resolve(
    State(app): State<App>,
    asks: Asks,
    InIntent(id): InIntent,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::MarkRequest>,
) -> Result<StatusCode, Problem> {
    asks.may(Want::All(Action::Resolve, String::new())).await?;
    check_reason(&request.reason)?;
    let request_id = request_id.as_str().to_owned();
    app.engine.resolve_intent(id, request.reason, request_id, asks.permit()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resolve the doubts about an upstream
///
/// For operators, after a re-fence: you take it upon yourself that nothing that was forwarded to this
/// upstream before has an effect any more. Its resources may be locked again from then on. Again is
/// harmless.
#[utoipa::path(
    post, path = "/admin/intents/resolve", operation_id = "resolveDoubts", tag = "seeing",
    request_body = wire::ResolveDoubtsRequest,
    responses(
        (status = 200, description = "Nothing is in doubt.", body = wire::DoubtsResolved),
        DoubtProblems,
    )
)]
pub async fn resolve_doubts(
    State(app): State<App>,
    asks: Asks,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::ResolveDoubtsRequest>,
) -> Result<Json<wire::DoubtsResolved>, Problem> {
    asks.may(Want::All(Action::Resolve, String::new())).await?;
    check_reason(&request.reason)?;
    let request_id = request_id.as_str().to_owned();
    let resolved = app
        .engine
        .resolve_doubts(request.upstream, request.reason, request_id, asks.permit())
        .await?;
    Ok(Json(wire::DoubtsResolved { resolved }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_taken_as_it_was_given_out() {
        let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let (at, operation) = after(&format!("17-{id}")).unwrap();
        assert_eq!(cursor_of(at, operation), format!("17-{id}"));
        for bad in ["", "17", &format!("+17-{id}"), &format!("17-{}", id.to_uppercase())] {
            assert!(after(bad).is_err(), "{bad}");
        }
    }
}
