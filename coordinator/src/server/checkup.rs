//! The condition of the store and the clocks of agents for `/api/health`: one check serves all requests of a moment, because that
//! path needs no key.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::ids::AgentId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::http_session::HttpSessions;
use crate::presence::Presence;
use crate::store::Store;

/// How long the result of a check is returned again. Monitors ask less often.
const VALID_FOR: Duration = Duration::from_millis(250);

/// The limit of deviating clocks in the list.
const CLOCKS_MAX: usize = 100;

/// The condition of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// It responds.
    Well,
    /// It responds, and refuses new messages.
    Full,
    /// It does not respond.
    Unwell,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    /// The condition of the store.
    pub(super) condition: Condition,
    /// How many agents are online at this coordinator.
    pub(super) agents_online: usize,
    /// The agents whose host's clock differs from ours, with its lead in milliseconds.
    pub(super) clocks: Vec<(AgentId, i64)>,
}

/// The latest check.
#[derive(Debug, Default)]
pub(super) struct Checkup(Mutex<Option<(Instant, Arc<Checked>)>>);

impl Checkup {
    /// Returns the facts of this moment. Requests during a check wait for its result.
    pub(super) async fn of(
        &self,
        store: &dyn Store,
        presence: &Presence,
        clients: &HttpSessions,
    ) -> Arc<Checked> {
        let check = async {
            Checked {
                condition: check(store).await,
                agents_online: presence.connected() + clients.online(),
                clocks: presence.clocks_apart(CLOCKS_MAX),
            }
        };
        self.latest(check).await
    }

    async fn latest(&self, check: impl Future<Output = Checked>) -> Arc<Checked> {
        let mut latest = self.0.lock().await;
        match &*latest {
            Some((at, checked)) if at.elapsed() < VALID_FOR => Arc::clone(checked),
            _ => {
                let checked = Arc::new(check.await);
                *latest = Some((Instant::now(), Arc::clone(&checked)));
                checked
            }
        }
    }
}

async fn check(store: &dyn Store) -> Condition {
    if let Err(error) = store.check().await {
        tracing::warn!("unhealthy: {error}");
        return Condition::Unwell;
    }
    // A store that responds but cannot be measured counts as not full.
    let fill = store.fill().await.ok().flatten();
    match fill.and_then(|fill| fill.refuses()) {
        Some(_) => Condition::Full,
        None => Condition::Well,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_check_serves_all_requests_of_a_moment() {
        let (checkup, checks) = (Checkup::default(), AtomicUsize::new(0));
        let counted = &checks;
        let ask = |condition| {
            checkup.latest(async move {
                counted.fetch_add(1, Ordering::Relaxed);
                sleep(VALID_FOR).await;
                checked(condition)
            })
        };
        for answer in join_all((0..100).map(|_| ask(Condition::Well))).await {
            assert_eq!(*answer, checked(Condition::Well));
        }
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        assert_eq!(ask(Condition::Unwell).await.condition, Condition::Well);
        advance(VALID_FOR).await;
        assert_eq!(ask(Condition::Unwell).await.condition, Condition::Unwell);
    }

    fn checked(condition: Condition) -> Checked {
        Checked {
            condition,
            agents_online: 0,
            clocks: Vec::new(),
        }
    }
}
