//! Pushes that come late, are not confirmed, or meet a turn.

use std::time::Duration;

use c3po_shared::receipt::{Progress, Stage, Via};
use serde_json::json;

use super::{
    Scene, after_a_turn, entered, event, holds, is_marked, message, of_turn, progress, socket,
    typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::testing::{agent, id, standing};
use crate::deliver::transcript::Recorded;
use crate::local::protocol::{Event, Name};

#[test]
fn a_push_that_nothing_confirms_falls_to_the_next_way() {
    let mut scene = Scene::begun(Some(socket()));
    assert!(scene.wait());
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    let Todo::Wake(text) = scene.next() else {
        panic!("the hook that waits is next")
    };
    assert!(scene.receipts().is_empty());
    assert_eq!(
        scene.prompt(&format!("<task-notification>{text}</task-notification>")),
        None
    );
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts(), [entered(1, Via::AsyncRewake, Via::Hook)]);
    assert_eq!(scene.reach().last(), Some(&Via::AsyncRewake));
}

#[test]
fn a_prompt_brings_a_message_before_a_way_that_failed_is_tried_again() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    assert!(matches!(scene.next(), Todo::Look(Some(_))));
    scene.passes(20);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.passes(1);
    scene.arrive(vec![message(2, json!({}))]);
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "a person types: the next prompt is near"
    );
    assert!(holds(&scene.print(&typed("p2")), 2));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    scene.arrive(vec![message(3, json!({}))]);
    scene.passes(5);
    assert!(holds(&Some(scene.posted()), 3));
}

#[test]
fn a_push_that_comes_late_is_kept_out_where_another_way_was_taken() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let held = scene.posted();
    scene.passes(5);
    assert!(matches!(scene.next(), Todo::Look(Some(_))));
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    scene.hear(&event(Name::PostToolBatch));
    let late = Event {
        prompt: Some(held.clone()),
        ..event(Name::UserPromptSubmit)
    };
    let answer = scene.hear(&late);
    assert!(
        answer.stdout.contains("\"block\"") && answer.stdout.contains("suppressOriginalPrompt"),
        "{answer:?}"
    );
    assert_eq!(scene.hear(&late).stdout, "", "what is not ours passes");
}

#[test]
fn a_push_that_comes_late_and_first_counts() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let held = scene.posted();
    scene.passes(5);
    assert!(matches!(scene.next(), Todo::Look(Some(_))));
    assert_eq!(scene.prompt(&held), None);
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts(), [entered(1, Via::InboxSocket, Via::Hook)]);
}

#[test]
fn a_push_into_a_turn_is_given_time_and_taken_once() {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "a turn is under way"
    );
    scene.passes(15);
    let text = scene.posted();
    scene.passes(300);
    assert!(matches!(scene.next(), Todo::Look(Some(_))), "a long tool");
    assert_eq!(
        scene.print(&event(Name::PostToolBatch)),
        None,
        "it is under way already"
    );
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert_eq!(scene.prompt(&text), None);
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.receipts(), [entered(1, Via::InboxSocket, Via::Hook)]);
}

#[test]
fn a_push_whose_prompt_another_hook_refused_is_not_in_the_session() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    scene.prompt(&text);
    scene.print(&of_turn("p2", event(Name::UserPromptSubmit)));
    let again = scene.print(&of_turn("p2", event(Name::Stop)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
    assert_eq!(scene.receipts(), [progress(1, Stage::InSession, Via::Stop)]);
}

#[test]
fn a_push_whose_messages_were_read_meanwhile_is_kept_out() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    scene.present(1, Via::GetMessages, None);
    let answer = scene.hear(&Event {
        prompt: Some(text),
        ..event(Name::UserPromptSubmit)
    });
    assert!(answer.stdout.contains("\"block\""), "{answer:?}");
}

/// A session after its first turn, whose client keeps a session file.
fn idle_client() -> Scene {
    let mut scene = after_a_turn();
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: None,
    }));
    scene
}

#[test]
fn a_push_into_a_turn_that_another_plugin_keeps_waits_for_its_end() {
    let mut scene = idle_client();
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    let busy = ClientState {
        is_busy: Some(true),
        transcript: None,
    };
    scene.passes(5);
    assert_eq!(scene.next(), Todo::AskClient, "before it counts as lost");
    scene.on(Input::ClientState(busy.clone()));
    for _ in 0..10 {
        scene.passes(15);
        scene.looks(&busy, &standing(&[], &[]));
        assert!(matches!(scene.next(), Todo::Look(_)), "it is made once");
    }
    scene.hear(&of_turn("p0", event(Name::Stop)));
    let prompt = Event {
        prompt: Some(text.clone()),
        ..event(Name::UserPromptSubmit)
    };
    assert_eq!(scene.hear(&prompt).stdout, "", "it is not refused");
    assert!(!text.contains("[may have been shown before]"));
}

