//! The budget of unfinished input and unread answers: the limit of bytes held for messages and requests that are incomplete
//! or still processed, and for answers until they are written.
//!
//! Input of more than a few kilobytes is charged to its key, and then to the coordinator. Reading pauses if either has no
//! room, or the key has sent more than its rate. The rest of the input and the resulting call have deadlines, so room becomes
//! free again.
//!
//! Answers have rooms of their own. Whole texts take room before they are read. Every other long answer takes room when it
//! is made; without room, the client gets a refusal instead of it.

mod frames;
mod intake;
mod records;
mod room;

use c3po_shared::limits::{FRAME_MAX, UNFINISHED_MAX, UNFINISHED_PER_KEY};
use c3po_shared::refusal::{ErrorCode, Refusal};

pub(crate) use self::intake::Intake;
pub(crate) use self::room::{Charge, Room};

/// The free bytes of each message: most messages are never charged.
const FREE: usize = 4 << 10;
/// The longest head of a request that does not count as long input.
const FREE_HEAD: usize = 2 << 10;
/// The longest answer that is never charged.
const FREE_ANSWER: usize = 8 << 10;
/// When a client may repeat a call that was refused for unread answers, in seconds.
const RETRY_AFTER: u64 = 2;
/// The minimum budget, with room for some messages of the maximum length even with little memory.
const UNFINISHED_MIN: usize = 4 << 20;
/// The share of the budget that one key may use, or all clients without a key: others always have room.
const SHARE: usize = 4;

/// The budget of a coordinator.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    most: usize,
    /// The limit of one key.
    share: usize,
    all: Room,
    strangers: Room,
}

impl Budget {
    /// Returns the budget of a coordinator with this memory limit.
    pub(crate) fn within(memory: Option<u64>) -> Self {
        let most = most(memory);
        let share = (most / SHARE).clamp(step(FRAME_MAX), UNFINISHED_PER_KEY);
        Self {
            most,
            share,
            all: Room::of(most),
            strangers: Room::default(),
        }
    }

    /// Returns the limit of the whole budget in bytes.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Opens an account for messages of at most `longest` bytes, charged to a key's room and to the coordinator's.
    pub(crate) fn account(&self, one: &Room, longest: usize) -> Account {
        one.reduce_to(self.share);
        Account {
            one: one.clone(),
            all: self.all.clone(),
            longest,
            held: Vec::new(),
            charged: 0,
        }
    }

    /// Takes room for an answer with whole texts before they are read, to be held until the answer is written.
    pub(crate) fn room_for_texts(
        &self,
        one: &Room,
    ) -> impl Future<Output = Charge> + Send + 'static {
        one.reduce_to(self.share);
        one.clone().take_for_texts(FRAME_MAX, self.all.clone())
    }

    /// Charges an answer of this length, to be held until it is written. Short answers are free.
    ///
    /// Errors: `RATE_LIMITED` if unread answers fill the room of the key, or of the coordinator.
    pub(crate) fn room_for_answer(
        &self,
        one: &Room,
        bytes: usize,
    ) -> Result<Option<Charge>, Refusal> {
        if bytes <= FREE_ANSWER {
            return Ok(None);
        }
        one.reduce_to(self.share);
        // With little memory, one answer may take all of the room.
        let charge = one.try_take_for_answer(bytes.min(self.share), &self.all);
        charge.map(Some).ok_or_else(unread)
    }

    /// Waits while the rate of long input is exceeded, and records the head of a request, unless it is short. `one` is the room of
    /// its key, if it has one.
    pub(crate) async fn take_head(&self, one: Option<&Room>, bytes: usize) {
        if bytes > FREE_HEAD {
            let room = one.unwrap_or(&self.strangers);
            room.rest().await;
            room.note(bytes);
        }
    }

    /// Opens an account for input from a client that is not yet authenticated.
    pub(crate) fn account_of_stranger(&self, longest: usize) -> Account {
        self.account(&self.strangers, longest)
    }
}

/// Returns the refusal of a client that does not read its answers.
pub(crate) fn unread() -> Refusal {
    let error =
        "the limit of bytes in unread answers is reached, for this key or for the coordinator";
    Refusal::new(ErrorCode::RateLimited, error)
        .suggest("Read the answers to earlier calls, and call again in a few seconds.")
        .detail("retry_after_seconds", RETRY_AFTER)
}

