//! Subagents, background agents and the hooks of other plugins: their calls and compactions are not the session's own.

use c3po_shared::receipt::{Progress, Stage, Via};
use serde_json::json;

use super::{
    Scene, after_a_turn, entered, event, holds, is_marked, message, news, of_turn, progress,
    push_comes, starts, typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::testing::agent;
use crate::local::protocol::{Event, Name};

/// Returns a session in a turn, in which a result with message 1 was written and no hook has reported the use of its tool.
fn result_of_somebody(tool_use: Option<&str>) -> Scene {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, news())]);
    scene.present(1, Via::GetMessages, tool_use);
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    assert_eq!(
        scene.receipts(),
        [],
        "it may be a subagent's, or another plugin's"
    );
    scene
}

#[test]
fn a_result_whose_tool_use_no_hook_has_reported_is_in_the_session_when_the_transcript_names_it() {
    let mut scene = result_of_somebody(Some("t1"));
    scene.reads(&[1], &[1]);
    assert_eq!(
        scene.receipts(),
        [entered(1, Via::GetMessages, Via::Transcript)]
    );
}

#[test]
fn a_result_of_a_subagent_that_no_hook_has_reported_comes_to_the_session_itself() {
    for tool_use in [Some("t1"), None] {
        let mut scene = result_of_somebody(tool_use);
        scene.hear(&Event {
            agent_id: Some("a1".into()),
            tool_use_ids: vec!["t1".into()],
            ..event(Name::PostToolBatch)
        });
        scene.on(Input::Called(vec![]));
        for _ in 0..2 {
            scene.reads(&[], &[]);
        }
        assert_eq!(scene.receipts(), [], "no request of the session held it");
        let again = scene.print(&of_turn("p1", event(Name::PostToolBatch)));
        assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
    }
}

#[test]
fn the_compaction_of_a_subagent_is_not_the_sessions() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    scene.hear(&Event {
        agent_id: Some("a1".into()),
        ..starts("compact", "s1")
    });
    assert_eq!(scene.hop.facts().context, Some(0));
    assert_eq!(
        scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        None,
        "the session has it"
    );
}

#[test]
fn a_compaction_marks_a_message_that_may_be_in_the_session() {
    let mut scene = after_a_turn();
    scene.arrive(vec![message(1, json!({}))]);
    push_comes(&mut scene, "p1");
    scene.hear(&of_turn("p1", event(Name::PostToolBatch)));
    let again = scene.print(&starts("compact", "s1"));
    let again = again.or_else(|| scene.print(&of_turn("p1", event(Name::PostToolBatch))));
    assert!(holds(&again, 1) && is_marked(&again), "{again:?}");
}

#[test]
fn a_background_agent_does_not_keep_mail_from_an_interrupted_session() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.hear(&of_turn("p1", event(Name::PreToolUse)));
    scene.arrive(vec![message(1, json!({}))]);
    // Esc: no hook reports it, and the client works for its background agent.
    let mut seconds = 0;
    while !matches!(scene.next(), Todo::Post(..)) {
        assert!(seconds < 45, "the session is idle for {seconds} s");
        scene.on(Input::ClientState(ClientState {
            is_busy: Some(true),
            transcript: None,
        }));
        scene.passes(5);
        seconds += 5;
    }
    assert!(seconds > 15, "a turn that works has its hooks");
}

#[test]
fn the_rest_of_a_long_message_comes_when_the_turn_ends_without_reading_it() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.arrive(vec![message(1, json!({}))]);
    scene.on(Input::InParts {
        ids: vec![crate::deliver::testing::id(1)],
        read_on: None,
        tool_use: Some("t1".into()),
    });
    assert_eq!(
        scene.print(&of_turn("p1", event(Name::PostToolBatch))),
        None,
        "the session reads on"
    );
    let rest = scene.print(&of_turn("p1", event(Name::Stop)));
    assert!(holds(&rest, 1) && is_marked(&rest), "{rest:?}");
}

#[test]
fn no_reminder_names_a_message_that_was_rewound_or_has_expired() {
    let failed = || {
        let mut scene = after_a_turn();
        scene.arrive(vec![message(1, json!({}))]);
        push_comes(&mut scene, "p1");
        scene.hear(&of_turn("p1", event(Name::StopFailure)));
        scene.reads(&[1], &[]);
        scene
    };
    let mut scene = failed();
    assert!(
        scene
            .receipts()
            .contains(&progress(1, Stage::InSession, Via::InboxSocket))
    );
    assert!(!scene.reminds().is_empty(), "it is to be reminded");
    scene.passes(30 * 24 * 60 * 60);
    scene.next();
    assert!(scene.reminds().is_empty(), "its time is over");

    let mut scene = failed();
    scene.hear(&typed("p2"));
    scene.hear(&of_turn("p2", event(Name::PostToolBatch)));
    scene.reads(&[], &[]);
    assert!(scene.reminds().is_empty(), "the text is not above");
}

#[test]
fn a_subagent_that_reads_the_inbox_ends_no_way_into_the_session() {
    for tool_use in [Some("t1"), None] {
        let mut scene = after_a_turn();
        scene.arrive(vec![message(1, json!({}))]);
        push_comes(&mut scene, "p1");
        scene.hear(&Event {
            agent_id: Some("a1".into()),
            tool_use_ids: vec!["t1".into()],
            ..event(Name::PreToolUse)
        });
        scene.present(1, Via::GetMessages, tool_use);
        assert_eq!(
            scene.print(&of_turn("p1", event(Name::Stop))),
            None,
            "its turn has the question"
        );
        scene.reads(&[1], &[1]);
        assert_eq!(
            scene.receipts(),
            [entered(1, Via::InboxSocket, Via::Transcript)]
        );
    }
}

#[test]
fn without_the_plugin_the_transcript_decides_if_the_client_names_the_uses_of_its_tools() {
    let check = |tool_use: Option<&str>, expected: &[Progress]| {
        let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, false));
        scene.present(1, Via::GetMessages, tool_use);
        assert_eq!(scene.receipts(), expected, "{tool_use:?}");
        scene.on(Input::ClientState(ClientState {
            is_busy: None,
            transcript: Some("/t.jsonl".into()),
        }));
        scene
    };
    check(None, &[progress(1, Stage::InSession, Via::GetMessages)]);
    let mut scene = check(Some("t1"), &[]);
    scene.asks_and_reads(&[1]);
    assert_eq!(
        scene.receipts(),
        [progress(1, Stage::InSession, Via::GetMessages)]
    );
}

#[test]
fn a_read_before_the_client_has_written_its_session_file_waits_for_its_transcript() {
    let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, false).joined());
    scene.on(Input::ClientState(ClientState::default()));
    scene.arrive(vec![message(1, news())]);
    scene.present(1, Via::GetMessages, Some("t1"));
    assert_eq!(scene.receipts(), [], "it may be a subagent's");
    scene.asks_and_reads(&[]);
    assert_eq!(scene.receipts(), []);
}
