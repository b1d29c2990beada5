//! The ledger on SQLite: one writer, the acts of fence-core on the rows that a batch touches.
//!
//! An act is one `BEGIN IMMEDIATE`: nobody else writes between its first read and its commit. Rows are loaded,
//! the acts run on them in memory, and what they changed is stored. A failed `COMMIT` leaves open whether it
//! took effect: the answer is unknown, and the connection is opened anew. After an input/output error no
//! connection is opened any more: the ledger stops, see [`disk`].

mod audit;
mod audit_tree;
mod buckets;
mod bulk;
mod columns;
mod copy;
mod disasters;
mod disk;
mod events;
mod file;
mod history;
mod listing;
mod load;
mod multipart;
mod needs;
mod open;
mod own_time;
mod queue;
mod reads;
mod records;
mod root;
mod rulebook;
mod store;
mod tables;
mod uploads;
mod upstreams;
mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use fence_core::acts::{self, Guard};
use fence_core::ports::{
    Applied, AuditAction, AuditEntry, AuditFilter, BreakItem, BreakVerdict, Call, ClockTrusted,
    CommitItem, CommitVerdict, Commits, Deaf, Epoch, EventCursor, EventsHead, EventsPage, InLine,
    JoinItem, JoinVerdict, Ledger, LedgerError, Line, LinePage, Listener, LockRecord, Log,
    MarkItem, MarkVerdict, Milestone, Object, OperationRecord, Page, Pass, Passed, Patience, Place,
    ReadItem, ReadVerdict, Refence, Rejection, RejectionFilter, ReleaseItem, ReleaseVerdict,
    RenewItem, RenewVerdict, ResourceView, Retention, SealItem, SealVerdict, Settled, Standing,
    Totals, VersionsFilter, Which, WriteItem, WriteVerdict,
};
use fence_core::{LockId, OperationId, PrincipalName, ResourceName};
use uuid::Uuid;

pub use file::SqliteLedger;
pub use open::OpenError;
#[cfg(test)]
pub(in crate::ledger) use open::TABLES;

use file::{SQLITE_IOERR, code, elapsed_ms, rolled_back};
use needs::Needs;

