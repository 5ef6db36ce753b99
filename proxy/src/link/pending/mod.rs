//! Every request that has no reply yet, in order, and the frames to write.

use std::collections::{BTreeMap, VecDeque};

use c3po_shared::catalogue::Received;
use c3po_shared::ids::CallId;
use c3po_shared::limits::{CALLS_IN_FLIGHT, IDS_MAX};
use c3po_shared::receipt::Progress;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::{Cancel, Outgoing, RequestId, SessionChange};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::outgoing_call::{Addressees, Answered, CallResult, OutgoingCall};

/// How many unanswered receipts are kept. Beyond it the oldest is dropped, and its message is shown once more.
const RECEIPTS_MAX: usize = 1_024;

/// On how many connections a call is written. A call that breaks each of them is not retried for ever.
const WRITES_MAX: u32 = 5;

/// Every request without a reply.
#[derive(Default)]
pub(super) struct Pending {
    last_number: i64,
    /// The number of the last heartbeat.
    beat: i64,
    /// By number, and so by age.
    entries: BTreeMap<i64, PendingRequest>,
    to_write: VecDeque<ToWrite>,
    /// Receipts that the store could not take for now.
    postponed: Vec<i64>,
    calls: usize,
}

struct PendingRequest {
    body: RequestBody,
    /// How often it was written. After one write it may have been applied.
    writes: u32,
    /// When it was written on the present link.
    written: Option<Instant>,
}

enum RequestBody {
    Call(Box<OutgoingCall>, oneshot::Sender<CallResult>),
    Receipt(Progress),
}

#[derive(PartialEq)]
enum ToWrite {
    Request(i64),
    Cancel(CallId),
    /// The state of the session at that time.
    Facts,
}

impl PendingRequest {
    /// Returns whether it is a receipt.
    fn is_receipt(&self) -> bool {
        matches!(self.body, RequestBody::Receipt(_))
    }

    /// Returns whether it is a call whose caller wants an answer now, and not a wait.
    fn is_impatient(&self) -> bool {
        matches!(&self.body, RequestBody::Call(call, _) if call.waits_until().is_none())
    }

    /// Returns whether it is a call that the coordinator answers at once.
    fn is_owed(&self) -> bool {
        matches!(&self.body, RequestBody::Call(call, _) if call.is_answered_at_once())
    }
}

fn broke_too_often() -> Refusal {
    let error = format!("the link broke {WRITES_MAX} times while this call was in progress");
    Refusal::new(ErrorCode::Internal, error).detail("applied", "unknown")
}

impl Pending {
    /// Returns a number that is unique among the requests of this process.
    pub(super) fn number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns the number of a new heartbeat. A heartbeat is sent once.
    pub(super) fn beat(&mut self) -> i64 {
        self.beat = self.number();
        self.beat
    }

    /// Returns whether that is the number of the last heartbeat.
    pub(super) fn is_beat(&self, number: i64) -> bool {
        self.beat == number
    }

    /// Adds a call. The receiver gets its reply.
    pub(super) fn add_call(
        &mut self,
        call: OutgoingCall,
    ) -> Result<(i64, oneshot::Receiver<CallResult>), Refusal> {
        if self.calls >= CALLS_IN_FLIGHT {
            return Err(Refusal::too_many_calls());
        }
        let (sender, receiver) = oneshot::channel();
        self.calls += 1;
        // Ahead of the call, or its result could show the same messages again.
        self.write_postponed();
        Ok((
            self.add(RequestBody::Call(Box::new(call), sender)),
            receiver,
        ))
    }

    /// Adds a receipt; as several if it names more messages than one frame may.
    pub(super) fn add_receipt(&mut self, mut receipt: Progress) {
        while receipt.message_ids.len() > IDS_MAX {
            let rest = receipt.message_ids.split_off(IDS_MAX);
            let message_ids = std::mem::replace(&mut receipt.message_ids, rest);
            self.add_one_receipt(Progress {
                message_ids,
                ..receipt
            });
        }
        self.add_one_receipt(receipt);
    }

    fn add_one_receipt(&mut self, receipt: Progress) {
        let receipts = self.entries.len() - self.calls;
        if receipts >= RECEIPTS_MAX {
            let oldest = self.numbers(PendingRequest::is_receipt).first().copied();
            tracing::warn!(
                "more than {RECEIPTS_MAX} receipts are queued for the coordinator: the oldest is dropped"
            );
            oldest.and_then(|number| self.entries.remove(&number));
        }
        // Postponed receipts go first: `seen` is not accepted before `in_session`.
        self.write_postponed();
        self.add(RequestBody::Receipt(receipt));
    }

    fn add(&mut self, body: RequestBody) -> i64 {
        let number = self.number();
        let request = PendingRequest {
            body,
            writes: 0,
            written: None,
        };
        self.entries.insert(number, request);
        self.to_write.push_back(ToWrite::Request(number));
        number
    }

    /// Has the session's state written, behind earlier frames.
    pub(super) fn tell_facts(&mut self) {
        if self.to_write.back() != Some(&ToWrite::Facts) {
            self.to_write.push_back(ToWrite::Facts);
        }
    }

