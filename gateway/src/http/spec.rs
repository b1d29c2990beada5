//! What `openapi.yaml` says beyond the routes: problems by status, headers that come everywhere.

use std::collections::BTreeMap;

use fence_core::{ErrorCode, LockId, Token, schema, wire};
use utoipa::openapi::header::Header;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa::{IntoParams, IntoResponses};

use super::problem::PROBLEM_JSON;

/// The document without its routes.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Fencegate",
        description = "A fenced-write storage gateway: it takes no write without a fence token, \
                       and refuses every token but the one granted last.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(
        wire::Problem, wire::LockEvent, wire::LockWord, wire::WriteEvent,
        // Parameters refer to these, which does not bring them along.
        schema::ActionName, schema::BucketName, schema::Count, schema::Digests, schema::EventsAfter, schema::IdempotencyKey,
        schema::IntentCursor, schema::KeyKept, schema::LastEvent, schema::Md5, schema::NameCursor,
        schema::NumberCursor, schema::RecordAfter, schema::Prefix, schema::UpstreamName,
        schema::UpstreamPath,
    )),
    tags(
        (name = "locks", description = "Acquire, renew and release locks; each grant has a token."),
        (name = "data", description = "Fenced writes, and reads."),
        (name = "s3", description = "What S3 tools are given: buckets, and the key of a lock."),
        (name = "resources", description = "What is locked, and what operators do to it."),
        (name = "access", description = "Who may do what."),
        (name = "operations", description = "What became of a write."),
        (name = "seeing", description = "Refused writes, the audit, metrics, health and documentation.")
    )
)]
pub struct Base;

/// Which calls may answer a code without naming it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// All.
    Everywhere,
    /// Those that need the ledger.
    Ledger,
    /// Those with a JSON body.
    Json,
    /// Those that name a resource and an object.
    Name,
    /// Writes, decided by the rule.
    Write,
    /// Those on a lock that may have ended.
    Ended,
    /// Whatever goes to an upstream.
    Upstream,
    /// None.
    Named,
}