#[test]
fn a_push_that_a_client_drops_is_given_up_in_the_turns_of_a_person_who_types() {
    let mut scene = idle_client();
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    let shown = (1..12).find(|turn| {
        scene.passes(1);
        let turn = format!("p{turn}");
        let shown = scene.print(&typed(&turn));
        scene.on(Input::ClientState(client(true)));
        scene.passes(1);
        scene.looks(&client(true), &standing(&[], &[]));
        scene.hear(&of_turn(&turn, event(Name::Stop)));
        holds(&shown, 1)
    });
    assert!(shown.is_some(), "a prompt brings it");
}

#[test]
fn a_push_that_an_idle_client_lost_is_made_again() {
    let mut scene = idle_client();
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: None,
    }));
    let again = (0..6).find_map(|_| match scene.next() {
        Todo::Post(_, text) => Some(text),
        Todo::Read(_) => {
            scene.on(Input::Conversation(Some(standing(&[], &[]))));
            None
        }
        _ => {
            scene.passes(10);
            None
        }
    });
    assert!(again.is_some());
}

/// A session whose person switched the hooks off, and a question was pushed into it.
fn pushed_after_the_hooks() -> Scene {
    let mut scene = idle_client();
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    scene
}

fn client(is_busy: bool) -> ClientState {
    ClientState {
        is_busy: Some(is_busy),
        transcript: None,
    }
}

#[test]
fn a_push_is_confirmed_by_the_transcript_where_no_hook_reports_it() {
    let mut scene = pushed_after_the_hooks();
    scene.looks(&client(true), &standing(&[1], &[]));
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
    assert!(scene.reach().contains(&Via::InboxSocket));
    scene.arrive(vec![message(2, json!({}))]);
    let again = (0..30).find_map(|_| {
        scene.passes(1);
        match scene.looks(&client(true), &standing(&[1], &[1])) {
            Todo::Post(_, text) => Some(text),
            _ => None,
        }
    });
    assert!(again.is_some_and(|text| text.contains(id(2).as_str())));
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn a_push_into_a_turn_is_given_up_soon_after_its_end_where_no_hook_reports_that() {
    let mut scene = pushed_after_the_hooks();
    for _ in 0..4 {
        scene.looks(&client(true), &standing(&[], &[]));
        scene.passes(15);
    }
    assert_eq!(scene.receipts(), []);
    let again = (0..30).find_map(|second| {
        scene.passes(1);
        match scene.looks(&client(false), &standing(&[], &[])) {
            Todo::Post(_, text) => Some((second, text)),
            _ => None,
        }
    });
    let (second, text) = again.expect("it is made again");
    assert!(text.contains("[may have been shown before]"), "{text}");
    assert!(second < 30, "{second} s later");
}

#[test]
fn a_push_whose_hook_was_lost_is_confirmed_by_the_transcript_after_the_next_step() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    scene.passes(20);
    scene.posted();
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [entered(1, Via::InboxSocket, Via::Transcript)]
    );
}

/// A session without hooks that is idle, and was pushed a question.
fn pushed_without_hooks() -> Scene {
    let inbox = Some(socket());
    let mut scene = Scene::of(Hop::new(agent("homeassistant"), inbox, false, false));
    scene.on(Input::Begins(agent("homeassistant"), 1));
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: Some("/t.jsonl".into()),
    }));
    scene.arrive(vec![message(1, json!({}))]);
    scene.passes(1);
    scene.posted();
    scene
}

#[test]
fn a_result_with_a_message_that_is_being_pushed_is_marked() {
    // The hook that would block the push may be too late, or there is none.
    let mut with_hooks = Scene::begun(Some(socket()));
    with_hooks.arrive(vec![message(1, json!({}))]);
    with_hooks.posted();
    for mut scene in [pushed_without_hooks(), with_hooks] {
        assert_eq!(
            scene.hop.repeated(&[id(1)], None),
            [id(1)],
            "by get_messages"
        );
        assert!(scene.takes(1));
        assert_eq!(scene.hop.repeated(&[id(1)], None), [id(1)], "by a wait");
    }
}

