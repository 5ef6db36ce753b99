//! Agents as they are stored: name, owner, session and description.

use std::collections::BTreeSet;
use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use c3po_shared::audit::Entry;
use c3po_shared::ids::AgentId;
use c3po_shared::message::Message;
use c3po_shared::receipt::Via;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{State, Status};
use c3po_shared::wire::SessionChange;
use uuid::Uuid;

use super::Quota;

/// The owner of an agent: one session slot of a host under the requested name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The requested name. Agents of several hosts share it; only one of them has it as its id.
    pub base: AgentId,
    /// The host.
    pub host: String,
    /// The slot among the host's sessions of this name, from 1.
    pub slot: u32,
}

/// A session's request for a name.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The requested name.
    pub name: AgentId,
    /// The owner for which it is requested.
    pub owner: Owner,
    /// The process that requests it. The same process keeps its generation.
    pub instance: Uuid,
    /// The client's session id.
    pub session_id: Option<String>,
    /// The channels that can deliver messages into the session.
    pub reach: Vec<Via>,
    /// The context number of the session.
    pub context: u64,
    /// The state of the session, if its host reports it.
    pub state: Option<State>,
    /// Whether the agent is deleted when it leaves nothing behind, as for a second session in one folder. Ignored when the
    /// same process comes back.
    pub fleeting: bool,
    /// Whether the session answers one prompt and ends, leaving nothing behind. Ignored if an earlier session had this name,
    /// because its queued messages must stay.
    pub one_shot: bool,
    /// Whether the name stays reserved for its host when the agent is deleted. False for a container, whose next start has
    /// another hostname.
    pub reserved: bool,
    /// Processes that their own host reports as dead. Their unexpired leases are ignored.
    pub succeeds: Vec<Uuid>,
    /// How long the lease lasts unless it is renewed.
    pub lease: Duration,
    /// The key that may make an agent, and its limit of agents.
    pub quota: Quota,
    /// The id of the key that is used, for the log.
    pub key: Option<String>,
    /// The word for the kind of session in the log.
    pub kind: &'static str,
}

/// One session's hold on one agent. Calls with an outdated tenure fail with [`super::StoreError::TakenOver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The agent.
    pub agent: AgentId,
    /// The permanent id of the agent.
    pub uid: Uuid,
    /// The number of this session among the agent's sessions, from 1.
    pub generation: u64,
    /// The process that holds it.
    pub instance: Uuid,
    /// The number of its link, which grows with each claim. Only the latest link can end the lease.
    pub link: u64,
    /// Whether the session is one-shot and leaves nothing behind.
    pub one_shot: bool,
    /// The id of the key that is used, for the log.
    pub key: Option<String>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Its connection broke; it may come back.
    Gone,
    /// Its client ended it.
    Goodbye,
    /// Its credential ended.
    Revoked,
    /// It continues under this name.
    Renamed(AgentId),
}

impl Ending {
    /// Returns whether the session will not come back.
    pub(in crate::store) fn is_over(&self) -> bool {
        *self != Self::Gone
    }

    /// Returns the new name of the session.
    pub(in crate::store) fn new_name(&self) -> Option<&AgentId> {
        match self {
            Self::Renamed(name) => Some(name),
            Self::Gone | Self::Goodbye | Self::Revoked => None,
        }
    }

    /// Returns its word in the log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Goodbye => "goodbye",
            Self::Revoked => "revoked",
            Self::Renamed(_) => "renamed",
        }
    }
}

/// The right by which a caller acts as an agent. A store checks it in the step of each act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaker {
    /// A session, as long as it holds its agent.
    Session(Tenure),
    /// A person's command, as long as the agent exists and is not another host's than this one.
    OfHost(AgentId, String),
}

impl Speaker {
    /// Returns the agent.
    pub(in crate::store) fn agent(&self) -> &AgentId {
        match self {
            Self::Session(tenure) => &tenure.agent,
            Self::OfHost(agent, _) => agent,
        }
    }

    /// Returns the session; `None` for a person's command.
    pub(in crate::store) fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Session(tenure) => Some(tenure),
            Self::OfHost(..) => None,
        }
    }
}

/// The host that has a name: the one of its agent, or the one for which the name of a deleted agent stays reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The host.
    pub host: String,
    /// Since when it has had the name.
    pub since: Timestamp,
}

