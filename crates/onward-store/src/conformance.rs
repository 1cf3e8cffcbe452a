//! The guarantees of the [`Store`] trait as test cases that every store implementation runs.
//!
//! One file per guarantee, one function per claim. Each case gets a fresh store and a manual clock; no case sleeps.
//! A durable store also implements [`Subject::reopen`]; cases that test durability call it midway.
//!
//! ```text
//! onward_store::conformance_tests!(|clock| Box::new(Volatile(Arc::new(MemoryStore::new(clock)))));
//! ```
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod differential;
mod harness;
mod invariants;
mod random;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use crate::sync::block_on;
use crate::{ManualClock, Store};

pub use differential::{differential, differential_of_known_workers};
pub use harness::{Harness, HeldRun};
pub use random::random_operations;

/// Returns the seeds of a random test: the first `usual` ones, more of them with `ONWARD_CASES`, or only `ONWARD_SEED`.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    number("ONWARD_SEED").map_or(0..number("ONWARD_CASES").unwrap_or(usual), |seed| seed..seed + 1)
}

/// Returns whether random tests take their full sample, as in `cargo xtask torture`.
pub fn is_full_sample() -> bool {
    std::env::var_os("ONWARD_CASES").is_some()
}

/// A store under test.
pub trait Subject: Send {
    fn store(&self) -> Arc<dyn Store>;

    /// Closes the store and opens the same data again; does nothing for a store without durable data.
    ///
    /// The caller must have dropped every store that [`Subject::store`] returned.
    fn reopen(&mut self) {}
}

/// A store whose data is lost when it is closed.
pub struct Volatile(pub Arc<dyn Store>);

impl Subject for Volatile {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

/// Creates an empty store that uses the given clock.
pub type Factory<'a> = &'a dyn Fn(Arc<ManualClock>) -> Box<dyn Subject>;

/// One claim about every store.
pub struct Case {
    /// `file::claim`.
    pub name: &'static str,
    run: fn(Harness) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Runs every case; prints the name of each before it runs.
pub fn run_all(make: Factory<'_>) {
    for case in CASES {
        run_case(case.name, make);
    }
}

/// Runs the case called `name` on a new store.
pub fn run_case(name: &str, make: Factory<'_>) {
    let case = CASES.iter().find(|case| case.name == name).expect("the suite has the case");
    eprintln!("conformance {name}");
    block_on((case.run)(Harness::new(make)));
}

/// Declares the modules of the suite, the list of its cases and the macro that turns each into a test.
macro_rules! suite {
    ($d:tt $($module:ident { $($case:ident,)* })*) => {
        $(mod $module;)*

        pub const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            run: |harness| Box::pin($module::$case(harness)),
        },)*)*];

        /// Generates a `#[test]` for every case, one module per guarantee. Takes a [`Factory`] expression.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d make:expr) => {
                $(mod $module {
                    #[allow(unused_imports, reason = "the expression names what it needs")]
                    use super::*;
                    $(#[test]
                    fn $case() {
                        $crate::conformance::run_case(concat!(stringify!($module), "::", stringify!($case)), &$d make);
                    })*
                })*
            };
        }
    };
}

