//! `/resources/{resource}/fence`: a fence for those who keep another lock.

use axum::extract::State;
use axum::response::Response;
use fence_core::wire;
use fencegate_access::Action;

use super::locks;
use super::s3_keys::access_granted;
use crate::engine::access::{Asks, Want};
use crate::engine::{Fence, More};
use crate::http::extract::{InResource, NoQuery, StrictJson};
use crate::http::middleware::Named;
use crate::http::problem::Problem;
use crate::http::spec::FenceProblems;
use crate::http::state::App;

/// Set a fence without a lock
///
/// For those whose lock is elsewhere: in Redis, a database, a blob lease, ZooKeeper. From the answer on
/// every earlier token of the resource is refused, and the new one admits writes like any other; it
/// keeps nobody out. Send your lock's own growing number as `order`, and a holder that woke up late
/// cannot fence its successor off. Without `order` the last caller wins, and must check its own lock
/// *after* the answer. The `id` names this fence until `ended_locks_kept` after its end: repeat the call with it to get the
/// same answer, and release it with `DELETE /locks/{id}`.
#[utoipa::path(
    post, path = "/resources/{resource}/fence", operation_id = "setFence", tag = "locks",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource.")),
    request_body = wire::FenceRequest,
    responses(
        (status = 201, description = "Set: every earlier token is refused.", body = wire::Fence,
            headers(
                ("Location" = String, description = "`/locks/{id}`"),
                ("X-Fence-Token" = String, description = "The token."),
                ("Cache-Control" = String, description = "`no-store`"),
            )),
        (status = 200, description = "Set before under this id: the same token.",
            body = wire::Fence, headers(
                ("Location" = String, description = "`/locks/{id}`"),
                ("X-Fence-Token" = String, description = "The token."),
                ("Cache-Control" = String, description = "`no-store`"),
            )),
        FenceProblems,
    )
)]
pub async fn fence(
    State(app): State<App>,
    asks: Asks,
    InResource(resource): InResource,
    named: Named,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::FenceRequest>,
) -> Result<Response, Problem> {
    let owner = locks::owner(request.owner)?;
    let order = request.order.map(|order| order.0);
    named.note(&[], &owner);
    let (id, force) = (request.id, request.force);
    asks.may(Want::On(Action::Fence, resource.clone())).await?;
    if force || order.is_none() {
        asks.may(Want::On(Action::FenceForce, resource.clone())).await?;
    }
    app.engine.has_room(&asks, More::Fence(&resource)).await?;
    let in_bucket = app.engine.lie_in_bucket(std::slice::from_ref(&resource)).await?;
    let permit = asks.permit();
    let fence =
        Fence { resource: resource.clone(), id, owner, order, force, permit: permit.clone() };
    let set = match app.engine.fence(fence).await {
        Ok(set) => set,
        Err(error) => {
            let reason = app.engine.beside_lock(&error, Some(id), &permit).await;
            return Err(Problem::from(error).because(reason).about(&resource));
        }
    };
    let (token, version) = (set.grant.token, set.grant.versions.first().copied().unwrap_or(0));
    let s3 = access_granted(&app, (token, set.grant.lock), set.grant.state, in_bucket);
    Ok(locks::gives_out(set.again, id, token, wire::Fence { resource, token, version, s3 }))
}
