//! Breaks: an operator fences a holder off. No mint: with it down, this works as ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{BreakItem, BreakVerdict, Ledger, LedgerError, Patience, ResourceView};
use fence_core::{LockEnd, LockState, PrincipalName, ResourceName};
use futures::future::join_all;

use super::Locks;
use super::queue::Line;
use crate::engine::access::{Applied, Breaking, NewRules, Permit};
use crate::engine::batch::Act;
use crate::engine::metrics::{self, record_hold};
use crate::engine::{Engine, EngineError};

/// Breaks are aimed at the token that holds when they arrive; if it changes meanwhile, again.
const BREAK_ATTEMPTS_MAX: u32 = 3;
/// Breaks of lost locks that are under way together.
const BREAKS_TOGETHER: usize = 64;

/// Breaks, as the act of a batcher. Each names the token it means, so a late one hits nobody else.
pub(super) struct Break {
    pub(super) ledger: Arc<dyn Ledger>,
    /// Hears what is free now.
    pub(super) line: Arc<Line>,
}

#[async_trait]
impl Act for Break {
    /// With it, whether an answer to it was lost.
    type Item = (BreakItem, bool);
    type Verdict = BreakVerdict;
    type Lane = ResourceName;

    const NAME: &'static str = "break";

    fn principal((item, _): &Self::Item) -> Option<&PrincipalName> {
        item.by.principal()
    }

    fn lane((item, _): &(BreakItem, bool)) -> ResourceName {
        item.resource.clone()
    }

    async fn run(
        &self,
        items: Arc<[(BreakItem, bool)]>,
        patience: Patience,
    ) -> Result<Vec<BreakVerdict>, LedgerError> {
        let breaks = items.iter().map(|(item, _)| item.clone()).collect();
        let verdicts = self.ledger.break_locks(breaks, patience).await?;
        let is_broken = |verdict: &BreakVerdict| matches!(verdict, BreakVerdict::Broken { .. });
        let broken = verdicts.iter().zip(items.iter()).filter(|(verdict, _)| is_broken(verdict));
        let freed: Vec<_> = broken.map(|(_, (item, _))| item.resource.clone()).collect();
        if !freed.is_empty() {
            self.line.wake(freed);
        }
        // Somebody else holds by now: perhaps because the first sending broke what it meant.
        let is_open = |(verdict, sent): (&BreakVerdict, &(BreakItem, bool))| {
            sent.1 && *verdict == BreakVerdict::NotHeld
        };
        if verdicts.iter().zip(items.iter()).any(is_open) {
            return Err(LedgerError::Unreadable("the lock has changed hands since".into()));
        }
        Ok(verdicts)
    }

    fn is_busy(verdict: &BreakVerdict) -> bool {
        matches!(verdict, BreakVerdict::Busy)
    }

    fn rules_moved(verdict: &BreakVerdict) -> bool {
        matches!(verdict, BreakVerdict::RulesMoved)
    }

    fn rerun((_, lost): &mut (BreakItem, bool), _: bool) {
        *lost = true;
    }
}

impl Engine {
    /// Fences the holder of a resource off, now or at the latest in `after`. Returns the resource as
    /// it stands then.
    #[tracing::instrument(level = "debug", skip_all, fields(%resource))]
    pub async fn break_lock(
        &self,
        resource: ResourceName,
        after: Duration,
        reason: String,
        request_id: String,
        permit: Permit,
    ) -> Result<ResourceView, EngineError> {
        let unknown = |_| EngineError::OutcomeUnknown { operation: None };
        for _ in 0..BREAK_ATTEMPTS_MAX {
            // Aimed at the token that holds now: a break that runs late must hit nobody else.
            let view = self.resource(resource.clone()).await?;
            let token = view.token;
            let item = BreakItem {
                resource: resource.clone(),
                token,
                after,
                reason: reason.clone(),
                request_id: request_id.clone(),
                by: permit.by(),
            };
            if self.inner.locks.break_once(item, &permit).await? {
                self.inner.locks.poke_on(std::slice::from_ref(&resource));
                return self.resource(resource).await.map_err(unknown);
            }
            if view.state == LockState::Released {
                return Ok(view);
            }
        }
        Err(EngineError::LedgerUnavailable("the lock changes hands too fast to be broken".into()))
    }
}

