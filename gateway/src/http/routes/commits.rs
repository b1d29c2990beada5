//! `POST /commit`: many puts and deletes over all resources of a lock, all or nothing.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use fence_core::ports::{Did, Effect};
use fence_core::wire::{self, COMMIT_RESOURCES_MAX, CommitOperation, CommitRequest, CommitVerb};
use fence_core::{ErrorCode, ObjectKey, ResourceName, Token};
use fencegate_access::Action;

use super::intake::Bodies;
use super::views;
use crate::engine::access::{Asks, Want};
use crate::engine::{
    COMMIT_STEPS_MAX, CommitFailure, CommitHead, CommitOutcome, More, Standings, Step, StepOutcome,
    WriteEffect,
};
use crate::http::extract::{
    Fenced, NoQuery, WriteConditions, WriteHeaders, is_content_type, is_part_name,
};
use crate::http::problem::{Problem, text};
use crate::http::spec::{CommitParams, CommitProblems};
use crate::http::state::App;

/// The body of a commit, for the documentation: further parts have the names that the list gives them.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct CommitForm {
    /// The first part, `application/json`: what to do.
    operations: CommitRequest,
    /// The parts that follow: the bodies of the puts, in the order of the list, each under the name that
    /// its operation gives as `body`. With `Content-MD5`, `Repr-Digest`, `Content-Digest` or
    /// `Content-Length` a part is checked. A body's own `Content-Type` counts unless the operation gives
    /// one; if both do, they must be the same. Encoded parts are refused.
    #[schema(value_type = Option<String>, format = Binary)]
    body: Option<Vec<u8>>,
}

/// Commit many puts and deletes
///
/// Over any of the resources that the token holds, all or nothing: readers see the whole of it or
/// nothing, and each resource takes one version. At most 1,000 operations on at most 32 resources.
///
/// The conditions are about the objects as they are before the commit. `Idempotency-Key` counts on each
/// of the resources. A refusal names the `resource` and, if it is about one operation, its `index` in
/// the list, from 0. Small bodies live in the ledger as long as they are at most 16 MiB together; others
/// are stored beside it first, all of them within `upload_timeout`. Digests are those of parts: one of the
/// whole request is refused.
#[utoipa::path(
    post, path = "/commit", operation_id = "commit", tag = "data",
    params(CommitParams),
    request_body(content = CommitForm, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "All of it took effect.", body = wire::Committed, headers(
            ("X-Operation-Id" = uuid::Uuid, description = "The operation."),
            ("X-Fence-Guarantee" = String, description = "What this answer promises: `strict`."),
            ("Idempotent-Replayed" = String, description = "`true` if it took effect earlier."),
        )),
        CommitProblems,
    )
)]
pub async fn commit(
    State(app): State<App>,
    asks: Asks,
    Fenced(token): Fenced,
    headers: WriteHeaders,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    if headers.object_condition.is_some() || headers.resource_version.is_some() {
        return Err(Problem::malformed(
            "a commit has its conditions in its list: if_match, if_none_match, versions",
        ));
    }
    let (mut bodies, list) = Bodies::begin(&app, request).await?;
    let resources = checked(&list).map_err(Problem::and_close)?;
    let names: Vec<ResourceName> = resources.keys().cloned().collect();
    headers.named.note(&names, "");
    for name in &names {
        let allowed = asks.may(Want::On(Action::Write, name.clone())).await;
        allowed.map_err(|error| Problem::from(error).about(name).and_close())?;
    }
    let puts = list.operations.iter().filter(|operation| operation.op == CommitVerb::Put);
    let puts: Vec<_> = puts.map(|put| (&put.resource, &put.key)).collect();
    if !puts.is_empty() {
        let more = More::Objects(&puts, 1, headers.idempotency_key.as_deref());
        app.engine.has_room(&asks, more).await.map_err(|error| Problem::from(error).and_close())?;
    }
    let head = CommitHead {
        resources,
        token,
        lock: headers.lock,
        sequence: headers.sequence,
        idempotency_key: headers.idempotency_key,
        key_kept: headers.key_kept,
        request_id: headers.request_id,
        permit: asks.permit(),
    };
    if let Err(failure) = app.engine.refuse_commit_early(&head).await {
        return Err(refused(&app, failure, token, None).await.and_close());
    }
    let mut steps = Vec::with_capacity(list.operations.len());
    for (index, operation) in list.operations.into_iter().enumerate() {
        let step = step(&mut bodies, &head, operation).await;
        steps.push(step.map_err(|problem| problem.at_index(Some(index)))?);
    }
    bodies.end().await?;
    let keys: Vec<ObjectKey> = steps.iter().filter_map(key).cloned().collect();
    match app.engine.commit_many(head, steps).await {
        Ok(outcome) => {
            headers.named.note(&[], outcome.applied.first().map_or("", |applied| &applied.owner));
            Ok((facts(&app, &outcome), Json(committed(outcome))).into_response())
        }
        Err(failure) => {
            let key = failure.step.and_then(|step| keys.get(step));
            Err(refused(&app, failure, token, key).await)
        }
    }
}

