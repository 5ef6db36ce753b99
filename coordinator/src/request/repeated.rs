//! The recipients of a call that is repeated after its target changed: a role whose agents left it, or the agent of a host that
//! was renamed. Its messages are stored, so that the call is not refused as one to nobody.

use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::refusal::Refusal;

use super::inbox::READ_AT_ONCE;
use super::namesakes::read_namesakes;
use super::price::note_texts;
use super::{Caller, PLACE_DEADLINE, Services, begin_read};
use crate::store::Stretch;

/// How many parts of the thread of the copies are read, and the copies in each: together as many as there may be agents.
const PARTS_MAX: usize = 400;
const COPIES_AT_ONCE: usize = 25;

/// Returns the agents to which the call sent copies.
pub(super) async fn with_copies(
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
        let excerpt = services.store.thread(&thread, stretch).await?;
        let messages = || excerpt.messages.iter().map(|copy| &copy.message);
        note_texts(&caller.principal, messages());
        let is_copy = |id: &MessageId| *id == of_call(caller, &id.to(), call);
        recipients.extend(
            messages()
                .filter(|copy| is_copy(&copy.id))
                .map(|copy| copy.to_agent.clone()),
        );
        after = excerpt.next;
        if after.is_none() {
            break;
        }
    }
    Ok(recipients)
}

/// Returns the agent of that name, on whichever host, to which the call sent its message.
pub(super) async fn with_message(
    services: &Services,
    caller: &Caller,
    call: CallId,
    name: &AgentId,
) -> Result<Option<AgentId>, Refusal> {
    let principal = &caller.principal;
    let namesakes =
        read_namesakes(services.store.as_ref(), principal, name, PLACE_DEADLINE).await?;
    for agent in namesakes {
        let _reading = begin_read(principal).await?;
        principal.note_calls(1);
        let id = of_call(caller, &agent.id, call);
        if services.message(principal, &id).await?.is_some() {
            return Ok(Some(agent.id));
        }
    }
    Ok(None)
}

fn of_call(caller: &Caller, to: &AgentId, call: CallId) -> MessageId {
    MessageId::of_call(&caller.agent, to, call, 0)
}
