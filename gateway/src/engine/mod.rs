//! The engine: grants, locks, writes and reads. It knows no HTTP, SQL or etcd.
//!
//! Every method may be dropped at any await: it only waits on channels, and what it started goes its
//! way regardless. Clock, ids and spawning come in from outside.
//!
//! What a folder holds stands in its `mod.rs`. Folders import only from those to the left:
//! `batch`, `access`, `data`, `disasters`, `locks`, `upstreams`; and `views` from `data`.

pub mod access;
pub mod agreement;
mod batch;
mod data;
mod disasters;
pub mod error;
mod locks;
pub mod metrics;
mod own_time;
mod sweeper;
mod trials;
mod upstreams;
mod views;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fence_core::ResourceName;
use fence_core::ports::{BlobTimes, Blobs, DrainedUpstream, Ledger, Log, Mint, Retention, Runtime};
use fencegate_s3::key::Keys;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use access::Access;
use agreement::Agreement;
use batch::{Act, Batcher, Limits};
pub use data::{
    AuditKey, AuditPlaces, COMMIT_STEPS_MAX, CommitFailure, CommitHead, CommitOutcome, Content,
    EventReader, EventsFrom, Exported, Fetched, Followed, Follower, InParts, Inclusion, PutBody,
    READERS_MAX, RecordFrom, Scrub, ScrubProgress, ScrubReport, Sealed, Standing, Step,
    StepOutcome, Upload, UploadHead, Uploaded, Wanted, Write, WriteEffect, WriteFailure,
    WriteOutcome, audit_page, hashed, new_s3_key, store_standing, upload_halves,
};
use data::{BlobParts, Buckets, Commits, Feed, Follow, LockHolders, Read, Refusals, Writes};
use disasters::{Epochs, Lookout};
pub use disasters::{Refenced, Refencing, refence_now};
pub use error::EngineError;
use locks::Locks;
pub use locks::{
    Acquire, Acquired, Fence, Released, Renewed, ResourceWatcher, Transfer, WATCHERS_MAX, Watcher,
};
use trials::Trials;
use upstreams::Upstreams;
pub use upstreams::{Admitted, Forward, count_forward};
use views::Health;
pub use views::{About, More, Readiness, Standings};

/// Bytes in one batch of writes.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Lists and the like, outside the queues, that may use the ledger at once.
pub const QUERIES_MAX: usize = 6;
/// What operators do, and looks at one lock or one resource, that may use the ledger at once: they must not stand behind
/// lists.
const CALLS_MAX: usize = 4;

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
    /// What checkpoints of the audit are signed with; they are not without.
    pub audit_key: Option<AuditKey>,
    /// Where they are kept outside of the ledger.
    pub audit_places: AuditPlaces,
    /// What keys of S3 are made and read with; none where S3 is off.
    pub s3_keys: Option<Arc<Keys>>,
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
    locks: Locks,
    writes: Writes,
    commits: Commits,
    reads: Batcher<Read>,
    blobs: BlobParts,
    buckets: Buckets,
    feed: Feed,
    audit: Follow,
    rejections: Follow,
    upstreams: Upstreams,
    queries: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    looked: CancellationToken,
    can_write: Arc<Trials>,
    can_grant: Arc<Trials>,
    health: OnceLock<Health>,
    agreement: Arc<Agreement>,
    access: Access,
    lock_holders: LockHolders,
    own_time: own_time::OwnTime,
    started_at: Timestamp,
    closing: CancellationToken,
}

/// What every part of the engine is started with.
struct Base {
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    settings: Settings,
    writes: Arc<Trials>,
    grants: Arc<Trials>,
    closing: CancellationToken,
}

impl Base {
    fn batcher<A: Act>(&self, act: A) -> Batcher<A> {
        self.limited(act, self.settings.batch_max)
    }

