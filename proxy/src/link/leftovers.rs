//! What sessions that are dead left on this host: sent by a living one, in the name of the one that left it.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::wire::Deliver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Deliveries, Kind, Link, Shared, State, queue, run};
use crate::config::Config;

/// How long sending what one of them left may take; the rest follows with the next look.
const SENDING_MAX: Duration = Duration::from_secs(60);

/// Looks once through this host's journals, and sends what no living session will.
pub(super) async fn send(shared: &Shared, own: &AgentId) {
    let (journal, seats) = (shared.journal.clone(), shared.seats.clone());
    let (own, targets) = (own.clone(), shared.config.urls.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let is_left = |agent: &AgentId| {
            let nobody_lives = || seats.lock(agent).is_ok_and(|seat| seat.is_some());
            *agent != own && journal.is_for(agent, &targets) && nobody_lives()
        };
        journal.agents().into_iter().filter(is_left).collect::<Vec<_>>()
    });
    for agent in looking.await.unwrap_or_default() {
        tracing::info!("sending what the last session of {agent} left on this host");
        if timeout(SENDING_MAX, send_as(shared, &agent)).await.is_err() {
            tracing::debug!("not everything that {agent} left is sent yet");
        }
    }
}

/// Speaks as that agent for as long as it takes, by a link of its own.
async fn send_as(shared: &Shared, agent: &AgentId) {
    let config = Config { agent: agent.clone(), ..shared.config.clone() };
    let link = Link::new(config, Kind::Leftover, Arc::new(Nowhere));
    link.begin();
    let stop = CancellationToken::new();
    let sending = async {
        let mut standing = link.standing();
        let there = standing.wait_for(|now| now.state == State::Connected || now.refusal.is_some()).await;
        let refusal = there.ok().and_then(|now| now.refusal.clone());
        match refusal {
            Some(refusal) => tracing::debug!("cannot send what {agent} left: {refusal}"),
            None => {
                while let Some(pause) = queue::drain_one(&link, agent).await {
                    tokio::time::sleep(pause).await;
                }
            }
        }
        stop.cancel();
    };
    // The link of a link: on the heap, for its type would hold itself.
    tokio::join!(Box::pin(run(link.clone(), stop.clone())), sending);
}

/// Takes no deliveries: nothing is ever pushed to such a link.
struct Nowhere;

impl Deliveries for Nowhere {
    fn arrived(&self, _deliver: Deliver) {}

    fn begins(&self, _agent: &AgentId, _generation: u64) {}
}
