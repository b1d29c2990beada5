//! What the engine shows: the ledger's views, outside the queues; which parts work; what it says of itself; what is
//! known beside a refusal.

mod about;
mod health;
mod reasons;
mod stocks;

use std::future::Future;
use std::sync::Arc;

use fence_core::ports::{
    Applied, AuditEntry, AuditFilter, InLine, LedgerError, LinePage, LockRecord, Object,
    OperationRecord, Page, Rejection, RejectionFilter, ResourceView, Which,
};
use fence_core::{LockId, OperationId, ResourceName};
use tokio::sync::{Semaphore, oneshot};

pub use about::About;
pub(super) use health::Health;
pub use health::Readiness;
pub use reasons::Standings;
pub use stocks::More;

use super::access::Permit;
use super::{Engine, EngineError};

impl Engine {
    /// A lock of the caller's by its id. To others it is not known.
    pub async fn lock(&self, id: LockId, permit: &Permit) -> Result<LockRecord, EngineError> {
        let principal = permit.principal();
        let ledger = Arc::clone(&self.inner.ledger);
        let record = self.call(async move { ledger.lock(id).await }).await?;
        if let Some(record) = record {
            return match record.grant.principal == principal {
                true => Ok(record),
                false => Err(EngineError::LockNotFound),
            };
        }
        let ledger = Arc::clone(&self.inner.ledger);
        match self.call(async move { ledger.position(id, principal.as_ref()).await }).await? {
            None => Err(EngineError::LockNotFound),
            position => Err(EngineError::LockWaiting { position }),
        }
    }

    /// A resource by its name.
    pub async fn resource(&self, name: ResourceName) -> Result<ResourceView, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let view = self.call(async move { ledger.resource(&name).await }).await?;
        view.ok_or(EngineError::ResourceNotFound)
    }

    /// Whether all of these resources were locked before; the first that was not is named. A fence
    /// never disappears, so this stays true.
    pub(super) async fn all_exist(&self, names: Vec<ResourceName>) -> Result<(), EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let missing = self.call(async move {
            for name in names {
                if ledger.resource(&name).await?.is_none() {
                    return Ok(Some(name));
                }
            }
            Ok(None)
        });
        missing.await?.map_or(Ok(()), |name| Err(EngineError::NeverLocked(name)))
    }

    /// Resources in byte order, those of one kind.
    pub async fn resources(
        &self,
        page: Page,
        which: Which,
    ) -> Result<Vec<ResourceView>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.resources(page, which).await }).await
    }

    /// Objects of a resource in byte order, without their bytes.
    pub async fn objects(
        &self,
        resource: ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, EngineError> {
        self.resource(resource.clone()).await?;
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.objects(&resource, page).await }).await
    }

    /// Who is in line for a resource, in order.
    pub async fn waiters(
        &self,
        resource: ResourceName,
        page: LinePage,
    ) -> Result<Vec<InLine>, EngineError> {
        self.resource(resource.clone()).await?;
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.waiters(&resource, page).await }).await
    }

    /// What became of a write; `None` if the ledger holds no trace of it.
    pub async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.operation(id).await }).await
    }

    /// The write that used an idempotency key.
    pub async fn operation_by_key(
        &self,
        resource: ResourceName,
        key: String,
    ) -> Result<Option<Applied>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.operation_by_key(&resource, &key).await }).await
    }

    /// Refused writes, newest first, each with its number.
    pub async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.rejections(filter).await }).await
    }

    /// What was done to locks and resources, newest first, each with its number.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.audit(filter).await }).await
    }

    /// What asks for one thing, or is an operator's: it does not stand behind lists.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, LedgerError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let calls = Arc::clone(&self.inner.calls);
        self.detached(Some(calls), async move { Ok(call.await?) }).await
    }

    /// The same for what changes something: without an answer nobody knows whether it did.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, LedgerError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let calls = Arc::clone(&self.inner.calls);
        match self.begun(Some(calls), async move { Ok(call.await?) }).await {
            Some(Ok(answer)) => answer,
            // It may have been sent, and may still take effect.
            _ => Err(EngineError::OutcomeUnknown { operation: None }),
        }
    }

    /// A query of the ledger outside the queues. Of callers that have gone by the time there is room,
    /// nothing is asked.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, LedgerError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let queries = Arc::clone(&self.inner.queries);
        let held = self.held.clone();
        let call = async move {
            let _held = held;
            Ok(call.await?)
        };
        self.detached(Some(queries), call).await
    }

    /// Runs a call in a task of its own, so that a caller that hangs up interrupts nothing.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        room: Option<Arc<Semaphore>>,
        call: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        match self.begun(room, call).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(EngineError::Defect("a query ended without an answer".into())),
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }

    /// Runs an act and what has to follow it in a task of its own: a caller that hangs up in between leaves out nothing. Each
    /// step has limits of its own, so the whole has none.
    pub(super) async fn to_its_end<T: Send + 'static>(
        &self,
        steps: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let ended = self.spawned(None, steps).await;
        ended.unwrap_or(Err(EngineError::OutcomeUnknown { operation: None }))
    }

    /// Waits for a call. `None`: there was no answer in time; an error: the task has ended without one.
    async fn begun<T: Send + 'static>(
        &self,
        room: Option<Arc<Semaphore>>,
        call: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Option<Result<Result<T, EngineError>, oneshot::error::RecvError>> {
        let answer = self.spawned(room, call);
        self.inner.runtime.within(self.inner.settings.request_timeout, answer).await
    }

    /// Begins a call in a task of its own, once there is room, and unless its caller has gone by then.
    fn spawned<T: Send + 'static>(
        &self,
        room: Option<Arc<Semaphore>>,
        call: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, EngineError>> {
        let (send, answer) = oneshot::channel();
        let task = async move {
            let _permit = match room {
                Some(room) => room.acquire_owned().await.ok(),
                None => None,
            };
            if !send.is_closed() {
                let _ = send.send(call.await);
            }
        };
        self.inner.runtime.spawn.spawn("query", Box::pin(task));
        answer
    }
}
