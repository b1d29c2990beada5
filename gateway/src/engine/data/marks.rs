//! Marks: operators freeze resources and protect them. No mint: with it down, this works as ever.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{Mark, MarkItem, MarkVerdict, Patience, ResourceView};
use tokio::sync::oneshot;

use crate::engine::access::Permit;
use crate::engine::metrics::MARKS;
use crate::engine::{Engine, EngineError};

/// How long a mark waits for a row that somebody else has locked.
const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// Freezes or protects a resource, or lifts that. Returns the resource as it stands then. Doing
    /// it again is harmless; what is so already, for the same reason, stays as it is.
    #[tracing::instrument(level = "debug", skip_all, fields(%resource))]
    pub async fn mark(
        &self,
        resource: ResourceName,
        mark: Mark,
        reason: String,
        request_id: String,
        permit: Permit,
    ) -> Result<ResourceView, EngineError> {
        tracing::info!(%resource, reason, mark = mark.as_str(), "an operator marks a resource");
        let item =
            MarkItem { resource: resource.clone(), mark, reason, request_id, by: permit.by() };
        let verdict = loop {
            let item = MarkItem { by: permit.by(), ..item.clone() };
            match self.send_once(item).await? {
                MarkVerdict::RulesMoved => permit.renew().await?,
                verdict => break verdict,
            }
        };
        match verdict {
            MarkVerdict::Marked { changed } => {
                if changed {
                    ::metrics::counter!(MARKS, "mark" => mark.as_str()).increment(1);
                }
            }
            MarkVerdict::NoFence => return Err(EngineError::ResourceNotFound),
            MarkVerdict::RulesMoved => return Err(EngineError::AccessUnavailable),
            MarkVerdict::Busy => return Err(EngineError::Busy),
        }
        self.inner.locks.poke_on(std::slice::from_ref(&resource));
        let unknown = |_| EngineError::OutcomeUnknown { operation: None };
        self.resource(resource).await.map_err(unknown)
    }

    /// Sends a mark, in a task of its own, and never again by itself: by the time that the answer to
    /// a freeze was found to be lost, another operator may have unfrozen the resource.
    async fn send_once(&self, item: MarkItem) -> Result<MarkVerdict, EngineError> {
        let inner = Arc::clone(&self.inner);
        let (send, answer) = oneshot::channel();
        let task = async move {
            let _permit = Arc::clone(&inner.calls).acquire_owned().await.ok();
            if !send.is_closed() {
                let (resource, mark) = (item.resource.clone(), item.mark);
                let patience = Patience::Wait(PATIENCE);
                let verdicts = inner.ledger.mark(Arc::from([item]), patience).await;
                // Whoever is first in line may go on: also when nothing changed or the answer was
                // lost, and whether or not the operator is still there.
                if mark == Mark::Unfreeze {
                    inner.locks.wake(vec![resource]);
                }
                let _ = send.send(verdicts);
            }
        };
        self.inner.runtime.spawn.spawn("mark", Box::pin(task));
        let limit = self.inner.settings.request_timeout;
        match self.inner.runtime.within(limit, answer).await {
            Some(Ok(verdicts)) => verdicts?
                .pop()
                .ok_or_else(|| EngineError::Defect("a mark came back without verdict".into())),
            // It may have been sent, and may still take effect.
            _ => Err(EngineError::OutcomeUnknown { operation: None }),
        }
    }
}
