//! C17: principals, and rules of access that change.

use std::collections::HashMap;

use uuid::Uuid;

use super::view::{Attempt, View};
use crate::record::{Answer, Asked, Rules};
use crate::report::{Checker, Report};

/// C17 (I16): what took effect under a token was its principal's or one of its writers', and a lock was kept by nobody
/// but its principal. Only of grants whose answer arrived is it known whose they are.
pub(super) fn of_its_principal(view: &View<'_>, report: &mut Report) {
    if view.rules.is_empty() {
        return;
    }
    let grants = || view.grants.iter().map(|grant| (grant, grant.call.principal));
    let by_token: HashMap<(&str, i64), (u32, Uuid)> =
        grants().map(|(grant, who)| ((grant.resource, grant.token), (who, grant.lock))).collect();
    for Attempt { call, signature, told, .. } in &view.attempts {
        if told.is_none_or(|told| told.replayed) {
            continue;
        }
        for (resource, _) in &signature.deeds {
            let Some((holder, lock)) = by_token.get(&(*resource, signature.token)) else {
                continue;
            };
            report.looked(Checker::C17, 1);
            let who = call.principal;
            let is_writer = view.writers.get(lock).is_some_and(|writers| writers.contains(&who));
            if who != *holder && !is_writer {
                let (number, token) = (call.number, signature.token);
                report.violation(Checker::C17, format!(
                    "{resource}: call {number} of principal {who} was admitted with token {token} of principal {holder}"
                ));
            }
        }
    }
    let by_lock: HashMap<Uuid, u32> = grants().map(|(grant, who)| (grant.lock, who)).collect();
    for call in &view.calls {
        let Asked::Renew { lock } = &call.asked else { continue };
        let Some(holder) = by_lock.get(lock) else { continue };
        let Some(Answer::Done) = call.answered.as_ref().map(|it| &it.answer) else { continue };
        report.looked(Checker::C17, 1);
        let (number, who) = (call.number, call.principal);
        if who != *holder {
            report.violation(
                Checker::C17,
                format!(
                    "call {number} of principal {who} renewed lock {lock} of principal {holder}"
                ),
            );
        }
    }
}

/// C17 (I17): what a principal writes whom the rules deny it is not there: neither above the versions that were there
/// when these rules were known to be in force, nor up to those from before the next ones.
pub(super) fn under_the_rules(view: &View<'_>, report: &mut Report) {
    for (at, rules) in view.rules.iter().enumerate() {
        let next = view.rules.get(at + 1);
        let window = Window { rules, next: next.copied() };
        for Attempt { call, told, .. } in &view.attempts {
            let Some(told) = told.filter(|told| !told.replayed) else { continue };
            let made = told.versions.iter().filter_map(|(name, version)| Some((name, (*version)?)));
            // The number of a version that is lost is given again under other rules.
            let stayed = made.filter(|(name, version)| {
                !view.is_lost(name, Some(*version), told.generation, call.begun_at)
            });
            for (resource, version) in stayed.filter(|(name, version)| window.has(name, *version)) {
                report.looked(Checker::C17, 1);
                let (number, who) = (call.number, call.principal);
                if rules.denied.contains(&who) {
                    report.violation(Checker::C17, format!(
                        "{resource}: call {number} made version {version}, but its principal {who} was denied it by \
                         the rules that were in force"
                    ));
                }
            }
        }
    }
}

/// C17 (I17): nobody is told what is there whom the rules deny it, from when they are known to be in force until the next
/// ones are asked for.
pub(super) fn read_under_the_rules(view: &View<'_>, report: &mut Report) {
    for (at, rules) in view.rules.iter().enumerate() {
        let until = view.rules.get(at + 1).map_or(u64::MAX, |next| next.asked_at);
        for call in &view.calls {
            let Asked::Read { resource, .. } = &call.asked else { continue };
            let Some(answered) = &call.answered else { continue };
            if !matches!(answered.answer, Answer::Value { .. })
                || call.begun_at < rules.at
                || answered.at > until
            {
                continue;
            }
            report.looked(Checker::C17, 1);
            let (number, who) = (call.number, call.principal);
            if rules.denied.contains(&who) {
                report.violation(Checker::C17, format!(
                    "{resource}: call {number} read it, but its principal {who} was denied it by the rules that were in force"
                ));
            }
        }
    }
}

/// The time of some rules, in versions.
struct Window<'a> {
    rules: &'a Rules,
    next: Option<&'a Rules>,
}

impl Window<'_> {
    fn has(&self, resource: &str, version: i64) -> bool {
        let of = |versions: &[(String, i64)]| {
            versions.iter().find(|(name, _)| name == resource).map_or(0, |(_, version)| *version)
        };
        version > of(&self.rules.after) && self.next.is_none_or(|next| version <= of(&next.before))
    }
}