/// The caller of an act on an inbox: by what right it acts, and the credential that the log names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// The right by which it acts as its agent; `None` for people, whom their credential lets act as `human`.
    pub speaker: Option<Speaker>,
    /// The id of the key that is used.
    pub key: Option<String>,
    /// The id of the login that is used; `local` for a person without one.
    pub login: Option<String>,
}

impl Actor {
    /// Returns the audit entry with the key and the login.
    pub(in crate::store) fn sign(&self, entry: Entry) -> Entry {
        Entry {
            key: self.key.clone(),
            login: self.login.clone(),
            ..entry
        }
    }
}

impl Tenure {
    /// Returns whether the session of this number and process is its own.
    pub(crate) fn is_of(&self, generation: u64, instance: Uuid) -> bool {
        (self.generation, self.instance) == (generation, instance)
    }

    /// Returns the session and context as steps of a history name them.
    pub(in crate::store) fn session(&self, context: u64) -> String {
        match context {
            0 => self.generation.to_string(),
            _ => format!("{}.{context}", self.generation),
        }
    }
}

/// An agent as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub id: AgentId,
    /// Its permanent id.
    pub uid: Uuid,
    /// Its owner; `None` if no session ever held it.
    pub owner: Option<Owner>,
    /// The host of its owner, or the host that last acted as this agent.
    pub host: Option<String>,
    /// The client's session id of its latest session.
    pub session_id: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its capabilities.
    pub capabilities: Vec<String>,
    /// The role that `@role` addresses.
    pub role: Option<String>,
    /// The state of its session.
    pub state: State,
    /// The task that it works on.
    pub current_task: Option<String>,
    /// The channels that can deliver messages into its session.
    pub reach: Vec<Via>,
    /// How many sessions it has had.
    pub generation: u64,
    /// The latest context of its latest session.
    pub context: u64,
    /// The process of its latest session.
    pub instance: Uuid,
    /// When its lease ends; in the past after the session ended.
    pub held_until: Timestamp,
    /// When its host first had the name. A later agent of the same host continues the one that was deleted.
    pub registered_at: Timestamp,
    /// When the agent was last seen.
    pub last_seen: Timestamp,
    /// When a person last typed a prompt in one of its sessions, if known.
    pub prompted_at: Option<Timestamp>,
    /// The id of the key with which it was made, or a word for clients without a key; empty if unknown.
    pub made_by: String,
}

/// The part of an agent with which a session chooses its name: much smaller than the agent, because there may be hundreds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// Its name.
    pub id: AgentId,
    /// Its owner; `None` if no session ever held it.
    pub owner: Option<Owner>,
    /// The host of its owner, or the host that last acted as this agent.
    pub host: Option<String>,
    /// The process of its latest session.
    pub instance: Uuid,
    /// When its lease ends; in the past after the session ended.
    pub held_until: Timestamp,
}

impl From<Agent> for Namesake {
    fn from(
        Agent {
            id,
            owner,
            host,
            instance,
            held_until,
            ..
        }: Agent,
    ) -> Self {
        Self {
            id,
            owner,
            host,
            instance,
            held_until,
        }
    }
}

impl Claim {
    /// Returns whether the agent of the requested name, if there is one, may go to this owner. An agent that no session ever
    /// held goes to its own host, as does one that was stored before agents had owners.
    pub(in crate::store) fn may_have(&self, agent: Option<&Agent>) -> bool {
        match agent {
            None => true,
            Some(Agent {
                owner: Some(owner), ..
            }) => *owner == self.owner,
            Some(Agent { host, .. }) => host.as_ref().is_none_or(|host| *host == self.owner.host),
        }
    }
}

impl Agent {
    /// Returns the host to which the agent belongs, if that is another one. An agent that no session ever held belongs to its
    /// first host, because the messages of a host's person are private. `human` belongs to all.
    pub(crate) fn other_host(&self, host: &str) -> Option<&str> {
        let owner = self.owner.as_ref().map(|owner| &owner.host);
        let of = owner.or(self.host.as_ref()).map(String::as_str);
        of.filter(|of| *of != host && self.id != AgentId::human())
    }

