//! `/upstreams/{name}/{path}`: the fenced reverse proxy.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use fence_core::ErrorCode;
use fencegate_access::Action;

use crate::engine::Forward;
use crate::engine::access::{Asks, Want};
use crate::engine::error::EngineError;
use crate::http::Ends;
use crate::http::extract::{FenceHeaders, fence_token};
use crate::http::middleware::RequestId;
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::proxy::{
    Passage, Upstream, check_path, forward, is_fenced, read_ahead, refuse_tricks, to_upstream,
};
use crate::http::spec::{ReadThroughProblems, UpstreamParams, WriteThroughProblems};
use crate::http::state::App;
use crate::http::traced;
use crate::spans;

macro_rules! documented {
    ($($method:ident $function:ident $id:literal $title:literal $text:literal
       $problems:ident [$($params:ty)?];)+) => {$(
        #[doc = $title]
        #[doc = ""]
        #[doc = $text]
        #[utoipa::path(
            $method, path = "/upstreams/{name}/{*path}", operation_id = $id, tag = "data",
            params(
                ("name" = fence_core::schema::UpstreamName, Path, description = "The upstream, as the settings name it."),
                ("path" = fence_core::schema::UpstreamPath, Path, description = "The path at the upstream, as it is sent."),
                $($params)?
            ),
            responses(
                (status = "default", description = "The upstream's answer, whatever its status.",
                    content_type = "*/*", body = String, headers(
                    ("X-Operation-Id" = uuid::Uuid, description = "The operation, if it is fenced."),
                    ("X-Fence-Guarantee" = String,
                        description = "What a 2xx promises, if it is fenced: `drained` or `admission`."),
                )),
                $problems,
            )
        )]
        pub async fn $function(state: State<App>, request: Request) -> Result<Response, Problem> {
            pass(state, request).await
        }
    )+};
}

documented! {
    get get "readUpstream" "Read from an upstream"
        "Passed through without a token."
        ReadThroughProblems [];
    head head "headUpstream" "Look at something of an upstream"
        "Passed through without a token."
        ReadThroughProblems [];
    options options "optionsUpstream" "Ask an upstream for its options"
        "Passed through without a token."
        ReadThroughProblems [];
    post post "postUpstream" "Post to an upstream"
        "Fenced like any write; so is every method but GET, HEAD and OPTIONS. What a 2xx promises \
         depends on the guarantee of the upstream. Nothing is sent a second time by the gateway."
        WriteThroughProblems [UpstreamParams];
    put put "putUpstream" "Put to an upstream"
        "Fenced like any write."
        WriteThroughProblems [UpstreamParams];
    patch patch "patchUpstream" "Patch something of an upstream"
        "Fenced like any write."
        WriteThroughProblems [UpstreamParams];
    delete delete "deleteUpstream" "Delete something of an upstream"
        "Fenced like any write."
        WriteThroughProblems [UpstreamParams];
}

/// Passes a request on, fenced or not.
pub async fn pass(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asks = parts.extensions.get::<Asks>().cloned();
    let asks = asks.ok_or_else(|| EngineError::Defect("a route without a caller".into()))?;
    if [Method::TRACE, Method::CONNECT].contains(&parts.method) {
        let why = "CONNECT and TRACE are not forwarded";
        let mut refused = Problem::new(ErrorCode::MethodNotAllowed, why).into_response();
        let others = HeaderValue::from_static("GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE");
        refused.headers_mut().insert(header::ALLOW, others);
        return Ok(refused);
    }
    let (name, path) = named(&parts.uri);
    // Before it is said whether there is such an upstream.
    match is_fenced(&parts.method) {
        true => asks.may(Want::Somewhere(Action::Write)).await?,
        false => asks.may(Want::ForwardRead(name.to_owned(), path.to_owned())).await?,
    }
    let upstream = upstream(&app, name, path)?;
    refuse_tricks(&parts.method, &parts.headers)?;
    let fenced = match is_fenced(&parts.method) {
        true => Some(requested(&app, &asks, &upstream, path, &parts).await?),
        false => None,
    };
    let target = upstream.target(path, parts.uri.query());
    let target = target.ok_or_else(|| path_invalid("it would not arrive as it was sent"))?;
    let ends = parts.extensions.get::<Ends>();
    let request_id = parts.extensions.get::<RequestId>().map(RequestId::as_header);
    let request_id = request_id.unwrap_or_else(|| RequestId::random().as_header());
    // The answer has the same decision.
    let asks = asks.is_ruled().then_some(asks);
    let credentials = upstream.credentials(asks.is_some());
    let mut headers = to_upstream(&parts.headers, parts.version, ends, request_id, credentials);
    traced::hand_on(&mut headers, spans::current());
    let own = upstream.credential().await.map_err(|error| {
        tracing::warn!(
            upstream = upstream.name,
            why = format!("{error:#}"),
            "no credential for it"
        );
        let why = "the gateway has no credential for the upstream now; nothing was forwarded";
        Problem::new(ErrorCode::UpstreamUnreachable, why)
    })?;
    headers.extend(own.map(|own| (header::AUTHORIZATION, own)));
    let max = upstream.body_bytes_max;
    let counted = Counted::by(&parts.extensions);
    let purse = app.room.bodies.of(&counted);
    let body = read_ahead(body, max, &app.limits, purse).await?;
    if fenced.is_none() && !body.is_empty() {
        let why = "a method that needs no token must not have a body: upstreams that act on one would \
                   act past the fence";
        return Err(Problem::malformed(why).and_close());
    }
    // Only now: a caller that dawdles takes no room from others.
    let room = upstream.enter().ok_or_else(|| {
        let why = "too many requests to this upstream are in flight; nothing was forwarded";
        Problem::new(ErrorCode::Overloaded, why)
    })?;
    let method = parts.method;
    let passage = Passage { upstream, target, method, headers, body, fenced, room, asks };
    forward(&app.engine, &app.limits, passage).await
}

fn path_invalid(why: &str) -> Problem {
    Problem::new(ErrorCode::UpstreamPathInvalid, why)
}

/// The upstream that is named, and the path at it.
fn named(uri: &Uri) -> (&str, &str) {
    let rest = uri.path().strip_prefix("/upstreams/").unwrap_or_default();
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

/// The upstream of this name, which can be sent this path.
fn upstream(app: &App, name: &str, path: &str) -> Result<std::sync::Arc<Upstream>, Problem> {
    let found = app.upstreams.get(name);
    let found = found.ok_or_else(|| {
        Problem::new(ErrorCode::UpstreamNotFound, "no upstream has this name in the settings")
    })?;
    check_path(path).map_err(path_invalid)?;
    Ok(found)
}

/// What the ledger has to admit.
async fn requested(
    app: &App,
    asks: &Asks,
    upstream: &Upstream,
    path: &str,
    parts: &Parts,
) -> Result<Forward, Problem> {
    let resource = upstream.resource(path).map_err(|why| path_invalid(&why))?;
    let permit = asks.may_on(Action::Write, &resource).await?;
    let token = fence_token(&parts.headers, app.requires_lock_id())?;
    let headers = FenceHeaders::parse(&parts.headers, &parts.extensions)?;
    Ok(Forward {
        upstream: upstream.name.clone(),
        drained: upstream.is_drained(),
        max_effect_delay: upstream.max_effect_delay,
        resource,
        token,
        lock: headers.lock,
        sequence: headers.sequence,
        resource_version: headers.resource_version,
        method: parts.method.to_string(),
        path: path.to_owned(),
        request_id: headers.request_id,
        permit,
    })
}
