//! Pushes messages to the host as they arrive, one page at a time. The next page follows the reply to the last one.

use std::sync::Arc;

use c3po_shared::ids::MessageId;
use c3po_shared::wire::{Arriving, Deliver, Outgoing, RequestId};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::bounds::{ANSWER_DEADLINE, PAGE, PAGE_BYTES, RETRY, WAITS_FIRST};
use crate::clock;
use crate::request::{Caller, Memory, Services, begin_read, check_read, note_page};
use crate::store::{Arrival, Placed, Result, Selection, StoreError, Tenure};
use crate::unfinished::{Budget, Charge, Room};

/// A page read from the store, with its charge.
pub(super) struct PushedPage {
    placed: Result<Vec<Placed>>,
    /// `None` if the messages are short.
    held: Option<Charge>,
}

impl PushedPage {
    /// Returns whether the link may read the messages of its agent no longer.
    pub(super) fn is_refused(&self) -> bool {
        let placed = self.placed.as_ref();
        placed.is_err_and(|error| {
            matches!(
                error,
                StoreError::TakenOver(_) | StoreError::Reserved { .. }
            )
        })
    }
}

/// The progress of deliveries on one link.
pub(super) struct Delivery {
    pushes: bool,
    position: u64,
    due: Option<Instant>,
    /// Whether the store may have messages that are not in `carried`.
    unread: bool,
    /// New messages that are not pushed yet. They usually save a read of the store.
    carried: Vec<Arc<Arrival>>,
    /// The position and time at which to look again. Messages after it were returned to a wait, but the session may not have
    /// been shown all of them.
    left_out: Option<(u64, Instant)>,
    reading: Option<BoxFuture<'static, PushedPage>>,
    /// Whether that page is for an earlier agent or context.
    is_outdated: bool,
    sent: Option<Delivered>,
    counter: i64,
}

struct Delivered {
    id: RequestId,
    messages: Vec<MessageId>,
    at: Instant,
}

impl Delivery {
    /// Begins after `position`. Nothing is pushed if `pushes` is false.
    pub(super) fn new(position: u64, pushes: bool) -> Self {
        Self {
            pushes,
            position,
            due: None,
            unread: true,
            carried: Vec::new(),
            left_out: None,
            reading: None,
            is_outdated: false,
            sent: None,
            counter: 0,
        }
    }

    /// Starts again for another agent or context. Frame ids continue, so that a late reply cannot match a new frame. A read that is
    /// in flight ends first: the store reads its page whether or not it is awaited.
    pub(super) fn begin_again(&mut self) {
        let reading = self.reading.take();
        *self = Self {
            counter: self.counter,
            is_outdated: reading.is_some(),
            reading,
            ..Self::new(0, self.pushes)
        };
    }

    /// Adds new messages; an empty list means that there may be some. A waiting session gets them from its wait first.
    pub(super) fn came(&mut self, arrivals: Vec<Arc<Arrival>>, waits: usize) {
        self.unread |= arrivals.is_empty() || !Arrival::are_few(&self.carried, &arrivals);
        if self.unread {
            self.carried = Vec::new();
        } else {
            self.carried.extend(arrivals);
        }
        self.ring(waits);
    }

