//! The rules of access: seeing them, putting others in force, and asking what they say.

use axum::Json;
use axum::extract::State;
use axum::http::Extensions;
use fence_core::{ErrorCode, wire};
use fencegate_access::rules::RULES_BYTES_MAX;
use fencegate_access::{Action, Identity};
use serde::Deserialize;

use super::resources::check_reason;
use crate::engine::access::{Asks, NewRules, Want, explain};
use crate::http::extract::{NoQuery, Query, StrictJson, WideJson, narrowed_to};
use crate::http::identify::Shown;
use crate::http::middleware::RequestId;
use crate::http::problem::Problem;
use crate::http::spec::{AccessProblems, ApplyProblems, ListProblems};
use crate::http::state::App;

/// The largest body with rules in it: each byte of theirs may be written as an escape of two.
const BODY_BYTES_MAX: usize = 2 * RULES_BYTES_MAX + 16 * 1024;

pub(super) fn admin() -> Want {
    Want::All(Action::Admin, String::new())
}

/// See the rules of access
///
/// Those that are in force on all gateways of the ledger. They have digests of keys, never keys.
#[utoipa::path(
    get, path = "/admin/access", operation_id = "getAccess", tag = "access",
    responses((status = 200, description = "The rules.", body = wire::AccessRules), ListProblems)
)]
pub async fn get(
    State(app): State<App>,
    asks: Asks,
    _: NoQuery,
) -> Result<Json<wire::AccessRules>, Problem> {
    asks.may(admin()).await?;
    let stored = app.engine.access().stored().await?;
    Ok(Json(wire::AccessRules { generation: stored.generation, rules: stored.text }))
}

/// What own access is asked about.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Owned {
    /// What may be done to this resource. Without it: what may be done to some resource.
    #[param(value_type = Option<fence_core::ResourceName>)]
    resource: Option<String>,
}

/// What may I do?
///
/// Who the gateway takes the caller for, and what the rules of access let it do. Nobody is told what others may.
#[utoipa::path(
    get, path = "/access", operation_id = "getOwnAccess", tag = "access", params(Owned),
    responses((status = 200, description = "What it may.", body = wire::OwnAccess), ListProblems)
)]
pub async fn own(
    State(_): State<App>,
    asks: Asks,
    Query(query): Query<Owned>,
) -> Result<Json<wire::OwnAccess>, Problem> {
    asks.may(Want::Nothing).await?;
    let resource = narrowed_to(query.resource)?;
    let want = |action| match &resource {
        Some(name) => Want::On(action, name.clone()),
        None => Want::Somewhere(action),
    };
    let allowed = Action::ALL.iter().filter(|action| asks.could(&want(**action)));
    let may = allowed.map(|action| action.as_str().to_owned()).collect();
    Ok(Json(wire::OwnAccess { principal: asks.principal(), may }))
}

/// Put rules of access in force
///
/// On all gateways: once this is answered, nothing takes effect any more that older rules allowed, through whichever
/// gateway. The first rules of a ledger are put in force at a Unix socket of `admin_listen`, or by
/// `fencegate access init`: not by whoever reaches a port. Sent again it does the same once more.
#[utoipa::path(
    put, path = "/admin/access", operation_id = "putAccess", tag = "access",
    request_body = wire::ApplyRequest,
    responses(
        (status = 200, description = "They are in force.", body = wire::AccessApplied),
        ApplyProblems,
    )
)]
pub async fn put(
    State(app): State<App>,
    asks: Asks,
    (request_id, extensions): (RequestId, Extensions),
    _: NoQuery,
    WideJson(request): WideJson<wire::ApplyRequest, BODY_BYTES_MAX>,
) -> Result<Json<wire::AccessApplied>, Problem> {
    asks.may(admin()).await?;
    if !asks.is_ruled() && !is_at_socket(&extensions) {
        let why = "the first rules are put in force at a Unix socket of admin_listen, or by `fencegate access init`";
        return Err(Problem::new(ErrorCode::PermissionDenied, why));
    }
    check_reason(&request.reason)?;
    let change = NewRules {
        follows: request.follows,
        text: request.rules,
        reason: request.reason,
        request_id: request_id.as_str().to_owned(),
    };
    let permit = asks.permit();
    let applied = match request.dry_run {
        true => app.engine.lost_by_rules(&change, request.breaks).await?,
        false => app.engine.apply_rules(&permit, change, request.breaks).await?,
    };
    Ok(Json(applied.into()))
}

pub(super) fn is_at_socket(extensions: &Extensions) -> bool {
    let shown = extensions.get::<Shown>().and_then(|shown| shown.0.as_deref());
    matches!(shown, Some(Identity::Unix { .. }))
}

/// Ask what the rules of access say
///
/// Whether they let a principal do something, and by which line.
#[utoipa::path(
    post, path = "/admin/access/explain", operation_id = "explainAccess", tag = "access",
    request_body = wire::ExplainRequest,
    responses(
        (status = 200, description = "What they say.", body = wire::Explanation),
        AccessProblems,
    )
)]
pub async fn explained(
    State(app): State<App>,
    asks: Asks,
    _: NoQuery,
    StrictJson(request): StrictJson<wire::ExplainRequest>,
) -> Result<Json<wire::Explanation>, Problem> {
    asks.may(admin()).await?;
    let want = want(&request.action, &request.resource)?;
    let in_force = app.engine.access().current().await?;
    let rules = (in_force.generation(), in_force.rules());
    let explained = explain(rules, &request.principal, &want);
    asks.confirm().await?;
    Ok(Json(explained.into()))
}

fn want(action: &str, resource: &str) -> Result<Want, Problem> {
    let action = Action::named(action).ok_or_else(|| {
        let why = format!("there is no action {action:?}; there are {}", Action::words());
        Problem::new(ErrorCode::BodyMalformed, why)
    })?;
    Want::asked(action, resource)
        .map_err(|why| Problem::new(ErrorCode::ResourceNameInvalid, why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_can_be_asked_about() {
        let schema = serde_json::to_value(crate::http::openapi()).unwrap();
        let named = &schema["components"]["schemas"]["ActionName"]["enum"];
        let known: Vec<_> = Action::ALL.iter().map(|known| known.as_str()).collect();
        assert_eq!(named, &serde_json::json!(known));
        for action in known {
            assert!(want(action, "crm").is_ok() && want(action, "crm:*").is_ok(), "{action}");
        }
        assert!(want("fly", "crm").is_err() && want("lock", "a/b").is_err());
    }
}
