//! The delivery stages of a message, with their evidence. A stage is recorded only after its evidence, and never guessed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::MessageId;
use crate::limits::{CONTEXT_MAX, IDS_MAX};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::vocabulary::words;

words! {
    /// The delivery stage of a message. Those up to `applied` are successes in order; the others are outcomes without success.
    Stage {
        /// On the sender's disk, waiting for the link. Only the proxy reports this stage.
        QueuedOnHost = "queued_on_host",
        /// The coordinator has stored it durably: the store has committed.
        Stored = "stored",
        /// The recipient's proxy has it, and has answered `deliver`.
        OnHost = "on_host",
        /// It was put into the session's context: a tool result was written, a hook's output was flushed, or a hook saw the
        /// turn that a push started.
        InSession = "in_session",
        /// The model continued after that, with a later hook event of the same session or a call that names it.
        Seen = "seen",
        /// A reply exists.
        Answered = "answered",
        /// The verdict of a person was given to the client that asked, and its dialog closed.
        Taken = "taken",
        /// The client acted on the verdict: the tool ran, or its result is the refusal.
        Applied = "applied",
        /// The question was decided at the terminal, or is not asked any more.
        Withdrawn = "withdrawn",
        /// It expired in the inbox, or was removed with the one-shot session that sent it or was to receive it.
        Expired = "expired",
        /// A policy or the recipient's client refused it.
        Refused = "refused",
        /// The recipient's client holds it until a person approves it.
        Held = "held",
    }
}

impl Stage {
    /// Returns whether no later stage can follow.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Answered
                | Self::Taken
                | Self::Applied
                | Self::Withdrawn
                | Self::Expired
                | Self::Refused
        )
    }

    /// Returns whether this stage is `wanted` or implies it.
    pub fn reaches(self, wanted: Self) -> bool {
        match self {
            Self::Withdrawn | Self::Expired | Self::Refused | Self::Held => self == wanted,
            _ => self >= wanted && wanted <= Self::Applied,
        }
    }
}

words! {
    /// The way by which a message moved on, which is the evidence for its stage.
    Via {
        /// The proxy answered `deliver`.
        Deliver = "deliver",
        /// The result of a wait.
        WaitForMessage = "wait_for_message",
        /// A page of the inbox.
        GetMessages = "get_messages",
        /// A thread that was read.
        GetThread = "get_thread",
        /// The result of a question to people.
        AskUser = "ask_user",
        /// A later tool call of the same session that answers or acknowledges it.
        ToolCall = "tool_call",
        /// The context that a hook added to a prompt.
        UserPromptSubmit = "user_prompt_submit",
        /// The context that a hook added between two steps of a turn.
        PostToolBatch = "post_tool_batch",
        /// The reason that a hook gave to keep a turn from ending.
        Stop = "stop",
        /// A post to the session's inbox socket, confirmed by the turn that it started.
        InboxSocket = "inbox_socket",
        /// A hook that waited beside the idle session and woke it, confirmed by the turn that it started.
        AsyncRewake = "async_rewake",
        /// A channel notification, confirmed by the turn that it started.
        Channel = "channel",
        /// A later hook event of the same session.
        Hook = "hook",
        /// The client's transcript, which contains the message.
        Transcript = "transcript",
        /// The answer itself.
        Reply = "reply",
        /// Output on a person's terminal, or a decision there.
        Terminal = "terminal",
        /// A page in a person's browser.
        Page = "page",
        /// A notification on a person's phone.
        Ntfy = "ntfy",
        /// A dialog of the client.
        Dialog = "dialog",
        /// A request to the REST interface.
        Rest = "rest",
        /// The end of the session, or of its wait.
        SessionEnd = "session_end",
        /// The end of the client's own time for a decision from elsewhere. Only its terminal can still decide.
        TimeOut = "time_out",
    }
}

