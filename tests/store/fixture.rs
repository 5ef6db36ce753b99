//! An empty store for a test, and short helpers to fill it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use c3po_coordinator::store::{
    Actor, Agent, AnswerOutcome, Claim, Owner, Quota, Selection, Send, SendOutcome, Speaker, Store,
    StoreError, Stretch, Tenure, Wake,
};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{ARCHIVE_LIFE, INBOX_MAX, PAGE_MAX};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::vocabulary::{Kind, ReplyStatus, State};
use c3po_shared::wire::SessionChange;
use futures_util::future::BoxFuture;
pub(crate) use harness::message::message;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;
use uuid::Uuid;

/// How long an immediate operation may take, on a machine that builds at the same time.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// A lease that outlasts every test.
pub(crate) const LEASE: Duration = Duration::from_secs(600);
/// A lifetime or lease that a test waits for.
pub(crate) const SHORT: Duration = Duration::from_millis(150);

type Opener =
    Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>>> + std::marker::Send + Sync>;

/// An open store and the resources that it needs.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    open: Opener,
    _place: Box<dyn Any + std::marker::Send + Sync>,
}

impl Fixture {
    /// Opens the store for the first time. `place` lives as long as the fixture: a folder or a server.
    pub(crate) async fn new(
        place: impl Any + std::marker::Send + Sync,
        open: Opener,
    ) -> Result<Self> {
        Ok(Self {
            store: open().await?,
            open,
            _place: Box::new(place),
        })
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(&mut self) -> Result<()> {
        self.store.close().await;
        self.store = (self.open)().await?;
        Ok(())
    }

    /// Creates an agent with its own session.
    pub(crate) async fn agent(&self, name: &str) -> Result<Tenure> {
        self.take(&claim(name)).await
    }

    /// Returns the host that has the name.
    pub(crate) async fn host_of(&self, id: &AgentId) -> Result<Option<String>> {
        Ok(self.store.holder(id).await?.map(|holder| holder.host))
    }

    /// Creates an agent without a session.
    pub(crate) async fn introduce(&self, name: &str, host: Option<&str>) -> Result<Agent> {
        Ok(self
            .store
            .introduce(&id(name), host, &Quota::default())
            .await?)
    }

    /// Claims a name that must be free.
    pub(crate) async fn take(&self, claim: &Claim) -> Result<Tenure> {
        let tenure = self.store.claim(claim).await?;
        tenure.ok_or_else(|| anyhow::anyhow!("{} is held by another", claim.name))
    }

    /// Creates an asker `a` and an agent `b`, and returns the tenure of `b`.
    pub(crate) async fn pair(&self) -> Result<Tenure> {
        self.agent("a").await?;
        self.agent("b").await
    }

    /// Sends the message with a new call.
    pub(crate) async fn post(&self, message: Message) -> Result<Message> {
        let outcome = self.store.send(&send(message.clone())).await?;
        ensure!(
            outcome == SendOutcome::Stored,
            "{} was not stored: {outcome:?}",
            message.id
        );
        Ok(message)
    }

    /// Sends the message with a new call; it is not kept after it is settled.
    pub(crate) async fn post_for_once(&self, message: Message) -> Result<Message> {
        let outcome = self
            .store
            .send(&Send {
                kept: Duration::ZERO,
                ..send(message.clone())
            })
            .await?;
        ensure!(
            outcome == SendOutcome::Stored,
            "{} was not stored: {outcome:?}",
            message.id
        );
        Ok(message)
    }

    /// Sends a message that needs an answer.
    pub(crate) async fn say(&self, from: &str, to: &str, text: &str) -> Result<Message> {
        self.post(message(from, to, text)).await
    }

    /// Answers the question with a new call.
    pub(crate) async fn answer(&self, question: &Message, text: &str) -> Result<AnswerOutcome> {
        Ok(self.store.answer(&send(reply(question, text))).await?)
    }

    /// Does the duties of that agent, whether or not they are due.
    pub(crate) async fn do_duties(&self, name: &str) -> Result<()> {
        self.store.expire(&id(name)).await?;
        self.store.withdraw(&id(name)).await?;
        Ok(())
    }

    /// Returns the texts in the inbox.
    pub(crate) async fn inbox(&self, name: &str) -> Result<Vec<String>> {
        let placed = self.store.inbox(&id(name), everything()).await?;
        Ok(placed
            .iter()
            .map(|placed| placed.message.text().to_owned())
            .collect())
    }

    /// Returns the texts not yet shown to the current session.
    pub(crate) async fn unshown(&self, name: &str) -> Result<Vec<String>> {
        let placed = self.store.unshown(&id(name), everything()).await?;
        Ok(placed
            .iter()
            .map(|placed| placed.message.text().to_owned())
            .collect())
    }

    /// Returns the number of messages in the inbox.
    pub(crate) async fn pending(&self, name: &str) -> Result<usize> {
        Ok(self.store.pending(&id(name)).await?.count)
    }

    /// Returns the messages of a thread that the reader may see.
    pub(crate) async fn thread(&self, thread: &MessageId, reader: &str) -> Result<Vec<Message>> {
        let reader = id(reader);
        let (mut messages, mut after) = (Vec::new(), None);
        loop {
            let stretch = Stretch {
                reader: &reader,
                after: after.as_ref(),
                limit: PAGE_MAX,
                bytes: usize::MAX,
            };
            let excerpt = self.store.thread(thread, stretch).await?;
            messages.extend(excerpt.messages.into_iter().map(|found| found.message));
            let Some(next) = excerpt.next else {
                return Ok(messages);
            };
            ensure!(after.as_ref() < Some(&next), "no way forward from {next}");
            after = Some(next);
        }
    }

    /// Acknowledges one message, as the agent itself.
    pub(crate) async fn acknowledge(&self, message: &Message) -> Result<()> {
        let settled = self
            .store
            .acknowledge(
                &message.to_agent,
                &Actor::default(),
                std::slice::from_ref(&message.id),
            )
            .await?;
        ensure!(
            settled.acked == [message.id.clone()] && settled.unknown.is_empty(),
            "{settled:?}"
        );
        Ok(())
    }

    /// Records that the message reached that stage in the session's current context.
    pub(crate) async fn advance(
        &self,
        message: &Message,
        tenure: &Tenure,
        stage: Stage,
        via: Via,
    ) -> Result<()> {
        let agent = self.store.agent(&message.to_agent).await?;
        self.advance_in(
            agent.map_or(0, |agent| agent.context),
            message,
            tenure,
            stage,
            via,
        )
        .await
    }

    /// Records that the message reached that stage in that context of the session.
    pub(crate) async fn advance_in(
        &self,
        context: u64,
        message: &Message,
        tenure: &Tenure,
        stage: Stage,
        via: Via,
    ) -> Result<()> {
        let progress = Progress {
            context,
            ..progress(std::slice::from_ref(&message.id), stage, via)
        };
        Ok(self
            .store
            .advance(&message.to_agent, &by(tenure), &progress)
            .await
            .map(drop)?)
    }

    /// Returns the stages of the message's history.
    pub(crate) async fn stages(&self, message: &MessageId) -> Result<Vec<Stage>> {
        let kept = self.store.message(message).await?;
        let kept = kept.ok_or_else(|| anyhow::anyhow!("{message} is not kept"))?;
        Ok(kept.history.iter().map(|step| step.stage).collect())
    }
}

/// Creates the right of the session to act as its agent.
pub(crate) fn speaking(tenure: &Tenure) -> Speaker {
    Speaker::Session(tenure.clone())
}

/// Creates the session as the actor, with its key.
pub(crate) fn by(tenure: &Tenure) -> Actor {
    Actor {
        speaker: Some(speaking(tenure)),
        key: tenure.key.clone(),
        login: None,
    }
}

/// Creates a report that messages reached one stage in the first context of a session.
pub(crate) fn progress(messages: &[MessageId], stage: Stage, via: Via) -> Progress {
    Progress {
        message_ids: messages.to_vec(),
        stage,
        via,
        seen_via: None,
        context: 0,
    }
}

/// Creates a report that messages are in a session and were seen, in that context.
pub(crate) fn seen_at_once(messages: &[MessageId], context: u64) -> Progress {
    Progress {
        seen_via: Some(Via::Hook),
        context,
        ..progress(messages, Stage::InSession, Via::InboxSocket)
    }
}

/// Creates the change that a host reports when its session is in that context.
pub(crate) fn context(context: u64) -> SessionChange {
    SessionChange {
        context: Some(context),
        ..SessionChange::default()
    }
}

/// Creates the change that a host reports when its session is in that state.
pub(crate) fn does(state: State) -> SessionChange {
    SessionChange {
        state: Some(state),
        ..SessionChange::default()
    }
}

/// Returns the agent id with that name.
pub(crate) fn id(name: &str) -> AgentId {
    name.parse().expect("the tests name agents properly")
}

/// Returns the owner: a base name, a host and its slot.
pub(crate) fn owner(base: &str, host: &str, slot: u32) -> Owner {
    Owner {
        base: id(base),
        host: host.into(),
        slot,
    }
}

/// Creates the claim of a new process for that name.
pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        name: id(name),
        owner: owner(name, "nas2", 1),
        instance: Uuid::new_v4(),
        session_id: Some("first".into()),
        reach: vec![Via::WaitForMessage],
        context: 0,
        state: None,
        fleeting: false,
        one_shot: false,
        reserved: true,
        succeeds: Vec::new(),
        lease: LEASE,
        quota: Quota::default(),
        key: Some("0a0b0c0d".into()),
        kind: "session",
    }
}

