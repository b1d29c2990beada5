//! The conformance suites, on every adapter: one test per case and adapter.

use fence_core::memory::{MemoryBlobs, MemoryMint};
use fence_tests::conformance::{self, blobs as store, ledger as cases, mint};
use fence_tests::etcd::Etcd;
use fence_tests::stores::{Kind, Store};
use fence_tests::survey;
use tempfile::TempDir;

/// Cases on every ledger.
macro_rules! on_every_ledger {
    ($($module:ident { $($case:ident)+ })+) => { $(pub mod $module { $(pub mod $case {
        use super::super::{cases, conformance};

        #[tokio::test]
        async fn in_memory() {
            cases::$module::$case(&conformance::memory_ledger()).await;
        }

        #[tokio::test]
        async fn on_sqlite() {
            let opened = conformance::sqlite_ledger().await;
            cases::$module::$case(&opened.ledger).await;
        }

        #[tokio::test]
        pub async fn on_postgres() {
            let opened = conformance::postgres_ledger().await;
            cases::$module::$case(&opened.ledger).await;
        }
    })+ })+ };
}

/// Cases that reach into the tables.
macro_rules! on_every_database {
    ($($module:ident::$case:ident)+) => { pub mod databases { $(pub mod $case {
        use super::super::{cases, conformance};

        #[tokio::test]
        async fn on_sqlite() {
            let opened = conformance::sqlite_ledger().await;
            cases::$module::$case(&opened.ledger, &opened.operator).await;
        }

        #[tokio::test]
        pub async fn on_postgres() {
            let opened = conformance::postgres_ledger().await;
            cases::$module::$case(&opened.ledger, &opened.operator).await;
        }
    })+ } };
}

/// Cases about a ledger whose deadlines are on the clock of the process that opens it.
macro_rules! on_sqlite_opened_again {
    ($($module:ident::$case:ident)+) => { mod opened_again { $(
        #[tokio::test]
        async fn $case() {
            let opened = super::conformance::sqlite_ledger().await;
            super::cases::$module::$case(&opened.ledger, &opened.operator).await;
        }
    )+ } };
}

/// Cases on every mint.
macro_rules! on_every_mint {
    ($($case:ident)+) => { mod mints { $(mod $case {
        use super::super::*;

        #[tokio::test]
        async fn in_memory() {
            mint::$case(&MemoryMint::default()).await;
        }

        #[tokio::test]
        async fn embedded() {
            let home = TempDir::new().expect("a directory");
            mint::$case(&mint::embedded_mint(home.path())).await;
        }

        #[tokio::test]
        async fn on_etcd() {
            let etcd = Etcd::shared().await;
            mint::$case(&mint::etcd_mint(etcd, &etcd.prefix())).await;
        }
    })+ } };
}

