//! C13: drained upstreams.

use super::view::{Rising, View};
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
