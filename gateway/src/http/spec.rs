//! What `openapi.yaml` says beyond the routes: problems by status, headers that come everywhere.

use std::collections::BTreeMap;

use fence_core::{ErrorCode, wire};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr};
use utoipa::{IntoParams, IntoResponses};

use super::problem::PROBLEM_JSON;

/// The document without its routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Fencegate",
        description = "A fenced-write storage gateway: it takes no write without a fence token, \
                       and refuses every token but the one granted last."
    ),
    components(schemas(wire::Problem, wire::LockEvent, wire::LockWord, wire::WriteEvent)),
    tags(
        (name = "locks", description = "Acquire, renew and release locks; each grant has a token."),
        (name = "data", description = "Fenced writes, and reads."),
        (name = "resources", description = "What is locked, and what operators do to it."),
        (name = "operations", description = "What became of a write."),
        (name = "seeing", description = "Refused writes, the audit, metrics, health and documentation.")
    )
)]
pub struct Base;

/// Codes that any call can answer with.
const EVERYWHERE: &[ErrorCode] = &[
    ErrorCode::RequestMalformed,
    ErrorCode::QueryMalformed,
    ErrorCode::RequestTimeout,
    ErrorCode::UriTooLong,
    ErrorCode::HeadersTooLarge,
    ErrorCode::Internal,
];

/// Codes of every call that needs the ledger.
const LEDGER: &[ErrorCode] =
    &[ErrorCode::Overloaded, ErrorCode::LedgerUnavailable, ErrorCode::OutcomeUnknown];

/// Codes of a JSON body.
const JSON: &[ErrorCode] = &[
    ErrorCode::BodyMalformed,
    ErrorCode::PayloadTooLarge,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::DigestMismatch,
];

/// Codes of a write, decided by the rule.
const WRITE: &[ErrorCode] = &[
    ErrorCode::ResourceNameInvalid,
    ErrorCode::ObjectKeyInvalid,
    ErrorCode::FenceTokenMissing,
    ErrorCode::FenceTokenMalformed,
    ErrorCode::FenceTokenVoid,
    ErrorCode::FenceTokenUnknown,
    ErrorCode::FenceTokenStale,
    ErrorCode::FenceTokenReleased,
    ErrorCode::FenceTokenBroken,
    ErrorCode::LockIdMismatch,
    ErrorCode::ResourceFrozen,
    ErrorCode::ResourceDraining,
    ErrorCode::ResourceProtected,
    ErrorCode::SequenceOutOfOrder,
    ErrorCode::VersionMismatch,
    ErrorCode::IdempotencyKeyReused,
    ErrorCode::IdempotencyInProgress,
    ErrorCode::RefenceRequired,
];

/// Codes of a call on a lock that may have ended.
const ENDED: &[ErrorCode] = &[
    ErrorCode::LockSuperseded,
    ErrorCode::LockReleased,
    ErrorCode::LockBroken,
    ErrorCode::LockVoid,
    ErrorCode::LockBreaking,
    ErrorCode::LockHoldExceeded,
    ErrorCode::RefenceRequired,
];

/// Codes of whatever goes to an upstream.
const THROUGH: &[ErrorCode] = &[
    ErrorCode::UpstreamNotFound,
    ErrorCode::UpstreamPathInvalid,
    ErrorCode::PayloadTooLarge,
    ErrorCode::UpstreamUnreachable,
    ErrorCode::UpstreamFailed,
    ErrorCode::UpstreamTimeout,
];

macro_rules! problems {
    ($($(#[doc = $doc:literal])+ $name:ident = $sets:expr;)+) => {$(
        $(#[doc = $doc])+
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                by_status(&$sets)
            }
        }
    )+};
}