on_every_ledger! {
    access {
        a_token_is_unknown_to_everybody_else
        a_token_that_is_over_is_unknown_to_everybody_else
        writers_write_and_do_nothing_else
        an_id_is_of_its_principal
        a_burial_gives_nobody_a_lock_back
        a_transfer_is_repeated_by_whoever_made_it
        a_transfer_is_to_a_principal
        a_lock_belongs_to_the_credential_that_was_shown_last
        nothing_is_decided_under_older_rules
        what_older_rules_forbid_stores_a_due_break
        each_of_a_batch_is_held_to_its_own_rules
        rules_follow_those_that_were_meant
        what_principals_have_is_counted
        who_was_refused_is_on_record
    }
    blobs {
        a_put_makes_a_blob_an_objects
        a_put_without_an_intent_has_no_effect
        an_intent_is_consumed_once
        an_upload_that_was_given_up_is_not_committed
        a_refused_put_leaves_its_intent
        a_replaced_blob_stays_for_a_while
        garbage_is_deleted_twice
        garbage_is_forgotten_after_the_second_time
        deletions_replace_blobs_as_well
        blobs_replaced_in_their_own_batch_are_found
        what_is_being_read_is_no_garbage
        uploads_in_vain_are_refused_early
        a_break_that_is_due_but_not_stored_refuses_no_upload
        a_replayed_put_leaves_its_blob
        a_ledger_is_bound_to_one_store
        passes_are_bounded
        replaced_versions_are_gone
        garbage_is_handed_out_to_those_who_can_delete_it
        nothing_is_deleted_for_a_while_after_a_re_fence
        the_blob_of_a_forgotten_version_stays_for_a_while
    }
    listing {
        lists_are_in_the_order_of_whole_keys
    }
    multipart {
        parts_become_an_object
        parts_go_with_their_object
        an_upload_that_was_aborted_is_garbage_with_its_parts
        a_blob_is_no_upload_in_parts
        uploads_in_parts_have_time_of_their_own
        a_successor_completes_what_its_predecessor_uploaded
        parts_that_are_not_there_complete_nothing
        of_two_parts_the_one_begun_last_counts
        keys_of_two_spaces_never_meet
        uploads_of_a_bucket_are_listed_in_order
    }
    multipart_ends {
        a_late_part_is_not_stored
        a_part_is_held_to_the_rules_in_force
        a_late_abort_ends_nothing
        an_abort_is_held_to_the_rules_in_force
        parts_stay_while_a_copy_may_have_them
        a_void_part_is_not_taken
        nothing_told_of_an_object_clings_to_the_next
    }
    buckets {
        a_bucket_is_made_once
        a_deleted_bucket_keeps_its_depth
        a_bucket_with_objects_is_not_deleted
        buckets_are_held_to_the_rules_in_force
        a_bucket_that_many_make_has_one_depth
    }
    drains {
        an_intent_is_judged_like_a_write
        an_open_intent_keeps_the_next_lock_out
        a_waiting_lock_is_in_force_when_all_intents_are_closed
        a_draining_lock_is_completed_by_anybody
        an_infinite_lock_that_drained_has_to_be_confirmed
        a_draining_lock_that_expires_is_sealed_over
        a_draining_lock_can_be_given_up
        a_lost_answer_to_an_opening_is_found
        a_lost_answer_to_a_draining_seal_is_found
        an_intent_counts_as_closed_after_the_longest_delay
        an_intent_that_counts_as_closed_is_not_admitted_again
        open_intents_are_listed
        an_operator_resolves_an_intent
        what_came_of_a_request_is_told_by_who_knows
        what_came_of_a_request_is_kept_as_long_as_keys
        a_late_sending_says_nothing_of_a_request_without_intent
        a_re_fence_puts_drained_upstreams_in_doubt
        a_lock_in_force_ends_the_doubt_of_its_resource
        an_upstream_that_is_new_after_a_re_fence_is_in_doubt
    }
    commits {
        each_resource_takes_one_version
        deleting_nothing_takes_no_version
        what_is_refused_in_part_is_refused_whole
        one_resource_may_refuse_for_all
        resources_of_different_locks_take_no_commit
        a_sequence_rises_on_each_resource
        conditions_are_about_the_state_before
        a_version_may_be_demanded_of_another_resource
        each_version_is_an_event
        a_thousand_steps_take_one_version
    }
    recommits {
        a_known_key_replays_the_commit
        a_key_that_had_its_effect_answers_for_a_buried_commit
        a_key_used_on_one_resource_refuses_all
        a_commit_whose_answer_was_lost_is_found
        a_rerun_applies_or_buries
        intents_are_consumed_together
        replaced_blobs_are_kept_and_swept
    }
    infinite {
        an_infinite_lock_lasts_a_minute_until_it_is_renewed
        the_same_call_again_confirms_an_infinite_lock
        a_rerun_confirms_no_infinite_lock
        the_same_call_with_another_ttl_changes_it
        a_late_sending_changes_nothing_of_a_lock_in_force
        a_late_sending_of_a_transfer_confirms_nothing
        a_numbered_sending_revives_a_lock_that_has_lapsed
        the_same_call_without_a_ttl_keeps_it
        a_renewal_changes_to_infinite_and_back
        the_successor_of_an_infinite_lock_has_to_show_up
        an_infinite_lock_can_be_broken
    }
    holds {
        a_longest_hold_bounds_every_deadline
        a_lock_held_for_too_long_is_not_extended
        a_transfer_carries_hold_and_metadata_over
        metadata_stays_with_the_lock
        the_largest_metadata_fits
    }
    feed {
        the_history_of_a_resource_is_newest_first
        every_write_is_one_event_in_version_order
        events_are_read_in_pages
        a_re_fence_voids_the_cursors_before_it
    }
    fences {
        a_fence_admits_its_token_alone
        a_fence_keeps_nobody_out
        a_live_lock_is_fenced_off_by_force_only
        an_ended_lock_is_fenced_off_without_force
        an_order_must_rise
        a_stale_order_needs_no_number
        a_fence_repeated_is_the_same_fence
        the_id_of_a_fence_is_of_nothing_else
        a_fence_is_neither_renewed_nor_handed_over
        a_fence_is_released_like_a_lock
        a_fence_is_broken_at_once
        a_refused_rerun_of_a_fence_is_buried
        fences_and_locks_are_sealed_in_one_batch
    }
    records {
        the_audit_is_followed_oldest_first
        rejections_are_followed_oldest_first
    }
    lines {
        a_line_is_shown_in_its_order
        a_line_shows_who_is_away
    }
    queues {
        what_is_free_is_not_waited_for
        the_first_in_line_is_the_next_holder
        one_ticket_covers_all_resources
        crossing_waiters_go_in_ticket_order
        the_same_id_waits_once
        a_line_has_a_limit
        a_release_leaves_the_line
        who_does_not_come_is_passed_over
        a_renewal_takes_the_turn_back
        who_is_not_present_holds_nobody_up
        a_place_is_kept
        a_refused_rerun_of_a_waiter_stays_in_line
        what_happens_by_itself_is_foretold
        who_missed_its_turn_is_called_again
        kept_places_have_their_turns_together
        who_is_gone_and_waits_in_vain_holds_nobody_up
        who_came_in_vain_keeps_its_turn
        a_fence_does_not_stand_in_line
    }
    transfers {
        a_transfer_hands_over_all_resources
        a_transfer_repeated_is_the_same_lock
        a_lock_that_has_ended_hands_nothing_over
        a_transfer_of_other_resources_is_a_conflict
        an_expired_lock_hands_over
        a_refused_rerun_of_a_transfer_is_buried
    }
    rule {
        the_holder_is_admitted
        an_expired_holder_without_successor_is_admitted
        without_a_fence_every_token_is_unknown
        a_token_never_sealed_is_unknown_on_either_side
        a_huge_token_changes_nothing
        a_superseded_token_is_stale
        a_late_write_is_refused_before_the_successor_writes
        a_released_token_is_released
        a_broken_token_is_broken
        a_lock_id_must_match_at_the_fence_only
        a_sequence_is_judged_before_preconditions
        a_refused_write_leaves_no_trace
    }
    seals {
        a_fresh_resource_is_sealed
        a_number_names_one_grant
        a_held_resource_is_refused_with_its_holder
        an_expired_lock_is_taken_over
        only_locks_that_expired_count_as_taken_over
        the_same_id_again_is_the_same_lock
        the_same_id_for_something_else_conflicts
        an_ended_id_is_never_granted_again
        releasing_an_unknown_id_buries_it
        a_number_that_does_not_rise_is_too_low
        after_a_number_too_low_the_same_id_may_mint_again
        several_resources_are_sealed_all_or_none
        several_resources_need_a_number_above_all_their_fences
        a_lock_taken_over_on_one_resource_has_ended
        a_batch_of_seals_has_a_verdict_each
        one_id_for_two_resources_in_a_batch_is_granted_once
        a_wrong_epoch_seals_nothing
        a_seal_starts_the_sequence_again
        a_breaking_lock_keeps_others_out
    }
    renewals {
        a_renewal_starts_the_ttl_again
        a_renewal_may_bring_a_new_ttl
        a_renewal_revives_an_expired_lock
        renewing_an_unknown_id_finds_nothing
        an_ended_lock_is_not_renewed
        a_breaking_lock_is_not_renewed
        many_are_renewed_at_once
        a_lock_on_several_resources_is_renewed_on_all
        a_release_frees_the_resource
        a_release_is_idempotent
        two_releases_in_one_batch_release_once
        an_unknown_id_is_buried_only_where_it_may_be
        a_breaking_lock_may_be_released
        an_expired_lock_may_be_released
        a_release_frees_all_its_resources
        a_lock_that_ended_in_part_is_released_on_the_rest
        a_break_of_any_resource_shows
        a_grant_that_was_never_renewed_may_be_released_on_that_condition
        a_grant_that_was_taken_up_since_is_kept
        a_conditional_release_is_decided_in_its_batch
    }
    breaks {
        a_break_at_once_fences_the_holder_off
        a_break_after_a_while_comes_due
        a_due_break_is_stored_by_whoever_acts
        a_due_break_frees_the_resource
        a_second_break_shortens_and_never_extends
        a_break_is_due_at_the_deadline_at_the_latest
        an_expired_lock_is_broken_at_once
        a_break_after_ages_waits_for_the_deadline
        a_break_is_about_one_token
        what_nobody_holds_is_not_broken
        a_break_is_idempotent
        a_batch_of_breaks_has_a_verdict_each
        a_lock_broken_on_one_resource_has_ended
    }
    writes {
        versions_count_the_writes_of_a_resource
        a_put_is_answered_in_full_and_read_back
        an_empty_body_is_an_object
        a_tag_is_of_the_version_that_wrote_the_object
        a_delete_takes_a_version
        a_delete_of_nothing_takes_no_version
        the_retry_of_a_delete_of_nothing_deletes_nothing
        deleting_all_takes_one_version
        deleting_all_of_nothing_takes_no_version
        if_match_demands_the_tag
        an_object_may_have_to_exist_or_not
        the_resource_may_have_to_be_at_a_version
        a_sequence_strictly_rises
    }
    keys {
        a_key_replays_its_first_answer
        an_answer_equals_what_is_read_later
        a_key_replays_before_anything_is_judged
        a_key_replays_whatever_became_of_the_token
        a_key_of_another_payload_is_reused
        a_key_is_of_one_resource
        a_refused_write_leaves_its_key_free
        a_key_replays_deletions
    }
    reruns {
        an_operation_that_is_known_is_found
        a_rerun_of_an_absent_write_applies_it
        a_rerun_that_is_refused_buries_its_id
        a_rerun_is_buried_whatever_refused_it
        a_first_sending_that_is_refused_buries_nothing
        burying_an_absent_write_stops_it
        a_rerun_with_a_key_finds_the_effect
        a_rerun_that_its_key_answers_buries_its_id
        a_key_that_had_its_effect_answers_for_a_buried_id
        what_its_key_buried_in_a_batch_stays_so_in_it
        one_operation_twice_in_a_batch_has_one_effect
        what_is_buried_in_a_batch_stays_so_in_it
        a_rerun_of_a_sealed_id_is_the_same_lock
        a_rerun_of_an_absent_seal_seals
        a_rerun_of_a_seal_that_is_refused_buries_its_id
        burying_an_absent_seal_stops_it
        an_empty_batch_is_decided
    }
    batches {
        of_two_equal_if_match_one_wins
        of_two_equal_keys_one_takes_effect
        a_key_of_a_refused_item_is_free_for_the_next
        of_two_creations_one_wins
        three_puts_to_one_key_take_three_versions
        a_put_then_a_delete
        a_delete_then_a_put
        two_deletes_take_one_version
        a_put_then_a_deletion_of_all_then_a_put
        conditions_see_what_was_wiped_before
        a_demanded_resource_version_sees_the_items_before
        a_sequence_falls_in_one_batch
        items_on_many_resources_are_interleaved
        one_stale_item_among_good_ones
        a_large_batch_is_decided_in_order
    }
    marks {
        a_frozen_resource_stops_writers_and_grants
        a_frozen_resource_is_not_taken_over
        a_known_key_is_answered_while_frozen
        a_frozen_resource_can_be_broken
        a_protected_resource_keeps_its_objects
        marks_are_idempotent_and_the_latest_reason_counts
        what_was_never_locked_is_not_marked
        a_batch_of_marks_has_a_verdict_each
        a_mark_stores_a_due_break
    }
    audit {
        grants_are_audited
        a_grant_of_several_resources_is_audited_on_each
        how_a_grant_ended_is_recorded
        a_grant_ends_on_each_of_its_resources
        a_refence_ends_what_stands
        breaks_are_audited
        the_audit_has_who_asked
        a_break_that_waits_for_the_deadline_is_audited_once
        a_due_break_is_audited_once_by_whoever_acts
        marks_are_audited
        the_audit_is_listed_newest_first
    }
    reads {
        a_batch_of_reads_answers_in_order
        holders_are_the_live_ones
        a_lock_record_follows_its_lock
        locks_are_read_in_the_order_asked
        a_lock_record_says_what_is_happening_to_it
        a_resource_shows_what_its_lock_is_doing
        a_resource_says_how_long_its_lock_lasts
        resources_are_read_in_the_order_asked
        the_face_of_a_resource_changes_with_what_is_news
        resources_are_listed_in_byte_order
        resources_are_listed_by_what_their_locks_do
        a_refused_seal_makes_no_resource
        objects_are_listed_in_byte_order
        an_unknown_operation_is_unknown
        keys_are_known_once_they_took_effect
        rejections_are_listed_newest_first
    }
    own_time {
        a_clock_that_is_said_to_be_right_sets_the_own_time
        a_clock_that_is_not_ahead_sets_no_own_time
        a_rerun_of_what_history_let_go_stays_unknown
        a_rerun_of_what_was_buried_long_ago_stays_unknown
    }
    tidying {
        a_fresh_epoch_opens_with_any_nonce
        an_open_epoch_keeps_its_nonce
        a_sealed_epoch_opens_with_its_own_nonce_only
        a_sweep_keeps_what_is_young
        nothing_is_forgotten_by_the_clock_alone
        the_own_time_goes_on_by_what_has_passed_once
        what_is_stamped_by_a_clock_that_went_back_is_kept_as_long
        a_sweep_removes_old_keys
        a_key_is_kept_as_long_as_its_writer_asked
        a_sweep_removes_locks_that_ended
        a_sweep_removes_buried_ids
        history_goes_but_for_the_newest
        a_grant_goes_once_it_has_a_leaf_which_stays
        young_history_stays
        an_operation_stays_as_long_as_its_key
        tokens_of_history_are_stale
        a_sweep_bounds_the_rejections
        unknown_tokens_push_no_other_rejection_out
    }
    totals {
        each_lock_that_is_held_counts_once
        an_expired_lock_does_not_count
        a_fence_without_a_lock_does_not_count
        a_lock_that_is_broken_on_some_of_its_resources_counts
        a_lock_that_is_to_be_broken_counts_until_then
        a_draining_lock_counts
        void_locks_do_not_count
        frozen_resources_are_counted
    }
    disasters {
        a_refence_of_a_ledger_that_has_moved_on_changes_nothing
        disasters_are_in_the_audit
        a_fence_is_set_anew_after_a_refence
        a_new_epoch_begins_above_every_token
        of_many_switches_from_one_epoch_one_happens
        a_refence_voids_all_tokens
        a_refence_goes_beyond_what_the_mint_remembers
        a_refence_that_nothing_calls_for_changes_nothing
    }
}

