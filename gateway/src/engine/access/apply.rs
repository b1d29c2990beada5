//! Putting rules in force, and what holders lose by that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    BreakItem, BreakVerdict, By, DatabaseRole, Ledger, LedgerError, Page, Patience, ResourceView,
    RulesChange, RulesChanged, RulesInForce, Which,
};
use fence_core::{LockState, PrincipalName, ResourceName, Token};
use fencegate_access::{Action, Caller, Rules, RulesError};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Access, Permit};
use crate::engine::EngineError;

/// Held locks that are looked at together.
const PAGE: i64 = 1000;
/// Locks that are broken together; and how many of those that transactions have are waited for.
const BREAKS: usize = 64;
/// How many of them are waited for at a time.
const WAITS: usize = 8;
/// How long a break waits for transactions that hold its fence.
const PATIENCE: Patience = Patience::Wait(Duration::from_secs(2));

/// Rules that somebody wants to be in force.
#[derive(Debug, Clone)]
pub struct NewRules {
    /// The generation that they are to follow, if the caller says.
    pub follows: Option<i64>,
    /// Their text.
    pub text: String,
    /// Why.
    pub reason: String,
    /// The request that asks for it.
    pub request_id: String,
}

/// Rules as they may be put in force now.
///
/// # Errors
/// They cannot be read or meant, a principal has more live keys than a rotation needs, or nobody could change them.
pub fn checked(text: &str, now: jiff::Timestamp) -> Result<Rules, RulesError> {
    let rules = Rules::parse(text)?;
    rules.check_live_keys(now)?;
    rules.check_admin(now)?;
    Ok(rules)
}

/// Which principals the roles of the database are to `guard()`.
pub fn database_roles(rules: &Rules) -> Vec<DatabaseRole> {
    let role = |(role, principal, roles): (&str, &PrincipalName, &[Arc<str>])| DatabaseRole {
        role: role.to_owned(),
        names: By::of(principal.clone(), roles).names().unwrap_or_default().to_owned(),
    };
    rules.database_roles().map(role).collect()
}
/// A lock whose holder may not have it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its resource.
    pub resource: ResourceName,
    /// Its token.
    pub token: Token,
    /// Its owner.
    pub owner: String,
    /// Its principal; none for one that was taken before there were rules.
    pub principal: Option<PrincipalName>,
    /// Its credential was taken back: it is broken also where that was not asked for.
    pub is_revoked: bool,
    /// Marked to be broken.
    pub is_doomed: bool,
    /// Whether it is broken.
    pub is_broken: bool,
}

/// Held locks whose holders may not lock or write their resources under these rules, or whose credentials these have taken
/// back. What a role says by claims of a token that are not part of the principal's name is not known here, and allows
/// nothing. With `all`, every one of them is to be broken; else those whose credentials were taken back.
///
/// # Errors
/// The ledger does not answer.
pub async fn lost(ledger: &dyn Ledger, rules: &Rules, all: bool) -> Result<Vec<Lost>, LedgerError> {
    let mut callers: HashMap<PrincipalName, Option<Caller>> = HashMap::new();
    let mut lost = Vec::new();
    let mut page = Page { prefix: String::new(), after: None, limit: PAGE };
    loop {
        let views = ledger.resources(page.clone(), Which::Taken).await?;
        let Some(last) = views.last() else { return Ok(lost) };
        page.after = Some(last.resource.to_string());
        let ended =
            |view: &ResourceView| matches!(view.state, LockState::Broken | LockState::Released);
        let views: Vec<_> = views.into_iter().filter(|view| !ended(view)).collect();
        let ids: Vec<_> = views.iter().map(|view| view.lock).collect();
        let locks = ledger.locks(&ids).await?;
        for (view, lock) in views.into_iter().zip(locks) {
            let credential = lock.and_then(|lock| lock.credential);
            let mut is_gone = |name: &PrincipalName| {
                callers.entry(name.clone()).or_insert_with(|| rules.named(name)).is_none()
            };
            let is_revoked = credential.is_some_and(|credential| {
                rules.has_taken_back(&credential.name)
                    || view.principal.as_ref().is_some_and(&mut is_gone)
            });
            let keeps = view.principal.as_ref().is_some_and(|name| {
                let known = callers.entry(name.clone()).or_insert_with(|| rules.named(name));
                let may = |action| {
                    known.as_ref().is_some_and(|it| it.may(action, &view.resource).is_ok())
                };
                may(Action::Lock) && may(Action::Write)
            });
            if is_revoked || !keeps {
                let ResourceView { resource, token, owner, principal, .. } = view;
                let (is_doomed, is_broken) = (all || is_revoked, false);
                let whose =
                    Lost { resource, token, owner, principal, is_revoked, is_doomed, is_broken };
                lost.push(whose);
            }
        }
    }
}