    /// Schedules a look for new messages.
    pub(super) fn ring(&mut self, waits: usize) {
        if self.pushes {
            let now = Instant::now();
            let due = if waits > 0 { now + WAITS_FIRST } else { now };
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// Schedules a message that a cancelled wait gave back, so that it is pushed like any other.
    pub(super) fn given_back(&mut self) {
        if let Some((_, at)) = &mut self.left_out {
            *at = Instant::now();
        }
    }

    /// Starts to read the next page if it is time.
    pub(super) fn start(&mut self, services: &Arc<Services>, caller: &Caller, room: &Room) {
        if let Some((before, _)) = self.left_out.take_if(|(_, at)| *at <= Instant::now()) {
            // The host drops messages that it receives twice because of this.
            self.position = self.position.min(before);
            self.look();
        }
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if !is_due || self.reading.is_some() || self.sent.is_some() {
            return;
        }
        self.due = None;
        // A person's command has no session, so it always reads the store.
        let carried = self
            .take_carried(caller.tenure.as_ref())
            .filter(|_| !caller.is_person());
        if let Some(placed) = carried {
            self.reading = Some(Box::pin(std::future::ready(PushedPage {
                placed: Ok(placed),
                held: None,
            })));
            return;
        }
        self.unread = false;
        let (services, caller, after) = (Arc::clone(services), caller.clone(), self.position);
        let room = services.unfinished.room_for_texts(room);
        self.reading = Some(Box::pin(async move {
            let held = Some(room.await);
            let placed = match begin_read(&caller.principal).await {
                Ok(_reading) => unshown(&services, &caller, after).await,
                // As a store that does not answer: the page is read later.
                Err(refusal) => Err(StoreError::Unavailable(refusal.error)),
            };
            PushedPage { placed, held }
        }));
    }

    /// Schedules an immediate read of the store.
    fn look(&mut self) {
        self.unread = true;
        self.due = Some(Instant::now());
    }

    /// Takes the carried messages if they came for this session and are all that follows the pushed ones. Otherwise the store
    /// must be read.
    fn take_carried(&mut self, tenure: Option<&Tenure>) -> Option<Vec<Placed>> {
        let mut carried = std::mem::take(&mut self.carried);
        // One before the position was pushed already, or the store lost its latest data and counts anew. The host drops
        // doubles.
        if let Some(first) = carried.iter().map(|arrival| arrival.position).min()
            && first <= self.position
        {
            self.position = first.saturating_sub(1);
            return None;
        }
        let is_usable = |arrival: &Arc<Arrival>| arrival.is_fresh() && arrival.is_for(tenure);
        if self.unread || !carried.iter().all(is_usable) {
            return None;
        }
        carried.sort_by_key(|arrival| arrival.position);
        let mut last = self.position;
        for arrival in &carried {
            if !arrival.sole && arrival.follows.is_some_and(|before| before > last) {
                return None;
            }
            last = arrival.position;
        }
        let placed = |arrival| match Arc::try_unwrap(arrival) {
            Ok(Arrival {
                position, message, ..
            }) => Placed {
                position,
                message,
                bytes: 0,
            },
            Err(shared) => Placed {
                position: shared.position,
                message: shared.message.clone(),
                bytes: 0,
            },
        };
        Some(carried.into_iter().map(placed).collect())
    }

    /// Waits until a page was read. Cancel-safe.
    pub(super) async fn page(&mut self) -> PushedPage {
        let Some(reading) = &mut self.reading else {
            return std::future::pending().await;
        };
        let page = reading.await;
        self.reading = None;
        if std::mem::take(&mut self.is_outdated) {
            self.look();
            return PushedPage {
                placed: Ok(Vec::new()),
                held: None,
            };
        }
        page
    }

    /// Returns the frame for a page and its charge, without the messages that a wait of the session has already returned.
    ///
    /// A long page that was not charged when it was read takes room now. If unread answers fill it, the store is read again
    /// later.
    pub(super) fn frame(
        &mut self,
        page: PushedPage,
        memory: &Memory,
        budget: &Budget,
        room: &Room,
    ) -> Option<(String, Option<Charge>)> {
        let PushedPage { placed, held } = page;
        let before = self.position;
        let page = match placed {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!("could not read messages to deliver: {error}");
                self.unread = true;
                self.due = Some(Instant::now() + RETRY);
                return None;
            }
        };
        let (more, now) = (selection(self.position).is_filled_by(&page), Instant::now());
        let (mut messages, mut bytes, mut cut) = (Vec::new(), 0, false);
        for placed in page {
            bytes +=
                placed.message.text().len() + placed.message.context.as_deref().map_or(0, str::len);
            if !messages.is_empty() && bytes > PAGE_BYTES {
                cut = true;
                break;
            }
            match memory.held_until(&placed.message.id, now) {
                Some(until) => self.leave_out(until),
                None => messages.push(placed.message),
            }
            self.position = placed.position;
        }
        if more || cut {
            self.look();
        }
        if messages.is_empty() {
            return None;
        }
        let id = RequestId::Number(self.counter + 1);
        let ids = messages.iter().map(|message| message.id.clone()).collect();
        let now = clock::now();
        let messages = messages
            .into_iter()
            .map(|message| Arriving::at(message, now))
            .collect();
        let deliver = Deliver {
            messages,
            position: self.position,
        };
        let text = Outgoing::request(&id, "deliver", &deliver).text();
        let Ok(held) = held.map_or_else(
            || budget.room_for_answer(room, 2 * text.len()),
            |held| Ok(Some(held)),
        ) else {
            self.position = before;
            self.unread = true;
            self.due = Some(Instant::now() + RETRY);
            return None;
        };
        self.counter += 1;
        self.sent = Some(Delivered {
            id,
            messages: ids,
            at: Instant::now(),
        });
        Some((text, held))
    }

    /// Skips a message after the present position until that time. The oldest skipped position is looked at again.
    fn leave_out(&mut self, until: Instant) {
        let (position, at) = self.left_out.unwrap_or((self.position, until));
        self.left_out = Some((position, at.min(until)));
    }

    /// Returns the messages that the host has accepted, if this reply belongs to them.
    pub(super) fn answered(&mut self, id: &RequestId, accepted: bool) -> Option<Vec<MessageId>> {
        let sent = self.sent.take_if(|sent| sent.id == *id)?;
        accepted.then_some(sent.messages)
    }

    /// Returns whether the host's reply is overdue.
    pub(super) fn is_overdue(&self) -> bool {
        self.sent
            .as_ref()
            .is_some_and(|sent| sent.at.elapsed() >= ANSWER_DEADLINE)
    }

    /// Returns when to act again if no other event occurs.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.sent {
            Some(sent) => Some(sent.at + ANSWER_DEADLINE),
            None if self.reading.is_some() => None,
            None => [self.due, self.left_out.map(|(_, at)| at)]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}

/// Returns the next messages that the session was not shown, if it may read them still.
async fn unshown(services: &Services, caller: &Caller, after: u64) -> Result<Vec<Placed>> {
    let unshown = services
        .store
        .unshown(&caller.agent, selection(after))
        .await;
    check_read(services, caller).await?;
    unshown.inspect(|placed| note_page(&caller.principal, placed))
}

/// Returns the selection for one frame of messages after this position.
fn selection(after: u64) -> Selection<'static> {
    Selection {
        after,
        limit: PAGE,
        bytes: PAGE_BYTES,
        ..Selection::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::message::Message;
    use serde_json::json;

    fn page(placed: Vec<Placed>) -> PushedPage {
        PushedPage {
            placed: Ok(placed),
            held: None,
        }
    }

    fn placed(position: u64) -> Placed {
        let id = format!("a::b::0000000{position}");
        let message = json!({
            "id": id, "thread_id": id, "kind": "message", "from_agent": "a", "to_agent": "b", "message": "hi",
            "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        });
        let message: Message = serde_json::from_value(message).expect("an envelope");
        Placed {
            position,
            message,
            bytes: 0,
        }
    }

    #[test]
    fn handed_and_begun_messages_are_left_out_until_the_first_is_released() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (begun, handed, free) = (placed(1), placed(2), placed(3));
        memory.begin(&begun.message.id, now);
        assert!(memory.hand(&handed.message.id, now));
        let soon = memory.held_until(&handed.message.id, now);
        let mut delivery = Delivery::new(0, true);
        let (budget, room) = (Budget::within(None), Room::default());
        let frame =
            |delivery: &mut Delivery, placed| delivery.frame(page(placed), &memory, &budget, &room);
        assert!(frame(&mut delivery, vec![begun, handed]).is_none());
        assert_eq!(
            (
                delivery.next_deadline(),
                delivery.left_out.map(|(before, _)| before)
            ),
            (soon, Some(0))
        );
        let (frame, _) = frame(&mut delivery, vec![free]).expect("nothing holds it back");
        assert!(frame.contains("a::b::00000003"), "{frame}");
    }
    /// If it were dropped, a session that begins contexts without end would have any number of reads in the store.
    #[tokio::test]
    async fn a_read_that_is_in_flight_ends_before_the_next_one_and_its_page_is_dropped() {
        let mut delivery = Delivery::new(0, true);
        delivery.reading = Some(Box::pin(std::future::ready(page(vec![placed(1)]))));
        delivery.begin_again();
        assert!(delivery.reading.is_some());
        let dropped = delivery.page().await.placed.expect("a page");
        assert!(dropped.is_empty() && delivery.reading.is_none());
        assert!(delivery.due.is_some_and(|due| due <= Instant::now()));
        delivery.reading = Some(Box::pin(std::future::ready(page(vec![placed(1)]))));
        assert_eq!(
            delivery.page().await.placed.map(|page| page.len()).ok(),
            Some(1)
        );
    }
}
