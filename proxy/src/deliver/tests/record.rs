//! The proofs that the client's own record gives, where hooks alone would prove too much.

use std::time::Duration;

use c3po_shared::receipt::{Progress, Stage, Via};
use serde_json::json;

use super::{
    Scene, after_a_turn, event, holds, is_marked, message, news, of_turn, progress, push_comes,
    socket, typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::testing::{agent, id, standing};
use crate::deliver::transcript::Recorded;
use crate::local::protocol::{Event, Name};

#[test]
fn hooks_of_two_prompts_that_changed_places_leave_it_to_the_transcript_which_was_given_the_mail() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, news())]);
    // The second one waits in the client: both have the name of the turn under way.
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&typed("p1"));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[1], &[]);
    assert_eq!(scene.receipts(), [], "the answer may be written yet");
    scene.passes(1);
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::UserPromptSubmit)]
    );
    scene.hear(&of_turn("p2", event(Name::Stop)));
    assert_eq!(
        scene.receipts(),
        [],
        "a person may have taken that turn back"
    );
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn an_answer_that_is_written_late_proves_the_messages_above_it() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    for _ in 0..2 {
        scene.reads(&[1], &[]);
        scene.passes(1);
    }
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::UserPromptSubmit)]
    );
    scene.passes(4);
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn the_answer_after_a_push_that_was_broken_off_may_be_written_late() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    scene.receipts();
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
    scene.passes(4);
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn messages_of_an_interrupted_turn_come_again_after_a_rewind() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(
        &scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        1
    ));
    scene.reads(&[1], &[]);
    // Esc, and a rewind to the prompt of that turn.
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
    scene.reads(&[], &[]);
    let again = scene.print(&of_turn("p2", event(Name::Stop)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_result_that_the_client_replaced_comes_again() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.arrive(vec![message(1, json!({}))]);
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.reads(&[], &[]);
    scene.passes(19);
    scene.reads(&[], &[]);
    let again = scene.print(&typed("p2"));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
    assert_eq!(
        scene.hop.facts().context,
        Some(1),
        "the context of its receipt never held it"
    );
}

#[test]
fn news_that_a_wait_returned_before_its_text_came_is_there_after_a_rewind() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.arrive(vec![message(1, news())]);
    scene.hear(&of_turn(
        "p1",
        Event {
            tool_use_ids: vec!["t1".into()],
            ..event(Name::PostToolBatch)
        },
    ));
    scene.reads(&[1], &[1]);
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
    scene.reads(&[], &[]);
    let again = scene.print(&typed("p3"));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_step_of_another_turn_proves_no_message_of_an_interrupted_turn() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.arrive(vec![message(1, json!({})), message(2, json!({}))]);
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    assert!(holds(
        &scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        2
    ));
    scene.receipts();
    // The person presses Esc and goes back before that prompt: no hook reports it.
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    assert_eq!(
        scene.receipts(),
        [],
        "no answer of the model stands below them"
    );
    scene.reads(&[], &[]);
    scene.passes(20);
    scene.reads(&[], &[]);
    assert!(is_marked(&Some(scene.posted())), "they come again");
}

#[test]
fn a_transcript_with_a_later_answer_proves_messages_of_a_cut_turn() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(
        &scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        1
    ));
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [
            progress(1, Stage::InSession, Via::PostToolBatch),
            progress(1, Stage::Seen, Via::Transcript)
        ]
    );
}

#[test]
fn a_push_that_another_hook_refused_in_a_turn_under_way_is_not_seen() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    // No hook reported the turn that the client runs: the push waits in its queue, and has that turn's name.
    push_comes(&mut scene, "p0");
    scene.hear(&of_turn("p0", event(Name::PostToolBatch)));
    for _ in 0..2 {
        scene.reads(&[], &[]);
    }
    assert_eq!(scene.receipts(), [], "the conversation never held it");
    let again = scene.print(&of_turn("p0", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

/// A wait returns message 1, and the model goes on after the step.
fn waits_and_goes_on(scene: &mut Scene) {
    let ends = |tool_use: &str| {
        of_turn(
            "p1",
            Event {
                tool_use_ids: vec![tool_use.into()],
                ..event(Name::PostToolBatch)
            },
        )
    };
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.arrive(vec![message(1, news())]);
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.hear(&ends("t1"));
    scene.hear(&ends("t2"));
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)],
        "another plugin may shorten it"
    );
}

