//! Writes: fenced, through the group committer. The check is the effect; no pause fits between.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fence_core::etag::ObjectCondition;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    Applied, Attempt, BlobId, Effect, IdempotencyKey, Ledger, LedgerError, Patience, Payload,
    Rejection, Runtime, WriteItem, WriteVerdict,
};
use fence_core::{LockId, ObjectKey, OperationId, PrincipalName, Refusal, ResourceName, Token};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::blobs::{UploadHead, Uploaded};
use super::reads::KnownKey;
use super::refusals::Refusals;
use super::rejections::Rejections;
use super::under_way::UnderWay;
use crate::engine::access::Permit;
use crate::engine::batch::{Act, Batcher, Failure};
use crate::engine::own_time::OwnTime;
use crate::engine::trials::Trials;
use crate::engine::{Base, Engine, EngineError, metrics};
use crate::spans;

/// What a write does.
#[derive(Debug, Clone)]
pub enum WriteEffect {
    /// Stores an object.
    Put {
        /// Its key.
        key: ObjectKey,
        /// Its content type.
        content_type: String,
        /// What S3 tells of it, beside its content type, as JSON.
        about: Option<Arc<str>>,
        /// Its bytes, or what they were uploaded as.
        body: PutBody,
    },
    /// Removes an object, if it is there.
    Delete {
        /// Its key.
        key: ObjectKey,
    },
    /// Removes all objects of the resource.
    DeleteAll,
}

impl WriteEffect {
    /// The object it is about, if it is about one.
    pub(super) fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => Some(key),
            Self::DeleteAll => None,
        }
    }
}

/// The bytes of a put.
#[derive(Debug, Clone)]
pub enum PutBody {
    /// Here: they will live in the ledger.
    Inline(Bytes),
    /// The same, of which the SHA-256 is known.
    Digested(Bytes, [u8; 32]),
    /// In the blob store already.
    Uploaded(Uploaded),
    /// In the blob store already, in parts.
    Parts(InParts),
}

/// An upload in parts, with those that it is to consist of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InParts {
    /// The upload.
    pub upload: BlobId,
    /// The number of bytes of all parts.
    pub size: u64,
    /// The SHA-256 of their digests.
    pub sha256: [u8; 32],
    /// The blobs of the parts, in their order.
    pub parts: Arc<[BlobId]>,
}

/// A write that is asked for.
#[derive(Debug, Clone)]
pub struct Write {
    /// The resource.
    pub resource: ResourceName,
    /// The fence token.
    pub token: Token,
    /// The lock id, if sent.
    pub lock: Option<LockId>,
    /// The sequence number, if sent.
    pub sequence: Option<i64>,
    /// The idempotency key, if sent.
    pub idempotency_key: Option<String>,
    /// How long that is remembered, if its writer says so.
    pub key_kept: Option<Duration>,
    /// What the object must be like.
    pub object_condition: Option<ObjectCondition>,
    /// The version that the resource must have.
    pub resource_version: Option<i64>,
    /// What to do.
    pub effect: WriteEffect,
    /// The request, for the operator's record.
    pub request_id: String,
    /// What allows it.
    pub permit: Permit,
}

/// A write that took effect.
#[derive(Debug, Clone)]
pub struct WriteOutcome {
    /// What it did.
    pub applied: Applied,
    /// Whether it had taken effect earlier, under the same idempotency key.
    pub replayed: bool,
}

/// A write that did not take effect, or whose outcome is unknown.
#[derive(Debug, Clone)]
pub struct WriteFailure {
    /// Its operation.
    pub operation: OperationId,
    /// Why.
    pub error: EngineError,
}

/// The group committer, as the act of a batcher.
struct Commit {
    ledger: Arc<dyn Ledger>,
    can_write: Arc<Trials>,
}

#[async_trait]
impl Act for Commit {
    type Item = WriteItem;
    type Verdict = WriteVerdict;
    type Lane = ResourceName;

    const NAME: &'static str = "commit";

    fn principal(item: &WriteItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &WriteItem) -> ResourceName {
        item.resource.clone()
    }

