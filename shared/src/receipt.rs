//! How far a message got, with the evidence. No stage is recorded before its evidence, and none is guessed.

use serde::{Deserialize, Serialize};

use crate::ids::MessageId;
use crate::limits::{CONTEXT_MAX, IDS_MAX};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::vocabulary::words;

words! {
    /// How far a message got. The first six are successes in order; the last three are ends that are not.
    Stage {
        /// On the sender's disk, waiting for the link (said by the proxy only).
        QueuedOnHost = "queued_on_host",
        /// The coordinator has it durably: the store has committed.
        Stored = "stored",
        /// The recipient's proxy has it: it answered `deliver`.
        OnHost = "on_host",
        /// It was put into the session's context: a tool's result was written, a hook's output was flushed, or the turn
        /// that a push started was seen by a hook.
        InSession = "in_session",
        /// The model went on after that: a later hook event or tool call of the same session.
        Seen = "seen",
        /// A reply exists.
        Answered = "answered",
        /// It left the inbox when its life was over, or with the one-shot session that asked it or was sent it.
        Expired = "expired",
        /// A policy or the recipient's client refused it.
        Refused = "refused",
        /// The recipient's client holds it for a person's approval.
        Held = "held",
    }
}

impl Stage {
    /// Returns whether nothing further can happen to a message at this stage.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Answered | Self::Expired | Self::Refused)
    }

    /// Returns whether a message at this stage has got as far as `wanted`.
    pub fn reaches(self, wanted: Self) -> bool {
        match self {
            Self::Expired | Self::Refused | Self::Held => self == wanted,
            _ => self >= wanted && wanted <= Self::Answered,
        }
    }
}

words! {
    /// By which way a message moved on: the evidence for a stage.
    Via {
        /// The proxy answered `deliver`.
        Deliver = "deliver",
        /// The result of a wait.
        WaitForMessage = "wait_for_message",
        /// A page of the inbox.
        GetMessages = "get_messages",
        /// A thread that was read.
        GetThread = "get_thread",
        /// A later tool call of the same session.
        ToolCall = "tool_call",
        /// The context that a hook added to a prompt.
        UserPromptSubmit = "user_prompt_submit",
        /// The context that a hook added between two steps of a turn.
        PostToolBatch = "post_tool_batch",
        /// The reason by which a hook kept a turn from ending.
        Stop = "stop",
        /// A post to the session's own inbox socket, confirmed by the turn that it started.
        InboxSocket = "inbox_socket",
        /// A hook that waited beside the idle session and woke it, confirmed by the turn that it started.
        AsyncRewake = "async_rewake",
        /// A channel notification, confirmed by the turn that it started.
        Channel = "channel",
        /// A later hook event of the same session.
        Hook = "hook",
        /// The client's transcript, in which the conversation holds it.
        Transcript = "transcript",
        /// The answer itself.
        Reply = "reply",
        /// Printed on a person's terminal.
        Terminal = "terminal",
    }
}

/// Messages of one recipient that got further, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Which.
    pub message_ids: Vec<MessageId>,
    /// How far: `on_host`, `in_session` or `seen`.
    pub stage: Stage,
    /// By what evidence.
    pub via: Via,
    /// With `in_session`: the evidence by which they are `seen` too, if it came at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_via: Option<Via>,
    /// The context of the session that they reached, also if this is sent again in a later one.
    #[serde(default, skip_serializing_if = "is_first")]
    pub context: u64,
}

impl Progress {
    /// Returns the stages that were reached, in order, each with its evidence.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, Via)> {
        let seen = self.seen_via.map(|via| (Stage::Seen, via));
        std::iter::once((self.stage, self.via)).chain(seen)
    }

    /// Returns an error for what a host may not report: too many messages, or a stage that it cannot vouch for.
    pub fn check_reported(&self) -> Result<(), Refusal> {
        let count = self.message_ids.len();
        if count > IDS_MAX {
            let error = format!("a receipt for {count} messages; at most {IDS_MAX} are allowed");
            return Err(Refusal::invalid(error).detail("count", count).detail("limit", IDS_MAX));
        }
        if self.context > CONTEXT_MAX {
            return Err(Refusal::invalid(format!("context {} is beyond {CONTEXT_MAX}", self.context)));
        }
        match (self.stage, self.seen_via) {
            (Stage::InSession, _) | (Stage::Seen, None) => Ok(()),
            (Stage::Seen, Some(_)) => Err(Refusal::invalid("seen_via belongs to in_session")),
            (stage, _) => Err(Refusal::invalid(format!("a host cannot say that a message is {stage}"))),
        }
    }
}

/// Returns whether a context is the session's first.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
pub(crate) fn is_first(context: &u64) -> bool {
    *context == 0
}

/// One line of a message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The stage that was reached.
    pub stage: Stage,
    /// When the coordinator recorded it.
    pub at: Timestamp,
    /// The evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// The session that it reached: the agent's generation, and behind a dot the session's context where that is
    /// not its first, such as `3.1` after one `/clear`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For `answered`: the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<MessageId>,
}

/// Returns the stage that a history amounts to: how it ended where it ended without success, else the furthest.
pub fn furthest(history: &[Step]) -> Stage {
    match history.last().map(|step| step.stage) {
        Some(end @ (Stage::Expired | Stage::Refused | Stage::Held)) => end,
        _ => reached(history),
    }
}

/// Returns the furthest stage that was a success, whatever came after it. Evidence beyond it counts also where it comes
/// after the message expired: the session had been given the message before.
pub fn reached(history: &[Step]) -> Stage {
    let successes = history.iter().map(|step| step.stage).filter(|stage| *stage <= Stage::Answered);
    successes.max().unwrap_or(Stage::Stored)
}

/// The stage that a send had reached when it returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// How far the message got.
    pub stage: Stage,
    /// When that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_reach_what_came_before_them() {
        assert!(Stage::Seen.reaches(Stage::Stored) && Stage::Seen.reaches(Stage::Seen));
        assert!(!Stage::OnHost.reaches(Stage::InSession));
        assert!(Stage::Answered.reaches(Stage::Seen));
    }

    #[test]
    fn an_end_without_success_reaches_only_itself() {
        for end in [Stage::Expired, Stage::Refused, Stage::Held] {
            assert!(end.reaches(end) && !end.reaches(Stage::Stored) && !Stage::Answered.reaches(end));
        }
    }
}
