//! The engine: grants, locks, writes and reads. It knows no HTTP, SQL or etcd.
//!
//! Every method may be dropped at any await: it only waits on channels, and what it started goes its
//! way regardless. Clock, ids and spawning come in from outside.

mod about;
mod acquired;
mod adopting;
pub mod agreement;
mod batcher;
mod blobs;
mod burials;
mod commits;
mod deliveries;
mod epochs;
pub mod error;
mod feed;
mod follow;
mod freed;
mod granting;
mod grants;
mod health;
mod intents;
mod line;
mod locks;
mod lookout;
pub mod metrics;
mod operators;
mod reads;
mod reasons;
mod refencing;
mod refusals;
mod rejections;
mod start;
mod sweeper;
mod traces;
mod under_way;
pub mod upstreams;
mod views;
mod waiting;
mod watch;
mod writes;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fence_core::ports::{
    BlobTimes, BreakItem, DrainedUpstream, Grant, Ledger, Mint, ResourceView, Retention, Runtime,
};
use fence_core::{LockId, LockState, ResourceName, Ttl};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use about::About;
pub use acquired::Acquired;
use agreement::Agreement;
use batcher::Batcher;
pub use blobs::{
    Content, Fetched, Scrub, ScrubProgress, ScrubReport, Standing, Upload, UploadHead, Uploaded,
    Wanted, store_standing, upload_halves,
};
use commits::Commits;
pub use commits::{COMMIT_STEPS_MAX, CommitFailure, CommitHead, CommitOutcome, Step, StepOutcome};
use deliveries::GiveBack;
pub use error::EngineError;
use feed::Feed;
pub use feed::{EventReader, EventsFrom, READERS_MAX};
use follow::Follow;
pub use follow::{Followed, Follower, RecordFrom};
use grants::Grants;
pub use grants::{Acquire, Fence, Transfer};
use health::Health;
use locks::Locks;
pub use locks::{Released, Renewed};
pub use lookout::Refencing;
use reads::Read;
pub use reasons::Standings;
pub use refencing::{Refenced, refence_now};
pub use start::QUERIES_MAX;
use upstreams::Upstreams;
pub use upstreams::{Admitted, Forward};
pub use watch::WATCHERS_MAX;
use watch::{OneLock, OneResource, Watches};
pub use writes::{PutBody, Write, WriteEffect, WriteFailure, WriteOutcome};
use writes::{Record, Writes};

/// Watches one lock.
pub type Watcher = watch::Watcher<OneLock>;
/// Watches one resource.
pub type ResourceWatcher = watch::Watcher<OneResource>;

/// Breaks are aimed at the token that holds when they arrive; if it changes meanwhile, again.
const BREAK_ATTEMPTS_MAX: u32 = 3;

/// Limits and times of an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a caller waits for the ledger or the mint.
    pub request_timeout: Duration,
    /// Items that may wait in each queue.
    pub queue_max: usize,
    /// How many may wait for one resource.
    pub waiters_max: usize,
    /// Items in one batch.
    pub batch_max: usize,
    /// Group committers side by side; one for a ledger with one writer.
    pub committers: usize,
    /// What the sweeper removes.
    pub retention: Retention,
    /// How often it does.
    pub sweep_interval: Duration,
    /// How long blobs stay that no object points at.
    pub blob_times: BlobTimes,
    /// How many uploads may be under way.
    pub uploads_max: usize,
    /// Who re-fences a ledger that may have lost commits; `None` for one whose files tell at start,
    /// and which is not looked after.
    pub refencing: Option<Refencing>,
    /// What this gateway has of the settings that all gateways of a ledger have alike, as [`agreement::terms`] tells
    /// them; empty where there is but one.
    pub terms: BTreeMap<String, String>,
    /// The upstreams whose guarantee is `drained`, so that a re-fence puts them in doubt. They are
    /// registered with the ledger before the engine starts.
    pub drained: Arc<[DrainedUpstream]>,
}

