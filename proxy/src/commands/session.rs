//! A command's own connection to the coordinator.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::catalogue::{Call, Received};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage, Via};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::words;
use crate::config::Config;
use crate::deliver::PersonInbox;
use crate::link::{self, Link, LinkStatus, State};

/// How long a command tries to reach a coordinator: longer than one attempt, which reports why it failed.
const CONNECT_MAX: Duration = Duration::from_secs(7);
/// How long a command waits at its end for the answers to its receipts.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// How long sending queued calls of this host may take; the rest is sent by the next command, or by a session.
const KEPT_MAX: Duration = Duration::from_secs(10);
/// How long `goodbye` may take.
const GOODBYE_MAX: Duration = Duration::from_millis(100);

/// A command's connection.
pub(super) struct CommandSession {
    link: Link,
    pub(super) inbox: Arc<PersonInbox>,
}

impl CommandSession {
    /// Connects, does the work, and sends a goodbye.
    pub(super) async fn with<T>(
        config: Config,
        follows: bool,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(config, follows, async |session, wished| {
            session.connected().await?;
            session.tell_name(wished);
            work(session).await
        })
        .await
    }

    /// Does the work even if no coordinator can be reached.
    pub(super) async fn even_without<T>(
        config: Config,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(config, false, async |session, wished| {
            match session.connected().await {
                Ok(()) => session.tell_name(wished),
                Err(Failure::NoCoordinator(_)) => {}
                Err(failure) => return Err(failure),
            }
            work(session).await
        })
        .await
    }

    /// Sends the queued calls of this host, before anything else.
    pub(super) async fn send_kept(&self) {
        if self.status().state == State::Connected {
            // Unsent calls stay on the disk.
            let _ = tokio::time::timeout(KEPT_MAX, self.link.send_own_kept()).await;
        }
    }

    async fn run<T>(
        config: Config,
        follows: bool,
        work: impl AsyncFnOnce(&Self, &AgentId) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (inbox, wished) = (Arc::new(PersonInbox::default()), config.agent.clone());
        let link = Link::of_person(config, inbox.clone(), follows);
        let session = Self {
            link: link.clone(),
            inbox,
        };
        let stop = CancellationToken::new();
        let mut driver = std::pin::pin!(link::run(link, stop.clone()));
        let working = async {
            let outcome = work(&session, &wished).await;
            // Printed messages count as shown, whatever happened afterwards.
            let _ = tokio::time::timeout(SETTLE_MAX, session.link.receipts_settled()).await;
            outcome
        };
        let outcome = tokio::select! {
            outcome = working => outcome,
            () = &mut driver => Err(Failure::Usage("the link ended by itself".to_owned())),
        };
        stop.cancel();
        // The coordinator notices a missing goodbye.
        let _ = tokio::time::timeout(GOODBYE_MAX, driver).await;
        outcome
    }

    /// Waits for the link until it is up, refused, or failed at every coordinator.
    async fn connected(&self) -> Result<(), Failure> {
        let mut status = self.link.status();
        let settled = status.wait_for(|now| {
            now.state == State::Connected || now.refusal.is_some() || now.failed_rounds > 0
        });
        match tokio::time::timeout(CONNECT_MAX, settled).await {
            Ok(Ok(now)) if now.state == State::Connected => return Ok(()),
            Ok(Ok(now)) if now.refusal.is_some() => {
                return Err(now.refusal.clone().map_or(Failure::TimedOut, Failure::from));
            }
            _ => {}
        }
        Err(self.status().down(false).into())
    }

    /// Reports that this person has another name at the coordinator, and so another inbox.
    fn tell_name(&self, wished: &AgentId) {
        let agent = self.status().agent;
        if agent != *wished {
            eprintln!("{}", words::other_name(&agent, wished));
        }
    }

    /// Returns the status of the link.
    pub(super) fn status(&self) -> LinkStatus {
        self.link.status().borrow().clone()
    }

    /// Returns a receiver of the changes of the link.
    pub(super) fn changes(&self) -> tokio::sync::watch::Receiver<LinkStatus> {
        self.link.status()
    }

    /// Calls a tool; returns its parsed reply and the original.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(T, Received), Failure> {
        let reply = self.call_raw(call).await?;
        Ok((reply.read()?, reply))
    }

    /// Calls a tool; returns its reply unparsed.
    pub(super) async fn call_raw(&self, call: Call) -> Result<Received, Failure> {
        call.check()?;
        Ok(self.link.call(call).await?)
    }

    /// Reports that messages were printed.
    pub(super) fn shown(&self, ids: Vec<MessageId>) {
        if !ids.is_empty() {
            let (stage, via) = (Stage::InSession, Via::Terminal);
            self.link.receipt(Progress {
                message_ids: ids,
                stage,
                via,
                seen_via: None,
                context: 0,
            });
        }
    }
}
