//! What a scripted model says: step by step, or by what the last message holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::asked::Asked;

/// One thing a model says.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Words.
    Text(String),
    /// A call of the tool whose name ends with `tool`.
    Call {
        /// The last part of the tool's name, such as `send_message`.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// Nothing for a while: a model that thinks.
    Pause(Duration),
    /// Nothing until a test lets it go on.
    Hold(Gate),
    /// No answer: an error of the service with that status.
    Fail(u16),
}

/// What holds a model back until it is opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<CancellationToken>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it for good.
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
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A call of the tool with that name, whatever server it comes from.
    pub fn call(tool: impl Into<String>, arguments: Value) -> Self {
        Self::Call { tool: tool.into(), arguments }
    }

    /// Nothing until the gate is open.
    pub fn hold(gate: &Gate) -> Self {
        Self::Hold(gate.clone())
    }

    /// Nothing for that many milliseconds. All pauses of an answer come before its first word.
    pub fn pause(milliseconds: u64) -> Self {
        Self::Pause(Duration::from_millis(milliseconds))
    }
}

type Step = Box<dyn Fn(&Asked) -> Vec<Block> + Send + Sync>;

/// Whether a rule holds for a request.
type Sign = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

/// A model's part: rules first, then its steps one after the other, then always the same.
pub struct Script {
    rules: Vec<(Sign, Step)>,
    steps: Vec<Step>,
    next: AtomicUsize,
    otherwise: Vec<Block>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("steps", &self.steps.len()).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// A model that only ever says `ok`.
    pub fn new() -> Self {
        let otherwise = vec![Block::text("ok")];
        Self { rules: Vec::new(), steps: Vec::new(), next: AtomicUsize::new(0), otherwise }
    }

    /// Next it says these.
    #[must_use]
    pub fn then(self, blocks: impl IntoIterator<Item = Block>) -> Self {
        let blocks: Vec<_> = blocks.into_iter().collect();
        self.then_with(move |_| blocks.clone())
    }

    /// Next it says what follows from what it was asked, such as a call with the id out of the last result.
    #[must_use]
    pub fn then_with(mut self, step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    /// Whenever the last message of the user holds `part`, it says what follows from that, and no step is spent.
    #[must_use]
    pub fn when(self, part: impl Into<String>, step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static) -> Self {
        let part = part.into();
        self.when_it(move |asked| asked.last_user_text().contains(&part), step)
    }

    /// Whenever anything that was said since its last answer holds `part`, whoever said it: a hook's text comes from
    /// the system.
    #[must_use]
    pub fn when_told(
        self,
        part: impl Into<String>,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        let part = part.into();
        self.when_it(move |asked| asked.new_text().contains(&part), step)
    }

    /// Whenever the request is such a one.
    #[must_use]
    pub fn when_it(
        mut self,
        sign: impl Fn(&Asked) -> bool + Send + Sync + 'static,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push((Box::new(sign), Box::new(step)));
        self
    }

    /// It says these when its steps are over.
    #[must_use]
    pub fn otherwise(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.otherwise = blocks.into_iter().collect();
        self
    }

    pub(super) fn answer(&self, asked: &Asked) -> Vec<Block> {
        match self.rules.iter().find(|(sign, _)| sign(asked)) {
            Some((_, step)) => step(asked),
            None if asked.offers_tools() => match self.steps.get(self.next.fetch_add(1, Ordering::Relaxed)) {
                Some(step) => step(asked),
                None => self.otherwise.clone(),
            },
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
            .then_with(|asked| vec![Block::text(asked.tool_result()["id"].as_str().unwrap_or("none"))]);
        let result = json!([{"type": "tool_result", "content": [{"type": "text", "text": "{\"id\":\"a::b::1\"}"}]}]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("one")]);
        assert_eq!(script.answer(&asked(json!("please stop"))), [Block::text("stopped")]);
        assert_eq!(script.answer(&asked(result)), [Block::text("a::b::1")]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("ok")]);
    }

    #[test]
    fn requests_without_tools_spend_no_step() {
        let script = Script::new().then([Block::text("one")]);
        let title = Asked::new(json!({"messages": [{"role": "user", "content": "a title please"}]}));
        assert_eq!(script.answer(&title), [Block::text("ok")]);
        assert_eq!(script.answer(&asked(json!("go"))), [Block::text("one")]);
    }

    #[test]
    fn a_rule_may_hold_for_what_the_system_says_but_only_for_what_is_new() {
        let script = Script::new().when_told("mail", |_| vec![Block::text("read")]);
        let told = |messages: Value| Asked::new(json!({"tools": [{"name": "Bash"}], "messages": messages}));
        let mail = json!({"role": "system", "content": "a hook says: mail"});
        let go = json!({"role": "user", "content": "go"});
        let answer = json!({"role": "assistant", "content": []});
        assert_eq!(script.answer(&told(json!([go, mail]))), [Block::text("read")]);
        assert_eq!(script.answer(&told(json!([go, mail, answer, go]))), [Block::text("ok")]);
    }
}
