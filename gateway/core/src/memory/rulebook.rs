//! The rules of access of the ledger in memory.

use async_trait::async_trait;

use super::state::MemoryLedger;
use crate::ports::{
    AuditAction, AuditEntry, LedgerError, Rulebook, RulesChange, RulesChanged, RulesInForce,
};

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
}