#[test]
fn a_result_that_another_plugin_shortened_is_not_seen_and_comes_again() {
    let mut scene = after_a_turn();
    waits_and_goes_on(&mut scene);
    scene.reads(&[], &[]);
    scene.passes(19);
    scene.reads(&[], &[]);
    assert_eq!(scene.receipts(), []);
    let again = scene.print(&of_turn("p1", event(Name::Stop)));
    assert_eq!(again, None, "news keeps no turn");
    let again = scene.print(&typed("p2"));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_result_is_seen_when_hooks_show_the_next_step_and_the_transcript_names_it() {
    let mut scene = after_a_turn();
    waits_and_goes_on(&mut scene);
    scene.reads(&[1], &[]);
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
}

#[test]
fn a_transcript_that_cannot_be_read_leaves_the_proof_to_the_hooks() {
    let mut scene = after_a_turn();
    waits_and_goes_on(&mut scene);
    scene.passes(1);
    assert_eq!(scene.next(), Todo::Read("/t.jsonl".into()));
    scene.on(Input::Conversation(None));
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
}

#[test]
fn the_text_of_a_stop_hook_that_the_client_dropped_comes_again() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&of_turn("p1", event(Name::Stop))), 1));
    // Esc, while another Stop hook runs: the client writes neither the text nor another hook.
    let idle = || {
        Input::ClientState(ClientState {
            is_busy: Some(false),
            transcript: None,
        })
    };
    scene.on(idle());
    assert!(
        matches!(scene.next(), Todo::Look(_) | Todo::AskClient),
        "its text may come yet"
    );
    scene.reads(&[], &[]);
    scene.passes(20);
    scene.on(idle());
    assert_eq!(scene.next(), Todo::Read("/t.jsonl".into()));
    scene.on(Input::Conversation(Some(standing(&[], &[]))));
    let again = scene.posted();
    assert!(again.contains(id(1).as_str()), "{again}");
}

#[test]
fn a_program_s_session_is_reminded_of_a_question_that_its_turn_left_unread() {
    let mut scene =
        Scene::of(Hop::new(agent("homeassistant"), Some(socket()), false, true).headless());
    scene.hear(&Event {
        transcript: Some("/t.jsonl".into()),
        ..typed("p1")
    });
    scene.arrive(vec![message(1, json!({})), message(2, news())]);
    assert!(holds(
        &scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        1
    ));
    // The client's limit of steps ends the turn, which no hook reports.
    let idle = ClientState {
        is_busy: Some(false),
        transcript: None,
    };
    let text = (0..60).find_map(|_| {
        scene.passes(1);
        match scene.looks(&idle, &standing(&[1, 2], &[])) {
            Todo::Post(_, text) => Some(text),
            _ => None,
        }
    });
    let text = text.expect("a reminder");
    assert!(
        text.contains(id(1).as_str()) && !text.contains(id(2).as_str()),
        "{text}"
    );
}

#[test]
fn a_session_is_reminded_of_a_question_that_another_plugin_kept_from_its_model() {
    for is_stopped in [true, false] {
        let mut scene = Scene::of(Hop::new(
            agent("homeassistant"),
            Some(socket()),
            false,
            true,
        ));
        scene.hear(&Event {
            transcript: Some("/t.jsonl".into()),
            ..typed("p1")
        });
        scene.arrive(vec![message(1, json!({}))]);
        assert!(holds(&scene.print(&of_turn("p1", event(Name::Stop))), 1));
        let idle = ClientState {
            is_busy: Some(false),
            transcript: None,
        };
        let recorded = Recorded {
            is_stopped,
            ..standing(&[1], &[])
        };
        let reminder = (0..60).find_map(|_| {
            scene.passes(1);
            match scene.looks(&idle, &recorded) {
                Todo::Post(_, text) => Some(text),
                _ => None,
            }
        });
        let is_reminder = reminder.is_some_and(|text| text.contains(id(1).as_str()));
        assert_eq!(is_reminder, is_stopped, "a person who pressed Esc knows it");
    }
}

/// A push comes in a turn with a step, and the transcript is read as it is for a while.
fn read_for_a_while(recorded: &Recorded) -> Scene {
    let mut scene = after_a_turn();
    scene.passes(60);
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::Stop)));
    for _ in 0..4 {
        scene.passes(1);
        if let Todo::Read(_) = scene.next() {
            scene.on(Input::Conversation(Some(recorded.clone())));
        }
    }
    scene
}

#[test]
fn a_transcript_that_is_no_longer_written_or_is_of_another_process_is_no_evidence() {
    let old = Recorded {
        age: Some(Duration::from_secs(10)),
        ..Recorded::default()
    };
    let of_another = Recorded {
        other_turns: ["p1".to_owned()].into(),
        is_shared: true,
        ..Recorded::default()
    };
    for recorded in [old, of_another] {
        let mut scene = read_for_a_while(&recorded);
        let read = Progress {
            seen_via: Some(Via::Hook),
            ..progress(1, Stage::InSession, Via::InboxSocket)
        };
        assert_eq!(
            scene.receipts(),
            [read],
            "the hooks show that the model read it"
        );
        scene.passes(30);
        assert!(!matches!(scene.next(), Todo::Post(..)), "{recorded:?}");
    }
    let of_this = Recorded {
        age: Some(Duration::from_secs(3)),
        ..Recorded::default()
    };
    assert_eq!(read_for_a_while(&of_this).receipts(), []);
}

#[test]
fn a_turn_that_the_end_of_the_transcript_lacks_proves_nothing_and_its_messages_come_again() {
    let elsewhere = Recorded {
        other_turns: ["p1".to_owned()].into(),
        ..Recorded::default()
    };
    let mut scene = after_a_turn();
    scene.passes(60);
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    for _ in 0..4 {
        scene.passes(1);
        scene.looks(&ClientState::default(), &elsewhere);
    }
    assert_eq!(scene.receipts(), [], "a person may have taken it back");
    let again = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}