on_every_database! {
    drains::an_upstream_is_never_forgotten
    buckets::depths_are_kept_by_the_database
    rule::a_token_at_or_below_the_floor_is_void
    rule::a_frozen_resource_takes_no_write
    rule::a_protected_resource_is_not_deleted
    rule::a_tag_of_an_older_generation_never_matches
    seals::a_raised_floor_frees_what_was_held
    audit::the_audit_only_grows
    records::numbers_are_skipped_by_a_re_fence
    belts::a_fence_never_falls
    belts::a_fence_is_never_removed
    belts::a_fence_is_never_renamed
    belts::a_version_without_an_operation_is_refused
    belts::the_newest_is_never_removed
    belts::the_guard_never_falls
    belts::the_own_time_never_falls
    belts::a_large_resource_is_not_deleted_at_once
    holds::metadata_beyond_the_limit_is_refused_by_the_database
    fences::a_frozen_resource_takes_no_fence
    tidying::grants_go_in_their_order
    sizes::a_page_costs_what_it_holds
    sizes::a_page_of_objects_costs_what_it_holds
    sizes::rejections_of_a_reason_cost_what_they_are
}

on_sqlite_opened_again! {
    infinite::a_restart_keeps_an_infinite_lock_as_it_was
    holds::a_restart_keeps_the_longest_hold
    fences::a_restart_makes_no_lock_of_a_fence
}

