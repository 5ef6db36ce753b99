//! The last hop, event by event: what is given to whom, once, and what is said of it.

use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::hop::{Hop, Said};
use super::push::{InboxSocket, Todo};
use super::testing::{agent, id};
use super::ways::Way;
use crate::local::protocol::{Answer, Event, Name};

/// A hop and its clock.
struct Scene {
    hop: Hop,
    now: Instant,
}

fn message(number: u32, fields: Value) -> Message {
    let mut whole = json!({
        "id": id(number), "thread_id": id(number), "kind": "message", "from_agent": "meshtastic",
        "to_agent": "homeassistant", "message": format!("text {number}"), "requires_response": true,
        "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2096-01-16T10:30:00.000Z",
    });
    whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn news() -> Value {
    json!({"requires_response": false})
}

fn event(name: Name) -> Event {
    Event { session_id: Some("s1".into()), prompt_id: Some("p1".into()), ..Event::new(name) }
}

fn of_turn(turn: &str, event: Event) -> Event {
    Event { prompt_id: Some(turn.into()), ..event }
}

fn starts(source: &str, session: &str) -> Event {
    Event { source: Some(source.into()), session_id: Some(session.into()), ..Event::new(Name::SessionStart) }
}

fn socket() -> InboxSocket {
    InboxSocket { path: "/run/inbox".into(), token: None }
}

impl Scene {
    /// A session that began, with an inbox socket or without.
    fn begun(inbox: Option<InboxSocket>) -> Self {
        let mut hop = Hop::new(agent("homeassistant"), inbox, false, true);
        let now = Instant::now();
        hop.begins(&agent("homeassistant"), 1);
        hop.heard(&starts("startup", "s1"), now);
        Self { hop, now }
    }

    fn arrive(&mut self, messages: Vec<Message>) {
        self.hop.arrived(messages, self.now);
    }

    fn hear(&mut self, event: &Event) -> Answer {
        self.hop.heard(event, self.now)
    }

    /// Returns the text that the hook printed, if it had any.
    fn print(&mut self, event: &Event) -> Option<String> {
        let answer = self.hear(event);
        self.hop.printed(answer.offer?, self.now);
        let printed: Value = serde_json::from_str(&answer.stdout).unwrap();
        printed["hookSpecificOutput"]["additionalContext"].as_str().map(str::to_owned)
    }

    fn next(&mut self) -> Todo {
        self.hop.next(self.now, Timestamp::now())
    }

    fn posted(&mut self) -> String {
        match self.next() {
            Todo::Post(_, text) => text,
            other => panic!("not posted: {other:?}"),
        }
    }

    fn prompt(&mut self, text: &str) -> Option<String> {
        self.print(&Event { prompt: Some(text.to_owned()), ..event(Name::UserPromptSubmit) })
    }

    fn passes(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn said(&mut self) -> Vec<Said> {
        self.hop.take_said()
    }
}

fn said(number: u32, stage: Stage, via: Via) -> Said {
    Said { ids: vec![id(number)], stage, via }
}

fn holds(text: &Option<String>, number: u32) -> bool {
    text.as_ref().is_some_and(|text| text.contains(id(number).as_str()))
}

#[test]
fn a_message_comes_between_two_steps_once() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(holds(&text, 1), "{text:?}");
    assert_eq!(scene.said(), [said(1, Stage::InSession, Via::PostToolBatch)]);
    scene.arrive(vec![message(1, json!({}))]);
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
    assert_eq!(scene.said(), [said(1, Stage::Seen, Via::Hook)]);
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert!(scene.said().is_empty());
}

#[test]
fn what_a_hook_did_not_print_is_given_to_the_next_one() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    let answer = scene.hear(&event(Name::PostToolBatch));
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None, "one way at a time");
    scene.hop.not_printed(answer.offer.unwrap());
    assert!(scene.said().is_empty());
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
    scene.hop.printed(answer.offer.unwrap(), scene.now);
    assert_eq!(scene.said(), [said(1, Stage::InSession, Via::PostToolBatch)]);
}

#[test]
fn a_turn_is_kept_from_ending_for_what_wants_an_answer_and_not_for_news() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, news())]);
    assert_eq!(scene.print(&event(Name::Stop)), None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(2, json!({})), message(3, json!({"requires_response": false, "priority": "high"}))]);
    let text = scene.print(&event(Name::Stop));
    assert!(holds(&text, 2) && holds(&text, 3) && !holds(&text, 1), "{text:?}");
    assert_eq!(scene.hop.facts().state, Some(State::Busy));
    assert_eq!(scene.print(&Event { stop_hook_active: true, ..event(Name::Stop) }), None);
    assert_eq!(scene.hop.facts().state, Some(State::Ready));
}