/// Why and for which rules lost locks are broken.
#[derive(Debug, Clone)]
pub struct Breaking {
    /// The generation of the rules by which they are lost. Once others are in force, what these have given back to a
    /// holder is not taken away any more (I17).
    pub generation: i64,
    /// On whose behalf.
    pub by: By,
    /// Why, for the record.
    pub reason: String,
    /// The request that asks for it, for the record.
    pub request_id: String,
}

impl Breaking {
    /// The break of a lock. It names the token, so that nobody is hit who has taken the resource since.
    pub fn of(&self, lost: &Lost) -> BreakItem {
        BreakItem {
            resource: lost.resource.clone(),
            token: lost.token,
            after: Duration::ZERO,
            reason: self.reason.clone(),
            request_id: self.request_id.clone(),
            by: self.by.clone().under(self.generation),
        }
    }
}

/// Breaks those that are to be broken in the ledger itself: their holders are fenced off, to `guard()` as well. Says which it
/// could not break in time; to break those again is harmless.
///
/// 1. All of them, as far as no transaction has their fences: what one has keeps none of the others.
/// 2. Each of the rest by itself, which waits for those transactions, a few at a time.
///
/// # Errors
/// The ledger does not answer.
pub async fn break_lost(
    ledger: &dyn Ledger,
    lost: &mut [Lost],
    breaking: &Breaking,
) -> Result<(), LedgerError> {
    // Step 1.
    break_free(ledger, lost, breaking).await?;
    // Step 2.
    let rest = lost.iter_mut().filter(|one| one.is_doomed && !one.is_broken).take(BREAKS);
    let broken = rest.map(async |one| {
        let verdicts = ledger.break_locks(Arc::from([breaking.of(one)]), PATIENCE).await?;
        one.is_broken = verdicts.iter().all(is_broken);
        Ok(())
    });
    stream::iter(broken).buffer_unordered(WAITS).try_collect().await
}

/// Breaks those of them whose fences no transaction has.
///
/// # Errors
/// The ledger does not answer.
pub(super) async fn break_free(
    ledger: &dyn Ledger,
    lost: &mut [Lost],
    breaking: &Breaking,
) -> Result<(), LedgerError> {
    let mut doomed: Vec<_> = lost.iter_mut().filter(|one| one.is_doomed).collect();
    for some in doomed.chunks_mut(BREAKS) {
        let all = some.iter().map(|one| breaking.of(one)).collect();
        let verdicts = ledger.break_locks(all, Patience::Skip).await?;
        for (one, verdict) in some.iter_mut().zip(verdicts) {
            one.is_broken = is_broken(&verdict);
        }
    }
    Ok(())
}

fn is_broken(verdict: &BreakVerdict) -> bool {
    matches!(verdict, BreakVerdict::Broken { .. } | BreakVerdict::NotHeld)
}

/// What became of rules that were put in force.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Their generation.
    pub generation: i64,
    /// Locks whose holders may not have them any more; none if the ledger did not tell.
    pub lost: Option<Vec<Lost>>,
}