fn key(step: &Step) -> Option<&ObjectKey> {
    match &step.effect {
        WriteEffect::Put { key, .. } | WriteEffect::Delete { key } => Some(key),
        WriteEffect::DeleteAll => None,
    }
}

/// What a commit is answered that failed, perhaps at this object.
async fn refused(
    app: &App,
    failure: CommitFailure,
    token: Token,
    key: Option<&ObjectKey>,
) -> Problem {
    let beside = match &failure.resource {
        Some(resource) => app.engine.beside_write(&failure.error, resource, key, token).await,
        None => Standings::default(),
    };
    let problem = Problem::from(failure.error)
        .presented(token)
        .at_index(failure.step)
        .beside(beside)
        .of_operation(failure.operation);
    match failure.resource {
        Some(resource) => problem.about(&resource),
        None => problem,
    }
}

/// One operation, with its body.
async fn step(
    bodies: &mut Bodies<'_>,
    head: &CommitHead,
    operation: CommitOperation,
) -> Result<Step, Problem> {
    let CommitOperation { op, resource, key, body, content_type, if_match, if_none_match } =
        operation;
    let condition = WriteConditions::of(if_match.as_deref(), if_none_match.as_deref())?;
    let effect = match op {
        CommitVerb::Delete => WriteEffect::Delete { key },
        CommitVerb::Put => {
            let name = body.unwrap_or_default();
            let (body, content_type) =
                bodies.next(head, &resource, &key, &name, content_type).await?;
            WriteEffect::Put { key, content_type, about: None, body }
        }
    };
    Ok(Step { resource, object_condition: condition.0, effect })
}

/// Checks the list before any body is read. Returns its resources, and the versions demanded of them.
fn checked(list: &CommitRequest) -> Result<BTreeMap<ResourceName, Option<i64>>, Problem> {
    let malformed = |why: String| Problem::new(ErrorCode::BodyMalformed, why);
    if !(1..=COMMIT_STEPS_MAX).contains(&list.operations.len()) {
        return Err(malformed(format!("a commit has 1 to {COMMIT_STEPS_MAX} operations")));
    }
    let (mut objects, mut bodies) = (BTreeSet::new(), BTreeSet::new());
    for (index, operation) in list.operations.iter().enumerate() {
        let checked = match operation.op {
            CommitVerb::Put => check_put(operation),
            CommitVerb::Delete => check_delete(operation),
        };
        let at = |problem: Problem| problem.at_index(Some(index));
        checked.map_err(|why| at(malformed(why.into())))?;
        if !objects.insert((&operation.resource, &operation.key)) {
            return Err(at(malformed("no object may come twice in a commit".into())));
        }
        if operation.body.as_ref().is_some_and(|name| !bodies.insert(name)) {
            return Err(at(malformed("no part may be the body of two operations".into())));
        }
        let (demanded, forbidden) = (&operation.if_match, &operation.if_none_match);
        WriteConditions::of(demanded.as_deref(), forbidden.as_deref()).map_err(|_| {
            at(malformed("if_match or if_none_match is not what the header takes".into()))
        })?;
    }
    let named = list.operations.iter().map(|operation| (operation.resource.clone(), None));
    let mut resources: BTreeMap<_, _> = named.collect();
    resources.extend(list.versions.iter().map(|(name, version)| (name.clone(), Some(*version))));
    if resources.len() > COMMIT_RESOURCES_MAX {
        return Err(malformed(format!("a commit has at most {COMMIT_RESOURCES_MAX} resources")));
    }
    Ok(resources)
}

fn check_put(operation: &CommitOperation) -> Result<(), &'static str> {
    let body = operation.body.as_deref().ok_or("a put names the part with its body")?;
    if !is_part_name(body) || body == "operations" {
        return Err("a part has a name of 1 to 255 visible ASCII characters without quotes and \
                    backslashes, other than `operations`");
    }
    match operation.content_type.as_deref().is_none_or(is_content_type) {
        true => Ok(()),
        false => Err("a content type has 1 to 255 visible ASCII characters"),
    }
}

fn check_delete(operation: &CommitOperation) -> Result<(), &'static str> {
    let CommitOperation { body, content_type, if_none_match, .. } = operation;
    match body.is_none() && content_type.is_none() && if_none_match.is_none() {
        true => Ok(()),
        false => Err("a delete has no body, content_type or if_none_match"),
    }
}