macro_rules! calls {
    ($($(#[$doc:meta])+ $code:ident, $text:literal, $status:literal, $retryable:literal, $class:ident, $calls:ident, $title:literal;)+) => {
        const CALLS: &[(Calls, ErrorCode)] = &[$((Calls::$calls, ErrorCode::$code)),+];
    };
}

fence_core::each_code!(calls);

/// Groups of codes that a call may answer with, beside those of all calls, then single codes.
macro_rules! problems {
    ($($(#[doc = $doc:literal])+ $name:ident = [$($calls:ident),* $(; $($code:ident),+)?];)+) => {$(
        $(#[doc = $doc])+
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                by_status(&[Calls::Everywhere, $(Calls::$calls),*], &[$($(ErrorCode::$code),+)?])
            }
        }
    )+};
}

problems! {
    /// A call that needs nothing but the gateway.
    PlainProblems = [];
    /// A page of the documentation.
    PageProblems = [; RouteNotFound];
    /// A list that is not of one resource.
    ListProblems = [Ledger];
    /// `POST /locks`
    AcquireProblems = [Ledger, Json, Ended;
        LockHeld, LockWaitElapsed, QueueFull, LockIdConflict, ResourceFrozen, ResourceNotFound,
        ResourceDraining, ResourceNameInvalid, MintUnavailable, MintRegressed, QuotaExhausted
    ];
    /// A fence without a lock.
    FenceProblems = [Ledger, Json;
        ResourceNameInvalid, LockHeld, LockIdConflict, LockSuperseded, LockReleased, LockBroken, LockVoid,
        FenceOrderStale, ResourceFrozen, ResourceDraining, MintUnavailable, MintRegressed, QuotaExhausted
    ];
    /// A transfer.
    TransferProblems = [Ledger, Json, Ended;
        LockNotFound, LockIdConflict, ResourceFrozen, ResourceDraining, MintUnavailable, MintRegressed
    ];
    /// A renewal of one lock.
    RenewProblems = [Ledger, Json, Ended; LockNotFound, ResourceDraining];
    /// A renewal of many.
    RenewManyProblems = [Ledger, Json];
    /// A look at one's own lock.
    LockProblems = [Ledger; LockNotFound];
    /// A look at the key of one's own lock.
    LockKeyProblems = [Ledger, Ended; LockNotFound, ResourceDraining, RouteNotFound];
    /// A stream of events.
    EventsProblems = [Ledger; LockNotFound];
    /// The feed of committed writes.
    FeedProblems = [Ledger; EventsCursorVoid];
    /// A release.
    ReleaseProblems = [Ledger; LockNotFound];
    /// A look at a resource.
    ResourceProblems = [Ledger; ResourceNameInvalid, ResourceNotFound];
    /// A break, or a mark.
    BreakProblems = [Ledger, Json; ResourceNameInvalid, ResourceNotFound];
    /// A put.
    PutProblems = [Ledger, Name, Write;
        PayloadTooLarge, UnsupportedMediaType, DigestMismatch, UploadExpired, BlobsUnavailable, QuotaExhausted
    ];
    /// A commit.
    CommitProblems = [Ledger, Name, Write, Json; UploadExpired, BlobsUnavailable, QuotaExhausted];
    /// A delete.
    DeleteProblems = [Ledger, Name, Write];
    /// A read of an object.
    ReadProblems = [Ledger, Name;
        ResourceNotFound, ObjectNotFound, VersionNotRetained, VersionMismatch, RangeNotSatisfiable,
        BlobsUnavailable, BlobMissing
    ];
    /// A read through an upstream.
    ReadThroughProblems = [Upstream; PayloadTooLarge, Overloaded];
    /// A write through an upstream.
    WriteThroughProblems = [Ledger, Upstream, Name, Write; PayloadTooLarge];
    /// A resolution of an intent.
    IntentProblems = [Ledger, Json; OperationNotFound];
    /// A resolution of doubts.
    DoubtProblems = [Ledger, Json; UpstreamNotFound];
    /// Rules that are put in force.
    ApplyProblems = [Ledger, Json; VersionMismatch];
    /// A question about rules.
    AccessProblems = [Ledger, Json; ResourceNameInvalid];
    /// A bucket that is made.
    MakeBucketProblems = [Ledger, Json; ResourceNameInvalid, BucketDepthDiffers, QuotaExhausted];
    /// A bucket that is deleted.
    DropBucketProblems = [Ledger; ResourceNameInvalid, BucketNotFound, BucketNotEmpty];
    /// A key of S3 that is made.
    S3KeyProblems = [Ledger, Json; RouteNotFound];
    /// A look at an operation.
    OperationProblems = [Ledger; OperationNotFound];
    /// A search for operations.
    OperationsProblems = [Ledger; ResourceNameInvalid];
}

fn by_status(groups: &[Calls], named: &[ErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    let mut codes: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
    let of = |group| CALLS.iter().filter(move |(calls, _)| *calls == group).map(|(_, code)| *code);
    for code in groups.iter().copied().flat_map(of).chain(named.iter().copied()) {
        codes.entry(code.status()).or_default().push(code);
    }
    let response = |(status, mut codes): (u16, Vec<ErrorCode>)| {
        // First what nothing else helps against.
        codes.sort_by_key(|code| *code != ErrorCode::RefenceRequired);
        (status.to_string(), RefOr::T(problem(status, &codes)))
    };
    codes.into_iter().map(response).collect()
}

/// A problem with one of these codes.
fn problem(status: u16, codes: &[ErrorCode]) -> Response {
    let lines: Vec<_> = codes.iter().map(|code| format!("`{code}`: {}", code.title())).collect();
    let number = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
    let exactly = ObjectBuilder::new()
        .property("status", number.enum_values(Some([status])))
        .property("code", schema::words(codes.iter().map(|code| code.as_str())));
    let document = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(exactly);
    ResponseBuilder::new()
        .description(lines.join("\n\n"))
        .content(PROBLEM_JSON, ContentBuilder::new().schema(Some(document)).build())
        .header("Retry-After", Header::default())
        .build()
}

/// The headers of a write.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct WriteParams {
    /// The token of your lock: a decimal number.
    #[param(rename = "X-Fence-Token", required = true)]
    token: Token,
    /// The id of your lock: a token that was guessed or mixed up is refused.
    #[param(rename = "X-Lock-Id")]
    lock: Option<LockId>,
    /// Strictly increasing under one token: a delayed duplicate of an earlier write is refused.
    #[param(rename = "X-Fence-Seq")]
    sequence: Option<schema::Count>,
    /// The write takes effect once under this key, whoever sends it how often; kept for 7 days unless the settings say otherwise.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<schema::IdempotencyKey>,
    /// How long the key is remembered instead, from when the write took effect; a retry does not change it. Only with
    /// `Idempotency-Key`.
    #[param(rename = "X-Fence-Key-Kept")]
    key_kept: Option<schema::KeyKept>,
    /// The version that the resource must be at.
    #[param(rename = "X-If-Resource-Version")]
    resource_version: Option<schema::Count>,
}

/// The headers of a write through an upstream.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct UpstreamParams {
    /// The token of your lock: a decimal number. Passed on.
    #[param(rename = "X-Fence-Token", required = true)]
    token: Token,
    /// The id of your lock. Not passed on.
    #[param(rename = "X-Lock-Id")]
    lock: Option<LockId>,
    /// Strictly increasing under one token. Passed on.
    #[param(rename = "X-Fence-Seq")]
    sequence: Option<schema::Count>,
    /// Passed on, for an upstream that knows it; the gateway replays nothing.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<schema::IdempotencyKey>,
    /// The version that the resource must be at. Not passed on.
    #[param(rename = "X-If-Resource-Version")]
    resource_version: Option<schema::Count>,
}

/// The headers of a commit.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct CommitParams {
    /// The token of your lock, which must be good on all the resources: a decimal number.
    #[param(rename = "X-Fence-Token", required = true)]
    token: Token,
    /// The id of your lock: a token that was guessed or mixed up is refused.
    #[param(rename = "X-Lock-Id")]
    lock: Option<LockId>,
    /// Strictly increasing under one token, on each of the resources.
    #[param(rename = "X-Fence-Seq")]
    sequence: Option<schema::Count>,
    /// The commit takes effect once under this key, whoever sends it how often; kept for 7 days unless the settings say otherwise, on each
    /// of the resources.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<schema::IdempotencyKey>,
    /// How long the key is remembered instead, from when the commit took effect; a retry does not change it. Only with
    /// `Idempotency-Key`.
    #[param(rename = "X-Fence-Key-Kept")]
    key_kept: Option<schema::KeyKept>,
}

