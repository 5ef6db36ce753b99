//! The condition of the store for `/api/health`: one check serves all requests of a moment, because that path needs no key.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::store::Store;

/// How long the result of a check is returned again. Monitors ask less often.
const VALID_FOR: Duration = Duration::from_millis(250);

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

/// The latest check of the store.
#[derive(Debug, Default)]
pub(super) struct Checkup(Mutex<Option<(Instant, Condition)>>);

impl Checkup {
    /// Returns the condition of the store. Requests during a check wait for its result.
    pub(super) async fn of(&self, store: &dyn Store) -> Condition {
        self.latest(check(store)).await
    }

    async fn latest(&self, check: impl Future<Output = Condition>) -> Condition {
        let mut latest = self.0.lock().await;
        match *latest {
            Some((at, condition)) if at.elapsed() < VALID_FOR => condition,
            _ => {
                let condition = check.await;
                *latest = Some((Instant::now(), condition));
                condition
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
                condition
            })
        };
        let answers = join_all((0..100).map(|_| ask(Condition::Well))).await;
        assert_eq!(answers, [Condition::Well; 100]);
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        assert_eq!(ask(Condition::Unwell).await, Condition::Well);
        advance(VALID_FOR).await;
        assert_eq!(ask(Condition::Unwell).await, Condition::Unwell);
    }
}