problems! {
    /// A call that needs nothing but the gateway.
    PlainProblems = [EVERYWHERE];
    /// A page of the documentation.
    PageProblems = [EVERYWHERE, &[ErrorCode::RouteNotFound]];
    /// A list that is not of one resource.
    ListProblems = [EVERYWHERE, LEDGER];
    /// `POST /locks`
    AcquireProblems = [EVERYWHERE, LEDGER, JSON, ENDED, &[
        ErrorCode::LockHeld, ErrorCode::LockWaitElapsed, ErrorCode::QueueFull, ErrorCode::ShuttingDown,
        ErrorCode::LockIdConflict, ErrorCode::ResourceFrozen, ErrorCode::ResourceNotFound,
        ErrorCode::ResourceDraining, ErrorCode::ResourceNameInvalid,
        ErrorCode::MintUnavailable, ErrorCode::MintRegressed,
    ]];
    /// A fence without a lock.
    FenceProblems = [EVERYWHERE, LEDGER, JSON, &[
        ErrorCode::ResourceNameInvalid, ErrorCode::LockHeld, ErrorCode::LockIdConflict,
        ErrorCode::LockSuperseded, ErrorCode::LockReleased, ErrorCode::LockBroken,
        ErrorCode::LockVoid, ErrorCode::FenceOrderStale, ErrorCode::ResourceFrozen,
        ErrorCode::ResourceDraining,
        ErrorCode::RefenceRequired, ErrorCode::MintUnavailable, ErrorCode::MintRegressed,
    ]];
    /// A transfer.
    TransferProblems = [EVERYWHERE, LEDGER, JSON, ENDED, &[
        ErrorCode::LockNotFound, ErrorCode::LockIdConflict, ErrorCode::ResourceFrozen,
        ErrorCode::ResourceDraining, ErrorCode::MintUnavailable, ErrorCode::MintRegressed,
    ]];
    /// A renewal of one lock.
    RenewProblems = [EVERYWHERE, LEDGER, JSON, ENDED, &[
        ErrorCode::LockNotFound, ErrorCode::ResourceDraining,
    ]];
    /// A renewal of many.
    RenewManyProblems = [EVERYWHERE, LEDGER, JSON, &[ErrorCode::RefenceRequired]];
    /// A look at one's own lock.
    LockProblems = [EVERYWHERE, LEDGER, &[ErrorCode::LockNotFound]];
    /// A stream of events.
    EventsProblems = [EVERYWHERE, LEDGER, &[ErrorCode::LockNotFound, ErrorCode::ShuttingDown]];
    /// The feed of committed writes.
    FeedProblems =
        [EVERYWHERE, LEDGER, &[ErrorCode::EventsCursorVoid, ErrorCode::ShuttingDown]];
    /// A release.
    ReleaseProblems = [EVERYWHERE, LEDGER, &[ErrorCode::RefenceRequired]];
    /// A look at a resource.
    ResourceProblems =
        [EVERYWHERE, LEDGER, &[ErrorCode::ResourceNameInvalid, ErrorCode::ResourceNotFound]];
    /// A break, or a mark.
    BreakProblems = [EVERYWHERE, LEDGER, JSON, &[
        ErrorCode::ResourceNameInvalid, ErrorCode::ResourceNotFound, ErrorCode::RefenceRequired,
    ]];
    /// A put.
    PutProblems = [EVERYWHERE, LEDGER, WRITE, &[
        ErrorCode::PayloadTooLarge, ErrorCode::UnsupportedMediaType, ErrorCode::DigestMismatch,
        ErrorCode::UploadExpired, ErrorCode::BlobsUnavailable,
    ]];
    /// A commit.
    CommitProblems = [EVERYWHERE, LEDGER, WRITE, JSON, &[
        ErrorCode::UploadExpired, ErrorCode::BlobsUnavailable,
    ]];
    /// A delete.
    DeleteProblems = [EVERYWHERE, LEDGER, WRITE];
    /// A read of an object.
    ReadProblems = [EVERYWHERE, LEDGER, &[
        ErrorCode::ResourceNameInvalid, ErrorCode::ObjectKeyInvalid, ErrorCode::ResourceNotFound,
        ErrorCode::ObjectNotFound, ErrorCode::VersionNotRetained, ErrorCode::VersionMismatch,
        ErrorCode::RangeNotSatisfiable, ErrorCode::BlobsUnavailable, ErrorCode::BlobMissing,
    ]];
    /// A read through an upstream.
    ReadThroughProblems = [EVERYWHERE, THROUGH, &[ErrorCode::Overloaded]];
    /// A write through an upstream.
    WriteThroughProblems = [EVERYWHERE, LEDGER, THROUGH, WRITE];
    /// A resolution of an intent.
    IntentProblems = [EVERYWHERE, LEDGER, JSON, &[
        ErrorCode::OperationNotFound, ErrorCode::RefenceRequired,
    ]];
    /// A resolution of doubts.
    DoubtProblems = [EVERYWHERE, LEDGER, JSON, &[
        ErrorCode::UpstreamNotFound, ErrorCode::RefenceRequired,
    ]];
    /// A look at an operation.
    OperationProblems = [EVERYWHERE, LEDGER, &[ErrorCode::OperationNotFound]];
    /// A search for operations.
    OperationsProblems = [EVERYWHERE, LEDGER, &[ErrorCode::ResourceNameInvalid]];
}

