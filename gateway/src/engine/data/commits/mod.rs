//! Commits: many puts and deletes over all resources of a lock, all or nothing, in one act.

mod shape;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Applied, Attempt, CommitItem, CommitStep, CommitVerdict, Did, Ledger, LedgerError, Patience,
    UploadItem, UploadVerdict,
};
use fence_core::{EntityTag, LockId, OperationId, PrincipalName, Refusal, ResourceName, Token};
use futures::future::join_all;

use super::under_way::UnderWay;
use super::writes::{Record, WriteEffect, count_as};
use crate::engine::access::Permit;
use crate::engine::batch::{Act, Batcher, Failure};
use crate::engine::trials::Trials;
use crate::engine::{Base, Engine, EngineError, metrics};
use crate::spans;
use shape::{item, outcome};

/// The most steps of one commit.
pub const COMMIT_STEPS_MAX: usize = 1000;

/// One put or delete of a commit.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its resource.
    pub resource: ResourceName,
    /// What the object must be like before the commit.
    pub object_condition: Option<ObjectCondition>,
    /// A put or a delete of one object.
    pub effect: WriteEffect,
}

/// What is known of a commit before its bodies have been read.
#[derive(Debug, Clone)]
pub struct CommitHead {
    /// The resources of its steps, and those of which it only demands a version.
    pub resources: BTreeMap<ResourceName, Option<i64>>,
    /// The fence token, which must be good on each resource.
    pub token: Token,
    /// The lock id, if sent.
    pub lock: Option<LockId>,
    /// The sequence number, if sent.
    pub sequence: Option<i64>,
    /// The idempotency key, if sent.
    pub idempotency_key: Option<String>,
    /// How long that is remembered, if its writer says so.
    pub key_kept: Option<Duration>,
    /// The request, for the operator's record.
    pub request_id: String,
    /// What allows it.
    pub permit: Permit,
}

/// A commit that took effect.
#[derive(Debug, Clone)]
pub struct CommitOutcome {
    /// Its operation.
    pub operation: OperationId,
    /// What it did to each resource, in the order of their names.
    pub applied: Vec<Applied>,
    /// What each step did, in the caller's order.
    pub steps: Vec<StepOutcome>,
    /// Whether it had taken effect earlier, under the same idempotency key.
    pub replayed: bool,
}

/// What a step did.
#[derive(Debug, Clone)]
pub struct StepOutcome {
    /// The step.
    pub step: CommitStep,
    /// What it did.
    pub did: Did,
    /// The tag of the version that it became a part of, if it changed anything.
    pub tag: Option<EntityTag>,
}

/// A commit that did not take effect, or whose outcome is unknown.
#[derive(Debug, Clone)]
pub struct CommitFailure {
    /// Its operation.
    pub operation: OperationId,
    /// Why.
    pub error: EngineError,
    /// The resource on which it failed, if it was on one.
    pub resource: Option<ResourceName>,
    /// The position of the step at which it failed, from 0, if it was at one.
    pub step: Option<usize>,
}

/// Commits one by one, as the act of a batcher.
struct CommitMany {
    ledger: Arc<dyn Ledger>,
    can_write: Arc<Trials>,
}

#[async_trait]
impl Act for CommitMany {
    type Item = CommitItem;
    type Verdict = CommitVerdict;
    type Lane = Vec<ResourceName>;

    const NAME: &'static str = "commit_many";

    fn principal(item: &CommitItem) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane(item: &CommitItem) -> Vec<ResourceName> {
        item.resources.iter().map(|at| at.resource.clone()).collect()
    }

    async fn run(
        &self,
        items: Arc<[CommitItem]>,
        patience: Patience,
    ) -> Result<Vec<CommitVerdict>, LedgerError> {
        // One: an error after the first of several would leave open what became of it.
        match &*items {
            [item] => {
                let commit = self.ledger.commit_many(item.clone(), patience);
                let answer = spans::part("ledger.commit", commit).await;
                Ok(vec![self.can_write.asked(answer)?])
            }
            _ => Err(LedgerError::Defect("commits go one by one".into())),
        }
    }

    fn is_busy(verdict: &CommitVerdict) -> bool {
        matches!(verdict, CommitVerdict::Busy)
    }

    fn rules_moved(verdict: &CommitVerdict) -> bool {
        matches!(verdict, CommitVerdict::RulesMoved)
    }

    fn is_forgotten(verdict: &CommitVerdict) -> bool {
        matches!(verdict, CommitVerdict::Forgotten)
    }

    fn ask_after(item: &mut CommitItem) -> bool {
        item.attempt = Attempt::Bury;
        true
    }

    /// As with plain writes: found, applied or buried.
    fn rerun(item: &mut CommitItem, wanted: bool) {
        item.attempt = if wanted { Attempt::Rerun } else { Attempt::Bury };
    }
}

/// The committers. A set of resources always goes to the same one.
pub(in crate::engine) struct Commits {
    committers: Vec<Batcher<CommitMany>>,
    under_way: UnderWay,
}

impl Commits {
    /// They go one by one.
    pub(in crate::engine) fn start(base: &Base) -> Self {
        let committer = |_| {
            let (ledger, can_write) = (Arc::clone(&base.ledger), Arc::clone(&base.writes));
            base.limited(CommitMany { ledger, can_write }, 1)
        };
        let committers = (0..base.settings.committers.max(1)).map(committer).collect();
        Self { committers, under_way: UnderWay::default() }
    }

    fn committer(&self, item: &CommitItem) -> &Batcher<CommitMany> {
        let mut hasher = DefaultHasher::new();
        CommitMany::lane(item).hash(&mut hasher);
        let shard = hasher.finish() % self.committers.len() as u64;
        &self.committers[usize::try_from(shard).unwrap_or(0)]
    }
}

