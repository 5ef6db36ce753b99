//! The one connection to the coordinator. [`Link`] is the handle; [`run`] drives it.
//!
//! `pending` owns every request until its reply, and sends all of them again, oldest first, after `hello`. So a frame
//! whose write failed is never lost, and the coordinator applies each call once by its `call_id`.

mod client_session;
mod connection;
mod directory;
mod failed;
pub(crate) mod http;
mod journal;
pub(crate) mod leftovers;
mod lines;
mod notice;
mod outgoing_call;
mod own_seat;
mod pending;
mod people;
mod prompts;
mod queue;
mod relayed;
mod resolve;
mod rules;
mod run;
mod seats;
mod serve;
mod shown;
mod status;
mod stream;
mod trust;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::{Client, Deliver, SessionChange};
use tokio::sync::{Notify, SetOnce, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::config::Config;
use client_session::ClientSession;
use directory::Directory;
pub(crate) use failed::{for_host, is_loopback, of_store};
use journal::Journal;
pub use journal::{QueuedFor, kept};
use outgoing_call::{CallResult, OutgoingCall};
use pending::Pending;
pub use people::count_questions;
use prompts::Prompts;
pub use run::run;
use seats::Seats;
use shown::ShownLog;
pub use status::{LinkStatus, State, WaitingAt};
pub(crate) use trust::Trust;

/// How long after the client's `initialized` a session counts as real even without a call.
///
/// Clients that only test the server (`claude mcp list`) are gone by then and register no agent.
const GRACE: Duration = Duration::from_secs(3);
/// The pause before a call is made again that no coordinator could do.
const AGAIN: Duration = Duration::from_secs(2);

/// The receiver of delivered messages.
pub trait Deliveries: Send + Sync {
    /// Takes messages that arrived on this host.
    fn arrived(&self, deliver: Deliver);
    /// Returns the position of the last delivery to that agent; `None` requests all unshown messages again.
    fn position(&self, _agent: &AgentId) -> Option<u64> {
        None
    }
    /// Called when the link is up as that session of that agent, or, with generation 0, when the session took that name.
    fn begins(&self, agent: &AgentId, generation: u64);
}

/// A handle to the link. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

/// The owner of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A session, which is the agent.
    Session,
    /// A person's command, which acts as the agent for a moment.
    Person {
        /// Whether messages are delivered as they arrive.
        follows: bool,
    },
    /// The link by which a living session sends the queued calls of a dead one.
    Leftover,
}

impl Kind {
    /// Returns the ways by which messages get to the reader here.
    fn reach(self) -> Vec<Via> {
        match self {
            Self::Session => vec![Via::WaitForMessage, Via::GetMessages],
            Self::Person { follows: true } => vec![Via::Terminal],
            Self::Person { follows: false } | Self::Leftover => Vec::new(),
        }
    }
}

/// The state shared by the handles and the driver.
struct Shared {
    config: Config,
    kind: Kind,
    instance: Uuid,
    /// The session of our client. A person's command has none.
    client_session: ClientSession,
    client: Mutex<Client>,
    pending: Mutex<Pending>,
    /// Signals that a frame is to be written.
    to_write: Notify,
    /// Signals that a call found no link.
    wanted: Notify,
    status: watch::Sender<LinkStatus>,
    /// The whole state of the session: a report of it may be lost or come twice.
    facts: Mutex<SessionChange>,
    prompts: Mutex<Prompts>,
    /// Set at the client's `initialized`; the session may still be only a test.
    initialized: SetOnce<()>,
    /// Set when the session is real: from then on the link dials.
    real: SetOnce<()>,
    journal: Journal,
    /// The state of the journal, without a look at the disk.
    known: Mutex<queue::JournalState>,
    seats: Seats,
    /// The messages that this agent's sessions on this host were shown.
    shown: Mutex<Option<ShownLog>>,
    /// Signals that a call was added to the journal.
    kept: Notify,
    /// Signals that a call was removed from the journal.
    taken: Notify,
    deliveries: Arc<dyn Deliveries>,
    /// The current coordinators.
    directory: Directory,
}

impl Link {
    /// Creates the link of a session. It does not dial before [`run`] runs and the session is real.
    pub fn of_session(config: Config, deliveries: Arc<dyn Deliveries>) -> Self {
        Self::new(config, Kind::Session, deliveries)
    }

    /// Creates the link of a person's command. It takes no agent over and dials immediately.
    ///
    /// With `follows`, messages are delivered as they arrive, to be printed.
    pub fn of_person(config: Config, deliveries: Arc<dyn Deliveries>, follows: bool) -> Self {
        let link = Self::new(config, Kind::Person { follows }, deliveries);
        link.begin();
        link
    }

    /// Makes the link by which a living session sends the queued calls of a dead one.
    fn of_leftover(config: Config, deliveries: Arc<dyn Deliveries>) -> Self {
        let link = Self::new(config, Kind::Leftover, deliveries);
        link.begin();
        link
    }

