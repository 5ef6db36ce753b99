//! What a scripted model says: step by step, or by what the last message holds.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

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
}

/// A request of the client, as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    body: Value,
}

impl Asked {
    pub(super) fn new(body: Value) -> Self {
        Self { body }
    }

    /// Returns the whole body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Returns whether tools were offered: side requests such as the one for a title offer none.
    pub fn offers_tools(&self) -> bool {
        self.body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    /// Returns the last message of the user, texts and tool results as one text.
    pub fn last_user_text(&self) -> String {
        self.last_user().map(flatten).unwrap_or_default()
    }

    /// Returns the object in the last tool result, or null.
    pub fn tool_result(&self) -> Value {
        let blocks = self.last_user().and_then(Value::as_array);
        let result = blocks.and_then(|blocks| blocks.iter().rfind(|block| block["type"] == "tool_result"));
        result.and_then(|result| serde_json::from_str(&flatten(&result["content"])).ok()).unwrap_or_default()
    }

    /// Returns the full name of the tool that ends with `name`: one that is offered, or one that is only announced.
    pub(super) fn tool_named(&self, name: &str) -> Option<String> {
        let fits = |full: &str| full == name || full.ends_with(&format!("__{name}"));
        let offered = self.body["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
        if let Some(full) = offered.into_iter().find(|full| fits(full)) {
            return Some(full.to_owned());
        }
        let text = self.body.to_string();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        words.filter(|word| word.starts_with("mcp__")).find(|word| fits(word)).map(str::to_owned)
    }

    fn last_user(&self) -> Option<&Value> {
        let messages = self.body["messages"].as_array()?;
        messages.iter().rfind(|message| message["role"] == "user").map(|message| &message["content"])
    }
}

fn flatten(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|block| match block["text"].as_str() {
                Some(text) => text.to_owned(),
                None => flatten(&block["content"]),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

type Step = Box<dyn Fn(&Asked) -> Vec<Block> + Send + Sync>;

/// A model's part: rules first, then its steps one after the other, then always the same.
pub struct Script {
    rules: Vec<(String, Step)>,
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
    pub fn when(
        mut self,
        part: impl Into<String>,
        step: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push((part.into(), Box::new(step)));
        self
    }

    /// It says these when its steps are over.
    #[must_use]
    pub fn otherwise(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.otherwise = blocks.into_iter().collect();
        self
    }

    pub(super) fn answer(&self, asked: &Asked) -> Vec<Block> {
        let text = asked.last_user_text();
        let rule = self.rules.iter().find(|(part, _)| text.contains(part.as_str()));
        match rule {
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
    fn tools_are_found_by_the_end_of_their_names() {
        let asked = asked(json!("x"));
        assert_eq!(asked.tool_named("reply").as_deref(), Some("mcp__c3po__reply"));
        assert_eq!(asked.tool_named("Bash").as_deref(), Some("Bash"));
        assert_eq!(asked.tool_named("get_thread").as_deref(), Some("mcp__c3po__get_thread"));
        assert_eq!(asked.tool_named("thread"), None);
    }
}
