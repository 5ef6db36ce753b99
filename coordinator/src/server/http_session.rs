//! Clients without a proxy: identifies the caller of an HTTP request, and tracks the messages it was shown.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::{HTTP_PRESENCE, LABEL_MAX};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::refusal::Refusal;
use c3po_shared::vocabulary::State;
use c3po_shared::wire::SessionChange;
use http::HeaderMap;
use tokio::time::Instant;
use uuid::Uuid;

use super::http_waits::HttpWaits;
use crate::auth::Principal;
use crate::request::{self, Caller, Memory, Services, begin_call, settle_name};
use crate::store::{self, Claim, Owner, Quota, StoreError, Tenure};

/// The header that names the agent.
pub(super) const AGENT_HEADER: &str = "X-Agent-ID";
/// The header that distinguishes clients of the same name.
const SESSION_HEADER: &str = "X-Session-ID";
/// The header with which a client may name its host.
const HOST_HEADER: &str = "X-Agent-Host";
/// The host of a client that names none.
const NO_HOST: &str = "http";
/// The namespace of instance ids derived from agent and session: a constant random UUID.
const NAMESPACE: Uuid = Uuid::from_u128(0x6d0c_2a6e_6f0b_4c1a_9d57_3e0f_c390_0001);

/// How often clients that are silent are removed: a request must not look at all of them.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The recently active clients. A client that is silent for 90 s is dropped.
#[derive(Debug)]
pub(super) struct HttpSessions {
    clients: Mutex<Clients>,
    /// Their waits.
    pub(super) waits: Arc<HttpWaits>,
}

#[derive(Debug, Default)]
struct Clients {
    by_agent: HashMap<AgentId, HttpClient>,
    /// The agent that each instance had at its last request. Another one may have it now.
    by_instance: HashMap<Uuid, AgentId>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct HttpClient {
    instance: Uuid,
    memory: Arc<Memory>,
    heard: Instant,
}

impl HttpClient {
    fn is_online(&self, now: Instant) -> bool {
        now.duration_since(self.heard) < HTTP_PRESENCE
    }
}

impl Clients {
    /// Returns the client of an agent, if it is that instance.
    fn of(&self, agent: &AgentId, instance: Uuid) -> Option<&HttpClient> {
        let client = self.by_agent.get(agent);
        client.filter(|client| client.instance == instance)
    }

