//! Sends queued calls of dead sessions of this host: a living session does it, in the original name.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::wire::Deliver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Deliveries, Link, LinkStatus, Shared, State, queue, run};
use crate::config::Config;

/// How often the host is searched for such calls.
const EVERY: Duration = Duration::from_secs(30);
/// How long sending the calls of one dead session may take; the rest follows with the next look.
const SENDING_MAX: Duration = Duration::from_secs(60);

/// Sends queued calls of dead sessions, now and then while the session's link is up, until it is stopped.
pub(crate) async fn send(link: Link, stop: CancellationToken) {
    let sending = async {
        let mut status = link.status();
        let is_up = |status: &LinkStatus| status.state == State::Connected;
        // The sender lives as long as the link.
        while let Ok(own) = status.wait_for(is_up).await.map(|now| now.agent.clone()) {
            tokio::select! {
                () = send_now_and_then(&link.shared, &own) => {}
                _ = status.wait_for(|now| !is_up(now) || now.agent != own) => {}
            }
        }
    };
    // Unsent calls stay in the journal.
    stop.run_until_cancelled(sending).await;
}

/// Searches and sends periodically. Never returns.
async fn send_now_and_then(shared: &Shared, own: &AgentId) {
    loop {
        for agent in left(shared, own).await {
            tracing::info!(
                "sending the messages that the last session of {agent} queued on this host"
            );
            if timeout(SENDING_MAX, send_as(shared, &agent)).await.is_err() {
                tracing::debug!("some queued messages of {agent} are not sent yet");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns the other agents with queued calls and without a living session. Dead sessions without a name were those for which
/// they wished. None with a key that replaces that of the host: it may be of another host, which would get their agents.
async fn left(shared: &Shared, own: &AgentId) -> Vec<AgentId> {
    let (journal, seats) = (shared.journal.clone(), shared.seats.clone());
    let coordinators = shared.directory.entry().coordinators.clone();
    if coordinators.replaces_key {
        return Vec::new();
    }
    let (own, targets) = (own.clone(), coordinators.urls);
    let looking = tokio::task::spawn_blocking(move || {
        let nobody_lives = |agent: &AgentId| seats.lock(agent).is_ok_and(|seat| seat.is_some());
        let adopted = journal.adopt(|dead| {
            journal.is_for(dead, &targets) && (dead.wished == own || nobody_lives(&dead.wished))
        });
        let agents = journal.agents().into_iter();
        let left = agents.filter(|agent| {
            *agent != own && journal.is_for(agent, &targets) && nobody_lives(agent)
        });
        (left.collect::<Vec<_>>(), adopted)
    });
    let Ok((left, adopted)) = looking.await else {
        return Vec::new();
    };
    if adopted {
        queue::has_more(shared);
    }
    left
}

/// Sends the agent's queued calls over a link of their own.
async fn send_as(shared: &Shared, agent: &AgentId) {
    let coordinators = shared.directory.entry().coordinators.clone();
    let config = Config {
        agent: agent.clone(),
        coordinators,
        ..shared.config.clone()
    };
    let link = Link::of_leftover(config, Arc::new(Nowhere));
    let stop = CancellationToken::new();
    let sending = async {
        let mut status = link.status();
        let there = status
            .wait_for(|now| now.state == State::Connected || now.refusal.is_some())
            .await;
        let refusal = there.ok().and_then(|now| now.refusal.clone());
        match refusal {
            Some(refusal) => {
                tracing::debug!("cannot send the queued messages of {agent}: {refusal}")
            }
            None => link.send_kept(agent).await,
        }
        stop.cancel();
    };
    tokio::join!(Box::pin(run(link.clone(), stop.clone())), sending);
}

/// Ignores deliveries: none are pushed to such a link.
struct Nowhere;

impl Deliveries for Nowhere {
    fn arrived(&self, _deliver: Deliver) {}

    fn begins(&self, _agent: &AgentId, _generation: u64) {}
}
