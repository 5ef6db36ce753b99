//! Results that wait in a client without a transcript, and its notices of them.

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use serde_json::json;

use super::results::{batch, waited};
use super::{Scene, after_a_turn, entered, event, is_marked, message, news, of_turn, typed};
use crate::deliver::client::ClientState;
use crate::deliver::testing::id;
use crate::local::protocol::{Event, Name};

/// Returns the hook of the prompt by which the client brings the result with that message.
fn notice(turn: &str, number: u32) -> Event {
    let result = json!(message(number, news()));
    let notice = format!(
        "<task-notification>\n<task-id>k1</task-id>\n<summary>MCP task k1 (plugin:c3po:c3po/wait_for_message) completed.\
        </summary>\n<result>\n{result}\n</result>\n</task-notification>"
    );
    of_turn(
        turn,
        Event {
            prompt: Some(notice),
            ..event(Name::UserPromptSubmit)
        },
    )
}

/// Lets time pass in which the client's transcript is looked for in vain.
fn reads_nothing(scene: &mut Scene, seconds: u64) {
    let idle = ClientState {
        is_busy: Some(false),
        ..ClientState::default()
    };
    for _ in 0..seconds {
        scene.passes(1);
        scene.looks(&idle, None);
    }
}

/// Returns a session whose client has the result of a wait that ran in the background.
fn waits_in_the_client() -> Scene {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.hear(&batch("p1", "t1"));
    waited(&mut scene, 1, news(), "t1");
    reads_nothing(&mut scene, 2);
    scene
}

/// Has a turn go by.
fn turn(scene: &mut Scene, begins: &Event) {
    scene.hear(begins);
    let name = begins.prompt_id.as_deref().unwrap();
    scene.hear(&of_turn(name, event(Name::Stop)));
    reads_nothing(scene, 2);
}

fn seen() -> [c3po_shared::receipt::Progress; 1] {
    [entered(1, Via::WaitForMessage, Via::Hook)]
}

#[test]
fn a_step_of_its_turn_proves_a_notice() {
    let mut scene = waits_in_the_client();
    scene.hear(&of_turn("p1", event(Name::Stop)));
    turn(&mut scene, &typed("p2"));
    assert_eq!(scene.receipts(), [], "the prompt did not bring it");
    turn(&mut scene, &notice("p3", 1));
    assert_eq!(scene.receipts(), seen());
    reads_nothing(&mut scene, 30);
    assert_eq!(scene.print(&typed("p4")), None);
}

#[test]
fn a_step_proves_a_notice_in_the_middle_of_its_turn() {
    let mut scene = waits_in_the_client();
    scene.uses("p1", "t2");
    scene.hear(&batch("p1", "t2"));
    scene.hear(&notice("p1", 1));
    reads_nothing(&mut scene, 2);
    assert_eq!(scene.receipts(), []);
    scene.uses("p1", "t3");
    scene.hear(&batch("p1", "t3"));
    reads_nothing(&mut scene, 2);
    assert_eq!(scene.receipts(), seen());
}

#[test]
fn a_message_whose_notice_another_hook_blocked_comes_again() {
    let mut scene = waits_in_the_client();
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.hear(&notice("p2", 1));
    turn(&mut scene, &typed("p3"));
    let shown = scene.print(&typed("p4"));
    assert!(is_marked(&shown));
    assert!(scene.receipts().is_empty());
}

#[test]
fn a_message_whose_notice_never_came_comes_again_in_an_idle_session() {
    let mut scene = waits_in_the_client();
    scene.hear(&of_turn("p1", event(Name::Stop)));
    reads_nothing(&mut scene, 10);
    assert_eq!(scene.print(&typed("p2")), None);
    scene.hear(&of_turn("p2", event(Name::Stop)));
    reads_nothing(&mut scene, 20);
    assert!(is_marked(&scene.print(&typed("p3"))));
    let is_claimed = |ids: &[MessageId]| ids.contains(&id(1));
    let receipts = scene.receipts();
    assert!(!receipts.iter().any(|one| is_claimed(&one.message_ids)));
    assert!(receipts.iter().all(|one| one.stage != Stage::Seen));
}
