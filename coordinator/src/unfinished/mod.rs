//! The budget of unfinished input: the limit of bytes held for messages and requests that are incomplete or still processed.
//!
//! Input of more than a few kilobytes is charged to its key, and then to the coordinator. Reading pauses if either has no
//! room. The rest of the input and the resulting call have deadlines, so room becomes free again.

mod intake;

use std::sync::Arc;

use c3po_shared::limits::{FRAME_MAX, UNFINISHED_MAX, UNFINISHED_PER_KEY};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::intake::Intake;

/// The free bytes of each message: most messages are never charged.
const FREE: usize = 4 << 10;
/// The minimum budget, with room for some messages of the maximum length even with little memory.
const UNFINISHED_MIN: usize = 4 << 20;
/// Above the free bytes, the maximum length is charged at once. If charges grew step by step, many incomplete messages could
/// share the room, and none could be completed.
const STEP: usize = FRAME_MAX + FREE;

/// The budget of a coordinator.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    all: Room,
    strangers: Room,
}

impl Budget {
    /// Returns the budget of a coordinator with this memory limit.
    pub(crate) fn within(memory: Option<u64>) -> Self {
        let most = most(memory);
        Self { most, all: Room::of(most), strangers: Room::default() }
    }

    /// Returns the limit of the whole budget in bytes.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Opens an account that is charged to a key's room and to the coordinator's.
    pub(crate) fn account(&self, one: &Room) -> Account {
        Account { one: one.clone(), all: self.all.clone(), held: Vec::new(), charged: 0 }
    }

    /// Opens an account for input from a client that is not yet authenticated.
    pub(crate) fn account_of_stranger(&self) -> Account {
        self.account(&self.strangers)
    }
}

/// Room for a number of bytes, of the coordinator or of one key.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    /// Returns the room of one key. Requests without a key share one room.
    fn default() -> Self {
        Self::of(UNFINISHED_PER_KEY)
    }
}

impl Room {
    fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    async fn take(self, bytes: u32) -> OwnedSemaphorePermit {
        self.0.acquire_many_owned(bytes).await.expect("it is never closed")
    }
}

/// Charged bytes, released when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    one: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Charge {
    /// Releases the charge above this number of bytes.
    fn shrink(&mut self, bytes: usize) {
        for permits in [&mut self.one, &mut self.all] {
            drop(permits.split(permits.num_permits().saturating_sub(bytes)));
        }
    }
}

/// Charges the messages or requests of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct Account {
    one: Room,
    all: Room,
    held: Vec<Charge>,
    charged: usize,
}

impl Account {
    /// Returns the amount to charge before the message or request may have this size; `None` if nothing is missing.
    pub(crate) fn missing(&self, bytes: usize) -> Option<usize> {
        price(bytes).checked_sub(self.charged).filter(|missing| *missing > 0)
    }

    /// Returns the size that the message or request may have at present.
    pub(crate) fn covers(&self) -> usize {
        self.charged.max(FREE)
    }

    /// Takes that amount from both rooms, waiting until they have it.
    pub(crate) fn room(&self, missing: usize) -> impl Future<Output = Charge> + Send + 'static {
        let (one, all) = (self.one.clone(), self.all.clone());
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        // Always in this order, so that a key without room takes nothing from the shared room.
        async move { Charge { one: one.take(missing).await, all: all.take(missing).await } }
    }

    /// Adds a charge to the message or request.
    pub(crate) fn keep(&mut self, held: Charge, missing: usize) {
        self.held.push(held);
        self.charged += missing;
    }

    /// Waits until the message or request may have this size. Cancel-safe.
    pub(crate) async fn hold(&mut self, bytes: usize) {
        if let Some(missing) = self.missing(bytes) {
            let held = self.room(missing).await;
            self.keep(held, missing);
        }
    }

    /// Ends the charging of a complete message. Returns a charge for the message and one copy, to be held until it is
    /// processed.
    pub(crate) fn settle(&mut self, bytes: usize) -> Option<Charge> {
        let mut held = std::mem::take(&mut self.held).into_iter().next();
        self.charged = 0;
        if let Some(held) = &mut held {
            held.shrink(2 * bytes);
        }
        held
    }
}

/// Returns the budget for this memory limit. It is an eighth, because growing buffers may use twice the charged bytes.
fn most(memory: Option<u64>) -> usize {
    let part = memory.and_then(|memory| usize::try_from(memory / 8).ok());
    part.map_or(UNFINISHED_MAX, |part| part.clamp(UNFINISHED_MIN, UNFINISHED_MAX))
}

/// Returns the charge for a message or request of this size.
fn price(bytes: usize) -> usize {
    if bytes <= FREE { 0 } else { bytes.next_multiple_of(STEP) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Longer than any operation that does not wait for room; time is paused.
    const NOW: Duration = Duration::from_secs(1);

    fn account(one: &Room, all: &Room) -> Account {
        Budget { most: 0, all: all.clone(), strangers: Room::default() }.account(one)
    }

    #[test]
    fn short_messages_are_free_and_longer_ones_are_charged_by_steps() {
        for (bytes, charged) in [(0, 0), (FREE, 0), (FREE + 1, STEP), (STEP, STEP), (STEP + 1, 2 * STEP)] {
            assert_eq!(price(bytes), charged, "{bytes}");
        }
    }

    #[test]
    fn the_budget_is_a_part_of_the_memory_within_bounds() {
        for (memory, bytes) in [(None, 64), (Some(64 << 30), 64), (Some(256 << 20), 32), (Some(1 << 20), 4)] {
            assert_eq!(most(memory), bytes << 20, "{memory:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_room_waits_and_takes_none_of_the_others() {
        let (all, one, other) = (Room::of(4 * STEP), Room::of(2 * STEP), Room::of(2 * STEP));
        let (mut first, mut second, mut third) = (account(&one, &all), account(&one, &all), account(&other, &all));
        first.hold(2 * STEP).await;
        assert!(timeout(NOW, second.hold(STEP)).await.is_err(), "its key has no room");
        second.hold(FREE).await;
        timeout(NOW, third.hold(2 * STEP)).await.expect("another key has room");
        drop(first.settle(2 * STEP));
        timeout(NOW, second.hold(2 * STEP)).await.expect("what is settled makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_message_is_charged_by_its_length_until_it_is_done() {
        let (all, one) = (Room::of(STEP), Room::of(STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(FREE + 1).await;
        let held = first.settle(FREE + 1);
        assert_eq!([&one, &all].map(|room| room.0.available_permits()), [STEP - 2 * (FREE + 1); 2]);
        assert!(timeout(NOW, second.hold(FREE + 1)).await.is_err(), "the other one is not done");
        drop(held);
        timeout(NOW, second.hold(FREE + 1)).await.expect("it is done");
        assert!(first.settle(FREE).is_none(), "nothing was charged");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_was_given_room_can_be_finished_however_many_have_begun() {
        let (all, one) = (Room::of(STEP), Room::of(STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(FREE + 1).await;
        assert!(timeout(NOW, second.hold(FREE + 1)).await.is_err(), "it has begun and waits");
        timeout(NOW, first.hold(FRAME_MAX)).await.expect("it has its room");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waiting_gives_back_what_was_taken() {
        let (all, one) = (Room::of(STEP), Room::of(2 * STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(STEP).await;
        assert!(timeout(NOW, second.hold(STEP)).await.is_err(), "the coordinator has no room");
        assert_eq!(one.0.available_permits(), STEP);
        drop(first);
        timeout(NOW, second.hold(STEP)).await.expect("there is room again");
    }
}
