//! A ledger in memory: the acts on all rows, under one mutex.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::state::{MemoryLedger, limit};
use crate::acts::{self, Buried, Change, Guard, Rows};
use crate::lock::{LockId, OperationId};
use crate::mutants::{self, Mutant};
use crate::names::ResourceName;
use crate::ports::{
    Applied, AuditAction, AuditEntry, AuditFilter, BreakItem, BreakVerdict, Call, ClockTrusted,
    CommitItem, CommitVerdict, Commits, Deaf, Epoch, EventCursor, EventsHead, EventsPage, InLine,
    JoinItem, JoinVerdict, Ledger, LedgerError, Line, LinePage, Listener, LockRecord, Log,
    MarkItem, MarkVerdict, Milestone, Object, OperationRecord, Page, Pass, Passed, Patience,
    Payload, Place, ReadItem, ReadVerdict, Refence, Rejection, RejectionFilter, ReleaseItem,
    ReleaseVerdict, RenewItem, RenewVerdict, ResourceView, Retention, SealItem, SealVerdict,
    Settled, Span, Standing, Totals, VersionsFilter, Which, WriteItem, WriteVerdict, unknown_max,
};
use crate::principal::PrincipalName;

impl MemoryLedger {
    /// Changes the guard, knowing the highest token, and records why if that changed anything.
    fn change_guard(&self, entry: AuditEntry, act: impl FnOnce(&mut Guard, i64)) -> Epoch {
        let now = self.now();
        let state = &mut *self.state();
        let rows = &mut state.rows;
        let (before, highest) = (rows.guard.clone(), highest(rows));
        act(&mut rows.guard, highest);
        if rows.guard != before {
            rows.audited.push(entry);
        }
        if rows.guard.generation > before.generation {
            state.rewound.push((rows.guard.generation, count(&rows.written)));
            state.refenced_at = Some(rows.guard.time.stamp(now));
            acts::doubt(rows.upstreams.values_mut(), rows.guard.floor, now.wall);
        }
        epoch_of(rows)
    }
}

fn epoch_of(rows: &Rows) -> Epoch {
    rows.guard.as_epoch()
}

/// The highest token that was ever sealed.
fn highest(rows: &Rows) -> i64 {
    rows.fences.values().map(|fence| fence.token.get()).max().unwrap_or(0)
}

/// Whether a name belongs to a page.
fn on_page(name: &str, page: &Page) -> bool {
    name.starts_with(&page.prefix) && page.after.as_deref().is_none_or(|after| name > after)
}

/// An object, or the version of it that is asked for.
fn object_at(rows: &Rows, item: &ReadItem) -> Option<Object> {
    let current = rows.objects.get(&(item.resource.clone(), item.key.clone()));
    let Some(version) = item.version else { return current.map(|row| row.object.clone()) };
    let replaced = rows.replaced.iter().filter(|row| row.resource == item.resource);
    let replaced = replaced.map(|row| &row.object).filter(|object| object.key == item.key);
    let all = replaced.chain(current.map(|row| &row.object));
    // A version that a re-fence made possible twice: the newer one.
    let found = all.filter(|object| object.tag.version == version);
    found.max_by_key(|object| object.tag.generation).cloned()
}

fn is_in(number: i64, span: Span) -> bool {
    span.after < number && number <= span.upto
}

/// The number of the last event.
fn count(written: &[(OperationId, ResourceName)]) -> i64 {
    i64::try_from(written.len()).unwrap_or(i64::MAX)
}

fn last_event(rows: &Rows) -> EventCursor {
    EventCursor { generation: rows.guard.generation, number: count(&rows.written) }
}

