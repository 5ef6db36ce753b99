//! One session of an agent: its proxy, its record of events, and whether it is alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use c3po_shared::time::Timestamp;
use serde_json::Value;

use crate::checker::{self, Event, Key, Shown};
use crate::mcp::McpClient;

/// After this time an answer counts as missing: a proxy gives up a call after 30 s without a link.
const ANSWER: Duration = Duration::from_secs(90);

/// All events, in order.
#[derive(Debug, Default)]
pub(super) struct Record {
    events: Mutex<Vec<Event>>,
    sessions: Mutex<usize>,
}

impl Record {
    pub(super) fn add(&self, event: Event) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn next_session(&self) -> checker::Session {
        let mut last = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        *last
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// The tool's reply.
    Reply(Value),
    /// The tool refused.
    Refused(Value),
    /// The proxy is gone, and the outcome is unknown.
    Gone,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: checker::Session,
    /// The agent name that it asks for.
    pub(super) name: String,
    client: McpClient,
    dead: AtomicBool,
    record: Arc<Record>,
}

impl Session {
    /// Creates a session whose proxy was started at `at`.
    pub(super) fn new(name: &str, client: McpClient, at: Timestamp, record: Arc<Record>) -> Self {
        let number = record.next_session();
        record.add(Event::Began {
            session: number,
            at,
        });
        Self {
            number,
            name: name.to_owned(),
            client,
            dead: AtomicBool::new(false),
            record,
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Kills the proxy. Its earlier output is still read.
    pub(super) async fn kill(&self) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.record.add(Event::Killed {
                session: self.number,
            });
            // It may already have ended.
            let _ = self.client.signal("KILL").await;
        }
    }

    /// Ends the session as its client does.
    pub(super) async fn end(&self) {
        self.client.close_input().await;
        // If it is still running after that, it is killed when dropped.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.client.output_ends()).await;
        self.dead.store(true, Ordering::Relaxed);
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        // Others only ask about a message.
        if matches!(tool, "reply" | "ack_messages") {
            self.names(&arguments);
        }
        match self.answer(tool, arguments).await {
            Ok(answer) => answer,
            Err(error) => {
                if !self.client.has_ended() && !self.is_dead() {
                    let what = format!("{tool}: {error:#}");
                    self.record.add(Event::Hung {
                        session: self.number,
                        what,
                    });
                    self.kill().await;
                }
                Answer::Gone
            }
        }
    }

    /// Records the messages that a call answers or acknowledges.
    fn names(&self, arguments: &Value) {
        let acknowledged = arguments["message_ids"].as_array().into_iter().flatten();
        let ids = acknowledged.chain([&arguments["message_id"]]);
        for id in ids.filter_map(Value::as_str) {
            self.record.add(Event::Named {
                session: self.number,
                id: id.to_owned(),
            });
        }
    }

    async fn answer(&self, tool: &str, arguments: Value) -> Result<Answer> {
        let id = self.client.begin_call(tool, arguments).await?;
        let result = self.client.call_result(id, ANSWER).await?;
        let said = result.json()?;
        Ok(if result.is_error {
            Answer::Refused(said)
        } else {
            Answer::Reply(said)
        })
    }

    /// Records a message that a wait returned.
    pub(super) fn shown(&self, message: &Value) {
        if let Some((id, key)) = read(message) {
            let repeated = message["repeated"] == true;
            self.record.add(Event::Shown {
                session: self.number,
                shown: Shown { id, key, repeated },
            });
        }
    }
}

/// Returns the id of a message, and the key at the start of its text.
pub(super) fn read(message: &Value) -> Option<(String, Key)> {
    let text = message["message"]
        .as_str()
        .or(message["response"].as_str())?;
    Some((message["id"].as_str()?.to_owned(), Key::read(text)?))
}
