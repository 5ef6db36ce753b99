//! What the coordinator does for one call, whichever way it came: a checked call in, a reply or a refusal out.

mod agents;
mod audit;
mod guard;
mod identity;
mod inbox;
mod leave;
mod page;
mod part;
mod receipts;
mod send;
mod session;
mod target;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{Call, Reply, Tool};
use c3po_shared::ids::CallId;
use c3po_shared::limits::{AGENTS_PER_KEY, AGENTS_WITHOUT_KEY};
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::Instant;

pub(crate) use audit::{page as audit_page, sent};
pub(crate) use guard::{list as list_guarded, rule as rule_guarded};
pub(crate) use identity::{belongs_to, check_host, check_name, check_right, check_speaker, settle_name};
pub(crate) use leave::explain as explain_policy;
pub(crate) use receipts::advance;
pub(crate) use session::{Caller, Memory};
pub(crate) use target::everyone;

use crate::audit::Audit;
use crate::auth::Principal;
use crate::guard::Guard;
use crate::limit::RateLimit;
use crate::metrics::Metrics;
use crate::policy::Policies;
use crate::presence::Presence;
use crate::store::{Quota, Store, StoreError};
use crate::unfinished::Budget;

/// How long the store may take for everything one call does, waits aside.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_millis(1_900);

/// What every call works with.
#[derive(Debug)]
pub(crate) struct Office {
    /// The truth.
    pub(crate) store: Arc<dyn Store>,
    /// Who is connected here.
    pub(crate) presence: Presence,
    /// Who may do what to whom.
    pub(crate) policies: Arc<Policies>,
    /// What is noted of all this.
    pub(crate) audit: Audit,
    /// How often agents may send.
    pub(crate) limit: RateLimit,
    /// How often two agents may write to each other without a person.
    pub(crate) guard: Guard,
    /// How long a message waits for its recipient.
    pub(crate) message_life: Duration,
    /// How many bytes of messages may be stored with one key within a day.
    pub(crate) store_quota: Option<u64>,
    /// How much unfinished input is held.
    pub(crate) unfinished: Budget,
    /// What is counted.
    pub(crate) metrics: Metrics,
}

impl Office {
    /// Returns what may be stored with a credential.
    pub(crate) fn quota(&self, principal: &Principal) -> Quota {
        let agents = if principal.key_id().is_some() { AGENTS_PER_KEY } else { AGENTS_WITHOUT_KEY };
        Quota { key: principal.name().to_owned(), bytes: self.store_quota, agents: Some(agents) }
    }
}

/// What a call led to.
#[derive(Debug)]
pub(crate) struct Done {
    /// What the caller is told.
    pub(crate) reply: Reply,
    /// Who the caller is from now on, where that changed.
    pub(crate) renamed: Option<Caller>,
}

impl From<Reply> for Done {
    fn from(reply: Reply) -> Self {
        Self { reply, renamed: None }
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
            StoreError::OverQuota(exceeded) => {
                Self::quota_exceeded(&exceeded.key, exceeded.count, exceeded.limit, exceeded.until)
            }
            StoreError::Crowded(crowded) => Self::too_many_agents(&crowded.key, crowded.count, crowded.limit),
            StoreError::Alike { name, known } => Self::alike(&name, &known),
            StoreError::TakenOver(agent) => {
                Self::new(ErrorCode::Conflict, format!("another session is {agent} now; nothing was done"))
                    .suggest("Call again: c3po reconnects under a name of its own.")
            }
            StoreError::Corrupt(what) => {
                tracing::error!("the store holds something unreadable: {what}");
                Self::new(ErrorCode::Internal, "the store holds something that cannot be read")
            }
        }
    }
}

/// Does what the call asks for, and counts it.
///
/// Errors are refusals for the caller. A store that hangs makes `STORE_UNAVAILABLE` within two seconds.
pub(crate) async fn perform(office: &Office, caller: &Caller, id: CallId, call: Call) -> Result<Done, Refusal> {
    let (tool, began) = (call.tool(), Instant::now());
    let waits = tool == Tool::WaitForMessage;
    let outcome = match call {
        // A wait has its own deadline, and looks at the store within CALL_DEADLINE each time. There are many at a time,
        // so each holds only what it needs itself.
        Call::WaitForMessage(call) => Box::pin(wait::wait_for_message(office, caller, call)).await.map(Done::from),
        call => tokio::time::timeout(CALL_DEADLINE, Box::pin(dispatch(office, caller, id, call)))
            .await
            .unwrap_or_else(|_| Err(Refusal::store_unavailable())),
    };
    let word = outcome.as_ref().map_or_else(|refusal| refusal.code.as_str(), |_| "ok");
    office.metrics.called(tool.name(), word, (!waits).then(|| began.elapsed()));
    outcome
}

async fn dispatch(office: &Office, caller: &Caller, id: CallId, call: Call) -> Result<Done, Refusal> {
    check_speaker(office, caller).await?;
    let reply = match call {
        Call::RegisterAgent(call) => return agents::register(office, caller, call).await,
        Call::SendMessage(call) => send::send_message(office, caller, id, call).await?,
        Call::Reply(call) => send::reply(office, caller, id, call).await?,
        Call::Broadcast(call) => send::broadcast(office, caller, id, call).await?,
        Call::GetMessages(call) => inbox::get_messages(office, caller, call).await?,
        Call::AckMessages(call) => inbox::acknowledge(office, caller, call).await?,
        Call::WaitForMessage(call) => wait::wait_for_message(office, caller, call).await?,
        Call::GetThread(call) => receipts::get_thread(office, caller, call).await?,
        Call::MessageStatus(call) => receipts::message_status(office, caller, call).await?,
        Call::ListAgents(call) => agents::list(office, caller, call).await?,
        Call::GetAgentStatus(call) => agents::status(office, call).await?,
        Call::SetStatus(call) => agents::set_status(office, caller, call).await?,
        Call::Ping(_) => agents::ping(caller),
    };
    Ok(reply.into())
}
