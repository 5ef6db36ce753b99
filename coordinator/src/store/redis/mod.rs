//! The store in Redis: one atomic function per change, one connection per server, one subscription for wakes.
//!
//! All keys of a fleet share one hash slot, so that one function can change all of them. One server, sentinels and a cluster
//! look the same above `connection`.

mod agents;
mod audit;
mod batches;
mod cluster;
mod connection;
mod credentials;
mod duties;
mod earlier;
mod guard;
mod inbox;
mod key_names;
mod keys;
mod library;
mod logins;
mod lookup;
mod messages;
mod node;
mod open_error;
mod page_use;
mod questions;
mod reach;
mod records;
mod room;
mod sentinels;
mod servers;
mod slots;
mod speaker;
mod startup;
mod threads;
mod waiting;
mod wakes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage};
use redis::FromRedisValue;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use crate::config::{Fleet, RedisAddress};
use crate::store::{
    Actor, Agent, Amendment, AnswerOutcome, AuditStore, Backlog, Claim, Conclusion, Ending,
    Excerpt, Fill, Holder, Namesake, OpenQuestion, PersonReached, Placed, Quota, Removal, Result,
    Selection, Send, SendOutcome, SentStages, Settled, Speaker, Store, StoreError, StoredMessage,
    Stretch, Tenure, Wake,
};
use connection::RedisConnection;
use inbox::List;
use key_names::KeyNames;
use library::Call;
pub use open_error::OpenError;
use questions::Questions;
use wakes::Wakes;

/// The deadline of every operation; after it the store counts as unavailable.
const OPERATION_DEADLINE: Duration = Duration::from_millis(1_800);

/// The store in Redis.
pub struct RedisStore {
    connection: Arc<RedisConnection>,
    names: KeyNames,
    wakes: Wakes,
    questions: Questions,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, verifies that this Redis stores data durably, and logs which data it may lose.
    pub async fn open(address: &RedisAddress, fleet: &Fleet) -> Result<Self, OpenError> {
        let names = KeyNames::of(fleet);
        let connection = Arc::new(RedisConnection::new(address, &names)?);
        startup::check(&connection, &names, address.discard_old).await?;
        let wakes = Wakes::start(Arc::clone(&connection), names.clone())
            .await
            .map_err(|error| startup::failed(connection.address(), &error))?;
        let store = Self {
            connection,
            names,
            wakes,
            questions: Questions::default(),
        };
        let unreachable = |error: StoreError| OpenError::Unreachable {
            address: store.connection.address().to_owned(),
            reason: error.to_string(),
        };
        duties::adopt(&store).await.map_err(unreachable)?;
        Ok(store)
    }

    /// Makes a call whose last argument is the entry that its change appends to the log.
    async fn logged<T: FromRedisValue + std::marker::Send>(
        &self,
        mut call: Call,
        entry: Option<&Entry>,
    ) -> Result<T> {
        let entry = entry.map(records::write).transpose()?;
        call.arg(entry.unwrap_or_default());
        let answer = self.within(self.connection.invoke(&call)).await?;
        self.wakes.log_grew();
        Ok(answer)
    }

