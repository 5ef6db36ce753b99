//! One link of a proxy or a person's command, from `hello` to its end. It is one task with one loop; slow readers get no
//! queue.

mod attendance;
mod bounds;
mod connection;
mod delivery;
mod end;
mod finished;
mod hello;
mod incoming;
mod interruptions;
mod ledger;
mod missing;
mod outbox;
mod pace;
mod recorded;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use c3po_shared::audit::Event as AuditEvent;
use c3po_shared::catalogue::{Call, Reply, Tool};
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::{HELLO_MAX, SILENCE_MAX};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::Outgoing;
use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::bounds::{CALLS_AT_ONCE, ENDED_WAITS, SAVED, TOGETHER, TURN};
use self::connection::{Connection, Gone};
use self::delivery::Delivery;
use self::end::EndReason;
use self::finished::{Calls, Finished, Running, beside};
use self::interruptions::{Interruption, Interruptions};
use self::ledger::{Ledger, Noted};
use self::outbox::Outbox;
use crate::auth::Stay;
use crate::pace::Pace;
use crate::presence::{Listener, News, Present, ReadingAlong, Subject};
use crate::request::{self, CALL_DEADLINE, Caller, Services};
use crate::store::StoreError;
use crate::unfinished::Charge;

pub(crate) use self::bounds::MESSAGE_DEADLINE;

/// Serves one link until it ends or `stop` is cancelled.
///
/// Only the state of the running link stays in the future. Beginning and end are boxed, so that their memory is freed.
pub(crate) fn serve(
    upgraded: Upgraded,
    stay: Stay,
    services: Arc<Services>,
    stop: CancellationToken,
) -> impl Future<Output = ()> {
    let greeting = Box::pin(greet(upgraded, stay, services, stop));
    async move {
        let Some(mut session) = greeting.await else {
            return;
        };
        let end = session.run().await;
        // Pending store calls have their own deadline, which is no later than this.
        let _ = timeout(CALL_DEADLINE, Box::pin(session.finish())).await;
        session.note_end(&end);
        Box::pin(session.leave(&end)).await;
        tracing::info!(agent.id = %session.caller.agent, "agent {} disconnected: {end:?}", session.caller.agent);
    }
}

/// Begins a link. Returns `None` if it ended during that.
async fn greet(
    upgraded: Upgraded,
    stay: Stay,
    services: Arc<Services>,
    stop: CancellationToken,
) -> Option<Session> {
    let account = services
        .unfinished
        .account(stay.principal().room(), HELLO_MAX);
    let mut connection = Connection::new(TokioIo::new(upgraded), account);
    let receiving = hello::receive(&mut connection, &services, stay.principal());
    let admitted = tokio::select! {
        admitted = receiving => admitted?,
        () = stop.cancelled() => return None,
        () = stay.principal().ended() => return None,
    };
    let agent = &admitted.caller.agent;
    tracing::info!(agent.id = %agent, "agent {agent} connected");
    Some(Session::new(connection, stay, services, admitted, stop))
}

/// The events of the loop.
enum Woken {
    Frame(Result<Option<(String, Option<Charge>)>, Gone>),
    Finished(Option<Box<Finished>>),
    Noted(Noted),
    Delivery(delivery::PushedPage),
    Renewed(Result<bool, StoreError>),
    News(News),
    Interrupted(Interruption),
    Tick,
}

struct Session {
    connection: Connection,
    /// Counts the link for its credential.
    stay: Stay,
    outbox: Outbox,
    /// Fires no later than the next deadline.
    alarm: Pin<Box<Sleep>>,
    services: Arc<Services>,
    caller: Caller,
    stop: CancellationToken,
    present: Option<Present>,
    interruptions: Interruptions,
    /// One that came while the link waited for its turn.
    interrupted: Option<Interruption>,
    /// Set if a terminal prints the messages of `human` as they arrive.
    reading_along: Option<ReadingAlong>,
    listener: Listener,
    delivery: Delivery,
    ledger: Ledger,
    pace: Pace,
    calls: Calls,
    /// The calls, and the entry of the ledger, that ended while replies were written.
    finished: VecDeque<Box<Finished>>,
    noted: Option<Noted>,
    running: HashMap<CallId, Running>,
    renewal: Option<BoxFuture<'static, Result<bool, StoreError>>>,
    renewed: Instant,
    /// Waits that ended with a message while the lease may have run out.
    unsure: Vec<Finished>,
    heard: Instant,
    drain_until: Option<Instant>,
    /// The last waits that ended with a message. A cancellation may arrive before the reply was used.
    ended_waits: VecDeque<(CallId, MessageId)>,
    /// Whether the session has made no call yet.
    is_new: bool,
    /// The latest context that the host reported.
    context: u64,
}

