//! One call on its way to the coordinator, under one id on every connection, and its reply.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{
    AskUser, Call, Received, RequestPermission, TimedOut, UserAnswer, WaitForMessage,
};
use c3po_shared::ids::CallId;
use c3po_shared::limits::{ASK_DEFAULT, WAIT_DEFAULT};
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::{CallParams, Outgoing, RequestId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Coordinators;

/// The outcome of a call.
pub(crate) type CallResult = Result<Received, Refusal>;

/// The coordinators whose people a request of the client may be written to, and its number.
pub(super) struct Addressees {
    pub(super) number: i64,
    /// `None` if it may be written to none.
    pub(super) coordinators: Option<Arc<Coordinators>>,
}

/// A call to send, on several connections if needed, always under the same id.
#[derive(Debug, Clone)]
pub(super) struct OutgoingCall {
    pub(super) call_id: CallId,
    pub(super) call: Call,
    /// The coordinators whose people may see a request of the client.
    relayed_to: Option<Arc<Coordinators>>,
    began: Instant,
}

impl OutgoingCall {
    pub(super) fn new(call_id: CallId, call: Call, now: Instant) -> Self {
        Self {
            call_id,
            call,
            relayed_to: None,
            began: now,
        }
    }

    /// Makes the call by which people of those coordinators are asked about a request of the client.
    pub(super) fn relayed(
        call_id: CallId,
        request: RequestPermission,
        to: Arc<Coordinators>,
        now: Instant,
    ) -> Self {
        Self {
            relayed_to: Some(to),
            ..Self::new(call_id, Call::RequestPermission(request), now)
        }
    }

    /// Returns the addressees under that number if it asks people for a decision about a request of the client.
    pub(super) fn addressees(&self, number: i64) -> Option<Addressees> {
        matches!(self.call, Call::RequestPermission(_)).then(|| Addressees {
            number,
            coordinators: self.relayed_to.clone(),
        })
    }

    /// Returns when a wait ends by itself; `None` for a call whose caller wants an answer now.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let seconds = match &self.call {
            Call::WaitForMessage(wait) => wait.timeout.unwrap_or(WAIT_DEFAULT),
            // Without the id, the question itself is to be stored.
            Call::AskUser(ask) if ask.question_id.is_some() => ask.timeout.unwrap_or(ASK_DEFAULT),
            _ => return None,
        };
        Some(self.began + Duration::from_secs(seconds))
    }

    /// Returns whether the coordinator answers it at once: no wait, and no question whose caller wants a person's answer.
    pub(super) fn is_answered_at_once(&self) -> bool {
        match &self.call {
            Call::WaitForMessage(_) => false,
            Call::AskUser(ask) => ask.wait == Some(false),
            _ => true,
        }
    }

    /// Returns the reply of a wait that timed out; `None` for any other call.
    pub(super) fn timed_out(&self, now: Instant) -> Option<Received> {
        let waited = now.saturating_duration_since(self.began).as_secs();
        match &self.call {
            Call::WaitForMessage(wait) => Some(Received::of(&match wait.message_id.clone() {
                Some(id) => TimedOut::of(id, waited),
                None => TimedOut::any(waited, 0),
            })),
            Call::AskUser(ask) => {
                let advice = ask.on_no_response.unwrap_or_default();
                let outcome = UserAnswer::no_response(ask.question_id.clone()?, waited, advice);
                Some(Received::of(&outcome))
            }
            _ => None,
        }
    }

    pub(super) fn frame(&self, number: i64, now: Instant) -> String {
        let rest = self.with_what_is_left(now);
        let arguments = rest.as_ref().unwrap_or(&self.call);
        let params = CallParams {
            call_id: self.call_id,
            tool: self.call.tool().name().into(),
            arguments,
        };
        Outgoing::request(&RequestId::Number(number), "call", &params).text()
    }

    /// Returns a wait with the remaining time, at least a second; `None` for any other call.
    fn with_what_is_left(&self, now: Instant) -> Option<Call> {
        let left = self
            .waits_until()?
            .saturating_duration_since(now)
            .as_millis()
            .div_ceil(1_000);
        let seconds = u64::try_from(left).unwrap_or(u64::MAX).max(1);
        let timeout = Some(seconds);
        match self.call.clone() {
            Call::WaitForMessage(wait) => {
                Some(Call::WaitForMessage(WaitForMessage { timeout, ..wait }))
            }
            Call::AskUser(ask) => Some(Call::AskUser(AskUser { timeout, ..ask })),
            _ => None,
        }
    }
}

/// A reply that the driver inspects before it goes to the caller.
pub(super) struct Answered {
    pub(super) call: Box<OutgoingCall>,
    pub(super) reply: oneshot::Sender<CallResult>,
}

impl Answered {
    pub(super) fn pass_on(self, answer: CallResult) {
        // The caller may have gone a moment ago.
        let _ = self.reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_wait_that_is_sent_again_asks_for_the_remaining_time() {
        let now = Instant::now();
        let asked = json!({"question_id": "a::human::00000001", "timeout": 60});
        for (tool, wait) in [
            ("wait_for_message", json!({"timeout": 60})),
            ("ask_user", asked),
        ] {
            check_what_is_left(tool, &wait, now);
        }
    }

    fn check_what_is_left(tool: &str, wait: &Value, now: Instant) {
        let call = Call::of_object(tool, wait.as_object().cloned().unwrap());
        let call = OutgoingCall::new(CallId::fresh(), call.unwrap(), now);
        for (passed, left) in [(0, 60), (20, 40), (59, 1), (70, 1)] {
            let frame = call.frame(1, now + Duration::from_secs(passed));
            let frame: Value = serde_json::from_str(&frame).unwrap();
            assert_eq!(frame["params"]["arguments"]["timeout"], left);
        }
    }
}
