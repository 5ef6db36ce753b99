//! The store: every fact that must survive a crash. Two implementations, one conformance suite; nothing above knows which runs.
//!
//! The rules that hold for both: a send is one atomic step and its answer comes after the commit; pending, settled,
//! expired and answered are the same for every way to read them; a wake is a hint, the store is the truth; an
//! expired message is out of the inbox at once, whether or not a sweep has passed.

mod agent;
mod audit;
mod fill;
mod guard;
mod keys;
mod open;
mod quota;
pub mod redis;
pub mod sqlite;
mod thread;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Step};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;
use tokio::sync::broadcast;
use tokio::time::Instant;

pub use self::agent::{Agent, Amendment, Claim, Owner, Removal, Tenure};
pub use self::audit::AuditStore;
pub use self::fill::Fill;
pub use self::guard::{GuardStore, Pair, Ruling};
pub use self::keys::{Invite, Key, KeyStore};
use self::keys::{give_hosts, read_invites, read_key};
pub use self::open::{open, open_within};
pub use self::quota::{Crowded, Exceeded, Quota};
pub use self::thread::{Excerpt, Mark, Stretch};
pub use self::waiting::WaitStore;
use self::waiting::Waits;

/// How many wakes a slow listener may fall behind before it has to read everything again.
pub const WAKE_BACKLOG: usize = 4_096;

/// The longest text, in bytes, that a wake carries: it may stay in memory until the next one.
const CARRIED_MAX: usize = 4_096;

/// Why the store did not do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or did not answer in time. Nothing is known about what it did.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// It has no room for this. Nothing was done.
    #[error("the store is full: {0}")]
    Full(String),
    /// As much was stored with the key as may be within a day. Nothing was done.
    #[error("the quota of {} is used up", .0.key)]
    OverQuota(Exceeded),
    /// The key has as many agents as it may have. Nothing was done.
    #[error("{} has {} agents", .0.key, .0.count)]
    Crowded(Crowded),
    /// The name is new, and differs from that of an agent in case alone. Nothing was done.
    #[error("{name} differs from the agent {known} in case alone")]
    Alike {
        /// The new name.
        name: AgentId,
        /// The agent.
        known: AgentId,
    },
    /// Another session has the agent now.
    #[error("another session has taken over {0}")]
    TakenOver(AgentId),
    /// What it holds cannot be read.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Returns whether the same may succeed a little later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_))
    }
}

/// What a store returns.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A message to be put into its recipient's inbox.
#[derive(Debug, Clone)]
pub struct Send {
    /// The envelope, complete. Its id is that of the call ([`MessageId::of_call`]).
    pub message: Message,
    /// The call that sends it: the same call reaches the same recipient once.
    pub call: CallId,
    /// How many messages the inbox may hold.
    pub bound: usize,
    /// For how long the message stays readable once it is settled.
    pub kept: Duration,
    /// Whether a recipient whose session is away refuses the message.
    pub spares_away: bool,
    /// Whether a one-shot session sends it. A question of such a session ends with it.
    pub one_shot: bool,
    /// Whose quota it counts against, with what it takes beside its envelope. A call that is repeated counts once.
    pub quota: Quota,
}

/// What became of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// Committed.
    Stored,
    /// This call had sent this message to this recipient before; nothing changed.
    Repeated(Box<Message>),
    /// The inbox holds that many; nothing changed.
    Full(usize),
    /// The recipient does not exist; nothing changed.
    NoSuchAgent,
    /// The recipient's session takes no new work; nothing changed.
    Away,
    /// Another message has that id; nothing changed.
    IdTaken,
}

/// What became of an answer. Sends' outcomes, and those that only answers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// What became of sending the reply.
    Sent(SendOutcome),
    /// The message does not exist or was not addressed to the one who answers; nothing changed.
    NotFound,
    /// That reply came first; nothing changed.
    AlreadyAnswered(MessageId),
}

/// A message and its place in its recipient's inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Grows with every message to the same recipient, and never repeats.
    pub position: u64,
    /// The envelope.
    pub message: Message,
    /// How many bytes the envelope has as it is kept.
    pub bytes: usize,
}

/// Which part of an inbox is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// Which kinds.
    pub kind: KindFilter,
    /// Which thread, where not all.
    pub thread: Option<&'a MessageId>,
    /// Only what stands behind this position; 0 for all.
    pub after: u64,
    /// How many at most.
    pub limit: usize,
    /// After how many bytes no further message is read, so that long ones are not read in vain.
    pub bytes: usize,
}