impl Access {
    /// Finds the locks whose holders would lose them by these rules; nothing changes.
    ///
    /// # Errors
    /// `RulesInvalid`; `RulesOvertaken` if others are in force than those that they are to follow.
    pub(in crate::engine) async fn lost_by(
        &self,
        change: &NewRules,
        breaks: bool,
    ) -> Result<Applied, EngineError> {
        let rules = checked(&change.text, self.inner.runtime.clock.now());
        let rules = rules.map_err(|why| EngineError::RulesInvalid(why.to_string()))?;
        let RulesInForce { generation, .. } = self.stored().await?;
        if change.follows.is_some_and(|follows| follows != generation) {
            return Err(EngineError::RulesOvertaken(generation));
        }
        let lost = lost(&*self.inner.ledger, &rules, breaks).await;
        Ok(Applied { generation, lost: lost.ok() })
    }

    /// Puts rules in force, on all gateways: once this has returned, nothing takes effect that was allowed under older
    /// ones. Then finds the locks whose holders have lost the right to them, all of which are to be broken with `breaks`.
    ///
    /// # Errors
    /// `RulesInvalid`; `RulesOvertaken` if others are in force than those that they were to follow; `PermissionDenied` by
    /// others that were put in force in between; `OutcomeUnknown` if an answer of the ledger was lost.
    pub(in crate::engine) async fn apply(
        &self,
        permit: &Permit,
        change: NewRules,
        breaks: bool,
    ) -> Result<Applied, EngineError> {
        let rules = checked(&change.text, self.inner.runtime.clock.now());
        let rules = rules.map_err(|why| EngineError::RulesInvalid(why.to_string()))?;
        let known = self.in_force().await?;
        let ledger = Arc::clone(&self.inner.ledger);
        let generation = self.store(permit, change, &rules).await?;
        // They are in force, whatever comes of what follows.
        let _ = self.load(Some(known.generation)).await;
        let lost = lost(&*ledger, &rules, breaks).await.inspect_err(|error| {
            tracing::warn!(%error, generation, "which locks were lost by new rules is not known");
        });
        Ok(Applied { generation, lost: lost.ok() })
    }

    /// Has the ledger put rules in force (I17). Returns their generation.
    ///
    /// 1. They follow those that let the caller do this, and no others: the ledger compares the generations, whatever the
    ///    caller says they are to follow.
    /// 2. If others are in force, those are asked whether the caller may, and it goes on from step 1.
    /// 3. If the caller wanted them to follow older ones, they may be in force already: an answer was lost, and the caller
    ///    has sent them again.
    async fn store(
        &self,
        permit: &Permit,
        change: NewRules,
        rules: &Rules,
    ) -> Result<i64, EngineError> {
        let NewRules { follows, text, reason, request_id } = change;
        loop {
            // Step 1.
            let by = permit.by();
            if by.rules.is_none() || follows.is_none() || follows == by.rules {
                let stored = RulesChange {
                    follows: by.rules.or(follows),
                    text: text.clone(),
                    database_roles: database_roles(rules),
                    applied_by: by.principal().cloned(),
                    reason: reason.clone(),
                    request_id: request_id.clone(),
                    asked: by.asked(),
                };
                match self.inner.ledger.apply_rules(stored).await? {
                    RulesChanged::InForce(generation) => return Ok(generation),
                    RulesChanged::Overtaken(_) => {}
                }
            }
            // Step 2.
            let there = self.stored().await?;
            if by.rules.is_some_and(|allowed| allowed != there.generation) {
                permit.renew().await?;
                continue;
            }
            // Step 3.
            let is_later = follows.is_some_and(|follows| there.generation > follows);
            return match is_later && there.text.as_ref() == Some(&text) {
                true => Ok(there.generation),
                false => Err(EngineError::RulesOvertaken(there.generation)),
            };
        }
    }
}
