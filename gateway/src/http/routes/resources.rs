//! `/resources`: what is there, being told when it changes, and breaking a lock.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fence_core::ports::{ResourceView, Which};
use fence_core::wire::{self, REASON_BYTES_MAX};
use fence_core::{ErrorCode, ResourceName, Ttl};
use fencegate_access::Action;
use serde::Deserialize;

use super::{locks, views};
use crate::engine::access::{Asks, Want};
use crate::engine::error::EngineError;
use crate::http::extract::{Asker, InResource, List, NoQuery, Query, StrictJson, wait};
use crate::http::middleware::RequestId;
use crate::http::peers::Counted;
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
    asks: Asks,
    Query(query): Query<List>,
    Asker(engine): Asker,
) -> Result<Json<wire::ResourceList>, Problem> {
    asks.may(Want::All(Action::List, query.prefix.clone())).await?;
    locks::resource_list(&engine, &query, Which::All).await.map(Json)
}

/// The parameters of a look.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Answer only when `state_tag` differs from `since`, or after this time: at most `50s`. At once by default. A
    /// gateway that begins to shut down answers at once, too.
    #[serde(default, deserialize_with = "wait")]
    #[param(value_type = Option<fence_core::schema::Wait>)]
    pub wait: Option<Duration>,
    /// The `state_tag` that was seen last. Without it, that of the resource when the call arrives.
    pub since: Option<String>,
}

/// Look at a resource
///
/// Its lock as everybody may see it, and its version. With `wait` the answer comes when its `state_tag` changes:
/// within a second, wherever the cause was. What comes and goes between two looks is not told.
#[utoipa::path(
    get, path = "/resources/{resource}", operation_id = "getResource", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), Look),
    responses((status = 200, description = "The resource.", body = wire::Resource), ResourceProblems)
)]
pub async fn get(
    State(app): State<App>,
    asks: Asks,
    InResource(name): InResource,
    Query(look): Query<Look>,
    counted: Counted,
) -> Result<Json<wire::Resource>, Problem> {
    asks.may(Want::On(Action::Read, name.clone())).await?;
    let view = match look.wait.filter(|wait| !wait.is_zero()) {
        Some(wait) => {
            let _waits = app.room.long_calls.begin_stream(&counted)?;
            changed(&app, name.clone(), look.since, wait).await
        }
        None => Asker::take(&app, &counted).await?.0.resource(name.clone()).await,
    };
    view.map(|view| Json(views::resource(view))).map_err(|error| Problem::from(error).about(&name))
}

/// The resource once its tag is another than `since`, or as it stands when the wait is over.
async fn changed(
    app: &App,
    name: ResourceName,
    since: Option<String>,
    wait: Duration,
) -> Result<ResourceView, EngineError> {
    let mut watcher = app.engine.watch_resource(name.clone()).await?;
    let since = since.unwrap_or_else(|| views::state_tag(watcher.record()));
    let changed = async {
        while views::state_tag(watcher.record()) == since {
            watcher.changed().await?;
        }
        Some(watcher.record().clone())
    };
    let changed = async {
        tokio::select! {
            biased;
            changed = changed => changed,
            () = app.draining.cancelled() => None,
        }
    };
    match app.engine.runtime().within(wait, changed).await {
        Some(Some(view)) => Ok(view),
        // Read anew: what was seen last has grown old while it did not change.
        _ => app.engine.resource(name).await,
    }
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
    asks: Asks,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::BreakRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    let permit = asks.may_on(Action::Break, &name).await?;
    let after = request.after.unwrap_or(Duration::ZERO);
    check(after, &request.reason)?;
    let request_id = request_id.as_str().to_owned();
    let view = app.engine.break_lock(name.clone(), after, request.reason, request_id, permit).await;
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
