//! Waking an idle session: the messages that do, the ways, and their confirmation.

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::vocabulary::State;
use serde_json::json;

use super::{
    Scene, entered, event, holds, is_marked, message, news, of_turn, progress, socket, starts,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::testing::{agent, id, standing};
use crate::deliver::ways::Way;
use crate::local::protocol::{Event, Name};

#[test]
fn an_idle_session_is_woken_by_its_inbox_socket_and_its_prompt_is_the_proof() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "one push at a time"
    );
    assert!(!scene.reach().contains(&Via::InboxSocket));
    assert_eq!(scene.prompt(&text), None);
    assert!(scene.reach().contains(&Via::InboxSocket));
    assert!(scene.receipts().is_empty());
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts(), [entered(1, Via::InboxSocket, Via::Hook)]);
}

#[test]
fn a_socket_that_does_not_take_posts_is_left_alone_for_a_while() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.on(Input::NotPushed(Way::Inbox));
    let Todo::Look(Some(again)) = scene.next() else {
        panic!("it rests")
    };
    scene.now = again;
    let first = scene.posted();
    scene.passes(5);
    let Todo::Look(Some(again)) = scene.next() else {
        panic!("it rests")
    };
    scene.now = again;
    assert_ne!(
        scene.posted(),
        first,
        "a client drops what it was just told"
    );
}

#[test]
fn a_session_that_is_away_is_woken_only_by_urgent_messages() {
    let mut scene = Scene::begun(Some(socket()));
    scene.on(Input::Status(State::Away));
    scene.arrive(vec![message(1, json!({"priority": "high"}))]);
    assert_eq!(scene.next(), Todo::Look(None));
    scene.arrive(vec![message(2, json!({"priority": "urgent"}))]);
    assert!(scene.posted().contains(id(2).as_str()));
}

#[test]
fn the_answer_to_a_question_of_ones_own_wakes_or_prolongs_a_turn_and_any_other_reply_is_news() {
    let reply = |awaited: bool| {
        let about = MessageId::new(&agent("homeassistant"), &agent("meshtastic"), 9);
        let reply = json!({"kind": "reply", "requires_response": false, "reply_to": about, "awaited": awaited});
        message(1, reply)
    };
    for awaited in [false, true] {
        let mut idle = Scene::begun(Some(socket()));
        idle.arrive(vec![reply(awaited)]);
        assert_eq!(matches!(idle.next(), Todo::Post(..)), awaited);

        let mut busy = Scene::begun(Some(socket()));
        busy.hear(&event(Name::UserPromptSubmit));
        busy.arrive(vec![reply(awaited)]);
        assert_eq!(holds(&busy.print(&event(Name::Stop)), 1), awaited);
    }
}

#[test]
fn a_second_wake_is_not_taken_for_a_late_first_one() {
    let mut scene = Scene::begun(None);
    assert!(scene.wait());
    scene.arrive(vec![message(1, json!({}))]);
    let Todo::Wake(first) = scene.next() else {
        panic!("woken")
    };
    scene.passes(5);
    let Todo::Look(Some(again)) = scene.next() else {
        panic!("it rests")
    };
    scene.now = again;
    assert!(scene.wait());
    scene.passes(5);
    let Todo::Wake(second) = scene.next() else {
        panic!("woken again")
    };
    assert!(second.contains(&first));
    assert_eq!(
        scene.prompt(&format!("<task-notification>{second}</task-notification>")),
        None
    );
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts(), [entered(1, Via::AsyncRewake, Via::Hook)]);
}

#[test]
fn messages_of_a_prompt_that_was_taken_back_are_pushed_again() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    let Todo::Look(Some(then)) = scene.next() else {
        panic!("nothing looks again")
    };
    scene.now = then;
    assert!(scene.posted().contains("[may have been shown before]"));
}

#[test]
fn a_result_that_was_never_written_is_looked_for_again() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(scene.takes(1));
    let Todo::Look(Some(then)) = scene.next() else {
        panic!("nothing looks again")
    };
    scene.now = then;
    assert!(scene.posted().contains(id(1).as_str()));
}

#[test]
fn a_turn_that_the_models_service_broke_off_is_begun_again_later() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    scene.prompt(&text);
    scene.hear(&event(Name::StopFailure));
    assert!(scene.receipts().is_empty());
    assert_eq!(scene.hop.facts().state, Some(State::Blocked));
    let Todo::Look(Some(later)) = scene.next() else {
        panic!("not at once")
    };
    scene.now = later;
    assert!(scene.posted().contains("[may have been shown before]"));
}

