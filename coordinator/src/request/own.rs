//! Whose a message is: a name that was freed may belong to an agent of another host now, which gets nothing of the one before.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use tokio::sync::OnceCell;

use super::{Caller, Services};
use crate::auth::Principal;
use crate::store::{Holder, StoreError, StoredMessage};

/// The messages of a reader. The holder of its name is read at most once, and not for a message that its host sent.
#[derive(Debug)]
pub(super) struct Own<'a> {
    services: &'a Services,
    principal: &'a Principal,
    agent: &'a AgentId,
    /// The host of the reader, unless it reads for all hosts.
    host: Option<&'a str>,
    /// Whether the credential of the reader is for its host alone.
    is_bound: bool,
    /// The host that has the name, once it was read.
    holder: OnceCell<Option<Holder>>,
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
            principal,
            agent,
            host: principal.own_host(),
            is_bound: principal.own_host().is_some(),
            holder: OnceCell::new(),
        }
    }

    /// Returns the message if it is one of them. For any other reader it does not exist.
    pub(super) async fn message(&self, id: &MessageId) -> Result<StoredMessage, Refusal> {
        match self.services.message(self.principal, id).await? {
            Some(kept) if self.has_kept(&kept).await? => Ok(kept),
            _ => Err(Refusal::message_not_found(id)),
        }
    }

    /// Returns whether the stored message is one of them.
    pub(super) async fn has_kept(&self, kept: &StoredMessage) -> Result<bool, StoreError> {
        self.has(&kept.message, kept.stored_at()).await
    }

    /// Returns whether the message that was stored at that time is one of them: one that the agent or its host sent, the
    /// answer to such a message, or another one that was stored since the name is its host's. `human` is every person.
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
            return Ok(!self.is_bound || self.had(stored_at).await?);
        };
        let asked = self.services.message(self.principal, asked).await?;
        let Some(asked) = asked.filter(|asked| asked.message.from_agent == *self.agent) else {
            return self.had(stored_at).await;
        };
        self.has_sent(&asked.message, asked.stored_at()).await
    }

    /// Returns whether the agent or its host sent the message that has its name: known without a read if it was the host.
    async fn has_sent(&self, message: &Message, stored_at: Timestamp) -> Result<bool, StoreError> {
        let is_of_host = self.host.is_some() && self.host == message.from_host.as_deref();
        Ok(is_of_host || self.had(stored_at).await?)
    }

    /// Returns whether the name was the reader's at that time.
    pub(super) async fn had(&self, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.agent.is_human() || has_had(self.holder().await?, self.host, at))
    }

    async fn holder(&self) -> Result<Option<&Holder>, StoreError> {
        let read = || self.services.store.holder(self.agent);
        Ok(self.holder.get_or_try_init(read).await?.as_ref())
    }
}

/// Returns whether the host that has the reader's name had it at that time. While no host has it, only a reader for all hosts
/// stands for every earlier one.
fn has_had(holder: Option<&Holder>, host: Option<&str>, at: Timestamp) -> bool {
    holder.map_or(host.is_none(), |holder| holder.since <= at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_was_the_readers_since_its_host_has_had_it() {
        let at = Timestamp::from_millis(5);
        let held = |since| Holder {
            host: "nas".to_owned(),
            since: Timestamp::from_millis(since),
        };
        for (holder, host, expected) in [
            (Some(held(5)), Some("nas"), true),
            (Some(held(6)), Some("nas"), false),
            (None, Some("nas"), false),
            (None, None, true),
        ] {
            assert_eq!(has_had(holder.as_ref(), host, at), expected, "{holder:?}");
        }
    }
}