/// Which parts work.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The ledger, or why it does not.
    pub ledger: Result<(), String>,
    /// The mint, or why it does not. Without it only new grants stop.
    pub mint: Result<(), String>,
    /// The blob store, or why it does not. Without it only large objects cannot be written or read.
    pub blobs: Result<(), String>,
    /// The settings, or in what they differ from those that all gateways have agreed on.
    pub settings: Result<(), String>,
}

/// The engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    /// What lasts as long as the queries do that are asked through this handle.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    settings: Settings,
    grants: Grants,
    locks: Locks,
    writes: Writes,
    commits: Commits,
    reads: Batcher<Read>,
    upstreams: Upstreams,
    queries: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    blobs: blobs::Parts,
    looked: CancellationToken,
    give_back: GiveBack,
    watches: Watches<OneLock>,
    sights: Watches<OneResource>,
    feed: Feed,
    audit: Follow,
    rejections: Follow,
    health: OnceLock<Health>,
    agreement: Arc<Agreement>,
    started_at: Timestamp,
    closing: CancellationToken,
}

impl Engine {
    /// The same engine. What is given lasts until the last query has ended that was asked through this handle, whether
    /// its caller is still there or not.
    pub fn holding(&self, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { inner: Arc::clone(&self.inner), held: Some(held) }
    }

    /// Whether all gateways have agreed that a write must name its lock beside its token.
    pub fn requires_lock_id(&self) -> bool {
        self.inner.agreement.requires_lock_id()
    }

    /// Acquires a lock, waits for it, or says who holds it.
    #[tracing::instrument(level = "debug", skip_all, fields(resources = ?request.resources))]
    pub async fn acquire(&self, request: Acquire) -> Result<Acquired, EngineError> {
        if request.only_if_exists {
            self.all_exist(request.resources.clone()).await?;
        }
        let acquired = self.inner.grants.acquire(request).await?;
        self.poke_on(&acquired.grant.resources);
        Ok(acquired)
    }

    /// The answer to this fresh grant could not be written out. It is released: at once, or if the
    /// caller `proposed` the id, after 10 s, unless it was renewed or re-entered meanwhile.
    pub fn undelivered(&self, grant: &Grant, proposed: bool) {
        self.inner.give_back.undelivered(grant, proposed);
    }

    /// Watches a lock: tells its state now, and whenever it changes.
    ///
    /// # Errors
    /// `LockNotFound`; `Overloaded` with [`WATCHERS_MAX`] watchers.
    pub async fn watch(&self, id: LockId) -> Result<Watcher, EngineError> {
        let first = self.inner.watches.watch(id)?;
        match self.inner.runtime.within(self.inner.settings.request_timeout, first).await {
            Some(Some(watcher)) => Ok(watcher),
            // Unknown, or waiting in line.
            Some(None) => Err(self.lock(id).await.err().unwrap_or(EngineError::LockNotFound)),
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }

    /// Watches a resource: tells how it stands now, and whenever its face changes.
    ///
    /// # Errors
    /// `ResourceNotFound`; `Overloaded` with [`WATCHERS_MAX`] watchers.
    pub async fn watch_resource(&self, name: ResourceName) -> Result<ResourceWatcher, EngineError> {
        let first = self.inner.sights.watch(name)?;
        match self.inner.runtime.within(self.inner.settings.request_timeout, first).await {
            Some(Some(watcher)) => Ok(watcher),
            Some(None) => Err(EngineError::ResourceNotFound),
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }

    /// This gateway has done something to these resources, or to whoever held them.
    fn poke_on(&self, resources: &[ResourceName]) {
        self.inner.watches.poke_on(resources);
        self.inner.sights.poke_on(resources);
    }

    /// Starts the ttl of a lock again, also of one that has expired and that nobody took over.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn renew(&self, id: LockId, ttl: Option<Ttl>) -> Result<Renewed, EngineError> {
        let renewed = self.inner.locks.renew(id, ttl).await?;
        self.inner.watches.poke(&id);
        self.inner.sights.poke_on(&renewed.grant.resources);
        Ok(renewed)
    }

    /// Raises the fence of a resource without a lock of ours: every earlier token is stale from then
    /// on. The same id again gets the same answer while it is the last.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn fence(&self, request: Fence) -> Result<Acquired, EngineError> {
        let known = match self.lock(request.id).await {
            Ok(_) => true,
            Err(EngineError::LockNotFound) => false,
            Err(EngineError::LockWaiting { .. }) => return Err(EngineError::LockConflict),
            Err(error) => return Err(error),
        };
        let resource = request.resource.clone();
        let fenced = self.inner.grants.fence(request, known).await?;
        // Nobody holds it any more.
        self.inner.grants.waiting.line.wake(vec![resource.clone()]);
        self.poke_on(&[resource]);
        Ok(fenced)
    }

