//! What operators do to a resource besides breaking its lock: freeze and protect.

use axum::Json;
use axum::extract::State;
use fence_core::ports::Mark;
use fence_core::{ResourceName, wire};
use fencegate_access::Action;

use super::resources::check_reason;
use super::views;
use crate::engine::access::Asks;
use crate::http::extract::{InResource, NoQuery, StrictJson};
use crate::http::middleware::RequestId;
use crate::http::problem::Problem;
use crate::http::spec::BreakProblems;
use crate::http::state::App;

/// Freeze a resource
///
/// For operators: stops all writers and grants, until it is unfrozen. The lock stays what it is, so
/// its holder may renew and release. The latest reason counts; it is shown to everybody.
#[utoipa::path(
    post, path = "/resources/{resource}/freeze", operation_id = "freezeResource", tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::MarkRequest,
    responses(
        (status = 200, description = "The resource afterwards.", body = wire::Resource),
        BreakProblems,
    )
)]
pub async fn freeze(
    State(app): State<App>,
    asks: Asks,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::MarkRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    mark(&app, &asks, name, Mark::Freeze, request, &request_id).await
}

/// Unfreeze a resource
///
/// Writers and grants go on. Unfreezing what is not frozen changes nothing.
#[utoipa::path(
    post, path = "/resources/{resource}/unfreeze", operation_id = "unfreezeResource",
    tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::MarkRequest,
    responses(
        (status = 200, description = "The resource afterwards.", body = wire::Resource),
        BreakProblems,
    )
)]
pub async fn unfreeze(
    State(app): State<App>,
    asks: Asks,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::MarkRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    mark(&app, &asks, name, Mark::Unfreeze, request, &request_id).await
}

/// Protect a resource
///
/// For operators: forbids deleting it as a whole. Single objects may still be written and deleted.
/// The latest reason counts; it is shown to everybody.
#[utoipa::path(
    post, path = "/resources/{resource}/protect", operation_id = "protectResource",
    tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::MarkRequest,
    responses(
        (status = 200, description = "The resource afterwards.", body = wire::Resource),
        BreakProblems,
    )
)]
pub async fn protect(
    State(app): State<App>,
    asks: Asks,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::MarkRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    mark(&app, &asks, name, Mark::Protect, request, &request_id).await
}

/// Lift the protection of a resource
///
/// It may be deleted again. Lifting what is not there changes nothing.
#[utoipa::path(
    post, path = "/resources/{resource}/unprotect", operation_id = "unprotectResource",
    tag = "resources",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::MarkRequest,
    responses(
        (status = 200, description = "The resource afterwards.", body = wire::Resource),
        BreakProblems,
    )
)]
pub async fn unprotect(
    State(app): State<App>,
    asks: Asks,
    InResource(name): InResource,
    request_id: RequestId,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::MarkRequest>,
) -> Result<Json<wire::Resource>, Problem> {
    mark(&app, &asks, name, Mark::Unprotect, request, &request_id).await
}

async fn mark(
    app: &App,
    asks: &Asks,
    name: ResourceName,
    mark: Mark,
    request: wire::MarkRequest,
    request_id: &RequestId,
) -> Result<Json<wire::Resource>, Problem> {
    let action = match mark {
        Mark::Freeze | Mark::Unfreeze => Action::Freeze,
        Mark::Protect | Mark::Unprotect => Action::Protect,
    };
    let permit = asks.may_on(action, &name).await?;
    check_reason(&request.reason)?;
    let id = request_id.as_str().to_owned();
    let view = app.engine.mark(name.clone(), mark, request.reason, id, permit).await;
    view.map(|view| Json(views::resource(view))).map_err(|error| Problem::from(error).about(&name))
}
