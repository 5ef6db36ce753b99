//! The queue of one link, in order of arrival: receipts are recorded before later calls run.
//!
//! A call starts when everything before it is recorded, and then runs concurrently with later entries.

use std::collections::VecDeque;
use std::sync::Arc;

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::wire::{RequestId, SessionChange};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::bounds::{QUEUE, QUEUE_BYTES};
use super::missing::Missing;
use crate::request::{self, Caller, Services};
use crate::store::{Amendment, StoreError};
use crate::unfinished::Charge;

/// An entry of the queue.
pub(super) enum LedgerEntry {
    /// Messages reached a later stage. With the charge or the length of its frame.
    Receipt {
        id: Option<RequestId>,
        progress: Progress,
        held: Option<Charge>,
        bytes: usize,
    },
    /// The session changed.
    Change(SessionChange),
    /// The lease ran out while the store was unavailable.
    Renew,
    /// A call with its charge or the length of its frame, and its time of arrival.
    Call {
        id: RequestId,
        call_id: CallId,
        call: Box<Call>,
        held: Option<Charge>,
        bytes: usize,
        at: Instant,
    },
}

impl LedgerEntry {
    /// Returns the bytes that it keeps without a charge.
    fn uncharged(&self) -> usize {
        match self {
            Self::Call { held: Some(_), .. } | Self::Receipt { held: Some(_), .. } => 0,
            Self::Renew => 0,
            Self::Change(change) => {
                let ways = change.reach.as_ref().map_or(0, Vec::capacity);
                let id = change.session_id.as_ref().map_or(0, String::capacity);
                size_of::<Self>() + size_of::<Via>() * ways + id
            }
            Self::Receipt { bytes, .. } | Self::Call { bytes, .. } => *bytes,
        }
    }
}

/// A call that may start.
pub(super) struct ReadyCall {
    pub(super) id: RequestId,
    pub(super) call_id: CallId,
    pub(super) call: Call,
    /// Its charge, held until the call is done.
    pub(super) held: Option<Charge>,
    /// When it arrived.
    pub(super) at: Instant,
}

/// An entry that is done.
pub(super) struct Noted {
    /// The request to reply to, if there is one.
    pub(super) id: Option<RequestId>,
    pub(super) outcome: Result<(), StoreError>,
    /// Whether it renewed the lease.
    pub(super) renewed: bool,
    /// The change of the session, if the entry was one.
    pub(super) change: Option<SessionChange>,
}

impl Noted {
    fn of(outcome: Result<(), StoreError>) -> Self {
        Self {
            id: None,
            outcome,
            renewed: false,
            change: None,
        }
    }
}

/// The queue of one link.
#[derive(Default)]
pub(super) struct Ledger {
    queue: VecDeque<LedgerEntry>,
    at_work: Option<BoxFuture<'static, Noted>>,
    /// The change of the session that could not yet be recorded.
    owed: Option<SessionChange>,
    /// The receipts whose hosts repeat them.
    pub(super) missing: Missing,
}

impl Ledger {
    pub(super) fn push(&mut self, entry: LedgerEntry) {
        self.queue.push_back(entry);
    }

    /// Queues a receipt for messages that arrived on the host, merging it with a queued receipt of the same kind.
    pub(super) fn delivered(&mut self, message_ids: Vec<MessageId>, context: u64) {
        match self.queue.back_mut() {
            Some(LedgerEntry::Receipt {
                id: None,
                progress: last,
                ..
            }) if last.context == context && last.stage == Stage::OnHost => {
                last.message_ids.extend(message_ids);
            }
            _ => {
                let (stage, via) = (Stage::OnHost, Via::Deliver);
                let progress = Progress {
                    message_ids,
                    stage,
                    via,
                    seen_via: None,
                    context,
                };
                self.push(LedgerEntry::Receipt {
                    id: None,
                    progress,
                    held: None,
                    bytes: 0,
                });
            }
        }
    }

    /// Queues a change of the session, merged with the owed change, or with the last entry if that is one: a host may report
    /// changes faster than they are recorded.
    pub(super) fn change(&mut self, mut change: SessionChange) {
        if let Some(owed) = self.owed.take() {
            inherit(&mut change, owed);
        }
        if let Some(LedgerEntry::Change(last)) = self.queue.back_mut() {
            inherit(&mut change, std::mem::take(last));
            *last = change;
        } else {
            self.push(LedgerEntry::Change(change));
        }
    }

    /// Keeps a change that could not be recorded. Newer changes take precedence.
    pub(super) fn owe(&mut self, older: SessionChange) {
        let newer = self.queue.iter_mut().find_map(|entry| match entry {
            LedgerEntry::Change(change) => Some(change),
            _ => None,
        });
        match newer {
            Some(newer) => inherit(newer, older),
            None => self.owed = Some(older),
        }
    }

