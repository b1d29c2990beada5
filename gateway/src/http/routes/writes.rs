//! Fenced writes: putting and deleting objects, and deleting all of a resource.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fence_core::ports::Applied;
use fence_core::{EntityTag, ResourceName, Token, wire};
use fencegate_access::Action;

use super::intake::{refused, upload};
use crate::engine::access::{Asks, Permit};
use crate::engine::{More, PutBody, UploadHead, Write, WriteEffect, WriteOutcome};
use crate::http::extract::{
    Digests, Fenced, Gathered, InObject, InResource, Incoming, NoQuery, Payload, WriteHeaders,
    content_length, too_large,
};
use crate::http::peers::Counted;
use crate::http::problem::{Problem, text};
use crate::http::spec::{ConditionParams, DeleteProblems, DigestParams, PutProblems, WriteParams};
use crate::http::state::App;

/// A body of at most so many bytes is read although nobody wants it.
const IGNORED_MAX: u64 = 64 << 10;

/// Put an object
///
/// The token is checked and the bytes are stored in one act, so that no pause fits between. Large bodies
/// are stored beside the ledger first, where nobody sees them, and become the object's in that act.
#[utoipa::path(
    put, path = "/resources/{resource}/objects/{*key}", operation_id = "putObject", tag = "data",
    params(
        ("resource" = fence_core::ResourceName, Path, description = "The resource."),
        ("key" = fence_core::ObjectKey, Path, description = "The object's key; slashes are sent as they are."),
        WriteParams, ConditionParams, DigestParams,
    ),
    request_body(
        content = String, content_type = "application/octet-stream",
        description = "The bytes. Any other `Content-Type` is taken as well; reads come with the one that was sent.",
    ),
    responses(
        (status = 201, description = "A new object.", body = wire::Written, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version that this write became."),
            ("X-Operation-Id" = uuid::Uuid, description = "The operation."),
            ("X-Fence-Guarantee" = String, description = "What this answer promises: `strict`."),
            ("Idempotent-Replayed" = String, description = "`true` if it took effect earlier."),
        )),
        (status = 200, description = "In place of an older object.", body = wire::Written, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version that this write became."),
            ("X-Operation-Id" = uuid::Uuid, description = "The operation."),
            ("X-Fence-Guarantee" = String, description = "What this answer promises: `strict`."),
            ("Idempotent-Replayed" = String, description = "`true` if it took effect earlier."),
        )),
        PutProblems,
    )
)]
pub async fn put(
    State(app): State<App>,
    asks: Asks,
    InObject { resource, key }: InObject,
    (Fenced(token), headers): (Fenced, WriteHeaders),
    Payload { content_type }: Payload,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let permit = asks.may_on(Action::Write, &resource).await?;
    let bytes = content_length(request.headers()).unwrap_or_default().max(1);
    let more = More::Objects(&[(&resource, &key)], bytes, headers.idempotency_key.as_deref());
    let room = app.engine.has_room(&asks, more).await;
    room.map_err(|error| Problem::from(error).about(&resource).and_close())?;
    let head = UploadHead {
        resource: resource.clone(),
        key: key.clone(),
        token,
        lock: headers.lock,
        idempotency_key: headers.idempotency_key.clone(),
        request_id: headers.request_id.clone(),
        permit: permit.clone(),
    };
    let intake = Intake::new(&app, head, request.headers(), Counted::by(request.extensions()))?;
    let body = intake.read(request.into_body()).await?;
    let effect = WriteEffect::Put { key, content_type, about: None, body };
    let outcome = write(&app, resource, token, headers, effect, permit).await?;
    let applied = &outcome.applied;
    let status = if applied.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut headers = facts(&app, &outcome);
    if let Some(version) = applied.version {
        let tag = EntityTag { generation: applied.generation, version };
        headers.insert(header::ETAG, text(tag));
    }
    Ok((status, headers, Json(written(outcome.applied))).into_response())
}

/// A put whose body has not been read.
struct Intake<'a> {
    app: &'a App,
    head: UploadHead,
    digests: Digests,
    /// `Content-Length`, if there is one.
    declared: Option<u64>,
    /// Whether the client waits to be told that its body is wanted.
    expects: bool,
    /// Whose share it counts against.
    counted: Counted,
}

