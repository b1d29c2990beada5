//! The ledger on Postgres: each act is one call of one function of `schema/postgres/acts`.
//!
//! No transaction is ever held open from here, and no connection is shared: whoever takes a
//! session owns it until the server has answered, and a session whose answer did not come is closed.

#[macro_use]
pub mod acts;
mod agreed;
mod audit_tree;
mod buckets;
mod disasters;
mod events;
mod listing;
mod locks;
mod migrate;
mod multipart;
pub mod notices;
mod operators;
mod order;
mod own_time;
mod poolers;
mod queue;
mod reads;
mod records;
mod rulebook;
mod session;
mod uploads;
mod upstreams;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::ports::{
    Adopted, Adoption, Applied, Attempt, AuditEntry, AuditFilter, BreakItem, BreakVerdict, Call,
    ClockTrusted, Epoch, EventCursor, EventsHead, EventsPage, InLine, JoinItem, JoinVerdict,
    Ledger, LedgerError, Line, LinePage, Listener, LockRecord, Log, MarkItem, MarkVerdict,
    Milestone, Object, OperationRecord, Page, Pass, Passed, Patience, Place, ReadItem, ReadVerdict,
    Refence, Rejection, RejectionFilter, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict,
    ResourceView, Retention, SealItem, SealVerdict, Settled, Standing, Start, Totals,
    VersionsFilter, Which, WriteItem, WriteVerdict,
};
use fence_core::{LockId, OperationId, PrincipalName, ResourceName};
use uuid::Uuid;

pub use agreed::Change;
#[cfg(test)]
pub(in crate::ledger) use migrate::TABLES;
pub use migrate::{migrate, retire_older};
pub use order::{Disorder, Fall};
pub use session::{PgSettings, Sessions, Unusable};

/// The ledger on Postgres 14 or newer.
pub struct PgLedger {
    sessions: Sessions,
    keeps_versions: bool,
}

impl PgLedger {
    /// A ledger that connects when it is first used, and again whenever a connection is lost.
    pub fn new(settings: PgSettings) -> Self {
        Self { sessions: Sessions::new(settings), keeps_versions: false }
    }

    /// Keeps replaced versions whose bytes are in the ledger, too.
    pub fn keeping_versions(self, keeps_versions: bool) -> Self {
        Self { keeps_versions, ..self }
    }

    /// Connects once, so that a server that must not be used is refused at start.
    ///
    /// # Errors
    /// A server that cannot be used, or not now.
    pub async fn check(&self) -> Result<(), Unusable> {
        self.sessions.check().await
    }

    /// Whether this gateway may go on with the acts that it has.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn acts_standing(&self) -> Result<acts::Standing, LedgerError> {
        let mut session = self.sessions.take().await?;
        let answer = self.sessions.answer(acts::standing(&mut session.connection)).await;
        self.sessions.settle(session, answer)
    }
}

/// How long an act waits for locked rows, as the functions take it: 0 skips.
fn wait_ms(patience: Patience) -> i32 {
    match patience {
        Patience::Skip => 0,
        Patience::Wait(limit) => i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1),
    }
}

/// A column, or nothing where it has nothing but NULLs.
fn sparse<T>(column: Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    column.iter().any(Option::is_some).then_some(column)
}

/// How often an item may have been sent before, as the functions take it.
fn attempt(attempt: Attempt) -> i32 {
    match attempt {
        Attempt::First => 0,
        Attempt::Rerun => 1,
        Attempt::Bury => 2,
    }
}

