//! The conformance suite: the promises of every store, tested on each.
//!
//! A promise is a function that takes a [`Fixture`]; [`every_promise`] makes a test of each for the store of its file.

/// Creates a test for every promise; `$start` returns a fixture with an empty store.
macro_rules! every_promise {
    ($start:path) => {
        test_each! { $start;
            sending:
                a_send_that_is_refused_leaves_nothing,
                an_agent_that_is_away_is_spared_if_the_sender_says_so,
                the_same_call_sends_once,
                the_same_call_sends_once_also_when_50_race,
                the_same_call_is_known_after_its_message_was_settled,
                one_call_reaches_each_recipient_once,
                an_inbox_takes_exactly_its_bound,
                room_comes_back_as_messages_are_settled_or_expire,
                order_is_kept_between_one_sender_and_one_recipient,
                a_thousand_senders_to_one_inbox_all_arrive_once,
                a_thousand_senders_to_many_inboxes_all_arrive_once;
            reading:
                reading_changes_nothing,
                long_messages_fill_a_page_before_its_limit,
                an_inbox_is_paged_by_position,
                kind_and_thread_select,
                pending_counts_what_is_in_the_inbox,
                a_message_past_its_time_is_out_at_once_and_says_so,
                messages_expire_in_order_behind_expired_ones;
            threads:
                a_thread_has_both_sides_in_order,
                a_thread_is_the_same_in_stretches_of_any_length,
                a_thread_goes_on_where_reading_ended_whatever_comes_and_goes,
                a_thread_has_the_time_at_which_each_message_was_stored,
                a_reader_of_a_thread_passes_over_what_others_said,
                the_stages_of_sent_messages_are_read_in_stretches;
            waking:
                a_send_wakes_its_recipient,
                an_answer_wakes_the_asker,
                a_receipt_wakes_the_sender,
                no_wake_is_lost_to_one_who_listened_before_the_send;
            settling:
                acknowledged_is_out_of_the_inbox_and_stays_acknowledged,
                unknown_and_others_mail_is_not_acknowledged,
                an_outdated_session_acknowledges_nothing;
            answering:
                a_reply_settles_the_question_and_lands_with_the_asker,
                the_first_of_50_racing_answers_wins,
                the_same_answering_call_answers_once,
                only_the_recipient_answers,
                a_call_that_sent_something_else_answers_nothing,
                a_reply_to_a_full_inbox_leaves_the_question_open,
                a_reply_to_nobody_leaves_the_question_open,
                a_reply_goes_to_no_later_agent_of_another_host,
                an_acknowledged_or_expired_question_can_still_be_answered;
            concluding:
                a_withdrawn_question_leaves_the_inbox_and_takes_no_answer,
                a_question_that_only_its_terminal_decides_stays_so,
                an_answer_is_taken_and_applied_once_in_order,
                an_expired_question_is_not_withdrawn;
            people:
                an_agent_has_so_many_open_questions_to_people,
                of_many_racing_questions_to_people_as_many_are_stored_as_allowed,
                people_have_so_many_open_questions_of_a_host_and_in_total,
                an_agent_whose_question_people_have_stays_until_it_is_answered_or_removed,
                a_further_notice_replaces_the_oldest_of_its_host_and_no_question,
                beyond_the_limit_of_notices_those_of_the_coordinator_stay,
                open_questions_to_people_are_listed_with_their_times,
                as_many_open_questions_as_there_can_be_are_listed,
                the_use_of_a_page_counts_for_its_time;
            notices:
                messages_to_people_count_for_the_host_that_their_sender_had,
                agents_without_a_host_have_the_limits_of_one_host_together;
            pushed:
                a_message_to_people_has_a_duty_from_its_first_moment,
                that_duty_is_due_when_the_question_ends,
                each_person_is_reached_once_on_each_way;
            receipts:
                a_history_has_each_step_once_in_order_with_its_evidence,
                a_combined_receipt_records_every_stage_with_its_evidence,
                a_further_context_wakes_no_sender,
                a_combined_receipt_adds_the_missing_stages_of_each_message,
                in_session_proves_on_host,
                seen_settles_only_what_wants_no_answer,
                in_session_shows_a_message_and_a_new_session_shows_it_again,
                late_evidence_adds_nothing,
                evidence_counts_after_the_message_expired,
                an_expired_message_no_longer_reaches_a_host,
                others_mail_and_unknown_messages_do_not_advance,
                an_outdated_session_advances_nothing,
                evidence_without_a_session_is_recorded,
                a_message_that_a_person_was_shown_is_not_repeated;
            contexts:
                a_larger_context_is_shown_everything_again_and_no_other,
                the_same_process_may_come_back_in_a_larger_context,
                a_new_session_begins_in_the_context_that_it_says,
                a_late_receipt_of_an_older_context_shows_nothing_to_the_present_one,
                a_combined_receipt_of_an_older_context_shows_nothing_to_the_present_one,
                a_receipt_of_a_newer_context_begins_it,
                an_outdated_session_changes_nothing_of_the_record,
                repeated_is_what_an_earlier_session_or_context_was_shown,
                settled_messages_are_not_shown_to_a_new_context,
                seen_needs_in_session_of_the_same_context,
                a_history_keeps_the_first_and_the_latest_contexts;
            tenures:
                a_held_name_is_refused_to_others,
                one_of_50_racing_processes_gets_the_name,
                the_same_process_keeps_its_generation,
                a_new_process_raises_the_generation_and_inherits,
                an_outdated_tenure_renews_and_releases_nothing,
                a_hold_lasts_as_long_as_it_is_renewed,
                a_released_name_is_free_at_once,
                a_fleeting_agent_is_forgotten_when_it_leaves_nothing,
                a_fleeting_agent_with_mail_is_kept,
                an_earlier_link_of_a_process_does_not_end_its_hold,
                a_process_that_is_known_to_be_dead_holds_nothing,
                a_fleeting_agent_whose_link_broke_comes_back_as_itself,
                a_fleeting_agent_stays_one_when_its_process_comes_back,
                an_agent_without_a_session_is_online_as_long_as_it_attends;
            speakers:
                an_outdated_session_sends_answers_and_concludes_nothing,
                a_session_whose_hold_ran_out_goes_on_while_nobody_took_its_agent,
                a_command_acts_as_an_agent_of_its_own_host_alone,
                nothing_is_sent_as_an_agent_that_is_gone,
                a_message_arrives_for_the_session_that_holds_its_recipient;
            owners:
                no_host_gets_the_name_or_the_mail_of_another,
                an_owner_has_one_agent,
                one_owner_that_races_for_many_names_gets_one,
                namesakes_were_wished_by_one_name,
                an_agent_without_a_session_goes_to_its_own_host,
                the_agents_of_a_host_move_to_its_new_name;
            reservations:
                a_container_with_a_key_keeps_the_names_of_its_deleted_agents,
                a_removed_agent_leaves_nothing_but_receipts,
                the_name_of_a_deleted_agent_stays_with_its_host,
                an_administrator_frees_the_name_of_a_deleted_agent,
                a_name_that_is_made_and_removed_all_the_time_has_its_host,
                a_key_reserves_so_many_names_and_no_more,
                a_host_keeps_the_mail_of_its_names_until_they_are_freed,
                a_person_changes_no_agent_of_another_host;
            one_shot:
                a_one_shot_session_leaves_nothing_when_it_is_over,
                a_one_shot_session_leaves_nothing_however_much_it_has,
                a_one_shot_session_whose_link_broke_ends_with_its_hold,
                no_session_inherits_from_a_one_shot_session,
                a_one_shot_session_under_anothers_name_takes_nothing_from_it;
            keys:
                keys_are_kept_and_counted,
                a_forgotten_key_is_a_change,
                when_a_key_was_used_is_kept_and_goes_with_it,
                there_are_never_more_keys_than_allowed_also_when_100_race,
                of_two_who_change_a_key_one_is_told,
                an_invite_is_good_for_as_many_as_it_says,
                no_use_is_taken_without_a_key_and_no_key_is_made_without_a_use,
                an_invite_ends_when_its_key_changes,
                a_key_that_was_changed_meanwhile_changes_no_key,
                invites_are_listed_while_they_let_somebody_in_and_forgotten_once,
                an_invite_ends;
            logins:
                a_code_makes_one_login_also_when_50_race,
                a_code_ends_and_can_be_deleted,
                so_many_codes_are_open_and_ended_ones_do_not_count,
                there_are_never_more_logins_than_allowed_also_when_50_race,
                of_two_who_change_a_login_one_is_told,
                a_code_ends_when_the_login_that_made_it_changes,
                a_login_that_was_changed_meanwhile_changes_no_login,
                logins_and_keys_do_not_mix;
            records:
                an_unknown_agent_is_nobody,
                agents_are_paged_by_id,
                an_amendment_changes_only_what_it_names,
                a_prompt_is_noted_with_its_time_until_the_next_one,
                a_person_is_introduced_without_a_session,
                unregister_forgets_an_agent_with_an_empty_inbox,
                an_agent_is_ended_by_its_own_host_alone,
                unregister_keeps_an_agent_with_mail;
            guarding:
                a_ruling_takes_the_place_of_the_one_before_it,
                rulings_survive_closing_and_opening;
            logged:
                changes_of_keys_append_their_entries_in_their_own_step,
                changes_of_logins_append_their_entries_in_their_own_step,
                rulings_and_removals_append_their_entries_in_their_own_step;
            quotas:
                a_key_stores_its_quota_and_no_more_and_others_go_on,
                a_quota_holds_when_50_race,
                refused_messages_count_against_no_quota,
                a_reply_beyond_the_quota_leaves_the_question_open,
                a_quota_survives_closing_and_opening,
                so_many_agents_are_made_with_a_key_and_no_more,
                an_agent_of_before_counts_from_its_next_session_on,
                no_more_agents_are_made_with_a_key_when_50_race;
            alike:
                a_new_name_differs_from_others_in_more_than_case,
                one_of_50_names_that_differ_in_case_is_taken;
            cycles:
                a_wait_that_would_close_a_cycle_is_found,
                an_answer_or_its_time_ends_a_wait,
                a_wait_for_an_answered_or_expired_message_is_not_recorded,
                an_answer_at_the_same_time_ends_a_wait,
                a_check_follows_a_bounded_number_of_waits,
                a_long_row_of_waits_is_no_cycle;
            auditing:
                the_audit_is_read_in_the_order_in_which_it_was_written,
                the_audit_forgets_the_oldest_beyond_its_bound,
                without_a_log_nothing_is_appended,
                each_change_appends_its_entries_in_its_own_step,
                a_message_of_a_person_is_recorded_with_its_login,
                an_acknowledgement_and_a_receipt_are_recorded_with_their_credentials,
                a_change_that_did_not_happen_appends_nothing,
                an_expiry_is_in_the_log_once_however_it_is_noticed,
                readers_of_the_log_are_woken,
                the_audit_survives_closing_and_opening,
                many_writers_share_one_order,
                only_what_is_recorded_of_a_message_counts_as_an_advance;
            duties:
                a_due_duty_is_claimed_once_also_when_50_race,
                only_a_stored_request_of_a_client_has_its_duty,
                a_claim_that_ran_out_is_taken_over_and_its_end_changes_nothing,
                a_duty_is_due_at_the_earliest_time_for_which_it_was_planned,
                a_duty_that_is_planned_during_its_claim_is_due_again,
                a_postponed_duty_is_due_again,
                due_duties_are_claimed_in_order_and_no_more_than_asked_for,
                duties_survive_closing_and_opening,
                a_send_plans_the_expiry_of_its_inbox,
                a_session_plans_its_withdrawal,
                nothing_is_left_to_do_for_a_removed_agent;
            lasting:
                everything_survives_closing_and_opening,
                a_sweep_keeps_what_is_live,
                a_sweep_removes_what_was_settled_long_enough_ago,
                a_sweep_changes_nothing_that_can_be_read,
                a_closed_store_says_that_it_is_unavailable;
        }
    };
}

macro_rules! test_each {
    ($start:path; $($module:ident: $($promise:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() -> anyhow::Result<()> {
                $crate::$module::$promise($start().await?).await
            }
        )+)+
    };
}

mod alike;
mod answering;
mod auditing;
mod batches;
mod concluding;
mod contexts;
mod cycles;
mod duties;
pub(crate) mod fixture;
mod full;
mod guarding;
mod keys;
mod lasting;
mod logged;
mod logins;
mod notices;
mod one_shot;
mod owners;
mod people;
mod pushed;
mod quotas;
mod reading;
mod receipts;
mod records;
mod reservations;
mod sending;
mod settling;
mod tenures;
mod threads;

mod waking;

mod cluster;
mod floor;
mod functions;
mod killed;
mod opening;
mod redis;
mod sentinel;
mod speakers;
mod sqlite;
mod tls;
mod users;
mod writes;

use fixture::Fixture;
