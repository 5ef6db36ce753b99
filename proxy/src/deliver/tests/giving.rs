//! The messages that hooks are given, once, and their receipts.

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
use crate::deliver::testing::{agent, id};
use crate::local::protocol::{Answer, Event, Name};

#[test]
fn a_message_comes_between_two_steps_once() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(holds(&text, 1), "{text:?}");
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::PostToolBatch)]
    );
    scene.arrive(vec![message(1, json!({}))]);
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
    assert_eq!(scene.receipts(), [progress(1, Stage::Seen, Via::Hook)]);
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert!(scene.receipts().is_empty());
}

#[test]
fn a_text_that_a_hook_did_not_print_is_given_to_the_next_one() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    let answer = scene.hear(&event(Name::PostToolBatch));
    assert_eq!(
        scene.print(&event(Name::PostToolBatch)),
        None,
        "one way at a time"
    );
    scene.on(Input::NotPrinted(answer.offer.unwrap()));
    assert!(scene.receipts().is_empty());
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(
        holds(&text, 1) && is_marked(&text),
        "it may have died after it printed: {text:?}"
    );
    scene.on(Input::Printed(answer.offer.unwrap()));
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::PostToolBatch)]
    );
}

#[test]
fn a_turn_is_prolonged_for_questions_and_urgency_but_not_for_news() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, news())]);
    assert_eq!(scene.print(&event(Name::Stop)), None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![
        message(2, json!({})),
        message(3, json!({"requires_response": false, "priority": "high"})),
    ]);
    let text = scene.print(&event(Name::Stop));
    assert!(
        holds(&text, 2) && holds(&text, 3) && !holds(&text, 1),
        "{text:?}"
    );
    assert_eq!(scene.hop.facts().state, Some(State::Busy));
    assert_eq!(
        scene.print(&Event {
            stop_hook_active: true,
            ..event(Name::Stop)
        }),
        None
    );
    assert_eq!(scene.hop.facts().state, Some(State::Ready));
}

#[test]
fn news_starts_nothing_and_comes_with_the_next_prompt() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, news())]);
    assert_eq!(scene.next(), Todo::Look(None));
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    assert!(
        scene.receipts().is_empty(),
        "another hook may have refused the prompt"
    );
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert_eq!(
        scene.receipts(),
        [entered(1, Via::UserPromptSubmit, Via::Hook)]
    );
}

#[test]
fn messages_of_a_prompt_without_a_turn_come_again_marked() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    assert_eq!(
        scene.print(&of_turn("p2", event(Name::UserPromptSubmit))),
        None,
        "it may lead to something yet"
    );
    let again = scene.print(&of_turn("p2", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::PostToolBatch)]
    );
}

#[test]
fn the_result_of_a_wait_and_a_hook_never_show_the_same_message() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({})), message(2, json!({}))]);
    assert!(scene.takes(1));
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(!holds(&text, 1) && holds(&text, 2), "{text:?}");
    assert!(!scene.takes(2), "the hook had it");
    scene.present(1, Via::WaitForMessage, Some("t1"));
    assert!(!scene.takes(1));
    assert!(scene.takes(3));
    scene.arrive(vec![message(3, json!({}))]);
    assert_eq!(
        scene.print(&event(Name::PostToolBatch)),
        None,
        "its result is being written"
    );
    scene.passes(5);
    scene.next();
    assert!(
        holds(&scene.print(&event(Name::PostToolBatch)), 3),
        "it never was"
    );
}

#[test]
fn no_hook_shows_a_message_that_is_being_read_in_parts() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(scene.takes(1));
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: None,
    });
    scene.passes(60);
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
    scene.present(1, Via::GetMessages, None);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::GetMessages)]
    );
    scene.hear(&event(Name::Stop));
    scene.arrive(vec![message(2, json!({}))]);
    scene.on(Input::InParts {
        ids: vec![id(2)],
        read_on: None,
        tool_use: None,
    });
    assert!(matches!(scene.next(), Todo::Look(_)));
    scene.passes(300);
    assert!(
        scene.posted().contains(id(2).as_str()),
        "its rest was never asked for"
    );
}

