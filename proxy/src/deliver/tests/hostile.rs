//! Findings of hostile days: turns that fail or are broken off, waits beside pushes, the order of one sender's messages.

use c3po_shared::receipt::{Stage, Via};
use c3po_shared::vocabulary::State;
use c3po_shared::wire::Arriving;
use serde_json::json;

use super::{
    Scene, after_a_turn, entered, event, holds, is_marked, message, news, of_turn, progress,
    push_comes, socket, starts, typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::testing::{agent, id, standing};
use crate::local::protocol::{Event, Name};

#[test]
fn a_failed_turn_after_a_good_one_shows_nothing_to_be_seen() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)],
        "the model had no answer for it"
    );
    scene.passes(30);
    assert!(scene.posted().contains(id(1).as_str()), "a reminder");
}

#[test]
fn reminders_come_ever_more_rarely_until_a_turn_ends_well() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    scene.reads(&[1], &[]);
    let mut made = 0;
    for second in 0..600 {
        scene.passes(1);
        if let Todo::Post(_, text) = scene.next() {
            made += 1;
            let turn = format!("r{second}");
            scene.hear(&of_turn(
                &turn,
                Event {
                    prompt: Some(text),
                    ..event(Name::UserPromptSubmit)
                },
            ));
            scene.hear(&of_turn(&turn, event(Name::StopFailure)));
        }
    }
    assert!((3..=5).contains(&made), "{made} in ten minutes");
}

#[test]
fn a_turn_that_was_broken_off_is_looked_up_when_its_client_rests() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.passes(15);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: None,
    }));
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
    scene.passes(1_000);
    assert!(
        !matches!(scene.next(), Todo::Post(..)),
        "it stands in the conversation"
    );
}

#[test]
fn a_compaction_that_ended_badly_is_noticed_by_the_client_s_own_file() {
    let mut scene = after_a_turn();
    scene.hear(&event(Name::PreCompact));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(matches!(scene.next(), Todo::Look(Some(_))));
    scene.passes(15);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: None,
    }));
    assert!(scene.posted().contains(id(1).as_str()));
}

#[test]
fn a_running_wait_takes_a_message_whose_push_is_unconfirmed() {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&event(Name::UserPromptSubmit));
    scene.hear(&event(Name::PreToolUse));
    scene.arrive(vec![message(1, json!({}))]);
    scene.passes(20);
    let text = scene.posted();
    assert!(scene.on(Input::Taken(id(1))).granted);
    scene.present(1, Via::WaitForMessage, None);
    let late = scene.hear(&Event {
        prompt: Some(text),
        ..event(Name::UserPromptSubmit)
    });
    assert!(
        late.stdout.contains("\"block\""),
        "the session has it: {late:?}"
    );
}

#[test]
fn a_late_hook_of_the_turn_before_does_not_name_the_turn_that_a_queued_prompt_began() {
    for late in [Name::Wait, Name::SubagentStop] {
        let mut scene = after_a_turn();
        scene.hear(&typed("p1"));
        scene.hear(&typed("p1"));
        scene.hear(&of_turn("p1", event(Name::Stop)));
        scene.hear(&of_turn("p1", event(late)));
        scene.arrive(vec![message(1, news())]);
        assert_eq!(
            scene.print(&typed("p2")),
            None,
            "{late:?}: it waits in the client, in the middle of a turn"
        );
    }
}

#[test]
fn an_unproven_message_of_a_prompt_is_marked_in_the_result_of_a_tool() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    assert_eq!(scene.hop.repeated(&[id(1), id(2)], None), [id(1)]);
    scene.hear(&of_turn("p1", event(Name::PreToolUse)));
    assert_eq!(
        scene.hop.repeated(&[id(1), id(2)], None),
        [id(1)],
        "the transcript was not read yet"
    );
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.hop.repeated(&[id(1), id(2)], None),
        [id(1)],
        "the store may not have the receipt yet"
    );
}

