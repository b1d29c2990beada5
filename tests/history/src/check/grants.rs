//! C12: tokens in callers' hands (I1, I2, I15).

use std::collections::{BTreeSet, HashMap, HashSet};

use uuid::Uuid;

use super::view::{Grant, Rising, View};
use crate::record::{Answer, Asked, Call};
use crate::report::{Checker, Report};

/// C12 (I1, I2, I15): every token that was given out is a grant of the ledger, unless the ledger went back
/// since; a token belongs to one lock, on whatever resources; a new grant has a token above those that were
/// answered before it began; every write was made under a grant; a grant is on what was asked for,
/// under the id that was asked for.
pub(super) fn of_the_ledger(view: &View<'_>, report: &mut Report) {
    let mut owners = HashMap::new();
    let mut sealed: HashSet<(&str, i64)> = HashSet::new();
    for grant in &view.sealed {
        report.looked(Checker::C12, 1);
        sealed.insert((&grant.resource, grant.token));
        one_lock(&mut owners, (&grant.resource, grant.token), grant.lock, report);
    }
    let rising = Rising::tokens(view, false);
    for grant in &view.grants {
        report.looked(Checker::C12, 1);
        let Grant { call, resource, token, lock, .. } = *grant;
        one_lock(&mut owners, (resource, token), lock, report);
        let number = call.number;
        if !sealed.contains(&(resource, token)) && !view.went_back(call.begun_at, u64::MAX) {
            report.violation(Checker::C12, format!(
                "{resource}: call {number} was granted token {token}, which the ledger does not hold"
            ));
        }
        let before = rising.before(resource, call.begun_at);
        if let Some((before, of)) = before.filter(|(before, _)| *before > token && !grant.again) {
            report.violation(Checker::C12, format!(
                "{resource}: call {number} was granted token {token}, begun after call {of} was \
                 granted {before}"
            ));
        }
    }
    for line in &view.committed {
        report.looked(Checker::C12, 1);
        if !sealed.contains(&(line.resource.as_str(), line.token)) {
            let (resource, token, operation) = (&line.resource, line.token, line.operation);
            report.violation(Checker::C12, format!(
                "{resource}: {operation} (version {:?}) was written under token {token}, which was \
                 never sealed", line.version
            ));
        }
    }
    one_token(view, report);
    view.calls.iter().for_each(|call| as_asked(call, report));
}

fn one_lock(
    owners: &mut HashMap<i64, Uuid>,
    (resource, token): (&str, i64),
    lock: Uuid,
    report: &mut Report,
) {
    let owner = *owners.entry(token).or_insert(lock);
    if owner != lock {
        let what = format!("{resource}: token {token} belongs to the locks {owner} and {lock}");
        report.violation(Checker::C12, what);
    }
}

/// An id names one grant for ever; only a fence that a re-fence voided is set anew under its id.
fn one_token(view: &View<'_>, report: &mut Report) {
    let mut tokens: HashMap<(&str, Uuid), &Grant<'_>> = HashMap::new();
    for grant in &view.grants {
        let Grant { resource, lock, .. } = *grant;
        let last = tokens.insert((resource, lock), grant).unwrap_or(grant);
        let from = last.call.begun_at.min(grant.call.begun_at);
        if last.token != grant.token && !view.went_back(from, last.at.max(grant.at)) {
            let (calls, tokens) =
                ((last.call.number, grant.call.number), (last.token, grant.token));
            report.violation(
                Checker::C12,
                format!(
                    "{resource}: lock {lock} was granted to calls {calls:?} with tokens {tokens:?}"
                ),
            );
        }
    }
}

fn as_asked(call: &Call, report: &mut Report) {
    let Some(Answer::Granted { lock, versions, .. }) = call.answered.as_ref().map(|it| &it.answer)
    else {
        return;
    };
    let number = call.number;
    let (id, resources): (_, BTreeSet<&String>) = match &call.asked {
        Asked::Acquire { lock, resources } => (*lock, resources.iter().collect()),
        Asked::Transfer { to, resources, .. } => (*to, resources.iter().collect()),
        Asked::Fence { lock, resource } => (Some(*lock), [resource].into()),
        _ => {
            let what = format!("call {number} was granted a lock, but asked for none");
            return report.violation(Checker::C12, what);
        }
    };
    if id.is_some_and(|id| id != *lock) {
        let what = format!("call {number} proposed lock {id:?}, but was granted {lock}");
        report.violation(Checker::C12, what);
    }
    let granted: BTreeSet<&String> = versions.iter().map(|(resource, _)| resource).collect();
    if granted != resources {
        let what = format!("call {number} asked for {resources:?}, but was granted {granted:?}");
        report.violation(Checker::C12, what);
    }
}
