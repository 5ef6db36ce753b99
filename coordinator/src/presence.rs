//! Who is connected to this process, and who in it waits for news of which agent. Memory only; the store is the truth.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c3po_shared::ids::AgentId;
use c3po_shared::message::Message;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The connections and listeners of this process. A cheap clone of one shared registry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    connections: Mutex<HashMap<AgentId, Connection>>,
    listeners: Mutex<HashMap<AgentId, Bell>>,
    serial: AtomicU64,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Connection {
    serial: u64,
    replaced: CancellationToken,
}

/// What a listener hears of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// Something may have come into the inbox, and receipts may have changed. With the message, where it is the only
    /// one that the agent's session was not shown.
    Inbox(Option<Arc<Message>>),
    /// Only the receipts of what the agent sent may have changed.
    Receipt,
}

/// Rung for every change; kept as long as somebody listens.
#[derive(Debug)]
struct Bell {
    ring: watch::Sender<Rings>,
    listeners: usize,
}

/// How often a bell was rung for the inbox, and what came with the last ring.
#[derive(Debug, Default)]
struct Rings {
    inbox: u64,
    sole: Option<Arc<Message>>,
}

impl Rings {
    fn add(&mut self, news: News) {
        self.sole = None;
        if let News::Inbox(sole) = news {
            self.inbox += 1;
            self.sole = sole;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presence {
    /// Notes that this process now serves the agent's connection, and tells the one it replaces.
    pub(crate) fn enter(&self, agent: &AgentId) -> Present {
        let serial = self.shared.serial.fetch_add(1, Ordering::Relaxed);
        let replaced = CancellationToken::new();
        let connection = Connection { serial, replaced: replaced.clone() };
        if let Some(older) = lock(&self.shared.connections).insert(agent.clone(), connection) {
            older.replaced.cancel();
        }
        Present { presence: self.clone(), agent: agent.clone(), serial, replaced }
    }

    /// Returns how many agents are connected to this process.
    pub(crate) fn connected(&self) -> usize {
        lock(&self.shared.connections).len()
    }

    /// Returns how many listeners there are.
    pub(crate) fn listening(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Begins to listen for news of an agent. Listen first and read the store then: no news is lost between.
    pub(crate) fn listen(&self, agent: &AgentId) -> Listener {
        let mut listeners = lock(&self.shared.listeners);
        let bell =
            listeners.entry(agent.clone()).or_insert_with(|| Bell { ring: watch::Sender::default(), listeners: 0 });
        bell.listeners += 1;
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let rung = bell.ring.subscribe();
        let inbox = rung.borrow().inbox;
        Listener { presence: self.clone(), agent: agent.clone(), rung, inbox }
    }

    /// Wakes everybody who listens for news of the agent.
    pub(crate) fn wake(&self, agent: &AgentId, news: News) {
        if let Some(bell) = lock(&self.shared.listeners).get(agent) {
            bell.ring.send_modify(|rings| rings.add(news));
        }
    }

    /// Wakes everybody who listens for anything.
    pub(crate) fn wake_everyone(&self) {
        for bell in lock(&self.shared.listeners).values() {
            bell.ring.send_modify(|rings| rings.add(News::Inbox(None)));
        }
    }
}

/// A connection's place in the registry; leaves it when dropped, unless another took it.
#[derive(Debug)]
pub(crate) struct Present {
    presence: Presence,
    agent: AgentId,
    serial: u64,
    replaced: CancellationToken,
}

impl Present {
    /// Resolves when another connection has taken this place.
    pub(crate) async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// Returns whether no other connection has taken this place.
    pub(crate) fn is_current(&self) -> bool {
        !self.replaced.is_cancelled()
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) = lock(&self.presence.shared.connections).entry(self.agent.clone())
            && entry.get().serial == self.serial
        {
            entry.remove();
        }
    }
}

/// Somebody who waits for news of an agent.
#[derive(Debug)]
pub(crate) struct Listener {
    presence: Presence,
    agent: AgentId,
    rung: watch::Receiver<Rings>,
    inbox: u64,
}

impl Listener {
    /// Resolves when there was news since the listening began or since this resolved last. Cancel-safe.
    pub(crate) async fn news(&mut self) -> News {
        // The bell is kept while somebody listens, so its sender cannot be gone.
        if self.rung.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let rings = self.rung.borrow_and_update();
        let before = std::mem::replace(&mut self.inbox, rings.inbox);
        match rings.inbox - before {
            0 => News::Receipt,
            1 => News::Inbox(rings.sole.clone()),
            // Of several rings only the last one is known: what the others were for has to be read.
            _ => News::Inbox(None),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.presence.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Entry::Occupied(mut entry) = lock(&self.presence.shared.listeners).entry(self.agent.clone()) {
            entry.get_mut().listeners -= 1;
            if entry.get().listeners == 0 {
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

    #[tokio::test]
    async fn news_between_listening_and_waiting_is_not_lost() {
        let presence = Presence::default();
        let mut listener = presence.listen(&agent("a"));
        presence.wake(&agent("a"), News::Inbox(None));
        timeout(SOON, listener.news()).await.expect("was woken before it waited");
    }

    #[tokio::test(start_paused = true)]
    async fn others_news_wakes_nobody() {
        let presence = Presence::default();
        let mut listener = presence.listen(&agent("a"));
        presence.wake(&agent("b"), News::Inbox(None));
        assert!(timeout(SOON, listener.news()).await.is_err());
        presence.wake_everyone();
        timeout(SOON, listener.news()).await.expect("everyone is woken");
    }

    #[tokio::test]
    async fn news_of_receipts_is_told_from_news_of_the_inbox() {
        let presence = Presence::default();
        let mut listener = presence.listen(&agent("a"));
        for (rung, heard) in [
            (vec![News::Receipt], News::Receipt),
            (vec![News::Inbox(None)], News::Inbox(None)),
            (vec![News::Inbox(None), News::Receipt], News::Inbox(None)),
            (vec![News::Receipt, News::Receipt], News::Receipt),
        ] {
            rung.iter().for_each(|news| presence.wake(&agent("a"), news.clone()));
            assert_eq!(timeout(SOON, listener.news()).await.expect("was woken"), heard, "{rung:?}");
        }
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
    fn nothing_is_kept_for_those_who_left() {
        let presence = Presence::default();
        let listeners = [presence.listen(&agent("a")), presence.listen(&agent("a"))];
        assert_eq!(presence.listening(), 2);
        drop(listeners);
        assert_eq!((presence.listening(), lock(&presence.shared.listeners).len()), (0, 0));
    }
}
