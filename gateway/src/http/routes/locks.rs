//! `/locks`: acquire, list, renew, release.

use std::collections::HashSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fence_core::ports::{Grant, WRITERS_MAX, Which};
use fence_core::wire::{self, LOCK_RESOURCES_MAX, OWNER_BYTES_MAX, RENEW_IDS_MAX, WAIT_MAX};
use fence_core::{ErrorCode, LockId, PrincipalName, ResourceName, Token, Ttl, WriterName};
use fencegate_access::{Action, LockTerms, Quota};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::s3_keys::access_granted;
use super::views;
use crate::engine::access::{Asks, LockHolder, Permit, Want};
use crate::engine::error::EngineError;
use crate::engine::{Acquire, Acquired, Engine, More, Released, Renewed, Transfer};
use crate::http::extract::{
    Asker, InLock, List, NoQuery, OptionalJson, Query, StrictJson, cursor_after,
};
use crate::http::middleware::Named;
use crate::http::peers::{Counted, Place};
use crate::http::problem::{Problem, text};
use crate::http::receipt::Receipt;
use crate::http::spec::{
    AcquireProblems, ListProblems, ReleaseProblems, RenewManyProblems, RenewProblems,
    TransferProblems,
};
use crate::http::state::App;

/// Renewals of one call that are under way at a time, so that one caller does not fill the queue.
const RENEW_TOGETHER: usize = 64;

/// Acquire a lock
///
/// The answer's token admits writes on each of its resources until another token is granted there.
/// Several resources are locked all or none. Send a random
/// `id` to be able to repeat the call: the same id gets the same lock and token.
///
/// With `wait` the call stands in line, first in first out across all gateways, with one place for all
/// of its resources: those that become free are reserved for the first waiter that is still connected.
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
    asks: Asks,
    named: Named,
    counted: Counted,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::AcquireRequest>,
) -> Result<Response, Problem> {
    let owner = owner(request.owner)?;
    let resources = resources(request.resource, request.resources)?;
    let only = match resources.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    };
    let wait = request.wait.unwrap_or(Duration::ZERO);
    if wait > WAIT_MAX {
        return Err(Problem::new(ErrorCode::BodyMalformed, "wait is at most 50s"));
    }
    let (id, proposed) = (request.id, request.id.is_some());
    named.note(&resources, &owner);
    let kept = match (request.ttl, id.filter(|_| asks.is_ruled())) {
        (None, Some(id)) => kept(&app, &asks, id).await?,
        (asked, _) => asked,
    };
    let terms = LockTerms {
        ttl: finite(kept.unwrap_or(Ttl::DEFAULT)),
        max_hold: request.max_hold.map(|hold| Duration::from_millis(hold.as_ms().unsigned_abs())),
        wait: (!wait.is_zero()).then_some(wait),
    };
    for resource in &resources {
        asks.may(Want::Lock(resource.clone(), terms)).await?;
    }
    let writers = writers(request.writers, &asks, &resources).await?;
    app.engine.has_room(&asks, More::Lock(&resources, id)).await?;
    let permit = asks.permit();
    let acquire = Acquire {
        resources,
        owner,
        ttl: request.ttl,
        max_hold: request.max_hold,
        metadata: request.metadata.unwrap_or_default(),
        only_if_exists: request.only_if_exists,
        id,
        wait,
        writers,
        permit: permit.clone(),
    };
    // Before anything is granted: an answer that cannot be given in whole would leave a lock behind.
    let in_bucket = Box::pin(app.engine.lie_in_bucket(&acquire.resources)).await?;
    let waits = match wait.is_zero() {
        true => None,
        false => Some((app.room.long_calls.begin(&counted)?, place(&app, &counted, &acquire)?)),
    };
    let acquired = tokio::select! {
        acquired = app.engine.acquire(acquire) => acquired,
        // Another gateway takes the waiters of one that stops.
        () = app.draining.cancelled(), if !wait.is_zero() => Err(EngineError::ShuttingDown),
    };
    let acquired = match acquired {
        Ok(acquired) => {
            if let Some((_, place)) = waits {
                place.granted();
            }
            acquired
        }
        Err(error) => {
            let problem = Box::pin(refused(&app, error, id, &permit)).await;
            return Err(match &only {
                Some(resource) => problem.about(resource),
                None => problem,
            });
        }
    };
    Ok(granted(&app, acquired, proposed, in_bucket))
}

/// A place in line.
fn place(app: &App, counted: &Counted, acquire: &Acquire) -> Result<Place, Problem> {
    let place = app.room.places.take(counted, &acquire.resources, acquire.id);
    place.ok_or_else(|| {
        let why = "too many callers stand in this line already, or have left it a moment ago,";
        counted.refused(Quota::LinePlaces.as_str(), why)
    })
}

