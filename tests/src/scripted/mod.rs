//! A ledger in memory whose acts on locks and data go as a test says: answers get lost, rows stay
//! locked, calls are rolled back, and somebody else acts in between.

mod s3;
mod script;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fence_core::memory::MemoryLedger;
use fence_core::ports::{
    Applied, AuditEntry, AuditFilter, AuditTree, BlobId, BlobTimes, BreakItem, BreakVerdict,
    Bucket, Buckets, By, Call, Clock, ClockTrusted, CloseItem, CommitItem, CommitVerdict, Commits,
    Doubt, DrainedUpstream, DroppedBucket, Epoch, EventCursor, EventsHead, EventsPage, Garbage,
    InLine, Intent, IntentFilter, IntentItem, IntentVerdict, Intents, JoinItem, JoinVerdict,
    Ledger, LedgerError, Line, LinePage, Listener, LockRecord, Log, MadeBucket, MarkItem,
    MarkVerdict, Milestone, Object, OpenIntents, OperationRecord, Page, PartItem, PartVerdict,
    Pass, Passed, Patience, Place, Pointer, ReadItem, ReadVerdict, Refence, Rejection,
    RejectionFilter, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, Resolution, Resolved,
    ResourceView, Retention, Rulebook, RulesChange, RulesChanged, RulesInForce, SealItem,
    SealVerdict, Settled, Standing, Start, Stock, Tidied, Totals, TreeGrowth, TreeHead, TreeTile,
    UploadItem, UploadVerdict, Uploads, VersionsFilter, Which, WriteItem, WriteVerdict,
};
use fence_core::{LockId, OperationId, PrincipalName, ResourceName};
use futures::future::{BoxFuture, FutureExt as _};
use uuid::Uuid;

use script::Script;
pub use script::{Step, lost, rolled_back};

type Answer<V> = Result<Vec<V>, LedgerError>;
type OnPlace = Box<dyn FnMut(Option<Milestone>, Place) -> Place + Send>;

/// The scripted ledger. Each act asks its hook, if it has one, for every call; all else goes to the
/// ledger in memory.
pub struct ScriptedLedger {
    /// The ledger in memory: through it a test acts as another gateway, unscripted.
    pub memory: Arc<MemoryLedger>,
    seal: Script<SealItem, SealVerdict>,
    renew: Script<RenewItem, RenewVerdict>,
    release: Script<ReleaseItem, ReleaseVerdict>,
    breaks: Script<BreakItem, BreakVerdict>,
    marks: Script<MarkItem, MarkVerdict>,
    commit: Script<WriteItem, WriteVerdict>,
    opens: Script<IntentItem, IntentVerdict>,
    commits: Script<CommitItem, CommitVerdict>,
    parts: Script<PartItem, PartVerdict>,
    looks: Mutex<Vec<usize>>,
    on_look: Mutex<Box<dyn FnMut() + Send>>,
    before_tidying: Mutex<Option<BoxFuture<'static, ()>>>,
    on_sweep: Mutex<Box<dyn FnMut() -> u64 + Send>>,
    before_list: Mutex<Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>>,
    on_place: Mutex<OnPlace>,
    confirmed: Mutex<Vec<Start>>,
    halted: Mutex<Vec<String>>,
}

