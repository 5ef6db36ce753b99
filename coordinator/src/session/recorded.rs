//! The outcomes of the session's writes to the store: its lease, its receipts and its state.

use std::sync::Arc;

use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::{Empty, RequestId, SessionChange};
use tokio::time::Instant;

use super::end::EndReason;
use super::ledger::Noted;
use super::{Session, attendance};
use crate::store::StoreError;

impl Session {
    pub(super) fn renew(&mut self) {
        if self.renewal.is_some() {
            return;
        }
        let services = Arc::clone(&self.services);
        if let Some(tenure) = self.caller.tenure.clone() {
            self.renewal = Some(Box::pin(async move {
                services.store.renew(&tenure, SILENCE_MAX).await
            }));
        } else if self.reading_along.is_some() {
            self.renewal = Some(Box::pin(async move {
                attendance::extend(&services).await.map(|()| true)
            }));
        }
    }

    /// Returns whether the lease may have run out, so that another session may have taken the agent.
    pub(super) fn may_be_outdated(&self) -> bool {
        self.caller.tenure.is_some() && self.renewed.elapsed() >= SILENCE_MAX
    }

    /// The session still holds the agent. Replies that were held back are sent.
    fn is_renewed(&mut self) {
        let was_unsure = self.may_be_outdated();
        self.renewed = Instant::now();
        std::mem::take(&mut self.unsure)
            .into_iter()
            .for_each(|finished| self.on_finished(Box::new(finished)));
        if was_unsure {
            // Messages that arrived meanwhile were ignored.
            self.delivery.came(Vec::new(), self.waits());
        }
    }

    pub(super) fn on_renewed(
        &mut self,
        renewed: Result<bool, StoreError>,
    ) -> Result<(), EndReason> {
        self.renewal = None;
        match renewed {
            Ok(true) => self.is_renewed(),
            Ok(false) | Err(StoreError::TakenOver(_)) => return Err(EndReason::TakenOver),
            // The next heartbeat tries again; a lease that ran out is renewed before the next call.
            Err(error) => tracing::debug!("a lease was not renewed: {error}"),
        }
        Ok(())
    }

    pub(super) fn on_noted(&mut self, noted: Noted) -> Result<(), EndReason> {
        match noted.outcome {
            Ok(()) => {
                if noted.renewed {
                    self.is_renewed();
                }
                if noted.change.is_some_and(|change| change.context.is_some()) {
                    self.begin_context();
                }
                if let Some(id) = noted.id {
                    self.outbox.answer(&id, &Empty {});
                }
                Ok(())
            }
            Err(StoreError::TakenOver(_)) => Err(EndReason::TakenOver),
            Err(error) => {
                self.on_not_noted(noted.id, noted.change, error);
                Ok(())
            }
        }
    }

    fn on_not_noted(
        &mut self,
        id: Option<RequestId>,
        change: Option<SessionChange>,
        error: StoreError,
    ) {
        let passes = error.passes();
        match id {
            Some(id) if passes => self.postpone(&id, error.into()),
            Some(id) => self.outbox.refuse(&id, error.into()),
            None => {
                tracing::warn!(agent.id = %self.caller.agent, "a receipt or a state was not recorded: {error}")
            }
        }
        if let Some(change) = change.filter(|_| passes) {
            self.ledger.owe(change);
        }
        let behind = if passes {
            self.ledger.withdraw_receipts()
        } else {
            Vec::new()
        };
        for id in behind {
            self.postpone(&id, Refusal::store_unavailable());
        }
    }

    /// Refuses a receipt temporarily. Its host repeats it, and no later receipt is recorded before that.
    pub(super) fn postpone(&mut self, receipt: &RequestId, refusal: Refusal) {
        self.ledger.missing.misses(receipt);
        self.outbox.refuse(receipt, refusal);
    }
}