/// How long a lock lasts without renewal; none for an infinite one.
fn finite(ttl: Ttl) -> Option<Duration> {
    (!ttl.is_infinite()).then(|| Duration::from_millis(ttl.as_ms().unsigned_abs()))
}

/// The ttl that a lock keeps for which the same call is made again, if there is one.
async fn kept(app: &App, asks: &Asks, id: LockId) -> Result<Option<Ttl>, EngineError> {
    asks.may(Want::Somewhere(Action::Lock)).await?;
    match app.engine.lock(id, &asks.permit()).await {
        Ok(record) => Ok(Some(record.grant.ttl)),
        Err(EngineError::LockNotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who else may write under the token of a lock. Naming them is a right of its own.
async fn writers(
    named: Vec<WriterName>,
    asks: &Asks,
    resources: &[ResourceName],
) -> Result<Vec<WriterName>, Problem> {
    let malformed = |why: String| Err(Problem::new(ErrorCode::BodyMalformed, why));
    if named.is_empty() {
        return Ok(named);
    }
    if named.len() > WRITERS_MAX {
        return malformed(format!("writers has at most {WRITERS_MAX} entries"));
    }
    if !asks.is_ruled() {
        return malformed("writers need rules of access: without them everybody may write".into());
    }
    for resource in resources {
        asks.may(Want::On(Action::Delegate, resource.clone())).await?;
    }
    Ok(named)
}

/// Asks for what is done to a lock that is known by its id alone: for its resources, which are read for that, on its own
/// terms, or with the ttl that it is to have. To others than its principal the lock is not known.
async fn of_lock(
    app: &App,
    asks: &Asks,
    id: LockId,
    ttl: Option<Ttl>,
) -> Result<Vec<ResourceName>, EngineError> {
    asks.may(Want::Somewhere(Action::Lock)).await?;
    if !asks.is_ruled() {
        return Ok(Vec::new());
    }
    let grant = app.engine.lock(id, &asks.permit()).await?.grant;
    let hold = grant.hold_until.map(|until| until.duration_since(grant.acquired_at));
    let terms = LockTerms {
        ttl: finite(ttl.unwrap_or(grant.ttl)),
        max_hold: hold.map(|hold| hold.unsigned_abs()),
        wait: None,
    };
    for resource in &grant.resources {
        asks.may(Want::Lock(resource.clone(), terms)).await?;
    }
    Ok(grant.resources)
}

/// What a call about a lock is answered that was refused.
pub(super) async fn refused(
    app: &App,
    error: EngineError,
    id: Option<LockId>,
    permit: &Permit,
) -> Problem {
    let reason = app.engine.beside_lock(&error, id, permit).await;
    Problem::from(error).because(reason)
}

/// The answer to a grant. `proposed` says whether the caller chose the id. If the answer cannot be
/// written out, its receipt gives the lock back. `in_bucket` says whether S3 tools reach what it locks.
fn granted(app: &App, acquired: Acquired, proposed: bool, in_bucket: bool) -> Response {
    let receipt = Receipt::of(&app.engine, &acquired, proposed);
    let Grant { token, lock, state, .. } = acquired.grant;
    let s3 = access_granted(app, (token, lock), state, in_bucket);
    let lock = wire::Lock { s3, ..views::lock(acquired.grant) };
    let mut response = gives_out(acquired.again, lock.id, lock.token, lock);
    if let Some(receipt) = receipt {
        response.extensions_mut().insert(receipt);
    }
    response
}

/// The answer that gives out a token: 201, or 200 if it had been given out before.
pub(super) fn gives_out(again: bool, id: LockId, token: Token, body: impl Serialize) -> Response {
    let status = if again { StatusCode::OK } else { StatusCode::CREATED };
    let headers = [
        (header::LOCATION, text(format_args!("/locks/{id}"))),
        (HeaderName::from_static("x-fence-token"), text(token)),
    ];
    (status, headers, Json(body)).into_response()
}

pub(super) fn owner(owner: String) -> Result<String, Problem> {
    if owner.len() > OWNER_BYTES_MAX || owner.chars().any(char::is_control) {
        return Err(Problem::new(
            ErrorCode::BodyMalformed,
            format!("an owner has at most {OWNER_BYTES_MAX} bytes and no control characters"),
        ));
    }
    Ok(owner)
}

/// One of `resource` and `resources`, as a sorted list.
fn resources(
    one: Option<ResourceName>,
    many: Option<Vec<ResourceName>>,
) -> Result<Vec<ResourceName>, Problem> {
    let malformed = |why: String| Problem::new(ErrorCode::BodyMalformed, why);
    let mut names = match (one, many) {
        (Some(one), None) => vec![one],
        (None, Some(many)) => many,
        _ => return Err(malformed("send either resource or resources".into())),
    };
    if names.is_empty() || names.len() > LOCK_RESOURCES_MAX {
        return Err(malformed(format!("resources has 1 to {LOCK_RESOURCES_MAX} entries")));
    }
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(malformed("each resource may be named only once".into()));
    }
    Ok(names)
}

/// Hand a lock over
///
/// The successor gets a new id and a new token; the old ones are stale in the same act. Send the
/// successor's `id` to be able to repeat the call.
#[utoipa::path(
    post, path = "/locks/{id}/transfer", operation_id = "transferLock", tag = "locks",
    params(("id" = fence_core::LockId, Path, description = "The lock's id.")),
    request_body = wire::TransferRequest,
    responses(
        (status = 201, description = "Handed over: the successor's lock.", body = wire::Lock,
            headers(
                ("Location" = String, description = "`/locks/{id}`"),
                ("X-Fence-Token" = String, description = "The token."),
                ("Cache-Control" = String, description = "`no-store`"),
            )),
        (status = 200, description = "Handed over before to the lock of this id: the same lock \
            and token, its ttl started again.", body = wire::Lock, headers(
                ("Location" = String, description = "`/locks/{id}`"),
                ("X-Fence-Token" = String, description = "The token."),
                ("Cache-Control" = String, description = "`no-store`"),
            )),
        TransferProblems,
    )
)]
pub async fn transfer(
    State(app): State<App>,
    asks: Asks,
    InLock(from): InLock,
    named: Named,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::TransferRequest>,
) -> Result<Response, Problem> {
    let owner = owner(request.owner)?;
    let proposed = request.id.is_some();
    named.note(&[], &owner);
    if request.principal.is_some() && !asks.is_ruled() {
        let why = "a principal needs rules of access: without them there are none";
        return Err(Problem::new(ErrorCode::BodyMalformed, why));
    }
    let resources = of_lock(&app, &asks, from, None).await?;
    if let Some(to) = request.principal.as_ref().filter(|to| asks.principal().as_ref() != Some(to))
    {
        for resource in &resources {
            asks.may(Want::On(Action::Delegate, resource.clone())).await?;
        }
        may_be_handed(&app, to, &resources).await?;
    }
    let permit = asks.permit();
    let (to, principal) = (request.id, request.principal);
    let transfer = Transfer { from, owner, to, principal, permit: permit.clone() };
    match app.engine.transfer(transfer).await {
        Ok(acquired) => {
            named.note(&acquired.grant.resources, &acquired.grant.owner);
            Ok(granted(&app, acquired, proposed, false))
        }
        Err(error) => Err(refused(&app, error, Some(from), &permit).await),
    }
}