/// Charges the messages or requests of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct Account {
    one: Room,
    all: Room,
    /// The length of the longest message.
    longest: usize,
    held: Vec<Charge>,
    charged: usize,
}

impl Account {
    /// Returns the amount to charge before the message or request may have this size; `None` if nothing is missing.
    pub(crate) fn missing(&self, bytes: usize) -> Option<usize> {
        price(bytes, self.longest)
            .checked_sub(self.charged)
            .filter(|missing| *missing > 0)
    }

    /// Changes the length of the longest message, between two messages.
    pub(crate) fn allow(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// Returns the size that the message or request may have at present.
    pub(crate) fn covers(&self) -> usize {
        self.charged.max(FREE)
    }

    /// Takes that amount from both rooms, waiting until they have it and the key has not exceeded its rate.
    pub(crate) fn room(&self, missing: usize) -> impl Future<Output = Charge> + Send + 'static {
        self.one.clone().take(missing, self.all.clone())
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

    /// Ends the charging of a complete message, for which so many bytes were read. Returns a charge for the message and one copy,
    /// to be held until it is processed.
    pub(crate) fn settle(&mut self, bytes: usize, read: usize) -> Option<Charge> {
        let mut held = std::mem::take(&mut self.held).into_iter().next();
        self.charged = 0;
        if let Some(held) = &mut held {
            held.shrink(2 * bytes);
            self.one.note(read);
        }
        held
    }
}

impl Drop for Account {
    /// Input that was never complete has its price too.
    fn drop(&mut self) {
        self.one.note(self.charged);
    }
}

/// Returns the budget for this memory limit. It is an eighth, because growing buffers may use twice the charged bytes.
fn most(memory: Option<u64>) -> usize {
    let part = memory.and_then(|memory| usize::try_from(memory / 8).ok());
    part.map_or(UNFINISHED_MAX, |part| {
        part.clamp(UNFINISHED_MIN, UNFINISHED_MAX)
    })
}

/// Returns the charge for a message or request of this size, where it may have at most `longest` bytes.
///
/// Above the free bytes, the maximum length is charged at once. If charges grew step by step, many incomplete messages could
/// share the room, and none could be completed.
fn price(bytes: usize, longest: usize) -> usize {
    if bytes <= FREE {
        0
    } else {
        bytes.next_multiple_of(step(longest))
    }
}

fn step(longest: usize) -> usize {
    longest + FREE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const STEP: usize = FRAME_MAX + FREE;

    /// Longer than any operation that does not wait for room; time is paused.
    const NOW: Duration = Duration::from_secs(1);

    fn account(one: &Room, all: &Room) -> Account {
        Budget {
            most: 0,
            share: UNFINISHED_PER_KEY,
            all: all.clone(),
            strangers: Room::default(),
        }
        .account(one, FRAME_MAX)
    }

    #[test]
    fn short_messages_are_free_and_longer_ones_are_charged_by_steps() {
        for (bytes, charged) in [
            (0, 0),
            (FREE, 0),
            (FREE + 1, STEP),
            (STEP, STEP),
            (STEP + 1, 2 * STEP),
        ] {
            assert_eq!(price(bytes, FRAME_MAX), charged, "{bytes}");
        }
    }

    #[test]
    fn the_budget_is_a_part_of_the_memory_within_bounds() {
        for (memory, bytes) in [
            (None, 64),
            (Some(64 << 30), 64),
            (Some(256 << 20), 32),
            (Some(1 << 20), 4),
        ] {
            assert_eq!(most(memory), bytes << 20, "{memory:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_room_waits_and_takes_none_of_the_others() {
        let (all, one, other) = (Room::of(4 * STEP), Room::of(2 * STEP), Room::of(2 * STEP));
        let (mut first, mut second, mut third) = (
            account(&one, &all),
            account(&one, &all),
            account(&other, &all),
        );
        first.hold(2 * STEP).await;
        assert!(
            timeout(NOW, second.hold(STEP)).await.is_err(),
            "its key has no room"
        );
        second.hold(FREE).await;
        timeout(NOW, third.hold(2 * STEP))
            .await
            .expect("another key has room");
        drop(first.settle(2 * STEP, 2 * STEP));
        timeout(NOW, second.hold(2 * STEP))
            .await
            .expect("what is settled makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_message_is_charged_by_its_length_until_it_is_done() {
        let (all, one) = (Room::of(STEP), Room::of(STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(FREE + 1).await;
        let held = first.settle(FREE + 1, FREE + 1);
        assert_eq!(
            [&one, &all].map(|room| room.free.available_permits()),
            [STEP - 2 * (FREE + 1); 2]
        );
        assert!(
            timeout(NOW, second.hold(FREE + 1)).await.is_err(),
            "the other one is not done"
        );
        drop(held);
        timeout(NOW, second.hold(FREE + 1))
            .await
            .expect("it is done");
        assert!(first.settle(FREE, FREE).is_none(), "nothing was charged");
    }

    #[tokio::test(start_paused = true)]
    async fn input_that_was_given_room_can_be_finished_while_others_wait_for_room() {
        let (all, one) = (Room::of(STEP), Room::of(STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(FREE + 1).await;
        assert!(
            timeout(NOW, second.hold(FREE + 1)).await.is_err(),
            "it has begun and waits"
        );
        timeout(NOW, first.hold(FRAME_MAX))
            .await
            .expect("it has its room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_for_room_returns_its_part() {
        let (all, one) = (Room::of(STEP), Room::of(2 * STEP));
        let (mut first, mut second) = (account(&one, &all), account(&one, &all));
        first.hold(STEP).await;
        assert!(
            timeout(NOW, second.hold(STEP)).await.is_err(),
            "the coordinator has no room"
        );
        assert_eq!(one.free.available_permits(), STEP);
        drop(first);
        timeout(NOW, second.hold(STEP))
            .await
            .expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_leaves_room_for_others_however_small_the_budget_is() {
        for memory in [1 << 20, 120 << 20, 512 << 20, 64 << 30] {
            let (budget, bad, good) = (
                Budget::within(Some(memory)),
                Room::default(),
                Room::default(),
            );
            let mut begun: Vec<Account> =
                (0..100).map(|_| budget.account(&bad, FRAME_MAX)).collect();
            for account in &mut begun {
                let _ = timeout(NOW, account.hold(FREE + 1)).await;
            }
            let mut account = budget.account(&good, FRAME_MAX);
            timeout(NOW, account.hold(FRAME_MAX))
                .await
                .expect("the other key leaves room");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_request_is_charged_no_more_than_it_may_become() {
        let (budget, room) = (Budget::within(Some(120 << 20)), Room::default());
        let mut begun: Vec<Account> = (0..200).map(|_| budget.account(&room, 8 << 10)).collect();
        for account in &mut begun {
            timeout(NOW, account.hold(FREE + 1))
                .await
                .expect("there is room for all");
        }
    }

    #[test]
    fn unread_answers_of_one_key_have_a_limit_and_others_keep_theirs() {
        let (budget, bad, good) = (
            Budget::within(Some(512 << 20)),
            Room::default(),
            Room::default(),
        );
        let mut unread = Vec::new();
        while let Ok(charge) = budget.room_for_answer(&bad, FRAME_MAX) {
            unread.push(charge.expect("it is long"));
            assert!(
                unread.len() * FRAME_MAX <= budget.most(),
                "nothing refuses it"
            );
        }
        assert!(unread.len() > 1, "some are allowed");
        assert!(
            budget
                .room_for_answer(&bad, FREE_ANSWER)
                .is_ok_and(|charge| charge.is_none()),
            "short ones are free"
        );
        assert!(
            budget.room_for_answer(&good, FRAME_MAX).is_ok(),
            "another key has room"
        );
        unread.pop();
        assert!(
            budget.room_for_answer(&bad, FRAME_MAX).is_ok(),
            "one was read"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_input_keeps_no_answer_waiting() {
        let (budget, room) = (Budget::within(Some(1 << 20)), Room::default());
        let mut begun: Vec<Account> = (0..100).map(|_| budget.account(&room, FRAME_MAX)).collect();
        for account in &mut begun {
            let _ = timeout(NOW, account.hold(FREE + 1)).await;
        }
        let held = timeout(NOW, budget.room_for_texts(&room))
            .await
            .expect("answers have their own room");
        assert!(
            timeout(NOW, budget.room_for_texts(&room)).await.is_err(),
            "it is bounded as well"
        );
        drop(held);
        timeout(NOW, budget.room_for_texts(&room))
            .await
            .expect("it is free again");
    }
}
