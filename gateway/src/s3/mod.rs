//! S3: the same objects under the same fence, for tools that know nothing of it. The access key of a request is the lock
//! that it writes under.
//!
//! One handler for all: `caller` finds out who signed the request, `fencegate_s3` reads what it asks for, one of `ops` does it
//! with the engine, and `answer` says in XML what went wrong.

mod answer;
mod body;
mod caller;
mod checksums;
mod failure;
mod ops;
mod place;
mod signing_keys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use fencegate_s3::address::Address;
use fencegate_s3::key::Keys;
use fencegate_s3::operation::{Query, read_operation};
use tower_http::catch_panic::CatchPanicLayer;

use crate::config::{S3Anonymous, S3Once};
use crate::http::identify::{Sender, comes_in_time, span_of, take_seat, tell_refused};
use crate::http::{App, panicked};
use crate::spans::within;
use caller::Caller;
use failure::Failure;
use signing_keys::SigningKeys;

/// What S3 is served with.
pub struct Settings {
    /// What access keys are read with.
    pub keys: Arc<Keys>,
    /// Names under which buckets are hosts; none: they are the first segment of paths.
    pub domain: Option<String>,
    /// The region that is told.
    pub region: String,
    /// What may be done without a key.
    pub anonymous: S3Anonymous,
    /// Which calls are done once, however often they are sent.
    pub once: S3Once,
}

/// What every operation can reach.
struct Inner {
    app: App,
    settings: Settings,
    signing_keys: SigningKeys,
}

/// The same, as handlers have it.
type Front = Arc<Inner>;

/// S3, with everything that happens to each request.
///
/// From the outside in: `answer` gives it its id, refuses other hosts, writes errors as XML, the log line and the metrics;
/// a panic becomes an error; what is malformed is refused as on the native side; then comes the one handler.
pub fn router(app: App, settings: Settings) -> Router {
    let front =
        Arc::new(Inner { app: Arc::clone(&app), settings, signing_keys: SigningKeys::default() });
    Router::new()
        .fallback(serve)
        .with_state(Arc::clone(&front))
        .layer(from_fn_with_state(Arc::clone(&app), crate::http::middleware::check))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(front, answer::answer))
}

/// Serves a request.
///
/// 1. Whoever has signed it, by what is shown before anything else is looked at; who has no share left is refused.
/// 2. What it asks for. What the gateway does not have is refused by name.
/// 3. That is done, or refused. The audit is told of refusals as on the native side.
async fn serve(State(front): State<Front>, request: Request) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let (app, sender) = (Arc::clone(&front.app), Sender::of(&parts));
    // Step 1.
    let caller = match caller::find(&front, &parts).await {
        Ok(caller) => caller,
        Err(failure) => {
            if let Some(problem) = failure.problem() {
                tell_refused(&app, None, &problem, &sender).await;
            }
            return Err(failure);
        }
    };
    let known = caller.asks.known();
    take_seat(&app, known.as_ref(), &parts).await?;
    let answered = match known.clone().map_or(Ok(()), comes_in_time) {
        Ok(()) => within(span_of(&parts, &caller.asks), asked(front, caller, parts, body)).await,
        Err(problem) => Err(problem.into()),
    };
    if let (Some(known), Err(failure)) = (&known, &answered)
        && let Some(problem) = failure.problem()
    {
        tell_refused(&app, Some(known), &problem, &sender).await;
    }
    answered
}

/// Steps 2 and 3.
async fn asked(
    front: Front,
    caller: Caller,
    parts: Parts,
    body: Body,
) -> Result<Response, Failure> {
    let host = parts.headers.get(axum::http::header::HOST).and_then(|host| host.to_str().ok());
    let address = Address::read(host, parts.uri.path(), front.settings.domain.as_deref())?;
    let query = Query::parse(parts.uri.query())?;
    let headers = query.headers(&parts.headers)?.into_owned();
    let operation = read_operation(&parts.method, address, &query, &headers)?;
    let name = operation.name();
    // Step 3.
    let call = ops::Call { front, caller, parts, headers };
    let answered = ops::carry_out(call, operation, body).await;
    answered.map(|response| answer::of(response, name)).map_err(|failure| failure.of(name))
}
