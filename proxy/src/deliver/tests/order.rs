//! The order of one sender's messages, and what holds them up.

use serde_json::json;

use super::{Scene, after_a_turn, event, holds, message, news, of_turn, socket, typed};
use crate::deliver::client::ClientState;
use crate::deliver::hop::Input;
use crate::deliver::push::Todo;
use crate::deliver::testing::{id, standing};
use crate::local::protocol::{Event, Name};

#[test]
fn a_later_message_of_a_sender_does_not_overtake_the_one_that_is_being_pushed() {
    let mut scene = after_a_turn();
    scene.hear(&of_turn("p1", event(Name::UserPromptSubmit)));
    scene.arrive(vec![message(1, json!({}))]);
    scene.passes(20);
    let text = scene.posted();
    scene.arrive(vec![
        message(2, json!({})),
        message(3, json!({"from_agent": "other"})),
    ]);
    let given = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
    assert!(holds(&given, 3) && !holds(&given, 2), "{given:?}");
    scene.hear(&of_turn(
        "p1",
        Event {
            prompt: Some(text),
            ..event(Name::UserPromptSubmit)
        },
    ));
    assert!(holds(
        &scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        2
    ));
}

#[test]
fn a_later_message_of_a_sender_comes_with_the_next_prompt_if_the_turn_of_the_one_before_had_a_step()
{
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.arrive(vec![message(2, news())]);
    assert!(
        holds(&scene.print(&typed("p2")), 2),
        "the transcript was not read yet"
    );
}

#[test]
fn a_push_that_the_client_dropped_holds_nothing_up_for_as_long_as_a_person_types() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.arrive(vec![message(2, news())]);
    for number in 0..7 {
        let turn = format!("t{number}");
        let given = scene.print(&typed(&turn));
        scene.hear(&of_turn(&turn, event(Name::Stop)));
        scene.passes(2);
        scene.next();
        scene.on(Input::Conversation(Some(standing(&[], &[]))));
        assert_eq!(holds(&given, 1), holds(&given, 2));
        if holds(&given, 1) {
            return;
        }
    }
    panic!("nothing came");
}

#[test]
fn the_news_of_a_sender_goes_with_and_before_its_question() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![
        message(1, news()),
        message(
            2,
            json!({"from_agent": "other", "requires_response": false}),
        ),
    ]);
    assert!(
        matches!(scene.next(), Todo::Look(_)),
        "news alone wakes nobody"
    );
    scene.arrive(vec![message(3, json!({}))]);
    let text = scene.posted();
    let place = |number| text.find(id(number).as_str());
    assert!(
        place(1).is_some() && place(1) < place(3) && place(2).is_none(),
        "{text}"
    );
    assert!(
        text.contains(", 1 more waits: get_messages shows all"),
        "{text}"
    );
}

#[test]
fn a_later_message_of_a_sender_does_not_overtake_the_one_whose_prompt_was_taken_back() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&typed("p1")), 1));
    // Esc, before an answer: the client takes the prompt back.
    scene.passes(5);
    scene.arrive(vec![
        message(2, news()),
        message(3, json!({"from_agent": "other"})),
    ]);
    let given = scene.print(&typed("p2"));
    assert!(holds(&given, 3) && !holds(&given, 2), "{given:?}");
    scene.hear(&of_turn("p2", event(Name::PreToolUse)));
    for _ in 0..2 {
        scene.reads(&[], &[]);
    }
    let given = scene
        .print(&of_turn("p2", event(Name::PostToolBatch)))
        .unwrap();
    let place = |number| given.find(id(number).as_str());
    assert!(place(1).is_some() && place(1) < place(2), "{given}");
}

#[test]
fn without_a_transcript_another_turn_does_not_bring_the_message_of_a_turn_again() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    for turn in 1..=20 {
        if let Todo::Post(_, prompt) = scene.looks(&ClientState::default(), None) {
            let name = format!("p{turn}");
            scene.print(&of_turn(
                &name,
                Event {
                    prompt: Some(prompt),
                    ..event(Name::UserPromptSubmit)
                },
            ));
            assert!(turn <= 2, "a further turn begins");
            scene.hear(&of_turn(&name, event(Name::Stop)));
        }
        scene.passes(1);
        if turn == 1 {
            scene.arrive(vec![message(2, json!({"from_agent": "other"}))]);
        }
    }
    assert_eq!(scene.hop.unread(), 0);
}
