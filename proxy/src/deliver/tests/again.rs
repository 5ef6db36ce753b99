//! Messages that come again, and those that come no more.

use c3po_shared::receipt::{Stage, Via};
use c3po_shared::wire::Arriving;
use serde_json::json;

use super::results::batch;
use super::{
    Scene, after_a_turn, agent, event, holds, message, news, of_turn, socket, starts, typed,
};
use crate::deliver::client::ClientState;
use crate::deliver::hop::{Hop, Input};
use crate::deliver::push::Todo;
use crate::deliver::render::is_marked;
use crate::deliver::testing::{id, standing};
use crate::local::protocol::{Event, Name};

#[test]
fn without_a_transcript_dropped_texts_that_are_not_kept_come_again_in_another_context() {
    let (dropped, more) = (1..=60, 61..=500);
    let news = |numbers: std::ops::RangeInclusive<u32>| {
        let news = numbers.map(|number| message(number, news()));
        news.collect::<Vec<_>>()
    };
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(news(dropped.clone()));
    scene.print(&batch("p1", "t1"));
    assert_eq!(scene.hop.unread(), 0, "all in one text");
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.hear(&typed("p2"));
    scene.arrive(news(more));
    while scene.hop.unread() > 0 {
        scene.print(&batch("p2", "t2"));
    }
    scene.uses("p2", "t3");
    for _ in 0..30 {
        scene.passes(1);
        if let Todo::Read(_) = scene.next() {
            scene.on(Input::Conversation(None));
        }
    }
    assert_eq!(scene.hop.facts().context, Some(1));
    let receipts = scene.receipts().into_iter();
    let mut of_now = receipts.filter(|receipt| receipt.context == 1);
    let claimed = of_now.find(|receipt| receipt.stage == Stage::InSession);
    let claimed = claimed.expect("the rest is in the session").message_ids;
    assert!(claimed.contains(&id(61)) && !claimed.contains(&id(1)));
    // The store delivers everything to another context.
    scene.arrive(news(1..=500));
    assert_eq!(scene.hop.unread(), dropped.count());
    let text = scene.print(&batch("p2", "t4")).unwrap();
    assert!(is_marked(&text, &id(1)) && is_marked(&text, &id(60)));
}

#[test]
fn messages_under_way_when_the_session_took_another_name_come_back_marked() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, news())]);
    scene.print(&typed("p1")).unwrap();
    scene.arrive(vec![message(2, json!({}))]);
    let offer = scene.hear(&of_turn("p0", event(Name::PostToolBatch)));
    scene.on(Input::NotPrinted(offer.offer.unwrap()));
    scene.arrive(vec![message(3, news())]);
    scene.on(Input::Begins(agent("backend"), 0));
    assert_eq!(scene.hop.unread(), 0);
    scene.on(Input::Begins(agent("homeassistant"), 0));
    scene.arrive((1..=3).map(|number| message(number, news())).collect());
    let text = scene.print(&batch("p1", "t1")).unwrap();
    assert_eq!(
        [1, 2, 3].map(|number| is_marked(&text, &id(number))),
        [true, true, false],
        "{text}"
    );
}

#[test]
fn a_push_for_the_former_name_is_blocked_as_such() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let late = scene.posted();
    scene.on(Input::Begins(agent("backend"), 0));
    let answer = scene.hear(&Event {
        prompt: Some(late),
        ..event(Name::UserPromptSubmit)
    });
    assert!(answer.stdout.contains("former name"), "{answer:?}");
}

#[test]
fn a_hook_gives_no_message_that_has_expired() {
    let mut scene = Scene::begun(None);
    scene.hear(&typed("p1"));
    scene.on(Input::Arrived(vec![Arriving {
        message: message(1, json!({})),
        expires_in_ms: 3_000,
    }]));
    scene.passes(4);
    assert_eq!(scene.print(&batch("p1", "t1")), None);
}

