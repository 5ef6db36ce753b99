//! The last hop, event by event: a scene with a clock.

mod again;
mod ended;
mod giving;
mod hostile;
mod notices;
mod order;
mod pushes;
mod random;
mod record;
mod results;
mod subagents;
mod waking;

use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::wire::Arriving;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::ClientState;
use super::hop::{Effects, Hop, Input, Presented};
use super::push::{InboxSocket, Todo};
use super::testing::{agent, id, standing};
use super::transcript::Recorded;
use crate::local::protocol::{Answer, Event, Name};

/// A hop, its clock, and its unread receipts.
struct Scene {
    hop: Hop,
    now: Instant,
    receipts: Vec<Progress>,
}

fn message(number: u32, fields: Value) -> Message {
    let mut whole = json!({
        "id": id(number), "thread_id": id(number), "kind": "message", "from_agent": "meshtastic",
        "to_agent": "homeassistant", "message": format!("text {number}"), "requires_response": true,
        "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2096-01-16T10:30:00.000Z",
    });
    whole
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn news() -> Value {
    json!({"requires_response": false})
}

fn event(name: Name) -> Event {
    Event {
        session_id: Some("s1".into()),
        prompt_id: Some("p1".into()),
        ..Event::new(name)
    }
}

fn of_turn(turn: &str, event: Event) -> Event {
    Event {
        prompt_id: Some(turn.into()),
        ..event
    }
}

fn starts(source: &str, session: &str) -> Event {
    Event {
        source: Some(source.into()),
        session_id: Some(session.into()),
        ..Event::new(Name::SessionStart)
    }
}

fn socket() -> InboxSocket {
    InboxSocket {
        path: "/run/inbox".into(),
        token: None,
    }
}

impl Scene {
    /// A session that began, with an inbox socket or without.
    fn begun(inbox: Option<InboxSocket>) -> Self {
        let mut scene = Self::of(Hop::new(agent("homeassistant"), inbox, false, true));
        scene.on(Input::Begins(agent("homeassistant"), 1));
        scene.hear(&starts("startup", "s1"));
        // A client that keeps no files of its sessions.
        (0..3).for_each(|_| drop(scene.on(Input::ClientState(ClientState::default()))));
        scene
    }

    fn of(hop: Hop) -> Self {
        Self {
            hop,
            now: Instant::now(),
            receipts: Vec::new(),
        }
    }

    fn on(&mut self, input: Input) -> Effects {
        let mut effects = self.hop.on(input, self.now);
        self.receipts.append(&mut effects.receipts);
        effects
    }

    fn arrive(&mut self, messages: Vec<Message>) {
        let arriving = messages
            .into_iter()
            .map(|message| Arriving {
                message,
                expires_in_ms: 86_400_000,
            })
            .collect();
        self.on(Input::Arrived(arriving));
    }

    fn hear(&mut self, event: &Event) -> Answer {
        self.on(Input::Hook(event.clone())).answer
    }

    /// A hook waits beside the session. Returns whether it may.
    fn wait(&mut self) -> bool {
        self.on(Input::Hook(event(Name::Wait))).granted
    }

    /// Returns whether a wait may return that message.
    fn takes(&mut self, number: u32) -> bool {
        self.on(Input::Taken(id(number))).granted
    }

    /// A hook reports that the session itself uses a tool in that turn.
    fn uses(&mut self, turn: &str, tool_use: &str) {
        self.hear(&of_turn(
            turn,
            Event {
                tool_use_ids: vec![tool_use.into()],
                ..event(Name::PreToolUse)
            },
        ));
    }

    /// A result with that message was written.
    fn present(&mut self, number: u32, via: Via, tool_use: Option<&str>) {
        let tool_use = tool_use.map(str::to_owned);
        self.on(Input::Presented(Presented {
            ids: vec![id(number)],
            via,
            tool_use,
            waited: None,
        }));
    }

    /// Returns the text that the hook printed, if it had any.
    fn print(&mut self, event: &Event) -> Option<String> {
        let answer = self.hear(event);
        self.on(Input::Printed(answer.offer?));
        let printed: Value = serde_json::from_str(&answer.stdout).unwrap();
        printed["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .map(str::to_owned)
    }

    fn next(&mut self) -> Todo {
        self.on(Input::Look).todo
    }

    fn posted(&mut self) -> String {
        match self.next() {
            Todo::Post(_, text) => text,
            other => panic!("not posted: {other:?}"),
        }
    }

    fn prompt(&mut self, text: &str) -> Option<String> {
        self.print(&Event {
            prompt: Some(text.to_owned()),
            ..event(Name::UserPromptSubmit)
        })
    }

    /// Lets time pass until the transcript is read, which then holds these messages, and the latter above an answer.
    fn reads(&mut self, named: &[u32], answered: &[u32]) {
        self.passes(1);
        assert_eq!(self.next(), Todo::Read("/t.jsonl".into()));
        self.on(Input::Conversation(Some(standing(named, answered))));
    }

    /// Lets time pass until the transcript is read that the session file names, which then holds these messages.
    fn asks_and_reads(&mut self, named: &[u32]) {
        self.passes(1);
        assert_eq!(self.next(), Todo::AskClient);
        self.on(Input::ClientState(ClientState {
            is_busy: None,
            transcript: Some("/t.jsonl".into()),
        }));
        assert_eq!(self.next(), Todo::Read("/t.jsonl".into()));
        self.on(Input::Conversation(Some(standing(named, &[]))));
    }

    /// Lets it read the client's files as often as it wants: that state, and that conversation. Returns its next action.
    fn looks<'a>(
        &mut self,
        client: &ClientState,
        recorded: impl Into<Option<&'a Recorded>>,
    ) -> Todo {
        let recorded = recorded.into();
        loop {
            match self.next() {
                Todo::AskClient => self.on(Input::ClientState(client.clone())),
                Todo::Read(_) => self.on(Input::Conversation(recorded.cloned())),
                other => return other,
            };
        }
    }

    /// Returns the messages of which the session is to be reminded.
    fn reminds(&self) -> &[MessageId] {
        self.hop.stalled()
    }

    fn passes(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn reach(&self) -> Vec<Via> {
        self.hop.facts().reach.unwrap()
    }

    fn receipts(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.receipts)
    }
}

fn progress(number: u32, stage: Stage, via: Via) -> Progress {
    Progress {
        message_ids: vec![id(number)],
        stage,
        via,
        seen_via: None,
        context: 0,
    }
}

/// A message of a prompt that the same event proved to be seen.
fn entered(number: u32, via: Via, proof: Via) -> Progress {
    Progress {
        seen_via: Some(proof),
        ..progress(number, Stage::InSession, via)
    }
}

fn holds(text: &Option<String>, number: u32) -> bool {
    text.as_ref()
        .is_some_and(|text| text.contains(id(number).as_str()))
}

fn is_marked(text: &Option<String>) -> bool {
    text.as_ref()
        .is_some_and(|text| text.contains("[may have been shown before]"))
}

/// A session whose client keeps a transcript, and whose first turn has ended well.
fn after_a_turn() -> Scene {
    let mut scene = Scene::begun(Some(socket()));
    scene.hear(&Event {
        transcript: Some("/t.jsonl".into()),
        ..event(Name::Notification)
    });
    scene.hear(&of_turn("p0", event(Name::UserPromptSubmit)));
    scene.hear(&of_turn("p0", event(Name::Stop)));
    scene
}

/// Has the push under way come as the prompt of that turn.
fn push_comes(scene: &mut Scene, turn: &str) {
    let text = scene.posted();
    scene.hear(&of_turn(
        turn,
        Event {
            prompt: Some(text),
            ..event(Name::UserPromptSubmit)
        },
    ));
}

fn typed(turn: &str) -> Event {
    of_turn(
        turn,
        Event {
            prompt: Some("go".into()),
            typed: true,
            ..event(Name::UserPromptSubmit)
        },
    )
}
