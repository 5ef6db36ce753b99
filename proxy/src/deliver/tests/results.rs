//! Results of tools: in the background, page by page, by waits, and in sessions without hooks.

use std::collections::HashSet;

use c3po_shared::receipt::{Stage, Via};
use c3po_shared::wire::Arriving;
use serde_json::{Value, json};

use super::{
    Scene, after_a_turn, event, holds, is_marked, message, news, of_turn, progress, push_comes,
    socket, starts, typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input, Presented};
use crate::deliver::push::Todo;
use crate::deliver::testing::{agent, id, standing};
use crate::deliver::transcript::Recorded;
use crate::local::protocol::{Event, Name};

/// A wait returns that message before its text comes to this host, in the result of that tool use.
pub(super) fn waited(scene: &mut Scene, number: u32, fields: Value, tool_use: &str) {
    let message = message(number, fields);
    assert!(scene.takes(number));
    let waited = Some(Box::new(Arriving::at(message.clone(), message.timestamp)));
    let (ids, via) = (vec![message.id], Via::WaitForMessage);
    scene.on(Input::Presented(Presented {
        ids,
        via,
        tool_use: Some(tool_use.into()),
        waited,
    }));
}

pub(super) fn batch(turn: &str, tool_use: &str) -> Event {
    of_turn(
        turn,
        Event {
            tool_use_ids: vec![tool_use.into()],
            ..event(Name::PostToolBatch)
        },
    )
}

/// Returns a scene in which the result of a wait in the background came, and a step of the next turn.
fn after_a_background_result() -> Scene {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.hear(&batch("p1", "t1"));
    // The client has moved the wait to the background.
    waited(&mut scene, 1, news(), "t1");
    scene.reads(&[], &[]);
    scene.passes(30);
    scene.hear(&batch("p1", "t2"));
    scene.reads(&[], &[]);
    assert_eq!(
        scene.receipts(),
        [],
        "it waits in the client as long as the turn takes"
    );
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)]
    );
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    assert_eq!(scene.receipts(), [], "a person may have gone back before");
    scene
}

#[test]
fn a_background_result_is_in_the_session_once_the_transcript_names_it() {
    let mut scene = after_a_background_result();
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn a_background_result_that_a_rewind_took_out_is_not_seen_and_comes_again() {
    let mut scene = after_a_background_result();
    scene.reads(&[], &[]);
    assert_eq!(scene.receipts(), []);
    let again = scene.print(&typed("p3"));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn another_hook_of_the_same_step_proves_no_result_although_the_transcript_names_it() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, news(), "t1");
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)]
    );
    scene.reads(&[1], &[]);
    // The model used three tools at once, and a person is asked about the other two.
    scene.hear(&of_turn("p1", event(Name::PermissionRequest)));
    scene.uses("p1", "t2");
    scene.hear(&Event {
        tool_use_ids: vec!["t1".into(), "t2".into()],
        ..of_turn("p1", event(Name::PostToolBatch))
    });
    assert_eq!(scene.receipts(), [], "no request held it yet");
    scene.uses("p1", "t3");
    assert_eq!(scene.receipts(), [], "the client may have replaced it");
    scene.reads(&[1], &[]);
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
}

