//! Performs calls, independent of their transport: takes a checked call, returns a reply or a refusal.

mod about_question;
mod agents;
mod answers;
mod ask;
mod asking;
mod audit;
mod caller;
mod candidates;
mod client_request;
mod correction;
mod deposit;
mod events;
mod guard;
mod identity;
mod inbox;
mod namesakes;
mod notice;
mod outcome;
mod own;
mod page;
mod page_use;
mod part;
mod permission;
mod person;
mod persons;
mod price;
mod questions;
mod receipts;
mod repeated;
mod send;
mod target;
mod triage;
mod triage_agents;
mod view;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{Call, Reply, Tool};
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::limits::{AGENTS_PER_KEY, AGENTS_WITHOUT_KEY};
use c3po_shared::receipt::Progress;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

pub(crate) use answers::{answer, answer_by_code};
pub(crate) use asking::{Asking, waiting as waiting_questions};
pub(crate) use audit::{page as audit_page, sent};
pub(crate) use caller::{Caller, Memory};
pub(crate) use client_request::end_request;
pub(crate) use correction::find as find_correction;
pub(crate) use events::{Events, Next as NextEvents, page as events_page};
pub(crate) use guard::{list as list_guarded, rule as rule_guarded};
pub(crate) use identity::{
    check_host, check_name, check_read, check_reader, check_right, check_speaker, drop_number,
    settle_name,
};
pub(crate) use inbox::placed;
pub(crate) use notice::notify_people;
pub(crate) use page_use::{left as page_use_left, record as record_page_use};
pub(crate) use permission::explain as explain_policy;
pub(crate) use person::{PersonWish, act_as};
pub(crate) use persons::Persons;
pub(crate) use price::note_page;
pub(crate) use questions::{
    asked, labelled, open as open_questions, open_after, record_shown, show as show_question,
    with_parts,
};
pub(crate) use target::select;
pub(crate) use triage::{end as end_triage, hold as hold_for_triage};
pub(crate) use triage_agents::watch as watch_triage;

use crate::audit::Audit;
use crate::auth::{Principal, Work};
use crate::guard::Guard;
use crate::limit::RateLimit;
use crate::metrics::Metrics;
use crate::policy::Policies;
use crate::presence::Presence;
use crate::store::{Agent, CHANGED_BY_CALL, Quota, Store, StoreError};
use crate::unfinished::{Budget, Charge, unread};

/// The deadline for all store operations of one call, except waits.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_millis(1_900);

/// The charge of the answer to a message with many recipients, in bytes.
const COPIES_CHARGE: usize = 512 << 10;

/// How long a read waits for its place. It is shorter than the deadline of a call, so that the refusal names the reason.
const PLACE_DEADLINE: Duration = Duration::from_millis(1_500);
/// How many messages are changed at once: others wait meanwhile, and the store may rewrite each with its texts.
const CHANGED_AT_ONCE: usize = 25;

/// The dependencies of every call.
#[derive(Debug)]
pub(crate) struct Services {
    /// The store, which is the truth.
    pub(crate) store: Arc<dyn Store>,
    /// The hosts of persons' names.
    pub(crate) persons: Persons,
    /// The agents that are connected here.
    pub(crate) presence: Presence,
    /// The rules about sending.
    pub(crate) policies: Arc<Policies>,
    /// The log of these actions.
    pub(crate) audit: Audit,
    /// The rate limit of senders.
    pub(crate) limit: RateLimit,
    /// The loop guard for pairs of agents.
    pub(crate) guard: Guard,
    /// How long a message stays in an inbox before it expires.
    pub(crate) message_life: Duration,
    /// The limit of message bytes stored with one key per day.
    pub(crate) store_quota: Option<u64>,
    /// The budget for unfinished input.
    pub(crate) unfinished: Budget,
    /// The places of streams of events.
    pub(crate) event_readers: Arc<Semaphore>,
    /// Notified when a duty of people's mail may be due before it was known.
    pub(crate) duties_due: Notify,
    /// The metrics.
    pub(crate) metrics: Metrics,
}