impl<'a> Intake<'a> {
    /// Looks at the headers of the body.
    fn new(
        app: &'a App,
        head: UploadHead,
        headers: &HeaderMap,
        counted: Counted,
    ) -> Result<Self, Problem> {
        let declared = content_length(headers);
        if declared.is_some_and(|length| length > app.limits.object_bytes_max) {
            return Err(too_large(app.limits.object_bytes_max));
        }
        let expects = headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        Ok(Self { app, head, digests: Digests::parse(headers)?, declared, expects, counted })
    }

    /// Reads the body.
    ///
    /// 1. What was refused for good before is refused again; a small body is let pass by, so that the next
    ///    request finds its connection.
    /// 2. Where the client waits for it, or much would come: a write that is refused for good is refused
    ///    before a byte is read.
    /// 3. What fits into the ledger is read into memory; what turns out not to goes on as step 4.
    /// 4. The rest is uploaded.
    async fn read(self, body: Body) -> Result<PutBody, Problem> {
        let limits = &self.app.limits;
        let object_max = usize::try_from(limits.object_bytes_max).unwrap_or(usize::MAX);
        let inline_max = limits.inline_bytes_max.min(object_max);
        let large = self.declared.is_some_and(|length| length > inline_max as u64);
        let again = Box::pin(self.app.engine.refuse_again(&self.head)).await;
        if let Err(failure) = again {
            let UploadHead { resource, key, token, .. } = &self.head;
            let engine = &self.app.engine;
            let beside = engine.beside_write(&failure.error, resource, Some(key), *token).await;
            let problem = refused(&self.head, failure).beside(beside);
            let small = self.declared.is_some_and(|length| length <= IGNORED_MAX);
            if self.expects || !small {
                return Err(problem.and_close());
            }
            let mut incoming = Incoming::new(body, limits, limits.body_timeout);
            while incoming.next().await?.is_some() {}
            return Err(problem);
        }
        if large {
            let mut incoming = Incoming::new(body, limits, limits.upload_timeout);
            incoming.upload(limits);
            return self.upload(Bytes::new(), incoming).await;
        }
        if self.expects {
            let early = Box::pin(self.app.engine.refuse_early(&self.head)).await;
            early.map_err(|failure| refused(&self.head, failure).and_close())?;
        }
        let mut incoming = Incoming::new(body, limits, limits.body_timeout);
        match incoming.gather(inline_max, self.app.room.bodies.of(&self.counted)).await? {
            Gathered::Whole(bytes) => {
                self.digests.check_whole(&bytes)?;
                Ok(PutBody::Inline(bytes))
            }
            Gathered::More(start) => {
                incoming.upload(limits);
                self.upload(start, incoming).await
            }
        }
    }

    async fn upload(self, start: Bytes, mut incoming: Incoming) -> Result<PutBody, Problem> {
        // Boxed, so that the future of a put with a small body stays small.
        let Self { app, head, declared, digests, counted, .. } = self;
        Box::pin(upload(app, &head, (declared, &counted), digests, start, &mut incoming)).await
    }
}

fn written(applied: Applied) -> wire::Written {
    wire::Written {
        resource: applied.resource,
        key: applied.key.map(|key| key.to_string()).unwrap_or_default(),
        version: applied.version.unwrap_or_default(),
        size: applied.size,
        sha256: applied.sha256.map(hex::encode),
        operation: applied.operation,
    }
}

/// Delete an object
///
/// Fenced like any write. Deleting what is not there succeeds and takes no version.
#[utoipa::path(
    delete, path = "/resources/{resource}/objects/{*key}", operation_id = "deleteObject",
    tag = "data",
    params(
        ("resource" = fence_core::ResourceName, Path, description = "The resource."),
        ("key" = fence_core::ObjectKey, Path, description = "The object's key; slashes are sent as they are."),
        WriteParams, ConditionParams,
    ),
    responses(
        (status = 204, description = "It is not there now.", headers(
            ("X-Resource-Version" = i64, description = "The version that this write became; \
                absent if there was nothing to delete."),
            ("X-Operation-Id" = uuid::Uuid, description = "The operation."),
            ("X-Fence-Guarantee" = String, description = "What this answer promises: `strict`."),
            ("Idempotent-Replayed" = String, description = "`true` if it took effect earlier."),
        )),
        DeleteProblems,
    )
)]
pub async fn delete(
    State(app): State<App>,
    asks: Asks,
    InObject { resource, key }: InObject,
    Fenced(token): Fenced,
    headers: WriteHeaders,
    _: NoQuery,
) -> Result<Response, Problem> {
    let permit = asks.may_on(Action::Write, &resource).await?;
    let effect = WriteEffect::Delete { key };
    let outcome = write(&app, resource, token, headers, effect, permit).await?;
    Ok((StatusCode::NO_CONTENT, facts(&app, &outcome)).into_response())
}