#[test]
fn a_result_that_the_client_replaced_in_too_large_a_batch_comes_again() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, news(), "t1");
    scene.reads(&[1], &[]);
    scene.receipts();
    scene.hear(&Event {
        tool_use_ids: vec!["t1".into()],
        ..of_turn("p1", event(Name::PostToolBatch))
    });
    scene.uses("p1", "t2");
    for _ in 0..6 {
        scene.passes(5);
        while scene.next() == Todo::Read("/t.jsonl".into()) {
            scene.on(Input::Conversation(Some(standing(&[], &[]))));
        }
    }
    assert!(
        scene.receipts().iter().all(|one| one.stage != Stage::Seen),
        "the model was given a preview"
    );
    let again = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_result_of_a_step_whose_end_no_hook_reported_is_seen_by_the_transcript() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, news(), "t1");
    scene.reads(&[1], &[]);
    scene.receipts();
    scene.hear(&of_turn("p1", event(Name::Stop)));
    assert_eq!(scene.receipts(), []);
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn a_message_whose_beginning_another_context_had_comes_again_after_its_end() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    scene.hear(&typed("p1"));
    let parts = |read_on| Input::InParts {
        ids: vec![id(1)],
        read_on,
        tool_use: None,
    };
    scene.uses("p1", "t1");
    scene.on(parts(None));
    scene.hear(&starts("compact", "s1"));
    scene.receipts();
    scene.on(parts(Some(id(1))));
    let read_on = Some(id(1));
    scene.on(Input::InParts {
        ids: Vec::new(),
        read_on,
        tool_use: Some("t1".into()),
    });
    scene.present(1, Via::GetMessages, Some("t1"));
    assert_eq!(scene.receipts(), [], "the context lacks its beginning");
    let text = scene.print(&of_turn("p1", event(Name::Stop)));
    assert!(holds(&text, 1) && is_marked(&text), "{text:?}");
}

#[test]
fn a_message_that_is_read_to_its_end_in_one_context_is_in_the_session() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: Some("t1".into()),
    });
    scene.on(Input::InParts {
        ids: Vec::new(),
        read_on: Some(id(1)),
        tool_use: Some("t1".into()),
    });
    scene.present(1, Via::GetMessages, Some("t1"));
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::GetMessages)]
    );
}

#[test]
fn a_part_repeats_what_was_shown_before_unless_it_reads_on() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(2, json!({}))]);
    scene.uses("p1", "t1");
    let repeated = |scene: &Scene, read_on: Option<u32>| {
        scene
            .hop
            .repeated(&[id(1), id(2)], read_on.map(id).as_ref())
    };
    // A hook has shown the beginning of the second one.
    assert!(holds(&scene.print(&batch("p1", "t1")), 2));
    scene.arrive(vec![message(1, json!({}))]);
    assert_eq!(repeated(&scene, None), [id(2)]);
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: Some("t2".into()),
    });
    assert_eq!(repeated(&scene, Some(1)), [id(2)]);
    assert_eq!(repeated(&scene, None), [id(2), id(1)]);
}

#[test]
fn news_of_a_wait_comes_again_after_a_rewind_although_its_text_never_came() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, news(), "t1");
    scene.hear(&batch("p1", "t1"));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[1], &[1]);
    scene.receipts();
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    scene.reads(&[], &[]);
    let text = scene.print(&typed("p3"));
    assert!(holds(&text, 1) && is_marked(&text), "{text:?}");
}

#[test]
fn a_session_is_reminded_of_a_waited_question_whose_turn_failed() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, json!({}), "t1");
    scene.hear(&batch("p1", "t1"));
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    assert_eq!(scene.reminds(), [id(1)]);
}

#[test]
fn without_hooks_the_session_file_names_the_transcript_at_each_reading() {
    let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, false));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    scene.asks_and_reads(&[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)]
    );
    // The person clears the session, of which nothing reports.
    scene.passes(20);
    scene.present(2, Via::WaitForMessage, Some("t2"));
    scene.passes(1);
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(ClientState {
        is_busy: None,
        transcript: Some("/u.jsonl".into()),
    }));
    assert_eq!(scene.hop.facts().context, Some(1));
    scene.present(2, Via::WaitForMessage, Some("t3"));
    scene.passes(2);
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(ClientState {
        is_busy: None,
        transcript: Some("/u.jsonl".into()),
    }));
    assert_eq!(scene.next(), Todo::Read("/u.jsonl".into()));
    scene.on(Input::Conversation(Some(standing(&[2], &[]))));
    let said = scene.receipts();
    assert_eq!(
        said.iter()
            .map(|said| (said.stage, said.context))
            .collect::<Vec<_>>(),
        [(Stage::InSession, 1)]
    );
}

#[test]
fn a_call_that_names_the_message_of_a_prompt_leaves_it_to_the_transcript() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    // A subagent answers it, and the request of the session fails.
    scene.on(Input::Called(vec![id(1)]));
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    assert_eq!(scene.receipts(), []);
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
    assert_eq!(scene.reminds(), [id(1)]);
}

