//! `/locks`: acquire, look, renew, release.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fence_core::wire::{self, OWNER_BYTES_MAX, RENEW_IDS_MAX};
use fence_core::{ErrorCode, LockId, Ttl};
use futures::{StreamExt, stream};

use super::views;
use crate::engine::error::EngineError;
use crate::engine::{Acquire, Renewed};
use crate::http::extract::{InLock, List, NoQuery, OptionalJson, Query, StrictJson, cursor_after};
use crate::http::problem::{Problem, text};
use crate::http::spec::{
    AcquireProblems, ListProblems, LockProblems, ReleaseProblems, RenewManyProblems, RenewProblems,
};
use crate::http::state::App;

/// Renewals of one call that are under way at a time, so that one caller does not fill the queue.
const RENEW_TOGETHER: usize = 64;

/// Acquire a lock
///
/// The answer's token admits writes on the resource until another token is granted. Send a random
/// `id` to be able to repeat the call: the same id gets the same lock and token.
#[utoipa::path(
    post, path = "/locks", operation_id = "acquireLock", tag = "locks",
    request_body = wire::AcquireRequest,
    responses(
        (status = 201, description = "Granted.", body = wire::Lock, headers(
            ("Location" = String, description = "`/locks/{id}`"),
            ("X-Fence-Token" = String, description = "The token."),
            ("Cache-Control" = String, description = "`no-store`"),
        )),
        (status = 200, description = "Granted before under this id: the same lock and token, its \
            ttl started again.", body = wire::Lock, headers(
            ("Location" = String, description = "`/locks/{id}`"),
            ("X-Fence-Token" = String, description = "The token."),
            ("Cache-Control" = String, description = "`no-store`"),
        )),
        AcquireProblems,
    )
)]
pub async fn acquire(
    State(app): State<App>,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::AcquireRequest>,
) -> Result<Response, Problem> {
    if request.owner.len() > OWNER_BYTES_MAX || request.owner.chars().any(char::is_control) {
        return Err(Problem::new(
            ErrorCode::BodyMalformed,
            format!("an owner has at most {OWNER_BYTES_MAX} bytes and no control characters"),
        ));
    }
    let resource = request.resource.clone();
    let acquired = app
        .engine
        .acquire(Acquire {
            resource: request.resource,
            owner: request.owner,
            ttl: request.ttl.unwrap_or(Ttl::DEFAULT),
            id: request.id,
        })
        .await
        .map_err(|error| Problem::from(error).about(&resource))?;
    let status = if acquired.again { StatusCode::OK } else { StatusCode::CREATED };
    let lock = views::lock(acquired.grant);
    let headers = [
        (header::LOCATION, text(format_args!("/locks/{}", lock.id))),
        (HeaderName::from_static("x-fence-token"), text(lock.token)),
    ];
    Ok((status, headers, Json(lock)).into_response())
}

/// List held locks
///
/// In byte order of their resources, without ids and tokens. Expired locks that nobody took over
/// are listed too: their holders may still write.
#[utoipa::path(
    get, path = "/locks", operation_id = "listLocks", tag = "locks", params(List),
    responses((status = 200, description = "A page.", body = wire::ResourceList), ListProblems)
)]
pub async fn list(
    State(app): State<App>,
    Query(query): Query<List>,
) -> Result<Json<wire::ResourceList>, Problem> {
    resource_list(&app, &query, true).await.map(Json)
}

pub(super) async fn resource_list(
    app: &App,
    query: &List,
    held: bool,
) -> Result<wire::ResourceList, Problem> {
    let page = query.page()?;
    let mut views = app.engine.resources(page.clone(), held).await?;
    let next_cursor = cursor_after(&mut views, &page, |view| view.resource.as_str());
    Ok(wire::ResourceList { items: views.into_iter().map(views::resource).collect(), next_cursor })
}

