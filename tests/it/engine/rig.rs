//! The real engine on a scripted ledger and a mint in memory.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fencegate::engine::access::Permit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fence_core::memory::{MemoryLedger, MemoryMint};
use fence_core::ports::{
    Attempt, BlobTimes, Blobs, By, Grant, Ledger, LockRecord, Mint as _, MintItem, OperationRecord,
    Patience, Retention, Runtime, SealItem, SealKind, SealVerdict,
};
use fence_core::{LockId, LockState, Metadata, ObjectKey, OperationId, ResourceName, Token, Ttl};
use fence_tests::process::eventually;
use fence_tests::scripted::ScriptedLedger;
use fencegate::engine::{
    Acquire, Acquired, Engine, EngineError, PutBody, Refencing, Settings, Write, WriteEffect,
    WriteFailure, WriteOutcome,
};
use fencegate::runtime::runtime;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::setup::random_id;

/// The resource that most tests are about.
pub const R: &str = "r";

/// How long a caller waits. What is to be answered in time takes next to none of it.
pub const TIMEOUT: Duration = Duration::from_secs(1);

const LONG: Duration = Duration::from_secs(3600);

pub struct Rig {
    pub engine: Engine,
    pub ledger: Arc<ScriptedLedger>,
    pub mint: Arc<MemoryMint>,
}

impl Rig {
    pub fn new() -> Self {
        Self::on_blobs(None)
    }

    pub fn on_blobs(blobs: Option<Arc<dyn Blobs>>) -> Self {
        Self::sweeping(blobs, LONG)
    }

    pub fn sweeping(blobs: Option<Arc<dyn Blobs>>, sweep_interval: Duration) -> Self {
        Self::made_of(runtime(TaskTracker::new()), blobs, sweep_interval, None, LONG)
    }

    /// One that forgets a lock as soon as it has ended.
    pub fn forgetting_locks() -> Self {
        Self::made_of(runtime(TaskTracker::new()), None, LONG, None, Duration::ZERO)
    }

    /// One whose clocks, ids and tasks are the test's.
    pub fn on_runtime(runtime: Runtime) -> Self {
        Self::made_of(runtime, None, LONG, None, LONG)
    }

    /// One whose lookout runs, and leaves a re-fence to an operator.
    pub fn looked_after() -> Self {
        Self::made_of(runtime(TaskTracker::new()), None, LONG, Some(Refencing::Manual), LONG)
    }

    fn made_of(
        runtime: Runtime,
        blobs: Option<Arc<dyn Blobs>>,
        sweep_interval: Duration,
        refencing: Option<Refencing>,
        ended_locks: Duration,
    ) -> Self {
        let ledger = Arc::new(ScriptedLedger::new(Arc::clone(&runtime.clock)));
        let mint = Arc::new(MemoryMint::default());
        let waits = (sweep_interval, ended_locks);
        Self::started(runtime, (ledger, mint), blobs, refencing, waits)
    }

    /// A gateway that is started after this one on the same ledger and mint.
    pub fn next(&self) -> Self {
        let on = (Arc::clone(&self.ledger), Arc::clone(&self.mint));
        Self::started(runtime(TaskTracker::new()), on, None, None, (LONG, LONG))
    }

    fn started(
        runtime: Runtime,
        (ledger, mint): (Arc<ScriptedLedger>, Arc<MemoryMint>),
        blobs: Option<Arc<dyn Blobs>>,
        refencing: Option<Refencing>,
        (sweep_interval, ended_locks): (Duration, Duration),
    ) -> Self {
        let settings = Settings {
            request_timeout: TIMEOUT,
            queue_max: 100,
            waiters_max: 100,
            batch_max: 64,
            committers: 1,
            retention: Retention {
                keys: LONG,
                ended_locks,
                buried: LONG,
                history: None,
                rejections_max: 100,
                rows_per_pass: 100,
            },
            sweep_interval,
            blob_times: BlobTimes {
                upload: LONG,
                multipart: LONG,
                reader_grace: LONG,
                rollback_horizon: LONG,
                versions: Duration::ZERO,
                redelete: LONG,
            },
            uploads_max: 4,
            terms: Default::default(),
            refencing,
            audit_key: Some(fencegate::engine::AuditKey([7; 32])),
            audit_places: fencegate::engine::AuditPlaces::default(),
            s3_keys: None,
            drained: Arc::from([]),
        };
        let engine = Engine::new(ledger.clone(), mint.clone(), blobs, runtime, settings);
        Self { engine, ledger, mint }
    }