suite! { $
    numbering {
        inputs_and_commits_share_one_numbering_without_gaps,
        a_reader_gets_the_record_that_holds_an_index,
        senders_on_many_threads_get_one_index_each,
        a_missing_run_has_no_log,
    }
    atomic {
        of_two_commits_with_one_number_one_is_taken,
        of_many_concurrent_commits_one_is_taken,
        a_repeated_commit_gets_its_first_answer,
        a_repeated_last_commit_of_a_closed_run_gets_its_first_answer,
        a_refused_commit_leaves_nothing_behind,
        a_commit_and_what_follows_from_it_are_one_write,
    }
    fencing {
        a_claim_raises_the_epoch_and_fences_the_holder_before,
        a_worker_keeps_its_lease_over_commits_and_waits,
        a_released_run_is_claimed_again,
        a_worker_is_told_which_runs_it_holds,
        a_late_release_changes_nothing,
        a_silent_worker_loses_its_runs,
        a_worker_without_a_heartbeat_has_the_default_session,
        a_heartbeat_says_whether_the_worker_was_known,
        concurrent_claims_never_share_a_run,
        a_held_run_shows_as_running,
        pending_runs_are_claimed_oldest_first,
        an_epoch_never_goes_back,
        what_a_holder_says_is_refused_after_another_claim,
    }
    driving {
        a_run_is_taken_by_its_name_with_what_is_brought,
        a_held_run_is_busy_and_takes_nothing,
        a_run_with_nothing_to_do_is_not_leased,
        concurrent_claims_of_a_run_have_one_winner,
    }
    following {
        only_what_is_new_of_a_run_is_read,
        who_holds_a_run_now_is_told_with_what_is_new,
    }
    inputs {
        the_same_signal_id_is_one_input,
        the_same_id_with_something_else_to_say_is_refused,
        a_late_repeat_to_a_closed_run_is_still_a_repeat,
        signals_without_an_id_are_all_taken,
        a_signal_to_an_unknown_run_is_refused,
        an_answer_with_another_id_has_lost,
        a_repeated_answer_leaves_another_question_alone,
        an_answer_is_taken_whatever_else_is_appended,
        an_answer_needs_an_open_question,
        a_question_past_its_deadline_is_lost_to_the_timer,
        a_withdrawn_question_is_lost_to_the_code,
        an_answered_question_has_no_timer_left,
        every_accepted_signal_is_in_the_log_once,
    }
    wake {
        a_commit_that_waits_over_an_unread_input_leaves_the_run_pending,
        a_commit_that_waits_with_everything_read_waits,
        an_input_wakes_a_waiting_run,
        a_storm_of_signals_starves_no_commit,
        listeners_hear_of_records_in_order,
        listeners_hear_of_pending_runs_queued_tasks_due_times_and_deliveries,
    }
    tasks {
        a_task_is_offered_once_while_its_lease_is_valid,
        a_result_is_recorded_once,
        a_failed_attempt_is_retried_after_its_delay,
        the_last_failed_attempt_fails_the_task,
        a_lost_worker_gives_its_task_to_another,
        a_heartbeat_keeps_the_lease,
        a_canceled_task_is_never_offered,
        a_released_task_is_offered_at_once,
        an_at_most_once_task_is_executed_once,
        a_task_that_moved_is_not_lost_by_the_session_before,
        every_attempt_that_began_has_its_own_number,
        tasks_go_by_priority_and_then_in_order,
        a_worker_gets_only_its_kinds_and_queues,
        a_task_that_waits_too_long_fails,
        concurrent_claims_never_share_a_task,
        a_result_for_a_closed_run_is_stale,
        a_quarantined_task_is_listed_and_can_be_retried,
        tasks_are_listed_in_the_order_they_were_scheduled,
    }
    queues {
        a_queue_never_runs_more_than_its_limit,
        a_key_never_runs_more_than_its_limit,
        a_slot_is_freed_however_its_task_ends,
        the_end_of_a_run_frees_all_its_slots,
        keys_of_a_queue_take_turns,
        tasks_of_a_key_go_by_rank,
        a_rate_holds_over_restarts,
        a_paused_queue_hands_out_nothing,
        a_full_queue_refuses_standalone_tasks,
        limits_are_those_of_the_queue_and_namespace,
        keys_are_listed_with_what_waits_and_runs,
        holders_never_exceed_a_limit_and_no_slot_is_lost,
        the_check_of_holders_notices_one_too_many,
    }
    quotas {
        callers_never_start_more_runs_than_may_be_open,
        starts_at_the_same_time_share_a_quota,
        children_count_and_are_never_refused,
        copies_of_runs_count_as_starts,
        a_start_rate_holds_over_restarts,
        a_namespace_never_runs_more_tasks_than_its_quota,
        attempts_with_a_cost_wait_while_the_day_is_spent,
        a_payload_over_the_quota_enters_on_no_way,
        a_quota_of_payloads_ends_with_its_removal,
        counts_of_a_quota_follow_every_change,
    }
    bookkeeping {
        every_way_of_asking_agrees_with_a_bookkeeper,
    }
    spending {
        an_attempt_is_unknown_until_it_says_what_it_cost,
        a_failed_attempt_is_counted_and_wakes_no_worker,
        an_attempt_that_says_nothing_stays_unknown,
        a_task_that_only_happened_to_cost_something_is_counted_too,
        a_report_whose_answer_was_lost_is_counted_once,
        a_report_is_counted_once_also_when_its_run_has_gone_on,
        an_outcome_and_what_it_has_cost_are_one_record,
        an_outcome_is_taken_whatever_becomes_of_its_cost,
        a_task_that_failed_at_a_cost_is_tried_again_with_its_run,
        an_attempt_whose_worker_was_lost_is_counted_beside_the_next_one,
        what_comes_late_is_counted_in_the_generation_that_there_is,
        a_closed_run_is_told_nothing_more,
        a_standalone_task_has_its_cost_with_its_end,
        an_attempt_of_a_fork_is_not_taken_for_one_of_the_original,
        what_was_spent_in_the_turns_before_a_fork_is_the_originals,
        the_ledger_is_asked_by_model_day_run_and_tree,
        what_a_deleted_run_has_cost_stays_in_the_ledger,
        a_restored_run_has_the_rows_that_its_logs_say,
        a_run_that_has_spent_its_budget_begins_no_attempt_until_it_may_spend_more,
        a_budget_is_changed_also_where_nothing_is_paused,
        a_run_whose_time_is_over_begins_no_attempt,
        what_a_child_may_spend_is_its_parents_no_more_until_it_has_ended,
        a_budget_goes_along_when_a_run_continues_as_new,
        quiet_inputs_keep_no_run_from_waiting,
        an_attempt_is_recorded_when_it_is_handed_out,
    }
    standalone {
        a_standalone_task_is_queued_by_its_start,
        its_result_closes_its_run_in_the_same_write,
        its_last_failure_fails_its_run_and_its_attempts_are_counted,
        a_canceled_or_terminated_run_is_not_claimable,
        it_takes_nothing_that_is_for_workflows,
        the_same_start_is_the_same_task,
    }
    deadlines {
        a_run_is_canceled_once_when_its_deadline_passes,
        a_deadline_is_the_next_due_time_before_any_commit,
        a_repeated_start_does_not_move_the_deadline,
        a_pause_moves_the_deadline,
        the_next_generation_has_the_rest_of_the_limit,
        an_ended_run_gets_no_request_from_its_deadline,
        no_commit_touches_the_timer_of_a_deadline,
    }
    schedules {
        a_schedule_starts_each_slot_once,
        a_definition_that_is_refused_writes_nothing,
        the_end_of_a_run_starts_the_next_slot_and_brings_no_output,
        slots_of_a_downtime_are_started_or_missed,
        a_clock_that_goes_back_decides_nothing_twice,
        a_log_that_continues_keeps_the_timer_and_hears_of_earlier_runs,
        a_deleted_schedule_leaves_its_runs_alone,
        a_schedule_accepts_nothing_else_and_lists_leave_it_out,
        a_template_is_sent_with_its_slot,
    }
    memos {
        a_cell_grants_its_first_request_and_answers_the_others_with_the_value,
        a_returned_cell_goes_to_the_next_request_and_closes_after_the_last,
        a_result_after_an_invalidation_is_not_kept,
        a_cell_accepts_nothing_else_and_no_other_run_is_one,
        lists_leave_cells_out_and_their_deletion_is_not_recorded,
        a_closed_cell_is_kept_for_the_time_of_its_value,
        a_run_returns_what_it_asked_for_when_it_ends,
        an_owner_sends_its_result_once,
        a_restored_run_asks_again,
    }
    timers {
        a_timer_fires_once_at_its_time_and_not_before,
        a_canceled_timer_never_fires,
        timers_fire_in_the_order_of_their_times,
        a_call_id_may_be_as_deep_as_the_bound_and_no_deeper,
        a_failed_step_gets_its_retry_timer,
        the_next_due_time_is_the_earliest_of_all,
        an_ended_run_has_no_timers,
    }
    pausing {
        a_paused_run_takes_inputs_but_no_commits_and_no_claims,
        a_paused_timer_keeps_its_remaining_time,
        a_run_that_is_not_paused_cannot_be_resumed,
        a_budget_is_changed_also_where_nothing_is_paused,
        a_pause_upon_a_pause_changes_no_timer,
        a_paused_run_takes_step_results_and_nothing_else,
        a_pause_leaves_the_lease_to_its_holder,
        a_paused_run_whose_holder_falls_silent_stays_paused,
        a_standing_commit_that_comes_after_the_resume_is_taken,
        a_retry_that_is_set_while_the_run_is_paused_keeps_its_time,
        a_paused_run_begins_no_attempt_of_a_task,
        the_timeouts_of_a_paused_task_keep_their_remaining_time,
    }
    children {
        a_child_answers_its_parent_once,
        an_ended_parent_tells_each_child_what_was_agreed,
        a_child_that_starts_after_its_parent_ended_is_told,
        news_stay_until_they_are_finished,
        a_signal_to_another_run_is_taken_once,
        a_namesake_of_a_deleted_run_is_not_taken_for_it,
    }
    ending {
        of_terminate_and_complete_the_first_wins,
        of_concurrent_ends_one_is_taken,
        a_run_does_not_end_over_an_unread_signal,
        a_closed_run_takes_nothing_more,
        an_ended_run_leaves_no_tasks_and_no_questions,
    }
    continuing {
        a_spawned_child_outlives_a_generation_and_ends_with_the_run,
        a_run_that_is_handed_over_is_of_the_other_kind,
        a_continued_run_begins_a_new_log_under_its_old_name,
        the_successor_is_free_and_the_old_lease_does_not_fit_it,
        a_repeat_of_the_commit_that_continued_gets_its_first_answer,
        slots_carry_over_to_the_successor,
        of_two_branches_before_the_first_is_carried_out_one_is_taken,
        of_branches_that_come_at_the_same_time_one_is_taken,
        what_answers_the_old_generation_is_refused,
        nothing_open_of_the_old_generation_is_left,
        a_result_of_the_old_generation_does_not_fit_the_successor,
        a_child_of_the_old_generation_hears_once_of_its_end,
        a_run_does_not_continue_over_what_its_worker_has_not_seen,
        a_request_to_cancel_goes_along,
        an_unanswered_update_goes_along,
    }
    retention {
        an_open_run_cannot_be_deleted,
        a_deleted_run_is_gone_with_all_its_generations,
        a_lease_on_a_deleted_run_does_not_fit_its_namesake,
        a_claim_on_a_task_of_a_deleted_run_does_not_fit_its_namesake,
        a_run_with_an_open_child_is_kept,
        runs_with_open_children_do_not_block_retention,
        a_run_with_unfinished_news_is_kept,
        closed_runs_go_when_the_time_of_their_kind_is_over,
        a_reader_sees_a_whole_run_or_none,
        a_deleted_run_leaves_its_reason_for_as_long_as_it_would_have_been_kept,
    }
    restoring {
        a_restored_run_is_the_run_it_was,
        a_restored_run_remembers_what_it_took,
        who_held_a_run_elsewhere_does_not_hold_it_where_it_was_restored,
        who_held_a_task_elsewhere_does_not_hold_it_where_it_was_restored,
        the_same_run_again_is_nothing_new_and_another_is_refused,
        a_log_that_breaks_its_rules_is_not_taken,
        a_failed_run_goes_on_as_its_next_generation,
        the_same_retry_twice_is_one,
        only_a_failed_run_is_retried,
        a_question_of_a_retried_run_keeps_its_id,
        a_retried_task_is_scheduled_again_under_its_old_key,
        a_retry_that_comes_after_the_run_was_deleted_finds_nothing,
        of_a_retry_and_a_deletion_one_happens,
        a_fork_is_a_run_of_its_own,
        a_reset_ends_the_original,
        what_must_not_be_done_twice_is_not_done_again_in_a_fork,
        a_fork_before_an_unknown_outcome_is_explicit,
        what_must_not_be_done_twice_is_done_again_only_where_it_failed,
    }
    forking {
        a_fork_of_a_later_turn_has_the_logs_before_it,
        a_fork_of_a_later_turn_needs_no_original,
        a_long_fork_is_there_whole_or_not_at_all,
    }
    starting {
        the_same_start_twice_is_one_run,
        a_closed_run_is_found_again,
        the_same_id_with_another_start_is_refused,
        concurrent_starts_make_one_run,
        a_signal_with_start_comes_right_behind_it,
        a_refused_signal_refuses_the_start,
        a_claim_with_start_leases_a_new_run_only,
        namespaces_do_not_see_each_other,
    }
    bytes {
        bytes_in_are_bytes_out,
        a_payload_over_the_limit_writes_nothing,
        a_read_of_large_records_ends_early,
    }
    projection {
        a_head_is_what_its_log_says,
        random_operations_keep_every_invariant,
    }
    lost_workers {
        a_run_that_loses_worker_after_worker_is_paused_and_the_others_go_on,
        a_resumed_run_may_lose_as_many_workers_again,
        a_commit_ends_the_series_of_lost_workers,
        a_run_that_waits_counts_no_lost_worker,
        a_release_counts_no_lost_worker,
        a_worker_that_is_reported_lost_counts_at_once_and_once,
        a_worker_that_comes_back_does_not_count,
        a_run_that_is_paused_by_lost_workers_keeps_its_timers,
    }
    external {
        of_two_appends_at_one_index_one_is_taken,
        of_concurrent_appends_each_index_is_taken_once,
        a_repeated_append_gets_its_first_answer,
        a_refused_append_leaves_nothing_behind,
        events_and_state_are_one_write,
        the_log_of_a_closed_run_goes_on,
        an_external_run_takes_nothing_else,
        an_ordinary_run_takes_no_external_append,
        no_worker_is_offered_an_external_run,
        external_runs_are_listed_as_their_engine_says,
        an_open_external_run_can_be_deleted,
        closed_external_runs_go_when_their_time_is_over,
        large_events_come_back_as_they_went_in,
        namespaces_keep_their_external_runs_apart,
    }
    namespaces {
        a_worker_gets_only_runs_of_its_namespace,
        a_worker_gets_only_tasks_of_its_namespace,
        a_run_that_was_lost_goes_to_a_worker_of_its_namespace,
        a_task_that_was_lost_goes_to_a_worker_of_its_namespace,
        the_same_signal_wakes_only_the_run_it_was_sent_to,
        what_waits_in_another_namespace_hides_nothing,
    }
    versions {
        a_worker_gets_only_versions_it_knows,
    }
    kinds {
        what_a_kind_takes_is_kept_for_its_namespace_kind_and_version,
        the_newest_word_about_a_kind_counts,
        a_schema_over_the_limit_writes_nothing,
    }
    injection {
        a_filter_finds_what_it_says_and_nothing_else,
        any_text_is_a_value_of_an_attribute,
        what_is_done_to_a_run_is_done_to_no_other,
    }
    lists {
        runs_are_listed_newest_first_in_pages,
        runs_are_filtered_by_kind_status_and_time,
        runs_are_filtered_by_version_and_attributes,
        the_children_of_a_run_are_listed_newest_first,
        what_a_run_is_found_by_changes_with_its_commits,
        open_runs_are_counted_by_version,
        open_tasks_are_counted_by_queue_and_kind,
        open_runs_and_tasks_of_all_namespaces_are_counted,
        a_foreign_cursor_is_refused,
        questions_are_listed_oldest_first,
        questions_of_a_family_are_listed_together,
    }
}
