//! Mutants of the numbering of committed writes, and of how records are followed.

use fence_tests::mutants::Edit;

use super::{Mutant, mutant};
use crate::ledger::conformance;
use crate::schedules;

pub const MUTANTS: &[Mutant] = &[
    mutant!("numbered-in-the-act": "an event gets its number in the act, before the commit: a reader sees later ones first",
        caught by schedules::events::a_write_that_began_earlier_and_commits_last_is_not_skipped, which says "numbers have no gaps",
        "write": "IF p_key IS NOT NULL THEN" => "INSERT INTO fencegate.events (number, operation)
            SELECT nextval('fencegate.tickets'), p_operation[1];
            IF p_key IS NOT NULL THEN",
        "number_committed": "SELECT * INTO mark FROM fencegate.events_mark;" => "UPDATE fencegate.events_mark m
            SET number = greatest(m.number, coalesce((SELECT max(e.number) FROM fencegate.events e), 0));
            RETURN 0;",
    ),
    mutant!("running-forgotten": "a step numbers what began since the last one, not what was running then",
        caught by schedules::events::a_write_that_began_earlier_and_commits_last_is_not_skipped, which says "left: [(\"c\", 1)]",
        "number_committed": "running := ARRAY(SELECT pg_snapshot_xip(mark.seen));" => "running := '{}';",
    ),
    mutant!("numbered-against-versions": "a step numbers in another order than that of the versions",
        caught by schedules::events::a_write_that_waited_for_its_row_comes_after_those_it_waited_for, which says "left: [(\"r\", 2)",
        "number_committed": "OVER (ORDER BY d.at, d.resource, d.version)" => "OVER (ORDER BY d.version DESC)",
    ),
    mutant!("two-steps-at-once": "steps do not take turns",
        caught by schedules::events::steps_come_one_after_the_other, which says "it waits for the other step",
        "number_events": "LOCK TABLE fencegate.events_turn IN EXCLUSIVE MODE NOWAIT;" => "",
    ),
    mutant!("turn-ends-before-the-commit": "the turn of a step ends before it is committed",
        caught by schedules::events::steps_come_one_after_the_other, which says "it waits for the other step",
        "number_events": "IN EXCLUSIVE MODE NOWAIT;" => "IN EXCLUSIVE MODE NOWAIT; RAISE EXCEPTION USING ERRCODE = 'FG4ZZ';",
        "number_events": "EXCEPTION WHEN lock_not_available" => "EXCEPTION WHEN SQLSTATE 'FG4ZZ' THEN NULL; WHEN lock_not_available",
    ),
    mutant!("numbered-on-a-copy": "events are numbered on a ledger that may have lost commits",
        caught by schedules::events::nothing_is_numbered_on_a_ledger_that_may_have_lost_commits, which says "`Ok` value",
        "number_events": "PERFORM acts.assert_place(g.timeline, g.system_id, g.halted, g.acts_min, g.tables, g.started, p_seen)\n        FROM fencegate.write_guard g;" => "",
    ),
    mutant!("generation-not-numbered": "a re-fence begins a generation without numbering what the old one had left",
        caught by conformance::feed::a_re_fence_voids_the_cursors_before_it::on_postgres, which says "right: (EventCursor { generation: 1, number: 3 }",
        "begin_generation": "PERFORM fencegate.number_committed();" => "",
    ),
    mutant!("record-read-ahead": "a record is followed beyond entries that are still to come",
        caught by schedules::records::an_entry_that_is_committed_late_is_not_skipped, which says "right: []",
        "settled": "writers := acts.writers_of(p_log);\n        IF" => "writers := '{}';\n        IF",
    ),
    mutant!("record-read-only-at-rest": "a record is followed only while nobody writes it",
        caught by schedules::records::entries_come_while_others_are_always_under_way, which says "[]",
        "settled": "IF NOT writers && acts.writers_of(p_log) THEN" => "IF acts.writers_of(p_log) = '{}' THEN",
    ),
    mutant!("record-numbers-given-again": "a re-fence goes on with the numbers of entries that may be lost",
        caught by conformance::databases::numbers_are_skipped_by_a_re_fence::on_postgres, which says "REFENCE_JUMP",
        "refence": "PERFORM acts.skip_numbers();" => "",
    ),
];
