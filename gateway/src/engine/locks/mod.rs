//! Locks: how one is granted, kept and ended, who waits for it in line, and who watches it.

mod acquire;
mod breaks;
mod freed;
mod queue;
mod release;
mod renew;
mod rounds;
mod seal;
mod traces;
mod undelivered;
mod watch;

use std::sync::Arc;

use fence_core::ports::Grant;
use fence_core::{LockId, ResourceName};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub use acquire::{Acquire, Fence, Transfer};
pub(super) use queue::Drains;
pub use release::Released;
pub use renew::Renewed;
pub use seal::Acquired;
pub use watch::WATCHERS_MAX;

use super::access::Permit;
use super::agreement::Agreement;
use super::batch::Batcher;
use super::data::Refusals;
use super::disasters::Epochs;
use super::{Base, Engine, EngineError};
use acquire::{Grants, Look};
use breaks::Break;
use freed::Freed;
use queue::{Join, Keep, Line, Waiting};
use release::{Burials, Release};
use renew::Renew;
use seal::Granting;
use traces::Traces;
use undelivered::GiveBack;
use watch::{OneLock, OneResource, Watches};

/// Watches one lock.
pub type Watcher = watch::Watcher<OneLock>;
/// Watches one resource.
pub type ResourceWatcher = watch::Watcher<OneResource>;

/// What the engine has for locks.
pub(super) struct Locks {
    grants: Grants,
    renewals: Batcher<Renew>,
    releases: Arc<Batcher<Release>>,
    breaks: Batcher<Break>,
    traces: Traces,
    burials: Burials,
    give_back: GiveBack,
    watches: Watches<OneLock>,
    sights: Watches<OneResource>,
}

impl Locks {
    /// Starts the queues and the line. `calls` is the room for looks at single locks.
    pub(super) fn start(
        base: &Base,
        epochs: &Arc<Epochs>,
        refusals: &Arc<Refusals>,
        agreement: &Arc<Agreement>,
        calls: &Arc<Semaphore>,
    ) -> Self {
        let Base { ledger, mint, runtime, settings, closing, .. } = base;
        let traces = Traces::default();
        let line = Line::start(Arc::clone(ledger), Arc::clone(mint), runtime, closing);
        let freed = Arc::new(Freed::new(Arc::clone(&runtime.clock)));
        let release = || Release {
            ledger: Arc::clone(ledger),
            line: Arc::clone(&line),
            freed: Arc::clone(&freed),
        };
        let releases = Arc::new(base.batcher(release()));
        // Many may leave at once, and whoever gives a lock back must not stand behind them.
        let leaves = Arc::new(base.batcher(release()));
        let give_back = GiveBack {
            releases: Arc::clone(&leaves),
            traces: traces.clone(),
            runtime: runtime.clone(),
            closing: closing.clone(),
        };
        let granting = || Granting {
            ledger: Arc::clone(ledger),
            mint: Arc::clone(mint),
            traces: traces.clone(),
            give_back: give_back.clone(),
            epochs: Arc::clone(epochs),
            refusals: Arc::clone(refusals),
            can_write: Arc::clone(&base.writes),
            can_grant: Arc::clone(&base.grants),
        };
        let reentries = Arc::new(base.limited(granting(), acquire::BATCH_MAX));
        let waiting = Waiting {
            keeps: Arc::new(base.batcher(Keep { line: Arc::clone(&line) })),
            calls: Arc::clone(calls),
            reentries: Arc::clone(&reentries),
            joins: base.batcher(Join { ledger: Arc::clone(ledger) }),
            line: Arc::clone(&line),
            ledger: Arc::clone(ledger),
            leaves,
            runtime: runtime.clone(),
            request_timeout: settings.request_timeout,
            waiters_max: settings.waiters_max,
        };
        let grants = Grants {
            looks: base.batcher(Look { ledger: Arc::clone(ledger) }),
            freed,
            reentries,
            grants: base.limited(granting(), acquire::BATCH_MAX),
            waiting,
            runtime: runtime.clone(),
        };
        Self {
            grants,
            renewals: base.batcher(Renew { ledger: Arc::clone(ledger) }),
            releases,
            breaks: base.batcher(Break { ledger: Arc::clone(ledger), line }),
            traces,
            burials: Burials::new(Arc::clone(&runtime.clock)),
            give_back,
            watches: Watches::start(base, agreement),
            sights: Watches::start(base, agreement),
        }
    }

    /// What the ledger knows this gateway by.
    pub(super) fn gateway(&self) -> Uuid {
        self.line().gateway
    }

