//! How many agents are online, for those who ask again and again: asked of the coordinator now and then, in no one's way.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::catalogue::{Agents, Call, ListAgents};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::vocabulary::Status;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::link::{Link, State};

/// How long a count is good for.
const FRESH: Duration = Duration::from_secs(10);
/// How many pages are asked for, each of about 80 agents: a line that nobody may read is not worth more.
const PAGES_MAX: usize = 10;

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

/// Asks page by page. Returns nothing where not all were counted.
async fn count(link: &Link) -> Option<usize> {
    let (mut count, mut cursor) = (0, None);
    for _ in 0..PAGES_MAX {
        let asked = ListAgents { status: Some(Status::Online), limit: Some(PAGE_MAX), cursor, ..ListAgents::default() };
        let arguments = serde_json::value::to_raw_value(&asked).ok()?;
        let reply = link.call(&Call::ListAgents(asked), arguments).await.ok()?;
        let page: Agents = serde_json::from_str(reply.get()).ok()?;
        count += page.agents.len();
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Some(count);
        }
    }
    None
}