impl Engine {
    /// Refuses a commit that is refused for good on one of its resources, before its bodies have been
    /// read; unless its idempotency key took effect on one.
    ///
    /// # Errors
    /// The refusal on the first such resource in the order of their names.
    pub async fn refuse_commit_early(&self, head: &CommitHead) -> Result<(), CommitFailure> {
        self.refuse_known_commit(head).await?;
        let operation = self.inner.runtime.ids.operation();
        let refusals = &self.inner.writes.refusals;
        let first = head.resources.keys().next();
        let asked = first.map(|first| (first, refusals.asking(first)));
        let ask = |resource: &ResourceName| {
            let item = UploadItem {
                blob: None,
                resource: resource.clone(),
                token: head.token,
                lock: head.lock,
                key: head.idempotency_key.clone(),
                by: head.permit.by(),
            };
            let ledger = Arc::clone(&self.inner.ledger);
            self.call(async move { ledger.begin_upload(item).await })
        };
        let verdicts = join_all(head.resources.keys().map(ask)).await;
        if verdicts.iter().any(|verdict| matches!(verdict, Ok(UploadVerdict::KnownKey))) {
            return Ok(());
        }
        for (resource, verdict) in head.resources.keys().zip(verdicts) {
            let error = match verdict {
                Ok(UploadVerdict::Refused(refusal)) => {
                    if let Some((first, asked)) = asked
                        && first == resource
                    {
                        let principal = head.permit.principal();
                        refusals.keep(resource, head.token, principal.as_ref(), &refusal, asked);
                    }
                    self.reject_commit(head, resource, None, &refusal);
                    EngineError::Refused(refusal)
                }
                Ok(_) => continue,
                Err(error) => error,
            };
            count_as(&Err::<(), _>(&error), false);
            let resource = Some(resource.clone());
            return Err(CommitFailure { operation, error, resource, step: None });
        }
        Ok(())
    }

    /// Decides a commit and applies all of it, or nothing.
    #[tracing::instrument(level = "debug", skip_all, fields(steps = steps.len()))]
    pub async fn commit_many(
        &self,
        head: CommitHead,
        steps: Vec<Step>,
    ) -> Result<CommitOutcome, CommitFailure> {
        let runtime = &self.inner.runtime;
        let began = runtime.clock.elapsed();
        let operation = runtime.ids.operation();
        let item = item(operation, self.inner.own_time.heard(), &head, steps).await;
        let steps = Arc::clone(&item.steps);
        let mark = item.idempotency.as_ref().zip(head.resources.keys().next());
        let mark = mark.map(|(one, first)| self.inner.commits.under_way.mark(first, &one.key));
        let is_second = matches!(mark, Some(None));
        let verdict = loop {
            let item = CommitItem { by: head.permit.by(), ..item.clone() };
            match self.inner.commits.committer(&item).submit(item).await {
                Ok(CommitVerdict::RulesMoved) => {
                    let failed =
                        |error| CommitFailure { operation, error, resource: None, step: None };
                    head.permit.renew().await.map_err(failed)?;
                }
                verdict => break verdict,
            }
        };
        let took = runtime.clock.elapsed().saturating_sub(began);
        ::metrics::histogram!(metrics::COMMIT_SECONDS).record(took);
        let failed = |error| CommitFailure { operation, error, resource: None, step: None };
        let outcome = match verdict {
            Ok(CommitVerdict::Applied { applied, replayed }) => {
                outcome(applied, &steps, replayed).map_err(failed)
            }
            Ok(CommitVerdict::Refused { refusal, resource, step }) => {
                let at = step.and_then(|position| steps.get(position));
                self.reject_commit(&head, &resource, at, &refusal);
                let error = EngineError::Refused(refusal);
                Err(CommitFailure { operation, error, resource: Some(resource), step })
            }
            Ok(CommitVerdict::KeyReused { first, resource }) => {
                let error = EngineError::KeyReused { first };
                Err(CommitFailure { operation, error, resource: Some(resource), step: None })
            }
            Ok(CommitVerdict::UploadExpired { step }) => {
                let resource = steps.get(step).map(|step| step.resource.clone());
                let error = EngineError::UploadExpired;
                Err(CommitFailure { operation, error, resource, step: Some(step) })
            }
            Ok(CommitVerdict::Buried) => Err(failed(EngineError::given_up())),
            Ok(CommitVerdict::Busy) | Err(Failure::Busy) if is_second => {
                Err(failed(EngineError::KeyInProgress))
            }
            Ok(CommitVerdict::RulesMoved) => Err(failed(EngineError::AccessUnavailable)),
            Ok(CommitVerdict::Busy) => Err(failed(EngineError::Busy)),
            Ok(CommitVerdict::Forgotten) | Err(Failure::Unknown) => {
                Err(failed(EngineError::OutcomeUnknown { operation: Some(operation) }))
            }
            Err(failure) => Err(failed(EngineError::unsent(failure, "commits"))),
        };
        match &outcome {
            Ok(done) => {
                count_as(&Ok(()), done.replayed);
                self.poke_written(steps.iter().map(|step| &step.resource));
            }
            Err(failure) => count_as(&Err::<(), _>(&failure.error), false),
        }
        outcome
    }

    /// One row for the operator, however many steps there are.
    pub(super) fn reject_commit(
        &self,
        head: &CommitHead,
        resource: &ResourceName,
        step: Option<&CommitStep>,
        refusal: &Refusal,
    ) {
        let record = Record {
            resource,
            key: step.and_then(CommitStep::key),
            token: head.token,
            request_id: &head.request_id,
            principal: head.permit.principal(),
        };
        self.inner.writes.reject(&record, refusal);
    }
}