    /// Returns an agent with placeholder values.
    #[cfg(test)]
    pub(crate) fn placeholder() -> Self {
        let then = Timestamp::from_millis(1);
        Self {
            id: AgentId::system(),
            uid: Uuid::nil(),
            owner: None,
            host: None,
            session_id: None,
            description: None,
            capabilities: Vec::new(),
            role: None,
            state: State::Ready,
            current_task: None,
            reach: Vec::new(),
            generation: 1,
            context: 0,
            instance: Uuid::nil(),
            held_until: then,
            registered_at: then,
            last_seen: then,
            prompted_at: None,
            made_by: String::new(),
        }
    }

    /// Returns whether a session holds the agent at that time.
    pub fn is_online(&self, now: Timestamp) -> bool {
        self.held_until > now
    }

    /// Returns whether it, or an earlier agent of its host with its name, existed when a message was stored at that time.
    pub(crate) fn existed(&self, stored_at: Timestamp) -> bool {
        self.registered_at <= stored_at
    }

    /// Returns whether it is the sender of a message that has its name: it existed when that was stored, or is of the same
    /// host. A name that was freed may belong to an agent of another host now.
    pub(crate) fn sent(&self, message: &Message, stored_at: Timestamp) -> bool {
        self.existed(stored_at) || self.host == message.from_host
    }

    /// Returns the public record of the agent, without its questions to people.
    pub fn record(&self, now: Timestamp) -> AgentRecord {
        let online = self.is_online(now);
        AgentRecord {
            id: self.id.clone(),
            uid: self.uid,
            host: self.host.clone(),
            status: if online {
                Status::Online
            } else {
                Status::Offline
            },
            state: if online { self.state } else { State::Stopped },
            asking_seconds: None,
            description: self.description.clone(),
            capabilities: self.capabilities.clone(),
            role: self.role.clone(),
            registered_at: self.registered_at,
            last_seen: self.last_seen,
            reach: if online {
                self.reach.clone()
            } else {
                Vec::new()
            },
        }
    }
}

/// The outcome of a request to delete an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The agent was deleted.
    Removed,
    /// A session holds it; nothing changed.
    Held,
    /// There is no agent of that name.
    Unknown,
}

/// Returns which agents of a host get another slot when agents of another host are moved to it under the same base name. Each
/// entry has the slot that both hosts use, and its replacement.
pub(in crate::store) fn displaced(moved: &[u32], there: &[u32]) -> Vec<(u32, u32)> {
    let mut taken: BTreeSet<u32> = moved.iter().chain(there).copied().collect();
    let mut displaced = Vec::new();
    for slot in there
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|slot| moved.contains(slot))
    {
        let free = (1..)
            .find(|slot| !taken.contains(slot))
            .expect("there are more numbers than agents");
        taken.insert(free);
        displaced.push((*slot, free));
    }
    displaced
}

/// A change of an agent's record. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amendment {
    /// The description; an empty text removes it.
    pub description: Option<String>,
    /// All capabilities.
    pub capabilities: Option<Vec<String>>,
    /// Its role.
    pub role: Option<String>,
    /// The current task; an empty text removes it.
    pub current_task: Option<String>,
    /// The change of its session. A context larger than before has been shown nothing, so every message of the inbox becomes
    /// unshown again. Any other context changes nothing.
    pub session: SessionChange,
    /// How long it counts as online from now on without a session, as a person does who reads along; zero ends that.
    pub attends: Option<Duration>,
}

impl Amendment {
    /// Returns whether it has texts, for which a full store may have no room.
    pub(super) fn has_texts(&self) -> bool {
        self.capabilities.is_some()
            || [&self.description, &self.role, &self.current_task]
                .iter()
                .any(|text| text.is_some())
    }
}

impl From<SessionChange> for Amendment {
    fn from(session: SessionChange) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::displaced;

    #[test]
    fn a_moved_agent_keeps_its_slot_and_the_other_gets_the_next_free_one() {
        assert_eq!(displaced(&[1], &[]), []);
        assert_eq!(displaced(&[2], &[1]), []);
        assert_eq!(displaced(&[1], &[1]), [(1, 2)]);
        assert_eq!(displaced(&[1, 3], &[1, 2, 3]), [(1, 4), (3, 5)]);
    }
}
