//! How many agents are online, for those who ask again and again: asked of the coordinator now and then, in no one's way.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::catalogue::{Agents, Call};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::link::{Link, State};

/// How long a count is good for.
const FRESH: Duration = Duration::from_secs(10);
/// How many are counted; a status line needs no more.
const COUNTED: usize = 1_000;

/// The last count.
#[derive(Debug, Default)]
pub(super) struct Online {
    known: Mutex<Option<(Instant, usize)>>,
    asked: Notify,
}

impl Online {
    /// Returns the last count.
    pub(super) fn known(&self) -> Option<usize> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).map(|(_, count)| count)
    }

    /// Says that somebody wants to know. The answer is there the next time.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }

    /// Counts whenever somebody wants to know and the last count is old. Never ends by itself.
    pub(super) async fn run(&self, link: &Link) {
        loop {
            self.asked.notified().await;
            let counted = self.known.lock().unwrap_or_else(PoisonError::into_inner).map(|(at, _)| at);
            let is_fresh = counted.is_some_and(|at| at.elapsed() < FRESH);
            let is_up = link.standing().borrow().state == State::Connected;
            if is_fresh || !is_up {
                continue;
            }
            let count = count(link).await;
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = count.map(|count| (Instant::now(), count));
        }
    }
}

async fn count(link: &Link) -> Option<usize> {
    let arguments = serde_json::value::to_raw_value(&json!({"status": "online", "limit": COUNTED})).ok()?;
    let call = Call::parse("list_agents", &arguments).ok()?;
    let reply = link.call(&call, arguments).await.ok()?;
    serde_json::from_str::<Agents>(reply.get()).ok().map(|agents| agents.agents.len())
}
