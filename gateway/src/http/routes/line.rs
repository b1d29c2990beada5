//! `/resources/{resource}/waiters`: who waits in line for a lock.

use axum::Json;
use fence_core::ports::{InLine, LinePage};
use fence_core::wire;
use fencegate_access::Action;
use serde::Deserialize;

use crate::engine::access::{Asks, Want};
use crate::http::extract::{Asker, InResource, Query, before, cursor_before, limit};
use crate::http::problem::Problem;
use crate::http::spec::ResourceProblems;

/// The parameters of a look at a line.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NumberCursor>)]
    cursor: Option<String>,
}

/// List who waits for a lock
///
/// In the order in which they came, which is that of their turns unless somebody is away or waits for another
/// resource, too. As everybody may see it: owners, and no ids. A line changes between two pages: what is behind the
/// cursor is shown with the place that it has then.
#[utoipa::path(
    get, path = "/resources/{resource}/waiters", operation_id = "listWaiters", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), Part),
    responses((status = 200, description = "A page.", body = wire::WaiterList), ResourceProblems)
)]
pub async fn waiters(
    asks: Asks,
    InResource(name): InResource,
    Query(part): Query<Part>,
    Asker(engine): Asker,
) -> Result<Json<wire::WaiterList>, Problem> {
    asks.may(Want::On(Action::Read, name.clone())).await?;
    let limit = limit(part.limit)?;
    let page = LinePage { after: before(part.cursor.as_deref())?, limit: limit + 1 };
    let found = engine.waiters(name.clone(), page).await;
    let mut found = found.map_err(|error| Problem::from(error).about(&name))?;
    let next_cursor = cursor_before(&mut found, limit, |waiter| waiter.ticket);
    let items = found.into_iter().map(waiter).collect();
    Ok(Json(wire::WaiterList { items, next_cursor }))
}

fn waiter(seen: InLine) -> wire::Waiter {
    let InLine { owner, since, position, present, ticket: _ } = seen;
    wire::Waiter { owner, since, position, present }
}