impl Session {
    fn new(
        connection: Connection,
        stay: Stay,
        services: Arc<Services>,
        admitted: hello::Admitted,
        stop: CancellationToken,
    ) -> Self {
        let hello::Admitted {
            caller,
            present,
            reading_along,
            delivered,
            pushes,
            is_new,
            context,
        } = admitted;
        let (now, principal) = (Instant::now(), Arc::clone(stay.principal()));
        Self {
            interruptions: Interruptions::new(stop.clone(), present.as_ref(), principal),
            interrupted: None,
            stop,
            listener: services
                .presence
                .listen(Subject::Inbox(caller.agent.clone())),
            delivery: Delivery::new(delivered, pushes),
            connection,
            stay,
            outbox: Outbox::default(),
            alarm: Box::pin(sleep_until(now + SILENCE_MAX)),
            services,
            caller,
            present,
            reading_along,
            ledger: Ledger::default(),
            pace: Pace::with_burst(SAVED),
            calls: FuturesUnordered::new(),
            finished: VecDeque::new(),
            noted: None,
            running: HashMap::new(),
            renewal: None,
            renewed: now,
            unsure: Vec::new(),
            heard: now,
            drain_until: None,
            ended_waits: VecDeque::new(),
            is_new,
            context,
        }
    }

    async fn run(&mut self) -> EndReason {
        let principal = Arc::clone(self.stay.principal());
        self.delivery.ring(self.waits());
        self.pump();
        loop {
            let event = self.next_event().await;
            let began = Instant::now();
            let handled = self.handle(event, began);
            principal.turns().note(began.elapsed());
            let written = self.write().await;
            match handled {
                // The reason for the end is more important than whether the last replies can be written.
                Err(end) => return end,
                Ok(_) if written.is_err() || self.is_over() => return EndReason::Gone,
                Ok(has_more) if has_more || principal.turns().is_busy() => {
                    // No interruption waits for it.
                    let (interruptions, interrupted) =
                        (&mut self.interruptions, &mut self.interrupted);
                    let turn = async {
                        tokio::select! {
                            interruption = interruptions.next() => *interrupted = Some(interruption),
                            _ = principal.turns().next() => {}
                        }
                    };
                    let (calls, ledger) = (&mut self.calls, &mut self.ledger);
                    beside(turn, calls, ledger, &mut self.finished, &mut self.noted).await;
                }
                Ok(_) => {}
            }
        }
    }

    /// Handles an event, and more that are ready, as many as are handled together. Returns whether there may be more.
    fn handle(&mut self, first: Woken, began: Instant) -> Result<bool, EndReason> {
        let mut event = Some(first);
        for _ in 0..TOGETHER {
            let ready = || self.next_event().now_or_never();
            let Some(event) = event.take().or_else(ready) else {
                return Ok(false);
            };
            self.on(event)?;
            self.pump();
            if self.outbox.is_full() || began.elapsed() >= TURN {
                break;
            }
        }
        Ok(true)
    }

    /// Records in the audit that another session has taken over the agent. Any other end is recorded with the change in the
    /// store, and a session that drains comes back.
    fn note_end(&self, end: &EndReason) {
        if self.caller.tenure.is_some() && *end == EndReason::TakenOver {
            let entry = self.caller.entry(AuditEvent::SessionEnded);
            self.services.audit.note(entry.verb("taken_over"));
        }
    }

    /// Returns whether the host has been silent, or its reply overdue, for too long.
    fn is_over(&self) -> bool {
        self.heard.elapsed() >= SILENCE_MAX || self.delivery.is_overdue()
    }

