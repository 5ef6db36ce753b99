//! The end of a link: its reasons, and the last steps.

use c3po_shared::wire::{CLOSE_REVOKED, CLOSE_TAKEN_OVER, Empty, Outgoing};
use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::bounds::DRAIN;
use super::connection::Gone;
use super::{Finished, Session, attendance};
use crate::presence::Present;
use crate::request::{self, Caller, Done, Services};
use crate::store::{Ending, StoreError, Tenure};

/// The close code of a server that goes away, from RFC 6455.
const CLOSE_GOING_AWAY: u16 = 1001;

/// Why a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The proxy sent a goodbye.
    Goodbye,
    /// The connection broke or was silent for too long.
    Gone,
    /// Another connection or session holds the agent.
    TakenOver,
    /// The coordinator is stopping.
    Draining,
    /// Its credential has ended.
    Revoked,
}

impl EndReason {
    /// Returns how its session ended, unless the agent stays online.
    fn ending(self) -> Option<Ending> {
        match self {
            Self::Goodbye => Some(Ending::Goodbye),
            Self::Gone => Some(Ending::Gone),
            Self::Revoked => Some(Ending::Revoked),
            Self::TakenOver | Self::Draining => None,
        }
    }
}

impl From<Gone> for EndReason {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Session {
    /// Lets running calls finish, and ends the link then.
    pub(super) fn drain(&mut self) {
        // A link that gets another agent meanwhile is interrupted again.
        if self.drain_until.is_some() {
            return;
        }
        self.drain_until = Some(Instant::now() + DRAIN);
        self.outbox
            .push(Outgoing::notification("draining", &Empty {}).text());
    }

    /// Waits for in-flight store calls so that their outcome is recorded; the client is not notified. Waits are aborted at
    /// once.
    pub(super) async fn finish(&mut self) {
        for wait in self.running.values().filter(|running| running.waits) {
            wait.abort.abort();
        }
        self.ledger.finish(&self.services, &self.caller).await;
        while let Some(finished) = self.next_finished().await {
            // After a rename, the lease to be released is that of the new name.
            if let Some(Ok(Done {
                renamed: Some(renamed),
                ..
            })) = finished.map(|finished| finished.outcome)
            {
                self.become_other(renamed);
            }
        }
    }

    async fn next_finished(&mut self) -> Option<Option<Box<Finished>>> {
        match self.finished.pop_front() {
            Some(finished) => Some(Some(finished)),
            None => self.calls.next().await,
        }
    }

    /// Releases the lease if the session ended, and sends the close reason to the peer.
    pub(super) async fn leave(&mut self, end: &EndReason) {
        let current = self.present.as_ref().is_some_and(Present::is_current);
        if let (Some(ending), true, Some(tenure)) = (end.ending(), current, &self.caller.tenure)
            && let Err(error) = release(&self.services, &self.caller, tenure, ending).await
        {
            tracing::warn!(
                "{} was not released and stays online until its lease expires: {error}",
                tenure.agent
            );
        }
        if let Some(reading_along) = self.reading_along.take() {
            attendance::end(&self.services, reading_along).await;
        }
        match end {
            EndReason::TakenOver => {
                self.connection
                    .close(CLOSE_TAKEN_OVER, "another session took over this agent")
                    .await
            }
            EndReason::Revoked => {
                self.connection
                    .close(CLOSE_REVOKED, "the key was revoked or has expired")
                    .await
            }
            EndReason::Draining => {
                self.connection
                    .close(CLOSE_GOING_AWAY, "the coordinator is shutting down")
                    .await
            }
            EndReason::Goodbye | EndReason::Gone => {}
        }
    }
}

/// Releases the lease in a place of its principal. Many sessions of one key that end together must not fill the queue of the
/// store.
async fn release(
    services: &Services,
    caller: &Caller,
    tenure: &Tenure,
    ending: Ending,
) -> Result<(), StoreError> {
    let place = request::begin_call(&caller.principal).await;
    let _place = place.map_err(|refusal| StoreError::Unavailable(refusal.error))?;
    services.store.release(tenure, ending).await
}