/// Messages of one recipient that reached a stage, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The messages.
    pub message_ids: Vec<MessageId>,
    /// The stage: `on_host`, `in_session` or `seen`.
    pub stage: Stage,
    /// The evidence for the stage.
    pub via: Via,
    /// With `in_session`: the evidence that they are also `seen`, if both came at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_via: Option<Via>,
    /// The context of the session that the messages reached. It stays the same if this is sent again in a later context.
    #[serde(default, skip_serializing_if = "is_first")]
    pub context: u64,
}

impl Progress {
    /// Returns the stages that were reached, in order, each with its evidence.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, Via)> {
        let seen = self.seen_via.map(|via| (Stage::Seen, via));
        std::iter::once((self.stage, self.via)).chain(seen)
    }

    /// Returns an error if a host may not report this: too many messages, or a stage for which it cannot have evidence.
    pub fn check_reported(&self) -> Result<(), Refusal> {
        let count = self.message_ids.len();
        if count > IDS_MAX {
            let error = format!("a receipt for {count} messages; at most {IDS_MAX} are allowed");
            return Err(Refusal::invalid(error)
                .detail("count", count)
                .detail("limit", IDS_MAX));
        }
        if self.context > CONTEXT_MAX {
            return Err(Refusal::invalid(format!(
                "context {} is beyond {CONTEXT_MAX}",
                self.context
            )));
        }
        match (self.stage, self.seen_via) {
            (Stage::InSession, _) | (Stage::Seen, None) => Ok(()),
            (Stage::Seen, Some(_)) => Err(Refusal::invalid("seen_via belongs to in_session")),
            (stage, _) => Err(Refusal::invalid(format!(
                "a host cannot report the stage {stage}"
            ))),
        }
    }
}

/// Returns whether a context is the session's first.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the shape that serde asks for"
)]
pub(crate) fn is_first(context: &u64) -> bool {
    *context == 0
}

/// One entry of a message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The stage that was reached.
    pub stage: Stage,
    /// When the coordinator recorded it.
    pub at: Timestamp,
    /// The evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// The session that it reached: the agent's generation, followed by a dot and the number of the session's context unless
    /// that is the first. For example `3.1` after one `/clear`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For a message to people: the person that it reached on that way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// For `answered`: the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<MessageId>,
}

/// Returns the stage that sums up a history: the last one if it is an outcome without success, else the furthest.
pub fn furthest(history: &[Step]) -> Stage {
    match history.last().map(|step| step.stage) {
        Some(end @ (Stage::Withdrawn | Stage::Expired | Stage::Refused | Stage::Held)) => end,
        _ => reached(history),
    }
}

/// Returns the furthest success, whatever followed it. Evidence that arrives after the message expired still counts, because
/// the session had received the message before.
pub fn reached(history: &[Step]) -> Stage {
    let successes = history
        .iter()
        .map(|step| step.stage)
        .filter(|stage| *stage <= Stage::Applied);
    successes.max().unwrap_or(Stage::Stored)
}

/// Returns the refusal of an answer to a question that ended without one; `None` if it has not.
pub fn refused_answer(id: &MessageId, history: &[Step]) -> Option<Refusal> {
    match (furthest(history), history.last()?.via) {
        (Stage::Withdrawn, Some(Via::TimeOut)) => Some(Refusal::too_late(id)),
        (Stage::Withdrawn | Stage::Expired, _) => Some(Refusal::withdrawn(id)),
        _ => None,
    }
}

/// The stage that a send had reached when it returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// The stage of the message.
    pub stage: Stage,
    /// The time at which that stage was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_reaches_itself_and_the_stages_before_it() {
        assert!(Stage::Seen.reaches(Stage::Stored) && Stage::Seen.reaches(Stage::Seen));
        assert!(!Stage::OnHost.reaches(Stage::InSession));
        assert!(Stage::Answered.reaches(Stage::Seen));
    }

    #[test]
    fn an_end_without_success_reaches_only_itself() {
        for end in [Stage::Expired, Stage::Refused, Stage::Held] {
            assert!(
                end.reaches(end) && !end.reaches(Stage::Stored) && !Stage::Answered.reaches(end)
            );
        }
    }
}
