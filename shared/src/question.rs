//! Questions to people, and their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::AgentId;
use crate::limits::{
    OPTION_LABEL_MAX, OPTIONS_MAX, PARTS_MAX, REQUEST_MAX, SAVED_NAME_MAX, TEXT_MAX,
};
use crate::raw_json::JsonText;
use crate::receipt::Via;
use crate::refusal::Refusal;
use crate::text::check_plain;
use crate::vocabulary::{Decision, QuestionKind};

/// The path of the number of open questions.
pub const WAITING_PATH: &str = "/api/v1/questions/waiting";

/// The longest id of a part or an option, in bytes.
const ID_MAX: usize = 40;
/// The most rules that a client offers to add with an allowance.
const SUGGESTIONS_MAX: usize = 10;
/// The most levels of a suggestion.
const SUGGESTION_DEPTH_MAX: usize = 32;

/// A question to people. Its message carries the text for lists and notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The kind of question, and so the effect of an answer.
    pub kind: QuestionKind,
    /// One part, or up to four in a question of the client.
    pub parts: Vec<Part>,
    /// Whether only a person may answer: with a login, or by a code that was pushed to the person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
    /// Whether an agent escalated it: no other agent answers it for people.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
    /// The request of the client; absent for a question of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ClientRequest>,
}

/// The open questions to people, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// How many wait for an answer.
    pub count: usize,
    /// The age of the oldest; absent if none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_seconds: Option<u64>,
}

/// One part of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The id, unique in its question.
    pub id: String,
    /// The text.
    pub text: String,
    /// The options to choose from; none if only a text answers it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// Whether more than one option may be chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi: bool,
    /// Whether a text may answer it instead of an option.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_text: bool,
}

/// One option of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The id, unique in its part.
    pub id: String,
    /// The label that people read.
    pub label: String,
}

/// A request of the client that waits for a person: all that a verdict decides about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientRequest {
    /// The tool.
    pub tool: String,
    /// Its input, as the JSON text that the client reported.
    pub input: String,
    /// The rules that the client offers to add with an allowance, in its own form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub suggestions: Vec<JsonText>,
    /// The kind of subagent that uses the tool; absent for the session itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// The number of the session that asks, set by the coordinator. The request ends with that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// A hash of tool and input, set by the coordinator. A verdict repeats it, so it decides about nothing else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}

/// An answer of a person, as it is stored with the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Who answered: the name of a login, `terminal@HOST`, `local (not verified)`, or `triage/NAME`.
    pub by: String,
    /// The way by which the answer came.
    pub via: Via,
    /// The answers to the parts, in their order; empty if a verdict without them decides the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartAnswer>,
    /// The verdict on a request of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The name of the person's saved answer that was sent; absent for one that was written for this question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
    /// Whether `ask_user` returns it to the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_ask_user: bool,
}

/// Begins the name of an agent that answered for people.
const TRIAGE: &str = "triage/";

impl Answer {
    /// Returns the name by which an agent answers for people.
    pub fn by_triage(agent: &AgentId) -> String {
        format!("{TRIAGE}{agent}")
    }

    /// Returns whether an agent answered for people.
    pub fn is_of_triage(&self) -> bool {
        self.by.starts_with(TRIAGE)
    }

    /// Returns a note for readers who could take it for an answer that a person wrote for this question.
    pub fn note(&self) -> Option<String> {
        if self.is_of_triage() {
            return Some("Another agent answered for people, not a person.".to_owned());
        }
        let name = self.saved.as_ref()?;
        let by = &self.by;
        Some(format!(
            "It is the saved answer {name} of {by}, not written for this question."
        ))
    }

    /// Returns the name and the way for the log, where the answer needed no login: `ntfy/ann`, `dialog/terminal@HOST` or
    /// `triage/AGENT`.
    pub fn signature(&self) -> String {
        if self.is_of_triage() {
            return self.by.clone();
        }
        format!("{}/{}", self.via.as_str(), self.by)
    }
}

/// The answer to one part: options, a text, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartAnswer {
    /// The id of the part. May be left out if the question has only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The ids of the chosen options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The verdict on a request of the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// With `allow`: the position of the client's suggestion that is accepted too, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = SUGGESTIONS_MAX))]
    pub suggestion: Option<usize>,
    /// With `deny`: the reason, which the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The hash of the request that was shown.
    pub request_hash: String,
}

/// The content of an answer, as a person's page or command sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerContent {
    /// The answers to the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartAnswer>,
    /// The verdict, if the client asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The way, if the sender is a page or a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["page", "terminal", "rest"]))]
    pub via: Option<Via>,
    /// The name of the saved answer whose text this is. The asker reads it. Needs a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
}

