//! Requests of the client for a decision of people: each goes to the coordinators that had the relay when the client asked, and to
//! no others.

use std::sync::Arc;

use c3po_shared::catalogue::RequestPermission;
use c3po_shared::ids::CallId;
use tokio::time::{Instant, sleep};

use super::outgoing_call::{Addressees, CallResult, OutgoingCall};
use super::{AGAIN, Link, Shared, passes};
use crate::config::Coordinators;

impl Link {
    /// Returns the coordinators to which a request of the client is relayed now: by the file as it is, also if this link began
    /// before. `None` while the relay is off.
    pub async fn relays(&self) -> Option<Arc<Coordinators>> {
        let shared = &self.shared;
        shared.directory.relays(&shared.config).await.map(Arc::new)
    }

    /// Returns whether the present or last link is to one of those coordinators, if there was any: another one gets none of their
    /// requests, and its verdicts do not count.
    pub fn is_to(&self, coordinators: &Coordinators) -> bool {
        self.shared.directory.links_to_any_of(coordinators)
    }

    /// Returns whether a request for those coordinators is still relayed to them.
    pub async fn relays_to(&self, coordinators: &Coordinators) -> bool {
        self.shared.are_relayed_to(coordinators).await
    }

    /// Asks people of those coordinators under one id, again and again while none can do it, or while the relay is off or goes to
    /// others. The caller sets the deadline.
    pub async fn relay_until_done(
        &self,
        id: CallId,
        request: RequestPermission,
        to: &Arc<Coordinators>,
    ) -> CallResult {
        self.begin();
        loop {
            let (request, to) = (request.clone(), Arc::clone(to));
            let outgoing = OutgoingCall::relayed(id, request, to, Instant::now());
            match self.call_now(outgoing).await {
                Err(refusal) if passes(&refusal) => sleep(AGAIN).await,
                outcome => return outcome,
            }
        }
    }
}

impl Shared {
    /// Returns whether a request of the client may be written to the link now.
    pub(super) async fn relays_to(&self, addressees: &Addressees) -> bool {
        match &addressees.coordinators {
            Some(coordinators) => self.are_relayed_to(coordinators).await,
            None => false,
        }
    }

    async fn are_relayed_to(&self, coordinators: &Coordinators) -> bool {
        let now = self.directory.relays(&self.config).await;
        now.is_some_and(|now| now.cover(coordinators))
            && self.directory.links_to_any_of(coordinators)
    }
}
