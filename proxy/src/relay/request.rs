//! The question that a request of the client becomes, and the output by which its hook gives a verdict.

use std::path::PathBuf;

use c3po_shared::catalogue::RequestPermission;
use c3po_shared::limits::{OPTION_LABEL_MAX, PARTS_MAX, TEXT_MAX};
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, Choice, ClientRequest, Part, PartAnswer, Question, Verdict};
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::{Decision, QuestionKind};
use serde_json::{Value, json};

use crate::local::MARK;
use crate::local::protocol::{Event, ToolRequest};

/// The longest text for lists and notifications, in characters.
const SUMMARY_MAX: usize = 2_000;

/// A request of the client.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    kind: QuestionKind,
    tool: String,
    request: ToolRequest,
    input: Value,
    transcript: Option<PathBuf>,
    is_of_subagent: bool,
}

impl Asked {
    /// Returns the request that a hook reports, unless people cannot decide it elsewhere.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let (tool, request) = (event.tool_name.clone()?, event.request.as_deref()?.clone());
        let input: Value = serde_json::from_str(&request.input).ok()?;
        let asked = Self {
            kind: QuestionKind::of_tool(&tool),
            tool,
            transcript: transcript(event),
            is_of_subagent: event.agent_id.is_some(),
            request,
            input,
        };
        asked.question().check().is_ok().then_some(asked)
    }

    /// Returns the transcript of the agent that uses the tool.
    pub(super) fn transcript(&self) -> Option<PathBuf> {
        self.transcript.clone()
    }

    /// Returns whether a subagent uses the tool.
    pub(super) fn is_of_subagent(&self) -> bool {
        self.is_of_subagent
    }

    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    pub(super) fn input(&self) -> &Value {
        &self.input
    }

    /// Returns the call that asks people.
    pub(super) fn call(&self) -> RequestPermission {
        RequestPermission {
            message: self.summary(),
            question: self.question(),
        }
    }

    fn question(&self) -> Question {
        let parts = match self.kind {
            QuestionKind::Choice => self.choices(),
            _ => vec![text_part(self.summary())],
        };
        Question {
            kind: self.kind,
            parts,
            needs_person: true,
            escalated: false,
            request: Some(ClientRequest {
                tool: self.tool.clone(),
                input: self.request.input.clone(),
                suggestions: self.request.suggestions.clone(),
                subagent: self.request.subagent.clone(),
                generation: None,
                hash: String::new(),
            }),
        }
    }

    /// Returns the request in words: the action of the tool, or the question.
    fn summary(&self) -> String {
        let named = |name: &str| self.input[name].as_str();
        let text = match self.kind {
            QuestionKind::Choice => self
                .questions()
                .filter_map(text_of)
                .collect::<Vec<_>>()
                .join("\n"),
            QuestionKind::Plan => named("plan").unwrap_or_default().to_owned(),
            _ => {
                let does = ["command", "file_path", "url"].into_iter().find_map(named);
                let does = does.map_or_else(|| self.request.input.clone(), str::to_owned);
                format!("{}: {does}", self.tool)
            }
        };
        let text = harmless(&text, true);
        if text.trim().is_empty() {
            return self.tool.clone();
        }
        cut(&text, SUMMARY_MAX)
    }

    fn questions(&self) -> impl Iterator<Item = &Value> {
        self.input["questions"].as_array().into_iter().flatten()
    }

    fn choices(&self) -> Vec<Part> {
        let parts = self.questions().zip(1_usize..).map(|(question, number)| {
            let options = labels(question)
                .zip(1_usize..)
                .map(|(label, number)| Choice {
                    id: number.to_string(),
                    label: cut(&harmless(label, false), OPTION_LABEL_MAX),
                });
            Part {
                id: number.to_string(),
                text: cut(
                    &harmless(text_of(question).unwrap_or_default(), true),
                    TEXT_MAX,
                ),
                options: options.collect(),
                multi: question["multiSelect"] == true,
                allow_text: true,
            }
        });
        // One too many is refused by the check.
        parts.take(PARTS_MAX + 1).collect()
    }

    /// Returns the text that the model reads after a refusal.
    pub(super) fn refusal(&self, verdict: &Message) -> String {
        let answer = verdict.answer.as_deref();
        let by = answer.map_or("a person", |answer| answer.by.as_str());
        let reason = answer
            .and_then(|answer| answer.verdict.as_ref())
            .and_then(|verdict| verdict.text.as_deref());
        let reason = reason
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        format!("{MARK} {by} denied this{reason}")
    }

    /// Returns the output of the hook. `None` if the message has no verdict on this request.
    pub(super) fn output(&self, message: &Message) -> Option<String> {
        let answer = message.answer.as_deref()?;
        let decision = match answer.verdict.as_ref()? {
            Verdict {
                decision: Decision::Deny,
                ..
            } => json!({"behavior": "deny", "message": self.refusal(message)}),
            verdict => self.allowance(verdict, answer)?,
        };
        let output = json!({"hookEventName": "PermissionRequest", "decision": decision});
        Some(json!({"hookSpecificOutput": output}).to_string())
    }

    fn allowance(&self, verdict: &Verdict, answer: &Answer) -> Option<Value> {
        let mut decision = json!({"behavior": "allow"});
        if let Some(index) = verdict.suggestion {
            decision["updatedPermissions"] = json!([self.request.suggestions.get(index)?]);
        }
        // The client ignores a bare allowance for these two.
        match self.kind {
            QuestionKind::Plan => decision["updatedInput"] = self.input.clone(),
            QuestionKind::Choice => {
                let mut input = self.input.clone();
                input["answers"] = self.answers(answer);
                decision["updatedInput"] = input;
            }
            _ => {}
        }
        Some(decision)
    }

    /// Returns the answers to the questions of the client, in the form of its own dialog.
    fn answers(&self, answer: &Answer) -> Value {
        let each = self
            .questions()
            .zip(1_usize..)
            .filter_map(|(question, number)| {
                let id = number.to_string();
                let part = answer.parts.iter().find(|part| part.id == id)?;
                Some((
                    text_of(question)?.to_owned(),
                    in_words(question, part).into(),
                ))
            });
        Value::Object(each.collect())
    }
}