#[test]
fn a_call_proves_that_the_message_it_names_was_seen_and_no_other() {
    for expects_hooks in [false, true] {
        let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, expects_hooks));
        scene.present(1, Via::GetMessages, None);
        scene.present(2, Via::GetMessages, None);
        // There is no record of this client's session.
        scene.on(Input::ClientState(ClientState::default()));
        let shown: usize = scene
            .receipts()
            .iter()
            .map(|one| one.message_ids.len())
            .sum();
        assert_eq!(shown, 2, "both are in the session");
        for _ in 0..2 {
            scene.on(Input::Called(vec![]));
            scene.passes(10);
        }
        assert_eq!(scene.receipts(), [], "calls of the same batch");
        scene.on(Input::Called(vec![id(2)]));
        assert_eq!(scene.receipts(), [progress(2, Stage::Seen, Via::ToolCall)]);
    }
}

#[test]
fn a_new_context_is_reported_and_gets_its_messages_again() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
    scene.hear(&event(Name::SessionEnd));
    assert_eq!(scene.hop.facts().context, Some(0));
    scene.hear(&starts("clear", "s2"));
    let facts = scene.hop.facts();
    assert_eq!(
        (facts.context, facts.session_id.as_deref()),
        (Some(1), Some("s2"))
    );
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    let again = scene.print(&Event {
        session_id: Some("s2".into()),
        ..event(Name::UserPromptSubmit)
    });
    assert!(is_marked(&again), "{again:?}");
    for (source, session, context) in [
        ("compact", "s2", 2),
        ("resume", "s1", 3),
        ("startup", "s1", 3),
    ] {
        // Another hook of the same beginning may report first.
        scene.hear(&Event {
            session_id: Some(session.into()),
            ..event(Name::Wait)
        });
        scene.hear(&starts(source, session));
        assert_eq!(scene.hop.facts().context, Some(context), "{source}");
    }
    scene.hear(&Event {
        session_id: Some("s0".into()),
        ..event(Name::Stop)
    });
    assert_eq!(
        scene.hop.facts().context,
        Some(3),
        "a hook of an earlier one is late"
    );
    scene.hear(&Event {
        session_id: Some("s3".into()),
        ..event(Name::UserPromptSubmit)
    });
    assert_eq!(
        scene.hop.facts().context,
        Some(4),
        "a start that was not heard"
    );
}

#[test]
fn a_session_that_begins_by_a_resume_is_in_its_first_context() {
    let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, true));
    scene.hear(&starts("resume", "s1"));
    assert_eq!(scene.hop.facts().context, Some(0));
}

#[test]
fn messages_of_a_prompt_survive_a_compaction() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    scene.hear(&starts("compact", "s1"));
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
    let expected = Progress {
        context: 1,
        ..entered(1, Via::UserPromptSubmit, Via::Hook)
    };
    assert_eq!(scene.receipts(), [expected]);
}

#[test]
fn messages_that_were_on_their_way_come_marked_into_a_new_context() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive((1..=3).map(|number| message(number, json!({}))).collect());
    scene.on(Input::InParts {
        ids: vec![id(1)],
        read_on: None,
        tool_use: None,
    });
    assert!(scene.takes(2));
    assert!(scene.hear(&event(Name::PostToolBatch)).offer.is_some());
    // The client leaves the latest results and texts of hooks in the conversation.
    scene.hear(&starts("compact", "s1"));
    let text = scene.print(&event(Name::Stop)).unwrap_or_default();
    let marks = text.matches("[may have been shown before]").count();
    assert_eq!(marks, 3, "{text}");
}

#[test]
fn nothing_is_given_to_a_subagent() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    let of_subagent = |name| Event {
        agent_id: Some("sub".into()),
        ..event(name)
    };
    assert_eq!(
        scene.hear(&of_subagent(Name::PostToolBatch)),
        Answer::default()
    );
    assert_eq!(
        scene.hear(&of_subagent(Name::SubagentStop)),
        Answer::default()
    );
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
}

#[test]
fn another_session_of_the_agent_begins_with_nothing() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    scene.on(Input::Begins(agent("homeassistant"), 1));
    assert_eq!(scene.hop.unread(), 1, "the same session");
    scene.on(Input::Begins(agent("homeassistant"), 2));
    assert_eq!(scene.hop.unread(), 0);
}