#[test]
fn news_starts_nothing_and_comes_with_the_next_prompt() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, news())]);
    assert_eq!(scene.next(), Todo::Look(None));
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    assert!(scene.said().is_empty(), "another hook may have refused the prompt");
    assert_eq!(scene.print(&event(Name::Stop)), None);
    let [first, second] = &scene.said()[..] else { panic!("two receipts") };
    assert_eq!(*first, said(1, Stage::InSession, Via::UserPromptSubmit));
    assert_eq!(*second, said(1, Stage::Seen, Via::Hook));
}

#[test]
fn what_came_with_a_prompt_that_led_to_nothing_comes_again_and_says_so() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, news())]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    assert_eq!(scene.print(&of_turn("p2", event(Name::UserPromptSubmit))), None, "it may lead to something yet");
    let again = scene.print(&of_turn("p2", event(Name::PostToolBatch)));
    assert!(holds(&again, 1) && again.as_ref().is_some_and(|text| text.contains("[repeated")), "{again:?}");
    assert_eq!(scene.said(), [said(1, Stage::InSession, Via::PostToolBatch)]);
}

#[test]
fn an_idle_session_is_woken_by_its_inbox_socket_and_its_prompt_is_the_proof() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    let text = scene.posted();
    assert!(matches!(scene.next(), Todo::Look(Some(_))), "one push at a time");
    assert!(!scene.hop.facts().reach.contains(&Via::InboxSocket));
    assert_eq!(scene.prompt(&text), None);
    assert!(scene.hop.facts().reach.contains(&Via::InboxSocket));
    assert!(scene.said().is_empty());
    scene.hear(&event(Name::Stop));
    let expected = [said(1, Stage::InSession, Via::InboxSocket), said(1, Stage::Seen, Via::Hook)];
    assert_eq!(scene.said(), expected);
}

#[test]
fn a_push_that_nothing_confirms_falls_to_the_next_way() {
    let mut scene = Scene::begun(Some(socket()));
    assert!(scene.hop.waiter_is(true));
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.passes(5);
    let Todo::Wake(text) = scene.next() else { panic!("the hook that waits is next") };
    assert!(scene.said().is_empty());
    assert_eq!(scene.prompt(&format!("<task-notification>{text}</task-notification>")), None);
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.said()[0], said(1, Stage::InSession, Via::AsyncRewake));
    assert_eq!(scene.hop.facts().reach.last(), Some(&Via::AsyncRewake));
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
    let late = Event { prompt: Some(held.clone()), ..event(Name::UserPromptSubmit) };
    let answer = scene.hear(&late);
    assert!(answer.stdout.contains("\"block\"") && answer.stdout.contains("suppressOriginalPrompt"), "{answer:?}");
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
    assert_eq!(scene.said()[0], said(1, Stage::InSession, Via::InboxSocket));
}

#[test]
fn a_push_into_a_turn_is_given_time_and_taken_once() {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(matches!(scene.next(), Todo::Look(Some(_))), "a turn is under way");
    scene.passes(15);
    let text = scene.posted();
    scene.passes(300);
    assert!(matches!(scene.next(), Todo::Look(Some(_))), "a long tool");
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None, "it is under way already");
    assert_eq!(scene.print(&event(Name::Stop)), None);
    assert_eq!(scene.prompt(&text), None);
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.said()[0], said(1, Stage::InSession, Via::InboxSocket));
}

#[test]
fn a_socket_that_does_not_take_posts_is_left_alone_for_a_while() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    scene.posted();
    scene.hop.not_pushed(Way::Inbox, scene.now);
    let Todo::Look(Some(again)) = scene.next() else { panic!("it rests") };
    scene.now = again;
    let first = scene.posted();
    scene.passes(5);
    let Todo::Look(Some(again)) = scene.next() else { panic!("it rests") };
    scene.now = again;
    assert_ne!(scene.posted(), first, "a client drops what it was just told");
}

