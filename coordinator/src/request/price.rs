//! The prices of work that grows with the data that is stored or sent, in calls: others wait for the store meanwhile.

use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::vocabulary::KindFilter;

use super::Services;
use super::part::json_size;
use crate::auth::Principal;
use crate::store::{Placed, Selection, StoreError, StoredMessage};

/// How many bytes of texts are read or sent for the price of a call.
const BYTES_PER_CALL: usize = 32 << 10;
/// How many messages of an inbox are searched for the price of a call.
const SEARCHED_PER_CALL: usize = 16;
/// How many agents are compared with a name for the price of a call.
const AGENTS_PER_CALL: usize = 32;
/// How many messages are summed up for the price of a call: only their stages are read.
const STAGES_PER_CALL: usize = 4;
/// The price of a message to people, instead of a call: it changes their indexes too, and plans a push.
const TO_PEOPLE: usize = 8;
/// The further price of a question to them: its end changes these again.
const END_OF_QUESTION: usize = 8;
/// The price of each triage agent that may answer it: the coordinator looks at the agent and its offer several times.
const TRIAGE_AGENT: usize = 4;
/// The price of searching a part of a thread for a message of a person.
const SEARCH_OF_THREAD: usize = 8;

impl Services {
    /// Returns the message for a principal, which pays for its texts.
    pub(super) async fn message(
        &self,
        principal: &Principal,
        id: &MessageId,
    ) -> Result<Option<StoredMessage>, StoreError> {
        let kept = self.store.message(id).await?;
        if let Some(kept) = &kept {
            note_texts(principal, [&kept.message]);
        }
        Ok(kept)
    }
}

/// Counts a read of these messages.
pub(super) fn note_texts<'a>(
    principal: &Principal,
    messages: impl IntoIterator<Item = &'a Message>,
) {
    let bytes = |message: &Message| json_bytes(message.text(), message.context.as_deref());
    let bytes: usize = messages.into_iter().map(bytes).sum();
    note(principal, bytes / BYTES_PER_CALL);
}

/// Counts a read of these messages of an inbox.
pub(crate) fn note_page(principal: &Principal, placed: &[Placed]) {
    let bytes: usize = placed.iter().map(|one| one.bytes).sum();
    note(principal, bytes / BYTES_PER_CALL);
}

/// Counts a read of an inbox with so many messages: one for a kind or a thread may look at all of them.
pub(super) fn note_search(principal: &Principal, selection: Selection<'_>, messages: usize) {
    if selection.kind != KindFilter::Any || selection.thread.is_some() {
        note(principal, messages / SEARCHED_PER_CALL);
    }
}

/// Counts so many copies of a text, besides the call that sends them.
pub(super) fn note_copies(principal: &Principal, copies: usize, bytes: usize) {
    note(principal, copies * (1 + bytes / BYTES_PER_CALL));
}

/// Counts a message to people, besides the call that sends it.
pub(super) fn note_to_people(principal: &Principal, is_question: bool) {
    let end = if is_question { END_OF_QUESTION } else { 0 };
    note(principal, TO_PEOPLE - 1 + end);
}

/// Counts the offers of a question to triage agents, or their end.
pub(super) fn note_offers(principal: &Principal, agents: usize) {
    note(principal, TRIAGE_AGENT * agents);
}

/// Counts a look at all agents.
pub(super) fn note_agents(principal: &Principal, agents: usize) {
    note(principal, agents / AGENTS_PER_CALL);
}

/// Counts a read of so many stages.
pub(super) fn note_stages(principal: &Principal, stages: usize) {
    note(principal, stages / STAGES_PER_CALL);
}

/// Counts a search of a part of a thread.
pub(super) fn note_part_of_thread(principal: &Principal) {
    note(principal, SEARCH_OF_THREAD);
}

fn note(principal: &Principal, calls: usize) {
    principal.note_calls(u32::try_from(calls).unwrap_or(u32::MAX));
}

/// Returns the number of bytes that these texts have in JSON.
pub(super) fn json_bytes(message: &str, context: Option<&str>) -> usize {
    let texts = [message, context.unwrap_or_default()];
    texts
        .iter()
        .flat_map(|text| text.chars())
        .map(json_size)
        .sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use c3po_shared::limits::{CALLS_PER_SECOND, INBOX_MAX};
    use c3po_shared::vocabulary::Scope;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::auth::key;

    fn message(text: &str) -> Message {
        serde_json::from_value(json!({
            "id": "a::b::00000001", "thread_id": "a::b::00000001", "from_agent": "a", "to_agent": "b",
            "kind": "message", "timestamp": "2026-01-01T00:00:00.000Z", "priority": "normal",
            "requires_response": false, "expires_at": "2026-01-02T00:00:00.000Z", "message": text,
        }))
        .expect("a message")
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_grows_has_a_price() {
        let thread: MessageId = "a::web::00000001".parse().expect("an id");
        let plain = Selection::default();
        let of_kind = Selection {
            kind: KindFilter::Reply,
            ..plain
        };
        let of_thread = Selection {
            thread: Some(&thread),
            ..plain
        };
        // A control character has six bytes in JSON.
        let (short, long) = (message("text"), message(&"\u{1}".repeat(50_000)));
        let page = |bytes| Placed {
            position: 1,
            message: short.clone(),
            bytes,
        };
        let pages = [page(20_000), page(300_000)];
        type Note<'a> = &'a dyn Fn(&Principal);
        let prices: [(Note<'_>, u32); 16] = [
            (&|by| note_search(by, plain, INBOX_MAX), 0),
            (&|by| note_search(by, of_kind, INBOX_MAX), 62),
            (&|by| note_search(by, of_thread, INBOX_MAX), 62),
            (&|by| note_texts(by, [&short]), 0),
            (&|by| note_texts(by, [&long, &short]), 9),
            (&|by| note_texts(by, [&long, &long]), 18),
            (&|by| note_page(by, &pages[..1]), 0),
            (&|by| note_page(by, &pages), 9),
            (&|by| note_copies(by, 1_000, 4), 1_000),
            (&|by| note_copies(by, 10, 300_000), 100),
            (&|by| note_to_people(by, false), 7),
            (&|by| note_to_people(by, true), 15),
            (&|by| note_offers(by, 16), 64),
            (&|by| note_agents(by, 1_000), 31),
            (&|by| note_stages(by, 100), 25),
            (&|by| note_part_of_thread(by), 8),
        ];
        for (at, (note, calls)) in prices.into_iter().enumerate() {
            let principal = key(Scope::Agent, "*");
            // The burst is used up.
            principal.note_calls(CALLS_PER_SECOND);
            let began = Instant::now();
            note(&principal);
            principal.rest().await;
            let price = Duration::from_secs(1) * calls / CALLS_PER_SECOND;
            let rested = began.elapsed();
            // Tokio's clock counts milliseconds.
            let is_price = rested >= price && rested <= price + Duration::from_millis(2);
            assert!(is_price, "price {at}: {rested:?} instead of {price:?}");
        }
    }
}
