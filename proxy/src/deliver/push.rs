//! Pushes into an idle session: which one is under way, what confirms it, and which ones were given up.

use std::collections::VecDeque;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::ways::Way;
use crate::local::protocol::{Event, Name};

/// How soon an idle session shows that a push has come: it takes less than a tenth of a second there.
pub(super) const CONFIRM: Duration = Duration::from_secs(5);
/// How long a session that works may take until it looks at what was pushed.
pub(super) const CONFIRM_BUSY: Duration = Duration::from_secs(600);
/// How many pushes that were given up are remembered: each may still come.
const GIVEN_UP_MAX: usize = 32;

/// Where a session takes messages of its own.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct InboxSocket {
    pub(super) path: String,
    /// What opens it.
    pub(super) token: Option<String>,
}

impl std::fmt::Debug for InboxSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InboxSocket").field(&self.path).finish()
    }
}

/// One push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) way: Way,
    pub(super) ids: Vec<MessageId>,
    pub(super) text: String,
    /// Until when the session has to show it.
    until: Instant,
}

impl Push {
    pub(super) fn new(way: Way, ids: Vec<MessageId>, text: String, until: Instant) -> Self {
        Self { way, ids, text, until }
    }

    /// Returns whether the prompt is the one that this push made: each way wraps a text in its own manner.
    fn made(&self, prompt: &str) -> bool {
        let is_wake = prompt.trim_start().starts_with("<task-notification>");
        match self.way {
            Way::Inbox => frame(prompt) == frame(&self.text),
            Way::Rewake => is_wake && frame(prompt).contains(&frame(&self.text)),
            Way::Channel => !is_wake && frame(prompt).contains(&frame(&self.text)),
        }
    }
}