impl Question {
    /// Returns a question of one part. The ids of its options count from 1.
    pub fn ask(text: &str, options: &[String]) -> Self {
        let choices = (1..).zip(options).map(|(number, label)| Choice {
            id: u64::to_string(&number),
            label: label.clone(),
        });
        let part = Part {
            id: "1".to_owned(),
            text: text.to_owned(),
            options: choices.collect(),
            multi: false,
            allow_text: true,
        };
        Self {
            kind: QuestionKind::Ask,
            parts: vec![part],
            needs_person: false,
            escalated: false,
            request: None,
        }
    }

    /// Returns an error for the first value that is out of its bounds.
    pub fn check(&self) -> Result<(), Refusal> {
        let bounds = [
            ("parts", self.parts.len(), PARTS_MAX),
            ("suggestions", self.suggestions().len(), SUGGESTIONS_MAX),
        ];
        for (field, count, limit) in bounds {
            if count > limit {
                return Err(Refusal::too_large(field, count, limit));
            }
        }
        let request = self.request.as_ref();
        let kind = request.map_or(QuestionKind::Ask, |request| {
            QuestionKind::of_tool(&request.tool)
        });
        if self.parts.is_empty() || self.kind != kind {
            let error = "the question has no part, or its kind is not that of its request";
            return Err(Refusal::invalid(error));
        }
        if let Some(request) = &self.request {
            let bytes = serde_json::to_string(request).map_or(usize::MAX, |json| json.len());
            if bytes > REQUEST_MAX {
                return Err(Refusal::too_large("request", bytes, REQUEST_MAX));
            }
        }
        // It must be read behind the levels of a list of messages, too.
        let deepest = self.suggestions().iter().map(JsonText::depth).max();
        if deepest.is_some_and(|depth| depth > SUGGESTION_DEPTH_MAX) {
            let error = format!("a suggestion is nested more than {SUGGESTION_DEPTH_MAX} times");
            return Err(Refusal::invalid(error));
        }
        check_unique("parts", self.parts.iter().map(|part| &part.id))?;
        self.parts.iter().try_for_each(Part::check)
    }

    /// Returns the rules that the client offers.
    pub fn suggestions(&self) -> &[JsonText] {
        self.request
            .as_ref()
            .map_or(&[], |request| &request.suggestions)
    }

    /// Returns whether a verdict decides it, and not words.
    pub fn needs_verdict(&self) -> bool {
        self.request.is_some()
    }

    /// Checks an answer against the question. Returns it with the id of each part.
    ///
    /// Errors: `INVALID_REQUEST` for parts or options that the question does not have, for no answer to a part, and for a
    /// verdict on another request than the one that is stored.
    pub fn accept(&self, content: AnswerContent) -> Result<AnswerContent, Refusal> {
        self.check_verdict(content.verdict.as_ref())?;
        if let Some(name) = &content.saved {
            self.check_saved(name)?;
        }
        let denies = content
            .verdict
            .as_ref()
            .is_some_and(|verdict| verdict.decision == Decision::Deny);
        let answers_parts =
            matches!(self.kind, QuestionKind::Ask | QuestionKind::Choice) && !denies;
        let parts = if answers_parts {
            let answered = self.parts.iter().map(|part| self.answer_to(part, &content));
            answered.collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let known = |answer: &PartAnswer| {
            answer.id.is_empty() || self.parts.iter().any(|part| part.id == answer.id)
        };
        if content.parts.len() > parts.len() || !content.parts.iter().all(known) {
            return Err(Refusal::invalid(
                "the answer has a part that the question does not have",
            ));
        }
        Ok(AnswerContent { parts, ..content })
    }

    fn answer_to(&self, part: &Part, content: &AnswerContent) -> Result<PartAnswer, Refusal> {
        let is_only = self.parts.len() == 1;
        let of_part =
            |answer: &&PartAnswer| answer.id == part.id || (is_only && answer.id.is_empty());
        let answer = content.parts.iter().find(of_part);
        let answer =
            answer.ok_or_else(|| Refusal::invalid(format!("part {} has no answer", part.id)))?;
        part.check_answer(answer)?;
        Ok(PartAnswer {
            id: part.id.clone(),
            ..answer.clone()
        })
    }

    /// A saved answer is for questions that any person may answer in words.
    fn check_saved(&self, name: &str) -> Result<(), Refusal> {
        if self.needs_person || self.needs_verdict() {
            let error = "a saved answer does not decide this question";
            return Err(Refusal::invalid(error).suggest("Write an answer for it."));
        }
        check_plain("saved", name)?;
        check_length("saved", name, SAVED_NAME_MAX)?;
        if name.trim().is_empty() {
            return Err(Refusal::invalid("the name of the saved answer is empty"));
        }
        Ok(())
    }

    fn check_verdict(&self, verdict: Option<&Verdict>) -> Result<(), Refusal> {
        let (request, verdict) = match (&self.request, verdict) {
            (None, None) => return Ok(()),
            (Some(request), Some(verdict)) => (request, verdict),
            (Some(_), None) => {
                return Err(Refusal::invalid("the client's request needs a verdict"));
            }
            (None, Some(_)) => {
                return Err(Refusal::invalid("the question needs words, not a verdict"));
            }
        };
        if verdict.request_hash != request.hash {
            let error = "request_hash is not that of this request";
            return Err(
                Refusal::invalid(error).suggest("Show the request again before you decide.")
            );
        }
        let is_allowed = verdict.decision == Decision::Allow;
        match verdict.suggestion {
            Some(_) if !is_allowed => return Err(Refusal::invalid("suggestion belongs to allow")),
            Some(index) if index >= request.suggestions.len() => {
                return Err(Refusal::invalid(format!("there is no suggestion {index}")));
            }
            _ => {}
        }
        check_length(
            "text",
            verdict.text.as_deref().unwrap_or_default(),
            TEXT_MAX,
        )
    }
}

impl Part {
    fn check(&self) -> Result<(), Refusal> {
        if self.options.len() > OPTIONS_MAX {
            return Err(Refusal::too_large(
                "options",
                self.options.len(),
                OPTIONS_MAX,
            ));
        }
        if self.options.is_empty() && !self.allow_text {
            return Err(Refusal::invalid("a part without options needs allow_text"));
        }
        check_length("text", &self.text, TEXT_MAX)?;
        for option in &self.options {
            check_plain("option", &option.label)?;
            check_length("option", &option.label, OPTION_LABEL_MAX)?;
            if option.label.trim().is_empty() {
                return Err(Refusal::invalid("an option is empty"));
            }
        }
        check_unique("options", self.options.iter().map(|option| &option.id))
    }

