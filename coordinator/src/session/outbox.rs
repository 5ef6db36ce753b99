//! The frames of one link that are not written yet, with their charges.

use c3po_shared::catalogue::Reply;
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::{Outgoing, RequestId, RpcError};
use serde::Serialize;

use super::bounds::OUTBOX_FULL;
use crate::unfinished::{Budget, Charge, Room};

/// Frames to write before anything else is done.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: Vec<String>,
    bytes: usize,
    /// The charges of the frames with whole texts.
    held: Vec<Charge>,
}

impl Outbox {
    /// Adds a frame.
    pub(super) fn push(&mut self, text: String) {
        self.bytes += text.len();
        self.frames.push(text);
    }

    /// Adds a frame whose texts were charged before they were read.
    pub(super) fn push_held(&mut self, text: String, held: Option<Charge>) {
        if let Some(mut held) = held {
            // The frame and the copy in the buffer of the connection.
            held.shrink(2 * text.len());
            self.held.push(held);
        }
        self.push(text);
    }

    /// Adds the reply to a request.
    pub(super) fn answer<R: Serialize>(&mut self, id: &RequestId, result: &R) {
        self.push(Outgoing::result(id, result).text());
    }

    /// Adds the reply to a call that changed nothing. A long reply takes room; if unread replies fill it, the call is refused
    /// instead, and the result is `false`.
    pub(super) fn reply_if_room(
        &mut self,
        id: &RequestId,
        reply: &Reply,
        budget: &Budget,
        room: &Room,
    ) -> bool {
        let text = Outgoing::result(id, reply).text();
        // The frame and the copy in the buffer of the connection.
        match budget.room_for_answer(room, 2 * text.len()) {
            Ok(held) => {
                self.push_held(text, held);
                true
            }
            Err(refusal) => {
                self.refuse(id, refusal);
                false
            }
        }
    }

    /// Adds the refusal of a request.
    pub(super) fn refuse(&mut self, id: &RequestId, refusal: Refusal) {
        self.push(Outgoing::error(Some(id), &RpcError::from(refusal)).text());
    }

    /// Returns whether the frames must be written before there are more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= OUTBOX_FULL
    }

    /// Returns whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the frames, and the charges to hold until they are written.
    pub(super) fn take(&mut self) -> (Vec<String>, Vec<Charge>) {
        self.bytes = 0;
        (
            std::mem::take(&mut self.frames),
            std::mem::take(&mut self.held),
        )
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::catalogue::TimedOut;

    use super::*;

    #[test]
    fn a_long_reply_without_room_is_refused() {
        let (budget, room) = (Budget::within(Some(1 << 20)), Room::default());
        let reply = Reply::TimedOut(TimedOut {
            message: "x".repeat(600_000),
            ..TimedOut::any(1, 0)
        });
        let (mut outbox, id) = (Outbox::default(), RequestId::Number(1));
        assert!(outbox.reply_if_room(&id, &reply, &budget, &room));
        assert!(
            !outbox.reply_if_room(&id, &reply, &budget, &room),
            "the first one is not written"
        );
        let (frames, held) = outbox.take();
        assert!(
            frames[0].len() > 600_000 && frames[1].contains("RATE_LIMITED"),
            "{}",
            frames[1]
        );
        drop(held);
        assert!(outbox.reply_if_room(&id, &reply, &budget, &room));
    }
}