#[test]
fn a_reply_to_a_message_of_a_prompt_proves_that_message() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({})), message(2, json!({}))]);
    let text = scene.posted();
    scene.prompt(&text);
    scene.on(Input::Called(vec![id(1)]));
    assert_eq!(
        scene.receipts(),
        [entered(1, Via::InboxSocket, Via::ToolCall)]
    );
    scene.hear(&event(Name::PostToolBatch));
    assert_eq!(scene.receipts(), [entered(2, Via::InboxSocket, Via::Hook)]);
}

#[test]
fn an_acknowledgement_proves_a_message_that_a_hook_had_shown() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    scene.print(&event(Name::PostToolBatch));
    scene.receipts();
    scene.on(Input::Called(vec![id(1)]));
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::ToolCall)]);
}

/// A scene whose client keeps a transcript.
fn with_a_transcript() -> Scene {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&Event {
        transcript: Some("/t.jsonl".into()),
        ..event(Name::Notification)
    });
    scene
}

#[test]
fn a_message_in_the_conversation_is_not_put_there_again_and_its_turn_is_begun_anew() {
    let mut scene = with_a_transcript();
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    assert_eq!(scene.prompt(&text), None);
    scene.hear(&event(Name::StopFailure));
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "the way rests after a failure"
    );
    scene.passes(30);
    let reminder = scene.posted();
    assert!(
        reminder.contains(id(1).as_str()) && !reminder.contains("text 1"),
        "{reminder}"
    );
    assert_eq!(scene.prompt(&reminder), None);
    scene.hear(&event(Name::Stop));
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
    scene.passes(600);
    assert!(
        matches!(scene.next(), Todo::Look(_) | Todo::Read(_)),
        "once"
    );
}

#[test]
fn a_push_whose_hook_was_late_is_found_in_the_conversation_and_not_made_again() {
    for there in [true, false] {
        let mut scene = with_a_transcript();
        scene.arrive(vec![message(1, json!({}))]);
        let text = scene.posted();
        scene.passes(5);
        assert!(
            matches!(scene.next(), Todo::Look(Some(_))),
            "the client may be writing"
        );
        scene.reads(if there { &[1] } else { &[] }, &[]);
        let expected = if there {
            vec![progress(1, Stage::InSession, Via::InboxSocket)]
        } else {
            vec![]
        };
        assert_eq!(scene.receipts(), expected);
        if there {
            let late = scene.hear(&Event {
                prompt: Some(text),
                ..event(Name::UserPromptSubmit)
            });
            assert!(late.stdout.contains("\"block\""), "{late:?}");
            continue;
        }
        scene.passes(2);
        scene.reads(&[], &[]);
        let again = scene.print(&of_turn("p2", event(Name::UserPromptSubmit)));
        assert!(
            holds(&again, 1) && is_marked(&again),
            "it may stand in the client's queue yet: {again:?}"
        );
    }
}

#[test]
fn a_turn_that_was_broken_off_leaves_its_message_in_the_conversation_or_takes_it_along() {
    for (there, expected) in [
        (true, vec![entered(1, Via::InboxSocket, Via::Transcript)]),
        (false, vec![]),
    ] {
        let mut scene = with_a_transcript();
        scene.arrive(vec![message(1, json!({}))]);
        let text = scene.posted();
        assert_eq!(scene.prompt(&text), None);
        scene.hear(&of_turn("p2", event(Name::UserPromptSubmit)));
        scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
        if !there {
            scene.reads(&[], &[]);
            assert!(
                matches!(scene.next(), Todo::Look(Some(_))),
                "it may be written a little later"
            );
            scene.passes(2);
        }
        let there_alone: &[u32] = if there { &[1] } else { &[] };
        scene.reads(there_alone, there_alone);
        assert_eq!(scene.receipts(), expected);
        let again = scene.print(&of_turn("p2", event(Name::Stop)));
        assert_eq!(holds(&again, 1) && is_marked(&again), !there, "{again:?}");
    }
}

#[test]
fn a_rewound_message_comes_again_in_a_new_context() {
    let mut scene = with_a_transcript();
    scene.arrive(vec![message(1, json!({})), message(2, news())]);
    assert!(holds(&scene.prompt("typed"), 1));
    scene.hear(&event(Name::Stop));
    scene.passes(1);
    scene.reads(&[1, 2], &[1, 2]);
    scene.receipts();
    scene.hear(&of_turn("p2", event(Name::UserPromptSubmit)));
    scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
    scene.passes(1);
    scene.reads(&[2], &[]);
    let receipts = scene.receipts();
    assert_eq!(
        receipts,
        [Progress {
            context: 1,
            ..progress(2, Stage::InSession, Via::Transcript)
        }],
        "the rest"
    );
    assert_eq!(scene.hop.facts().context, Some(1));
    let again = scene.print(&of_turn("p2", event(Name::Stop)));
    assert!(
        holds(&again, 1) && is_marked(&again) && !holds(&again, 2),
        "{again:?}"
    );
}