#[async_trait]
impl Commits for MemoryLedger {
    async fn commit_many(
        &self,
        item: CommitItem,
        _: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let mut verdicts = self.act(&[item], acts::commit_many);
        verdicts.pop().ok_or_else(|| LedgerError::Defect("no verdict".into()))
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn seal(
        &self,
        epoch: i64,
        items: Arc<[SealItem]>,
        _: Patience,
    ) -> Result<Vec<SealVerdict>, LedgerError> {
        if self.state().rows.guard.epoch != epoch {
            return Err(LedgerError::EpochMoved);
        }
        Ok(self.act(&items, acts::seal))
    }

    async fn renew(
        &self,
        items: Arc<[RenewItem]>,
        _: Patience,
    ) -> Result<Vec<RenewVerdict>, LedgerError> {
        Ok(self.act(&items, acts::renew))
    }

    async fn release(
        &self,
        items: Arc<[ReleaseItem]>,
        _: Patience,
    ) -> Result<Vec<ReleaseVerdict>, LedgerError> {
        Ok(self.act(&items, acts::release))
    }

    async fn break_locks(
        &self,
        items: Arc<[BreakItem]>,
        _: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        Ok(self.act(&items, acts::break_lock))
    }

    async fn mark(
        &self,
        items: Arc<[MarkItem]>,
        _: Patience,
    ) -> Result<Vec<MarkVerdict>, LedgerError> {
        Ok(self.act(&items, acts::mark))
    }

    async fn commit(
        &self,
        items: Arc<[WriteItem]>,
        _: Patience,
    ) -> Result<Vec<WriteVerdict>, LedgerError> {
        if mutants::is(Mutant::BatchOnOldState) {
            return Ok(self.act_on_old_state(&items));
        }
        Ok(self.act(&items, acts::commit))
    }

    async fn read(&self, items: Arc<[ReadItem]>) -> Result<Vec<ReadVerdict>, LedgerError> {
        let state = self.state();
        let read = |item: &ReadItem| ReadVerdict {
            object: object_at(&state.rows, item),
            resource_version: state.rows.fences.get(&item.resource).map(|fence| fence.version),
        };
        Ok(items.iter().map(read).collect())
    }

    async fn look(&self, resources: &[ResourceName]) -> Result<Vec<Standing>, LedgerError> {
        let now = self.now();
        let state = self.state();
        let floor = state.rows.guard.floor;
        let standing = |name: &ResourceName| {
            let fence = state.rows.fences.get(name);
            let live = fence.filter(|fence| fence.is_held(now) && fence.token.get() > floor);
            Standing {
                holder: live.map(|fence| fence.holder(name, now)),
                queued: acts::is_ahead(&state.rows, std::slice::from_ref(name), None, now),
            }
        };
        Ok(resources.iter().map(standing).collect())
    }

    async fn join(
        &self,
        items: Arc<[JoinItem]>,
        _: Patience,
    ) -> Result<Vec<JoinVerdict>, LedgerError> {
        Ok(self.act(&items, acts::join))
    }

    async fn keep_places(&self, gateway: Uuid, locks: &[LockId]) -> Result<(), LedgerError> {
        let now = self.now();
        let queue = &mut self.state().rows.queue;
        locks.iter().for_each(|lock| queue.keep(*lock, gateway, now.elapsed_ms));
        Ok(())
    }

    async fn roll_call(&self, gateway: Uuid) -> Result<Vec<LockId>, LedgerError> {
        Ok(self.state().rows.queue.of_gateway(gateway))
    }

    async fn call_next(
        &self,
        gateway: Uuid,
        able: Option<bool>,
        resources: &[ResourceName],
    ) -> Result<Vec<Call>, LedgerError> {
        let now = self.now();
        let rows = &mut self.state().rows;
        if let Some(able) = able {
            rows.queue.beat(gateway, able, now.elapsed_ms);
        }
        Ok(acts::call_next(rows, resources, now))
    }

    async fn listen(&self, _: Uuid) -> Result<Box<dyn Listener>, LedgerError> {
        Ok(Box::new(Deaf))
    }

    async fn position(
        &self,
        lock: LockId,
        principal: Option<&PrincipalName>,
    ) -> Result<Option<i64>, LedgerError> {
        let position = self.state().rows.queue.position(lock, principal);
        Ok(position.and_then(|position| i64::try_from(position).ok()))
    }

    async fn waiters(
        &self,
        resource: &ResourceName,
        page: LinePage,
    ) -> Result<Vec<InLine>, LedgerError> {
        let now = self.now();
        Ok(self.state().rows.queue.in_line(resource, page, now.elapsed_ms))
    }

    async fn locks(&self, ids: &[LockId]) -> Result<Vec<Option<LockRecord>>, LedgerError> {
        let now = self.now();
        let state = self.state();
        Ok(ids.iter().map(|id| state.rows.lock_record(*id, now)).collect())
    }

    async fn lock(&self, id: LockId) -> Result<Option<LockRecord>, LedgerError> {
        Ok(self.state().rows.lock_record(id, self.now()))
    }

    async fn resource(&self, name: &ResourceName) -> Result<Option<ResourceView>, LedgerError> {
        let now = self.now();
        let rows = &self.state().rows;
        let view = |fence| rows.guard.view(name, fence, rows.queue.length(name), now);
        Ok(rows.fences.get(name).map(view))
    }

    async fn resources(&self, page: Page, which: Which) -> Result<Vec<ResourceView>, LedgerError> {
        let now = self.now();
        let state = self.state();
        let views = state.rows.fences.iter().filter(|(name, _)| on_page(name.as_str(), &page));
        Ok(views
            .map(|(name, fence)| {
                state.rows.guard.view(name, fence, state.rows.queue.length(name), now)
            })
            .filter(|view| which.has(view.state))
            .take(limit(page.limit))
            .collect())
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        let now = self.now();
        let rows = &self.state().rows;
        let held = rows.fences.values().filter(|fence| rows.guard.keeps_out(fence, now));
        let locks: BTreeSet<_> = held.map(|fence| fence.lock).collect();
        let frozen = rows.fences.values().filter(|fence| fence.frozen.is_some());
        Ok(Totals { locks_held: locks.len() as i64, frozen_resources: frozen.count() as i64 })
    }

    async fn objects(
        &self,
        resource: &ResourceName,
        page: Page,
    ) -> Result<Vec<Object>, LedgerError> {
        let state = self.state();
        let rows = state.rows.objects.iter().filter(|((name, _), _)| name == resource);
        Ok(rows
            .filter(|((_, key), _)| on_page(key.as_str(), &page))
            .map(|(_, row)| Object { payload: Payload::NONE, ..row.object.clone() })
            .take(limit(page.limit))
            .collect())
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, LedgerError> {
        let now = self.now();
        let state = self.state();
        let applied = state.rows.operations.get(&id).cloned().and_then(OperationRecord::of);
        let forwarded = || {
            state.rows.forwards.get(&id).map(|row| OperationRecord::Forwarded(row.record(id, now)))
        };
        let buried = || {
            state
                .rows
                .buried
                .contains_key(&Buried::Operation(id))
                .then_some(OperationRecord::Buried)
        };
        Ok(applied.or_else(forwarded).or_else(buried))
    }

    async fn operation_by_key(
        &self,
        resource: &ResourceName,
        key: &str,
    ) -> Result<Option<Applied>, LedgerError> {
        let state = self.state();
        let row = state.rows.keys.get(&(resource.clone(), key.to_owned()));
        Ok(row.and_then(|row| state.rows.operation(row.operation, resource).cloned()))
    }

    async fn known_keys(&self, keys: &[(ResourceName, String)]) -> Result<Vec<bool>, LedgerError> {
        let state = self.state();
        Ok(keys.iter().map(|key| state.rows.keys.contains_key(key)).collect())
    }

    async fn versions(
        &self,
        resource: &ResourceName,
        filter: VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        let state = self.state();
        let wanted = |applied: &&Applied| {
            applied.resource == *resource
                && applied.version.is_some()
                && filter.before.is_none_or(|before| applied.version < Some(before))
                && applied.version >= Some(filter.from)
                && applied.key.as_ref().is_none_or(|key| key.as_str().starts_with(&filter.prefix))
        };
        let mut found: Vec<_> =
            state.rows.operations.values().flatten().filter(wanted).cloned().collect();
        found.sort_by_key(|applied| std::cmp::Reverse(applied.version));
        found.truncate(limit(filter.limit));
        Ok(found)
    }

    async fn number_events(&self) -> Result<EventsHead, LedgerError> {
        Ok(EventsHead { last: last_event(&self.state().rows), whole: true })
    }

    async fn events(&self, after: EventCursor, most: i64) -> Result<EventsPage, LedgerError> {
        let state = self.state();
        let later = state.rewound.iter().filter(|(generation, _)| *generation > after.generation);
        let numbered = (1..).zip(&state.rows.written).skip(limit(after.number.max(state.gone)));
        let event = |(number, (id, resource)): (i64, &(OperationId, ResourceName))| {
            Some((number, state.rows.operation(*id, resource)?.clone()))
        };
        Ok(EventsPage {
            last: last_event(&state.rows),
            gone: state.gone,
            rewound: later.map(|(_, number)| *number).min(),
            events: numbered.filter_map(event).take(limit(most)).collect(),
        })
    }

    async fn record_rejections(&self, rejections: Arc<[Rejection]>) -> Result<(), LedgerError> {
        let mut state = self.state();
        for rejection in &Rejection::gathered(&rejections) {
            let before = state.rejections.iter_mut().find(|(_, one)| one.counts_with(rejection));
            if let Some((_, before)) = before {
                before.times += rejection.times;
                continue;
            }
            state.rejections_seen += 1;
            let number = state.rejections_seen;
            state.rejections.push_back((number, rejection.clone()));
        }
        Ok(())
    }

    async fn rejections(
        &self,
        filter: RejectionFilter,
    ) -> Result<Vec<(i64, Rejection)>, LedgerError> {
        let state = self.state();
        let wanted = |(number, rejection): &&(i64, Rejection)| {
            filter.before.is_none_or(|before| *number < before)
                && filter.between.is_none_or(|span| is_in(*number, span))
                && filter.resource.as_ref().is_none_or(|name| *name == rejection.resource)
                && filter.reason.as_ref().is_none_or(|reason| *reason == rejection.reason)
        };
        let mut found: Vec<_> = state.rejections.iter().filter(wanted).cloned().collect();
        if filter.between.is_none() {
            found.reverse();
        }
        found.truncate(limit(filter.limit));
        Ok(found)
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<(i64, AuditEntry)>, LedgerError> {
        let state = self.state();
        let wanted = |(number, entry): &(i64, &AuditEntry)| {
            filter.before.is_none_or(|before| *number < before)
                && filter.between.is_none_or(|span| is_in(*number, span))
                && filter.resource.as_ref().is_none_or(|name| entry.resource.as_ref() == Some(name))
                && filter.action.is_none_or(|action| action == entry.action)
        };
        // Of grants that were let go the audit has no copy.
        let is_kept = |(_, entry): &(i64, &AuditEntry)| state.keeps(entry);
        let entries = (1..).zip(&state.rows.audited).filter(wanted).filter(is_kept);
        let mut found: Vec<_> = entries.collect();
        if filter.between.is_none() {
            found.reverse();
        }
        let entry = |(number, entry): (i64, &AuditEntry)| (number, entry.clone());
        Ok(found.into_iter().take(limit(filter.limit)).map(entry).collect())
    }

    async fn settled(&self, log: Log, _: &Settled) -> Result<Settled, LedgerError> {
        let state = self.state();
        let last = match log {
            Log::Audit => i64::try_from(state.rows.audited.len()).unwrap_or(i64::MAX),
            Log::Rejections => state.rejections_seen,
        };
        Ok(Settled { upto: last, reached: last, writers: Vec::new() })
    }

    async fn epoch(&self) -> Result<Epoch, LedgerError> {
        Ok(epoch_of(&self.state().rows))
    }

    async fn open_epoch(&self, nonce: Uuid) -> Result<Epoch, LedgerError> {
        let mut state = self.state();
        let epoch = epoch_of(&state.rows);
        if !epoch.open && (epoch.nonce == nonce || state.rows.grants.is_empty()) {
            state.rows.guard.nonce = nonce;
            state.rows.guard.open = true;
        }
        Ok(epoch_of(&state.rows))
    }

    async fn switch_epoch(
        &self,
        expected: i64,
        nonce: Uuid,
        above: i64,
        why: &str,
    ) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Epoch, self.now().wall, why);
        Ok(self.change_guard(entry, |guard, highest| {
            acts::switch_epoch(guard, highest.max(above), expected, nonce);
        }))
    }

    async fn refence(&self, refence: Refence) -> Result<Epoch, LedgerError> {
        let entry = AuditEntry::because(AuditAction::Refence, self.now().wall, &refence.why);
        Ok(self.change_guard(entry, |guard, highest| acts::refence(guard, highest, &refence)))
    }

    async fn place(&self, _: Option<Milestone>) -> Result<Place, LedgerError> {
        let state = self.state();
        Ok(state.rows.guard.place(highest(&state.rows)))
    }

    /// A ledger in one process loses nothing but with the process.
    async fn halt(&self, _: Line, _: &str) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn pass_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        let now = self.now();
        let time = &mut self.state().rows.guard.time;
        time.go_on(passed);
        Ok(time.told(now))
    }