#[test]
fn the_result_of_a_wait_and_a_hook_never_show_the_same_message() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({})), message(2, json!({}))]);
    assert!(scene.hop.takes(&id(1), scene.now));
    let text = scene.print(&event(Name::PostToolBatch));
    assert!(!holds(&text, 1) && holds(&text, 2), "{text:?}");
    assert!(!scene.hop.takes(&id(2), scene.now), "the hook had it");
    scene.hop.presented(vec![id(1)], Via::WaitForMessage, Some("t1".into()));
    assert!(!scene.hop.takes(&id(1), scene.now));
    assert!(scene.hop.takes(&id(3), scene.now));
    scene.arrive(vec![message(3, json!({}))]);
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None, "its result is being written");
    scene.passes(5);
    scene.next();
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 3), "it never was");
}

#[test]
fn without_hooks_a_later_call_is_the_proof_and_with_hooks_it_is_not() {
    let check = |expects_hooks, expected: &[Said]| {
        let mut hop = Hop::new(agent("homeassistant"), None, false, expects_hooks);
        hop.presented(vec![id(1)], Via::GetMessages, None);
        hop.take_said();
        hop.tool_called();
        assert_eq!(hop.take_said(), expected);
    };
    check(false, &[said(1, Stage::Seen, Via::ToolCall)]);
    check(true, &[]);
}

#[test]
fn a_new_context_is_told_and_gets_everything_again() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
    scene.hear(&event(Name::SessionEnd));
    assert_eq!(scene.hop.context(), 0);
    scene.hear(&starts("clear", "s2"));
    let facts = scene.hop.facts();
    assert_eq!((facts.context, facts.session_id.as_deref()), (1, Some("s2")));
    scene.arrive(vec![message(1, json!({"repeated": true}))]);
    let again = scene.print(&Event { session_id: Some("s2".into()), ..event(Name::UserPromptSubmit) });
    assert!(again.as_ref().is_some_and(|text| text.contains("[repeated")), "{again:?}");
    for (source, session, context) in [("compact", "s2", 2), ("resume", "s1", 3), ("startup", "s1", 3)] {
        // Another hook of the same beginning may be heard first.
        scene.hear(&Event { session_id: Some(session.into()), ..event(Name::Wait) });
        scene.hear(&starts(source, session));
        assert_eq!(scene.hop.context(), context, "{source}");
    }
    scene.hear(&Event { session_id: Some("s0".into()), ..event(Name::Stop) });
    assert_eq!(scene.hop.context(), 3, "a hook of an earlier one is late");
    scene.hear(&Event { session_id: Some("s3".into()), ..event(Name::UserPromptSubmit) });
    assert_eq!(scene.hop.context(), 4, "a start that was not heard");
}

#[test]
fn a_session_that_begins_by_a_resume_is_in_its_first_context() {
    let mut hop = Hop::new(agent("homeassistant"), None, false, true);
    hop.heard(&starts("resume", "s1"), Instant::now());
    assert_eq!(hop.context(), 0);
}

#[test]
fn what_came_with_a_prompt_survives_a_compaction() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    scene.hear(&starts("compact", "s1"));
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
    assert_eq!(scene.said()[0], said(1, Stage::InSession, Via::UserPromptSubmit));
}

#[test]
fn nothing_is_given_to_a_subagent() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    let of_subagent = |name| Event { agent_id: Some("sub".into()), ..event(name) };
    assert_eq!(scene.hear(&of_subagent(Name::PostToolBatch)), Answer::default());
    assert_eq!(scene.hear(&of_subagent(Name::SubagentStop)), Answer::default());
    assert!(holds(&scene.print(&event(Name::PostToolBatch)), 1));
}

#[test]
fn another_session_of_the_agent_begins_with_nothing() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, json!({}))]);
    scene.hop.begins(&agent("homeassistant"), 1);
    assert_eq!(scene.hop.unread(), 1, "the same session");
    scene.hop.begins(&agent("homeassistant"), 2);
    assert_eq!(scene.hop.unread(), 0);
}

#[test]
fn a_session_is_told_the_name_it_did_not_wish() {
    let mut hop = Hop::new(agent("web"), None, false, true);
    let now = Instant::now();
    hop.begins(&agent("web-2"), 1);
    let answer = hop.heard(&event(Name::UserPromptSubmit), now);
    assert!(answer.stdout.contains("web-2 here: another one is web"), "{answer:?}");
    hop.printed(answer.offer.unwrap(), now);
    assert_eq!(hop.heard(&event(Name::PostToolBatch), now), Answer::default());
    let again = hop.heard(&starts("clear", "s2"), now);
    assert!(again.stdout.contains("web-2 here"), "another context: {again:?}");
    hop.begins(&agent("backend"), 0);
    assert_eq!(hop.heard(&event(Name::PostToolBatch), now), Answer::default(), "it chose that name");
}

