//! The ledger: fences, locks, versions, small payloads, history. The one truth.
//!
//! Every act takes a batch and gives a verdict per item, in order. Items on one resource in one
//! batch are decided one after the other, each seeing the effects of those before it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::act::{LedgerError, Patience};
use super::audit_tree::AuditTree;
use super::buckets::Buckets;
use super::commits::Commits;
use super::disasters::{Adopted, Adoption, Epoch, Line, Milestone, Place, Refence, Start};
use super::events::{EventCursor, EventsHead, EventsPage, VersionsFilter};
use super::listing::Listing;
use super::locks::{
    BreakItem, BreakVerdict, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, SealItem,
    SealVerdict,
};
use super::multipart::Multiparts;
use super::operators::{AuditEntry, AuditFilter, MarkItem, MarkVerdict};
use super::own_time::{ClockTrusted, Pass, Passed};
use super::queue::{Call, InLine, JoinItem, JoinVerdict, LinePage, Listener, Standing};
use super::records::{Log, Settled};
use super::rulebook::Rulebook;
use super::uploads::Uploads;
use super::upstreams::Intents;
use super::views::{
    LockRecord, Object, OperationRecord, Page, ReadItem, ReadVerdict, Rejection, RejectionFilter,
    ResourceView, Totals, Which,
};
use super::writes::{Applied, WriteItem, WriteVerdict};
use crate::lock::{LockId, OperationId};
use crate::names::ResourceName;
use crate::principal::PrincipalName;

/// How much to keep, and how much to tidy in one pass.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Idempotency keys whose writers did not say how long.
    pub keys: Duration,
    /// Locks that have ended.
    pub ended_locks: Duration,
    /// Buried ids: longer than a lost statement can be on its way.
    pub buried: Duration,
    /// Operations and grants that newer ones of their resource followed, and events; `None`: for ever.
    pub history: Option<Duration>,
    /// The number of rejections.
    pub rejections_max: i64,
    /// Rows removed in one pass, of each kind.
    pub rows_per_pass: i64,
}

impl Retention {
    /// How long intents are kept that were closed: whoever may still send the key of a request may ask
    /// what came of it, and none may be opened again by a statement that comes late.
    pub fn intents(&self) -> Duration {
        self.keys.max(self.buried)
    }
}

