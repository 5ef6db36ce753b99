//! The last hop: how a message gets from this host into the model's context, with proof.
//!
//! [`LastHop`] is the handle: each event is an `Input` for it. [`run`] is the task that wakes the session. `hop` decides
//! everything, from memory: `in_flight` is the table of the messages on this host and their ways, `turn` the state of the
//! session, `ways` the ways to wake it, `push` the push under way, `proof` the messages that the model has seen. `render`
//! makes the texts.
//! [`PersonInbox`] takes their place in a person's command.

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

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::vocabulary::State;
use c3po_shared::wire::Deliver;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::client::{of_socket, process_age};
use crate::config::Config;
use crate::link::{Deliveries, Link, WaitingAt};
use crate::local::Desk;
use crate::local::protocol::{Answer, Event, Name, Status};
use client::works_for;
use evidence::is_unrecorded;
use hop::Hop;
pub(crate) use hop::{Effects, Input, Presented};
pub use inbox::PersonInbox;
use push::InboxSocket;
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

/// The link's side of the last hop: it delivers messages here.
pub struct Arrivals {
    inside: Mutex<Inside>,
    /// Something happened that may have to be followed by a push.
    news: Notify,
    /// The client's record of its session was read: the content of the conversation is known.
    decided: Notify,
    notifications: mpsc::Sender<String>,
    /// Whether the desktop shows a note when the session asks for a person.
    notes: bool,
    /// The pid of the client above this process, perhaps with a program in between.
    client: u32,
}

struct Inside {
    hop: Hop,
    /// Wakes the session by the hook that waits beside it.
    waiter: Option<oneshot::Sender<Answer>>,
    last_waiter: u64,
    /// Where the client keeps its files, and which process it is.
    client: (PathBuf, u32),
    transcript: Arc<Mutex<Transcript>>,
    /// Until the MCP server takes it.
    notified: Option<mpsc::Receiver<String>>,
}