#[test]
fn without_hooks_the_transcript_shows_whether_a_push_came() {
    let mut scene = pushed_without_hooks();
    scene.passes(5);
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(true),
        transcript: Some("/t.jsonl".into()),
    }));
    assert!(
        matches!(scene.next(), Todo::Look(Some(_))),
        "the file may be written a little later"
    );
    scene.asks_and_reads(&[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::InboxSocket)]
    );
}

#[test]
fn a_push_whose_message_a_result_brought_is_kept_out_although_no_hook_reported_the_tool() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    scene.passes(20);
    let text = scene.posted();
    assert!(scene.takes(1));
    scene.present(1, Via::WaitForMessage, Some("t1"));
    let answer = scene.hear(&of_turn(
        "p1",
        Event {
            prompt: Some(text),
            ..event(Name::UserPromptSubmit)
        },
    ));
    assert!(answer.stdout.contains("\"block\""), "{answer:?}");
    scene.reads(&[1], &[]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::WaitForMessage)]
    );
}

#[test]
fn a_push_that_comes_late_is_kept_out_where_a_prompt_s_copy_stands_and_no_transcript_shows_it() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    let late = scene.posted();
    scene.passes(60);
    scene.next();
    // The client of a busy machine has not written yet.
    let finds_nothing = |scene: &mut Scene| {
        for _ in 0..4 {
            scene.passes(3);
            scene.on(Input::Look);
            scene.on(Input::Conversation(None));
        }
    };
    finds_nothing(&mut scene);
    let copy = scene.print(&typed("p1"));
    assert!(holds(&copy, 1) && is_marked(&copy), "{copy:?}");
    scene.passes(15);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        transcript: Some("/t.jsonl".into()),
    }));
    for _ in 0..2 {
        scene.passes(3);
        scene.on(Input::Conversation(None));
    }
    let drained = Event {
        prompt: Some(late),
        ..of_turn("p3", event(Name::UserPromptSubmit))
    };
    let answer = scene.hear(&drained);
    assert!(
        answer.stdout.contains("may have this message already"),
        "{answer:?}"
    );
    let again = (0..9).find_map(|_| {
        scene.passes(3);
        scene.on(Input::Conversation(None));
        match scene.next() {
            Todo::Post(_, text) => Some(text),
            _ => None,
        }
    });
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

/// A session that a person continued 5 seconds ago is pushed a question again that its conversation has, of that age.
fn pushed_into_a_continued_session(seconds: u64) -> (Scene, String) {
    let mut scene = after_a_turn();
    let began = scene.now.checked_sub(Duration::from_secs(5));
    scene.hop = scene.hop.since(began);
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    scene.passes(10);
    let text = scene.posted();
    scene.hear(&of_turn("p0", event(Name::Stop)));
    let ages = [(id(1), Duration::from_secs(seconds))].into();
    let recorded = Recorded {
        ages,
        ..standing(&[1], &[1])
    };
    scene.on(Input::Conversation(Some(recorded)));
    (scene, text)
}

#[test]
fn a_copy_from_before_a_session_was_continued_does_not_confirm_a_push() {
    let (mut scene, text) = pushed_into_a_continued_session(60);
    assert_eq!(scene.receipts(), [], "that copy came before");
    let prompt = Some(text);
    let came = Event {
        prompt,
        ..of_turn("p1", event(Name::UserPromptSubmit))
    };
    assert!(!scene.hear(&came).stdout.contains("already"));

    let (mut scene, _) = pushed_into_a_continued_session(2);
    let confirmed = entered(1, Via::InboxSocket, Via::Transcript);
    assert_eq!(scene.receipts(), [confirmed], "that copy is the push");
}

#[test]
fn a_push_into_a_conversation_that_no_hook_reported_is_confirmed_by_its_transcript() {
    let mut scene = after_a_turn();
    let cleared = ClientState {
        is_busy: Some(false),
        transcript: Some("/u.jsonl".into()),
    };
    scene.on(Input::ClientState(cleared.clone()));
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    // The hooks are switched off, and a person cleared the session before.
    assert_eq!(scene.next(), Todo::AskClient);
    scene.on(Input::ClientState(cleared));
    assert_eq!(scene.next(), Todo::Read("/u.jsonl".into()));
    scene.on(Input::Conversation(Some(standing(&[1], &[1]))));
    let expected = Progress {
        context: 1,
        ..entered(1, Via::InboxSocket, Via::Transcript)
    };
    assert_eq!(scene.receipts(), [expected]);
    scene.passes(600);
    assert!(!matches!(scene.next(), Todo::Post(..)));
}
