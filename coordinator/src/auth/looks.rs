//! Looks at the credentials of the store: no call begins by a cached credential if the latest look is not recent.

use std::time::Duration;

use c3po_shared::refusal::Refusal;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long after a change of keys no coordinator begins a call by a key from before it, also one that was stopped or could
/// not read the store.
pub(crate) const KEYS_KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How long a call waits for a look.
const LOOK_DEADLINE: Duration = Duration::from_millis(1_500);

/// The clock of this machine that goes on while it sleeps.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the time since the machine started, with the time in which it slept.
pub(super) fn uptime() -> Duration {
    let time = clock_gettime(CLOCK);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// When the latest completed look began, by [`uptime`].
#[derive(Debug, Default)]
pub(super) struct Looks(watch::Sender<Duration>);

impl Looks {
    /// Records that a look which began then has completed.
    pub(super) fn completed(&self, began: Duration) {
        self.0.send_if_modified(|latest| {
            let is_later = began > *latest;
            *latest = began.max(*latest);
            is_later
        });
    }

    /// Waits until the latest look began recently.
    ///
    /// Errors: `STORE_UNAVAILABLE` if there is none in time.
    pub(super) async fn are_recent(&self) -> Result<(), Refusal> {
        let is_recent = |began: &Duration| uptime().saturating_sub(*began) <= KEYS_KNOWN_WITHIN;
        let mut latest = self.0.subscribe();
        match timeout(LOOK_DEADLINE, latest.wait_for(is_recent)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::store_unavailable()),
        }
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::refusal::ErrorCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_counts_for_a_while_since_it_began() {
        let looks = Looks::default();
        looks.completed(uptime());
        assert_eq!(looks.are_recent().await, Ok(()));

        // The clock of this machine cannot be moved, so the latest look is.
        let ago = |more| uptime().saturating_sub(KEYS_KNOWN_WITHIN + Duration::from_millis(more));
        let looks = Looks::default();
        looks.completed(ago(1_000));
        let refused = looks.are_recent().await.map_err(|refusal| refusal.code);
        assert_eq!(refused, Err(ErrorCode::StoreUnavailable));
        let mut waiting = std::pin::pin!(looks.are_recent());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // An answer that was on its way while this process was stopped.
        looks.completed(ago(1));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        looks.completed(uptime());
        assert_eq!(waiting.await, Ok(()));
    }
}
