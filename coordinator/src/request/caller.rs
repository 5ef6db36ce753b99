//! The caller of a request, and the messages that its session was given and shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::catalogue::Reply;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::Principal;
use crate::store::{Actor, Speaker, Tenure};

/// How long a message returned by one wait is withheld from other waits of the same session.
///
/// The host reports within milliseconds that the result was written. Without that report, the caller had gone.
const HANDED_FOR: Duration = Duration::from_secs(5);

/// How long no wait of a session restarts a message of which the session was shown a part.
///
/// The host reports nothing before the rest was shown. So a session that continues to read cannot be distinguished from one
/// that was lost.
const BEGUN_FOR: Duration = Duration::from_secs(5 * 60);

/// The caller of a request: an agent's session, or a person who briefly acts as an agent.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The agent.
    pub(crate) agent: AgentId,
    /// The principal that was authenticated.
    pub(crate) principal: Arc<Principal>,
    /// The host.
    pub(crate) host: Option<String>,
    /// The session's tenure; `None` for a person.
    pub(crate) tenure: Option<Tenure>,
    /// Processes that a person's host reports as dead; their unexpired leases are ignored.
    pub(crate) dead: Arc<[Uuid]>,
    /// Whether the caller can be renamed.
    pub(crate) renamable: bool,
    /// The messages that the session has been given.
    pub(crate) memory: Arc<Memory>,
}

impl Caller {
    /// Returns whether the caller is a person, who gets whole texts.
    pub(crate) fn is_person(&self) -> bool {
        self.tenure.is_none()
    }

    /// Returns by what right the caller acts as its agent; `None` for people, whom their credential lets act as `human`.
    pub(crate) fn speaker(&self) -> Option<Speaker> {
        match (&self.tenure, &self.host) {
            (Some(tenure), _) => Some(Speaker::Session(tenure.clone())),
            (None, Some(host)) if !self.agent.is_human() => {
                Some(Speaker::OfHost(self.agent.clone(), host.clone()))
            }
            (None, _) => None,
        }
    }

    /// Returns whether the caller is a one-shot session, whose questions end with it.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| tenure.one_shot)
    }

    /// Returns the right and the credential of the caller, for an act on its inbox.
    pub(crate) fn actor(&self) -> Actor {
        let (key, login) = self.credentials();
        Actor {
            speaker: self.speaker(),
            key,
            login,
        }
    }

    /// Returns the key and the login to record with a message of the caller.
    pub(crate) fn credentials(&self) -> (Option<String>, Option<String>) {
        let principal = &self.principal;
        (
            principal.key_id().map(str::to_owned),
            principal.login_of(&self.agent).map(str::to_owned),
        )
    }

    /// Records that the session is given a part of the last message of that reply, so that no wait restarts it for a while.
    pub(crate) fn begin_cut(&self, reply: &Reply) {
        let last = match reply {
            Reply::Message(message) => Some(message),
            Reply::Inbox(inbox) => inbox.messages.last(),
            Reply::Thread(thread) => thread.messages.last(),
            _ => None,
        };
        if let Some(last) = last
            && last.rest.is_some()
            && last.to_agent == self.agent
        {
            self.memory.begin(&last.id, Instant::now());
        }
    }

    /// Begins an audit entry about an action of the caller.
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.principal.sign(Entry::new(event).by(&self.agent))
    }
}

/// The messages given to a session since it connected.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when each message is withheld.
    handed: Mutex<HashMap<MessageId, Withheld>>,
    /// The latest look in turn that found nothing: its agent, because waits under a former name of the session go on, and when it
    /// began. The lock is the turn.
    in_vain: tokio::sync::Mutex<Option<(AgentId, Instant)>>,
}

/// The turn of a wait to look for any message.
pub(crate) struct LookTurn<'a> {
    in_vain: tokio::sync::MutexGuard<'a, Option<(AgentId, Instant)>>,
    agent: AgentId,
    began: Instant,
}

impl LookTurn<'_> {
    /// Records that the look found nothing.
    pub(crate) fn found_nothing(mut self) {
        *self.in_vain = Some((self.agent, self.began));
    }
}

/// Until when a message is withheld.
#[derive(Debug, Clone, Copy)]
struct Withheld {
    from_waits: Instant,
    /// Not for longer, so that the host can show the rest of a message that its session was shown in part.
    from_delivery: Instant,
}

impl Memory {
    /// Claims a message for one wait. Returns false if another wait of the session has it.
    pub(crate) fn hand(&self, id: &MessageId, now: Instant) -> bool {
        let mut handed = self.handed(now);
        if handed.contains_key(id) {
            return false;
        }
        handed.insert(
            id.clone(),
            Withheld {
                from_waits: now + HANDED_FOR,
                from_delivery: now + HANDED_FOR,
            },
        );
        true
    }

