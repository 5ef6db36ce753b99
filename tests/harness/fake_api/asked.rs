//! A request of the client: its tools and its conversation.

use std::time::Instant;

use serde_json::Value;

use super::ending::Ending;

/// A request of the client, as received.
#[derive(Debug, Clone)]
pub struct Asked {
    body: Value,
    at: Instant,
    ending: Ending,
}

impl Asked {
    /// Creates a request with that body, received now.
    pub(crate) fn new(body: Value) -> Self {
        Self {
            body,
            at: Instant::now(),
            ending: Ending::default(),
        }
    }

    /// Returns the whole body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Returns when it arrived.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns the handle that records how the request ends.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns whether it offers tools. Side requests, such as the one for a title, offer none.
    pub fn offers_tools(&self) -> bool {
        self.body["tools"]
            .as_array()
            .is_some_and(|tools| !tools.is_empty())
    }

    /// Returns the last user message: its texts and tool results as one text.
    pub fn last_user_text(&self) -> String {
        self.last_user().map(flatten).unwrap_or_default()
    }

    /// Returns the texts of the whole conversation, each on lines of its own.
    pub fn all_text(&self) -> String {
        text_of(self.messages())
    }

    /// Returns the texts of the whole conversation, separately.
    pub fn texts(&self) -> Vec<String> {
        let contents = self.messages().iter().map(|message| &message["content"]);
        contents
            .flat_map(|content| {
                content
                    .as_array()
                    .map_or_else(|| vec![flatten(content)], |all| blocks(all))
            })
            .collect()
    }

    /// Returns the texts since the model's last answer: the user's text, tool results, system texts.
    pub fn new_text(&self) -> String {
        let messages = self.messages();
        let answered = messages
            .iter()
            .rposition(|message| message["role"] == "assistant");
        text_of(&messages[answered.map_or(0, |at| at + 1)..])
    }

    /// Returns whether the conversation contains that text.
    pub fn holds(&self, text: &str) -> bool {
        self.all_text().contains(text)
    }

    /// Returns how often the conversation contains that text.
    pub fn count_of(&self, text: &str) -> usize {
        self.all_text().matches(text).count()
    }

    /// Returns the JSON object in the last tool result, or null.
    pub fn tool_result(&self) -> Value {
        let blocks = self.last_user().and_then(Value::as_array);
        let result =
            blocks.and_then(|blocks| blocks.iter().rfind(|block| block["type"] == "tool_result"));
        result
            .and_then(|result| serde_json::from_str(&flatten(&result["content"])).ok())
            .unwrap_or_default()
    }

    /// Returns the full name of the tool that ends with `name`, whether it is offered or only announced.
    pub(super) fn tool_named(&self, name: &str) -> Option<String> {
        // Claude Code puts two underscores after a server's name, opencode puts one after the name of its entry.
        let fits = |full: &str| {
            full == name || full.ends_with(&format!("__{name}")) || full == format!("c3po_{name}")
        };
        let offered = self.body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str());
        if let Some(full) = offered.into_iter().find(|full| fits(full)) {
            return Some(full.to_owned());
        }
        let text = format!("{}\n{}", flatten(&self.body["system"]), self.all_text());
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        words
            .filter(|word| word.starts_with("mcp__"))
            .find(|word| fits(word))
            .map(str::to_owned)
    }

    fn last_user(&self) -> Option<&Value> {
        self.messages()
            .iter()
            .rfind(|message| message["role"] == "user")
            .map(|message| &message["content"])
    }

    fn messages(&self) -> &[Value] {
        self.body["messages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

fn text_of(messages: &[Value]) -> String {
    messages
        .iter()
        .map(|message| flatten(&message["content"]))
        .collect::<Vec<_>>()
        .join("\n")
}

fn flatten(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(all) => blocks(all).join("\n"),
        _ => String::new(),
    }
}

fn blocks(all: &[Value]) -> Vec<String> {
    let text = |block: &Value| {
        block["text"]
            .as_str()
            .map_or_else(|| flatten(&block["content"]), str::to_owned)
    };
    all.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked() -> Asked {
        Asked::new(json!({
            "tools": [{"name": "Bash"}, {"name": "mcp__c3po__reply"}, {"name": "c3po_ack_messages"}],
            "messages": [
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": [{"type": "text", "text": "the first answer"}]},
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "a result"}]}]},
                {"role": "system", "content": "announced: mcp__c3po__ping, mcp__c3po__get_thread."},
            ],
            "system": [{"type": "text", "text": "announced:\nmcp__c3po__set_status\n"}],
        }))
    }

    #[test]
    fn tools_are_found_by_the_end_of_their_names() {
        assert_eq!(
            asked().tool_named("reply").as_deref(),
            Some("mcp__c3po__reply")
        );
        assert_eq!(asked().tool_named("Bash").as_deref(), Some("Bash"));
        assert_eq!(
            asked().tool_named("get_thread").as_deref(),
            Some("mcp__c3po__get_thread")
        );
        assert_eq!(
            asked().tool_named("set_status").as_deref(),
            Some("mcp__c3po__set_status")
        );
        assert_eq!(
            asked().tool_named("ack_messages").as_deref(),
            Some("c3po_ack_messages")
        );
        assert_eq!(asked().tool_named("thread"), None);
    }

    #[test]
    fn texts_of_every_role_are_found() {
        let asked = asked();
        assert!(asked.holds("a result") && asked.holds("announced") && !asked.holds("never"));
        assert_eq!(asked.count_of("first"), 2);
        assert!(asked.new_text().contains("announced") && !asked.new_text().contains("first"));
        let announced = "announced: mcp__c3po__ping, mcp__c3po__get_thread.";
        assert_eq!(
            asked.texts(),
            ["first", "the first answer", "a result", announced]
        );
    }
}
