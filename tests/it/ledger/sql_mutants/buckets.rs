//! Mutants of what keeps the objects of a bucket under the locks that they are under.

use fence_tests::mutants::Edit;

use super::{Mutant, mutant};
use crate::ledger::conformance;

pub const MUTANTS: &[Mutant] = &[
    mutant!("bucket-depth-forgotten": "a bucket that was deleted is made again whatever depth it is to have",
        caught by conformance::buckets::a_deleted_bucket_keeps_its_depth::on_postgres, which says "OtherDepth",
        "make_bucket": "IF bucket.depth <> p_depth THEN" => "IF bucket.depth <> p_depth AND NOT bucket.deleted THEN",
    ),
    mutant!("bucket-with-objects-deleted": "a bucket is deleted whose resources have objects, if its own has none",
        caught by conformance::buckets::a_bucket_with_objects_is_not_deleted::on_postgres, which says "lake:orders",
        "drop_bucket": "AND o.resource < p_name || ';'" => "AND false",
    ),
    mutant!("bucket-under-older-rules": "a bucket is made that older rules allowed",
        caught by conformance::buckets::buckets_are_held_to_the_rules_in_force::on_postgres, which says "RulesMoved",
        "make_bucket": "PERFORM acts.assert_rules(p_rules, guard.access);" => "",
    ),
];
