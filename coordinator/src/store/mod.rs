//! The store: every fact that must survive a crash. It has two implementations and one conformance suite; callers do not
//! depend on which one runs.
//!
//! These rules hold for both. A send is one atomic step, and its result is returned after the commit. Every read agrees on
//! which messages are pending, settled, expired or answered. A wake is a hint; the store is the truth. An expired message
//! leaves the inbox at once, whether or not its duty has been done.

mod agent;
mod audit;
mod conclusion;
mod duty;
mod fill;
mod guard;
mod keys;
mod logins;
mod open;
mod page_use;
mod quota;
pub mod redis;
pub mod sqlite;
mod thread;
mod waiting;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::host::is_generated;
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{ARCHIVE_LIFE, MESSAGE_LIFE_MAX};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Step};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;
use tokio::sync::broadcast;

pub use self::agent::{
    Actor, Agent, Amendment, Claim, Ending, Holder, Namesake, Owner, Removal, Speaker, Tenure,
};
pub use self::audit::AuditStore;
pub use self::conclusion::{Conclusion, OpenQuestion, PersonReached};
use self::duty::is_client_request;
pub use self::duty::{CLAIMED_MAX, Claimed, Due, Duty, DutyKind, DutyStore, REQUEST_CHECKED_EVERY};
pub use self::fill::Fill;
pub use self::guard::{GuardStore, Pair, Ruling};
pub(crate) use self::keys::FORMER_NAME;
pub use self::keys::{Invite, Key, KeyStore};
use self::keys::{give_hosts, read_invites, read_key};
pub use self::logins::{Login, LoginCode, LoginStore};
use self::logins::{read_codes, read_login};
pub use self::open::{open, open_within};
pub use self::page_use::PageUseStore;
pub use self::quota::{Crowded, Exceeded, Quota};
pub use self::thread::{Excerpt, InThread, Mark, SentStages, Stretch};
pub use self::waiting::{CycleCheck, WaitStore};
pub use self::wake::{Arrival, WAKE_BACKLOG, Wake};

/// Why a store call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or did not reply in time. The call may or may not have been applied.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The store has no room for this. Nothing was changed.
    #[error("the store is full: {0}")]
    Full(String),
    /// The key has used up its bytes for one day. Nothing was changed.
    #[error("the quota of {} is used up", .0.key)]
    OverQuota(Exceeded),
    /// The key has reached its limit of agents. Nothing was changed.
    #[error("{} has {} agents", .0.key, .0.count)]
    Crowded(Crowded),
    /// The new name differs from the name of an existing agent only in case. Nothing was changed.
    #[error("{name} differs from the existing agent {known} only in case")]
    Alike {
        /// The new name.
        name: AgentId,
        /// The existing agent.
        known: AgentId,
    },
    /// The agent is another host's, or its name stays reserved for one. Nothing was changed.
    #[error("{name} is reserved for the host {host}")]
    Reserved {
        /// The name.
        name: AgentId,
        /// The host.
        host: String,
    },
    /// Another session holds the agent now.
    #[error("another session has taken over {0}")]
    TakenOver(AgentId),
    /// The stored data cannot be read.
    #[error("the store has unreadable data: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Returns whether a retry may succeed a little later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_))
    }
}

/// The result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A message to be put into its recipient's inbox.
#[derive(Debug, Clone)]
pub struct Send {
    /// The envelope, complete. Its id is that of the call ([`MessageId::of_call`]).
    pub message: Message,
    /// The call that sends it. A repeated call does not deliver the message to the same recipient again.
    pub call: CallId,
    /// The largest number of messages that the inbox may hold. The inbox of people has its own limits instead.
    pub bound: usize,
    /// How long the message stays readable after it is settled.
    pub kept: Duration,
    /// Whether the send is refused if the recipient's session is away.
    pub spares_away: bool,
    /// Whether a one-shot session sends it. A question from such a session expires when the session ends.
    pub one_shot: bool,
    /// The quota that is charged for the envelope and its overhead. A repeated call is charged once.
    pub quota: Quota,
    /// The id of the key that is used, for the log.
    pub key: Option<String>,
    /// The id of the login that is used, for the log; `local` for a person without one.
    pub login: Option<String>,
    /// By what right it is sent; `None` for people and the coordinator. Without that right, nothing is sent.
    pub speaker: Option<Speaker>,
}