/// Look at your own lock
///
/// As it stands, or how it ended, for 24 hours.
#[utoipa::path(
    get, path = "/locks/{id}", operation_id = "getLock", tag = "locks",
    params(("id" = uuid::Uuid, Path, description = "The lock's id.")),
    responses((status = 200, description = "The lock.", body = wire::Lock), LockProblems)
)]
pub async fn get(
    State(app): State<App>,
    InLock(id): InLock,
    _: NoQuery,
) -> Result<Json<wire::Lock>, Problem> {
    Ok(Json(views::lock_record(app.engine.lock(id).await?)))
}

/// Renew a lock
///
/// Its ttl starts again. An expired lock that nobody took over revives, and `lapsed_ms` says for
/// how long it had been expired.
#[utoipa::path(
    post, path = "/locks/{id}/renew", operation_id = "renewLock", tag = "locks",
    params(("id" = uuid::Uuid, Path, description = "The lock's id.")),
    request_body(content = Option<wire::RenewRequest>, description = "May be left out."),
    responses((status = 200, description = "Renewed.", body = wire::Lock), RenewProblems)
)]
pub async fn renew(
    State(app): State<App>,
    InLock(id): InLock,
    _: NoQuery,
    OptionalJson(request): OptionalJson<wire::RenewRequest>,
) -> Result<Json<wire::Lock>, Problem> {
    Ok(Json(renewed(app.engine.renew(id, request.ttl).await?)))
}

fn renewed(renewed: Renewed) -> wire::Lock {
    wire::Lock { lapsed_ms: renewed.lapsed_ms, ..views::lock(renewed.grant) }
}

/// Renew many locks
///
/// One outcome per id, in order: the lock, or the error code.
#[utoipa::path(
    post, path = "/locks/renew", operation_id = "renewLocks", tag = "locks",
    request_body = wire::RenewManyRequest,
    responses(
        (status = 200, description = "The outcomes.", body = wire::RenewManyAnswer),
        RenewManyProblems,
    )
)]
pub async fn renew_many(
    State(app): State<App>,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::RenewManyRequest>,
) -> Result<Json<wire::RenewManyAnswer>, Problem> {
    distinct(&request.ids)?;
    let renewals: Vec<(LockId, Result<Renewed, EngineError>)> = stream::iter(request.ids)
        .map(|id| {
            let engine = &app.engine;
            async move { (id, engine.renew(id, request.ttl).await) }
        })
        .buffered(RENEW_TOGETHER)
        .collect()
        .await;
    // When nothing could even be decided, that is the answer to the whole call.
    if let Some((_, Err(error))) = renewals.first()
        && renewals.iter().all(|(_, outcome)| undecided(outcome))
    {
        return Err(error.clone().into());
    }
    let items = renewals.into_iter().map(|(id, renewal)| outcome(id, renewal)).collect();
    Ok(Json(wire::RenewManyAnswer { items }))
}

fn undecided(outcome: &Result<Renewed, EngineError>) -> bool {
    outcome.as_ref().is_err_and(|error| error.code().status() >= 500)
}

fn distinct(ids: &[LockId]) -> Result<(), Problem> {
    let malformed = |why: String| Err(Problem::new(ErrorCode::BodyMalformed, why));
    if ids.is_empty() || ids.len() > RENEW_IDS_MAX {
        return malformed(format!("ids has 1 to {RENEW_IDS_MAX} entries"));
    }
    if ids.iter().collect::<HashSet<_>>().len() < ids.len() {
        return malformed("each id may be named only once".into());
    }
    Ok(())
}

fn outcome(id: LockId, renewal: Result<Renewed, EngineError>) -> wire::RenewOutcome {
    match renewal {
        Ok(done) => wire::RenewOutcome { id, lock: Some(renewed(done)), code: None },
        Err(error) => {
            wire::RenewOutcome { id, lock: None, code: Some(error.code().as_str().into()) }
        }
    }
}

/// Release a lock
///
/// From now on its token is refused. Releasing what has ended, or was never granted, succeeds.
#[utoipa::path(
    delete, path = "/locks/{id}", operation_id = "releaseLock", tag = "locks",
    params(("id" = uuid::Uuid, Path, description = "The lock's id.")),
    responses((status = 204, description = "Released."), ReleaseProblems)
)]
pub async fn release(
    State(app): State<App>,
    InLock(id): InLock,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    app.engine.release(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