#[test]
fn a_proxy_that_joined_a_session_looks_before_it_repeats_anything() {
    let mut scene = with_a_transcript();
    scene.hop = std::mem::replace(&mut scene.hop, Hop::new(agent("x"), None, false, true)).joined();
    scene.arrive(vec![
        message(1, json!({"repeated": true})),
        message(2, json!({"repeated": true})),
    ]);
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::Transcript)]
    );
    scene.passes(2);
    scene.reads(&[1], &[]);
    let text = scene.posted();
    assert!(
        text.contains(id(2).as_str()) && !text.contains(id(1).as_str()),
        "{text}"
    );
}

#[test]
fn a_joined_session_that_is_idle_is_reminded_of_a_question_that_nothing_answered() {
    let mut scene = with_a_transcript();
    scene.hop = std::mem::replace(&mut scene.hop, Hop::new(agent("x"), None, false, true)).joined();
    scene.hear(&starts("resume", "s1"));
    scene.arrive(vec![
        message(1, json!({"repeated": true})),
        message(2, json!({"repeated": true})),
        message(3, json!({"repeated": true, "requires_response": false})),
    ]);
    scene.reads(&[1, 2, 3], &[2]);
    assert_eq!(scene.reminds(), [id(1)]);
}

#[test]
fn settled_messages_do_not_come_again_after_a_rewind() {
    let mut scene = with_a_transcript();
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.prompt("typed"), 1));
    scene.hear(&event(Name::Stop));
    scene.passes(1);
    scene.reads(&[1], &[]);
    scene.on(Input::Settled(vec![id(1)]));
    scene.hear(&of_turn("p2", event(Name::UserPromptSubmit)));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    scene.passes(1);
    scene.reads(&[], &[]);
    assert_eq!((scene.hop.unread(), scene.next()), (0, Todo::Look(None)));
}

#[test]
fn the_transcript_of_a_one_shot_session_is_read_for_shown_messages() {
    let hop = Hop::new(agent("homeassistant"), Some(socket()), false, true).of_one_shot();
    let mut scene = Scene::of(hop);
    scene.hear(&Event {
        transcript: Some("/t.jsonl".into()),
        ..event(Name::UserPromptSubmit)
    });
    assert!(!matches!(scene.next(), Todo::Read(_)));
    scene.arrive(vec![message(1, json!({}))]);
    scene.present(1, Via::GetMessages, None);
    scene.hear(&event(Name::PostToolBatch));
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts().len(), 1, "in the session");
    assert_eq!(
        scene.next(),
        Todo::Read("/t.jsonl".into()),
        "at once: the session may end at any moment"
    );
    scene.on(Input::Conversation(Some(standing(&[1], &[]))));
    assert_eq!(scene.receipts(), [], "a tool may have ended the turn");
    scene.passes(1);
    assert_eq!(scene.next(), Todo::Read("/t.jsonl".into()));
    scene.on(Input::Conversation(Some(standing(&[1], &[1]))));
    assert_eq!(scene.receipts().len(), 1, "seen");
    scene.passes(60);
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: Some("/t.jsonl".into()),
    }));
    assert_eq!(scene.next(), Todo::Look(None));
}

#[test]
fn a_client_without_a_session_file_is_looked_for_twice_before_messages_come_again() {
    let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, false).joined());
    let repeated = |number| message(number, json!({"repeated": true}));
    for number in [1, 2, 3] {
        scene.arrive(vec![repeated(number)]);
        if number < 3 {
            assert!(scene.hop.doubted_until(&id(number)).is_some(), "{number}");
            scene.passes(1);
            assert_eq!(scene.next(), Todo::AskClient);
            scene.on(Input::ClientState(ClientState::default()));
        }
        assert_eq!(scene.hop.doubted_until(&id(number)), None, "{number}");
        assert!(scene.on(Input::Taken(id(number))).granted, "{number}");
    }
}

#[test]
fn a_wait_takes_a_doubted_message_when_the_transcript_did_not_decide_in_time() {
    let mut scene = with_a_transcript();
    scene.hop = std::mem::replace(&mut scene.hop, Hop::new(agent("x"), None, false, true)).joined();
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    scene.now = scene.hop.doubted_until(&id(1)).unwrap();
    assert!(scene.on(Input::Taken(id(1))).granted);
}
