//! A rate with a burst: work beyond the burst rests until it is paid off.

use std::time::Duration;

use tokio::time::Instant;

/// The recent work of a link or a principal.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The burst, as time.
    saved: Duration,
    /// When the work is paid off; `None` if there never was any.
    paid_at: Option<Instant>,
}

impl Pace {
    pub(crate) fn with_burst(saved: Duration) -> Self {
        Self {
            saved,
            paid_at: None,
        }
    }

    /// Records work of that price.
    pub(crate) fn note(&mut self, price: Duration) {
        let now = Instant::now();
        self.paid_at = Some(self.paid_at.map_or(now, |at| at.max(now)) + price);
    }

    /// Returns until when further work rests, or `None` if it does not.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        let until = self.paid_at?.checked_sub(self.saved)?;
        (until > Instant::now()).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_beyond_the_burst_rests_until_it_is_paid_off() {
        let second = Duration::from_secs(1);
        let mut pace = Pace::with_burst(second);
        pace.note(second);
        assert_eq!(pace.rests_until(), None);
        pace.note(second / 4);
        let rest = pace.rests_until().expect("more than the burst") - Instant::now();
        assert_eq!(rest, second / 4);
        tokio::time::advance(rest).await;
        assert_eq!(pace.rests_until(), None);
        pace.note(second / 5);
        let rest = pace.rests_until().expect("the burst is spent") - Instant::now();
        assert_eq!(rest, second / 5);
        tokio::time::advance(10 * second).await;
        pace.note(second);
        assert_eq!(pace.rests_until(), None, "no more than the burst is saved");
    }
}
