//! The state of the link, for `ping`, `c3po status` and the decisions of calls.

use c3po_shared::ids::AgentId;
use c3po_shared::question::Waiting;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::wire::Welcome;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::rules;
use crate::config::as_written;

/// The states of a link, named as users read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not begun, or ended.
    Disconnected,
    /// First attempts.
    Connecting,
    /// Connected.
    Connected,
    /// Lost, and dialled again.
    Reconnecting,
    /// Refused because of credentials, version or configuration. It is retried every minute, and immediately if the
    /// configuration changes.
    Failed,
}

impl State {
    /// Returns the name that users read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Failed => "failed",
        }
    }
}

/// The numbers that a coordinator reported, and when.
#[derive(Debug, Clone, Copy)]
pub struct WaitingAt {
    pub(super) waiting: Waiting,
    pub(super) at: Instant,
}

impl WaitingAt {
    /// Returns the numbers, with the present age of the oldest question.
    pub fn now(self) -> Waiting {
        let passed = self.at.elapsed().as_secs();
        Waiting {
            oldest_seconds: self.waiting.oldest_seconds.map(|age| age + passed),
            ..self.waiting
        }
    }
}

/// The status of the link at a moment.
#[derive(Debug, Clone)]
pub struct LinkStatus {
    /// The state.
    pub state: State,
    /// When the link went down; `None` while it is up or not begun.
    pub down_since: Option<Instant>,
    /// The same as wall-clock time.
    pub down_since_clock: Option<Timestamp>,
    /// The coordinator that is dialled, as people write it.
    pub coordinator: String,
    /// Why the last attempt or connection ended.
    pub last_error: Option<String>,
    /// The same as a refusal for callers.
    pub trouble: Option<Refusal>,
    /// Our own name: the canonical one after `hello`, the wished one before.
    pub agent: AgentId,
    /// The coordinator's reply to the last `hello`.
    pub welcome: Option<Welcome>,
    /// How many agents are online, by the last reply to a heartbeat.
    pub agents_online: Option<usize>,
    /// Whether the client shows a status line.
    pub has_status_line: bool,
    /// The questions that wait for people, if this host may know them.
    pub questions: Option<WaitingAt>,
    /// How many rounds over all coordinators failed since the last success.
    pub failed_rounds: u32,
    /// Why there is no link until its cause is corrected.
    pub refusal: Option<Refusal>,
}

impl LinkStatus {
    pub(super) fn new(agent: AgentId, target: &str) -> Self {
        Self {
            state: State::Disconnected,
            down_since: None,
            down_since_clock: None,
            coordinator: as_written(target),
            last_error: None,
            trouble: None,
            agent,
            welcome: None,
            agents_online: None,
            has_status_line: false,
            questions: None,
            failed_rounds: 0,
            refusal: None,
        }
    }

    /// Records that the session is real and that the first attempt follows.
    pub(super) fn begins(&mut self) {
        if self.state == State::Disconnected {
            self.state = State::Connecting;
            self.down_since = Some(Instant::now());
            self.down_since_clock = Some(Timestamp::now());
        }
    }

    pub(super) fn attempt_failed(&mut self, why: String, refusal: Refusal) {
        if let Some(coordinator) = refusal
            .details
            .get("coordinator")
            .and_then(|url| url.as_str())
        {
            self.coordinator = coordinator.to_owned();
        }
        self.last_error = Some(why);
        self.trouble = Some(refusal);
    }

    /// Records that one coordinator refused us while another could not be reached.
    pub(super) fn another_refused(&mut self, refusal: &Refusal) {
        let error = self.last_error.take().unwrap_or_default();
        self.last_error = Some(format!("{error}; and {}", refusal.error));
        if let Some(trouble) = &mut self.trouble {
            trouble.error = format!("{}; and {}", trouble.error, refusal.error);
        }
    }

    /// Records that no coordinator could be reached in a round.
    pub(super) fn round_failed(&mut self) {
        self.failed_rounds += 1;
        if self.refusal.take().is_some() {
            self.state = if self.welcome.is_some() {
                State::Reconnecting
            } else {
                State::Connecting
            };
            self.down_since = Some(Instant::now());
            self.down_since_clock = Some(Timestamp::now());
        }
    }

