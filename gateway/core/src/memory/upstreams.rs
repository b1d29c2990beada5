//! What the ledger in memory knows of upstreams.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::MemoryLedger;
use super::state::limit;
use crate::acts;
use crate::lock::{LockId, OperationId};
use crate::names::ResourceName;
use crate::ports::{
    CloseItem, Doubt, DrainedUpstream, Intent, IntentFilter, IntentItem, IntentVerdict, Intents,
    LedgerError, OpenIntents, Patience, Resolution, Resolved,
};
use crate::rule::Hold;

#[async_trait]
impl Intents for MemoryLedger {
    async fn register_upstreams(&self, upstreams: &[DrainedUpstream]) -> Result<(), LedgerError> {
        self.act(upstreams, acts::register);
        Ok(())
    }

    async fn open_intents(
        &self,
        items: Arc<[IntentItem]>,
        _: Patience,
    ) -> Result<Vec<IntentVerdict>, LedgerError> {
        Ok(self.act(&items, acts::open_intent))
    }

    async fn close_intents(&self, items: &[CloseItem]) -> Result<Vec<ResourceName>, LedgerError> {
        let closed = self.act(items, acts::close_intent);
        Ok(closed.into_iter().flatten().collect())
    }

    async fn complete_drains(
        &self,
        _: Uuid,
        resources: Option<&[ResourceName]>,
    ) -> Result<Vec<LockId>, LedgerError> {
        let every = || {
            let state = self.state();
            let draining = state.rows.fences.iter().filter(|(_, f)| f.hold == Hold::Draining);
            draining.map(|(name, _)| name.clone()).collect()
        };
        let names: Vec<ResourceName> = resources.map_or_else(every, <[_]>::to_vec);
        Ok(self.act(&[names], |rows, names, now| acts::complete_drains(rows, names, now)).concat())
    }

    async fn intents(&self, filter: IntentFilter) -> Result<Vec<Intent>, LedgerError> {
        let now = self.now();
        let state = self.state();
        let open = state.rows.forwards.iter().filter(|(_, row)| row.is_open(now));
        let wanted = |one: &Intent| {
            filter.upstream.as_ref().is_none_or(|name| *name == one.upstream)
                && filter.resource.as_ref().is_none_or(|name| *name == one.resource)
                && filter.after.is_none_or(|after| (one.opened_at, one.operation) > after)
        };
        let mut found: Vec<Intent> =
            open.map(|(id, row)| row.show(*id, now)).filter(wanted).collect();
        found.sort_by_key(|one| (one.opened_at, one.operation));
        found.truncate(limit(filter.limit));
        Ok(found)
    }

    async fn intents_open(&self) -> Result<OpenIntents, LedgerError> {
        let now = self.now();
        let state = self.state();
        let open = state.rows.forwards.values().filter(|row| row.is_open(now));
        let ages: Vec<i64> = open.map(|row| row.age_ms(now)).collect();
        Ok(OpenIntents {
            count: i64::try_from(ages.len()).unwrap_or(i64::MAX),
            oldest_age_ms: ages.into_iter().max().unwrap_or_default(),
        })
    }

    async fn doubts(&self) -> Result<Vec<Doubt>, LedgerError> {
        let now = self.now();
        let state = self.state();
        let doubts = state.rows.upstreams.iter();
        Ok(doubts.filter_map(|((name, prefix), row)| row.show(name, prefix, now)).collect())
    }

    async fn resolve_intent(
        &self,
        id: OperationId,
        resolution: Resolution,
    ) -> Result<Resolved, LedgerError> {
        let act = |rows: &mut acts::Rows, id: &OperationId, now| {
            acts::resolve_intent(rows, *id, &resolution, now)
        };
        self.act(&[id], act).pop().unwrap_or(Ok(Resolved::NotFound))
    }

    async fn resolve_doubts(
        &self,
        upstream: &str,
        resolution: Resolution,
    ) -> Result<Option<i64>, LedgerError> {
        let act = |rows: &mut acts::Rows, upstream: &&str, now| {
            acts::resolve_doubts(rows, upstream, &resolution, now)
        };
        self.act(&[upstream], act).pop().unwrap_or(Ok(None))
    }
}
