//! Frames from the host: each is answered at once, or queued in order of arrival.

use c3po_shared::catalogue::{Call, Tool};
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::{CALLS_IN_FLIGHT, CONTEXT_MAX, LABEL_MAX, SILENCE_MAX};
use c3po_shared::receipt::Progress;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::check_plain;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::{
    CallParams, Frame, FrameError, Heartbeat, HeartbeatReply, Outgoing, RequestId, SessionChange,
    ToCoordinator,
};
use tokio::time::Instant;

use super::bounds::{REACH_MAX, RENEWAL_PAUSE};
use super::ledger::LedgerEntry;
use super::{EndReason, Session};
use crate::clock;
use crate::json::{FRAME_VALUES_MAX, check_values};
use crate::presence::Subject;
use crate::unfinished::Charge;

impl Session {
    pub(super) fn on_frame(&mut self, text: &str, held: Option<Charge>) -> Result<(), EndReason> {
        self.heard = Instant::now();
        let checked = check_values(text.as_bytes(), FRAME_VALUES_MAX).map_err(FrameError::Shape);
        match checked.and_then(|()| Frame::parse(text)) {
            Ok(Frame::Request { id, method, params }) => {
                match ToCoordinator::parse(&method, params) {
                    Ok(method) => return self.on_method(Some(id), method, held, text.len()),
                    Err(refusal) => self.outbox.refuse(&id, refusal),
                }
            }
            Ok(Frame::Notification { method, params }) => {
                // JSON-RPC requires malformed notifications to be ignored.
                if let Ok(method) = ToCoordinator::parse(&method, params) {
                    return self.on_method(None, method, held, text.len());
                }
            }
            Ok(Frame::Response { id, outcome }) => {
                if let Some(delivered) = self.delivery.answered(&id, outcome.is_ok()) {
                    self.ledger.delivered(delivered, self.context);
                }
            }
            Err(error) => self
                .outbox
                .push(Outgoing::error(None, &error.rpc_error()).text()),
        }
        Ok(())
    }

    fn on_method(
        &mut self,
        id: Option<RequestId>,
        method: ToCoordinator<'_>,
        held: Option<Charge>,
        bytes: usize,
    ) -> Result<(), EndReason> {
        match (method, id) {
            (ToCoordinator::Goodbye, _) => return Err(EndReason::Goodbye),
            (ToCoordinator::Cancel(cancel), _) => self.cancel(cancel.call_id),
            (ToCoordinator::Session(change), _) => self.on_change(change),
            (ToCoordinator::Receipt(progress), id) => self.on_receipt(id, progress, held, bytes),
            (ToCoordinator::Heartbeat(beat), Some(id)) => self.on_heartbeat(&id, &beat),
            (ToCoordinator::Call(params), Some(id)) => self.on_call(id, params, held, bytes),
            (ToCoordinator::Hello(_), Some(id)) => {
                self.outbox
                    .refuse(&id, Refusal::invalid("hello was already sent on this link"));
            }
            // Without an id, no reply can be sent.
            (_, None) => {}
        }
        Ok(())
    }

    fn on_receipt(
        &mut self,
        id: Option<RequestId>,
        progress: Progress,
        held: Option<Charge>,
        bytes: usize,
    ) {
        if let Err(refusal) = progress.check_reported() {
            if let Some(id) = id {
                self.outbox.refuse(&id, refusal);
            }
            return;
        }
        if let Some(id) = id.as_ref().filter(|id| self.ledger.missing.is_ahead(id)) {
            self.postpone(id, Refusal::store_unavailable());
            return;
        }
        self.ledger.push(LedgerEntry::Receipt {
            id,
            progress,
            held,
            bytes,
        });
    }

    fn on_heartbeat(&mut self, id: &RequestId, beat: &Heartbeat) {
        if self.renewed.elapsed() >= RENEWAL_PAUSE {
            self.renew();
        }
        self.ledger.push_owed();
        let server_time = clock::now();
        if let Some(present) = &self.present {
            present.clock_is(beat.timestamp.millis_ahead_of(server_time));
        }
        let reply = HeartbeatReply {
            timestamp: beat.timestamp,
            server_time,
            agents_online: self.services.presence.agents_online(),
        };
        self.outbox.answer(id, &reply);
    }