#[test]
fn a_session_that_is_away_is_only_disturbed_for_what_is_urgent() {
    let mut scene = Scene::begun(Some(socket()));
    scene.hop.said_status(State::Away);
    scene.arrive(vec![message(1, json!({"priority": "high"}))]);
    assert_eq!(scene.next(), Todo::Look(None));
    scene.arrive(vec![message(2, json!({"priority": "urgent"}))]);
    assert!(scene.posted().contains(id(2).as_str()));
}

#[test]
fn a_burst_comes_in_order_and_urgent_first() {
    let mut scene = Scene::begun(None);
    let priority = |number| if number == 13 { "urgent" } else { "normal" };
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive((1..=20).map(|number| message(number, json!({"priority": priority(number)}))).collect());
    let text = scene.print(&event(Name::PostToolBatch)).unwrap_or_default();
    let mut rest = scene.print(&event(Name::PostToolBatch)).unwrap_or_default();
    rest.insert_str(0, &text);
    let places: Vec<_> = (1..=20).map(|number| rest.find(&format!("> text {number}\n"))).collect();
    let mut order: Vec<u32> = (1..=20).collect();
    order.sort_by_key(|number| places[*number as usize - 1].unwrap_or(usize::MAX));
    let mut expected: Vec<u32> = (1..=20).filter(|number| *number != 13).collect();
    expected.insert(0, 13);
    assert_eq!(order, expected);
    let ids: Vec<MessageId> =
        scene.said().into_iter().filter(|s| s.stage == Stage::InSession).flat_map(|s| s.ids).collect();
    assert_eq!(ids.len(), 20);
}

#[test]
fn a_second_wake_is_not_taken_for_a_late_first_one() {
    let mut scene = Scene::begun(None);
    assert!(scene.hop.waiter_is(true));
    scene.arrive(vec![message(1, json!({}))]);
    let Todo::Wake(first) = scene.next() else { panic!("woken") };
    scene.passes(5);
    let Todo::Look(Some(again)) = scene.next() else { panic!("it rests") };
    scene.now = again;
    assert!(scene.hop.waiter_is(true));
    let Todo::Wake(second) = scene.next() else { panic!("woken again") };
    assert!(second.contains(&first));
    assert_eq!(scene.prompt(&format!("<task-notification>{second}</task-notification>")), None);
    scene.hear(&event(Name::Stop));
    assert_eq!(scene.said()[0], said(1, Stage::InSession, Via::AsyncRewake));
}

#[test]
fn what_came_with_a_prompt_that_was_taken_back_is_not_left_lying() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(holds(&scene.print(&event(Name::UserPromptSubmit)), 1));
    let Todo::Look(Some(then)) = scene.next() else { panic!("nothing looks again") };
    scene.now = then;
    assert!(scene.posted().contains("[repeated"));
}

#[test]
fn a_result_that_was_never_written_is_looked_for_again() {
    let mut scene = Scene::begun(Some(socket()));
    scene.arrive(vec![message(1, json!({}))]);
    assert!(scene.hop.takes(&id(1), scene.now));
    let Todo::Look(Some(then)) = scene.next() else { panic!("nothing looks again") };
    scene.now = then;
    assert!(scene.posted().contains(id(1).as_str()));
}

#[test]
fn what_the_session_has_answered_is_not_put_before_it() {
    let mut scene = Scene::begun(None);
    scene.hear(&event(Name::UserPromptSubmit));
    scene.arrive(vec![message(1, json!({}))]);
    scene.hop.settled(&[id(1)]);
    assert_eq!(scene.print(&event(Name::PostToolBatch)), None);
}

#[test]
fn what_was_repeated_here_stays_so_when_it_comes_again() {
    let mut scene = Scene::begun(None);
    scene.arrive(vec![message(1, news())]);
    scene.print(&event(Name::UserPromptSubmit));
    scene.hear(&of_turn("p2", event(Name::SubagentStop)));
    let answer = scene.hear(&of_turn("p2", event(Name::PermissionRequest)));
    assert_eq!(answer, Answer::default());
    scene.arrive(vec![message(1, news())]);
    let text = scene.print(&of_turn("p2", event(Name::PostToolBatch)));
    assert!(text.as_ref().is_some_and(|text| text.contains("[repeated")), "{text:?}");
}