#[async_trait]
impl Ledger for PgLedger {
    #[tracing::instrument(level = "debug", name = "ledger.seal", skip_all)]
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        patience: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        locks::seal(&self.sessions, epoch, &items, patience).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.renew", skip_all)]
    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        patience: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        locks::renew(&self.sessions, &items, patience).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.release", skip_all)]
    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        patience: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError> {
        locks::release(&self.sessions, &items, patience).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.break_locks", skip_all)]
    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        patience: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        locks::break_locks(&self.sessions, &items, patience).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.mark", skip_all)]
    async fn mark(
        &self,
        items: Arc<[MarkItem]>,
        patience: Patience,
    ) -> Result<Vec<MarkVerdict>, LedgerError> {
        operators::mark(&self.sessions, &items, patience).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.commit", skip_all)]
    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        patience: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError> {
        write::commit(&self.sessions, &items, patience, self.keeps_versions).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.read", skip_all)]
    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError> {
        reads::read(&self.sessions, &items).await
    }

    async fn look(&self, resources: &[ResourceName]) -> Result<Vec<Standing>, LedgerError> {
        queue::look(&self.sessions, resources).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.join", skip_all)]
    async fn join(
        &self,
        items: Arc<[JoinItem]>,
        patience: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError> {
        queue::join(&self.sessions, &items, patience).await
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        queue::keep_places(&self.sessions, gateway, locks).await
    }

    async fn roll_call(&self, gateway: Uuid) -> Result<Vec<LockId>, LedgerError> {
        queue::roll_call(&self.sessions, gateway).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.call_next", skip_all)]
    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError> {
        queue::call_next(&self.sessions, gateway, able, resources).await
    }

    async fn listen(&self, gateway: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        queue::listen(&self.sessions, gateway).await
    }

    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError> {
        queue::position(&self.sessions, lock, principal).await
    }

    async fn waiters(
        &self,
        resource: &ResourceName,
        page: LinePage,
    ) -> Result<Vec<InLine>, LedgerError> {
        queue::waiters(&self.sessions, resource, page).await
    }

    async fn locks(&self, ids: &[LockId]) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        reads::locks(&self.sessions, ids).await
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        Ok(reads::locks(&self.sessions, &[id]).await?.pop().flatten())
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        reads::resource(&self.sessions, name).await
    }

    async fn views(
        &self,
        names: &[ResourceName],
    ) -> Result<Vec<Option<ResourceView>>, LedgerError> {
        reads::views(&self.sessions, names).await
    }

    async fn resources(&self, page: Page, which: Which) -> Result<Vec<ResourceView>, LedgerError> {
        reads::resources(&self.sessions, &page, which).await
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        operators::totals(&self.sessions).await
    }

    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError> {
        reads::objects(&self.sessions, resource, &page).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        reads::operation(&self.sessions, id).await
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        reads::operation_by_key(&self.sessions, resource, key).await
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError> {
        reads::known_keys(&self.sessions, keys).await
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        events::versions(&self.sessions, resource, &filter).await
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        events::number(&self.sessions).await
    }

    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError> {
        events::events(&self.sessions, after, limit).await
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        reads::record_rejections(&self.sessions, &rejections).await
    }

    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError> {
        records::rejections(&self.sessions, &filter).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        operators::audit(&self.sessions, &filter).await
    }

    async fn settled(&self, log: Log, last: &Settled) -> Result<Settled, LedgerError> {
        records::settled(&self.sessions, log, last).await
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        locks::epoch(&self.sessions).await
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        locks::open_epoch(&self.sessions, nonce).await
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        disasters::switch_epoch(&self.sessions, expected, nonce, above, why).await
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        disasters::refence(&self.sessions, &refence).await
    }

    async fn place(&self, milestone: Option<Milestone>) -> Result<Place, LedgerError> {
        disasters::place(&self.sessions, milestone).await
    }

    async fn leave_milestone(
        &self,
        known: i64,
        last: bool,
    ) -> Result<Option<Milestone>, LedgerError> {
        disasters::leave_milestone(&self.sessions, known, last).await
    }

    async fn confirm_start(&self, start: &Start) -> Result<bool, LedgerError> {
        disasters::confirm_start(&self.sessions, start).await
    }

    async fn halt(&self, line: Line, why: &str) -> Result<(), LedgerError> {
        disasters::halt(&self.sessions, line, why).await
    }

    async fn adopt(&self, adoption: &Adoption) -> Result<Adopted, LedgerError> {
        disasters::adopt(&self.sessions, adoption).await
    }

    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        own_time::pass_time(&self.sessions, passed).await
    }

    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError> {
        own_time::trust_clock(&self.sessions, reason).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        locks::sweep(&self.sessions, retention).await
    }
}