impl ScriptedLedger {
    /// An empty ledger without hooks.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            memory: Arc::new(MemoryLedger::new(clock, Uuid::new_v4())),
            seal: Script::default(),
            renew: Script::default(),
            release: Script::default(),
            breaks: Script::default(),
            marks: Script::default(),
            commit: Script::default(),
            opens: Script::default(),
            commits: Script::default(),
            parts: Script::default(),
            looks: Mutex::default(),
            on_look: Mutex::new(Box::new(|| ())),
            before_tidying: Mutex::default(),
            on_sweep: Mutex::new(Box::new(|| 0)),
            before_list: Mutex::new(Box::new(|| std::future::ready(()).boxed())),
            on_place: Mutex::new(Box::new(|_, place| place)),
            confirmed: Mutex::default(),
            halted: Mutex::default(),
        }
    }

    /// From now on, each pass of the sweeper finds so many rows more than there are.
    pub fn on_sweep(&self, hook: impl FnMut() -> u64 + Send + 'static) {
        *self.on_sweep.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(hook);
    }

    /// From now on, commits of many go as `hook` says; each call has one.
    pub fn on_commit_many(
        &self,
        hook: impl FnMut(&[CommitItem], Patience) -> Step<CommitVerdict> + Send + 'static,
    ) {
        self.commits.set(hook);
    }

    /// From now on, parts of uploads are stored as `hook` says; each call has one.
    pub fn on_put_part(
        &self,
        mut hook: impl FnMut(&PartItem) -> Step<PartVerdict> + Send + 'static,
    ) {
        self.parts.set(move |items, _| hook(&items[0]));
    }

    /// The next time that blobs are tidied, only once this has happened.
    pub fn tidy_after(&self, event: impl Future<Output = ()> + Send + 'static) {
        let event = Some(event.boxed());
        *self.before_tidying.lock().unwrap_or_else(PoisonError::into_inner) = event;
    }

    /// How many locks each call of [`Ledger::locks`] asked for, so far.
    pub fn looks(&self) -> Vec<usize> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, this happens before each [`Ledger::look`].
    pub fn on_look(&self, hook: impl FnMut() + Send + 'static) {
        *self.on_look.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(hook);
    }

    /// From now on, each list of resources waits for what `hook` gives.
    pub fn on_list(&self, hook: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static) {
        *self.before_list.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(hook);
    }

    /// From now on, the ledger stands where `hook` says, which is told the milestone that is asked for.
    pub fn on_place(&self, hook: impl FnMut(Option<Milestone>, Place) -> Place + Send + 'static) {
        *self.on_place.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(hook);
    }

    /// The starts that were confirmed so far.
    pub fn confirmed(&self) -> Vec<Start> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The reasons for which it was halted so far.
    pub fn halted(&self) -> Vec<String> {
        self.halted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, seals go as `hook` says.
    pub fn on_seal(
        &self,
        hook: impl FnMut(&[SealItem], Patience) -> Step<SealVerdict> + Send + 'static,
    ) {
        self.seal.set(hook);
    }

    /// From now on, renewals go as `hook` says.
    pub fn on_renew(
        &self,
        hook: impl FnMut(&[RenewItem], Patience) -> Step<RenewVerdict> + Send + 'static,
    ) {
        self.renew.set(hook);
    }

    /// From now on, releases go as `hook` says.
    pub fn on_release(
        &self,
        hook: impl FnMut(&[ReleaseItem], Patience) -> Step<ReleaseVerdict> + Send + 'static,
    ) {
        self.release.set(hook);
    }

    /// From now on, breaks go as `hook` says.
    pub fn on_break(
        &self,
        hook: impl FnMut(&[BreakItem], Patience) -> Step<BreakVerdict> + Send + 'static,
    ) {
        self.breaks.set(hook);
    }

    /// From now on, marks go as `hook` says.
    pub fn on_mark(
        &self,
        hook: impl FnMut(&[MarkItem], Patience) -> Step<MarkVerdict> + Send + 'static,
    ) {
        self.marks.set(hook);
    }

    /// From now on, writes go as `hook` says.
    pub fn on_commit(
        &self,
        hook: impl FnMut(&[WriteItem], Patience) -> Step<WriteVerdict> + Send + 'static,
    ) {
        self.commit.set(hook);
    }

    /// From now on, intents are opened as `hook` says.
    pub fn on_open(
        &self,
        hook: impl FnMut(&[IntentItem], Patience) -> Step<IntentVerdict> + Send + 'static,
    ) {
        self.opens.set(hook);
    }
}

#[async_trait]
impl Rulebook for ScriptedLedger {
    async fn rules(&self) -> Result<RulesInForce, LedgerError> {
        self.memory.rules().await
    }

    async fn rules_generation(&self) -> Result<i64, LedgerError> {
        self.memory.rules_generation().await
    }

    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError> {
        self.memory.apply_rules(change).await
    }

    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError> {
        self.memory.record_refused(entries).await
    }

    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError> {
        self.memory.stocks(of).await
    }
}