fn by_status(sets: &[&[ErrorCode]]) -> BTreeMap<String, RefOr<Response>> {
    let mut texts: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for code in sets.iter().copied().flatten() {
        let line = format!("`{code}`: {}", code.title());
        texts.entry(code.status()).or_default().push(line);
    }
    texts
        .into_iter()
        .map(|(status, lines)| (status.to_string(), refer(PROBLEM, &lines.join("\n\n"))))
        .collect()
}

/// A problem, defined once; only the codes differ.
fn refer(to: &str, codes: &str) -> RefOr<Response> {
    let mut reference = Ref::new(format!("#/components/responses/{to}"));
    reference.description = codes.to_owned();
    RefOr::Ref(reference)
}

fn problem() -> ResponseBuilder {
    let document = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new()
        .description("A problem document.")
        .content(PROBLEM_JSON, document)
        .header("Retry-After", text_header("When to try again, in seconds, where that helps."))
        .header("Content-Range", text_header("With 416 the size: `bytes */1234`."))
}

fn text_header(description: &str) -> utoipa::openapi::header::Header {
    let schema = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()
}

/// The headers of a write.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct WriteParams {
    /// The token of your lock: a decimal number.
    #[param(rename = "X-Fence-Token", required = true, pattern = "^[1-9][0-9]{0,18}$")]
    token: String,
    /// The id of your lock: a token that was guessed or mixed up is refused.
    #[param(rename = "X-Lock-Id")]
    lock: Option<uuid::Uuid>,
    /// Strictly increasing under one token: a delayed duplicate of an earlier write is refused.
    #[param(rename = "X-Fence-Seq", minimum = 0)]
    sequence: Option<i64>,
    /// The write takes effect once under this key, whoever sends it how often; kept for 7 days.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
    /// The version that the resource must be at.
    #[param(rename = "X-If-Resource-Version", minimum = 0)]
    resource_version: Option<i64>,
}

/// The headers of a write through an upstream.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct UpstreamParams {
    /// The token of your lock: a decimal number. Passed on.
    #[param(rename = "X-Fence-Token", required = true, pattern = "^[1-9][0-9]{0,18}$")]
    token: String,
    /// The id of your lock. Not passed on.
    #[param(rename = "X-Lock-Id")]
    lock: Option<uuid::Uuid>,
    /// Strictly increasing under one token. Passed on.
    #[param(rename = "X-Fence-Seq", minimum = 0)]
    sequence: Option<i64>,
    /// Passed on, for an upstream that knows it; the gateway replays nothing.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
    /// The version that the resource must be at. Not passed on.
    #[param(rename = "X-If-Resource-Version", minimum = 0)]
    resource_version: Option<i64>,
}

