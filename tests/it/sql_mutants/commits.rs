//! Mutants of `acts.commit_many`: a commit over several resources that is not all or nothing.

use fence_tests::mutants::Edit;

use super::{Mutant, mutant};
use crate::{
    conformance, schedules_commits, schedules_place, schedules_rows, schedules_rule,
    schedules_skipped,
};

const LOCK: &str = "got := acts.lock_fences(p_resources, p_wait_ms);";

pub const MUTANTS: &[Mutant] = &[
    mutant!("many-conditions-in-the-lock": "the versions of objects are read by the statement that locks the fences",
        caught by schedules_commits::a_precondition_that_changes_while_a_commit_waits_refuses_it, which says "Applied",
        "commit_many": "SELECT array_agg('g' || b.generation || '-v' || b.version ORDER BY p.i),
               array_agg(b.blob IS NOT NULL ORDER BY p.i)
        INTO o_tag, o_blob
        FROM" => "PERFORM FROM",
        "commit_many": LOCK => "SELECT acts.lock_fences(p_resources, p_wait_ms), x.tags, x.blobs INTO got, o_tag, o_blob
            FROM (SELECT array_agg('g' || b.generation || '-v' || b.version ORDER BY p.i) AS tags,
                         array_agg(b.blob IS NOT NULL ORDER BY p.i) AS blobs
                  FROM unnest(p_object, p_resource) WITH ORDINALITY p (key, resource, i)
                  LEFT JOIN fencegate.objects b
                         ON b.resource = p_resources[p.resource] AND b.key = p.key) x;",
    ),
    mutant!("many-first-steps-applied": "the steps before one that is refused take effect",
        caught by schedules_commits::a_precondition_that_changes_while_a_commit_waits_refuses_it, which says "left: 2",
        "commit_many": "IF FOUND THEN\n            why := 'version_mismatch';" => "IF FOUND THEN
            why := 'version_mismatch';
            INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256,
                                           written_at, body, blob)
            SELECT p_resources[p.resource], p.key, f_version[p.resource] + 1, guard.generation,
                   p.content_type, p.size, p.sha256, t, p.body, p.blob
            FROM unnest(p_resource, p_object, p_content_type, p_size, p_sha256, p_body, p_blob)
                 WITH ORDINALITY p (resource, key, content_type, size, sha256, body, blob, i)
            WHERE p.size IS NOT NULL AND p.i < step
            ON CONFLICT (resource, key) DO NOTHING;",
    ),
    mutant!("many-first-resource-decides": "only the first resource is judged",
        caught by schedules_commits::a_commit_behind_a_seal_of_one_of_its_resources_is_stale_on_all, which says "Applied",
        "commit_many": "FOR r IN 1 .. cardinality(p_resources) LOOP" => "FOR r IN 1 .. 1 LOOP",
    ),
    mutant!("many-unjudged": "commit_many takes any commit",
        caught by schedules_place::a_commit_that_waits_while_the_floor_rises_is_void, which says "Applied",
        "commit_many": "IF why = 'older' THEN" => "why := NULL; IF why = 'older' THEN",
    ),
    mutant!("many-for-key-share": "commit_many locks the fences FOR KEY SHARE, which keeps no seal out",
        caught by schedules_commits::a_commit_behind_a_seal_of_one_of_its_resources_is_stale_on_all, which says "Applied",
        "commit_many": LOCK => "SELECT coalesce(array_agg(l.resource), '{}') INTO got FROM (
            SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_resources)
            ORDER BY f.resource FOR KEY SHARE) l;",
    ),
    mutant!("many-sequence-not-stored": "the sequence number is not stored on resources on which nothing changed",
        caught by conformance::commits::a_sequence_rises_on_each_resource::on_postgres, which says "Applied",
        "commit_many": "AND (c.version IS NOT NULL OR p_seq IS NOT NULL);" => "AND c.version IS NOT NULL;",
    ),
    mutant!("many-versions-ignored": "demanded versions of resources are not looked at",
        caught by conformance::commits::a_version_may_be_demanded_of_another_resource::on_postgres, which says "Applied",
        "commit_many": "ELSIF p_if_version[r] <> f_version[r] THEN" => "ELSIF false THEN",
    ),
    mutant!("many-known-id-before-the-lock": "the operation is looked up before the fences are locked (the belts refuse the second effect)",
        caught by schedules_commits::the_same_commit_sent_twice_has_one_effect, which says "duplicate key",
        "commit_many": "any_blob    boolean :=" => "past uuid[]; any_blob boolean :=",
        "commit_many": "FROM fencegate.operations op WHERE op.id = p_operation" => "FROM fencegate.operations op WHERE op.id = ANY (past)",
        "commit_many": LOCK => "past := ARRAY(SELECT op.id FROM fencegate.operations op WHERE op.id = p_operation);
            got := acts.lock_fences(p_resources, p_wait_ms);",
    ),
    mutant!("many-buried-id-never": "a buried id is not looked up, so a first sending that comes late takes effect",
        caught by schedules_rows::a_commit_that_was_given_up_has_no_effect_when_it_comes_late, which says "Applied",
        "commit_many": "WHERE b.kind = 'operation' AND b.id = p_operation) x" => "WHERE false) x",
    ),
    mutant!("many-refused-rerun-not-buried": "a rerun that is refused does not bury its id",
        caught by conformance::recommits::a_rerun_applies_or_buries::on_postgres, which says "right: Buried",
        "commit_many": "IF p_attempt = 1 AND why <> 'busy' THEN" => "IF false THEN",
    ),
    mutant!("many-key-before-the-lock": "the key is looked up before the fences are locked, and a key that is there is no error",
        caught by schedules_rows::of_two_commits_with_one_key_one_takes_effect_and_the_other_replays_it, which says "replayed: false",
        "commit_many": "any_blob    boolean :=" => "past text[]; any_blob boolean :=",
        "commit_many": "ON s.resource = p.name AND s.key = p_key" => "ON s.resource = p.name AND s.key = p_key AND s.resource = ANY (past)",
        "commit_many": "FROM unnest(p_resources) name;" => "FROM unnest(p_resources) name ON CONFLICT DO NOTHING;",
        "commit_many": LOCK => "past := ARRAY(SELECT s.resource FROM fencegate.idempotency_keys s WHERE s.key = p_key);
            got := acts.lock_fences(p_resources, p_wait_ms);",
    ),
    mutant!("many-key-on-first-resource": "the key is stored on the first resource alone",
        caught by conformance::recommits::a_key_used_on_one_resource_refuses_all::on_postgres, which says "left: Applied",
        "commit_many": "FROM unnest(p_resources) name;" => "FROM unnest(p_resources[1:1]) name;",
    ),
    mutant!("many-skipped-is-absent": "a fence whose row was skipped counts as one that is not there",
        caught by schedules_commits::a_commit_skips_a_locked_row_and_keeps_no_other, which says "Unknown",
        "commit_many": "LEFT JOIN fencegate.fences f ON f.resource = p.name;" => "LEFT JOIN fencegate.fences f ON f.resource = p.name AND f.resource = ANY (got);",
    ),
    mutant!("many-skipped-is-locked": "a fence whose row was skipped is judged by what it showed",
        caught by schedules_skipped::a_commit_is_not_decided_on_a_row_that_was_skipped, which says "Applied",
        "commit_many": "bool_or(f.resource IS NOT NULL AND f.resource <> ALL (got))" => "false",
    ),
    mutant!("many-one-version": "only the first resource takes a version",
        caught by conformance::commits::each_resource_takes_one_version::on_postgres, which says "null value in column",
        "commit_many": "SELECT array_agg(CASE WHEN p.changed THEN p.version + 1 END ORDER BY p.i) INTO f_version" => "SELECT array_agg(CASE WHEN p.changed AND p.i = 1 THEN p.version + 1 END ORDER BY p.i) INTO f_version",
    ),
    mutant!("many-due-break-ignored": "a break counts once it is stored, not once it is due",
        caught by schedules_rule::a_break_that_has_come_due_is_seen_by_every_act, which says "not refused: Applied",
        "commit_many": "AND f.break_due <= t THEN 'due'" => "AND false THEN 'due'",
    ),
    mutant!("many-due-break-not-stored": "a break that has come due refuses, and is not stored: a step of a clock takes it back",
        caught by schedules_rule::a_break_that_has_come_due_is_seen_by_every_act, which says "left: 0",
        "commit_many": "PERFORM acts.settle(p_resources, t);" => "",
    ),
    mutant!("many-deletes-elsewhere": "a delete removes the objects of its name on all resources",
        caught by schedules_rows::a_delete_leaves_the_objects_of_other_resources, which says "left: 0",
        "commit_many": "AND b.resource = p_resources[p.resource] AND b.key = p.key;\n    INSERT INTO fencegate.objects" => "AND b.key = p.key;\n    INSERT INTO fencegate.objects",
    ),
];
