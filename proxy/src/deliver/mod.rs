//! The last hop: how a message gets from this host into the model's context, and what proves it.
//!
//! [`LastHop`] is the handle; [`run`] does what nobody asks for. `hop` decides everything, from memory: `in_flight` is the
//! table of what is on this host and by which way each message is going, `turn` knows what the session does, `ways` how it
//! can be woken, `push` what was pushed, `proof` what the model has seen. `render` makes the texts.
//! [`Inbox`] is what a person's command holds instead.

mod answer;
mod client;
mod evidence;
mod hop;
mod in_flight;
mod inbox;
mod note;
mod proof;
mod push;
mod render;
mod run;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transcript;
mod turn;
mod ways;

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::Deliver;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::config::Config;
use crate::link::{Deliveries, Link};
use crate::local::protocol::{Answer, Event, Name, Status};
use crate::local::{Desk, process_age};
use hop::Hop;
pub use inbox::Inbox;
use push::{InboxSocket, Todo};
pub use run::run;
use transcript::Transcript;

/// How long after its own start a client may start us with its session.
const BEGINS: Duration = Duration::from_secs(10);

/// A handle on the last hop of one session. Cheap to clone.
#[derive(Clone)]
pub struct LastHop {
    arrivals: Arc<Arrivals>,
    link: Link,
}

/// What the link knows of the last hop: the messages go in here.
pub struct Arrivals {
    inside: Mutex<Inside>,
    /// Something happened that may have to be followed by a push.
    news: Notify,
    /// The client's record of the session was read: what stands in the conversation is known.
    decided: Notify,
    notifications: mpsc::Sender<String>,
}

struct Inside {
    hop: Hop,
    waiter: Option<Waiter>,
    last_waiter: u64,
    /// Where the client keeps its files, and which process it is.
    client: (PathBuf, u32),
    transcript: Arc<Mutex<Transcript>>,
    /// Until the MCP server takes it.
    notified: Option<mpsc::Receiver<String>>,
}

/// A hook that waits beside the idle session.
struct Waiter {
    number: u64,
    wake: oneshot::Sender<Answer>,
}

impl Arrivals {
    /// Makes the last hop of a session of which nothing is known yet.
    pub fn new(config: &Config) -> Self {
        let path = config.messaging_socket.clone();
        let inbox = path.map(|path| InboxSocket {
            path,
            token: config.messaging_token.as_ref().map(|token| token.expose().to_owned()),
        });
        let hop = Hop::new(config.agent.clone(), inbox, config.channel, config.is_plugin);
        let hop = if config.one_shot { hop.of_one_shot() } else { hop };
        let ran_before = process_age(parent_id()).is_some_and(|age| age > BEGINS);
        let hop = if ran_before { hop.joined() } else { hop };
        // One push is under way at a time.
        let (notifications, notified) = mpsc::channel(1);
        let client = (config.places.claude_dir.clone(), parent_id());
        let inside =
            Inside { hop, waiter: None, last_waiter: 0, client, transcript: Arc::default(), notified: Some(notified) };
        Self { inside: Mutex::new(inside), news: Notify::new(), decided: Notify::new(), notifications }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Returns what is to be done now, with the hook that is to do it where that is what waits beside the session.
    fn next(&mut self) -> (Todo, Option<Waiter>) {
        let todo = self.hop.next(Instant::now());
        let waiter = if matches!(todo, Todo::Wake(_)) { self.waiter.take() } else { None };
        if waiter.is_some() {
            self.hop.waiter_is(false);
        }
        (todo, waiter)
    }
}

impl Deliveries for Arrivals {
    fn arrived(&self, deliver: Deliver) {
        self.inside().hop.arrived(deliver.messages, Instant::now());
        self.news.notify_one();
    }

    fn begins(&self, agent: &AgentId, generation: u64) {
        self.inside().hop.begins(agent, generation);
        self.news.notify_one();
    }
}

impl LastHop {
    /// Makes the handle for the link that these arrivals come by.
    pub fn new(arrivals: Arc<Arrivals>, link: Link) -> Self {
        Self { arrivals, link }
    }

    /// A tool is called. In a session without hooks that proves what was shown before to be seen.
    pub fn tool_called(&self) {
        self.with(|inside| inside.hop.tool_called(Instant::now()));
    }

    /// Returns whether the result of a wait may hold the message: not where it goes another way already. One that may
    /// stand in the conversation waits for the client's transcript: messages that came after it stay behind it.
    pub async fn takes(&self, id: &MessageId) -> bool {
        loop {
            // Registered before the look, so that nothing in between is missed.
            let decided = self.arrivals.decided.notified();
            let Some(until) = self.with(|inside| inside.hop.doubted_until(id)) else { break };
            if tokio::time::timeout_at(until, decided).await.is_err() {
                break;
            }
        }
        let takes = self.with(|inside| inside.hop.takes(id, Instant::now()));
        self.arrivals.news.notify_one();
        takes
    }