#[test]
fn a_session_is_informed_of_a_name_that_it_did_not_choose() {
    let mut scene = Scene::of(Hop::new(agent("web"), None, false, true));
    scene.on(Input::Begins(agent("web-2"), 1));
    let text = scene.print(&event(Name::UserPromptSubmit)).unwrap();
    assert!(
        text.contains("Your agent id is web-2: another agent has web"),
        "{text}"
    );
    assert_eq!(scene.hear(&event(Name::PostToolBatch)), Answer::default());
    let again = scene.hear(&starts("clear", "s2"));
    assert!(
        again.stdout.contains("id is web-2"),
        "another context: {again:?}"
    );
    scene.on(Input::Begins(agent("backend"), 0));
    assert_eq!(
        scene.hear(&event(Name::PostToolBatch)),
        Answer::default(),
        "it chose that name"
    );
}

#[test]
fn a_burst_comes_in_order_and_urgent_first() {
    let mut scene = Scene::begun(None);
    let priority = |number| if number == 13 { "urgent" } else { "normal" };
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(
        (1..=20)
            .map(|number| message(number, json!({"priority": priority(number)})))
            .collect(),
    );
    let text = scene.print(&event(Name::PostToolBatch)).unwrap_or_default();
    let mut rest = scene.print(&event(Name::PostToolBatch)).unwrap_or_default();
    rest.insert_str(0, &text);
    let places: Vec<_> = (1..=20)
        .map(|number| rest.find(&format!("> text {number}\n")))
        .collect();
    let mut order: Vec<u32> = (1..=20).collect();
    order.sort_by_key(|number| places[*number as usize - 1].unwrap_or(usize::MAX));
    let mut expected: Vec<u32> = (1..=20).filter(|number| *number != 13).collect();
    expected.insert(0, 13);
    assert_eq!(order, expected);
    let ids: Vec<MessageId> = scene
        .receipts()
        .into_iter()
        .filter(|s| s.stage == Stage::InSession)
        .flat_map(|s| s.message_ids)
        .collect();
    assert_eq!(ids.len(), 20);
}

#[test]
fn an_answered_message_is_not_shown() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    scene.on(Input::Settled(vec![id(1)]));
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
}

#[test]
fn a_mark_made_here_stays_when_the_message_comes_again() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, news())]);
    scene.print(&event(Name::UserPromptSubmit));
    scene.hear(&of_turn("p2", event(Name::SubagentStop)));
    let answer = scene.hear(&of_turn("p2", event(Name::PermissionRequest)));
    assert_eq!(answer, Answer::default());
    scene.arrive(vec![message(1, news())]);
    let text = scene.print(&of_turn("p2", event(Name::PostToolBatch)));
    assert!(is_marked(&text), "{text:?}");
}

#[test]
fn messages_of_an_earlier_context_are_marked_before_the_store_knows() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(!is_marked(&scene.print(&event(Name::PostToolBatch))));
    scene.hear(&starts("clear", "s2"));
    scene.arrive(vec![message(1, json!({}))]);
    let again = scene.print(&Event {
        session_id: Some("s2".into()),
        ..event(Name::UserPromptSubmit)
    });
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_late_hook_of_the_conversation_before_is_given_nothing() {
    let mut scene = Scene::begun(None);
    scene.hear(&starts("clear", "s2"));
    scene.arrive(vec![message(1, json!({}))]);
    assert_eq!(scene.hear(&event(Name::Stop)), Answer::default());
    assert!(!scene.wait());
    let of_another = Event {
        session_id: Some("s3".into()),
        ..event(Name::Wait)
    };
    assert!(scene.on(Input::Hook(of_another)).granted);
    assert_eq!(
        (scene.hop.facts().context, scene.hop.unread()),
        (Some(1), 1)
    );
}

#[test]
fn the_end_of_a_compaction_is_no_step() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
    scene.receipts();
    scene.hear(&event(Name::SubagentStop));
    assert!(scene.receipts().is_empty());
}

#[test]
fn a_result_that_takes_too_long_to_write_may_show_its_message_yet() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, news())]);
    assert!(scene.takes(1));
    scene.passes(6);
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(is_marked(&text), "{text:?}");
}