    /// Queues the owed change.
    pub(super) fn push_owed(&mut self) {
        if let Some(owed) = self.owed.take() {
            self.push(LedgerEntry::Change(owed));
        }
    }

    /// Returns how many calls are queued.
    pub(super) fn calls(&self) -> usize {
        self.queue
            .iter()
            .filter(|entry| matches!(entry, LedgerEntry::Call { .. }))
            .count()
    }

    /// Returns whether this call is queued.
    pub(super) fn holds(&self, wanted: CallId) -> bool {
        self.queue
            .iter()
            .any(|entry| matches!(entry, LedgerEntry::Call { call_id, .. } if *call_id == wanted))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.at_work.is_none()
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
            && self.queue.iter().map(LedgerEntry::uncharged).sum::<usize>() < QUEUE_BYTES
    }

    /// Removes a call that its client has cancelled.
    pub(super) fn withdraw(&mut self, call: CallId) {
        self.queue.retain(
            |entry| !matches!(entry, LedgerEntry::Call { call_id, .. } if *call_id == call),
        );
    }

    /// Removes the receipts after one that could not be recorded. Their hosts repeat them in that order, so that none is
    /// recorded before its evidence. Returns the requests to refuse.
    pub(super) fn withdraw_receipts(&mut self) -> Vec<RequestId> {
        let mut withdrawn = Vec::new();
        self.queue.retain_mut(|entry| match entry {
            LedgerEntry::Receipt { id, .. } => match id.take() {
                Some(id) => {
                    withdrawn.push(id);
                    false
                }
                None => true,
            },
            _ => true,
        });
        withdrawn
    }

    /// Starts the next entry unless one is in progress. Returns a call that may start, if there is a slot for it.
    pub(super) fn start(
        &mut self,
        services: &Arc<Services>,
        caller: &Caller,
        has_place: impl Fn(&Call) -> bool,
    ) -> Option<ReadyCall> {
        while self.at_work.is_none() {
            let next = self.queue.pop_front_if(|entry| match entry {
                LedgerEntry::Call { call, .. } => has_place(call),
                _ => true,
            })?;
            if self.queue.is_empty() {
                // An idle link should not keep the memory of its former queue.
                self.queue = VecDeque::new();
            }
            match next {
                LedgerEntry::Call {
                    id,
                    call_id,
                    call,
                    held,
                    at,
                    ..
                } => {
                    return Some(ReadyCall {
                        id,
                        call_id,
                        call: *call,
                        held,
                        at,
                    });
                }
                entry => self.at_work = Some(record(Arc::clone(services), caller.clone(), entry)),
            }
        }
        None
    }

    /// Records the entry in progress and all queued receipts and changes. Calls that have not begun are dropped, because no
    /// client waits for their replies.
    pub(super) async fn finish(&mut self, services: &Arc<Services>, caller: &Caller) {
        self.queue
            .retain(|entry| !matches!(entry, LedgerEntry::Call { .. }));
        while let Some(at_work) = self.at_work.take() {
            at_work.await;
            // Queued entries other than calls need no slot.
            self.start(services, caller, |_| true);
        }
    }

    /// Waits until the entry in progress is done. Cancel-safe.
    pub(super) async fn noted(&mut self) -> Noted {
        let Some(at_work) = &mut self.at_work else {
            return std::future::pending().await;
        };
        let noted = at_work.await;
        self.at_work = None;
        noted
    }
}

/// Fills in the fields of an older change that the newer one does not set.
fn inherit(newer: &mut SessionChange, older: SessionChange) {
    newer.state = newer.state.or(older.state);
    newer.session_id = newer.session_id.take().or(older.session_id);
    newer.reach = newer.reach.take().or(older.reach);
    newer.context = newer.context.or(older.context);
    newer.prompted |= older.prompted;
}

fn record(
    services: Arc<Services>,
    caller: Caller,
    entry: LedgerEntry,
) -> BoxFuture<'static, Noted> {
    Box::pin(async move {
        let store = &services.store;
        match entry {
            LedgerEntry::Receipt {
                id, progress, held, ..
            } => {
                let outcome = request::progress(&services, &caller, &progress).await;
                drop(held);
                Noted {
                    id,
                    ..Noted::of(outcome)
                }
            }
            LedgerEntry::Change(change) => {
                let amendment = Amendment::from(change);
                let outcome = amend(&services, &caller, &amendment).await;
                Noted {
                    change: Some(amendment.session),
                    ..Noted::of(outcome)
                }
            }
            LedgerEntry::Renew => {
                let Some(tenure) = &caller.tenure else {
                    return Noted::of(Ok(()));
                };
                let outcome = match store.renew(tenure, SILENCE_MAX).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(StoreError::TakenOver(tenure.agent.clone())),
                    Err(error) => Err(error),
                };
                Noted {
                    renewed: outcome.is_ok(),
                    ..Noted::of(outcome)
                }
            }
            // Calls are returned by `start` and never recorded here.
            LedgerEntry::Call { id, .. } => Noted {
                id: Some(id),
                ..Noted::of(Ok(()))
            },
        }
    })
}

