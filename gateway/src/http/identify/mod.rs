//! Who sends a request, by what it shows: a key or token in `Authorization`, a client certificate, or the process at the
//! other end of a socket. Headers that name somebody are never believed.

mod bearer;
mod certificate;
mod issuers;

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use fence_core::ErrorCode;
use fencegate_access::Identity;

pub use certificate::shown_by_certificate;
pub use issuers::Issuers;

use crate::engine::access::{Asks, Known};
use crate::engine::error::EngineError;
use crate::http::problem::Problem;
use crate::http::state::App;

/// How requests showed who sent them, and what came of it.
const AUTH: &str = "fencegate_auth_total";

/// Tells the recorder what the metric means.
pub fn describe() {
    metrics::describe_counter!(
        AUTH,
        "Requests by how they showed who sent them, and whether that was good"
    );
}

/// What a connection shows of who is at its other end, for all requests on it.
#[derive(Debug, Clone, Default)]
pub struct Shown(pub Option<Arc<Identity>>);

/// What needs no credential: that the gateway is alive and ready, and what it says to everybody.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/openapi.yaml", "/docs/errors/{code}"];

/// Finds out who sends a request, under the rules that are in force. A read is held against them once more before a byte
/// of its answer is sent: they may have changed since.
pub async fn identify(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let asks = match asks(&app, &parts).await {
        Ok(asks) => asks,
        Err(problem) => return problem.into_response(),
    };
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
    parts.extensions.insert(asks.clone());
    let response = next.run(Request::from_parts(parts, body)).await;
    if reads
        && !response.status().is_server_error()
        && let Err(error) = asks.confirm().await
    {
        return Problem::from(error).into_response();
    }
    response
}

async fn asks(app: &App, parts: &Parts) -> Result<Asks, Problem> {
    let access = app.engine.access();
    let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
    let is_open = route.is_some_and(|route| OPEN.contains(&route));
    let bearer = bearer::bearer(&parts.headers, &parts.uri)?;
    let shown = parts.extensions.get::<Shown>().cloned().unwrap_or_default().0;
    let in_force = match access.in_force().await {
        Ok(in_force) => in_force,
        Err(error) if !is_open => return Err(error.into()),
        // What is open to everybody does not wait for the ledger.
        Err(_) => return Ok(Asks::of_nobody(access)),
    };
    let Some(rules) = in_force.rules() else { return Ok(Asks::new(access, in_force, None)) };
    let now = app.engine.runtime().clock.now();
    let known = match (bearer, shown) {
        (None, None) if is_open => None,
        (None, None) => {
            count("none", "missing");
            return Err(EngineError::Unauthenticated.into());
        }
        (None, Some(shown)) => {
            let method = method(&shown);
            let known = in_force.known(Some(shown), now);
            counted(method, &known);
            match known {
                Err(_) if is_open => None,
                known => known?,
            }
        }
        (Some(text), shown) => {
            let known = bearer::known(&app.issuers, &in_force, rules, text, now).await;
            counted("bearer", &known);
            let known = known?;
            let certificate = shown.filter(|shown| matches!(**shown, Identity::Certificate { .. }));
            // One that is nobody's says nothing: a proxy in between may have its own.
            let other = certificate.and_then(|shown| rules.caller(&shown, now).ok());
            if other.is_some_and(|other| *other.name() != *known.caller.name()) {
                let why =
                    "the client certificate is of another principal than the bearer credential";
                return Err(Problem::new(ErrorCode::CredentialsConflict, why));
            }
            Some(known)
        }
    };
    Ok(Asks::new(access, in_force, known))
}

fn method(identity: &Identity) -> &'static str {
    match identity {
        Identity::Key(_) => "key",
        Identity::Jwt { .. } => "jwt",
        Identity::Certificate { .. } => "certificate",
        Identity::Unix { .. } => "unix",
    }
}

fn counted<T>(method: &'static str, outcome: &Result<T, EngineError>) {
    let word = match outcome {
        Ok(_) => "accepted",
        Err(EngineError::CredentialExpired) => "expired",
        Err(_) => "refused",
    };
    count(method, word);
}

fn count(method: &'static str, outcome: &'static str) {
    metrics::counter!(AUTH, "method" => method, "outcome" => outcome).increment(1);
}

/// For handlers: who asks.
impl<S: Sync> FromRequestParts<S> for Asks {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let asks = parts.extensions.get::<Self>().cloned();
        asks.ok_or_else(|| EngineError::Defect("a route without a caller".into()).into())
    }
}

/// A credential that was found to be somebody's.
type Found = Result<Known, EngineError>;
