//! C13 and C16: drained upstreams.

use std::collections::HashMap;

use uuid::Uuid;

use super::view::{Rising, View};
use crate::record::{Answer, Asked, Outcome};
use crate::report::{Checker, Report};

/// C13 (I13): once a grant was answered with token T, nothing acts on a drained upstream under a
/// smaller token. A rollback is no excuse: a re-fence puts every upstream in doubt.
pub(super) fn nothing_older(view: &View<'_>, report: &mut Report) {
    let granted = Rising::tokens(view, true);
    report.looked(Checker::C13, view.effects.len());
    for effect in &view.effects {
        let (resource, token, at) = (&effect.resource, effect.token, effect.at);
        if let Some((newer, call)) = granted.before(resource, at)
            && newer > token
        {
            report.violation(Checker::C13, format!(
                "{resource}: the upstream acted at {at} under token {token}, after call {call} was \
                 granted {newer}"
            ));
        }
    }
}

/// C16 (I8): of a request that is said to have taken effect the upstream did act, before that was said; on
/// one that is said to have had none it never does. Whoever closed its intent, and however often.
pub(super) fn told_truly(view: &View<'_>, report: &mut Report) {
    let mut acted: HashMap<Uuid, u64> = HashMap::new();
    for effect in &view.effects {
        let first = acted.entry(effect.request).or_insert(effect.at);
        *first = effect.at.min(*first);
    }
    for call in &view.calls {
        let Some(answered) = &call.answered else { continue };
        let (request, has_acted) = match (&call.asked, &answered.answer) {
            (Asked::Ask { operation }, Answer::Outcome(outcome)) => {
                let Some(request) = view.requests.get(operation) else { continue };
                match outcome {
                    Outcome::Applied => (request, true),
                    Outcome::Buried => (request, false),
                    Outcome::NotKnown => continue,
                }
            }
            (Asked::Forward { request, .. }, Answer::Forwarded) => (request, true),
            (Asked::Forward { request, .. }, Answer::Refused { .. } | Answer::Failed { .. }) => {
                (request, false)
            }
            _ => continue,
        };
        report.looked(Checker::C16, 1);
        let (number, at) = (call.number, answered.at);
        match (has_acted, acted.get(request)) {
            (true, Some(first)) if *first < at => {}
            (true, _) => report.violation(Checker::C16, format!(
                "call {number} was told at {at} that request {request} took effect, but the upstream \
                 had not acted on it"
            )),
            (false, Some(first)) => report.violation(Checker::C16, format!(
                "call {number} was told at {at} that request {request} took no effect and never will, \
                 but the upstream acted on it at {first}"
            )),
            (false, None) => {}
        }
    }
}
