//! `/resources`: what is there, and breaking a lock.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fence_core::wire::{self, REASON_BYTES_MAX};
use fence_core::{ErrorCode, Ttl};

use super::{locks, views};
use crate::http::extract::{Asker, InResource, List, NoQuery, Query, StrictJson};
use crate::http::middleware::RequestId;
use crate::http::problem::Problem;
use crate::http::spec::{BreakProblems, ListProblems, ResourceProblems};
use crate::http::state::App;

/// List resources
///
/// Everything that was ever locked, in byte order.
#[utoipa::path(
    get, path = "/resources", operation_id = "listResources", tag = "resources", params(List),
    responses((status = 200, description = "A page.", body = wire::ResourceList), ListProblems)
)]
pub async fn list(
    Query(query): Query<List>,
    Asker(engine): Asker,
) -> Result<Json<wire::ResourceList>, Problem> {
    locks::resource_list(&engine, &query, false).await.map(Json)
}

/// Look at a resource
///
/// Its lock as everybody may see it, and its version.
#[utoipa::path(
    get, path = "/resources/{resource}", operation_id = "getResource", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    responses((status = 200, description = "The resource.", body = wire::Resource), ResourceProblems)
)]
pub async fn get(
    InResource(name): InResource,
    _: NoQuery,
    Asker(engine): Asker,
) -> Result<Json<wire::Resource>, Problem> {
    let view = engine.resource(name.clone()).await;
    view.map(|view| Json(views::resource(view))).map_err(|error| Problem::from(error).about(&name))
}

/// Break a lock
///
/// For operators: fences the holder off, at once or at the latest after some time. Doing it again
/// can only bring the end nearer.
#[utoipa::path(
    post, path = "/resources/{resource}/break", operation_id = "breakLock", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::BreakRequest,
    responses(
        (status = 200, description = "The resource afterwards.", body = wire::Resource),
        BreakProblems,
    )
)]
pub async fn break_lock(
    State(app): State<App>,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::BreakRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    let after = request.after.unwrap_or(Duration::ZERO);
    check(after, &request.reason)?;
    let request_id = request_id.as_str().to_owned();
    let view = app.engine.break_lock(name.clone(), after, request.reason, request_id).await;
    view.map(|view| Json(views::resource(view))).map_err(|error| Problem::from(error).about(&name))
}

fn check(after: Duration, reason: &str) -> Result<(), Problem> {
    if after > Ttl::MAX {
        return Err(Problem::new(ErrorCode::BodyMalformed, "after is at most 24h"));
    }
    check_reason(reason)
}

/// A reason is short text on one line.
pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    if !(1..=REASON_BYTES_MAX).contains(&reason.len()) || reason.chars().any(char::is_control) {
        return Err(Problem::new(
            ErrorCode::BodyMalformed,
            format!("a reason has 1 to {REASON_BYTES_MAX} bytes and no control characters"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_delays_are_bounded() {
        assert!(check(Duration::ZERO, "stuck").is_ok());
        assert!(check(Ttl::MAX, &"x".repeat(1024)).is_ok());
        assert!(check(Ttl::MAX + Duration::from_secs(1), "stuck").is_err());
        for bad in ["", "a\0b", &"x".repeat(1025)] {
            assert!(check(Duration::ZERO, bad).is_err());
        }
    }
}