#[test]
fn a_push_that_comes_late_is_kept_out_while_a_prompt_s_copy_is_in_doubt() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    let late = scene.posted();
    scene.passes(60);
    scene.next();
    scene.reads(&[], &[]);
    scene.passes(3);
    scene.on(Input::Look);
    scene.on(Input::Conversation(Some(standing(&[], &[]))));
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::PreToolUse)));
    let drained = Event {
        prompt: Some(late),
        ..of_turn("p1", event(Name::UserPromptSubmit))
    };
    let answer = scene.hear(&drained);
    assert!(answer.stdout.contains("\"block\""), "{answer:?}");
}

#[test]
fn messages_of_a_queued_prompt_that_was_taken_back_come_again() {
    let mut scene = after_a_turn();
    // A turn that no hook reported is under way: the prompt waits for its end.
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    for _ in 0..2 {
        scene.reads(&[], &[]);
        scene.passes(1);
    }
    assert_eq!(scene.receipts(), []);
    let again = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_prompt_that_waits_in_the_client_is_given_nothing_and_begins_the_next_turn_unreported() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.passes(20);
    scene.arrive(vec![message(1, news())]);
    assert_eq!(scene.print(&typed("p1")), None);
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.arrive(vec![message(2, json!({}))]);
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "the session works on the next one"
    );
    assert_eq!(scene.print(&typed("p2")), None, "nor one behind that");
    scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    assert_eq!(scene.hop.facts().state, Some(State::Ready));
}

#[test]
fn a_prompt_that_is_typed_into_an_unreported_turn_without_a_transcript_is_given_nothing() {
    let mut scene = Scene::begun(None);
    scene.hear(&typed("p1"));
    scene.hear(&event(Name::Stop));
    scene.arrive(vec![message(1, news())]);
    // The output of a command, and the answer to it.
    scene.on(Input::TypedInto);
    assert_eq!(scene.print(&typed("p2")), None, "it may be taken back");
    let given = scene.print(&of_turn("p2", event(Name::PostToolBatch)));
    assert!(holds(&given, 1) && !is_marked(&given), "{given:?}");
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::PostToolBatch)]
    );
}

#[test]
fn a_prompt_behind_one_that_waited_for_a_turn_which_was_broken_off_is_given_nothing() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.passes(20);
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, news())]);
    // Esc: the second prompt began a turn, which no hook reported.
    assert_eq!(scene.print(&typed("p2")), None);
}

#[test]
fn a_turn_has_the_name_of_a_prompt_that_was_refused_at_its_beginning() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    scene.uses("p0", "t1");
    assert!(scene.takes(1), "a wait that runs takes it");
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.hear(&typed("p1"));
    let refused = scene.hear(&of_turn(
        "p2",
        Event {
            prompt: Some(text),
            ..event(Name::UserPromptSubmit)
        },
    ));
    assert!(refused.stdout.contains("\"block\""), "{refused:?}");
    scene.passes(20);
    scene.arrive(vec![message(2, news())]);
    assert_eq!(
        scene.print(&typed("p2")),
        None,
        "it waits for the end of that turn"
    );
}

#[test]
fn the_same_mail_after_a_clear_is_pushed_in_other_words() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    let text = scene.posted();
    scene.hear(&of_turn(
        "p1",
        Event {
            prompt: Some(text.clone()),
            ..event(Name::UserPromptSubmit)
        },
    ));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.hear(&starts("clear", "s2"));
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    assert_ne!(
        scene.posted(),
        text,
        "a client drops a post that is like the one before"
    );
}

#[test]
fn a_prompt_after_a_turn_that_was_broken_off_is_given_the_mail() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p2")), 1));
}

#[test]
fn a_turn_of_a_program_is_not_kept_for_the_question_of_another() {
    let hop = Hop::new(agent("homeassistant"), Some(socket()), false, true).headless();
    let mut scene = Scene::of(hop);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "the program may end the session now"
    );
    scene.passes(2);
    assert!(scene.posted().contains(id(1).as_str()));
}