/// Delete all objects of a resource
///
/// One write with one version, of at most 10,000 objects; of more, delete them by their keys before. The resource's fence
/// and history stay.
#[utoipa::path(
    delete, path = "/resources/{resource}", operation_id = "deleteResource", tag = "data",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), WriteParams),
    responses(
        (status = 204, description = "No objects are there now.", headers(
            ("X-Resource-Version" = i64, description = "The version that this write became; \
                absent if there was nothing to delete."),
            ("X-Operation-Id" = uuid::Uuid, description = "The operation."),
            ("X-Fence-Guarantee" = String, description = "What this answer promises: `strict`."),
            ("Idempotent-Replayed" = String, description = "`true` if it took effect earlier."),
        )),
        DeleteProblems,
    )
)]
pub async fn delete_all(
    State(app): State<App>,
    asks: Asks,
    InResource(resource): InResource,
    Fenced(token): Fenced,
    headers: WriteHeaders,
    _: NoQuery,
) -> Result<Response, Problem> {
    if headers.object_condition.is_some() {
        return Err(Problem::malformed(
            "If-Match and If-None-Match are about one object; use X-If-Resource-Version",
        ));
    }
    let permit = asks.may_on(Action::Clear, &resource).await?;
    let effect = WriteEffect::DeleteAll;
    let outcome = write(&app, resource, token, headers, effect, permit).await?;
    Ok((StatusCode::NO_CONTENT, facts(&app, &outcome)).into_response())
}

async fn write(
    app: &App,
    resource: ResourceName,
    token: Token,
    headers: WriteHeaders,
    effect: WriteEffect,
    permit: Permit,
) -> Result<WriteOutcome, Problem> {
    let key = match &effect {
        WriteEffect::Put { key, .. } | WriteEffect::Delete { key } => Some(key.clone()),
        WriteEffect::DeleteAll => None,
    };
    let request = Write {
        resource: resource.clone(),
        token,
        lock: headers.lock,
        sequence: headers.sequence,
        idempotency_key: headers.idempotency_key,
        key_kept: headers.key_kept,
        object_condition: headers.object_condition,
        resource_version: headers.resource_version,
        effect,
        request_id: headers.request_id,
        permit,
    };
    let failure = match app.engine.write(request).await {
        Ok(outcome) => {
            headers.named.note(&[], &outcome.applied.owner);
            return Ok(outcome);
        }
        Err(failure) => failure,
    };
    let beside = app.engine.beside_write(&failure.error, &resource, key.as_ref(), token).await;
    Err(Problem::from(failure.error)
        .about(&resource)
        .presented(token)
        .beside(beside)
        .of_operation(failure.operation))
}

/// The headers of every write that took effect.
fn facts(app: &App, outcome: &WriteOutcome) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    let verdict = if outcome.replayed { "replayed" } else { "admitted" };
    headers.insert(HeaderName::from_static("x-fence-verdict"), HeaderValue::from_static(verdict));
    headers.insert(
        HeaderName::from_static("x-fence-guarantee"),
        HeaderValue::from_static(app.guarantee),
    );
    headers.insert(HeaderName::from_static("x-operation-id"), text(outcome.applied.operation));
    if let Some(version) = outcome.applied.version {
        headers.insert(HeaderName::from_static("x-resource-version"), version.into());
    }
    if outcome.replayed {
        headers.insert(
            HeaderName::from_static("idempotent-replayed"),
            HeaderValue::from_static("true"),
        );
    }
    headers
}
