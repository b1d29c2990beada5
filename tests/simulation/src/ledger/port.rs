//! The ledger as one gateway reaches it: the acts of the ledger in memory, over an edge that loses answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::memory::MemoryLedger;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{
    Applied, AuditEntry, AuditFilter, AuditTree, BlobId, BlobTimes, BreakItem, BreakVerdict,
    Bucket, Buckets, By, Call, ClockTrusted, CloseItem, CommitItem, CommitVerdict, Commits, Deaf,
    Doubt, DrainedUpstream, DroppedBucket, Epoch, EventCursor, EventsHead, EventsPage, Garbage,
    IdempotencyKey, InLine, Intent, IntentFilter, IntentItem, IntentVerdict, Intents, JoinItem,
    JoinVerdict, Ledger, LedgerError, Line, LinePage, Listener, LockRecord, Log, MadeBucket,
    MarkItem, MarkVerdict, Milestone, Object, OpenIntents, OperationRecord, Page, Pass, Passed,
    Patience, Place, Pointer, ReadItem, ReadVerdict, Refence, Rejection, RejectionFilter,
    ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, Resolution, Resolved, ResourceView,
    Retention, Rulebook, RulesChange, RulesChanged, RulesInForce, SealItem, SealVerdict, Settled,
    Standing, Start, Stock, Tidied, Totals, TreeGrowth, TreeHead, TreeTile, UploadItem,
    UploadVerdict, Uploads, VersionsFilter, Which, WriteItem, WriteVerdict,
};
use fence_core::{LockId, OperationId, PrincipalName, ResourceName};
use uuid::Uuid;

use super::{AskedWrite, LedgerServer, now};
use crate::network::{Link, NoAnswer};

type Answer<V> = Result<Vec<V>, LedgerError>;

fn key_of(key: Option<&IdempotencyKey>) -> Option<String> {
    key.map(|key| key.key.clone())
}

/// The ledger as one gateway reaches it.
pub struct SimulatedLedger {
    server: Arc<LedgerServer>,
    link: Link,
}

impl SimulatedLedger {
    /// Over this edge.
    pub fn new(server: Arc<LedgerServer>, link: Link) -> Self {
        Self { server, link }
    }

    async fn ask<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&LedgerServer, u32) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let server = Arc::clone(&self.server);
        let start = server.state().start;
        match self.link.ask(move || deed(&server, start)).await {
            Ok(answer) => answer,
            Err(NoAnswer::NotSent) => Err(LedgerError::Unavailable("no connection".into())),
            Err(NoAnswer::Lost) => Err(LedgerError::Unknown("the connection was cut".into())),
        }
    }

    /// An act: it carries the guard, and a lost answer leaves its outcome open.
    pub(super) async fn act<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&MemoryLedger) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.ask(move |server, start| server.act(start, true, deed)).await
    }

    /// A look: it may be asked again.
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&MemoryLedger) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        match self.ask(move |server, start| server.act(start, false, deed)).await {
            Err(LedgerError::Unknown(why)) => Err(LedgerError::Unavailable(why)),
            answer => answer,
        }
    }

    /// An act on several items, some of which may find their row locked by somebody else.
    async fn items<I: Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static>(
        &self,
        items: Arc<[I]>,
        patience: Patience,
        busy: V,
        deed: impl FnOnce(&MemoryLedger, Arc<[I]>) -> Answer<V> + Send + 'static,
    ) -> Answer<V> {
        let is_busy: Vec<bool> = items.iter().map(|_| self.link.is_busy()).collect();
        if patience != Patience::Skip && is_busy.contains(&true) {
            return Err(LedgerError::Unavailable("canceled: lock timeout".into()));
        }
        let free = items.iter().zip(&is_busy).filter(|(_, busy)| !**busy);
        let free: Arc<[I]> = free.map(|(item, _)| item.clone()).collect();
        let mut decided = self.act(move |memory| deed(memory, free)).await?.into_iter();
        let verdict = |is_busy: &bool| match is_busy {
            true => Some(busy.clone()),
            false => decided.next(),
        };
        Ok(is_busy.iter().map_while(verdict).collect())
    }
}