    fn bytes(item: &WriteItem) -> usize {
        match &item.effect {
            Effect::Put { payload: Payload::Inline(body), .. } => body.len(),
            Effect::Put { payload: Payload::Blob(_), .. }
            | Effect::Delete { .. }
            | Effect::DeleteAll => 0,
        }
    }

    async fn run(
        &self,
        items: Arc<[WriteItem]>,
        patience: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError> {
        let answer = spans::part("ledger.commit", self.ledger.commit(items, patience)).await;
        self.can_write.asked(answer)
    }

    fn is_busy(verdict: &WriteVerdict) -> bool {
        matches!(verdict, WriteVerdict::Busy)
    }

    fn rules_moved(verdict: &WriteVerdict) -> bool {
        matches!(verdict, WriteVerdict::RulesMoved)
    }

    fn is_forgotten(verdict: &WriteVerdict) -> bool {
        matches!(verdict, WriteVerdict::Forgotten)
    }

    fn ask_after(item: &mut WriteItem) -> bool {
        item.attempt = Attempt::Bury;
        true
    }

    /// Absent is not "not applied": the first sending may still be waiting for its row. So the same
    /// operation is sent again, to be found, applied or buried.
    fn rerun(item: &mut WriteItem, wanted: bool) {
        item.attempt = if wanted { Attempt::Rerun } else { Attempt::Bury };
        if mutants::is(Mutant::RerunUnderNewId) {
            item.operation.0 = uuid::Uuid::from_u128(item.operation.0.as_u128() + 1);
        }
    }
}

/// The committers, one queue each. A resource always goes to the same one, which keeps its order.
pub(in crate::engine) struct Writes {
    committers: Vec<Batcher<Commit>>,
    rejections: Rejections,
    pub(in crate::engine) refusals: Arc<Refusals>,
    pub(super) lookups: Batcher<KnownKey>,
    under_way: UnderWay,
    own_time: OwnTime,
    runtime: Runtime,
}

impl Engine {
    /// Decides a write and applies it if it is admitted.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn write(&self, request: Write) -> Result<WriteOutcome, WriteFailure> {
        let record = Record {
            resource: &request.resource,
            key: request.effect.key(),
            token: request.token,
            request_id: &request.request_id,
            principal: request.permit.principal(),
        };
        self.refuse_known(&record, request.idempotency_key.as_deref(), true).await?;
        let resource = request.resource.clone();
        let outcome = self.inner.writes.write(request).await;
        if outcome.is_ok() {
            self.poke_written([&resource]);
        }
        outcome
    }
}

impl Writes {
    pub(in crate::engine) fn start(
        base: &Base,
        refusals: Arc<Refusals>,
        own_time: OwnTime,
    ) -> Self {
        let Base { ledger, runtime, settings, closing, .. } = base;
        let committer = |_| {
            base.batcher(Commit { ledger: Arc::clone(ledger), can_write: Arc::clone(&base.writes) })
        };
        let (known, clock) = (Arc::clone(ledger), Arc::clone(&runtime.clock));
        Self {
            committers: (0..settings.committers.max(1)).map(committer).collect(),
            rejections: Rejections::start(Arc::clone(ledger), runtime, closing.clone()),
            refusals,
            lookups: base.batcher(KnownKey { ledger: known, clock }),
            under_way: UnderWay::default(),
            own_time,
            runtime: runtime.clone(),
        }
    }

