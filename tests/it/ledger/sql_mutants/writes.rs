//! Mutants of `acts.write`: what it admits, on what it decides, and what it stores of writes on one resource.

use fence_tests::mutants::Edit;
use fence_tests::mutants::shared;
pub use fence_tests::mutants::shared::{BUSY, LOCK, LOCK_FOR_KEY_SHARE, RERUN};

use super::{Mutant, mutant};
use crate::ledger::conformance;
use crate::schedules;

/// The fences are locked, and what the objects are was read before.
pub const LOOK_AND_LOCK: &str = "PERFORM set_config('test.past', coalesce((
        SELECT string_agg(o.resource || '/' || o.key || '/g' || o.generation || '-v' || o.version, ' ')
        FROM fencegate.objects o WHERE o.resource = ANY (p_resources)), ''), true);
    got := acts.lock_fences(p_resources, p_wait_ms);";
/// An object, as it is.
pub const OBJECT: &str = "SELECT acts.is_as_demanded(r.demand, max(b.generation), max(b.version))
                              FROM fencegate.objects b WHERE b.resource = r.resource AND b.key = r.object";
/// As it was.
pub const OBJECT_OF_THE_PAST: &str = "SELECT acts.is_as_demanded(
        r.demand, max(substr(split_part(split_part(o, '/', 3), '-', 1), 2))::bigint,
        max(substr(split_part(split_part(o, '/', 3), '-', 2), 2))::bigint)
    FROM unnest(string_to_array(current_setting('test.past'), ' ')) o
    WHERE starts_with(o, r.resource || '/' || r.object || '/')";
/// The fences are locked, and keys were looked up before.
pub const KEYS_AND_LOCK: &str = "PERFORM set_config('test.past', coalesce((
        SELECT string_agg(k.operation::text, ',') FROM fencegate.idempotency_keys k
        WHERE k.resource = ANY (p_resources) AND k.key = ANY (p_key)), ''), true);
    got := acts.lock_fences(p_resources, p_wait_ms);";
pub const KEY: &str = "s.key = r.key AND s.space = coalesce(r.space, 'native') OFFSET 0";
pub const KEY_OF_THE_PAST: &str = "s.key = r.key
    AND s.operation::text = ANY (string_to_array(current_setting('test.past'), ',')) OFFSET 0";
pub const KEYS: &str = "WHERE r.why IS NULL AND r.key IS NOT NULL;";
pub const KEYS_OR_NOT: &str = "WHERE r.why IS NULL AND r.key IS NOT NULL ON CONFLICT DO NOTHING;";
/// The rule.
pub const JUDGE: &str = "acts.judge(p_token[i], p_lock[i], p_seq[i], p_floor, f.token, f.lock_id, f.stands, f.is_frozen,";
pub const ADMIT: &str = "acts.judge(f.token, NULL, NULL, 0, f.token, f.lock_id, 'held', false,";
/// Where a fence is read.
pub const FENCE: &str = "FROM fencegate.fences f WHERE f.resource = p_resource[i] OFFSET 0";
pub const FENCE_THAT_IS_LOCKED: &str = "FROM fencegate.fences f
    WHERE f.resource = p_resource[i] AND (p_got IS NULL OR f.resource = ANY (p_got)) OFFSET 0";
pub const DUE: &str = "acts.hold_at(f.hold, f.break_due, p_now) AS stands";
/// Where a burial is, and where no ghost comes by.
const GRAVE: &str = "SELECT min(r COLLATE \"C\")";
const ELSEWHERE: &str = "SELECT 'elsewhere' || min(r COLLATE \"C\")";
pub const DELETE: &str = "AND o.resource = r.resource AND o.key = r.object;";
pub const DELETE_EVERYWHERE: &str = "AND o.key = r.object;";
/// The rounds of a batch.
const ROUNDS: &str = "FOREACH z IN ARRAY p_ends LOOP";
const ONE_ROUND: &str = "FOREACH z IN ARRAY p_ends[cardinality(p_ends):] LOOP";