/// Asks whether a principal may lock what is handed to it: else it would hold what no role of its own lets it take. Whether
/// there is such a principal is not told.
async fn may_be_handed(
    app: &App,
    to: &PrincipalName,
    resources: &[ResourceName],
) -> Result<(), EngineError> {
    let successor = LockHolder { principal: to.clone(), credential: None };
    let successor = app.engine.access().of_holder(Some(&successor)).await;
    for resource in resources {
        let want = || Want::On(Action::Lock, resource.clone());
        match &successor {
            Ok(successor) => successor.may(want()).await?,
            Err(EngineError::Unauthenticated) => {
                let (principal, on) = (to.clone(), resource.to_string());
                let (action, scopes) = (Action::Lock, Vec::new());
                return Err(EngineError::PermissionDenied { principal, action, on, scopes });
            }
            Err(_) => return Err(EngineError::AccessUnavailable),
        }
    }
    Ok(())
}

/// The parameters of a list of locks.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// Only names that begin with this.
    #[serde(default)]
    #[param(value_type = fence_core::schema::Prefix, required = false)]
    prefix: String,
    /// Also resources that are held no longer and that nobody took over: those of locks that have expired, whose holders
    /// may come back and write, and of broken ones.
    #[serde(default)]
    #[param(required = false)]
    also_ended: bool,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NameCursor>)]
    cursor: Option<String>,
}

/// List held locks
///
/// Each resource whose lock keeps others out, in byte order, without ids and tokens: held (`leased`), to be broken soon
/// (`breaking`), or `draining`.
#[utoipa::path(
    get, path = "/locks", operation_id = "listLocks", tag = "locks", params(Locks),
    responses((status = 200, description = "A page.", body = wire::ResourceList), ListProblems)
)]
pub async fn list(
    asks: Asks,
    Query(query): Query<Locks>,
    Asker(engine): Asker,
) -> Result<Json<wire::ResourceList>, Problem> {
    let Locks { prefix, also_ended, limit, cursor } = query;
    asks.may(Want::All(Action::List, prefix.clone())).await?;
    let which = if also_ended { Which::Taken } else { Which::Held };
    resource_list(&engine, &List { prefix, limit, cursor }, which).await.map(Json)
}

