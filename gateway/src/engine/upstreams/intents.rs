//! What operators see of requests to drained upstreams, and how they say that such requests are over.

use std::sync::Arc;

use fence_core::OperationId;
use fence_core::ports::{Doubt, Intent, IntentFilter, LedgerError, Resolution, Resolved};
use tokio::sync::oneshot;

use crate::engine::access::Permit;
use crate::engine::{Engine, EngineError};

impl Engine {
    /// Open intents, oldest first, and whether each is in flight at this gateway; `None` if it is
    /// another gateway's.
    pub async fn intents(
        &self,
        filter: IntentFilter,
    ) -> Result<Vec<(Intent, Option<bool>)>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let found = self.query(async move { ledger.intents(filter).await }).await?;
        let upstreams = &self.inner.upstreams;
        let gateway = self.inner.locks.gateway();
        let here = upstreams.closing.here();
        let marked = |intent: Intent| {
            let mine = (intent.gateway == gateway).then(|| here.contains(&intent.operation));
            (intent, mine)
        };
        Ok(found.into_iter().map(marked).collect())
    }

    /// Upstreams of which intents may have been lost in a re-fence.
    pub async fn doubts(&self) -> Result<Vec<Doubt>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.doubts().await }).await
    }

    /// Closes an intent as an operator asks; the next lock may be in force. Again is harmless.
    ///
    /// # Errors
    /// `OperationNotFound` if the ledger knows no intent of this id.
    pub async fn resolve_intent(
        &self,
        id: OperationId,
        reason: String,
        request_id: String,
        permit: Permit,
    ) -> Result<(), EngineError> {
        tracing::info!(operation = %id, reason, "an operator resolves an intent");
        let ledger = Arc::clone(&self.inner.ledger);
        let resolve = async move {
            let resolution =
                |by| Resolution { reason: reason.clone(), request_id: request_id.clone(), by };
            loop {
                match ledger.resolve_intent(id, resolution(permit.by())).await {
                    Err(LedgerError::RulesMoved) => permit.renew().await?,
                    outcome => return Ok(outcome?),
                }
            }
        };
        match self.resolve(resolve).await? {
            Resolved::Now(_) | Resolved::Before => Ok(()),
            Resolved::NotFound => Err(EngineError::OperationNotFound),
        }
    }

    /// Ends the doubts of an upstream as an operator asks, and says how many there were. Again is
    /// harmless.
    ///
    /// # Errors
    /// `UpstreamNotFound` if no upstream of this name was ever drained.
    pub async fn resolve_doubts(
        &self,
        upstream: String,
        reason: String,
        request_id: String,
        permit: Permit,
    ) -> Result<i64, EngineError> {
        tracing::info!(upstream, reason, "an operator resolves the doubts of an upstream");
        let ledger = Arc::clone(&self.inner.ledger);
        let name = upstream.clone();
        let resolve = async move {
            let resolution =
                |by| Resolution { reason: reason.clone(), request_id: request_id.clone(), by };
            loop {
                match ledger.resolve_doubts(&name, resolution(permit.by())).await {
                    Err(LedgerError::RulesMoved) => permit.renew().await?,
                    outcome => return Ok(outcome?),
                }
            }
        };
        self.resolve(resolve).await?.ok_or(EngineError::UpstreamNotFound(upstream))
    }

    /// Runs an operator's act in a task of its own, and puts in force whatever waited for it: also when
    /// its answer was lost, and whether or not the operator is still there.
    async fn resolve<T: Send + 'static>(
        &self,
        act: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let drains = self.inner.locks.drains();
        let calls = Arc::clone(&self.inner.calls);
        let (send, answer) = oneshot::channel();
        let task = async move {
            let _permit = calls.acquire_owned().await.ok();
            let outcome = act.await;
            drains.pass(None).await;
            let _ = send.send(outcome);
        };
        self.inner.runtime.spawn.spawn("resolve", Box::pin(task));
        let limit = self.inner.settings.request_timeout;
        match self.inner.runtime.within(limit, answer).await {
            Some(Ok(outcome)) => outcome,
            _ => Err(EngineError::OutcomeUnknown { operation: None }),
        }
    }
}
