//! Requests of the client for a person's decision, relayed to people who are elsewhere.
//!
//! The client runs a hook while its dialog is open, and uses whichever decision comes first. [`FrontDesk`] answers that hook:
//! `request` makes the question and the output, `verdicts` holds the decisions that arrive, `watch` and `record` follow the
//! dialog in the client's own files. Nothing is decided by silence: without a verdict the hook prints nothing. When the relay is
//! turned off, open requests are withdrawn.

mod plan;
mod record;
mod request;
mod verdicts;
mod watch;

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::catalogue::{AckMessages, Call, Conclude, Sent};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{process_age, session_file};
use crate::config::{Config, Coordinators};
use crate::deliver::LastHop;
use crate::link::Link;
use crate::local::Desk;
use crate::local::protocol::{Answer, Event, Name};
use request::Asked;
pub use verdicts::{Incoming, Verdicts};
use watch::Watch;

/// The offers of relayed verdicts are numbered from here, beyond those of messages.
const FIRST_OFFER: u64 = 1 << 63;
/// How long a conclusion is repeated.
const RETRIED_FOR: Duration = Duration::from_secs(600);
/// How long after the end of a hook its client is looked for: a client that ends takes its hooks with it.
const CLIENT_ENDS: Duration = Duration::from_millis(300);
/// How often an open request looks whether the relay is still on.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// How often verdicts that nothing waits for are removed.
const CLEANED: Duration = Duration::from_secs(30);
/// Why a request stays at the terminal after the relay was turned off, or to other coordinators.
const OFF: &str = "the relay is off, or goes to other coordinators";
/// Why a plan that was allowed stays there.
const PLAN_CHANGED: &str = "the file of the plan has another text than the one that was allowed";

/// Answers the hooks of a session: requests for a decision here, and all others by the last hop.
pub struct FrontDesk {
    hop: LastHop,
    relay: Arc<Relay>,
}

impl FrontDesk {
    /// Makes the desk of a session.
    pub fn new(hop: LastHop, relay: Arc<Relay>) -> Self {
        Self { hop, relay }
    }

    fn relay_of(&self, offer: u64) -> Option<&Arc<Relay>> {
        (offer >= FIRST_OFFER).then_some(&self.relay)
    }
}

impl Desk for FrontDesk {
    async fn heard(&self, event: Event) -> Answer {
        let asked = match event.name {
            Name::PermissionRequest => Asked::of(&event),
            _ => None,
        };
        let answer = self.hop.heard(event).await;
        let Some(asked) = asked else {
            return answer;
        };
        match self.relay.link.relays().await {
            Some(to) => Arc::clone(&self.relay).ask(asked, &to).await,
            // It stays at the terminal.
            None => answer,
        }
    }

    fn printed(&self, offer: u64) {
        match self.relay_of(offer) {
            Some(relay) => relay.printed(offer),
            None => self.hop.printed(offer),
        }
    }

    fn not_printed(&self, offer: u64) {
        match self.relay_of(offer) {
            Some(relay) => drop(relay.offered(offer)),
            None => self.hop.not_printed(offer),
        }
    }
}

/// Relays the requests of one session.
pub struct Relay {
    link: Link,
    verdicts: Arc<Verdicts>,
    client: u32,
    session_file: PathBuf,
    /// The folder of the client's settings.
    claude_dir: PathBuf,
    /// How many dialogs are relayed now: of the session itself, and of its subagents.
    open: [AtomicUsize; 2],
    last_offer: AtomicU64,
    /// The verdicts that hooks are printing.
    offers: Mutex<HashMap<u64, Offer>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A verdict on its way into the client.
struct Offer {
    question: MessageId,
    asked: Asked,
    verdict: Message,
    watch: Arc<Watch>,
}

/// Counts an open dialog.
struct OpenDialog<'a>(&'a AtomicUsize);