    /// Writes the replies.
    async fn write(&mut self) -> Result<(), Gone> {
        let writing = self.connection.send(&mut self.outbox);
        let (calls, ledger) = (&mut self.calls, &mut self.ledger);
        beside(writing, calls, ledger, &mut self.finished, &mut self.noted).await
    }

    async fn next_event(&mut self) -> Woken {
        // First, so that no entry of the ledger starts before it.
        if let Some(noted) = self.noted.take() {
            return Woken::Noted(noted);
        }
        if let Some(finished) = self.finished.pop_front() {
            return Woken::Finished(Some(finished));
        }
        if let Some(interruption) = self.interrupted.take() {
            return Woken::Interrupted(interruption);
        }
        let rests_until = self.pace.rests_until();
        let deadline = rests_until
            .into_iter()
            .fold(self.next_deadline(), Instant::min);
        if self.alarm.is_elapsed() || deadline < self.alarm.deadline() {
            self.alarm.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            interruption = self.interruptions.next() => Woken::Interrupted(interruption),
            Some(finished) = self.calls.next(), if !self.calls.is_empty() => Woken::Finished(finished),
            noted = self.ledger.noted() => Woken::Noted(noted),
            page = self.delivery.page() => Woken::Delivery(page),
            renewed = resolved(&mut self.renewal) => Woken::Renewed(renewed),
            frame = self.connection.receive(), if rests_until.is_none() && self.ledger.has_room() => Woken::Frame(frame),
            news = self.listener.news() => Woken::News(news),
            () = self.alarm.as_mut() => Woken::Tick,
        }
    }

    /// Handles an event. Nothing here waits: replies go into the outbox.
    fn on(&mut self, event: Woken) -> Result<(), EndReason> {
        match event {
            Woken::Frame(frame) => {
                if let Some((text, held)) = frame? {
                    let is_crowded = self.calls_at_work() >= CALLS_AT_ONCE;
                    self.pace
                        .note(pace::price(text.len(), usize::from(is_crowded)));
                    self.on_frame(&text, held)?;
                }
            }
            Woken::Finished(None) => {}
            // A message is given only to a session that certainly still holds the agent.
            Woken::Finished(Some(finished))
                if finished.hands_a_message() && self.may_be_outdated() =>
            {
                self.unsure.push(*finished);
                self.renew();
            }
            Woken::Delivery(_) | Woken::News(_) if self.may_be_outdated() => self.renew(),
            Woken::Finished(Some(finished)) => self.on_finished(finished),
            Woken::Noted(noted) => self.on_noted(noted)?,
            Woken::Delivery(page) if page.is_refused() => return Err(EndReason::TakenOver),
            Woken::Delivery(page) => {
                let (budget, room) = (&self.services.unfinished, self.stay.principal().room());
                if let Some((frame, held)) =
                    self.delivery.frame(page, &self.caller.memory, budget, room)
                {
                    self.outbox.push_held(frame, held);
                }
            }
            Woken::Renewed(renewed) => self.on_renewed(renewed)?,
            Woken::News(arrivals) => self.delivery.came(arrivals, self.waits()),
            Woken::Interrupted(Interruption::Replaced) => return Err(EndReason::TakenOver),
            Woken::Interrupted(Interruption::Revoked) => return Err(EndReason::Revoked),
            Woken::Interrupted(Interruption::Stop) => self.drain(),
            Woken::Tick => {}
        }
        let drained = self.calls_at_work() == 0 && self.ledger.is_empty();
        match self.drain_until {
            Some(until) if drained || Instant::now() >= until => Err(EndReason::Draining),
            _ => Ok(()),
        }
    }

    /// Starts the entries of the ledger and the page of deliveries that may start.
    fn pump(&mut self) {
        loop {
            let at_work = self.calls_at_work();
            let has_place = |call: &Call| call.waits() || at_work < CALLS_AT_ONCE;
            let Some(call) = self.ledger.start(&self.services, &self.caller, has_place) else {
                break;
            };
            if call.at.elapsed() < CALL_DEADLINE {
                self.start_call(call);
            } else {
                // Earlier entries blocked in the store; this call never began.
                self.outbox.refuse(
                    &call.id,
                    Refusal::store_unavailable().detail("applied", "no"),
                );
            }
        }
        self.delivery
            .start(&self.services, &self.caller, self.stay.principal().room());
    }