pub(super) async fn resource_list(
    engine: &Engine,
    query: &List,
    which: Which,
) -> Result<wire::ResourceList, Problem> {
    let page = query.page()?;
    let mut views = engine.resources(page.clone(), which).await?;
    let next_cursor = cursor_after(&mut views, &page, |view| view.resource.as_str());
    Ok(wire::ResourceList { items: views.into_iter().map(views::resource).collect(), next_cursor })
}

/// Renew a lock
///
/// Its ttl starts again. An expired lock that nobody took over revives, and `lapsed_ms` says for
/// how long it had been expired.
#[utoipa::path(
    post, path = "/locks/{id}/renew", operation_id = "renewLock", tag = "locks",
    params(("id" = fence_core::LockId, Path, description = "The lock's id.")),
    request_body(content = Option<wire::RenewRequest>, description = "May be left out."),
    responses((status = 200, description = "Renewed.", body = wire::Lock), RenewProblems)
)]
pub async fn renew(
    State(app): State<App>,
    asks: Asks,
    InLock(id): InLock,
    named: Named,
    _: NoQuery,
    OptionalJson(request): OptionalJson<wire::RenewRequest>,
) -> Result<Json<wire::Lock>, Problem> {
    of_lock(&app, &asks, id, request.ttl).await?;
    let permit = asks.permit();
    match app.engine.renew(id, request.ttl, permit.clone()).await {
        Ok(done) => {
            named.note(&done.grant.resources, &done.grant.owner);
            Ok(Json(renewed(done)))
        }
        Err(error) => Err(refused(&app, error, Some(id), &permit).await),
    }
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
    asks: Asks,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::RenewManyRequest>,
) -> Result<Json<wire::RenewManyAnswer>, Problem> {
    distinct(&request.ids)?;
    asks.may(Want::Somewhere(Action::Lock)).await?;
    let renewals: Vec<(LockId, Result<Renewed, EngineError>, Option<String>)> =
        stream::iter(request.ids)
            .map(|id| {
                let (app, asks) = (&app, asks.alike());
                async move {
                    let renewed = match of_lock(app, &asks, id, request.ttl).await {
                        Ok(_) => app.engine.renew(id, request.ttl, asks.permit()).await,
                        Err(error) => Err(error),
                    };
                    let reason = match &renewed {
                        Ok(_) => None,
                        Err(error) => app.engine.beside_lock(error, Some(id), &asks.permit()).await,
                    };
                    (id, renewed, reason)
                }
            })
            .buffered(RENEW_TOGETHER)
            .collect()
            .await;
    // When nothing could even be decided, that is the answer to the whole call.
    if let Some((_, Err(error), _)) = renewals.first()
        && renewals.iter().all(|(_, outcome, _)| undecided(outcome))
    {
        return Err(error.clone().into());
    }
    let items = renewals.into_iter().map(outcome).collect();
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

fn outcome(
    (id, renewal, reason): (LockId, Result<Renewed, EngineError>, Option<String>),
) -> wire::RenewOutcome {
    let (lock, code) = match renewal {
        Ok(done) => (Some(renewed(done)), None),
        Err(error) => (None, Some(error.code().as_str().into())),
    };
    wire::RenewOutcome { id, lock, code, reason }
}

/// Release a lock
///
/// From now on its token is refused. Releasing what waits in line, or has ended, succeeds as well.
///
/// An id that the gateway never heard of is buried: a lock that is still on its way under it will not be
/// granted. The answer says so, since the id may be mistyped, and the lock that was meant still held. Of
/// these, 200 a second are taken.
#[utoipa::path(
    delete, path = "/locks/{id}", operation_id = "releaseLock", tag = "locks",
    params(("id" = fence_core::LockId, Path, description = "The lock's id.")),
    responses(
        (status = 204, description = "Released, now or before, or not in line any more."),
        (status = 200, description = "No lock has this id, and none will.", body = wire::NotReleased),
        ReleaseProblems,
    )
)]
pub async fn release(
    State(app): State<App>,
    asks: Asks,
    InLock(id): InLock,
    named: Named,
    _: NoQuery,
) -> Result<Response, Problem> {
    // Whoever has a lock may always give it back.
    asks.may(Want::Somewhere(Action::Lock)).await?;
    Ok(match app.engine.release(id, asks.permit()).await? {
        Released::Ended(resources) => {
            named.note(&resources, "");
            StatusCode::NO_CONTENT.into_response()
        }
        Released::Buried => {
            Json(wire::NotReleased { released: false, buried: true }).into_response()
        }
    })
}