/// The session is compacted, and the client has not written that yet when message 1 comes again.
fn compacted(mut scene: Scene) -> Scene {
    scene.hear(&event(Name::PreCompact));
    scene.hear(&starts("compact", "s1"));
    scene.receipts();
    scene.passes(10);
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    scene
}

#[test]
fn a_copy_from_before_a_compaction_does_not_confirm_a_push() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&batch("p1", "t1")), 1));
    scene.hear(&of_turn("p1", event(Name::Stop)));
    scene.reads(&[1], &[1]);
    let mut scene = compacted(scene);
    assert!(is_marked(&scene.posted(), &id(1)));
    scene.on(Input::Conversation(Some(standing(&[1], &[1]))));
    assert_eq!(scene.receipts(), []);
}

#[test]
fn a_session_that_was_joined_is_shown_its_messages_after_a_compaction() {
    let hop = Hop::new(agent("homeassistant"), Some(socket()), false, true).joined();
    let mut scene = Scene::of(hop);
    scene.on(Input::Begins(agent("homeassistant"), 1));
    scene.hear(&Event {
        transcript: Some("/t.jsonl".into()),
        ..typed("p1")
    });
    scene.hear(&of_turn("p1", event(Name::Stop)));
    let mut scene = compacted(scene);
    scene.on(Input::Conversation(Some(standing(&[1], &[1]))));
    assert_eq!(scene.receipts(), []);
    assert!(holds(&scene.print(&typed("p2")), 1));
}

#[test]
fn a_message_whose_result_the_client_gave_up_comes_again() {
    for mut scene in [Scene::begun(None), after_a_turn()] {
        scene.hear(&typed("p1"));
        scene.uses("p1", "t1");
        super::results::waited(&mut scene, 1, news(), "t1");
        let ended = scene.print(&Event {
            given_up: vec!["t1".into()],
            ..batch("p1", "t1")
        });
        assert!(is_marked(&ended.unwrap(), &id(1)));
        let receipts = scene.receipts().into_iter();
        let seen: Vec<_> = receipts
            .filter(|receipt| receipt.stage == Stage::Seen)
            .collect();
        assert_eq!(seen, []);
    }
}

#[test]
fn a_message_whose_call_was_cancelled_after_its_result_comes_again_unless_a_step_followed() {
    for steps in [false, true] {
        // The client names no transcript, or one that it does not write.
        for mut scene in [Scene::begun(None), after_a_turn()] {
            scene.hear(&typed("p1"));
            scene.uses("p1", "t1");
            super::results::waited(&mut scene, 1, news(), "t1");
            scene.looks(&ClientState::default(), None);
            if steps {
                scene.hear(&batch("p1", "t1"));
            }
            scene.on(Input::Cancelled("t1".into()));
            scene.looks(&ClientState::default(), None);
            let shown = scene.print(&typed("p2"));
            assert_eq!(shown.is_some(), !steps);
            if let Some(shown) = shown {
                assert!(is_marked(&shown, &id(1)));
            }
        }
    }
}

#[test]
fn a_transcript_decides_about_a_message_whose_call_was_cancelled_after_its_result() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    super::results::waited(&mut scene, 1, news(), "t1");
    scene.on(Input::Cancelled("t1".into()));
    scene.reads(&[1], &[]);
    assert_eq!(scene.print(&typed("p2")), None);
}

/// Lets it read the client's files for some seconds, in vain.
fn finds_no_file(scene: &mut Scene) {
    for _ in 0..3 {
        scene.passes(1);
        scene.looks(&ClientState::default(), None);
    }
}

/// A person presses Esc while the hook of another plugin looks at the result of a wait, and no file shows whether the client
/// kept it.
fn breaks_off_a_result(scene: &mut Scene) {
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    super::results::waited(scene, 1, news(), "t1");
    finds_no_file(scene);
}

#[test]
fn without_a_transcript_a_result_whose_step_never_ended_comes_again_after_the_next_turn() {
    for mut scene in [Scene::begun(None), after_a_turn()] {
        breaks_off_a_result(&mut scene);
        scene.hear(&typed("p2"));
        scene.hear(&of_turn("p2", event(Name::Stop)));
        finds_no_file(&mut scene);
        assert!(is_marked(&scene.print(&typed("p3")).unwrap(), &id(1)));
    }
}