    /// Decides a write and applies it if it is admitted.
    async fn write(&self, request: Write) -> Result<WriteOutcome, WriteFailure> {
        let began = self.runtime.clock.elapsed();
        let operation = self.runtime.ids.operation();
        let permit = request.permit.clone();
        let (item, request_id) = item(operation, self.own_time.heard(), request);
        let (resource, key, token) =
            (item.resource.clone(), item.effect.key().cloned(), item.token);
        let mark =
            item.idempotency.as_ref().map(|one| self.under_way.mark(&item.resource, &one.key));
        let is_second = matches!(mark, Some(None));
        let asked = self.refusals.asking(&resource);
        let verdict = loop {
            let item = WriteItem { by: permit.by(), ..item.clone() };
            match self.committer(&resource).submit(item).await {
                Ok(WriteVerdict::RulesMoved) => {
                    let renewed = permit.renew().await;
                    renewed.map_err(|error| WriteFailure { operation, error })?;
                }
                verdict => break verdict,
            }
        };
        let took = self.runtime.clock.elapsed().saturating_sub(began);
        ::metrics::histogram!(metrics::COMMIT_SECONDS).record(took);
        let outcome = match verdict {
            Ok(WriteVerdict::Applied { applied, replayed }) => {
                Ok(WriteOutcome { applied, replayed })
            }
            Ok(WriteVerdict::Refused(refusal)) => {
                let principal = permit.principal();
                self.refusals.keep(&resource, token, principal.as_ref(), &refusal, asked);
                let record = Record {
                    resource: &resource,
                    key: key.as_ref(),
                    token,
                    request_id: &request_id,
                    principal,
                };
                self.reject(&record, &refusal);
                Err(EngineError::Refused(refusal))
            }
            Ok(WriteVerdict::KeyReused { first }) => Err(EngineError::KeyReused { first }),
            Ok(WriteVerdict::UploadExpired) => Err(EngineError::UploadExpired),
            Ok(WriteVerdict::PartsDiffer) => Err(EngineError::PartsDiffer),
            Ok(WriteVerdict::Buried) => Err(EngineError::given_up()),
            Ok(WriteVerdict::Busy) | Err(Failure::Busy) if is_second => {
                Err(EngineError::KeyInProgress)
            }
            Ok(WriteVerdict::RulesMoved) => Err(EngineError::AccessUnavailable),
            Ok(WriteVerdict::Busy) => Err(EngineError::Busy),
            Err(Failure::Unknown) if mutants::is(Mutant::UnknownIsRefused) => {
                Err(EngineError::KeyInProgress)
            }
            Ok(WriteVerdict::Forgotten) | Err(Failure::Unknown) => {
                Err(EngineError::OutcomeUnknown { operation: Some(operation) })
            }
            Err(failure) => Err(EngineError::unsent(failure, "writes")),
        };
        let replayed = outcome.as_ref().is_ok_and(|written| written.replayed);
        count_as(&outcome.as_ref(), replayed);
        outcome.map_err(|error| {
            self.refusals.learn(&error);
            WriteFailure { operation, error }
        })
    }

    fn committer(&self, resource: &ResourceName) -> &Batcher<Commit> {
        let mut hasher = DefaultHasher::new();
        resource.hash(&mut hasher);
        let shard = hasher.finish() % self.committers.len() as u64;
        &self.committers[usize::try_from(shard).unwrap_or(0)]
    }

    /// Keeps a refusal for the operator, off the hot path.
    pub(in crate::engine) fn reject(&self, record: &Record<'_>, refusal: &Refusal) {
        let reason = refusal.reason();
        metrics::count_rejection(refusal.code());
        let at = self.runtime.clock.now();
        let mut rejection = Rejection {
            at,
            resource: record.resource.clone(),
            key: record.key.cloned(),
            reason: reason.to_owned(),
            token: Some(record.token),
            grants_behind: None,
            superseded_ms: None,
            owner: None,
            request_id: record.request_id.to_owned(),
            times: 1,
        };
        if let Refusal::Stale { at: superseded, grants_behind, owner, .. } = refusal {
            let ms = superseded.map(|then| (at.as_millisecond() - then.as_millisecond()).max(0));
            if let Some(ms) = ms {
                ::metrics::histogram!(metrics::SUPERSEDED_SECONDS).record(ms as f64 / 1000.0);
            }
            if let Some(behind) = grants_behind {
                ::metrics::histogram!(metrics::TOKEN_LAG).record(*behind as f64);
            }
            rejection.superseded_ms = ms;
            rejection.grants_behind = *grants_behind;
            rejection.owner.clone_from(owner);
        }
        self.rejections.keep(rejection);
    }
}