/// The outcome of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// Committed.
    Stored,
    /// The same call already sent this message to this recipient; nothing changed.
    Repeated(Box<Message>),
    /// The inbox already holds this many messages; nothing changed.
    Full(usize),
    /// People have too many open questions, of this agent or in total; nothing changed.
    TooManyQuestions {
        /// How many are open.
        count: usize,
        /// The limit that is reached.
        limit: usize,
    },
    /// The recipient does not exist; nothing changed.
    NoSuchAgent,
    /// The recipient's session does not accept new work; nothing changed.
    Away,
    /// Another message has this id; nothing changed.
    IdTaken,
    /// The same call sent this recipient a message that is longer by more than [`REPEAT_MARGIN`], so another one; nothing
    /// changed. It was not read: a call reads no more than it sends.
    CallTaken,
}

/// How many bytes longer the envelope of a message may be than that of its repetition, whose sender may be renamed.
const REPEAT_MARGIN: usize = 1_024;

/// How many messages a short call changes. It may be one step with other calls, which a longer one would keep waiting.
pub(crate) const CHANGED_BY_CALL: usize = 4;

/// Returns the host that a message to people counts for, also after its agent was deleted. The coordinator counts as a host.
fn counted_host(message: &Message) -> &str {
    if message.from_agent == AgentId::system() {
        return "system::";
    }
    message.from_host.as_deref().unwrap_or_default()
}

/// The outcome of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// The outcome of sending the reply.
    Sent(SendOutcome),
    /// The message does not exist or was not addressed to the sender of the answer; nothing changed.
    NotFound,
    /// The message was already answered by this reply; nothing changed.
    AlreadyAnswered(MessageId),
    /// The question was withdrawn; nothing changed.
    Withdrawn,
}

/// A message and its position in its recipient's inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The position, which grows with every message to the same recipient and never repeats.
    pub position: u64,
    /// The envelope.
    pub message: Message,
    /// The size of the stored envelope in bytes.
    pub bytes: usize,
}

/// Selects part of an inbox.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// The kinds to return.
    pub kind: KindFilter,
    /// The thread to return, or `None` for all threads.
    pub thread: Option<&'a MessageId>,
    /// Returns only messages after this position; 0 returns all.
    pub after: u64,
    /// The largest number of messages to return.
    pub limit: usize,
    /// Reading stops once this many bytes are read, so that long messages are not read in vain.
    pub bytes: usize,
}

impl Default for Selection<'_> {
    /// Returns a selection with a limit of zero messages, any kind and no byte limit.
    fn default() -> Self {
        Self {
            kind: KindFilter::default(),
            thread: None,
            after: 0,
            limit: 0,
            bytes: usize::MAX,
        }
    }
}

impl Selection<'_> {
    /// Returns whether the page reached one of its limits, so that more messages may follow.
    pub fn is_filled_by(&self, page: &[Placed]) -> bool {
        page.len() >= self.limit
            || page.iter().map(|placed| placed.bytes).sum::<usize>() > self.bytes
    }
}

/// The size and age of an agent's inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// How many messages are in the inbox.
    pub count: usize,
    /// When the oldest of these messages was accepted.
    pub oldest: Option<Timestamp>,
}

/// A stored message with its history and its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The envelope.
    pub message: Message,
    /// The stages of delivery in order, beginning with `stored`.
    pub history: Vec<Step>,
    /// The reply, if there is one.
    pub reply: Option<MessageId>,
}

impl StoredMessage {
    /// Returns when it was stored.
    pub(crate) fn stored_at(&self) -> Timestamp {
        stored_at(&self.history)
    }
}

/// Returns when a message with that history was stored, by the clock that also stamps agents. Without any step, no agent is as
/// old.
pub(crate) fn stored_at(history: &[Step]) -> Timestamp {
    let stored = history.first();
    stored.map_or(Timestamp::from_millis(0), |stored| stored.at)
}

/// The outcome of an acknowledgement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Messages that are out of the inbox, by this call or an earlier one.
    pub acked: Vec<MessageId>,
    /// Messages that were never in this inbox or are no longer stored.
    pub unknown: Vec<MessageId>,
}

/// How long a fleeting agent may take to come back after its link broke, before it is withdrawn.
pub const RETURN_MAX: Duration = Duration::from_secs(60 * 60);
/// How long the name and the positions of a deleted agent are kept: longer than any message that it sent or received.
pub const FORMER_LIFE: Duration = MESSAGE_LIFE_MAX.saturating_add(ARCHIVE_LIFE.saturating_mul(2));

/// How long after a step was sent to a store on the network it may begin. Later it is not done at all: by then its caller has
/// given up, and the rights by which it was sent may have ended.
pub(crate) const BEGUN_WITHIN: Duration = Duration::from_secs(1);

/// How many agents are read at once by whatever needs all of them.
pub(crate) const AGENTS_STEP: usize = 20;

/// How many contexts of sessions the history of a message keeps.
const CONTEXTS_KEPT: usize = 8;