impl Engine {
    /// Finds the locks whose holders would lose them by these rules; nothing changes. With `breaks`, all of them would be
    /// broken.
    ///
    /// # Errors
    /// As [`Self::apply_rules`].
    pub async fn lost_by_rules(
        &self,
        change: &NewRules,
        breaks: bool,
    ) -> Result<Applied, EngineError> {
        self.inner.access.lost_by(change, breaks).await
    }

    /// Puts rules in force, on all gateways: once this has returned, nothing takes effect that was allowed under older
    /// ones, and the locks are broken whose credentials were taken back. With `breaks`, all locks whose holders have lost the
    /// right to them. It goes to its end whether its caller is still there or not.
    ///
    /// # Errors
    /// `RulesInvalid`; `RulesOvertaken` if others were put in force in between.
    pub async fn apply_rules(
        &self,
        permit: &Permit,
        change: NewRules,
        breaks: bool,
    ) -> Result<Applied, EngineError> {
        let (engine, permit) = (self.clone(), permit.clone());
        self.to_its_end(async move { engine.apply_and_break(&permit, change, breaks).await }).await
    }

    /// 1. The rules are in force.
    /// 2. The locks that are to be broken by them are. What is not by then is told, and those of credentials that were taken
    ///    back any gateway tries again.
    async fn apply_and_break(
        &self,
        permit: &Permit,
        change: NewRules,
        breaks: bool,
    ) -> Result<Applied, EngineError> {
        let (reason, request_id) = (change.reason.clone(), change.request_id.clone());
        // Step 1.
        let mut applied = self.inner.access.apply(permit, change, breaks).await?;
        // Step 2.
        let breaking =
            Breaking { generation: applied.generation, by: permit.by(), reason, request_id };
        let lost = applied.lost.iter_mut().flatten();
        let mut doomed: Vec<_> = lost.filter(|one| one.is_doomed).collect();
        for some in doomed.chunks_mut(BREAKS_TOGETHER) {
            let items: Vec<_> = some.iter().map(|one| breaking.of(one)).collect();
            // Asks nobody again: under newer rules it is not these that decide.
            let own = Permit::default();
            let broken = items.into_iter().map(|item| self.inner.locks.break_once(item, &own));
            for (lost, broken) in some.iter_mut().zip(join_all(broken).await) {
                // One that fails is told as not broken.
                lost.is_broken = broken.is_ok();
            }
            let freed: Vec<_> = some.iter().map(|lost| lost.resource.clone()).collect();
            self.inner.locks.poke_on(&freed);
        }
        Ok(applied)
    }
}

impl Locks {
    /// Breaks the lock of a resource that carries this token. Says whether it did, or will; if not,
    /// that token's lock had ended.
    async fn break_once(&self, mut item: BreakItem, permit: &Permit) -> Result<bool, EngineError> {
        let (resource, after) = (item.resource.clone(), item.after);
        tracing::info!(%resource, reason = item.reason, ?after, "an operator breaks a lock");
        let verdict = loop {
            match self.breaks.submit((item.clone(), false)).await {
                Ok(BreakVerdict::RulesMoved) => {
                    permit.renew().await?;
                    item.by = permit.by();
                }
                verdict => break verdict,
            }
        };
        match verdict {
            Ok(BreakVerdict::Broken { held_ms, ended }) => {
                if let Some(held_ms) = held_ms {
                    count_break(held_ms, after);
                }
                self.traces.add(ended);
                Ok(true)
            }
            Ok(BreakVerdict::Breaking { .. }) => Ok(true),
            Ok(BreakVerdict::NotHeld) => Ok(false),
            Ok(BreakVerdict::NoFence) => Err(EngineError::ResourceNotFound),
            Ok(BreakVerdict::RulesMoved) => Err(EngineError::AccessUnavailable),
            Ok(BreakVerdict::Busy) => Err(EngineError::Busy),
            Err(failure) => Err(EngineError::unsent(failure, "locks")),
        }
    }
}

fn count_break(held_ms: i64, after: Duration) {
    let kind = if after.is_zero() { "at_once" } else { "after" };
    ::metrics::counter!(metrics::BREAKS, "kind" => kind).increment(1);
    record_hold(held_ms, LockEnd::Broken);
}
