//! How fast a link is read: who has much under way at once, or says long things one after the other, waits for the others.
//!
//! One call after the other costs nothing, so nobody who waits for answers ever meets this.

use std::time::Duration;

use tokio::time::Instant;

/// How much a link may say in a second: frames beside calls under way, and pieces of long frames.
const PER_SECOND: u32 = 250;
/// How long a link may have saved up for what it says at once.
const SAVED: Duration = Duration::from_secs(2);
/// How long a piece is. A frame that is shorter has none.
const PIECE: usize = 4096;

/// What one link has said lately.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When all of it is paid for; `None` where there never was anything to pay.
    paid_at: Option<Instant>,
}

impl Pace {
    /// Notes a frame of that length, and how many calls too many were under way when it came.
    pub(super) fn note(&mut self, bytes: usize, beside: usize) {
        let pieces = bytes / PIECE + beside;
        if pieces > 0 {
            let now = Instant::now();
            let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
            let price = Duration::from_secs(1) / PER_SECOND * pieces;
            self.paid_at = Some(self.paid_at.map_or(now, |at| at.max(now)) + price);
        }
    }

    /// Returns until when nothing is read; `None` where that is over.
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
    async fn who_says_much_at_once_is_read_at_the_pace_and_may_save_up_for_it() {
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
        assert_eq!(pace.rests_until().expect("a long frame") - Instant::now(), Duration::from_millis(200));
    }
}