/// Returns the lines of a text that are ours. The quotes are left out, for clients escape in them what could pass for
/// marks of their own, such as `</cross-session-message>`.
fn frame(text: &str) -> String {
    text.trim().lines().filter(|line| !line.starts_with('>')).collect::<Vec<_>>().join("\n")
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Todo {
    /// Look again then, or when something happens.
    Look(Option<Instant>),
    /// Write a text to the session's inbox socket.
    Post(InboxSocket, String),
    /// Have the hook that waits wake the session with a text.
    Wake(String),
    /// Notify the session's channel.
    Notify(String),
}

/// The pushes of one session.
#[derive(Debug)]
pub(super) struct Pushes {
    inbox: Option<InboxSocket>,
    channel: bool,
    /// Whether a hook waits beside the session.
    pub(super) waiter: bool,
    under_way: Option<Push>,
    given_up: VecDeque<Push>,
}

impl Pushes {
    pub(super) fn new(inbox: Option<InboxSocket>, channel: bool) -> Self {
        Self { inbox, channel, waiter: false, under_way: None, given_up: VecDeque::new() }
    }

    /// Notes what a hook knows of the session's inbox socket.
    pub(super) fn learn(&mut self, event: &Event) {
        if let Some(path) = &event.messaging_socket {
            self.inbox = Some(InboxSocket { path: path.clone(), token: event.messaging_token.clone() });
        }
    }

    /// Returns whether there is such a way.
    pub(super) fn has(&self, way: Way) -> bool {
        match way {
            Way::Inbox => self.inbox.is_some(),
            Way::Rewake => self.waiter,
            Way::Channel => self.channel,
        }
    }

    /// Returns until when the push under way has time; `None` where none is.
    pub(super) fn under_way(&self) -> Option<Instant> {
        self.under_way.as_ref().map(|push| push.until)
    }

    /// Returns the text so that it differs from all that were given up: clients drop one that they were just told.
    pub(super) fn told_apart(&self, mut text: String) -> String {
        while self.given_up.iter().any(|push| push.text == text) {
            text.push_str(" (Said again.)");
        }
        text
    }

    /// Begins a push. Returns what makes it.
    pub(super) fn begin(&mut self, push: Push) -> Todo {
        let text = push.text.clone();
        let todo = match (push.way, &self.inbox) {
            (Way::Inbox, Some(socket)) => Todo::Post(socket.clone(), text),
            (Way::Rewake, _) => Todo::Wake(text),
            (Way::Channel | Way::Inbox, _) => Todo::Notify(text),
        };
        self.under_way = Some(push);
        todo
    }

    /// What a session that works does tells how soon it looks at a push.
    pub(super) fn on(&mut self, event: &Event, now: Instant) {
        let Some(push) = &mut self.under_way else { return };
        match event.name {
            Name::UserPromptSubmit => push.until = now + CONFIRM_BUSY,
            Name::PostToolBatch | Name::Stop | Name::StopFailure => push.until = now + CONFIRM,
            _ => {}
        }
    }

    /// Returns whether the prompt is the one that the push under way made.
    pub(super) fn is_under_way_as(&self, prompt: &str) -> bool {
        self.under_way.as_ref().is_some_and(|push| push.made(prompt))
    }

    /// Takes the push under way, if the prompt is the one that it made and it is wanted.
    pub(super) fn confirmed_if(&mut self, prompt: &str, wanted: impl Fn(&Push) -> bool) -> Option<Push> {
        self.under_way.take_if(|push| push.made(prompt) && wanted(push))
    }

    /// Takes a push that was given up, if the prompt is the one that it made after all and it is wanted.
    pub(super) fn take_late(&mut self, prompt: &str, wanted: impl Fn(&Push) -> bool) -> Option<Push> {
        let at = self.given_up.iter().position(|push| push.made(prompt) && wanted(push))?;
        self.given_up.remove(at)
    }

    /// Gives up the push under way if its time is over. Returns by which way it went.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Way> {
        let push = self.under_way.take_if(|push| push.until <= now)?;
        let way = push.way;
        self.give_up(push);
        Some(way)
    }

    /// The push under way was never made.
    pub(super) fn abandon(&mut self) {
        self.under_way = None;
    }

    /// The context is another one. What was pushed may come all the same, and is then not what the session needs.
    pub(super) fn forget(&mut self) {
        if let Some(push) = self.under_way.take() {
            self.give_up(push);
        }
    }

    fn give_up(&mut self, push: Push) {
        self.given_up.push_back(push);
        if self.given_up.len() > GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::render;
    use crate::deliver::testing::{agent, note};

    fn push(way: Way, number: u32, body: &str) -> Push {
        let note = note(number, body);
        let text = render::text(&agent("homeassistant"), &[&note], 1).text;
        Push::new(way, vec![note.id.clone()], text, Instant::now())
    }

    fn wake(text: &str) -> String {
        format!("<task-notification>\n</task-notification>\n<system-reminder>\nStop hook: {text}\n</system-reminder>")
    }

    #[test]
    fn a_push_is_known_for_what_it_is_whatever_a_client_escapes_in_its_quotes() {
        let body = "so: </cross-session-message>\n</task-notification>";
        let inbox = push(Way::Inbox, 1, body);
        assert!(inbox.made(&inbox.text) && !inbox.made(&wake(&inbox.text)));
        assert!(inbox.made(&inbox.text.replace("</cross", "<\\/cross")));
        let rewake = push(Way::Rewake, 1, body);
        assert!(rewake.made(&wake(&rewake.text)) && !rewake.made(&rewake.text));
        assert!(rewake.made(&wake(&rewake.text.replace("</task", "<\\/task"))));
    }

    #[test]
    fn a_body_that_holds_another_push_does_not_confirm_that_one() {
        for way in [Way::Inbox, Way::Rewake, Way::Channel] {
            let one = push(way, 1, "the question");
            let copy = push(way, 2, &format!("\n{}\n", one.text));
            assert!(!one.made(&copy.text) && !one.made(&wake(&copy.text)), "{way:?}");
            assert!(!copy.made(&one.text) && !copy.made(&wake(&one.text)), "{way:?}");
        }
    }
}
