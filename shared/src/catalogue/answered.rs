//! The reply of `ask_user`: the answer of people, or the report that there is none yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::MessageId;
use crate::message::Message;
use crate::question::{Part, PartAnswer};
use crate::receipt::Via;
use crate::time::Timestamp;
use crate::vocabulary::{AnswerStatus, NoResponse, ReplyStatus};

/// `ask_user` after its wait
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserAnswer {
    /// The question.
    pub question_id: MessageId,
    /// The outcome.
    pub status: AnswerStatus,
    /// The answer to each part, with the labels of the chosen options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<PartAnswer>,
    /// The name of the answering login, `terminal@HOST`, `local (not verified)`, or `triage/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The way by which the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// The message with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<MessageId>,
    /// The seconds from the question to its answer, or until now.
    pub waited_seconds: u64,
    /// The next step, or a note about the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The text that models read after a wait without an answer.
const KEEP_OPEN: &str = "Nobody has answered yet. The question stays open. Do not ask again in a loop: continue with work \
    that does not depend on it, and call ask_user with this question_id later.";
/// The same, if the asker said that it would decide alone.
const BEST_JUDGMENT: &str = "Nobody has answered yet. Proceed with your best judgment and record the assumption. Do not \
    ask again in a loop. A late answer is returned by ask_user with this question_id.";
const WITHDRAWN: &str =
    "The question is not asked any more. Do not ask it again unless your user wants that.";

impl UserAnswer {
    /// Returns the outcome without an answer, `waited` seconds after the question.
    fn without(question_id: MessageId, status: AnswerStatus, waited: u64, note: &str) -> Self {
        Self {
            question_id,
            status,
            answers: Vec::new(),
            answered_by: None,
            via: None,
            reply_id: None,
            waited_seconds: waited,
            note: Some(note.to_owned()),
        }
    }

    /// Returns the outcome of a wait without an answer.
    pub fn no_response(question_id: MessageId, waited: u64, advice: NoResponse) -> Self {
        let note = match advice {
            NoResponse::KeepOpen => KEEP_OPEN,
            NoResponse::BestJudgment => BEST_JUDGMENT,
        };
        Self::without(question_id, AnswerStatus::NoResponse, waited, note)
    }

    /// Returns the outcome for a question that is not asked any more.
    pub fn withdrawn(question_id: MessageId, waited: u64) -> Self {
        Self::without(question_id, AnswerStatus::Withdrawn, waited, WITHDRAWN)
    }

    /// Returns the answer in a reply to a question.
    pub fn answered(question: &Message, reply: &Message) -> Self {
        let waited = waited(question.timestamp, reply.timestamp);
        let question_id = question.id.clone();
        let unanswered = Self::without(question_id, AnswerStatus::Answered, waited, "");
        let outcome = Self {
            reply_id: Some(reply.id.clone()),
            note: (reply.status == Some(ReplyStatus::Error)).then(|| "It is refused.".to_owned()),
            ..unanswered
        };
        let Some(answer) = &reply.answer else {
            let text = PartAnswer {
                text: Some(reply.text().to_owned()),
                ..PartAnswer::default()
            };
            return Self {
                answers: vec![text],
                answered_by: Some(reply.from_agent.to_string()),
                ..outcome
            };
        };
        let parts: &[Part] = question.question.as_ref().map_or(&[], |asked| &asked.parts);
        let labelled = |one: &PartAnswer| {
            let part = parts.iter().find(|part| part.id == one.id);
            let labelled = part.map_or_else(|| one.clone(), |part| part.labelled(one));
            // The id of an only part says nothing.
            let id = if parts.len() > 1 {
                labelled.id
            } else {
                String::new()
            };
            PartAnswer { id, ..labelled }
        };
        Self {
            answers: answer.parts.iter().map(labelled).collect(),
            answered_by: Some(answer.by.clone()),
            via: Some(answer.via),
            note: answer.note(),
            ..outcome
        }
    }
}

/// Returns the seconds from a question until that time.
pub fn waited(asked_at: Timestamp, until: Timestamp) -> u64 {
    until.since(asked_at).as_secs()
}
