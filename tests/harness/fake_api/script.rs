//! The script of a fake model: answers step by step, or by rules about the request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::asked::Asked;

/// One part of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// A call of the tool whose name ends with `tool`.
    Call {
        /// The last part of the tool's name, such as `send_message`.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A pause, as if the model were thinking.
    Pause(Duration),
    /// A pause that lasts until the gate is opened.
    Hold(Gate),
    /// No answer, but an API error with that status.
    Fail(u16),
}

/// Holds a model's answer back until it is opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<CancellationToken>);

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it permanently.
    pub fn open(&self) {
        self.0.cancel();
    }

    /// Waits until it is open.
    pub(super) async fn opened(&self) {
        self.0.cancelled().await;
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Block {
    /// Creates a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a call of the tool with that name, whichever server provides it.
    pub fn call(tool: impl Into<String>, arguments: Value) -> Self {
        Self::Call {
            tool: tool.into(),
            arguments,
        }
    }

    /// Creates a pause until the gate is open.
    pub fn hold(gate: &Gate) -> Self {
        Self::Hold(gate.clone())
    }

    /// Creates a pause of that many milliseconds. All pauses of an answer come before its first word.
    pub fn pause(milliseconds: u64) -> Self {
        Self::Pause(Duration::from_millis(milliseconds))
    }
}

type Step = Box<dyn Fn(&Asked) -> Vec<Block> + Send + Sync>;

/// Decides whether a rule applies to a request.
type Sign = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

/// A model's script: rules first, then the steps in order, then always the same answer.
pub struct Script {
    rules: Vec<(Sign, Step)>,
    steps: Vec<Step>,
    next: AtomicUsize,
    otherwise: Vec<Block>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("steps", &self.steps.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// Creates a model that always answers `ok`.
    pub fn new() -> Self {
        let otherwise = vec![Block::text("ok")];
        Self {
            rules: Vec::new(),
            steps: Vec::new(),
            next: AtomicUsize::new(0),
            otherwise,
        }
    }

    /// Adds a step that answers with these blocks.
    #[must_use]
    pub fn then(self, blocks: impl IntoIterator<Item = Block>) -> Self {
        let blocks: Vec<_> = blocks.into_iter().collect();
        self.then_with(move |_| blocks.clone())
    }

    /// Adds a step that computes its answer from the request, for example a call with the id from the last result.
    #[must_use]
    pub fn then_with(
        mut self,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    /// Adds a rule: if the last user message contains `part`, `step` computes the answer, and no step is used up.
    #[must_use]
    pub fn when(
        self,
        part: impl Into<String>,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        let part = part.into();
        self.when_it(move |asked| asked.last_user_text().contains(&part), step)
    }

    /// Adds a rule for any text since the model's last answer that contains `part`, from any role: the text of a hook has the
    /// role of the system.
    #[must_use]
    pub fn when_told(
        self,
        part: impl Into<String>,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        let part = part.into();
        self.when_it(move |asked| asked.new_text().contains(&part), step)
    }

    /// Adds a rule for requests that satisfy `sign`.
    #[must_use]
    pub fn when_it(
        mut self,
        sign: impl Fn(&Asked) -> bool + Send + Sync + 'static,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push((Box::new(sign), Box::new(step)));
        self
    }

    /// Sets the answer for after the last step.
    #[must_use]
    pub fn otherwise(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.otherwise = blocks.into_iter().collect();
        self
    }

    pub(super) fn answer(&self, asked: &Asked) -> Vec<Block> {
        match self.rules.iter().find(|(sign, _)| sign(asked)) {
            Some((_, step)) => step(asked),
            None if asked.offers_tools() => {
                match self.steps.get(self.next.fetch_add(1, Ordering::Relaxed)) {
                    Some(step) => step(asked),
                    None => self.otherwise.clone(),
                }
            }
            None => self.otherwise.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(last: Value) -> Asked {
        Asked::new(json!({
            "tools": [{"name": "Bash"}, {"name": "mcp__c3po__reply"}],
            "messages": [
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": []},
                {"role": "user", "content": last},
                {"role": "system", "content": "announced: mcp__c3po__ping, mcp__c3po__get_thread."},
            ],
        }))
    }

    #[test]
    fn steps_go_on_and_rules_come_first() {
        let script = Script::new()
            .when("stop", |_| vec![Block::text("stopped")])
            .then([Block::text("one")])
            .then_with(|asked| {
                vec![Block::text(
                    asked.tool_result()["id"].as_str().unwrap_or("none"),
                )]
            });
        let result = json!([{"type": "tool_result", "content": [{"type": "text", "text": "{\"id\":\"a::b::1\"}"}]}]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("one")]);
        assert_eq!(
            script.answer(&asked(json!("please stop"))),
            [Block::text("stopped")]
        );
        assert_eq!(script.answer(&asked(result)), [Block::text("a::b::1")]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("ok")]);
    }

    #[test]
    fn requests_without_tools_spend_no_step() {
        let script = Script::new().then([Block::text("one")]);
        let title =
            Asked::new(json!({"messages": [{"role": "user", "content": "a title please"}]}));
        assert_eq!(script.answer(&title), [Block::text("ok")]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("one")]);
    }

    #[test]
    fn a_rule_may_match_system_messages_but_only_new_ones() {
        let script = Script::new().when_told("mail", |_| vec![Block::text("read")]);
        let told = |messages: Value| {
            Asked::new(json!({"tools": [{"name": "Bash"}], "messages": messages}))
        };
        let mail = json!({"role": "system", "content": "a hook says: mail"});
        let go = json!({"role": "user", "content": "go"});
        let answer = json!({"role": "assistant", "content": []});
        assert_eq!(
            script.answer(&told(json!([go, mail]))),
            [Block::text("read")]
        );
        assert_eq!(
            script.answer(&told(json!([go, mail, answer, go]))),
            [Block::text("ok")]
        );
    }
}