/// What the operator's record needs of a write.
pub(in crate::engine) struct Record<'write> {
    pub(in crate::engine) resource: &'write ResourceName,
    pub(in crate::engine) key: Option<&'write ObjectKey>,
    pub(in crate::engine) token: Token,
    pub(in crate::engine) request_id: &'write str,
    /// Who writes.
    pub(in crate::engine) principal: Option<PrincipalName>,
}

impl<'write> Record<'write> {
    /// Of a write whose body has not been read.
    pub(super) fn of(head: &'write UploadHead) -> Self {
        Self {
            resource: &head.resource,
            key: Some(&head.key),
            token: head.token,
            request_id: &head.request_id,
            principal: head.permit.principal(),
        }
    }
}

/// Counts a write or a commit by what became of it.
pub(super) fn count_as<T>(outcome: &Result<T, &EngineError>, replayed: bool) {
    let word = match outcome {
        Ok(_) if replayed => "replayed",
        Ok(_) => "admitted",
        Err(EngineError::Refused(_) | EngineError::KeyReused { .. }) => "refused",
        Err(EngineError::OutcomeUnknown { .. }) => "unknown",
        Err(_) => "failed",
    };
    ::metrics::counter!(metrics::WRITES, "outcome" => word).increment(1);
}

/// The write as the ledger takes it, with its digest and fingerprint.
fn item(operation: OperationId, taken_at: Timestamp, request: Write) -> (WriteItem, String) {
    let effect = effect(request.effect);
    let kept = request.key_kept;
    let keyed = |key| IdempotencyKey { key, fingerprint: fingerprint(&effect), kept };
    let idempotency = request.idempotency_key.map(keyed);
    let item = WriteItem {
        operation,
        resource: request.resource,
        token: request.token,
        lock: request.lock,
        sequence: request.sequence,
        idempotency,
        object_condition: request.object_condition,
        resource_version: request.resource_version,
        effect,
        attempt: Attempt::First,
        taken_at,
        by: request.permit.by(),
    };
    (item, request.request_id)
}

/// An effect as the ledger takes it, with the digest of its body.
pub(super) fn effect(requested: WriteEffect) -> Effect {
    match requested {
        WriteEffect::Put { key, content_type, about, body } => {
            let mut named = None;
            let (payload, size, sha256) = match body {
                PutBody::Inline(bytes) => {
                    let sha256 = Sha256::digest(&bytes).into();
                    (Payload::Inline(bytes.clone()), bytes.len() as u64, sha256)
                }
                PutBody::Digested(bytes, sha256) => {
                    let size = bytes.len() as u64;
                    (Payload::Inline(bytes), size, sha256)
                }
                PutBody::Uploaded(Uploaded { blob, size, sha256 }) => {
                    (Payload::Blob(blob), size, sha256)
                }
                PutBody::Parts(InParts { upload, size, sha256, parts }) => {
                    named = Some(parts);
                    (Payload::Blob(upload), size, sha256)
                }
            };
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            Effect::Put { key, content_type, payload, size, sha256, about, parts: named }
        }
        WriteEffect::Delete { key } => Effect::Delete { key },
        WriteEffect::DeleteAll => Effect::DeleteAll,
    }
}

/// A digest of what a retry must repeat: method, object key, content type and body, and what S3 tells of it.
fn fingerprint(effect: &Effect) -> [u8; 32] {
    let (method, content_type, sha256): (&str, &str, &[u8]) = match effect {
        Effect::Put { content_type, sha256, .. } => ("PUT", content_type, sha256),
        Effect::Delete { .. } | Effect::DeleteAll => ("DELETE", "", &[]),
    };
    let key = effect.key().map_or("", |key| key.as_str());
    let about = match effect {
        Effect::Put { about, .. } => about.as_deref(),
        Effect::Delete { .. } | Effect::DeleteAll => None,
    };
    let parts = [method.as_bytes(), key.as_bytes(), content_type.as_bytes(), sha256];
    fingerprint_of(parts.into_iter().chain(about.map(str::as_bytes)))
}

/// A digest of several parts. Each is preceded by its length, so that no two different payloads read
/// alike.
pub(super) fn fingerprint_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
