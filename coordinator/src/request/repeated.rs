//! The recipients of a repeated call whose target no longer names anybody: a role that all its agents left, or a host that was
//! renamed. Its messages are stored, so that the call is not refused.

use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::refusal::Refusal;

use super::inbox::READ_AT_ONCE;
use super::namesakes::read_namesakes;
use super::price::note_texts;
use super::{Caller, PLACE_DEADLINE, Services, begin_read};
use crate::store::Stretch;

/// How many parts of the thread of the copies are read, and the most copies in each.
const PARTS_MAX: usize = 40;
const COPIES_AT_ONCE: usize = 25;
/// How many agents of a name are looked at.
const NAMESAKES_MAX: usize = 64;

/// Returns the agents to which the call sent copies.
///
/// Errors: `STORE_UNAVAILABLE` also for a longer thread, because it is unknown then.
pub(super) async fn recipients_of_copies(
    services: &Services,
    caller: &Caller,
    call: CallId,
) -> Result<Vec<AgentId>, Refusal> {
    let thread = MessageId::of_call(&caller.agent, &AgentId::all(), call, 0);
    let (mut recipients, mut after) = (Vec::new(), None);
    for _ in 0..PARTS_MAX {
        let _reading = begin_read(&caller.principal).await?;
        let stretch = Stretch {
            reader: &caller.agent,
            after: after.as_ref(),
            limit: COPIES_AT_ONCE,
            bytes: READ_AT_ONCE,
        };
        caller.principal.note_calls(1);
        let excerpt = services.store.thread(&thread, stretch).await?;
        let messages = || excerpt.messages.iter().map(|copy| &copy.message);
        note_texts(&caller.principal, messages());
        let is_copy = |id: &MessageId| *id == first_id(caller, &id.to(), call);
        recipients.extend(
            messages()
                .filter(|copy| is_copy(&copy.id))
                .map(|copy| copy.to_agent.clone()),
        );
        after = excerpt.next;
        if after.is_none() {
            return Ok(recipients);
        }
    }
    Err(Refusal::store_unavailable())
}

/// Returns the agent of that name, on whichever host, to which the call sent its message.
pub(super) async fn recipient_of_message(
    services: &Services,
    caller: &Caller,
    call: CallId,
    name: &AgentId,
) -> Result<Option<AgentId>, Refusal> {
    let principal = &caller.principal;
    let namesakes =
        read_namesakes(services.store.as_ref(), principal, name, PLACE_DEADLINE).await?;
    for agent in namesakes.into_iter().take(NAMESAKES_MAX) {
        let _reading = begin_read(principal).await?;
        principal.note_calls(1);
        let id = first_id(caller, &agent.id, call);
        if services.message(principal, &id).await?.is_some() {
            return Ok(Some(agent.id));
        }
    }
    Ok(None)
}

/// Returns the id that a message of the call has, unless another call had it.
fn first_id(caller: &Caller, to: &AgentId, call: CallId) -> MessageId {
    MessageId::of_call(&caller.agent, to, call, 0)
}