    /// A batcher whose batches have at most so many items.
    fn limited<A: Act>(&self, act: A, batch_max: usize) -> Batcher<A> {
        let limits = Limits {
            queue_max: self.settings.queue_max,
            batch_max: batch_max.min(self.settings.batch_max),
            batch_bytes_max: BATCH_BYTES_MAX,
            timeout: self.settings.request_timeout,
        };
        let writes = Arc::clone(&self.writes);
        Batcher::start(act, &self.runtime, limits, writes, self.closing.clone())
    }
}

impl Engine {
    /// Starts the engine: its queues, and the tasks that look after themselves.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        mint: Arc<dyn Mint>,
        blobs: Option<Arc<dyn Blobs>>,
        runtime: Runtime,
        settings: Settings,
    ) -> Self {
        let closing = CancellationToken::new();
        let writes = Trials::new("write", &runtime.clock);
        let grants = Trials::new("grant", &runtime.clock);
        let base = Base { ledger, mint, runtime, settings, writes, grants, closing };
        let Base { ledger, mint, runtime, settings, closing, .. } = &base;
        let queries = Arc::new(Semaphore::new(QUERIES_MAX));
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let agreement =
            Agreement::new(settings.retention.clone(), settings.blob_times, settings.terms.clone());
        let agreement = Arc::new(agreement);
        let access = Access::start(&base);
        let own_time = own_time::start(&base);
        let refusals = Refusals::new(runtime);
        let epochs = Epochs::new(Arc::clone(ledger), Arc::clone(mint), runtime.clone());
        let epochs = Arc::new(epochs);
        let locks = Locks::start(&base, &epochs, &refusals, &agreement, &calls);
        let writes = Writes::start(&base, Arc::clone(&refusals), own_time.clone());
        let commits = Commits::start(&base);
        let reads = base.batcher(Read { ledger: Arc::clone(ledger) });
        let upstreams = Upstreams::start(&base, locks.drains());
        let sweeping = sweeper::Sweeping {
            ledger: Arc::clone(ledger),
            agreement: Arc::clone(&agreement),
            interval: settings.sweep_interval,
            drains: locks.drains(),
        };
        sweeping.start(runtime, closing.clone());
        data::start_audit_tree(&base);
        data::start_audit_keep(&base);
        let blobs = BlobParts::start(&base, blobs, &agreement);
        let buckets = Buckets::start(&base);
        let looked = CancellationToken::new();
        Lookout::start(&base, epochs, refusals, Arc::clone(&agreement), looked.clone());
        let feed = Feed::start(Arc::clone(ledger), runtime, closing.clone());
        let follow = |log| Follow::new(log, Arc::clone(ledger), runtime, closing.clone());
        let (audit, rejections) = (follow(Log::Audit), follow(Log::Rejections));
        let Base { ledger, mint, runtime, settings, writes: can_write, grants: can_grant, closing } =
            base;
        let inner = Inner {
            ledger,
            mint,
            started_at: runtime.clock.now(),
            runtime,
            settings,
            locks,
            writes,
            commits,
            reads,
            blobs,
            buckets,
            feed,
            audit,
            rejections,
            upstreams,
            queries,
            calls,
            looked,
            can_write,
            can_grant,
            health: OnceLock::new(),
            agreement,
            access,
            lock_holders: LockHolders::default(),
            own_time,
            closing,
        };
        Self { inner: Arc::new(inner), held: None }
    }

    /// The same engine. What is given lasts until the last query has ended that was asked through this handle, whether
    /// its caller is still there or not.
    pub fn holding(&self, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { inner: Arc::clone(&self.inner), held: Some(held) }
    }

    /// Whether all gateways have agreed that a write must name its lock beside its token.
    pub fn requires_lock_id(&self) -> bool {
        self.inner.agreement.requires_lock_id()
    }

    /// This gateway has written to these resources.
    fn poke_written<'a>(&self, resources: impl IntoIterator<Item = &'a ResourceName>) {
        self.inner.feed.poke();
        self.inner.locks.poke_written(resources);
    }

    /// Waits until ledger and mint were compared once, or could not be.
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