/// The conditions of a write on its object.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct ConditionParams {
    /// The object carries one of these tags, or with `*`: it exists.
    #[param(rename = "If-Match")]
    if_match: Option<schema::Tags>,
    /// Only `*`: the object does not exist. Not beside `If-Match`.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<schema::Star>,
}

/// What a put may say of its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct DigestParams {
    /// The MD5 of the body in base64; another body is refused.
    #[param(rename = "Content-MD5")]
    content_md5: Option<schema::Md5>,
    /// `sha-256=:...:` or `sha-512=:...:`, in base64 (RFC 9530); another body is refused.
    #[param(rename = "Repr-Digest")]
    repr_digest: Option<schema::Digests>,
    /// As `Repr-Digest`: bodies come without an encoding.
    #[param(rename = "Content-Digest")]
    content_digest: Option<schema::Digests>,
}

/// The conditions of a read.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its documentation is used")]
pub struct ReadParams {
    /// 412 unless the object carries one of these tags.
    #[param(rename = "If-Match")]
    if_match: Option<schema::Tags>,
    /// 304 if the object carries one of these tags.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<schema::Tags>,
    /// One range of bytes, such as `bytes=0-99`; other forms get the whole object.
    #[param(rename = "Range")]
    range: Option<String>,
    /// The range counts only if the object carries this very tag.
    #[param(rename = "If-Range")]
    if_range: Option<String>,
}