    fn start_call(&mut self, started: ledger::ReadyCall) {
        let ledger::ReadyCall {
            id,
            call_id,
            call,
            held,
            ..
        } = started;
        let (services, caller) = (Arc::clone(&self.services), self.caller.clone());
        let (tool, waits) = (call.tool(), call.waits());
        // A wait lasts longer than a charge may be held.
        let (until_stored, held) = match tool {
            Tool::AskUser => (held, None),
            _ => (None, held),
        };
        let (abort, registration) = AbortHandle::new_pair();
        let work = async move {
            let outcome = request::perform(&services, &caller, call_id, call, until_stored).await;
            Box::new(Finished {
                id,
                call: call_id,
                tool,
                outcome,
                held,
            })
        };
        self.running.insert(call_id, Running { waits, abort });
        // Mapped here, because an async block around it would store the future twice.
        self.calls
            .push(Box::pin(Abortable::new(work, registration).map(Result::ok)));
    }

    /// Returns how many calls are running, not counting waits.
    fn calls_at_work(&self) -> usize {
        self.running.len() - self.waits()
    }

    fn waits(&self) -> usize {
        self.running
            .values()
            .filter(|running| running.waits)
            .count()
    }

    fn next_deadline(&self) -> Instant {
        let silence = self.heard + SILENCE_MAX;
        [self.delivery.next_deadline(), self.drain_until]
            .into_iter()
            .flatten()
            .fold(silence, Instant::min)
    }

    fn on_finished(&mut self, finished: Box<Finished>) {
        self.running.remove(&finished.call);
        match finished.outcome {
            Ok(done) => {
                let sent = match done.held.or(finished.held) {
                    None if finished.tool.only_reads() => {
                        let room = self.stay.principal().room();
                        self.outbox.reply_if_room(
                            &finished.id,
                            &done.reply,
                            &self.services.unfinished,
                            room,
                        )
                    }
                    held => {
                        self.outbox
                            .push_held(Outgoing::result(&finished.id, &done.reply).text(), held);
                        true
                    }
                };
                if let (Tool::WaitForMessage, Reply::Message(message)) =
                    (finished.tool, &done.reply)
                {
                    if sent {
                        self.ended_waits.truncate(ENDED_WAITS - 1);
                        self.ended_waits
                            .push_front((finished.call, message.id.clone()));
                    } else {
                        self.give_back(&message.id);
                    }
                }
                if let Some(renamed) = done.renamed {
                    self.become_other(renamed);
                }
            }
            Err(refusal) => {
                tracing::debug!(tool = finished.tool.name(), "refused: {refusal}");
                if refusal.code == ErrorCode::Conflict {
                    // Another session may hold the agent, which ends the link.
                    self.renew();
                }
                self.outbox.refuse(&finished.id, refusal);
            }
        }
    }

    /// The session is in a new context, which has not been shown any message: all are delivered again.
    fn begin_context(&mut self) {
        self.caller.memory.forget_handed();
        self.delivery.begin_again();
        let inbox = Subject::Inbox(self.caller.agent.clone());
        self.services.presence.wake(&inbox, &[]);
    }

    /// Continues the session as another agent; running calls end as the agent that started them.
    fn become_other(&mut self, caller: Caller) {
        tracing::info!(agent.id = %caller.agent, "agent {} is now {}", self.caller.agent, caller.agent);
        let present = self.services.presence.enter(&caller.agent);
        let principal = Arc::clone(self.stay.principal());
        self.interruptions = Interruptions::new(self.stop.clone(), Some(&present), principal);
        self.present = Some(present);
        let inbox = Subject::Inbox(caller.agent.clone());
        self.listener = self.services.presence.listen(inbox);
        self.delivery.begin_again();
        // A renewal for the old name could end the session under the new one.
        self.renewal = None;
        self.delivery.ring(0);
        self.renewed = Instant::now();
        self.caller = caller;
    }
}

async fn resolved<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
