//! The last hop, event by event: a scene with a clock.

mod giving;
mod random;
mod waking;

use std::time::Duration;

use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::wire::Arriving;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::Client;
use super::hop::Hop;
use super::push::{InboxSocket, Todo};
use super::testing::{agent, id};
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
        // A client that keeps no files of its sessions.
        (0..3).for_each(|_| hop.client_is(Client::default(), now));
        Self { hop, now }
    }

    fn arrive(&mut self, messages: Vec<Message>) {
        let arriving = messages.into_iter().map(|message| Arriving { message, expires_in_ms: 86_400_000 }).collect();
        self.hop.arrived(arriving, self.now);
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
        self.hop.next(self.now)
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

    fn reach(&self) -> Vec<Via> {
        self.hop.facts().reach.unwrap()
    }

    fn receipts(&mut self) -> Vec<Progress> {
        self.hop.take_receipts()
    }
}

fn progress(number: u32, stage: Stage, via: Via) -> Progress {
    Progress { message_ids: vec![id(number)], stage, via, seen_via: None, context: 0 }
}

/// What came with a prompt and was proven to be seen by the same event.
fn entered(number: u32, via: Via, proof: Via) -> Progress {
    Progress { seen_via: Some(proof), ..progress(number, Stage::InSession, via) }
}

fn holds(text: &Option<String>, number: u32) -> bool {
    text.as_ref().is_some_and(|text| text.contains(id(number).as_str()))
}

fn is_marked(text: &Option<String>) -> bool {
    text.as_ref().is_some_and(|text| text.contains("[may have been shown before]"))
}