fn facts(app: &App, outcome: &CommitOutcome) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    let verdict = if outcome.replayed { "replayed" } else { "admitted" };
    headers.insert(HeaderName::from_static("x-fence-verdict"), HeaderValue::from_static(verdict));
    let guarantee = HeaderValue::from_static(app.guarantee);
    headers.insert(HeaderName::from_static("x-fence-guarantee"), guarantee);
    headers.insert(HeaderName::from_static("x-operation-id"), text(outcome.operation));
    if outcome.replayed {
        let replayed = HeaderValue::from_static("true");
        headers.insert(HeaderName::from_static("idempotent-replayed"), replayed);
    }
    headers
}

fn committed(outcome: CommitOutcome) -> wire::Committed {
    wire::Committed {
        operation: outcome.operation,
        resources: outcome.applied.iter().map(views::committed_resource).collect(),
        results: outcome.steps.into_iter().map(result).collect(),
    }
}

fn result(outcome: StepOutcome) -> wire::CommitResult {
    let StepOutcome { step, did, tag } = outcome;
    let key = step.key().map(ToString::to_string).unwrap_or_default();
    let (op, put) = match &step.effect {
        Effect::Put { size, sha256, .. } => (CommitVerb::Put, Some((*size, hex::encode(sha256)))),
        Effect::Delete { .. } | Effect::DeleteAll => (CommitVerb::Delete, None),
    };
    wire::CommitResult {
        op,
        resource: step.resource.to_string(),
        key,
        version: tag.map(|tag| tag.version),
        created: put.is_some().then_some(did == Did::Created),
        etag: tag.filter(|_| put.is_some()).map(|tag| tag.to_string()),
        size: put.as_ref().map(|(size, _)| *size),
        sha256: put.map(|(_, sha256)| sha256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operations: &str, rest: &str) -> Result<usize, ErrorCode> {
        let text = format!("{{\"operations\":[{operations}]{rest}}}");
        let list: CommitRequest = serde_json::from_str(&text).unwrap();
        checked(&list).map(|resources| resources.len()).map_err(|problem| problem.code())
    }

    #[test]
    fn a_list_is_checked_before_any_body_is_read() {
        let put = |key: &str, body: &str, rest: &str| {
            format!(r#"{{"op":"put","resource":"r","key":"{key}","body":"{body}"{rest}}}"#)
        };
        let delete = |key: &str, rest: &str| {
            format!(r#"{{"op":"delete","resource":"r","key":"{key}"{rest}}}"#)
        };
        let good = format!("{},{}", put("a", "a", ""), delete("b", r#","if_match":"*""#));
        assert_eq!(check(&good, ""), Ok(1));
        assert_eq!(check(&good, r#","versions":{"r":1,"s":0}"#), Ok(2));
        assert_eq!(check(&put("a", "b", r#","if_none_match":"*""#), ""), Ok(1));
        let many = |count: usize| {
            let all: Vec<_> = (0..count).map(|number| delete(&number.to_string(), "")).collect();
            all.join(",")
        };
        assert_eq!(check(&many(COMMIT_STEPS_MAX), ""), Ok(1));
        let versions: Vec<_> = (0..32).map(|number| format!("\"s{number}\":0")).collect();
        for (bad, rest) in [
            (String::new(), String::new()),
            (many(COMMIT_STEPS_MAX + 1), String::new()),
            (format!("{},{}", put("a", "a", ""), delete("a", "")), String::new()),
            (format!("{},{}", put("a", "x", ""), put("b", "x", "")), String::new()),
            (r#"{"op":"put","resource":"r","key":"a"}"#.into(), String::new()),
            (put("a", "operations", ""), String::new()),
            (put("a", "", ""), String::new()),
            (put("a", "é", ""), String::new()),
            (put("a", "b", r#","content_type":"""#), String::new()),
            (put("a", "b", r#","if_match":"g0-v1""#), String::new()),
            (put("a", "b", r#","if_match":"*","if_none_match":"*""#), String::new()),
            (put("a", "b", r#","if_none_match":"\"g0-v1\"""#), String::new()),
            (delete("a", r#","body":"b""#), String::new()),
            (delete("a", r#","content_type":"a/b""#), String::new()),
            (delete("a", r#","if_none_match":"*""#), String::new()),
            (delete("a", ""), format!(",\"versions\":{{{}}}", versions.join(","))),
        ] {
            assert_eq!(check(&bad, &rest), Err(ErrorCode::BodyMalformed), "{bad:.200}");
        }
    }
}