on_every_mint! {
    numbers_rise
    each_grant_has_a_number_of_its_own
    concurrent_calls_get_distinct_rising_numbers
    another_nonce_mints_nothing
    adopting_twice_keeps_the_first
    concurrent_adoptions_agree
    a_fresh_mint_has_no_incarnation
    a_hundred_items_are_minted_at_once
    odd_traces_do_no_harm
    a_nonce_is_replaced_by_who_saw_it_last
    of_many_replacements_one_happens
    the_head_is_not_below_any_number
}

#[tokio::test]
async fn a_locked_row_is_busy_and_delays_no_other_on_postgres() {
    let opened = conformance::postgres_ledger().await;
    cases::belts::a_locked_row_is_busy_and_delays_no_other(&opened.ledger, &opened.operator).await;
}

#[tokio::test]
async fn a_locked_row_is_not_marked_on_postgres() {
    let opened = conformance::postgres_ledger().await;
    cases::marks::a_locked_row_is_not_marked(&opened.ledger, &opened.operator).await;
}

#[tokio::test]
async fn a_statement_that_fails_on_sqlite_rolls_back() {
    let opened = conformance::sqlite_ledger().await;
    cases::belts::a_statement_that_fails_rolls_back(&opened.ledger, &opened.operator).await;
}