    /// Removes the clients that are silent, from time to time.
    fn sweep(&mut self, now: Instant) {
        let is_soon = |swept| now.duration_since(swept) < SWEEP_INTERVAL;
        if self.swept.is_some_and(is_soon) {
            return;
        }
        self.swept = Some(now);
        self.by_agent.retain(|_, client| client.is_online(now));
        let mut instances = mem::take(&mut self.by_instance);
        instances.retain(|instance, agent| self.of(agent, *instance).is_some());
        self.by_instance = instances;
    }
}

impl HttpSessions {
    /// Returns no clients, for a coordinator with this memory limit.
    pub(super) fn within(memory: Option<u64>) -> Self {
        Self {
            clients: Mutex::default(),
            waits: Arc::new(HttpWaits::within(memory)),
        }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many clients are online.
    pub(super) fn online(&self) -> usize {
        let now = Instant::now();
        let clients = self.clients();
        let online = clients.by_agent.values();
        online.filter(|client| client.is_online(now)).count()
    }

    /// Returns whether a client with that instance holds the agent.
    pub(super) fn holds(&self, agent: &AgentId, instance: Uuid) -> bool {
        self.clients().of(agent, instance).is_some()
    }

    /// Removes the client of an agent.
    pub(super) fn forget(&self, agent: &AgentId) {
        self.clients().by_agent.remove(agent);
    }

    /// Returns the agent that the client of that instance held at its last request.
    fn held_by(&self, instance: Uuid) -> Option<AgentId> {
        let clients = self.clients();
        let agent = clients.by_instance.get(&instance)?;
        clients.of(agent, instance).map(|_| agent.clone())
    }

    /// Returns the memory of the agent's client, and whether the client is new. Records the activity.
    fn memory(&self, agent: &AgentId, instance: Uuid) -> (Arc<Memory>, bool) {
        let now = Instant::now();
        let mut clients = self.clients();
        clients.sweep(now);
        let known = clients.of(agent, instance);
        let known = known.filter(|client| client.is_online(now));
        let known = known.map(|client| Arc::clone(&client.memory));
        let is_new = known.is_none();
        let client = HttpClient {
            instance,
            memory: known.unwrap_or_default(),
            heard: now,
        };
        let memory = Arc::clone(&client.memory);
        clients.by_agent.insert(agent.clone(), client);
        clients.by_instance.insert(instance, agent.clone());
        (memory, is_new)
    }

    /// Returns the caller of the request, named by the same rules as on links.
    pub(super) async fn caller(
        &self,
        services: &Services,
        principal: &Arc<Principal>,
        headers: &HeaderMap,
    ) -> Result<Caller, Refusal> {
        let Some(name) = agent_header(headers)? else {
            return Err(
                Refusal::invalid(format!("Missing {AGENT_HEADER} header")).suggest(format!(
                    "Send the header {AGENT_HEADER} with your agent id."
                )),
            );
        };
        let session_id = label(headers, SESSION_HEADER)?;
        let instance = principal.process(Uuid::new_v5(
            &NAMESPACE,
            format!("{name}\n{}", session_id.unwrap_or_default()).as_bytes(),
        ));
        let host = principal.host(host_header(headers)?);
        let wish = claim(name, &host, session_id, instance);
        let begun = begin_call(principal).await?;
        let held = self.held_by(instance);
        let tenure = settle_name(services, principal, wish, held.as_ref()).await?;
        let (memory, is_new) = self.memory(&tenure.agent, instance);
        if is_new {
            begin(services, &tenure).await?;
        }
        drop(begun);
        Ok(Caller {
            agent: tenure.agent.clone(),
            principal: Arc::clone(principal),
            host: Some(host),
            memory,
            tenure: Some(tenure),
            dead: Arc::default(),
            renamable: false,
        })
    }
}

/// Returns the claim of a client that stays online for a while after each of its requests.
fn claim(name: AgentId, host: &str, session_id: Option<&str>, instance: Uuid) -> Claim {
    Claim {
        owner: Owner {
            base: name.clone(),
            host: host.to_owned(),
            slot: 1,
        },
        name,
        instance,
        session_id: session_id.map(str::to_owned),
        reach: vec![Via::WaitForMessage, Via::GetMessages],
        context: 0,
        state: None,
        succeeds: Vec::new(),
        fleeting: false,
        one_shot: false,
        reserved: false,
        lease: HTTP_PRESENCE,
        quota: Quota::default(),
        key: None,
        kind: "http",
    }
}

/// Marks the agent of a new client as ready, unless another state is known.
async fn begin(services: &Services, tenure: &Tenure) -> Result<(), StoreError> {
    let agent = services.store.agent(&tenure.agent).await?;
    if agent.is_some_and(|agent| agent.state == State::Starting) {
        let ready = SessionChange {
            state: Some(State::Ready),
            ..SessionChange::default()
        };
        let (amendment, speaker) = (ready.into(), store::Speaker::Session(tenure.clone()));
        services
            .store
            .amend(&tenure.agent, Some(&speaker), &amendment)
            .await?;
    }
    Ok(())
}

impl HttpSessions {
    /// Keeps the caller online while its call runs, even during a long wait. Resolves if another session holds its agent.
    pub(super) async fn stay_online(&self, services: &Services, caller: &Caller) -> StoreError {
        let Some(tenure) = &caller.tenure else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(HTTP_PRESENCE / 3).await;
            match services.store.renew(tenure, HTTP_PRESENCE).await {
                Ok(true) => {}
                Ok(false) => return StoreError::TakenOver(tenure.agent.clone()),
                Err(error) => tracing::debug!("a lease was not renewed: {error}"),
            }
            if let Some(client) = self.clients().by_agent.get_mut(&caller.agent) {
                client.heard = Instant::now();
            }
        }
    }
}

/// Records that messages reached a later stage at a client. If that fails, they stay at the previous stage.
pub(super) async fn note(
    services: &Services,
    caller: &Caller,
    message_ids: Vec<MessageId>,
    stage: Stage,
    via: Via,
) {
    if message_ids.is_empty() {
        return;
    }
    // These clients have only one context.
    let progress = Progress {
        message_ids,
        stage,
        via,
        seen_via: None,
        context: 0,
    };
    if let Err(error) = request::progress(services, caller, &progress).await {
        tracing::warn!(agent.id = %caller.agent, "a receipt was not recorded: {error}");
    }
}

/// Returns the agent that the headers name, if any.
pub(super) fn agent_header(headers: &HeaderMap) -> Result<Option<AgentId>, Refusal> {
    match label(headers, AGENT_HEADER)? {
        None => Ok(None),
        Some(name) => match name.parse() {
            Ok(agent) => Ok(Some(agent)),
            Err(error) => Err(Refusal::invalid(format!("{AGENT_HEADER}: {error}"))),
        },
    }
}

/// Returns the host that the headers name.
pub(super) fn host_header(headers: &HeaderMap) -> Result<&str, Refusal> {
    Ok(label(headers, HOST_HEADER)?.unwrap_or(NO_HOST))
}

fn label<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if text.len() <= LABEL_MAX => {
            Ok(Some(text.trim()).filter(|text| !text.is_empty()))
        }
        _ => Err(Refusal::invalid(format!(
            "{name} is not a text of at most {LABEL_MAX} characters"
        ))),
    }
}