impl Services {
    /// Returns the storage quota of a principal.
    pub(crate) fn quota(&self, principal: &Principal) -> Quota {
        let agents = if principal.key_id().is_some() {
            AGENTS_PER_KEY
        } else {
            AGENTS_WITHOUT_KEY
        };
        Quota {
            key: principal.name().to_owned(),
            is_of_key: principal.own_host().is_some(),
            bytes: self.store_quota,
            agents: Some(agents),
        }
    }

    /// Returns a page of agents for a principal.
    ///
    /// Errors: `STORE_UNAVAILABLE`, and those of [`begin_read`].
    pub(crate) async fn agents(
        &self,
        principal: &Principal,
        after: Option<&AgentId>,
        limit: usize,
    ) -> Result<Vec<Agent>, Refusal> {
        let _list = begin(principal, Work::List).await?;
        let _reading = begin_read(principal).await?;
        Ok(self.store.agents(after, limit).await?)
    }
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Done {
    /// The reply to the caller.
    pub(crate) reply: Reply,
    /// The caller's new identity, if it changed.
    pub(crate) renamed: Option<Caller>,
    /// The charge of whole texts, to be held until the reply is written.
    pub(crate) held: Option<Charge>,
}

impl From<Reply> for Done {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            renamed: None,
            held: None,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => {
                tracing::warn!("the store is unavailable: {why}");
                Self::store_unavailable()
            }
            StoreError::Full(why) => {
                tracing::warn!("the store is full: {why}");
                Self::store_full()
            }
            StoreError::OverQuota(exceeded) => Self::quota_exceeded(
                &exceeded.key,
                exceeded.count,
                exceeded.limit,
                exceeded.until,
            ),
            StoreError::Crowded(crowded) => {
                Self::too_many_agents(&crowded.key, crowded.count, crowded.limit)
            }
            StoreError::Alike { name, known } => Self::alike(&name, &known),
            StoreError::Reserved { name, host } => {
                let error = format!("{name} belongs to the host {host}");
                Self::new(ErrorCode::Forbidden, error).suggest("Choose another name.")
            }
            StoreError::TakenOver(agent) => Self::new(
                ErrorCode::Conflict,
                format!("another session took over {agent}; nothing was done"),
            )
            .suggest("Call again: c3po reconnects under another name."),
            StoreError::Corrupt(what) => {
                tracing::error!("the store has unreadable data: {what}");
                Self::new(ErrorCode::Internal, "the store has unreadable data")
            }
        }
    }
}

/// Performs the call and counts it. The charge of a question to people is held until that is stored.
///
/// Errors are refusals for the caller. If the store hangs, the result is `STORE_UNAVAILABLE` within two seconds.
pub(crate) async fn perform(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: Call,
    held: Option<Charge>,
) -> Result<Done, Refusal> {
    let (tool, began) = (call.tool(), Instant::now());
    let waits = call.waits();
    let outcome = match call {
        // A wait has its own deadline, and each of its reads ends within CALL_DEADLINE. Many waits run concurrently, so each
        // is boxed separately and holds only its own state.
        Call::WaitForMessage(call) => {
            Box::pin(wait::wait_for_message(services, caller, call)).await
        }
        Call::AskUser(call) => Box::pin(ask::ask_user(services, caller, id, call, held)).await,
        call => {
            let held = match &call {
                Call::GetMessages(_) | Call::GetThread(_) => room_of_person(services, caller).await,
                // The answer has an entry for each recipient, and is never refused afterwards.
                Call::Broadcast(_) => services
                    .unfinished
                    .room_for_answer(caller.principal.room(), COPIES_CHARGE),
                Call::SendMessage(call) if call.target.starts_with('@') => services
                    .unfinished
                    .room_for_answer(caller.principal.room(), COPIES_CHARGE),
                _ => Ok(None),
            };
            match held {
                Err(refusal) => Err(refusal),
                Ok(held) => Box::pin(work(services, caller, id, call))
                    .await
                    .map(|done| Done { held, ..done }),
            }
        }
    };
    let word = outcome
        .as_ref()
        .map_or_else(|refusal| refusal.code.as_str(), |_| "ok");
    services
        .metrics
        .called(tool.name(), word, (!waits).then(|| began.elapsed()));
    outcome
}

