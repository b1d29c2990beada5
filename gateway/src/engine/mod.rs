//! The engine: grants, locks, writes and reads. It knows no HTTP, SQL or etcd.
//!
//! Every method may be dropped at any await: it only waits on channels, and what it started goes its
//! way regardless. Clock, ids and spawning come in from outside.

mod batcher;
mod deliveries;
mod epochs;
pub mod error;
mod granting;
mod grants;
mod line;
mod locks;
mod lookout;
pub mod metrics;
mod operators;
mod reads;
mod refencing;
mod rejections;
mod sweeper;
mod traces;
mod waiting;
mod watch;
mod writes;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    Applied, BreakItem, Grant, Ledger, LedgerError, LockRecord, Mint, Object, OperationRecord,
    Page, ReadItem, ReadVerdict, Rejection, RejectionFilter, ResourceView, Retention, Runtime,
};
use fence_core::{LockId, LockState, ObjectKey, OperationId, ResourceName, Ttl};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use batcher::{Batcher, Limits};
use deliveries::GiveBack;
use epochs::Epochs;
pub use error::EngineError;
use granting::Granting;
pub use grants::{Acquire, Acquired, Fence, Transfer};
use grants::{Grants, Look};
use line::Line;
pub use locks::Renewed;
use locks::{Break, Locks, Release, Renew};
use lookout::Lookout;
pub use lookout::Refencing;
use reads::Read;
pub use refencing::{Refenced, refence_now};
use rejections::Rejections;
use traces::Traces;
use waiting::{Join, Keep, Waiting};
use watch::Watches;
pub use watch::{WATCHERS_MAX, Watcher};
use writes::{Commit, Writes};
pub use writes::{Write, WriteEffect, WriteFailure, WriteOutcome};

/// Bytes in one batch of writes.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Lanes that may use the ledger at once.
const LANES_MAX: usize = 8;
/// Queries outside the queues that may use the ledger at once.
const QUERIES_MAX: usize = 6;
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
    /// Who re-fences a ledger that may have lost commits; `None` for one whose files tell at start,
    /// and which is not looked after.
    pub refencing: Option<Refencing>,
}

/// Which parts work.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The ledger, or why it does not.
    pub ledger: Result<(), String>,
    /// The mint, or why it does not. Without it only new grants stop.
    pub mint: Result<(), String>,
}

/// The engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    settings: Settings,
    grants: Grants,
    locks: Locks,
    writes: Writes,
    reads: Batcher<Read>,
    queries: Arc<Semaphore>,
    looked: CancellationToken,
    give_back: GiveBack,
    watches: Watches,
    closing: CancellationToken,
}

