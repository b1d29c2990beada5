//! Health, and the documentation that the gateway serves itself.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use fence_core::{ErrorCode, wire};
use fencegate_access::Action;
use serde::Deserialize;

use crate::engine::access::{Asks, Want};
use crate::http::extract::{NoQuery, Query};
use crate::http::pages;
use crate::http::problem::Problem;
use crate::http::spec::{PageProblems, PlainProblems};
use crate::http::state::App;

/// Is the process alive?
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "seeing",
    responses(
        (status = 200, description = "It is.", content_type = "text/plain", body = String),
        PlainProblems,
    )
)]
pub async fn healthz(_: NoQuery) -> &'static str {
    "ok\n"
}

/// The parameters of readiness.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// With `1`, new locks must be possible too.
    #[param(pattern = "^[01]$")]
    grants: Option<String>,
    /// With `1`, writes must be possible too.
    #[param(pattern = "^[01]$")]
    writes: Option<String>,
}

/// Should requests be sent here?
///
/// While the ledger works and the gateway is not shutting down; with `writes=1` only while it takes writes, too, and with
/// `grants=1` only while locks can be granted. The answer tells the state of each part: `gateway`, whether it goes on;
/// `ledger`; `mint`, without which only new locks stop; `blobs`, without which only large objects cannot be written or read;
/// `settings`, whether they are those that all gateways have agreed on; and `writes` and `grants`, whether those can be made, as
/// of the last ones and of a trial every few seconds. `blobs` and `settings` never make it not ready.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readiness", tag = "seeing", params(Ready),
    responses(
        (status = 200, description = "Yes.", body = wire::Readiness),
        PlainProblems,
        (status = 503, description = "No.", body = wire::Readiness),
    )
)]
pub async fn readyz(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<Ready>,
) -> Result<Response, Problem> {
    let wanted = |name: &str, value: Option<String>| match value.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Problem::new(ErrorCode::QueryMalformed, format!("{name} is 0 or 1"))),
    };
    let (grants, writes) = (wanted("grants", query.grants)?, wanted("writes", query.writes)?);
    let parts = parts(&app).await;
    let works = |name| parts.iter().any(|(part, state)| *part == name && state.is_ok());
    let ready = works("gateway")
        && works("ledger")
        && (works("grants") || !grants)
        && (works("writes") || !writes);
    // What keeps a part may name hosts and errors: that is for operators.
    let tells_why = asks.could(&Want::All(Action::Observe, String::new()));
    let part = |(name, state): (&str, Result<(), String>)| {
        part(name, state.map_err(|why| if tells_why { why } else { String::new() }))
    };
    let parts = parts.into_iter().map(part).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(wire::Readiness { ready, parts })).into_response())
}

/// Each part by its name, and why it does not work if it does not, as far as is known. Answers within 100 ms.
pub(super) async fn parts(app: &App) -> [(&'static str, Result<(), String>); 7] {
    let state = app.engine.readiness().await;
    let gateway = match app.draining.is_cancelled() {
        true => Err("the gateway is shutting down".to_owned()),
        false => Ok(()),
    };
    [
        ("gateway", gateway),
        ("ledger", state.ledger),
        ("mint", state.mint),
        ("blobs", state.blobs),
        ("settings", state.settings),
        ("writes", state.writes),
        ("grants", state.grants),
    ]
}

fn part(name: &str, state: Result<(), String>) -> wire::PartState {
    wire::PartState {
        part: name.into(),
        ready: state.is_ok(),
        detail: state.err().filter(|why| !why.is_empty()),
    }
}

/// This document
#[utoipa::path(
    get, path = "/openapi.yaml", operation_id = "openapi", tag = "seeing",
    responses(
        (status = 200, description = "OpenAPI 3.2.", content_type = "application/yaml",
            body = String),
        PlainProblems,
    )
)]
pub async fn openapi(_: NoQuery) -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(crate::http::openapi_yaml);
    ([(header::CONTENT_TYPE, "application/yaml")], DOCUMENT.as_str()).into_response()
}

/// The page of an error code
///
/// Where `type` of a problem document leads.
#[utoipa::path(
    get, path = "/docs/errors/{code}", operation_id = "errorPage", tag = "seeing",
    params(("code" = ErrorCode, Path, description = "The error code.")),
    responses(
        (status = 200, description = "Markdown.", content_type = "text/markdown", body = String),
        PageProblems,
    )
)]
pub async fn error_page(uri: Uri, _: NoQuery) -> Result<Response, Problem> {
    let code = uri.path().trim_start_matches("/docs/errors/");
    let code = ErrorCode::parse(code)
        .ok_or_else(|| Problem::new(ErrorCode::RouteNotFound, "there is no such error code"))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], pages::page(code))
        .into_response())
}
