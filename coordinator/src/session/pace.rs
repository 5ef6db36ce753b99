//! Throttles how fast a link is read when it pipelines calls or sends long frames.
//!
//! Without it, links that send 50,000 characters as fast as possible raise the p99 of other links from 2.2 to 12.2 ms. A
//! flooding link raises it from 2.6 to 4.2 ms (`make bench ARGS=others`). Sequential calls are never throttled.

use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{PER_SECOND, PIECE, SAVED};

/// The recent load of one link.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the load is worked off at the permitted rate; `None` if there never was any.
    paid_at: Option<Instant>,
}

impl Pace {
    /// Records a frame of that length, and how many excess calls were running when it arrived.
    pub(super) fn note(&mut self, bytes: usize, beside: usize) {
        let pieces = bytes / PIECE + beside;
        if pieces > 0 {
            let now = Instant::now();
            let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
            let price = Duration::from_secs(1) / PER_SECOND * pieces;
            self.paid_at = Some(self.paid_at.map_or(now, |at| at.max(now)) + price);
        }
    }

    /// Returns until when reading pauses, or `None` if it does not.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        let until = self.paid_at?.checked_sub(SAVED)?;
        (until > Instant::now()).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn short_frames_one_after_the_other_cost_nothing() {
        let mut pace = Pace::default();
        (0..1_000_000).for_each(|_| pace.note(PIECE - 1, 0));
        assert_eq!(pace.rests_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_read_at_the_pace_after_the_saved_up_allowance() {
        let mut pace = Pace::default();
        let saved = PER_SECOND * u32::try_from(SAVED.as_secs()).expect("small");
        (0..saved).for_each(|_| pace.note(10, 1));
        assert_eq!(pace.rests_until(), None);
        pace.note(10, 1);
        let rest = pace.rests_until().expect("more than was saved") - Instant::now();
        assert_eq!(rest, Duration::from_secs(1) / PER_SECOND);
        tokio::time::advance(rest).await;
        assert_eq!(pace.rests_until(), None);
        pace.note(PIECE * 50, 0);
        assert_eq!(
            pace.rests_until().expect("a long frame") - Instant::now(),
            Duration::from_millis(200)
        );
    }
}
