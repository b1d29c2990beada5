//! Keys of S3: that of a lock, for whoever has the lock, and others, for operators to give out.

use axum::Json;
use axum::extract::State;
use fence_core::ports::LockRecord;
use fence_core::{ErrorCode, LockEnd, LockId, LockState, Token, wire};
use fencegate_access::Action;
use fencegate_s3::key::AccessKey;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::access::admin;
use super::locks::refused;
use crate::engine::access::{Asks, Want};
use crate::engine::error::EngineError;
use crate::engine::new_s3_key;
use crate::http::extract::{InLock, NoQuery, OptionalJson, Query};
use crate::http::mutants::{self, Mutant};
use crate::http::problem::Problem;
use crate::http::spec::{LockKeyProblems, S3KeyProblems};
use crate::http::state::{App, AppState};

/// How far ahead the tools are told to ask again. They get the same key then, or hear how the lock ended.
const ASKED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(12);
/// What the tools are told is a session token: they insist on one, and nobody looks at it.
const SESSION_TOKEN: &str = "fencegate";

/// The parameters of a look at the key of a lock.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// As `credential_process` of the AWS tools reads it, or their container credentials. By default with endpoint and
    /// region.
    #[serde(rename = "as")]
    #[param(rename = "as", inline)]
    form: Option<Reader>,
}

/// Who reads the answer.
#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum Reader {
    Process,
    Container,
}

/// What S3 tools write with under this token; none where S3 is off.
pub(super) fn access(app: &AppState, token: Token, lock: LockId) -> Option<wire::S3Access> {
    let told = app.s3.as_ref()?;
    let AccessKey { id, secret } = app.engine.s3_key_of(token, lock)?;
    Some(wire::S3Access {
        endpoint: told.endpoint.clone(),
        region: told.region.clone(),
        access_key_id: id,
        secret_access_key: secret.reveal().to_owned(),
    })
}

/// The same for the answer that grants a lock: not if that is not in force yet, since its token is nobody's then.
pub(super) fn access_granted(
    app: &AppState,
    (token, lock): (Token, LockId),
    state: LockState,
    lies_in_bucket: bool,
) -> Option<wire::S3Access> {
    access(app, token, lock).filter(|_| lies_in_bucket && state != LockState::Draining)
}

fn is_off() -> Problem {
    let why = "S3 is off at this gateway; `s3_listen` says where to speak it";
    Problem::new(ErrorCode::RouteNotFound, why)
}

/// How a lock has ended, if it has.
fn end_of(record: &LockRecord) -> Option<LockEnd> {
    record.ended.map(|(how, _)| how).or(match record.grant.state {
        LockState::Broken => Some(LockEnd::Broken),
        LockState::Released => Some(LockEnd::Released),
        LockState::Leased | LockState::Breaking | LockState::Draining | LockState::Expired => None,
    })
}

/// Get the S3 key of your own lock
///
/// What an S3 tool is given in place of a token. It is the same each time, and names this lock's token for ever: of a lock
/// that has ended the answer is how it ended, whoever holds its resources now. So that a program that asks for its key again
/// never writes under somebody else's lock.
///
/// `AWS_CONTAINER_CREDENTIALS_FULL_URI` may be this URL with `as=container`; where rules of access are in force,
/// `AWS_CONTAINER_AUTHORIZATION_TOKEN` is then `Bearer` and an API key.
#[utoipa::path(
    get, path = "/locks/{id}/s3", operation_id = "getLockS3Key", tag = "s3",
    params(("id" = fence_core::LockId, Path, description = "The lock's id."), Form),
    responses(
        (status = 200, description = "The key.", body = wire::S3Credentials),
        LockKeyProblems,
    )
)]
pub async fn of_lock(
    State(app): State<App>,
    asks: Asks,
    InLock(id): InLock,
    Query(Form { form }): Query<Form>,
) -> Result<Json<wire::S3Credentials>, Problem> {
    asks.may(Want::Somewhere(Action::Lock)).await?;
    let permit = asks.permit();
    let record = app.engine.lock(id, &permit).await?;
    let record = mutants::record_of(&app, record).await;
    if let Some(end) = end_of(&record)
        && !mutants::is(Mutant::EndedLockHasKey)
    {
        return Err(refused(&app, EngineError::LockEnded(end), Some(id), &permit).await);
    }
    if record.grant.state == LockState::Draining {
        return Err(EngineError::Draining(record.grant.resources.into_iter().next()).into());
    }
    let access = access(&app, record.grant.token, id).ok_or_else(is_off)?;
    let (access_key_id, secret_access_key) = (access.access_key_id, access.secret_access_key);
    Ok(Json(match form {
        None => wire::S3Credentials::Access(wire::S3Access {
            access_key_id,
            secret_access_key,
            ..access
        }),
        Some(Reader::Process) => wire::S3Credentials::Process(wire::ProcessCredentials {
            version: 1,
            access_key_id,
            secret_access_key,
        }),
        Some(Reader::Container) => wire::S3Credentials::Container(wire::ContainerCredentials {
            access_key_id,
            secret_access_key,
            token: SESSION_TOKEN.to_owned(),
            expiration: asked_again(app.engine.runtime().clock.now()),
        }),
    }))
}

/// In whole seconds, which all of the tools can read.
fn asked_again(now: Timestamp) -> Timestamp {
    let then = now.checked_add(ASKED_AGAIN_AFTER).unwrap_or(Timestamp::MAX);
    Timestamp::from_second(then.as_second()).unwrap_or(then)
}

/// Make a key of S3
///
/// Where rules of access are in force it is a principal's: that of whoever has its `kid` in `s3_keys`, and nobody's until
/// then. Nothing is stored; the answer alone has the secret.
#[utoipa::path(
    post, path = "/admin/s3-keys", operation_id = "makeS3Key", tag = "access",
    request_body(content = Option<wire::S3KeyRequest>, description = "May be left out, for a principal's key."),
    responses((status = 200, description = "A new key.", body = wire::S3Key), S3KeyProblems)
)]
pub async fn make(
    State(app): State<App>,
    asks: Asks,
    _: NoQuery,
    OptionalJson(request): OptionalJson<wire::S3KeyRequest>,
) -> Result<Json<wire::S3Key>, Problem> {
    asks.may(admin()).await?;
    if request.rights.is_some() && asks.is_ruled() {
        let why =
            "rules of access are in force: a key is a principal's, and they say what that may do";
        return Err(Problem::new(ErrorCode::BodyMalformed, why));
    }
    let keys = app.engine.s3_keys().ok_or_else(is_off)?;
    Ok(Json(new_s3_key(keys, request.rights)?))
}