#[test]
fn a_message_given_to_a_subagent_is_marked_when_it_is_fetched_again() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    let uses = |tool_use: &str| Event {
        tool_use_ids: vec![tool_use.into()],
        ..event(Name::PreToolUse)
    };
    scene.hear(&Event {
        agent_id: Some("sub".into()),
        ..uses("t1")
    });
    assert!(scene.takes(1));
    assert_eq!(scene.hop.repeated(&[id(1)], None), []);
    scene.present(1, Via::WaitForMessage, Some("t1"));
    assert!(scene.takes(1));
    assert_eq!(scene.hop.repeated(&[id(1)], None), [id(1)]);
}

#[test]
fn a_message_given_to_a_subagent_before_its_text_came_is_marked() {
    let mut scene = Scene::begun(None);
    let uses = |tool_use: &str| Event {
        tool_use_ids: vec![tool_use.into()],
        ..event(Name::PreToolUse)
    };
    scene.hear(&Event {
        agent_id: Some("sub".into()),
        ..uses("t1")
    });
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.next();
    assert_eq!(scene.hop.repeated(&[id(1), id(2)], None), [id(1)]);
    scene.arrive(vec![message(1, json!({}))]);
    let given = scene.print(&event(Name::PostToolBatch));
    assert!(holds(&given, 1) && is_marked(&given), "{given:?}");
}

#[test]
fn a_message_that_was_read_in_part_comes_again_marked() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: None,
    });
    scene.hear(&event(Name::Stop));
    scene.passes(301);
    let again = scene.print(&of_turn("p2", event(Name::UserPromptSubmit)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn events_of_a_resumed_conversation_count_again() {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&starts("clear", "s2"));
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
}

#[test]
fn messages_are_noted_before_hooks_and_pushes_show_them() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({})), message(2, json!({}))]);
    assert_eq!(scene.on(Input::Look).launched, [id(1), id(2)]);
    assert_eq!(scene.on(Input::Look).launched, []);
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(3, json!({}))]);
    assert_eq!(
        scene
            .on(Input::Hook(event(Name::UserPromptSubmit)))
            .launched,
        [id(3)]
    );
}

#[test]
fn the_parts_that_a_subagent_reads_leave_the_message_to_the_session() {
    let mut scene = Scene::begun(Some(socket()));
    let use_of_tool = Event {
        tool_use_ids: vec!["t1".into()],
        ..event(Name::PreToolUse)
    };
    scene.hear(&Event {
        agent_id: Some("sub".into()),
        ..use_of_tool
    });
    scene.arrive(vec![message(1, json!({}))]);
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: Some("t1".into()),
    });
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(holds(&text, 1) && is_marked(&text), "{text:?}");
}

#[test]
fn a_page_does_not_hide_that_a_message_came_with_a_prompt() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: None,
    });
    scene.hear(&event(Name::Stop));
    assert_eq!(
        scene.receipts(),
        [entered(1, Via::UserPromptSubmit, Via::Hook)]
    );
}

#[test]
fn a_late_push_of_a_message_that_has_expired_is_blocked_as_such() {
    let mut scene = Scene::begun(Some(socket()));
    scene.on(Input::Arrived(vec![Arriving {
        message: message(1, json!({})),
        expires_in_ms: 3_000,
    }]));
    let held = scene.posted();
    scene.passes(6);
    (0..2).for_each(|_| drop(scene.next()));
    let answer = scene.hear(&Event {
        prompt: Some(held),
        ..event(Name::UserPromptSubmit)
    });
    assert!(
        answer.stdout.contains("this message has expired"),
        "{answer:?}"
    );
}

#[test]
fn nothing_reminds_of_a_message_that_was_answered_in_a_turn_that_failed() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    scene.reads(&[1], &[]);
    scene.hear(&typed("p2"));
    scene.on(Input::Called(vec![id(1)]));
    scene.on(Input::Settled(vec![id(1)]));
    scene.hear(&of_turn("p2", event(Name::StopFailure)));
    for _ in 0..600 {
        scene.passes(1);
        assert!(!matches!(scene.next(), Todo::Post(..)), "it was answered");
    }
}