#[tokio::test]
async fn a_version_that_leaps_over_operations_is_refused_on_sqlite() {
    let opened = conformance::sqlite_ledger().await;
    let (ledger, operator) = (&opened.ledger, &opened.operator);
    cases::belts::a_version_that_leaps_over_operations_is_refused(ledger, operator).await;
}

#[tokio::test]
async fn a_sqlite_file_is_the_same_when_opened_again() {
    let home = TempDir::new().expect("a directory");
    cases::belts::a_sqlite_file_is_the_same_when_opened_again(&home.path().join("ledger.db")).await;
}

/// Random runs, four at a time, each on a ledger of its own.
macro_rules! random_runs {
    ($name:ident, $open:ident) => {
        #[tokio::test]
        async fn $name() {
            let first = survey::seed();
            let mut tallies = Vec::new();
            let (least, most) = cases::random::RUNS.into_inner();
            for seed in (first..).step_by(4) {
                let runs = (seed..seed + 4).map(async |seed| {
                    let opened = conformance::$open().await;
                    cases::random::acts_have_the_same_outcome_as_in_memory(&opened.ledger, seed)
                        .await
                });
                tallies.extend(futures::future::join_all(runs).await);
                let missing = cases::random::kinds_missing(&tallies);
                if tallies.len() >= least && missing.is_empty() {
                    break;
                }
                assert!(tallies.len() < most, "never: {missing:?}");
            }
        }
    };
}