    async fn trust_clock(&self, reason: &str) -> Result<ClockTrusted, LedgerError> {
        let now = self.now();
        let rows = &mut self.state().rows;
        let (verdict, entry) = rows.guard.time.trust_clock(now, reason);
        rows.audited.extend(entry);
        Ok(verdict)
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, LedgerError> {
        let now = self.now();
        let mut state = self.state();
        let own = state.rows.guard.time.to_forget_by(now);
        let old = |at: Timestamp, keep: std::time::Duration| {
            at.checked_add(keep).is_ok_and(|until| until < own)
        };
        let due: Vec<ResourceName> = state.rows.fences.keys().cloned().collect();
        for name in &due {
            acts::sweep_break(&mut state.rows, name, now);
        }
        let is_fence = |change: &&Change| matches!(change, Change::Fence(_));
        let mut touched = state.rows.journal.iter().filter(is_fence).count();
        state.rows.journal.clear();
        let before = (state.rows.keys.len(), state.rows.locks.len(), state.rows.buried.len());
        state.rows.keys.retain(|_, row| match row.kept_until {
            Some(until) => until >= own,
            None => !old(row.at, retention.keys),
        });
        let ended =
            |end: Option<(_, Timestamp)>| end.is_some_and(|(_, at)| old(at, retention.ended_locks));
        state.rows.locks.retain(|_, row| !ended(row.ended));
        let mut forgets_operations = false;
        state.rows.buried.retain(|id, at| {
            let goes = old(*at, retention.buried);
            forgets_operations |= goes && matches!(id, Buried::Operation(_));
            !goes
        });
        if forgets_operations && let Ok(before) = own.checked_sub(retention.buried) {
            state.rows.guard.time.let_go(before);
        }
        let after = (state.rows.keys.len(), state.rows.locks.len(), state.rows.buried.len());
        touched += state.rows.queue.sweep(now.elapsed_ms);
        touched += acts::sweep_intents(&mut state.rows, now);
        let intents = state.rows.forwards.len();
        let closed = |row: &acts::ForwardRow| row.closed.as_ref().map(|(_, at)| *at);
        state
            .rows
            .forwards
            .retain(|_, row| !closed(row).is_some_and(|at| old(at, retention.intents())));
        touched += intents - state.rows.forwards.len();
        state.rows.journal.clear();
        touched += before.0 - after.0 + before.1 - after.1 + before.2 - after.2;
        let (counted, single): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.rejections)
            .into_iter()
            .partition(|(_, one)| one.minute().is_some());
        let unknown_max = unknown_max(retention.rejections_max);
        for (mut ring, max) in [(single, retention.rejections_max), (counted, unknown_max)] {
            let over = ring.len().saturating_sub(limit(max));
            ring.drain(..over);
            touched += over;
            state.rejections.extend(ring);
        }
        state.rejections.make_contiguous().sort_by_key(|(number, _)| *number);
        if let Some(before) = retention.history.and_then(|kept| own.checked_sub(kept).ok()) {
            touched += super::history::prune(&mut state, before, retention.rows_per_pass);
        }
        Ok(touched as u64)
    }
}
