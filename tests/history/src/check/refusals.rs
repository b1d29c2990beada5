//! C14 and C15: what has been given back stays so, and nobody is refused without a reason.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::view::{Attempt, View};
use crate::record::{Answer, Asked, Call};
use crate::report::{Checker, Report};

/// C14 (I6): once somebody was told that a lock is released, its token admits nothing that is begun
/// later. A replay admits nothing.
pub(super) fn released_for_good(view: &View<'_>, report: &mut Report) {
    let mut released: HashMap<Uuid, (u64, u64)> = HashMap::new();
    for call in &view.calls {
        let Call { number, asked: Asked::Release { lock }, answered: Some(answered), .. } = call
        else {
            continue;
        };
        if answered.answer == Answer::Done {
            let first = released.entry(*lock).or_insert((answered.at, *number));
            *first = (answered.at, *number).min(*first);
        }
    }
    let mut tokens: HashMap<(&str, i64), (u64, u64)> = HashMap::new();
    let told = view.grants.iter().map(|grant| (grant.resource, grant.token, grant.lock));
    let held = view.sealed.iter().map(|line| (line.resource.as_str(), line.token, line.lock));
    for (resource, token, lock) in told.chain(held) {
        if let Some(at) = released.get(&lock) {
            tokens.insert((resource, token), *at);
        }
    }
    for Attempt { call, signature, told, .. } in &view.attempts {
        for (resource, _) in &signature.deeds {
            let Some((at, by)) = tokens.get(&(*resource, signature.token)) else { continue };
            if call.begun_at < *at {
                continue;
            }
            report.looked(Checker::C14, 1);
            if told.is_some_and(|told| !told.replayed) {
                let (number, token) = (call.number, signature.token);
                report.violation(Checker::C14, format!(
                    "{resource}: call {number} was admitted with token {token}, begun after call {by} \
                     was told that its lock is released"
                ));
            }
        }
    }
}

/// C15 (I8): a refusal gives a reason that is there. A rollback may have taken it away since, so of
/// tokens nothing is said then.
pub(super) fn with_reason(view: &View<'_>, report: &mut Report) {
    let mut highest: HashMap<&str, i64> = HashMap::new();
    let mut sealed: HashSet<(&str, i64)> = HashSet::new();
    for line in &view.sealed {
        let token = highest.entry(&line.resource).or_insert(line.token);
        *token = line.token.max(*token);
        sealed.insert((&line.resource, line.token));
    }
    // To others than its principal a token is unknown.
    let own: HashSet<_> = view
        .grants
        .iter()
        .map(|grant| (grant.resource, grant.token, grant.call.principal))
        .collect();
    for Attempt { call, signature, if_version, .. } in &view.attempts {
        let Some(Answer::Refused { code }) = call.answered.as_ref().map(|it| &it.answer) else {
            continue;
        };
        report.looked(Checker::C15, 1);
        let any = |is: &dyn Fn(&str) -> bool| signature.deeds.iter().any(|(name, _)| is(name));
        let token = signature.token;
        let there = match code.as_str() {
            "fence-token-stale" => {
                !view.rollbacks.is_empty()
                    || any(&|name| highest.get(name).is_some_and(|highest| *highest > token))
            }
            "fence-token-unknown" => {
                let is_own = |name: &str| own.contains(&(name, token, call.principal));
                !view.rollbacks.is_empty()
                    || any(&|name| !sealed.contains(&(name, token)))
                    || (!view.rules.is_empty() && any(&|name| !is_own(name)))
            }
            "fence-token-void" => !view.rollbacks.is_empty(),
            "sequence-out-of-order" => signature.sequence.is_some(),
            // A commit may demand versions that are not recorded.
            "version-mismatch" => {
                if_version.is_some() || matches!(call.asked, Asked::Commit { .. })
            }
            "idempotency-key-reused" | "idempotency-in-progress" => {
                signature.idempotency_key.is_some()
            }
            _ => true,
        };
        if !there {
            let number = call.number;
            report.violation(
                Checker::C15,
                format!("call {number} was refused as {code} with token {token}, without a reason"),
            );
        }
    }
}
