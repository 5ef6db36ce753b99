//! The turns of a principal's links and requests. A link that has more to do, or whose principal is busy, goes on only in its
//! turn, so that a flood through hundreds of links costs others no more than one through a few. The same applies to requests with
//! a body, and to each part of one that is long. The work of one host rests beyond half of a core. A stream of events of a busy
//! principal begins once its work is paid off, or after a while.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::pace::SharedPace;

/// The links and requests of one busy key that have their turn at the same time: one core handles more than the store.
const TURNS_PER_KEY: usize = 1;
/// The same for all clients without a key of their own: they may be many hosts.
pub(super) const TURNS_WITHOUT_KEY: usize = 4;
/// The share of one core, as a divisor, that a principal may take for frames and requests before it counts as busy.
const SHARE: u32 = 8;
/// The burst, as time of that share.
const SAVED: Duration = Duration::from_millis(10);
/// The share of one core, as a divisor, beyond which the work of one host rests: frames that are refused have no other price.
const SHARE_MOST: u32 = 2;
/// The burst, as time of that share.
const SAVED_MOST: Duration = Duration::from_millis(100);
/// The longest rest. Work beyond it is not counted, so a flood has no effect on later work.
const REST_MAX: Duration = Duration::from_millis(250);

/// The turns of one principal, and how busy it is.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Semaphore,
    pace: SharedPace,
    /// The pace beyond which its work rests; `None` if its clients may be many hosts.
    most: Option<SharedPace>,
}

impl Turns {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            places: Semaphore::new(at_once),
            pace: SharedPace::with_burst(SAVED),
            most: None,
        }
    }

    /// Returns the turns of one host, whose work rests beyond its share.
    pub(super) fn of_one_host() -> Self {
        Self {
            most: Some(SharedPace::with_burst(SAVED_MOST)),
            ..Self::new(TURNS_PER_KEY)
        }
    }

    /// Returns the turns of requests without a credential.
    pub(crate) fn of_strangers() -> Self {
        Self::new(TURNS_PER_KEY)
    }

    /// Records work of one of its links or requests.
    pub(crate) fn note(&self, work: Duration) {
        self.pace.note(work * SHARE);
        let Some(most) = &self.most else { return };
        let late = Instant::now() + REST_MAX;
        if most.rests_until().is_none_or(|until| until < late) {
            most.note(work * SHARE_MOST);
        }
    }

    /// Waits while its work is beyond the share of one host.
    pub(crate) async fn rest(&self) {
        if let Some(most) = &self.most {
            // Its end counts as well as the deadline.
            let _ = timeout(REST_MAX, most.rest()).await;
        }
    }

    /// Returns whether they have worked more than its share lately.
    pub(crate) fn is_busy(&self) -> bool {
        self.pace.rests_until().is_some()
    }

    /// Waits for the next turn, in order of arrival, and returns it. Everybody else who has something to do goes first.
    pub(crate) async fn next(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.places.acquire().await.ok();
        self.rest().await;
        yield_now().await;
        turn
    }

    /// Waits for the next turn if the principal is busy.
    pub(crate) async fn next_if_busy(&self) -> Option<SemaphorePermit<'_>> {
        if self.is_busy() {
            self.next().await
        } else {
            None
        }
    }

    /// Waits while the principal is busy, at most for that time.
    pub(crate) async fn paid(&self, at_most: Duration) {
        // Its end counts as well as the deadline.
        let _ = timeout(at_most, self.pace.rest()).await;
    }

    /// Does the work of a request, and records it.
    pub(crate) async fn measure<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let began = Instant::now();
            let done = work.as_mut().poll(context);
            self.note(began.elapsed());
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_beyond_the_share_makes_busy_until_it_is_paid_off() {
        let turns = Turns::new(1);
        let second = Duration::from_secs(1);
        for _ in 0..100 {
            turns.note(second / 100 / SHARE);
            tokio::time::advance(second / 100).await;
            assert!(!turns.is_busy(), "no more than its share");
        }
        turns.note(second / SHARE);
        tokio::time::advance(second - 2 * SAVED).await;
        assert!(turns.is_busy());
        tokio::time::advance(2 * SAVED).await;
        assert!(!turns.is_busy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_principal_waits_until_it_has_paid_but_not_long() {
        let (turns, second) = (Turns::new(1), Duration::from_secs(1));
        for (work, expected) in [
            (SAVED / SHARE, Duration::ZERO),
            (2 * SAVED, 2 * SAVED * SHARE - SAVED),
            (second, second / 4),
        ] {
            tokio::time::advance(second).await;
            turns.note(work);
            let began = Instant::now();
            turns.paid(second / 4).await;
            let most = expected + Duration::from_millis(2);
            let waited = began.elapsed();
            assert!((expected..=most).contains(&waited), "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_of_one_host_rests_beyond_its_share() {
        let millis = Duration::from_millis;
        for (turns, work, expected) in [
            (Turns::of_one_host(), millis(50), Duration::ZERO),
            (Turns::of_one_host(), millis(80), millis(60)),
            (Turns::of_one_host(), Duration::from_secs(10), REST_MAX),
            (Turns::new(1), Duration::from_secs(10), Duration::ZERO),
        ] {
            turns.note(work);
            let began = Instant::now();
            drop(turns.next().await);
            let rested = began.elapsed();
            let most = expected + millis(2);
            assert!((expected..=most).contains(&rested), "{work:?}: {rested:?}");
        }
        // A flood of requests that take no turns is forgotten soon.
        let turns = Turns::of_one_host();
        for _ in 0..10_000 {
            turns.note(millis(1));
        }
        tokio::time::advance(2 * REST_MAX).await;
        assert_eq!(turns.most.expect("a pace").rests_until(), None);
    }

    #[tokio::test]
    async fn a_request_of_a_busy_principal_goes_on_after_the_one_before_it_and_everybody_else() {
        let turns = Turns::new(1);
        assert!(turns.next_if_busy().await.is_none());
        turns.measure(async { std::thread::sleep(SAVED) }).await;
        let turn = turns.next_if_busy().await;
        assert!(turn.is_some());
        let mut late = pin!(turns.next_if_busy());
        assert!(futures_util::poll!(&mut late).is_pending());
        yield_now().await;
        assert!(futures_util::poll!(&mut late).is_pending());
        drop(turn);
        assert!(futures_util::poll!(&mut late).is_pending());
        assert!(late.await.is_some());
    }

    #[tokio::test]
    async fn links_in_line_go_on_one_in_each_round() {
        let turns = Turns::new(1);
        let mut links: Vec<_> = (0..3).map(|_| Box::pin(turns.next())).collect();
        for round in 0..4 {
            let mut ended = 0;
            for link in &mut links {
                ended += usize::from(futures_util::poll!(link).is_ready());
            }
            links.drain(..ended);
            assert_eq!(links.len(), 3_usize.saturating_sub(round), "{round}");
            yield_now().await;
        }
    }
}
