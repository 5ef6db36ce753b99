//! A rate with a burst: work beyond the burst rests until it is paid off.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The recent work of a link or a principal.
#[derive(Debug)]
pub(crate) struct Pace {
    /// As time at the rate.
    burst: Duration,
    /// When the work is paid off; `None` if there never was any.
    paid_at: Option<Instant>,
}

impl Pace {
    pub(crate) fn with_burst(burst: Duration) -> Self {
        Self {
            burst,
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
        let until = self.paid_at?.checked_sub(self.burst)?;
        (until > Instant::now()).then_some(until)
    }
}

/// The pace of a principal, whose clients work at the same time.
#[derive(Debug)]
pub(crate) struct SharedPace(Mutex<Pace>);

impl SharedPace {
    pub(crate) fn with_burst(burst: Duration) -> Self {
        Self(Mutex::new(Pace::with_burst(burst)))
    }

    fn lock(&self) -> MutexGuard<'_, Pace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records work of that price.
    pub(crate) fn note(&self, price: Duration) {
        self.lock().note(price);
    }

    /// Returns until when further work rests, or `None` if it does not.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.lock().rests_until()
    }

    /// Waits while work rests.
    pub(crate) async fn rest(&self) {
        while let Some(until) = self.rests_until() {
            sleep_until(until).await;
        }
    }

    /// Waits while work rests, and records that of this price. If cancelled before, it records nothing.
    pub(crate) async fn pay(&self, price: Duration) {
        while let Some(until) = self.try_pay(price) {
            sleep_until(until).await;
        }
    }

    /// Records work of that price, or returns until when it rests.
    pub(crate) fn try_pay(&self, price: Duration) -> Option<Instant> {
        let mut pace = self.lock();
        let until = pace.rests_until();
        if until.is_none() {
            pace.note(price);
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

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

    #[tokio::test(start_paused = true)]
    async fn work_that_is_given_up_while_it_rests_costs_nothing() {
        let second = Duration::from_secs(1);
        let pace = SharedPace::with_burst(second);
        pace.note(2 * second);
        for _ in 0..100 {
            let given_up = timeout(second / 2, pace.pay(second)).await;
            assert!(given_up.is_err());
            pace.note(second / 2);
        }
        let began = Instant::now();
        pace.rest().await;
        assert_eq!(began.elapsed(), second);
    }
}
