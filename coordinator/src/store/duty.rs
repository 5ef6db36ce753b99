//! Duties: timed work that lies in the store until a coordinator claims it when it is due.
//!
//! There is no leader. A claim is for a limited time; the duty of a coordinator that ended without finishing it is then
//! claimed by another one. Work is therefore done at least once, and must be safe to repeat.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use uuid::Uuid;

use super::Result;

/// The most duties that one call claims: it costs Redis three commands for each, and no call runs more than 500.
pub const CLAIMED_MAX: usize = 100;

/// How often it is checked whether the session behind an open request of a client is over.
pub const REQUEST_CHECKED_EVERY: Duration = Duration::from_secs(20);

/// Returns whether it is a request of a client to people, which ends with its session.
pub(super) fn is_client_request(message: &Message) -> bool {
    let question = message.question.as_ref();
    question.is_some_and(|question| question.needs_verdict())
}

/// The kinds of duties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DutyKind {
    /// The messages whose life is over leave the inbox of the agent with this id, and their senders are woken.
    Expire,
    /// The agent with this id is deleted if it did not come back.
    Withdraw,
    /// The request of a client with this id is withdrawn once the session that asked is over.
    EndRequest,
    /// The message to people with this id is pushed to their phones, and the pushes are taken back when it is settled.
    Push,
}

impl DutyKind {
    /// Every kind. A coordinator claims only kinds that it knows, so a newer one beside it may have more.
    pub const ALL: &[Self] = &[Self::Expire, Self::Withdraw, Self::EndRequest, Self::Push];

    /// Returns the word for it in the store and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expire => "expire",
            Self::Withdraw => "withdraw",
            Self::EndRequest => "end_request",
            Self::Push => "push",
        }
    }

    /// Returns the kind of that word, or `None` if there is no such kind.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }
}

/// A duty: its kind and the id of its object. There is at most one of each pair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duty {
    /// The kind.
    pub kind: DutyKind,
    /// The id of the object, such as the name of an agent.
    pub id: String,
}

impl Duty {
    /// Returns the duty to expire the messages to this agent.
    pub fn expire(agent: &AgentId) -> Self {
        Self {
            kind: DutyKind::Expire,
            id: agent.to_string(),
        }
    }

    /// Returns the duty to withdraw this request of a client once its session is over.
    pub fn end_request(request: &MessageId) -> Self {
        Self {
            kind: DutyKind::EndRequest,
            id: request.to_string(),
        }
    }

    /// Returns the duty to delete this agent if it does not come back.
    pub fn withdraw(agent: &AgentId) -> Self {
        Self {
            kind: DutyKind::Withdraw,
            id: agent.to_string(),
        }
    }

    /// Returns the duty to push this message to people.
    pub fn push(message: &MessageId) -> Self {
        Self {
            kind: DutyKind::Push,
            id: message.to_string(),
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.id)
    }
}

/// A duty that this process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The duty.
    pub duty: Duty,
    /// The id of the claim.
    pub claim: Uuid,
    /// How long ago it was due.
    pub late: Duration,
    /// Whether an earlier claim ran out: a coordinator ended without finishing the duty, or its work failed.
    pub taken_over: bool,
}

/// The outcome of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// The claimed duties, the earliest first.
    pub claimed: Vec<Claimed>,
    /// The time until the next duty is due, or the next claim of another process ends. `None` if there is no other duty.
    pub next: Option<Duration>,
}

/// The interface for duties of every store: the rows, and the work of those that concern the store alone.
#[async_trait]
pub trait DutyStore: Send + Sync {
    /// Plans a duty. One that is already planned stays due at the earlier of both times. One that is claimed is due again at
    /// the given time, but not before its claim ends.
    async fn plan(&self, duty: &Duty, due: Timestamp) -> Result<()>;

    /// Claims at most `limit` duties that are due and not claimed, for this time. Never claims more than [`CLAIMED_MAX`].
    async fn claim_due(&self, limit: usize, hold: Duration) -> Result<Due>;

    /// Deletes a duty that is done, unless it was planned again during its claim.
    ///
    /// Returns false, and changes nothing, if the claim is over.
    async fn finish(&self, claimed: &Claimed) -> Result<bool>;

    /// Ends the claim. The duty is due again after this time, or earlier if it was so planned during its claim.
    ///
    /// Returns false, and changes nothing, if the claim is over.
    async fn postpone(&self, claimed: &Claimed, by: Duration) -> Result<bool>;

    /// Takes the messages to the agent whose life is over out of its inbox, and wakes their senders.
    ///
    /// Returns the time after which the next message may expire, or `None` if the inbox was empty.
    async fn expire(&self, agent: &AgentId) -> Result<Option<Duration>>;

    /// Deletes the agent if it has an empty inbox and did not come back: a fleeting one within
    /// [`RETURN_MAX`](super::RETURN_MAX), any other one that had a session within
    /// [`NAME_LIFE`](c3po_shared::limits::NAME_LIFE). Ends a one-shot session whose lease has run out.
    ///
    /// Returns the time after which it must be checked again, or `None` if the agent is gone or stays for good.
    async fn withdraw(&self, agent: &AgentId) -> Result<Option<Duration>>;
}
