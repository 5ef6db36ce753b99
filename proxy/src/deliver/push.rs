//! Pushes into an idle session: the one under way, its confirmation, and the abandoned ones.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::ways::Way;
use crate::local::protocol::{Event, Name};

/// How soon an idle session shows that a push has come: it takes less than a tenth of a second there.
pub(super) const CONFIRM: Duration = Duration::from_secs(5);
/// How long a busy session may take until it looks at a push.
pub(super) const CONFIRM_BUSY: Duration = Duration::from_secs(600);
/// How long after a reminder the next one is made, the first time, and at the most.
const REMIND: Duration = Duration::from_secs(60);
const REMIND_MAX: Duration = Duration::from_secs(30 * 60);
/// How many pushes that were given up are remembered: each may still come.
const GIVEN_UP_MAX: usize = 32;

/// Where a session takes messages of its own.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InboxSocket {
    pub(super) path: String,
    /// The token that opens it.
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
}

impl Push {
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

/// Returns our own lines of a text, without the quotes: clients escape marks in those that look like theirs, such as
/// `</cross-session-message>`.
fn frame(text: &str) -> String {
    text.trim()
        .lines()
        .filter(|line| !line.starts_with('>'))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Todo {
    /// Look again then, or when something happens.
    Look(Option<Instant>),
    /// Read the client's session file.
    AskClient,
    /// Read which messages the conversation names, in that transcript.
    Read(PathBuf),
    /// Write a text to the session's inbox socket.
    Post(InboxSocket, String),
    /// Have the hook that waits wake the session with a text.
    Wake(String),
    /// Notify the session's channel.
    Notify(String),
}

impl Default for Todo {
    fn default() -> Self {
        Self::Look(None)
    }
}

/// The reminders of messages whose turn failed: each waits twice as long as the one before, until a turn has ended well.
#[derive(Debug, Default)]
pub(super) struct Reminders {
    made: u32,
    next_at: Option<Instant>,
}

impl Reminders {
    /// Returns before when no further one is made.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// One is made.
    pub(super) fn made(&mut self, now: Instant) {
        self.next_at = Some(
            now + REMIND
                .saturating_mul(1 << self.made.min(10))
                .min(REMIND_MAX),
        );
        self.made += 1;
    }

    /// A turn ended well.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }
}

/// The pushes of one session.
#[derive(Debug)]
pub(super) struct Pushes {
    inbox: Option<InboxSocket>,
    channel: bool,
    /// Whether a hook waits beside the session.
    pub(super) waiter: bool,
    under_way: Option<Push>,
    /// The text of the latest one.
    latest: String,
    /// How many steps the client has ended since then: after each it looks at pushes.
    steps: u32,
    /// Whether the client was asked why it has not shown the one under way.
    is_asked: bool,
    given_up: VecDeque<Push>,
}

impl Pushes {
    pub(super) fn new(inbox: Option<InboxSocket>, channel: bool) -> Self {
        Self {
            inbox,
            channel,
            waiter: false,
            under_way: None,
            latest: String::new(),
            steps: 0,
            is_asked: false,
            given_up: VecDeque::new(),
        }
    }

    /// Records the session's inbox socket from the report of a hook.
    pub(super) fn learn(&mut self, event: &Event) {
        if let Some(path) = &event.messaging_socket {
            self.inbox = Some(InboxSocket {
                path: path.clone(),
                token: event.messaging_token.clone(),
            });
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

    /// Returns the text so that it differs from the latest one and from all that were given up: a client drops a post with
    /// the text of the one before, also in another conversation.
    pub(super) fn told_apart(&self, mut text: String) -> String {
        while self.latest == text || self.given_up.iter().any(|push| push.text == text) {
            text.push_str(" (Sent again.)");
        }
        text
    }

    /// Begins a push. Returns the action that makes it.
    pub(super) fn begin(&mut self, push: Push) -> Todo {
        let text = push.text.clone();
        let todo = match (push.way, &self.inbox) {
            (Way::Inbox, Some(socket)) => Todo::Post(socket.clone(), text),
            (Way::Rewake, _) => Todo::Wake(text),
            (Way::Channel | Way::Inbox, _) => Todo::Notify(text),
        };
        self.latest.clone_from(&push.text);
        self.under_way = Some(push);
        self.steps = 0;
        self.is_asked = false;
        todo
    }

    /// Returns whether the client is to be asked why the push under way is late: once.
    pub(super) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asked, true)
    }

    /// Returns the deadline of the push under way after that event, if the event sets one: a busy session looks at pushes
    /// between two steps, and at once when the turn ends. After the first such moment it waits for no other.
    pub(super) fn deadline_after(&mut self, event: Name, now: Instant) -> Option<Instant> {
        match event {
            Name::UserPromptSubmit if self.steps == 0 => Some(now + CONFIRM_BUSY),
            Name::PostToolBatch | Name::Stop | Name::StopFailure => {
                self.steps += 1;
                (self.steps == 1).then(|| now + CONFIRM)
            }
            _ => None,
        }
    }

    /// Returns whether the client has looked at pushes since the one under way, which may have missed the first such moment.
    pub(super) fn was_passed_over(&self) -> bool {
        self.steps > 1
    }

    /// Returns the push that made the prompt: the one under way, or one that was given up and comes after all.
    pub(super) fn made_by(&self, prompt: &str) -> Option<&Push> {
        self.under_way
            .iter()
            .chain(&self.given_up)
            .find(|push| push.made(prompt))
    }

    /// Takes the push that made the prompt.
    pub(super) fn take(&mut self, prompt: &str) -> Option<Push> {
        if let Some(push) = self.under_way.take_if(|push| push.made(prompt)) {
            return Some(push);
        }
        let at = self.given_up.iter().position(|push| push.made(prompt))?;
        self.given_up.remove(at)
    }

    /// Returns whether a push was ever given up.
    pub(super) fn was_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// The push under way was never made.
    pub(super) fn abandon(&mut self) {
        self.under_way = None;
    }

    /// Gives the push under way up: it may come all the same. Returns its way.
    pub(super) fn give_up(&mut self) -> Option<Way> {
        let push = self.under_way.take()?;
        let way = push.way;
        self.given_up.push_back(push);
        if self.given_up.len() > GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
        Some(way)
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
        Push {
            way,
            ids: vec![note.id.clone()],
            text,
        }
    }

    fn wake(text: &str) -> String {
        format!(
            "<task-notification>\n</task-notification>\n<system-reminder>\nStop hook: {text}\n</system-reminder>"
        )
    }

    #[test]
    fn a_push_is_recognised_although_the_client_escapes_closing_tags() {
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
            assert!(
                !one.made(&copy.text) && !one.made(&wake(&copy.text)),
                "{way:?}"
            );
            assert!(
                !copy.made(&one.text) && !copy.made(&wake(&one.text)),
                "{way:?}"
            );
        }
    }
}