    /// The ledger as another gateway sees it: nothing is scripted there.
    pub fn memory(&self) -> Arc<MemoryLedger> {
        Arc::clone(&self.ledger.memory)
    }

    /// Acquires a lock.
    pub async fn acquire(
        &self,
        resource: &str,
        id: Option<LockId>,
    ) -> Result<Acquired, EngineError> {
        self.engine.acquire(Acquire { id, ..asking(resource) }).await
    }

    /// Acquires a lock that must be granted.
    pub async fn granted(&self, resource: &str) -> Grant {
        self.acquire(resource, None).await.unwrap().grant
    }

    /// Puts an object.
    pub async fn write(&self, resource: &str, token: Token) -> Result<WriteOutcome, WriteFailure> {
        self.engine.write(put(resource, token)).await
    }

    /// Breaks the lock of [`R`] now; the owner of the lock that is there afterwards.
    pub async fn break_lock(&self) -> Result<String, EngineError> {
        let (reason, request_id) = ("test".into(), "test-request".into());
        let view = self
            .engine
            .break_lock(name(R), Duration::ZERO, reason, request_id, Permit::default())
            .await?;
        Ok(view.owner)
    }

    /// A lock as the ledger knows it.
    pub async fn lock(&self, id: LockId) -> LockRecord {
        self.ledger.lock(id).await.unwrap().expect("the lock is known")
    }

    /// Waits until the lock of a resource is in this state.
    pub async fn until_state(&self, resource: &str, state: LockState) {
        eventually(&format!("{resource} is {state:?}"), async || {
            let view = self.ledger.resource(&name(resource)).await.unwrap()?;
            (view.state == state).then_some(())
        })
        .await;
    }

    /// Waits until something is known of an operation.
    pub async fn until_known(&self, id: OperationId) -> OperationRecord {
        let look = async || self.engine.operation(id).await.unwrap();
        eventually("the operation is known", look).await
    }
}

/// A wish for a lock of an hour.
pub fn asking(resource: &str) -> Acquire {
    Acquire {
        resources: vec![name(resource)],
        owner: "me".into(),
        ttl: Some(Ttl::from_ms(3_600_000)),
        max_hold: None,
        metadata: Metadata::default(),
        only_if_exists: false,
        id: None,
        wait: Duration::ZERO,
        permit: Permit::default(),
        writers: Vec::new(),
    }
}

/// Takes the next number from the mint, as a grant by somebody else would.
pub async fn next_number(mint: &MemoryMint) -> i64 {
    let nonce = mint.incarnation().await.unwrap().unwrap();
    let item = MintItem { resources: vec![name(R)], owner: "faster".into() };
    mint.mint(nonce, &[item], &[]).await.unwrap()[0]
}

pub fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).unwrap()
}

pub fn put(resource: &str, token: Token) -> Write {
    Write {
        resource: name(resource),
        token,
        lock: None,
        sequence: None,
        idempotency_key: None,
        key_kept: None,
        object_condition: None,
        resource_version: None,
        effect: WriteEffect::Put {
            about: None,
            key: ObjectKey::new("k").unwrap(),
            content_type: "text/plain".into(),
            body: PutBody::Inline(Bytes::from_static(b"x")),
        },
        request_id: "test".into(),
        permit: Permit::default(),
    }
}

/// Seals a free lock as another gateway does, on the ledger itself.
pub async fn seal_as(ledger: &MemoryLedger, owner: &str, number: i64, ttl_ms: i64) -> SealVerdict {
    let item = SealItem {
        kind: SealKind::Lock,
        lock: LockId(random_id()),
        resources: vec![name(R)],
        owner: owner.to_owned(),
        ttl: Some(Ttl::from_ms(ttl_ms)),
        max_hold: None,
        metadata: Metadata::default(),
        number: Some(number),
        attempt: Attempt::First,
        waits: None,
        by: By::default(),
        principal: None,
        writers: Vec::new(),
    };
    let epoch = ledger.epoch().await.unwrap().number;
    ledger.seal(epoch, [item].into(), Patience::Skip).await.unwrap().remove(0)
}

/// Waits until a gate was opened.
pub fn opened(gate: &Arc<Notify>) -> impl Future<Output = ()> + Send + use<> {
    let gate = Arc::clone(gate);
    async move { gate.notified().await }
}

/// A counter for hooks: 0, 1, ...
pub fn counter() -> (Arc<AtomicUsize>, impl FnMut() -> usize + Send + 'static) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    (calls, move || counted.fetch_add(1, Ordering::Relaxed))
}