#[async_trait]
impl Ledger for SimulatedLedger {
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        patience: Patience,
    ) -> Answer<SealVerdict> {
        self.server.state().asked.locks.extend(items.iter().map(|item| item.lock));
        let deed = move |memory: &MemoryLedger, items| now(memory.seal(epoch, items, patience));
        self.items(items, patience, SealVerdict::Busy, deed).await
    }

    async fn renew(&self, items: Arc<[RenewItem]>, patience: Patience) -> Answer<RenewVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.renew(items, patience));
        self.items(items, patience, RenewVerdict::Busy, deed).await
    }

    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        patience: Patience,
    ) -> Answer<ReleaseVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.release(items, patience));
        self.items(items, patience, ReleaseVerdict::Busy, deed).await
    }

    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        patience: Patience,
    ) -> Answer<BreakVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.break_locks(items, patience));
        self.items(items, patience, BreakVerdict::Busy, deed).await
    }

    async fn mark(&self, items: Arc<[MarkItem]>, patience: Patience) -> Answer<MarkVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.mark(items, patience));
        self.items(items, patience, MarkVerdict::Busy, deed).await
    }

    async fn commit(&self, items: Arc<[WriteItem]>, patience: Patience) -> Answer<WriteVerdict> {
        for item in items.iter() {
            let write = AskedWrite {
                token: item.token,
                sequence: item.sequence,
                key: key_of(item.idempotency.as_ref()),
                effects: vec![(item.resource.clone(), item.effect.clone())],
            };
            self.server.note_write(item.operation, write);
        }
        let deed = move |memory: &MemoryLedger, items| now(memory.commit(items, patience));
        self.items(items, patience, WriteVerdict::Busy, deed).await
    }

    async fn read(&self, items: Arc<[ReadItem]>) -> Answer<ReadVerdict> {
        if mutants::is(Mutant::ReadsLag) {
            let server = Arc::clone(&self.server);
            return self.look_up(move |_| now(server.lagging().read(items))).await;
        }
        self.look_up(move |memory| now(memory.read(items))).await
    }

    async fn look(&self, resources: &[ResourceName]) -> Answer<Standing> {
        let resources = resources.to_vec();
        self.look_up(move |memory| now(memory.look(&resources))).await
    }

    async fn join(&self, items: Arc<[JoinItem]>, patience: Patience) -> Answer<JoinVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.join(items, patience));
        self.items(items, patience, JoinVerdict::Busy, deed).await
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        let locks = locks.to_vec();
        self.look_up(move |memory| now(memory.keep_places(gateway, &locks))).await
    }

    async fn roll_call(&self, gateway: Uuid) -> Answer<LockId> {
        self.look_up(move |memory| now(memory.roll_call(gateway))).await
    }

    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Answer<Call> {
        let resources = resources.to_vec();
        self.look_up(move |memory| now(memory.call_next(gateway, able, &resources))).await
    }

    async fn listen(&self, _: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        Ok(Box::new(Deaf))
    }

    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError> {
        let principal = principal.cloned();
        self.look_up(move |memory| now(memory.position(lock, principal.as_ref()))).await
    }

    async fn waiters(&self, resource: &ResourceName, page: LinePage) -> Answer<InLine> {
        let resource = resource.clone();
        self.look_up(move |memory| now(memory.waiters(&resource, page))).await
    }

    async fn locks(&self, ids: &[LockId]) -> Answer<Option<LockRecord>> {
        let ids = ids.to_vec();
        self.look_up(move |memory| now(memory.locks(&ids))).await
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        self.look_up(move |memory| now(memory.lock(id))).await
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        let name = name.clone();
        self.look_up(move |memory| now(memory.resource(&name))).await
    }

    async fn resources(&self, page: Page, which: Which) -> Answer<ResourceView> {
        self.look_up(move |memory| now(memory.resources(page, which))).await
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        self.look_up(move |memory| now(memory.totals())).await
    }

    async fn objects(&self, resource: &ResourceName, page: Page) -> Answer<Object> {
        let resource = resource.clone();
        self.look_up(move |memory| now(memory.objects(&resource, page))).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        self.look_up(move |memory| now(memory.operation(id))).await
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        let (resource, key) = (resource.clone(), key.to_owned());
        self.look_up(move |memory| now(memory.operation_by_key(&resource, &key))).await
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError> {
        let keys = keys.to_vec();
        self.look_up(move |memory| now(memory.known_keys(&keys))).await
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        let resource = resource.clone();
        self.look_up(move |memory| now(memory.versions(&resource, filter))).await
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        self.act(|memory| now(memory.number_events())).await
    }

    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError> {
        self.look_up(move |memory| now(memory.events(after, limit))).await
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        self.look_up(move |memory| now(memory.record_rejections(rejections))).await
    }

    async fn rejections(&self, filter: RejectionFilter) -> Answer<(i64, Rejection)> {
        self.look_up(move |memory| now(memory.rejections(filter))).await
    }

    async fn audit(&self, filter: AuditFilter) -> Answer<(i64, AuditEntry)> {
        self.look_up(move |memory| now(memory.audit(filter))).await
    }

    async fn settled(&self, log: Log, last: &Settled) -> Result<Settled, LedgerError> {
        let last = last.clone();
        self.look_up(move |memory| now(memory.settled(log, &last))).await
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        self.look_up(|memory| now(memory.epoch())).await
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        self.act(move |memory| now(memory.open_epoch(nonce))).await
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        let why = why.to_owned();
        self.act(move |memory| now(memory.switch_epoch(expected, nonce, above, &why))).await
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        self.ask(move |server, start| server.act(start, false, |_| server.refence(refence))).await
    }

    async fn place(&self, milestone: Option<Milestone>) -> Result<Place, LedgerError> {
        self.ask(move |server, start| server.act(start, false, |_| server.place(milestone))).await
    }

    async fn leave_milestone(&self, _: i64, _: bool) -> Result<Option<Milestone>, LedgerError> {
        self.ask(move |server, start| server.act(start, true, |_| Ok(server.leave_milestone())))
            .await
            .map(Some)
    }

    async fn confirm_start(&self, start: &Start) -> Result<bool, LedgerError> {
        let looked = start.clone();
        self.ask(move |server, start| server.act(start, false, |_| server.confirm_start(&looked)))
            .await
    }

    async fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError> {
        let why = why.to_owned();
        self.ask(move |server, start| server.act(start, false, |_| server.halt(line, &why))).await
    }

    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        let passed = passed.clone();
        self.act(move |memory| now(memory.pass_time(&passed))).await
    }

    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError> {
        let reason = reason.to_owned();
        self.act(move |memory| now(memory.trust_clock(&reason))).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        let retention = retention.clone();
        let sweep = move |server: &LedgerServer, start| {
            server.remember();
            server.act(start, true, |memory| now(memory.sweep(&retention)))
        };
        self.ask(sweep).await
    }
}