/// Returns whether a message allows a request.
pub(super) fn allows(message: &Message) -> bool {
    let answer = message.answer.as_deref();
    let verdict = answer.and_then(|answer| answer.verdict.as_ref());
    verdict.is_some_and(|verdict| verdict.decision != Decision::Deny)
}

/// Returns the chosen labels, as the client wrote them, and the text.
fn in_words(question: &Value, answer: &PartAnswer) -> String {
    let is_chosen = |number: usize| answer.options.contains(&number.to_string());
    let chosen = labels(question)
        .zip(1_usize..)
        .filter_map(|(label, number)| is_chosen(number).then_some(label));
    let text = answer.text.as_deref().filter(|text| !text.is_empty());
    chosen.chain(text).collect::<Vec<_>>().join(", ")
}

fn labels(question: &Value) -> impl Iterator<Item = &str> {
    let options = question["options"].as_array().into_iter().flatten();
    options.filter_map(|option| option["label"].as_str())
}

fn text_of(question: &Value) -> Option<&str> {
    question["question"].as_str()
}

fn text_part(text: String) -> Part {
    Part {
        id: "1".to_owned(),
        text,
        options: Vec::new(),
        multi: false,
        allow_text: true,
    }
}

fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit.saturating_sub(1)) {
        Some((at, c)) if at + c.len_utf8() < text.len() => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
}

/// Returns the transcript in which the use of the tool stands: a subagent has one of its own.
fn transcript(event: &Event) -> Option<PathBuf> {
    let path = event.transcript.clone()?;
    match &event.agent_id {
        None => Some(path),
        Some(agent) => Some(
            path.with_extension("")
                .join(format!("subagents/agent-{agent}.jsonl")),
        ),
    }
}