/// Takes a place of the principal for a read of texts or of a long list, a change of many messages or a broadcast. A call
/// takes one at a time: with two each, calls could wait for each other.
///
/// Errors: `RATE_LIMITED` if all its places stay taken for about two seconds.
pub(crate) async fn begin_read(principal: &Principal) -> Result<SemaphorePermit<'_>, Refusal> {
    begin(principal, Work::Read).await
}

/// Takes a place of the principal for another kind of work. A read takes its own place beside it, but never the other way round.
///
/// Errors as for [`begin_read`].
async fn begin(principal: &Principal, work: Work) -> Result<SemaphorePermit<'_>, Refusal> {
    principal.begin(work, PLACE_DEADLINE).await
}

/// Takes a place of the principal for a request by REST, which may take the other places beside it.
///
/// Errors as for [`begin_read`].
pub(crate) async fn begin_request(
    principal: &Principal,
) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
    principal.begin_request(PLACE_DEADLINE).await
}

/// Takes a place of the principal for the upgrade to a link.
///
/// Errors as for [`begin_read`].
pub(crate) async fn begin_upgrade(
    principal: &Principal,
) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
    principal.begin_upgrade(PLACE_DEADLINE).await
}

/// Takes a place of the principal for a call. A read may take its own place beside it, but never the other way round.
///
/// Errors as for [`begin_read`].
pub(crate) async fn begin_call(principal: &Principal) -> Result<SemaphorePermit<'_>, Refusal> {
    begin(principal, Work::Call).await
}

/// Takes a place of the principal for a change of so many messages.
///
/// Errors as for [`begin_read`].
pub(crate) async fn begin_change(
    principal: &Principal,
    messages: usize,
) -> Result<SemaphorePermit<'_>, Refusal> {
    principal.begin_change(messages, PLACE_DEADLINE).await
}

/// Records the progress of messages in short calls. Recorded stages are ignored if a part fails and all is repeated.
///
/// Errors: `Unavailable` also if the principal makes too many calls at a time.
pub(crate) async fn progress(
    services: &Services,
    caller: &Caller,
    progress: &Progress,
) -> Result<(), StoreError> {
    let all = &progress.message_ids[..];
    for message_ids in all
        .chunks(CHANGED_BY_CALL)
        .chain(all.is_empty().then_some(all))
    {
        let _place = begin_change(&caller.principal, message_ids.len())
            .await
            .map_err(|refusal| StoreError::Unavailable(refusal.error))?;
        check_speaker(services, caller).await?;
        let some = Progress {
            message_ids: message_ids.to_vec(),
            ..*progress
        };
        receipts::advance(services, caller, &some).await?;
    }
    Ok(())
}

/// Takes the place of the principal in the store that the call needs.
async fn place_for<'a>(
    principal: &'a Principal,
    call: &Call,
) -> Result<Option<SemaphorePermit<'a>>, Refusal> {
    Ok(match call {
        // It takes a place for each page.
        Call::ListAgents(_) => None,
        Call::GetMessages(_) | Call::GetThread(_) | Call::MessageStatus(_) => {
            Some(begin_read(principal).await?)
        }
        Call::AckMessages(call) => Some(begin_change(principal, call.message_ids.len()).await?),
        // It reads that message whole.
        Call::EscalateToHuman(call) if call.question_id.is_some() => {
            Some(begin_read(principal).await?)
        }
        _ => Some(begin_call(principal).await?),
    })
}

async fn work(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: Call,
) -> Result<Done, Refusal> {
    let _place = place_for(&caller.principal, &call).await?;
    tokio::time::timeout(CALL_DEADLINE, dispatch(services, caller, id, call))
        .await
        .unwrap_or_else(|_| Err(Refusal::store_unavailable()))
}