    fn on_call(
        &mut self,
        id: RequestId,
        params: CallParams<'_>,
        held: Option<Charge>,
        bytes: usize,
    ) {
        match Call::parse(&params.tool, params.arguments) {
            Ok(_) if !params.call_id.is_fresh() => {
                let error = "call_id is no UUIDv7";
                self.outbox.refuse(&id, Refusal::invalid(error));
            }
            Ok(_) if self.running.len() + self.ledger.calls() >= CALLS_IN_FLIGHT => {
                self.outbox.refuse(&id, Refusal::too_many_calls());
            }
            Ok(_)
                if self.running.contains_key(&params.call_id)
                    || self.ledger.holds(params.call_id) =>
            {
                let error = "a call with this call_id is in progress on this link";
                self.outbox.refuse(
                    &id,
                    Refusal::new(ErrorCode::Conflict, error).suggest("Wait for its reply."),
                );
            }
            Ok(call) => {
                // A call that reads texts takes room for them; if it kept its own charge meanwhile, such calls could wait for
                // each other.
                let reads = match &call {
                    Call::AskUser(ask) => ask.question_id.is_some(),
                    call => matches!(
                        call.tool(),
                        Tool::WaitForMessage | Tool::GetMessages | Tool::GetThread
                    ),
                };
                let held = held.filter(|_| !reads);
                let (tool, call_id, at) = (call.tool(), params.call_id, Instant::now());
                self.accept(
                    tool,
                    LedgerEntry::Call {
                        id,
                        call_id,
                        call: Box::new(call),
                        held,
                        bytes,
                        at,
                    },
                );
            }
            Err(refusal) => self.outbox.refuse(&id, refusal),
        }
    }

    /// Queues a call behind the receipts that arrived before it.
    fn accept(&mut self, tool: Tool, call: LedgerEntry) {
        if self.renewed.elapsed() >= SILENCE_MAX {
            self.ledger.push(LedgerEntry::Renew);
        }
        self.ledger.push_owed();
        let shows_life = std::mem::take(&mut self.is_new) && tool != Tool::SetStatus;
        self.ledger.push(call);
        if shows_life {
            // A session that calls is no longer starting. The change is queued after the call, which need not wait for it.
            self.ledger.change(SessionChange {
                state: Some(State::Ready),
                ..SessionChange::default()
            });
        }
    }

    fn cancel(&mut self, call: CallId) {
        self.ledger.withdraw(call);
        if let Some(wait) = self.running.get(&call).filter(|running| running.waits) {
            wait.abort.abort();
            self.running.remove(&call);
        } else if let Some(ended) = self
            .ended_waits
            .iter()
            .position(|(ended, _)| *ended == call)
            && let Some((_, message)) = self.ended_waits.remove(ended)
        {
            // Once: all waits of the agent look at the store then.
            self.give_back(&message);
        }
    }

    /// A message that a wait returned did not reach the session: another way takes it.
    pub(super) fn give_back(&mut self, message: &MessageId) {
        self.caller.memory.take_back(message);
        self.delivery.given_back();
        let inbox = Subject::Inbox(self.caller.agent.clone());
        self.services.presence.wake(&inbox, &[]);
    }

    /// Queues a change of the session. Changes from a person, who has no session, are ignored.
    fn on_change(&mut self, mut change: SessionChange) {
        if self.caller.tenure.is_none() {
            return;
        }
        if let Err(refusal) = check_change(&change) {
            tracing::debug!(agent.id = %self.caller.agent, "a change of the session was ignored: {refusal}");
            return;
        }
        self.is_new &= change.state.is_none();
        change.context = change
            .context
            .filter(|context| (self.context + 1..=CONTEXT_MAX).contains(context));
        self.context = change.context.unwrap_or(self.context);
        self.ledger.change(change);
    }
}

/// Refuses a change that is too large, as `hello` does.
fn check_change(change: &SessionChange) -> Result<(), Refusal> {
    if let Some(id) = &change.session_id {
        check_plain("session_id", id)?;
        let count = id.chars().count();
        if count > LABEL_MAX {
            return Err(Refusal::too_large("session_id", count, LABEL_MAX));
        }
    }
    let reach = change.reach.as_ref().map_or(0, Vec::len);
    if reach > REACH_MAX {
        Err(Refusal::invalid(format!("reach has {reach} ways")))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::receipt::Via;

    use super::*;

    #[test]
    fn a_change_is_as_small_as_a_hello() {
        let check = |id: &str, reach: usize| {
            let change = SessionChange {
                session_id: Some(id.to_owned()),
                reach: Some(vec![Via::Stop; reach]),
                ..SessionChange::default()
            };
            check_change(&change).is_ok()
        };
        assert!(check("bd6b9711-6270-4cd5-a1ae-c1ae84c78bf0", REACH_MAX));
        assert!(!check(&"x".repeat(LABEL_MAX + 1), 0));
        assert!(!check("a\u{1b}[2J", 0));
        assert!(!check("a", REACH_MAX + 1));
    }
}