    /// Runs the operation with a deadline, unless the store was closed.
    async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T>> + std::marker::Send,
    ) -> Result<T> {
        let Some(operation) = self
            .wakes
            .unless_closed(timeout(OPERATION_DEADLINE, operation))
        else {
            return Err(closed());
        };
        let too_long = |_| {
            Err(StoreError::Unavailable(format!(
                "no answer within {OPERATION_DEADLINE:?}"
            )))
        };
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

/// Returns a duration in milliseconds, as functions expect it.
fn millis(duration: Duration) -> u64 {
    // Capped at 2^52 milliseconds, because functions count exactly only up to 2^53.
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .min(1 << 52)
}

#[async_trait]
impl AuditStore for RedisStore {
    async fn keep_log(&self, bound: Option<u64>) -> Result<()> {
        self.within(audit::keep(self, bound)).await
    }

    async fn note(&self, entries: &[Entry]) -> Result<()> {
        self.within(audit::note(self, entries)).await
    }

    fn log_grows(&self) -> watch::Receiver<()> {
        self.wakes.log_grows()
    }

    async fn audit(&self, after: u64, _: usize) -> Result<Vec<Entry>> {
        self.within(audit::read(self, after)).await
    }

    async fn audit_end(&self) -> Result<u64> {
        self.within(audit::end(self)).await
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<Option<Tenure>> {
        self.within(agents::claim(self, claim)).await
    }

    async fn renew(&self, tenure: &Tenure, lease: Duration) -> Result<bool> {
        self.within(agents::renew(self, tenure, lease)).await
    }

    async fn release(&self, tenure: &Tenure, ending: Ending) -> Result<()> {
        self.within(agents::release(self, tenure, &ending)).await
    }

    async fn agent(&self, id: &AgentId) -> Result<Option<Agent>> {
        self.within(agents::agent(self, id)).await
    }

    async fn namesakes(&self, base: &AgentId) -> Result<Vec<Namesake>> {
        self.within(agents::namesakes(self, base)).await
    }

    async fn move_host(&self, base: &AgentId, from: &str, to: &str) -> Result<usize> {
        self.within(agents::move_host(self, base, from, to)).await
    }

    async fn move_reservations(&self, key: &str, from: &str, to: &str) -> Result<()> {
        self.within(agents::move_reservations(self, key, from, to))
            .await
    }

    async fn agents(&self, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>> {
        self.within(agents::agents(self, after, limit)).await
    }

    async fn introduce(&self, id: &AgentId, host: Option<&str>, quota: &Quota) -> Result<Agent> {
        self.within(agents::introduce(self, id, host, quota)).await
    }

    async fn amend(
        &self,
        id: &AgentId,
        speaker: Option<&Speaker>,
        amendment: &Amendment,
    ) -> Result<Option<Agent>> {
        self.within(agents::amend(self, id, speaker, amendment))
            .await
    }

    async fn unregister(
        &self,
        id: &AgentId,
        host: Option<&str>,
        entry: Option<&Entry>,
    ) -> Result<bool> {
        agents::unregister(self, id, host, entry).await
    }

    async fn remove(
        &self,
        id: &AgentId,
        host: Option<&str>,
        frees: bool,
        entry: Option<&Entry>,
    ) -> Result<Removal> {
        agents::remove(self, id, host, frees, entry).await
    }

    async fn holder(&self, id: &AgentId) -> Result<Option<Holder>> {
        self.within(agents::holder(self, id)).await
    }

    async fn send(&self, send: &Send) -> Result<SendOutcome> {
        self.within(messages::send(self, send)).await
    }

    async fn announce(&self, from: &AgentId, speaker: Option<&Speaker>, text: &str) -> Result<()> {
        self.within(messages::announce(self, from, speaker, text))
            .await
    }

    async fn answer(&self, answer: &Send) -> Result<AnswerOutcome> {
        self.within(messages::answer(self, answer)).await
    }

    async fn reach_person(&self, reached: &PersonReached) -> Result<bool> {
        self.within(messages::reach_person(self, reached)).await
    }

    async fn conclude(&self, conclusion: &Conclusion) -> Result<Option<bool>> {
        self.within(messages::conclude(self, conclusion)).await
    }

    async fn inbox(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.within(inbox::page(self, agent, List::Inbox, selection))
            .await
    }

    async fn unshown(&self, agent: &AgentId, selection: Selection<'_>) -> Result<Vec<Placed>> {
        self.within(inbox::page(self, agent, List::Unshown, selection))
            .await
    }

    async fn pending(&self, agent: &AgentId) -> Result<Backlog> {
        self.within(inbox::pending(self, agent)).await
    }

    async fn open_questions(&self) -> Result<Arc<[OpenQuestion]>> {
        self.within(self.questions.read(self)).await
    }

    async fn acknowledge(
        &self,
        agent: &AgentId,
        actor: &Actor,
        messages: &[MessageId],
    ) -> Result<Settled> {
        self.within(messages::acknowledge(self, agent, actor, messages))
            .await
    }

    async fn advance(
        &self,
        recipient: &AgentId,
        actor: &Actor,
        progress: &Progress,
    ) -> Result<Vec<(MessageId, Stage)>> {
        self.within(messages::advance(self, recipient, actor, progress))
            .await
    }

    async fn message(&self, id: &MessageId) -> Result<Option<StoredMessage>> {
        self.within(messages::message(self, id)).await
    }

    async fn thread(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<Excerpt> {
        self.within(threads::read(self, thread, stretch)).await
    }

    async fn sent(&self, thread: &MessageId, stretch: Stretch<'_>) -> Result<SentStages> {
        self.within(threads::sent(self, thread, stretch)).await
    }

    async fn sweep(&self) -> Result<()> {
        // Keys expire by themselves.
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.within(connection::check(&self.connection)).await
    }

    async fn fill(&self) -> Result<Option<Fill>> {
        Ok(None)
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn close(&self) {
        self.wakes.close().await;
    }
}