impl Default for Selection<'_> {
    /// Nothing, whatever its kind and length.
    fn default() -> Self {
        Self { kind: KindFilter::default(), thread: None, after: 0, limit: 0, bytes: usize::MAX }
    }
}

impl Selection<'_> {
    /// Returns whether a page has all that one page may have, so that there may be more behind it.
    pub fn is_filled_by(&self, page: &[Placed]) -> bool {
        page.len() >= self.limit || page.iter().map(|placed| placed.bytes).sum::<usize>() > self.bytes
    }
}

/// How much an agent has not dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// How many messages are in the inbox.
    pub count: usize,
    /// When the oldest of them was accepted.
    pub oldest: Option<Timestamp>,
}

/// A message with everything known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The envelope.
    pub message: Message,
    /// How far it got, step by step, the first one `stored`.
    pub history: Vec<Step>,
    /// The reply, if there is one.
    pub reply: Option<MessageId>,
}

/// What became of acknowledgements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Out of the inbox now, or before.
    pub acked: Vec<MessageId>,
    /// Never in this inbox, or no longer kept.
    pub unknown: Vec<MessageId>,
}

/// A message that this process has just committed, for those who need not read the store for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its place in the inbox.
    pub position: u64,
    /// The place of the one before it, whatever became of that; `None` where every message arrives here, in order.
    pub follows: Option<u64>,
    /// Whether no unshown message stands before it that this process may not know of.
    pub sole: bool,
    /// When that was so.
    pub at: Instant,
    /// The envelope.
    pub message: Message,
}

/// A hint that somebody should read the store again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Something may have come into that agent's inbox; with what came, where this process committed it.
    Inbox(AgentId, Option<Arc<Arrival>>),
    /// A message that the agent sent may have got further.
    Receipt(AgentId),
    /// Hints may have been lost: everybody should.
    Everyone,
}

impl Arrival {
    /// For how long what was so at the commit is taken to be so; then the store is asked.
    const FRESH: Duration = Duration::from_secs(1);

    /// Returns whether it came just now.
    pub fn is_fresh(&self) -> bool {
        self.at.elapsed() < Self::FRESH
    }
}

impl Wake {
    /// The wake for a message that was just committed. One with a long text is to be read.
    fn arrived(position: u64, follows: Option<u64>, sole: bool, message: &Message) -> Self {
        let text = message.text().len() + message.context.as_deref().map_or(0, str::len);
        let arrival = || Arc::new(Arrival { position, follows, sole, at: Instant::now(), message: message.clone() });
        Self::Inbox(message.to_agent.clone(), (text <= CARRIED_MAX).then(arrival))
    }
}

/// How long a fleeting agent whose link broke may take to come back before a sweep forgets it.
pub const RETURN_MAX: Duration = Duration::from_secs(60 * 60);

