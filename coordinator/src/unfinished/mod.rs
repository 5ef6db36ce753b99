//! The budget of unfinished input: how many bytes of messages and requests may be held that are not whole or not done yet.
//!
//! Input that is longer than a few kilobytes is charged first to the key under which it comes, then to the coordinator.
//! Reading waits where either has no room. The rest of it has a deadline, and so has the call that it makes, so room
//! comes back.

mod intake;

use std::sync::Arc;

use c3po_shared::limits::{FRAME_MAX, UNFINISHED_MAX, UNFINISHED_PER_KEY};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::intake::Intake;

/// So many bytes of each message are free: most messages never meet the budget.
const FREE: usize = 4 << 10;
/// A budget has room for some messages of the longest kind, however little memory there is.
const UNFINISHED_MIN: usize = 4 << 20;
/// Beyond them the budget is charged for the longest message at once. Charged as they grow, many that have begun would
/// share the room, and none could be finished.
const STEP: usize = FRAME_MAX + FREE;

/// The budget of a coordinator.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    all: Room,
    strangers: Room,
}

impl Budget {
    /// Returns the budget of a coordinator that may have so much memory.
    pub(crate) fn within(memory: Option<u64>) -> Self {
        let most = most(memory);
        Self { most, all: Room::of(most), strangers: Room::default() }
    }

    /// Returns how many bytes there may be in all.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Opens an account that charges the room of a key and that of the coordinator.
    pub(crate) fn account(&self, one: &Room) -> Account {
        Account { one: one.clone(), all: self.all.clone(), held: Vec::new(), charged: 0 }
    }

    /// Opens an account for input that comes before its sender was admitted.
    pub(crate) fn account_of_stranger(&self) -> Account {
        self.account(&self.strangers)
    }
}

/// Room for so many bytes: that of the coordinator, or that of one key.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    /// The room of one key. Requests without a key share one.
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

/// Bytes that are charged, until this is gone.
#[derive(Debug)]
pub(crate) struct Charge {
    one: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Charge {
    /// Gives back what is beyond so many bytes.
    fn shrink(&mut self, bytes: usize) {
        for permits in [&mut self.one, &mut self.all] {
            drop(permits.split(permits.num_permits().saturating_sub(bytes)));
        }
    }
}

/// Charges one message or request after the other.
#[derive(Debug)]
pub(crate) struct Account {
    one: Room,
    all: Room,
    held: Vec<Charge>,
    charged: usize,
}

impl Account {
    /// Returns how much has to be charged before the message or request may have so many bytes; `None` where nothing.
    pub(crate) fn missing(&self, bytes: usize) -> Option<usize> {
        price(bytes).checked_sub(self.charged).filter(|missing| *missing > 0)
    }

    /// Returns how many bytes the message or request may have as it is.
    pub(crate) fn covers(&self) -> usize {
        self.charged.max(FREE)
    }

    /// Takes that much from both rooms, once they have it.
    pub(crate) fn room(&self, missing: usize) -> impl Future<Output = Charge> + Send + 'static {
        let (one, all) = (self.one.clone(), self.all.clone());
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        // Always in this order, so that a key that has no room holds none of the others'.
        async move { Charge { one: one.take(missing).await, all: all.take(missing).await } }
    }

    /// Keeps what was taken for the message or request.
    pub(crate) fn keep(&mut self, held: Charge, missing: usize) {
        self.held.push(held);
        self.charged += missing;
    }

    /// Waits until the message or request may have so many bytes. Cancel-safe.
    pub(crate) async fn hold(&mut self, bytes: usize) {
        if let Some(missing) = self.missing(bytes) {
            let held = self.room(missing).await;
            self.keep(held, missing);
        }
    }

    /// Ends the charge of a message that is whole. Returns what is charged for it until it is done with: it and one copy.
    pub(crate) fn settle(&mut self, bytes: usize) -> Option<Charge> {
        let mut held = std::mem::take(&mut self.held).into_iter().next();
        self.charged = 0;
        if let Some(held) = &mut held {
            held.shrink(2 * bytes);
        }
        held
    }
}

/// Returns how many bytes a coordinator with so much memory holds: buffers that grow may have twice as many.
fn most(memory: Option<u64>) -> usize {
    let part = memory.and_then(|memory| usize::try_from(memory / 8).ok());
    part.map_or(UNFINISHED_MAX, |part| part.clamp(UNFINISHED_MIN, UNFINISHED_MAX))
}

/// Returns how much a message or request of so many bytes is charged.
fn price(bytes: usize) -> usize {
    if bytes <= FREE { 0 } else { bytes.next_multiple_of(STEP) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Long enough for whatever does not wait for room; time is paused.
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
