//! Turns that a tool may have ended: the model is not asked again.

use c3po_shared::receipt::{Stage, Via};
use serde_json::json;

use super::results::{batch, waited};
use super::{
    Scene, after_a_turn, event, holds, is_marked, message, news, of_turn, progress, socket, starts,
    typed,
};
use crate::deliver::hop::Input;
use crate::deliver::push::Todo;
use crate::deliver::testing::{id, standing};
use crate::local::protocol::{Event, Name};

#[test]
fn the_results_of_a_step_that_ends_its_turn_are_seen_once_the_model_answers_them() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    waited(&mut scene, 1, json!({}), "t1");
    scene.reads(&[1], &[]);
    scene.receipts();
    scene.hear(&batch("p1", "t1"));
    // Another tool of the step ends the turn: the model is not asked again.
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[1], &[]);
    assert_eq!(scene.receipts(), [], "no request held it");
    for _ in 0..3 {
        scene.passes(5);
        if scene.next() == Todo::Read("/t.jsonl".into()) {
            scene.on(Input::Conversation(Some(standing(&[1], &[]))));
        }
    }
    let reminder = scene.posted();
    assert!(
        reminder.contains(id(1).as_str()) && !reminder.contains("text 1"),
        "{reminder}"
    );
    scene.prompt(&reminder);
    scene.hear(&event(Name::Stop));
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::Seen, Via::Transcript)]
    );
}

#[test]
fn without_a_transcript_the_next_prompt_and_its_step_prove_what_a_turn_ended_with() {
    // The client names no file, or one that it never writes.
    for mut scene in [Scene::begun(Some(socket())), after_a_turn()] {
        let reads_nothing = |scene: &mut Scene| {
            scene.passes(1);
            if let Todo::Read(_) = scene.next() {
                scene.on(Input::Conversation(None));
            }
        };
        scene.hear(&typed("p1"));
        scene.uses("p1", "t1");
        waited(&mut scene, 1, news(), "t1");
        reads_nothing(&mut scene);
        scene.hear(&batch("p1", "t1"));
        scene.receipts();
        scene.hear(&of_turn("p1", event(Name::Stop)));
        reads_nothing(&mut scene);
        assert_eq!(scene.receipts(), [], "a tool may have ended the turn");
        scene.hear(&typed("p2"));
        scene.hear(&of_turn("p2", event(Name::Stop)));
        reads_nothing(&mut scene);
        assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
    }
}

#[test]
fn a_hooks_text_that_the_client_dropped_is_not_claimed_and_comes_again() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&batch("p1", "t1")), 1));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[], &[]);
    scene.passes(20);
    scene.reads(&[], &[]);
    assert_eq!(scene.receipts(), [], "the conversation never held it");
    assert!(is_marked(&Some(scene.posted())));
}

#[test]
fn a_hooks_text_that_is_not_claimed_when_its_context_ends_comes_again() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&batch("p1", "t1")), 1));
    scene.hear(&event(Name::PreCompact));
    scene.hear(&starts("compact", "s1"));
    assert_eq!(scene.receipts(), []);
    let again = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

/// A session whose transcript cannot be read, and that was shown message 1 at the end of a step.
fn shown_without_a_record() -> Scene {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&batch("p1", "t1")), 1));
    scene.on(Input::Conversation(None));
    assert_eq!(scene.receipts(), [], "the client may drop it");
    scene
}

#[test]
fn without_a_transcript_a_hooks_text_that_may_have_been_dropped_comes_again() {
    let mut scene = shown_without_a_record();
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::Stop)));
    let again = (0..30).find_map(|_| {
        scene.passes(1);
        match scene.next() {
            Todo::Read(_) => drop(scene.on(Input::Conversation(None))),
            Todo::Post(_, text) => return Some(text),
            _ => {}
        }
        None
    });
    assert_eq!(scene.receipts(), [], "no request held it");
    assert!(is_marked(&again) && holds(&again, 1), "{again:?}");
}

#[test]
fn without_a_transcript_the_next_use_of_a_tool_proves_a_hooks_text() {
    let mut scene = shown_without_a_record();
    scene.uses("p1", "t2");
    scene.on(Input::Conversation(None));
    assert_eq!(
        scene.receipts(),
        [
            progress(1, Stage::InSession, Via::PostToolBatch),
            progress(1, Stage::Seen, Via::Hook)
        ]
    );
}

#[test]
fn without_a_transcript_the_answer_that_ends_a_turn_proves_a_hooks_text() {
    let mut scene = shown_without_a_record();
    let answered = true;
    scene.hear(&Event {
        answered,
        ..of_turn("p1", event(Name::Stop))
    });
    scene.on(Input::Conversation(None));
    assert_eq!(
        scene.receipts(),
        [
            progress(1, Stage::InSession, Via::PostToolBatch),
            progress(1, Stage::Seen, Via::Hook)
        ]
    );
}