random_runs!(random_acts_have_the_same_outcome_on_sqlite, sqlite_ledger);
random_runs!(random_acts_have_the_same_outcome_on_postgres, postgres_ledger);

#[tokio::test]
async fn two_gateways_share_the_numbers_of_etcd() {
    let etcd = Etcd::shared().await;
    let prefix = etcd.prefix();
    let (one, other) = (mint::etcd_mint(etcd, &prefix), mint::etcd_mint(etcd, &prefix));
    mint::two_gateways_share_the_numbers_of_etcd(&one, &other).await;
}

#[tokio::test]
async fn a_mint_that_ledgers_share_serves_one_and_keeps_its_witness() {
    mint::a_mint_serves_one_ledger(&MemoryMint::default()).await;
    mint::a_witness_is_raised_by_who_saw_it_last(&MemoryMint::default()).await;
    let etcd = Etcd::shared().await;
    mint::a_mint_serves_one_ledger(&mint::etcd_mint(etcd, &etcd.prefix())).await;
    mint::a_witness_is_raised_by_who_saw_it_last(&mint::etcd_mint(etcd, &etcd.prefix())).await;
}

#[tokio::test]
async fn the_embedded_mint_skips_ahead_when_opened_again() {
    let home = TempDir::new().expect("a directory");
    mint::the_embedded_mint_skips_ahead_when_opened_again(home.path()).await;
}

