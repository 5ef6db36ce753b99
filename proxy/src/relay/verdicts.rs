//! Verdicts that arrive on this host: for a hook that waits, and never for the model.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::wire::Deliver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::link::Deliveries;

/// How many verdicts are kept for questions whose id is not known yet.
const EARLY_MAX: usize = 100;

/// The questions that wait for a verdict, and the verdicts that nothing waits for.
#[derive(Debug, Default)]
pub struct Verdicts {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<MessageId, oneshot::Sender<Message>>,
    early: VecDeque<(Instant, Message)>,
}

impl Verdicts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the receiver of the verdict on a question.
    pub(super) fn expect(&self, question: &MessageId) -> oneshot::Receiver<Message> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        let is_of_it =
            |(_, verdict): &(Instant, Message)| verdict.reply_to.as_ref() == Some(question);
        let early = table.early.iter().position(is_of_it);
        match early.and_then(|at| table.early.remove(at)) {
            // The receiver is in this function.
            Some((_, verdict)) => drop(sender.send(verdict)),
            None => drop(table.waiting.insert(question.clone(), sender)),
        }
        receiver
    }

    /// Removes the verdicts that nothing has waited for in that time. Returns their ids.
    pub(super) fn take_unclaimed(&self, age: Duration) -> Vec<MessageId> {
        let mut table = self.table();
        table.waiting.retain(|_, sender| !sender.is_closed());
        let late = table.early.iter().take_while(|(at, _)| at.elapsed() >= age);
        let count = late.count();
        table
            .early
            .drain(..count)
            .map(|(_, verdict)| verdict.id)
            .collect()
    }

    fn arrived(&self, verdict: Message) {
        let mut table = self.table();
        let sender = verdict
            .reply_to
            .as_ref()
            .and_then(|question| table.waiting.remove(question));
        let unclaimed = match sender {
            Some(sender) => sender.send(verdict).err(),
            None => Some(verdict),
        };
        if let Some(verdict) = unclaimed {
            table.early.push_back((Instant::now(), verdict));
            let excess = table.early.len().saturating_sub(EARLY_MAX);
            table.early.drain(..excess);
        }
    }
}

/// The link's side of a session: verdicts go to the hooks that wait for them, all other messages to the last hop.
pub struct Incoming {
    verdicts: Arc<Verdicts>,
    others: Arc<dyn Deliveries>,
}

impl Incoming {
    /// Makes the receiver of a session's deliveries.
    pub fn new(verdicts: Arc<Verdicts>, others: Arc<dyn Deliveries>) -> Self {
        Self { verdicts, others }
    }
}

impl Deliveries for Incoming {
    fn arrived(&self, mut deliver: Deliver) {
        let is_verdict = |message: &Message| message.verdict().is_some();
        let verdicts = deliver
            .messages
            .extract_if(.., |arriving| is_verdict(&arriving.message));
        for verdict in verdicts {
            self.verdicts.arrived(verdict.message);
        }
        if !deliver.messages.is_empty() {
            self.others.arrived(deliver);
        }
    }

    fn position(&self, agent: &AgentId) -> Option<u64> {
        self.others.position(agent)
    }

    fn begins(&self, agent: &AgentId, generation: u64) {
        self.others.begins(agent, generation);
    }
}
