//! Whose a message is: a name that was freed may belong to an agent of another host now, which gets nothing of the one before.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use tokio::sync::OnceCell;

use super::{Caller, Services};
use crate::auth::Principal;
use crate::store::{Agent, StoreError, StoredMessage};

/// The messages of a reader. The agent of its name is read at most once, and not for a message that its host sent.
#[derive(Debug)]
pub(super) struct Own<'a> {
    services: &'a Services,
    agent: &'a AgentId,
    /// The host of the reader, unless it reads for all hosts.
    host: Option<&'a str>,
    /// The agent that has the name, once it was read.
    holder: OnceCell<Option<Agent>>,
}

impl<'a> Own<'a> {
    /// Returns the messages of a caller.
    pub(super) fn of(services: &'a Services, caller: &'a Caller) -> Self {
        let host = caller.host.as_deref();
        Self {
            host: host.or(caller.principal.own_host()),
            ..Self::as_agent(services, &caller.principal, &caller.agent)
        }
    }

    /// Returns the messages of an agent, for a principal that reads as that agent.
    pub(super) fn as_agent(
        services: &'a Services,
        principal: &'a Principal,
        agent: &'a AgentId,
    ) -> Self {
        Self {
            services,
            agent,
            host: principal.own_host(),
            holder: OnceCell::new(),
        }
    }

    /// Returns the message if it is one of them. For any other reader it does not exist.
    pub(super) async fn message(&self, id: &MessageId) -> Result<StoredMessage, Refusal> {
        match self.services.store.message(id).await? {
            Some(kept) if self.has_kept(&kept).await? => Ok(kept),
            _ => Err(Refusal::message_not_found(id)),
        }
    }

    /// Returns whether the stored message is one of them.
    pub(super) async fn has_kept(&self, kept: &StoredMessage) -> Result<bool, StoreError> {
        self.has(&kept.message, kept.stored_at()).await
    }

    /// Returns whether the message that was stored at that time is one of them: one that the agent or its host sent, the
    /// answer to such a message, or another one to this name, because a host's agents come and go. `human` is every person.
    pub(super) async fn has(
        &self,
        message: &Message,
        stored_at: Timestamp,
    ) -> Result<bool, StoreError> {
        if self.agent.is_human() || !message.concerns(self.agent) {
            return Ok(message.concerns(self.agent));
        }
        if message.from_agent == *self.agent {
            return self.has_sent(message, stored_at).await;
        }
        let Some(asked) = &message.reply_to else {
            return Ok(true);
        };
        let asked = self.services.store.message(asked).await?;
        let Some(asked) = asked.filter(|asked| asked.message.from_agent == *self.agent) else {
            return Ok(has_existed(self.holder().await?, self.host, stored_at));
        };
        self.has_sent(&asked.message, asked.stored_at()).await
    }

    /// Returns whether the agent or its host sent the message that has its name. A host is known without the agent's record.
    async fn has_sent(&self, message: &Message, stored_at: Timestamp) -> Result<bool, StoreError> {
        let is_of_host = self.host.is_some() && self.host == message.from_host.as_deref();
        Ok(is_of_host || is_senders(self.holder().await?, self.host, message, stored_at))
    }

    /// Returns whether a message that is stored no longer was one of them, if it was sent at that time.
    pub(super) async fn had(&self, sent_at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.agent.is_human() || has_existed(self.holder().await?, self.host, sent_at))
    }

    async fn holder(&self) -> Result<Option<&Agent>, StoreError> {
        let read = || self.services.store.agent(self.agent);
        Ok(self.holder.get_or_try_init(read).await?.as_ref())
    }
}

/// Returns whether the agent that has the reader's name, if there is one, had it at that time. While no agent has it, only a
/// reader for all hosts stands for every earlier one.
fn has_existed(holder: Option<&Agent>, host: Option<&str>, stored_at: Timestamp) -> bool {
    holder.map_or(host.is_none(), |agent| agent.existed(stored_at))
}

/// Returns whether a message that has the reader's name as its sender is the reader's: the agent that has the name sent it, or,
/// while no agent has it, the reader's host.
fn is_senders(
    holder: Option<&Agent>,
    host: Option<&str>,
    message: &Message,
    stored_at: Timestamp,
) -> bool {
    match holder {
        Some(agent) => agent.sent(message, stored_at),
        None => host.is_none() || host == message.from_host.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::page::tests::message;

    #[test]
    fn a_message_is_of_the_agent_that_existed_or_of_the_host_that_sent_it() {
        let asked = Message {
            from_host: Some("nas".to_owned()),
            ..message(1, "who?")
        };
        let agent = |host: &str, since| Agent {
            host: Some(host.to_owned()),
            registered_at: Timestamp::from_millis(since),
            ..Agent::placeholder()
        };
        for (holder, host, expected) in [
            (Some(agent("nas", 5)), "nas", true),
            (Some(agent("nas", 6)), "nas", true),
            // A host that was renamed.
            (Some(agent("attic", 5)), "attic", true),
            (Some(agent("laptop", 6)), "laptop", false),
            (None, "nas", true),
            (None, "laptop", false),
        ] {
            let is_own = is_senders(
                holder.as_ref(),
                Some(host),
                &asked,
                Timestamp::from_millis(5),
            );
            assert_eq!(is_own, expected, "{holder:?} {host}");
        }
        assert!(is_senders(None, None, &asked, Timestamp::from_millis(5)));
    }
}