#[async_trait]
impl Rulebook for SimulatedLedger {
    async fn rules(&self) -> Result<RulesInForce, LedgerError> {
        self.look_up(|memory| now(memory.rules())).await
    }

    async fn rules_generation(&self) -> Result<i64, LedgerError> {
        self.look_up(|memory| now(memory.rules_generation())).await
    }

    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError> {
        self.act(move |memory| now(memory.apply_rules(change))).await
    }

    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError> {
        self.act(move |memory| now(memory.record_refused(entries))).await
    }

    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError> {
        {
            let of = of.to_vec();
            self.look_up(move |memory| now(memory.stocks(&of))).await
        }
    }
}

#[async_trait]
impl Buckets for SimulatedLedger {
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError> {
        let (name, by) = (name.to_owned(), by.clone());
        self.act(move |memory| now(memory.make_bucket(&name, depth, &by))).await
    }

    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError> {
        let (name, by) = (name.to_owned(), by.clone());
        self.act(move |memory| now(memory.drop_bucket(&name, &by))).await
    }

    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError> {
        self.look_up(|memory| now(memory.buckets())).await
    }
}

#[async_trait]
impl AuditTree for SimulatedLedger {
    async fn tree_head(&self) -> Result<TreeHead, LedgerError> {
        self.look_up(|memory| now(memory.tree_head())).await
    }

    async fn grow_tree(&self, growth: &TreeGrowth) -> Result<bool, LedgerError> {
        let growth = growth.clone();
        self.act(move |memory| now(memory.grow_tree(&growth))).await
    }

    async fn keep_witnessed(&self, note: &str) -> Result<(), LedgerError> {
        let note = note.to_owned();
        self.act(move |memory| now(memory.keep_witnessed(&note))).await
    }

    async fn tree_tiles(&self, from: i64, limit: i64) -> Result<Vec<TreeTile>, LedgerError> {
        self.look_up(move |memory| now(memory.tree_tiles(from, limit))).await
    }

    async fn tree_roots(&self) -> Result<Vec<[u8; 32]>, LedgerError> {
        self.look_up(|memory| now(memory.tree_roots())).await
    }

    async fn grants_let_go(&self) -> Result<i64, LedgerError> {
        self.look_up(|memory| now(memory.grants_let_go())).await
    }
}

