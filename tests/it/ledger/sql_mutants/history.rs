//! Mutants of `acts.prune` and of what the rule says of tokens that history has let go.

use fence_tests::mutants::Edit;

use super::{Mutant, mutant};
use crate::ledger::conformance;

pub const MUTANTS: &[Mutant] = &[
    mutant!("prunes-the-newest": "the newest operation of a resource goes with the others: the table refuses that",
        caught by conformance::tidying::history_goes_but_for_the_newest::on_postgres, which says "the newest row of a resource in operations",
        "prune": "AND d.version = l.version - 1" => "AND d.version = l.version",
    ),
    mutant!("prunes-the-newest-grant": "the newest grant of a resource goes with the others: the table refuses that",
        caught by conformance::tidying::history_goes_but_for_the_newest::on_postgres, which says "the newest row of a resource in grants",
        "prune": "AND g.number < l.number" => "AND g.number <= l.number",
    ),
    mutant!("prunes-young-events": "events and operations go whatever their age",
        caught by conformance::tidying::young_history_stays::on_postgres, which says "left: 3",
        "prune": "o.committed_at >= too_young OR" => "",
    ),
    mutant!("prunes-young-grants": "grants go whatever their age",
        caught by conformance::tidying::young_history_stays::on_postgres, which says "left: 1",
        "prune": "FILTER (WHERE g.at >= too_young) - 1" => "FILTER (WHERE false) - 1",
    ),
    mutant!("prunes-keyed-operations": "an operation goes although an idempotency key stands for it",
        caught by conformance::tidying::an_operation_stays_as_long_as_its_key::on_postgres, which says "has no row",
        "prune": "OR o.key IS NOT NULL" => "",
    ),
    mutant!("history-forgets-its-tokens": "the highest token that was let go is not kept",
        caught by conformance::tidying::tokens_of_history_are_stale::on_postgres, which says "left: Unknown",
        "prune": "token = greatest(h.token, highest)" => "token = h.token",
    ),
    mutant!("tokens-of-history-are-unknown": "a token before the oldest grant that is kept is refused as unknown",
        caught by conformance::tidying::tokens_of_history_are_stale::on_postgres, which says "left: Unknown",
        "older": "WHERE p_token < o.token AND o.ordinal > 1 AND" => "WHERE false AND",
    ),
    mutant!("tokens-above-history-are-stale": "one is refused as stale that is above all that history has let go",
        caught by conformance::tidying::tokens_of_history_are_stale::on_postgres, which says "left: Stale",
        "older": "AND NOT acts.is_kept(p_token, h.token)" => "",
    ),
];
