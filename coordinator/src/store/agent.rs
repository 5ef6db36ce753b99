//! Agents as they are stored: who holds which name, and what is known of each.

use std::collections::BTreeSet;
use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use c3po_shared::ids::AgentId;
use c3po_shared::receipt::Via;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{State, Status};
use c3po_shared::wire::SessionChange;
use uuid::Uuid;

use super::Quota;

/// To whom an agent belongs: one session at a time of a host, by the name that it wishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The wished name. Agents of several hosts share it; only one of them has it as its id.
    pub base: AgentId,
    /// The machine.
    pub host: String,
    /// Which of the machine's sessions of that name, from 1.
    pub slot: u32,
}

/// A session's wish to be an agent.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The name to take.
    pub name: AgentId,
    /// Whose it is to be.
    pub owner: Owner,
    /// The process that wishes it: the same one keeps its generation.
    pub instance: Uuid,
    /// The client's session.
    pub session_id: Option<String>,
    /// The ways by which messages get into the session.
    pub reach: Vec<Via>,
    /// Which context of the session it is.
    pub context: u64,
    /// What the session does, where its host knows.
    pub state: Option<State>,
    /// Whether the agent is forgotten when it leaves nothing behind, as that of a second session of one folder is.
    /// Of no account where the same process comes back.
    pub fleeting: bool,
    /// Whether the session answers one prompt and ends, so that it leaves nothing behind. Of no account where the name was
    /// taken by another session before: what waits for that one stays.
    pub one_shot: bool,
    /// Processes that are known to be dead by their own host: a hold of theirs is over, whatever is left of its lease.
    pub succeeds: Vec<Uuid>,
    /// How long the hold lasts unless renewed.
    pub lease: Duration,
    /// With which key, and how many agents that may have.
    pub quota: Quota,
}

/// One session's hold on one agent. Whoever has an outdated one is refused with [`StoreError::TakenOver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The agent.
    pub agent: AgentId,
    /// Its lasting identity.
    pub uid: Uuid,
    /// Which session of the agent this is, from 1.
    pub generation: u64,
    /// The process that holds it.
    pub instance: Uuid,
    /// By which of its links: one more with each claim. Only the latest can end the hold.
    pub link: u64,
    /// Whether it leaves nothing behind.
    pub one_shot: bool,
}

impl Tenure {
    /// Returns how the steps of histories name that context of the session.
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
    /// Its lasting identity.
    pub uid: Uuid,
    /// To whom it belongs; `None` where no session ever had it.
    pub owner: Option<Owner>,
    /// The machine of its owner, or of whoever spoke as it last.
    pub host: Option<String>,
    /// The client's session id of its latest session.
    pub session_id: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it offers.
    pub capabilities: Vec<String>,
    /// What `@role` addresses.
    pub role: Option<String>,
    /// What its session does.
    pub state: State,
    /// What it works on.
    pub current_task: Option<String>,
    /// The ways into its session.
    pub reach: Vec<Via>,
    /// How many sessions it has had.
    pub generation: u64,
    /// The latest context of its latest session.
    pub context: u64,
    /// The process of its latest session.
    pub instance: Uuid,
    /// Until when that session holds it; in the past once it ended.
    pub held_until: Timestamp,
    /// When the name was first taken.
    pub registered_at: Timestamp,
    /// When a session was last heard of.
    pub last_seen: Timestamp,
    /// When a person last typed a prompt in a session of it, if that is known.
    pub prompted_at: Option<Timestamp>,
}

impl Claim {
    /// Returns whether the agent of the wished name, if there is one, may be this owner's. One that no session ever had
    /// goes to its own host, and so does one that was stored before agents had owners.
    pub(in crate::store) fn may_have(&self, agent: Option<&Agent>) -> bool {
        match agent {
            None => true,
            Some(Agent { owner: Some(owner), .. }) => *owner == self.owner,
            Some(Agent { host, .. }) => host.as_ref().is_none_or(|host| *host == self.owner.host),
        }
    }
}

impl Agent {
    /// Returns an agent that nothing is known of.
    #[cfg(test)]
    pub(crate) fn nobody() -> Self {
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
        }
    }

    /// Returns whether a session holds the agent at that time.
    pub fn is_online(&self, now: Timestamp) -> bool {
        self.held_until > now
    }

    /// Returns the record that readers see.
    pub fn record(&self, now: Timestamp) -> AgentRecord {
        let online = self.is_online(now);
        AgentRecord {
            id: self.id.clone(),
            uid: self.uid,
            host: self.host.clone(),
            status: if online { Status::Online } else { Status::Offline },
            state: if online { self.state } else { State::Stopped },
            description: self.description.clone(),
            capabilities: self.capabilities.clone(),
            role: self.role.clone(),
            registered_at: self.registered_at,
            last_seen: self.last_seen,
            reach: if online { self.reach.clone() } else { Vec::new() },
        }
    }
}

/// What became of an agent that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Removed,
    /// A session holds it; nothing changed.
    Held,
    /// There is none of that name.
    Unknown,
}

/// Returns which agents of a host get another slot where those of another host are moved to it under the same base name: each
/// slot that both have, with the new one.
pub(in crate::store) fn displaced(moved: &[u32], there: &[u32]) -> Vec<(u32, u32)> {
    let mut taken: BTreeSet<u32> = moved.iter().chain(there).copied().collect();
    let mut displaced = Vec::new();
    for slot in there.iter().collect::<BTreeSet<_>>().into_iter().filter(|slot| moved.contains(slot)) {
        let free = (1..).find(|slot| !taken.contains(slot)).expect("there are more numbers than agents");
        taken.insert(free);
        displaced.push((*slot, free));
    }
    displaced
}

/// What changes in an agent's record. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amendment {
    /// What it is for; an empty text means nothing.
    pub description: Option<String>,
    /// What it offers, all of it.
    pub capabilities: Option<Vec<String>>,
    /// Its role.
    pub role: Option<String>,
    /// What it works on; an empty text means nothing.
    pub current_task: Option<String>,
    /// What changes about its session. A context larger than before has been shown nothing: it makes every message of the
    /// inbox unshown again. Any other changes nothing.
    pub session: SessionChange,
}

impl From<SessionChange> for Amendment {
    fn from(session: SessionChange) -> Self {
        Self { session, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::displaced;

    #[test]
    fn who_moves_keeps_its_slot_and_the_other_takes_the_next() {
        assert_eq!(displaced(&[1], &[]), []);
        assert_eq!(displaced(&[2], &[1]), []);
        assert_eq!(displaced(&[1], &[1]), [(1, 2)]);
        assert_eq!(displaced(&[1, 3], &[1, 2, 3]), [(1, 4), (3, 5)]);
    }
}