#[async_trait]
impl Commits for SimulatedLedger {
    async fn commit_many(
        &self,
        item: CommitItem,
        patience: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let effects = item.steps.iter().map(|step| (step.resource.clone(), step.effect.clone()));
        let write = AskedWrite {
            token: item.token,
            sequence: item.sequence,
            key: key_of(item.idempotency.as_ref()),
            effects: effects.collect(),
        };
        self.server.note_write(item.operation, write);
        let deed = move |memory: &MemoryLedger, items: Arc<[CommitItem]>| {
            let one = |item: &CommitItem| now(memory.commit_many(item.clone(), patience));
            items.iter().map(one).collect()
        };
        let mut verdicts = self.items([item].into(), patience, CommitVerdict::Busy, deed).await?;
        verdicts.pop().ok_or_else(|| LedgerError::Defect("no verdict".into()))
    }
}

#[async_trait]
impl Uploads for SimulatedLedger {
    async fn begin_upload(&self, item: UploadItem) -> Result<UploadVerdict, LedgerError> {
        self.act(move |memory| now(memory.begin_upload(item))).await
    }

    async fn note_upload(&self, blob: BlobId, handle: &str) -> Result<bool, LedgerError> {
        let handle = handle.to_owned();
        self.act(move |memory| now(memory.note_upload(blob, &handle))).await
    }

    async fn tidy_blobs(
        &self,
        times: BlobTimes,
        limit: i64,
        hand_out: bool,
    ) -> Result<Tidied, LedgerError> {
        self.act(move |memory| now(memory.tidy_blobs(times, limit, hand_out))).await
    }

    async fn blobs_deleted(
        &self,
        garbage: &[Garbage],
        times: BlobTimes,
    ) -> Result<(), LedgerError> {
        let garbage = garbage.to_vec();
        self.act(move |memory| now(memory.blobs_deleted(&garbage, times))).await
    }

    async fn pin_blobs(&self, blobs: &[BlobId], keep: Duration) -> Result<(), LedgerError> {
        let blobs = blobs.to_vec();
        self.act(move |memory| now(memory.pin_blobs(&blobs, keep))).await
    }

    async fn may_delete(&self, horizon: Duration) -> Result<bool, LedgerError> {
        self.look_up(move |memory| now(memory.may_delete(horizon))).await
    }

    async fn known_blobs(&self, blobs: &[BlobId]) -> Result<Vec<bool>, LedgerError> {
        let blobs = blobs.to_vec();
        self.look_up(move |memory| now(memory.known_blobs(&blobs))).await
    }

    async fn pointers(
        &self,
        after: Option<BlobId>,
        limit: i64,
    ) -> Result<Vec<Pointer>, LedgerError> {
        self.look_up(move |memory| now(memory.pointers(after, limit))).await
    }

    async fn blob_store(&self) -> Result<Option<Uuid>, LedgerError> {
        self.look_up(|memory| now(memory.blob_store())).await
    }

    async fn bind_blob_store(&self, store: Uuid) -> Result<Uuid, LedgerError> {
        self.act(move |memory| now(memory.bind_blob_store(store))).await
    }
}

#[async_trait]
impl Intents for SimulatedLedger {
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError> {
        let upstreams = upstreams.to_vec();
        self.look_up(move |memory| now(memory.register_upstreams(&upstreams))).await
    }

    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        patience: Patience,
    ) -> Answer<IntentVerdict> {
        let deed = move |memory: &MemoryLedger, items| now(memory.open_intents(items, patience));
        self.items(items, patience, IntentVerdict::Busy, deed).await
    }

    async fn close_intents(&self, items: &[CloseItem]) -> Answer<ResourceName> {
        let items = items.to_vec();
        self.act(move |memory| now(memory.close_intents(&items))).await
    }

    async fn complete_drains(
        &self,
        gateway: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Answer<LockId> {
        let resources = resources.map(<[_]>::to_vec);
        self.act(move |memory| now(memory.complete_drains(gateway, resources.as_deref()))).await
    }

    async fn intents(&self, filter: IntentFilter) -> Answer<Intent> {
        self.look_up(move |memory| now(memory.intents(filter))).await
    }

    async fn intents_open(&self) -> Result<OpenIntents, LedgerError> {
        self.look_up(|memory| now(memory.intents_open())).await
    }

    async fn doubts(&self) -> Answer<Doubt> {
        self.look_up(|memory| now(memory.doubts())).await
    }

    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError> {
        self.act(move |memory| now(memory.resolve_intent(id, resolution))).await
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        let upstream = upstream.to_owned();
        self.act(move |memory| now(memory.resolve_doubts(&upstream, resolution))).await
    }
}