impl Arrivals {
    /// Makes the last hop of a session of which nothing is known yet.
    pub fn new(config: &Config) -> Self {
        let path = config.messaging_socket.clone();
        let inbox = path.map(|path| InboxSocket {
            path,
            token: config
                .messaging_token
                .as_ref()
                .map(|token| token.expose().to_owned()),
        });
        let hop = Hop::new(
            config.agent.clone(),
            inbox,
            config.channel,
            config.is_plugin,
        );
        let hop = if config.one_shot {
            hop.of_one_shot()
        } else {
            hop
        };
        let hop = if config.headless { hop.headless() } else { hop };
        let age = process_age(config.client);
        let hop = hop.since(age.and_then(|age| Instant::now().checked_sub(age)));
        let ran_before = age.is_some_and(|age| age > BEGINS);
        let hop = if ran_before { hop.joined() } else { hop };
        // One push is under way at a time.
        let (notifications, notified) = mpsc::channel(1);
        let client = (config.places.claude_dir.clone(), config.client);
        let inside = Inside {
            hop,
            waiter: None,
            last_waiter: 0,
            client,
            transcript: Arc::default(),
            notified: Some(notified),
        };
        Self {
            inside: Mutex::new(inside),
            news: Notify::new(),
            decided: Notify::new(),
            notifications,
            notes: config.desktop_notes,
            client: config.client,
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an input that causes no receipt.
    fn note(&self, input: Input) {
        let effects = self.inside().hop.on(input, Instant::now());
        debug_assert!(effects.receipts.is_empty(), "a receipt that nobody sends");
        self.news.notify_one();
    }
}

impl Deliveries for Arrivals {
    fn arrived(&self, deliver: Deliver) {
        self.note(Input::Arrived(deliver.messages));
    }

    fn begins(&self, agent: &AgentId, generation: u64) {
        self.note(Input::Begins(agent.clone(), generation));
    }
}

impl LastHop {
    /// Makes the handle for the link that these arrivals come by.
    pub fn new(arrivals: Arc<Arrivals>, link: Link) -> Self {
        Self { arrivals, link }
    }

    /// Applies an input, and sends its receipts in the order of the inputs.
    pub(crate) fn on(&self, input: Input) -> Effects {
        self.with(input, |_, effects| effects)
    }

    /// Returns whether the result of a wait may hold the message: not where it goes by another way already. One that may
    /// stand in the conversation waits for the client's transcript: messages that came after it stay behind it.
    pub(crate) async fn takes(&self, id: &MessageId) -> bool {
        loop {
            // Registered before the look, so that nothing in between is missed.
            let decided = self.arrivals.decided.notified();
            let doubted = self.arrivals.inside().hop.doubted_until(id);
            let Some(until) = doubted else { break };
            if tokio::time::timeout_at(until, decided).await.is_err() {
                break;
            }
        }
        self.on(Input::Taken(id.clone())).granted
    }

    /// Returns which of these the session, or a subagent of it, may have been shown before. A result that reads on in a message
    /// does not repeat its beginning.
    pub(crate) fn repeated(
        &self,
        ids: &[MessageId],
        read_on: Option<&MessageId>,
    ) -> Vec<MessageId> {
        self.arrivals.inside().hop.repeated(ids, read_on)
    }

    /// Returns the texts for the session's channel, to the first caller only.
    pub fn notifications(&self) -> Option<mpsc::Receiver<String>> {
        self.arrivals.inside().notified.take()
    }

    /// Does the same, and something more before anything else can happen.
    fn with<T>(&self, input: Input, more: impl FnOnce(&mut Inside, Effects) -> T) -> T {
        let looks = matches!(input, Input::Look);
        let mut inside = self.arrivals.inside();
        let mut effects = inside.hop.on(input, Instant::now());
        // Messages that a dead session was shown have their mark since they came.
        self.link.about_to_show(&effects.launched);
        for progress in std::mem::take(&mut effects.receipts) {
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
        if !looks {
            self.arrivals.news.notify_one();
        }
        more(&mut inside, effects)
    }

    /// Returns whether the client worked already when a prompt was typed, and no transcript shows what becomes of that.
    async fn works_unrecorded(&self, event: &Event) -> bool {
        let (folder, pid) = self.arrivals.inside().client.clone();
        let transcript = event.transcript.clone();
        let works = move || {
            let written = transcript.and_then(|path| path.metadata().ok()?.modified().ok());
            let written = written.map(|at| at.elapsed().unwrap_or_default());
            works_for(&folder, pid).is_some_and(|time| is_unrecorded(time, written))
        };
        run::off_this_thread(works).await.unwrap_or_default()
    }

    /// Waits beside the idle session. A newer one takes its place.
    async fn wait(&self, event: Event) -> Answer {
        let (wake, woken) = oneshot::channel();
        let number = self.with(Input::Hook(event), |inside, effects| {
            effects.granted.then(|| {
                inside.last_waiter += 1;
                inside.waiter = Some(wake);
                inside.last_waiter
            })
        });
        let _seat = number.map(|number| Seat {
            arrivals: &self.arrivals,
            number,
        });
        woken.await.unwrap_or_default()
    }

    fn desktop_note(&self, event: &Event) -> Option<String> {
        if !self.arrivals.notes {
            return None;
        }
        let status = self.link.status();
        answer::desktop_note(event, &status.borrow().agent)
    }

    fn status(&self) -> Status {
        let (unread, facts) = {
            let inside = self.arrivals.inside();
            (inside.hop.unread(), inside.hop.facts())
        };
        let status = self.link.status().borrow().clone();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent_id: status.agent,
            link: status.state,
            coordinator: status.coordinator,
            last_error: status.last_error,
            state: facts
                .state
                .or(self.link.facts().state)
                .unwrap_or(State::Starting),
            unread,
            agents_online: status.agents_online,
            questions: status.questions.map(WaitingAt::now),
            reach: facts.reach.unwrap_or_default(),
            session_id: facts.session_id,
        }
    }
}

/// Gives the seat beside the session up when its hook is gone.
struct Seat<'a> {
    arrivals: &'a Arrivals,
    number: u64,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut inside = self.arrivals.inside();
        if inside.last_waiter == self.number {
            inside.waiter = None;
            inside.hop.on(Input::WaiterGone, Instant::now());
        }
    }
}

impl Desk for LastHop {
    async fn heard(&self, mut event: Event) -> Answer {
        // A client without a socket of its own hands on the variable that it inherited from a session above.
        let inherits = |socket: &mut String| {
            of_socket(socket).is_some_and(|client| self.arrivals.client != client)
        };
        event.messaging_socket.take_if(inherits);
        if event.name != Name::SessionEnd && event.name != Name::Status {
            self.link.is_real();
        }
        if event.typed {
            self.link.prompted(Instant::now());
            if self.works_unrecorded(&event).await {
                self.on(Input::TypedInto);
            }
        }
        match event.name {
            Name::Status => {
                self.link.shows_status_line();
                Answer {
                    status: Some(self.status()),
                    ..Answer::default()
                }
            }
            Name::Wait => self.wait(event).await,
            _ => {
                let note = self.desktop_note(&event);
                let answer = self.on(Input::Hook(event)).answer;
                match note {
                    Some(stdout) if answer == Answer::default() => Answer { stdout, ..answer },
                    _ => answer,
                }
            }
        }
    }

    fn printed(&self, offer: u64) {
        self.on(Input::Printed(offer));
    }

    fn not_printed(&self, offer: u64) {
        self.on(Input::NotPrinted(offer));
    }
}
