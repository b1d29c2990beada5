//! What all writes of S3 have in common: the fence that they write under, what makes their retries true, and what is told of
//! their outcome.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use fence_core::etag::ObjectCondition;
use fence_core::ports::KeySpace;
use fence_core::{EntityTag, ErrorCode, LockId, Token};
use fencegate_access::Action;
use fencegate_s3::code::S3Code;
use uuid::Uuid;

use super::{Call, set};
use crate::config::S3Once;
use crate::engine::access::Permit;
use crate::engine::metrics::count_rejection;
use crate::engine::{
    EngineError, PutBody, UploadHead, Write, WriteEffect, WriteFailure, WriteOutcome,
};
use crate::http::Problem;
use crate::http::middleware::Named;
use crate::http::mutants::{self, Mutant};
use crate::s3::failure::Failure;
use crate::s3::place::Place;

/// How long it is remembered that a call took effect: the libraries give up after minutes.
const CALL_KEPT: Duration = Duration::from_secs(60 * 60);
/// The header by which the AWS SDKs tell that several attempts are one call.
const INVOCATION: &str = "amz-sdk-invocation-id";

/// A write that its caller may make, before its body has been read.
pub struct Fenced {
    /// Where it goes, under which token, and what makes it the same call.
    pub head: UploadHead,
    /// How long its key is remembered.
    pub kept: Option<Duration>,
}

impl Call {
    /// The token that it writes under, and its lock.
    ///
    /// # Errors
    /// There is none, or none of a form that is required here: counted with those that the rule refuses.
    pub fn fence(&self) -> Result<(Token, Option<LockId>), Failure> {
        let counted = |code, why| {
            count_rejection(code);
            Failure::from(Problem::new(code, why))
        };
        let Some((token, lock)) = self.caller.fence else {
            let why = "A write needs the access key of a lock, or X-Fence-Token among the signed headers.";
            return Err(counted(ErrorCode::FenceTokenMissing, why));
        };
        if lock.is_none() && self.front.app.requires_lock_id() {
            let why = "Send the id of your lock as X-Lock-Id beside its token, or sign with its access key.";
            return Err(counted(ErrorCode::LockIdMissing, why));
        }
        Ok((token, lock))
    }

    /// A write to this place.
    ///
    /// # Errors
    /// The fence is missing; the rules do not allow it.
    pub async fn fenced(&self, place: &Place, conditional: bool) -> Result<Fenced, Failure> {
        let mutated = mutants::fence_of(&self.front.app, &place.resource).await;
        let fence = mutated.map_or_else(|| self.fence(), Ok)?;
        let permit = self.may_on(Action::Write, &place.resource).await?;
        let key = self.call_key(conditional);
        Ok(self.under(place, fence, permit, key))
    }

    /// The same with what was found of it before.
    pub fn under(
        &self,
        place: &Place,
        (token, lock): (Token, Option<LockId>),
        permit: Permit,
        key: Option<String>,
    ) -> Fenced {
        let kept = key.is_some().then_some(CALL_KEPT);
        let head = UploadHead {
            resource: place.resource.clone(),
            key: place.key.clone(),
            token,
            lock,
            idempotency_key: key,
            request_id: self.request_id(),
            permit,
        };
        Fenced { head, kept }
    }

    /// What all attempts of a call have in common. A retry whose first attempt took effect then gets the answer of that,
    /// whatever was written since; and a first attempt that comes late is not carried out after its retry.
    fn call_key(&self, conditional: bool) -> Option<String> {
        if self.front.settings.once == S3Once::Conditional && !conditional {
            return None;
        }
        if mutants::is(Mutant::InvocationIgnored) {
            return None;
        }
        let id = self.headers.get(INVOCATION)?.to_str().ok()?;
        let id = Uuid::try_parse(id).ok()?;
        Some(KeySpace::Sdk.key(&id.to_string()))
    }

    /// Writes.
    ///
    /// # Errors
    /// Why it did not take effect, or that nobody knows.
    pub async fn write(
        &self,
        fenced: Fenced,
        condition: Option<ObjectCondition>,
        effect: WriteEffect,
    ) -> Result<WriteOutcome, Failure> {
        let Fenced { head, kept } = fenced;
        let (resource, key, token) = (head.resource.clone(), head.key.clone(), head.token);
        let is_in_parts = matches!(&effect, WriteEffect::Put { body: PutBody::Parts(_), .. });
        let request = Write {
            resource: head.resource,
            token,
            lock: head.lock,
            sequence: None,
            idempotency_key: head.idempotency_key,
            key_kept: kept,
            object_condition: condition.clone(),
            resource_version: None,
            effect,
            request_id: head.request_id,
            permit: head.permit,
        };
        let engine = &self.front.app.engine;
        let WriteFailure { operation, error } = match engine.write(request).await {
            Ok(outcome) => {
                if let Some(named) = self.parts.extensions.get::<Named>() {
                    named.note(std::slice::from_ref(&resource), &outcome.applied.owner);
                }
                return Ok(outcome);
            }
            Err(failure) => failure,
        };
        if matches!(error, EngineError::PartsDiffer) {
            return Err(S3Code::InvalidPart.into());
        }
        let beside = engine.beside_write(&error, &resource, Some(&key), token).await;
        let is_there = beside.tag.is_some();
        let problem = Problem::from(error).about(&resource).presented(token).beside(beside);
        let failure = Failure::from(problem.clone().of_operation(operation));
        // What somebody demands of an object that is not there is told as that.
        let demands_one =
            matches!(condition, Some(ObjectCondition::Exists | ObjectCondition::OneOf(_)));
        match problem.code() {
            ErrorCode::VersionMismatch if demands_one && !is_there => {
                Err(failure.told_as(S3Code::NoSuchKey))
            }
            ErrorCode::VersionMismatch => Err(failure.told_as(S3Code::PreconditionFailed)),
            // An object in one piece is sent again; an upload that is over is not.
            ErrorCode::UploadExpired if !is_in_parts => {
                Err(failure.told_as(S3Code::RequestTimeout))
            }
            _ => Err(failure),
        }
    }
}

/// What the answer of every write that took effect has. Returns the tag of what it wrote.
pub fn facts(headers: &mut HeaderMap, outcome: &WriteOutcome) -> Option<EntityTag> {
    let verdict = if outcome.replayed { "replayed" } else { "admitted" };
    headers.insert("x-fence-verdict", HeaderValue::from_static(verdict));
    let applied = &outcome.applied;
    set(headers, "x-operation-id", applied.operation);
    let version = applied.version?;
    set(headers, "x-resource-version", version);
    Some(EntityTag { generation: applied.generation, version })
}