    /// Hands a lock over to a successor, with a new id and token.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn transfer(&self, request: Transfer) -> Result<Acquired, EngineError> {
        let from = self.lock(request.from).await?;
        let acquired = self.inner.grants.transfer(request, from).await?;
        self.poke_on(&acquired.grant.resources);
        Ok(acquired)
    }

    /// Gives a lock back; its token is refused from now on.
    ///
    /// # Errors
    /// `TooManyBurials` if no lock has this id, and too many such ids were released lately.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn release(&self, id: LockId) -> Result<Released, EngineError> {
        let released = self.inner.locks.release(id).await?;
        self.inner.watches.poke(&id);
        if let Released::Ended(resources) = &released {
            self.inner.sights.poke_on(resources);
        }
        Ok(released)
    }

    /// Fences the holder of a resource off, now or at the latest in `after`. Returns the resource as
    /// it stands then.
    #[tracing::instrument(level = "debug", skip_all, fields(%resource))]
    pub async fn break_lock(
        &self,
        resource: ResourceName,
        after: Duration,
        reason: String,
        request_id: String,
    ) -> Result<ResourceView, EngineError> {
        let unknown = |_| EngineError::OutcomeUnknown { operation: None };
        for _ in 0..BREAK_ATTEMPTS_MAX {
            // Aimed at the token that holds now: a break that runs late must hit nobody else.
            let view = self.resource(resource.clone()).await?;
            let token = view.token;
            let item = BreakItem {
                resource: resource.clone(),
                token,
                after,
                reason: reason.clone(),
                request_id: request_id.clone(),
            };
            if self.inner.locks.break_lock(item).await? {
                self.poke_on(std::slice::from_ref(&resource));
                return self.resource(resource).await.map_err(unknown);
            }
            if view.state == LockState::Released {
                return Ok(view);
            }
        }
        Err(EngineError::LedgerUnavailable("the lock changes hands too fast to be broken".into()))
    }

    /// Decides a write and applies it if it is admitted.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn write(&self, request: Write) -> Result<WriteOutcome, WriteFailure> {
        let record = Record {
            resource: &request.resource,
            key: request.effect.key(),
            token: request.token,
            request_id: &request.request_id,
        };
        self.refuse_known(&record, request.idempotency_key.as_deref(), true).await?;
        let resource = request.resource.clone();
        let outcome = self.inner.writes.write(request).await;
        if outcome.is_ok() {
            self.inner.feed.poke();
            self.inner.sights.poke_on([&resource]);
        }
        outcome
    }

    /// Waits until ledger and mint were held against each other once, or could not be.
    pub async fn looked_around(&self) {
        self.inner.looked.cancelled().await;
    }

    /// Finishes what is queued; the engine's tasks end then.
    pub fn shutdown(&self) {
        self.inner.closing.cancel();
    }

    /// Clock, ids and spawning.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }
}