    /// Waits for the turn to look for any message after news of that time: others may send as often as they like, to a session
    /// with many waits. Returns nothing if a look that began since then found nothing. Cancel-safe.
    pub(crate) async fn turn_to_look(
        &self,
        agent: &AgentId,
        news_at: Instant,
    ) -> Option<LookTurn<'_>> {
        let in_vain = self.in_vain.lock().await;
        let is_in_vain = in_vain
            .as_ref()
            .is_some_and(|(of, began)| of == agent && *began >= news_at);
        (!is_in_vain).then(|| LookTurn {
            in_vain,
            agent: agent.clone(),
            began: Instant::now(),
        })
    }

    /// Records that the session was shown a part of a message, so that no wait restarts it for a while.
    pub(crate) fn begin(&self, id: &MessageId, now: Instant) {
        self.handed(now).insert(
            id.clone(),
            Withheld {
                from_waits: now + BEGUN_FOR,
                from_delivery: now + HANDED_FOR,
            },
        );
    }

    /// Takes a message back from a wait whose caller had gone before the reply arrived.
    pub(crate) fn take_back(&self, id: &MessageId) {
        self.handed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
    }

    /// Clears the messages returned by waits, because another context of the session has not been shown them.
    pub(crate) fn forget_handed(&self) {
        self.handed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Returns when waits may return the next withheld message, if there is one.
    pub(crate) fn next_release(&self, now: Instant) -> Option<Instant> {
        self.handed(now)
            .values()
            .map(|withheld| withheld.from_waits)
            .min()
    }

    /// Returns until when the message is not delivered to the host, if it is withheld.
    pub(crate) fn held_until(&self, id: &MessageId, now: Instant) -> Option<Instant> {
        self.handed(now)
            .get(id)
            .map(|withheld| withheld.from_delivery)
            .filter(|until| now < *until)
    }

    /// Returns the withheld messages, after dropping those that were released.
    fn handed(&self, now: Instant) -> MutexGuard<'_, HashMap<MessageId, Withheld>> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.retain(|_, withheld| now < withheld.from_waits);
        handed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_one_wait_of_a_session_until_its_caller_is_gone() {
        let memory = Memory::default();
        let id = MessageId::new(&AgentId::human(), &AgentId::all(), 1);
        let start = Instant::now();
        assert!(memory.hand(&id, start));
        assert!(!memory.hand(&id, start + HANDED_FOR / 2));
        assert!(memory.hand(&id, start + HANDED_FOR));
        memory.take_back(&id);
        assert!(memory.hand(&id, start + HANDED_FOR));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_are_woken_together_look_in_turn_until_one_finds_nothing() {
        let (memory, second) = (Memory::default(), Duration::from_secs(1));
        let (agent, news) = (AgentId::human(), Instant::now());
        let first_turn = memory.turn_to_look(&agent, news).await.expect("a turn");
        tokio::time::sleep(second).await;
        let look = async || {
            let turn = memory.turn_to_look(&agent, news).await?;
            tokio::time::sleep(second).await;
            turn.found_nothing();
            Some(())
        };
        let (a, b, c, ()) = tokio::join!(look(), look(), look(), async { drop(first_turn) });
        assert_eq!((a, b, c), (Some(()), None, None), "one look finds nothing");
        assert_eq!(news.elapsed(), 2 * second);
        assert!(memory.turn_to_look(&agent, news).await.is_none());
        let later_news = memory.turn_to_look(&agent, Instant::now()).await;
        assert!(later_news.is_some());
        drop(later_news);
        let of_a_former_name = memory.turn_to_look(&AgentId::all(), news).await;
        assert!(of_a_former_name.is_some());
    }

    #[test]
    fn nothing_is_held_back_for_longer_than_that() {
        let memory = Memory::default();
        let id = MessageId::new(&AgentId::human(), &AgentId::all(), 1);
        let start = Instant::now();
        assert!(memory.hand(&id, start));
        let later = start + HANDED_FOR;
        assert_eq!(
            (memory.next_release(start), memory.held_until(&id, start)),
            (Some(later), Some(later))
        );
        assert_eq!(
            (memory.next_release(later), memory.held_until(&id, later)),
            (None, None)
        );
    }

    #[test]
    fn a_message_that_was_begun_goes_to_no_wait_for_minutes_unless_its_context_ends() {
        let memory = Memory::default();
        let id = |number| MessageId::new(&AgentId::human(), &AgentId::all(), number);
        let start = Instant::now();
        assert!(memory.hand(&id(1), start) && memory.hand(&id(2), start));
        memory.begin(&id(1), start);
        let later = start + HANDED_FOR;
        assert_eq!(memory.next_release(start), Some(later));
        assert!(!memory.hand(&id(1), later) && memory.hand(&id(2), later));
        assert!(
            memory.held_until(&id(1), start).is_some()
                && memory.held_until(&id(1), later).is_none()
        );
        assert!(memory.hand(&id(1), start + BEGUN_FOR));
        memory.begin(&id(1), start);
        memory.forget_handed();
        assert!(memory.hand(&id(1), start));
    }
}