    pub(super) fn is_up(&mut self, target: &str, welcome: Welcome) {
        self.state = State::Connected;
        self.down_since = None;
        self.down_since_clock = None;
        self.coordinator = as_written(target);
        self.last_error = None;
        self.trouble = None;
        self.refusal = None;
        self.failed_rounds = 0;
        self.agent = welcome.agent_id.clone();
        self.welcome = Some(welcome);
    }

    /// Returns the name to wish for that agent. The agent's name may have a number, which no session wishes. It is
    /// the same agent even if the host has another key by then.
    pub(super) fn wished_for(&self, agent: &AgentId) -> AgentId {
        let welcome = self
            .welcome
            .as_ref()
            .filter(|welcome| welcome.agent_id == *agent);
        welcome
            .and_then(|welcome| welcome.wished.clone())
            .unwrap_or_else(|| agent.clone())
    }

    pub(super) fn is_lost(&mut self, error: String) {
        self.state = State::Reconnecting;
        self.agents_online = None;
        self.questions = None;
        self.down_since = Some(Instant::now());
        self.down_since_clock = Some(Timestamp::now());
        self.last_error = Some(error);
        self.trouble = None;
    }

    pub(super) fn is_refused(&mut self, refusal: Refusal) {
        self.state = State::Failed;
        self.agents_online = None;
        self.questions = None;
        self.last_error = Some(refusal.error.clone());
        self.refusal = Some(refusal);
    }

    pub(super) fn has_ended(&mut self) {
        self.state = State::Disconnected;
    }

    /// Returns why a call fails immediately: the link is refused, or has been down for too long.
    pub(super) fn refused_at_once(&self, now: Instant) -> Option<Refusal> {
        if let Some(refusal) = &self.refusal {
            return Some(refusal.clone());
        }
        let gives_up = rules::gives_up_at(self.down_since, false, None)?;
        (gives_up <= now).then(|| self.down(false))
    }

    /// Returns the refusal of a call without a link. A call that was never written was not applied.
    pub(crate) fn down(&self, written: bool) -> Refusal {
        let why = self.last_error.as_deref().unwrap_or("no answer yet");
        let unknown = || {
            Refusal::new(
                ErrorCode::CoordDown,
                format!("no coordinator at {}: {why}", self.coordinator),
            )
        };
        // A written call may have been applied before the coordinator lost its store. Other refusals do not concern this call.
        let fits = |trouble: &&Refusal| match trouble.code {
            ErrorCode::CoordDown => true,
            ErrorCode::StoreUnavailable => !written,
            _ => false,
        };
        let trouble = self.trouble.as_ref().filter(fits).cloned();
        let mut refusal = trouble
            .unwrap_or_else(unknown)
            .detail("coordinator", self.coordinator.as_str())
            .detail("link", self.state.as_str())
            .detail("applied", rules::applied(written));
        if let Some(since) = self.down_since_clock {
            refusal = refusal.detail("since", since.to_string());
        }
        match &self.last_error {
            Some(error) => refusal.detail("last_error", error.as_str()),
            None => refusal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_fails_with_the_error_of_the_store_only_if_it_was_never_written() {
        let mut status = LinkStatus::new("web".parse().unwrap(), "ws://nas:8420/acp");
        let told = |status: &LinkStatus, written| {
            let refusal = status.down(written);
            (
                refusal.code,
                refusal.details["applied"].clone(),
                refusal.error.contains("nothing was done"),
            )
        };
        let away = Refusal::new(
            ErrorCode::StoreUnavailable,
            "the store is away; nothing was done",
        );
        status.attempt_failed("the store is away".to_owned(), away);
        assert_eq!(
            told(&status, false),
            (ErrorCode::StoreUnavailable, "no".into(), true)
        );
        assert_eq!(
            told(&status, true),
            (ErrorCode::CoordDown, "unknown".into(), false)
        );
        status.attempt_failed("busy".to_owned(), Refusal::rate_limited(3, 2, 1));
        assert_eq!(
            told(&status, false),
            (ErrorCode::CoordDown, "no".into(), false)
        );
    }

    #[test]
    fn the_words_of_users_are_those_between_processes() {
        let all = [
            State::Disconnected,
            State::Connecting,
            State::Connected,
            State::Reconnecting,
            State::Failed,
        ];
        for state in all {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
