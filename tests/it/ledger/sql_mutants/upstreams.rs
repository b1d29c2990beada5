//! Mutants of the acts on intents of drained upstreams.

use fence_tests::mutants::Edit;

use super::{Mutant, mutant};
use crate::ledger::conformance;
use crate::schedules;

const LOCK: &str = "got := acts.lock_fences(p_resources, p_wait_ms);";

pub const MUTANTS: &[Mutant] = &[
    mutant!("intents-in-the-lock": "seal reads open intents by the statement that locks the fence",
        caught by schedules::upstreams::a_seal_behind_an_opening_sees_the_intent, which says "Sealed",
        "seal": LOCK => "SELECT acts.lock_fences(p_resources, p_wait_ms), x.open INTO got, may_drain
            FROM (SELECT EXISTS (SELECT FROM fencegate.upstream_intents u
                                 WHERE u.resource = ANY (p_resources)) AS open) x;",
        "seal": "IF may_drain IS NULL THEN" => "IF false THEN",
    ),
    mutant!("intents-before-the-lock": "seal reads open intents before it locks the fence",
        caught by schedules::upstreams::a_seal_behind_an_opening_sees_the_intent, which says "Sealed",
        "seal": LOCK => "may_drain := EXISTS (
            SELECT FROM fencegate.upstream_intents u WHERE u.resource = ANY (p_resources));
            got := acts.lock_fences(p_resources, p_wait_ms);",
        "seal": "IF may_drain IS NULL THEN" => "IF false THEN",
    ),
    mutant!("intents-not-looked-for": "seal looks for doubts, not for open intents",
        caught by schedules::upstreams::a_seal_behind_an_opening_sees_the_intent, which says "Sealed",
        "drains": "RETURN least(open, in_doubt COLLATE \"C\");" => "RETURN in_doubt;",
    ),
    mutant!("draining-in-force": "a lock is in force at once although intents are open",
        caught by conformance::drains::a_waiting_lock_is_in_force_when_all_intents_are_closed::on_postgres, which says "left: Leased",
        "store_seals": "hold = CASE d.verdict WHEN 'drains' THEN 'draining' ELSE 'held' END," => "hold = 'held',",
    ),
    mutant!("completed-with-open-intents": "a draining lock is completed although intents are open",
        caught by schedules::rule::a_draining_lock_is_not_completed_while_an_intent_is_open, which says "right: Ok([])",
        "complete_drains": "IF acts.drains(known.resources, t) IS NULL THEN" => "IF true THEN",
    ),
    mutant!("doubts-forgotten": "a re-fence, which may have lost intents, puts no upstream in doubt",
        caught by conformance::drains::a_re_fence_puts_drained_upstreams_in_doubt::on_postgres, which says "left: []",
        "refence": "SET doubt_floor = raised, doubt_since = clock_timestamp();" => "SET doubt_floor = NULL, doubt_since = NULL;",
    ),
    mutant!("opened-for-key-share": "open_intents locks the fence FOR KEY SHARE: an intent is opened beside a seal",
        caught by schedules::upstreams::an_opening_behind_a_seal_is_stale, which says "it did not wait",
        "open_intents": "got := acts.lock_fences(p_resource, p_wait_ms);" => "SELECT coalesce(array_agg(l.resource), '{}') INTO got FROM (
            SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_resource)
            ORDER BY f.resource FOR KEY SHARE) l;",
    ),
    mutant!("opened-unjudged": "open_intents takes any request",
        caught by schedules::upstreams::an_opening_behind_a_seal_is_stale, which says "Admitted",
        "open_intents": "IF verdict = 'older' THEN" => "verdict := NULL; IF verdict = 'older' THEN",
    ),
    mutant!("opened-though-buried": "a buried id is not looked up, so a first sending that comes late is forwarded",
        caught by conformance::drains::a_lost_answer_to_an_opening_is_found::on_postgres, which says "Admitted",
        "open_intents": "WHERE b.kind = 'operation' AND b.id = p_operation[i]) THEN" => "WHERE false) THEN",
    ),
    mutant!("opened-twice": "an intent that is open is not looked up under the lock",
        caught by schedules::rows::the_same_opening_sent_twice_opens_one_intent, which says "SequenceOutOfOrder",
        "open_intents": "SELECT * INTO known FROM fencegate.upstream_intents u WHERE u.operation = p_operation[i];" => "known := NULL;",
    ),
    mutant!("closed-and-forgotten": "an intent that was closed is not kept",
        caught by schedules::upstreams::an_opening_that_comes_late_opens_nothing, which says "Admitted",
        "close_intents": "PERFORM acts.close_known(p_operation, p_status, clock_timestamp());" => "DELETE FROM fencegate.upstream_intents u WHERE u.operation = ANY (p_operation);",
    ),
    mutant!("closed-is-open": "an intent that was closed is taken for open",
        caught by schedules::upstreams::an_opening_that_comes_late_opens_nothing, which says "Admitted",
        "open_intents": "ELSIF known.closed IS NOT NULL THEN" => "ELSIF false THEN",
    ),
    mutant!("resolved-beside-an-act": "an operator's resolution does not wait for acts on the fence",
        caught by schedules::rows::a_resolution_waits_for_an_act_under_way, which says "it did not wait",
        "resolve_intent": "PERFORM acts.lock_fences(ARRAY[known.resource], p_wait_ms);" => "",
    ),
    mutant!("resolved-and-forgotten": "an intent that was resolved is not kept",
        caught by schedules::upstreams::an_opening_behind_a_resolution_is_buried, which says "Admitted",
        "resolve_intent": "UPDATE fencegate.upstream_intents u SET closed = 'resolved', closed_at = acts.stamp(t), reason = p_reason
    WHERE u.operation = p_operation AND u.closed IS NULL RETURNING * INTO known;" => "DELETE FROM fencegate.upstream_intents u WHERE u.operation = p_operation RETURNING * INTO known;",
    ),
    mutant!("expired-and-forgotten": "an intent that counts as closed is not kept",
        caught by schedules::rule::an_opening_that_comes_after_its_time_opens_nothing, which says "Admitted",
        "sweep_intents": "o.closed_at < (SELECT w.at FROM fencegate.own_time w) - p_keep_s * interval '1 second'" => "o.closed_at <= t + interval '1 day'",
    ),
    mutant!("resolved-is-not-applied": "what an operator has closed is said not to have been sent",
        caught by conformance::drains::what_came_of_a_request_is_told_by_who_knows::on_postgres, which says "left: Some(Known(Unsent))",
        "resolve_intent": "SET closed = 'resolved', closed_at = acts.stamp(t), reason = p_reason" => "SET closed = 'unsent', closed_at = acts.stamp(t)",
    ),
    mutant!("expired-is-not-applied": "what counts as closed is said not to have been sent once it was swept",
        caught by conformance::drains::an_intent_counts_as_closed_after_the_longest_delay::on_postgres, which says "left: Some(Known(Unsent))",
        "sweep_intents": "SET closed = 'elapsed', closed_at = acts.stamp(u.closes_at)" => "SET closed = 'unsent', closed_at = acts.stamp(u.closes_at)",
    ),
    mutant!("sent-late-is-not-applied": "a sending that finds its time over says that nothing was sent",
        caught by conformance::drains::an_intent_that_counts_as_closed_is_not_admitted_again::on_postgres, which says "left: Some(Known(Unsent))",
        "open_intents": "SET closed = 'elapsed', closed_at = acts.stamp(u.closes_at)" => "SET closed = 'unsent', closed_at = acts.stamp(u.closes_at)",
    ),
    mutant!("known-is-forgotten": "an answer does not get through to an intent that somebody has closed",
        caught by conformance::drains::what_came_of_a_request_is_told_by_who_knows::on_postgres, which says "left: Some(Resolved(",
        "close_known": "(u.closed IS NULL OR u.closed IN ('resolved', 'elapsed'))" => "u.closed IS NULL",
    ),
    mutant!("known-is-taken-back": "a close that comes again changes what is known",
        caught by conformance::drains::what_came_of_a_request_is_told_by_who_knows::on_postgres, which says "left: Some(Known(Unsent))",
        "close_known": " AND (u.closed IS NULL OR u.closed IN ('resolved', 'elapsed'))" => "",
    ),
    mutant!("refused-without-intent-is-buried": "a refused sending of a request without intent says that it took no effect",
        caught by conformance::drains::a_late_sending_says_nothing_of_a_request_without_intent::on_postgres, which says "left: Ok(Some(Buried))",
        "open_intents": "IF p_drained[i] THEN
                PERFORM acts.bury('operation', p_operation[i], t);
            ELSIF" => "PERFORM acts.bury('operation', p_operation[i], t);
            IF NOT p_drained[i] AND",
    ),
    mutant!("opened-after-a-due-break": "a break counts once it is stored, not once it is due",
        caught by schedules::rule::a_break_that_has_come_due_is_seen_by_every_act, which says "left: Admitted",
        "open_intents": "PERFORM acts.settle(
            ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);" => "",
    ),
];
