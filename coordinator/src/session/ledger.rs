//! What a link has to do in the order in which it arrived: receipts before the calls that follow them.
//!
//! A call starts when everything before it is recorded, and then runs beside what comes after it.

use std::collections::VecDeque;
use std::sync::Arc;

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::{CALLS_IN_FLIGHT, SILENCE_MAX};
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::wire::RequestId;
use futures_util::future::BoxFuture;

use crate::request::{Caller, Office};
use crate::store::{Advance, Amendment, StoreError};

/// How many entries wait at most; a link with more is not read until some are done.
const BOUND: usize = 2 * CALLS_IN_FLIGHT;

/// One thing to do.
pub(super) enum Entry {
    /// Messages got further.
    Receipt { id: Option<RequestId>, messages: Vec<MessageId>, stage: Stage, via: Via },
    /// Something about the session changed.
    Amend(Amendment),
    /// The hold ran out while the store was away.
    Renew,
    /// A call.
    Call { id: RequestId, call_id: CallId, call: Call },
}

impl Entry {
    pub(super) fn receipt(id: Option<RequestId>, messages: Vec<MessageId>, stage: Stage, via: Via) -> Self {
        Self::Receipt { id, messages, stage, via }
    }
}

/// A call whose turn has come.
pub(super) struct ReadyCall {
    pub(super) id: RequestId,
    pub(super) call_id: CallId,
    pub(super) call: Call,
}

/// An entry that is done.
pub(super) struct Noted {
    /// The request to answer, if it was one.
    pub(super) id: Option<RequestId>,
    pub(super) outcome: Result<(), StoreError>,
    /// Whether the hold was renewed by it.
    pub(super) renewed: bool,
}

/// The queue of one link.
#[derive(Default)]
pub(super) struct Ledger {
    queue: VecDeque<Entry>,
    at_work: Option<BoxFuture<'static, Noted>>,
}

impl Ledger {
    pub(super) fn push(&mut self, entry: Entry) {
        self.queue.push_back(entry);
    }

    /// Returns how many calls wait for their turn.
    pub(super) fn calls(&self) -> usize {
        self.queue.iter().filter(|entry| matches!(entry, Entry::Call { .. })).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.at_work.is_none()
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < BOUND
    }

    /// Takes a call out that nobody waits for any more.
    pub(super) fn withdraw(&mut self, call: CallId) {
        self.queue.retain(|entry| !matches!(entry, Entry::Call { call_id, .. } if *call_id == call));
    }

    /// Starts the next entry unless one is at work. Returns a call whose turn has come.
    pub(super) fn start(&mut self, office: &Arc<Office>, caller: &Caller) -> Option<ReadyCall> {
        while self.at_work.is_none() {
            match self.queue.pop_front()? {
                Entry::Call { id, call_id, call } => return Some(ReadyCall { id, call_id, call }),
                entry => self.at_work = Some(record(Arc::clone(office), caller.clone(), entry)),
            }
        }
        None
    }

    /// Resolves when the entry at work is done. Cancel-safe.
    pub(super) async fn noted(&mut self) -> Noted {
        let Some(at_work) = &mut self.at_work else { return std::future::pending().await };
        let noted = at_work.await;
        self.at_work = None;
        noted
    }
}

fn record(office: Arc<Office>, caller: Caller, entry: Entry) -> BoxFuture<'static, Noted> {
    Box::pin(async move {
        let store = &office.store;
        match entry {
            Entry::Receipt { id, messages, stage, via } => {
                let tenure = caller.tenure.as_ref();
                let advance = Advance { recipient: &caller.agent, tenure, messages: &messages, stage, via };
                let outcome = store.advance(advance).await;
                if let (Stage::Seen, Err(StoreError::Unavailable(_))) = (stage, &outcome) {
                    // The next call proves it as well.
                    caller.memory.show(&messages);
                }
                Noted { id, outcome, renewed: false }
            }
            Entry::Amend(amendment) => {
                let outcome = store.amend(&caller.agent, &amendment).await.map(|_| ());
                Noted { id: None, outcome, renewed: false }
            }
            Entry::Renew => {
                let Some(tenure) = &caller.tenure else { return Noted { id: None, outcome: Ok(()), renewed: false } };
                let outcome = match store.renew(tenure, SILENCE_MAX).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(StoreError::TakenOver(tenure.agent.clone())),
                    Err(error) => Err(error),
                };
                Noted { id: None, renewed: outcome.is_ok(), outcome }
            }
            // Calls are handed out by `start` and never recorded here.
            Entry::Call { id, .. } => Noted { id: Some(id), outcome: Ok(()), renewed: false },
        }
    })
}