/// Records a change of the session in a place of its principal. Many sessions of one key must not fill the queue of the store.
async fn amend(
    services: &Services,
    caller: &Caller,
    amendment: &Amendment,
) -> Result<(), StoreError> {
    let place = request::begin_call(&caller.principal).await;
    let _place = place.map_err(|refusal| StoreError::Unavailable(refusal.error))?;
    let (agent, speaker) = (&caller.agent, caller.speaker());
    services
        .store
        .amend(agent, speaker.as_ref(), amendment)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::vocabulary::State;

    fn state(state: State) -> SessionChange {
        SessionChange {
            state: Some(state),
            ..SessionChange::default()
        }
    }

    /// Returns the queued changes, in order.
    fn changes(ledger: &Ledger) -> Vec<&SessionChange> {
        let mut changes = Vec::new();
        for entry in &ledger.queue {
            if let LedgerEntry::Change(change) = entry {
                changes.push(change);
            }
        }
        changes
    }

    #[test]
    fn newer_changes_take_precedence_over_an_owed_one() {
        let mut ledger = Ledger::default();
        ledger.change(state(State::Ready));
        // The earlier change failed only now.
        ledger.owe(SessionChange {
            context: Some(1),
            prompted: true,
            ..state(State::Busy)
        });
        assert_eq!(
            changes(&ledger),
            [&SessionChange {
                context: Some(1),
                prompted: true,
                ..state(State::Ready)
            }]
        );
        ledger.push_owed();
        assert_eq!(ledger.queue.len(), 1, "nothing is owed twice");
    }

    /// Returns a receipt for no message, in a frame of that length.
    fn receipt(id: Option<RequestId>, bytes: usize) -> LedgerEntry {
        let (message_ids, stage, via) = (Vec::new(), Stage::Seen, Via::Hook);
        let progress = Progress {
            message_ids,
            stage,
            via,
            seen_via: None,
            context: 0,
        };
        LedgerEntry::Receipt {
            id,
            progress,
            held: None,
            bytes,
        }
    }

    #[test]
    fn only_receipts_are_withdrawn_after_one_that_failed() {
        let mut ledger = Ledger::default();
        ledger.push(receipt(Some(RequestId::Number(1)), 0));
        ledger.push(receipt(None, 0));
        ledger.change(state(State::Busy));
        ledger.push(receipt(Some(RequestId::Number(2)), 0));
        assert_eq!(
            ledger.withdraw_receipts(),
            [RequestId::Number(1), RequestId::Number(2)]
        );
        assert_eq!(ledger.queue.len(), 2, "nobody says again what has no id");
    }

    #[test]
    fn a_link_is_not_read_while_its_queue_has_many_bytes() {
        let mut ledger = Ledger::default();
        for _ in 0..QUEUE_BYTES / 4_096 {
            assert!(ledger.has_room());
            ledger.push(receipt(None, 4_096));
        }
        assert!(!ledger.has_room());
        ledger.queue.pop_front();
        assert!(ledger.has_room());
    }

    #[test]
    fn changes_are_merged_behind_what_precedes_them_and_count_with_their_bytes() {
        let mut ledger = Ledger::default();
        let long = |number: usize| SessionChange {
            session_id: Some(format!("{number:0>2000}")),
            ..SessionChange::default()
        };
        ledger.change(SessionChange {
            context: Some(7),
            prompted: true,
            ..long(0)
        });
        (1..1_000).for_each(|number| ledger.change(long(number)));
        let last = SessionChange {
            context: Some(7),
            prompted: true,
            ..long(999)
        };
        assert_eq!(changes(&ledger), [&last]);
        for number in 0..QUEUE_BYTES / 2_000 {
            assert!(
                ledger.has_room() || number > QUEUE_BYTES / 4_000,
                "{number}"
            );
            ledger.push(LedgerEntry::Renew);
            ledger.change(long(number));
        }
        assert!(!ledger.has_room());
    }

    #[test]
    fn an_owed_change_is_merged_into_the_next_one_or_sent_alone() {
        let mut ledger = Ledger::default();
        ledger.owe(SessionChange {
            session_id: Some("old".into()),
            reach: Some(vec![Via::Stop]),
            ..SessionChange::default()
        });
        ledger.change(SessionChange {
            session_id: Some("new".into()),
            ..SessionChange::default()
        });
        let both = SessionChange {
            session_id: Some("new".into()),
            reach: Some(vec![Via::Stop]),
            ..SessionChange::default()
        };
        assert_eq!(changes(&ledger), [&both]);
        ledger.queue.clear();
        ledger.owe(state(State::Busy));
        ledger.push_owed();
        ledger.push_owed();
        assert_eq!(changes(&ledger), [&state(State::Busy)]);
    }
}