    /// How many locks are waited for here.
    pub(super) fn waiters(&self) -> usize {
        self.line().waiters()
    }

    /// How many calls watch a lock.
    pub(super) fn watchers(&self) -> usize {
        self.watches.watchers()
    }

    /// These resources may be free: calls the next in line.
    pub(super) fn wake(&self, resources: Vec<ResourceName>) {
        self.line().wake(resources);
    }

    /// What puts locks in force that were held back.
    pub(super) fn drains(&self) -> Drains {
        let waiting = &self.grants.waiting;
        Drains {
            ledger: Arc::clone(&waiting.ledger),
            line: Arc::clone(&waiting.line),
            runtime: waiting.runtime.clone(),
        }
    }

    /// This gateway has done something to these resources, or to whoever held them.
    pub(super) fn poke_on(&self, resources: &[ResourceName]) {
        self.watches.poke_on(resources);
        self.poke_written(resources);
    }

    /// This gateway has written to these resources.
    pub(super) fn poke_written<'a>(&self, resources: impl IntoIterator<Item = &'a ResourceName>) {
        self.sights.poke_on(resources);
    }

    fn line(&self) -> &Arc<Line> {
        &self.grants.waiting.line
    }
}

impl Engine {
    /// Acquires a lock, waits for it, or says who holds it.
    #[tracing::instrument(level = "debug", skip_all, fields(resources = ?request.resources))]
    pub async fn acquire(&self, request: Acquire) -> Result<Acquired, EngineError> {
        if request.only_if_exists {
            self.all_exist(request.resources.clone()).await?;
        }
        let acquired = self.inner.locks.grants.acquire(request).await?;
        self.inner.locks.poke_on(&acquired.grant.resources);
        Ok(acquired)
    }

    /// The answer to this fresh grant could not be written out. It is released: at once, or if the
    /// caller `proposed` the id, after 10 s, unless it was renewed or re-entered meanwhile.
    pub fn undelivered(&self, grant: &Grant, proposed: bool) {
        self.inner.locks.give_back.undelivered(grant, proposed);
    }

    /// Raises the fence of a resource without a lock of ours: every earlier token is stale from then
    /// on. The same id again gets the same answer while it is the last.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn fence(&self, request: Fence) -> Result<Acquired, EngineError> {
        let known = match self.lock(request.id, &request.permit).await {
            Ok(_) => true,
            // Also if it is somebody else's: then the seal finds the conflict.
            Err(EngineError::LockNotFound) => false,
            Err(EngineError::LockWaiting { .. }) => return Err(EngineError::LockConflict),
            Err(error) => return Err(error),
        };
        let (locks, resource) = (&self.inner.locks, request.resource.clone());
        let fenced = locks.grants.fence(request, known).await?;
        // Nobody holds it any more.
        locks.wake(vec![resource.clone()]);
        locks.poke_on(&[resource]);
        Ok(fenced)
    }

    /// Hands a lock over to a successor, with a new id and token.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn transfer(&self, request: Transfer) -> Result<Acquired, EngineError> {
        let from = self.lock(request.from, &request.permit).await?;
        let acquired = self.inner.locks.grants.transfer(request, from).await?;
        self.inner.locks.poke_on(&acquired.grant.resources);
        Ok(acquired)
    }

    /// Watches a lock: tells its state now, and whenever it changes.
    ///
    /// # Errors
    /// `LockNotFound`; `Overloaded` with [`WATCHERS_MAX`] watchers.
    pub async fn watch(&self, id: LockId, permit: &Permit) -> Result<Watcher, EngineError> {
        let first = self.inner.locks.watches.watch(id)?;
        match self.inner.runtime.within(self.inner.settings.request_timeout, first).await {
            Some(Some(watcher)) if watcher.record().grant.principal != permit.principal() => {
                Err(EngineError::LockNotFound)
            }
            Some(Some(watcher)) => Ok(watcher),
            // Unknown, or waiting in line.
            Some(None) => {
                Err(self.lock(id, permit).await.err().unwrap_or(EngineError::LockNotFound))
            }
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }

    /// Watches a resource: tells how it stands now, and whenever its face changes.
    ///
    /// # Errors
    /// `ResourceNotFound`; `Overloaded` with [`WATCHERS_MAX`] watchers.
    pub async fn watch_resource(&self, name: ResourceName) -> Result<ResourceWatcher, EngineError> {
        let first = self.inner.locks.sights.watch(name)?;
        match self.inner.runtime.within(self.inner.settings.request_timeout, first).await {
            Some(Some(watcher)) => Ok(watcher),
            Some(None) => Err(EngineError::ResourceNotFound),
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }
}