#[tokio::test]
async fn etcd_shows_the_live_locks() {
    let etcd = Etcd::shared().await;
    mint::etcd_shows_the_live_locks(etcd).await;
    mint::etcd_of_another_incarnation_is_not_written_to(etcd).await;
}

#[tokio::test]
async fn etcd_goes_on_after_it_was_killed() {
    mint::etcd_goes_on_after_it_was_killed(&Etcd::dedicated().await).await;
}

/// Ledgers that keep replaced versions of payloads that they have themselves.
mod keeping_versions {
    use super::{cases, conformance};

    #[tokio::test]
    async fn in_memory() {
        let ledger = conformance::memory_ledger().keeping_versions();
        cases::blobs::replaced_versions_stay_readable(&ledger).await;
        let ledger = conformance::memory_ledger().keeping_versions();
        cases::commits::versions_of_a_commit_stay_readable(&ledger).await;
    }

    #[tokio::test]
    async fn on_sqlite() {
        let opened = conformance::sqlite_ledger().await;
        cases::blobs::replaced_versions_stay_readable(&opened.ledger.keeping_versions(true)).await;
        let opened = conformance::sqlite_ledger().await;
        let ledger = opened.ledger.keeping_versions(true);
        cases::commits::versions_of_a_commit_stay_readable(&ledger).await;
    }

    #[tokio::test]
    async fn on_postgres() {
        let opened = conformance::postgres_ledger().await;
        cases::blobs::replaced_versions_stay_readable(&opened.ledger.keeping_versions(true)).await;
        let opened = conformance::postgres_ledger().await;
        let ledger = opened.ledger.keeping_versions(true);
        cases::commits::versions_of_a_commit_stay_readable(&ledger).await;
    }
}

/// Cases on every blob store.
macro_rules! on_every_store {
    ($($case:ident)+) => { mod stores { $(mod $case {
        use super::super::*;

        #[tokio::test]
        async fn in_memory() {
            store::$case(&MemoryBlobs::new(conformance::clock())).await;
        }

        #[tokio::test]
        async fn in_a_folder() {
            let started = Store::start(Kind::Folder).await;
            store::$case(&store::open(&started)).await;
        }

        #[tokio::test]
        async fn on_s3() {
            let started = Store::start(Kind::S3).await;
            store::$case(&store::open(&started)).await;
        }

        #[tokio::test]
        async fn on_azure() {
            let started = Store::start(Kind::Azure).await;
            store::$case(&store::open(&started)).await;
        }
    })+ } };
}

on_every_store! {
    what_is_stored_is_read
    parts_of_a_blob_are_read
    large_blobs_are_stored_in_parts
    pieces_of_any_size_are_put_together
    deletions_may_come_twice
    an_upload_that_was_given_up_leaves_nothing
    an_upload_that_others_end_leaves_nothing
    all_blobs_are_listed
    the_first_mark_stays
}