    fn check_answer(&self, answer: &PartAnswer) -> Result<(), Refusal> {
        let text = answer.text.as_deref().unwrap_or_default();
        check_length("text", text, TEXT_MAX)?;
        if !text.is_empty() && !self.allow_text {
            return Err(Refusal::invalid(format!(
                "part {} takes options only",
                self.id
            )));
        }
        if answer.options.len() > 1 && !self.multi {
            return Err(Refusal::invalid(format!(
                "part {} takes one option",
                self.id
            )));
        }
        check_unique("options", answer.options.iter())?;
        let is_known = |id: &String| self.options.iter().any(|option| option.id == *id);
        if let Some(id) = answer.options.iter().find(|id| !is_known(id)) {
            let id: String = id.chars().take(ID_MAX).collect();
            return Err(Refusal::invalid(format!(
                "part {} has no option {id}",
                self.id
            )));
        }
        if answer.options.is_empty() && text.trim().is_empty() {
            return Err(Refusal::invalid(format!("part {} has no answer", self.id)));
        }
        Ok(())
    }

    /// Returns the answer with the labels of the options instead of their ids, as models read it.
    pub fn labelled(&self, answer: &PartAnswer) -> PartAnswer {
        let chosen = |option: &&Choice| answer.options.contains(&option.id);
        let labels = self.options.iter().filter(chosen);
        PartAnswer {
            options: labels.map(|option| option.label.clone()).collect(),
            ..answer.clone()
        }
    }

    /// Returns the answer as people and models read it: the labels of the options, then the text.
    pub fn in_words(&self, answer: &PartAnswer) -> String {
        let chosen = |option: &&Choice| answer.options.contains(&option.id);
        let labels = self
            .options
            .iter()
            .filter(chosen)
            .map(|option| option.label.as_str());
        let text = answer.text.as_deref().filter(|text| !text.is_empty());
        labels.chain(text).collect::<Vec<_>>().join(", ")
    }
}

fn check_length(field: &str, text: &str, limit: usize) -> Result<(), Refusal> {
    let count = text.chars().count();
    if count > limit {
        return Err(Refusal::too_large(field, count, limit));
    }
    Ok(())
}

fn check_unique<'a>(
    field: &str,
    ids: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), Refusal> {
    let mut seen = std::collections::HashSet::new();
    for id in ids {
        if id.is_empty() || id.len() > ID_MAX || !seen.insert(id) {
            return Err(Refusal::invalid(format!(
                "{field}: an id is empty, too long or not unique"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_suggestion_is_nested_as_deep_as_a_list_can_be_read() {
        let check = |depth: usize| {
            let rule = (0..depth).fold(json!(1), |inner, _| json!([inner]));
            let request = json!({"tool": "Bash", "input": "rm", "suggestions": [rule]});
            let question = json!({"kind": "permission", "parts": [{"id": "q", "text": "?", "allow_text": true}], "request": request});
            serde_json::from_value::<Question>(question)
                .expect("a question")
                .check()
        };
        assert!(check(SUGGESTION_DEPTH_MAX).is_ok());
        assert!(check(SUGGESTION_DEPTH_MAX + 1).is_err());
    }
}
