//! Connections of this process by agent, and its listeners by subject. They are in memory only; the store is the truth.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::CLOCK_SKEW;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::store::Arrival;

/// The connections and listeners of this process. Clones are cheap and share one registry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence {
    shared: Arc<PresenceMap>,
}

#[derive(Debug, Default)]
struct PresenceMap {
    connections: Mutex<HashMap<AgentId, Attached>>,
    listeners: Mutex<HashMap<Subject, Vec<Arc<Ear>>>>,
    serial: AtomicU64,
    waiting: AtomicUsize,
    reading_along: AtomicUsize,
    agents_online: Mutex<Option<usize>>,
}

#[derive(Debug)]
struct Attached {
    serial: u64,
    replaced: CancellationToken,
    /// How many milliseconds its host's clock was ahead of ours at the last heartbeat.
    ahead_ms: i64,
}

/// The subject of news.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// The inbox of an agent, which may have new messages.
    Inbox(AgentId),
    /// A message that was sent, which may have come further, or have a reply.
    Message(MessageId),
}

/// News for a listener: all new messages in order of arrival, or none if the store must be read.
pub(crate) type News = Vec<Arc<Arrival>>;

/// The queued news of one listener.
#[derive(Debug, Default)]
struct Ear {
    /// `None` if there are none.
    heard: Mutex<Option<News>>,
    rung: Notify,
}