impl Engine {
    /// Starts the engine's tasks.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        mint: Arc<dyn Mint>,
        runtime: Runtime,
        settings: Settings,
    ) -> Self {
        let closing = CancellationToken::new();
        let limits = Limits {
            queue_max: settings.queue_max,
            batch_max: settings.batch_max,
            batch_bytes_max: BATCH_BYTES_MAX,
            timeout: settings.request_timeout,
        };
        let start = Starter {
            runtime: runtime.clone(),
            limits,
            lanes: Arc::new(Semaphore::new(LANES_MAX)),
            closing: closing.clone(),
        };
        let queries = Arc::new(Semaphore::new(QUERIES_MAX));
        let traces = Traces::default();
        let line = Line::start(Arc::clone(&ledger), Arc::clone(&mint), &runtime, &closing);
        let release = Release { ledger: Arc::clone(&ledger), line: Arc::clone(&line) };
        let releases = Arc::new(start.batcher(release));
        let give_back = GiveBack {
            releases: Arc::clone(&releases),
            traces: traces.clone(),
            runtime: runtime.clone(),
            closing: closing.clone(),
        };
        let epochs = Epochs::new(Arc::clone(&ledger), Arc::clone(&mint), runtime.clone());
        let epochs = Arc::new(epochs);
        let granting = || Granting {
            ledger: Arc::clone(&ledger),
            mint: Arc::clone(&mint),
            traces: traces.clone(),
            give_back: give_back.clone(),
            epochs: Arc::clone(&epochs),
        };
        let grants = Grants {
            looks: start.batcher(Look { ledger: Arc::clone(&ledger) }),
            reentries: start.limited(granting(), grants::BATCH_MAX),
            grants: start.limited(granting(), grants::BATCH_MAX),
            waiting: Waiting {
                keeps: Arc::new(start.batcher(Keep { line: Arc::clone(&line) })),
                queries: Arc::clone(&queries),
                joins: start.batcher(Join { ledger: Arc::clone(&ledger) }),
                line: Arc::clone(&line),
                ledger: Arc::clone(&ledger),
                releases: Arc::clone(&releases),
                runtime: runtime.clone(),
                request_timeout: settings.request_timeout,
                waiters_max: settings.waiters_max,
            },
            runtime: runtime.clone(),
        };
        let locks = Locks {
            renewals: start.batcher(Renew { ledger: Arc::clone(&ledger) }),
            releases: Arc::clone(&releases),
            breaks: start.batcher(Break { ledger: Arc::clone(&ledger), line }),
            traces,
        };
        let committer = |_| start.batcher(Commit { ledger: Arc::clone(&ledger) });
        let writes = Writes {
            committers: (0..settings.committers.max(1)).map(committer).collect(),
            rejections: Rejections::start(Arc::clone(&ledger), &runtime, closing.clone()),
            runtime: runtime.clone(),
        };
        let reads = start.batcher(Read { ledger: Arc::clone(&ledger) });
        sweeper::start(Arc::clone(&ledger), &runtime, &settings, closing.clone());
        let looked = CancellationToken::new();
        match settings.refencing {
            Some(refencing) => Lookout {
                ledger: Arc::clone(&ledger),
                mint: Arc::clone(&mint),
                epochs,
                runtime: runtime.clone(),
                refencing,
                last: None,
                said: None,
            }
            .start(looked.clone(), closing.clone()),
            None => looked.cancel(),
        }
        let retention = settings.retention.clone();
        let watches = Watches::new(Arc::clone(&ledger), &runtime, retention, closing.clone());
        let inner = Inner {
            ledger,
            mint,
            runtime,
            settings,
            grants,
            locks,
            writes,
            reads,
            queries,
            looked,
            give_back,
            watches,
            closing,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Acquires a lock, waits for it, or says who holds it.
    #[tracing::instrument(level = "debug", skip_all, fields(resources = ?request.resources))]
    pub async fn acquire(&self, request: Acquire) -> Result<Acquired, EngineError> {
        if request.only_if_exists {
            self.all_exist(request.resources.clone()).await?;
        }
        let acquired = self.inner.grants.acquire(request).await?;
        self.inner.watches.poke_holders(&acquired.grant.resources);
        Ok(acquired)
    }

    /// The answer to this grant was written out: all its bytes were handed to the system for sending.
    /// That the caller read it, nobody knows; an id that is seen again is the proof.
    ///
    /// From now on an infinite lock is infinite: its holder knows of it.
    pub fn delivered(&self, grant: &Grant) {
        if !grant.ttl.is_infinite() {
            return;
        }
        let (engine, id) = (self.clone(), grant.lock);
        let confirm = async move {
            if let Err(error) = engine.confirm(id).await {
                tracing::warn!(%error, "an infinite lock lasts a minute until it is renewed");
            }
        };
        self.inner.runtime.spawn.spawn("confirm", Box::pin(confirm));
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

    /// Starts the ttl of a lock again, also of one that has expired and that nobody took over.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn renew(&self, id: LockId, ttl: Option<Ttl>) -> Result<Renewed, EngineError> {
        let renewed = self.inner.locks.renew(id, ttl).await?;
        self.inner.watches.poke(id);
        Ok(renewed)
    }

    /// Once the answer to an infinite grant was written out: makes the lock last until it is released
    /// or broken. Other locks stay as they are. If it fails the lock expires unless its holder renews
    /// it, which is what would have become of it without an answer.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn confirm(&self, id: LockId) -> Result<(), EngineError> {
        if self.lock(id).await?.grant.ttl.is_infinite() {
            self.inner.locks.renew(id, None).await?;
        }
        Ok(())
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
        self.inner.watches.poke_holders(&[resource]);
        Ok(fenced)
    }

    /// Hands a lock over to a successor, with a new id and token.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn transfer(&self, request: Transfer) -> Result<Acquired, EngineError> {
        let from = self.lock(request.from).await?;
        let acquired = self.inner.grants.transfer(request, from).await?;
        self.inner.watches.poke_holders(&acquired.grant.resources);
        Ok(acquired)
    }

    /// Gives a lock back; its token is refused from now on.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn release(&self, id: LockId) -> Result<(), EngineError> {
        self.inner.locks.release(id).await?;
        self.inner.watches.poke(id);
        Ok(())
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
                self.inner.watches.poke_holders(std::slice::from_ref(&resource));
                return self.resource(resource).await.map_err(unknown);
            }
            if view.state == LockState::Released {
                return Ok(view);
            }
        }
        Err(EngineError::LedgerUnavailable("the lock changes hands too fast to be broken".into()))
    }

    /// A lock by its id.
    pub async fn lock(&self, id: LockId) -> Result<LockRecord, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let record = self.query(async move { ledger.lock(id).await }).await?;
        if let Some(record) = record {
            return Ok(record);
        }
        let ledger = Arc::clone(&self.inner.ledger);
        match self.query(async move { ledger.position(id).await }).await? {
            None => Err(EngineError::LockNotFound),
            position => Err(EngineError::LockWaiting { position }),
        }
    }

    /// A resource by its name.
    pub async fn resource(&self, name: ResourceName) -> Result<ResourceView, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let view = self.query(async move { ledger.resource(&name).await }).await?;
        view.ok_or(EngineError::ResourceNotFound)
    }

    /// Whether all of these resources were locked before; the first that was not is named. A fence
    /// never disappears, so this stays true.
    async fn all_exist(&self, names: Vec<ResourceName>) -> Result<(), EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        let missing = self.query(async move {
            for name in names {
                if ledger.resource(&name).await?.is_none() {
                    return Ok(Some(name));
                }
            }
            Ok(None)
        });
        missing.await?.map_or(Ok(()), |name| Err(EngineError::NeverLocked(name)))
    }

    /// Resources in byte order; with `held` only those whose lock has not been released.
    pub async fn resources(
        &self,
        page: Page,
        held: bool,
    ) -> Result<Vec<ResourceView>, EngineError> {
        let ledger = Arc::clone(&self.inner.ledger);
        self.query(async move { ledger.resources(page, held).await }).await
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

    /// Reads an object and the version of its resource.
    #[tracing::instrument(level = "debug", skip_all, fields(%resource))]
    pub async fn read(
        &self,
        resource: ResourceName,
        key: ObjectKey,
    ) -> Result<ReadVerdict, EngineError> {
        let verdict = self.inner.reads.submit(ReadItem { resource, key }).await;
        verdict.map_err(|failure| EngineError::unread(failure, "reads"))
    }

    /// Decides a write and applies it if it is admitted.
    #[tracing::instrument(level = "debug", skip_all, fields(resource = %request.resource))]
    pub async fn write(&self, request: Write) -> Result<WriteOutcome, WriteFailure> {
        self.inner.writes.write(request).await
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

    /// Which parts work, asked now.
    pub async fn readiness(&self) -> Readiness {
        let ledger = Arc::clone(&self.inner.ledger);
        let mint = Arc::clone(&self.inner.mint);
        // Not in line with other queries: readiness is asked for when they are stuck, too.
        let ledger = self.detached(None, async move { Ok(ledger.epoch().await?) });
        let mint = self.detached(None, async move { Ok(mint.head().await?) });
        let (ledger, mint) = futures::join!(ledger, mint);
        let text = |error: EngineError| error.to_string();
        let ledger = ledger.map_err(text);
        let mint = match (&ledger, mint) {
            (Ok(epoch), Ok(head)) if epoch.open && head.incarnation != Some(epoch.nonce) => {
                let other = Err("the mint is not the one that the ledger knows".into());
                head.check_owner(epoch.ledger).map_err(|error| error.to_string()).and(other)
            }
            (Ok(epoch), Ok(head)) => {
                head.check_owner(epoch.ledger).map_err(|error| error.to_string())
            }
            (Err(_), Ok(_)) => Ok(()),
            (_, Err(error)) => Err(error.to_string()),
        };
        Readiness { ledger: ledger.map(drop), mint }
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

    /// A query of the ledger outside the queues. Of callers that have gone by the time there is room,
    /// nothing is asked.
    async fn query<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, LedgerError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let queries = Arc::clone(&self.inner.queries);
        self.detached(Some(queries), async move { Ok(call.await?) }).await
    }

    /// Runs a call in a task of its own, so that a caller that hangs up interrupts nothing.
    async fn detached<T: Send + 'static>(
        &self,
        room: Option<Arc<Semaphore>>,
        call: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
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
        match self.inner.runtime.within(self.inner.settings.request_timeout, answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(EngineError::Defect("a query ended without an answer".into())),
            None => Err(EngineError::LedgerUnavailable("no answer in time".into())),
        }
    }
}

/// Starts batchers that share runtime, limits and end.
struct Starter {
    runtime: Runtime,
    limits: Limits,
    lanes: Arc<Semaphore>,
    closing: CancellationToken,
}

impl Starter {
    fn batcher<A: batcher::Act>(&self, act: A) -> Batcher<A> {
        self.limited(act, self.limits.batch_max)
    }

    fn limited<A: batcher::Act>(&self, act: A, batch_max: usize) -> Batcher<A> {
        let limits =
            Limits { batch_max: batch_max.min(self.limits.batch_max), ..self.limits.clone() };
        let lanes = Arc::clone(&self.lanes);
        Batcher::start(act, &self.runtime, limits, lanes, self.closing.clone())
    }
}