#[async_trait]
impl Commits for SqliteLedger {
    #[tracing::instrument(level = "debug", name = "ledger.commit_many", skip_all)]
    async fn commit_many(
        &self,
        item: CommitItem,
        _: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let needs = Needs::of_commit(&item);
        self.act(needs, |rows, now| Ok(acts::commit_many(rows, &item, now))).await
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    #[tracing::instrument(level = "debug", name = "ledger.seal", skip_all)]
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        _: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        self.act(Needs::of_seals(&items), |rows, now| {
            if rows.guard.epoch != epoch {
                return Err(LedgerError::EpochMoved);
            }
            Ok(items.iter().map(|item| acts::seal(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.renew", skip_all)]
    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        _: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        let needs = Needs::of_locks(items.iter().map(|item| item.lock));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::renew(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.release", skip_all)]
    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        _: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError> {
        let needs = Needs::of_locks(items.iter().map(|item| item.lock));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::release(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.break_locks", skip_all)]
    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        _: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        let needs = Needs::of_resources(items.iter().map(|item| item.resource.clone()));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::break_lock(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.mark", skip_all)]
    async fn mark(
        &self,
        items: Arc<[MarkItem]>,
        _: Patience,
    ) -> Result<Vec<MarkVerdict>, LedgerError> {
        let needs = Needs::of_resources(items.iter().map(|item| item.resource.clone()));
        self.act(needs, |rows, now| {
            Ok(items.iter().map(|item| acts::mark(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.commit", skip_all)]
    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        _: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError> {
        self.act(Needs::of_writes(&items), |rows, now| {
            Ok(items.iter().map(|item| acts::commit(rows, item, now)).collect())
        })
        .await
    }

    #[tracing::instrument(level = "debug", name = "ledger.read", skip_all)]
    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError> {
        self.read_objects(&items).await
    }

    async fn look(&self, resources: &[ResourceName]) -> Result<Vec<Standing>, LedgerError> {
        self.read_standings(resources).await
    }

    #[tracing::instrument(level = "debug", name = "ledger.join", skip_all)]
    async fn join(
        &self,
        items: Arc<[JoinItem]>,
        _: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError> {
        self.act(Needs::of_joins(&items), |rows, now| {
            Ok(items.iter().map(|item| acts::join(rows, item, now)).collect())
        })
        .await
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        let now_ms = self.now().elapsed_ms;
        let mut waiting = self.waiting();
        locks.iter().for_each(|lock| waiting.keep(*lock, gateway, now_ms));
        Ok(())
    }

    async fn roll_call(&self, gateway: Uuid) -> Result<Vec<LockId>, LedgerError> {
        Ok(self.waiting().of_gateway(gateway))
    }

    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError> {
        self.call_waiters(gateway, able, resources).await
    }

    async fn listen(&self, _: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        Ok(Box::new(Deaf))
    }

    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError> {
        let position = self.waiting().position(lock, principal);
        Ok(position.and_then(|position| i64::try_from(position).ok()))
    }

    async fn waiters(
        &self,
        resource: &ResourceName,
        page: LinePage,
    ) -> Result<Vec<InLine>, LedgerError> {
        Ok(self.waiting().in_line(resource, page, self.now().elapsed_ms))
    }

    async fn locks(&self, ids: &[LockId]) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        self.read_locks(ids).await
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        Ok(self.read_locks(&[id]).await?.pop().flatten())
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        self.read_resource(name).await
    }

    async fn views(
        &self,
        names: &[ResourceName],
    ) -> Result<Vec<Option<ResourceView>>, LedgerError> {
        self.read_views(names).await
    }

    async fn resources(&self, page: Page, which: Which) -> Result<Vec<ResourceView>, LedgerError> {
        self.list_resources(&page, which).await
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        self.count_totals().await
    }

    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError> {
        self.list_objects(resource, &page).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        self.read_operation(id).await
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        self.read_operation_by_key(resource, key).await
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError> {
        self.read_known_keys(keys).await
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        self.list_versions(resource, &filter).await
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        self.events_head().await
    }

    async fn events(&self, after: EventCursor, limit: i64) -> Result<EventsPage, LedgerError> {
        self.list_events(after, limit).await
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let kept = store::rejections(connection, &rejections).await;
        kept.map_err(|error| self.unwritten(error))
    }

    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError> {
        self.list_rejections(&filter).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        self.list_audit(&filter).await
    }

    async fn settled(&self, log: Log, last: &Settled) -> Result<Settled, LedgerError> {
        self.read_settled(log, last).await
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        self.read_epoch().await
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        let mut writer = self.writer.lock().await;
        sqlx::query(
            "UPDATE guard SET nonce = ?1, open = 1
             WHERE NOT open AND (nonce = ?1 OR NOT EXISTS (SELECT 1 FROM grants))",
        )
        .bind(nonce.to_string())
        .execute(self.connected(&mut writer).await?)
        .await
        .map_err(|error| self.unwritten(error))?;
        drop(writer);
        self.read_epoch().await
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Epoch, self.now().wall, why);
        let act = |guard: &mut Guard, highest: i64| {
            acts::switch_epoch(guard, highest.max(above), expected, nonce)
        };
        self.change_guard(entry, act).await
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Refence, self.now().wall, &refence.why);
        let act = |guard: &mut Guard, highest| acts::refence(guard, highest, &refence);
        self.change_guard(entry, act).await
    }

    async fn place(&self, _: Option<Milestone>) -> Result<Place, LedgerError> {
        let highest = self.highest_token().await?;
        let guard = self.with_reader(async |reader| load::guard(reader).await).await?;
        Ok(guard.place(highest))
    }

    /// What this process has committed, it does not lose; copies are told by their marks.
    async fn halt(&self, _: Line, _: &str) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        self.pass_own_time(passed).await
    }

    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError> {
        self.set_own_time_by_clock(reason).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        let now = self.now();
        let due = self.breaks_due(now, retention.rows_per_pass).await?;
        let mut touched = due.len() as u64;
        if !due.is_empty() {
            let needs = Needs::of_resources(due.iter().cloned());
            self.act(needs, |rows, now| {
                due.iter().for_each(|resource| acts::sweep_break(rows, resource, now));
                Ok(())
            })
            .await?;
        }
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let unwritten = |error| self.unwritten(error);
        let own = load::guard(&mut *connection).await?.time.to_forget_by(now);
        touched += store::prune(connection, retention, own).await.map_err(unwritten)?;
        let swept = upstreams::sweep(connection, retention, (now, own)).await;
        touched += swept.map_err(unwritten)?;
        self.fold_long_log(connection).await;
        touched += self.waiting().sweep(now.elapsed_ms) as u64;
        Ok(touched)
    }
}