/// The headers of a commit.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct CommitParams {
    /// The token of your lock, which must be good on all the resources: a decimal number.
    #[param(rename = "X-Fence-Token", required = true, pattern = "^[1-9][0-9]{0,18}$")]
    token: String,
    /// The id of your lock: a token that was guessed or mixed up is refused.
    #[param(rename = "X-Lock-Id")]
    lock: Option<uuid::Uuid>,
    /// Strictly increasing under one token, on each of the resources.
    #[param(rename = "X-Fence-Seq", minimum = 0)]
    sequence: Option<i64>,
    /// The commit takes effect once under this key, whoever sends it how often; kept for 7 days, on each
    /// of the resources.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// The conditions of a write on its object.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct ConditionParams {
    /// The object carries one of these tags, or with `*`: it exists.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
    /// Only `*`: the object does not exist.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

/// What a put may say of its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct DigestParams {
    /// The MD5 of the body in base64; another body is refused.
    #[param(rename = "Content-MD5")]
    content_md5: Option<String>,
    /// `sha-256=:...:` or `sha-512=:...:`, in base64 (RFC 9530); another body is refused.
    #[param(rename = "Repr-Digest")]
    repr_digest: Option<String>,
    /// As `Repr-Digest`: bodies come without an encoding.
    #[param(rename = "Content-Digest")]
    content_digest: Option<String>,
    /// With `100-continue` a write that is refused for good is refused before the body is sent.
    #[param(rename = "Expect")]
    expect: Option<String>,
}

/// The conditions of a read.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct ReadParams {
    /// 412 unless the object carries one of these tags.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
    /// 304 if the object carries one of these tags.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
    /// One range of bytes, such as `bytes=0-99`; other forms get the whole object.
    #[param(rename = "Range")]
    range: Option<String>,
    /// The range counts only if the object carries this very tag.
    #[param(rename = "If-Range")]
    if_range: Option<String>,
}

const PROBLEM: &str = "Problem";
const DATA_PROBLEM: &str = "DataProblem";
const REQUEST_ID: &str = "X-Request-Id";
const VERDICT: &str = "X-Fence-Verdict";

/// Adds what every answer has, and writes wildcards of the router as plain parameters.
pub fn finish(mut document: OpenApi) -> OpenApi {
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        for operation in operations(&mut item) {
            complete(operation);
        }
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    let components = document.components.get_or_insert_default();
    for (name, description) in [
        (REQUEST_ID, "The id of the request: the caller's, or a new one."),
        (VERDICT, "`admitted`, `refused`, `replayed` or `unknown`; not in answers to reads."),
    ] {
        components.headers.insert(name.into(), RefOr::T(text_header(description)));
    }
    for (name, data) in [(PROBLEM, false), (DATA_PROBLEM, true)] {
        let mut response = problem().build();
        add_headers(&mut response, data);
        components.responses.insert(name.into(), RefOr::T(response));
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, head, options, put, post, patch, delete, .. } = item;
    [get, head, options, put, post, patch, delete].into_iter().flatten()
}

fn complete(operation: &mut Operation) {
    let data = operation.tags.iter().flatten().any(|tag| tag == "data");
    for response in operation.responses.responses.values_mut() {
        match response {
            RefOr::T(response) => add_headers(response, data),
            RefOr::Ref(problem) if data => *response = refer(DATA_PROBLEM, &problem.description),
            RefOr::Ref(_) => {}
        }
    }
}

/// Every answer has an id; every answer about data says whether it is the fence's.
fn add_headers(response: &mut Response, data: bool) {
    for name in [REQUEST_ID, VERDICT].into_iter().take(if data { 2 } else { 1 }) {
        let to = Ref::new(format!("#/components/headers/{name}"));
        response.headers.insert(name.into(), RefOr::Ref(to));
    }
}
