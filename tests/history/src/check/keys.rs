//! C8: nothing takes effect twice (I7).

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::view::{Attempt, Deed, Told, View};
use crate::report::{Checker, Report};

/// C8 (I7): on a resource an idempotency key has at most one operation in the ledger, in one line of the
/// ledger at most one that anybody was told of, and one caller that was told of it as new; an
/// operation is on a resource once; and so is what one put stores.
///
/// A ledger forgets keys after some days: a history must be shorter than that.
pub(super) fn at_most_once(view: &View<'_>, report: &mut Report) {
    let mut keys: HashMap<(&str, &str), Uuid> = HashMap::new();
    let mut seen: HashMap<(&str, Uuid), Option<i64>> = HashMap::new();
    let mut puts: HashMap<(&str, Deed<'_>), Uuid> = HashMap::new();
    for line in &view.committed {
        let (resource, operation) = (line.resource.as_str(), line.operation);
        if let Some(first) = seen.insert((resource, operation), line.version) {
            let version = line.version;
            report.violation(Checker::C8, format!(
                "{resource}: {operation} took effect twice, with versions {first:?} and {version:?}"
            ));
            continue;
        }
        if let Some(key) = &line.idempotency_key {
            report.looked(Checker::C8, 1);
            if let Some(first) = keys.insert((resource, key), operation) {
                report.violation(Checker::C8, format!(
                    "{resource}: the idempotency key {key} has the operations {first} and {operation}"
                ));
                continue;
            }
        }
        for deed in line.changes.iter().map(Deed::of) {
            let Deed::Put { key, value } = deed else { continue };
            if let Some(first) = puts.insert((resource, deed), operation)
                && first != operation
            {
                report.violation(
                    Checker::C8,
                    format!("{resource}: {first} and {operation} both put {value:?} under {key}"),
                );
            }
        }
    }
    told_once(view, report);
}

/// The operations that callers were told of, each with its generation and the first of these calls.
type Operations = BTreeMap<Uuid, (i64, u64)>;

fn told_once(view: &View<'_>, report: &mut Report) {
    let mut news: HashMap<Uuid, u64> = HashMap::new();
    let mut by_key: BTreeMap<(&str, &str), Operations> = BTreeMap::new();
    for Attempt { call, signature, told, .. } in &view.attempts {
        let Some(Told { operation, generation, replayed, .. }) = told else { continue };
        if !replayed && let Some(first) = news.insert(*operation, call.number) {
            let second = call.number;
            report.violation(Checker::C8, format!(
                "calls {first} and {second} were both told of {operation} as their own new effect"
            ));
        }
        let Some(key) = signature.idempotency_key else { continue };
        report.looked(Checker::C8, 1);
        for (resource, _) in &signature.deeds {
            let operations = by_key.entry((*resource, key)).or_default();
            operations.entry(*operation).or_insert((*generation, call.number));
        }
    }
    for ((resource, key), operations) in by_key {
        let mut in_order: Vec<_> =
            operations.into_iter().map(|(id, (of, n))| (of, n, id)).collect();
        in_order.sort_unstable();
        for pair in in_order.windows(2) {
            let [(before, first, operation), (after, second, _)] = pair else { continue };
            // The second can only take effect where the first is not.
            if before == after || view.line(*operation, resource).is_some() {
                report.violation(Checker::C8, format!(
                    "{resource}: under the idempotency key {key} calls {first} and {second} were told \
                     of different operations, in generations {before} and {after}"
                ));
            }
        }
    }
}
