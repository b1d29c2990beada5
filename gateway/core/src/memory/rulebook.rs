//! The rules of access of the ledger in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;

use super::state::MemoryLedger;
use crate::ports::{
    AuditAction, AuditEntry, LedgerError, Rulebook, RulesChange, RulesChanged, RulesInForce, Stock,
};
use crate::principal::PrincipalName;

#[async_trait]
impl Rulebook for MemoryLedger {
    async fn rules(&self) -> Result<RulesInForce, LedgerError> {
        let state = self.state();
        Ok(RulesInForce { generation: state.rows.guard.rules, text: state.access.clone() })
    }

    async fn rules_generation(&self) -> Result<i64, LedgerError> {
        Ok(self.state().rows.guard.rules)
    }

    async fn apply_rules(&self, change: RulesChange) -> Result<RulesChanged, LedgerError> {
        let at = self.now().wall;
        let state = &mut *self.state();
        let before = state.rows.guard.rules;
        if change.follows.is_some_and(|follows| follows != before) {
            return Ok(RulesChanged::Overtaken(before));
        }
        let next = state.rows.guard.next_rules();
        state.rows.guard.rules = next;
        state.access = Some(change.text);
        state.rows.audited.push(AuditEntry {
            owner: change.applied_by.map(String::from),
            request_id: Some(change.request_id),
            asked: change.asked,
            ..AuditEntry::because(AuditAction::Access, at, &change.reason)
        });
        Ok(RulesChanged::InForce(next))
    }

    async fn record_refused(&self, entries: Arc<[AuditEntry]>) -> Result<(), LedgerError> {
        self.state().rows.audited.extend(entries.iter().cloned());
        Ok(())
    }

    async fn stocks(
        &self,
        of: &[PrincipalName],
    ) -> Result<BTreeMap<PrincipalName, Stock>, LedgerError> {
        let now = self.now();
        let rows = &self.state().rows;
        let stock = |principal: &PrincipalName| {
            let is_its = |whose: &Option<PrincipalName>| whose.as_ref() == Some(principal);
            let fences = rows.fences.values();
            let locks =
                fences.filter(|fence| is_its(&fence.principal) && rows.guard.keeps_out(fence, now));
            let locks: BTreeSet<_> = locks.map(|fence| fence.lock).collect();
            let objects = || rows.objects.values().filter(|row| is_its(&row.principal));
            Stock {
                locks: locks.len() as i64,
                resources: rows.first_locked.get(principal).copied().unwrap_or_default(),
                keys: objects().count() as i64,
                bytes: objects().map(|row| row.object.size).sum(),
            }
        };
        let all = of.iter().map(|principal| (principal.clone(), stock(principal)));
        Ok(all.filter(|(_, stock)| *stock != Stock::default()).collect())
    }
}