    /// Returns the next frame to write, with its addressees if people are asked for a decision: the caller writes that one only
    /// while it is relayed to them. Its request counts as written from now on.
    pub(super) fn next_frame(
        &mut self,
        now: Instant,
        facts: &dyn Fn() -> SessionChange,
    ) -> Option<(String, Option<Addressees>)> {
        while let Some(next) = self.to_write.pop_front() {
            let number = match next {
                ToWrite::Request(number) => number,
                ToWrite::Facts => {
                    return Some((Outgoing::notification("session", &facts()).text(), None));
                }
                ToWrite::Cancel(call_id) => {
                    let cancel = Cancel { call_id };
                    return Some((Outgoing::notification("cancel", &cancel).text(), None));
                }
            };
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            entry.writes += 1;
            entry.written = Some(now);
            return Some(match &entry.body {
                RequestBody::Call(call, _) => (call.frame(number, now), call.addressees(number)),
                RequestBody::Receipt(receipt) => {
                    let id = RequestId::Number(number);
                    (Outgoing::request(&id, "receipt", receipt).text(), None)
                }
            });
        }
        None
    }

    /// Postpones a receipt that the store could not take. Returns false for any other request.
    pub(super) fn postpone(&mut self, number: i64) -> bool {
        let entry = self.entries.get(&number);
        let is_receipt = entry.is_some_and(PendingRequest::is_receipt);
        if is_receipt {
            self.postponed.push(number);
        }
        is_receipt
    }

    /// Schedules the postponed receipts to be written again.
    pub(super) fn write_postponed(&mut self) {
        self.to_write
            .extend(self.postponed.drain(..).map(ToWrite::Request));
    }

    /// After a reconnect: all requests without a reply are written again, oldest first, but receipts before calls. Otherwise
    /// a wait could return messages that were shown already.
    pub(super) fn write_all_again(&mut self) {
        // Its reply could break the connection each time. A wait only lasts long.
        for number in self.numbers(|entry| entry.writes >= WRITES_MAX && entry.is_owed()) {
            if let Some(call) = self.answered(number) {
                call.pass_on(Err(broke_too_often()));
            }
        }
        self.postponed.clear();
        for entry in self.entries.values_mut() {
            entry.written = None;
        }
        let calls = self.numbers(|entry| !entry.is_receipt());
        let receipts = self.numbers(PendingRequest::is_receipt);
        self.to_write = receipts
            .into_iter()
            .chain(calls)
            .map(ToWrite::Request)
            .collect();
    }

    /// Takes the reply to a request. Returns its caller; receipts and heartbeats have none.
    pub(super) fn answered(&mut self, number: i64) -> Option<Answered> {
        let entry = self.entries.remove(&number)?;
        let RequestBody::Call(call, reply) = entry.body else {
            return None;
        };
        self.calls -= 1;
        Some(Answered { call, reply })
    }

    /// Returns whether a call was ever written.
    pub(super) fn is_written(&self, number: i64) -> bool {
        self.entries
            .get(&number)
            .is_some_and(|entry| entry.writes > 0)
    }

    /// Returns the reply of a wait that timed out; `None` for any other request.
    pub(super) fn timed_out(&self, number: i64, now: Instant) -> Option<Received> {
        match &self.entries.get(&number)?.body {
            RequestBody::Call(call, _) => call.timed_out(now),
            RequestBody::Receipt(_) => None,
        }
    }

    /// Forgets a call without a waiting caller. Returns whether the coordinator must be sent a cancellation.
    pub(super) fn forget(&mut self, number: i64) -> bool {
        let Some(entry) = self.entries.remove(&number) else {
            return false;
        };
        let RequestBody::Call(call, _) = entry.body else {
            return false;
        };
        self.calls -= 1;
        let written = entry.writes > 0;
        if written {
            self.to_write.push_back(ToWrite::Cancel(call.call_id));
        }
        written
    }

    /// Another session has the agent now: calls that were written in its name are over.
    pub(super) fn taken_over(&mut self, refusal: &Refusal) {
        for number in self.numbers(|entry| entry.writes > 0) {
            if let Some(call) = self.answered(number) {
                call.pass_on(Err(refusal.clone()));
            }
        }
    }

    fn numbers(&self, which: impl Fn(&PendingRequest) -> bool) -> Vec<i64> {
        self.entries
            .iter()
            .filter(|(_, entry)| which(entry))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Returns whether there are calls whose callers want an answer now, other than waits.
    pub(super) fn has_impatient_calls(&self) -> bool {
        self.entries.values().any(PendingRequest::is_impatient)
    }

    /// Returns when the oldest unanswered call that the coordinator answers at once was written on this link.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| entry.is_owed())
            .filter_map(|entry| entry.written)
            .min()
    }

    /// Returns whether receipts are unanswered.
    pub(super) fn has_receipts(&self) -> bool {
        self.entries.len() > self.calls
    }
}

#[cfg(test)]
mod tests;