pub const MUTANTS: &[Mutant] = &[
    mutant!("object-condition-in-the-lock": "the versions of objects are read before the fences are locked",
        caught by schedules::writes::of_two_writes_with_one_token_and_one_if_match_one_wins, which says "not refused: Applied",
        "judged_further": OBJECT => OBJECT_OF_THE_PAST,
        "write": LOCK => LOOK_AND_LOCK,
    ),
    mutant!("object-absent-in-the-lock": "the same, for a write that wants no object there",
        caught by schedules::writes::of_two_writes_that_want_no_object_there_one_wins, which says "not refused: Applied",
        "judged_further": OBJECT => OBJECT_OF_THE_PAST,
        "write": LOCK => LOOK_AND_LOCK,
    ),
    mutant!("resource-version-in-the-lock": "the version of the resource is read before the fences are locked",
        caught by schedules::writes::of_two_writes_for_one_resource_version_one_wins, which says "not refused: Applied",
        "judged": "p_if_version[i] <> coalesce(n.version, 0)" => "p_if_version[i] <> current_setting('test.past')::bigint",
        "write": LOCK => "PERFORM set_config('test.past', acts.version(p_resources[1])::text, true);
            got := acts.lock_fences(p_resources, p_wait_ms);",
    ),
    mutant!("key-before-the-lock": "idempotency keys are looked up before the fences are locked, and a key that is there is no error",
        caught by schedules::writes::of_two_writes_with_one_key_one_takes_effect_and_the_other_replays_it, which says "not replayed: Applied",
        "judged_further": KEY => KEY_OF_THE_PAST,
        "write": KEYS => KEYS_OR_NOT,
        "write": LOCK => KEYS_AND_LOCK,
    ),
    mutant!("key-after-the-rule": "a known key is replayed only if its token is still good",
        caught by schedules::writes::a_keyed_retry_behind_a_seal_replays_although_its_token_is_stale, which says "not replayed: Refused(Stale",
        "judged_further": "WHEN k.fingerprint = r.fingerprint THEN 'replayed'" => "WHEN r.why IS NOT NULL THEN r.why WHEN k.fingerprint = r.fingerprint THEN 'replayed'",
    ),
    mutant!(shared::WRITE_FOR_KEY_SHARE,
        caught by schedules::writes::a_write_with_the_old_token_behind_a_seal_is_stale, which says "not refused: Applied"),
    mutant!("write-unjudged": "any write is admitted",
        caught by schedules::writes::a_write_with_the_old_token_behind_a_seal_is_stale, which says "not refused: Applied",
        "judged": JUDGE => ADMIT,
    ),
    mutant!(shared::OLDER_TOKEN_ADMITTED,
        caught by schedules::writes::a_write_with_the_old_token_behind_a_seal_is_stale, which says "not refused: Applied"),
    mutant!("higher-token-admitted": "a token is good if it is not below the one sealed last (`>=` for `=`)",
        caught by conformance::rule::a_token_never_sealed_is_unknown_on_either_side::on_postgres, which says "not refused: Applied",
        "judge": "OR p_token > f_token THEN" => "THEN",
    ),
    mutant!("unsealed-token-stale": "a token below the one sealed last is stale, whether it was ever sealed or not",
        caught by conformance::rule::a_token_never_sealed_is_unknown_on_either_side::on_postgres, which says "Stale",
        "older": "coalesce(verdict, 'unknown')" => "'stale'",
    ),
    mutant!("sequence-may-repeat": "a sequence number may come twice",
        caught by schedules::writes::of_two_writes_with_one_sequence_number_one_wins, which says "not refused: Applied",
        "judge": "p_seq <= f_seq" => "p_seq < f_seq",
    ),
    mutant!("no-floor": "the floor is not looked at",
        caught by schedules::guard::a_write_that_waits_while_the_floor_rises_is_void, which says "not refused: Applied",
        "judge": "WHEN (p_token > p_floor) IS NOT TRUE THEN 'void'" => "",
    ),
    mutant!("floor-exclusive": "the token at the floor is good",
        caught by conformance::databases::a_token_at_or_below_the_floor_is_void::on_postgres, which says "not refused: Applied",
        "judge": "p_token > p_floor" => "p_token >= p_floor",
    ),
    mutant!(shared::RELEASED_ADMITTED,
        caught by schedules::writes::a_write_behind_a_release_is_refused_and_one_before_it_is_not, which says "not refused: Applied"),
    mutant!("any-lock-id": "the lock id is not compared",
        caught by conformance::rule::a_lock_id_must_match_at_the_fence_only::on_postgres, which says "right: LockIdMismatch",
        "judge": "WHEN p_lock IS NOT NULL AND p_lock IS DISTINCT FROM f_lock THEN 'lock_id_mismatch'" => "",
    ),
    mutant!("frozen-written": "a frozen resource takes writes",
        caught by conformance::databases::a_frozen_resource_takes_no_write::on_postgres, which says "right: Frozen",
        "judge": "WHEN f_frozen THEN 'frozen'" => "",
    ),
    mutant!("draining-written": "a token that is not in force yet is good for writes",
        caught by schedules::rows::a_token_that_is_not_in_force_is_good_for_nothing, which says "not refused: Applied",
        "judge": "WHEN f_hold = 'draining' THEN 'draining'" => "",
    ),
    mutant!("due-break-ignored": "a break counts once it is stored, not once it is due",
        caught by conformance::breaks::a_due_break_is_stored_by_whoever_acts::on_postgres, which says "not refused: Applied",
        "judged": DUE => "f.hold::text AS stands",
    ),
    mutant!("protected-deleted": "a protected resource may be deleted",
        caught by conformance::databases::a_protected_resource_is_not_deleted::on_postgres, which says "not refused: Applied",
        "judged": "THEN 'protected'" => "THEN NULL",
    ),
    mutant!("tags-without-generation": "tags of objects from before a re-fence still match",
        caught by conformance::databases::a_tag_of_an_older_generation_never_matches::on_postgres, which says "not refused: Applied",
        "is_as_demanded": "'g' || p_generation || '-v' || p_version = ANY (string_to_array(p_demand, ','))"
            => "'v' || p_version = ANY (ARRAY(SELECT split_part(d, '-', 2) FROM unnest(string_to_array(p_demand, ',')) d))",
    ),
    mutant!("batch-on-old-tags": "writes that depend on each other's objects are decided at once",
        caught by conformance::batches::of_two_equal_if_match_one_wins::on_postgres, which says "operations_resource_version",
        "write_rounds": ROUNDS => ONE_ROUND,
    ),
    mutant!("batch-on-old-keys": "the same, by their keys",
        caught by conformance::batches::of_two_equal_keys_one_takes_effect::on_postgres, which says "operations_resource_version",
        "write_rounds": ROUNDS => ONE_ROUND,
    ),
    mutant!("batch-on-old-sequence": "the same, by their numbers",
        caught by conformance::batches::a_sequence_falls_in_one_batch::on_postgres, which says "operations_resource_version",
        "write_rounds": ROUNDS => ONE_ROUND,
    ),
    mutant!("batch-on-old-version": "the same, by the version of the resource",
        caught by conformance::batches::a_demanded_resource_version_sees_the_items_before::on_postgres, which says "operations_resource_version",
        "write_rounds": ROUNDS => ONE_ROUND,
    ),
    mutant!("batch-on-old-ids": "the same, one operation that comes twice",
        caught by conformance::reruns::one_operation_twice_in_a_batch_has_one_effect::on_postgres, which says "duplicate key",
        "write_rounds": ROUNDS => ONE_ROUND,
    ),
    mutant!("first-put-stays": "of several puts of one object in a batch the first is stored",
        caught by conformance::batches::three_puts_to_one_key_take_three_versions::on_postgres, which says "left",
        "write": "p_last[i] IS NOT FALSE" => "p_again[i] IS NOT TRUE",
    ),
    mutant!("all-created": "every object counts as new",
        caught by conformance::writes::versions_count_the_writes_of_a_resource::on_postgres, which says "left: (Some(3), true)",
        "judged": "THEN 'c' ELSE 'r' END" => "THEN 'c' ELSE 'c' END",
    ),
    mutant!("empty-delete-forgotten": "a delete of nothing leaves no operation",
        caught by conformance::writes::the_retry_of_a_delete_of_nothing_deletes_nothing::on_postgres, which says "has no row",
        "write": "AS i) r WHERE r_why[i] IS NULL;
    END IF;
    IF p_key" => "AS i) r WHERE r_why[i] IS NULL AND r_version[i] IS NOT NULL;
    END IF;
    IF p_key",
    ),
    mutant!("empty-delete-key-forgotten": "a delete of nothing leaves no key",
        caught by conformance::writes::the_retry_of_a_delete_of_nothing_deletes_nothing::on_postgres, which says "not replayed: Applied",
        "write": KEYS => "WHERE r.why IS NULL AND r.key IS NOT NULL AND r_version[1] IS NOT NULL;",
    ),
    mutant!(shared::KNOWN_ID_NEVER,
        caught by schedules::ghosts::a_rerun_that_takes_effect_leaves_the_ghost_nothing_to_do, which says "not applied: Refused(VersionMismatch)"),
    mutant!("known-id-refused": "an operation that took effect is refused if it comes again as if for the first time",
        caught by conformance::reruns::an_operation_that_is_known_is_found::on_postgres, which says "Refused",
        "refuse": "IF known = 'known' OR" => "IF false OR",
    ),
    mutant!("large-resource-deleted": "a resource is deleted at once however many objects it has",
        caught by conformance::databases::a_large_resource_is_not_deleted_at_once::on_postgres, which says "not refused",
        "judged": "CASE WHEN f.objects > 10000 THEN 'too_many_objects' END" => "NULL",
    ),
    mutant!("buried-before-the-key": "a burial is told also where a key had its effect",
        caught by conformance::reruns::a_key_that_had_its_effect_answers_for_a_buried_id::on_postgres, which says "not replayed: Buried",
        "judged_further": "WHEN o.kind <> 'buried' THEN 'known'" => "WHEN o.kind IS NOT NULL THEN CASE o.kind WHEN 'buried' THEN 'buried' ELSE 'known' END",
    ),
    mutant!("buried-in-a-batch": "a burial is where a plain write that comes late does not meet it",
        caught by schedules::common::a_write_that_was_buried_before_it_came_has_no_effect, which says "not buried: [Applied",
        "refuse": GRAVE => ELSEWHERE,
    ),
    mutant!(shared::REFUSED_RERUN_NOT_BURIED,
        caught by schedules::ghosts::a_rerun_that_is_refused_buries_the_ghost, which says "Applied"),
    mutant!(shared::GIVEN_UP_NOT_BURIED,
        caught by schedules::ghosts::a_rerun_that_was_given_up_buries_the_ghost, which says "Applied"),
    mutant!("skipped-is-absent": "a fence whose row was skipped counts as one that is not there",
        caught by schedules::sql_races::a_fence_born_inside_a_batch_of_writes_is_busy, which says "Refused(Unknown)",
        "judged": FENCE => FENCE_THAT_IS_LOCKED,
    ),
    mutant!(shared::SKIPPED_IS_LOCKED,
        caught by schedules::skipped::a_write_is_not_decided_on_a_row_that_was_skipped, which says "[Applied"),
    mutant!("deletes-elsewhere": "a delete removes the objects of its name on all resources",
        caught by schedules::rows::a_delete_leaves_the_objects_of_other_resources, which says "left: 0",
        "make_room": DELETE => DELETE_EVERYWHERE,
    ),
    mutant!("wipes-elsewhere": "a deletion of all removes the objects of all resources",
        caught by schedules::rows::a_delete_leaves_the_objects_of_other_resources, which says "left: 0",
        "make_room": "DELETE FROM fencegate.objects o WHERE o.resource = ANY (ARRAY(" => "DELETE FROM fencegate.objects o WHERE cardinality(ARRAY(",
        "make_room": "r.kind = 'delete_all'));" => "r.kind = 'delete_all')) > 0;",
    ),
];