/// What any store must keep, whatever its tables or keys.
#[async_trait]
pub trait Store:
    KeyStore + AuditStore + GuardStore + WaitStore + std::fmt::Debug + std::marker::Send + Sync + 'static
{
    /// Takes the name for a session, if it is free or its owner's and no other process holds it.
    ///
    /// Returns `None` where it is another owner's, where this owner has another name, and where another instance holds it
    /// now, but for one that the claim says is dead. The same instance
    /// keeps the generation, also after its lease ended, unless another took the name meanwhile; any other raises it by
    /// one, makes the state `starting` where the claim names none, and makes every message of the inbox unshown again.
    /// So does the same instance in a larger context. Uid, inbox, capabilities, description and role stay. A name never taken before gets a new uid
    /// and generation 1. Of a one-shot session whose hold is over another process inherits nothing: it is ended first, as by
    /// [`Self::release`].
    ///
    /// Errors, where the name is new: `Alike` where an agent's differs from it in case alone, and `Crowded` where as many agents
    /// were made with the key as may be.
    async fn claim(&self, claim: &Claim) -> Result<Option<Tenure>>;

    /// Makes the hold last that much longer from now, and notes that the agent was seen.
    ///
    /// Returns false where the tenure is outdated, or the agent is no longer known.
    async fn renew(&self, tenure: &Tenure, lease: Duration) -> Result<bool>;

    /// Ends the hold; an outdated tenure ends nothing, nor does one whose process has claimed the name again since, by
    /// another link. Where the session is over, a fleeting agent with an empty inbox is forgotten; else it may come back
    /// within [`RETURN_MAX`].
    ///
    /// A one-shot session that is over leaves nothing: what it asked and is not answered, and what is in its inbox, is
    /// expired, and it is forgotten. One that is not keeps its hold, which runs out; then a sweep ends it.
    async fn release(&self, tenure: &Tenure, is_over: bool) -> Result<()>;

    /// Returns the agent of exactly that name.
    async fn agent(&self, id: &AgentId) -> Result<Option<Agent>>;

    /// Returns every agent whose owner wished that name, and the one whose id it is.
    async fn namesakes(&self, base: &AgentId) -> Result<Vec<Agent>>;

    /// Gives what one host has under that base name to another one, and returns how many agents that were. Where both have
    /// a slot the one that was moved keeps it, and the other gets the lowest that is free.
    async fn move_host(&self, base: &AgentId, from: &str, to: &str) -> Result<usize>;

    /// Returns agents by id, those after `after`, at most `limit`.
    async fn agents(&self, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>>;

    /// Makes sure that the agent exists, without a session (a person), and notes that it was seen.
    ///
    /// The host is noted where the agent belongs to none. Errors: as for [`Self::claim`].
    async fn introduce(&self, id: &AgentId, host: Option<&str>, quota: &Quota) -> Result<Agent>;

    /// Changes the record. Returns it as it is now, `None` where there is no such agent.
    ///
    /// An outdated tenure changes nothing and is refused.
    async fn amend(&self, id: &AgentId, tenure: Option<&Tenure>, amendment: &Amendment) -> Result<Option<Agent>>;

    /// Ends any hold, and forgets the agent where its inbox is empty. Returns whether it was known.
    async fn unregister(&self, id: &AgentId) -> Result<bool>;

    /// Forgets an agent that no session holds. What is in its inbox is expired.
    async fn remove(&self, id: &AgentId) -> Result<Removal>;

    /// Puts a message into its recipient's inbox, in one atomic step, and wakes the recipient.
    async fn send(&self, send: &Send) -> Result<SendOutcome>;

    /// Puts a reply into the asker's inbox and settles what it answers, by `message.reply_to`.
    ///
    /// One atomic step. The first answer wins. Where the reply cannot be sent, the question stays open.
    async fn answer(&self, answer: &Send) -> Result<AnswerOutcome>;

    /// Returns what is in the inbox, by position, shown or not.
    ///
    /// A message is marked as repeated where an earlier session or context of the agent was shown it.
    async fn inbox(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>>;

    /// Returns what is in the inbox and not yet in the present session's context, by position; marked as above.
    async fn unshown(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>>;

    /// Returns how much is in the inbox.
    async fn pending(&self, agent: &AgentId) -> Result<Backlog>;

    /// Takes messages out of the inbox. What was taken out before counts as acknowledged again.
    async fn acknowledge(&self, agent: &AgentId, tenure: Option<&Tenure>, messages: &[MessageId]) -> Result<Settled>;

    /// Records that messages of a recipient got further, in one step, and wakes their senders.
    ///
    /// The tenure is that of the session that they reached, `None` for a person's command, of which no context is noted.
    /// Ignored: messages not kept or not the recipient's, a stage not beyond the present one (except `in_session`
    /// in another session or context, which is one more step), and `seen` of what was not `in_session` in the same
    /// session and context. What expired counts by how far it got before. `in_session` proves `on_host`: a missing
    /// step of that is recorded with it. `in_session`
    /// makes the message shown, unless it speaks of an older context; one that speaks of a newer context than is
    /// known makes that the present one first. `seen` settles one that wants no answer.
    ///
    /// Returns each stage that was recorded, with its message, in order.
    async fn advance(
        &self,
        recipient: &AgentId,
        tenure: Option<&Tenure>,
        progress: &Progress,
    ) -> Result<Vec<(MessageId, Stage)>>;

    /// Returns the message with its history. An unsettled message past its time has the last step `expired`.
    async fn message(&self, id: &MessageId) -> Result<Option<StoredMessage>>;

    /// Returns an excerpt of what is kept of the thread, by time and id.
    ///
    /// It costs what it returns and a bounded look at what the reader may not see, however long the thread is and
    /// wherever the stretch begins.
    async fn thread(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<Excerpt>;

    /// Removes what is past its time. Safe to run anywhere, any time.
    async fn sweep(&self) -> Result<()>;

    /// Returns whether the store answers.
    async fn check(&self) -> Result<()>;

    /// Returns how full it is; `None` where the store is not this machine's.
    async fn fill(&self) -> Result<Option<Fill>>;

    /// Returns the wakes from now on. A listener that lags has to read everything again.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Ends what the store owns, after what is under way.
    async fn close(&self);
}