/// Creates a message that needs no answer.
pub(crate) fn news(from: &str, to: &str, text: &str) -> Message {
    Message {
        requires_response: false,
        ..message(from, to, text)
    }
}

/// Creates a message that expires soon.
pub(crate) fn brief(from: &str, to: &str, text: &str) -> Message {
    let message = message(from, to, text);
    Message {
        expires_at: message.timestamp + SHORT,
        ..message
    }
}

/// Creates the reply of the question's recipient.
pub(crate) fn reply(question: &Message, text: &str) -> Message {
    let plain = message(question.to_agent.as_str(), question.from_agent.as_str(), "");
    Message {
        thread_id: question.thread_id.clone(),
        kind: Kind::Reply,
        requires_response: false,
        reply_to: Some(question.id.clone()),
        message_id: Some(question.id.clone()),
        message: None,
        response: Some(text.into()),
        status: Some(ReplyStatus::Success),
        ..plain
    }
}

/// Creates the send of a new call.
pub(crate) fn send(message: Message) -> Send {
    Send {
        message,
        call: CallId::fresh(),
        bound: INBOX_MAX,
        kept: ARCHIVE_LIFE,
        spares_away: false,
        one_shot: false,
        quota: Quota::default(),
        key: None,
        login: None,
        speaker: None,
    }
}