#[async_trait]
impl AuditTree for ScriptedLedger {
    async fn tree_head(&self) -> Result<TreeHead, LedgerError> {
        self.memory.tree_head().await
    }

    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError> {
        self.memory.grow_tree(growth).await
    }

    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError> {
        self.memory.keep_witnessed(note).await
    }

    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError> {
        self.memory.tree_tiles(from, limit).await
    }

    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError> {
        self.memory.tree_roots().await
    }

    async fn grants_let_go(&self) -> Result<i64, LedgerError> {
        self.memory.grants_let_go().await
    }
}

#[async_trait]
impl Intents for ScriptedLedger {
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError> {
        self.memory.register_upstreams(upstreams).await
    }

    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        patience: Patience,
    ) -> Answer<IntentVerdict> {
        self.opens.run(items, patience, |items| self.memory.open_intents(items, patience)).await
    }

    async fn close_intents(&self, items: &[CloseItem]) -> Answer<ResourceName> {
        self.memory.close_intents(items).await
    }

    async fn complete_drains(
        &self,
        gateway: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Answer<LockId> {
        self.memory.complete_drains(gateway, resources).await
    }

    async fn intents(&self, filter: IntentFilter) -> Answer<Intent> {
        self.memory.intents(filter).await
    }

    async fn intents_open(&self) -> Result<OpenIntents, LedgerError> {
        self.memory.intents_open().await
    }

    async fn doubts(&self) -> Answer<Doubt> {
        self.memory.doubts().await
    }

    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError> {
        self.memory.resolve_intent(id, resolution).await
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        self.memory.resolve_doubts(upstream, resolution).await
    }
}

#[async_trait]
impl Ledger for ScriptedLedger {
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        patience: Patience,
    ) -> Answer<SealVerdict> {
        self.seal.run(items, patience, |items| self.memory.seal(epoch, items, patience)).await
    }

    async fn renew(&self, items: Arc<[RenewItem]>, patience: Patience) -> Answer<RenewVerdict> {
        self.renew.run(items, patience, |items| self.memory.renew(items, patience)).await
    }

    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        patience: Patience,
    ) -> Answer<ReleaseVerdict> {
        self.release.run(items, patience, |items| self.memory.release(items, patience)).await
    }

    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        patience: Patience,
    ) -> Answer<BreakVerdict> {
        self.breaks.run(items, patience, |items| self.memory.break_locks(items, patience)).await
    }

    async fn mark(&self, items: Arc<[MarkItem]>, patience: Patience) -> Answer<MarkVerdict> {
        self.marks.run(items, patience, |items| self.memory.mark(items, patience)).await
    }

    async fn commit(&self, items: Arc<[WriteItem]>, patience: Patience) -> Answer<WriteVerdict> {
        self.commit.run(items, patience, |items| self.memory.commit(items, patience)).await
    }

    async fn read(&self, items: Arc<[ReadItem]>) -> Answer<ReadVerdict> {
        self.memory.read(items).await
    }

    async fn look(&self, resources: &[ResourceName]) -> Answer<Standing> {
        (self.on_look.lock().unwrap_or_else(PoisonError::into_inner))();
        self.memory.look(resources).await
    }

    async fn join(&self, items: Arc<[JoinItem]>, patience: Patience) -> Answer<JoinVerdict> {
        self.memory.join(items, patience).await
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        self.memory.keep_places(gateway, locks).await
    }

    async fn roll_call(&self, gateway: Uuid) -> Answer<LockId> {
        self.memory.roll_call(gateway).await
    }

    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Answer<Call> {
        self.memory.call_next(gateway, able, resources).await
    }

    async fn listen(&self, gateway: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        self.memory.listen(gateway).await
    }

    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError> {
        self.memory.position(lock, principal).await
    }

    async fn waiters(&self, resource: &ResourceName, page: LinePage) -> Answer<InLine> {
        self.memory.waiters(resource, page).await
    }

    async fn locks(&self, ids: &[LockId]) -> Answer<Option<LockRecord>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).push(ids.len());
        self.memory.locks(ids).await
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        self.memory.lock(id).await
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        self.memory.resource(name).await
    }

    async fn resources(&self, page: Page, which: Which) -> Answer<ResourceView> {
        let before = self.before_list.lock().unwrap_or_else(PoisonError::into_inner)();
        before.await;
        self.memory.resources(page, which).await
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        self.memory.totals().await
    }

    async fn objects(&self, resource: &ResourceName, page: Page) -> Answer<Object> {
        self.memory.objects(resource, page).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        self.memory.operation(id).await
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        self.memory.operation_by_key(resource, key).await
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Answer<bool> {
        self.memory.known_keys(keys).await
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        self.memory.versions(resource, filter).await
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        self.memory.number_events().await
    }

    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError> {
        self.memory.events(after, limit).await
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        self.memory.record_rejections(rejections).await
    }

    async fn rejections(&self, filter: RejectionFilter) -> Answer<(i64, Rejection)> {
        self.memory.rejections(filter).await
    }

    async fn audit(&self, filter: AuditFilter) -> Answer<(i64, AuditEntry)> {
        self.memory.audit(filter).await
    }

    async fn settled(&self, log: Log, last: &Settled) -> Result<Settled, LedgerError> {
        self.memory.settled(log, last).await
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        self.memory.epoch().await
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        self.memory.open_epoch(nonce).await
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        self.memory.switch_epoch(expected, nonce, above, why).await
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        self.memory.refence(refence).await
    }

    async fn place(&self, milestone: Option<Milestone>) -> Result<Place, LedgerError> {
        let place = self.memory.place(milestone).await?;
        Ok(self.on_place.lock().unwrap_or_else(PoisonError::into_inner)(milestone, place))
    }

    async fn confirm_start(&self, start: &Start) -> Result<bool, LedgerError> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner).push(start.clone());
        Ok(true)
    }

    async fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError> {
        self.halted.lock().unwrap_or_else(PoisonError::into_inner).push(why.to_owned());
        self.memory.halt(line, why).await
    }

    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        self.memory.pass_time(passed).await
    }

    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError> {
        self.memory.trust_clock(reason).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        let more = (self.on_sweep.lock().unwrap_or_else(PoisonError::into_inner))();
        Ok(self.memory.sweep(retention).await? + more)
    }
}