impl Ear {
    fn hear(&self, news: &[Arc<Arrival>]) {
        match &mut *lock(&self.heard) {
            // The store must be read anyway.
            Some(heard) if heard.is_empty() => {}
            Some(heard) if !news.is_empty() && Arrival::are_few(heard, news) => {
                heard.extend_from_slice(news);
            }
            Some(heard) => *heard = News::new(),
            empty => {
                let are_few = Arrival::are_few(&[], news);
                *empty = Some(if are_few { news.to_vec() } else { News::new() });
            }
        }
        self.rung.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presence {
    /// Registers the agent's connection at this process, and notifies the one it replaces.
    pub(crate) fn enter(&self, agent: &AgentId) -> Present {
        let serial = self.shared.serial.fetch_add(1, Ordering::Relaxed);
        let replaced = CancellationToken::new();
        let connection = Attached {
            serial,
            replaced: replaced.clone(),
            ahead_ms: 0,
        };
        if let Some(older) = lock(&self.shared.connections).insert(agent.clone(), connection) {
            older.replaced.cancel();
        }
        Present {
            presence: self.clone(),
            agent: agent.clone(),
            serial,
            replaced,
        }
    }

    /// Returns how many agents are connected to this process.
    pub(crate) fn connected(&self) -> usize {
        lock(&self.shared.connections).len()
    }

    /// Returns the connected agents whose host's clock differs from ours, with its lead in milliseconds. At most `most` are
    /// returned, the largest differences first.
    pub(crate) fn clocks_apart(&self, most: usize) -> Vec<(AgentId, i64)> {
        let is_apart = |connection: &Attached| {
            u128::from(connection.ahead_ms.unsigned_abs()) > CLOCK_SKEW.as_millis()
        };
        let mut apart: Vec<_> = lock(&self.shared.connections)
            .iter()
            .filter(|(_, connection)| is_apart(connection))
            .map(|(agent, connection)| (agent.clone(), connection.ahead_ms))
            .collect();
        apart.sort_by(|(a, ahead), (b, other)| {
            (other.unsigned_abs(), a).cmp(&(ahead.unsigned_abs(), b))
        });
        apart.truncate(most);
        apart
    }

    /// Returns how many agents of the fleet were online at the last count; `None` if they could not be counted.
    pub(crate) fn agents_online(&self) -> Option<usize> {
        *lock(&self.shared.agents_online)
    }

    /// Records how many agents of the fleet are online.
    pub(crate) fn counted(&self, agents_online: Option<usize>) {
        *lock(&self.shared.agents_online) = agents_online;
    }

    /// Returns how many listeners there are.
    pub(crate) fn listening(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Starts to listen for news of a subject. Listen before reading the store, so that no news is lost in between.
    pub(crate) fn listen(&self, subject: Subject) -> Listener {
        let ear = Arc::<Ear>::default();
        lock(&self.shared.listeners)
            .entry(subject.clone())
            .or_default()
            .push(Arc::clone(&ear));
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        Listener {
            presence: self.clone(),
            subject,
            ear,
        }
    }

    /// Registers a terminal in which `human` reads along.
    pub(crate) fn read_along(&self) -> ReadingAlong {
        self.shared.reading_along.fetch_add(1, Ordering::Relaxed);
        ReadingAlong {
            presence: self.clone(),
        }
    }

    /// Wakes all listeners of the subject.
    pub(crate) fn wake(&self, subject: &Subject, news: &[Arc<Arrival>]) {
        if let Some(ears) = lock(&self.shared.listeners).get(subject) {
            ears.iter().for_each(|ear| ear.hear(news));
        }
    }

    /// Wakes all listeners.
    pub(crate) fn wake_everyone(&self) {
        lock(&self.shared.listeners)
            .values()
            .flatten()
            .for_each(|ear| ear.hear(&[]));
    }
}

/// The registration of a connection; removed when dropped, unless another connection replaced it.
#[derive(Debug)]
pub(crate) struct Present {
    presence: Presence,
    agent: AgentId,
    serial: u64,
    replaced: CancellationToken,
}

impl Present {
    /// Waits until another connection has replaced this one.
    pub(crate) fn replaced(&self) -> impl Future<Output = ()> + use<> {
        self.replaced.clone().cancelled_owned()
    }

    /// Records how many milliseconds the clock of the connection's host is ahead of ours.
    pub(crate) fn clock_is(&self, ahead_ms: i64) {
        if let Some(connection) = lock(&self.presence.shared.connections).get_mut(&self.agent)
            && connection.serial == self.serial
        {
            connection.ahead_ms = ahead_ms;
        }
    }

    /// Returns whether no other connection has replaced this one.
    pub(crate) fn is_current(&self) -> bool {
        !self.replaced.is_cancelled()
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) =
            lock(&self.presence.shared.connections).entry(self.agent.clone())
            && entry.get().serial == self.serial
        {
            entry.remove();
        }
    }
}

/// The registration of a terminal in which `human` reads along; removed when dropped.
#[derive(Debug)]
pub(crate) struct ReadingAlong {
    presence: Presence,
}

impl ReadingAlong {
    /// Removes the registration. Returns whether `human` reads along in no other terminal at this process.
    pub(crate) fn end(self) -> bool {
        let presence = self.presence.clone();
        drop(self);
        presence.shared.reading_along.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ReadingAlong {
    fn drop(&mut self) {
        self.presence
            .shared
            .reading_along
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listener for news of a subject.
#[derive(Debug)]
pub(crate) struct Listener {
    presence: Presence,
    subject: Subject,
    ear: Arc<Ear>,
}

impl Listener {
    /// Waits for news since the start or since the last call. Cancel-safe.
    pub(crate) async fn news(&mut self) -> News {
        loop {
            if let Some(news) = lock(&self.ear.heard).take() {
                return news;
            }
            // News that arrives after the check above leaves a stored permit, so it is not missed.
            self.ear.rung.notified().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.presence.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Entry::Occupied(mut entry) =
            lock(&self.presence.shared.listeners).entry(self.subject.clone())
        {
            entry.get_mut().retain(|ear| !Arc::ptr_eq(ear, &self.ear));
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(5);

    fn agent(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    fn inbox(name: &str) -> Subject {
        Subject::Inbox(agent(name))
    }

    /// Returns a message with a title of about 4 KB.
    fn long(position: u64) -> News {
        let mut arrivals = arrival(position);
        let arrival = Arc::get_mut(&mut arrivals[0]).expect("the only one");
        arrival.message.title = Some("x".repeat(4_000));
        arrivals
    }

    fn arrival(position: u64) -> News {
        let message = serde_json::json!({
            "id": format!("b::a::{position:08x}"), "thread_id": "b::a::00000001", "kind": "message", "from_agent": "b",
            "to_agent": "a", "message": "hello", "priority": "normal", "requires_response": true,
            "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        });
        let message = serde_json::from_value(message).expect("an envelope");
        vec![Arc::new(Arrival::sole(position, message))]
    }

    #[tokio::test]
    async fn a_listener_gets_every_arrival_or_a_hint_to_read_the_store() {
        let presence = Presence::default();
        let mut listener = presence.listen(inbox("a"));
        let count = async |listener: &mut Listener| listener.news().await.len();
        (1..=3).for_each(|position| presence.wake(&inbox("a"), &arrival(position)));
        assert_eq!(count(&mut listener).await, 3);
        presence.wake(&inbox("a"), &arrival(4));
        presence.wake(&inbox("a"), &[]);
        presence.wake(&inbox("a"), &arrival(6));
        assert_eq!(count(&mut listener).await, 0, "one of them is not known");
        (0..17).for_each(|position| presence.wake(&inbox("a"), &arrival(position)));
        assert_eq!(count(&mut listener).await, 0, "it fell behind");
        presence.wake(&inbox("a"), &arrival(7));
        assert_eq!(count(&mut listener).await, 1);
        for few in [true, false] {
            let titled = if few { 2 } else { 3 };
            (0..titled).for_each(|at| presence.wake(&inbox("a"), &long(at)));
            let found = count(&mut listener).await;
            assert_eq!(found, if few { 2 } else { 0 }, "long titles");
        }
    }

    #[tokio::test]
    async fn news_between_listening_and_waiting_is_not_lost() {
        let presence = Presence::default();
        let mut listener = presence.listen(inbox("a"));
        presence.wake(&inbox("a"), &[]);
        timeout(SOON, listener.news())
            .await
            .expect("was woken before it waited");
    }

    #[tokio::test(start_paused = true)]
    async fn news_for_another_agent_does_not_wake_a_listener() {
        let presence = Presence::default();
        let mut listener = presence.listen(inbox("a"));
        presence.wake(&inbox("b"), &[]);
        assert!(timeout(SOON, listener.news()).await.is_err());
        presence.wake_everyone();
        timeout(SOON, listener.news())
            .await
            .expect("everyone is woken");
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_a_message_is_no_news_of_others_or_of_the_inbox() {
        let presence = Presence::default();
        let message = |number: u32| {
            let id = format!("a::b::{number:08x}");
            Subject::Message(id.parse().expect("an id"))
        };
        let mut listener = presence.listen(message(1));
        presence.wake(&message(2), &[]);
        presence.wake(&inbox("a"), &[]);
        assert!(timeout(SOON, listener.news()).await.is_err());
        presence.wake(&message(1), &[]);
        assert_eq!(timeout(SOON, listener.news()).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_newer_connection_replaces_the_older_and_stays() {
        let presence = Presence::default();
        let older = presence.enter(&agent("a"));
        let newer = presence.enter(&agent("a"));
        timeout(SOON, older.replaced()).await.expect("was told");
        drop(older);
        assert_eq!((presence.connected(), newer.is_current()), (1, true));
        drop(newer);
        assert_eq!(presence.connected(), 0);
    }

    #[test]
    fn clocks_that_are_apart_are_known_for_as_long_as_their_connection() {
        let presence = Presence::default();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| presence.enter(&agent(name)));
        let apart = || {
            presence
                .clocks_apart(2)
                .into_iter()
                .map(|(agent, ahead)| (agent.to_string(), ahead))
        };
        a.clock_is(-6_000);
        b.clock_is(5_000);
        c.clock_is(3_600_000);
        d.clock_is(-3_600_000);
        assert!(
            apart().eq([("c".to_owned(), 3_600_000), ("d".to_owned(), -3_600_000)]),
            "{:?}",
            apart()
        );
        c.clock_is(-5_000);
        let newer = presence.enter(&agent("d"));
        d.clock_is(-3_600_000);
        assert!(apart().eq([("a".to_owned(), -6_000)]), "{:?}", apart());
        drop((a, newer));
        assert_eq!(apart().count(), 0);
    }

    #[test]
    fn a_listener_that_left_leaves_no_entry() {
        let presence = Presence::default();
        let listeners = [presence.listen(inbox("a")), presence.listen(inbox("a"))];
        assert_eq!(presence.listening(), 2);
        drop(listeners);
        assert_eq!(
            (presence.listening(), lock(&presence.shared.listeners).len()),
            (0, 0)
        );
    }
}