/// Creates a repetition of an earlier call, possibly with a different message.
pub(crate) fn again(before: &Send, message: Message) -> Send {
    let number = before
        .message
        .id
        .as_str()
        .rsplit("::")
        .next()
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let id = MessageId::new(
        &message.from_agent,
        &message.to_agent,
        number.expect("an id ends with its number"),
    );
    Send {
        message: Message { id, ..message },
        ..before.clone()
    }
}

/// Appends entries to the log until a message is refused, and returns that message.
pub(crate) async fn fill_the_log(store: &dyn Store) -> Result<Send> {
    let mut entries = vec![Entry::new(Event::Accepted).by(&id("a")); 1_000];
    for _ in 0..90 {
        match store.note(&entries).await {
            Ok(()) => {}
            // A large text may have no room where a small one has.
            Err(StoreError::Full(_)) => entries.truncate((entries.len() / 2).max(1)),
            Err(error) => return Err(error.into()),
        }
        let next = send(message("a", "b", "hello"));
        match store.send(&next).await {
            Ok(_) => {}
            Err(StoreError::Full(_)) => return Ok(next),
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("the store is never full")
}

/// Selects everything.
pub(crate) fn everything() -> Selection<'static> {
    Selection {
        limit: PAGE_MAX,
        ..Selection::default()
    }
}

/// Waits for a wake of that agent. A wake for everyone does not prove a publication.
pub(crate) async fn woken(wakes: &mut broadcast::Receiver<Wake>, agent: &str) -> Result<()> {
    let agent = id(agent);
    let wait = async {
        loop {
            match wakes.recv().await {
                Ok(Wake::Inbox(woken, _)) if woken == agent => return Ok(()),
                Ok(Wake::Receipt(message)) if message.from() == agent => return Ok(()),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => anyhow::bail!("the store is gone"),
            }
        }
    };
    timeout(SOON, wait)
        .await
        .map_err(|_| anyhow::anyhow!("{agent} was not woken within {SOON:?}"))?
}