#[test]
fn a_call_that_a_subagent_may_have_made_proves_no_message_of_the_session() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.hear(&Event {
        agent_id: Some("sub".into()),
        ..of_turn("p1", event(Name::PreToolUse))
    });
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&batch("p1", "t1")), 1));
    scene.receipts();
    scene.on(Input::Called(vec![id(1)]));
    assert_eq!(
        scene.receipts(),
        [],
        "the request of the session is not answered yet"
    );
    scene.hear(&of_turn("p1", event(Name::StopFailure)));
    assert_eq!(scene.reminds(), [id(1)]);
}

#[test]
fn a_push_stays_under_way_while_a_person_is_asked() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    scene.hear(&of_turn("p1", event(Name::PermissionRequest)));
    scene.passes(20);
    while !matches!(scene.next(), Todo::Post(..)) {
        scene.on(Input::ClientState(ClientState::default()));
        scene.passes(15);
    }
    for _ in 0..100 {
        scene.passes(300);
        assert!(
            !matches!(scene.next(), Todo::Post(..)),
            "it is in the client's queue"
        );
    }
}

#[test]
fn a_prompt_that_was_taken_back_comes_again_although_the_transcript_ends_with_it() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.passes(16);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: None,
    }));
    scene.passes(2);
    assert_eq!(scene.next(), Todo::Read("/t.jsonl".into()));
    let open = standing(&[1], &[]);
    scene.on(Input::Conversation(Some(Recorded {
        open: open.named.clone(),
        ..open
    })));
    assert_eq!(scene.receipts(), []);
    assert!(matches!(scene.next(), Todo::Post(..)));
}

#[test]
fn a_prompt_is_not_doubted_during_a_compaction() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::PreCompact)));
    scene.passes(40);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(true),
        transcript: None,
    }));
    scene.passes(1);
    assert!(!matches!(scene.next(), Todo::Read(..)));
}

#[test]
fn a_prompt_that_led_nowhere_is_doubted_while_only_a_background_agent_works() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.passes(31);
    let busy = ClientState {
        is_busy: Some(true),
        transcript: None,
    };
    scene.on(Input::ClientState(busy));
    scene.reads(&[], &[]);
    scene.passes(1);
    scene.reads(&[], &[]);
    assert_eq!(scene.hop.unread(), 1);
    assert!(matches!(scene.next(), Todo::Post(..)));
}

#[test]
fn an_answer_of_people_is_in_the_session_by_the_result_of_ask_user_and_not_by_a_push() {
    let mut scene = Scene::begun(Some(socket()));
    let question = "homeassistant::human::00000009";
    let answer = json!({"by": "ann", "via": "rest", "to_ask_user": true});
    let reply = json!({"kind": "reply", "response": "Redis", "reply_to": question, "awaited": true,
        "requires_response": false, "answer": answer});
    scene.arrive(vec![message(1, reply)]);
    let text = scene.posted();
    let pointer = format!("> {question} is answered; call ask_user with question_id {question}");
    assert!(text.contains(&pointer) && !text.contains("Redis"), "{text}");
    scene.hear(&of_turn(
        "p1",
        Event {
            prompt: Some(text),
            ..event(Name::UserPromptSubmit)
        },
    ));
    scene.uses("p1", "t0");
    scene.hear(&batch("p1", "t0"));
    scene.uses("p1", "t1");
    assert_eq!(scene.receipts(), [], "the answer is not there yet");
    scene.present(1, Via::AskUser, Some("t1"));
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::AskUser)]
    );
    scene.hear(&batch("p1", "t1"));
    scene.uses("p1", "t2");
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
}

#[test]
fn the_result_of_a_wait_that_went_to_the_background_before_its_step_ended_waits_in_the_client() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, news(), "t1");
    scene.passes(0);
    assert_eq!(scene.next(), Todo::Read("/t.jsonl".into()));
    scene.on(Input::Conversation(Some(Recorded {
        over: HashSet::from(["t1".into()]),
        ..standing(&[], &[])
    })));
    scene.hear(&typed("p2"));
    assert_eq!(scene.receipts(), [], "its use has another result");
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)]
    );
}