/// Returns whether the name of an agent that a person acts as stays reserved for that host when the agent is deleted. All
/// hosts share the reserved names, and a container without a key has another name at its next start.
fn is_kept_for(name: &AgentId, host: &str, quota: &Quota) -> bool {
    !name.is_reserved() && (quota.is_of_key || !is_generated(host))
}

/// The interface of every store, independent of its tables or keys.
#[async_trait]
pub trait Store:
    KeyStore
    + LoginStore
    + AuditStore
    + GuardStore
    + WaitStore
    + PageUseStore
    + DutyStore
    + std::fmt::Debug
    + std::marker::Send
    + Sync
    + 'static
{
    /// Claims the name for a session if the name is free, or if it belongs to this owner and no other process holds it.
    ///
    /// Returns `None` if the name belongs to another owner, if this owner already has another name, or if another instance
    /// holds it now. An instance that the claim lists as dead does not count as a holder.
    ///
    /// The same instance keeps its generation, even after its lease has ended, unless another instance took the name
    /// meanwhile. Any other instance raises the generation by one. It also sets the state to `starting` unless the claim
    /// names a state, and marks every message of the inbox as unshown. The same instance with a larger context also marks
    /// them as unshown. Uid, inbox, capabilities, description and role are kept. A new name gets a new uid and generation 1.
    /// Another process inherits nothing from a one-shot session whose lease is over: that session is first ended as in
    /// [`Self::release`].
    ///
    /// A name of a deleted agent stays reserved for its host for [`FORMER_LIFE`], because messages of it are still kept.
    ///
    /// Errors for a new name: `Alike` if it differs from an agent's name only in case, and `Crowded` if the key has reached
    /// its limit of agents.
    async fn claim(&self, claim: &Claim) -> Result<Option<Tenure>>;

    /// Extends the lease to this duration from now, and records that the agent was seen.
    ///
    /// Returns false if the tenure is outdated or the agent no longer exists.
    async fn renew(&self, tenure: &Tenure, lease: Duration) -> Result<bool>;

    /// Ends the lease. An outdated tenure changes nothing, nor does one whose process has since claimed the name again by
    /// another link. If the session is over, a fleeting agent with an empty inbox is deleted. Otherwise the agent may come
    /// back within [`RETURN_MAX`].
    ///
    /// A one-shot session that is over leaves nothing. Its unanswered questions and the messages in its inbox expire, and the
    /// agent is deleted. A one-shot session that is not over keeps its lease until that runs out; then it is withdrawn.
    async fn release(&self, tenure: &Tenure, ending: Ending) -> Result<()>;

    /// Returns the agent with exactly this name.
    async fn agent(&self, id: &AgentId) -> Result<Option<Agent>>;

    /// Returns every agent whose owner requested this name, and the agent whose id it is.
    async fn namesakes(&self, base: &AgentId) -> Result<Vec<Namesake>>;

    /// Moves the agents of one host under this base name to another host, and returns how many were moved. If both hosts use
    /// the same slot, the moved agent keeps it and the other one gets the lowest free slot.
    async fn move_host(&self, base: &AgentId, from: &str, to: &str) -> Result<usize>;

    /// Gives the names that stay reserved for one host, of agents made with that key, to the host's new name.
    async fn move_reservations(&self, key: &str, from: &str, to: &str) -> Result<()>;

    /// Returns at most `limit` agents after `after`, ordered by id.
    async fn agents(&self, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>>;

    /// Ensures that an agent without a session (a person) exists, and records that it was seen.
    ///
    /// The host is recorded unless the agent has an owner. Errors: as for [`Self::claim`], and `Reserved` if the name stays
    /// reserved for another host.
    async fn introduce(&self, id: &AgentId, host: Option<&str>, quota: &Quota) -> Result<Agent>;

    /// Changes the agent's record. Returns the updated record, or `None` if there is no such agent.
    ///
    /// A speaker that may act as the agent no longer is refused and changes nothing, as in [`Self::send`].
    async fn amend(
        &self,
        id: &AgentId,
        speaker: Option<&Speaker>,
        amendment: &Amendment,
    ) -> Result<Option<Agent>>;

    /// Ends the hold of any session, and deletes the agent if its inbox is empty and people have no question of it. Returns
    /// whether the agent existed; then the entry is appended to the log in the same step.
    ///
    /// Errors: `Reserved` if it is another host's than `host`, if there is one.
    async fn unregister(
        &self,
        id: &AgentId,
        host: Option<&str>,
        entry: Option<&Entry>,
    ) -> Result<bool>;

    /// Deletes an agent that no session holds. The messages in its inbox and its questions to people expire. A removal appends
    /// the entry to the log in the same step. If `frees` is set, the name does not stay reserved for its host, even if the agent was deleted before.
    ///
    /// Errors: as for [`Self::unregister`].
    async fn remove(
        &self,
        id: &AgentId,
        host: Option<&str>,
        frees: bool,
        entry: Option<&Entry>,
    ) -> Result<Removal>;

    /// Returns the host that has an agent of this name in any case, or to which the name of a deleted one stays reserved. This is
    /// one step, because a name moves from agents to reservations and back.
    async fn holder(&self, id: &AgentId) -> Result<Option<Holder>>;

    /// Puts a message into its recipient's inbox, in one atomic step, and wakes the recipient.
    ///
    /// Errors: `TakenOver` and `Reserved` if the speaker may act as its agent no longer, also for a repeated call.
    async fn send(&self, send: &Send) -> Result<SendOutcome>;

    /// Publishes the text of a broadcast for monitors, if the store has channels for them.
    async fn announce(&self, from: &AgentId, speaker: Option<&Speaker>, text: &str) -> Result<()>;

    /// Puts a reply into the asker's inbox and settles the question named in `message.reply_to`.
    ///
    /// This is one atomic step. The first answer wins. If the reply cannot be sent, the question stays open. The outcome is
    /// `NoSuchAgent` also if the asker's name is that of a later agent of another host. Errors: as for [`Self::send`].
    async fn answer(&self, answer: &Send) -> Result<AnswerOutcome>;

    /// Records that a message to `human` reached a person, and wakes its sender. Returns whether that was news.
    ///
    /// The evidence is kept once for each stage, person and way, whatever the stage of the message is, but not after its end.
    async fn reach_person(&self, reached: &PersonReached) -> Result<bool>;

    /// Records the outcome of a question, and wakes its asker. `withdrawn` takes it out of its inbox.
    ///
    /// Returns whether that was news, or `None` if the agent did not ask such a question. Errors: as for [`Self::send`].
    async fn conclude(&self, conclusion: &Conclusion) -> Result<Option<bool>>;

    /// Returns the messages of the inbox by position, shown or not.
    ///
    /// A message is marked as repeated if an earlier session or context of the agent was shown it.
    async fn inbox(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>>;

    /// Returns the messages that the present context of the session has not been shown, by position and marked as in
    /// [`Self::inbox`].
    async fn unshown(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>>;

    /// Returns the number of messages in the inbox and the age of the oldest.
    async fn pending(&self, agent: &AgentId) -> Result<Backlog>;

    /// Returns the open questions to people, oldest first.
    async fn open_questions(&self) -> Result<Arc<[OpenQuestion]>>;

    /// Takes messages out of the inbox. Messages that were taken out before count as acknowledged again.
    async fn acknowledge(
        &self,
        agent: &AgentId,
        actor: &Actor,
        messages: &[MessageId],
    ) -> Result<Settled>;

    /// Records in one step that messages reached a later stage, and wakes their senders.
    ///
    /// The tenure of the actor is that of the session that the messages reached. Without one, for a person's command, no context
    /// is recorded.
    ///
    /// The call ignores messages that are not stored or belong to another recipient. It ignores a stage that is not beyond
    /// the present one, except `in_session` in another session or context, which adds a step. It also ignores `seen` unless
    /// the message was `in_session` in the same session and context. For an expired message, the stage before the expiry
    /// counts. `in_session` implies `on_host`, so a missing `on_host` step is recorded as well.
    ///
    /// `in_session` marks the message as shown unless it names an older context. A newer context first becomes the present
    /// one. `seen` settles a message that needs no answer.
    ///
    /// Returns each recorded stage with its message, in order.
    async fn advance(
        &self,
        recipient: &AgentId,
        actor: &Actor,
        progress: &Progress,
    ) -> Result<Vec<(MessageId, Stage)>>;

    /// Returns the message with its history. The history of an unsettled message past its deadline ends with `expired`.
    async fn message(&self, id: &MessageId) -> Result<Option<StoredMessage>>;

    /// Returns part of the thread, ordered by time and id.
    ///
    /// The cost depends on the messages returned plus a bounded number that the reader may not see. It does not depend on the
    /// length of the thread or on the start of the stretch.
    async fn thread(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<Excerpt>;

    /// Returns how far the messages came that the reader sent in that part of the thread. Their texts are not read.
    async fn sent(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<SentStages>;

    /// Deletes data that is stored no longer: settled messages, reservations of names, hours of quotas. It is safe to run in
    /// any process at any time.
    async fn sweep(&self) -> Result<()>;

    /// Checks that the store responds.
    async fn check(&self) -> Result<()>;

    /// Returns how full the store is, or `None` if the store is not local to this machine.
    async fn fill(&self) -> Result<Option<Fill>>;

    /// Subscribes to wakes from now on. A listener that lags must read everything again.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Finishes the operations in progress and releases the store's resources.
    async fn close(&self);
}
