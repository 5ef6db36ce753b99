//! The rooms of the budget, and how fast long input may fill that of a key: without a rate, one key's 100 links that come again
//! and again with long messages slow others down sixfold.

use std::sync::{Arc, Once};
use std::time::Duration;

use c3po_shared::limits::{LONG_INPUT_PER_SECOND, UNFINISHED_PER_KEY};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::pace::SharedPace;

/// The burst of long input, as time at its rate.
const BURST: Duration = Duration::from_secs(1);

/// Room for a number of bytes, of the coordinator or of one key: for input, for whole texts, and for other answers, so that
/// none keeps another waiting.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(super) free: Arc<Semaphore>,
    texts: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    reduced: Arc<Once>,
    /// Of long input.
    pace: Arc<SharedPace>,
}

impl Default for Room {
    /// Returns the room of one key. Requests without a key share one room.
    fn default() -> Self {
        Self::of(UNFINISHED_PER_KEY)
    }
}

impl Room {
    pub(super) fn of(bytes: usize) -> Self {
        let room = || Arc::new(Semaphore::new(bytes));
        Self {
            free: room(),
            texts: room(),
            answers: room(),
            reduced: Arc::new(Once::new()),
            pace: Arc::new(SharedPace::with_burst(BURST)),
        }
    }

    /// Takes that many bytes for input, then of the coordinator's room. A key that has exceeded its rate waits in between, so
    /// that the input which goes on at the end of its wait fits into its room.
    pub(super) async fn take(self, bytes: usize, all: Self) -> Charge {
        let one = take(bytes, &self.free).await;
        self.rest().await;
        Charge {
            one,
            all: take(bytes, &all.free).await,
        }
    }

    /// Takes that many bytes for whole texts, then of the coordinator's room. In this order, a key without room takes nothing
    /// of the shared one.
    pub(super) async fn take_for_texts(self, bytes: usize, all: Self) -> Charge {
        Charge {
            one: take(bytes, &self.texts).await,
            all: take(bytes, &all.texts).await,
        }
    }

    /// Takes that many bytes for an answer, if both rooms have them.
    pub(super) fn try_take_for_answer(&self, bytes: usize, all: &Self) -> Option<Charge> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(bytes).ok();
        Some(Charge {
            one: take(&self.answers)?,
            all: take(&all.answers)?,
        })
    }

    /// Waits while long input has exceeded its rate.
    pub(super) async fn rest(&self) {
        self.pace.rest().await;
    }

    /// Records long input of that length.
    pub(super) fn note(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.pace
            .note(Duration::from_secs(1) / LONG_INPUT_PER_SECOND * bytes);
    }

    /// Reduces the room of a key, which is made before the budget is known, to this number of bytes. Only the first call
    /// counts.
    pub(super) fn reduce_to(&self, bytes: usize) {
        self.reduced.call_once(|| {
            for room in [&self.free, &self.texts, &self.answers] {
                room.forget_permits(UNFINISHED_PER_KEY.saturating_sub(bytes));
            }
        });
    }
}

/// Takes that many bytes of a room.
async fn take(bytes: usize, room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let taking = Arc::clone(room).acquire_many_owned(bytes);
    taking.await.expect("it is never closed")
}

/// Charged bytes, released when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    one: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Charge {
    /// Releases the charge above this number of bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        for permits in [&mut self.one, &mut self.all] {
            drop(permits.split(permits.num_permits().saturating_sub(bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::unfinished::Budget;

    #[tokio::test(start_paused = true)]
    async fn a_key_sends_long_messages_at_its_rate_through_however_many_connections() {
        let (budget, room, other) = (Budget::within(None), Room::default(), Room::default());
        let length = LONG_INPUT_PER_SECOND as usize / 16;
        let (began, seconds) = (Instant::now(), 4);
        for _ in 0..16 * (seconds + 1) {
            let mut account = budget.account(&room, length);
            account.hold(length).await;
            // A message of empty fragments counts as the bytes that were read for it.
            drop(account.settle(2, length));
        }
        let rest = began.elapsed();
        let expected = Duration::from_secs(1) * (seconds - 1)..=Duration::from_secs(1) * seconds;
        assert!(expected.contains(&rest), "{rest:?}");
        let began = Instant::now();
        let mut account = budget.account(&other, length);
        account.hold(length).await;
        let mut short = budget.account(&room, length);
        short.hold(100).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "of another key, or short");
    }

    #[tokio::test(start_paused = true)]
    async fn long_heads_of_requests_have_the_same_rate() {
        let (budget, room) = (Budget::within(None), Room::default());
        let length = 8 << 10;
        let heads = LONG_INPUT_PER_SECOND as usize / length;
        for one in [Some(&room), None] {
            let began = Instant::now();
            for _ in 0..10 * heads {
                budget.take_head(one, 1_000).await;
            }
            assert_eq!(began.elapsed(), Duration::ZERO, "short ones");
            for _ in 0..3 * heads {
                budget.take_head(one, length).await;
            }
            let rest = began.elapsed();
            let expected = Duration::from_millis(1_900)..=Duration::from_millis(2_100);
            assert!(expected.contains(&rest), "{rest:?}");
        }
    }
}
