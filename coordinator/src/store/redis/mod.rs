//! The store in Redis: one atomic script per fact, one connection to each server, one subscription for wakes.
//!
//! Every key of an agent has the agent as its hash tag and no script touches two agents, so that the keys can be
//! spread over a cluster: one server, the master of sentinels and a cluster are all the same above [`connection`].

mod agents;
mod answers;
mod audit;
mod cluster;
mod connection;
mod held_keys;
mod inbox;
mod keys;
mod messages;
mod node;
mod reach;
mod records;
mod scripts;
mod sentinels;
mod slots;
mod startup;
mod sweep;
mod threads;
mod wakes;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::sync::broadcast;
use tokio::time::timeout;

use crate::config::RedisAddress;
use crate::store::{
    Advance, Agent, Amendment, AnswerOutcome, AuditStore, Claim, Excerpt, Kept, Pending, Placed, Result, Selection,
    Send, SendOutcome, Settled, Store, StoreError, Stretch, Tenure, Wake,
};
use connection::Connection;
use inbox::List;
pub use startup::OpenError;
use wakes::Wakes;

/// How long any operation may take; then the store counts as unavailable.
const OPERATION_DEADLINE: Duration = Duration::from_millis(1_800);

/// The store in Redis.
pub struct RedisStore {
    connection: Arc<Connection>,
    wakes: Wakes,
    /// Where the next sweep begins.
    swept: Mutex<Option<AgentId>>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, makes sure that this Redis keeps what it accepts, and says in the log what it may lose.
    pub async fn open(address: &RedisAddress) -> Result<Self, OpenError> {
        let connection = Arc::new(Connection::new(address)?);
        startup::check(&connection).await?;
        let wakes = Wakes::start(Arc::clone(&connection)).await.map_err(|error| OpenError::Unreachable {
            address: connection.address().to_owned(),
            reason: format!("it does not let us subscribe: {error}"),
        })?;
        Ok(Self { connection, wakes, swept: Mutex::default() })
    }

    /// Returns what the operation does, unless that takes too long or the store was closed.
    async fn within<T>(&self, operation: impl Future<Output = Result<T>> + std::marker::Send) -> Result<T> {
        let Some(operation) = self.wakes.unless_closed(timeout(OPERATION_DEADLINE, operation)) else {
            return Err(closed());
        };
        let too_long = |_| Err(StoreError::Unavailable(format!("no answer within {OPERATION_DEADLINE:?}")));
        let outcome = operation.await.unwrap_or_else(too_long);
        if matches!(outcome, Err(StoreError::Unavailable(_))) {
            self.wakes.doubt();
        }
        outcome
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it was closed".into())
}

/// Returns a length of time as scripts get it.
fn millis(duration: Duration) -> u64 {
    // Shorter than 2^53 milliseconds, which is all that a script can count.
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(1 << 52)
}

#[async_trait]
impl AuditStore for RedisStore {
    async fn note(&self, entries: &[Entry], bound: u64) -> Result<()> {
        self.within(audit::note(&self.connection, entries, bound)).await
    }

    async fn audit(&self, after: u64, _: usize) -> Result<Vec<Entry>> {
        self.within(audit::read(&self.connection, after)).await
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<Option<Tenure>> {
        self.within(agents::claim(&self.connection, claim)).await
    }

    async fn renew(&self, tenure: &Tenure, lease: Duration) -> Result<bool> {
        self.within(agents::renew(&self.connection, tenure, lease)).await
    }

    async fn release(&self, tenure: &Tenure) -> Result<()> {
        self.within(agents::release(&self.connection, tenure)).await
    }

    async fn agent(&self, id: &AgentId) -> Result<Option<Agent>> {
        self.within(agents::agent(&self.connection, id)).await
    }

    async fn agents(&self, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>> {
        self.within(agents::agents(&self.connection, after, limit)).await
    }

    async fn introduce(&self, id: &AgentId, host: Option<&str>) -> Result<Agent> {
        self.within(agents::introduce(&self.connection, id, host)).await
    }

    async fn amend(&self, id: &AgentId, tenure: Option<&Tenure>, amendment: &Amendment) -> Result<Option<Agent>> {
        self.within(agents::amend(&self.connection, id, tenure, amendment)).await
    }

    async fn unregister(&self, id: &AgentId) -> Result<bool> {
        self.within(agents::unregister(&self.connection, id)).await
    }

    async fn send(&self, send: &Send) -> Result<SendOutcome> {
        self.within(messages::send(self, send)).await
    }

    async fn answer(&self, answer: &Send) -> Result<AnswerOutcome> {
        self.within(answers::answer(self, answer)).await
    }

    async fn inbox(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.within(inbox::page(self, agent, List::Inbox, selection)).await
    }

    async fn unshown(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.within(inbox::page(self, agent, List::Unshown, selection)).await
    }

    async fn pending(&self, agent: &AgentId) -> Result<Pending> {
        self.within(inbox::pending(self, agent)).await
    }

    async fn acknowledge(&self, agent: &AgentId, tenure: Option<&Tenure>, messages: &[MessageId]) -> Result<Settled> {
        self.within(messages::acknowledge(self, agent, tenure, messages)).await
    }

    async fn advance(&self, advance: Advance<'_>) -> Result<Vec<MessageId>> {
        self.within(messages::advance(self, advance)).await
    }

    async fn message(&self, id: &MessageId) -> Result<Option<Kept>> {
        self.within(messages::message(self, id)).await
    }

    async fn thread(&self, thread: &MessageId, recipients: &[AgentId], stretch: Stretch<'_>) -> Result<Excerpt> {
        self.within(threads::read(self, thread, recipients, stretch)).await
    }

    async fn sweep(&self) -> Result<()> {
        match self.wakes.unless_closed(sweep::sweep(self)) {
            Some(sweep) => sweep.await,
            None => Err(closed()),
        }
    }

    async fn check(&self) -> Result<()> {
        self.within(connection::check(&self.connection)).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn close(&self) {
        self.wakes.close().await;
    }
}