    fn new(config: Config, kind: Kind, deliveries: Arc<dyn Deliveries>) -> Self {
        let status = LinkStatus::new(
            config.agent.clone(),
            config.coordinators.urls.first().map_or("", String::as_str),
        );
        let journal = Journal::new(config.journal_dir());
        let seats = Seats::new(config.state_dir.join("seats"), &config.host);
        let session_id = config.session_id.clone();
        let reach = Some(kind.reach());
        let facts = SessionChange {
            session_id,
            reach,
            context: Some(0),
            ..SessionChange::default()
        };
        let directory = Directory::new(&config);
        let client_session = ClientSession::of(&config);
        let shared = Shared {
            client_session,
            config,
            kind,
            instance: Uuid::new_v4(),
            client: Mutex::default(),
            pending: Mutex::default(),
            to_write: Notify::new(),
            wanted: Notify::new(),
            status: watch::Sender::new(status),
            facts: Mutex::new(facts),
            prompts: Mutex::default(),
            initialized: SetOnce::new(),
            real: SetOnce::new(),
            journal,
            known: Mutex::default(),
            seats,
            shown: Mutex::default(),
            kept: Notify::new(),
            taken: Notify::new(),
            deliveries,
            directory,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Sets the program on the other end of stdio, for `hello`.
    pub fn client_is(&self, client: Client) {
        *self
            .shared
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Records the client's `initialized`: after a moment the session counts as real.
    pub fn initialized(&self) {
        if !self.shared.config.one_shot {
            // A second notification changes nothing.
            let _ = self.shared.initialized.set(());
        }
    }

    /// Records the report of a hook: the session is real. A one-shot session dials only for a call.
    pub fn is_real(&self) {
        if !self.shared.config.one_shot {
            self.begin();
        }
    }

    /// Marks the session as real: from now on the link dials.
    pub fn begin(&self) {
        if self.shared.real.set(()).is_ok() {
            self.shared.status.send_modify(LinkStatus::begins);
        }
    }

    /// Returns a receiver of the link's status and its changes.
    pub fn status(&self) -> watch::Receiver<LinkStatus> {
        self.shared.status.subscribe()
    }

    /// Calls a tool and returns its reply. Dropping the future cancels the call.
    ///
    /// A send or reply with `queue_if_down` is queued on this host if no coordinator is reachable.
    pub async fn call(&self, call: Call) -> CallResult {
        self.call_as(CallId::fresh(), call).await
    }

    /// Calls a tool under a given id. A call that is made again under the same id is applied once.
    pub async fn call_as(&self, id: CallId, call: Call) -> CallResult {
        self.begin();
        let (keeps_order, wants_queue) = (keeps_order(&call), wants_queue(&call));
        let outgoing = OutgoingCall::new(id, call, Instant::now());
        let agent = self.queues_as();
        if keeps_order && !queue::is_empty(&self.shared, &agent).await {
            let sent = queue::wait_behind(&self.shared, &agent).await;
            if let (Err(refusal), false) = (sent, wants_queue) {
                return Err(refusal);
            }
        }
        if wants_queue {
            self.call_or_queue(outgoing).await
        } else {
            self.call_now(outgoing).await
        }
    }

    /// Calls a tool under one id, again and again while no coordinator can do it. The caller sets the deadline.
    pub async fn call_until_done(&self, id: CallId, call: Call) -> CallResult {
        loop {
            match self.call_as(id, call.clone()).await {
                Err(refusal) if passes(&refusal) => tokio::time::sleep(AGAIN).await,
                outcome => return outcome,
            }
        }
    }

    /// Reports how far messages got on this host. The caller does not wait; the receipt is sent again until it is answered.
    pub fn receipt(&self, progress: Progress) {
        if progress.stage == Stage::InSession {
            // Recorded also while the link is down: this process may be killed before the link is up again.
            self.about_to_show(&progress.message_ids);
        }
        self.shared.pending().add_receipt(progress);
        self.shared.to_write.notify_one();
    }

    /// Records that a result is about to show messages. Returns the ones that a dead session of this host was shown: it may
    /// have been killed before it reported that.
    pub fn about_to_show(&self, ids: &[MessageId]) -> Vec<MessageId> {
        let mut shown = self.shared.shown();
        let Some(shown) = shown.as_mut().filter(|_| !ids.is_empty()) else {
            return Vec::new();
        };
        if let Err(error) = shown.note(ids) {
            tracing::debug!("could not record the shown messages: {error}");
        }
        ids.iter().filter(|id| shown.had(id)).cloned().collect()
    }

    /// Returns the known state of the session.
    pub fn facts(&self) -> SessionChange {
        self.shared.facts().clone()
    }

    /// Reports the state of the session to the coordinator if it has changed.
    pub fn session_is(&self, facts: SessionChange) {
        let mut known = self.shared.facts();
        if *known != facts {
            *known = facts;
            drop(known);
            self.shared.pending().tell_facts();
            self.shared.to_write.notify_one();
        }
    }

    /// Reports a typed prompt of a person to the coordinator, at most every few seconds.
    pub fn prompted(&self, now: Instant) {
        if self.shared.prompts().typed(now) {
            self.shared.pending().tell_facts();
            self.shared.to_write.notify_one();
        }
    }

    /// Sends calls that a person's commands have queued for this link's coordinator, oldest first.
    pub(crate) async fn send_own_kept(&self) {
        let agent = self.queues_as();
        let targets = self.shared.directory.entry().coordinators.urls.clone();
        if self.shared.journal.is_for(&agent, &targets) {
            self.send_kept(&agent).await;
        }
    }

    /// Returns the name under which calls are queued. Without a coordinator, a command knows only its wished name.
    fn queues_as(&self) -> AgentId {
        match self.shared.kind {
            Kind::Person { .. } => self.shared.config.agent.clone(),
            Kind::Session | Kind::Leftover => self.shared.status.borrow().agent.clone(),
        }
    }

    /// Sends the agent's queued calls, oldest first, as far as the link accepts them.
    async fn send_kept(&self, agent: &AgentId) {
        while let Some(pause) = queue::drain_one(self, agent).await {
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until every receipt is answered. The caller sets the deadline.
    pub async fn receipts_settled(&self) {
        /// The poll interval. Only a command that is about to end waits here.
        const LOOK: Duration = Duration::from_millis(2);
        while self.shared.pending().has_receipts() {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn call_now(&self, outgoing: OutgoingCall) -> CallResult {
        let shared = &self.shared;
        let mut status = shared.status.subscribe();
        if let Some(refusal) = status.borrow().refused_at_once(Instant::now()) {
            // Too late for this call; redial for the next one.
            shared.wanted.notify_one();
            return Err(refusal);
        }
        let until = outgoing.waits_until();
        let (number, mut reply) = shared.pending().add_call(outgoing)?;
        let _ticket = Ticket { shared, number };
        shared.to_write.notify_one();
        loop {
            let gives_up = {
                let now = status.borrow_and_update();
                let written = shared.pending().is_written(number);
                if let Some(refusal) = &now.refusal {
                    return Err(refusal.clone().detail("applied", rules::applied(written)));
                }
                rules::gives_up_at(now.down_since, written, until)
            };
            tokio::select! {
                biased;
                outcome = &mut reply => return outcome.unwrap_or_else(|_| Err(rules::ending())),
                // The sender lives as long as `shared`.
                _ = status.changed() => {}
                () = sleep_until(gives_up) => break,
            }
        }
        let written = shared.pending().is_written(number);
        let timed_out = shared.pending().timed_out(number, Instant::now());
        timed_out
            .filter(|_| written)
            .ok_or_else(|| status.borrow().down(written))
    }

    async fn call_or_queue(&self, outgoing: OutgoingCall) -> CallResult {
        let refusal = self.shared.status.borrow().refusal.clone();
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let agent = self.queues_as();
        let mut down = None;
        if queue::is_empty(&self.shared, &agent).await {
            match self.call_now(outgoing.clone()).await {
                // Only refusals of the link itself name its state.
                Err(refusal) if refusal.details.contains_key("link") => down = Some(refusal),
                answer => return answer,
            }
        }
        queue::keep(&self.shared, &agent, &outgoing, down).await
    }
}

/// Forgets a call without a waiting caller, and cancels it at the coordinator if that has it.
struct Ticket<'a> {
    shared: &'a Shared,
    number: i64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.shared.pending().forget(self.number) {
            self.shared.to_write.notify_one();
        }
    }
}

impl Shared {
    fn facts(&self) -> MutexGuard<'_, SessionChange> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prompts(&self) -> MutexGuard<'_, Prompts> {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the facts to report now, including a typed prompt if there is one.
    fn report(&self, now: Instant) -> SessionChange {
        SessionChange {
            prompted: self.prompts().report(now),
            ..self.facts().clone()
        }
    }

    fn known(&self) -> MutexGuard<'_, queue::JournalState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, Option<ShownLog>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the reason for a refusal passes by itself.
fn passes(refusal: &Refusal) -> bool {
    matches!(
        refusal.code,
        ErrorCode::CoordDown
            | ErrorCode::StoreUnavailable
            | ErrorCode::RateLimited
            | ErrorCode::Timeout
    )
}

/// Returns whether a call adds messages to inboxes, whose order must be kept.
fn keeps_order(call: &Call) -> bool {
    matches!(
        call,
        Call::SendMessage(_) | Call::Reply(_) | Call::Broadcast(_)
    )
}

fn wants_queue(call: &Call) -> bool {
    match call {
        Call::SendMessage(send) => send.queue_if_down == Some(true),
        Call::Reply(reply) => reply.queue_if_down == Some(true),
        _ => false,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
