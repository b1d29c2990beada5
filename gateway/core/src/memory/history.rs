//! What the ledger in memory lets go of its history.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::state::{State, limit};
use crate::Token;
use crate::ports::Applied;

/// Lets go of history that is older than this, as `schema/postgres/acts/history.sql` does. Says how many rows.
pub(super) fn prune(state: &mut State, before: Timestamp, rows_max: i64) -> usize {
    let upto = state.tree.upto();
    let State { rows, gone, .. } = state;
    let operations = rows.operations.values().flatten().count();
    let rows_before = operations + rows.grants.len();

    // Events from the first on, and the operations before their versions; up to one that is too young, or before whose
    // version an idempotency key still stands for an operation.
    let keyed: BTreeSet<_> = rows.keys.values().map(|key| key.operation).collect();
    let mut events = 0;
    let mut followed = BTreeSet::new();
    for (operation, resource) in rows.written.iter().skip(limit(*gone)).take(limit(rows_max)) {
        let Some(applied) = rows.operation(*operation, resource) else { break };
        let before_it = (resource, applied.version.map(|version| version - 1));
        let all = rows.operations.values().flatten();
        let is_keyed = |one: &Applied| keyed.contains(&one.operation);
        let mut former = all.filter(|one| (&one.resource, one.version) == before_it);
        if applied.committed_at >= before || former.any(is_keyed) {
            break;
        }
        followed.insert((resource.clone(), applied.version.map(|version| version - 1)));
        events += 1;
    }
    *gone += events;
    for all in rows.operations.values_mut() {
        all.retain(|one| match one.version {
            Some(_) => !followed.contains(&(one.resource.clone(), one.version)),
            None => one.committed_at >= before || keyed.contains(&one.operation),
        });
    }
    rows.operations.retain(|_, all| !all.is_empty());
    if events > 0 || rows.operations.values().flatten().count() < operations {
        rows.guard.time.let_go(before);
    }

    // Grants that another one superseded long ago, once the tree over the audit has leaves of them. Their tokens stay known:
    // no number up to them is sealed again. One that stays keeps the later ones of its resource, also those that a clock that
    // was ahead meanwhile makes older.
    let is_old = |at: Option<Timestamp>| at.is_some_and(|at| at < before);
    let unsealed: BTreeSet<_> =
        rows.audited.iter().skip(limit(upto)).map(|one| one.token).collect();
    let goes = |(_, token): &(_, Token), at| is_old(at) && !unsealed.contains(&Some(*token));
    let stays = rows.grants.iter().filter(|(place, grant)| !goes(place, grant.at));
    let mut first_kept = BTreeMap::new();
    for ((resource, token), _) in stays {
        first_kept.entry(resource).or_insert(*token);
    }
    let old: BTreeSet<_> = rows
        .grants
        .keys()
        .filter(|(resource, token)| first_kept.get(resource).is_none_or(|kept| token < kept))
        .take(limit(rows_max))
        .cloned()
        .collect();
    rows.grants.retain(|place, _| !old.contains(place));
    rows.let_go = old.iter().map(|(_, token)| token.get()).fold(rows.let_go, i64::max);
    let rows_after = rows.operations.values().flatten().count() + rows.grants.len();
    limit(events) + rows_before - rows_after
}