/// The ledger. See the module for what a batch means.
#[async_trait]
pub trait Ledger:
    Uploads + Multiparts + Listing + Commits + Intents + Rulebook + AuditTree + Buckets
{
    /// Raises fences to newly minted tokens and records their holders, for each lock on all of its
    /// resources or on none. A resource appears at most once in a batch.
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        patience: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError>;

    /// Starts the ttl of locks again.
    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        patience: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError>;

    /// Ends locks at their holders' wish. An unknown id is buried, so that a grant still on its
    /// way under that id can never be sealed.
    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        patience: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError>;

    /// Ends locks at an operator's wish.
    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        patience: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError>;

    /// Freezes and protects resources at an operator's wish, or lifts that.
    async fn mark(
        &self,
        items: Arc<[MarkItem]>,
        patience: Patience,
    ) -> Result<Vec<MarkVerdict>, LedgerError>;

    /// Decides and applies writes.
    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        patience: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError>;

    /// Reads objects, all from one snapshot that begins after the call.
    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError>;

    /// Who holds each resource, and whether somebody waits for it.
    async fn look(&self, resources: &[ResourceName]) -> Result<Vec<Standing>, LedgerError>;

    /// Puts callers into the queue, each for all of its resources.
    async fn join(
        &self,
        items: Arc<[JoinItem]>,
        patience: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError>;

    /// Keeps the places of waiters whose callers are gone for a while, as far as `gateway` serves
    /// them.
    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError>;

    /// The waiters whose callers wait at `gateway`, as far as the ledger knows.
    async fn roll_call(&self, gateway: Uuid) -> Result<Vec<LockId>, LedgerError>;

    /// Calls whoever is next for each of these resources, and lets other gateways hear of it. With
    /// `able` it is a heartbeat of `gateway` as well, which says whether it can have numbers minted.
    ///
    /// A statement of its own, after the act that freed something: telling other gateways is slow.
    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError>;

    /// Hears of the calls that other gateways make.
    async fn listen(&self, gateway: Uuid) -> Result<Box<dyn Listener>, LedgerError>;

    /// How many are ahead of a waiter, and itself; `None` if the id does not wait, or for another principal.
    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError>;

    /// Who is in line for a resource, in order.
    async fn waiters(
        &self,
        resource: &ResourceName,
        page: LinePage,
    ) -> Result<Vec<InLine>, LedgerError>;

    /// Locks by their ids, in their order, all from one snapshot; `None` for one that is unknown.
    async fn locks(&self, ids: &[LockId]) -> Result<Vec<Option<LockRecord>>, LedgerError>;

    /// A lock by its id.
    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError>;

    /// A resource by its name; `None` if it was never locked.
    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError>;

    /// Resources by their names, in their order; `None` for one that was never locked.
    async fn views(
        &self,
        names: &[ResourceName],
    ) -> Result<Vec<Option<ResourceView>>, LedgerError> {
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            views.push(self.resource(name).await?);
        }
        Ok(views)
    }

    /// Resources in byte order, those of one kind.
    async fn resources(&self, page: Page, which: Which) -> Result<Vec<ResourceView>, LedgerError>;

    /// How many locks are held and how many resources are frozen. Reads every lock that was not released, those that have
    /// expired among them, but no resource that is free.
    async fn totals(&self) -> Result<Totals, LedgerError>;

    /// Objects of a resource in byte order, without their bytes.
    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError>;

    /// What became of a write; `None` if the ledger holds no trace of it.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError>;

    /// The write that used an idempotency key; of a commit, what it did to this resource.
    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError>;

    /// Which of these idempotency keys took effect on their resources.
    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError>;

    /// The writes of a resource that have a version, newest first.
    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError>;

    /// Numbers what was committed since the last time, one step at a time whichever gateway asks, and
    /// tells how far that has come. Numbers rise without gaps in the order in which they become
    /// visible, and within a resource in the order of versions; a delete of nothing has none.
    async fn number_events(&self) -> Result<EventsHead, LedgerError>;

    /// At most so many of the events that have numbers, behind this place.
    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError>;

    /// Keeps refused writes for the operator.
    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError>;

    /// Refused writes, newest first unless they are followed, each with its number.
    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError>;

    /// What was done to locks and resources, newest first unless it is followed, each with its number.
    async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, LedgerError>;

    /// How far a record can be followed, knowing what was said of that before.
    async fn settled(&self, log: Log, last: &Settled) -> Result<Settled, LedgerError>;

    /// The current epoch.
    async fn epoch(&self) -> Result<Epoch, LedgerError>;

    /// Records that the mint carries `nonce`, in place of the nonce of an epoch that was not open
    /// yet and under which nothing was sealed. Returns the epoch as it stands then.
    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError>;

    /// Begins a new epoch in place of `expected`, not open yet, with a base above every token that
    /// was ever sealed and no lower than `above`: the mint has lost its place. Seals under way come
    /// before it or fail after it; writes go on. If the epoch is another one already, nothing changes.
    /// Returns the epoch as it stands then.
    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError>;

    /// Takes the ledger as it is now, after it may have lost commits: all tokens that may ever have
    /// been sealed are void from here on, the generation rises, and a new epoch begins. If nothing
    /// calls for it (any more) and it is not forced, nothing changes. Returns the epoch as it
    /// stands then.
    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError>;

    /// Where the ledger stands, also while it must be re-fenced, and whether it has this milestone.
    async fn place(&self, milestone: Option<Milestone>) -> Result<Place, LedgerError>;

    /// Leaves a milestone unless another gateway left one a moment ago or nothing was committed since the newest one; the
    /// `last` one of a gateway is always left. Returns the newest milestone above number `known`, the one that the mint
    /// knows, 0 for none. A ledger of one process needs none.
    async fn leave_milestone(
        &self,
        known: i64,
        last: bool,
    ) -> Result<Option<Milestone>, LedgerError> {
        let _ = (known, last);
        Ok(None)
    }

    /// Takes note that a server that was started anew has lost nothing: it has the newest milestone that the mint knows.
    /// `false`, and nothing changes, if it has not, or is not the one that was looked at.
    async fn confirm_start(&self, start: &Start) -> Result<bool, LedgerError> {
        let _ = start;
        Ok(false)
    }

    /// Refuses all acts until a re-fence, if the ledger is still on this line.
    async fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError>;

    /// Goes on, with all that it holds, on a new timeline that is proven to have lost nothing of the one before. A
    /// ledger without timelines has nothing to adopt.
    async fn adopt(&self, adoption: &Adoption) -> Result<Adopted, LedgerError> {
        let _ = adoption;
        Ok(Adopted::Unproven("this ledger has no timelines".into()))
    }

    /// Has the ledger's own time go on, by which [`sweep`](Self::sweep) forgets.
    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError>;

    /// Sets the own time by the ledger's clock, if that is ahead, at an operator's word that it is right. The audit has the
    /// reason, from when and to when.
    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError>;

    /// Removes what has been kept long enough by the ledger's own time and stores breaks that have come due. Returns the
    /// number of rows touched.
    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError>;
}