/// Takes room for an answer with whole texts.
///
/// Errors: `RATE_LIMITED` if earlier answers of the principal stay unread for the deadline of a call.
pub(crate) async fn room_for_texts(
    services: &Services,
    principal: &Principal,
) -> Result<Charge, Refusal> {
    let room = services.unfinished.room_for_texts(principal.room());
    tokio::time::timeout(CALL_DEADLINE, room)
        .await
        .map_err(|_| unread())
}

/// Takes room for whole texts if the caller is a person, who gets them.
async fn room_of_person(services: &Services, caller: &Caller) -> Result<Option<Charge>, Refusal> {
    if !caller.is_person() {
        return Ok(None);
    }
    room_for_texts(services, &caller.principal).await.map(Some)
}

/// Performs a call that only reads, as an agent that a session may hold. Returns the reply with its charge.
pub(crate) async fn read(
    services: &Services,
    caller: &Caller,
    call: Call,
) -> Result<(Reply, Option<Charge>), Refusal> {
    let held = match &call {
        Call::GetMessages(_) | Call::GetThread(_) => room_of_person(services, caller).await?,
        _ => None,
    };
    let _place = place_for(&caller.principal, &call).await?;
    let reading = async {
        match call {
            Call::GetMessages(call) => inbox::get_messages(services, caller, call).await,
            Call::GetThread(call) => receipts::get_thread(services, caller, call).await,
            Call::MessageStatus(call) => receipts::message_status(services, caller, call).await,
            Call::ListAgents(call) => agents::list(services, caller, call).await,
            Call::GetAgentStatus(call) => agents::status(services, caller, call).await,
            call => {
                let error = format!("{} does not only read", call.tool().name());
                Err(Refusal::new(ErrorCode::Internal, error))
            }
        }
    };
    let reply = tokio::time::timeout(CALL_DEADLINE, Box::pin(reading)).await;
    let reply = reply.unwrap_or_else(|_| Err(Refusal::store_unavailable()))?;
    Ok((reply, held))
}

async fn dispatch(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: Call,
) -> Result<Done, Refusal> {
    let reads = call.tool().only_reads() && call.tool() != Tool::Ping;
    if !reads {
        check_speaker(services, caller).await?;
    }
    let reply = match call {
        Call::RegisterAgent(call) => return agents::register(services, caller, call).await,
        Call::SendMessage(call) => send::send_message(services, caller, id, call).await?,
        Call::Reply(call) => answers::reply(services, caller, id, call).await?,
        Call::Broadcast(call) => send::broadcast(services, caller, id, call).await?,
        Call::GetMessages(call) => inbox::get_messages(services, caller, call).await?,
        Call::AckMessages(call) => inbox::acknowledge(services, caller, call).await?,
        Call::WaitForMessage(call) => return wait::wait_for_message(services, caller, call).await,
        Call::AskUser(call) => return ask::ask_user(services, caller, id, call, None).await,
        Call::NotifyUser(call) => ask::notify_user(services, caller, id, call).await?,
        Call::EscalateToHuman(call) => ask::escalate(services, caller, id, call).await?,
        Call::GetThread(call) => receipts::get_thread(services, caller, call).await?,
        Call::MessageStatus(call) => receipts::message_status(services, caller, call).await?,
        Call::ListAgents(call) => agents::list(services, caller, call).await?,
        Call::GetAgentStatus(call) => agents::status(services, caller, call).await?,
        Call::SetStatus(call) => agents::set_status(services, caller, call).await?,
        Call::Ping(_) => agents::ping(caller),
        Call::RequestPermission(call) => {
            client_request::request_permission(services, caller, id, call).await?
        }
        Call::AnswerInDialog(call) => answers::answer_in_dialog(services, caller, id, call).await?,
        Call::Conclude(call) => client_request::conclude(services, caller, call).await?,
    };
    if reads {
        check_read(services, caller).await?;
        caller.begin_cut(&reply);
    }
    Ok(reply.into())
}