impl<'a> OpenDialog<'a> {
    fn count(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for OpenDialog<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question without a verdict. If its hook ends, it is withdrawn.
struct Unanswered {
    relay: Arc<Relay>,
    question: Option<MessageId>,
    asked: Asked,
    watch: Arc<Watch>,
    /// How it ended, if that is known without a look at the dialog.
    ended: Option<Via>,
}

impl Unanswered {
    /// Returns the output of a hook whose dialog has closed.
    fn closed(mut self) -> Answer {
        self.ended = Some(Via::Terminal);
        Answer::default()
    }

    /// Returns the output of a hook whose request no coordinator takes. One that may have been stored is withdrawn.
    fn refused(mut self, refusal: &Refusal) -> Answer {
        let applied = refusal.details.get("applied");
        if applied.is_none_or(|known| known != "unknown") {
            self.question = None;
        }
        self.stays(refusal)
    }

    /// Returns the output of a hook whose request only the terminal can decide from now on.
    fn stays(mut self, why: impl Display) -> Answer {
        tracing::warn!("a request of the client stays at the terminal: {why}");
        self.ended = Some(Via::TimeOut);
        Answer::default()
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(question) = self.question.take() {
            let (relay, watch) = (Arc::clone(&self.relay), Arc::clone(&self.watch));
            let (asked, ended) = (self.asked.clone(), self.ended);
            self.relay.tasks.spawn(async move {
                // A person who declines at the terminal ends the hook, and so do the end of the client and the hook's time-out.
                sleep(CLIENT_ENDS).await;
                let via = if process_age(relay.client).is_none() {
                    Via::SessionEnd
                } else if let Some(via) = ended {
                    via
                } else if watch.outlasts(&asked).await {
                    Via::TimeOut
                } else {
                    Via::Terminal
                };
                relay.conclude(question, Stage::Withdrawn, via).await;
            });
        }
    }
}

impl Relay {
    /// Makes the relay of a session, whose tasks run until `stop`.
    pub fn new(
        config: &Config,
        link: Link,
        verdicts: Arc<Verdicts>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            link,
            verdicts,
            client: config.client,
            session_file: session_file(&config.places.claude_dir, config.client),
            claude_dir: config.places.claude_dir.clone(),
            open: Default::default(),
            last_offer: AtomicU64::new(FIRST_OFFER),
            offers: Mutex::default(),
            tasks,
            stop,
        })
    }

    /// Removes verdicts that came too late, until `stop`.
    pub async fn run(self: Arc<Self>) {
        while self
            .stop
            .run_until_cancelled(sleep(CLEANED))
            .await
            .is_some()
        {
            for late in self.verdicts.take_unclaimed(CLEANED) {
                self.acknowledge(late).await;
            }
        }
    }