#[async_trait]
impl Commits for ScriptedLedger {
    async fn commit_many(
        &self,
        item: CommitItem,
        patience: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let memory = &self.memory;
        let act = async |items: Arc<[CommitItem]>| {
            let mut verdicts = Vec::new();
            for item in items.iter() {
                verdicts.push(memory.commit_many(item.clone(), patience).await?);
            }
            Ok(verdicts)
        };
        let mut verdicts = self.commits.run([item].into(), patience, act).await?;
        Ok(verdicts.remove(0))
    }
}

#[async_trait]
impl Uploads for ScriptedLedger {
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError> {
        self.memory.begin_upload(item).await
    }

    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError> {
        self.memory.note_upload(blob, handle).await
    }

    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError> {
        let before = self.before_tidying.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            before.await;
        }
        self.memory.tidy_blobs(times, limit, hand_out).await
    }

    async fn blobs_deleted(
        &self,
        garbage: &[Garbage],
        times: BlobTimes,
    ) -> Result<(), LedgerError> {
        self.memory.blobs_deleted(garbage, times).await
    }

    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError> {
        self.memory.pin_blobs(blobs, keep).await
    }

    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError> {
        self.memory.may_delete(horizon).await
    }

    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError> {
        self.memory.known_blobs(blobs).await
    }

    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError> {
        self.memory.pointers(after, limit).await
    }

    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError> {
        self.memory.blob_store().await
    }

    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError> {
        self.memory.bind_blob_store(store).await
    }
}

#[async_trait]
impl Buckets for ScriptedLedger {
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError> {
        self.memory.make_bucket(name, depth, by).await
    }

    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError> {
        self.memory.drop_bucket(name, by).await
    }

    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError> {
        self.memory.buckets().await
    }
}