#[test]
fn without_a_transcript_a_result_whose_step_never_ended_comes_again_when_its_client_rests() {
    let mut scene = after_a_turn();
    breaks_off_a_result(&mut scene);
    scene.passes(15);
    scene.on(Input::ClientState(ClientState {
        is_busy: Some(false),
        ..ClientState::default()
    }));
    finds_no_file(&mut scene);
    assert!(is_marked(&scene.print(&typed("p2")).unwrap(), &id(1)));
}

#[test]
fn a_result_is_in_the_session_when_its_step_has_ended() {
    let mut scene = after_a_turn();
    breaks_off_a_result(&mut scene);
    assert_eq!(scene.receipts(), [], "the client may drop it");
    scene.hear(&batch("p1", "t1"));
    let expected = super::progress(1, Stage::InSession, Via::WaitForMessage);
    assert_eq!(scene.receipts(), [expected]);
}

#[test]
fn a_result_is_in_the_session_a_second_later_while_another_tool_of_its_step_runs() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    super::results::waited(&mut scene, 1, news(), "t1");
    scene.looks(&ClientState::default(), &standing(&[], &[]));
    assert_eq!(scene.receipts(), [], "it is not written yet");
    scene.reads(&[1], &[]);
    let expected = super::progress(1, Stage::InSession, Via::WaitForMessage);
    assert_eq!(scene.receipts(), [expected]);
}

#[test]
fn without_a_transcript_a_cancelled_result_of_the_background_comes_again() {
    for mut scene in [Scene::begun(None), after_a_turn()] {
        scene.hear(&typed("p1"));
        scene.uses("p1", "t1");
        scene.hear(&batch("p1", "t1"));
        // The client has moved the wait to the background, and gives it up while its result is written.
        super::results::waited(&mut scene, 1, news(), "t1");
        scene.looks(&ClientState::default(), None);
        scene.on(Input::Cancelled("t1".into()));
        finds_no_file(&mut scene);
        // The client's notice is the next prompt.
        assert!(is_marked(&scene.print(&typed("p2")).unwrap(), &id(1)));
        let receipts = scene.receipts();
        assert!(receipts.iter().all(|one| one.stage != Stage::Seen));
    }
}

#[test]
fn a_cancelled_result_of_the_background_that_its_transcript_lacks_comes_again_in_the_same_turn() {
    let mut scene = after_a_turn();
    scene.hear(&typed("p1"));
    scene.uses("p1", "t1");
    scene.hear(&batch("p1", "t1"));
    super::results::waited(&mut scene, 1, news(), "t1");
    scene.looks(&ClientState::default(), &standing(&[], &[]));
    scene.on(Input::Cancelled("t1".into()));
    for _ in 0..3 {
        scene.looks(&ClientState::default(), &standing(&[], &[]));
        scene.passes(1);
    }
    assert!(is_marked(&scene.print(&batch("p1", "t2")).unwrap(), &id(1)));
    assert_eq!(scene.receipts(), []);
}

#[test]
fn without_hooks_and_transcript_only_the_messages_of_a_cancelled_use_come_again() {
    let busy = ClientState {
        is_busy: Some(true),
        ..ClientState::default()
    };
    for is_claimed in [false, true] {
        let mut scene = Scene::of(Hop::new(agent("homeassistant"), None, false, false));
        super::results::waited(&mut scene, 1, news(), "t1");
        super::results::waited(&mut scene, 2, news(), "t2");
        if is_claimed {
            scene.passes(1);
            scene.looks(&busy, None);
            assert_eq!(scene.receipts().len(), 2);
        }
        scene.on(Input::Cancelled("t1".into()));
        scene.passes(1);
        scene.looks(&busy, None);
        assert_eq!([1, 2].map(|number| scene.takes(number)), [true, false]);
        assert_eq!(scene.hop.repeated(&[id(1)], None), [id(1)]);
    }
}