    /// Asks people of those coordinators, and returns the output of the hook: the first verdict, or nothing if before that the
    /// dialog closes, the relay is turned off, or it goes to others.
    async fn ask(self: Arc<Self>, asked: Asked, to: &Arc<Coordinators>) -> Answer {
        let _open = OpenDialog::count(&self.open[usize::from(asked.is_of_subagent())]);
        let watch = Arc::new(Watch::begin(&self.session_file, &asked));
        let is_sole = || self.is_sole(asked.is_of_subagent());
        let call = CallId::fresh();
        let mut unanswered = Unanswered {
            relay: Arc::clone(&self),
            question: Some(self.id_of(call)),
            asked: asked.clone(),
            watch: Arc::clone(&watch),
            ended: None,
        };
        let verdict = tokio::select! {
            biased;
            () = watch.dialog_closes(&asked, is_sole) => return unanswered.closed(),
            () = self.turns_off(to) => return unanswered.stays(OFF),
            verdict = self.decide(call, &mut unanswered, to) => verdict,
        };
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(refusal) => return unanswered.refused(&refusal),
        };
        let Some(question) = unanswered.question.take() else {
            return Answer::default();
        };
        let (relay, id) = (Arc::clone(&self), verdict.id.clone());
        self.tasks.spawn(async move { relay.acknowledge(id).await });
        if self.is_off(to).await {
            return unanswered.stays(OFF);
        }
        if request::allows(&verdict) && plan::has_changed(asked.input(), &self.claude_dir) {
            return unanswered.stays(PLAN_CHANGED);
        }
        let Some(stdout) = asked.output(&verdict) else {
            return Answer::default();
        };
        let number = self.last_offer.fetch_add(1, Ordering::Relaxed);
        let offer = Offer {
            question,
            asked: asked.clone(),
            verdict,
            watch: Arc::clone(&watch),
        };
        self.offers().insert(number, offer);
        Answer {
            stdout,
            offer: Some(number),
            ..Answer::default()
        }
    }

    /// Waits until the relay to those coordinators is off. One that is unreachable leaves it on.
    async fn turns_off(&self, to: &Coordinators) {
        loop {
            sleep(LOOKED_AT).await;
            if self.is_off(to).await {
                return;
            }
        }
    }

    /// Returns whether the relay to those coordinators is off: by a link to another one, or by two looks, because a file that is
    /// being replaced may be missing for a moment.
    async fn is_off(&self, to: &Coordinators) -> bool {
        if !self.link.is_to(to) {
            return true;
        }
        if self.link.relays_to(to).await {
            return false;
        }
        sleep(LOOKED_AT).await;
        !self.link.relays_to(to).await
    }

    /// Asks people, and returns the first verdict.
    async fn decide(
        &self,
        call: CallId,
        unanswered: &mut Unanswered,
        to: &Arc<Coordinators>,
    ) -> Result<Message, Refusal> {
        let question = self.send(call, &unanswered.asked, to).await?;
        unanswered.question = Some(question.clone());
        let verdict = self.verdicts.expect(&question);
        unanswered.watch.identify(&unanswered.asked).await;
        verdict.await.map_err(|_| superseded())
    }

    /// Returns whether no other dialog can be the one for which the session waits. Subagents in the background have none while
    /// their hook runs.
    fn is_sole(&self, is_of_subagent: bool) -> bool {
        let [session, subagents] =
            [0, 1].map(|kind: usize| self.open[kind].load(Ordering::Relaxed));
        session == usize::from(!is_of_subagent) && (!is_of_subagent || subagents == 1)
    }

    /// Returns the id that the question of that call gets, unless another message has it.
    fn id_of(&self, call: CallId) -> MessageId {
        let agent = self.link.status().borrow().agent.clone();
        MessageId::of_call(&agent, &AgentId::human(), call, 0)
    }

    /// Stores the question, under one call id however often it is sent.
    async fn send(
        &self,
        id: CallId,
        asked: &Asked,
        to: &Arc<Coordinators>,
    ) -> Result<MessageId, Refusal> {
        let reply = self.link.relay_until_done(id, asked.call(), to).await?;
        Ok(reply.read::<Sent>()?.message.id)
    }

    fn offers(&self) -> MutexGuard<'_, HashMap<u64, Offer>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self, number: u64) -> Option<Offer> {
        self.offers().remove(&number)
    }

    /// The hook has printed the verdict and ended: the client decides about its effect now.
    fn printed(self: &Arc<Self>, number: u64) {
        let Some(offer) = self.offered(number) else {
            return;
        };
        let relay = Arc::clone(self);
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(relay.follow(offer)).await;
        });
    }

    async fn follow(&self, offer: Offer) {
        let Offer {
            question,
            asked,
            verdict,
            watch,
        } = offer;
        if !watch.takes(&asked, &verdict).await {
            return;
        }
        self.conclude(question.clone(), Stage::Taken, Via::Transcript)
            .await;
        if watch.applies(&asked, &verdict).await {
            self.conclude(question, Stage::Applied, Via::Transcript)
                .await;
        }
    }

    async fn conclude(&self, message_id: MessageId, stage: Stage, via: Via) {
        let call = Call::Conclude(Conclude {
            message_id,
            stage,
            via,
        });
        self.repeat(call).await;
    }

    async fn acknowledge(&self, verdict: MessageId) {
        let message_ids = vec![verdict];
        self.repeat(Call::AckMessages(AckMessages { message_ids }))
            .await;
    }

    /// Makes a call until a coordinator answers it.
    async fn repeat(&self, call: Call) {
        let calling = self.link.call_until_done(CallId::fresh(), call);
        // After that, the coordinator ends questions of sessions that are over.
        if let Ok(Err(refusal)) = timeout(RETRIED_FOR, calling).await {
            tracing::debug!("a relayed request was not concluded: {refusal}");
        }
    }
}

/// Returns the refusal of a request whose verdict another hook awaits now.
fn superseded() -> Refusal {
    Refusal::new(ErrorCode::Conflict, "another hook awaits its verdict")
}