    /// The result of a tool holds a part of these messages, and not their end.
    pub fn in_parts(&self, ids: &[MessageId]) {
        self.with(|inside| inside.hop.in_parts(ids, Instant::now()));
    }

    /// The result of a tool was written, with these messages in it.
    pub fn presented(&self, ids: Vec<MessageId>, via: Via, tool_use: Option<String>) {
        self.with(|inside| inside.hop.presented(ids, via, tool_use));
    }

    /// A call names these messages: the model has read them.
    pub fn named(&self, ids: &[MessageId]) {
        self.with(|inside| inside.hop.named(ids));
    }

    /// The session answered or acknowledged these messages.
    pub fn settled(&self, ids: &[MessageId]) {
        self.with(|inside| inside.hop.settled(ids));
    }

    /// The session said itself what it does.
    pub fn said_status(&self, state: State) {
        self.with(|inside| inside.hop.said_status(state));
    }

    /// Returns the texts for the session's channel. Whoever calls it first gets them.
    pub fn notifications(&self) -> Option<mpsc::Receiver<String>> {
        self.arrivals.inside().notified.take()
    }

    /// Does something with what is known, and sends what follows from it, in the same order in which it happened.
    fn with<T>(&self, work: impl FnOnce(&mut Inside) -> T) -> T {
        let mut inside = self.arrivals.inside();
        let outcome = work(&mut inside);
        for progress in inside.hop.take_receipts() {
            self.link.receipt(progress);
        }
        let (mut facts, told) = (inside.hop.facts(), self.link.facts());
        // Before the first hook the link knows better.
        facts.state = facts.state.or(told.state);
        facts.session_id = facts.session_id.or(told.session_id);
        self.link.session_is(facts);
        if !inside.hop.needs_waiter() {
            // Its hook ends without a word.
            inside.waiter = None;
        }
        outcome
    }

    /// Waits beside the idle session. A newer one takes its place.
    async fn wait(&self, event: &Event) -> Answer {
        let (wake, woken) = oneshot::channel();
        let number = self.with(|inside| {
            inside.hop.heard(event, Instant::now());
            inside.last_waiter += 1;
            let number = inside.last_waiter;
            if !inside.hop.is_of_left(event) && inside.hop.waiter_is(true) {
                inside.waiter = Some(Waiter { number, wake });
            }
            number
        });
        self.arrivals.news.notify_one();
        let _seat = Seat { arrivals: &self.arrivals, number };
        woken.await.unwrap_or_default()
    }

    fn status(&self) -> Status {
        let (unread, facts) = {
            let inside = self.arrivals.inside();
            (inside.hop.unread(), inside.hop.facts())
        };
        let standing = self.link.standing().borrow().clone();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent_id: standing.agent,
            link: standing.state,
            coordinator: standing.coordinator,
            last_error: standing.last_error,
            state: facts.state.or(self.link.facts().state).unwrap_or(State::Starting),
            unread,
            agents_online: standing.agents_online,
            reach: facts.reach.unwrap_or_default(),
            session_id: facts.session_id,
        }
    }
}

/// Gives a waiter's seat up when its hook is gone.
struct Seat<'a> {
    arrivals: &'a Arrivals,
    number: u64,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut inside = self.arrivals.inside();
        if inside.waiter.as_ref().is_some_and(|waiter| waiter.number == self.number) {
            inside.waiter = None;
            inside.hop.waiter_is(false);
        }
    }
}

impl Desk for LastHop {
    async fn heard(&self, event: Event) -> Answer {
        if event.name != Name::SessionEnd && event.name != Name::Status {
            self.link.is_real();
        }
        if event.typed {
            self.link.prompted(Instant::now());
        }
        match event.name {
            Name::Status => Answer { status: Some(self.status()), ..Answer::default() },
            Name::Wait => self.wait(&event).await,
            _ => {
                let answer = self.with(|inside| inside.hop.heard(&event, Instant::now()));
                self.arrivals.news.notify_one();
                answer
            }
        }
    }

    fn printed(&self, offer: u64) {
        self.with(|inside| inside.hop.printed(offer, Instant::now()));
        self.arrivals.news.notify_one();
    }

    fn not_printed(&self, offer: u64) {
        self.with(|inside| inside.hop.not_printed(offer));
        self.arrivals.news.notify_one();
    }
}
